// Command sqlx shows jmoiron/sqlx on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/sqlx
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

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open hands sqlx a pool, and the name by which it knows the placeholders. By sqlx.Open("postgres-herd", …)
// it would not know them, unless told: sqlx.BindDriver("postgres-herd", sqlx.DOLLAR).
func open(herd *sqlherd.Herd, dsn string) (*sqlx.DB, error) {
	connector, err := herd.Driver(&pq.Driver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sqlx.NewDb(sql.OpenDB(connector), "postgres"), nil
}

type product struct {
	ID    int64
	Name  string
	Price int
}

const productByID = `SELECT /* @cache ttl=30s swr=5m tags=product/{1} */ id, name, price FROM herd_products WHERE id = $1`

// Named queries and sqlx.In rewrite the text around a hint and leave it as it is. In has one
// argument for each element, so a tag for each would be {1}, {2}, …: rather name the table, which is the default.
const (
	productsUnder = `SELECT /* @cache ttl=30s */ id, name, price FROM herd_products WHERE price < :most ORDER BY id`
	productsByID  = `SELECT /* @cache ttl=30s */ id, name, price FROM herd_products WHERE id IN (?) ORDER BY id`
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
	tea := product{ID: 7, Name: "tea", Price: 350}
	if _, err := db.NamedExecContext(ctx, `INSERT INTO herd_products VALUES (:id, :name, :price)`, tea); err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		var p product
		err := db.GetContext(sqlherd.WithInfo(ctx, &info), &p, productByID, 7)
		if err == nil {
			fmt.Fprintln(out, info.Outcome, p.Name, p.Price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	tea.Price = 400
	if _, err := db.NamedExecContext(ctx, `UPDATE herd_products SET price = :price WHERE id = :id`, tea); err != nil {
		return err
	}
	return read()
}
