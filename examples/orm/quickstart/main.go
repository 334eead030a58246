// Command quickstart is the smallest whole program, as the README shows it from the package clause on.
//
//	DATABASE_URL=postgres://… go run ./examples/orm/quickstart
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
)

func main() {
	herd, err := sqlherd.New(sqlherd.Config{}) // with a fleet: Redis: redis.NewClient(…) of github.com/redis/go-redis/v9
	if err != nil {
		log.Fatal(err)
	}
	defer herd.Close()
	sql.Register("postgres-herd", herd.Driver(&pq.Driver{}))
	db, err := sql.Open("postgres-herd", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	exec := func(query string, args ...any) {
		if _, err := db.Exec(query, args...); err != nil {
			log.Fatal(err)
		}
	}
	read := func() {
		var info sqlherd.Info // how the query was answered
		var price float64
		err := db.QueryRowContext(sqlherd.WithInfo(context.Background(), &info),
			`SELECT /* @cache ttl=30s swr=5m */ price FROM herd_quickstart WHERE id = $1`, 7).Scan(&price)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Outcome, price)
	}
	exec(`CREATE TABLE herd_quickstart (id int PRIMARY KEY, price float8)`)
	exec(`INSERT INTO herd_quickstart VALUES ($1, $2)`, 7, 12.5)
	read() // miss 12.5
	read() // hit 12.5
	exec(`UPDATE herd_quickstart SET price = $2 WHERE id = $1`, 7, 9.5)
	read() // miss 9.5
	exec(`DROP TABLE herd_quickstart`)
}
