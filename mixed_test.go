package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// Everything that an application does with a pool, by 200 goroutines at once whose contexts end at random, on three
// real connections, with failing dials and connections that die: every row is that of its query, nothing waits for ever, and
// nothing is left open. A fakeConn complains when two goroutines use it; rows complain when their connection
// runs something else between them.
func TestAnythingAtOnceWithContextsThatEndLosesNoConnectionAndMixesNoRows(t *testing.T) {
	// In real time: database/sql waits for locks here, which a synctest bubble takes for work.
	draw := rand.IntN
	var between atomic.Int64
	busy := sync.Map{} // *fakeConn → *fakeResult whose rows are open
	db := newFakeDB(t, nil)
	db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
		c := connOf(ctx)
		if _, open := busy.Load(c); open && !strings.Contains(query, "own") {
			between.Add(1)
		}
		if err := sleep(ctx, time.Duration(draw(1000))*time.Microsecond); err != nil {
			return nil, err
		}
		switch draw(40) {
		case 0:
			return nil, driver.ErrBadConn
		case 1:
			return nil, &driverError{Code: 7}
		}
		var key any = "none"
		if len(args) > 0 {
			key = args[0].Value
		}
		n := 1 + draw(4)
		r := &fakeResult{cols: []string{"key", "n"}, count: n, make: func(i int) []driver.Value {
			return []driver.Value{[]byte(fmt.Sprint(key)), int64(i)}
		}}
		if draw(40) == 0 {
			r.failAt, r.fail = draw(n+1), &driverError{Code: 8}
		}
		if !strings.HasPrefix(query, "UPDATE") && !strings.Contains(query, "own") {
			busy.Store(c, r)
			r.hook = func(int) { busy.Store(c, r) }
		}
		return r, nil
	}
	db.onRowsClose = func(res *fakeResult) {
		busy.Range(func(c, r any) bool {
			if r == res {
				busy.CompareAndDelete(c, r)
			}
			return true
		})
	}
	db.onTx = func(*fakeConn, string) error { return nil }
	h := newHerd(t, sqlherd.Config{MaxDBConns: 3, MaxLoads: 2, Dialect: sqlherd.MySQL, Logger: slog.New(slog.DiscardHandler)})
	p := sql.OpenDB(h.Connector(fakeConnector{db}))
	p.SetMaxIdleConns(20)
	p.SetConnMaxLifetime(50 * time.Millisecond)

	type querier interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}
	read := func(rows *sql.Rows, err error, key string, early bool) {
		if err != nil {
			return
		}
		defer rows.Close()
		for i := 0; rows.Next(); i++ {
			var raw sql.RawBytes
			var n int
			if rows.Scan(&raw, &n) != nil {
				return
			}
			if string(raw) != key || n != i {
				t.Errorf("asked for %s and got %s, row %d at %d", key, raw, n, i)
			}
			for j := range raw {
				raw[j] = '!' // it is the reader's own
			}
			if early {
				return
			}
		}
	}
	const hint = "/* @cache ttl=5ms swr=5ms */"
	var wg sync.WaitGroup
	for g := range 200 {
		wg.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+draw(100))*time.Millisecond)
				key := fmt.Sprint("k", draw(6))
				run := func(q querier) {
					text := "SELECT * FROM t WHERE key = ?"
					switch draw(4) {
					case 0, 1:
						text = "SELECT " + hint + " * FROM t WHERE key = ?"
					case 2:
						text = "SELECT /* @cache ttl=1s max-rows=1 */ * FROM t WHERE key = ?"
					}
					rows, err := q.QueryContext(ctx, text, key)
					read(rows, err, key, draw(3) == 0)
				}
				switch draw(7) {
				case 0, 1:
					run(p)
				case 2:
					_, _ = p.ExecContext(ctx, "UPDATE t SET n = 1 WHERE key = ?", key)
				case 3:
					if tx, err := p.BeginTx(ctx, nil); err == nil {
						run(tx)
						_, _ = tx.ExecContext(ctx, "UPDATE t SET n = 2 WHERE key = ?", key)
						if draw(2) == 0 {
							_ = tx.Commit()
						} else {
							_ = tx.Rollback()
						}
					}
				case 4:
					if st, err := p.PrepareContext(ctx, "SELECT "+hint+" *, 'p' FROM t WHERE key = ?"); err == nil {
						rows, err := st.QueryContext(ctx, key)
						read(rows, err, key, draw(2) == 0)
						_ = st.Close()
					}
				case 5:
					if c, err := p.Conn(ctx); err == nil {
						if draw(3) == 0 {
							_, _ = c.ExecContext(ctx, "SET x = 1")
						}
						run(c)
						// Rows that stay open while the same connection asks again.
						rows, err := c.QueryContext(ctx, "SELECT * FROM t WHERE key = ?", key)
						again, aerr := c.QueryContext(ctx, "SELECT "+hint+" *, 'own' FROM t WHERE key = ?", key)
						read(again, aerr, key, false)
						read(rows, err, key, false)
						_ = c.Close()
					}
				case 6:
					if c, err := p.Conn(ctx); err == nil {
						_ = sqlherd.Raw(c, func(any) error {
							if draw(2) == 0 {
								return driver.ErrBadConn
							}
							return nil
						})
						_ = c.Close()
					}
				}
				cancel()
				if g == 0 {
					db.mu.Lock()
					db.dialError = nil
					if draw(3) == 0 {
						db.dialError = errors.New("refused")
					}
					db.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if n := between.Load(); n != 0 {
		t.Errorf("%d statements ran on connections whose rows somebody was reading", n)
	}
	db.mu.Lock()
	db.dialError = nil
	db.mu.Unlock()
	// The places of all three are free: three transactions at once.
	var txs []*sql.Tx
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		tx, err := p.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal("a place for a connection was lost:", err)
		}
		txs = append(txs, tx)
	}
	for _, tx := range txs {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	if n := db.peak.Load(); n > 3+2 {
		t.Errorf("%d connections at once, want at most 3 and 2 for loads", n)
	}
	// database/sql gives back what a context has ended in goroutines of its own.
	none := func(what string, n func() int64) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); n() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d connections %s", n(), what)
			}
		}
	}
	none("in use when nobody uses one", func() int64 { return int64(p.Stats().InUse) })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	// Rows over the caps whose caller had left are closed within claimWithin.
	none("left open", db.open.Load)
}
