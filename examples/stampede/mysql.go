package main

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A mysqlDatabase is two tables and a function at a MySQL or MariaDB server, which counts the
// queries itself. Connections are counted where the driver opens them.
type mysqlDatabase struct {
	url   string
	host  string
	name  string // what the names of our tables and our function begin with
	load  time.Duration
	admin *sql.DB
}

func openMySQL(ctx context.Context, rawURL string, load time.Duration) (_ database, err error) {
	cfg, err := mysqlConfig(rawURL)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	m := &mysqlDatabase{url: rawURL, host: cfg.Addr, name: objectName(), load: load, admin: sql.OpenDB(base)}
	defer func() {
		if err != nil {
			_ = m.close() // the error that brought us here is the one to tell
		}
	}()
	if err := m.admin.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	for _, statement := range []string{
		`CREATE TABLE NAME_product (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL)`,
		`INSERT INTO NAME_product VALUES (` + fmt.Sprintf("%d, '%s'", productID, productName) + `)`,
		`CREATE TABLE NAME_answered (ms INT NOT NULL) ENGINE=InnoDB`,
		// Each answered query leaves a row.
		`CREATE FUNCTION NAME_slow(ms INT) RETURNS INT NOT DETERMINISTIC MODIFIES SQL DATA
		 BEGIN
		   DO SLEEP(ms / 1000);
		   INSERT INTO NAME_answered VALUES (ms);
		   RETURN ms;
		 END`,
	} {
		if _, err := m.admin.ExecContext(ctx, m.in(statement)); err != nil {
			return nil, fmt.Errorf("-dsn: two tables and a function have to be created: %w%s", err, mysqlAdvice(err))
		}
	}
	return m, nil
}

// mysqlAdvice says what to do about the refusals that are hard to understand.
func mysqlAdvice(err error) string {
	const binlogUnsafe, binlogSuper = 1418, 1419
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && (refused.Number == binlogUnsafe || refused.Number == binlogSuper) {
		return " (the server has a binary log: SET GLOBAL log_bin_trust_function_creators = 1)"
	}
	return ""
}

// mysqlConfig turns a URL into the driver's configuration. The URL's parameters are the driver's.
func mysqlConfig(raw string) (*mysql.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a URL") // the error's text may hold a password
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || name == "" {
		return nil, errors.New("must name a host and a database, as mysql://user:password@host/name does")
	}
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")), name
	return cfg, nil
}

// in puts our name into a statement.
func (m *mysqlDatabase) in(statement string) string {
	return strings.ReplaceAll(statement, "NAME_", m.name+"_")
}

func (m *mysqlDatabase) String() string { return "MySQL at " + m.host + " (go-sql-driver)" }

func (m *mysqlDatabase) query(comment string) string {
	return m.in(fmt.Sprintf(`SELECT %s p.id, p.name, NAME_slow(%d) FROM NAME_product p WHERE p.id = ?`,
		comment, m.load.Milliseconds()))
}

func (m *mysqlDatabase) source(int) source { return source{Driver: "mysql", DSN: m.url} }

func mysqlConnector(s source, book *bookkeeper) (driver.Connector, error) {
	cfg, err := mysqlConfig(s.DSN)
	if err != nil {
		return nil, err
	}
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return countingConnector{base: base, book: book}, nil
}

func (m *mysqlDatabase) reset(ctx context.Context) error {
	_, err := m.admin.ExecContext(ctx, m.in(`DELETE FROM NAME_answered`))
	return err
}

func (m *mysqlDatabase) tally(ctx context.Context, ledgers []ledger) (count, error) {
	c := countLedgers(ledgers)
	err := m.admin.QueryRowContext(ctx, m.in(`SELECT count(*) FROM NAME_answered`)).Scan(&c.queries)
	return c, err
}

func (m *mysqlDatabase) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var failed error
	for _, statement := range []string{
		`DROP FUNCTION IF EXISTS NAME_slow`, `DROP TABLE IF EXISTS NAME_answered`, `DROP TABLE IF EXISTS NAME_product`,
	} {
		if _, err := m.admin.ExecContext(ctx, m.in(statement)); err != nil && failed == nil {
			failed = fmt.Errorf("%s… could not be dropped: %w", m.name, err)
		}
	}
	return errors.Join(failed, m.admin.Close())
}
