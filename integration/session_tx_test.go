package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A11.
func TestTheIsolationAndReadOnlyThatAreAskedForAreSet(t *testing.T) {
	levels := map[sql.IsolationLevel]string{
		sql.LevelDefault: "read committed", sql.LevelReadUncommitted: "read uncommitted", sql.LevelReadCommitted: "read committed",
		sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
	}
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, open(t))
			db, _ := openHerd(t, b.Database, sqlherd.Config{})
			for level, want := range levels {
				for _, readOnly := range []bool{false, true} {
					tx, err := db.BeginTx(withDeadline(t), &sql.TxOptions{Isolation: level, ReadOnly: readOnly})
					if err != nil {
						t.Errorf("%v, read only %v: %v", level, readOnly, err)
						continue
					}
					wantText(t, tx, want, sqlherd.Passthrough, "SHOW transaction_isolation")
					wantText(t, tx, map[bool]string{false: "off", true: "on"}[readOnly], sqlherd.Passthrough, "SHOW transaction_read_only")
					_, err = tx.Exec("INSERT INTO items VALUES (9, 'nine')")
					if got := sqlState(err) == "25006"; got != readOnly {
						t.Errorf("%v, read only %v: the INSERT gave %v", level, readOnly, err)
					}
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// MariaDB does not tell a transaction's isolation, so it is known by what the transaction sees.
func TestTheIsolationThatIsAskedForDecidesWhatATransactionSees(t *testing.T) {
	b := newBed(t, dbtest.MariaDB(t))
	wrapped, _ := openHerd(t, b.Database, sqlherd.Config{})
	query := b.slow("ttl=10m", 0)
	wantText(t, wrapped, "one", sqlherd.Miss, query, 1)
	for pool, db := range map[string]*sql.DB{"bare": b.admin, "wrapped": wrapped} {
		for level, want := range map[sql.IsolationLevel]string{
			sql.LevelReadUncommitted: "committed, then open", sql.LevelReadCommitted: "committed", sql.LevelRepeatableRead: "before", sql.LevelDefault: "before",
		} {
			b.set(t, 1, "before")
			tx, err := db.BeginTx(withDeadline(t), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatalf("%s, %v: %v", pool, level, err)
			}
			first, _, err := text(withDeadline(t), tx, query, 1)
			if err != nil || first != "before" {
				t.Fatalf("%s, %v: first %q, %v", pool, level, first, err)
			}
			b.set(t, 1, "committed")
			other, err := b.admin.Begin()
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, other, "UPDATE items SET v = 'committed, then open' WHERE id = 1")
			second, _, err := text(withDeadline(t), tx, query, 1)
			if err != nil || second != want {
				t.Errorf("%s, %v: then reads %q, %v; want %q", pool, level, second, err, want)
			}
			for _, x := range []*sql.Tx{other, tx} {
				if err := x.Rollback(); err != nil {
					t.Error(err)
				}
			}
		}
		tx, err := db.BeginTx(withDeadline(t), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("UPDATE items SET v = 'x' WHERE id = 1"); err == nil {
			t.Errorf("%s: a read-only transaction has written", pool)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	// None of it is seen outside, where rows are cached.
	wantText(t, wrapped, "one", sqlherd.Hit, query, 1)
}

func TestOptionsThatSQLiteCannotHonorAreRefusedOrTakenAsByTheBareDriver(t *testing.T) {
	on(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		wrapped, _ := openHerd(t, b.Database, sqlherd.Config{})
		for level := sql.LevelDefault; level <= sql.LevelLinearizable; level++ {
			for _, readOnly := range []bool{false, true} {
				try := func(db *sql.DB) string {
					tx, err := db.BeginTx(withDeadline(t), &sql.TxOptions{Isolation: level, ReadOnly: readOnly})
					if err != nil {
						return "begin: " + err.Error()
					}
					defer tx.Rollback() //nolint:errcheck // nothing was written
					_, err = tx.Exec("INSERT INTO items VALUES (9, 'nine')")
					return "insert: " + said(err)
				}
				if bare, got := try(b.admin), try(wrapped); got != bare {
					t.Errorf("%v, read only %v: %s, and bare %s", level, readOnly, got, bare)
				}
			}
		}
	}, dbtest.SQLite, dbtest.SQLiteCgo)
}

// E25: what is written in a transaction that a text has begun is seen by others when a text has committed it, and by nobody
// when it was rolled back.
func TestATransactionOfTextsIsSeenFromItsCommitOn(t *testing.T) {
	type ending struct {
		statements []string
		committed  bool
	}
	begins := map[dbtest.Engine][]string{
		dbtest.EnginePostgres: {"BEGIN", "/* x */ start transaction isolation level serializable"},
		dbtest.EngineMariaDB:  {"BEGIN", "START TRANSACTION", "SET autocommit = 0", "SET @@autocommit = OFF"},
		dbtest.EngineSQLite:   {"BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT outermost"},
	}
	endings := map[dbtest.Engine][]ending{
		dbtest.EnginePostgres: {{[]string{"COMMIT"}, true}, {[]string{"END"}, true}, {[]string{"COMMIT AND CHAIN", "ROLLBACK"}, true},
			{[]string{"SAVEPOINT s", "ROLLBACK TO s", "COMMIT"}, true}, {[]string{"ROLLBACK"}, false}, {[]string{"ABORT"}, false},
			{[]string{"ROLLBACK AND CHAIN", "COMMIT"}, false}},
		dbtest.EngineMariaDB: {{[]string{"COMMIT"}, true}, {[]string{"COMMIT AND CHAIN", "ROLLBACK"}, true},
			{[]string{"CREATE TABLE IF NOT EXISTS extra (a INT)", "ROLLBACK"}, true}, {[]string{"BEGIN", "ROLLBACK"}, true},
			{[]string{"SAVEPOINT s", "ROLLBACK TO s", "COMMIT"}, true}, {[]string{"ROLLBACK"}, false}, {[]string{"ROLLBACK AND CHAIN", "COMMIT"}, false}},
		dbtest.EngineSQLite: {{[]string{"COMMIT"}, true}, {[]string{"END TRANSACTION"}, true}, {[]string{"ROLLBACK"}, false},
			{[]string{"SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "COMMIT"}, true}},
	}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		here, _ := openHerd(t, b.Database, cfg)
		there, th := openHerd(t, b.Database, cfg)
		await(t, "messages arrive", func() bool { return th.Stats().Redis.Subscribed })
		query := b.slow("ttl=10m", 0)
		n := 0
		for _, begin := range begins[d.Engine] {
			for _, end := range endings[d.Engine] {
				n++
				before, after := fmt.Sprint("before ", n), fmt.Sprint("after ", n)
				mustExec(t, here, fmt.Sprintf("UPDATE items SET v = '%s' WHERE id = 1", before))
				wantRead(t, here, before, query)
				mine := conn(t, here)
				mustExec(t, mine, begin, fmt.Sprintf("UPDATE items SET v = '%s' WHERE id = 1", after))
				if info := wantText(t, mine, after, sqlherd.Bypassed, query, 1); info.Reason != sqlherd.ReasonTx && info.Reason != sqlherd.ReasonSession {
					t.Errorf("%s: inside %v", begin, info.Reason)
				}
				wantRead(t, here, before, query)
				mustExec(t, mine, end.statements...)
				want := before
				if end.committed {
					want = after
				}
				wantRead(t, here, want, query)
				wantRead(t, mine, want, query)
				await(t, fmt.Sprint("the other process knows of ", begin, end.statements), func() bool {
					v, _, err := text(withDeadline(t), there, query, 1)
					if err != nil {
						t.Fatal(err)
					}
					return v == want
				})
				// The connection must not go back with autocommit off, or its next user would never commit.
				mine.Raw(func(any) error { return errDrop }) //nolint:errcheck // it is how a connection is dropped
			}
		}
	})
}

// wantRead fails the test unless a read of item 1 gives want, in whatever way.
func wantRead(t testing.TB, q querier, want, query string) {
	t.Helper()
	v, info, err := text(withDeadline(t), q, query, 1)
	if err != nil || v != want {
		t.Errorf("got %q (%v %v), %v; want %q", v, info.Outcome, info.Reason, err, want)
	}
}

// E25: a connection that is closed in mid-transaction has written nothing, whoever opened the transaction.
func TestAConnectionThatIsClosedInATransactionOfTextsLeavesNothing(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		query := b.slow("ttl=10m", 0)
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		mine, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, mine, "BEGIN", "UPDATE items SET v = 'lost' WHERE id = 1")
		mine.Raw(func(any) error { return errDrop }) //nolint:errcheck // as above
		mine.Close()
		await(t, "the row is free", func() bool {
			_, err := db.Exec("UPDATE items SET v = v WHERE id = 1")
			return err == nil
		})
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		wantText(t, db, "one", sqlherd.Hit, query, 1)
	})
}

// With autocommit off in the DSN a connection reads a snapshot that it never leaves, and what it has written is not committed
// yet when the statement ends: neither may reach the cache.
func TestRowsOfASnapshotAreNotCachedWhenTheDSNTurnsAutocommitOff(t *testing.T) {
	b := newBed(t, dbtest.MariaDB(t))
	for _, setting := range []string{"autocommit=0", "autocommit=%27OFF%27", "completion_type=1"} {
		t.Run(setting, func(t *testing.T) {
			db, h := openHerd(t, b.Database.WithParams(setting), sqlherd.Config{})
			settled := open(t, h, b.Database) // of the same application, and with the cache
			query := b.slow("ttl=10m", 0)
			b.set(t, 1, "before")
			if err := h.InvalidateAll(withDeadline(t)); err != nil {
				t.Fatal(err)
			}
			wantText(t, settled, "before", sqlherd.Miss, query, 1)
			mine := conn(t, db)
			for range 2 {
				if info := wantText(t, mine, "before", sqlherd.Bypassed, query, 1); info.Reason != sqlherd.ReasonSession {
					t.Errorf("%v %s, want session", info.Reason, info.Detail)
				}
			}
			mustExec(t, mine, "COMMIT", "UPDATE items SET v = 'after' WHERE id = 1")
			wantText(t, mine, "after", sqlherd.Bypassed, query, 1)
			wantRead(t, settled, "before", query)
			mustExec(t, mine, "COMMIT")
			wantRead(t, settled, "after", query)
			mine.Raw(func(any) error { return errDrop }) //nolint:errcheck // as above
			if n := b.loads(t); n == 0 {
				t.Error("nothing was read")
			}
		})
	}
}

// errDrop makes database/sql close the connection.
var errDrop = driver.ErrBadConn
