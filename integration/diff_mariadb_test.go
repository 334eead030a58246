package integration_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// mariadbColumns are columns with the values that are odd about each; SQL NULL is always tried.
var mariadbColumns = []struct {
	kind   string
	values []string
}{
	{"TINYINT", []string{"-128", "127", "0"}},
	{"TINYINT UNSIGNED", []string{"255"}},
	{"TINYINT(1)", []string{"1"}},
	{"SMALLINT", []string{"-32768"}},
	{"SMALLINT UNSIGNED", []string{"65535"}},
	{"MEDIUMINT", []string{"-8388608"}},
	{"MEDIUMINT UNSIGNED", []string{"16777215"}},
	{"INT", []string{"-2147483648", "2147483647"}},
	{"INT UNSIGNED", []string{"4294967295"}},
	{"INT(8) ZEROFILL", []string{"42"}},
	{"BIGINT", []string{"-9223372036854775808", "9223372036854775807", "9007199254740993"}},
	{"BIGINT UNSIGNED", []string{"0", "9223372036854775807", "9223372036854775808", "18446744073709551615"}},
	{"FLOAT", []string{"1.1", "-0e0", "3.4028e38", "1e-45"}},
	{"DOUBLE", []string{"0.1", "-0e0", "1.7976931348623157e308", "5e-324"}},
	{"DECIMAL(10,2)", []string{"1.5", "-99999999.99", "0"}},
	{"DECIMAL(65,30)", []string{"12345678901234567890123456789012345.012345678901234567890123456789"}},
	{"BIT(1)", []string{"b'1'"}},
	{"BIT(64)", []string{"b'1000000000000000000000000000000000000000000000000000000000000001'"}},
	{"BOOLEAN", []string{"TRUE", "FALSE"}},
	{"DATE", []string{"'2024-02-29'", "'0001-01-01'", "'9999-12-31'", "'0000-00-00'"}},
	{"DATETIME", []string{"'2024-07-01 12:00:00'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'"}},
	{"DATETIME(6)", []string{"'2024-07-01 12:00:00.000001'", "'2024-03-31 02:30:00.5'"}},
	{"TIMESTAMP(6) NULL", []string{"'2024-07-01 12:00:00.123456'", "'1970-01-02 00:00:01'"}},
	{"TIME", []string{"'-838:59:59'", "'838:59:59'", "'00:00:00'"}},
	{"TIME(6)", []string{"'12:34:56.123456'", "'-00:00:00.000001'"}},
	{"YEAR", []string{"2024", "1901", "'0000'"}},
	{"CHAR(5)", []string{"'ab'", "''"}},
	{"VARCHAR(50)", []string{"'ab '", "''", "'0012'", "'1e5'", "'žluťoučký 馬 🐎'"}},
	{"VARCHAR(50) CHARACTER SET latin1", []string{"'é'"}},
	{"VARCHAR(50) COLLATE utf8mb4_bin", []string{"'é'"}},
	{"BINARY(4)", []string{"x'00ff'"}},
	{"VARBINARY(50)", []string{"x''", "x'00fffe'"}},
	{"TINYTEXT", []string{"''"}},
	{"TEXT", []string{"'text'", "CONCAT('a', CHAR(0), 'b')"}},
	{"LONGTEXT", []string{"REPEAT('x', 1048576)"}},
	{"TINYBLOB", []string{"x'00'"}},
	{"BLOB", []string{"''", "x'c328'"}},
	{"LONGBLOB", []string{"REPEAT(x'00ff', 524288)"}},
	{"ENUM('', 'a', 'b')", []string{"'a'", "''"}},
	{"SET('a', 'b', 'c')", []string{"'a,c'", "''"}},
	{"JSON", []string{`'{"b":1,  "a":1.0, "n":1e2}'`, "'null'", "'[]'"}},
	{"UUID", []string{"'6f1ed002-ab59-4f35-9d3c-1d6a2d0d2a3b'"}},
	{"INET6", []string{"'::1'", "'2001:db8::ff00:42:8329'"}},
	{"INET4", []string{"'192.0.2.1'"}},
	{"POINT", []string{"POINT(1, 2)"}},
	{"GEOMETRY", []string{"ST_GeomFromText('LINESTRING(0 0, 1 1)')"}},
}

// makeMariaDB are the statements that make the table kinds with one column for each of mariadbColumns, and as many
// rows as the longest list has values.
func makeMariaDB() []string {
	define, most := "CREATE TABLE kinds (id INT PRIMARY KEY", 0
	for i, c := range mariadbColumns {
		define += fmt.Sprintf(", c%d %s", i, c.kind)
		most = max(most, len(c.values))
	}
	statements := []string{define + ") CHARACTER SET utf8mb4"}
	for row := range most {
		insert := fmt.Sprintf("INSERT INTO kinds VALUES (%d", row+1)
		for _, c := range mariadbColumns {
			if row < len(c.values) {
				insert += ", " + c.values[row]
			} else {
				insert += ", NULL"
			}
		}
		statements = append(statements, insert+")")
	}
	return append(statements, "CREATE TABLE strict (id INT NOT NULL, s VARCHAR(10) NOT NULL, t DATETIME(3) NOT NULL)",
		"INSERT INTO strict VALUES (1, 'one', '2024-07-01 12:00:00.5'), (2, '', '2024-07-01 12:00:00')")
}

