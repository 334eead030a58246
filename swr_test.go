package sqlherd

// The engine in virtual time, with several "processes" on one fake store.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"

	"database/sql/driver"
)

// A fleetDB is the database of a fleet of engines: it counts, and gives the version that
// is current when a load begins.
type fleetDB struct {
	loads   atomic.Int64
	running atomic.Int64
	peak    atomic.Int64
	version atomic.Int64
	took    time.Duration
	fail    atomic.Pointer[error]
}

func (db *fleetDB) load(ctx context.Context) (loadResult, error) {
	db.loads.Add(1)
	n := db.running.Add(1)
	defer db.running.Add(-1)
	for p := db.peak.Load(); n > p && !db.peak.CompareAndSwap(p, n); p = db.peak.Load() {
	}
	version := db.version.Load()
	began := time.Now()
	t := time.NewTimer(db.took)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return loadResult{}, ctx.Err()
	}
	if err := db.fail.Load(); err != nil {
		return loadResult{}, *err
	}
	return loadResult{rows: resultOf(version), took: time.Since(began)}, nil
}

func (db *fleetDB) breakWith(err error) { db.fail.Store(&err) }
func (db *fleetDB) repair()             { db.fail.Store(nil) }

func resultOf(v int64) *rowcodec.Result {
	b := rowcodec.NewBuilder([]rowcodec.Column{{Name: "v"}}, 0)
	if v >= 0 {
		if err := b.Append([]driver.Value{v}); err != nil {
			panic(err)
		}
	}
	return b.Result()
}

// A process is one engine of the fleet.
type process struct {
	*engine
	h  *Herd
	db *fleetDB
}

func newProcess(t *testing.T, fleet *FakeFleet, db *fleetDB, cfg Config) *process {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if fleet != nil {
		h.useStore(fleet.Store())
		h.engine.subscribed(true)
	}
	p := &process{engine: h.engine, h: h, db: db}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func testPolicy(p Policy) *Policy {
	r := p.resolve(Policy{Jitter: -1, EarlyBeta: -1}, LoadTimeoutDefault)
	return &r
}

func (p *process) request(key string, pol *Policy) *request {
	tags := []string{tagEverything, "t:t"}
	return &request{
		key: key, tags: tags, slots: p.epochs.slotsOf(tags), pol: pol, name: "q",
		load: p.db.load, gone: make(chan struct{}),
	}
}

// read does what interceptor.go does with a key.
func (p *process) read(ctx context.Context, key string, pol *Policy) (v int64, o Outcome, err error) {
	r := p.request(key, pol)
	now := p.now()
	if e := p.mem.get(key, now); e != nil {
		switch verdict := p.judge(e, now, pol, false); verdict {
		case verdictHit:
			return valueOf(e.result), Hit, nil
		case verdictHitCompare:
			p.compare(ctx, r)
			return valueOf(e.result), Hit, nil
		case verdictHitRefresh:
			p.refresh(ctx, r, e)
			return valueOf(e.result), Hit, nil
		case verdictStaleRefresh:
			p.refresh(ctx, r, e)
			return valueOf(e.result), Stale, nil
		case verdictStale:
			return valueOf(e.result), Stale, nil
		}
	}
	a, err := p.await(ctx, r)
	if err != nil {
		return 0, a.outcome, err
	}
	return valueOf(a.rows), a.outcome, nil
}

func valueOf(r *rowcodec.Result) int64 {
	if r.NumRows() == 0 {
		return -1
	}
	return r.Row(0)[0].(int64)
}

func (p *process) mustRead(t *testing.T, key string, pol *Policy, want int64, outcome Outcome) {
	t.Helper()
	v, o, err := p.read(t.Context(), key, pol)
	if err != nil || v != want || o != outcome {
		t.Errorf("read %d, %v, %v; want %d, %v", v, o, err, want, outcome)
	}
}

var errRefused = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)

func TestFourProcessesWithAThousandCallersLoadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 150 * time.Millisecond}
		fleet := NewFakeFleet()
		pol := testPolicy(Policy{TTL: 10 * time.Second})
		var wg sync.WaitGroup
		for range 4 {
			p := newProcess(t, fleet, db, Config{})
			for range 250 {
				wg.Go(func() {
					if _, _, err := p.read(t.Context(), "k", pol); err != nil {
						t.Error(err)
					}
				})
			}
		}
		began := time.Now()
		wg.Wait()
		if n := db.loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		if d := time.Since(began); d > 160*time.Millisecond {
			t.Errorf("the last caller waited %v", d)
		}
	})
}

