package sqlherd_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	return &benchRows{rows: c.d.rows, columns: benchColumns}, nil
}

type benchRows struct {
	rows    [][]driver.Value
	columns []string
	i       int
}

var benchColumns = []string{"id", "name", "price", "stock", "updated"}

func (r *benchRows) Columns() []string { return r.columns }
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

// compare runs both in turn, in short batches, and reports the median of the batches' ratios:
// what else the machine does falls on both alike.
func compare(b *testing.B, floor, herd func()) { compareBatches(b, 64, 1, floor, herd) }

// compareBatches is compare with batch calls to a batch, each of which does ops operations.
func compareBatches(b *testing.B, batch, ops int, floor, herd func()) {
	var ratios, floors, herds []float64
	run := func(f func()) float64 {
		began := time.Now()
		for range batch {
			f()
		}
		return float64(time.Since(began).Nanoseconds()) / float64(batch*ops)
	}
	run(floor)
	run(herd)
	for b.Loop() {
		f, h := run(floor), run(herd)
		ratios, floors, herds = append(ratios, h/f), append(floors, f), append(herds, h)
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(0, "ns/op") // of a pair of batches: means nothing
	b.ReportMetric(median(ratios), "x-floor")
	b.ReportMetric(median(floors), "ns/floor")
	b.ReportMetric(median(herds), "ns/herd")
	b.ReportMetric(median(herds)-median(floors), "ns-more")
	b.ReportMetric(testing.AllocsPerRun(100, floor)/float64(ops), "allocs/floor")
	b.ReportMetric(testing.AllocsPerRun(100, herd)/float64(ops), "allocs/herd")
}

// BenchmarkMemoryHit compares a hit with the floor. Budgets: one row ≤ 1.4 × and ≤ 12
// allocations besides those of the scanned variables, 100 rows ≤ 1.15 × and as many allocations more as for one.
func BenchmarkMemoryHit(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			d := &benchDriver{rows: benchRowsOf(n)}
			h, err := sqlherd.New(sqlherd.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			floor, herd := sql.OpenDB(d), sql.OpenDB(h.Connector(d))
			defer floor.Close()
			defer herd.Close()
			compare(b, func() { benchQuery(b, floor, benchPlain, n) }, func() { benchQuery(b, herd, benchHinted, n) })
			if h.Stats().Loads != 1 {
				b.Fatal("not hits")
			}
		})
	}
}

// BenchmarkPassThrough compares statements without a policy with the bare driver. Budget: ≤ 250 ns
// and ≤ 2 allocations more.
func BenchmarkPassThrough(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			d := &benchDriver{rows: benchRowsOf(n)}
			h, err := sqlherd.New(sqlherd.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			bare, herd := sql.OpenDB(d), sql.OpenDB(h.Connector(d))
			defer bare.Close()
			defer herd.Close()
			compare(b, func() { benchQuery(b, bare, benchPlain, n) }, func() { benchQuery(b, herd, benchPlain, n) })
		})
	}
}

// BenchmarkRedisHit compares a hit from Redis, memory being off, with a bare GET of the same bytes by go-redis, at 64
// callers. "hot" is one key, whose callers share round trips; "cold" is 64 keys, one for each caller,
// where every hit is a round trip with the entry, its remaining life and its stamps. Budgets, of hot: one row
// ≤ 1.15 ×, 100 rows ≤ 1.4 ×; ≤ 25 allocations, ≤ 1 a row.
func BenchmarkRedisHit(b *testing.B) {
	url := os.Getenv("SQLHERD_TEST_REDIS")
	if url == "" {
		b.Skip("SQLHERD_TEST_REDIS is not set")
	}
	opt, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	ctx := context.Background()
	const callers = 64
	for _, n := range []int{1, 100} {
		for _, keys := range []int{1, callers} {
			name := map[int]string{1: "hot", callers: "cold"}[keys]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				ns := "bench" + rand.Text()[:8]
				h, err := sqlherd.New(sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: time.Second, Local: sqlherd.LocalConfig{Disabled: true}})
				if err != nil {
					b.Fatal(err)
				}
				defer h.Close()
				db := sql.OpenDB(h.Connector(&benchDriver{rows: benchRowsOf(n)}, sqlherd.Identity("bench")))
				defer db.Close()
				db.SetMaxIdleConns(callers)
				queries := make([]string, keys)
				for i := range queries {
					queries[i] = fmt.Sprintf("%s AND %d = %d", benchHinted, i, i)
					benchQuery(b, db, queries[i], n)
				}
				entries, err := rdb.Keys(ctx, "{"+ns+"*").Result()
				if err != nil || len(entries) != keys {
					b.Fatal(entries, err)
				}
				// Every caller does a few calls in each batch.
				parallel := func(f func(i int)) func() {
					return func() {
						var wg sync.WaitGroup
						for i := range callers {
							wg.Go(func() {
								for range 4 {
									f(i % keys)
								}
							})
						}
						wg.Wait()
					}
				}
				get := parallel(func(i int) {
					if _, err := rdb.Get(ctx, entries[i]).Bytes(); err != nil {
						b.Error(err)
					}
				})
				hit := parallel(func(i int) { benchQuery(b, db, queries[i], n) })
				compareBatches(b, 1, callers*4, get, hit)
				if h.Stats().Loads != uint64(keys) {
					b.Fatal("not hits")
				}
			})
		}
	}
}
