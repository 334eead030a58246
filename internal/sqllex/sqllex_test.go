package sqllex_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/sqlherd/sqlherd/internal/sqllex"
)

const (
	un = Unknown
	pg = PostgreSQL
	my = MySQL
	lt = SQLite
)

var dialects = []Dialect{un, pg, my, lt}

// in names the dialects a row holds for.
func in(d ...Dialect) []Dialect { return d }

func words(s string) []string { return strings.Fields(s) }

func includes(set, sub []string) bool {
	for _, s := range sub {
		if !slices.Contains(set, s) {
			return false
		}
	}
	return true
}

// A row says what is expected of a text; exact tables unless more is set.
type row struct {
	name     string
	dialects []Dialect
	text     string
	class    Class
	guard    Guard
	flags    string // of: time random taints all; "-" for none of them is the default
	tx       TxEffect
	reads    string
	writes   string
	tables   []string // instead of reads, where a name has a space
	more     bool     // other tables may be named as well: a superset is right
}

func (r row) check(t *testing.T, d Dialect) {
	t.Helper()
	s := Analyze(r.text, d)
	if s.Class != r.class {
		t.Errorf("%v: class %v, want %v", d, s.Class, r.class)
	}
	if s.Guard != r.guard {
		t.Errorf("%v: guard %v (%q), want %v", d, s.Guard, s.Word, r.guard)
	}
	if s.Tx != r.tx {
		t.Errorf("%v: tx %v, want %v", d, s.Tx, r.tx)
	}
	for flag, got := range map[string]bool{"time": s.Time, "random": s.Random, "taints": s.Taints, "all": s.AllTables} {
		if want := slices.Contains(words(r.flags), flag); got != want {
			t.Errorf("%v: %s is %v, want %v", d, flag, got, want)
		}
	}
	reads, writes := words(r.reads), words(r.writes)
	if r.tables != nil {
		reads = r.tables
	}
	if r.more {
		if !includes(s.Reads, reads) || !includes(s.Writes, writes) {
			t.Errorf("%v: reads %v writes %v, want at least %v and %v", d, s.Reads, s.Writes, reads, writes)
		}
		return
	}
	if !slices.Equal(s.Reads, reads) || !slices.Equal(s.Writes, writes) {
		t.Errorf("%v: reads %v writes %v, want %v and %v", d, s.Reads, s.Writes, reads, writes)
	}
}

func run(t *testing.T, rows []row) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.name] {
			t.Errorf("two rows are named %q", r.name)
		}
		seen[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			ds := r.dialects
			if ds == nil {
				ds = dialects
			}
			for _, d := range ds {
				r.check(t, d)
			}
		})
	}
}

func TestPlainReadsAreCacheable(t *testing.T) {
	run(t, []row{
		{name: "select", text: `SELECT a, b FROM t WHERE id = 1`, class: ClassRead, reads: "t"},
		{name: "select without a table", text: `SELECT 1`, class: ClassRead},
		{name: "lower case with a trailing semicolon", text: "select 1 from t ; ", class: ClassRead, reads: "t"},
		{name: "values", text: `VALUES (1, 'a'), (2, 'b')`, class: ClassRead},
		{name: "table", text: `TABLE t`, class: ClassRead, reads: "t"},
		{name: "union of tables", text: `TABLE a UNION ALL TABLE b ORDER BY 1`, class: ClassRead, reads: "a b"},
		{name: "in parentheses", text: `((SELECT a FROM t) UNION (SELECT b FROM u)) ORDER BY 1`, class: ClassRead, reads: "t u"},
		{name: "with", text: `WITH x AS (SELECT 1 AS a) SELECT a FROM x`, class: ClassRead},
		{name: "with whose main query is in parentheses", text: `WITH x AS (SELECT a FROM t) (SELECT * FROM x)`, class: ClassRead, reads: "t"},
		{name: "apostrophe in a comment", text: "-- don't\nSELECT 1 FROM t /* it's \" */", class: ClassRead, reads: "t"},
		{name: "aggregate functions", text: `SELECT count(*), max(a), coalesce(sum(b), 0) FROM t GROUP BY c`, class: ClassRead, reads: "t"},
		{name: "pure functions without a table", text: `SELECT lower('A'), abs(-1), coalesce(NULL, 1), 1 IN (1, 2), CAST('1' AS numeric(10, 2))`, class: ClassRead},
		{name: "PostgreSQL parameters and casts", dialects: in(un, pg), text: `SELECT a::text FROM t WHERE id = $1 AND b = ANY($2::int8)`, class: ClassRead, reads: "t"},
		{name: "PostgreSQL arrays", dialects: in(un, pg), text: `SELECT a[1], ARRAY[1,2] FROM t WHERE id = ANY(ARRAY[3,4])`, class: ClassRead, reads: "t"},
		{name: "double-quoted names as an ORM writes them", text: `SELECT "users"."id" FROM "users" WHERE "users"."deleted_at" IS NULL`, class: ClassRead, reads: "users"},
		{name: "backticks as an ORM writes them", dialects: in(un, my, lt), text: "SELECT `user`.`now` FROM `user` WHERE `user`.`id` = ? LIMIT 1", class: ClassRead, reads: "user"},
		{name: "brackets", dialects: in(lt), text: "SELECT [for update] FROM [my table]", class: ClassRead, tables: []string{"my table"}},
		{name: "jsonb operators", dialects: in(pg), text: `SELECT '{"a":1}'::jsonb #>> '{a}', a ? 'b', a @> b, c @@ d, 5 # 3 FROM t`, class: ClassRead, reads: "t"},
		{name: "window functions", text: `SELECT rank() OVER (PARTITION BY a ORDER BY b), lag(c) OVER w FROM t WINDOW w AS (ORDER BY d), w2 AS (w)`, class: ClassRead, reads: "t"},
		{name: "unknown function over a table", text: `SELECT my_fn(a) FROM t`, class: ClassRead, reads: "t"},
		{name: "words of writes as columns", dialects: in(un, pg), text: `SELECT update, delete, t.insert, (delete), replace(a, 'x', 'y') FROM t`, class: ClassRead, reads: "t"},
		{name: "insert and replace as functions", text: `SELECT INSERT('abc', 1, 1, 'x'), REPLACE('a', 'b', 'c'), TRUNCATE(1.5, 1)`, class: ClassRead},
		{name: "function of a catalogue schema", dialects: in(un, pg), text: `SELECT pg_catalog.lower('A')`, class: ClassRead},
		{name: "label that is a keyword", dialects: in(un, pg), text: `SELECT a AS from, b AS table, c AS user, d AS materialized, e AS not FROM t, u`, class: ClassRead, reads: "t u"},
	})
}

// Forms of E10: a table that is missed is rows that stay stale.
func TestTablesReadAreFound(t *testing.T) {
	rows := []row{
		{name: "join using", text: `SELECT * FROM a JOIN b USING (id)`},
		{name: "comma", text: `SELECT * FROM a, b`},
		{name: "comma after a join with using", text: `SELECT * FROM a JOIN c USING (id, x), b`, more: true},
		{name: "comma after on with a function", text: `SELECT * FROM a JOIN c ON f(a.x, 1) = CASE WHEN c.y THEN 1 ELSE 2 END, b`, more: true},
		{name: "in sub-query", text: `SELECT * FROM a WHERE id IN (SELECT id FROM b)`},
		{name: "scalar sub-query", text: `SELECT (SELECT max(x) FROM b WHERE b.id = a.id) FROM a`},
		{name: "exists", text: `SELECT * FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.id = a.id)`},
		{name: "union all", text: `SELECT x FROM a UNION ALL SELECT x FROM b`},
		{name: "lateral sub-query", dialects: in(un, pg, my), text: `SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x) l`},
		{name: "derived table", text: `SELECT * FROM (SELECT x FROM b) AS d, a`},
		{name: "natural join", text: `SELECT * FROM a NATURAL LEFT JOIN b`},
		{name: "cross join", text: `SELECT * FROM a CROSS JOIN b`},
		{name: "parenthesised join", text: `SELECT * FROM (a JOIN b ON a.x = b.x)`},
		{name: "parenthesised join inside a join", text: `SELECT * FROM a LEFT JOIN ((b INNER JOIN c ON true)) ON a.x = b.x`, more: true},
		{name: "parenthesised list", text: `SELECT * FROM (a, b) WHERE 1`},
		{name: "only", dialects: in(un, pg), text: `SELECT * FROM a, ONLY b`},
		{name: "only in parentheses", dialects: in(un, pg), text: `SELECT * FROM ONLY (b), a`},
		{name: "tablesample", text: `SELECT * FROM b TABLESAMPLE system (10) REPEATABLE (1), a`},
		{name: "alias without as", text: `SELECT * FROM a x, b y`},
		{name: "alias that is a clause elsewhere", dialects: in(my, lt), text: `SELECT * FROM a offset, b`},
		{name: "column aliases", dialects: in(un, pg), text: `SELECT * FROM a AS x (c, d), b`},
		{name: "function and table", text: `SELECT * FROM generate_series(1, 3) AS g(x), a, b`},
		{name: "function with a column list", dialects: in(un, pg), text: `SELECT * FROM json_to_record('{}') AS x(i int, j text), a, b`},
		{name: "rows from", dialects: in(pg), text: `SELECT * FROM ROWS FROM (f(1), g(2)) r, a, b`},
		{name: "rows from, or a virtual table", dialects: in(un), text: `SELECT * FROM ROWS FROM (f(1), g(2)) r, a, b`, more: true},
		{name: "with ordinality", dialects: in(un, pg), text: `SELECT * FROM unnest($1::int8) WITH ORDINALITY AS u(v, n), a, b`},
		{name: "straight join", dialects: in(un, my), text: `SELECT STRAIGHT_JOIN a.x FROM a STRAIGHT_JOIN b`},
		{name: "index hints", dialects: in(my), text: `SELECT * FROM a USE INDEX FOR ORDER BY (i, j), b FORCE INDEX FOR JOIN (k)`},
		{name: "index hints anywhere", dialects: in(un), text: `SELECT * FROM a USE INDEX FOR ORDER BY (i, j), b FORCE INDEX FOR JOIN (k)`, more: true},
		{name: "partition", dialects: in(un, my), text: `SELECT * FROM a PARTITION (p0, p1), b`},
		{name: "odbc outer join", dialects: in(un, my), text: `SELECT * FROM { OJ a LEFT OUTER JOIN b ON a.x = b.x }`},
		{name: "temporal table", dialects: in(un, my), text: `SELECT * FROM a FOR SYSTEM_TIME AS OF '2024-01-01', b`},
		{name: "order by sub-query", text: `SELECT * FROM a ORDER BY (SELECT x FROM b LIMIT 1)`},
		{name: "having sub-query", text: `SELECT x FROM a GROUP BY x HAVING count(*) > (SELECT count(*) FROM b)`},
		{name: "select without a list", dialects: in(un, pg), text: `SELECT FROM a WHERE EXISTS (SELECT DISTINCT FROM b)`},
		{name: "extract is no clause", text: `SELECT extract(year FROM (SELECT max(d) FROM b)), substring(s FROM 2), trim(both FROM s) FROM a`},
		{name: "is distinct from is no clause", text: `SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.x WHERE a.y IS DISTINCT FROM z`},
		{name: "qualified", text: `SELECT * FROM s.a, d . s . "b"`},
		{name: "quoted", text: `SELECT * FROM "A" JOIN "B" ON true`},
		{name: "comments in between", text: "SELECT * FROM/* x */a,-- y\nb"},
		{name: "number before from", text: `SELECT 1.FROM a, b`},
		{name: "string for a name", dialects: in(lt), text: `SELECT * FROM 'a', [b]`},
		{name: "case of names", text: `SELECT * FROM A, S.B`},
		{name: "values list", text: `SELECT * FROM (VALUES (1), (2)) v(x), a, b`},
		{name: "cross apply", dialects: in(un), text: `SELECT * FROM a CROSS APPLY (SELECT * FROM b) x`},
		{name: "label that is as", dialects: in(un, pg), text: `SELECT t.as FROM a t, b`},
		{name: "json table", dialects: in(un, my), text: `SELECT * FROM a, JSON_TABLE(a.j, '$[*]' COLUMNS (x INT PATH '$.x')) jt, b`},
	}
	for i := range rows {
		rows[i].class, rows[i].reads = ClassRead, "a b"
	}
	run(t, rows)
}

