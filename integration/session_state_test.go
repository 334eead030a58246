package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A sessionCase is what one connection does to its session, and a query whose rows tell whether it has: each is run on a
// bare connection and on a wrapped one, which must read the same rows.
//
// In statements and probe, ROLENAME is a role that owns the schema of its name, and OTHERDB another database.
type sessionCase struct {
	statements []string
	probe      string         // without its SELECT
	reason     sqlherd.Reason // of the bypass; ReasonNone: the session is the DSN's again, and the cache may answer
}

const (
	byNothing = sqlherd.ReasonNone
	bySession = sqlherd.ReasonSession
	byTx      = sqlherd.ReasonTx
)

var sessionCases = map[dbtest.Engine][]sessionCase{
	dbtest.EnginePostgres: {
		// Who asks.
		{[]string{"SET ROLE ROLENAME"}, "v FROM me", bySession},
		{[]string{"SET SESSION ROLE ROLENAME"}, "v FROM me", bySession},
		{[]string{"SET ROLE = ROLENAME"}, "v FROM me", bySession},
		{[]string{"SET SESSION AUTHORIZATION ROLENAME"}, "v FROM me", bySession},
		{[]string{"SET ROLE ROLENAME", "RESET ROLE"}, "v FROM me", bySession},
		{[]string{"SET SESSION AUTHORIZATION ROLENAME", "RESET SESSION AUTHORIZATION"}, "v FROM me", bySession},
		{[]string{"SELECT set_config ( 'role' , 'ROLENAME' , false )"}, "v FROM me", bySession},
		{[]string{"SET LOCAL ROLE ROLENAME"}, "v FROM me", byNothing}, // a warning, outside of a transaction
		{[]string{"BEGIN", "SET LOCAL ROLE ROLENAME"}, "v FROM me", byTx},
		{[]string{"BEGIN", "SET LOCAL ROLE ROLENAME", "COMMIT"}, "v FROM me", byNothing},
		{[]string{"BEGIN", "SET LOCAL ROLE ROLENAME", "ROLLBACK"}, "v FROM me", byNothing},
		{[]string{"BEGIN", "SET LOCAL ROLE ROLENAME", "ROLLBACK AND CHAIN"}, "v FROM me", byTx},
		{[]string{"BEGIN", "SAVEPOINT s", "SET LOCAL ROLE ROLENAME", "ROLLBACK TO s"}, "v FROM me", byTx},
		{[]string{"BEGIN", "SET ROLE ROLENAME", "COMMIT"}, "v FROM me", bySession},
		{[]string{"BEGIN", "SET ROLE ROLENAME", "ROLLBACK"}, "v FROM me", bySession},
		// Which table a name means. "$user" is the first of the default path.
		{[]string{"SET ROLE ROLENAME"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other"}, "v FROM who", bySession},
		{[]string{"SET search_path = other , public"}, "v FROM who", bySession},
		{[]string{`SET search_path TO "$user", public`, "SET ROLE ROLENAME"}, "v FROM who", bySession},
		{[]string{"SET SCHEMA 'other'"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other", "RESET search_path"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other", "SET search_path TO DEFAULT"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other", "RESET ALL"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other", "DISCARD ALL"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other", "SET search_path TO public"}, "v FROM who", bySession},
		{[]string{"BEGIN", "SET LOCAL search_path TO other"}, "v FROM who", byTx},
		{[]string{"BEGIN", "SET LOCAL search_path TO other", "COMMIT"}, "v FROM who", byNothing},
		{[]string{"SELECT set_config ( 'search_path' , 'other' , true )"}, "v FROM who", byNothing},
		{[]string{"SELECT pg_catalog . set_config ( 'search_path' , 'other' , false ) FROM who"}, "v FROM who", bySession},
		{[]string{"WITH x AS ( SELECT set_config ( 'search_path' , 'other' , false ) AS c ) SELECT c FROM x"}, "v FROM who", bySession},
		{[]string{"SELECT * FROM set_config ( 'search_path' , 'other' , false )"}, "v FROM who", bySession},
		{[]string{"SELECT v FROM who WHERE set_config ( 'search_path' , 'other' , v IS NULL ) <> ''"}, "v FROM who", bySession},
		{[]string{"UPDATE scratch SET v = set_config ( 'search_path' , 'other' , false )"}, "v FROM who", bySession},
		{[]string{"INSERT INTO scratch VALUES ( set_config ( 'search_path' , 'other' , false ) ) RETURNING v"}, "v FROM who", bySession},
		{[]string{"EXPLAIN ANALYZE SELECT set_config ( 'search_path' , 'other' , false )"}, "v FROM who", bySession},
		{[]string{"COPY ( SELECT set_config ( 'search_path' , 'other' , false ) ) TO '/dev/null'"}, "v FROM who", bySession},
		{[]string{"SELECT query_to_xml ( 'SELECT set_config(''search_path'', ''other'', false)' , true , true , '' )"}, "v FROM who", bySession},
		{[]string{"SELECT ts_rewrite ( 'a'::tsquery , 'SELECT ''a''::tsquery, set_config(''search_path'', ''other'', false)::tsquery FROM who' ) FROM who"}, "v FROM who", bySession},
		{[]string{"SELECT move_to ( 'other' )"}, "v FROM who", bySession},
		{[]string{"SELECT set_place ( 'other' ) FROM who"}, "v FROM who", bySession},
		{[]string{"CALL go_to ( 'other' )"}, "v FROM who", bySession},
		{[]string{"DO 'BEGIN SET search_path TO other; END'"}, "v FROM who", bySession},
		{[]string{"PREPARE p AS SELECT set_config ( 'search_path' , 'other' , false )", "EXECUTE p"}, "v FROM who", bySession},
		{[]string{"SET search_path TO other ; SELECT 1"}, "v FROM who", bySession},
		{[]string{"BEGIN ; SET LOCAL search_path TO other ; COMMIT"}, "v FROM who", byNothing},
		{[]string{"CREATE TEMP TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE LOCAL TEMPORARY TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TABLE pg_temp . who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP VIEW who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP SEQUENCE who"}, "last_value FROM who", bySession},
		{[]string{"CREATE SEQUENCE pg_temp . who"}, "last_value FROM who", bySession},
		{[]string{"CREATE DOMAIN pg_temp . place AS text CHECK ( value <> 'here' )"}, "v :: place FROM who", bySession},
		{[]string{"SELECT 'mine' AS v INTO TEMP who"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP TABLE who AS SELECT 'mine' AS v", "DISCARD TEMP"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP TABLE mine AS SELECT 'mine' AS v", "ALTER TABLE mine RENAME TO who"}, "v FROM who", bySession},
		// What rows look like.
		{[]string{"SET TIME ZONE 'Asia/Kathmandu'"}, "at :: text FROM times", bySession},
		{[]string{"SET timezone TO 'Asia/Kathmandu'"}, "at :: text FROM times", bySession},
		{[]string{"SET TIME ZONE INTERVAL '+05:45' HOUR TO MINUTE"}, "at :: text FROM times", bySession},
		{[]string{"SET datestyle TO 'German'"}, "at :: date :: text FROM times", bySession},
		{[]string{"SET intervalstyle TO 'iso_8601'"}, "( at - '2024-01-01' ) :: text FROM times", bySession},
		{[]string{"SET bytea_output TO 'escape'"}, "'abc' :: bytea :: text FROM who", bySession},
		{[]string{"SET extra_float_digits TO 0"}, "( 0.1 :: float8 + 0.2 ) :: text FROM who", bySession},
		{[]string{"SET standard_conforming_strings TO off"}, `'a\\b' FROM who`, bySession},
		{[]string{"SET NAMES 'SQL_ASCII'"}, "'é' FROM who", bySession},
		{[]string{"SET client_encoding TO 'SQL_ASCII'"}, "'é' FROM who", bySession},
		{[]string{"SET xmloption TO document"}, "'<a/>' :: xml :: text FROM who", bySession},
		{[]string{"SET transform_null_equals TO on"}, "v FROM who WHERE ( 1 = NULL ) IS NULL", bySession},
		{[]string{"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"}, "v FROM who", bySession},
		// What else belongs to a session.
		{[]string{"LISTEN x"}, "v FROM who", bySession},
		{[]string{"DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH 1 FROM c"}, "v FROM who", bySession},
		{[]string{"SET x.y TO 'z'"}, "v FROM who", bySession},
		// Transactions.
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"START TRANSACTION", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"START TRANSACTION READ ONLY", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx}, // aborted
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "SAVEPOINT s", "UPDATE who SET v = 'more'", "ROLLBACK TO SAVEPOINT s"}, "v FROM who", byTx},
		{[]string{"BEGIN", "SAVEPOINT s", "UPDATE who SET v = 'mine'", "RELEASE s"}, "v FROM who", byTx},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "ROLLBACK"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "ABORT"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "UPDATE scratch SET v = 'mine'", "END"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "UPDATE scratch SET v = 'mine'", "COMMIT AND CHAIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN", "ROLLBACK AND CHAIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN", "UPDATE scratch SET v = 'mine'", "PREPARE TRANSACTION 'x'"}, "v FROM who", bySession},
		{[]string{"COMMIT"}, "v FROM who", byNothing}, // a warning
	},
	dbtest.EngineMariaDB: {
		// Which table a name means.
		{[]string{"USE OTHERDB"}, "v FROM who", bySession},
		{[]string{"USE `OTHERDB`"}, "v FROM who", bySession},
		{[]string{"CREATE TEMPORARY TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE OR REPLACE TEMPORARY TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMPORARY TABLE mine AS SELECT 'mine' AS v", "ALTER TABLE mine RENAME TO who"}, "v FROM who", bySession},
		{[]string{"CREATE TEMPORARY TABLE who AS SELECT 'mine' AS v", "DROP TEMPORARY TABLE who"}, "v FROM who", bySession},
		// What rows look like.
		{[]string{"SET time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET SESSION time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET LOCAL time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET @@session.time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET @@time_zone := '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET @x = '+05:45', time_zone = @x"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET timestamp = 0, time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET time_zone = '+05:45'", "SET time_zone = DEFAULT"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET STATEMENT time_zone = '+05:45' FOR SELECT 1"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET sql_mode = 'ANSI_QUOTES'"}, `"v" FROM who`, bySession},
		{[]string{"SET sql_mode = 'PIPES_AS_CONCAT'"}, "'a' || 'b' FROM who", bySession},
		{[]string{"SET sql_mode = 'NO_BACKSLASH_ESCAPES'"}, `'a\\b' FROM who`, bySession},
		{[]string{"SET NAMES latin1"}, "'é' FROM who", bySession},
		{[]string{"SET NAMES utf8mb4 COLLATE utf8mb4_bin"}, "IF('a' = 'A', 'same', 'different') FROM who", bySession},
		{[]string{"SET CHARACTER SET latin1"}, "'é' FROM who", bySession},
		{[]string{"SET collation_connection = 'utf8mb4_bin'"}, "IF('a' = 'A', 'same', 'different') FROM who", bySession},
		{[]string{"SET character_set_results = latin1"}, "'é' FROM who", bySession},
		{[]string{"SET group_concat_max_len = 4"}, "GROUP_CONCAT('abcdefgh') FROM who", bySession},
		{[]string{"SET div_precision_increment = 8"}, "CAST(1 / 3 AS CHAR) FROM who", bySession},
		{[]string{"SET lc_time_names = 'de_DE'"}, "DATE_FORMAT(at, '%M') FROM times", bySession},
		{[]string{"SET default_week_format = 3"}, "CAST(WEEK(at) AS CHAR) FROM times", bySession},
		{[]string{"SET sql_select_limit = 0"}, "v FROM who", bySession},
		{[]string{"SET max_sort_length = 64"}, "v FROM who", bySession},
		// Roundabout ways.
		{[]string{"PREPARE p FROM 'SET time_zone = ''+05:45'''", "EXECUTE p"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"EXECUTE IMMEDIATE 'SET time_zone = ''+05:45'''"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"CALL go_east ( )"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SELECT move_east ( )"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"DO move_east ( )"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SELECT set_east ( ) FROM who"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"BEGIN NOT ATOMIC SET time_zone = '+05:45' ; END"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"IF 1 THEN SET time_zone = '+05:45' ; END IF"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"/*! SET time_zone = '+05:45' */"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"/*M!100100 SET time_zone = '+05:45' */"}, "CAST(at AS CHAR) FROM times", bySession},
		{[]string{"SET /*! SESSION */ time_zone = '+05:45'"}, "CAST(at AS CHAR) FROM times", bySession},
		// What else belongs to a session.
		{[]string{"SET ROLE NONE"}, "v FROM who", bySession},
		{[]string{"SET @x = 1"}, "v FROM who", bySession},
		{[]string{"LOCK TABLES who READ"}, "v FROM who", bySession},
		{[]string{"LOCK TABLES scratch READ"}, "v FROM who", bySession}, // an error, as who is not locked
		{[]string{"HANDLER who OPEN"}, "v FROM who", bySession},
		{[]string{"SET SESSION TRANSACTION READ ONLY"}, "v FROM who", bySession},
		{[]string{"SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"}, "v FROM who", bySession},
		// Transactions.
		{[]string{"SET autocommit = 0", "UPDATE who SET v = 'mine'"}, "v FROM who", bySession},
		{[]string{"SET @@session.autocommit = OFF", "UPDATE who SET v = 'mine'"}, "v FROM who", bySession},
		{[]string{"SET autocommit = 0", "UPDATE who SET v = 'mine'", "ROLLBACK"}, "v FROM who", bySession},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN WORK", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"START TRANSACTION", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"START TRANSACTION READ ONLY", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx}, // refused
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "SAVEPOINT s", "UPDATE who SET v = 'more'", "ROLLBACK TO SAVEPOINT s"}, "v FROM who", byTx},
		{[]string{"BEGIN", "SAVEPOINT s", "UPDATE who SET v = 'mine'", "RELEASE SAVEPOINT s"}, "v FROM who", byTx},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "ROLLBACK"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "UPDATE scratch SET v = 'mine'", "COMMIT AND CHAIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN", "ROLLBACK AND CHAIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"SET completion_type = 1", "BEGIN", "COMMIT", "UPDATE who SET v = 'mine'"}, "v FROM who", bySession},
		{[]string{"XA START 'OTHERDB'", "UPDATE who SET v = 'mine'"}, "v FROM who", bySession},
	},
	dbtest.EngineSQLite: {
		{[]string{"PRAGMA case_sensitive_like = ON"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"PRAGMA case_sensitive_like ( 1 )"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"PRAGMA main . case_sensitive_like = 1"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"EXPLAIN PRAGMA case_sensitive_like = 1"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"EXPLAIN QUERY PLAN PRAGMA case_sensitive_like = 1"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"PRAGMA case_sensitive_like = 1", "PRAGMA case_sensitive_like = 0"}, "iif('A' LIKE 'a', 'same', 'different') FROM who", bySession},
		{[]string{"PRAGMA reverse_unordered_selects = ON"}, "v FROM scratch", bySession},
		{[]string{"PRAGMA read_uncommitted = 1"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMPORARY TABLE who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TABLE temp . who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{`CREATE TABLE "temp" . who AS SELECT 'mine' AS v`}, "v FROM who", bySession},
		{[]string{"CREATE TABLE 'temp' . who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TABLE [temp].who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP VIEW who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE VIEW temp . who AS SELECT 'mine' AS v"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP TABLE mine AS SELECT 'mine' AS v", "ALTER TABLE mine RENAME TO who"}, "v FROM who", bySession},
		{[]string{"CREATE TEMP TABLE who AS SELECT 'mine' AS v", "DROP TABLE temp.who"}, "v FROM who", bySession},
		{[]string{"ATTACH ':memory:' AS elsewhere", "CREATE TABLE elsewhere.only AS SELECT 'mine' AS v"}, "v FROM only", bySession},
		{[]string{"ATTACH DATABASE ':memory:' AS elsewhere", "DETACH DATABASE elsewhere"}, "v FROM who", bySession},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN IMMEDIATE", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN EXCLUSIVE TRANSACTION", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN DEFERRED", "UPDATE who SET v = 'mine'"}, "v FROM who", byTx},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "SAVEPOINT s", "UPDATE who SET v = 'more'", "ROLLBACK TO s"}, "v FROM who", byTx},
		{[]string{"BEGIN", "UPDATE who SET v = 'mine'", "ROLLBACK"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "INSERT INTO scratch VALUES ( 'x' )", "END"}, "v FROM who", byNothing},
		{[]string{"BEGIN", "INSERT INTO scratch VALUES ( 'x' )", "COMMIT TRANSACTION"}, "v FROM who", byNothing},
		{[]string{"SAVEPOINT s", "UPDATE who SET v = 'mine'"}, "v FROM who", bySession},
		{[]string{"SAVEPOINT s", "UPDATE who SET v = 'mine'", "ROLLBACK TO s"}, "v FROM who", bySession},
	},
}

// sessionBed makes what the cases speak of. The names are what stands for ROLENAME and OTHERDB.
func sessionBed(t *testing.T, d dbtest.Database) (dbtest.Database, *strings.Replacer) {
	t.Helper()
	d.Exec(t, "CREATE TABLE who (v VARCHAR(10) NOT NULL)", "INSERT INTO who VALUES ('here')",
		"CREATE TABLE scratch (v VARCHAR(10))", "INSERT INTO scratch VALUES ('first'), ('last')")
	switch d.Engine {
	case dbtest.EnginePostgres:
		var role string
		if err := d.WithUser(t, "secret").Open(t).QueryRow("SELECT current_user").Scan(&role); err != nil {
			t.Fatal(err)
		}
		for _, schema := range []string{"other", role} {
			d.Exec(t, "CREATE SCHEMA "+schema, fmt.Sprintf("CREATE TABLE %s.who AS SELECT '%.10s' AS v", schema, schema))
		}
		d.Exec(t, "CREATE VIEW me AS SELECT current_user::text AS v", "CREATE TABLE times AS SELECT timestamptz '2024-07-01 12:00Z' AS at",
			"CREATE DOMAIN place AS text",
			"CREATE FUNCTION move_to(text) RETURNS text LANGUAGE sql AS $$SELECT set_config('search_path', $1, false)$$",
			"CREATE FUNCTION set_place(text) RETURNS text LANGUAGE sql AS $$SELECT set_config('search_path', $1, false)$$",
			"CREATE PROCEDURE go_to(text) LANGUAGE sql AS $$SELECT set_config('search_path', $1, false)$$")
		return d.WithParams("TimeZone=UTC"), strings.NewReplacer("ROLENAME", role)
	case dbtest.EngineMariaDB:
		other := dbtest.MariaDB(t)
		other.Exec(t, "CREATE TABLE who AS SELECT 'there' AS v")
		var name string
		if err := other.Open(t).QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		d = d.WithParams("time_zone=%27%2B00%3A00%27", "multiStatements=true")
		d.Exec(t, "CREATE TABLE times (at TIMESTAMP)", "INSERT INTO times VALUES ('2024-01-04 20:00:00')",
			"CREATE PROCEDURE go_east() SET time_zone = '+05:45'")
		for _, f := range []string{"move_east", "set_east"} {
			d.Exec(t, "CREATE FUNCTION "+f+"() RETURNS INT BEGIN SET time_zone = '+05:45'; RETURN 1; END")
		}
		return d, strings.NewReplacer("OTHERDB", name)
	}
	return d, strings.NewReplacer()
}

// A delivery is a way to have a statement run.
type delivery struct {
	name string
	run  func(ctx context.Context, c *sql.Conn, statement string) error
}

var deliveries = []delivery{
	{"exec", func(ctx context.Context, c *sql.Conn, s string) error {
		_, err := c.ExecContext(ctx, s)
		return err
	}},
	{"query", func(ctx context.Context, c *sql.Conn, s string) error {
		rows, err := c.QueryContext(ctx, s)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}},
	{"prepared", func(ctx context.Context, c *sql.Conn, s string) error {
		st, err := c.PrepareContext(ctx, s)
		if err != nil {
			return err
		}
		defer st.Close()
		rows, err := st.QueryContext(ctx)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}},
	{"prepared and not run", func(ctx context.Context, c *sql.Conn, s string) error {
		st, err := c.PrepareContext(ctx, s)
		if err != nil {
			return err
		}
		return st.Close()
	}},
}

// ran is what came of running a case on one connection.
type ran struct {
	errs []string // of the statements; "" where there was none
	v    string   // the probe's first value, or its error
}

func (r ran) accepted() bool { return strings.Join(r.errs, "") == "" }

func (c sessionCase) run(ctx context.Context, conn *sql.Conn, how delivery, statements []string) ran {
	r := ran{}
	for _, s := range statements {
		err := said(how.run(ctx, conn, s))
		r.errs = append(r.errs, err)
		if err != "" {
			break // or, after a BEGIN that was refused, the rest would be everybody's
		}
	}
	return r
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func peek(ctx context.Context, q querier, query string) (string, sqlherd.Info) {
	v, info, err := text(ctx, q, query)
	if err != nil {
		return "error: " + err.Error(), info
	}
	return v, info
}

// A mirror runs cases on a bare and on a wrapped database, and compares.
type mirror struct {
	d     dbtest.Database
	herd  *sqlherd.Herd
	db    *sql.DB // wrapped
	bare  *sql.DB
	names *strings.Replacer

	outside map[string]string // what probes read on a fresh connection

	changed int // sessions in which the bare driver read other rows than outside
	taken   int // spellings that the server took
}

func newMirror(t *testing.T, d dbtest.Database) *mirror {
	rdb, ns := dbtest.Redis(t)
	m := &mirror{outside: map[string]string{}}
	m.d, m.names = sessionBed(t, d)
	m.bare = m.d.Open(t)
	m.db, m.herd = openHerd(t, m.d, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
	return m
}

// check runs statements in a session of their own, first bare and then wrapped.
func (m *mirror) check(t *testing.T, c sessionCase, how delivery, statements []string) {
	t.Helper()
	ctx := withDeadline(t)
	query := "SELECT /* @cache ttl=10m */ " + m.names.Replace(c.probe)

	// Every session is a connection of its own, and gone before the next one: what it leaves open would block it.
	alone := func(db *sql.DB, look func(*sql.Conn)) {
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		look(conn)
		db.SetMaxIdleConns(-1)
		conn.Close()
		db.SetMaxIdleConns(1000)
	}
	outside, known := m.outside[query]
	if !known {
		alone(m.bare, func(conn *sql.Conn) { outside, _ = peek(ctx, conn, query) })
		m.outside[query] = outside
	}
	var want ran
	alone(m.bare, func(conn *sql.Conn) {
		want = c.run(ctx, conn, how, statements)
		want.v, _ = peek(ctx, conn, query)
	})
	if want.v != outside {
		m.changed++
	}
	if want.accepted() {
		m.taken++
	}

	elsewhere := func(when string) {
		if v, info := peek(ctx, m.db, query); v != outside || info.Outcome == sqlherd.Bypassed {
			t.Errorf("%q, %s: another connection %s reads %q (%v %v), want %q", statements, how.name, when, v, info.Outcome, info.Reason, outside)
		}
	}
	elsewhere("before")
	alone(m.db, func(conn *sql.Conn) {
		got := c.run(ctx, conn, how, statements)
		if fmt.Sprint(got.errs) != fmt.Sprint(want.errs) {
			t.Errorf("%q, %s: errors\n%q, and bare\n%q", statements, how.name, got.errs, want.errs)
		}
		for range 2 {
			var info sqlherd.Info
			got.v, info = peek(ctx, conn, query)
			if got.v != want.v {
				t.Errorf("%q, %s: then reads %q (%v %v %s), and bare %q", statements, how.name, got.v, info.Outcome, info.Reason, info.Detail, want.v)
			}
			ok := info.Outcome == sqlherd.Bypassed && (info.Reason == c.reason || info.Reason == bySession) ||
				c.reason == byNothing && (info.Outcome == sqlherd.Hit || info.Outcome == sqlherd.Miss)
			if want.v == outside && (!want.accepted() || how.name == "prepared and not run") {
				ok = true // nothing has changed; on doubt a bypass
			}
			if !ok && !strings.HasPrefix(want.v, "error") {
				t.Errorf("%q, %s: then %v (%v %s), want a bypass (%v)", statements, how.name, info.Outcome, info.Reason, info.Detail, c.reason)
			}
		}
	})
	elsewhere("after")
}

func TestASessionReadsWhatTheBareDriverReadsWhateverItsStateAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		m := newMirror(t, d)
		cases := sessionCases[d.Engine]
		for i, how := range deliveries {
			t.Run(how.name, func(t *testing.T) {
				for j, c := range cases {
					if raceEnabled && (i+j)%len(deliveries) != 0 {
						continue // each case is delivered in one way then
					}
					statements := make([]string, len(c.statements))
					for i, s := range c.statements {
						statements[i] = m.names.Replace(s)
					}
					m.check(t, c, how, statements)
				}
			})
		}
		t.Logf("%d sessions in which the bare driver reads something else", m.changed)
		if least := len(cases) / 3; m.changed < least {
			t.Errorf("only %d, of %d cases: the probes do not show what the statements do", m.changed, len(cases))
		}
	})
}

func TestNoSpellingThatTheServerTakesHidesAChangeOfTheSession(t *testing.T) {
	t.Parallel()
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		m := newMirror(t, d)
		r := rand.New(rand.NewPCG(7, uint64(len(d.Name)))) // what fails once fails again
		tried := 0
		for range underRace(1, 1, 2) {
			for i, c := range sessionCases[d.Engine] {
				statements := make([]string, len(c.statements))
				for j, s := range c.statements {
					statements[j] = m.names.Replace(spelled(r, d.Engine, s))
				}
				tried++
				m.check(t, c, deliveries[(i+tried)%2], statements)
			}
		}
		t.Logf("%d of %d spellings were taken, and %d changed the session", m.taken, tried, m.changed)
		if m.taken < tried/2 || m.changed < tried/3 {
			t.Error("the server refuses too many for this to prove anything")
		}
	})
}

