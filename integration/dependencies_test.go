package integration_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A ledger is three tables, a herd over them, and the database itself.
type ledger struct {
	dbtest.Database
	db   *sql.DB
	h    *sqlherd.Herd
	bare *sql.DB
}

func newLedger(t *testing.T, d dbtest.Database) *ledger {
	t.Helper()
	for _, table := range []string{"a", "b", "c"} {
		d.Exec(t, "CREATE TABLE "+table+" (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)", "INSERT INTO "+table+" VALUES (1, 10), (2, 20)")
	}
	l := &ledger{Database: d, bare: d.Open(t)}
	l.db, l.h = openHerd(t, d, sqlherd.Config{})
	return l
}

const cached = " /* @cache ttl=10m */"

// value is what the database says now. NULL is "".
func (l *ledger) value(t *testing.T, query string) string {
	t.Helper()
	var v sql.NullString
	if err := l.bare.QueryRow(query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v.String
}

// wants reads through the herd and compares with the database.
func (l *ledger) wants(t *testing.T, outcome sqlherd.Outcome, query string) {
	t.Helper()
	var v sql.NullString
	var info sqlherd.Info
	if err := l.db.QueryRowContext(sqlherd.WithInfo(withDeadline(t), &info), query+cached).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if want := l.value(t, query); v.String != want || info.Outcome != outcome {
		t.Errorf("%s: %q, %v (%v %s); want %q, %v", query, v.String, info.Outcome, info.Reason, info.Detail, want, outcome)
	}
}

// eachLedger runs test on PostgreSQL, MariaDB and SQLite.
func eachLedger(t *testing.T, test func(*testing.T, *ledger)) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) { test(t, newLedger(t, d)) })
}

func TestAReadDependsOnEveryTableItNamesWhereverItNamesIt(t *testing.T) {
	forms := []string{
		"SELECT sum(b.n) FROM a JOIN b USING (id)",
		"SELECT sum(b.n) FROM a, b WHERE a.id = b.id",
		"SELECT count(*) FROM a WHERE n < (SELECT max(n) FROM b)",
		"SELECT count(*) FROM a WHERE id IN (SELECT id FROM b WHERE n > 20)",
		"SELECT (SELECT max(n) FROM b) FROM a WHERE id = 1",
		"SELECT count(*) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.n > 25)",
		"SELECT max(q.n) FROM (SELECT n FROM a UNION ALL SELECT n FROM b) q",
		"SELECT max(q.n) FROM (SELECT n FROM b) q",
		"SELECT count(*) FROM a NATURAL JOIN b",
		"SELECT max(b.n) FROM (a JOIN b ON a.id = b.id)",
		"SELECT max(y.n) FROM a x, b y WHERE x.id = y.id",
		"SELECT max(a.n) FROM b AS a",
		"SELECT max(a.n) FROM b a",
		"WITH q AS (SELECT * FROM b) SELECT max(n) FROM q",
		"WITH RECURSIVE q(n) AS (SELECT max(n) FROM b UNION ALL SELECT n - 10 FROM q WHERE n > 0) SELECT count(*) FROM q",
		"WITH o AS (WITH i AS (SELECT n FROM b) SELECT n FROM i) SELECT max(n) FROM o",
		// A CTE hides a table in its own scope and not beside it.
		"SELECT (SELECT max(n) FROM b) FROM (WITH b AS (SELECT 1 AS n) SELECT n FROM b) q",
		"WITH a AS (SELECT n FROM b) SELECT max(n) FROM a",
	}
	more := map[dbtest.Engine][]string{
		dbtest.EnginePostgres: {
			"SELECT max(q.n) FROM a, LATERAL (SELECT n FROM b WHERE b.id = a.id) q",
			"SELECT max(n) FROM ONLY b",
			"SELECT max(n) FROM ONLY (b)",
			"SELECT max(n) FROM b *",
			"WITH b AS (SELECT * FROM b) SELECT max(n) FROM b",
			"SELECT max(n) FROM (TABLE b) q",
		},
		dbtest.EngineMariaDB: {
			"WITH b AS (SELECT * FROM b) SELECT max(n) FROM b",
			"SELECT STRAIGHT_JOIN max(b.n) FROM a JOIN b ON a.id = b.id",
			"SELECT max(n) FROM b USE INDEX (PRIMARY)",
		},
		dbtest.EngineSQLite: {
			"SELECT max(n) FROM b NOT INDEXED",
			"SELECT max(n) FROM main.b",
			"SELECT max([n]) FROM [b]",
			"SELECT count(*) FROM a WHERE (id, n) IN b",
		},
	}
	eachLedger(t, func(t *testing.T, l *ledger) {
		for _, query := range append(slices.Clone(forms), more[l.Engine]...) {
			l.wants(t, sqlherd.Miss, query)
			mustExec(t, l.db, "UPDATE c SET n = n + 1")
			l.wants(t, sqlherd.Hit, query)
			mustExec(t, l.db, "UPDATE b SET n = n + 1")
			l.wants(t, sqlherd.Miss, query)
		}
		if n := l.h.Stats().UnknownWrites; n != 0 {
			t.Errorf("%d writes were not understood", n)
		}
	})
}