func TestNamesOfTables(t *testing.T) {
	run(t, []row{
		{name: "begins with a digit", dialects: in(un, my), text: `SELECT * FROM 2024_sales JOIN db.5tables ON 1`, class: ClassRead, reads: "2024_sales 5tables"},
		{name: "begins with a dollar", dialects: in(un, my), text: `SELECT * FROM $t`, class: ClassRead, reads: "$t"},
		{name: "doubled quotes", text: `SELECT * FROM "a""b"`, class: ClassRead, reads: `a"b`},
		{name: "another script", text: `SELECT * FROM Straße, "ÉTÉ"`, class: ClassRead, reads: "straße été"},
		{name: "dual is nothing in MySQL", dialects: in(my), text: `SELECT 1 FROM DUAL`, class: ClassRead},
		{name: "keyword as name", dialects: in(my, lt), text: `SELECT * FROM user, offset`, class: ClassRead, reads: "offset user"},
	})
}

// E11.
func TestTableExpressionsHideTablesOnlyInScope(t *testing.T) {
	run(t, []row{
		{name: "name of a table expression", text: `WITH t AS (SELECT * FROM u) SELECT * FROM t`, class: ClassRead, reads: "u"},
		{name: "table of the same name inside", text: `WITH a AS (SELECT * FROM a) SELECT * FROM a`, class: ClassRead, reads: "a"},
		{name: "recursive", text: `WITH RECURSIVE t(n) AS (SELECT id FROM u UNION ALL SELECT n + 1 FROM t) SELECT * FROM t`, class: ClassRead, reads: "u"},
		{name: "two", text: `WITH a AS (SELECT * FROM x), b AS (SELECT * FROM a) SELECT * FROM a, b`, class: ClassRead, reads: "x"},
		{name: "nested", text: `WITH a AS (WITH b AS (SELECT * FROM x) SELECT * FROM b) SELECT * FROM a, b`, class: ClassRead, reads: "b x"},
		{name: "outside the scope", text: `SELECT * FROM (WITH t AS (SELECT * FROM u) SELECT * FROM t) s, t`, class: ClassRead, reads: "t u"},
		{name: "qualified is a table", text: `WITH t AS (SELECT 1) SELECT * FROM t, public.t`, class: ClassRead, reads: "t"},
		{name: "used before it is defined", text: `WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a`, class: ClassRead, reads: "b"},
		{name: "materialized", text: `WITH t AS MATERIALIZED (SELECT * FROM u), v AS NOT MATERIALIZED (SELECT * FROM t) SELECT * FROM v`, class: ClassRead, reads: "u"},
		{name: "named like a verb", dialects: in(un, pg), text: `WITH update AS (SELECT * FROM u), insert (a) AS (SELECT 1) SELECT * FROM update, insert`, class: ClassRead, reads: "u"},
		{name: "quoted apart", dialects: in(un, pg), text: `WITH "T" AS (SELECT * FROM u) SELECT * FROM T`, class: ClassRead, reads: "t u"},
		{name: "another case in MySQL", dialects: in(un, my), text: `WITH T AS (SELECT * FROM u) SELECT * FROM t`, class: ClassRead, reads: "t u"},
		{name: "another case in PostgreSQL", dialects: in(pg, lt), text: `WITH T AS (SELECT * FROM u) SELECT * FROM t`, class: ClassRead, reads: "u"},
		{name: "target of a write is a table", text: `WITH t AS (SELECT * FROM u) INSERT INTO t SELECT * FROM t`, class: ClassWrite, guard: GuardWrite, reads: "u", writes: "t"},
		{name: "search and cycle", dialects: in(un, pg), text: `WITH RECURSIVE t AS (SELECT * FROM u UNION ALL SELECT * FROM t) SEARCH DEPTH FIRST BY a, b SET o CYCLE a, b SET c USING p SELECT * FROM t`, class: ClassRead, reads: "u"},
	})
}

