package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// bothPools opens db's shape bare and wrapped.
func bothPools(t *testing.T, s shape, run func(t *testing.T, db *shapeDB, p *sql.DB)) {
	for _, name := range []string{"bare", "wrapped"} {
		t.Run(name, func(t *testing.T) {
			db := &shapeDB{shape: s}
			if name == "bare" {
				p := sql.OpenDB(db)
				defer p.Close()
				run(t, db, p)
				return
			}
			h, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			p := sql.OpenDB(h.Connector(db))
			defer p.Close()
			run(t, db, p)
		})
	}
}

func shapeOf(conn, stmt string) shape {
	return shape{name: conn, conn: connShapes[conn], stmt: stmtShapes[stmt], inputs: true}
}

func TestADriverThatAnswersErrSkipHasOneMissOneLoadAndThenHitsWithoutPreparing(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	db.skip = true
	p, h := openHerd(t, db, sqlherd.Config{})
	query := `SELECT /* @cache ttl=10s jitter=0 early=off */ v FROM t WHERE a = ?`
	for range 3 {
		if _, err := queryOne(t.Context(), p, query, 7); err != nil {
			t.Fatal(err)
		}
	}
	st := h.Stats()
	if st.Outcomes[sqlherd.Miss] != 1 || st.Outcomes[sqlherd.Hit] != 2 || len(st.Outcomes) != 2 || st.Loads != 1 {
		t.Errorf("outcomes %v, %d loads; want one miss, two hits, one load", st.Outcomes, st.Loads)
	}
	if n := db.prepares.Load(); n != 1 {
		t.Errorf("%d statements prepared, want 1", n)
	}
	if n := db.opens.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestADriverThatAnswersErrSkipIsCountedOnceForEveryKindOfQuery(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	db.skip = true
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	for _, q := range []string{
		`SELECT v FROM t WHERE a = ?`,
		`SELECT /* @nocache */ v FROM t WHERE a = ?`,
		`SELECT /* @cache ttl=nonsense */ v FROM t WHERE a = ?`,
		`SELECT /* @cache ttl=1s */ nextval('s') WHERE 1 = ?`,
	} {
		if _, err := queryOne(t.Context(), p, q, 7); err != nil {
			t.Fatal(err)
		}
	}
	tx := begin(t, p)
	if _, err := queryOne(t.Context(), tx, `SELECT /* @cache ttl=1s */ v FROM t WHERE a = ?`, 7); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	st := h.Stats()
	if st.Outcomes[sqlherd.Passthrough] != 1 || st.Outcomes[sqlherd.Bypassed] != 4 || st.HintErrors != 1 {
		t.Errorf("outcomes %v, %d hint errors; want 1 passthrough, 4 bypasses, 1 hint error", st.Outcomes, st.HintErrors)
	}
	if n := db.queries.Load(); n != 5 {
		t.Errorf("%d queries reached the database, want 5", n)
	}
}

func TestPingAsksTheDatabaseAndIsNeverAnsweredFromTheCache(t *testing.T) {
	bothPools(t, shapeOf("everything", "contexts"), func(t *testing.T, db *shapeDB, p *sql.DB) {
		if err := p.Ping(); err != errShape {
			t.Errorf("Ping gave %v, want the driver's error", err)
		}
	})
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{})
	if _, err := queryOne(t.Context(), p, hinted); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	db.mu.Lock()
	db.dialError = gone
	db.mu.Unlock()
	if err := p.Ping(); err != gone {
		t.Errorf("Ping without a database gave %v", err)
	}
}

func TestAConnectionThatIsNotValidAnyMoreIsReplacedAndOneWithoutTheQuestionIsKept(t *testing.T) {
	for conn, wantOpens := range map[string]int{"contexts": 3, "old": 1, "validates only": 3} {
		t.Run(conn, func(t *testing.T) {
			bothPools(t, shapeOf(conn, "contexts"), func(t *testing.T, db *shapeDB, p *sql.DB) {
				db.invalid = func() bool { return true }
				for range 3 {
					if _, err := p.Exec("UPDATE t SET a = 1"); err != nil {
						t.Fatal(err)
					}
				}
				if db.opens != wantOpens {
					t.Errorf("%d connections opened, want %d", db.opens, wantOpens)
				}
			})
		})
	}
}

