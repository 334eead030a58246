package sqlherd_test

// The races of invalidation, each by the sequence that loses it. docs/guarantees.md names them.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A raceBed is a fleet on one ledger, whose processes can be held in the middle of a load: between
// the moment at which the database has read the rows and the one at which they arrive.
type raceBed struct {
	t     *testing.T
	l     *ledger
	db    *fakeDB
	fleet *sqlherd.FakeFleet
	herds []*sqlherd.Herd
	pools []*sql.DB

	mu   sync.Mutex
	gate chan struct{} // nil: loads are not held
	held int
}

func newRaceBed(t *testing.T, processes int, cfg sqlherd.Config) *raceBed {
	b := &raceBed{t: t, fleet: sqlherd.NewFakeFleet()}
	b.l, b.db = newLedger(t)
	handle := b.db.handle
	b.db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
		res, err := handle(ctx, query, args)
		b.mu.Lock()
		gate := b.gate
		if gate != nil && strings.Contains(query, "@cache") {
			b.held++
		} else {
			gate = nil
		}
		b.mu.Unlock()
		if gate != nil {
			<-gate
		}
		return res, err
	}
	cfg.Dialect = sqlherd.PostgreSQL
	cfg.Logger = slog.New(slog.DiscardHandler)
	for range processes {
		h, err := sqlherd.NewOnStore(cfg, b.fleet.Store())
		if err != nil {
			t.Fatal(err)
		}
		p := sql.OpenDB(h.Connector(fakeConnector{b.db}))
		t.Cleanup(func() {
			if err := errors.Join(p.Close(), h.Close()); err != nil {
				t.Error(err)
			}
		})
		b.herds, b.pools = append(b.herds, h), append(b.pools, p)
	}
	return b
}

// hold lets loads read and not return, until release is called.
func (b *raceBed) hold() (release func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	b.gate = gate
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		b.gate = nil
		b.mu.Unlock()
		close(gate)
	}
}

// reading begins a read that is held, and returns when the database has been asked.
func (b *raceBed) reading(p *sql.DB, query string) (result func() string) {
	b.t.Helper()
	done := make(chan string, 1)
	b.mu.Lock()
	before := b.held
	b.mu.Unlock()
	go func() {
		v, err := queryOne(context.Background(), p, query)
		if err != nil {
			v = err.Error()
		}
		done <- v
	}()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held != before+1 {
		b.t.Fatalf("%d loads are held, want one more than %d", b.held, before)
	}
	return func() string { return <-done }
}

func (b *raceBed) wantValue(when string, p *sql.DB, query, v string) {
	b.t.Helper()
	if got, err := queryOne(b.t.Context(), p, query); err != nil || got != v {
		b.t.Errorf("%s: read %q, %v; want %q", when, got, err, v)
	}
}

// loads returns how many loads all processes have begun.
func (b *raceBed) loads() (n uint64) {
	for _, h := range b.herds {
		n += h.Stats().Loads
	}
	return n
}

// RA.
func TestRowsThatWereReadBeforeAWriteAreNotServedAfterItThoughTheyArriveLater(t *testing.T) {
	for name, lost := range map[string]bool{"": false, "the message is lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 3, sqlherd.Config{})
				writer, loader, third := b.pools[0], b.pools[1], b.pools[2]
				release := b.hold()
				first := b.reading(loader, hinted)
				b.fleet.DropMessages(lost)
				do(t, writer, "UPDATE t SET v = 'v2'")
				release()
				if v := first(); v != "v1" {
					t.Errorf("who had asked before the write got %q, want v1", v)
				}
				b.wantValue("the writer", writer, hinted, "v2")
				b.wantValue("a third process, from Redis", third, hinted, "v2")
				if lost {
					time.Sleep(sqlherd.LocalTTLDefault)
				}
				b.wantValue("the process that had loaded", loader, hinted, "v2")
			})
		})
	}
}

// RB.
func TestRowsThatWereReadWhileAWriteWasNotYetCommittedEndWithTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		tx := begin(t, b.pools[0])
		do(t, tx, "UPDATE t SET v = 'v2'")
		for i, p := range b.pools {
			b.wantValue("before the commit", p, hinted, "v1")
			want(t, "again", p, "v1", sqlherd.Hit, 0)
			if n := b.herds[i].Stats().InvalidationsHeard + b.herds[i].Stats().Invalidations; n != 0 {
				t.Errorf("process %d: %d invalidations before the commit", i, n)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.pools {
			b.wantValue("after the commit", p, hinted, "v2")
		}
	})
}

