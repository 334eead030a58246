// Command ent shows ent on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/ent
//
// It makes the tables herd_products and herd_reviews and leaves them: ent's migrations drop nothing.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/ent/shop"
)

// The target's folder must hold a Go file before the first run.
//go:generate go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate --target ./shop ./schema

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open hands ent a pool, with the dialect of the database.
func open(herd *sqlherd.Herd, dsn string) (*shop.Client, error) {
	connector, err := herd.Driver(&pq.Driver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return shop.NewClient(shop.Driver(entsql.OpenDB(dialect.Postgres, sql.OpenDB(connector)))), nil
}

// cached returns a context whose reads are cached. ent writes the statements itself, so what a
// hint would say goes with the context: also to the queries of With…, which are further statements.
func cached(ctx context.Context) context.Context {
	return sqlherd.WithPolicy(ctx, sqlherd.Policy{TTL: 30 * time.Second, SWR: 5 * time.Minute, Name: "product"})
}

// hint is a predicate that puts a hint before one statement: client.Product.Query().Where(hint("@cache ttl=30s")).
func hint(text string) func(*entsql.Selector) {
	return func(s *entsql.Selector) { s.Prefix(entsql.Raw("/* " + text + " */")) }
}

func run(ctx context.Context, dsn string, out io.Writer) (err error) {
	herd, err := sqlherd.New(sqlherd.Config{}) // Redis: rdb, to share with other processes
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, herd.Close()) }()
	client, err := open(herd, dsn)
	if err != nil {
		return err
	}
	defer client.Close()

	if err := client.Schema.Create(ctx); err != nil {
		return err
	}
	tea, err := client.Product.Create().SetID(7).SetName("tea").SetPrice(350).Save(ctx)
	if err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		p, err := client.Product.Get(cached(sqlherd.WithInfo(ctx, &info)), 7)
		if err == nil {
			fmt.Fprintln(out, info.Outcome, p.Name, p.Price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	if err := tea.Update().SetPrice(400).Exec(ctx); err != nil {
		return err
	}
	return read()
}