func TestStaleRowsAreServedAtOnceWhileOneProcessRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 150 * time.Millisecond}
		fleet := NewFakeFleet()
		pol := testPolicy(Policy{TTL: time.Second, SWR: 10 * time.Second})
		var ps []*process
		for range 4 {
			ps = append(ps, newProcess(t, fleet, db, Config{}))
		}
		for _, p := range ps {
			if _, _, err := p.read(t.Context(), "k", pol); err != nil {
				t.Fatal(err)
			}
		}
		for round := int64(1); round <= 20; round++ {
			db.version.Store(round)
			time.Sleep(time.Second) // from its refresh to staleness
			var wg sync.WaitGroup
			began := time.Now()
			for i := range 200 {
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					v, o, err := ps[i%4].read(ctx, "k", pol)
					cancel() // the refresh outlives the request that started it
					if err != nil || v != round-1 || o != Stale {
						t.Errorf("round %d: read %d, %v, %v; want %d, stale", round, v, o, err, round-1)
					}
				})
			}
			wg.Wait()
			if d := time.Since(began); d != 0 {
				t.Errorf("round %d: the readers waited %v", round, d)
			}
			time.Sleep(150 * time.Millisecond)
			synctest.Wait()
			if n := db.loads.Load(); n != 1+round {
				t.Fatalf("round %d: %d loads, want %d", round, n, 1+round)
			}
			for _, p := range ps {
				p.mustRead(t, "k", pol, round, Hit)
			}
		}
		if n := db.peak.Load(); n != 1 {
			t.Errorf("%d loads at once", n)
		}
	})
}

func TestAfterARefreshTheEntryHasItsFullLifeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		p := newProcess(t, NewFakeFleet(), db, Config{})
		pol := testPolicy(Policy{TTL: 10 * time.Second, SWR: 5 * time.Second})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(12 * time.Second)
		p.mustRead(t, "k", pol, 0, Stale)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		time.Sleep(9 * time.Second)
		p.mustRead(t, "k", pol, 0, Hit)
		time.Sleep(4 * time.Second)
		p.mustRead(t, "k", pol, 0, Stale)
	})
}

func TestARefreshThatFailsIsTriedAgainAndAfterTheHardTTLNothingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		p := newProcess(t, NewFakeFleet(), db, Config{})
		pol := testPolicy(Policy{TTL: time.Second, SWR: 20 * time.Second})
		p.mustRead(t, "k", pol, 0, Miss)
		db.breakWith(errors.New("syntax"))
		db.version.Store(1)
		time.Sleep(1100 * time.Millisecond)
		for range 100 {
			p.mustRead(t, "k", pol, 0, Stale)
			time.Sleep(10 * time.Millisecond)
		}
		failed := db.loads.Load() - 1
		if failed < 2 || failed > 20 {
			t.Errorf("%d refreshes failed within a second of reads every 10ms; want a few", failed)
		}
		db.repair()
		for range 600 { // longer than the longest pause
			if v, _, err := p.read(t.Context(), "k", pol); err != nil {
				t.Fatal(err)
			} else if v == 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		p.mustRead(t, "k", pol, 1, Hit)

		db.breakWith(errors.New("syntax"))
		time.Sleep(21 * time.Second)
		if v, o, err := p.read(t.Context(), "k", pol); err == nil {
			t.Errorf("after the hard TTL: read %d, %v", v, o)
		}
	})
}

func TestAHolderThatDiesCostsAtMostALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 150 * time.Millisecond}
		fleet := NewFakeFleet()
		pol := testPolicy(Policy{TTL: 10 * time.Second, Lease: time.Second})
		// A process that takes the lease and is never heard of again.
		dead := fleet.Store()
		if l, err := dead.obtain(t.Context(), "k", []string{tagEverything, "t:t"}, time.Second, time.Minute); err != nil || !l.won {
			t.Fatal(l, err)
		}
		p := newProcess(t, fleet, db, Config{})
		began := time.Now()
		p.mustRead(t, "k", pol, 0, Miss)
		if d := time.Since(began); d < time.Second || d > 1200*time.Millisecond {
			t.Errorf("the survivor waited %v, want the lease and the load", d)
		}
	})
}

func TestALoadLongerThanTheLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 5 * time.Second}
		fleet := NewFakeFleet()
		pol := testPolicy(Policy{TTL: 10 * time.Second, Lease: time.Second})
		var wg sync.WaitGroup
		for range 4 {
			p := newProcess(t, fleet, db, Config{})
			wg.Go(func() {
				if _, _, err := p.read(t.Context(), "k", pol); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := db.loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

func TestALoadThatFailsLetsAnotherProcessLoadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		bad, good := &fleetDB{took: 100 * time.Millisecond}, &fleetDB{took: 100 * time.Millisecond}
		bad.breakWith(errors.New("syntax"))
		a, b := newProcess(t, fleet, bad, Config{}), newProcess(t, fleet, good, Config{})
		pol := testPolicy(Policy{TTL: 10 * time.Second, Lease: 3 * time.Second})
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() {
			if _, _, err := a.read(t.Context(), "k", pol); err == nil {
				t.Error("the failing process read something")
			}
		})
		synctest.Wait()
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Miss) })
		wg.Wait()
		if d := time.Since(began); d > 210*time.Millisecond {
			t.Errorf("it took %v, want one load after the other", d)
		}
	})
}

func TestALeaderThatGivesUpReleasesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		db := &fleetDB{took: 100 * time.Millisecond}
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: 10 * time.Second, Lease: 3 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() {
			if _, _, err := a.read(ctx, "k", pol); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Miss) })
		wg.Wait()
		if d := time.Since(began); d > 130*time.Millisecond {
			t.Errorf("the other process had the rows after %v", d)
		}
	})
}

func TestWithPushBlockedWaitersPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		db := &fleetDB{took: 300 * time.Millisecond}
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		fleet.DropMessages(true)
		pol := testPolicy(Policy{TTL: 10 * time.Second})
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() { a.mustRead(t, "k", pol, 0, Miss) })
		synctest.Wait()
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Waited) })
		wg.Wait()
		if d := time.Since(began); d > 300*time.Millisecond+pollMax {
			t.Errorf("the waiter had the rows after %v", d)
		}
		if n := db.loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

func TestAWaiterGivesUpAfterWaitAsItsPolicySays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		slow, quick := &fleetDB{took: 5 * time.Second}, &fleetDB{took: 10 * time.Millisecond}
		a, b := newProcess(t, fleet, slow, Config{}), newProcess(t, fleet, quick, Config{})
		pol := testPolicy(Policy{TTL: 10 * time.Second, Wait: time.Second})
		strict := testPolicy(Policy{TTL: 10 * time.Second, Wait: time.Second, OnWaitTimeout: WaitError})
		var wg sync.WaitGroup
		wg.Go(func() { a.mustRead(t, "k", pol, 0, Miss) })
		synctest.Wait()
		began := time.Now()
		if _, _, err := b.read(t.Context(), "k", strict); !errors.Is(err, ErrWaitTimeout) {
			t.Errorf("got %v, want ErrWaitTimeout", err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("the error came after %v", d)
		}
		b.mustRead(t, "k", pol, 0, Miss)
		wg.Wait()
	})
}

func TestAnUnavailableDatabaseIsHiddenByOldRowsAndOtherErrorsAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		p := newProcess(t, nil, db, Config{})
		pol := testPolicy(Policy{TTL: time.Second, SIE: time.Minute})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(2 * time.Second)
		syntax := errors.New("syntax error")
		db.breakWith(syntax)
		if _, _, err := p.read(t.Context(), "k", pol); !errors.Is(err, syntax) {
			t.Errorf("a syntax error gave %v", err)
		}
		db.breakWith(errRefused)
		p.mustRead(t, "k", pol, 0, StaleError)
		time.Sleep(time.Minute)
		if _, _, err := p.read(t.Context(), "k", pol); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after the sie window: %v", err)
		}
	})
}

func TestAFailingDatabaseIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		db.breakWith(errRefused)
		p := newProcess(t, nil, db, Config{})
		pol := testPolicy(Policy{TTL: time.Second})
		for range 10_000 { // ten seconds of reads
			if _, _, err := p.read(t.Context(), "k", pol); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("got %v, want the database's error", err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := db.loads.Load(); n < 5 || n > 20 {
			t.Errorf("%d loads in 10s, want about 9", n)
		}
		db.repair()
		time.Sleep(backoffMax)
		p.mustRead(t, "k", pol, 0, Miss)

		syntax := errors.New("syntax error")
		db.breakWith(syntax)
		time.Sleep(2 * time.Second)
		before := db.loads.Load()
		for range 10 {
			if _, _, err := p.read(t.Context(), "k", pol); !errors.Is(err, syntax) {
				t.Fatal(err)
			}
		}
		if n := db.loads.Load() - before; n != 10 {
			t.Errorf("an error of the statement backed off: %d loads for 10 reads", n)
		}
	})
}

