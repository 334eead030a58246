package dbtest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestEveryDatabaseIsEmptyAndWritable(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE notes (id INT, text VARCHAR(20))", "INSERT INTO notes VALUES (1, 'one')")
		db := d.Open(t)
		var text string
		if err := db.QueryRow("SELECT text FROM notes").Scan(&text); err != nil || text != "one" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

func TestTwoDatabasesOfOneTestAreApart(t *testing.T) {
	for name, open := range map[string]func(testing.TB) dbtest.Database{
		"pq": dbtest.PQ, "pgx": dbtest.PGX, "mariadb": dbtest.MariaDB, "sqlite": dbtest.SQLite, "sqlite-cgo": dbtest.SQLiteCgo,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t), open(t)
			a.Exec(t, "CREATE TABLE only_in_a (id INT)")
			if _, err := b.Open(t).Exec("SELECT * FROM only_in_a"); err == nil {
				t.Error("the second database sees the first one's table")
			}
		})
	}
}

func TestConnectionsAreCountedAtTheServer(t *testing.T) {
	for name, open := range map[string]func(testing.TB) dbtest.Database{"pq": dbtest.PQ, "pgx": dbtest.PGX, "mariadb": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			if n := d.Connections(t); n != 0 {
				t.Errorf("%d connections before the first", n)
			}
			db := d.Open(t)
			for range 3 {
				conn, err := db.Conn(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			if n := d.Connections(t); n != 3 {
				t.Errorf("%d connections, opened 3", n)
			}
		})
	}
}

func TestALoginOfItsOwnSeesTheDatabase(t *testing.T) {
	for name, open := range map[string]func(testing.TB) dbtest.Database{"pq": dbtest.PQ, "pgx": dbtest.PGX, "mariadb": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			d.Exec(t, "CREATE TABLE notes (id INT)")
			mine := d.WithUser(t, "secret")
			mine.Exec(t, "INSERT INTO notes VALUES (1)", "CREATE TABLE more (id INT)")
			var before, after string
			query := "SELECT CURRENT_USER"
			if err := d.Open(t).QueryRow(query).Scan(&before); err != nil {
				t.Fatal(err)
			}
			if err := mine.Open(t).QueryRow(query).Scan(&after); err != nil {
				t.Fatal(err)
			}
			if before == after {
				t.Errorf("both are %s", after)
			}
		})
	}
}

func TestADatabaseBehindAProxyCanBeTakenAway(t *testing.T) {
	for name, open := range map[string]func(testing.TB) dbtest.Database{"pq": dbtest.PQ, "pgx": dbtest.PGX, "mariadb": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			d, proxy := open(t).Through(t)
			db := d.Open(t)
			if n := proxy.Accepted(); n != 1 {
				t.Errorf("%d connections accepted, want 1", n)
			}
			proxy.Refuse()
			if err := db.Ping(); err == nil {
				t.Error("a refused database answers")
			}
			proxy.Pass()
			if err := db.Ping(); err != nil {
				t.Errorf("after it came back: %v", err)
			}
		})
	}
}

// This test runs itself without the variables, to see what becomes of it.
func TestAMissingServerFailsOrSkips(t *testing.T) {
	if os.Getenv("SQLHERD_TEST_MISSING") != "" {
		dbtest.PQ(t)
		return
	}
	for _, each := range []struct{ require, want string }{
		{"1", "--- FAIL: TestAMissingServerFailsOrSkips"},
		{"", "--- SKIP: TestAMissingServerFailsOrSkips"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAMissingServerFailsOrSkips$", "-test.v")
		cmd.Env = append(os.Environ(), "SQLHERD_TEST_MISSING=1", "SQLHERD_TEST_POSTGRES=", "SQLHERD_TEST_REQUIRE_SERVERS="+each.require)
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), each.want) || !strings.Contains(string(out), "SQLHERD_TEST_POSTGRES is not set") {
			t.Errorf("SQLHERD_TEST_REQUIRE_SERVERS=%q: no %q in:\n%s", each.require, each.want, out)
		}
	}
}
