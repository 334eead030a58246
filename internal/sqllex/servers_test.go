package sqllex_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/sqlherd/sqlherd/internal/sqllex"
)

// What the servers themselves have said of generated statements, in integration/tables_*_test.go.

func TestKeywordsThatNameATableAreOne(t *testing.T) {
	rows := []row{
		{name: "modifier of another dialect before an alias", dialects: in(pg, lt), text: `UPDATE ignore i SET a = 1`, writes: "ignore"},
		{name: "modifier of another dialect, or a table", dialects: in(un), text: `UPDATE ignore i SET a = 1`, writes: "i ignore"},
		{name: "temporary and an alias", dialects: in(pg, my, lt), text: "UPDATE temporary `x` SET a = 1", writes: "temporary"},
		{name: "local and an alias", text: `DELETE FROM local l WHERE a = 1`, writes: "local"},
		{name: "a table called temp that is dropped", text: `DROP TABLE temp RESTRICT`, writes: "temp"},
		{name: "quick and an alias in MySQL", dialects: in(my), text: `UPDATE quick q SET a = 1`, writes: "quick"},
		{name: "quick deletes", dialects: in(my), text: `DELETE QUICK FROM t WHERE a = 1`, writes: "t"},
		{name: "insert into values", dialects: in(pg), text: `INSERT INTO values (a) SELECT b FROM u`, writes: "values", reads: "u"},
		{name: "insert into lateral", dialects: in(un, lt), text: `INSERT INTO lateral (a) VALUES (1)`, writes: "lateral"},
		{name: "insert into with", dialects: in(lt), text: `INSERT INTO with (a) VALUES (1)`, writes: "with"},
		{name: "delete from with", dialects: in(lt), text: `DELETE FROM with AS w`, writes: "with"},
		{name: "verbs in a parenthesised join", dialects: in(un, pg, my), text: `SELECT * FROM (merge AS m JOIN b ON m.x = b.x), (insert AS i JOIN c ON 1 = 1)`, reads: "b c insert merge"},
		{name: "delete in a parenthesised join", dialects: in(un, pg), text: `SELECT * FROM (delete JOIN b USING (x))`, reads: "b delete"},
		{name: "from with", dialects: in(lt), text: `SELECT * FROM with AS w, with v JOIN t`, reads: "t with"},
		{name: "alias called with", dialects: in(lt), text: `SELECT * FROM (a AS with JOIN (t AS u JOIN b ON 1 = 1) ON 1 = 1)`, reads: "a b t"},
		{name: "from lateral", dialects: in(lt), text: `SELECT * FROM lateral l, t`, reads: "lateral t"},
		{name: "alias called values", dialects: in(un, pg, lt), text: `SELECT * FROM (VALUES (1)) values (x), t`, reads: "t"},
		{name: "alias called for behind a table called key", dialects: in(lt), text: `SELECT * FROM key for, t JOIN key for JOIN u`, reads: "key t u"},
		{name: "names behind for update of", text: `SELECT * FROM a x, b y FOR UPDATE OF x, y`, reads: "a b"},
		{name: "table behind in", dialects: in(un, lt), text: `SELECT * FROM a WHERE x IN b AND y NOT IN main.c`, reads: "a b c"},
		{name: "table behind in, in the middle of a list", dialects: in(lt), text: `SELECT * FROM a JOIN b ON x IN c, d WHERE y IN (1, 2)`, reads: "a b c d"},
	}
	for _, r := range rows {
		r.class = ClassRead
		r.guard = GuardNone
		if r.writes != "" {
			r.class, r.guard = ClassWrite, GuardWrite
		}
		switch {
		case strings.HasPrefix(r.text, "DROP"):
			r.class = ClassSchema
		case strings.Contains(r.text, "FOR UPDATE"):
			r.guard = GuardLocking
		}
		run(t, []row{r})
	}
}

