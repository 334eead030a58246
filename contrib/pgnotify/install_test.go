package pgnotify_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/lib/pq"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

func one(name string) pgnotify.Config {
	return pgnotify.Config{Tables: []pgnotify.Table{{Name: name}}}
}

// wantNothingInstalled fails the test unless the database is as if pgnotify had never been there.
func wantNothingInstalled(t testing.TB, b *bed) {
	t.Helper()
	if got := scan(t, b.bare, `SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal) || ' ' ||
		(SELECT count(*) FROM pg_proc WHERE prorettype = 'trigger'::regtype AND pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)) || ' ' ||
		(SELECT count(*) FROM pg_namespace WHERE nspname ~* '^(sql)?her')`); got != "0 0 0" {
		t.Errorf("triggers, functions and schemas that are left: %s", got)
	}
}

func scan(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var v string
	if err := db.QueryRowContext(ctx, query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

const triggersState = `SELECT coalesce(string_agg(tgname || ' ' || oid || ' ' || tgenabled::text, ',' ORDER BY oid), '') FROM pg_trigger WHERE NOT tgisinternal`

func TestInstallMayBeRunAgainAndLocksNoTableThen(t *testing.T) {
	b := newBed(t, one("products"), products)
	before := scan(t, b.bare, triggersState)
	tx, err := b.bare.Begin() // a writer that takes its time
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after its commit
	mustExec(t, tx, `UPDATE products SET name = 'x'`)
	conn, err := b.bare.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mustExec(t, conn, `SET lock_timeout = '100ms'`)
	if err := pgnotify.Install(t.Context(), conn, b.cfg); err != nil {
		t.Errorf("a second Install with a writer at work: %v", err)
	}
	if after := scan(t, b.bare, triggersState); after != before {
		t.Errorf("triggers before: %s\nafter: %s", before, after)
	}
	var told *pq.Error
	if err := pgnotify.Uninstall(t.Context(), conn, b.cfg); !errors.As(err, &told) || told.Code != "55P03" {
		t.Errorf("Uninstall with a writer at work: %v, want that the lock is not to be had", err)
	}
}

func TestManyProcessesInstallAtOnce(t *testing.T) {
	dsn, db := newDatabase(t)
	mustExec(t, db, products)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := pgnotify.Install(context.Background(), openBare(t, dsn), one("products")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := pgnotify.Check(t.Context(), db, one("products")); err != nil {
		t.Error(err)
	}
}

func TestAnotherConfigurationReplacesTheFirst(t *testing.T) {
	b := newBed(t, one("products"), products)
	cfg := pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true}}}
	if err := pgnotify.Check(t.Context(), b.bare, cfg); err == nil || !strings.Contains(err.Error(), "not of this version and configuration") || !strings.Contains(err.Error(), "_upd") {
		t.Errorf("Check: %v", err)
	}
	for _, cfg := range []pgnotify.Config{cfg, b.cfg, cfg} {
		if err := pgnotify.Install(t.Context(), b.bare, cfg); err != nil {
			t.Fatal(err)
		}
		if err := pgnotify.Check(t.Context(), b.bare, cfg); err != nil {
			t.Error(err)
		}
	}
	e := b.after(func() { psql(t, b.dsn, `UPDATE products SET name = 'x' WHERE id = 2`) })
	wantTold(t, e, false, nil, []string{"product/2"})
	if n := scan(t, b.bare, `SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal`); n != "4" {
		t.Errorf("%s triggers, want 4", n)
	}
}

func TestUninstallLeavesNothingAndMayBeRunAgain(t *testing.T) {
	cfg := pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}}, {Name: "names"}}}
	b := newBed(t, cfg, products, `CREATE TABLE names (v text)`)
	if err := pgnotify.Uninstall(t.Context(), b.bare, one("names")); err != nil {
		t.Fatal(err)
	}
	if err := pgnotify.Check(t.Context(), b.bare, one("names")); err == nil {
		t.Error("Check misses nothing after Uninstall")
	}
	e := b.after(func() { psql(t, b.dsn, `INSERT INTO names VALUES (''); UPDATE products SET name = 'x' WHERE id = 1`) })
	wantTold(t, e, false, []string{"products"}, []string{"product/1"})
	mustExec(t, b.bare, `DROP TABLE names`)
	for range 2 {
		if err := pgnotify.Uninstall(t.Context(), b.bare, pgnotify.Config{}); err != nil { // all of the schema
			t.Fatal(err)
		}
	}
	wantNothingInstalled(t, b)
}

