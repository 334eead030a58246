// Command bun shows uptrace/bun on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/bun
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

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open hands bun a pool, with the dialect of the database.
func open(herd *sqlherd.Herd, dsn string) (*bun.DB, error) {
	connector, err := herd.Driver(&pq.Driver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return bun.NewDB(sql.OpenDB(connector), pgdialect.New()), nil
}

type product struct {
	bun.BaseModel `bun:"table:herd_products,alias:p"`

	ID    int64 `bun:",pk"`
	Name  string
	Price int
}

// productByID names its family and its tag itself: bun writes arguments into the text, so that
// there is no {1}, and every id has a text, and by default a label in metrics, of its own.
func productByID(db bun.IDB, id int64, p *product) *bun.SelectQuery {
	return db.NewSelect().Model(p).Where("id = ?", id).
		Comment(fmt.Sprintf("@cache ttl=30s swr=5m name=product tags=product/%d", id))
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

	if _, err := db.NewCreateTable().Model((*product)(nil)).Exec(ctx); err != nil {
		return err
	}
	defer func() {
		_, dropErr := db.NewDropTable().Model((*product)(nil)).Exec(ctx)
		err = errors.Join(err, dropErr)
	}()
	tea := product{ID: 7, Name: "tea", Price: 350}
	if _, err := db.NewInsert().Model(&tea).Exec(ctx); err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		var p product
		err := productByID(db, 7, &p).Scan(sqlherd.WithInfo(ctx, &info))
		if err == nil {
			fmt.Fprintln(out, info.Outcome, p.Name, p.Price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	tea.Price = 400
	if _, err := db.NewUpdate().Model(&tea).WherePK().Exec(ctx); err != nil {
		return err
	}
	return read()
}