// RC and RL: between a commit and its invalidation the writer dies, or it never was one of ours.
func TestAWriteThatNobodyTellsOfIsSeenWhenTheRowsLifeEnds(t *testing.T) {
	const swr = `SELECT /* @cache ttl=10s swr=20s jitter=0 early=off */ v FROM t`
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		b.wantValue("first", b.pools[0], swr, "v1")
		b.l.mu.Lock()
		b.l.value = "v2"
		b.l.mu.Unlock()
		life := time.Now().Add(30 * time.Second)
		time.Sleep(10*time.Second - time.Millisecond)
		for _, p := range b.pools {
			b.wantValue("within ttl", p, swr, "v1")
		}
		// Once it is stale, the first reader gets old rows and has new ones fetched.
		time.Sleep(time.Second)
		b.wantValue("within swr", b.pools[1], swr, "v1")
		time.Sleep(time.Second)
		b.wantValue("after the refresh", b.pools[1], swr, "v2")
		b.wantValue("after the refresh", b.pools[0], swr, "v2")

		// Who did not read meanwhile never gets rows past their life.
		b.l.mu.Lock()
		b.l.value = "v3"
		b.l.mu.Unlock()
		time.Sleep(time.Until(life) + 12*time.Second)
		for _, p := range b.pools {
			b.wantValue("past ttl and swr", p, swr, "v3")
		}
	})
}

// RD.
func TestWhatATransactionReadsOfItsOwnNeverReachesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		for range 2 { // with nothing cached, and with v1 cached
			tx := begin(t, b.pools[0])
			do(t, tx, "UPDATE t SET v = 'v2'")
			want(t, "inside", tx, "v2", sqlherd.Bypassed, sqlherd.ReasonTx)
			for _, p := range b.pools {
				b.wantValue("outside", p, hinted, "v1")
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			for _, p := range b.pools {
				want(t, "after the rollback", p, "v1", sqlherd.Hit, 0)
			}
		}
	})
}

// RE.
func TestAStampThatIsEvictedNeverBringsOldRowsBack(t *testing.T) {
	const other = `SELECT /* @cache ttl=10s jitter=0 early=off */ v, 1 FROM t`
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 3, sqlherd.Config{Local: sqlherd.LocalConfig{TTL: time.Millisecond}})
		b.wantValue("first", b.pools[0], hinted, "v1")
		entries := b.fleet.Keys()
		do(t, b.pools[0], "UPDATE t SET v = 'v2'")
		for _, tag := range []string{"*", "t:t"} {
			b.fleet.EvictStamp(tag)
		}
		// A load of other rows makes the stamps anew.
		rows, err := b.pools[1].QueryContext(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if len(entries) != 1 || !b.fleet.Has(entries[0]) {
			t.Fatal("the old entry is not there any more: this proves nothing")
		}
		b.wantValue("after the stamps have come anew", b.pools[2], hinted, "v2")

		// Without a write it costs a load.
		loads := b.loads()
		b.fleet.EvictStamp("t:t")
		time.Sleep(time.Millisecond)
		b.wantValue("after an eviction", b.pools[1], hinted, "v2")
		if n := b.loads() - loads; n != 1 {
			t.Errorf("%d loads after a stamp was evicted, want 1", n)
		}
	})
}

// RF.
func TestALoaderThatOutlivesItsLeaseDoesNotBringOldRowsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 3, sqlherd.Config{})
		release := b.hold()
		slow := b.reading(b.pools[0], hinted)
		b.fleet.SetErr("renew", errors.New("lost"))
		b.l.mu.Lock()
		b.l.value = "v2" // by somebody unseen: the stamps stay as they are
		b.l.mu.Unlock()
		time.Sleep(4 * time.Second) // longer than a lease
		b.mu.Lock()
		gate := b.gate
		b.gate = nil
		b.mu.Unlock()
		b.wantValue("the second loader", b.pools[1], hinted, "v2")
		b.mu.Lock()
		b.gate = gate
		b.mu.Unlock()
		release()
		if v := slow(); v != "v1" {
			t.Errorf("the first loader got %q, want what it had read", v)
		}
		b.wantValue("a third process", b.pools[2], hinted, "v2")
	})
}

