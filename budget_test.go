package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

const plain = "SELECT v FROM t"

// lazyPair returns two conns of the pool, of which the first holds the only real connection.
func lazyPair(t *testing.T, p *sql.DB) (holder, other *sql.Conn) {
	t.Helper()
	p.SetMaxIdleConns(10)
	holder, other = connect(t, p), connect(t, p)
	if _, err := queryOne(t.Context(), holder, plain); err != nil {
		t.Fatal(err)
	}
	return holder, other
}

func TestAnIdleConnectionIsHandedToWhoNeedsOneIfItsSessionIsClean(t *testing.T) {
	for name, c := range map[string]struct {
		use   func(*sql.Conn) error
		opens int64
	}{
		"clean":         {func(*sql.Conn) error { return nil }, 1},
		"after a write": {func(c *sql.Conn) error { _, err := c.ExecContext(t.Context(), "UPDATE t SET v = 'x'"); return err }, 1},
		"set":           {func(c *sql.Conn) error { _, err := c.ExecContext(t.Context(), "SET x = 1"); return err }, 2},
		"textual BEGIN": {func(c *sql.Conn) error { _, err := c.ExecContext(t.Context(), "BEGIN"); return err }, 2},
		"given to Raw":  {func(c *sql.Conn) error { return sqlherd.Raw(c, func(any) error { return nil }) }, 2},
		"textual, closed": {func(c *sql.Conn) error {
			_, err := c.ExecContext(t.Context(), "BEGIN")
			if err == nil {
				_, err = c.ExecContext(t.Context(), "COMMIT")
			}
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, db := newLedger(t)
			var resets atomic.Int64
			db.onReset = func(*fakeConn) error { resets.Add(1); return nil }
			p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1, Dialect: sqlherd.PostgreSQL})
			holder, other := lazyPair(t, p)
			if err := c.use(holder); err != nil {
				t.Fatal(err)
			}
			holder.Close() // it lies in the pool now, with the real connection
			if v, err := queryOne(t.Context(), other, plain); v == "" || err != nil {
				t.Fatalf("read %q, %v", v, err)
			}
			if n := db.opens.Load(); n != c.opens {
				t.Errorf("%d connections opened, want %d", n, c.opens)
			}
			if n := db.peak.Load(); n != 1 {
				t.Errorf("%d connections open at once, want 1", n)
			}
			if c.opens == 1 && resets.Load() == 0 {
				t.Error("the connection changed hands without a ResetSession")
			}
		})
	}
}

func TestBelowTheBoundAnIdleConnectionIsPreferredToANewOneIfItsSessionIsClean(t *testing.T) {
	for _, c := range []struct {
		name, leaves string
		opens, peak  int64
	}{
		{"clean", plain, 1, 1},
		{"set", "SET x = 1", 2, 2}, // nobody else could go on with it, and there is room: it stays
	} {
		t.Run(c.name, func(t *testing.T) {
			_, db := newLedger(t)
			p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 4, Dialect: sqlherd.PostgreSQL})
			holder, other := lazyPair(t, p)
			if _, err := holder.ExecContext(t.Context(), c.leaves); err != nil {
				t.Fatal(err)
			}
			holder.Close()
			if _, err := queryOne(t.Context(), other, plain); err != nil {
				t.Fatal(err)
			}
			if opens, peak := db.opens.Load(), db.peak.Load(); opens != c.opens || peak != c.peak {
				t.Errorf("%d connections opened, %d at once, want %d and %d", opens, peak, c.opens, c.peak)
			}
		})
	}
}

func TestAnIdleConnectionThatHoldsStatementsIsClosedWithThemAndTheyArePreparedAgain(t *testing.T) {
	_, db := newLedger(t)
	var stmtsClosed atomic.Int64
	db.onStmtClose = func() { stmtsClosed.Add(1) }
	p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
	p.SetMaxIdleConns(10)
	holder, other := connect(t, p), connect(t, p)
	st, err := p.Prepare("SELECT v FROM t WHERE a = ?")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := queryOne(t.Context(), other, plain); err != nil {
		t.Fatal(err)
	}
	if o, c := db.opens.Load(), stmtsClosed.Load(); o != 2 || c != 1 || db.peak.Load() != 1 {
		t.Errorf("%d opened, %d statements closed, %d open at once; want 2, 1, 1", o, c, db.peak.Load())
	}
	other.Close()
	holder.Close()
	var v string
	if err := st.QueryRow(1).Scan(&v); err != nil || v != "v1" {
		t.Errorf("the statement, afterwards: %q, %v", v, err)
	}
}

