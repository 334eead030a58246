package sqlherd_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"maps"
	"slices"
	"sync"

	"github.com/sqlherd/sqlherd"
)

// The driver is the application's own: lib/pq, pgx, go-sql-driver/mysql, SQLite, …
var yourDriver = exampleDriver{}

func Example() {
	herd, err := sqlherd.New(sqlherd.Config{}) // Redis: rdb, to share with other processes
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	sql.Register("your-herd", herd.Driver(yourDriver))
	db, err := sql.Open("your-herd", "postgres://app@db.internal/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	const query = `SELECT /* @cache ttl=30s swr=5m tags=product/{1} */ name FROM products WHERE id = $1`
	for range 3 {
		var name string
		if err := db.QueryRow(query, 7).Scan(&name); err != nil {
			log.Fatal(err)
		}
	}
	stats := herd.Stats()
	fmt.Println("queries:", stats.Loads, "hits:", stats.Outcomes[sqlherd.Hit])
	// Output: queries: 1 hits: 2
}

func ExampleWithInfo() {
	herd, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	db := sql.OpenDB(herd.Connector(yourDriver, sqlherd.Identity("shop/app")))
	defer db.Close()

	var info sqlherd.Info
	ctx := sqlherd.WithInfo(context.Background(), &info)
	for _, query := range []string{
		`SELECT name FROM products /* @cache ttl=1m */`,
		`SELECT name FROM products /* @cache ttl=1m */`,
		`SELECT name FROM products FOR UPDATE /* @cache ttl=1m */`,
		`SELECT name FROM products`,
	} {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			log.Fatal(err)
		}
		rows.Close()
		fmt.Printf("%v %v %q\n", info.Outcome, info.Reason, info.Detail)
	}
	// Output:
	// miss none ""
	// hit none ""
	// bypass locking "FOR UPDATE"
	// passthrough none ""
}

func ExampleHerd_Invalidate() {
	herd, err := sqlherd.New(sqlherd.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	db := sql.OpenDB(herd.Connector(yourDriver))
	defer db.Close()

	const query = `SELECT /* @cache ttl=1h tags=product/{1} */ name FROM products WHERE id = $1`
	read := func() {
		var name string
		if err := db.QueryRow(query, 7).Scan(&name); err != nil {
			log.Fatal(err)
		}
	}
	read()
	read()
	// Another program has changed product 7.
	if err := herd.Invalidate(context.Background(), "product/7"); err != nil {
		log.Fatal(err)
	}
	read()
	fmt.Println("queries:", herd.Stats().Loads)
	// Output: queries: 2
}

// metrics counts what the Herd tells, as Prometheus names and labels it. With its client library the map is a
// CounterVec, and add is WithLabelValues(…).Inc().
type metrics struct {
	sqlherd.ObserverBase // whatever is not counted

	mu       sync.Mutex
	counters map[string]int
}

func (m *metrics) Query(e sqlherd.QueryEvent) {
	if e.Err != nil {
		m.add(fmt.Sprintf("sqlherd_query_errors_total{query=%q}", e.Name))
		return
	}
	m.add(fmt.Sprintf("sqlherd_queries_total{query=%q,outcome=%q,reason=%q}", e.Name, e.Outcome, e.Reason))
}

func (m *metrics) Load(e sqlherd.LoadEvent) {
	m.add(fmt.Sprintf("sqlherd_loads_total{query=%q,failed=\"%t\"}", e.Name, e.Err != nil))
}

func (m *metrics) add(series string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters[series]++
}

func ExampleObserver() {
	m := &metrics{counters: make(map[string]int)}
	herd, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL, Observer: m})
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	db := sql.OpenDB(herd.Connector(yourDriver))
	defer db.Close()

	for _, query := range []string{
		`SELECT /* @cache ttl=30s name=product */ name FROM products WHERE id = $1`,
		`SELECT /* @cache ttl=30s name=product */ name FROM products WHERE id = $1`,
		`SELECT /* @cache ttl=30s name=locked */ name FROM products WHERE id = $1 FOR UPDATE`,
	} {
		var name string
		if err := db.QueryRow(query, 7).Scan(&name); err != nil {
			log.Fatal(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, series := range slices.Sorted(maps.Keys(m.counters)) {
		fmt.Println(series, m.counters[series])
	}
	// Output:
	// sqlherd_loads_total{query="product",failed="false"} 1
	// sqlherd_queries_total{query="locked",outcome="bypass",reason="locking"} 1
	// sqlherd_queries_total{query="product",outcome="hit",reason="none"} 1
	// sqlherd_queries_total{query="product",outcome="miss",reason="none"} 1
}
