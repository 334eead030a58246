package integration_test

import (
	"context"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// Where a backslash in a string means the other thing than by default, these are a write to the one table and then to
// the other; by default they are a write to the first alone, of a strange value.
const (
	twoWritesOfPostgreSQL = `INSERT INTO notes VALUES ('\''); DELETE FROM items; --')`
	twoWritesOfMySQL      = `INSERT INTO notes VALUES ('\'); DELETE FROM items; -- ')`
)

func TestAWriteIsSeenThoughTheSessionReadsStringsOtherwise(t *testing.T) {
	for _, c := range []struct {
		name   string
		open   func(testing.TB) dbtest.Database
		set    string
		params string
		write  string
	}{
		{"PostgreSQL", dbtest.PQ, "SET standard_conforming_strings = off", "standard_conforming_strings=off", twoWritesOfPostgreSQL},
		{"MariaDB", dbtest.MariaDB, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
			"sql_mode=%27NO_BACKSLASH_ESCAPES%27", twoWritesOfMySQL},
	} {
		for _, way := range []string{"by a statement", "by the DSN"} {
			t.Run(c.name+" "+way, func(t *testing.T) {
				b := newBed(t, c.open(t))
				if b.Engine == dbtest.EngineMariaDB {
					b.Database = b.WithParams("multiStatements=true")
				}
				mustExec(t, b.admin, "CREATE TABLE notes (v VARCHAR(100))")
				herd := newHerd(t, sqlherd.Config{})
				reader := open(t, herd, b.Database)
				read := func() (n int, info sqlherd.Info) {
					t.Helper()
					ctx := sqlherd.WithInfo(context.Background(), &info)
					if err := reader.QueryRowContext(ctx, "SELECT /* @cache ttl=1h */ count(*) FROM items").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n, info
				}
				read()
				if n, info := read(); n != 3 || info.Outcome != sqlherd.Hit {
					t.Fatalf("%d, %v; want a hit of 3", n, info.Outcome)
				}

				d := b.Database
				if way == "by the DSN" {
					d = d.WithParams(c.params)
				}
				db := open(t, herd, d)
				conn, err := db.Conn(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if way == "by a statement" {
					mustExec(t, conn, c.set)
				}
				mustExec(t, conn, c.write)
				if n, info := read(); n != 0 || info.Outcome != sqlherd.Miss {
					t.Errorf("%d, %v; want a miss of 0: the items are deleted", n, info.Outcome)
				}
			})
		}
	}
}