func TestAConnectionThatHasDiedIdleIsReplacedWhenItChangesHands(t *testing.T) {
	_, db := newLedger(t)
	db.onReset = func(c *fakeConn) error { return driver.ErrBadConn }
	p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
	holder, other := lazyPair(t, p)
	holder.Close()
	if v, err := queryOne(t.Context(), other, plain); v != "v1" || err != nil {
		t.Errorf("read %q, %v", v, err)
	}
	if o := db.opens.Load(); o != 2 || db.peak.Load() != 1 {
		t.Errorf("%d opened, %d at once; want 2, 1", o, db.peak.Load())
	}
}

// What a *sql.Conn has done to its session (a lock, a last insert's id) is its caller's, also while a query of it waits for a load.
func TestAConnKeepsItsSessionWhileItsNextQueryWaitsForALoad(t *testing.T) {
	for _, first := range []string{"SELECT pg_advisory_lock(1)", "INSERT INTO t VALUES (1)", "SELECT v FROM t"} {
		t.Run(first, func(t *testing.T) {
			loading, goOn := make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			on := map[string]*fakeConn{} // who ran the text last
			db := newFakeDB(t, func(ctx context.Context, query string, _ []driver.NamedValue) (*fakeResult, error) {
				if strings.Contains(query, "@cache") {
					close(loading)
					<-goOn
				}
				mu.Lock()
				defer mu.Unlock()
				on[query] = connOf(ctx)
				return one("rows"), nil
			})
			p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 2, Dialect: sqlherd.PostgreSQL})
			p.SetMaxIdleConns(10)
			mine, other := connect(t, p), connect(t, p)
			if _, err := mine.ExecContext(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := queryOne(t.Context(), mine, hinted); err != nil {
					t.Error(err)
				}
			})
			<-loading
			if _, err := queryOne(t.Context(), other, "SELECT 'another'"); err != nil {
				t.Error(err)
			}
			close(goOn)
			wg.Wait()
			const last = "SELECT pg_advisory_unlock(1)"
			if _, err := queryOne(t.Context(), mine, last); err != nil {
				t.Error(err)
			}
			if on[first] != on[last] || on[last] == on["SELECT 'another'"] {
				t.Error("another got the session")
			}
		})
	}
}

// A driver need not look whether a connection lives when it is reset. database/sql asks two of its connections, and then a new one.
func TestAfterARestartOfTheServerAStatementSucceedsAsOnTheBareDriver(t *testing.T) {
	for name, ask := range map[string]func(*sql.DB) error{
		"query":   func(p *sql.DB) error { _, err := queryOne(t.Context(), p, plain); return err },
		"exec":    func(p *sql.DB) error { _, err := p.Exec("UPDATE t SET v = 1"); return err },
		"prepare": func(p *sql.DB) error { st, err := p.Prepare(plain); return errors.Join(err, closeStmt(st)) },
		"begin": func(p *sql.DB) error {
			tx, err := p.Begin()
			if err != nil {
				return err
			}
			return tx.Rollback()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			dead := map[*fakeConn]bool{}
			var born []*fakeConn
			alive := func(c *fakeConn) error {
				mu.Lock()
				defer mu.Unlock()
				if dead[c] {
					return driver.ErrBadConn
				}
				if !slices.Contains(born, c) {
					born = append(born, c)
				}
				return nil
			}
			db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
				return one("rows"), alive(connOf(ctx))
			})
			db.onTx = func(c *fakeConn, _ string) error { return alive(c) }
			db.onPrepare = alive
			p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 8})
			p.SetMaxIdleConns(20)
			var conns []*sql.Conn
			for range 5 {
				conns = append(conns, connect(t, p))
			}
			idle := connect(t, p) // without a connection
			for _, c := range conns {
				if _, err := queryOne(t.Context(), c, plain); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range append(conns, idle) {
				c.Close()
			}
			if len(born) != 5 {
				t.Fatalf("%d connections", len(born))
			}
			mu.Lock()
			for _, c := range born {
				dead[c] = true
			}
			mu.Unlock()
			for range 3 {
				if err := ask(p); err != nil {
					t.Errorf("%v", err)
				}
			}
			if open := db.peak.Load(); open > 8 {
				t.Errorf("%d connections at once", open)
			}
		})
	}
}

