package integration_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
	"modernc.org/sqlite"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A bed is a database with a table of items whose reads take a while and are counted in the
// database itself, whoever sends them.
type bed struct {
	dbtest.Database
	calls string  // SQLite: a file with one byte for each call
	admin *sql.DB // bare and direct
}

// newBed makes the table items, with the rows (1, 'one') to (3, 'three').
func newBed(t testing.TB, d dbtest.Database) *bed {
	t.Helper()
	b := &bed{Database: withSlowFunction(d)}
	b.Exec(t, "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(100) NOT NULL)",
		"INSERT INTO items VALUES (1, 'one'), (2, 'two'), (3, 'three')")
	switch d.Engine {
	case dbtest.EnginePostgres:
		b.Exec(t, "CREATE SEQUENCE calls", `
CREATE FUNCTION slow_v(ms int, v text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('calls');
	PERFORM pg_sleep(ms / 1000.0);
	RETURN v;
END $$`)
	case dbtest.EngineMariaDB:
		b.Exec(t, "CREATE SEQUENCE calls NOCACHE", `
CREATE FUNCTION slow_v(ms INT, v VARCHAR(100)) RETURNS VARCHAR(100) NOT DETERMINISTIC MODIFIES SQL DATA
BEGIN
	DECLARE n BIGINT;
	SET n = NEXT VALUE FOR calls;
	DO SLEEP(ms / 1000.0);
	RETURN v;
END`)
	case dbtest.EngineSQLite:
		b.calls = filepath.Join(t.TempDir(), "calls")
		if err := os.WriteFile(b.calls, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.admin = b.Open(t)
	return b
}

// through is the bed as seen through a proxy. It is counted and changed directly.
func (b *bed) through(t testing.TB) (*bed, *dbtest.Proxy) {
	t.Helper()
	seen := *b
	var p *dbtest.Proxy
	seen.Database, p = b.Through(t)
	return &seen, p
}

// slow is a query with a policy for the item of its argument. It takes ms milliseconds in the database.
func (b *bed) slow(options string, ms int) string {
	return fmt.Sprintf("SELECT /* @cache %s */ %s FROM items WHERE id = %s", options, b.call(ms), b.placeholder())
}

// call is the expression that takes ms milliseconds and is counted.
func (b *bed) call(ms int) string {
	if b.Engine == dbtest.EngineSQLite {
		return fmt.Sprintf("slow_v(%d, '%s', v)", ms, filepath.ToSlash(b.calls))
	}
	return fmt.Sprintf("slow_v(%d, v)", ms)
}

func (b *bed) placeholder() string { return placeholder(b.Engine, 1) }

func placeholder(e dbtest.Engine, n int) string {
	if e == dbtest.EnginePostgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// loads returns how many queries of slow have begun in the database.
func (b *bed) loads(t testing.TB) int {
	t.Helper()
	query := "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM calls"
	switch b.Engine {
	case dbtest.EngineMariaDB:
		query = "SELECT next_not_cached_value - 1 FROM calls"
	case dbtest.EngineSQLite:
		info, err := os.Stat(b.calls)
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Size())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var n int
	if err := b.admin.QueryRowContext(ctx, query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wantLoads fails the test unless the database has seen n queries.
func (b *bed) wantLoads(t testing.TB, n int) {
	t.Helper()
	if got := b.loads(t); got != n {
		t.Errorf("the database has seen %d queries, want %d", got, n)
	}
}

// set changes an item behind the back of every Herd.
func (b *bed) set(t testing.TB, id int, v string) {
	t.Helper()
	mustExec(t, b.admin, fmt.Sprintf("UPDATE items SET v = '%s' WHERE id = %d", v, id))
}

// The SQLite drivers with a function slow_v(ms, file, v). It is a part of the driver, so
// that child processes have it too.
var (
	slowModernc = func() *sqlite.Driver {
		d := &sqlite.Driver{}
		d.MustRegisterScalarFunction("slow_v", 3, func(_ *sqlite.FunctionContext, args []sqldriver.Value) (sqldriver.Value, error) {
			return slowV(args[0].(int64), args[1].(string), args[2])
		})
		return d
	}()
	slowMattn = &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		return c.RegisterFunc("slow_v", func(ms int64, file string, v any) (any, error) { return slowV(ms, file, v) }, false)
	}}
)

// slowAsLongAsThere instead of milliseconds makes slow_v last until its file is removed.
const slowAsLongAsThere = -1

func slowV(ms int64, file string, v any) (any, error) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.WriteString("."); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	for began := time.Now(); ms == slowAsLongAsThere && time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(file); err != nil {
			break
		}
	}
	return v, nil
}

func withSlowFunction(d dbtest.Database) dbtest.Database {
	switch d.Name {
	case "sqlite":
		d.Driver = slowModernc
	case "sqlite-cgo":
		d.Driver = slowMattn
	}
	return d
}