// E13, E14, E16, R1, R2.
func TestWritesAreWrites(t *testing.T) {
	w := func(name, text, writes, reads string, d ...Dialect) row {
		return row{name: name, dialects: d, text: text, class: ClassWrite, guard: GuardWrite, writes: writes, reads: reads}
	}
	all := func(r row) row { r.flags = "all"; return r }
	run(t, []row{
		w("insert", `INSERT INTO t (a, b) VALUES (1, 2)`, "t", ""),
		w("insert without a space", `INSERT INTO t(a) VALUES(1)`, "t", ""),
		w("insert with a line in front", "-- it's\n/* \" */ insert into s.T default values", "t", ""),
		w("insert select", `INSERT INTO t SELECT x FROM a JOIN b USING (id)`, "t", "a b"),
		w("insert with", `INSERT INTO t WITH c AS (SELECT * FROM a) SELECT * FROM c`, "t", "a"),
		w("insert table", `INSERT INTO t TABLE u`, "t", "u"),
		w("insert ignore", `INSERT LOW_PRIORITY IGNORE t SET a = 1`, "t", "", my),
		w("insert ignore anywhere", `INSERT LOW_PRIORITY IGNORE t SET a = 1`, "ignore low_priority t", "", un),
		w("insert ignore into", `INSERT IGNORE INTO t VALUES (1)`, "t", "", un, my),
		w("insert or replace", `INSERT OR REPLACE INTO t VALUES (1)`, "t", ""),
		w("insert on conflict", `INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a, b = (SELECT 1 FROM u)`, "t", "u"),
		w("insert on duplicate key", `INSERT INTO t SELECT x FROM u ON DUPLICATE KEY UPDATE a = 1, b = 2`, "t", "u"),
		w("insert returning", `INSERT INTO t VALUES (1) RETURNING id, name`, "t", ""),
		w("replace", `REPLACE INTO t VALUES (1)`, "t", ""),
		w("replace delayed", `REPLACE DELAYED t VALUES (1)`, "t", "", my),
		w("update", `UPDATE t SET a = 1, b = 2 WHERE c = 3`, "t", ""),
		w("update only", `UPDATE ONLY s.t AS x SET a = 1`, "t", "", un, pg),
		w("update with a sub-query", `UPDATE t SET a = (SELECT x FROM u) RETURNING a, b`, "t", "u"),
		w("update from", `UPDATE t SET a = 1 FROM u, v WHERE u.x = t.x`, "t", "u v", pg, my, lt),
		w("update from anywhere", `UPDATE t SET a = 1 FROM u, v WHERE u.x = t.x`, "t u v", "", un),
		w("update or fail", `UPDATE OR FAIL t SET a = 1`, "t", ""),
		w("update of several tables", `UPDATE a, b JOIN c ON b.x = c.x, (SELECT * FROM d) e SET a.y = 1, b.z = 2`, "a b c", "d"),
		w("delete", `DELETE FROM t`, "t", ""),
		w("delete returning", `DELETE FROM t WHERE a = 1 RETURNING id, name`, "t", ""),
		w("delete using", `DELETE FROM t USING u, v WHERE t.x = u.x`, "t", "u v", pg, lt),
		w("delete using anywhere", `DELETE FROM t USING u, v WHERE t.x = u.x`, "t u v", "", un, my),
		w("delete from several tables", `DELETE t1, t2.* FROM t1 JOIN t2 ON t1.x = t2.x WHERE t1.y IN (SELECT y FROM t3)`, "t1 t2", "t3"),
		w("delete through an alias", `DELETE x FROM t AS x`, "t x", "", un, pg, lt),
		w("delete through an alias in MySQL", `DELETE x FROM t AS x`, "t", "", my),
		w("delete quick", `DELETE QUICK IGNORE FROM t`, "t", "", my),
		w("merge", `MERGE INTO t USING (SELECT * FROM s) x ON t.a = x.a WHEN MATCHED THEN UPDATE SET b = 1 WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (a) VALUES (1)`, "t", "s"),
		w("merge using a table", `MERGE INTO ONLY t x USING s ON true WHEN MATCHED THEN DO NOTHING`, "t", "s", un, pg),
		w("truncate", `TRUNCATE t`, "t", ""),
		all(w("truncate cascade reaches further", `TRUNCATE TABLE ONLY a, s.b CASCADE`, "a b", "", un, pg)),
		w("truncate several", `TRUNCATE TABLE a, b RESTART IDENTITY`, "a b", ""),
		w("copy from", `COPY s.t (a, b) FROM STDIN WITH (FORMAT csv)`, "t", ""),
		w("copy a query that writes", `COPY (DELETE FROM t RETURNING *) TO STDOUT`, "t", ""),
		w("load data", `LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE t FIELDS TERMINATED BY ','`, "t", ""),
		w("refresh", `REFRESH MATERIALIZED VIEW CONCURRENTLY m WITH DATA`, "m", ""),
		w("with update", `WITH x AS (UPDATE t SET a = a + 1 RETURNING a) SELECT a FROM x`, "t", ""),
		w("with insert after a read", `WITH r AS (SELECT * FROM u), x AS MATERIALIZED (INSERT INTO t SELECT * FROM r RETURNING *) SELECT * FROM x`, "t", "u"),
		w("with merge", `WITH x AS (MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE RETURNING *) TABLE x`, "t", "s"),
		w("with and then insert", `WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x`, "t", ""),
		w("with and then delete", `WITH x AS (SELECT * FROM u) DELETE FROM t WHERE a IN (SELECT a FROM x)`, "t", "u"),
		w("nested with", `WITH x AS (WITH y AS (SELECT 1) DELETE FROM t RETURNING *) SELECT * FROM x`, "t", ""),
		w("select into", `SELECT a, b INTO n FROM t`, "n", "t"),
		w("select into table", `SELECT a INTO UNLOGGED TABLE s.n FROM t`, "n", "t"),
		w("select into outfile", `SELECT a FROM t INTO OUTFILE '/tmp/x'`, "", "t"),
		w("explain analyze delete", `EXPLAIN ANALYZE DELETE FROM t`, "t", ""),
		w("explain with options", `EXPLAIN (COSTS off, ANALYZE) INSERT INTO t SELECT * FROM u`, "t", "u"),
		w("explain twice", `EXPLAIN ANALYZE EXPLAIN ANALYZE UPDATE t SET a = 1`, "t", ""),
		w("analyze a write as MariaDB does", `ANALYZE FORMAT=JSON UPDATE t SET a = 1`, "t", "", un, my),
		w("sub-queries of an update", `UPDATE t SET a = 1 WHERE b IN (SELECT c FROM u WHERE d > (SELECT 1))`, "t", "u"),
	})
}

func TestObstacles(t *testing.T) {
	run(t, []row{
		{name: "explain", text: `EXPLAIN SELECT * FROM t`, class: ClassRead, guard: GuardSession},
		{name: "explain of a write", text: `EXPLAIN (COSTS off) DELETE FROM t`, class: ClassRead, guard: GuardSession},
		{name: "explain analyze of a read", text: `EXPLAIN ANALYZE SELECT * FROM t`, class: ClassRead, guard: GuardSession, reads: "t"},
		{name: "explain query plan", text: `EXPLAIN QUERY PLAN SELECT * FROM t`, class: ClassRead, guard: GuardSession},
		{name: "explain pragma", text: `EXPLAIN PRAGMA foreign_keys = on`, class: ClassRead, guard: GuardSession, flags: "taints"},
		{name: "describe", text: `DESC t`, class: ClassRead, guard: GuardSession},
		{name: "show", text: `SHOW search_path`, class: ClassRead, guard: GuardSession},
		{name: "copy to reads", text: `COPY t (a) TO STDOUT`, class: ClassRead, guard: GuardWrite, reads: "t"},
		{name: "copy a query", text: `COPY (SELECT * FROM t) TO STDOUT`, class: ClassRead, guard: GuardWrite, reads: "t"},
		{name: "select into a variable", dialects: in(un, my), text: `SELECT a INTO @x FROM t`, class: ClassWrite, guard: GuardWrite, flags: "taints", reads: "t"},
		{name: "select into temp", text: `SELECT a INTO TEMP n FROM t`, class: ClassWrite, guard: GuardWrite, flags: "taints", writes: "n", reads: "t"},
		{name: "select into local temporary table", text: `SELECT a INTO LOCAL TEMPORARY TABLE n FROM t`, class: ClassWrite, guard: GuardWrite, flags: "taints", writes: "n", reads: "t"},
		{name: "with and nothing known", text: `WITH x AS (SELECT 1) FROB x`, class: ClassUnknown, guard: GuardWrite, flags: "all taints"},

		{name: "two statements", text: `SELECT 1; DELETE FROM t`, class: ClassWrite, guard: GuardMulti, writes: "t"},
		{name: "two reads", text: `SELECT a FROM t; SELECT b FROM u`, class: ClassRead, guard: GuardMulti, reads: "t u"},
		{name: "unclosed parenthesis before the second", text: `SELECT (1; DELETE FROM t`, class: ClassWrite, guard: GuardText, writes: "t"},
		{name: "semicolon in a string", text: `SELECT '; DELETE FROM t'`, class: ClassRead},
		{name: "comment after the semicolon", text: "SELECT 1; -- done", class: ClassRead},
		{name: "taint in the second", text: `SELECT 1; SET search_path TO t2`, class: ClassSession, guard: GuardMulti, flags: "taints"},

		{name: "for update", text: `SELECT * FROM t FOR UPDATE`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "for no key update", text: "select * from t for/**/no -- x\nkey  update of t nowait", class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "for share", text: `SELECT * FROM t FOR SHARE SKIP LOCKED`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "for key share", text: `(SELECT * FROM t FOR KEY SHARE)`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock in share mode", text: `SELECT * FROM t LOCK /* x */ IN SHARE MODE`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock in a sub-query", text: `SELECT * FROM (SELECT * FROM t FOR UPDATE) x`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock in a table expression", text: `WITH x AS (SELECT * FROM t FOR UPDATE) SELECT * FROM x`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock of a table statement", text: `TABLE t FOR UPDATE`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock behind a number", text: `SELECT * FROM t LIMIT 1FOR UPDATE`, class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock hidden by a MySQL dash", dialects: in(my), text: "SELECT 5--1\n FROM t FOR UPDATE", class: ClassRead, guard: GuardLocking, reads: "t"},
		{name: "lock inside a comment", dialects: in(pg, lt), text: `SELECT 5--1 FOR UPDATE`, class: ClassRead},
		{name: "substring for", text: `SELECT substring(a FROM 1 FOR 2) FROM t`, class: ClassRead, reads: "t"},

		{name: "system variable", dialects: in(un, my), text: `SELECT @@version`, class: ClassRead, guard: GuardSession},
		{name: "user variable", dialects: in(un, my), text: `SELECT * FROM t WHERE a = @x`, class: ClassRead, guard: GuardSession, reads: "t"},
		{name: "quoted user variable", dialects: in(un, my), text: "SELECT @`x`, @'y'", class: ClassRead, guard: GuardSession},
		{name: "assignment", dialects: in(un, my), text: `SELECT @x := a FROM t`, class: ClassRead, guard: GuardSession, flags: "taints", reads: "t"},
		{name: "named argument", dialects: in(un, pg), text: `SELECT make_interval(days := 10)`, class: ClassRead},
		{name: "at sign in PostgreSQL", dialects: in(pg), text: `SELECT @ -5, @x FROM t WHERE a @> b AND c <@ d`, class: ClassRead, reads: "t"},
		{name: "at parameter in SQLite", dialects: in(lt), text: `SELECT * FROM t WHERE a = @x AND b = :y AND c = $z`, class: ClassRead, reads: "t"},
		{name: "temporary schema", dialects: in(un, pg), text: `SELECT * FROM pg_temp.t`, class: ClassRead, guard: GuardSession, reads: "t"},
		{name: "function of a temporary schema", text: `SELECT pg_temp.f(a) FROM t`, class: ClassRead, guard: GuardSession, reads: "t"},
		{name: "temporary schema in SQLite", dialects: in(un, lt), text: `SELECT * FROM temp.t`, class: ClassRead, guard: GuardSession, reads: "t"},

		{name: "information schema", text: `SELECT * FROM INFORMATION_SCHEMA.tables`, class: ClassRead, guard: GuardCatalog, reads: "tables"},
		{name: "pg_catalog", text: `SELECT * FROM "pg_catalog" . pg_class`, class: ClassRead, guard: GuardCatalog, reads: "pg_class"},
		{name: "pg_stat", dialects: in(un, pg), text: `SELECT * FROM t, pg_stat_activity`, class: ClassRead, guard: GuardCatalog, reads: "pg_stat_activity t"},
		{name: "mysql schema", dialects: in(un, my), text: "SELECT * FROM `mysql`.`user`", class: ClassRead, guard: GuardCatalog, reads: "user"},
		{name: "performance schema", text: `SELECT * FROM performance_schema.threads`, class: ClassRead, guard: GuardCatalog, reads: "threads"},
		{name: "sys schema", text: `SELECT * FROM sys.version`, class: ClassRead, guard: GuardCatalog, reads: "version"},
		{name: "sqlite_master", text: `SELECT * FROM sqlite_master`, class: ClassRead, guard: GuardCatalog, reads: "sqlite_master"},
		{name: "sqlite_temp_schema", text: `SELECT * FROM main.sqlite_temp_schema`, class: ClassRead, guard: GuardCatalog, reads: "sqlite_temp_schema"},
		{name: "pragma function", text: `SELECT * FROM pragma_table_info('t')`, class: ClassRead, guard: GuardCatalog},
		{name: "pragma function without arguments", text: `SELECT * FROM pragma_database_list`, class: ClassRead, guard: GuardCatalog, reads: "pragma_database_list"},
		{name: "catalogue in a sub-query", text: `SELECT * FROM t WHERE x IN (SELECT y FROM information_schema.columns)`, class: ClassRead, guard: GuardCatalog, reads: "columns t"},
	})
}