func TestTableExpressionsHideWhatTheServerSaysTheyHide(t *testing.T) {
	run(t, []row{
		// MariaDB 10.11 reads the table b here, and MySQL the table expression.
		{name: "outer names within another's table expression", dialects: in(un, my), text: `WITH b AS (SELECT 1) SELECT * FROM (WITH q AS (SELECT * FROM b) SELECT * FROM q) r`, class: ClassRead, reads: "b"},
		{name: "outer names within another's query", text: `WITH b AS (SELECT 1) SELECT * FROM (WITH q AS (SELECT * FROM a) SELECT * FROM q, b) r`, class: ClassRead, reads: "a"},
		{name: "siblings within another's table expression", text: `SELECT * FROM (WITH b AS (SELECT 1), q AS (SELECT * FROM b) SELECT * FROM q) r`, class: ClassRead},
		{name: "outer names elsewhere", dialects: in(pg, lt), text: `WITH b AS (SELECT 1) SELECT * FROM (WITH q AS (SELECT * FROM b) SELECT * FROM q) r`, class: ClassRead},
		{name: "name that begins with a digit", dialects: in(un, my), text: `WITH 2024_sales AS (SELECT * FROM a), 1e5x AS (SELECT * FROM b) SELECT * FROM 2024_sales, 1e5x`, class: ClassRead, reads: "a b"},
		{name: "the select's names are gone on conflict", text: `INSERT INTO t WITH q AS (SELECT * FROM a) SELECT * FROM q ON CONFLICT (id) DO UPDATE SET x = (SELECT x FROM q)`, class: ClassWrite, guard: GuardWrite, writes: "t", reads: "a q"},
		{name: "the insert's own names stay", text: `WITH q AS (SELECT * FROM a) INSERT INTO t SELECT * FROM q ON CONFLICT (id) DO UPDATE SET x = (SELECT x FROM q)`, class: ClassWrite, guard: GuardWrite, writes: "t", reads: "a"},
		{name: "capitals with quotes and without", dialects: in(pg), text: `WITH Q AS (SELECT * FROM a), "R" AS (SELECT * FROM b) SELECT * FROM "q", q, "R", "Q", r`, class: ClassRead, reads: "a b q r"},
		{name: "capitals in SQLite", dialects: in(lt), text: `WITH Q AS (SELECT * FROM a) SELECT * FROM "q", [Q]`, class: ClassRead, reads: "a"},
	})
}

func TestADeleteOfSeveralTablesWritesItsTargetsAlone(t *testing.T) {
	for _, c := range []struct{ text, writes, reads string }{
		{`DELETE a FROM a JOIN b ON a.x = b.x`, "a", "b"},
		{`DELETE p, q FROM a AS p, b q, c WHERE p.x IN (SELECT x FROM d)`, "a b", "c d"},
		{`DELETE FROM p USING a p JOIN b USING (id)`, "a", "b"},
		{`DELETE s.a.*, b FROM s.a, s2.b, c`, "a b", "c"},
		{`DELETE p FROM (a AS p JOIN b ON p.x = b.x) LEFT JOIN c ON c.x = b.x`, "a", "b c"},
		{"DELETE `A` FROM t a, u", "t", "u"},
		{`DELETE nowhere FROM a, b`, "a b nowhere", ""}, // an error, as far as we know
		{`DELETE FROM a WHERE x IN (SELECT x FROM b)`, "a", "b"},
		{`DELETE a FROM (SELECT * FROM c) q JOIN a ON q.x = a.x`, "a", "c"},
		{`WITH q AS (SELECT * FROM c) DELETE FROM a WHERE x IN (SELECT x FROM q)`, "a", "c"},
	} {
		s := Analyze(c.text, MySQL)
		if !slices.Equal(s.Writes, words(c.writes)) || !slices.Equal(s.Reads, words(c.reads)) {
			t.Errorf("%s: writes %v reads %v, want %v and %v", c.text, s.Writes, s.Reads, words(c.writes), words(c.reads))
		}
	}
	// With more targets than are looked for, all that is listed counts as written.
	many := "DELETE t1"
	for range 40 {
		many += ", t1"
	}
	if s := Analyze(many+" FROM t1 JOIN b ON 1", MySQL); !slices.Equal(s.Writes, []string{"b", "t1"}) {
		t.Errorf("writes %v", s.Writes)
	}
}

func TestDDLOfOtherKindsThatHoldsTheWordTableInvalidatesEverything(t *testing.T) {
	for text, all := range map[string]bool{
		`CREATE RULE r AS ON SELECT TO v DO INSTEAD TABLE x`: true, `ALTER PUBLICATION p ADD TABLE t`: true,
		`ALTER TABLE t DROP COLUMN a CASCADE`: true, `ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (1)`: true,
		`ALTER TABLE t SPLIT PARTITION p INTO (PARTITION q DEFAULT)`: true, `ALTER TABLE t MERGE PARTITIONS (p, q) INTO r`: true,
		`ALTER TABLE t ADD COLUMN a int`: false, `CREATE UNIQUE INDEX i ON t (a)`: false, `CREATE OR REPLACE VIEW t AS SELECT 1`: false,
		"CREATE ALGORITHM = MERGE DEFINER = root@localhost SQL SECURITY INVOKER VIEW t AS SELECT 1": false, `CREATE FOREIGN TABLE t (a int) SERVER s`: false,
		`ALTER ONLINE TABLE t ADD a INT`: false, `DROP FOREIGN TABLE t`: false, `CREATE FULLTEXT INDEX i ON t (a)`: false, `REPAIR TABLE t`: true,
	} {
		for _, d := range []Dialect{un, pg, my} {
			if s := Analyze(text, d); s.AllTables != all || !all && !slices.Contains(s.Writes, "t") {
				t.Errorf("%v: %s: all %v, writes %v", d, text, s.AllTables, s.Writes)
			}
		}
	}
	if s := Analyze(`RENAME TABLE IF EXISTS a TO b`, MySQL); !slices.Equal(s.Writes, []string{"a", "b"}) {
		t.Errorf("writes %v", s.Writes)
	}
}