// spelled writes a statement in another way that the engine may take: case, comments, white space, quotes. What stands
// between quotes stays as it is.
func spelled(r *rand.Rand, e dbtest.Engine, s string) string {
	spaces := []string{" ", "\n", "\t", "\r\n", "\f", " /* it's */ ", "/**/", " -- \"x\n", " /* ; */\n-- ;\n", "/* SELECT 1 */"}
	switch e {
	case dbtest.EnginePostgres:
		spaces = append(spaces, " /* a /* nested */ one */ ", "--\n", " /*! nothing special */ ")
	case dbtest.EngineSQLite:
		spaces = append(spaces, "/* /* */")
	case dbtest.EngineMariaDB:
		spaces = append(spaces, "/* /* */", " # it's\n", " --\t'\n", "\v")
	}
	words := strings.Split(s, " ")
	quoted := false
	for i, w := range words {
		switch {
		case quoted || strings.ContainsAny(w, `'"[`+"`/"):
			if strings.Count(w, "'")%2 == 1 {
				quoted = !quoted
			}
		case e == dbtest.EnginePostgres && w == strings.ToLower(w) && isName(w) && r.IntN(3) == 0:
			words[i] = `"` + w + `"`
			if r.IntN(3) == 0 { // U&"who" with one letter by its number
				words[i] = fmt.Sprintf(`U&"\%04x%s"`, w[0], w[1:])
			}
		case e == dbtest.EnginePostgres && w == "=" && i > 1 && strings.EqualFold(words[0], "set") && r.IntN(2) == 0:
			words[i] = "TO"
		case e != dbtest.EnginePostgres && isName(w) && w == strings.ToLower(w) && r.IntN(3) == 0:
			words[i] = "`" + w + "`"
		case e == dbtest.EngineMariaDB && w == strings.ToUpper(w) && isName(w) && r.IntN(4) == 0:
			words[i] = []string{"/*!" + w + "*/", "/*!50000 " + w + " */", "/*M! " + w + "*/"}[r.IntN(3)]
		case e == dbtest.EngineMariaDB && strings.ToLower(w) == "otherdb":
		case strings.Contains(w, "ROLENAME"), strings.Contains(w, "OTHERDB"):
		default:
			words[i] = anyCase(r, w)
		}
	}
	var b strings.Builder
	if r.IntN(3) == 0 {
		b.WriteString(spaces[r.IntN(len(spaces))])
	}
	quoted = false
	for i, w := range words {
		if i > 0 {
			if quoted {
				b.WriteByte(' ')
			} else {
				b.WriteString(spaces[r.IntN(len(spaces))])
			}
		}
		b.WriteString(w)
		if strings.Count(w, "'")%2 == 1 {
			quoted = !quoted
		}
	}
	b.WriteString([]string{"", "", ";", " ;", " ; -- x", "\n-- ;", ";;"}[r.IntN(7)])
	return b.String()
}

func isName(w string) bool {
	for _, c := range w {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return w != ""
}

func anyCase(r *rand.Rand, w string) string {
	b := []byte(w)
	for i, c := range b {
		if r.IntN(2) == 0 && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			b[i] ^= 0x20
		}
	}
	return string(b)
}
