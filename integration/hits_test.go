package integration_test

import (
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestHitsNeedNoDatabase(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		direct := newBed(t, d)
		b, proxy := direct.through(t)
		query := b.slow("ttl=1m", 0)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		db, _ := openHerd(t, b.Database, cfg)
		wantText(t, db, "one", sqlherd.Miss, query, 1)

		accepted := proxy.Accepted()
		proxy.Refuse()
		all := stampede(withDeadline(t), db, callers, query, 1)
		all.check(t, "one", callers)
		if all.Outcomes["hit"] != callers {
			t.Errorf("%v; want hits alone", all)
		}
		stmt, err := db.Prepare(query) // it is prepared when it must run
		if err != nil {
			t.Errorf("preparing a cached query without a database: %v", err)
		} else {
			stmt.Close()
		}
		if _, err := db.Exec("UPDATE items SET v = 'changed' WHERE id = 3"); err == nil {
			t.Error("the database is not away")
		}

		// Another process, which has never seen the database, finds the rows in Redis.
		other, h := openHerd(t, b.Database, cfg)
		stampede(withDeadline(t), other, callers, query, 1).check(t, "one", callers)
		if st := h.Stats(); st.Loads != 0 || st.Dials != 0 {
			t.Errorf("from Redis: %s; want no load and no dial", outcomes(h))
		}

		proxy.Pass()
		all = stampede(withDeadline(t), db, callers, query, 1)
		all.check(t, "one", callers)
		if n := proxy.Accepted(); n != accepted {
			t.Errorf("hits made %d connections", n-accepted)
		}
		direct.wantLoads(t, 1)
	})
}

func TestHitsHoldNoConnectionWhileATransactionHasTheOnlyOne(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		query := b.slow("ttl=1m", 0)
		seen, proxy := b.through(t)
		db, _ := openHerd(t, seen.Database, sqlherd.Config{MaxDBConns: 1})
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		mustExec(t, tx, "UPDATE items SET v = 'not yet' WHERE id = 1")
		all := stampede(withDeadline(t), db, callers, query, 1)
		all.check(t, "one", callers)
		if all.Outcomes["hit"] != callers {
			t.Errorf("%v; want hits alone", all)
		}
		if n := proxy.Peak(); n != 2 { // the transaction's and the loader's
			t.Errorf("%d connections at once, want 2", n)
		}
	})
}

func TestStaleRowsAreServedWithoutADatabase(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b, proxy := newBed(t, d).through(t)
		query := b.slow("ttl=50ms swr=10m jitter=0 early=off", 0)
		db, h := openHerd(t, b.Database, sqlherd.Config{})
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		proxy.Refuse()
		await(t, "the rows are stale", func() bool {
			_, info, err := text(withDeadline(t), db, query, 1)
			if err != nil {
				t.Fatal(err)
			}
			return info.Outcome == sqlherd.Stale
		})
		await(t, "a refresh has failed", func() bool { return h.Stats().Refreshes[sqlherd.RefreshFailed] > 0 })
		all := stampede(withDeadline(t), db, callers, query, 1)
		all.check(t, "one", callers)
		if all.Outcomes["stale"] != callers {
			t.Errorf("%v; want stale rows alone", all)
		}

		proxy.Pass()
		b.set(t, 1, "changed")
		await(t, "a refresh has brought the new rows", func() bool {
			v, _, err := text(withDeadline(t), db, query, 1)
			return err == nil && v == "changed"
		})
	})
}

func TestRowsWithinStaleIfErrorAreServedWhenTheDatabaseIsAway(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b, proxy := newBed(t, d).through(t)
		query := b.slow("ttl=50ms sie=10m jitter=0", 0)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		proxy.Refuse()
		await(t, "the rows have run out", func() bool {
			v, info, err := text(withDeadline(t), db, query, 1)
			if err != nil || v != "one" {
				t.Fatalf("%q, %v", v, err)
			}
			return info.Outcome == sqlherd.StaleError
		})
		// What was never read has nothing to fall back on.
		if _, _, err := text(withDeadline(t), db, query, 2); err == nil {
			t.Error("a cold key has rows while the database is away")
		}
		proxy.Pass()
		await(t, "the database answers again", func() bool {
			_, info, err := text(withDeadline(t), db, query, 1)
			return err == nil && info.Outcome == sqlherd.Miss
		})
	})
}

// A database that comes back is asked again on connections that are not dead.
func TestDeadConnectionsOfTheLoaderAreReplaced(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b, proxy := newBed(t, d).through(t)
		query := b.slow("ttl=1m", 0)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		proxy.Cut()
		began := time.Now()
		wantText(t, db, "two", sqlherd.Miss, query, 2)
		t.Logf("the first load after its connection was cut took %v", time.Since(began))
	})
}
