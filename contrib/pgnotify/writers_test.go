package pgnotify_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

const products = `CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO products VALUES (1, 'one'), (2, 'two')`

const (
	byTable = `SELECT /* @cache ttl=1h */ name FROM products WHERE id = $1`
	byTag   = `SELECT /* @cache ttl=1h tables=none tags=product/{1},products-rows */ name FROM products WHERE id = $1`
)

// Each is a way of writing that no wrapped driver sees, and changes the name of product 1.
var foreignWrites = []struct {
	name  string
	setup string
	write string // by psql; its last line of output, if any, is of no interest
}{
	{name: "an update by psql", write: `UPDATE products SET name = 'new' WHERE id = 1;`},
	{name: "delete and insert in one transaction", write: `BEGIN; DELETE FROM products WHERE id = 1; INSERT INTO products VALUES (1, 'new'); COMMIT;`},
	{name: "COPY", write: "BEGIN;\nDELETE FROM products WHERE id = 1;\nCOPY products FROM STDIN;\n1\tnew\n\\.\nCOMMIT;\n"},
	{name: "an upsert", write: `INSERT INTO products VALUES (1, 'new') ON CONFLICT (id) DO UPDATE SET name = excluded.name;`},
	{name: "a writable CTE", write: `WITH w AS (UPDATE products SET name = 'new' WHERE id = 1 RETURNING id) SELECT * FROM w;`},
	{name: "MERGE", write: `MERGE INTO products p USING (VALUES (1, 'new')) v (id, name) ON p.id = v.id WHEN MATCHED THEN UPDATE SET name = v.name;`},
	{
		name: "a trigger of another table",
		setup: `CREATE TABLE renames (id int, name text);
CREATE FUNCTION rename() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE products SET name = NEW.name WHERE id = NEW.id; RETURN NEW; END $$;
CREATE TRIGGER rename AFTER INSERT ON renames FOR EACH ROW EXECUTE FUNCTION rename();`,
		write: `INSERT INTO renames VALUES (1, 'new');`,
	},
	{
		name:  "a stored procedure that commits by itself",
		setup: `CREATE PROCEDURE rename(n int, v text) LANGUAGE plpgsql AS $$ BEGIN UPDATE products SET name = v WHERE id = n; COMMIT; END $$;`,
		write: `CALL rename(1, 'new');`,
	},
	{
		name:  "a cascade of an update",
		setup: `CREATE TABLE names (name text PRIMARY KEY); INSERT INTO names VALUES ('one'), ('two'); ALTER TABLE products ADD FOREIGN KEY (name) REFERENCES names ON UPDATE CASCADE;`,
		write: `UPDATE names SET name = 'new' WHERE name = 'one';`,
	},
	{name: "a view", setup: `CREATE VIEW shown AS SELECT * FROM products;`, write: `UPDATE shown SET name = 'new' WHERE id = 1;`},
	{name: "a session that replicates", write: `SET session_replication_role = replica; UPDATE products SET name = 'new' WHERE id = 1;`},
	{name: "a savepoint", write: `BEGIN; SAVEPOINT a; UPDATE products SET name = 'x' WHERE id = 1; ROLLBACK TO a; UPDATE products SET name = 'new' WHERE id = 1; COMMIT;`},
	{name: "a login that may do nothing else", setup: `DO $$ BEGIN CREATE ROLE pgnotify_nologin; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$; GRANT SELECT, UPDATE ON products TO pgnotify_nologin;`,
		write: `SET ROLE pgnotify_nologin; UPDATE products SET name = 'new' WHERE id = 1;`},
}

