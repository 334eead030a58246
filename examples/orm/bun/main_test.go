package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/internal/ormtest"
	"github.com/sqlherd/sqlherd/integration/dbtest"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
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

type item struct {
	bun.BaseModel `bun:"table:items,alias:i"`

	ID      int64 `bun:",pk"`
	Name    string
	Price   int
	Reviews []*review `bun:"rel:has-many,join:id=item_id"`
}

type review struct {
	bun.BaseModel `bun:"table:reviews,alias:r"`

	ID     int64 `bun:",pk"`
	ItemID int64
	Item   *item `bun:"rel:belongs-to,join:item_id=id"`
}

func on(t *testing.T) (*bun.DB, *ormtest.Bed) {
	d := dbtest.PQ(t)
	d.Exec(t, "CREATE TABLE items (id bigint PRIMARY KEY, name text, price int)", "CREATE TABLE reviews (id bigint PRIMARY KEY, item_id bigint)",
		"INSERT INTO items VALUES (1, 'tea', 350), (2, 'milk', 120)", "INSERT INTO reviews VALUES (1, 1)")
	bed := ormtest.Open(t, d, sqlherd.Config{})
	return bun.NewDB(bed.DB, pgdialect.New()), bed
}

func TestACommentsHintIsInTheStatementOfItsCallAndInNoOther(t *testing.T) {
	db, bed := on(t)
	const hint = "@cache ttl=30s"
	var items []item
	for _, c := range []struct {
		call string
		run  func(ctx context.Context) error
		want []string
	}{
		{"Scan", func(ctx context.Context) error { return db.NewSelect().Model(&items).Comment(hint).Scan(ctx) },
			[]string{`miss /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i"`}},
		{"an argument stands in the text", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).Where("id = ?", 1).Comment(hint).Scan(ctx)
		}, []string{`miss /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i" WHERE (id = 1)`}},
		{"ColumnExpr", func(ctx context.Context) error {
			return db.NewSelect().Table("items").ColumnExpr("/* @cache ttl=30s */ count(*)").Scan(ctx, new(int))
		}, []string{`miss SELECT /* @cache ttl=30s */ count(*) FROM "items"`}},
		{"Relation: not the relation's", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).Relation("Reviews").Comment(hint).Scan(ctx)
		}, []string{
			`miss /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i"`,
			`passthrough SELECT "r"."id", "r"."item_id" FROM "reviews" AS "r" WHERE ("r"."item_id" IN (1, 2))`,
		}},
		{"Relation with the comment", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).Relation("Reviews", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Comment(hint) }).Scan(ctx)
		}, []string{
			`passthrough SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i"`,
			`miss /* @cache ttl=30s */ SELECT "r"."id", "r"."item_id" FROM "reviews" AS "r" WHERE ("r"."item_id" IN (1, 2))`,
		}},
		{"Count has no comment", func(ctx context.Context) error {
			_, err := db.NewSelect().Model(&items).Comment(hint).Count(ctx)
			return err
		}, []string{`passthrough SELECT count(*) FROM "items" AS "i"`}},
		{"Exists has none", func(ctx context.Context) error {
			_, err := db.NewSelect().Model(&items).Comment(hint).Exists(ctx)
			return err
		}, []string{`passthrough SELECT EXISTS (SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i")`}},
		{"ScanAndCount: not the count", func(ctx context.Context) error {
			_, err := db.NewSelect().Model(&items).Limit(-1).Comment(hint).ScanAndCount(ctx)
			return err
		}, []string{`passthrough SELECT count(*) FROM "items" AS "i"`}},
		{"Join", func(ctx context.Context) error {
			return db.NewSelect().Model(&[]review{}).Relation("Item").Comment(hint).Scan(ctx)
		}, []string{`miss /* @cache ttl=30s */ SELECT "r"."id", "r"."item_id", "item"."id" AS "item__id", "item"."name" AS "item__name", "item"."price" AS "item__price" ` +
			`FROM "reviews" AS "r" LEFT JOIN "items" AS "item" ON ("item"."id" = "r"."item_id")`}},
		{"WherePK", func(ctx context.Context) error {
			return db.NewSelect().Model(&item{ID: 1}).WherePK().Comment(hint).Scan(ctx)
		},
			[]string{`miss /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i" WHERE ("i"."id" = 1)`}},
		{"a locking read", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).For("UPDATE").Comment(hint).Scan(ctx)
		}, []string{`bypass(locking) /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i" FOR UPDATE`}},
		{"NewRaw", func(ctx context.Context) error {
			return db.NewRaw("SELECT /* @cache ttl=30s */ price FROM items WHERE id = ?", 1).Scan(ctx, new(int))
		}, []string{`miss SELECT /* @cache ttl=30s */ price FROM items WHERE id = 1`}},
		{"a subquery with a comment", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).Where("id IN (?)", db.NewSelect().Model((*review)(nil)).Column("item_id").Comment(hint)).Scan(ctx)
		}, []string{`miss SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i" WHERE (id IN (/* @cache ttl=30s */ SELECT "r"."item_id" FROM "reviews" AS "r"))`}},
		{"RunInTx", func(ctx context.Context) error {
			return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return tx.NewSelect().Model(&items).Comment(hint).Scan(ctx)
			})
		}, []string{`begin`, `bypass(tx) /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i"`, `commit`}},
		{"bun.WithComment: the relation's too", func(ctx context.Context) error {
			return db.NewSelect().Model(&items).Relation("Reviews").Scan(bun.WithComment(ctx, hint))
		}, []string{
			`miss /* @cache ttl=30s */ SELECT "i"."id", "i"."name", "i"."price" FROM "items" AS "i"`,
			`miss /* @cache ttl=30s */ SELECT "r"."id", "r"."item_id" FROM "reviews" AS "r" WHERE ("r"."item_id" IN (1, 2))`,
		}},
		{"a policy by context: all of them", func(ctx context.Context) error {
			_, err := db.NewSelect().Model(&items).Relation("Reviews").Limit(-1).ScanAndCount(sqlherd.WithPolicy(ctx, sqlherd.Policy{TTL: time.Minute}))
			return err
		}, []string{`miss SELECT count(*) FROM "items" AS "i"`}},
		{"an UPDATE with a comment and RETURNING", func(ctx context.Context) error {
			_, err := db.NewUpdate().Model(&item{ID: 1, Name: "tea", Price: 350}).WherePK().Returning("price").Comment(hint).Exec(ctx)
			return err
		}, []string{`bypass(write) /* @cache ttl=30s */ UPDATE "items" AS "i" SET "name" = 'tea', "price" = 350 WHERE ("i"."id" = 1) RETURNING price`}},
	} {
		must(t, bed.Herd.InvalidateAll(t.Context()))
		items = nil
		if err := c.run(t.Context()); err != nil {
			t.Error(c.call, err)
		}
		bed.Log.Want(t, c.call, c.want...)
	}
}