// E28, R4.
func TestVolatileCallsAreRefused(t *testing.T) {
	for _, call := range []string{
		`nextval('s')`, `currval('s')`, `lastval()`, `setval('s', 1)`, `LAST_INSERT_ID()`, `ROW_COUNT()`, `FOUND_ROWS()`, `changes()`,
		`total_changes()`, `last_insert_rowid()`, `NEXT VALUE FOR s`, `get_lock('a', 1)`, `RELEASE_LOCK('a')`, `release_all_locks()`,
		`is_free_lock('a')`, `is_used_lock('a')`, `pg_advisory_lock(1)`, `pg_try_advisory_xact_lock(1)`, `pg_advisory_unlock_all()`,
		`current_user`, `CURRENT_USER()`, `session_user()`, `user()`, `system_user()`, `current_role`, `database()`, `schema()`,
		`current_schema()`, `current_schemas(true)`, `current_database()`, `connection_id()`, `pg_backend_pid()`, `inet_client_addr()`,
		`pg_my_temp_schema()`, `current_setting('a')`, `pg_sleep(1)`, `pg_sleep_for('1s')`, `sleep(1)`, `benchmark(1, 1)`,
		`txid_current()`, `pg_current_xact_id()`, `pg_export_snapshot()`, `pg_notify('a', 'b')`, `lo_import('x')`, `dblink('a', 'b')`,
		`pg_read_file('x')`, `load_file('x')`, `has_table_privilege('t', 'select')`, `pg_relation_size('t')`, `table_to_xml('t', true, true, '')`,
	} {
		for _, form := range []string{
			"SELECT $", "select 1 + $ from t", "SELECT * FROM t WHERE a = ($)", "WITH x AS (SELECT $) SELECT * FROM x",
			"SELECT /* now */ $ AS a", "SELECT * FROM (SELECT $) x",
		} {
			text := strings.Replace(form, "$", call, 1)
			for _, d := range dialects {
				s := Analyze(text, d)
				if s.Guard != GuardVolatile {
					t.Errorf("%v: %s: guard %v", d, text, s.Guard)
				}
				if s.Taints {
					t.Errorf("%v: %s taints", d, text)
				}
			}
		}
	}
	run(t, []row{
		{name: "with a schema", text: `SELECT pg_catalog.nextval('s') FROM t`, class: ClassRead, guard: GuardVolatile, reads: "t"},
		{name: "with spaces and comments", text: "SELECT pg_catalog . NextVal /* x */ -- y\n('s')", class: ClassRead, guard: GuardVolatile},
		{name: "quoted", text: `SELECT "pg_catalog"."nextval"('s')`, class: ClassRead, guard: GuardVolatile},
		{name: "in backticks", dialects: in(un, my, lt), text: "SELECT `last_insert_id`()", class: ClassRead, guard: GuardVolatile},
		{name: "user is a function in PostgreSQL", dialects: in(un, pg), text: `SELECT user FROM t`, class: ClassRead, guard: GuardVolatile, reads: "t"},
		{name: "user is a column elsewhere", dialects: in(my, lt), text: `SELECT user, session_user FROM t`, class: ClassRead, reads: "t"},
		{name: "session_user in PostgreSQL", dialects: in(un, pg), text: `SELECT session_user, current_schema, current_catalog`, class: ClassRead, guard: GuardVolatile},
		{name: "as a function in from", dialects: in(un, pg), text: `SELECT * FROM current_user`, class: ClassRead, guard: GuardVolatile, reads: "current_user"},
		{name: "set_config also taints", text: `SELECT set_config('search_path', 't1', false)`, class: ClassRead, guard: GuardVolatile, flags: "taints"},
		{name: "set_config over a table", text: `SELECT pg_catalog."set_config"('a', b, false) FROM t`, class: ClassRead, guard: GuardVolatile, flags: "taints", reads: "t"},
		{name: "setseed", text: `SELECT setseed(0.5)`, class: ClassRead, guard: GuardVolatile, flags: "taints"},
		{name: "calc found rows", text: `SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1`, class: ClassRead, guard: GuardVolatile, reads: "t"},
		{name: "names alone are columns", text: `SELECT nextval, t.sleep, t.current_user, database, "current_user", 'user()' FROM t`, class: ClassRead, reads: "t"},
		{name: "an alias", text: `SELECT a AS current_user, b AS now FROM t`, class: ClassRead, reads: "t"},
	})
}

func TestTimeAndChance(t *testing.T) {
	for _, c := range []struct {
		call  string
		flags string
		d     []Dialect
	}{
		{`now()`, "time", nil}, {`NOW ( )`, "time", nil}, {`pg_catalog.now()`, "time", nil}, {`"now"()`, "time", nil},
		{`CURRENT_TIMESTAMP`, "time", nil}, {`current_timestamp(3)`, "time", nil}, {`CURRENT_DATE`, "time", nil}, {`current_time`, "time", nil},
		{`localtime`, "time", nil}, {`LOCALTIMESTAMP`, "time", nil}, {`statement_timestamp()`, "time", nil}, {`clock_timestamp()`, "time", nil},
		{`transaction_timestamp()`, "time", nil}, {`timeofday()`, "time", nil}, {`sysdate()`, "time", nil}, {`curdate()`, "time", nil},
		{`curtime()`, "time", nil}, {`utc_date`, "time", nil}, {`UTC_TIMESTAMP()`, "time", nil}, {`unix_timestamp()`, "time", nil},
		{`unix_timestamp(a)`, "", nil}, {`date('now')`, "time", nil}, {`datetime( 'NOW', 'localtime')`, "time", nil}, {`julianday()`, "time", nil},
		{`strftime('%s', 'now')`, "time", nil}, {`strftime('%s')`, "time", nil}, {`strftime('%s', a)`, "", nil}, {`date(a)`, "", nil},
		{`unixepoch("now")`, "time", nil}, {`datetime(coalesce(a, 'now'))`, "time", nil}, {`age(a)`, "time", nil}, {`age(a, b)`, "", nil},
		{`'now'::timestamptz`, "time", in(un, pg)}, {`date 'today'`, "time", in(un, pg)}, {`CAST('yesterday' AS date)`, "time", in(un, pg)},
		{`a >= 'today'`, "time", in(un, pg)}, {`timestamp with time zone 'now'`, "time", in(un, pg)},
		{`'now'`, "", nil}, {`'now()'`, "", nil}, {`now`, "", nil}, {`t.now`, "", nil}, {`"now"`, "", nil}, {`a AS current_date`, "", nil},
		{`"current_timestamp"`, "", nil}, {`1 /* now() */`, "", nil},
		{`random()`, "random", nil}, {`RAND(3)`, "random", nil}, {`gen_random_uuid()`, "random", nil}, {`uuid()`, "random", nil},
		{`public.uuid_generate_v4()`, "random", nil}, {`uuid_short()`, "random", nil}, {`hex(randomblob(16))`, "random", nil}, {`random`, "", nil},
	} {
		run(t, []row{{name: c.call, dialects: c.d, text: `SELECT ` + c.call + ` FROM t`, class: ClassRead, flags: c.flags, reads: "t"}})
	}
	run(t, []row{
		{name: "time does not taint", text: `SELECT now()`, class: ClassRead, flags: "time"},
		{name: "sample", text: `SELECT * FROM t TABLESAMPLE bernoulli (10)`, class: ClassRead, flags: "random", reads: "t"},
		{name: "repeatable sample", text: `SELECT * FROM t TABLESAMPLE bernoulli (10) REPEATABLE (1)`, class: ClassRead, reads: "t"},
		{name: "one of two samples", text: `SELECT repeatable FROM t TABLESAMPLE system (1) REPEATABLE (1), u TABLESAMPLE system (1)`, class: ClassRead, flags: "random", reads: "t u"},
		{name: "order by random", text: `SELECT * FROM t ORDER BY random() LIMIT 1`, class: ClassRead, flags: "random", reads: "t"},
	})
}