func TestEveryFormOfWriteEndsWhatReadsItsTable(t *testing.T) {
	type write struct {
		text string
		both bool // it writes a, too
	}
	writes := map[dbtest.Engine][]write{
		dbtest.EnginePostgres: {
			{"TRUNCATE b", false},
			{"TRUNCATE TABLE ONLY b, a", true},
			{"DELETE FROM b", false},
			{"INSERT INTO b VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = b.n + 1", false},
			{"MERGE INTO b USING (SELECT 1 AS id) s ON b.id = s.id WHEN MATCHED THEN UPDATE SET n = b.n + 1", false},
			{"UPDATE b SET n = b.n + a.n FROM a WHERE a.id = b.id", false},
			{"DELETE FROM b USING a WHERE a.id = b.id AND b.n < 0", false},
			{"WITH moved AS (DELETE FROM a RETURNING *) INSERT INTO b SELECT id + 100, n FROM moved", true},
			{"EXPLAIN ANALYZE DELETE FROM b", false},
			{"ALTER TABLE b ADD COLUMN note text", false},
		},
		dbtest.EngineMariaDB: {
			{"TRUNCATE b", false},
			{"TRUNCATE TABLE b", false},
			{"DELETE FROM b", false},
			{"REPLACE INTO b VALUES (1, 7)", false},
			{"INSERT INTO b VALUES (1, 5) ON DUPLICATE KEY UPDATE n = n + 1", false},
			{"INSERT INTO b SET id = 50, n = 5", false},
			{"UPDATE a JOIN b ON a.id = b.id SET b.n = 7, a.n = 8", true},
			{"DELETE b FROM a JOIN b ON a.id = b.id", false},
			{"DELETE FROM b USING a JOIN b ON a.id = b.id", false},
			{"INSERT INTO b WITH q AS (SELECT 60 AS id, 6 AS n) SELECT id, n FROM q", false},
			{"ALTER TABLE b ADD COLUMN note text", false},
		},
		dbtest.EngineSQLite: {
			{"DELETE FROM b", false},
			{"REPLACE INTO b VALUES (1, 7)", false},
			{"INSERT OR REPLACE INTO b VALUES (1, 8)", false},
			{"INSERT INTO b VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = n + 1", false},
			{"WITH q AS (SELECT 50 AS id, 5 AS n) INSERT INTO b SELECT id, n FROM q", false},
			{"UPDATE b SET n = b.n + a.n FROM a WHERE a.id = b.id", false},
			{"ALTER TABLE b ADD COLUMN note text", false},
		},
	}
	eachLedger(t, func(t *testing.T, l *ledger) {
		sums := []string{"SELECT sum(n) FROM a", "SELECT sum(n) FROM b", "SELECT sum(n) FROM c"}
		for _, w := range writes[l.Engine] {
			l.Exec(t, "DELETE FROM a", "DELETE FROM b", "INSERT INTO a (id, n) VALUES (1, 10)", "INSERT INTO b (id, n) VALUES (1, 11), (2, 12)")
			if err := l.h.InvalidateAll(withDeadline(t)); err != nil {
				t.Fatal(err)
			}
			for _, query := range sums {
				l.wants(t, sqlherd.Miss, query)
			}
			mustExec(t, l.db, w.text)
			a := sqlherd.Hit
			if w.both {
				a = sqlherd.Miss
			}
			t.Log(w.text)
			l.wants(t, a, sums[0])
			l.wants(t, sqlherd.Miss, sums[1])
			l.wants(t, sqlherd.Hit, sums[2])
		}
		if n := l.h.Stats().UnknownWrites; n != 0 {
			t.Errorf("%d writes were not understood", n)
		}
	})
}