func TestAReadAfterAForeignWriteIsFresh(t *testing.T) {
	for _, rows := range []bool{false, true} {
		table, query := pgnotify.Table{Name: "products"}, byTable
		if rows {
			table = pgnotify.Table{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true, GroupTag: "products-rows"}
			query = byTag
		}
		t.Run(fmt.Sprintf("rows=%t", rows), func(t *testing.T) {
			for _, w := range foreignWrites {
				t.Run(w.name, func(t *testing.T) {
					b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{table}}, products, w.setup)
					b.cached("one", query, 1)
					b.cached("two", query, 2)
					e := b.after(func() { psql(t, b.dsn, w.write) })
					b.want("new", sqlherd.Miss, query, 1)
					if rows {
						wantTold(t, e, false, nil, []string{"product/1"})
						b.want("two", sqlherd.Hit, query, 2)
					} else {
						wantTold(t, e, false, []string{"products"}, nil)
						b.want("two", sqlherd.Miss, query, 2)
					}
				})
			}
		})
	}
}

func TestDeletedRowsAndCascadesAreForgottenRowByRow(t *testing.T) {
	b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{
		{Name: "shops", Tags: []string{"shop/{id}"}, TagsOnly: true},
		{Name: "products", Tags: []string{"product/{id}", "shop/{shop}/products"}, TagsOnly: true},
	}}, `CREATE TABLE shops (id int PRIMARY KEY, name text); CREATE TABLE products (id int PRIMARY KEY, shop int REFERENCES shops ON DELETE CASCADE);
INSERT INTO shops VALUES (1, 'a'), (2, 'b'); INSERT INTO products VALUES (10, 1), (11, 1), (20, 2)`)
	const query = `SELECT /* @cache ttl=1h tables=none tags=shop/{1}/products */ count(*) FROM products WHERE shop = $1`
	b.cached("2", query, 1)
	b.cached("1", query, 2)
	e := b.after(func() { psql(t, b.dsn, `DELETE FROM shops WHERE id = 1`) })
	wantTold(t, e, false, nil, []string{"product/10", "product/11", "shop/1", "shop/1/products"})
	b.want("0", sqlherd.Miss, query, 1)
	b.want("1", sqlherd.Hit, query, 2)

	// A row that moves is gone from where it was, and new where it is.
	b.after(func() { psql(t, b.dsn, `INSERT INTO shops VALUES (3, 'c')`) })
	b.cached("0", query, 3)
	e = b.after(func() { psql(t, b.dsn, `UPDATE products SET shop = 3`) })
	wantTold(t, e, false, nil, []string{"product/20", "shop/2/products", "shop/3/products"})
	b.want("0", sqlherd.Miss, query, 2)
	b.want("1", sqlherd.Miss, query, 3)
}

func TestWhatWasRolledBackOrChangedNothingForgetsNothing(t *testing.T) {
	b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}}}}, products)
	b.cached("one", byTable, 1)
	e := b.after(func() {
		psql(t, b.dsn, `BEGIN; UPDATE products SET name = 'x'; TRUNCATE products; ROLLBACK;
UPDATE products SET name = 'x' WHERE false; DELETE FROM products WHERE false;
INSERT INTO products VALUES (1, 'x') ON CONFLICT DO NOTHING; INSERT INTO products SELECT 3, 'x' WHERE false;`)
	})
	wantTold(t, e, false, nil, nil)
	b.want("one", sqlherd.Hit, byTable, 1)
}