// RI.
func TestAReaderAfterAWriteDoesNotJoinTheLoadFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		for _, p := range b.pools { // the writer's own process, and one that has heard
			b.l.mu.Lock()
			b.l.value = "v1"
			b.l.mu.Unlock()
			if err := b.herds[0].InvalidateAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			release := b.hold()
			first := b.reading(p, hinted)
			do(t, b.pools[0], "UPDATE t SET v = 'v2'")
			second := make(chan string, 1)
			go func() {
				v, err := queryOne(context.Background(), p, hinted)
				if err != nil {
					v = err.Error()
				}
				second <- v
			}()
			synctest.Wait()
			release()
			if v := first(); v != "v1" {
				t.Errorf("the first got %q", v)
			}
			if v := <-second; v != "v2" {
				t.Errorf("a reader after the write got %q, want v2", v)
			}
		}
	})
}

// RJ.
func TestARefreshUnderWayDoesNotBringBackWhatAnInvalidationHasEnded(t *testing.T) {
	const swr = `SELECT /* @cache ttl=1s swr=1h tags=x jitter=0 early=off */ v FROM t`
	for name, end := range map[string]func(*testing.T, *raceBed){
		"a write":           func(t *testing.T, b *raceBed) { do(t, b.pools[0], "UPDATE t SET v = 'v2'") },
		"a write elsewhere": func(t *testing.T, b *raceBed) { do(t, b.pools[1], "UPDATE t SET v = 'v2'") },
		"Invalidate": func(t *testing.T, b *raceBed) {
			b.l.mu.Lock()
			b.l.value = "v2"
			b.l.mu.Unlock()
			if err := b.herds[0].Invalidate(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		},
		"InvalidateAll": func(t *testing.T, b *raceBed) {
			b.l.mu.Lock()
			b.l.value = "v2"
			b.l.mu.Unlock()
			if err := b.herds[1].InvalidateAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 2, sqlherd.Config{})
				b.wantValue("first", b.pools[0], swr, "v1")
				time.Sleep(2 * time.Second)
				release := b.hold()
				loads := b.loads()
				b.wantValue("stale", b.pools[0], swr, "v1") // and starts the refresh
				synctest.Wait()
				if b.loads() != loads+1 {
					t.Fatal("no refresh is under way: this proves nothing")
				}
				end(t, b)
				release()
				synctest.Wait()
				for _, p := range b.pools {
					b.wantValue("afterwards", p, swr, "v2")
				}
			})
		})
	}
}

// RK.
func TestAWriteToAHotKeyIsOneLoadInTheWholeFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 4, sqlherd.Config{})
		handle := b.db.handle
		b.db.handle = func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
			res, err := handle(ctx, query, args)
			if strings.Contains(query, "@cache") {
				time.Sleep(50 * time.Millisecond)
			}
			return res, err
		}
		// A trip to Redis takes its time, within which a reader may come.
		b.fleet.OnCall(func(op, _ string) {
			if op == "invalidate" {
				time.Sleep(2 * time.Millisecond)
			}
		})
		const writes = 20
		b.wantValue("first", b.pools[0], hinted, "v1")
		end := time.Now().Add(writes * 100 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for time.Now().Before(end) {
					began := time.Now()
					if _, err := queryOne(context.Background(), b.pools[i%4], hinted); err != nil {
						t.Error(err)
					}
					if d := time.Since(began); d > 60*time.Millisecond {
						t.Errorf("a reader waited %v for a load of 50ms", d)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		for range writes {
			do(t, b.pools[0], "UPDATE t SET v = 'v2'")
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if n := b.loads(); n > writes+1 {
			t.Errorf("%d loads for %d writes", n, writes)
		}
	})
}

// RM.
func TestAWriteToOneRowOfABusyTableLeavesTheOthersCached(t *testing.T) {
	const read = `SELECT /* @cache ttl=1h tags=t/{1} tables=none */ v FROM t WHERE id = $1`
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		for _, p := range b.pools {
			for id := range 100 {
				if _, err := queryOne(t.Context(), p, read, id); err != nil {
					t.Fatal(err)
				}
			}
		}
		loads := b.loads()
		do(t, b.pools[0], "UPDATE /* @invalidate tags=t/{2} tables=none */ t SET v = $1 WHERE id = $2", "v2", 7)
		for _, p := range b.pools {
			for id := range 100 {
				if _, err := queryOne(t.Context(), p, read, id); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := b.loads() - loads; n != 1 {
			t.Errorf("%d loads after a write to one row of 100, want 1", n)
		}
	})
}
