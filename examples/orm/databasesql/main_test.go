package main

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/internal/ormtest"
	"github.com/sqlherd/sqlherd/integration/dbtest"
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

const products = `CREATE TABLE herd_products (id bigint PRIMARY KEY, name text, price int)`

// A tool that strips comments on the way to the driver strips hints.
func TestAContextSaysWhatAHintWouldAndBeatsIt(t *testing.T) {
	d := dbtest.PQ(t)
	d.Exec(t, products, `INSERT INTO herd_products VALUES (7, 'tea', 350)`)
	bed := ormtest.Open(t, d, sqlherd.Config{})
	read := func(policy sqlherd.Policy, query string) sqlherd.Policy {
		t.Helper()
		var info sqlherd.Info
		ctx := sqlherd.WithInfo(sqlherd.WithPolicy(t.Context(), policy), &info)
		db := sql.OpenDB(bed.Herd.Connector(d.Connector(t)))
		defer db.Close()
		var price int
		must(t, db.QueryRowContext(ctx, query).Scan(&price))
		if info.Outcome != sqlherd.Miss || info.Policy == nil {
			t.Fatalf("%s: %v, policy %v", query, info.Outcome, info.Policy)
		}
		return *info.Policy
	}
	said := sqlherd.Policy{TTL: time.Minute, SWR: 5 * time.Minute, Name: "price"}
	if got := read(said, `SELECT price FROM herd_products`); got.TTL != time.Minute || got.SWR != 5*time.Minute || got.Name != "price" {
		t.Errorf("%+v", got)
	}
	if got := read(said, `SELECT /* @cache ttl=1s name=other */ price FROM herd_products`); got.TTL != time.Minute || got.Name != "price" {
		t.Errorf("beside a hint: %+v", got)
	}
}

func TestPreparedStatementsAndTransactionsKeepTheirMeaning(t *testing.T) {
	d := dbtest.PQ(t)
	d.Exec(t, products, `INSERT INTO herd_products VALUES (7, 'tea', 350)`)
	bed := ormtest.Open(t, d, sqlherd.Config{})
	st, err := bed.DB.Prepare(productByID)
	must(t, err)
	defer st.Close()
	read := func(st *sql.Stmt, want int) {
		t.Helper()
		var name string
		var price int
		must(t, st.QueryRow(7).Scan(&name, &price))
		if price != want {
			t.Errorf("%d, want %d", price, want)
		}
	}
	read(st, 350)
	read(st, 350)
	tx, err := bed.DB.Begin()
	must(t, err)
	_, err = tx.Exec(setPrice, 7, 400)
	must(t, err)
	read(tx.Stmt(st), 400)
	read(st, 350) // others do not see it yet
	must(t, tx.Commit())
	read(st, 400)
	if got := bed.Log.Outcomes(); got != "miss hit begin exec bypass(tx) hit commit miss" {
		t.Error(got)
	}
	_, err = bed.DB.Exec(`INSERT INTO herd_products VALUES (7, 'again', 1)`)
	if _, ok := err.(*pq.Error); !ok {
		t.Errorf("%T", err)
	}
	if err := bed.DB.QueryRow(productByID, 99).Scan(new(string), new(int)); !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
}