func TestTruncateAndManyRowsForgetByTheGroup(t *testing.T) {
	for _, w := range []struct{ name, write string }{
		{"TRUNCATE", `TRUNCATE products; INSERT INTO products VALUES (1, 'new')`},
		{"TRUNCATE by cascade", `TRUNCATE shops CASCADE; INSERT INTO products VALUES (1, 'new')`},
		{"many rows", `INSERT INTO products SELECT n, '' FROM generate_series(1000, 2000) n; UPDATE products SET name = 'new'`},
		{"many rows again", `INSERT INTO products SELECT n, '' FROM generate_series(3, 100000) n; UPDATE products SET name = 'new'`},
	} {
		for _, group := range []string{"", "products-rows"} {
			t.Run(w.name+" "+group, func(t *testing.T) {
				b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true, GroupTag: group}}}, products,
					`CREATE TABLE shops (id int PRIMARY KEY); ALTER TABLE products ADD shop int REFERENCES shops`,
					`CREATE TABLE other (v text); INSERT INTO other VALUES ('other')`)
				const other = `SELECT /* @cache ttl=1h */ v FROM other`
				b.cached("one", byTag, 1)
				b.cached("one", byTable, 1)
				b.cached("other", other)
				e := b.after(func() { psql(t, b.dsn, w.write) })
				if e.Notifications > 8 {
					t.Errorf("%d notifications", e.Notifications)
				}
				b.want("new", sqlherd.Miss, byTag, 1)
				b.want("new", sqlherd.Miss, byTable, 1) // also when rows alone are told otherwise
				if group == "" {
					b.want("other", sqlherd.Miss, other)
				} else {
					b.want("other", sqlherd.Hit, other)
				}
			})
		}
	}
}

func TestAsManyRowsAsAreAllowedAreToldOneByOne(t *testing.T) {
	b := newBed(t, pgnotify.Config{TagsMax: 5000, Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}/{name}"}, TagsOnly: true}}}, products,
		// Names that JSON writes twice as long.
		`INSERT INTO products SELECT n, repeat('"\', 1 + n % 400) FROM generate_series(3, 5000) n`)
	e := b.after(func() { psql(t, b.dsn, `UPDATE products SET id = id`) })
	if e.All || len(e.Tags) != 5000 {
		t.Errorf("all %t, %d tags, want 5000", e.All, len(e.Tags))
	}
	if !strings.HasSuffix(e.Tags[2000], `"\`) {
		t.Errorf("%q", e.Tags[2000])
	}
	// The same rows again in one transaction are told once.
	again := b.after(func() { psql(t, b.dsn, `BEGIN; UPDATE products SET id = id; UPDATE products SET id = id; COMMIT`) })
	if again.Notifications != e.Notifications {
		t.Errorf("%d notifications for two equal updates, %d for one", again.Notifications, e.Notifications)
	}
}

// What a trigger makes of a value must be what sqlherd makes of the argument, or the row's results live on.
func TestATagIsTheSameAsThatOfAQueryWhateverTheValue(t *testing.T) {
	values := []string{"plain", "", "7/x", "100%", "a,b", "%41", "ünï/cödé", "tab\tnew\nline", "\u0080\u009f\u00a0", "\x01\x1f\x7f", `quote"and\slash`, "'; DROP TABLE products; --",
		"$sqlherd$", "{1}", "日本語", "😀", " spaces ", "%null", strings.Repeat("x", 900), strings.Repeat("x", 5000), "C\u0301", "ſK"}
	b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{name}"}, TagsOnly: true}}},
		`CREATE TABLE products (name text, n int)`)
	const query = `SELECT /* @cache ttl=1h tables=none tags=product/{1} */ n FROM products WHERE name = $1`
	for i, v := range values {
		mustExecArgs(t, b, `INSERT INTO products VALUES ($1, 0)`, v)
		b.settle(b.events.len())
		if got, o := b.read(query, v); got != "0" {
			t.Fatalf("%q: %v", v, o)
		}
		if _, o := b.read(query, v); o == sqlherd.Bypassed {
			continue // no tag of that length
		} else if o != sqlherd.Hit {
			t.Errorf("%q is not cached: %v", v, o)
		}
		b.after(func() { mustExecArgs(t, b, `UPDATE products SET n = $2 WHERE name = $1`, v, i+1) })
		b.want(fmt.Sprint(i+1), sqlherd.Miss, query, v)
	}
}