func closeStmt(st *sql.Stmt) error {
	if st == nil {
		return nil
	}
	return st.Close()
}

func TestWhoWaitsForAConnectionIsServedInTheOrderOfComingAndLeavesAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := newLedger(t)
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1, Dialect: sqlherd.PostgreSQL})
		tx := begin(t, p)
		var wg sync.WaitGroup
		for i := range 10 {
			ctx := t.Context()
			if i%3 == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			wg.Go(func() {
				began := time.Now()
				_, err := queryOne(ctx, p, fmt.Sprint("SELECT v FROM t LIMIT ", 10+i))
				if i%3 == 1 {
					if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
						t.Errorf("%d got %v after %v, want its deadline after 1s", i, err, time.Since(began))
					}
					return
				}
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		var order []string
		for _, q := range db.statements() {
			if _, limit, ok := strings.Cut(q, "LIMIT 1"); ok {
				order = append(order, limit)
			}
		}
		if !slices.Equal(order, []string{"0", "2", "3", "5", "6", "8", "9"}) {
			t.Errorf("served in the order %v", order)
		}
		if n := db.peak.Load(); n != 1 {
			t.Errorf("%d connections at once, want 1", n)
		}
	})
}

func TestADialThatFailsAndAConnectionThatThePoolClosesGiveTheirPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := newLedger(t)
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 2})
		refused := errors.New("refused")
		setDial := func(err error) { db.mu.Lock(); db.dialError = err; db.mu.Unlock() }
		setDial(refused)
		for range 5 {
			if _, err := queryOne(t.Context(), p, plain); err != refused {
				t.Fatalf("got %v, want the dial's own error", err)
			}
		}
		setDial(nil)
		p.SetConnMaxLifetime(time.Minute)
		p.SetConnMaxIdleTime(30 * time.Second)
		p.SetMaxIdleConns(1)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, err := queryOne(ctx, p, plain); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			cancel()
			time.Sleep(45 * time.Second) // the pool's cleaner closes what has been idle
		}
		if n := db.peak.Load(); n > 2 {
			t.Errorf("%d connections at once, want at most 2", n)
		}
		if n := db.opens.Load(); n < 10 {
			t.Errorf("only %d connections opened: the pool has closed none", n)
		}
	})
}

// The pool gives its idle conns to whoever comes first, also those that have a real connection: waiters sat on all of
// them, and everybody else had to wait until the load was over.
func TestWhoWaitsForALoadKeepsNoConnectionFromOthers(t *testing.T) {
	for name, prepared := range map[string]bool{"direct": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, db := newLedger(t)
				db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
					if strings.Contains(query, "slow") {
						if err := sleep(ctx, time.Second); err != nil {
							return nil, err
						}
					}
					return l.handle(ctx, query, args)
				}
				const limit = 3
				p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: limit, MaxLoads: 1})
				p.SetMaxIdleConns(100)
				ask := func(query string) error {
					if !prepared {
						_, err := queryOne(t.Context(), p, query)
						return err
					}
					st, err := p.Prepare(query)
					if err != nil {
						return err
					}
					defer st.Close()
					var v string
					return st.QueryRow().Scan(&v)
				}
				var txs []*sql.Tx
				for range limit { // as many conns of the pool have real connections
					txs = append(txs, begin(t, p))
				}
				for _, tx := range txs {
					if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
				}
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						if err := ask("SELECT /* @cache ttl=1m */ v, 'slow' FROM t"); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait() // all wait for the load
				began := time.Now()
				for range 2 * limit {
					if err := ask(plain); err != nil {
						t.Error(err)
					}
				}
				if d := time.Since(began); d != 0 {
					t.Errorf("the others took %v", d)
				}
				wg.Wait()
				if n := db.peak.Load(); n > limit+1 {
					t.Errorf("%d connections at once, want at most %d and the loader's", n, limit)
				}
			})
		})
	}
}