func TestWhatMySQLCommitsForCommits(t *testing.T) {
	for text, want := range map[string]bool{
		`TRUNCATE t`: true, `CREATE TABLE t (a int)`: true, `RENAME TABLE a TO b`: true, `LOCK TABLES t WRITE`: true, `UNLOCK TABLES`: true,
		`ANALYZE TABLE t`: true, `OPTIMIZE TABLE t`: true, `CHECK TABLE t`: true, `REPAIR TABLE t`: true, `GRANT SELECT ON t TO a`: true,
		`FLUSH TABLES`: true, `CALL p()`: true, `SET PASSWORD = 'x'`: true, `LOAD DATA INFILE 'x' INTO TABLE t`: true, `BEGIN NOT ATOMIC DELETE FROM t; END`: true,
		`SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE t ADD b int`: true, `LOAD INDEX INTO CACHE t`: true,
		`INSERT INTO t VALUES (1)`: false, `SELECT 1 FROM t`: false, `SELECT f(1)`: false, `SET @a = 1`: false, `SHOW TABLES`: false, `USE d`: false, `DELETE FROM t`: false,
	} {
		for _, d := range []Dialect{un, my} {
			if s := Analyze(text, d); s.Commits != want {
				t.Errorf("%v: %s: commits %v", d, text, s.Commits)
			}
		}
		unknown := strings.HasPrefix(text, "CALL") || strings.HasPrefix(text, "FLUSH")
		if s := Analyze(text, pg); s.Commits && !unknown && !strings.HasPrefix(text, "BEGIN NOT") {
			t.Errorf("PostgreSQL: %s commits", text)
		}
	}
}

// In PostgreSQL a string that goes on behind a line end goes on as it began: with escapes, if it did with an E. To take its
// first quote that is escaped for its end swallows the statement behind it.
func TestAWriteBehindAnEscapeStringOfTwoLinesIsSeen(t *testing.T) {
	const text = "INSERT INTO log SELECT E'it' -- of two\n '\\''; DELETE FROM t; SELECT E'b'\n'\\''"
	for _, d := range []Dialect{un, pg} {
		if s := Analyze(text, d); !slices.Equal(s.Writes, []string{"log", "t"}) || d == pg && s.AllTables {
			t.Errorf("%v: writes %q, all %v", d, s.Writes, s.AllTables)
		}
	}
	// One that begins plainly goes on plainly, and on one line, or behind a block comment, the server goes on with neither.
	for _, text := range []string{"SELECT 'a'\n'\\'; DELETE FROM t; SELECT 'b'", "SELECT E'a' /*\n*/ '\\'; DELETE FROM t; SELECT 'b'", "SELECT E'a' '\\'; DELETE FROM t; SELECT 'b'"} {
		if s := Analyze(text, pg); !slices.Equal(s.Writes, []string{"t"}) {
			t.Errorf("%q: writes %q", text, s.Writes)
		}
	}
}

func TestASelectThatOnlyCallsAFunctionNobodyKnowsMayWriteAnything(t *testing.T) {
	for _, d := range dialects {
		for _, text := range []string{`SELECT create_order(7)`, `SELECT app.create_order(lower('A'))`, `VALUES (create_order(7))`, `SELECT * FROM (SELECT create_order(7)) x`} {
			if s := Analyze(text, d); !s.AllTables || !s.Calls || s.Guard == GuardNone || s.Commits {
				t.Errorf("%v: %s: %+v", d, text, s)
			}
		}
		for _, text := range []string{`SELECT full_name(id) FROM t`, `SELECT lower('A')`, `SELECT 1`} {
			if s := Analyze(text, d); s.AllTables || s.Calls {
				t.Errorf("%v: %s: %+v", d, text, s)
			}
		}
		for _, text := range []string{`SELECT dblink_exec('x', 'DELETE FROM t')`, `SELECT * FROM dblink('x', 'DELETE FROM t RETURNING a') AS x (a int)`, `CALL p()`} {
			if s := Analyze(text, d); !s.AllTables || s.Calls {
				t.Errorf("%v: %s: all %v, calls %v", d, text, s.AllTables, s.Calls)
			}
		}
	}
}