func mustExecArgs(t testing.TB, b *bed, query string, args ...any) {
	t.Helper()
	if _, err := b.bare.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestEveryTypeThatMakesATagComesToTheTagOfItsArgument(t *testing.T) {
	for _, c := range []struct {
		sqlType, literal string
		arg              any
	}{
		{"smallint", "-7", int64(-7)}, {"bigint", "9223372036854775807", int64(9223372036854775807)}, {"boolean", "true", true}, {"boolean", "false", false},
		{"uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, {"varchar(10)", "'v'", "v"}, {"char(4)", "'DE'", "DE"},
		{"mood", "'so so'", "so so"}, {"sku", "'S-1'", "S-1"},
	} {
		t.Run(c.sqlType+" "+c.literal, func(t *testing.T) {
			b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"p/{k}"}, TagsOnly: true}}},
				`CREATE TYPE mood AS ENUM ('so so'); CREATE DOMAIN sku AS text`,
				fmt.Sprintf(`CREATE TABLE products (k %s, n int); INSERT INTO products VALUES (%s, 0)`, c.sqlType, c.literal))
			const query = `SELECT /* @cache ttl=1h tables=none tags=p/{1} */ n FROM products WHERE k = $1`
			b.cached("0", query, c.arg)
			b.after(func() { psql(t, b.dsn, `UPDATE products SET n = 1`) })
			b.want("1", sqlherd.Miss, query, c.arg)
		})
	}
}

func TestNullInATagIsThatOfANullArgument(t *testing.T) {
	b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"in/{category}"}, TagsOnly: true}}},
		`CREATE TABLE products (category text)`)
	const query = `SELECT /* @cache ttl=1h tables=none tags=in/{1} */ count(*) FROM products WHERE category IS NOT DISTINCT FROM $1`
	b.cached("0", query, nil)
	b.after(func() { psql(t, b.dsn, `INSERT INTO products VALUES (NULL)`) })
	b.want("1", sqlherd.Miss, query, nil)
}

func TestOddNamesOfTablesAndColumnsAreNoTrouble(t *testing.T) {
	for _, name := range []string{`Odd Name`, `a.b`, `quo"te`, `$sqlherd$`, `it's`, `back\slash`, `{"v":1}`, `SELECT`, `日本`, `; DROP TABLE x; --`, `x`, `100%`,
		strings.Repeat("x", 63)} {
		quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		for _, rows := range []bool{false, true} {
			if rows && strings.ContainsAny(name, "{}") {
				continue // braces in a tag are a column's
			}
			t.Run(fmt.Sprintf("%s %t", name, rows), func(t *testing.T) {
				table := pgnotify.Table{Name: `"My.Schema".` + quoted}
				query := `SELECT /* @cache ttl=1h */ v FROM "My.Schema".` + quoted
				if rows {
					table.Tags, table.TagsOnly = []string{name + "'$" + "/{" + name + "}"}, true
				}
				cfg := pgnotify.Config{Tables: []pgnotify.Table{table}, Channel: name, Schema: "Her" + name[:min(len(name), 40)]}
				b := newBed(t, cfg, `CREATE SCHEMA "My.Schema"`, fmt.Sprintf(`CREATE TABLE "My.Schema".%s (%s int, v text); INSERT INTO "My.Schema".%s VALUES (1, 'old')`, quoted, quoted, quoted))
				ctx := context.Background()
				from := b.events.len()
				if !rows {
					b.cached("old", query)
				}
				psql(t, b.dsn, fmt.Sprintf(`UPDATE "My.Schema".%s SET v = 'new'`, quoted))
				i := b.events.await(t, from, "the write", func(e pgnotify.Event) bool { return e.Kind == pgnotify.Invalidated })
				if e := b.events.since(i)[0]; rows && (len(e.Tags) != 1 || e.Tags[0] != name+"'$/1") || !rows && (len(e.Tables) != 1 || e.Tables[0] != name) {
					t.Errorf("told %+v", e)
				}
				if !rows {
					b.want("new", sqlherd.Miss, query)
				}
				if err := pgnotify.Check(ctx, b.bare, cfg); err != nil {
					t.Error(err)
				}
				if err := pgnotify.Uninstall(ctx, b.bare, cfg); err != nil {
					t.Error(err)
				}
				wantNothingInstalled(t, b)
			})
		}
	}
}