// What may write anywhere ends everything, and is counted.
func TestAProcedureThatWritesEndsEverythingOnce(t *testing.T) {
	procedures := map[dbtest.Engine]struct {
		create []string
		calls  []string
	}{
		dbtest.EnginePostgres: {
			[]string{
				"CREATE PROCEDURE bump() LANGUAGE sql AS 'UPDATE b SET n = n + 1'",
				"CREATE FUNCTION bumped() RETURNS integer LANGUAGE sql AS 'UPDATE b SET n = n + 1 RETURNING n'",
			},
			[]string{"CALL bump()", "SELECT bumped()", "DO 'BEGIN UPDATE b SET n = n + 1; END'", "TRUNCATE b CASCADE"},
		},
		dbtest.EngineMariaDB: {
			[]string{"CREATE PROCEDURE bump() UPDATE b SET n = n + 1"},
			[]string{"CALL bump()", "EXECUTE IMMEDIATE 'UPDATE b SET n = n + 1'"},
		},
	}
	eachLedger(t, func(t *testing.T, l *ledger) {
		p := procedures[l.Engine]
		l.Exec(t, p.create...)
		// What calls procedures has a session that nobody knows, and reads nothing from the cache.
		caller := open(t, l.h, l.Database)
		for i, call := range p.calls {
			l.wants(t, sqlherd.Miss, "SELECT sum(n) FROM b")
			l.wants(t, sqlherd.Hit, "SELECT sum(n) FROM b")
			mustExec(t, caller, call)
			l.wants(t, sqlherd.Miss, "SELECT sum(n) FROM b")
			l.wants(t, sqlherd.Hit, "SELECT sum(n) FROM b")
			if n := l.h.Stats().UnknownWrites; n != uint64(i)+1 {
				t.Errorf("%s: %d unknown writes, want %d", call, n, i+1)
			}
			mustExec(t, l.db, "UPDATE b SET n = n + 1")
		}
	})
}