func TestFiftyCallersOfADatabaseThatIsDownDoNotQueueForTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 200 * time.Millisecond}
		db.breakWith(errRefused)
		p := newProcess(t, NewFakeFleet(), db, Config{})
		pol := testPolicy(Policy{TTL: time.Second})
		var wg sync.WaitGroup
		began := time.Now()
		for range 50 {
			wg.Go(func() {
				if _, _, err := p.read(t.Context(), "k", pol); err == nil {
					t.Error("no error")
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 250*time.Millisecond {
			t.Errorf("the last error came after %v", d)
		}
	})
}

func TestEntriesStoredTogetherExpireSpreadAndNeverLate(t *testing.T) {
	pol := testPolicy(Policy{TTL: 10 * time.Second, SWR: 10 * time.Second, Jitter: 0.1})
	lo, hi := time.Hour, time.Duration(0)
	hlo, hhi := time.Hour, time.Duration(0)
	for range 1000 {
		_, se := newEntry(&request{pol: pol}, 0, 0, loadResult{rows: resultOf(1)}, new(dice))
		lo, hi = min(lo, se.soft), max(hi, se.soft)
		hlo, hhi = min(hlo, se.hard), max(hhi, se.hard)
	}
	if lo < 9*time.Second || hi > 10*time.Second || hi-lo < 800*time.Millisecond {
		t.Errorf("soft TTLs from %v to %v; want at least 80%% of [9s, 10s]", lo, hi)
	}
	if hlo < 18*time.Second || hhi > 20*time.Second || hhi-hlo < 1600*time.Millisecond {
		t.Errorf("hard TTLs from %v to %v; want at least 80%% of [18s, 20s]", hlo, hhi)
	}
}

func TestAnEmptyResultLivesForEmptyAndIsNothingToFallBackOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		db.version.Store(-1)
		p := newProcess(t, NewFakeFleet(), db, Config{})
		pol := testPolicy(Policy{TTL: time.Minute, Empty: time.Second, SWR: time.Minute, SIE: time.Minute})
		p.mustRead(t, "k", pol, -1, Miss)
		time.Sleep(900 * time.Millisecond)
		p.mustRead(t, "k", pol, -1, Hit)
		time.Sleep(200 * time.Millisecond)
		db.version.Store(1)
		p.mustRead(t, "k", pol, 1, Miss)

		db.version.Store(-1)
		p.mustRead(t, "k2", pol, -1, Miss)
		time.Sleep(1100 * time.Millisecond)
		db.breakWith(errRefused)
		if v, o, err := p.read(t.Context(), "k2", pol); err == nil {
			t.Errorf("read %d, %v from an expired empty result", v, o)
		}
	})
}

func TestAHotKeyIsRefreshedBeforeItIsStaleAndOnlyOncePerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 150 * time.Millisecond}
		p := newProcess(t, nil, db, Config{})
		pol := testPolicy(Policy{TTL: time.Second, SWR: time.Minute, EarlyBeta: 1})
		p.mustRead(t, "k", pol, 0, Miss)
		stale := 0
		for range 20_000 { // 20 s, a read every millisecond
			_, o, err := p.read(t.Context(), "k", pol)
			if err != nil {
				t.Fatal(err)
			}
			if o == Stale {
				stale++
			}
			time.Sleep(time.Millisecond)
		}
		// The refresh begins within the last load time of a second and takes as long.
		if n := db.loads.Load(); n < 20 || n > 25 {
			t.Errorf("%d loads in 20s with a TTL of 1s, want about one a TTL", n)
		}
		if stale > 2000 {
			t.Errorf("%d of 20000 reads were stale", stale)
		}
	})
}

func TestRefreshesAreBoundedAndADroppedOneIsTriedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 100 * time.Millisecond}
		p := newProcess(t, nil, db, Config{MaxLoads: 2})
		pol := testPolicy(Policy{TTL: time.Second, SWR: time.Minute})
		for i := range 10 {
			p.mustRead(t, fmt.Sprint(i), pol, 0, Miss)
		}
		time.Sleep(2 * time.Second)
		db.peak.Store(0)
		for range 10 {
			for i := range 10 {
				if _, _, err := p.read(t.Context(), fmt.Sprint(i), pol); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if n := db.peak.Load(); n > 2 {
			t.Errorf("%d refreshes at once, want 2 at most", n)
		}
		if n := db.loads.Load(); n != 20 {
			t.Errorf("%d loads, want 10 and 10 refreshes", n)
		}
		if p.h.Stats().Refreshes[RefreshDropped] == 0 {
			t.Error("no refresh was counted as dropped")
		}
	})
}

func TestAReaderAfterALocalInvalidationNeverJoinsAnOlderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fleet := range []*FakeFleet{nil, NewFakeFleet()} {
			db := &fleetDB{took: 300 * time.Millisecond}
			db.version.Store(1)
			p := newProcess(t, fleet, db, Config{})
			pol := testPolicy(Policy{TTL: time.Minute})
			var wg sync.WaitGroup
			wg.Go(func() {
				if v, _, err := p.read(t.Context(), "k", pol); err != nil || v < 1 {
					t.Errorf("the old waiter got %d, %v", v, err)
				}
			})
			time.Sleep(100 * time.Millisecond)
			db.version.Store(2)
			if err := p.h.InvalidateTables(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			if v, _, err := p.read(t.Context(), "k", pol); v != 2 || err != nil {
				t.Errorf("a reader after the write got %d, %v", v, err)
			}
			wg.Wait()
			synctest.Wait()
			if v, _, err := p.read(t.Context(), "k", pol); v != 2 || err != nil {
				t.Errorf("the old load was stored: %d, %v", v, err)
			}
		}
	})
}

