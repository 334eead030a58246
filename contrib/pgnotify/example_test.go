package pgnotify_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/lib/pq"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

func Example() {
	ctx := context.Background()
	dsn := "postgres://app:secret@db.example/shop"
	watch := pgnotify.Config{Tables: []pgnotify.Table{
		{Name: "prices"}, // any write forgets what reads the table
		{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true, GroupTag: "products-rows"}, // a write forgets its rows
	}}

	herd, err := sqlherd.New(sqlherd.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	sql.Register("postgres-herd", herd.Driver(&pq.Driver{}))
	db, err := sql.Open("postgres-herd", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	bare, err := sql.Open("postgres", dsn) // not the Herd's pool: DO leaves a connection that it does not trust
	if err != nil {
		log.Fatal(err)
	}
	defer bare.Close()
	if err := pgnotify.Install(ctx, bare, watch); err != nil { // or InstallSQL, into a migration
		log.Fatal(err)
	}
	listener, err := pgnotify.Listen(dsn, herd, watch)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	<-listener.Ready()

	var name string
	err = db.QueryRow(`SELECT /* @cache ttl=10m tables=none tags=product/{1},products-rows */ name FROM products WHERE id = $1`, 7).Scan(&name)
	fmt.Println(name, err)
}

func ExampleInstallSQL() {
	text, err := pgnotify.InstallSQL(pgnotify.Config{Tables: []pgnotify.Table{{Name: "shop.prices"}}})
	if err != nil {
		log.Fatal(err)
	}
	// Write it to db/migrations/….sql, or print it for the DBA.
	fmt.Println(text[:len("-- sqlherd pgnotify")])
	// Output: -- sqlherd pgnotify
}
