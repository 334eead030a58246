package integration_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// postgresProbes are the types of PostgreSQL and what is odd about each. The database has what
// makePostgresTypes makes.
func postgresProbes(v variant) []probe {
	probes := exprs(
		"NULL", "NULL::int", "NULL::text", "NULL::bytea", "NULL::timestamptz", "NULL::float8", "NULL::numeric", "NULL::int[]", "NULL::jsonb",
		"true", "false", "NULL::bool",
		"(-32768)::int2", "32767::int2", "(-2147483648)::int4", "2147483647::int4",
		"(-9223372036854775808)::int8", "9223372036854775807::int8", "9007199254740993::int8", "0::int8",
		"1.1::float4", "'NaN'::float4", "'Infinity'::float4", "'-0'::float4", "3.4028235e38::float4", "1.4e-45::float4",
		"0.1::float8", "'NaN'::float8", "'Infinity'::float8", "'-Infinity'::float8", "'-0'::float8", "1.7976931348623157e308::float8", "5e-324::float8", "1::float8",
		"'NaN'::numeric", "'Infinity'::numeric", "'-Infinity'::numeric", "1234567890123456789012345678901234567890.0123456789::numeric",
		"(-1234567890123456789012345678901234567890)::numeric", "0.10::numeric", "1::numeric(10,2)", "0::numeric", "1e100::numeric", "'$1234.50'::money",
		"''", "''::text", "'a'", "'0012'", "'1e5'", `E'tab\t newline\n quote'' backslash\\'`, "'žluťoučký 馬 🐎'", "repeat('x', 1048576)",
		"'ab'::varchar(5)", "'ab'::char(5)", "''::char(3)", "'ab'::name", `'a'::"char"`, "'ab'::bpchar",
		"''::bytea", `'\x00ff'::bytea`, "decode(repeat('00ff', 524288), 'hex')",
		"'2024-02-29'::date", "'0001-01-01'::date", "'9999-12-31'::date", "'12345-01-01'::date", "'0044-03-15 BC'::date",
		"'00:00'::time", "'24:00'::time", "'12:34:56.123456'::time", "'12:34:56+05:45'::timetz", "'00:00:00-12'::timetz",
		"'2024-07-01 12:00'::timestamp", "'0001-01-01 00:00'::timestamp", "'9999-12-31 23:59:59.999999'::timestamp", "'0044-03-15 BC'::timestamp",
		"'2024-07-01 12:00+02'::timestamptz", "'2024-01-01 12:00+05:45'::timestamptz", "'1883-11-18 12:00Z'::timestamptz", "'0001-01-02 00:00Z'::timestamptz",
		"'9999-12-30 23:59:59.999999Z'::timestamptz", "'2024-10-27 01:30Z'::timestamptz",
		"'1 year 2 months 3 days 04:05:06.7'::interval", "'-1 month'::interval", "'0'::interval", "'178000000 years'::interval",
		"'6f1ed002-ab59-4f35-9d3c-1d6a2d0d2a3b'::uuid", "'00000000-0000-0000-0000-000000000000'::uuid",
		`'{"b":1,  "a":1.0, "n":1e2, "b":2}'::json`, `'{"b":1,  "a":1.0, "n":1e2}'::jsonb`, "'null'::json", "'null'::jsonb", `'"\u00e9"'::json`, "'12345678901234567890'::jsonb",
		"'192.168.0.1/24'::inet", "'::1'::inet", "'10.0.0.0/8'::cidr", "'08:00:2b:01:02:03'::macaddr", "'08:00:2b:01:02:03:04:05'::macaddr8",
		"B'101'", "B'101'::bit(5)", "B'1'::bit(1)", "B''::varbit", "B'1011'::varbit",
		"point(1,2)", "'{1,2,3}'::line", "'[(0,0),(1,1)]'::lseg", "'(1,1),(0,0)'::box", "'((0,0),(1,1))'::path", "'[(0,0),(1,1)]'::path", "'((0,0),(1,1),(1,0))'::polygon", "'<(0,0),1>'::circle",
		"'[1,10)'::int4range", "'empty'::int4range", "'(,)'::int8range", "'[0.5,1.5]'::numrange", "'[2024-01-01,2024-02-01)'::daterange", "'{[1,3),[5,7)}'::int4multirange",
		"'[2024-01-01 00:00+00,2024-02-01 00:00+00)'::tstzrange",
		"'{}'::int[]", "'{1,NULL,3}'::int[]", "'{{1,2},{3,4}}'::int[]", "'[0:1]={1,2}'::int[]", `'{"a b","c\"d",NULL,"NULL",""}'::text[]`, `ARRAY['\x00'::bytea, ''::bytea]`,
		"'{1.5,NaN}'::float8[]", "'{1.50,NULL}'::numeric[]", "'{t,f}'::bool[]", "ARRAY['2024-01-01 00:00+00'::timestamptz]", "ARRAY['6f1ed002-ab59-4f35-9d3c-1d6a2d0d2a3b'::uuid]",
		"'infinity'::date", "'-infinity'::timestamp", "'infinity'::timestamptz", "'-infinity'::timestamptz",
		"'NaN'::numeric(10,2)", "1e-40::numeric", "9223372036854775807::numeric", "18446744073709551615::numeric", "'<a>x</a>'::xml",
		"'$.a[*]'::jsonpath", "int4range(1, 10)::text", "ARRAY[point(1,2)]", "'{\"(1,x)\"}'::pair[]", "'[1,2]'::jsonb -> 0", "ARRAY[]::text[]", "ARRAY['{\"a\":1}'::jsonb]",
		"1::oid", "4294967295::oid", "'16/B374D848'::pg_lsn", "'a fat cat'::tsvector", "'fat & cat'::tsquery",
		"ROW(1, 'a', NULL)", "'happy'::mood", "'{happy,sad}'::mood[]", "7::positive", "ROW(1, 'x')::pair",
	)
	return append(probes,
		probe{query: `SELECT 1 AS a, 2 AS a, 'x' AS "?column?", NULL AS "a b", 1, 1`},
		probe{query: "SELECT 1 AS a WHERE false"},
		probe{query: "SELECT FROM generate_series(1, 3)"}, // no column
		probe{query: "SELECT g AS n, repeat(g::text, g) AS s, CASE WHEN g % 2 = 0 THEN g END AS even FROM generate_series(1, 50) AS g"},
		probe{query: "SELECT * FROM kinds ORDER BY id"},
		probe{query: "SELECT k.id, k2.id, k.label, k2.label FROM kinds k JOIN kinds k2 ON k.id = k2.id ORDER BY 1"},
		wide(1600),
		probe{query: "SELECT g AS n, md5(g::text) AS s, decode(md5(g::text), 'hex') AS b FROM generate_series(1, 500) AS g"},
		probe{query: "SELECT $1::text || $2::text AS c", args: []any{"a b", "c"}},
		probe{query: "SELECT $1::text || $2::text AS c", args: []any{"a", "b c"}},
		probe{query: "SELECT code AS c FROM kinds WHERE code = 'ab'"},
		probe{query: "SELECT code AS c FROM kinds WHERE code = 'ab '"},
		probe{query: "SELECT code AS c FROM kinds WHERE code = $1", args: []any{"ab"}},
		probe{query: "SELECT code AS c FROM kinds WHERE code = $1", args: []any{"ab "}},
		probe{query: `SELECT '{"a":{"b":"x"}}'::jsonb #>> '{a,b}' AS c`},
		probe{query: `SELECT '{"a":1}'::jsonb ? 'a' AS c, '{"a":1}'::jsonb ?| ARRAY['b'] AS d, '{"a":1}'::jsonb @? '$.a' AS e`},
		probe{query: "SELECT 5-$1::int AS c", args: []any{-1}},
		probe{query: "SELECT 5 # 3 AS c, 5--1\n + 1 AS d"},
		probe{query: "SELECT 1 /* x /* y */ z */ + 1 AS c"},
		probe{query: "SELECT $x$/* @cache ttl=1m */$x$ AS c, $a$ $b$ $a$ AS d"},
		mistake("SELECT 'x'::int AS a"),
		mistake("SELECT 99999999999999999999::int8 AS a"),
		mistake("SELECT 'sad'::mood = 'angry' AS a"),
		mistake("SELECT 1/0 AS a"),
		mistake("SELECT 1/(3-g) AS a FROM generate_series(1, 5) AS g"),
		mistake("SELECT 1 AS"),
		mistake("SELECT * FROM not_there"),
		probe{query: "SELECT $1::int8 AS c", args: []any{int64(math.MinInt64)}},
		probe{query: "SELECT $1::text AS c", args: []any{""}},
		probe{query: "SELECT $1::text AS c", args: []any{nil}},
		probe{query: "SELECT $1::bytea AS c", args: []any{[]byte{}}},
		probe{query: "SELECT $1::bytea AS c", args: []any{[]byte{0, 255}}},
		probe{query: "SELECT $1::float8 AS c", args: []any{math.Copysign(0, -1)}},
		probe{query: "SELECT $1::float8 AS c", args: []any{math.NaN()}},
		probe{query: "SELECT $1::bool AS c, $2::int AS d", args: []any{true, 5}},
		probe{query: "SELECT $1::timestamptz AS c", args: []any{time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.FixedZone("", 5*3600+45*60))}},
		probe{query: "SELECT $1::timestamp AS c", args: []any{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}},
		probe{query: "SELECT label AS c FROM kinds WHERE id = $1", args: []any{1}},
		probe{query: "SELECT label AS c FROM kinds WHERE id = $1", args: []any{99}},
		mistake("SELECT $1::int AS c", "not a number"),
	)
}