func TestWhatIsNotPgnotifysIsLeftAlone(t *testing.T) {
	b := newBed(t, one("products"), products, `CREATE SCHEMA sqlherd; CREATE TABLE sqlherd.mine (v int);
CREATE FUNCTION sqlherd.mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER sqlherd_mine AFTER UPDATE ON products EXECUTE FUNCTION sqlherd.mine()`)
	if err := pgnotify.Uninstall(t.Context(), b.bare, pgnotify.Config{}); err != nil {
		t.Fatal(err)
	}
	if got := scan(t, b.bare, `SELECT string_agg(tgname, ',') FROM pg_trigger WHERE NOT tgisinternal`); got != "sqlherd_mine" {
		t.Errorf("triggers: %s", got)
	}
}

func TestInstallRefusesWhatItCouldNotKeepItsPromiseFor(t *testing.T) {
	_, db := newDatabase(t)
	mustExec(t, db, products, `ALTER TABLE products ADD at timestamptz; ALTER TABLE products ADD price numeric;
CREATE VIEW v AS SELECT * FROM products; CREATE MATERIALIZED VIEW m AS SELECT * FROM products;
CREATE TABLE base (v text); CREATE TABLE child (id int) INHERITS (base)`)
	for _, c := range []struct {
		table pgnotify.Table
		want  string
	}{
		{pgnotify.Table{Name: "nowhere"}, `no table "public"."nowhere"`},
		{pgnotify.Table{Name: "Products", Tags: []string{"p/{ID}"}}, `has no column "ID"`},
		{pgnotify.Table{Name: "products", Tags: []string{"p/{at}"}}, `has type timestamptz`},
		{pgnotify.Table{Name: "products", Tags: []string{"p/{price}"}}, `has type numeric`},
		{pgnotify.Table{Name: "products", Tags: []string{"p/{ctid}"}}, `has no column "ctid"`},
		{pgnotify.Table{Name: "v"}, `v is not a table`},
		{pgnotify.Table{Name: "m"}, `m is not a table`},
		{pgnotify.Table{Name: "child", Tags: []string{"p/{id}"}}, `public.base has no column "id"`},
	} {
		err := pgnotify.Install(t.Context(), db, pgnotify.Config{Tables: []pgnotify.Table{{Name: "base"}, c.table}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.table, err, c.want)
		}
		if n := scan(t, db, `SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal`); n != "0" {
			t.Errorf("%+v: an Install that failed left %s triggers", c.table, n)
		}
	}
}

func TestPartitionsAndChildrenAreSeenFromBothEnds(t *testing.T) {
	const partitioned = `CREATE TABLE products (id int, name text) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF products FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
CREATE TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (10); CREATE TABLE lower PARTITION OF low FOR VALUES FROM (10) TO (100);
INSERT INTO products VALUES (1, 'one'), (50, 'fifty')`
	const inherited = `CREATE TABLE products (id int, name text); CREATE TABLE low () INHERITS (products); CREATE TABLE lowest () INHERITS (low);
CREATE TABLE other (id int, name text); ALTER TABLE lowest INHERIT other; INSERT INTO lowest VALUES (1, 'one'); INSERT INTO products VALUES (50, 'fifty')`
	for _, c := range []struct{ name, setup, listed, written string }{
		{"the root of a partitioned table", partitioned, "products", "products"},
		{"a partition that is written directly", partitioned, "products", "lowest"},
		{"a partition's partition", partitioned, "products", "low"},
		{"a partition that is read, and written by its root", partitioned, "lowest", "products"},
		{"a parent", inherited, "products", "products"},
		{"a child that is written directly", inherited, "products", "lowest"},
		{"a child that is read, and written by its parent", inherited, "lowest", "products"},
		{"a child's other parent", inherited, "products", "other"},
	} {
		for _, rows := range []bool{false, true} {
			name, table := c.name, pgnotify.Table{Name: c.listed}
			query := `SELECT /* @cache ttl=1h */ name FROM ` + c.listed + ` WHERE id = $1`
			if rows {
				name += ", by row"
				table.Tags, table.TagsOnly = []string{"p/{id}"}, true
				query = strings.Replace(query, "1h", "1h tables=none tags=p/{1}", 1)
			}
			t.Run(name, func(t *testing.T) {
				b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{table}}, c.setup)
				b.cached("one", query, 1)
				b.after(func() { psql(t, b.dsn, `UPDATE `+c.written+` SET name = 'new' WHERE id = 1`) })
				b.want("new", sqlherd.Miss, query, 1)
				e := b.after(func() { psql(t, b.dsn, `TRUNCATE `+c.written) })
				if rows && !e.All || !rows && len(e.Tables) != 1 {
					t.Errorf("TRUNCATE told %+v", e)
				}
			})
		}
	}
}

