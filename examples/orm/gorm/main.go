// Command gorm shows GORM on sqlherd.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/gorm
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

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/sqlherd/sqlherd"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/hints"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// open hands GORM a pool, with the dialector of the database.
func open(herd *sqlherd.Herd, dsn string) (*gorm.DB, error) {
	connector, err := herd.Driver(stdlib.GetDefaultDriver()).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return gorm.Open(postgres.New(postgres.Config{Conn: sql.OpenDB(connector)}), &gorm.Config{TranslateError: true})
}

type product struct {
	ID    int64
	Name  string
	Price int
}

func (product) TableName() string { return "herd_products" }

// cached is a scope that puts a hint after SELECT: db.Scopes(cached("ttl=30s")).First(&p, 7).
// The scope goes with one statement. Preloads have statements, and scopes, of their own.
func cached(options string) func(*gorm.DB) *gorm.DB {
	return func(db *gorm.DB) *gorm.DB { return db.Clauses(hints.Comment("select", "@cache "+options)) }
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
	if pool, err := db.DB(); err == nil {
		defer pool.Close()
	}

	if err := db.WithContext(ctx).Migrator().CreateTable(&product{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Migrator().DropTable(&product{})) }()
	tea := product{ID: 7, Name: "tea", Price: 350}
	if err := db.WithContext(ctx).Create(&tea).Error; err != nil {
		return err
	}

	read := func() error {
		var info sqlherd.Info // how the query was answered
		var p product
		err := db.WithContext(sqlherd.WithInfo(ctx, &info)).Scopes(cached("ttl=30s swr=5m tags=product/{1}")).First(&p, 7).Error
		if err == nil {
			fmt.Fprintln(out, info.Outcome, p.Name, p.Price)
		}
		return err
	}
	if err := errors.Join(read(), read()); err != nil {
		return err
	}
	if err := db.WithContext(ctx).Model(&tea).Update("price", 400).Error; err != nil {
		return err
	}
	return read()
}
