package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestClosingInAnyOrderDuringAStampedeLeavesNothing(t *testing.T) {
	type closer struct {
		name  string
		close func(*sql.DB, *sqlherd.Herd) error
	}
	closeDB := closer{"db", func(db *sql.DB, _ *sqlherd.Herd) error { return db.Close() }}
	closeHerd := closer{"herd", func(_ *sql.DB, h *sqlherd.Herd) error { return h.Close() }}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		for _, order := range [][]closer{{closeDB, closeHerd}, {closeHerd, closeDB}, {closeHerd, closeHerd, closeDB, closeDB}} {
			var names []string
			for _, c := range order {
				names = append(names, c.name)
			}
			t.Run(strings.Join(names, ","), func(t *testing.T) {
				rdb, ns := dbtest.Redis(t)
				if err := rdb.Ping(withDeadline(t)).Err(); err != nil {
					t.Fatal(err)
				}
				connections := 0
				if d.Engine != dbtest.EngineSQLite {
					connections = b.Connections(t)
				}
				loads := b.loads(t)
				others := goleak.IgnoreCurrent()

				h, err := sqlherd.New(sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				db := openUnmanaged(t, h, b.Database)
				mustExec(t, db, "UPDATE items SET v = 'three' WHERE id = 3") // a real connection of the application's pool
				done := make(chan *tally)
				go func() {
					all := stampede(context.Background(), db, 200, b.slow("ttl=10m swr=10m", 700), 1)
					done <- all
				}()
				await(t, "the load has begun", func() bool { return b.loads(t) > loads })
				began := time.Now()
				for _, c := range order {
					if err := c.close(db, h); err != nil {
						t.Errorf("closing the %s: %v", c.name, err)
					}
				}
				t.Logf("closed within %v", time.Since(began))
				all := <-done
				for msg, n := range all.Errors {
					if !strings.Contains(msg, "closed") {
						t.Errorf("%d callers got %q, which does not say that something was closed", n, msg)
					}
				}
				if n := len(all.Errors); n == 0 {
					t.Errorf("%v: every caller got rows from what was closed", all)
				}
				if err := goleak.Find(others, goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")); err != nil {
					t.Error(err)
				}
				if d.Engine != dbtest.EngineSQLite {
					await(t, "the server has no connection left", func() bool { return b.Connections(t) <= connections })
				}
			})
		}
	})
}

// openUnmanaged is open for a test that closes the pool itself.
func openUnmanaged(t *testing.T, h *sqlherd.Herd, d dbtest.Database) *sql.DB {
	t.Helper()
	c, err := connectorOf(h, d)
	if err != nil {
		t.Fatal(err)
	}
	return sql.OpenDB(c)
}

func TestAfterHerdCloseQueriesRunUncachedAndWritesStillInvalidate(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		db, h := openHerd(t, b.Database, sqlherd.Config{})
		query := b.slow("ttl=10m", 0)
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if info := wantText(t, db, "one", sqlherd.Bypassed, query, 1); info.Reason != sqlherd.ReasonClosed {
				t.Errorf("reason %v", info.Reason)
			}
		}
		mustExec(t, db, "UPDATE items SET v = 'changed' WHERE id = 1")
		wantText(t, db, "changed", sqlherd.Bypassed, query, 1)
		if err := h.Invalidate(withDeadline(t), "x"); err != nil && !errors.Is(err, sqlherd.ErrClosed) {
			t.Errorf("Invalidate after Close: %v", err)
		}
	})
}
