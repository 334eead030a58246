package sqlherd

// What went wrong in the engine, or might have, in virtual time; and fleets to which everything happens
// at random, under the promises that hold all the same.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A lateStore delays replies, after the call has had its effect: a slow network on the way back, or a
// process that was stopped.
type lateStore struct {
	*FakeStore
	late func(op string) time.Duration
}

func (s *lateStore) get(ctx context.Context, key string, tags []string) (*sharedEntry, error) {
	se, err := s.FakeStore.get(ctx, key, tags)
	time.Sleep(s.late("get"))
	return se, err
}

func (s *lateStore) invalidate(ctx context.Context, tags []string) error {
	err := s.FakeStore.invalidate(ctx, tags)
	time.Sleep(s.late("invalidate"))
	return err
}

func newLateProcess(t *testing.T, fleet *FakeFleet, db *fleetDB, cfg Config, late func(op string) time.Duration) *process {
	t.Helper()
	p := newProcess(t, nil, db, cfg)
	p.h.useStore(&lateStore{fleet.Store(), late})
	return p
}

// rowsAfter is a load that takes d and gives v as it was when it began.
func rowsAfter(d time.Duration, v *atomic.Int64) func(context.Context) (loadResult, error) {
	return func(ctx context.Context) (loadResult, error) {
		rows := resultOf(v.Load())
		select {
		case <-time.After(d):
			return loadResult{rows: rows, took: d}, nil
		case <-ctx.Done():
			return loadResult{}, ctx.Err()
		}
	}
}

func TestARefreshThatTakesLongHoldsUpNobodyWhoIsServedStaleRows(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: 5 * time.Second}
			p := newProcess(t, NewFakeFleet(), db, Config{})
			if disabled { // as Config.Local.Disabled does
				p.mem.close()
				p.mem.cache = nil
			}
			pol := testPolicy(Policy{TTL: 20 * time.Second, SWR: time.Minute})
			p.mustRead(t, "k", pol, 0, Miss)
			time.Sleep(20 * time.Second)
			db.version.Store(1)
			for i := range 49 {
				began := time.Now()
				v, o, err := p.read(t.Context(), "k", pol)
				if d := time.Since(began); v != 0 || o != Stale || err != nil || d > 0 {
					t.Fatalf("memory off %v, read %d: %d, %v, %v after %v; want stale rows at once", disabled, i, v, o, err, d)
				}
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Second)
			p.mustRead(t, "k", pol, 1, Hit)
			if n := db.loads.Load(); n != 2 {
				t.Errorf("%d loads, want 2", n)
			}
		})
	}
}

func TestACallerWhoJoinsARefreshThatFailsGetsRowsInTheirSIEWindow(t *testing.T) {
	for _, fleet := range []*FakeFleet{nil, NewFakeFleet()} {
		synctest.Test(t, func(t *testing.T) {
			if fleet != nil {
				fleet = NewFakeFleet()
			}
			db := &fleetDB{took: 300 * time.Millisecond}
			p := newProcess(t, fleet, db, Config{})
			pol := testPolicy(Policy{TTL: time.Second, SWR: time.Second, SIE: time.Minute})
			p.mustRead(t, "k", pol, 0, Miss)
			db.breakWith(errRefused)
			time.Sleep(1900 * time.Millisecond)
			p.mustRead(t, "k", pol, 0, Stale) // starts a refresh
			time.Sleep(150 * time.Millisecond)
			p.mustRead(t, "k", pol, 0, StaleError) // past the hard TTL, joins it
			if n := db.loads.Load(); n != 2 {
				t.Errorf("%d loads, want 2: the caller did not join", n)
			}
			// A write since is another matter.
			p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
			if v, o, err := p.read(t.Context(), "k", pol); err == nil {
				t.Errorf("rows from before a write: %d, %v", v, o)
			}
		})
	}
}

func TestAWriteWhileRedisIsDownDoesNotEndTheCacheInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		fleet := NewFakeFleet()
		store := fleet.Store()
		p := newProcess(t, nil, db, Config{})
		p.h.useStore(store)
		pol := testPolicy(Policy{TTL: time.Minute})
		p.mustRead(t, "k", pol, 0, Miss)
		fleet.SetErr("", errors.New("redis is down"))
		store.Subscription(false)
		db.version.Store(1)
		p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		p.mustRead(t, "k", pol, 1, Miss)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			p.mustRead(t, "k", pol, 1, Hit)
		}
		if n := db.loads.Load(); n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
		// And the next write is seen.
		db.version.Store(2)
		p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		p.mustRead(t, "k", pol, 2, Miss)
	})
}