// Two readers of one process ask Redis at almost the same time, and between the two a write ends elsewhere.
func TestAReaderDoesNotShareALookAtRedisThatBeganBeforeAWriteElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		b.subscribed(false) // so that memory is not believed, as without one
		pol := testPolicy(Policy{TTL: time.Minute})
		a.mustRead(t, "k", pol, 0, Miss)

		fleet.DropMessages(true)
		fleet.ReplyAfter(100 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Hit) })
		time.Sleep(50 * time.Millisecond)
		db.version.Store(1)
		if err := a.h.InvalidateTables(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			wg.Go(func() {
				if v, _, err := b.read(t.Context(), "k", pol); v != 1 || err != nil {
					t.Errorf("a reader after the write got %d, %v", v, err)
				}
			})
		}
		wg.Wait()
		if n := db.loads.Load(); n != 2 {
			t.Errorf("%d loads, want one more for one write", n)
		}

		// All who come while one asks share the next look.
		asked := fleet.Count("get")
		wg.Go(func() { b.mustRead(t, "k", pol, 1, Hit) })
		time.Sleep(50 * time.Millisecond)
		for range 10 {
			wg.Go(func() { b.mustRead(t, "k", pol, 1, Hit) })
		}
		wg.Wait()
		if n := fleet.Count("get") - asked; n != 2 {
			t.Errorf("eleven readers asked Redis %d times, want 2", n)
		}
	})
}

func TestAnInvalidationReachesOtherProcesses(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: time.Millisecond}
			fleet := NewFakeFleet()
			a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
			pol := testPolicy(Policy{TTL: time.Minute})
			a.mustRead(t, "k", pol, 0, Miss)
			b.mustRead(t, "k", pol, 0, Hit)
			fleet.DropMessages(lost)
			db.version.Store(1)
			if err := a.h.InvalidateTables(t.Context(), "T"); err != nil {
				t.Fatal(err)
			}
			if lost {
				time.Sleep(LocalTTLDefault) // the bound on memory
			}
			if v, _, err := b.read(t.Context(), "k", pol); v != 1 || err != nil {
				t.Errorf("messages lost %v: the other process read %d, %v", lost, v, err)
			}
			a.mustRead(t, "k", pol, 1, Hit)
		})
	}
}

func TestWhileRedisIsAwayEveryProcessLoadsOnceAndMemoryServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 100 * time.Millisecond}
		fleet := NewFakeFleet()
		fleet.SetErr("", errors.New("redis is down"))
		pol := testPolicy(Policy{TTL: 10 * time.Second})
		var wg sync.WaitGroup
		for range 4 {
			p := newProcess(t, fleet, db, Config{})
			for range 250 {
				wg.Go(func() {
					if _, _, err := p.read(t.Context(), "k", pol); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				for range 90 {
					time.Sleep(100 * time.Millisecond)
					if _, _, err := p.read(t.Context(), "k", pol); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := db.loads.Load(); n != 4 {
			t.Errorf("%d loads, want one in each of 4 processes", n)
		}
	})
}

func TestAWriteThatRedisCannotBeToldOfIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		fleet.SetErr("invalidate", errors.New("redis is down"))
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		a.mustRead(t, "k", pol, 1, Miss) // read your own writes, from the database
		if n := a.h.Stats().InvalidationsPending; n != 1 {
			t.Errorf("%d invalidations pending, want 1", n)
		}
		fleet.SetErr("invalidate", nil)
		time.Sleep(retryPauseMax)
		synctest.Wait()
		if v, _, err := b.read(t.Context(), "k", pol); v != 1 || err != nil {
			t.Errorf("the other process reads %d, %v", v, err)
		}
		if n := a.h.Stats().InvalidationsPending; n != 0 {
			t.Errorf("%d invalidations pending, want none", n)
		}
	})
}

func TestWhenTheSubscriptionIsBackRedisIsToldOfTheWritesThatWaitedWithoutTheRestOfThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		p := newProcess(t, fleet, &fleetDB{}, Config{})
		away := errors.New("redis is down")
		pending := func() int {
			synctest.Wait()
			return p.h.Stats().InvalidationsPending
		}
		fleet.SetErr("invalidate", away)
		p.engine.subscribed(false)
		p.h.wrote(t.Context(), writeEffects{tags: []string{"t:a"}})
		// After an hour the pauses have become as long as they get.
		time.Sleep(time.Hour)
		tries := p.h.Stats().InvalidationRetries
		p.engine.subscribed(true)
		if n := pending(); n != 1 {
			t.Fatalf("%d pending, want 1", n)
		}
		if n := p.h.Stats().InvalidationRetries - tries; n != 1 {
			t.Errorf("%d tries when the subscription is back, want one", n)
		}
		// The breaker is open a moment longer.
		time.Sleep(10 * time.Millisecond)
		fleet.SetErr("invalidate", nil)
		time.Sleep(retryPauseMin)
		if n := pending(); n != 0 {
			t.Errorf("%d pending after the first short pause", n)
		}

		fleet.SetErr("invalidate", away)
		p.h.wrote(t.Context(), writeEffects{tags: []string{"t:a"}})
		time.Sleep(time.Hour)
		fleet.SetErr("invalidate", nil)
		p.engine.subscribed(true)
		if n := pending(); n != 0 {
			t.Errorf("%d pending though Redis answers", n)
		}
	})
}