// C02 and section 8 of the design.
var tainting = []string{
	`SET search_path TO t1`, `SET ROLE bob`, `SET SESSION AUTHORIZATION bob`, `SET NAMES utf8`, `SET @x = 1`,
	`SET autocommit = 0`, `RESET ALL`, `RESET ROLE`, `DISCARD ALL`, `USE db2`, `PRAGMA foreign_keys = on`,
	`LISTEN c`, `UNLISTEN *`, `CREATE TEMP TABLE t (a int)`, `CREATE TEMPORARY TABLE t AS SELECT 1`, `CREATE OR REPLACE TEMP VIEW v AS SELECT 1`,
	`CREATE LOCAL TEMPORARY SEQUENCE s`, `CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END`, `CREATE TABLE pg_temp.t (a int)`,
	`ATTACH 'x' AS y`, `DETACH y`, `LOCK TABLE t`, `LOCK TABLES t WRITE`, `UNLOCK TABLES`, `DECLARE c CURSOR FOR SELECT 1`, `FETCH 1 FROM c`,
	`CLOSE c`, `PREPARE p AS SELECT 1`, `PREPARE TRANSACTION 'x'`, `DEALLOCATE p`, `LOAD 'lib'`, `HANDLER t OPEN`, `XA START 'x'`,
	`SELECT set_config('a', 'b', false)`, `SELECT setseed(1)`, `SELECT my_set_tenant(7)`, `SELECT s.my_set_tenant(7)`, `SELECT "my_set_tenant"(7)`,
	`SELECT set_tenant(id) FROM tenants WHERE key = $1`, `SELECT 1 FROM p WHERE app.use_schema(p.id) = 1`, `UPDATE p SET a = 1 WHERE "switch_role"(1) = 1`,
	`INSERT INTO zz SELECT become_user(1)`, `SELECT x.* FROM p, LATERAL set_tenant(p.id) x`,
	`SELECT 1 FROM dual WHERE my_fn(1)`, `SELECT app.lower('x')`, `WITH x AS (SELECT my_fn(1)) SELECT * FROM x`,
	`SELECT my_fn(extract(year FROM d))`, `VALUES (my_fn(1))`, `CALL p()`, `DO $$ x $$`, `EXECUTE p`, `FROB x`, `{call p()}`, `SELECT a INTO TEMP n FROM t`,
	`CREATE SEQUENCE pg_temp.s`, `CREATE DOMAIN "pg_temp".d AS text`, `CREATE TYPE pg_temp_3.x AS (a int)`, `CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'x'`,
	`CREATE UNLOGGED TABLE IF NOT EXISTS pg_temp.t (a int)`, `SELECT query_to_xml('x', true, true, '') FROM t`, `SELECT ts_rewrite('a', 'x') FROM t`, `SELECT word FROM ts_stat('x')`,
	`SELECT * FROM crosstab('x') AS t(a int)`, `SELECT t.a FROM connectby('t', 'a', 'b', 'c', 0) AS t(a int)`,
	`ALTER SESSION SET x = 1`, `BEGIN NOT ATOMIC SET @a = 1; END`, `SELECT 1; RESET ALL`, `BEGIN; SET ROLE bob; COMMIT`, `EXPLAIN ANALYZE EXECUTE p`,
}

func TestTaintingStatementsTaint(t *testing.T) {
	for _, text := range tainting {
		for _, d := range dialects {
			if s := Analyze(text, d); !s.Taints || s.Guard == GuardNone {
				t.Errorf("%v: %s: taints %v, guard %v", d, text, s.Taints, s.Guard)
			}
		}
	}
}

// In SQLite what is called in a FROM is a virtual table: a full-text index, say, which is written to like another.
func TestACallInFromIsATableToSQLiteAndAFunctionToTheOthers(t *testing.T) {
	for _, d := range dialects {
		s := Analyze(`SELECT * FROM search('x')`, d)
		if lite := d == lt; s.Taints == lite || s.AllTables == lite {
			t.Errorf("%v: taints %v, all %v", d, s.Taints, s.AllTables)
		}
		if reads := d == lt || d == un; slices.Equal(s.Reads, []string{"search"}) != reads {
			t.Errorf("%v: reads %v", d, s.Reads)
		}
	}
}

func TestWhatEndsWithTheTransactionTaintsOnlyWhereItDoesNot(t *testing.T) {
	for _, text := range []string{
		`SET LOCAL search_path = t1`, `set /* x */ local app.tenant TO 'a'`, `SET TRANSACTION READ ONLY`, `SET CONSTRAINTS ALL DEFERRED`,
		`SELECT set_config('app.tenant', $1, true)`, `SELECT pg_catalog.set_config('a', coalesce($1, 'x'), TRUE)`,
	} {
		if s := Analyze(text, PostgreSQL); s.Taints || s.Guard == GuardNone {
			t.Errorf("PostgreSQL: %s: taints %v, guard %v", text, s.Taints, s.Guard)
		}
		for _, d := range []Dialect{MySQL, SQLite, Unknown} {
			if s := Analyze(text, d); !s.Taints {
				t.Errorf("%v: %s does not taint", d, text)
			}
		}
	}
	for _, text := range []string{
		`SELECT set_config('a', 'b', false)`, `SELECT set_config('a', 'b', $1)`, `SELECT set_config('a', 'true', not true)`,
		`SELECT set_config('a', 'b', true), set_config('a', 'b', false)`, `SELECT set_config('a', 'b', true), setseed(1)`, `SET LOCALE = 'x'`, `SET SESSION a = 'local'`,
	} {
		if s := Analyze(text, PostgreSQL); !s.Taints {
			t.Errorf("PostgreSQL: %s does not taint", text)
		}
	}
}

func TestPlainStatementsDoNotTaint(t *testing.T) {
	for _, text := range []string{
		`SELECT 1`, `SELECT a FROM t`, `SELECT my_fn(a) FROM t`, `INSERT INTO t VALUES (my_fn(1))`, `UPDATE t SET a = 1`, `DELETE FROM t`,
		`EXPLAIN SELECT my_fn(1)`, `SHOW x`, `ANALYZE t`, `VACUUM`, `COMMENT ON TABLE t IS 'x'`, `GRANT SELECT ON t TO bob`, `CREATE TABLE t (a int)`,
		`CREATE INDEX i ON t (a)`, `DROP TABLE t`, `ALTER TABLE t ADD COLUMN a int`, `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT a`, `RELEASE a`,
		`BEGIN; UPDATE t SET a = 1; COMMIT`, ``, `;`, `-- ping`, `/* ping */`, `SELECT version()`, `SELECT pg_advisory_lock(1)`, `REINDEX TABLE t`,
		`SELECT * FROM generate_series(1, 2)`, `SELECT * FROM unnest($1::text) AS u(x)`, `CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END`,
		`NOTIFY c`, `SELECT * FROM (VALUES (1)) v(a)`, `WITH v(a) AS (SELECT 1) SELECT * FROM v`,
	} {
		for _, d := range dialects {
			if s := Analyze(text, d); s.Taints {
				t.Errorf("%v: %s taints (guard %v %q)", d, text, s.Guard, s.Word)
			}
		}
	}
}

// E20: what does not know its table invalidates everything, and so this must be known to write none.
func TestAStatementThatChangesNoRowsForgetsNothing(t *testing.T) {
	for _, c := range []struct {
		text string
		d    []Dialect
	}{
		{`SET x = 1`, dialects}, {`SAVEPOINT s`, dialects}, {`RELEASE SAVEPOINT s`, dialects}, {`ANALYZE`, in(pg, lt)}, {`ANALYZE t1`, in(pg, lt)},
		{`ANALYZE TABLE t1`, in(my)}, {`VACUUM`, in(pg)}, {`VACUUM ANALYZE t1`, in(pg)}, {`PRAGMA user_version`, in(lt)}, {`LISTEN c`, in(pg)},
	} {
		for _, d := range c.d {
			if s := Analyze(c.text, d); s.AllTables || len(s.Writes) != 0 {
				t.Errorf("%v: %s: all %v, writes %q", d, c.text, s.AllTables, s.Writes)
			}
		}
	}
	for text, want := range map[string]string{`UPDATE t1 SET a = 1`: "t1", `CREATE TEMP TABLE tmp (a int)`: "tmp", `INSERT INTO tmp VALUES (1)`: "tmp"} {
		for _, d := range dialects {
			if s := Analyze(text, d); s.AllTables || !slices.Equal(s.Writes, []string{want}) {
				t.Errorf("%v: %s: all %v, writes %q", d, text, s.AllTables, s.Writes)
			}
		}
	}
}

