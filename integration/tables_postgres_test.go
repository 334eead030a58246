package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd/integration/dbtest"
	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// pgOracle asks PostgreSQL by the locks of a transaction.
type pgOracle struct {
	t     *testing.T
	c     *sql.Conn
	names map[int64]string // of every relation of ours that holds rows; a dropped one is gone from the catalogue
}

func newPGOracle(t *testing.T, d dbtest.Database) pgOracle {
	db := d.Open(t)
	o := pgOracle{t, nil, map[int64]string{}}
	rows, err := db.Query(`SELECT c.oid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var oid int64
		var name string
		if err := rows.Scan(&oid, &name); err != nil {
			t.Fatal(err)
		}
		o.names[oid] = name
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if o.c, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.c.Close() })
	return o
}

func (pgOracle) dialect() sqllex.Dialect { return sqllex.PostgreSQL }

// The relations that this session has locked, and whether for writing.
const pgLocked = `SELECT relation, mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareUpdateExclusiveLock', 'ShareLock')
	FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'`

func (o pgOracle) touches(text string) (got touched, err error) {
	ctx := context.Background()
	// What has no plan is run, and taken back.
	how := "EXPLAIN (FORMAT JSON) "
	for _, verb := range []string{"TRUNCATE", "COPY", "REFRESH", "ALTER", "DROP", "CREATE UNIQUE", "CREATE INDEX"} {
		if strings.HasPrefix(text, verb) {
			how = ""
		}
	}
	if _, err := o.c.ExecContext(ctx, "BEGIN"); err != nil {
		o.t.Fatal(err)
	}
	defer func() {
		if _, err := o.c.ExecContext(ctx, "ROLLBACK"); err != nil {
			o.t.Fatal(err)
		}
	}()
	if _, err := o.c.ExecContext(ctx, how+text); err != nil {
		return got, err
	}
	rows, err := o.c.QueryContext(ctx, pgLocked)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var oid int64
		var write bool
		if err := rows.Scan(&oid, &write); err != nil {
			o.t.Fatal(err)
		}
		if name := o.names[oid]; name != "" {
			got.add(name, write)
		}
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	return got, nil
}

// add takes in one table.
func (g *touched) add(name string, write bool) {
	if write {
		g.writes, g.writing = union(g.writes, []string{strings.ToLower(name)}), true
	} else {
		g.reads = union(g.reads, []string{strings.ToLower(name)})
	}
}

const pgColumns = "(id bigint PRIMARY KEY, x bigint, y bigint)"

// pgJudge makes the tables of the corpus, those of nasty, and one for each keyword that may name a table.
func pgJudge(t *testing.T, nasty []string, keywords bool) (judge, []string) {
	d := dbtest.PQ(t)
	db := d.Open(t)
	statements, set := createTables(append(nasty, corpusTables...), doubleQuoted, pgColumns)
	statements = append(statements, "CREATE SCHEMA s2", "CREATE TABLE s2.t "+pgColumns, `CREATE TABLE s2."Far" `+pgColumns)
	set["far"] = true
	mustExec(t, db, strings.Join(statements, ";"))
	var words []string
	if keywords {
		rows, err := db.Query("SELECT word FROM pg_get_keywords() WHERE catcode IN ('U', 'C')")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var create strings.Builder
		for rows.Next() {
			var w string
			if err := rows.Scan(&w); err != nil {
				t.Fatal(err)
			}
			words = append(words, w)
			set[w] = true
			fmt.Fprintf(&create, "CREATE TABLE %s %s;", w, pgColumns)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, create.String())
	}
	return judge{newPGOracle(t, d), set}, words
}

func TestPostgresTouchesNoTableThatTheTextIsNotKnownToName(t *testing.T) {
	j, _ := pgJudge(t, pgNasty, false)
	j.runCorpus(t, pgCorpus)
}

func TestPostgresTouchesNoTableThatAGeneratedTextIsNotKnownToName(t *testing.T) {
	j, words := pgJudge(t, pgNasty, true)
	j.runGenerated(t, func(r *rand.Rand) *grammar {
		g := newGrammar(r, sqllex.PostgreSQL, words, append(pgNasty, corpusTables...))
		g.qualify = map[string][]string{"public": nil, "s2": {"t", "Far"}}
		return g
	})
}

// pgNasty are names that must be quoted, or look like something else.
var pgNasty = []string{"Order Items", "MiXed", "select", `a"b`, "x.y", "Ünï", "semi;colon", "-- dash", "/* c */", "it's", "$$", "from t", "only"}