// While a statement of an idle connection is closed, that connection cannot be taken. Who came for it
// in this moment must not be forgotten.
func TestWhoComesWhileAnIdleConnectionClosesAStatementGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := newLedger(t)
		db.onStmtClose = func() { time.Sleep(time.Second) }
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
		other := connect(t, p)
		st, err := p.Prepare(plain)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { st.Close() })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if v, err := queryOne(ctx, other, plain); v != "v1" || err != nil {
			t.Errorf("read %q, %v", v, err)
		}
		wg.Wait()
		if n := db.opens.Load(); n != 1 {
			t.Errorf("%d connections opened, want the one", n)
		}
	})
}

func TestAThousandGoroutinesOfEveryKindNeverHoldMoreThanMaxDBConns(t *testing.T) {
	for _, limit := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			l, db := newLedger(t)
			// The loader pool has one connection at most, which comes on top.
			db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
				if err := sleep(ctx, time.Duration(1+rand.IntN(1000))*time.Microsecond); err != nil {
					return nil, err
				}
				return l.handle(ctx, query, args)
			}
			p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: limit, MaxLoads: 1, Dialect: sqlherd.PostgreSQL})
			p.SetMaxIdleConns(50)
			p.SetConnMaxLifetime(100 * time.Millisecond)
			shared, err := p.Prepare("SELECT v, 'shared' FROM t")
			if err != nil {
				t.Fatal(err)
			}
			var done, timeouts atomic.Int64
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
					ctx := t.Context()
					if i%5 == 4 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
						defer cancel()
					}
					err := func() error {
						switch i % 8 {
						case 0, 1:
							_, err := queryOne(ctx, p, fmt.Sprintf("SELECT /* @cache ttl=5ms */ v, %d FROM t", i%16))
							return err
						case 2:
							_, err := queryOne(ctx, p, plain)
							return err
						case 3:
							var v string
							return shared.QueryRowContext(ctx).Scan(&v)
						case 4:
							tx, err := p.BeginTx(ctx, nil)
							if err != nil {
								return err
							}
							defer tx.Rollback() //nolint:errcheck // of a committed one, mostly
							if _, err := tx.ExecContext(ctx, "UPDATE t SET v = 'x'"); err != nil {
								return err
							}
							return tx.Commit()
						case 5:
							st, err := p.PrepareContext(ctx, plain)
							if err != nil {
								return err
							}
							defer st.Close()
							var v string
							return st.QueryRowContext(ctx).Scan(&v)
						case 6:
							c, err := p.Conn(ctx)
							if err != nil {
								return err
							}
							defer c.Close()
							_, err = c.ExecContext(ctx, "SET x = 1")
							return err
						default:
							rows, err := p.QueryContext(ctx, "UPDATE t SET v = 'y' RETURNING v")
							if err != nil {
								return err
							}
							return rows.Close()
						}
					}()
					switch {
					case err == nil:
						done.Add(1)
					case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
						timeouts.Add(1)
					default:
						t.Errorf("%d: %v", i%8, err)
					}
				})
			}
			wg.Wait()
			if n := db.peak.Load(); n > int64(limit)+1 {
				t.Errorf("%d connections at once, want at most %d and the loader's", n, limit)
			}
			if done.Load() < 700 || done.Load()+timeouts.Load() != 1000 {
				t.Errorf("%d done, %d at their deadline", done.Load(), timeouts.Load())
			}
			shared.Close()
			// Nothing was lost: all of the places can be had at once.
			var txs []*sql.Tx
			for range limit {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tx, err := p.BeginTx(ctx, nil)
				if err != nil {
					t.Fatalf("a place was lost: %v", err)
				}
				txs = append(txs, tx)
			}
			for _, tx := range txs {
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
