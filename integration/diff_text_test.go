package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// MySQL and SQLite name a column after the text of its expression.
func TestTwoTextsWhoseColumnsHaveOtherNamesDoNotShareRows(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		bare := d.Open(t)
		db, _ := openHerd(t, d, sqlherd.Config{})
		for range 2 {
			for _, query := range []string{
				"SELECT 1 + 1", "SELECT 1 +  1", "SELECT 1\n+ 1", "SELECT 1 /* x */ + 1", "SELECT 1 + 1 -- y", "SELECT (1 + 1) , 2", "SELECT (1 +\n1) , 2",
				"SELECT * FROM (SELECT 5 + 6) AS t", "SELECT * FROM (SELECT 5 +  6) AS t", "SELECT count(*) FROM (SELECT 1 AS a) AS t", "SELECT count(*) /* z */ FROM (SELECT 1 AS a) AS t",
			} {
				hinted := strings.Replace(query, "SELECT ", "SELECT /* @cache ttl=10m */ ", 1)
				got, want := see(withDeadline(t), db, false, hinted), see(withDeadline(t), bare, false, hinted)
				if _, diff := got.differences(want); diff != nil {
					t.Errorf("%q: %s", query, strings.Join(diff, "\n"))
				}
			}
		}
	})
}

// The rows that a shape of query text gives, whatever surrounds it.
func TestTracesAroundAQueryAreOneResult(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		for i, outcome := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit, sqlherd.Hit} {
			query := fmt.Sprintf("/*traceparent='00-%d'*/ SELECT /* @cache ttl=10m */ v FROM items WHERE id = 1 /*traceparent='01-%d'*/", i, i)
			wantText(t, db, "one", outcome, query)
		}
	})
}
