package integration_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// twoProcesses opens two Herds, which share a Redis as two processes do, on the same database. heard returns when the
// second one has heard of everything that the first one has invalidated.
func twoProcesses(t *testing.T, b *bed) (here, there *sql.DB, heard func()) {
	rdb, ns := dbtest.Redis(t)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
	here, hh := openHerd(t, b.Database, cfg)
	there, th := openHerd(t, b.Database, cfg)
	await(t, "messages arrive", func() bool { return th.Stats().Redis.Subscribed })
	return here, there, func() {
		t.Helper()
		await(t, "the other process has heard", func() bool { return th.Stats().InvalidationsHeard >= hh.Stats().Invalidations })
	}
}

// nothing fails the test unless the query finds no row, with outcome.
func nothing(t *testing.T, db *sql.DB, outcome sqlherd.Outcome, query string, args ...any) {
	t.Helper()
	v, info, err := text(withDeadline(t), db, query, args...)
	if err != sql.ErrNoRows || info.Outcome != outcome {
		t.Errorf("got %q, %v, %v; want no row, %v", v, err, info.Outcome, outcome)
	}
}

func TestACachedNotFoundEndsWithTheInsert(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		here, there, heard := twoProcesses(t, b)
		query := b.slow("ttl=10m empty=10m", 0)
		upsert := "INSERT INTO items VALUES (%d, 'new') ON CONFLICT (id) DO UPDATE SET v = 'new'"
		if d.Engine == dbtest.EngineMariaDB {
			upsert = "INSERT INTO items VALUES (%d, 'new') ON DUPLICATE KEY UPDATE v = 'new'"
		}
		for i, insert := range []func(id int){
			func(id int) { mustExec(t, here, fmt.Sprintf("INSERT INTO items VALUES (%d, 'new')", id)) },
			func(id int) { mustExec(t, here, fmt.Sprintf(upsert, id)) },
			func(id int) {
				tx, err := here.Begin()
				if err != nil {
					t.Fatal(err)
				}
				mustExec(t, tx, fmt.Sprintf("INSERT INTO items VALUES (%d, 'new')", id))
				nothing(t, there, sqlherd.Hit, query, id)
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			},
			func(id int) {
				var got int
				if err := here.QueryRow(fmt.Sprintf("INSERT /* @cache ttl=10m */ INTO items VALUES (%d, 'new') RETURNING id", id)).Scan(&got); err != nil || got != id {
					t.Fatal(got, err)
				}
			},
		} {
			id := 10 + i
			nothing(t, here, sqlherd.Miss, query, id)
			nothing(t, here, sqlherd.Hit, query, id)
			nothing(t, there, sqlherd.Hit, query, id)
			insert(id)
			wantText(t, here, "new", sqlherd.Miss, query, id)
			heard()
			wantText(t, there, "new", sqlherd.Hit, query, id)
		}
	})
}

func TestAnInsertThatReturnsRunsEachTimeAndInvalidates(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		here, there, heard := twoProcesses(t, b)
		count := "SELECT /* @cache ttl=10m */ COUNT(*) FROM items"
		wantText(t, here, "3", sqlherd.Miss, count)
		wantText(t, there, "3", sqlherd.Hit, count)
		insert := "INSERT /* @cache ttl=10m */ INTO items VALUES (100, 'x') RETURNING id"
		for i := range 3 {
			rows, err := here.Query("INSERT /* @cache ttl=10m */ INTO items SELECT MAX(id) + 1, 'x' FROM items RETURNING id")
			if err != nil {
				t.Fatal(err)
			}
			if err := rows.Close(); err != nil { // not read at all
				t.Fatal(err)
			}
			want := fmt.Sprint(4 + i)
			wantText(t, here, want, sqlherd.Miss, count)
			heard()
			wantText(t, there, want, sqlherd.Hit, count)
		}
		var id int
		if err := here.QueryRow(insert).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if err := here.QueryRow(insert).Scan(&id); err == nil {
			t.Error("the same key was inserted twice: the second INSERT did not run")
		}
		wantText(t, here, "7", sqlherd.Miss, count)
	})
}

// A constraint that is checked at the commit fails it: nothing was written, and nothing of the transaction is seen.
func TestACommitThatFailsLeavesTheOldRows(t *testing.T) {
	b := newBed(t, dbtest.PQ(t))
	b.Exec(t, "ALTER TABLE items ADD CONSTRAINT once UNIQUE (v) DEFERRABLE INITIALLY DEFERRED")
	here, there, heard := twoProcesses(t, b)
	query := b.slow("ttl=10m", 0)
	wantText(t, here, "one", sqlherd.Miss, query, 1)
	tx, err := here.Begin()
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "UPDATE items SET v = 'two' WHERE id = 1")
	wantText(t, tx, "two", sqlherd.Bypassed, query, 1)
	if err := tx.Commit(); err == nil {
		t.Fatal("the commit went through")
	}
	heard()
	for _, db := range []*sql.DB{here, there} {
		if v, _, err := text(withDeadline(t), db, query, 1); err != nil || v != "one" {
			t.Errorf("after the commit that failed: %q, %v", v, err)
		}
	}
}

// In a snapshot, reads are the snapshot's, whatever others have committed and cached meanwhile.
func TestAReadInASnapshotIsTheSnapshots(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		here, there, heard := twoProcesses(t, b)
		query := b.slow("ttl=10m", 0)
		tx, err := here.BeginTx(withDeadline(t), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }() // it has only read
		wantText(t, tx, "one", sqlherd.Bypassed, query, 1)
		mustExec(t, there, "UPDATE items SET v = 'later' WHERE id = 1")
		wantText(t, there, "later", sqlherd.Miss, query, 1)
		wantText(t, tx, "one", sqlherd.Bypassed, query, 1)
		heard()
		wantText(t, here, "later", sqlherd.Hit, query, 1)
		wantText(t, tx, "one", sqlherd.Bypassed, query, 1)
	})
}

func TestAChangedSchemaIsSeenByTheNextRead(t *testing.T) {
	// Not pgx: it fails the first query after such a change, bare as well, because it has prepared it before.
	on(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		here, _, _ := twoProcesses(t, b)
		columns := func() int {
			rows, err := here.Query("SELECT /* @cache ttl=10m */ * FROM items")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			names, err := rows.Columns()
			if err != nil || rows.Err() != nil {
				t.Fatal(err, rows.Err())
			}
			return len(names)
		}
		if n := columns(); n != 2 {
			t.Fatalf("%d columns", n)
		}
		mustExec(t, here, "ALTER TABLE items ADD COLUMN extra INT")
		if n := columns(); n != 3 {
			t.Errorf("%d columns after ALTER TABLE, want 3", n)
		}
		mustExec(t, here, "ALTER TABLE items RENAME TO old_items", "CREATE TABLE items (id INT)")
		if n := columns(); n != 1 {
			t.Errorf("%d columns after another table has taken the name, want 1", n)
		}
	}, dbtest.PQ, dbtest.MariaDB)
}
