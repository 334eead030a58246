package integration_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A guarded statement has a hint and must run each time all the same.
type guarded struct {
	query  string // HINT stands for the hint
	reason sqlherd.Reason
	logs   int // rows that each run writes into the table log
}

var guardedStatements = map[dbtest.Engine][]guarded{
	dbtest.EnginePostgres: {
		{"SELECT HINT nextval('calls')::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT pg_catalog.nextval('calls')::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT pg_advisory_lock(7)::text FROM items WHERE id = 1", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT pg_try_advisory_xact_lock(7)::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT set_config('work_mem', '1MB', true)", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT current_setting('work_mem')", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT pg_sleep(0)::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT random()::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT gen_random_uuid()::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT current_user::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT txid_current()::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT pg_backend_pid()::text", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT v FROM items TABLESAMPLE BERNOULLI (100)", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT v FROM items WHERE id = 1 FOR UPDATE", sqlherd.ReasonLocking, 0},
		{"SELECT HINT v FROM items WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED", sqlherd.ReasonLocking, 0},
		{"SELECT HINT v FROM items WHERE id = 1 FOR KEY SHARE", sqlherd.ReasonLocking, 0},
		{"WITH HINT x AS (SELECT v FROM items WHERE id = 1 FOR SHARE) SELECT v FROM x", sqlherd.ReasonLocking, 0},
		{"SELECT HINT v FROM (SELECT v FROM items WHERE id = 1 FOR UPDATE) AS x", sqlherd.ReasonLocking, 0},
		{"EXPLAIN HINT (ANALYZE, TIMING OFF, SUMMARY OFF, COSTS OFF) INSERT INTO log VALUES ('x')", sqlherd.ReasonWrite, 1},
		{"WITH x AS (INSERT INTO log VALUES ('x') RETURNING v) SELECT HINT v FROM x", sqlherd.ReasonWrite, 1},
		{"INSERT HINT INTO log VALUES ('x') RETURNING v", sqlherd.ReasonWrite, 1},
		{"UPDATE HINT items SET v = v WHERE id = 1 RETURNING v", sqlherd.ReasonWrite, 0},
		{"DELETE HINT FROM items WHERE id = 1 AND false RETURNING v", sqlherd.ReasonWrite, 0},
		{"SELECT HINT relname::text FROM pg_class LIMIT 1", sqlherd.ReasonCatalog, 0},
		{"SELECT HINT table_name::text FROM information_schema.tables LIMIT 1", sqlherd.ReasonCatalog, 0},
		{"SHOW HINT work_mem", sqlherd.ReasonSession, 0},
	},
	dbtest.EngineMariaDB: {
		{"SELECT HINT NEXT VALUE FOR calls", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT NEXTVAL(calls)", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT GET_LOCK('x', 0)", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT RELEASE_LOCK('x')", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT LAST_INSERT_ID()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT CONNECTION_ID()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT ROW_COUNT()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT FOUND_ROWS()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT SLEEP(0)", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT UUID()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT RAND()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT CURRENT_USER()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT @x := 1", sqlherd.ReasonSession, 0},
		{"SELECT HINT @@sql_mode", sqlherd.ReasonSession, 0},
		{"SELECT HINT v FROM items WHERE id = 1 FOR UPDATE", sqlherd.ReasonLocking, 0},
		{"SELECT HINT v FROM items WHERE id = 1 LOCK IN SHARE MODE", sqlherd.ReasonLocking, 0},
		{"SELECT HINT v FROM (SELECT v FROM items WHERE id = 1 FOR UPDATE) AS x", sqlherd.ReasonLocking, 0},
		{"INSERT HINT INTO log VALUES ('x') RETURNING v", sqlherd.ReasonWrite, 1},
		{"DELETE HINT FROM items WHERE id = 99 RETURNING v", sqlherd.ReasonWrite, 0},
		{"SELECT HINT table_name FROM information_schema.tables LIMIT 1", sqlherd.ReasonCatalog, 0},
		{"ANALYZE HINT TABLE items", sqlherd.ReasonSession, 0},
	},
	dbtest.EngineSQLite: {
		{"INSERT HINT INTO log VALUES ('x') RETURNING v", sqlherd.ReasonWrite, 1},
		{"UPDATE HINT items SET v = v WHERE id = 1 RETURNING v", sqlherd.ReasonWrite, 0},
		{"SELECT HINT last_insert_rowid()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT changes()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT total_changes()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT random()", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT hex(randomblob(4))", sqlherd.ReasonVolatile, 0},
		{"SELECT HINT name FROM sqlite_master LIMIT 1", sqlherd.ReasonCatalog, 0},
		{"PRAGMA HINT user_version", sqlherd.ReasonSession, 0},
	},
}

func TestGuardedStatementsRunEachTime(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		b.Exec(t, "CREATE TABLE log (v VARCHAR(10))")
		statements := guardedStatements[d.Engine]
		if d.Name == "pq" {
			statements = append(statements[:len(statements):len(statements)], guarded{"SELECT HINT 1; INSERT INTO log VALUES ('x')", sqlherd.ReasonMulti, 1})
		}
		d = b.Database
		if d.Engine == dbtest.EngineMariaDB {
			d = d.WithParams("multiStatements=true")
			statements = append(statements[:len(statements):len(statements)], guarded{"SELECT HINT 1; INSERT INTO log VALUES ('x')", sqlherd.ReasonMulti, 1})
		}
		rdb, ns := dbtest.Redis(t)
		db, h := openHerd(t, d, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		for _, g := range statements {
			query := strings.Replace(g.query, "HINT", "/* @cache ttl=10m */", 1)
			logged := count(t, b.admin, "log")
			const runs = 3
			for range runs {
				var info sqlherd.Info
				rows, err := db.QueryContext(sqlherd.WithInfo(withDeadline(t), &info), query)
				if err != nil {
					t.Errorf("%s: %v", query, err)
					break
				}
				for rows.Next() {
				}
				for rows.NextResultSet() {
				}
				if err := rows.Err(); err != nil {
					t.Errorf("%s: %v", query, err)
				}
				rows.Close()
				if info.Outcome != sqlherd.Bypassed || info.Reason != g.reason {
					t.Errorf("%s: %v (%v %s), want bypass (%v)", query, info.Outcome, info.Reason, info.Detail, g.reason)
				}
			}
			if n := count(t, b.admin, "log") - logged; n != runs*g.logs {
				t.Errorf("%s: wrote %d rows in %d runs", query, n, runs)
			}
		}
		if st := h.Stats(); st.Loads != 0 || st.Redis.PutsStored != 0 {
			t.Errorf("%s; want no load and nothing stored", outcomes(h))
		}
	})
}

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTimeFunctionsAreCachedWhenAHintSaysSo(t *testing.T) {
	now := map[dbtest.Engine]string{dbtest.EnginePostgres: "now()::text", dbtest.EngineMariaDB: "NOW(6)", dbtest.EngineSQLite: "strftime('%f', 'now')"}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, _ := openHerd(t, d, sqlherd.Config{})
		query := "SELECT /* @cache ttl=10m */ " + now[d.Engine]
		first, info, err := text(withDeadline(t), db, query)
		if err != nil || info.Outcome != sqlherd.Miss {
			t.Fatalf("%v (%v %s), %v", info.Outcome, info.Reason, info.Detail, err)
		}
		for range 3 {
			wantText(t, db, first, sqlherd.Hit, query)
		}
	})
}