var mariadbTable = table{
	engine: dbtest.EngineMariaDB,
	make:   makeMariaDB(),
	with:   []string{"sql_mode=%27ALLOW_INVALID_DATES%27"},
	probes: mariadbProbes,
	variants: []variant{
		{name: "mariadb", open: dbtest.MariaDB},
		{name: "mariadb, parseTime, Kathmandu", open: dbtest.MariaDB, with: []string{"parseTime=true", "loc=Asia%2FKathmandu"}, alone: true, deep: true},
		{name: "mariadb, parseTime", open: dbtest.MariaDB, with: []string{"parseTime=true"}},
		{name: "mariadb, parseTime, Local", open: dbtest.MariaDB, with: []string{"parseTime=true", "loc=Local"}},
		{name: "mariadb, interpolateParams", open: dbtest.MariaDB, with: []string{"interpolateParams=true", "parseTime=true"}},
		{name: "mariadb, columnsWithAlias", open: dbtest.MariaDB, with: []string{"columnsWithAlias=true", "interpolateParams=true"}},
		{name: "mariadb, multiStatements", open: dbtest.MariaDB, with: []string{"multiStatements=true", "interpolateParams=true"}},
		{name: "mariadb, latin1", open: dbtest.MariaDB, with: []string{"charset=latin1"}},
	},
}

func mariadbProbes(v variant) (probes []probe) {
	for i := range mariadbColumns {
		column := fmt.Sprintf("c%d", i)
		probes = append(probes,
			probe{query: fmt.Sprintf("SELECT id, %s FROM kinds ORDER BY id", column)},
			probe{query: fmt.Sprintf("SELECT %s AS c FROM kinds AS k WHERE id = ?", column), args: []any{1}})
	}
	probes = append(probes, probe{query: "SELECT * FROM strict"}, probe{query: "SELECT s AS x, id AS x FROM strict ORDER BY id"})
	for _, several := range []string{"SELECT 1 AS a; SELECT 2 AS b, 3 AS c", "SELECT 1 AS a; SELECT * FROM not_there", "SELECT 1 AS a; SELECT 2 AS b WHERE FALSE; SELECT 'x' AS c"} {
		probes = append(probes, probe{query: several, sets: true})
	}
	return append(append(probes, exprs(
		"NULL", "1", "1.5", "1e0", "'a'", "''", "x'00FF'", "TRUE", "18446744073709551615", "-9223372036854775808", "CAST('2024-01-02' AS DATE)",
		"CAST('2024-01-02 03:04:05.5' AS DATETIME(1))", "CAST('03:04:05' AS TIME)", "_latin1'é'", "5--1", "CAST(1 AS UNSIGNED)", "COUNT(*)", "b'101'", "TIMESTAMP('2024-01-01')",
	)...),
		wide(1100),
		probe{query: "SELECT 2 # ' \n + 1 AS c"},
		probe{query: "SELECT 1 /* x /* y */ + 1 AS c"},
		probe{query: "SELECT seq AS n, MD5(seq) AS s, UNHEX(MD5(seq)) AS b FROM seq_1_to_500"},
		probe{query: "SELECT 1 AS a, 2 AS a, 'x' AS `a b`, NULL, 1, 1"},
		probe{query: "SELECT 1 AS a FROM strict WHERE FALSE"},
		mistake("SELECT 1 AS"),
		mistake("SELECT * FROM not_there"),
		probe{query: "SELECT ? AS c", args: []any{uint64(math.MaxUint64)}},
		probe{query: "SELECT ? AS c", args: []any{json.RawMessage(`{"a": 1}`)}},
		probe{query: "SELECT ? AS c", args: []any{(*sql.NullString)(nil)}},
		probe{query: "SELECT ? AS c", args: []any{(*int64)(nil)}},
		probe{query: "SELECT ? AS c", args: []any{int64(-1)}},
		probe{query: "SELECT ? AS c", args: []any{int64(math.MinInt64)}},
		probe{query: "SELECT ? AS c", args: []any{""}},
		probe{query: "SELECT ? AS c", args: []any{nil}},
		probe{query: "SELECT ? AS c", args: []any{[]byte{}}},
		probe{query: "SELECT ? AS c", args: []any{[]byte{0, 255, '\''}}},
		probe{query: `SELECT ? AS c`, args: []any{`quote ' backslash \ double "`}},
		probe{query: "SELECT ? AS c", args: []any{0.1}},
		probe{query: "SELECT ? AS c", args: []any{math.Copysign(0, -1)}},
		probe{query: "SELECT ? AS c, ? AS d", args: []any{true, 5}},
		probe{query: "SELECT 5-? AS c", args: []any{-1}},
		probe{query: "SELECT ? AS c", args: []any{time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.FixedZone("", 5*3600+45*60))}},
		probe{query: "SELECT CAST(? AS DATETIME(6)) AS c", args: []any{time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.UTC)}},
		probe{query: "SELECT s AS c FROM strict WHERE id = ?", args: []any{99}},
	)
}
