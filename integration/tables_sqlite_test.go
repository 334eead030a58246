//go:build cgo

package integration_test

import (
	"database/sql/driver"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/sqlherd/sqlherd/integration/dbtest"
	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// sqliteOracle asks SQLite by its authorizer, which is told of every table while a statement is compiled.
type sqliteOracle struct {
	t     *testing.T
	c     *sqlite3.SQLiteConn
	now   *touched
	maybe *[]string        // named without a column: a table, or a table expression
	roots map[int64]string // of tables and indexes, to their table
}

func newSQLiteOracle(t *testing.T, d dbtest.Database) sqliteOracle {
	c, err := d.Driver.Open(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := sqliteOracle{t, c.(*sqlite3.SQLiteConn), new(touched), new([]string), map[int64]string{}}
	for _, row := range o.query(t, "SELECT rootpage, tbl_name FROM sqlite_schema") {
		o.roots[row[0].(int64)] = strings.ToLower(row[1].(string))
	}
	o.c.RegisterAuthorizer(func(op int, arg1, arg2, _ string) int {
		table, write := arg1, true
		switch op {
		case sqlite3.SQLITE_READ:
			write = false
			if arg2 == "" {
				*o.maybe = append(*o.maybe, strings.ToLower(table))
				return sqlite3.SQLITE_OK
			}
		case sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE:
		case sqlite3.SQLITE_ALTER_TABLE:
			table = arg2
		default:
			return sqlite3.SQLITE_OK
		}
		if !strings.HasPrefix(table, "sqlite_") && !strings.HasPrefix(table, "json_") && !strings.HasPrefix(table, "pragma_") {
			o.now.add(table, write)
		}
		return sqlite3.SQLITE_OK
	})
	return o
}

func (sqliteOracle) dialect() sqllex.Dialect { return sqllex.SQLite }

func (o sqliteOracle) touches(text string) (touched, error) {
	*o.now, *o.maybe = touched{}, nil
	st, err := o.c.Prepare(text)
	if err != nil {
		return touched{}, err
	}
	got := *o.now
	got.writing = !st.(*sqlite3.SQLiteStmt).Readonly()
	if err := st.Close(); err != nil {
		return touched{}, err
	}
	if maybe := *o.maybe; len(maybe) > 0 {
		for _, row := range o.query(o.t, "EXPLAIN "+text) {
			table := o.roots[row[3].(int64)]
			if op := row[1].(string); (op == "OpenRead" || op == "OpenWrite") && slices.Contains(maybe, table) {
				got.add(table, false)
			}
		}
	}
	return got, nil
}

func (o sqliteOracle) query(t *testing.T, text string) (all [][]driver.Value) {
	t.Helper()
	rows, err := o.c.Query(text, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for {
		row := make([]driver.Value, len(rows.Columns()))
		switch err := rows.Next(row); {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatalf("%s: %v", text, err)
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = string(b)
			}
		}
		all = append(all, row)
	}
}

const sqliteColumns = "(id INTEGER PRIMARY KEY, x INTEGER, y INTEGER)"

func sqliteJudge(t *testing.T, nasty []string, keywords bool) (judge, []string) {
	d := dbtest.SQLiteCgo(t)
	statements, set := createTables(append(nasty, corpusTables...), doubleQuoted, sqliteColumns)
	statements = append(statements, "CREATE VIRTUAL TABLE fts USING fts4(body)", "CREATE TABLE ids (id INTEGER)", "CREATE INDEX a_x ON a (x)")
	set["fts"], set["ids"] = true, true
	d.Exec(t, strings.Join(statements, ";"))
	var words []string
	if keywords {
		db := d.Open(t)
		for _, w := range strings.Fields(sqliteKeywords) {
			w = strings.ToLower(w)
			if _, err := db.Exec("CREATE TABLE " + w + " " + sqliteColumns); err == nil {
				words = append(words, w)
				set[w] = true
			}
		}
	}
	return judge{newSQLiteOracle(t, d), set}, words
}

func TestSQLiteTouchesNoTableThatTheTextIsNotKnownToName(t *testing.T) {
	j, _ := sqliteJudge(t, sqliteNasty, false)
	j.runCorpus(t, sqliteCorpus)
}

func TestSQLiteTouchesNoTableThatAGeneratedTextIsNotKnownToName(t *testing.T) {
	j, words := sqliteJudge(t, sqliteNasty, true)
	j.runGenerated(t, func(r *rand.Rand) *grammar {
		return newGrammar(r, sqllex.SQLite, words, append(sqliteNasty, corpusTables...))
	})
}

var sqliteNasty = []string{"Order Items", "MiXed", "select", `a"b`, "x.y", "Ünï", "semi;colon", "-- dash", "it's", "$$", "from t"}

// Every keyword of SQLite; many of them may name a table.
const sqliteKeywords = `ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYZE AND AS ASC ATTACH AUTOINCREMENT BEFORE BEGIN BETWEEN BY CASCADE CASE CAST
	CHECK COLLATE COLUMN COMMIT CONFLICT CONSTRAINT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DATABASE DEFAULT DEFERRABLE
	DEFERRED DELETE DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE EXCEPT EXCLUDE EXCLUSIVE EXISTS EXPLAIN FAIL FILTER FIRST FOLLOWING FOR FOREIGN
	FROM FULL GENERATED GLOB GROUP GROUPS HAVING IF IGNORE IMMEDIATE IN INDEX INDEXED INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL JOIN KEY
	LAST LEFT LIKE LIMIT MATCH MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL NULLS OF OFFSET ON OR ORDER OTHERS OUTER OVER PARTITION PLAN PRAGMA
	PRECEDING PRIMARY QUERY RAISE RANGE RECURSIVE REFERENCES REGEXP REINDEX RELEASE RENAME REPLACE RESTRICT RETURNING RIGHT ROLLBACK ROW ROWS SAVEPOINT
	SELECT SET TABLE TEMP TEMPORARY THEN TIES TO TRANSACTION TRIGGER UNBOUNDED UNION UNIQUE UPDATE USING VACUUM VALUES VIEW VIRTUAL WHEN WHERE WINDOW
	WITH WITHOUT LATERAL ONLY LOW_PRIORITY QUICK DELAYED TRUNCATE LOCAL SHARE TABLES DATA TYPE START FETCH USER SYSTEM LOAD`