func TestTheLogSaysOfEachOutageThatWritesWaitAndWhenRedisHasBeenToldOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		fleet := NewFakeFleet()
		p := newProcess(t, fleet, &fleetDB{}, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		want := func(when string, waiting, told int) {
			t.Helper()
			w, d := strings.Count(log.String(), "could not be told of a write"), strings.Count(log.String(), "has been told of every write")
			if w != waiting || d != told {
				t.Errorf("%s: %d lines of writes that wait and %d of their end, want %d and %d:\n%s", when, w, d, waiting, told, &log)
			}
		}
		away := errors.New("redis is down")
		for outage := range 3 {
			fleet.SetErr("invalidate", away)
			p.h.wrote(t.Context(), writeEffects{tags: []string{"t:a"}})
			if err := p.h.Invalidate(t.Context(), "b"); !errors.Is(err, away) {
				t.Errorf("Invalidate: %v", err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			want("while Redis is away", outage+1, outage)
			if !strings.Contains(log.String(), "redis is down") {
				t.Errorf("the log does not say why:\n%s", &log)
			}

			fleet.SetErr("invalidate", nil)
			time.Sleep(2 * retryPauseMax)
			synctest.Wait()
			want("when it is back", outage+1, outage+1)
			p.h.wrote(t.Context(), writeEffects{tags: []string{"t:a"}})
			p.h.retry.doubt() // what is only told once more is no write that waited
			synctest.Wait()
			want("later", outage+1, outage+1)
		}
		fleet.SetErr("invalidate", away)
		if err := p.h.Invalidate(t.Context(), "b"); !errors.Is(err, away) {
			t.Errorf("Invalidate: %v", err)
		}
		want("an invalidation alone", 4, 3)
		fleet.SetErr("invalidate", nil)
	})
}

func TestWithoutASubscriptionMemoryIsComparedWithRedisAtEachRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		b.mustRead(t, "k", pol, 0, Miss)
		b.mustRead(t, "k", pol, 0, Hit)

		b.subscribed(false)
		fleet.DropMessages(true)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		b.mustRead(t, "k", pol, 1, Miss)
		looks := fleet.Count("get")
		for range 3 {
			b.mustRead(t, "k", pol, 1, Hit)
		}
		if n := fleet.Count("get") - looks; n != 3 {
			t.Errorf("%d looks at Redis for 3 reads", n)
		}

		b.subscribed(true)
		b.mustRead(t, "k", pol, 1, Hit)
		if n := fleet.Count("get") - looks; n != 3 {
			t.Errorf("memory is not believed though messages arrive again")
		}
	})
}

func TestATagThatRedisCannotBeToldOfHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		pending := func(want int, tags ...string) {
			t.Helper()
			if n := a.h.Stats().InvalidationsPending; n != want {
				t.Errorf("%d invalidations pending, want %d", n, want)
			}
			for _, tag := range []string{"t:away", "t:t"} {
				if held := a.epochs.isPending(a.epochs.slotsOf([]string{tag})); held != slices.Contains(tags, tag) {
					t.Errorf("%s is held: %v", tag, held)
				}
			}
		}
		away := errors.New("the node is away")
		fleet.SetTagErr("t:away", away)
		for i := range int64(2) { // the second time one waits already
			b.mustRead(t, "k", pol, i, Miss)
			db.version.Store(i + 1)
			a.h.wrote(t.Context(), writeEffects{tags: []string{"t:away", "t:t"}})
			pending(1, "t:away")
		}
		b.mustRead(t, "k", pol, 2, Miss)

		// What waits is told tag by tag, too.
		fleet.SetErr("invalidate", away)
		db.version.Store(3)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		pending(2, "t:away", "t:t")
		fleet.SetErr("invalidate", nil)
		time.Sleep(2 * retryPauseMax)
		synctest.Wait()
		pending(1, "t:away")
		b.mustRead(t, "k", pol, 3, Miss)

		fleet.SetTagErr("t:away", nil)
		time.Sleep(2 * retryPauseMax)
		synctest.Wait()
		pending(0)
	})
}

func TestAForcedRefreshReplacesWhatIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		db.version.Store(1)
		r := a.request("k", pol)
		r.force = true
		if ans, err := a.await(t.Context(), r); err != nil || valueOf(ans.rows) != 1 {
			t.Errorf("the forced read got %v, %v", ans, err)
		}
		a.mustRead(t, "k", pol, 1, Hit)
		b.mustRead(t, "k", pol, 1, Hit)
	})
}

func TestAResultReadSoonAfterAWriteIsNotStoredWithAReplicaThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		p := newProcess(t, nil, db, Config{ReplicaLag: time.Second})
		pol := testPolicy(Policy{TTL: time.Hour})
		time.Sleep(time.Minute)
		p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		p.mustRead(t, "k", pol, 0, Miss) // the replica's old rows
		db.version.Store(1)
		p.mustRead(t, "k", pol, 1, Miss)
		time.Sleep(time.Second)
		p.mustRead(t, "k", pol, 1, Miss)
		p.mustRead(t, "k", pol, 1, Hit)
	})
}

// The refresh that a soft invalidation starts reads the replica at once, when it has not seen the write yet.
func TestAResultReadSoonAfterASoftInvalidationIsNotTakenForFreshWithAReplicaThatLags(t *testing.T) {
	for _, swr := range []time.Duration{-1, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			db, fleet := &fleetDB{took: time.Millisecond}, NewFakeFleet()
			writer := newProcess(t, fleet, db, Config{ReplicaLag: time.Second})
			p := newProcess(t, fleet, db, Config{ReplicaLag: time.Second})
			pol := testPolicy(Policy{TTL: time.Hour, SWR: swr})
			p.mustRead(t, "k", pol, 0, Miss)
			time.Sleep(time.Minute)
			writer.h.wrote(t.Context(), writeEffects{soft: []string{"t:t"}})
			for range 10 { // the replica's old rows
				for _, q := range []*process{writer, p} {
					if _, out, err := q.read(t.Context(), "k", pol); err != nil || out == Hit {
						t.Errorf("with swr %v, before the replica has seen the write: %v, %v", swr, out, err)
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			db.version.Store(1)
			time.Sleep(10 * time.Second)
			for _, q := range []*process{writer, p} {
				_, _, _ = q.read(t.Context(), "k", pol) // it may start the refresh
				time.Sleep(time.Second)
				q.mustRead(t, "k", pol, 1, Hit)
			}
		})
	}
}

func TestRandomFleetsNeverServeDeadRowsNorLoadTwiceAtOnce(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			db := &fleetDB{took: time.Duration(rng.IntN(300)) * time.Millisecond}
			fleet := NewFakeFleet()
			pol := testPolicy(Policy{TTL: time.Second, SWR: time.Duration(rng.IntN(2)) * time.Second, Lease: 500 * time.Millisecond})
			var ps []*process
			for range 3 {
				ps = append(ps, newProcess(t, fleet, db, Config{}))
			}
			// The version is the second it became current in: a row's age can be told.
			start := time.Now()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						db.version.Store(int64(time.Since(start)))
					}
				}
			})
			for i := range 30 {
				d := time.Duration(rng.IntN(50)+1) * time.Millisecond
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(d):
						}
						v, _, err := ps[i%3].read(t.Context(), "k", pol)
						if err != nil {
							t.Error(err)
						}
						if age := time.Since(start) - time.Duration(v); age > pol.TTL+pol.SWR+db.took+200*time.Millisecond {
							t.Errorf("seed %d: rows of age %v", seed, age)
						}
					}
				})
			}
			time.Sleep(15 * time.Second)
			close(stop)
			wg.Wait()
			synctest.Wait()
			if n := db.peak.Load(); n > 1 {
				t.Errorf("seed %d: %d loads at once", seed, n)
			}
		})
	}
}

// The leader's database/sql gives it another connection; the connections of the others are good.
func TestALeadersDeadConnectionIsNotItsFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 100 * time.Millisecond}
		p := newProcess(t, nil, db, Config{LoadOnCallerConn: true})
		pol := testPolicy(Policy{TTL: time.Minute})
		dead := errors.New("driver: bad connection")
		var wg sync.WaitGroup
		wg.Go(func() {
			r := p.request("k", pol)
			r.load = func(ctx context.Context) (loadResult, error) {
				time.Sleep(50 * time.Millisecond)
				return loadResult{}, lostConn{dead}
			}
			if _, err := p.await(t.Context(), r); !errors.Is(err, dead) {
				t.Errorf("the leader got %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if a, err := p.await(t.Context(), p.request("k", pol)); err != nil || valueOf(a.rows) != 0 {
					t.Errorf("a follower got %v", err)
				}
			})
		}
		wg.Wait()
		if n := db.loads.Load(); n != 1 {
			t.Errorf("%d loads by the followers, want 1", n)
		}
	})
}

