package sqlherd_test

// What an application could have told the wrapped driver from the bare one by, each named for what it saw.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A *sql.Conn may have rows open while it queries again. Its real connection was taken for idle while that
// query waited for a load, and somebody else's statements ran between the rows.
func TestAConnectionWithOpenRowsIsNotGivenAwayWhileItsNextQueryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, func(ctx context.Context, query string, _ []driver.NamedValue) (*fakeResult, error) {
			if strings.Contains(query, "slow") {
				if err := sleep(ctx, time.Second); err != nil {
					return nil, err
				}
			}
			return rowsOf([]string{"v"}, []driver.Value{"one"}, []driver.Value{"two"}), nil
		})
		p, _ := openHerd(t, db, sqlherd.Config{MaxDBConns: 1})
		c := connect(t, p)
		rows, err := c.QueryContext(t.Context(), plain)
		if err != nil || !rows.Next() {
			t.Fatal(err, rows.Err())
		}
		waits := make(chan error, 1)
		go func() {
			_, err := queryOne(t.Context(), c, "SELECT /* @cache ttl=1m */ v, 'slow' FROM t")
			waits <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if v, err := queryOne(ctx, p, "SELECT v, 'other' FROM t"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another query got %q, %v, on a connection whose rows are open", v, err)
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
		if !rows.Next() || rows.Next() || rows.Err() != nil {
			t.Errorf("the rows: %v", rows.Err())
		}
		c.Close()
		if v, err := queryOne(t.Context(), p, plain); v != "one" || err != nil {
			t.Errorf("when the connection is back: %q, %v", v, err)
		}
	})
}

// Programs change what Columns gives them, to lower case for instance. With the bare drivers it is their own.
func TestWhoChangesTheNamesThatColumnsGaveChangesNobodyElses(t *testing.T) {
	for _, cols := range [][]string{{"ID", "Name"}, {"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"}} {
		db := newFakeDB(t, func(_ context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
			return rowsOf(slices.Clone(cols), make([]driver.Value, len(cols))), nil
		})
		p, _ := openHerd(t, db, sqlherd.Config{})
		for range 3 { // miss, hit, hit
			rows, err := p.Query("SELECT /* @cache ttl=1m */ * FROM t")
			if err != nil {
				t.Fatal(err)
			}
			names, err := rows.Columns()
			if err != nil || !slices.Equal(names, cols) {
				t.Errorf("%q, %v; want %q", names, err, cols)
			}
			for i := range names {
				names[i] = strings.ToLower(names[i]) // -race would tell, too
			}
			if !rows.Next() || rows.Close() != nil {
				t.Error("no row")
			}
		}
		// Over the caps: the head of it comes from what was read.
		rows, err := p.Query("SELECT /* @cache ttl=1m max-bytes=1 */ * FROM t")
		if err != nil {
			t.Fatal(err)
		}
		if names, err := rows.Columns(); err != nil || !slices.Equal(names, cols) {
			t.Errorf("%q, %v; want %q", names, err, cols)
		}
		rows.Close()
	}
}

// Who waits for a connection of the pool is told at once that the pool is closed.
func TestAPoolThatIsClosedEndsTheWaitForAConnection(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB(t, slowly(0, "rows"))
			var p *sql.DB
			if wrapped {
				h := newHerd(t, sqlherd.Config{MaxDBConns: 1})
				p = sql.OpenDB(h.Connector(fakeConnector{db}))
			} else {
				p = sql.OpenDB(fakeConnector{db})
				p.SetMaxOpenConns(1)
			}
			c, err := p.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := queryOne(t.Context(), c, plain); err != nil {
				t.Fatal(err)
			}
			waits := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := queryOne(context.Background(), p, plain)
					waits <- err
				}()
			}
			synctest.Wait()
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			for range 2 {
				select {
				case err := <-waits:
					if err == nil || err.Error() != "sql: database is closed" {
						t.Errorf("wrapped %t: got %v", wrapped, err)
					}
				default:
					t.Errorf("wrapped %t: still waits", wrapped)
				}
			}
			// The connection in use goes on, and is closed when it comes back.
			if v, err := queryOne(t.Context(), c, plain); v != "rows" || err != nil {
				t.Errorf("wrapped %t: the connection in use: %q, %v", wrapped, v, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if n := db.open.Load(); n != 0 {
				t.Errorf("wrapped %t: %d connections left open", wrapped, n)
			}
		})
	}
}

// Rows that are being read survive the pool's Close, also those of a result over its caps.
func TestRowsThatAreBeingReadSurviveTheClosingOfThePool(t *testing.T) {
	for _, query := range []string{plain, hinted, "SELECT /* @cache ttl=1m max-rows=2 */ v FROM t"} {
		synctest.Test(t, func(t *testing.T) {
			const all = 10
			db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
				r := &fakeResult{cols: []string{"v"}, count: all}
				r.make = func(int) []driver.Value {
					if ctx.Err() != nil {
						t.Error("the driver sees its context end")
					}
					return []driver.Value{"row"}
				}
				return r, nil
			})
			h := newHerd(t, sqlherd.Config{})
			p := sql.OpenDB(h.Connector(fakeConnector{db}))
			rows, err := p.Query(query)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				if n++; n == 3 {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
					synctest.Wait()
				}
			}
			if n != all || rows.Err() != nil {
				t.Errorf("%s: %d rows, %v", query, n, rows.Err())
			}
			if err := rows.Close(); err != nil {
				t.Error(err)
			}
			if n := db.open.Load(); n != 0 {
				t.Errorf("%s: %d connections left open", query, n)
			}
		})
	}
}

