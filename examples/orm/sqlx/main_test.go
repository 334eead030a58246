package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/internal/ormtest"
	"github.com/sqlherd/sqlherd/integration/dbtest"
	"modernc.org/sqlite"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestTheProgramReadsOnceAndAgainAfterTheWrite(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), dbtest.PQ(t).DSN, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != ormtest.Transcript {
		t.Errorf("got\n%s\nwant\n%s", &out, ormtest.Transcript)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheNameOfTheDriverDecidesThePlaceholders(t *testing.T) {
	d := dbtest.PQ(t)
	herd, err := sqlherd.New(sqlherd.Config{})
	must(t, err)
	defer herd.Close()
	sql.Register("postgres-herd-sqlx", herd.Driver(&pq.Driver{}))

	byName, err := sqlx.Open("postgres-herd-sqlx", d.DSN)
	must(t, err)
	defer byName.Close()
	if got := byName.Rebind("a = ?"); got != "a = ?" {
		t.Errorf("sqlx knows postgres-herd-sqlx by now (%s): the example need not say how to tell it", got)
	}
	sqlx.BindDriver("postgres-herd-sqlx", sqlx.DOLLAR)
	if got := byName.Rebind("a = ?"); got != "a = $1" {
		t.Errorf("after BindDriver: %s", got)
	}
	given := sqlx.NewDb(byName.DB, "postgres")
	if got := given.Rebind("a = ?"); got != "a = $1" {
		t.Errorf("NewDb: %s", got)
	}
	// A pool that was opened before BindDriver goes by the name as well.
	for _, db := range []*sqlx.DB{byName, given} {
		rows, err := db.NamedQuery("SELECT CAST(:a AS int) + CAST(:b AS int)", map[string]any{"a": 5, "b": 2})
		must(t, err)
		var sum int
		if !rows.Next() || rows.Scan(&sum) != nil || sum != 7 {
			t.Errorf("a named query: %d, %v", sum, rows.Err())
		}
		must(t, rows.Close())
	}
}

func eachDatabase(t *testing.T, f func(t *testing.T, db *sqlx.DB, bed *ormtest.Bed)) {
	for _, each := range []struct {
		name string
		open func(testing.TB) dbtest.Database
	}{{"postgres", dbtest.PQ}, {"pgx", dbtest.PGX}, {"mysql", dbtest.MariaDB}, {"sqlite", dbtest.SQLite}} {
		t.Run(each.name, func(t *testing.T) {
			d := each.open(t)
			d.Exec(t, "CREATE TABLE herd_products (id bigint PRIMARY KEY, name varchar(100), price int)",
				"INSERT INTO herd_products VALUES (7, 'tea', 350), (8, 'milk', 120)")
			bed := ormtest.Open(t, d, sqlherd.Config{})
			name := each.name
			if name == "sqlite" {
				name = "sqlite3" // the name that sqlx knows
			}
			f(t, sqlx.NewDb(bed.DB, name), bed)
		})
	}
}

func TestNamedAndInRebindAroundAHint(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sqlx.DB, bed *ormtest.Bed) {
		spelled := func(s string) string { return db.Rebind(s) } // as the database has it
		const hint = "/* @cache ttl=30s swr=5m tags=product/{1} */"
		var p product
		var ps []product
		for _, c := range []struct {
			call string
			run  func() error
			want string
		}{
			{"Get", func() error { return db.Get(&p, db.Rebind("SELECT "+hint+" * FROM herd_products WHERE id = ?"), 7) },
				"SELECT " + hint + " * FROM herd_products WHERE id = ?"},
			{"NamedQuery", func() error {
				rows, err := db.NamedQuery("SELECT "+hint+" * FROM herd_products WHERE id = :id AND price < :price", product{ID: 7, Price: 999})
				if err == nil {
					err = sqlx.StructScan(rows, &ps)
				}
				return err
			}, "SELECT " + hint + " * FROM herd_products WHERE id = ? AND price < ?"},
			{"PrepareNamed", func() error {
				st, err := db.PrepareNamed("SELECT " + hint + " * FROM herd_products WHERE id = :id AND price <> :price")
				if err != nil {
					return err
				}
				defer st.Close()
				return st.Select(&ps, product{ID: 7})
			}, "SELECT " + hint + " * FROM herd_products WHERE id = ? AND price <> ?"},
			{"In", func() error {
				query, args, err := sqlx.In(productsByID, []int64{8, 7})
				if err != nil {
					return err
				}
				return db.Select(&ps, db.Rebind(query), args...)
			}, "SELECT /* @cache ttl=30s */ id, name, price FROM herd_products WHERE id IN (?, ?) ORDER BY id"},
			{"Named and In", func() error {
				query, args, err := sqlx.Named(productsUnder, map[string]any{"most": 200})
				if err != nil {
					return err
				}
				return db.Select(&ps, db.Rebind(query), args...)
			}, "SELECT /* @cache ttl=30s */ id, name, price FROM herd_products WHERE price < ? ORDER BY id"},
		} {
			must(t, c.run())
			must(t, c.run())
			bed.Log.Want(t, c.call, "miss "+spelled(c.want), "hit "+spelled(c.want))
		}
	})
}