func TestRowsThatAWriteElsewhereEndedAreNotServedWhenTheDatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour, SIE: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		b.mustRead(t, "k", pol, 0, Hit)
		fleet.DropMessages(true)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		time.Sleep(LocalTTLDefault)
		db.breakWith(errRefused)
		for range 3 { // the third one meets the back-off
			if v, o, err := b.read(t.Context(), "k", pol); err == nil {
				t.Errorf("rows from before the write: %d, %v", v, o)
			}
		}
	})
}

func TestASlowLoadThatAnUnheardWriteOverlapsIsBelievedNoLongerThanLocalTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 5 * time.Second}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		var wg sync.WaitGroup
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Miss) })
		time.Sleep(time.Second)
		fleet.DropMessages(true)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		wg.Wait()
		b.mustRead(t, "k", pol, 1, Miss) // four seconds after the write
	})
}

func TestAReaderWhoJoinedALongLoadDoesNotGetItsOldRowsBecauseAWriteHereIsOnItsWayToRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 5 * time.Second}
		fleet := NewFakeFleet()
		a := newProcess(t, fleet, db, Config{})
		b := newLateProcess(t, fleet, db, Config{}, func(op string) time.Duration {
			return map[string]time.Duration{"invalidate": time.Second}[op]
		})
		pol := testPolicy(Policy{TTL: time.Hour})
		var wg sync.WaitGroup
		wg.Go(func() { b.mustRead(t, "k", pol, 0, Miss) })
		time.Sleep(time.Second)
		fleet.DropMessages(true)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		time.Sleep(2 * time.Second)
		wg.Go(func() { // joins the load
			if v, _, err := b.read(t.Context(), "k", pol); err != nil || v < 1 {
				t.Errorf("got %d, %v; 1 was written two seconds before", v, err)
			}
		})
		time.Sleep(1900 * time.Millisecond)
		db.version.Store(2)
		b.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}}) // until after the load has ended
		wg.Wait()
	})
}

func TestAReaderAfterAWriteStartsAsSoonAsTheLoadBeforeItHasEnded(t *testing.T) {
	for _, how := range []string{"write", "refresh"} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: 400 * time.Millisecond}
			p := newProcess(t, NewFakeFleet(), db, Config{})
			pol := testPolicy(Policy{TTL: time.Minute})
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, _, err := p.read(t.Context(), "k", pol); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
			db.version.Store(1)
			r := p.request("k", pol)
			if how == "refresh" {
				r.force = true
			} else {
				p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
			}
			if a, err := p.await(t.Context(), r); err != nil || valueOf(a.rows) != 1 {
				t.Errorf("%s: got %v, %v", how, a, err)
			}
			if d := time.Since(began); d > 2*db.took {
				t.Errorf("%s: the rows came after %v, want two loads, %v", how, d, 2*db.took)
			}
			wg.Wait()
		})
	}
}

func TestALoadThatLandsLateDoesNotTakeNewerRowsOutOfMemory(t *testing.T) {
	for _, how := range []string{"write", "refresh"} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{}
			p := newProcess(t, nil, db, Config{})
			pol := testPolicy(Policy{TTL: time.Minute})
			var v atomic.Int64
			slow, quick := p.request("k", pol), p.request("k", pol)
			slow.load, quick.load = rowsAfter(300*time.Millisecond, &v), rowsAfter(10*time.Millisecond, &v)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := p.await(t.Context(), slow); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(50 * time.Millisecond)
			v.Store(1)
			db.version.Store(9) // what a load too many would read
			if how == "refresh" {
				quick.force = true
			} else {
				p.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
			}
			if a, err := p.await(t.Context(), quick); err != nil || valueOf(a.rows) != 1 {
				t.Errorf("%s: got %v, %v", how, a, err)
			}
			wg.Wait()
			p.mustRead(t, "k", pol, 1, Hit)
		})
	}
}