// Callers who come while somebody loads what nobody has need not ask Redis, and get old rows if the load fails.
func TestWhoComesDuringALoadJoinsItWithoutAskingRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		db := &fleetDB{took: 100 * time.Millisecond}
		p := newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Second, SIE: time.Hour})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(time.Minute)

		for _, fails := range []bool{true, false} {
			wantOutcome := Shared
			if fails {
				db.breakWith(errRefused)
				wantOutcome = StaleError
			}
			var wg sync.WaitGroup
			wg.Go(func() { _, _, _ = p.read(t.Context(), "k", pol) })
			synctest.Wait()
			asked := fleet.Count("get")
			for range 20 {
				wg.Go(func() { p.mustRead(t, "k", pol, 0, wantOutcome) })
			}
			synctest.Wait()
			if n := fleet.Count("get"); n != asked {
				t.Errorf("those who came later asked the store %d times", n-asked)
			}
			wg.Wait()
			db.repair()
			time.Sleep(time.Minute)
		}
	})
}

// While Redis is away a job writes more rows than are remembered one by one.
func TestAHundredThousandTagsWrittenWhileRedisIsAwayAreAllToldOfInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		fleet.SetErr("invalidate", errors.New("redis is down"))
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}}) // the first, which the others must not push out
		for i := range 100_000 {
			a.h.wrote(t.Context(), writeEffects{tags: []string{fmt.Sprintf("g:row/%d", i)}})
			if n := a.h.Stats().InvalidationsPending; n > retryTagsMax {
				t.Fatalf("%d invalidations wait, want at most %d", n, retryTagsMax)
			}
		}
		fleet.SetErr("invalidate", nil)
		time.Sleep(retryPauseMax)
		synctest.Wait()
		if v, _, err := b.read(t.Context(), "k", pol); v != 1 || err != nil {
			t.Errorf("the other process reads %d, %v", v, err)
		}
		if n := a.epochs.pending.Load(); n != 0 {
			t.Errorf("%d holds are left, so that this process never uses Redis again", n)
		}
	})
}

// Replication of Redis is asynchronous. The replica that takes over may not know of the last writes: then
// it has the stamps from before, and the entries that are valid under them.
func TestAWriteThatAFailoverHasForgottenIsToldOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		subscribe := func(up bool) {
			for _, p := range []*process{a, b} {
				p.store.(*FakeStore).Subscription(up)
			}
		}
		pol := testPolicy(Policy{TTL: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		b.mustRead(t, "k", pol, 0, Hit)
		promote := fleet.Save()

		db.version.Store(1)
		if err := a.h.InvalidateTables(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		fleet.SetErr("", errors.New("EOF"))
		subscribe(false)
		// Who has written reads its write, whatever Redis has forgotten.
		if v, _, err := a.read(t.Context(), "k", pol); v != 1 || err != nil {
			t.Errorf("the writer reads %d, %v during the failover", v, err)
		}
		time.Sleep(30 * time.Second)
		promote()
		fleet.SetErr("", nil)
		if v, _, err := a.read(t.Context(), "k", pol); v != 1 || err != nil {
			t.Errorf("the writer reads %d, %v from the new primary", v, err)
		}
		subscribe(true)
		time.Sleep(retryPauseMax)
		for name, p := range map[string]*process{"writer": a, "other process": b} {
			if v, _, err := p.read(t.Context(), "k", pol); v != 1 || err != nil {
				t.Errorf("the %s reads %d, %v after the failover", name, v, err)
			}
		}
		if st := a.h.Stats(); st.InvalidationsPending != 0 || st.InvalidationRepeats == 0 {
			t.Errorf("%d pending, %d repeated", st.InvalidationsPending, st.InvalidationRepeats)
		}
	})
}

func TestATroubledRedisIsNotToldOfOldWritesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		p := newProcess(t, fleet, &fleetDB{}, Config{})
		write := func() {
			if err := p.h.InvalidateTables(t.Context(), "t"); err != nil {
				t.Error(err)
			}
		}
		told := func() (n int) {
			before := fleet.Count("invalidate")
			p.doubted()
			synctest.Wait()
			return fleet.Count("invalidate") - before
		}
		if n := told(); n != 0 {
			t.Errorf("%d invalidations of nothing", n)
		}
		write()
		for i, want := range []int{1, 1, 0, 0} {
			if n := told(); n != want {
				t.Errorf("doubt %d told Redis %d times, want %d", i, n, want)
			}
		}
		write()
		time.Sleep(doubtAfter + time.Second)
		if n := told(); n != 0 {
			t.Errorf("a write of long ago is told again %d times", n)
		}
		for i := range 3 * retryTagsMax {
			if err := p.h.Invalidate(t.Context(), fmt.Sprint("tag", i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(p.h.retry.recent); n > retryTagsMax {
			t.Errorf("%d tags are remembered", n)
		}
		if n := told(); n == 0 {
			t.Error("many writes are not told again")
		}
	})
}
