package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// The floor of every figure here: a driver that gives prebuilt rows. What database/sql costs
// is in it; what sqlherd adds is the difference.
type benchDriver struct{ rows [][]driver.Value }

func (d *benchDriver) Open(string) (driver.Conn, error)             { return &benchConn{d}, nil }
func (d *benchDriver) Connect(context.Context) (driver.Conn, error) { return &benchConn{d}, nil }
func (d *benchDriver) Driver() driver.Driver                        { return d }

type benchConn struct{ d *benchDriver }

func (c *benchConn) Prepare(string) (driver.Stmt, error) { panic("not used") }
func (c *benchConn) Close() error                        { return nil }
func (c *benchConn) Begin() (driver.Tx, error)           { panic("not used") }
func (c *benchConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &benchRows{rows: c.d.rows}, nil
}

type benchRows struct {
	rows [][]driver.Value
	i    int
}

var benchColumns = []string{"id", "name", "price", "stock", "updated"}

func (r *benchRows) Columns() []string { return benchColumns }
func (r *benchRows) Close() error      { return nil }
func (r *benchRows) Next(dest []driver.Value) error {
	if r.i >= len(r.rows) {
		return io.EOF
	}
	copy(dest, r.rows[r.i])
	r.i++
	return nil
}

func benchRowsOf(n int) [][]driver.Value {
	rows := make([][]driver.Value, n)
	for i := range rows {
		rows[i] = []driver.Value{int64(1000 + i), "a product with a name", 12.5 + float64(i), int64(i) * 1000, time.Unix(1e9+int64(i), 0).UTC()}
	}
	return rows
}

func benchQuery(b *testing.B, db *sql.DB, query string, want int) {
	var (
		id, stock int64
		name      string
		price     float64
		updated   time.Time
	)
	rows, err := db.QueryContext(context.Background(), query, 7)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for rows.Next() {
		if err := rows.Scan(&id, &name, &price, &stock, &updated); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if err := rows.Close(); err != nil || n != want {
		b.Fatal(n, err)
	}
}

const (
	benchPlain  = `SELECT id, name, price, stock, updated FROM products WHERE id = $1`
	benchHinted = `SELECT /* @cache ttl=1h */ id, name, price, stock, updated FROM products WHERE id = $1`
)

// BenchmarkMemoryHit compares a hit with the floor. Budgets: one row ≤ 1.4 × and ≤ 12
// allocations, 100 rows ≤ 1.15 × and as many allocations as one.
func BenchmarkMemoryHit(b *testing.B) {
	for _, n := range []int{1, 100} {
		d := &benchDriver{rows: benchRowsOf(n)}
		h, err := sqlherd.New(sqlherd.Config{})
		if err != nil {
			b.Fatal(err)
		}
		floor, herd := sql.OpenDB(d), sql.OpenDB(h.Connector(d))
		name := map[int]string{1: "1row", 100: "100rows"}[n]
		b.Run(name+"/floor", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchQuery(b, floor, benchPlain, n)
			}
		})
		b.Run(name+"/herd", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchQuery(b, herd, benchHinted, n)
			}
			if h.Stats().Loads != 1 {
				b.Fatal("not hits")
			}
		})
		floor.Close()
		herd.Close()
		h.Close()
	}
}

// BenchmarkPassThrough compares statements without a policy with the bare driver. Budget: ≤ 250 ns
// and ≤ 2 allocations more.
func BenchmarkPassThrough(b *testing.B) {
	for _, n := range []int{1, 100} {
		d := &benchDriver{rows: benchRowsOf(n)}
		h, err := sqlherd.New(sqlherd.Config{})
		if err != nil {
			b.Fatal(err)
		}
		bare, herd := sql.OpenDB(d), sql.OpenDB(h.Connector(d))
		name := map[int]string{1: "1row", 100: "100rows"}[n]
		b.Run(name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchQuery(b, bare, benchPlain, n)
			}
		})
		b.Run(name+"/herd", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchQuery(b, herd, benchPlain, n)
			}
		})
		bare.Close()
		herd.Close()
		h.Close()
	}
}
