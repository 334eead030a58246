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
	if got := sqlx.NewDb(byName.DB, "postgres").Rebind("a = ?"); got != "a = $1" {
		t.Errorf("NewDb: %s", got)
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