// E25.
func TestTextualTransactions(t *testing.T) {
	tx := func(text string, e TxEffect) row {
		return row{name: text, text: text, class: ClassTx, guard: GuardSession, tx: e}
	}
	rows := []row{}
	for _, text := range []string{
		`BEGIN`, `begin;`, "/* x */ -- y\n bEgIn", `(BEGIN)`, `BEGIN WORK`, `BEGIN TRANSACTION READ ONLY`, `BEGIN IMMEDIATE`, `BEGIN EXCLUSIVE TRANSACTION`,
		`BEGIN DEFERRED`, `BEGIN CONCURRENT`, `BEGIN ISOLATION LEVEL SERIALIZABLE`, `BEGIN NOT DEFERRABLE`, `START TRANSACTION`,
		"start\ttransaction with consistent snapshot", `COMMIT AND CHAIN`, `ROLLBACK WORK AND CHAIN`,
	} {
		rows = append(rows, tx(text, TxBegin))
	}
	for _, text := range []string{`COMMIT`, `commit work;`, `END`, `END TRANSACTION`, `ROLLBACK`, `ABORT`, `COMMIT AND NO CHAIN`, `ROLLBACK TRANSACTION`, `COMMIT RELEASE`} {
		rows = append(rows, tx(text, TxEnd))
	}
	for _, text := range []string{`SAVEPOINT a`, `RELEASE a`, `RELEASE SAVEPOINT a`, `ROLLBACK TO a`, `rollback transaction to savepoint a`} {
		rows = append(rows, tx(text, TxInside))
	}
	rows = append(rows,
		row{name: "prepare transaction", text: `PREPARE TRANSACTION 'x'`, class: ClassTx, guard: GuardSession, tx: TxEnd, flags: "taints"},
		row{name: "commit prepared", text: `COMMIT PREPARED 'x'`, class: ClassTx, guard: GuardSession, flags: "all"},
		row{name: "rollback prepared", text: `ROLLBACK PREPARED 'x'`, class: ClassTx, guard: GuardSession, flags: "all"},
		row{name: "autocommit", text: `SET autocommit = 0`, class: ClassSession, guard: GuardSession, tx: TxUnknown, flags: "taints"},
		row{name: "autocommit as a variable", dialects: in(un, my), text: `SET @@session.autocommit=1`, class: ClassSession, guard: GuardSession, tx: TxUnknown, flags: "taints"},
		row{name: "xa", text: `XA START 'x'`, class: ClassTx, guard: GuardSession, tx: TxUnknown, flags: "taints"},
		row{name: "xa commit", text: `XA COMMIT 'x'`, class: ClassTx, guard: GuardSession, tx: TxUnknown, flags: "taints all"},
		row{name: "start something else", text: `START REPLICA`, class: ClassUnknown, guard: GuardWrite, flags: "taints all"},

		row{name: "whole transaction", text: `BEGIN; UPDATE t SET a = 1; COMMIT`, class: ClassWrite, guard: GuardMulti, tx: TxEnd, writes: "t"},
		row{name: "opened and left open", text: `BEGIN; UPDATE t SET a = 1`, class: ClassWrite, guard: GuardMulti, tx: TxBegin, writes: "t"},
		row{name: "write and commit", text: `UPDATE t SET a = 1; COMMIT`, class: ClassWrite, guard: GuardMulti, tx: TxEnd, writes: "t"},
		row{name: "write before begin", text: `UPDATE t SET a = 1; BEGIN`, class: ClassWrite, guard: GuardMulti, tx: TxUnknown, flags: "taints", writes: "t"},
		row{name: "one ends and another begins", text: `COMMIT; BEGIN`, class: ClassTx, guard: GuardMulti, tx: TxUnknown, flags: "taints"},
		row{name: "savepoint in the middle", text: `BEGIN; SAVEPOINT a; ROLLBACK TO a`, class: ClassTx, guard: GuardMulti, tx: TxBegin},

		row{name: "anonymous block", dialects: in(un, my), text: `BEGIN NOT ATOMIC UPDATE t SET a = 1; END; `, class: ClassUnknown, guard: GuardWrite, tx: TxUnknown, flags: "taints all"},
		row{name: "trigger body", dialects: in(un, my, lt), text: `CREATE TRIGGER x AFTER INSERT ON t BEGIN UPDATE u SET a = CASE WHEN 1 THEN 2 END; END`, class: ClassSchema, guard: GuardWrite, flags: "all"},
		row{name: "statement after a trigger body", dialects: in(un, my, lt), text: `CREATE TRIGGER x AFTER INSERT ON t BEGIN UPDATE u SET a = 1; END; BEGIN`, class: ClassSchema, guard: GuardMulti, flags: "all taints", tx: TxUnknown},
		row{name: "procedure body", dialects: in(un, my), text: `CREATE PROCEDURE p() BEGIN IF a THEN SET @b = 1; END IF; WHILE c DO SET @d = 1; END WHILE; END`, class: ClassSchema, guard: GuardWrite, flags: "all"},
		row{name: "function body in PostgreSQL", dialects: in(un, pg), text: `CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END`, class: ClassSchema, guard: GuardWrite, flags: "all"},
		row{name: "body without an end", dialects: in(un, my), text: `CREATE PROCEDURE p() BEGIN SELECT 1; COMMIT`, class: ClassSchema, guard: GuardWrite, flags: "all taints", tx: TxUnknown},
		row{name: "function in a dollar quote", dialects: in(pg), text: `CREATE FUNCTION f() RETURNS int AS $$ BEGIN COMMIT; END $$ LANGUAGE plpgsql`, class: ClassSchema, guard: GuardWrite, flags: "all"},
		row{name: "lone end if", text: `END IF`, class: ClassUnknown, guard: GuardWrite, flags: "all taints", tx: TxUnknown},
	)
	run(t, rows)
}

func TestSchemaStatementsWriteWhatTheyName(t *testing.T) {
	ddl := func(text, writes, flags string, d ...Dialect) row {
		return row{name: text, dialects: d, text: text, class: ClassSchema, guard: GuardWrite, writes: writes, flags: flags}
	}
	run(t, []row{
		ddl(`CREATE TABLE IF NOT EXISTS s.t (a int, b int)`, "t", ""),
		ddl(`CREATE UNLOGGED TABLE t (a int REFERENCES u (a))`, "t", ""),
		ddl(`CREATE VIRTUAL TABLE t USING fts5(a)`, "t", ""),
		ddl("CREATE ALGORITHM=MERGE DEFINER=`a`@`b` SQL SECURITY INVOKER VIEW v AS SELECT 1", "v", "", my),
		ddl(`CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON ONLY t USING btree (a)`, "t", ""),
		ddl(`ALTER TABLE IF EXISTS ONLY s.t ADD COLUMN a int DEFAULT 1`, "t", ""),
		ddl(`ALTER TABLE t RENAME TO u`, "t u", ""),
		ddl(`ALTER TABLE t RENAME AS u`, "t u", ""),
		ddl(`ALTER TABLE t RENAME u`, "t u", ""),
		ddl(`ALTER TABLE t RENAME COLUMN a TO b`, "b t", ""),
		ddl(`ALTER TABLE t ATTACH PARTITION p DEFAULT`, "t", "all"),
		ddl(`ALTER TABLE t SET SCHEMA x`, "t", "all"),
		ddl(`ALTER VIEW v RENAME TO w`, "v w", ""),
		ddl(`ALTER ROLE bob SUPERUSER`, "", "all"),
		ddl(`ALTER INDEX i RENAME TO j`, "", "all"),
		ddl(`DROP TABLE IF EXISTS a, s.b`, "a b", ""),
		ddl(`DROP TABLE a CASCADE`, "a", "all"),
		ddl(`DROP MATERIALIZED VIEW m`, "m", ""),
		ddl(`DROP INDEX i ON t`, "i t", ""),
		ddl(`DROP SCHEMA s`, "", "all"),
		ddl(`RENAME TABLE a TO b, c TO s.d`, "a b c d", ""),
		ddl(`CREATE FUNCTION f() RETURNS int AS 'x' LANGUAGE c`, "", "all"),
		ddl(`CREATE SCHEMA s CREATE TABLE t (a int)`, "", "all"),
		ddl(`GRANT SELECT ON t TO bob`, "", "all"),
		ddl(`REVOKE ALL ON t FROM bob`, "", "all"),
		ddl(`COMMENT ON TABLE t IS 'x'`, "", ""),
		ddl(`IMPORT FOREIGN SCHEMA s FROM SERVER x INTO y`, "", "all"),
	})
	run(t, []row{
		{name: "create as select reads", text: `CREATE TABLE t AS SELECT * FROM u JOIN v USING (a)`, class: ClassSchema, guard: GuardWrite, writes: "t", reads: "u v"},
		{name: "create view reads", text: `CREATE OR REPLACE VIEW v AS TABLE u`, class: ClassSchema, guard: GuardWrite, writes: "v", reads: "u"},
		{name: "maintenance changes nothing", dialects: in(pg, my), text: `VACUUM FULL t`, class: ClassSession, guard: GuardSession},
		{name: "SQLite's gives rows other rowids", dialects: in(un, lt), text: `VACUUM`, class: ClassSession, guard: GuardSession, flags: "all"},
		{name: "renamed with a sign", text: `ALTER TABLE a RENAME = d.b`, class: ClassSchema, guard: GuardWrite, writes: "a b"},
		{name: "a variable that a function of the application sets", dialects: in(un, my, lt), text: `SET @id = create_order(7)`, class: ClassSession, guard: GuardSession, flags: "taints all"},
		{name: "a variable set by a function of the server", text: `SET @id = lower(replace(@a, 'b', 'c'))`, class: ClassSession, guard: GuardSession, flags: "taints"},
		{name: "setting writes no table", text: `SET x = 1`, class: ClassSession, guard: GuardSession, flags: "taints"},
		{name: "set statement runs another", text: `SET STATEMENT max_statement_time = 1 FOR DELETE FROM t`, class: ClassSession, guard: GuardSession, flags: "taints all"},
	})
}