var postgresTable = table{
	engine: dbtest.EnginePostgres,
	make: []string{
		"CREATE TYPE mood AS ENUM ('sad', 'happy')",
		"CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
		"CREATE TYPE pair AS (a int, b text)",
		`CREATE TABLE kinds (id int PRIMARY KEY, label varchar(10) NOT NULL, price numeric(10,2), made timestamptz, born date,
			tags text[], doc jsonb, raw bytea, feeling mood, code char(4), flags bit(3), ok boolean, f4 real, u uuid, note text COLLATE "C")`,
		`INSERT INTO kinds VALUES (1, 'one', 1.50, '2024-07-01 12:00+02', '2024-07-01', '{a,NULL}', '{"a": 1}', '\x00', 'sad', 'ab', B'101', true, 1.5,
			'6f1ed002-ab59-4f35-9d3c-1d6a2d0d2a3b', ''), (2, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`,
	},
	probes: postgresProbes,
	variants: []variant{
		{name: "pq", open: dbtest.PQ, alone: true, deep: true},
		{name: "pq, Kathmandu", open: dbtest.PQ, with: []string{"TimeZone=Asia/Kathmandu"}},
		{name: "pq, binary parameters", open: dbtest.PQ, with: []string{"binary_parameters=yes", "TimeZone=Europe/Berlin"}},
		{name: "pgx, Kathmandu", open: dbtest.PGX, with: []string{"timezone=Asia/Kathmandu"}, alone: true, deep: true},
		{name: "pgx", open: dbtest.PGX},
		{name: "pgx, cache_describe", open: dbtest.PGX, with: []string{"default_query_exec_mode=cache_describe"}},
		{name: "pgx, describe_exec", open: dbtest.PGX, with: []string{"default_query_exec_mode=describe_exec"}},
		{name: "pgx, exec", open: dbtest.PGX, with: []string{"default_query_exec_mode=exec"}},
		{name: "pgx, simple_protocol", open: dbtest.PGX, with: []string{"default_query_exec_mode=simple_protocol"}},
	},
}