// A cached result of one table does not go because something else happens in the database.
func TestWhatWritesNoTableEndsNoResult(t *testing.T) {
	harmless := map[dbtest.Engine][]string{
		dbtest.EnginePostgres: {
			"SET work_mem = '5MB'", "ANALYZE", "ANALYZE c", "VACUUM c", "LISTEN news", "NOTIFY news", "DISCARD PLANS", "CHECKPOINT",
			"CREATE TEMP TABLE scratch (n integer)", "INSERT INTO scratch VALUES (1)", "DROP TABLE scratch",
			"BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "EXPLAIN UPDATE b SET n = 0", "SHOW work_mem",
		},
		dbtest.EngineMariaDB: {
			"SET @x = 1", "SET SESSION sort_buffer_size = 1000000", "ANALYZE TABLE c", "SHOW STATUS LIKE 'Uptime'",
			"CREATE TEMPORARY TABLE scratch (n INTEGER)", "INSERT INTO scratch VALUES (1)", "DROP TEMPORARY TABLE scratch",
			"BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "EXPLAIN UPDATE b SET n = 0", "SHOW TABLES",
		},
		dbtest.EngineSQLite: {
			"PRAGMA cache_size = 1000", "ANALYZE", "CREATE TEMP TABLE scratch (n integer)", "INSERT INTO scratch VALUES (1)", "DROP TABLE scratch",
			"BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "EXPLAIN UPDATE b SET n = 0",
		},
	}
	eachLedger(t, func(t *testing.T, l *ledger) {
		sums := []string{"SELECT sum(n) FROM a", "SELECT sum(n) FROM b"}
		for _, query := range sums {
			l.wants(t, sqlherd.Miss, query)
		}
		conn, err := l.db.Conn(withDeadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, text := range harmless[l.Engine] {
			rows, err := conn.QueryContext(withDeadline(t), text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for rows.Next() {
			}
			if err := rows.Close(); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			t.Log(text)
			for _, query := range sums {
				l.wants(t, sqlherd.Hit, query)
			}
		}
		mustExec(t, conn, "UPDATE a SET n = n + 1")
		l.wants(t, sqlherd.Miss, sums[0])
		l.wants(t, sqlherd.Hit, sums[1])
		if n := l.h.Stats().UnknownWrites; n != 0 {
			t.Errorf("%d writes were not understood", n)
		}
	})
}

func TestAWriteThatLooksLikeAReadRunsEachTimeAndIsSeen(t *testing.T) {
	on(t, func(t *testing.T, d dbtest.Database) {
		l := newLedger(t, d)
		read := "SELECT n FROM b WHERE id = 1"
		for _, w := range []struct{ text, want1, want2 string }{
			{"WITH x AS (UPDATE b SET n = n + 1 WHERE id = 1 RETURNING n) SELECT n FROM x", "11", "12"},
			{"UPDATE b SET n = n + 1 WHERE id = 1 RETURNING n", "13", "14"},
		} {
			for _, want := range []string{w.want1, w.want2} {
				l.wants(t, sqlherd.Miss, read)
				l.wants(t, sqlherd.Hit, read)
				wantText(t, l.db, want, sqlherd.Bypassed, w.text+cached)
			}
		}
		l.wants(t, sqlherd.Miss, read)

		mustExec(t, l.db, "SELECT n INTO made FROM b")
		l.wants(t, sqlherd.Miss, "SELECT sum(n) FROM made")
		mustExec(t, l.db, "CREATE MATERIALIZED VIEW seen AS SELECT sum(n) AS n FROM b")
		l.wants(t, sqlherd.Miss, "SELECT n FROM seen")
		mustExec(t, l.db, "UPDATE b SET n = n + 1")
		l.wants(t, sqlherd.Hit, "SELECT n FROM seen") // as the database has it
		mustExec(t, l.db, "REFRESH MATERIALIZED VIEW seen")
		l.wants(t, sqlherd.Miss, "SELECT n FROM seen")
	}, dbtest.PQ, dbtest.PGX)
}

func TestASchemaThatAnotherProcessHasChangedIsSeen(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE a (id INTEGER PRIMARY KEY)", "INSERT INTO a VALUES (1)")
		rdb, ns := dbtest.Redis(t)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout, Local: sqlherd.LocalConfig{Disabled: true}}
		reader, h := openHerd(t, d, cfg)
		other, _ := openHerd(t, d, cfg)
		await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
		columns := func(want int, outcome sqlherd.Outcome) {
			t.Helper()
			var info sqlherd.Info
			rows, err := reader.QueryContext(sqlherd.WithInfo(withDeadline(t), &info), "SELECT * FROM a"+cached)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			names, err := rows.Columns()
			if err != nil || len(names) != want || info.Outcome != outcome {
				t.Errorf("%q, %v, %v; want %d columns, %v", names, err, info.Outcome, want, outcome)
			}
		}
		columns(1, sqlherd.Miss)
		columns(1, sqlherd.Hit)
		mustExec(t, other, "ALTER TABLE a ADD COLUMN note VARCHAR(10)")
		columns(2, sqlherd.Miss)
		mustExec(t, other, "ALTER TABLE a RENAME TO old")
		mustExec(t, other, "CREATE TABLE a (x INTEGER, y INTEGER, z INTEGER)")
		columns(3, sqlherd.Miss)
	})
}