// MySQL rolls back at a deadlock, which may show while rows are read. What the application writes after it is committed at
// once, though it rolls back in the end; others were served the rows from before.
func TestWritesAfterADeadlockThatShowedWhileRowsWereReadAreSeen(t *testing.T) {
	for _, c := range []struct {
		dialect  sqlherd.Dialect
		deadlock bool
		want     sqlherd.Outcome
	}{
		{sqlherd.MySQL, true, sqlherd.Miss},
		{sqlherd.SQLite, true, sqlherd.Miss},
		{sqlherd.PostgreSQL, false, sqlherd.Hit}, // there every later statement is refused
	} {
		l, db := newLedger(t)
		handle := db.handle
		db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
			res, err := handle(ctx, query, args)
			if err == nil && c.deadlock && strings.Contains(query, "FOR UPDATE") {
				res.failAt, res.fail = 1, &MySQLError{Number: 1213}
				l.mu.Lock()
				delete(l.open, connOf(ctx)) // rolled back
				l.mu.Unlock()
			}
			return res, err
		}
		p, _ := openHerd(t, db, sqlherd.Config{Dialect: c.dialect})
		want(t, "first", p, "v1", sqlherd.Miss, 0)
		tx := begin(t, p)
		rows, err := tx.Query("SELECT v FROM t FOR UPDATE")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
		}
		if (rows.Err() != nil) != c.deadlock {
			t.Errorf("the rows: %v", rows.Err())
		}
		do(t, tx, "UPDATE t SET v = 'v2'")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		v := "v1"
		if c.deadlock {
			v = "v2"
		}
		want(t, "after", p, v, c.want, 0)

		// The next transaction on this connection is in no doubt.
		tx = begin(t, p)
		do(t, tx, "UPDATE t SET v = 'v3'")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		want(t, "after a rollback without rows", p, v, sqlherd.Hit, 0)
	}
}

// A driver that panics while it writes may have written. The panic reaches the caller, as from the bare driver, who recovers
// it as net/http does and never closes anything. Old rows were served after it, and under Strict the tags were never cached again.
func TestAWriteWhoseDriverPanicsIsSeenAndItsFenceEnds(t *testing.T) {
	const insert = "INSERT INTO t VALUES ('v2') RETURNING v"
	for name, c := range map[string]struct {
		write func(p *sql.DB)
		when  string // the driver panics
	}{
		"Exec":           {func(p *sql.DB) { _, _ = p.Exec("UPDATE t SET v = 'v2'") }, "statement"},
		"prepared Exec":  {func(p *sql.DB) { st, _ := p.Prepare("UPDATE t SET v = 'v2'"); _, _ = st.Exec() }, "statement"},
		"Query":          {func(p *sql.DB) { _, _ = p.Query(insert) }, "statement"},
		"prepared Query": {func(p *sql.DB) { st, _ := p.Prepare(insert); _, _ = st.Query() }, "statement"},
		"Next":           {func(p *sql.DB) { rows, _ := p.Query(insert); rows.Next() }, "next"},
		"Next, closed":   {func(p *sql.DB) { rows, _ := p.Query(insert); defer rows.Close(); rows.Next() }, "next"},
		"Close":          {func(p *sql.DB) { rows, _ := p.Query(insert); _ = rows.Close() }, "close"},
		"Commit": {func(p *sql.DB) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			tx, _ := p.BeginTx(ctx, nil)
			_, _ = tx.Exec("UPDATE t SET v = 'v2'")
			_ = tx.Commit()
		}, "commit"},
	} {
		for _, strict := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 2, sqlherd.Config{Strict: strict})
				query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
				b.wantValue("before", b.pools[0], query, "v1")
				b.wantValue("before", b.pools[1], query, "v1")

				armed := true
				blow := func() {
					if armed {
						armed = false
						panic("the driver's own")
					}
				}
				handle := b.db.handle
				b.db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
					res, err := handle(ctx, query, args)
					if strings.HasPrefix(query, "SELECT") {
						return res, err
					}
					switch c.when {
					case "statement":
						blow()
					case "next":
						res.hook = func(int) { blow() }
					}
					return res, err
				}
				b.db.onRowsClose = func(*fakeResult) {
					if c.when == "close" {
						blow()
					}
				}
				onTx := b.db.onTx
				b.db.onTx = func(fc *fakeConn, what string) error {
					err := onTx(fc, what)
					if what == "COMMIT" && c.when == "commit" {
						blow()
					}
					return err
				}
				// What nobody gives back is lost to the pool, as with the bare driver.
				p := sql.OpenDB(b.herds[0].Connector(fakeConnector{b.db}, sqlherd.Identity("panics")))
				defer p.Close()
				func() {
					defer func() {
						if v := recover(); v != "the driver's own" {
							t.Errorf("%s: recovered %v", name, v)
						}
					}()
					c.write(p)
				}()
				b.wantValue(name+", after the panic, there", b.pools[0], query, "v2")
				b.wantValue(name+", after the panic, elsewhere", b.pools[1], query, "v2")
				time.Sleep(fencesEnd)
				b.wantValue(name+", after the fence", b.pools[1], query, "v2")
				loads := b.loads()
				b.wantValue(name+", after the fence", b.pools[1], query, "v2")
				if n := b.loads(); n != loads {
					t.Errorf("%s, strict %t: the fence has not ended", name, strict)
				}
			})
		}
	}
}