func TestALookAtRedisThatARefreshOvertakesDoesNotBringTheOldRowsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		var late atomic.Int64
		p := newLateProcess(t, NewFakeFleet(), db, Config{}, func(string) time.Duration { return time.Duration(late.Load()) })
		pol := testPolicy(Policy{TTL: time.Minute})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(900 * time.Millisecond)
		late.Store(int64(40 * time.Millisecond))
		p.mustRead(t, "k", pol, 0, Hit) // compares
		synctest.Wait()
		late.Store(0)
		db.version.Store(1)
		r := p.request("k", pol)
		r.force = true
		if a, err := p.await(t.Context(), r); err != nil || valueOf(a.rows) != 1 {
			t.Errorf("got %v, %v", a, err)
		}
		time.Sleep(50 * time.Millisecond)
		p.mustRead(t, "k", pol, 1, Hit)
	})
}

func TestReadersOfATableThatIsWrittenMoreOftenThanTheyTakeDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 300 * time.Millisecond}
		fleet := NewFakeFleet()
		ps := []*process{newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})}
		pol := testPolicy(Policy{TTL: time.Minute})
		var wg sync.WaitGroup
		var longest atomic.Int64
		for i := range 200 { // twenty seconds
			db.version.Add(1)
			ps[0].h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
			want := db.version.Load()
			wg.Go(func() {
				began := time.Now()
				v, _, err := ps[i%2].read(t.Context(), "k", pol)
				if err != nil || v < want {
					t.Errorf("read %d, %v; want at least %d", v, err, want)
				}
				if d := int64(time.Since(began)); d > longest.Load() {
					longest.Store(d)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if d := time.Duration(longest.Load()); d > 4*db.took {
			t.Errorf("a reader waited %v for a load of %v", d, db.took)
		}
	})
}

func TestALoadThatNeverEndsKeepsItsLeaseNoLongerThanLoadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		db := &fleetDB{took: 10 * time.Millisecond}
		stuck, p := newProcess(t, fleet, db, Config{LoadTimeout: 2 * time.Second}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Minute, Lease: time.Second, Wait: time.Minute})
		end := make(chan struct{})
		r := stuck.request("k", pol)
		r.load = func(context.Context) (loadResult, error) { // a driver that ignores its context
			<-end
			return loadResult{}, errRefused
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := stuck.await(t.Context(), r); err == nil {
				t.Error("no error")
			}
		})
		synctest.Wait()
		began := time.Now()
		p.mustRead(t, "k", pol, 0, Miss)
		if d := time.Since(began); d > 3200*time.Millisecond {
			t.Errorf("the other process waited %v, want LoadTimeout and the lease", d)
		}
		close(end)
		wg.Wait()
	})
}

func TestEmptyResultsAreNotCachedWhenTheyAreNotToBe(t *testing.T) {
	for _, jitter := range []float64{-1, 0.1} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: time.Millisecond}
			db.version.Store(-1)
			fleet := NewFakeFleet()
			for _, p := range []*process{newProcess(t, nil, db, Config{}), newProcess(t, fleet, db, Config{})} {
				pol := testPolicy(Policy{TTL: time.Minute, Empty: -1, Jitter: jitter})
				p.mustRead(t, "k", pol, -1, Miss)
				p.mustRead(t, "k", pol, -1, Miss)
				if fleet.Has("k") {
					t.Errorf("jitter %v: an empty result is stored", jitter)
				}
				if fleet.Leased("k") {
					t.Errorf("jitter %v: the lease was not given back", jitter)
				}
			}
		})
	}
}

func TestARefreshThatFindsTheKeyBusyIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		p := newProcess(t, fleet, db, Config{Local: LocalConfig{TTL: time.Hour}, RedisTimeout: 20 * time.Millisecond})
		soon := 48 * time.Minute // the last fifth of Local.TTL begins
		pol := testPolicy(Policy{TTL: soon + 22*time.Millisecond, SWR: time.Hour, Lease: 5 * time.Minute})
		p.mustRead(t, "k", pol, 0, Miss)
		db.version.Store(1)
		time.Sleep(soon)
		fleet.Block()
		p.mustRead(t, "k", pol, 0, Hit) // compares, and Redis does not answer
		time.Sleep(25 * time.Millisecond)
		p.mustRead(t, "k", pol, 0, Stale) // would refresh
		time.Sleep(100 * time.Millisecond)
		fleet.Unblock()
		for range 10 {
			if _, _, err := p.read(t.Context(), "k", pol); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		p.mustRead(t, "k", pol, 1, Hit)
	})
}

