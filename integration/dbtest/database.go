package dbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/mattn/go-sqlite3"
	"modernc.org/sqlite"
)

// setupTimeout bounds what these helpers do at a server before and after a test.
const setupTimeout = 30 * time.Second

// An Engine is a kind of database server, whatever driver talks to it.
type Engine string

// The engines, with the statements' grammar that goes with each.
const (
	EnginePostgres Engine = "postgres"
	EngineMariaDB  Engine = "mariadb"
	EngineSQLite   Engine = "sqlite"
)

// A Database is an empty database of one test, seen through one driver. The
// value can be copied; the With… methods return a changed copy.
type Database struct {
	Engine Engine
	Name   string // the driver's: pq, pgx, mariadb, sqlite, sqlite-cgo
	Driver driver.Driver
	DSN    string

	database string // name at the server; empty for SQLite
	admin    *sql.DB
	after    *[]string // statements for when the database is dropped
}

// PQ returns an empty PostgreSQL database, through lib/pq.
func PQ(t testing.TB) Database {
	t.Helper()
	return postgres(t, "pq", &pq.Driver{})
}

// PGX returns an empty PostgreSQL database, through pgx.
func PGX(t testing.TB) Database {
	t.Helper()
	return postgres(t, "pgx", stdlib.GetDefaultDriver())
}

func postgres(t testing.TB, name string, d driver.Driver) Database {
	t.Helper()
	dsn := lookup(t, envPostgres)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("%s: %v", envPostgres, err)
	}
	db := Database{Engine: EnginePostgres, Name: name, Driver: d, database: uniqueName(t)}
	db.admin = openAdmin(t, &pq.Driver{}, dsn)
	db.create(t, " WITH (FORCE)")
	u.Path = "/" + db.database
	db.DSN = u.String()
	return db
}

// MariaDB returns an empty MariaDB database, through go-sql-driver/mysql. Times
// come back as []byte; WithParams("parseTime=true") changes that.
func MariaDB(t testing.TB) Database {
	t.Helper()
	dsn := lookup(t, envMySQL)
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatalf("%s: %v", envMySQL, err)
	}
	db := Database{Engine: EngineMariaDB, Name: "mariadb", Driver: &mysql.MySQLDriver{}, database: uniqueName(t)}
	db.admin = openAdmin(t, db.Driver, dsn)
	db.create(t, "")
	cfg.DBName = db.database
	db.DSN = cfg.FormatDSN()
	return db
}

// SQLite returns an empty SQLite file in WAL mode, through modernc.org/sqlite.
func SQLite(t testing.TB) Database {
	t.Helper()
	return Database{
		Engine: EngineSQLite, Name: "sqlite", Driver: &sqlite.Driver{},
		DSN: "file:" + sqliteFile(t) + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)",
	}
}

// SQLiteCgo returns an empty SQLite file in WAL mode, through mattn/go-sqlite3.
func SQLiteCgo(t testing.TB) Database {
	t.Helper()
	return Database{
		Engine: EngineSQLite, Name: "sqlite-cgo", Driver: &sqlite3.SQLiteDriver{},
		DSN: "file:" + sqliteFile(t) + "?_busy_timeout=10000&_journal_mode=WAL",
	}
}

func sqliteFile(t testing.TB) string {
	return filepath.ToSlash(filepath.Join(t.TempDir(), "test.db"))
}

// EachDatabase runs f as a subtest on an empty database of every driver.
func EachDatabase(t *testing.T, f func(t *testing.T, db Database)) {
	for _, each := range []struct {
		name string
		make func(testing.TB) Database
	}{
		{"pq", PQ}, {"pgx", PGX}, {"mariadb", MariaDB}, {"sqlite", SQLite}, {"sqlite-cgo", SQLiteCgo},
	} {
		t.Run(each.name, func(t *testing.T) { f(t, each.make(t)) })
	}
}

