package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// openHerd opens a pool on db beneath a new Herd, and closes both at the end of the test.
func openHerd(t *testing.T, db *fakeDB, cfg sqlherd.Config) (*sql.DB, *sqlherd.Herd) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := sqlherd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(h.Connector(fakeConnector{db}))
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error("closing the pool:", err)
		}
		if err := h.Close(); err != nil {
			t.Error("closing the herd:", err)
		}
	})
	return pool, h
}

const hinted = `SELECT /* @cache ttl=10s jitter=0 early=off */ v FROM t`

func queryOne(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string, args ...any) (v string, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&v)
	return v, err
}

func TestAThousandCallersOnAColdKeyAreOneQueryAndOneConnection(t *testing.T) {
	for _, pool := range []int{0, 1, 20} {
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB(t, slowly(150*time.Millisecond, "rows"))
			p, h := openHerd(t, db, sqlherd.Config{})
			p.SetMaxOpenConns(pool)
			var wg sync.WaitGroup
			var failed atomic.Int64
			began := time.Now()
			for range 1000 {
				wg.Go(func() {
					if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
						failed.Add(1)
					}
				})
			}
			wg.Wait()
			if n := failed.Load(); n != 0 {
				t.Errorf("pool %d: %d of 1000 callers did not get the rows", pool, n)
			}
			if n := db.queries.Load(); n != 1 {
				t.Errorf("pool %d: %d queries, want 1", pool, n)
			}
			if n := db.opens.Load(); n != 1 {
				t.Errorf("pool %d: %d connections, want 1", pool, n)
			}
			if d := time.Since(began); d != 150*time.Millisecond {
				t.Errorf("pool %d: the last caller waited %v, want 150ms", pool, d)
			}
			st := h.Stats()
			if m := st.Outcomes[sqlherd.Miss]; m != 1 {
				t.Errorf("pool %d: outcomes %v, want one miss", pool, st.Outcomes)
			}
			if n := st.Outcomes[sqlherd.Miss] + st.Outcomes[sqlherd.Shared] + st.Outcomes[sqlherd.Hit]; n != 1000 {
				t.Errorf("pool %d: outcomes %v, want 1000 in all", pool, st.Outcomes)
			}
		})
	}
}

func TestAThousandHitsAtOnceOpenNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(0, "rows"))
		p, _ := openHerd(t, db, sqlherd.Config{})
		if _, err := queryOne(t.Context(), p, hinted); err != nil {
			t.Fatal(err)
		}
		opens := db.opens.Load()
		db.mu.Lock()
		db.dialError = errors.New("the database is stopped")
		db.mu.Unlock()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if _, err := queryOne(t.Context(), p, hinted); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := db.opens.Load(); n != opens {
			t.Errorf("hits opened %d connections", n-opens)
		}
	})
}

func TestAHitIsServedWhileTheOnlyConnectionIsInATransactionElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(0, "rows"))
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
		if _, err := queryOne(t.Context(), p, hinted); err != nil {
			t.Fatal(err)
		}
		tx, err := p.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v, err := queryOne(ctx, p, hinted); v != "rows" || err != nil {
			t.Errorf("the hit gave %q, %v", v, err)
		}
		if _, err := queryOne(ctx, p, "SELECT v FROM t"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an uncached query beside the transaction gave %v, want to wait until its deadline", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := queryOne(t.Context(), p, "SELECT v FROM t"); err != nil {
			t.Errorf("after the transaction: %v", err)
		}
	})
}

