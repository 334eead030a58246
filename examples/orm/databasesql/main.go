// Command databasesql shows plain database/sql on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/databasesql
//
// It makes a table herd_products and drops it again.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open registers the wrapped driver. It may be called once for a name, as sql.Register.
func open(herd *sqlherd.Herd, dsn string) (*sql.DB, error) {
	sql.Register("postgres-herd", herd.Driver(&pq.Driver{}))
	return sql.Open("postgres-herd", dsn)
}

const (
	// Every result of productByID depends on the table and on a tag of its own.
	productByID = `SELECT /* @cache ttl=30s swr=5m tags=product/{1} */ name, price FROM herd_products WHERE id = $1`

	// A write forgets the results of its table as it is; the tag reaches results that are cached with tables=none too.
	setPrice = `UPDATE /* @invalidate tags=product/{1} */ herd_products SET price = $2 WHERE id = $1`
)

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

	if _, err := db.ExecContext(ctx, `CREATE TABLE herd_products (id bigint PRIMARY KEY, name text, price int)`); err != nil {
		return err
	}
	defer func() {
		_, dropErr := db.ExecContext(ctx, `DROP TABLE herd_products`)
		err = errors.Join(err, dropErr)
	}()
	if _, err := db.ExecContext(ctx, `INSERT INTO herd_products VALUES ($1, $2, $3)`, 7, "tea", 350); err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		var name string
		var price int
		err := db.QueryRowContext(sqlherd.WithInfo(ctx, &info), productByID, 7).Scan(&name, &price)
		if err == nil {
			fmt.Fprintln(out, info.Outcome, name, price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, setPrice, 7, 400); err != nil {
		return err
	}
	return read()
}
