package pgnotify_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

// What the triggers add to a write: against the same write without them, in the same run.
func BenchmarkWrite(b *testing.B) {
	for _, kind := range []string{"none", "table", "rows"} {
		for _, rows := range []int{1, 1000, 100_000} {
			b.Run(fmt.Sprintf("%s/rows=%d", kind, rows), func(b *testing.B) {
				db := triggered(b, kind, 100_000)
				b.ResetTimer()
				for b.Loop() {
					mustExec(b, db.bare, fmt.Sprintf(`UPDATE products SET name = 'x' WHERE id <= %d`, rows))
				}
			})
		}
	}
}

// Transactions that notify take turns at their commit.
func BenchmarkParallelWrites(b *testing.B) {
	for _, kind := range []string{"none", "table", "rows"} {
		b.Run(kind, func(b *testing.B) {
			db := triggered(b, kind, 1000)
			db.bare.SetMaxIdleConns(16)
			var id atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				mine := id.Add(1) // or they would wait for each other's row
				for pb.Next() {
					if _, err := db.bare.Exec(`UPDATE products SET name = 'x' WHERE id = $1`, mine); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func triggered(b *testing.B, kind string, rows int) *bed {
	b.Helper()
	setup := fmt.Sprintf(`CREATE TABLE products (id int PRIMARY KEY, name text) WITH (fillfactor = 50); INSERT INTO products SELECT n, '' FROM generate_series(1, %d) n`, rows)
	table := pgnotify.Table{Name: "products"}
	switch kind {
	case "rows":
		table.Tags, table.TagsOnly, table.GroupTag = []string{"product/{id}"}, true, "products-rows"
	case "none":
		dsn, bare := newDatabase(b)
		mustExec(b, bare, setup)
		return &bed{t: b, dsn: dsn, bare: bare}
	}
	return newBed(b, pgnotify.Config{Tables: []pgnotify.Table{table}}, setup)
}