func TestReadingPartOfTheRowsIsOneLoad(t *testing.T) {
	three := func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		return rowsOf([]string{"v"}, []driver.Value{"1"}, []driver.Value{"2"}, []driver.Value{"3"}), nil
	}
	nextOnce := func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		rows.Next()
		return rows.Close()
	}
	for name, read := range map[string]func(p *sql.DB) error{
		"QueryRow": func(p *sql.DB) error { _, err := queryOne(context.Background(), p, hinted); return err },
		"Next once then Close": func(p *sql.DB) error {
			return nextOnce(p.Query(hinted))
		},
		"prepared": func(p *sql.DB) error {
			st, err := p.Prepare(hinted)
			if err != nil {
				return err
			}
			defer st.Close()
			return nextOnce(st.Query())
		},
		"Conn": func(p *sql.DB) error {
			c, err := p.Conn(context.Background())
			if err != nil {
				return err
			}
			defer c.Close()
			return nextOnce(c.QueryContext(context.Background(), hinted))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newFakeDB(t, three)
			p, _ := openHerd(t, db, sqlherd.Config{})
			for range 3 {
				if err := read(p); err != nil {
					t.Fatal(err)
				}
			}
			if n := db.queries.Load(); n != 1 {
				t.Errorf("%d queries for three reads, want 1", n)
			}
			rows, err := p.Query(hinted)
			if name == "prepared" {
				st, _ := p.Prepare(hinted)
				defer st.Close()
				rows.Close()
				rows, err = st.Query()
			}
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				n++
			}
			if n != 3 || rows.Err() != nil {
				t.Errorf("the stored result has %d rows (%v), want 3", n, rows.Err())
			}
		})
	}
}

func TestRowsThatWereCutShortAreNeverStored(t *testing.T) {
	for name, fail := range map[string]error{
		"driver error on row 3": errors.New("disk on fire"),
		"lost connection":       io.ErrUnexpectedEOF,
		"bad connection":        driver.ErrBadConn,
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			broken.Store(true)
			db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
				r := rowsOf([]string{"v"}, []driver.Value{"1"}, []driver.Value{"2"}, []driver.Value{"3"}, []driver.Value{"4"}, []driver.Value{"5"})
				if broken.Load() {
					r.fail, r.failAt = fail, 2
				}
				return r, nil
			})
			p, _ := openHerd(t, db, sqlherd.Config{})
			rows, err := p.Query(hinted)
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			if !errors.Is(err, fail) {
				t.Errorf("got %v, want %v", err, fail)
			}
			broken.Store(false)
			n := 0
			rows, err = p.Query(hinted)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				n++
			}
			if n != 5 {
				t.Errorf("%d rows after the repair, want 5", n)
			}
		})
	}
	t.Run("cancelled after three rows", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			first := true
			db := newFakeDB(t, func(lctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
				r := rowsOf([]string{"v"})
				for range 10 {
					r.rows = append(r.rows, []driver.Value{"row"})
				}
				if first {
					first = false
					r.hook = func(i int) {
						if i == 3 {
							cancel()
							<-lctx.Done()
						}
					}
					r.fail, r.failAt = context.Canceled, 3
				}
				return r, nil
			})
			p, _ := openHerd(t, db, sqlherd.Config{})
			if _, err := queryOne(ctx, p, hinted); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled caller got %v", err)
			}
			synctest.Wait()
			rows, err := p.Query(hinted)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				n++
			}
			if n != 10 {
				t.Errorf("%d rows, want 10", n)
			}
		})
	})
}

func TestACancelledLeaderLeavesAtOnceAndItsFollowersGetTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(300*time.Millisecond, "rows"))
		p, _ := openHerd(t, db, sqlherd.Config{})
		leaderCtx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := queryOne(leaderCtx, p, hinted)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the leader got %v, want its own cancellation", err)
			}
			if d := time.Since(began); d != 50*time.Millisecond {
				t.Errorf("the leader left after %v, want 50ms", d)
			}
		})
		synctest.Wait() // the leader leads
		for range 20 {
			wg.Go(func() {
				if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
					t.Errorf("a follower got %q, %v", v, err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		cancel()
		wg.Wait()
		if n := db.queries.Load(); n != 1 {
			t.Errorf("%d queries, want 1", n)
		}
	})
}

func TestWhenEverybodyLeavesTheLoadEndsAndANewcomerStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
			began := time.Now()
			if err := sleep(ctx, time.Second); err != nil {
				ended.Store(int64(time.Since(began)))
				return nil, err
			}
			return one("rows"), nil
		})
		p, _ := openHerd(t, db, sqlherd.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := queryOne(ctx, p, hinted); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the caller's deadline", err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if d := time.Duration(ended.Load()); d != 100*time.Millisecond {
			t.Errorf("the load ended after %v, want 100ms", d)
		}
		if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
			t.Errorf("the newcomer got %q, %v", v, err)
		}
		if n := db.queries.Load(); n != 2 {
			t.Errorf("%d queries, want 2", n)
		}
	})
}

func TestAFollowersShortDeadlineIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(300*time.Millisecond, "rows"))
		p, _ := openHerd(t, db, sqlherd.Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := queryOne(t.Context(), p, hinted); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := queryOne(ctx, p, hinted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 20*time.Millisecond {
			t.Errorf("left after %v, want 20ms", d)
		}
		wg.Wait()
	})
}

func TestADriverThatPanicsFailsItsCallersAndNothingElse(t *testing.T) {
	for _, where := range []string{"Query", "Next"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				broken.Store(true)
				db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
					if err := sleep(ctx, 10*time.Millisecond); err != nil {
						return nil, err
					}
					r := one("rows")
					if broken.Load() {
						if where == "Query" {
							panic("the driver is broken")
						}
						r.hook = func(int) { panic("the driver is broken") }
					}
					return r, nil
				})
				p, _ := openHerd(t, db, sqlherd.Config{})
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						if _, err := queryOne(t.Context(), p, hinted); err == nil || !strings.Contains(err.Error(), "the driver is broken") {
							t.Errorf("got %v, want an error that tells of the panic", err)
						}
					})
				}
				wg.Wait()
				broken.Store(false)
				if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
					t.Errorf("the next call got %q, %v", v, err)
				}
			})
		})
	}
}

type driverError struct{ Code int }

func (e *driverError) Error() string    { return "driver error" }
func (e *driverError) SQLState() string { return "42601" }

func TestALeadersErrorReachesEveryFollowerUnwrappedAndIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			if broken.Load() {
				return nil, &driverError{Code: 7}
			}
			return one("rows"), nil
		})
		p, _ := openHerd(t, db, sqlherd.Config{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := queryOne(t.Context(), p, hinted)
				if de, ok := err.(*driverError); !ok || de.Code != 7 {
					t.Errorf("got %T %v, want the driver's own error", err, err)
				}
			})
		}
		wg.Wait()
		broken.Store(false)
		if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
			t.Errorf("the next call got %q, %v", v, err)
		}
		if n := db.queries.Load(); n != 2 {
			t.Errorf("%d queries, want 2", n)
		}
	})
}

func TestClosingInAnyOrderDuringAStampedeLeavesNoGoroutineAndTellsTheCallers(t *testing.T) {
	for _, herdFirst := range []bool{true, false} {
		// A goroutine that is left when the test ends makes synctest fail.
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			h, err := sqlherd.New(sqlherd.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p := sql.OpenDB(h.Connector(fakeConnector{db}))
			errs := make(chan error, 50)
			for range 50 {
				go func() {
					_, err := queryOne(context.Background(), p, hinted)
					errs <- err
				}()
			}
			synctest.Wait() // all of them wait for the load
			closers := []func() error{h.Close, p.Close}
			if !herdFirst {
				closers = []func() error{p.Close, h.Close}
			}
			for range 2 {
				for _, c := range closers {
					if err := c(); err != nil {
						t.Error(err)
					}
				}
			}
			for range 50 {
				if err := <-errs; !errors.Is(err, sqlherd.ErrClosed) {
					t.Errorf("herd first %v: a caller got %v, want ErrClosed", herdFirst, err)
				}
			}
			if n := db.open.Load(); n != 0 {
				t.Errorf("herd first %v: %d connections are left open", herdFirst, n)
			}
		})
	}
}