// A ? in a comment would be an argument more.
func TestNoOptionOfAHintIsTakenForAnArgument(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sqlx.DB, bed *ormtest.Bed) {
		bare := sqlx.NewDb(bed.Database.Open(t), db.DriverName())
		positional := func(db *sqlx.DB, query string) func() (int, error) {
			return func() (n int, err error) { err = db.Get(&n, db.Rebind(query), 7); return n, err }
		}
		named := func(db *sqlx.DB, query string) func() (int, error) {
			return func() (n int, err error) {
				query, args, err := db.BindNamed(query, map[string]any{"id": 7})
				if err == nil {
					err = db.Get(&n, query, args...)
				}
				return n, err
			}
		}
		in := func(db *sqlx.DB, query string) func() (int, error) {
			return func() (n int, err error) {
				query, args, err := sqlx.In(query, []int{7, 9})
				if err == nil {
					err = db.Get(&n, db.Rebind(query), args...)
				}
				return n, err
			}
		}
		for _, c := range []struct {
			name  string
			ask   func(db *sqlx.DB, query string) func() (int, error)
			query string
			sent  string
		}{
			{"Rebind", positional, "SELECT " + ormtest.FullHint + " price FROM herd_products WHERE id = ?", "SELECT " + ormtest.FullHint + " price FROM herd_products WHERE id = ?"},
			{"Named", named, "SELECT " + ormtest.FullHint + " price + 1 FROM herd_products WHERE id = :id", "SELECT " + ormtest.FullHint + " price + 1 FROM herd_products WHERE id = ?"},
			{"In", in, "SELECT " + ormtest.FullHint + " price + 2 FROM herd_products WHERE id IN (?)", "SELECT " + ormtest.FullHint + " price + 2 FROM herd_products WHERE id IN (?, ?)"},
		} {
			bed.SameAsBare(t, c.name, c.ask(bare, c.query), c.ask(db, c.query), "miss "+db.Rebind(c.sent), "hit "+db.Rebind(c.sent))
		}
		// With placeholders in it a hint is malformed at the latest when they have been filled in: what is wrong is the
		// query's own, as on the bare driver, and nothing is cached under half a tag.
		for _, tag := range ormtest.TagsWithPlaceholders {
			query := "SELECT /* @cache ttl=30s tags=" + tag + " */ price FROM herd_products WHERE id = "
			left := strings.ContainsAny(tag, ":@")
			outcomes := []string{"bypass(hint) ", "bypass(hint) "}
			if left { // by Rebind, which looks for ? alone
				outcomes = []string{"miss ", "hit "}
			}
			sent := db.Rebind(query + "?")
			bed.SameAsBare(t, "Rebind, "+tag, positional(bare, query+"?"), positional(db, query+"?"), outcomes[0]+sent, outcomes[1]+sent)

			sent, _, err := db.BindNamed(query+":id", map[string]any{"id": 7})
			must(t, err)
			switch {
			case strings.Contains(tag, ":"):
				outcomes = []string{"bypass(hint) ", "bypass(hint) "}
			case left:
				outcomes = []string{"hit ", "hit "} // the same statement as above
			}
			bed.SameAsBare(t, "Named, "+tag, named(bare, query+":id"), named(db, query+":id"), outcomes[0]+sent, outcomes[1]+sent)
		}
	})
}

func TestWritesThroughSqlxAreSeenAndTransactionsRead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sqlx.DB, bed *ormtest.Bed) {
		const hinted = "SELECT /* @cache ttl=30s tags=product/{1} */ price FROM herd_products WHERE id = ?"
		price := func(q sqlx.Queryer, want int) {
			t.Helper()
			var got int
			must(t, sqlx.Get(q, &got, db.Rebind(hinted), 7))
			if got != want {
				t.Errorf("%d, want %d", got, want)
			}
		}
		price(db, 350)
		price(db, 350)
		_, err := db.NamedExec("UPDATE herd_products SET price = :price WHERE id = :id", product{ID: 7, Price: 400})
		must(t, err)
		price(db, 400)
		tx := db.MustBegin()
		tx.MustExec(db.Rebind("UPDATE herd_products SET price = ? WHERE id = ?"), 500, 7)
		price(tx, 500)
		must(t, tx.Rollback())
		price(db, 400)
		if got := bed.Log.Outcomes(); got != "miss hit exec miss begin exec bypass(tx) rollback hit" {
			t.Error(got)
		}
	})
}

func TestErrorsKeepTheirType(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sqlx.DB, bed *ormtest.Bed) {
		for _, outcome := range []string{"miss", "hit"} {
			err := db.Get(&product{}, db.Rebind("SELECT /* @cache ttl=30s */ * FROM herd_products WHERE id = ?"), 99)
			if got := bed.Log.Outcomes(); err != sql.ErrNoRows || got != outcome {
				t.Errorf("%v (%s)", err, got)
			}
		}
		_, err := db.Exec("INSERT INTO herd_products VALUES (7, 'again', 1)")
		err2 := db.Get(&product{}, "SELECT /* @cache ttl=30s */ nothing FROM herd_products")
		for _, err := range []error{err, err2} {
			ok := false
			switch bed.Name {
			case "pq":
				_, ok = err.(*pq.Error)
			case "pgx":
				ok = strings.Contains(err.Error(), "SQLSTATE")
			case "mariadb":
				_, ok = err.(*mysql.MySQLError)
			case "sqlite":
				_, ok = err.(*sqlite.Error)
			}
			if !ok {
				t.Errorf("%T %v", err, err)
			}
		}
	})
}