func TestAComparisonDoesNotLoadOnAConnectionOfACallerWhoHasHisRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 10 * time.Millisecond}
		fleet := NewFakeFleet()
		p := newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Minute})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(900 * time.Millisecond)
		fleet.Evict("k")
		r := p.request("k", pol)
		r.noRefresh = true
		e := p.mem.get("k", p.now())
		if v := p.judge(e, p.now(), pol, true); v != verdictHitCompare {
			t.Fatalf("verdict %v, want a comparison", v)
		}
		p.compare(t.Context(), r)
		time.Sleep(time.Second)
		if n := db.loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1: nobody waited for the other", n)
		}
		// Who joins the comparison loads for itself.
		a, err := p.await(t.Context(), r)
		if err != nil || a.outcome != Miss {
			t.Errorf("got %v, %v", a, err)
		}
	})
}

func TestAWriteThatRedisCouldNotBeToldOfIsToldByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		b.mustRead(t, "k", pol, 0, Miss)
		fleet.SetErr("invalidate", errors.New("redis is down"))
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		fleet.SetErr("invalidate", nil)
		if err := a.h.Close(); err != nil {
			t.Error(err)
		}
		b.mustRead(t, "k", pol, 1, Miss)
	})
}

func TestAWriteWhileTheHerdClosesIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := NewFakeFleet()
		slow := &fleetDB{took: time.Millisecond}
		a, b := newProcess(t, fleet, slow, Config{}), newProcess(t, fleet, slow, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		b.mustRead(t, "k", pol, 0, Miss)
		// A load that ends late keeps Close waiting.
		r := a.request("other", pol)
		r.load = func(context.Context) (loadResult, error) {
			time.Sleep(time.Second)
			return loadResult{}, errRefused
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.await(t.Context(), r); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := a.h.Close(); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		slow.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		b.mustRead(t, "k", pol, 1, Miss)
		wg.Wait()
		// After Close there is nobody to tell.
		if err := a.h.InvalidateTables(t.Context(), "t"); err == nil {
			t.Error("an invalidation that Redis was not told of succeeded")
		}
	})
}

func TestSlowRefreshesLeaveRoomForLoadsThatSomebodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		p := newProcess(t, nil, db, Config{})
		pol := testPolicy(Policy{TTL: time.Second, SWR: time.Hour})
		pool := make(chan struct{}, MaxLoadsDefault)
		slowly := func(d time.Duration) func(context.Context) (loadResult, error) {
			return func(ctx context.Context) (loadResult, error) {
				select {
				case pool <- struct{}{}:
				case <-ctx.Done():
					return loadResult{}, ctx.Err()
				}
				defer func() { <-pool }()
				select {
				case <-time.After(d):
					return loadResult{rows: resultOf(0), took: d}, nil
				case <-ctx.Done():
					return loadResult{}, ctx.Err()
				}
			}
		}
		for i := range 50 {
			p.mustRead(t, fmt.Sprint(i), pol, 0, Miss)
		}
		time.Sleep(2 * time.Second)
		for i := range 50 {
			r := p.request(fmt.Sprint(i), pol)
			r.load = slowly(9 * time.Second)
			p.refresh(t.Context(), r, p.mem.get(r.key, p.now()))
		}
		synctest.Wait()
		began := time.Now()
		r := p.request("cold", pol)
		r.load = slowly(10 * time.Millisecond)
		if _, err := p.await(t.Context(), r); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("a miss waited %v behind refreshes", d)
		}
	})
}

func TestAFailingRefreshPausesAlsoWhileEveryReadAsksRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		store := fleet.Store()
		p := newProcess(t, nil, db, Config{})
		p.h.useStore(store)
		store.Subscription(false)
		pol := testPolicy(Policy{TTL: time.Second, SWR: time.Hour})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(2 * time.Second)
		db.breakWith(errors.New("syntax"))
		for range 1000 { // ten seconds
			p.mustRead(t, "k", pol, 0, Stale)
			time.Sleep(10 * time.Millisecond)
		}
		if n := db.loads.Load() - 1; n < 3 || n > 15 {
			t.Errorf("%d refreshes failed in ten seconds, want about 8", n)
		}
	})
}