func openAdmin(t testing.TB, d driver.Driver, dsn string) *sql.DB {
	t.Helper()
	c, err := connector(d, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

// create makes the database, and drops it when the test has ended.
func (d *Database) create(t testing.TB, dropOption string) {
	t.Helper()
	d.after = new([]string)
	after := d.after
	if err := execAll(d.admin, "CREATE DATABASE "+d.database); err != nil {
		t.Fatal(err)
	}
	drop := "DROP DATABASE " + d.database + dropOption
	admin := d.admin
	t.Cleanup(func() {
		if err := execAll(admin, append([]string{drop}, *after...)...); err != nil {
			t.Error(err)
		}
	})
}

func execAll(db *sql.DB, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// Connector returns a bare connector of the driver.
func (d Database) Connector(t testing.TB) driver.Connector {
	t.Helper()
	c, err := connector(d.Driver, d.DSN)
	if err != nil {
		t.Fatalf("%s: %v", d.Name, err)
	}
	return c
}

// connector makes a connector as sql.Open does.
func connector(d driver.Driver, dsn string) (driver.Connector, error) {
	if dc, ok := d.(driver.DriverContext); ok {
		return dc.OpenConnector(dsn)
	}
	return dsnConnector{d, dsn}, nil
}

// dsnConnector opens connections of a driver that has no connectors.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// Open returns a pool on the database, with the bare driver.
func (d Database) Open(t testing.TB) *sql.DB {
	t.Helper()
	return OpenDB(t, d.Connector(t))
}

// OpenDB is sql.OpenDB that checks the connection, and closes the pool with the test.
func OpenDB(t testing.TB, c driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		t.Fatal(err)
	}
	return db
}

// Exec runs statements through a bare connection of its own, to set a test up.
func (d Database) Exec(t testing.TB, statements ...string) {
	t.Helper()
	db := sql.OpenDB(d.Connector(t))
	defer db.Close()
	if err := execAll(db, statements...); err != nil {
		t.Fatalf("%s: %v", d.Name, err)
	}
}

// WithParams adds parameters, such as "parseTime=true", to the DSN.
func (d Database) WithParams(params ...string) Database {
	for _, p := range params {
		if strings.Contains(d.DSN, "?") {
			d.DSN += "&" + p
		} else {
			d.DSN += "?" + p
		}
	}
	return d
}

// WithUser makes a login that may do everything in this database, and returns
// the database as that login sees it.
func (d Database) WithUser(t testing.TB, password string) Database {
	t.Helper()
	user := uniqueName(t)
	user = "u" + user[len(user)-12:]
	// A login cannot be dropped before what it owns.
	drop := func(statement string) { *d.after = append(*d.after, statement) }
	switch d.Engine {
	case EnginePostgres:
		if err := execAll(d.admin, fmt.Sprintf("CREATE ROLE %s LOGIN SUPERUSER PASSWORD '%s'", user, password)); err != nil {
			t.Fatal(err)
		}
		drop("DROP ROLE " + user)
		u, err := url.Parse(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, password)
		d.DSN = u.String()
	case EngineMariaDB:
		if err := execAll(d.admin, fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", user, password),
			fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'%%'", d.database, user)); err != nil {
			t.Fatal(err)
		}
		drop(fmt.Sprintf("DROP USER '%s'@'%%'", user))
		cfg, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		cfg.User, cfg.Passwd = user, password
		d.DSN = cfg.FormatDSN()
	default:
		t.Fatalf("%s has no logins", d.Name)
	}
	return d
}

// Through puts a proxy between the driver and the server, and returns the
// database as seen through it. The proxy counts the connections exactly.
func (d Database) Through(t testing.TB) (Database, *Proxy) {
	t.Helper()
	switch d.Engine {
	case EnginePostgres:
		u, err := url.Parse(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p := NewProxy(t, u.Host)
		u.Host = p.Addr()
		d.DSN = u.String()
		return d, p
	case EngineMariaDB:
		cfg, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p := NewProxy(t, cfg.Addr)
		// In the text, so that every parameter stays as it was written.
		d.DSN = strings.Replace(d.DSN, "("+cfg.Addr+")", "("+p.Addr()+")", 1)
		return d, p
	}
	t.Fatalf("%s does not use the network", d.Name)
	return d, nil
}

// Connections returns how many connections the server counts on this database.
func (d Database) Connections(t testing.TB) int {
	t.Helper()
	var query string
	switch d.Engine {
	case EnginePostgres:
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = '" + d.database + "'"
	case EngineMariaDB:
		query = "SELECT count(*) FROM information_schema.processlist WHERE db = '" + d.database + "'"
	default:
		t.Fatalf("%s has no connections to count", d.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	var n int
	if err := d.admin.QueryRowContext(ctx, query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