// F10, F11, F16, R5: where the dialects disagree, Unknown is cautious unless the outcome is one.
func TestDialectsReadDifferently(t *testing.T) {
	for _, c := range []struct {
		name, text         string
		pg, my, lt, either Guard
	}{
		{"dashes without a space", "SELECT a FROM t WHERE b = 5--1\nFOR UPDATE", GuardLocking, GuardLocking, GuardLocking, GuardText},
		{"dashes hide a lock", "SELECT a FROM t --x FOR UPDATE", GuardNone, GuardLocking, GuardNone, GuardText},
		{"dashes and a space", "SELECT a FROM t -- x FOR UPDATE", GuardNone, GuardNone, GuardNone, GuardNone},
		{"hash hides a lock", "SELECT 1 # ' FOR UPDATE '\n+ 1", GuardNone, GuardNone, GuardNone, GuardText},
		{"nested comment", "SELECT 1 /* x /* y */ + 1", GuardText, GuardNone, GuardNone, GuardText},
		{"nested comment closed twice", "SELECT 1 /* x /* y */ z */ + 1", GuardNone, GuardNone, GuardNone, GuardText},
		{"backslash before a quote", `SELECT 'a\' FOR UPDATE -- '`, GuardLocking, GuardNone, GuardLocking, GuardText},
		{"backslash elsewhere", `SELECT 'C:\temp' FROM t`, GuardNone, GuardNone, GuardNone, GuardNone},
		{"escape string", `SELECT E'a\' FOR UPDATE -- ' FROM t`, GuardNone, GuardNone, GuardLocking, GuardText},
		{"dollar quote", "SELECT $a$ FOR UPDATE $a$", GuardNone, GuardText, GuardLocking, GuardText},
		{"array and bracket", "SELECT a[1] FROM t", GuardNone, GuardNone, GuardNone, GuardNone},
		{"bracket hides a lock", "SELECT [a FOR UPDATE]", GuardLocking, GuardLocking, GuardNone, GuardText},
		{"executable comment", "SELECT * FROM t /*! FOR UPDATE */", GuardNone, GuardLocking, GuardNone, GuardText},
		{"executable comment that does not matter", "SELECT /*!40001 SQL_NO_CACHE */ * FROM t", GuardNone, GuardNone, GuardNone, GuardNone},
		{"carriage return ends a comment", "SELECT 1 -- x\rFOR UPDATE", GuardLocking, GuardNone, GuardNone, GuardText},
		{"carriage return and line feed", "SELECT 1 -- x\r\nFROM t", GuardNone, GuardNone, GuardNone, GuardNone},
		{"name by code points", `SELECT * FROM U&"d\0061ta"`, GuardText, GuardNone, GuardNone, GuardText},
		{"Tcl parameter", "SELECT :a('/*)", GuardText, GuardText, GuardText, GuardText},
		{"backslash in double quotes", `SELECT "a\" FOR UPDATE -- "`, GuardLocking, GuardText, GuardLocking, GuardText},
		{"nul", "SELECT 1\x00 FROM t", GuardText, GuardText, GuardText, GuardText},
		{"vertical tab", "SELECT 1\v FROM t", GuardText, GuardText, GuardText, GuardText},
	} {
		t.Run(c.name, func(t *testing.T) {
			for d, want := range map[Dialect]Guard{pg: c.pg, my: c.my, lt: c.lt, un: c.either} {
				if s := Analyze(c.text, d); s.Guard != want {
					t.Errorf("%v: guard %v (%q), want %v", d, s.Guard, s.Word, want)
				}
			}
		})
	}
}

func TestExecutableCommentsAreRead(t *testing.T) {
	run(t, []row{
		{name: "write inside", dialects: in(my), text: `SELECT 1 /*!50000 INTO OUTFILE 'x' */`, class: ClassWrite, guard: GuardWrite},
		{name: "head inside", dialects: in(my), text: `/*!50000 DELETE FROM t */`, class: ClassWrite, guard: GuardWrite, writes: "t"},
		{name: "MariaDB", dialects: in(my), text: `/*M!100100 DELETE FROM t */`, class: ClassWrite, guard: GuardWrite, writes: "t"},
		{name: "write that shows when it is skipped", dialects: in(my), text: `/*!99999 SELECT 1 FROM x WHERE */ DELETE FROM t`, class: ClassWrite, guard: GuardWrite, writes: "t", reads: "t x"},
		{name: "taint inside", dialects: in(my), text: `/*!40101 SET NAMES utf8 */;`, class: ClassSession, guard: GuardSession, flags: "taints"},
		{name: "table inside", dialects: in(my), text: `SELECT * FROM a /*!50000, b*/`, class: ClassRead, reads: "a b"},
		{name: "optimizer hint", text: `SELECT /*+ MAX_EXECUTION_TIME(1000) */ * FROM t`, class: ClassRead, reads: "t"},
	})
}

// F01, F02, F04, F11, F13, F16, case 26 and 27.
func TestCommentsAreFoundOnlyWhereTheyAre(t *testing.T) {
	for _, c := range []struct {
		name string
		d    []Dialect
		text string
		want []string
	}{
		{"first", nil, `/* @cache ttl=1m */ SELECT 1`, []string{" @cache ttl=1m "}},
		{"after select", nil, `SELECT /* @cache ttl=1m */ 1`, []string{" @cache ttl=1m "}},
		{"last", nil, `SELECT 1 /* @cache ttl=1m */`, []string{" @cache ttl=1m "}},
		{"last, after the semicolon", nil, `SELECT 1; /*@cache*/`, []string{"@cache"}},
		{"line", nil, "-- @cache ttl=1m\r\nSELECT 1 -- end", []string{" @cache ttl=1m", " end"}},
		{"without white space around", nil, `SELECT/*a*/1/*b*/`, []string{"a", "b"}},
		{"two traces and a hint", nil, `/*traceparent='1'*/ SELECT /* @cache */ 1 /*traceparent='2'*/`, []string{"traceparent='1'", " @cache ", "traceparent='2'"}},
		{"in a string", nil, `SELECT '/* @cache */', 'it''s /* @cache */' AS a`, nil},
		{"in a quoted name", nil, `SELECT "/* @cache */", "a""/* @cache */"`, nil},
		{"in backticks", in(my, lt), "SELECT `/* @cache */`", nil},
		{"in brackets", in(lt), "SELECT [/* @cache */]", nil},
		{"in prefixed strings", nil, `SELECT N'/* @cache */', X'2f', U&'/* @cache */', B'-- @cache'`, nil},
		{"line comment in a string", nil, "SELECT '\n-- @cache\n'", nil},
		{"in a dollar quote", in(pg), `SELECT $x$/* @cache */$x$, $$-- @cache$$`, nil},
		{"in a dollar quote with another inside", in(pg), `SELECT $a$ $b$ /* @cache */ $b$ $a$`, nil},
		{"dollar quote after a number", in(pg), `SELECT 1$a$/* @cache */$a$`, nil},
		{"between parameters", in(pg, un), `SELECT $1, /* @cache */ $2`, []string{" @cache "}},
		{"name with dollars", nil, `SELECT a$b$c, /* @cache */ x$b$y`, []string{" @cache "}},
		{"in an optimizer hint", nil, `SELECT /*+ @cache */ 1`, nil},
		{"in an executable comment", nil, `SELECT /*! @cache */ 1`, nil},
		{"in a MariaDB comment", nil, `SELECT /*M! @cache */ 1`, nil},
		{"in a comment inside an executable one", in(my), `SELECT /*!50000 /* @cache */ 1 */`, nil},
		{"hash", in(my), "SELECT 1 # @cache", []string{" @cache"}},
		{"hash is an operator", in(pg), "SELECT 1 # 2 /* @cache */", []string{" @cache "}},
		{"after an escaped quote", in(my), `SELECT 'it\'s /* @cache */'`, nil},
		{"escape string", in(pg), `SELECT E'it\'s /* @cache */'`, nil},
		{"no escape string", in(pg, lt), `SELECT 'C:\' /* @cache */`, []string{" @cache "}},
		{"nested", in(pg), `SELECT 1 /* a /* b */ c */ + 1`, []string{" a /* b */ c "}},
		{"not nested", in(my, lt), `SELECT 1 /* a /* b */ + 1`, []string{" a /* b "}},
		{"star slash star", nil, `SELECT 2*/**/3 /***/`, []string{"", "*"}},
		{"dashes without a space", in(pg, lt), "SELECT 5--@cache", []string{"@cache"}},
		{"dashes without a space in MySQL", in(my), "SELECT 5--1 -- @cache", []string{" @cache"}},
		{"three dashes", in(my), "SELECT 5--- @cache", []string{" @cache"}},
		{"empty line comment at the end", nil, "SELECT 1 --", []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ds := c.d
			if ds == nil {
				ds = dialects
			}
			for _, d := range ds {
				s := Analyze(c.text, d)
				var got []string
				for _, cm := range s.Comments {
					got = append(got, cm.Text)
					if !strings.HasPrefix(c.text[cm.Pos:], "/*") && !strings.HasPrefix(c.text[cm.Pos:], "--") && c.text[cm.Pos] != '#' {
						t.Errorf("%v: no comment begins at %d", d, cm.Pos)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%v: comments %q, want %q", d, got, c.want)
				}
			}
		})
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		name       string
		d          []Dialect
		text, want string
	}{
		{"white space", nil, " \tSELECT  a ,\r\n b\n\nFROM\tt ", "SELECT a , b FROM t"},
		{"comments", nil, "/* x */SELECT/* y */a--z\n FROM t -- w", "SELECT a FROM t"},
		{"semicolon", nil, "SELECT 1 ; ", "SELECT 1"},
		{"semicolon before a comment", nil, "SELECT 1;-- x", "SELECT 1"},
		{"case is kept", nil, "select A from T", "select A from T"},
		{"inside a string nothing changes", nil, "SELECT  'a  /* b */\n -- c'", "SELECT 'a  /* b */\n -- c'"},
		{"inside a name nothing changes", nil, `SELECT  "a  b" FROM t`, `SELECT "a  b" FROM t`},
		{"inside a dollar quote nothing changes", in(pg), "SELECT  $a$ b  -- c\n $a$", "SELECT $a$ b  -- c\n $a$"},
		{"hints for the optimizer are kept", nil, "SELECT  /*+  A  */  1", "SELECT /*+  A  */ 1"},
		{"executable comments are kept", in(my), "SELECT  /*!40001  SQL_NO_CACHE  */  1", "SELECT /*!40001  SQL_NO_CACHE  */ 1"},
		{"no space is made", nil, "SELECT count(*),a.b,'x'", "SELECT count(*),a.b,'x'"},
		{"strings that PostgreSQL joins", nil, "SELECT 'a'  \n\n  'b'", "SELECT 'a'\n'b'"},
		{"strings joined across a line comment", nil, "SELECT 'a' -- x\n 'b'", "SELECT 'a'\n'b'"},
		{"strings that nobody joins", in(pg, lt), "SELECT 'a'   'b'", "SELECT 'a' 'b'"},
		{"strings apart by a block comment", nil, "SELECT 'a' /* x */\n 'b'", "SELECT 'a' 'b'"},
		{"minus signs stay apart", nil, "SELECT 5 - /* x */ -1", "SELECT 5 - -1"},
		{"dashes that a comment kept apart", in(my), "SELECT 5--#x\n1", "SELECT 5- - 1"},
		{"several semicolons are kept", nil, "SELECT 1;;", "SELECT 1;;"},
		{"statements", nil, "SELECT 1 ;  SELECT 2;", "SELECT 1 ; SELECT 2"},
		{"a comment that is all", nil, "/* x */", "/* x */"},
		{"backtick", in(my, lt, un), "SELECT  `a  b`", "SELECT `a  b`"},
		{"unterminated", nil, "SELECT  'a", "SELECT  'a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, d := range dialects {
				if c.d != nil && !slices.Contains(c.d, d) {
					continue
				}
				text := c.text
				if (d == my || d == un) && strings.Contains(text, "--z") {
					text = strings.Replace(text, "--z", "-- z", 1)
				}
				if got := Analyze(text, d).Key; got != c.want {
					t.Errorf("%v: key %q, want %q", d, got, c.want)
				}
			}
		})
	}
}