// A sessionChange makes one connection see something else than all others.
type sessionChange struct {
	statements []string
	query      string // without its SELECT
	want       string // on the changed connection
	reason     sqlherd.Reason
	byQuery    bool // send them through Query
}

func TestAConnectionWithASessionOfItsOwnBypassesAndNobodyElseIsAffected(t *testing.T) {
	const who, same = "v FROM who", "here"
	changes := map[dbtest.Engine][]sessionChange{
		dbtest.EnginePostgres: {
			{[]string{"SET search_path TO other"}, who, "there", sqlherd.ReasonSession, false},
			{[]string{"set  session\nsearch_path=other , public"}, who, "there", sqlherd.ReasonSession, false},
			{[]string{"/* x */ SeT search_path = 'other' -- y"}, who, "there", sqlherd.ReasonSession, true},
			{[]string{"SELECT set_config('search_path', 'other', false)"}, who, "there", sqlherd.ReasonSession, true},
			{[]string{"SELECT pg_catalog . set_config('search_path', 'other', false) FROM who"}, who, "there", sqlherd.ReasonSession, true},
			{[]string{"DO $$ BEGIN SET search_path TO other; END $$"}, who, "there", sqlherd.ReasonSession, false},
			{[]string{"SET ROLE ROLENAME"}, "v FROM me", "ROLENAME", sqlherd.ReasonSession, false},
			{[]string{"SET SESSION AUTHORIZATION ROLENAME"}, "v FROM me", "ROLENAME", sqlherd.ReasonSession, false},
			{[]string{"SET TIME ZONE 'Asia/Kathmandu'"}, "at::text AS v FROM times", "2024-07-01 17:45:00+05:45", sqlherd.ReasonSession, false},
			{[]string{"SET timezone = 'Asia/Kathmandu'"}, "at::text AS v FROM times", "2024-07-01 17:45:00+05:45", sqlherd.ReasonSession, true},
			{[]string{"CREATE TEMP TABLE who (v text)", "INSERT INTO who VALUES ('mine')"}, who, "mine", sqlherd.ReasonSession, false},
			{[]string{"BEGIN", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, false},
			{[]string{"start transaction", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, true},
			{[]string{"/* a */ bEgIn ISOLATION LEVEL SERIALIZABLE", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, false},
		},
		dbtest.EngineMariaDB: {
			{[]string{"SET time_zone = '+05:45'"}, "CAST(at AS CHAR) AS v FROM times", "2024-07-01 17:45:00", sqlherd.ReasonSession, false},
			{[]string{"set @@session.time_zone='+05:45'"}, "CAST(at AS CHAR) AS v FROM times", "2024-07-01 17:45:00", sqlherd.ReasonSession, false},
			{[]string{"USE OTHERDB"}, who, "there", sqlherd.ReasonSession, false},
			{[]string{"uSe `OTHERDB`"}, who, "there", sqlherd.ReasonSession, true},
			{[]string{"SET sql_mode = 'ANSI_QUOTES'"}, `"v" AS v FROM who`, same, sqlherd.ReasonSession, false},
			{[]string{"CREATE TEMPORARY TABLE who (v VARCHAR(10))", "INSERT INTO who VALUES ('mine')"}, who, "mine", sqlherd.ReasonSession, false},
			{[]string{"SET autocommit = 0", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonSession, false},
			{[]string{"BEGIN", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, false},
			{[]string{"/*! START TRANSACTION */", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonSession, false},
			{[]string{"start  transaction with consistent snapshot", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, true},
		},
		dbtest.EngineSQLite: {
			{[]string{"PRAGMA case_sensitive_like = ON"}, "CASE WHEN 'A' LIKE 'a' THEN 'same' ELSE 'different' END AS v FROM who", "different", sqlherd.ReasonSession, false},
			{[]string{"pragma case_sensitive_like(1)"}, "CASE WHEN 'A' LIKE 'a' THEN 'same' ELSE 'different' END AS v FROM who", "different", sqlherd.ReasonSession, true},
			{[]string{"CREATE TEMP TABLE who (v text)", "INSERT INTO who VALUES ('mine')"}, who, "mine", sqlherd.ReasonSession, false},
			{[]string{"ATTACH ':memory:' AS elsewhere", "CREATE TABLE elsewhere.only (v text)", "INSERT INTO elsewhere.only VALUES ('mine')"}, "v FROM elsewhere.only", "mine", sqlherd.ReasonSession, false},
			{[]string{"BEGIN IMMEDIATE", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonTx, false},
			{[]string{"SAVEPOINT s", "UPDATE who SET v = 'mine'"}, who, "mine", sqlherd.ReasonSession, false},
		},
	}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE who (v VARCHAR(10) NOT NULL)", "INSERT INTO who VALUES ('here')")
		names := map[string]string{}
		switch d.Engine {
		case dbtest.EnginePostgres:
			role := d.WithUser(t, "secret")
			var name string
			if err := role.Open(t).QueryRow("SELECT current_user").Scan(&name); err != nil {
				t.Fatal(err)
			}
			names["ROLENAME"] = name
			d.Exec(t, "CREATE SCHEMA other", "CREATE TABLE other.who (v text)", "INSERT INTO other.who VALUES ('there')",
				"CREATE VIEW me AS SELECT current_user::text AS v", "CREATE TABLE times (at timestamptz)", "INSERT INTO times VALUES ('2024-07-01 12:00Z')")
			d = d.WithParams("TimeZone=UTC")
		case dbtest.EngineMariaDB:
			other := dbtest.MariaDB(t)
			other.Exec(t, "CREATE TABLE who (v VARCHAR(10))", "INSERT INTO who VALUES ('there')")
			var name string
			if err := other.Open(t).QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			names["OTHERDB"] = name
			d = d.WithParams("time_zone=%27%2B00%3A00%27")
			d.Exec(t, "CREATE TABLE times (at TIMESTAMP)", "INSERT INTO times VALUES ('2024-07-01 12:00:00')")
		}
		named := func(s string) string {
			for from, to := range names {
				s = strings.ReplaceAll(s, from, to)
			}
			return s
		}
		rdb, ns := dbtest.Redis(t)
		h := newHerd(t, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		for _, c := range changes[d.Engine] {
			t.Run(fmt.Sprint(c.statements), func(t *testing.T) {
				db := open(t, h, d)
				query := "SELECT /* @cache ttl=10m */ " + c.query
				outside, _, err := text(withDeadline(t), db, query)
				if err != nil && d.Engine != dbtest.EngineSQLite { // without ATTACH there is no such table
					t.Fatal(err)
				}
				exists := err == nil
				if exists {
					wantText(t, db, outside, sqlherd.Hit, query)
				}
				mine := conn(t, db)
				if exists {
					wantText(t, mine, outside, sqlherd.Hit, query)
				}
				for _, s := range c.statements {
					s = named(s)
					if !c.byQuery {
						mustExec(t, mine, s)
						continue
					}
					rows, err := mine.QueryContext(withDeadline(t), s)
					if err != nil {
						t.Fatalf("%s: %v", s, err)
					}
					for rows.Next() {
					}
					if err := rows.Err(); err != nil {
						t.Fatalf("%s: %v", s, err)
					}
					rows.Close()
				}
				for range 2 {
					info := wantText(t, mine, named(c.want), sqlherd.Bypassed, query)
					if info.Reason != c.reason {
						t.Errorf("reason %v, want %v", info.Reason, c.reason)
					}
				}
				if exists {
					v, info, err := text(withDeadline(t), db, query)
					if err != nil || v != outside {
						t.Errorf("another connection reads %q (%v), %v; want %q", v, info.Outcome, err, outside)
					}
				}
				if c.want == "mine" && strings.HasPrefix(c.statements[1], "UPDATE") {
					mustExec(t, mine, "ROLLBACK")
					v, _, err := text(withDeadline(t), mine, query)
					if err != nil || v != outside {
						t.Errorf("after the rollback: %q, %v", v, err)
					}
				}
			})
		}
	})
}

func TestTransactionsAreInvisibleUntilTheyCommit(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		here, _ := openHerd(t, b.Database, cfg)
		there, th := openHerd(t, b.Database, cfg)
		await(t, "messages arrive", func() bool { return th.Stats().Redis.Subscribed })
		query := b.slow("ttl=10m", 0)
		wantText(t, here, "one", sqlherd.Miss, query, 1)
		wantText(t, there, "one", sqlherd.Hit, query, 1)

		write := func() *sql.Tx {
			tx, err := here.Begin()
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, tx, "UPDATE items SET v = 'changed' WHERE id = 1")
			info := wantText(t, tx, "changed", sqlherd.Bypassed, query, 1)
			if info.Reason != sqlherd.ReasonTx {
				t.Errorf("inside: %v", info.Reason)
			}
			wantText(t, here, "one", sqlherd.Hit, query, 1)
			wantText(t, there, "one", sqlherd.Hit, query, 1)
			return tx
		}
		if err := write().Rollback(); err != nil {
			t.Fatal(err)
		}
		wantText(t, here, "one", sqlherd.Hit, query, 1)
		wantText(t, there, "one", sqlherd.Hit, query, 1)

		if err := write().Commit(); err != nil {
			t.Fatal(err)
		}
		wantText(t, here, "changed", sqlherd.Miss, query, 1)
		await(t, "the other process has heard of it", func() bool { return th.Stats().InvalidationsHeard > 0 })
		wantText(t, there, "changed", sqlherd.Hit, query, 1)
	})
}

func TestABatchOfWritesInOneAutocommitStatementIsSeenByTheNextRead(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		query := b.slow("ttl=10m", 0)
		update := fmt.Sprintf("UPDATE items SET v = %s WHERE id = %s", placeholder(d.Engine, 1), placeholder(d.Engine, 2))
		for i := range 5 {
			want := fmt.Sprint("version ", i)
			if _, err := db.Exec(update, want, 1); err != nil {
				t.Fatal(err)
			}
			wantText(t, db, want, sqlherd.Miss, query, 1)
			wantText(t, db, want, sqlherd.Hit, query, 1)
		}
	})
}