func TestNoOptionOfAHintIsTakenForAnArgument(t *testing.T) {
	db, bed := on(t)
	ctx := t.Context()
	without := bun.NewDB(bed.Database.Open(t), pgdialect.New())
	_, err := without.Exec("CREATE TABLE herd_products (id bigint PRIMARY KEY, price int)")
	must(t, err)
	_, err = without.Exec("INSERT INTO herd_products VALUES (7, 350)")
	must(t, err)
	raw := func(db *bun.DB, query string, args ...any) func() (int, error) {
		return func() (n int, err error) { err = db.NewRaw(query, args...).Scan(ctx, &n); return n, err }
	}
	// There is no argument left for {1}, since bun has written it into the text.
	full := strings.Replace(ormtest.FullHint, "product/{1}", "product/7", 1)
	query := "SELECT " + full + " price FROM herd_products WHERE id = "
	bed.SameAsBare(t, "NewRaw", raw(without, query+"?", 7), raw(db, query+"?", 7), "miss "+query+"7", "hit "+query+"7")
	bed.SameAsBare(t, "NewRaw, by number", raw(without, query+"?0", 7), raw(db, query+"?0", 7), "hit "+query+"7", "hit "+query+"7")
	bed.SameAsBare(t, "NewRaw, by name", raw(without, query+"?id", struct{ ID int }{7}), raw(db, query+"?id", struct{ ID int }{7}), "hit "+query+"7", "hit "+query+"7")
	comment := func(db *bun.DB) func() (int, error) {
		full := strings.TrimSuffix(strings.TrimPrefix(full, "/* "), " */")
		return func() (n int, err error) {
			err = db.NewSelect().Table("herd_products").Column("price").Where("id = ?", 7).Comment(full).Scan(ctx, &n)
			return n, err
		}
	}
	sent := full + ` SELECT "price" FROM "herd_products" WHERE (id = 7)`
	bed.SameAsBare(t, "Comment", comment(without), comment(db), "miss "+sent, "hit "+sent)

	// bun fills a ? in, in comments as well; to the other characters it does nothing.
	for _, c := range []struct{ tag, outcome, sent string }{
		{"user?0", "miss", "user7"}, {"user?id", "bypass(hint)", "user?id"}, {"user$1", "bypass(hint)", "user$1"}, {"user:id", "miss", "user:id"}, {"user@id", "miss", "user@id"},
	} {
		query, text := "SELECT /* @cache ttl=30s tags="+c.tag+" */ price FROM herd_products WHERE id = ?", "SELECT /* @cache ttl=30s tags="+c.sent+" */ price FROM herd_products WHERE id = 7"
		bed.SameAsBare(t, c.tag, raw(without, query, 7), raw(db, query, 7), c.outcome+" "+text, strings.Replace(c.outcome, "miss", "hit", 1)+" "+text)
	}
}

