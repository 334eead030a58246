package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlherd/sqlherd/integration/dbtest"
	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// mariaOracle asks MariaDB by the metadata locks of a transaction.
type mariaOracle struct {
	t *testing.T
	c *sql.Conn
}

func newMariaOracle(t *testing.T, d dbtest.Database) mariaOracle {
	db := d.Open(t)
	_, err := db.Exec("INSTALL SONAME 'metadata_lock_info'")
	var known *mysql.MySQLError
	if err != nil && !(errors.As(err, &known) && known.Number == 1968) { // it is there already
		t.Fatal(err)
	}
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return mariaOracle{t, c}
}

func (mariaOracle) dialect() sqllex.Dialect { return sqllex.MySQL }

const mariaLocked = `SELECT TABLE_NAME, MAX(LOCK_MODE IN ('MDL_SHARED_WRITE', 'MDL_SHARED_UPGRADABLE', 'MDL_SHARED_NO_WRITE', 'MDL_SHARED_NO_READ_WRITE', 'MDL_EXCLUSIVE'))
	FROM information_schema.METADATA_LOCK_INFO WHERE THREAD_ID = CONNECTION_ID() AND LOCK_TYPE = 'Table metadata lock' AND TABLE_SCHEMA <> 'information_schema'
	GROUP BY TABLE_NAME`

func (o mariaOracle) touches(text string) (got touched, err error) {
	ctx := context.Background()
	if _, err := o.c.ExecContext(ctx, "START TRANSACTION"); err != nil {
		o.t.Fatal(err)
	}
	defer func() {
		if _, err := o.c.ExecContext(ctx, "ROLLBACK"); err != nil {
			o.t.Fatal(err)
		}
	}()
	if _, err := o.c.ExecContext(ctx, "EXPLAIN "+text); err != nil {
		return got, err
	}
	rows, err := o.c.QueryContext(ctx, mariaLocked)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var write bool
		if err := rows.Scan(&name, &write); err != nil {
			o.t.Fatal(err)
		}
		got.add(name, write && !strings.HasSuffix(text, "FOR UPDATE")) // which locks as a write does
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	return got, nil
}

const mariaColumns = "(id BIGINT PRIMARY KEY, x BIGINT, y BIGINT) ENGINE = MEMORY"

func mariaJudge(t *testing.T, nasty []string, keywords bool) (judge, []string) {
	d := dbtest.MariaDB(t)
	db := d.Open(t)
	statements, set := createTables(append(nasty, corpusTables...), backQuoted, mariaColumns)
	mustExec(t, db, statements...)
	var words []string
	if keywords {
		rows, err := db.Query("SELECT LOWER(WORD) FROM information_schema.KEYWORDS WHERE WORD REGEXP '^[A-Za-z_]+$'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all []string
		for rows.Next() {
			var w string
			if err := rows.Scan(&w); err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			// Reserved words cannot stand without quotes. To know is cheaper than to create.
			if _, err := db.Exec("PREPARE p FROM 'SELECT 1 FROM " + w + "'"); err != nil {
				var e *mysql.MySQLError
				if errors.As(err, &e) && e.Number == 1146 { // no such table: the word is a name
					words = append(words, w)
				}
			}
		}
		statements, more := createTables(words, func(s string) string { return s }, mariaColumns)
		mustExec(t, db, statements...)
		for w := range more {
			set[w] = true
		}
	}
	return judge{newMariaOracle(t, d), set}, words
}

func TestMariaDBTouchesNoTableThatTheTextIsNotKnownToName(t *testing.T) {
	j, _ := mariaJudge(t, mariaNasty, false)
	j.runCorpus(t, mariaCorpus)
}

func TestMariaDBTouchesNoTableThatAGeneratedTextIsNotKnownToName(t *testing.T) {
	j, words := mariaJudge(t, mariaNasty, true)
	j.runGenerated(t, func(r *rand.Rand) *grammar {
		return newGrammar(r, sqllex.MySQL, words, append(mariaNasty, corpusTables...))
	})
}

var mariaNasty = []string{"Order Items", "MiXed", "select", "a`b", "Ünï", "semi;colon", "-- dash", "it's", "$$", "from t", "2024_sales", "1e5x", "$dollar"}