func TestRowsDoNotGrowYoungerWhileTheirProcessIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		var stopped atomic.Int64
		a := newProcess(t, fleet, db, Config{})
		b := newLateProcess(t, fleet, db, Config{}, func(string) time.Duration { return time.Duration(stopped.Swap(0)) })
		pol := testPolicy(Policy{TTL: 5 * time.Second})
		a.mustRead(t, "k", pol, 0, Miss)
		db.version.Store(1)
		time.Sleep(4 * time.Second)
		stopped.Store(int64(10 * time.Second))
		b.mustRead(t, "k", pol, 1, Miss) // 14 s later
	})
}

func TestCallersWhoLeaveWhileRedisIsAskedDoNotProlongTheTrustInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		a.mustRead(t, "k", pol, 0, Miss)
		b.mustRead(t, "k", pol, 0, Hit)
		fleet.DropMessages(true)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		time.Sleep(LocalTTLDefault)
		fleet.Block()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := b.read(ctx, "k", pol); err == nil {
			t.Error("rows without asking Redis")
		}
		synctest.Wait()
		fleet.Unblock()
		b.mustRead(t, "k", pol, 1, Miss)
	})
}

func TestOneWatchIsEnoughForAKeyThatAnotherProcessRefreshes(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: time.Millisecond}
			slow := &fleetDB{took: 2 * time.Second}
			fleet := NewFakeFleet()
			a := newProcess(t, fleet, slow, Config{})
			b := newProcess(t, fleet, db, Config{Local: LocalConfig{TTL: -1}})
			if disabled {
				b.mem.close()
				b.mem.cache = nil
			}
			pol := testPolicy(Policy{TTL: 10 * time.Second, SWR: time.Hour})
			a.mustRead(t, "k", pol, 0, Miss)
			time.Sleep(10 * time.Second)
			a.mustRead(t, "k", pol, 0, Stale)
			synctest.Wait()
			for range 100 {
				b.mustRead(t, "k", pol, 0, Stale)
				synctest.Wait()
			}
			b.watch.mu.Lock()
			n := len(b.watch.m[b.store.id("k")])
			b.watch.mu.Unlock()
			if n != 1 {
				t.Errorf("memory off %v: %d watches of one key", disabled, n)
			}
			if n := fleet.Count("obtain"); n > 5 && !disabled {
				t.Errorf("the lease was asked for %d times", n)
			}
		})
	}
}

func TestAWriteThatComesWhileAnEarlierOneIsToldAtLastIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: time.Millisecond}
		fleet := NewFakeFleet()
		var late atomic.Int64
		a := newLateProcess(t, fleet, db, Config{}, func(op string) time.Duration {
			if op != "invalidate" {
				return 0
			}
			return time.Duration(late.Load())
		})
		b := newProcess(t, fleet, db, Config{})
		pol := testPolicy(Policy{TTL: time.Hour})
		b.mustRead(t, "k", pol, 0, Miss)
		fleet.SetErr("invalidate", ErrFake)
		db.version.Store(1)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		synctest.Wait() // the first retry has failed, and the next one waits for its time
		// The retry is told, and its answer is long on the way.
		late.Store(int64(10 * time.Second))
		fleet.SetErr("invalidate", nil)
		time.Sleep(retryPauseMin)
		synctest.Wait()
		b.mustRead(t, "k", pol, 1, Miss)
		fleet.SetErr("invalidate", ErrFake)
		late.Store(0)
		db.version.Store(2)
		a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
		a.mustRead(t, "k", pol, 2, Miss)
		fleet.SetErr("invalidate", nil)
		time.Sleep(10*time.Second + retryPauseMax)
		synctest.Wait()
		b.mustRead(t, "k", pol, 2, Miss)
	})
}

func TestAReaderDoesNotAskForALeaseWhenARefreshLandedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fleetDB{took: 300 * time.Millisecond}
		fleet := NewFakeFleet()
		var late atomic.Int64
		p := newLateProcess(t, fleet, db, Config{}, func(string) time.Duration { return time.Duration(late.Load()) })
		pol := testPolicy(Policy{TTL: time.Second, SWR: time.Second})
		p.mustRead(t, "k", pol, 0, Miss)
		time.Sleep(1900 * time.Millisecond)
		p.mustRead(t, "k", pol, 0, Stale) // starts a refresh
		time.Sleep(200 * time.Millisecond)
		late.Store(int64(150 * time.Millisecond)) // Redis still has dead rows; the refresh lands before its answer does
		p.mustRead(t, "k", pol, 0, Hit)
		if n := fleet.Count("obtain"); n != 2 {
			t.Errorf("the lease was asked for %d times, want 2", n)
		}
	})
}