// PostgreSQL cuts names at 63 bytes: who writes to the short one writes what the long one reads.
func TestNamesThatPostgresCutsAreOneTable(t *testing.T) {
	long := strings.Repeat("é", 31) + "x"            // 63 bytes
	for _, more := range []string{"y", "é", "xyz"} { // which the server drops
		if got := Analyze("SELECT * FROM "+long+more, pg).Reads; !slices.Equal(got, []string{long}) {
			t.Errorf("%q", got)
		}
	}
	if got := TableTag(strings.Repeat("a", 62) + "é"); got != strings.Repeat("a", 62) { // no half letter
		t.Errorf("%q", got)
	}
}

// An oracle without a server: what stands between two tokens changes nothing.
func FuzzGapsChangeNothing(f *testing.F) {
	for i, s := range seeds {
		f.Add(s, uint8(i), uint64(i))
	}
	for _, r := range []string{
		"DELETE p, q FROM a AS p, b q WHERE p.x IN (SELECT x FROM d)", "SELECT * FROM a JOIN b USING (id), c WHERE x IN t AND y = 'z' FOR UPDATE OF a",
		"WITH RECURSIVE a (x) AS (SELECT 1), b AS MATERIALIZED (TABLE t) INSERT INTO c SELECT * FROM a ON CONFLICT DO UPDATE SET x = 1 RETURNING *",
		"CREATE OR REPLACE VIEW v AS SELECT 1; BEGIN; TRUNCATE a, b; COMMIT", "SELECT f(x), now() FROM s.t TABLESAMPLE system (1) LIMIT 1",
	} {
		for d := range dialects {
			f.Add(r, uint8(d), uint64(d)*31)
		}
	}
	f.Fuzz(func(t *testing.T, text string, b uint8, seed uint64) {
		d := Dialect(b % 4)
		want := Analyze(text, d)
		cuts := Cuts(text, d)
		if want.Guard == GuardText || cuts == nil {
			return // what is not understood may mean something else with a gap in it
		}
		r := rand.New(rand.NewPCG(seed, 1))
		var spread strings.Builder
		last := 0
		for _, cut := range cuts {
			spread.WriteString(text[last:cut])
			spread.WriteString([]string{" ", "\n", "\t", " /* FROM x, 'y' */ ", " -- JOIN z\n", "\r\n"}[r.IntN(6)])
			last = cut
		}
		spread.WriteString(text[last:])
		got := Analyze(spread.String(), d)
		if got.Class != want.Class || got.Guard != want.Guard || got.Tx != want.Tx || got.Taints != want.Taints || got.AllTables != want.AllTables ||
			got.Calls != want.Calls || got.Commits != want.Commits || got.Time != want.Time || got.Random != want.Random ||
			!slices.Equal(got.Reads, want.Reads) || !slices.Equal(got.Writes, want.Writes) {
			t.Fatalf("%v: %q: %+v\nand with gaps %q: %+v", d, text, want, spread.String(), got)
		}
	})
}

// What opens something, or looks as if it did, takes steps in proportion.
func TestOpeningsTakeStepsInProportion(t *testing.T) {
	const most = 100 // steps a byte
	for _, unit := range []string{"$", "(", "'", "\"", "/*", "--"} {
		for _, d := range dialects {
			const size = 1 << 20
			if n := Steps(strings.Repeat(unit, size/len(unit)), d); n > most*size {
				t.Errorf("%v: a megabyte of %q: %d steps", d, unit, n)
			}
		}
	}
	for _, unit := range []string{
		"`", "[", "--\n", "#", "\\'", "$a$", "/*!", "*/", "@", "{", "DELETE a,", "a IN b ", "FROM a,", "DELETE a FROM a,", "USING a,",
		"WITH a AS (", "merge (", "VALUES (", "IGNORE ", "a.", "1a",
	} {
		for _, d := range dialects {
			for _, prefix := range []string{"", "DELETE t1, t2, t3 FROM ", "WITH x AS (SELECT 1), ", "UPDATE "} {
				const size = 1 << 15
				if n := Steps(prefix+strings.Repeat(unit, size/len(unit)), d); n > most*size {
					t.Errorf("%v: %q after %q: %d steps", d, unit, prefix, n)
				}
			}
		}
	}
}