func TestATransactionThatItsContextEndsCostsTheConnectionOnTheSameDriversAsBare(t *testing.T) {
	for conn, wantOpens := range map[string]int{"contexts": 1, "everything": 1, "old": 2, "resets only": 2, "validates only": 2, "nothing": 2} {
		t.Run(conn, func(t *testing.T) {
			bothPools(t, shapeOf(conn, "contexts"), func(t *testing.T, db *shapeDB, p *sql.DB) {
				p.SetMaxOpenConns(1) // the next one waits until the rollback is over
				ctx, cancel := context.WithCancel(t.Context())
				tx, err := p.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("UPDATE t SET a = 1"); err != nil {
					t.Fatal(err)
				}
				cancel()
				if _, err := p.Exec("UPDATE t SET a = 2"); err != nil {
					t.Fatal(err)
				}
				if db.opens != wantOpens {
					t.Errorf("%d connections opened, want %d", db.opens, wantOpens)
				}
				if log := db.taken(); !slices.Contains(log, "rollback") {
					t.Errorf("not rolled back: %v", log)
				}
			})
		})
	}
}

func TestABadConnectionIsRetriedAndNobodyIsToldOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Int64
		bad.Store(1)
		db := newFakeDB(t, func(ctx context.Context, q string, _ []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			if bad.Add(-1) >= 0 {
				return nil, driver.ErrBadConn
			}
			return one("rows"), nil
		})
		p, _ := openHerd(t, db, sqlherd.Config{})
		var wg sync.WaitGroup
		for range 20 {
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
		// An uncached statement, and a write, likewise.
		for _, q := range []string{plain, "UPDATE t SET v = 'x'"} {
			bad.Store(1)
			before := db.queries.Load()
			if _, err := p.Exec(q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
			if n := db.queries.Load() - before; n != 2 {
				t.Errorf("%s: sent %d times, want 2", q, n)
			}
		}
	})
}

func TestADatabaseThatOnlyHasBadConnectionsIsNotAskedForEver(t *testing.T) {
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) { return nil, driver.ErrBadConn })
	p, _ := openHerd(t, db, sqlherd.Config{})
	if _, err := queryOne(t.Context(), p, hinted); !errors.Is(err, driver.ErrBadConn) {
		t.Errorf("got %v, want driver.ErrBadConn as on the bare driver", err)
	}
	if n := db.queries.Load(); n > 40 {
		t.Errorf("asked %d times", n)
	}
}

// database/sql closes the connection of whoever is told driver.ErrBadConn. It was the loader's.
func TestALoadWhoseConnectionIsBadDoesNotEndTheSessionOfItsCaller(t *testing.T) {
	var last *fakeConn
	db := newFakeDB(t, func(ctx context.Context, query string, _ []driver.NamedValue) (*fakeResult, error) {
		if strings.Contains(query, "@cache") {
			return nil, driver.ErrBadConn
		}
		last = connOf(ctx)
		return one("rows"), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	c := connect(t, p)
	if _, err := c.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	mine := last
	for range 3 { // the later ones are told of it without asking
		if _, err := queryOne(t.Context(), c, hinted); err == nil || err.Error() != driver.ErrBadConn.Error() {
			t.Errorf("got %v, want the text of driver.ErrBadConn", err)
		}
	}
	if _, err := queryOne(t.Context(), c, "SELECT LAST_INSERT_ID()"); err != nil || last != mine {
		t.Errorf("%v, in the same session %t", err, last == mine)
	}
}

// What has a policy is prepared when it must run: a hit needs no connection, and so no statement.
func TestAMistakeInAPreparedHintedQueryShowsWhenItRuns(t *testing.T) {
	bothPools(t, shapeOf("contexts", "contexts"), func(t *testing.T, db *shapeDB, p *sql.DB) {
		st, err := p.Prepare("SELECT /* @cache ttl=1s */ noprepare FROM t")
		if err == nil {
			defer st.Close()
			_, err = queryStmt(t.Context(), st)
		}
		if err != errShape {
			t.Errorf("got %v, want the driver's own error", err)
		}
	})
}

func queryStmt(ctx context.Context, st *sql.Stmt, args ...any) (v string, err error) {
	err = st.QueryRowContext(ctx, args...).Scan(&v)
	return v, err
}

func TestAPreparedHintedQueryIsPreparedOnlyWhereItIsLoaded(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{})
	p.SetMaxIdleConns(20)
	st, err := p.Prepare(hinted)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if v, err := queryStmt(t.Context(), st); v != "rows" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
	}
	wg.Wait()
	if p, o := db.prepares.Load(), db.opens.Load(); p != 1 || o != 1 {
		t.Errorf("%d statements prepared on %d connections, want 1 and 1", p, o)
	}
	// The same text not prepared is another key: a driver may give other types.
	var info sqlherd.Info
	if _, err := queryOne(sqlherd.WithInfo(t.Context(), &info), p, hinted); err != nil || info.Outcome != sqlherd.Miss {
		t.Errorf("the direct query was a %v (%v), want a miss", info.Outcome, err)
	}
}