func TestANewPartitionIsMissedByCheckUntilInstall(t *testing.T) {
	b := newBed(t, one("products"), `CREATE TABLE products (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF products FOR VALUES FROM (0) TO (10)`)
	mustExec(t, b.bare, `CREATE TABLE p2 PARTITION OF products FOR VALUES FROM (10) TO (20)`)
	e := b.after(func() { psql(t, b.dsn, `INSERT INTO products VALUES (15)`) })
	wantTold(t, e, false, []string{"products"}, nil) // by the root it is seen
	if err := pgnotify.Check(t.Context(), b.bare, b.cfg); err == nil || !strings.Contains(err.Error(), "p2 lacks the trigger") || strings.Contains(err.Error(), "p1") {
		t.Errorf("Check: %v", err)
	}
	if err := pgnotify.Install(t.Context(), b.bare, b.cfg); err != nil {
		t.Fatal(err)
	}
	e = b.after(func() { psql(t, b.dsn, `INSERT INTO p2 VALUES (16)`) })
	wantTold(t, e, false, []string{"products"}, nil)
	mustExec(t, b.bare, `ALTER TABLE products DETACH PARTITION p2`)
	if err := pgnotify.Install(t.Context(), b.bare, b.cfg); err != nil {
		t.Fatal(err)
	}
	e = b.after(func() { psql(t, b.dsn, `INSERT INTO p2 VALUES (17)`) })
	wantTold(t, e, false, nil, nil)
}

func TestADisabledTriggerIsMissedByCheck(t *testing.T) {
	b := newBed(t, one("products"), products)
	mustExec(t, b.bare, `ALTER TABLE products DISABLE TRIGGER ALL`)
	if err := pgnotify.Check(t.Context(), b.bare, b.cfg); err == nil || !strings.Contains(err.Error(), "has it disabled") {
		t.Errorf("Check: %v", err)
	}
	if err := pgnotify.Install(t.Context(), b.bare, b.cfg); err != nil {
		t.Fatal(err)
	}
	if err := pgnotify.Check(t.Context(), b.bare, b.cfg); err != nil {
		t.Error(err)
	}
}

// The owner of the tables installs; who writes, and who listens, need no right for it.
func TestNoMorePrivilegeIsNeededThanIsDocumented(t *testing.T) {
	dsn, super := newDatabase(t)
	role := func(name string) string {
		mustExec(t, super, `DO $$ BEGIN CREATE ROLE `+name+` LOGIN PASSWORD 'pw'; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(name, "pw")
		return u.String()
	}
	owner, writer, listener := role("pgnotify_owner"), role("pgnotify_writer"), role("pgnotify_listener")
	mustExec(t, super, products, `ALTER TABLE products OWNER TO pgnotify_owner; GRANT SELECT, UPDATE ON products TO pgnotify_writer;
CREATE SCHEMA sqlherd AUTHORIZATION pgnotify_owner; REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO pgnotify_owner, pgnotify_writer`)
	cfg := pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true}}}
	if err := pgnotify.Install(t.Context(), openBare(t, owner), cfg); err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dsn: listener, bare: super, cfg: cfg}
	b.listen(sqlherd.Config{})
	e := b.after(func() { psql(t, writer, `UPDATE products SET name = 'x' WHERE id = 1`) })
	wantTold(t, e, false, nil, []string{"product/1"})
	if err := pgnotify.Check(t.Context(), openBare(t, listener), cfg); err != nil {
		t.Error(err)
	}
	if err := pgnotify.Uninstall(t.Context(), openBare(t, writer), cfg); err == nil {
		t.Error("a writer may take the triggers away")
	}
	if err := pgnotify.Uninstall(t.Context(), openBare(t, owner), cfg); err != nil {
		t.Error(err)
	}
}

// A fault of the trigger costs cached results, and never the write.
func TestARenamedColumnDoesNotMakeWritesFail(t *testing.T) {
	b := newBed(t, pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true, GroupTag: "products-rows"}}}, products)
	b.cached("one", byTag, 1)
	out := ""
	e := b.after(func() {
		out = psql(t, b.dsn, `ALTER TABLE products RENAME id TO pid; UPDATE products SET name = 'new' WHERE pid = 1`)
	})
	if !strings.Contains(out, "WARNING") || !strings.Contains(out, "public.products") && !strings.Contains(out, "products") {
		t.Errorf("psql said %q, want a warning", out)
	}
	wantTold(t, e, false, []string{"products"}, []string{"products-rows"})
}

func TestInstallSQLIsTextForPsqlToo(t *testing.T) {
	dsn, db := newDatabase(t)
	mustExec(t, db, products)
	cfg := pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}", "catalog"}}}}
	text, err := pgnotify.InstallSQL(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := pgnotify.InstallSQL(cfg); again != text {
		t.Error("two texts for one configuration")
	}
	psql(t, dsn, "BEGIN;\n"+text+"COMMIT;")
	if err := pgnotify.Check(t.Context(), db, cfg); err != nil {
		t.Error(err)
	}
	text, err = pgnotify.UninstallSQL(cfg)
	if err != nil {
		t.Fatal(err)
	}
	psql(t, dsn, text)
	wantNothingInstalled(t, &bed{bare: db})
}
