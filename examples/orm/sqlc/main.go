// Command sqlc shows code that sqlc has generated on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/sqlc
//
// It makes a table herd_products and drops it again.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/sqlc/shop"
)

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

//go:embed schema.sql
var schema string

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open returns a pool for shop.New. With sql_package pgx/v5 sqlc's code goes around database/sql, and with
// it around sqlherd: leave it out, and take pgx through its stdlib package.
func open(herd *sqlherd.Herd, dsn string) (*sql.DB, error) {
	connector, err := herd.Driver(&pq.Driver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func run(ctx context.Context, dsn string, out io.Writer) (err error) {
	herd, err := sqlherd.New(sqlherd.Config{}) // Redis: rdb, to share with other processes
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, herd.Close()) }()
	db, err := open(herd, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	queries := shop.New(db)

	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	defer func() {
		_, dropErr := db.ExecContext(ctx, `DROP TABLE herd_products`)
		err = errors.Join(err, dropErr)
	}()
	if err := queries.CreateProduct(ctx, shop.CreateProductParams{ID: 7, Name: "tea", Price: 350}); err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		p, err := queries.ProductByID(sqlherd.WithInfo(ctx, &info), 7)
		if err == nil {
			fmt.Fprintln(out, info.Outcome, p.Name, p.Price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	if err := queries.SetPrice(ctx, shop.SetPriceParams{ID: 7, Price: 400}); err != nil {
		return err
	}
	return read()
}
