// Command squirrel shows Masterminds/squirrel on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/squirrel
//
// It makes a table herd_products and drops it again.
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

	"github.com/Masterminds/squirrel"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open returns the pool and a builder of statements that run on it.
func open(herd *sqlherd.Herd, dsn string) (*sql.DB, squirrel.StatementBuilderType, error) {
	connector, err := herd.Driver(&pq.Driver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, squirrel.StatementBuilder, err
	}
	db := sql.OpenDB(connector)
	return db, builder(db), nil
}

func builder(db *sql.DB) squirrel.StatementBuilderType {
	return squirrel.StatementBuilder.RunWith(db).PlaceholderFormat(squirrel.Dollar)
}

// productByID says its hint as an option, which comes after SELECT. Prefix and Suffix do as well.
func productByID(b squirrel.StatementBuilderType, id int64) squirrel.SelectBuilder {
	return b.Select("name", "price").Options("/* @cache ttl=30s swr=5m tags=product/{1} */").
		From("herd_products").Where(squirrel.Eq{"id": id})
}

func run(ctx context.Context, dsn string, out io.Writer) (err error) {
	herd, err := sqlherd.New(sqlherd.Config{}) // Redis: rdb, to share with other processes
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, herd.Close()) }()
	db, b, err := open(herd, dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	if _, err := db.ExecContext(ctx, `CREATE TABLE herd_products (id bigint PRIMARY KEY, name text, price int)`); err != nil {
		return err
	}
	defer func() {
		_, dropErr := db.ExecContext(ctx, `DROP TABLE herd_products`)
		err = errors.Join(err, dropErr)
	}()
	if _, err := b.Insert("herd_products").Values(7, "tea", 350).ExecContext(ctx); err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		var name string
		var price int
		err := productByID(b, 7).QueryRowContext(sqlherd.WithInfo(ctx, &info)).Scan(&name, &price)
		if err == nil {
			fmt.Fprintln(out, info.Outcome, name, price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	if _, err := b.Update("herd_products").Set("price", 400).Where(squirrel.Eq{"id": 7}).ExecContext(ctx); err != nil {
		return err
	}
	return read()
}