// Each mode asks for other formats and gives other types. They are one application's processes in the middle of
// a change of its DSN, so they share Redis.
func TestTheExecModesOfPgxShareARedisAndNotTheirRows(t *testing.T) {
	d := dbtest.PGX(t)
	d.Exec(t, postgresTable.make...)
	rdb, ns := dbtest.Redis(t)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
	h, elsewhere := newHerd(t, cfg), newHerd(t, cfg)
	const query = "SELECT id, price, doc, tags, made, u, label, raw, ok, f4 FROM kinds WHERE id = $1"
	hinted := "SELECT /* @cache ttl=10m */" + query[len("SELECT"):]
	for round, way := range []struct {
		h       *sqlherd.Herd
		outcome sqlherd.Outcome
	}{{h, sqlherd.Miss}, {h, sqlherd.Hit}, {elsewhere, sqlherd.Hit}, {elsewhere, sqlherd.Hit}} {
		for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
			d := d.WithParams("default_query_exec_mode=" + mode)
			bare, wrapped := d.Open(t), open(t, way.h, d)
			var info sqlherd.Info
			want := see(withDeadline(t), bare, false, query, 1)
			got := see(sqlherd.WithInfo(withDeadline(t), &info), wrapped, false, hinted, 1)
			if _, diff := got.differences(want); diff != nil || got.Fails {
				t.Errorf("%s\n%s", mode, strings.Join(diff, "\n"))
			}
			if info.Outcome != way.outcome {
				t.Errorf("%s, round %d: %v, want %v", mode, round, info.Outcome, way.outcome)
			}
		}
	}
}
