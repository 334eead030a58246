package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/ent/shop"
	"github.com/sqlherd/sqlherd/examples/orm/ent/shop/product"
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

func on(t *testing.T) (*shop.Client, *ormtest.Bed) {
	bed := ormtest.Open(t, dbtest.PQ(t), sqlherd.Config{})
	client := shop.NewClient(shop.Driver(entsql.OpenDB(dialect.Postgres, bed.DB)))
	ctx := t.Context()
	must(t, client.Schema.Create(ctx))
	tea := client.Product.Create().SetID(7).SetName("tea").SetPrice(350).SaveX(ctx)
	client.Review.Create().SetText("hot").SetProduct(tea).SaveX(ctx)
	bed.Log.Take()
	return client, bed
}

func TestAPolicyByContextHoldsForEveryStatementOfItsCall(t *testing.T) {
	client, bed := on(t)
	const (
		products = `SELECT "herd_products"."id", "herd_products"."name", "herd_products"."price" FROM "herd_products"`
		reviews  = `SELECT "herd_reviews"."id", "herd_reviews"."text", "herd_reviews"."product_reviews" FROM "herd_reviews" WHERE "herd_reviews"."product_reviews" IN ($1)`
	)
	for _, c := range []struct {
		call string
		run  func(ctx context.Context) error
		want []string
	}{
		{"Get", func(ctx context.Context) error { _, err := client.Product.Get(ctx, 7); return err },
			[]string{"miss " + products + ` WHERE "herd_products"."id" = $1 LIMIT 2`}},
		{"All", func(ctx context.Context) error { _, err := client.Product.Query().All(ctx); return err }, []string{"miss " + products}},
		{"With…", func(ctx context.Context) error { _, err := client.Product.Query().WithReviews().All(ctx); return err },
			[]string{"miss " + products, "miss " + reviews}},
		{"Count", func(ctx context.Context) error { _, err := client.Product.Query().Count(ctx); return err },
			[]string{`miss SELECT COUNT("herd_products"."id") FROM "herd_products"`}},
		{"Exist", func(ctx context.Context) error { _, err := client.Product.Query().Exist(ctx); return err },
			[]string{`miss SELECT "herd_products"."id" FROM "herd_products" LIMIT 1`}},
		{"IDs", func(ctx context.Context) error { _, err := client.Product.Query().IDs(ctx); return err },
			[]string{`miss SELECT "herd_products"."id" FROM "herd_products"`}},
		{"an update that reads again", func(ctx context.Context) error {
			_, err := client.Product.UpdateOneID(7).SetPrice(360).Save(ctx)
			return err
		}, []string{"begin", `exec UPDATE "herd_products" SET "price" = $1 WHERE "id" = $2`,
			`bypass(tx) SELECT "id", "name", "price" FROM "herd_products" WHERE "id" = $1`, "commit"}},
		{"a creation", func(ctx context.Context) error {
			return client.Product.Create().SetID(9).SetName("rum").SetPrice(1).Exec(ctx)
		}, []string{`exec INSERT INTO "herd_products" ("name", "price", "id") VALUES ($1, $2, $3)`}},
		{"a transaction", func(ctx context.Context) error {
			tx, err := client.Tx(ctx)
			if err != nil {
				return err
			}
			_, err = tx.Product.Query().Count(ctx)
			return errors.Join(err, tx.Rollback())
		}, []string{"begin", `bypass(tx) SELECT COUNT("herd_products"."id") FROM "herd_products"`, "rollback"}},
	} {
		must(t, bed.Herd.InvalidateAll(t.Context()))
		if err := c.run(cached(t.Context())); err != nil {
			t.Error(c.call, err)
		}
		bed.Log.Want(t, c.call, c.want...)
	}
	// Without it, none.
	client.Product.Query().WithReviews().AllX(t.Context())
	if got := bed.Log.Outcomes(); got != "passthrough passthrough" {
		t.Error(got)
	}
}

func TestAPredicateCanCarryAHint(t *testing.T) {
	client, bed := on(t)
	for _, outcome := range []string{"miss", "hit"} {
		p := client.Product.Query().Where(product.ID(7), hint("@cache ttl=30s tags=product/{1}")).OnlyX(t.Context())
		if p.Price != 350 {
			t.Error(p)
		}
		bed.Log.Want(t, "hint", outcome+` /* @cache ttl=30s tags=product/{1} */ SELECT "herd_products"."id", "herd_products"."name", "herd_products"."price" FROM "herd_products" WHERE "herd_products"."id" = $1 LIMIT 2`)
	}
	must(t, bed.Herd.Invalidate(t.Context(), "product/7"))
	client.Product.Query().Where(product.ID(7), hint("@cache ttl=30s tags=product/{1}")).OnlyX(t.Context())
	if got := bed.Log.Outcomes(); got != "miss" {
		t.Error(got)
	}
}

func TestEveryWriteThroughEntIsSeenByTheNextRead(t *testing.T) {
	client, bed := on(t)
	ctx := t.Context()
	count := func(want int, outcome string) {
		t.Helper()
		n := client.Product.Query().Where(product.PriceGT(0)).CountX(cached(ctx))
		if got := bed.Log.Outcomes(); n != want || got != outcome {
			t.Errorf("%d (%s), want %d (%s)", n, got, want, outcome)
		}
	}
	count(1, "miss")
	n := 1
	for _, w := range []struct {
		write func() error
		items int
	}{
		{func() error {
			return client.Product.CreateBulk(client.Product.Create().SetID(8).SetName("milk").SetPrice(1),
				client.Product.Create().SetID(9).SetName("rum").SetPrice(1)).Exec(ctx)
		}, 3},
		{func() error { return client.Product.UpdateOneID(8).SetPrice(0).Exec(ctx) }, 2},
		{func() error { return client.Product.Update().Where(product.ID(9)).SetPrice(0).Exec(ctx) }, 1},
		{func() error {
			tx, err := client.Tx(ctx)
			if err != nil {
				return err
			}
			return errors.Join(tx.Product.UpdateOneID(9).SetPrice(5).Exec(ctx), tx.Commit())
		}, 2},
		{func() error { return client.Product.DeleteOneID(9).Exec(ctx) }, 1},
	} {
		count(n, "hit")
		must(t, w.write())
		bed.Log.Take()
		n = w.items
		count(n, "miss")
	}
	tx, err := client.Tx(ctx)
	must(t, err)
	tx.Product.UpdateOneID(8).SetPrice(5).ExecX(ctx)
	must(t, tx.Rollback())
	bed.Log.Take()
	count(1, "hit")

	// A migration that finds all as it should be changes nothing, and is not cached under a policy.
	must(t, client.Schema.Create(cached(ctx)))
	for _, l := range bed.Log.Take() {
		if strings.HasPrefix(l, "miss") || strings.HasPrefix(l, "hit") {
			t.Error("cached in a migration:", l)
		}
	}
}

func TestErrorsKeepTheTypeThatEntLooksFor(t *testing.T) {
	client, bed := on(t)
	err := client.Product.Create().SetID(8).SetName("tea").SetPrice(1).Exec(t.Context())
	var pqErr *pq.Error
	if !shop.IsConstraintError(err) || !errors.As(err, &pqErr) || pqErr.Code != "23505" {
		t.Errorf("%T %v", err, err)
	}
	bed.Log.Take()
	for _, outcome := range []string{"miss", "hit"} {
		_, err := client.Product.Get(cached(t.Context()), 99)
		if got := bed.Log.Outcomes(); !shop.IsNotFound(err) || got != outcome {
			t.Errorf("%v (%s), want not found (%s)", err, got, outcome)
		}
	}
}
