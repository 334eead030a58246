package integration_test

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// The drivers choose a value's Go type by what the column was declared as, so everything is put into
// a column of every kind.
var (
	sqliteKinds  = []string{"", "INTEGER", "BIGINT", "REAL", "TEXT", "VARCHAR(20)", "BLOB", "NUMERIC", "DECIMAL(10,2)", "BOOLEAN", "DATE", "DATETIME", "TIMESTAMP", "TIME", "JSON", "UUID"}
	sqliteValues = []string{
		"NULL", "0", "1", "-9223372036854775808", "9223372036854775807", "9007199254740993", "1719835200", "1719835200123",
		"0.1", "-0.0", "9e999", "-9e999", "5e-324", "1.0", "2460493.5",
		"''", "'0012'", "'1e5'", "'žluťoučký 馬 🐎'", "CAST(x'ff61' AS TEXT)", "'a' || char(0) || 'b'",
		"x''", "x'00ff'", "'2024-07-01'", "'2024-07-01 12:00:00'", "'2024-07-01 12:00:00.123456789+05:45'", "'2024-07-01T12:00:00Z'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'",
		"'2024-07-01 12:00'", "'12:34:56'", "'true'", "'not a time'", "'2024-07-01 12:00:00.5 +0200 CEST m=+0.1'",
	}
)

// makeSQLite are the statements that put every value into a column of every kind.
func makeSQLite() []string {
	define, insert := "CREATE TABLE kinds (id INTEGER PRIMARY KEY", "INSERT INTO kinds VALUES (NULL"
	for i, k := range sqliteKinds {
		define += fmt.Sprintf(", c%d %s", i, k)
		insert += ", v"
	}
	statements := []string{define + ")"}
	for _, v := range sqliteValues {
		statements = append(statements, strings.ReplaceAll(insert, ", v", ", "+v)+")")
	}
	return append(statements, "CREATE TABLE strict (id INTEGER PRIMARY KEY, s TEXT NOT NULL, t DATETIME NOT NULL)",
		"INSERT INTO strict VALUES (1, 'one', '2024-07-01 12:00:00'), (2, '', '2024-07-01 12:00:00')")
}

var sqliteTable = table{
	engine: dbtest.EngineSQLite,
	make:   makeSQLite(),
	probes: sqliteProbes,
	variants: []variant{
		{name: "modernc", open: dbtest.SQLite, alone: true, deep: true},
		{name: "modernc, times from text", open: dbtest.SQLite, with: []string{"_time_format=sqlite", "_texttotime=1"}},
		{name: "mattn", open: dbtest.SQLiteCgo},
		{name: "mattn, Kathmandu", open: dbtest.SQLiteCgo, with: []string{"_loc=Asia/Kathmandu"}, alone: true, deep: true},
	},
}

func sqliteProbes(variant) (probes []probe) {
	for i := range sqliteKinds {
		probes = append(probes, probe{query: fmt.Sprintf("SELECT id, c%d FROM kinds ORDER BY id", i)},
			probe{query: fmt.Sprintf("SELECT c%d AS c, max(c%d), typeof(c%d) FROM kinds WHERE id = ?", i, i, i), args: []any{1}})
	}
	at := time.Date(2024, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", 5*3600+45*60))
	probes = append(append(probes, exprs("NULL", "1", "1.5", "-0.0", "9e999", "-9e999", "''", "x''", "zeroblob(1048576)", "hex(zeroblob(524288))", "date('2024-07-01')", "5--1", "CAST(x'ff' AS TEXT)",
		"json('{\"b\": 1,  \"a\":1.0}')", "count(*)", "total(1)")...),
		wide(1100),
		probe{query: "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 500) SELECT n, hex(n) AS s, CAST(n AS BLOB) AS b FROM g"},
		probe{query: "SELECT 1 /* x /* y */ + 1 AS c"},
		probe{query: `SELECT 1 AS a, 2 AS a, 'x' AS "a b", NULL, 1, 1`},
		probe{query: "SELECT 1 AS a WHERE 0"},
		probe{query: "SELECT * FROM strict ORDER BY id"},
		probe{query: "SELECT s.id, s2.id, s.t, s2.s FROM strict s JOIN strict s2 ON s.id = s2.id ORDER BY 1"},
		mistake("SELECT 1 AS"),
		mistake("SELECT * FROM not_there"),
		mistake("SELECT abs(-9223372036854775808) AS overflow"),
		probe{query: "SELECT :a - :b AS c", args: []any{sql.Named("a", 5), sql.Named("b", 3)}},
		probe{query: "SELECT :a - :b AS c", args: []any{sql.Named("a", 3), sql.Named("b", 5)}},
		probe{query: "SELECT :a - :b AS c", args: []any{sql.Named("b", 3), sql.Named("a", 5)}},
	)
	for _, arg := range []any{int64(1), int64(0), 1.0, math.Copysign(0, -1), 0.0, "1", []byte("1"), true, false, nil, "", []byte{}, []byte(nil), at, at.UTC(), math.Inf(1), math.NaN()} {
		probes = append(probes, probe{query: "SELECT ? AS c, typeof(?) AS t", args: []any{arg, arg}})
	}
	return probes
}