// bun writes values into the text, so a user's data stands where a hint might.
func TestAHintInAValueIsNoHint(t *testing.T) {
	db, bed := on(t)
	var items []item
	for _, name := range []string{"/* @cache ttl=1h */", "x' /* @cache ttl=1h */ '", "-- @cache ttl=1h\n", `\' /* @cache ttl=1h */ --`} {
		must(t, db.NewSelect().Model(&items).Where("name = ?", name).Scan(t.Context()))
		if got := bed.Log.Outcomes(); got != "passthrough" {
			t.Errorf("%q: %s", name, got)
		}
	}
}

// 5--1 would be 5 and a comment, with a hint in it or without.
func TestANegativeValueAfterAMinusIsNoComment(t *testing.T) {
	db, bed := on(t)
	for _, outcome := range []string{"miss", "hit"} {
		var n int
		must(t, db.NewRaw("SELECT 5-? /* @cache ttl=30s */ FROM items LIMIT 1", -1).Scan(t.Context(), &n))
		if got := bed.Log.Outcomes(); n != 6 || got != outcome {
			t.Errorf("%d (%s), want 6 (%s)", n, got, outcome)
		}
	}
}

func TestATagWithAnArgumentIsRefusedWhereBunLeavesNone(t *testing.T) {
	db, bed := on(t)
	var items []item
	must(t, db.NewSelect().Model(&items).Where("id = ?", 1).Comment("@cache ttl=30s tags=item/{1}").Scan(t.Context()))
	if got := bed.Log.Outcomes(); got != "bypass(hint)" {
		t.Error(got)
	}
}

func TestWritesThroughBunAreSeen(t *testing.T) {
	db, bed := on(t)
	ctx := t.Context()
	count := func(want int, outcome string) {
		t.Helper()
		var n int
		must(t, db.NewSelect().Table("items").ColumnExpr("count(*)").Where("price > ?", 0).Comment("@cache ttl=30s").Scan(ctx, &n))
		if got := bed.Log.Outcomes(); n != want || got != outcome {
			t.Errorf("%d (%s), want %d (%s)", n, got, want, outcome)
		}
	}
	count(2, "miss")
	n := 2
	for _, w := range []struct {
		write func() error
		items int
	}{
		{func() error {
			_, err := db.NewInsert().Model(&item{ID: 3, Name: "rum", Price: 1}).Exec(ctx)
			return err
		}, 3},
		{func() error {
			_, err := db.NewInsert().Model(&item{ID: 3, Price: 0}).On("CONFLICT (id) DO UPDATE").Set("price = EXCLUDED.price").Returning("price").Exec(ctx)
			return err
		}, 2},
		{func() error { _, err := db.NewUpdate().Model(&item{ID: 3, Price: 5}).WherePK().Exec(ctx); return err }, 3},
		{func() error {
			rows := []*item{{ID: 1, Name: "tea", Price: 0}, {ID: 3, Name: "rum", Price: 0}}
			_, err := db.NewUpdate().Model(&rows).Column("price").Bulk().Exec(ctx)
			return err
		}, 1},
		{func() error { _, err := db.NewDelete().Model((*item)(nil)).Where("id = 2").Exec(ctx); return err }, 0},
		{func() error {
			return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(&item{ID: 4, Price: 1}).Exec(ctx)
				return err
			})
		}, 1},
		{func() error { _, err := db.NewTruncateTable().Table("items").Exec(ctx); return err }, 0},
	} {
		count(n, "hit")
		must(t, w.write())
		bed.Log.Take()
		n = w.items
		count(n, "miss")
	}
	undo := errors.New("undo")
	if err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&item{ID: 5, Price: 1}).Exec(ctx)
		return errors.Join(err, undo)
	}); !errors.Is(err, undo) {
		t.Error(err)
	}
	bed.Log.Take()
	count(0, "hit")
	_, err := db.NewAddColumn().Table("items").ColumnExpr("stock int").Exec(ctx)
	must(t, err)
	bed.Log.Take()
	count(0, "miss")

	_, err = db.NewInsert().Model(&[]item{{ID: 1}, {ID: 1}}).Exec(ctx)
	if _, ok := err.(*pq.Error); !ok {
		t.Errorf("%T", err)
	}
	if err := db.NewSelect().Model(&item{}).Where("id = 99").Comment("@cache ttl=30s").Scan(ctx); !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
}
