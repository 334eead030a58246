package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// sqliteSlots is how many queries the SQLite file answers at a time, over all
// processes. A file has no such limit while its queries only sleep, but every
// server has: this one stands for a server with 64 queries under way.
const sqliteSlots = 64

// A sqliteDatabase is a file in a temporary folder.
type sqliteDatabase struct {
	dir  string
	file string
	load time.Duration
}

func openSQLite(ctx context.Context, load time.Duration) (_ database, err error) {
	dir, err := os.MkdirTemp("", "sqlherd-stampede-")
	if err != nil {
		return nil, err
	}
	s := &sqliteDatabase{dir: dir, file: filepath.Join(dir, "shop.db"), load: load}
	defer func() {
		if err != nil {
			_ = s.close() // the error that brought us here is the one to tell
		}
	}()
	db, err := sql.Open("sqlite", s.url(""))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO product VALUES (?, ?)`, productID, productName)
	return s, err
}

// url returns the file as SQLite's URI, which takes any path.
func (s *sqliteDatabase) url(query string) string {
	path := filepath.ToSlash(s.file)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query}).String()
}

func (s *sqliteDatabase) String() string {
	return fmt.Sprintf("SQLite file (modernc.org/sqlite) that answers %d queries at a time, as a server would", sqliteSlots)
}

func (s *sqliteDatabase) query(comment string) string {
	return fmt.Sprintf(`SELECT %s p.id, p.name, slow(%d) FROM product p WHERE p.id = ?`, comment, s.load.Milliseconds())
}

func (s *sqliteDatabase) source(procs int) source {
	return source{Driver: "sqlite", DSN: s.url("mode=ro"), Slots: max(sqliteSlots/procs, 1)}
}

func (s *sqliteDatabase) reset(context.Context) error { return nil }

func (s *sqliteDatabase) tally(_ context.Context, ledgers []ledger) (count, error) {
	return countLedgers(ledgers), nil
}

func (s *sqliteDatabase) close() error { return os.RemoveAll(s.dir) }

// sqliteConnector is the worker's side. It gives SQLite the function slow, which is where
// queries are counted: inside the database.
func sqliteConnector(s source, book *bookkeeper) (driver.Connector, error) {
	slots := make(chan struct{}, s.Slots)
	err := sqlite.RegisterScalarFunction("slow", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		ms, ok := args[0].(int64)
		if !ok {
			return nil, fmt.Errorf("slow takes milliseconds, not a %T", args[0])
		}
		book.queries.Add(1)
		slots <- struct{}{}
		defer func() { <-slots }()
		time.Sleep(time.Duration(ms) * time.Millisecond)
		return ms, nil
	})
	if err != nil {
		return nil, err
	}
	// The driver that has the function is the one that is registered with database/sql.
	db, err := sql.Open("sqlite", s.DSN)
	if err != nil {
		return nil, err
	}
	defer db.Close() // it has not opened anything
	return countingConnector{base: dsnConnector{dsn: s.DSN, driver: db.Driver()}, book: book}, nil
}

// A dsnConnector connects through a driver that has no connectors of its own.
type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }
