package main

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/internal/ormtest"
	"github.com/sqlherd/sqlherd/examples/orm/sqlc/shop"
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

func on(t *testing.T) (*shop.Queries, *ormtest.Bed) {
	d := dbtest.PQ(t)
	d.Exec(t, schema, "INSERT INTO herd_products VALUES (7, 'tea', 350), (8, 'milk', 120)")
	bed := ormtest.Open(t, d, sqlherd.Config{})
	return shop.New(bed.DB), bed
}

func TestAHintWithinALineSurvivesTheGeneratorAndOneOnItsOwnDoesNot(t *testing.T) {
	q, bed := on(t)
	ctx := t.Context()
	twice := func(read func() error) { t.Helper(); must(t, errors.Join(read(), read())) }
	twice(func() error { _, err := q.ProductByID(ctx, 7); return err })
	twice(func() error { _, err := q.ProductsUnder(ctx, 200); return err })
	twice(func() error { _, err := q.HintAtTheEnd(ctx, 7); return err })
	twice(func() error { _, err := q.HintInALineComment(ctx, 7); return err })
	twice(func() error { _, err := q.HintOnALineOfItsOwn(ctx, 7); return err })
	twice(func() error { _, err := q.HintLikeAnOptimizers(ctx, 7); return err })
	const (
		byID  = `-- name: ProductByID :one SELECT /* @cache ttl=30s swr=5m tags=product/{1} */ id, name, price FROM herd_products WHERE id = $1`
		under = `-- name: ProductsUnder :many SELECT id, name, price FROM herd_products /* @cache ttl=30s */ WHERE price < $1::int ORDER BY id`
		atEnd = `-- name: HintAtTheEnd :one SELECT price FROM herd_products WHERE id = $1 /* @cache ttl=30s */`
		line  = `-- name: HintInALineComment :one SELECT name -- @cache ttl=30s FROM herd_products WHERE id = $1`
		// The generator keeps it, on a line of its own as well, because it is for the optimizer; so sqlherd leaves it to that.
		plus = `-- name: HintLikeAnOptimizers :one SELECT name /*+ @cache ttl=30s */ FROM herd_products WHERE id = $1`
		own  = `-- name: HintOnALineOfItsOwn :one SELECT name FROM herd_products WHERE id = $1`
	)
	bed.Log.Want(t, "the queries", "miss "+byID, "hit "+byID, "miss "+under, "hit "+under, "miss "+atEnd, "hit "+atEnd,
		"miss "+line, "hit "+line, "passthrough "+own, "passthrough "+own, "passthrough "+plus, "passthrough "+plus)
	// The name that sqlc gives is the label in metrics.
	var info sqlherd.Info
	db := sql.OpenDB(bed.Herd.Connector(bed.Connector(t)))
	defer db.Close()
	_, err := shop.New(db).ProductByID(sqlherd.WithInfo(ctx, &info), 7)
	must(t, err)
	if info.Name != "ProductByID" {
		t.Errorf("%q", info.Name)
	}
}

func TestWritesThroughGeneratedCodeAreSeenAndTransactionsRead(t *testing.T) {
	q, bed := on(t)
	ctx := t.Context()
	price := func(q *shop.Queries, id int64, want int32) {
		t.Helper()
		p, err := q.ProductByID(ctx, id)
		must(t, err)
		if p.Price != want {
			t.Errorf("%d, want %d", p.Price, want)
		}
	}
	price(q, 7, 350)
	must(t, q.SetPrice(ctx, shop.SetPriceParams{ID: 7, Price: 400}))
	price(q, 7, 400)
	tx, err := bed.DB.Begin()
	must(t, err)
	must(t, q.WithTx(tx).SetPrice(ctx, shop.SetPriceParams{ID: 7, Price: 500}))
	price(q.WithTx(tx), 7, 500)
	price(q, 7, 400)
	must(t, tx.Commit())
	price(q, 7, 500)
	if got := bed.Log.Outcomes(); got != "miss exec miss begin exec bypass(tx) hit commit miss" {
		t.Error(got)
	}
	for range 2 {
		if _, err := q.ProductByID(ctx, 99); err != sql.ErrNoRows {
			t.Error(err)
		}
	}
}