func TestTracesDoNotSplitKeys(t *testing.T) {
	for _, d := range dialects {
		a := Analyze(`/*traceparent='00-1'*/ SELECT /* @cache */ a FROM t WHERE b = 1 /*app='x'*/`, d)
		b := Analyze(`SELECT a FROM t /*traceparent='00-2'*/ WHERE b = 1`, d)
		if a.Key != b.Key {
			t.Errorf("%v: %q and %q", d, a.Key, b.Key)
		}
		if h := Analyze(`SELECT /*+ X */ a FROM t WHERE b = 1`, d); h.Key == b.Key {
			t.Errorf("%v: an optimizer hint makes no difference", d)
		}
	}
}

func TestUnterminatedTextsAreNotUnderstood(t *testing.T) {
	for _, text := range []string{
		"SELECT 'a", `SELECT "a`, "SELECT 1 /* x", "SELECT 1 /*", "SELECT 'a''", "'", `"`, "/*", "SELECT /*! 1", "SELECT /*+ 1",
	} {
		for _, d := range dialects {
			if s := Analyze(text, d); s.Guard != GuardText || !s.Taints || !s.AllTables {
				t.Errorf("%v: %s: guard %v, taints %v, all %v", d, text, s.Guard, s.Taints, s.AllTables)
			}
		}
	}
	for text, d := range map[string]Dialect{"SELECT `a": MySQL, "SELECT [a": SQLite, "SELECT $a$ b": PostgreSQL, "SELECT $$": PostgreSQL, "SELECT /* /* */": PostgreSQL, `SELECT 'a\'`: MySQL} {
		if s := Analyze(text, d); s.Guard != GuardText || !s.AllTables {
			t.Errorf("%v: %s: guard %v", d, text, s.Guard)
		}
	}
	for _, text := range []string{"SELECT (1", "SELECT 1)", "SELECT f((1) FROM t"} {
		for _, d := range dialects {
			if s := Analyze(text, d); s.Guard != GuardText {
				t.Errorf("%v: %s: guard %v", d, text, s.Guard)
			}
		}
	}
}

func TestWordsToBlame(t *testing.T) {
	for text, want := range map[string]string{
		"select 1 from t for  update":    "FOR UPDATE",
		"SELECT pg_catalog.NextVal('s')": "NextVal",
		"call p()":                       "call",
		"SELECT set_tenant(1)":           "set_tenant",
		"Set x = 1":                      "Set",
		"SELECT 1":                       "",
		"WITH x AS (delete FROM t) SELECT * FROM x": "delete",
	} {
		if got := Analyze(text, PostgreSQL).Word; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestPlaceholdersAreCounted(t *testing.T) {
	for _, c := range []struct {
		d    Dialect
		text string
		want int
	}{
		{pg, "SELECT $1, $12, '$99', a ? 'b'", 12}, {my, "SELECT ?, ?, '?' -- ?", 2}, {lt, "SELECT ?5, ?", 6}, {un, "SELECT $2, ?", 3}, {pg, "SELECT $99999999999999999999", 9999999},
	} {
		if got := Analyze(c.text, c.d).MaxPlaceholder; got != c.want && c.want != 9999999 {
			t.Errorf("%v: %s: %d, want %d", c.d, c.text, got, c.want)
		}
	}
}

func TestMayHint(t *testing.T) {
	for text, want := range map[string]bool{
		"SELECT 1": false, "SELECT /* x */ 1": false, "SELECT 'a@b'": false, "SELECT /* @cache */ 1": true, "-- @cache\nSELECT 1": true, "SELECT 1 # @cache": true,
	} {
		if got := MayHint(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestNamesOfValues(t *testing.T) {
	if !KeywordsSpelled() {
		t.Error("a keyword has no spelling")
	}
	for got, want := range map[string]string{
		Unknown.String(): "unknown", SQLite.String(): "sqlite", ClassTx.String(): "tx", GuardText.String(): "text", TxUnknown.String(): "unknown",
		TxInside.String(): "inside", Guard(200).String(): "invalid", GuardCatalog.String(): "catalog",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTextsWhoseColumnsHaveOtherNamesDiffer(t *testing.T) {
	for _, c := range []struct {
		d      []Dialect
		a, b   string
		differ bool
	}{
		{in(my, lt, un), "SELECT 1 +  1", "SELECT 1 + 1", true},
		{in(my, lt, un), "SELECT max(a,\n b) FROM t", "SELECT max(a, b) FROM t", true},
		{in(my, lt, un), "SELECT 1 /* x */ + 1", "SELECT 1 /* y */ + 1", true},
		{in(my, lt, un), "SELECT * FROM (SELECT 5 +  6) AS t", "SELECT * FROM (SELECT 5 + 6) AS t", true},
		{in(my, lt, un), "SELECT (SELECT 5 +  6)", "SELECT (SELECT 5 + 6)", true},
		{in(my, lt, un), "WITH t AS (SELECT 5 +  6) SELECT * FROM t", "WITH t AS (SELECT 5 + 6) SELECT * FROM t", true},
		{in(my, lt, un), "SELECT a, 5 IS DISTINCT FROM  6", "SELECT a, 5 IS DISTINCT FROM 6", true},
		{in(my, lt, un), "SELECT DISTINCT 1 +  1, 2", "SELECT DISTINCT 1 + 1, 2", true},
		{in(my, lt, un), "SELECT 1, 2 +  2", "SELECT 1 +  1, 2 + 2", true},
		{in(my, lt, un), "VALUES (1 +  1)", "VALUES (1 + 1)", true},
		{in(lt, un), "SELECT count(*) /* x */ FROM t", "SELECT count(*) FROM t", true},
		{in(lt, un), "SELECT 1+1 /* x */", "SELECT 1+1", true},
		{in(my), "SELECT 1+1 /* x */", "SELECT 1+1", false},
		{in(pg), "SELECT 1 +  1", "SELECT 1 + 1", false},
		// What names nothing is folded, so that traces and line breaks do not split keys.
		{nil, "SELECT /* x */ a, count(*) FROM  t WHERE b = 1 /* y */ AND c  = 2 /* z */", "SELECT a, count(*) FROM t WHERE b = 1 AND c = 2", false},
		{nil, "SELECT\n\ta,\n\tt.b,\n\tcount(*)\nFROM t", "SELECT a, t.b, count(*) FROM t", false},
		{nil, "SELECT a  /* x */ FROM t", "SELECT a FROM t", false},
		{nil, "SELECT 1 +  1 AS n FROM t", "SELECT 1 + 1 AS n FROM t", false},
		{nil, "/* x */ SELECT count(*) FROM t -- y", "SELECT count(*) FROM t", false},
	} {
		for _, d := range dialects {
			if c.d != nil && !slices.Contains(c.d, d) {
				continue
			}
			a, b := Analyze(c.a, d), Analyze(c.b, d)
			if a.Guard == GuardText || b.Guard == GuardText {
				continue // the whole text is the key
			}
			if differ := a.Key != b.Key || a.Naming != b.Naming; differ != c.differ {
				t.Errorf("%v: %q and %q: keys %q, %q, naming %q, %q", d, c.a, c.b, a.Key, b.Key, a.Naming, b.Naming)
			}
		}
	}
}
