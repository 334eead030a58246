package main

import (
	"strings"
	"testing"

	"github.com/Masterminds/squirrel"
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

func on(t *testing.T) (squirrel.StatementBuilderType, *ormtest.Bed) {
	d := dbtest.PQ(t)
	d.Exec(t, "CREATE TABLE herd_products (id bigint PRIMARY KEY, name text, price int)",
		"INSERT INTO herd_products VALUES (7, 'tea', 350), (8, 'milk', 120)")
	bed := ormtest.Open(t, d, sqlherd.Config{})
	return builder(bed.DB), bed
}

func TestAHintSurvivesWhereverSquirrelCanPutIt(t *testing.T) {
	b, bed := on(t)
	const hint = "/* @cache ttl=30s swr=5m tags=product/{1} */"
	read := b.Select("price").From("herd_products").Where(squirrel.Eq{"id": 7})
	for _, c := range []struct {
		where string
		query squirrel.SelectBuilder
		want  string
	}{
		{"Options", read.Options(hint), "SELECT " + hint + " price FROM herd_products WHERE id = $1"},
		{"Options and Distinct", read.Options(hint).Distinct(), "SELECT " + hint + " DISTINCT price FROM herd_products WHERE id = $1"},
		{"Prefix", read.Prefix(hint), hint + " SELECT price FROM herd_products WHERE id = $1"},
		{"Suffix", read.Suffix(hint), "SELECT price FROM herd_products WHERE id = $1 " + hint},
		{"a Prefix of a subquery", b.Select("count(*)").FromSelect(b.Select("id").From("herd_products").Where("id IN (?, ?)", 7, 8).Prefix("/* @cache ttl=30s */"), "s"),
			"SELECT count(*) FROM (/* @cache ttl=30s */ SELECT id FROM herd_products WHERE id IN ($1, $2)) AS s"},
		{"a Column", b.Select().Column("/* @cache ttl=30s */ count(*)").From("herd_products").Where(squirrel.Gt{"price": 1}),
			"SELECT /* @cache ttl=30s */ count(*) FROM herd_products WHERE price > $1"},
		{"a subquery", b.Select("count(*)").Options("/* @cache ttl=30s */").FromSelect(b.Select("id").From("herd_products").Where("id IN (?, ?)", 7, 8), "s"),
			"SELECT /* @cache ttl=30s */ count(*) FROM (SELECT id FROM herd_products WHERE id IN ($1, $2)) AS s"},
	} {
		must(t, bed.Herd.InvalidateAll(t.Context()))
		var n int
		must(t, c.query.QueryRow().Scan(&n))
		must(t, c.query.QueryRow().Scan(&n))
		bed.Log.Want(t, c.where, "miss "+c.want, "hit "+c.want)
	}
}

// squirrel takes a ? for an argument in comments as well; a hint needs none.
func TestNoOptionOfAHintIsTakenForAnArgument(t *testing.T) {
	b, bed := on(t)
	bare := builder(bed.Database.Open(t))
	places := map[string]func(q squirrel.SelectBuilder, hint string) squirrel.SelectBuilder{
		"Options": func(q squirrel.SelectBuilder, hint string) squirrel.SelectBuilder { return q.Options(hint) },
		"Prefix":  func(q squirrel.SelectBuilder, hint string) squirrel.SelectBuilder { return q.Prefix(hint) },
		"Suffix":  func(q squirrel.SelectBuilder, hint string) squirrel.SelectBuilder { return q.Suffix(hint) },
	}
	for place, put := range places {
		ask := func(b squirrel.StatementBuilderType, hint string) func() (int, error) {
			return func() (n int, err error) {
				q := b.Select("price").From("herd_products").Where(squirrel.Eq{"id": 7}).Where("price > ?", 1)
				err = put(q, hint).QueryRow().Scan(&n)
				return n, err
			}
		}
		sent := func(hint string, first, second string) string {
			return strings.TrimSpace(map[string]string{
				"Options": "SELECT " + hint + " price FROM herd_products WHERE id = " + first + " AND price > " + second,
				"Prefix":  hint + " SELECT price FROM herd_products WHERE id = " + first + " AND price > " + second,
				"Suffix":  "SELECT price FROM herd_products WHERE id = " + first + " AND price > " + second + " " + hint,
			}[place])
		}
		must(t, bed.Herd.InvalidateAll(t.Context()))
		full := sent(ormtest.FullHint, "$1", "$2")
		bed.SameAsBare(t, place, ask(bare, ormtest.FullHint), ask(b, ormtest.FullHint), "miss "+full, "hit "+full)

		for _, tag := range ormtest.TagsWithPlaceholders {
			hint := "/* @cache ttl=30s tags=" + tag + " */"
			text := sent(hint, "$1", "$2")
			outcomes := []string{"bypass(hint) ", "bypass(hint) "}
			switch {
			case strings.Contains(tag, "?") && place == "Suffix":
				text = sent(strings.Replace(hint, "?", "$3", 1), "$1", "$2")
			case strings.Contains(tag, "?"):
				text = sent(strings.Replace(hint, "?", "$1", 1), "$2", "$3")
			case !strings.Contains(tag, "$"):
				outcomes = []string{"miss ", "hit "}
			}
			bed.SameAsBare(t, place+", "+tag, ask(bare, hint), ask(b, hint), outcomes[0]+text, outcomes[1]+text)
		}
	}
	query, args, err := productByID(b, 7).ToSql()
	must(t, err)
	if len(args) != 1 || strings.Contains(query, "?") || !strings.Contains(query, "id = $1") || !strings.Contains(query, "{1}") {
		t.Error(query, args)
	}
}

func TestWritesThroughSquirrelAreSeenAndTransactionsRead(t *testing.T) {
	b, bed := on(t)
	price := func(b squirrel.StatementBuilderType, want int) {
		t.Helper()
		var name string
		var got int
		must(t, productByID(b, 7).QueryRow().Scan(&name, &got))
		if got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	price(b, 350)
	_, err := b.Update("herd_products").Set("price", 400).Where(squirrel.Eq{"id": 7}).Exec()
	must(t, err)
	price(b, 400)
	// A write by QueryRow, as RETURNING wants it, is a write too, and is never answered from the cache.
	for range 2 {
		var got int
		must(t, b.Update("herd_products").Set("price", squirrel.Expr("price + 1")).Where(squirrel.Eq{"id": 7}).
			Suffix("RETURNING price /* @cache ttl=30s */").QueryRow().Scan(&got))
	}
	price(b, 402)
	tx, err := bed.DB.Begin()
	must(t, err)
	_, err = b.RunWith(tx).Delete("herd_products").Where(squirrel.Eq{"id": 8}).Exec()
	must(t, err)
	price(b.RunWith(tx), 402)
	must(t, tx.Commit())
	price(b, 402)
	if got := bed.Log.Outcomes(); got != "miss exec miss bypass(write) bypass(write) miss begin exec bypass(tx) commit miss" {
		t.Error(got)
	}
	_, err = b.Insert("herd_products").Values(7, "again", 1).Exec()
	if _, ok := err.(*pq.Error); !ok {
		t.Errorf("%T", err)
	}
}
