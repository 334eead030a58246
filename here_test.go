package sqlherd_test

// Loads on the caller's own connection (Config.LoadOnCallerConn).

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

func TestAPrivateInMemoryDatabaseWithoutLoadOnCallerConnIsRefused(t *testing.T) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.SQLite})
	for _, dsn := range []string{":memory:", "file::memory:", "file:x?mode=memory"} {
		_, err := h.Driver(fakeDriver{newFakeDB(t, nil)}).(driver.DriverContext).OpenConnector(dsn)
		if err == nil || !strings.Contains(err.Error(), "LoadOnCallerConn") {
			t.Errorf("%s: got %v, want an error that names Config.LoadOnCallerConn", dsn, err)
		}
	}
}

func TestALoadOnTheCallersConnectionNeedsNoOtherAndItsConnectionSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Every connection is a database of its own, which counts what it is asked.
		var mu sync.Mutex
		asked := make(map[*fakeConn]int)
		db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, time.Millisecond); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			c := connOf(ctx)
			asked[c]++
			return one(fmt.Sprintf("%p", c)), nil
		})
		h := newHerd(t, sqlherd.Config{Dialect: sqlherd.SQLite, LoadOnCallerConn: true, MaxDBConns: 2})
		for name, open := range map[string]func() driver.Connector{
			"DSN": func() driver.Connector {
				c, err := h.Driver(fakeDriver{db}).(driver.DriverContext).OpenConnector(":memory:")
				if err != nil {
					t.Fatal(err)
				}
				return c
			},
			"connector": func() driver.Connector { return h.Connector(fakeConnector{db}) },
		} {
			p := openPool(t, open())
			p.SetMaxIdleConns(10)
			before := db.opens.Load()
			conns := []struct{ v string }{}
			for range 4 {
				c := connect(t, p)
				v, info := ask(t, c)
				if info.Outcome != sqlherd.Miss {
					t.Errorf("%s: the first read is a %v", name, info.Outcome)
				}
				again, info := ask(t, c)
				if again != v || info.Outcome != sqlherd.Hit {
					t.Errorf("%s: the second read is a %v of %q, want a hit of %q", name, info.Outcome, again, v)
				}
				for _, other := range conns {
					if other.v == v {
						t.Errorf("%s: two connections share rows", name)
					}
				}
				conns = append(conns, struct{ v string }{v})
			}
			if n := db.opens.Load() - before; n != 4 {
				t.Errorf("%s: %d connections for 4 conns", name, n)
			}
		}
		for c, n := range asked {
			if n != 1 {
				t.Errorf("connection %p was asked %d times, want once", c, n)
			}
		}
	})
}

// hereHerd opens a pool whose connections share a database and load on themselves.
func hereHerd(t *testing.T, db *fakeDB) (*sql.DB, *sqlherd.Herd) {
	h := newHerd(t, sqlherd.Config{LoadOnCallerConn: true})
	return openPool(t, h.Connector(fakeConnector{db}, sqlherd.Identity("file"))), h
}

func TestALoadOnTheCallersConnectionIsSharedAndACancelledLeaderStaysUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(300*time.Millisecond, "rows"))
		p, h := hereHerd(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := queryOne(ctx, p, hinted)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the leader got %v", err)
			}
			// Its connection is in use: it cannot go back into the pool before.
			if d := time.Since(began); d != 300*time.Millisecond {
				t.Errorf("the leader left after %v", d)
			}
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
					t.Errorf("a follower got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		want(t, "afterwards", p, "rows", sqlherd.Hit, 0)
		if n := db.queries.Load(); n != 1 {
			t.Errorf("%d queries, want 1", n)
		}
		if n := db.opens.Load(); n != 1 {
			t.Errorf("%d connections, want the leader's", n)
		}
		if st := h.Stats(); len(st.Refreshes) > 0 {
			t.Errorf("refreshes %v", st.Refreshes)
		}
	})
}

func TestALoadOnTheCallersConnectionThatEverybodyLeavesEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(time.Hour, "rows"))
		p, _ := hereHerd(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := queryOne(ctx, p, hinted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 50*time.Millisecond {
			t.Errorf("left after %v", d)
		}
	})
}

func TestNothingIsServedStaleWhereLoadsRunOnTheCallersConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
			return one(fmt.Sprint("v", n.Add(1))), nil
		})
		p, h := hereHerd(t, db)
		query := `SELECT /* @cache ttl=1s swr=1h jitter=0 */ v FROM t`
		for i := 1; i <= 3; i++ {
			v, err := queryOne(t.Context(), p, query)
			if v != fmt.Sprint("v", i) || err != nil {
				t.Errorf("read %q, %v in second %d", v, err, i)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		synctest.Wait()
		if st := h.Stats(); st.Outcomes[sqlherd.Miss] != 3 || len(st.Refreshes) != 0 {
			t.Errorf("outcomes %v, refreshes %v; want three misses and no refresh", st.Outcomes, st.Refreshes)
		}
	})
}

func TestWhatCannotBeKeptComesWholeWhereLoadsRunOnTheCallersConnection(t *testing.T) {
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		return &fakeResult{cols: []string{"v"}, count: 100, make: func(i int) []driver.Value { return []driver.Value{int64(i)} }}, nil
	})
	p, h := hereHerd(t, db)
	for range 3 {
		rows, err := p.Query(`SELECT /* @cache ttl=1s max-rows=10 */ v FROM t`)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		if n != 100 || rows.Err() != nil {
			t.Errorf("%d rows, %v", n, rows.Err())
		}
	}
	if st := h.Stats(); st.Reasons[sqlherd.ReasonSize] != 3 {
		t.Errorf("reasons %v, want size three times", st.Reasons)
	}
	if db.open.Load() != 1 {
		t.Errorf("%d connections open", db.open.Load())
	}
}

// A thousand callers of many keys, some of whom leave early: the fake reports two goroutines on one
// connection.
func TestLoadsOnCallersConnectionsNeverShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(3*time.Millisecond, "rows"))
		p, _ := hereHerd(t, db)
		p.SetMaxOpenConns(20)
		p.SetMaxIdleConns(20)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%37) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%11)*time.Millisecond)
				defer cancel()
				v, err := queryOne(ctx, p, fmt.Sprintf(`SELECT /* @cache ttl=5ms */ v, %d FROM t`, i%13))
				if err == nil && v != "rows" || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestADeadConnectionIsItsOwnersProblemWhereLoadsRunOnTheCallersConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		bad.Store(true)
		db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			if bad.CompareAndSwap(true, false) {
				return nil, driver.ErrBadConn
			}
			return one("rows"), nil
		})
		p, _ := hereHerd(t, db)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := db.queries.Load(); n != 2 {
			t.Errorf("%d queries, want the bad one and its repetition", n)
		}
	})
}
