package sqlherd_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

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
