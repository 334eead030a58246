package integration_test

import (
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// What a statement touches without naming it: the tables under a view, the children of a parent, partitions, and what a
// trigger writes. Left alone, the rows are old until they expire. Named in a hint, on either side, they are not.
func TestWhatATextDoesNotNameIsInvalidatedWhenAHintNamesIt(t *testing.T) {
	type unseen struct {
		name    string
		engines []dbtest.Engine
		setup   []string
		read    string // what is cached
		reads   string // what it reads without naming it
		write   string // what changes that
		writes  string // what it writes without naming it
	}
	pg, my, lt := dbtest.EnginePostgres, dbtest.EngineMariaDB, dbtest.EngineSQLite
	for _, u := range []unseen{
		{
			name: "a view", engines: []dbtest.Engine{pg, my, lt},
			setup: []string{"CREATE TABLE base (n INTEGER)", "INSERT INTO base VALUES (1)", "CREATE VIEW seen AS SELECT n FROM base"},
			read:  "SELECT sum(n) FROM seen", reads: "base", write: "UPDATE base SET n = n + 1", writes: "seen",
		},
		{
			name: "a view that is written to", engines: []dbtest.Engine{pg, my},
			setup: []string{"CREATE TABLE base (n INTEGER)", "INSERT INTO base VALUES (1)", "CREATE VIEW seen AS SELECT n FROM base"},
			read:  "SELECT sum(n) FROM base", reads: "seen", write: "UPDATE seen SET n = n + 1", writes: "base",
		},
		{
			name: "a cascade", engines: []dbtest.Engine{pg, my},
			setup: []string{
				"CREATE TABLE parent (id INTEGER PRIMARY KEY)",
				"CREATE TABLE child (id INTEGER PRIMARY KEY, parent_id INTEGER, FOREIGN KEY (parent_id) REFERENCES parent (id) ON DELETE CASCADE)",
				"INSERT INTO parent VALUES (1), (2), (3)", "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3)",
			},
			read: "SELECT count(*) FROM child", reads: "parent", write: "DELETE FROM parent WHERE id IN (SELECT * FROM (SELECT min(id) FROM parent) q)", writes: "child",
		},
		{
			name: "a trigger", engines: []dbtest.Engine{lt},
			setup: []string{
				"CREATE TABLE base (n INTEGER)", "CREATE TABLE log (n INTEGER)",
				"CREATE TRIGGER noted AFTER INSERT ON base BEGIN INSERT INTO log VALUES (new.n); END",
			},
			read: "SELECT count(*) FROM log", reads: "base", write: "INSERT INTO base VALUES (1)", writes: "log",
		},
		{
			name: "a partition that is written to", engines: []dbtest.Engine{pg},
			setup: []string{"CREATE TABLE whole (n INTEGER) PARTITION BY RANGE (n)", "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (1000)"},
			read:  "SELECT count(*) FROM whole", reads: "part", write: "INSERT INTO part VALUES (1)", writes: "whole",
		},
		{
			name: "a parent that is written to", engines: []dbtest.Engine{pg},
			setup: []string{"CREATE TABLE whole (n INTEGER)", "CREATE TABLE part () INHERITS (whole)", "INSERT INTO part VALUES (1)"},
			read:  "SELECT sum(n) FROM part", reads: "whole", write: "UPDATE whole SET n = n + 1", writes: "part",
		},
	} {
		for _, open := range []func(testing.TB) dbtest.Database{dbtest.PQ, dbtest.MariaDB, dbtest.SQLite} {
			d := open(t)
			supported := false
			for _, e := range u.engines {
				supported = supported || e == d.Engine
			}
			if !supported {
				continue
			}
			t.Run(u.name+" on "+string(d.Engine), func(t *testing.T) {
				d.Exec(t, u.setup...)
				db, _ := openHerd(t, d, sqlherd.Config{})
				bare := d.Open(t)
				value := func(q string) (v string) {
					t.Helper()
					if err := bare.QueryRow(q).Scan(&v); err != nil {
						t.Fatal(err)
					}
					return v
				}
				plain, named := u.read+" /* @cache ttl=10m */", u.read+" /* @cache ttl=10m tables="+u.reads+" */"
				before := value(u.read)
				wantText(t, db, before, sqlherd.Miss, plain)
				wantText(t, db, before, sqlherd.Miss, named)

				mustExec(t, db, u.write)
				after := value(u.read)
				if after == before {
					t.Fatal("the write does not show")
				}
				wantText(t, db, before, sqlherd.Hit, plain) // old, as README says
				wantText(t, db, after, sqlherd.Miss, named)

				mustExec(t, db, u.write+" /* @invalidate tables="+u.writes+" */")
				wantText(t, db, value(u.read), sqlherd.Miss, plain)
			})
		}
	}
}

// INSERT OR ROLLBACK ends the transaction when it fails, and so what follows is written at once.
func TestRowsWrittenBehindAnOrRollbackOfSQLiteAreSeen(t *testing.T) {
	on(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE t (n INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
		db, _ := openHerd(t, d, sqlherd.Config{})
		const query = "SELECT count(*) FROM t /* @cache ttl=10m */"
		wantText(t, db, "1", sqlherd.Miss, query)
		tx, err := db.BeginTx(withDeadline(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT OR ROLLBACK INTO t VALUES (1)"); err == nil {
			t.Fatal("the row is there twice")
		}
		mustExec(t, tx, "INSERT INTO t VALUES (2)")
		wantText(t, db, "2", sqlherd.Miss, query)
		_ = tx.Rollback() // SQLite says that there is none
		wantText(t, db, "2", sqlherd.Miss, query)
	}, dbtest.SQLite, dbtest.SQLiteCgo)
}