func TestRawReachesTheDriversConnectionAndTheSessionIsUnknownFromThenOn(t *testing.T) {
	db := &shapeDB{shape: shapeOf("contexts", "contexts")}
	h, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p := sql.OpenDB(h.Connector(db))
	defer p.Close()
	c := connect(t, p)
	if err := c.Raw(func(dc any) error {
		if _, ok := dc.(interface{ Copy(...string) (int, any) }); ok {
			t.Error("Conn.Raw reaches the driver's connection: then Raw is not needed any more")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	err = sqlherd.Raw(c, func(dc any) error {
		cp, ok := dc.(interface{ Copy(...string) (int, any) })
		if !ok {
			t.Fatalf("Raw gives a %T", dc)
		}
		if n, at := cp.Copy("a", "b"); n != 2 || at != db {
			t.Errorf("Copy gave %d, %v", n, at)
		}
		res, err := dc.(driver.ExecerContext).ExecContext(t.Context(), "UPDATE t SET a = 1; UPDATE t SET a = 2", nil)
		if err != nil {
			return err
		}
		if rich, ok := res.(richResult); !ok || !slices.Equal(rich.AllRowsAffected(), []int64{1, 2}) {
			t.Errorf("the result is a %T", res)
		}
		return errShape
	})
	if err != errShape {
		t.Errorf("Raw gave %v, want what f returned", err)
	}
	var info sqlherd.Info
	if _, err := queryOne(sqlherd.WithInfo(t.Context(), &info), c, "SELECT /* @cache ttl=1s */ 1 FROM t"); err != nil || info.Reason != sqlherd.ReasonSession {
		t.Errorf("after Raw: %v, %v; want a bypass because of the session", info.Reason, err)
	}
	bareConn := connect(t, sql.OpenDB(db))
	if err := sqlherd.Raw(bareConn, func(any) error { return nil }); err == nil || !strings.Contains(err.Error(), "not a connection of sqlherd") {
		t.Errorf("Raw on a connection of somebody else's gave %v", err)
	}
}

func TestAQueryInTheRowLoopOfAnotherOnTheOnlyConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := newLedger(t)
		p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
		p.SetMaxOpenConns(1)
		c := connect(t, p)
		for _, outer := range []string{plain, hinted} {
			rows, err := c.QueryContext(t.Context(), outer)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				n++
				for range 2 {
					if _, err := queryOne(t.Context(), c, "SELECT /* @cache ttl=1m */ v, 'inner' FROM t"); err != nil {
						t.Error(err)
					}
				}
			}
			if rows.Err() != nil || n != 1 {
				t.Errorf("%d rows, %v", n, rows.Err())
			}
			rows.Close()
		}
	})
}

// With db.Query it is the pool that has nothing left to give, on the bare driver as here.
func TestAPoolOfOneWaitsInARowLoopAsOnTheBareDriver(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, db := newLedger(t)
			var p *sql.DB
			if wrapped {
				p, _ = openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			} else {
				p = sql.OpenDB(fakeConnector{db})
				defer p.Close()
			}
			p.SetMaxOpenConns(1)
			rows, err := p.Query(hinted)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			rows.Next()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := queryOne(ctx, p, hinted); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("wrapped %v: got %v, want the deadline", wrapped, err)
			}
		})
	}
}

func TestTwentyIdenticalReadsOnAPoolOfOneAreOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, slowly(100*time.Millisecond, "rows"))
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
		p.SetMaxOpenConns(1)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := db.queries.Load(); n != 1 {
			t.Errorf("%d queries, want 1", n)
		}
	})
}

func TestACancelledContextIsNotServedFromTheCache(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, sqlherd.Config{})
	c := connect(t, p)
	if _, err := queryOne(t.Context(), c, hinted); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var info sqlherd.Info
	if _, err := queryOne(sqlherd.WithInfo(ctx, &info), c, hinted); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if v, err := queryOne(t.Context(), c, hinted); v != "rows" || err != nil {
		t.Errorf("afterwards: %q, %v", v, err)
	}
	if st := h.Stats(); st.QueryErrors != 1 || st.Outcomes[sqlherd.Hit] != 1 {
		t.Errorf("%d errors, outcomes %v", st.QueryErrors, st.Outcomes)
	}
}
