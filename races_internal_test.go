package sqlherd

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// forgetful is Config.Local.Disabled, which New refuses where there is no real Redis.
func (p *process) forgetful() {
	p.mem.close()
	p.mem.cache = nil
}

// A load that takes longer than memory is believed, or that runs where memory is not believed at all, may be
// joined by readers who came after a write elsewhere.
func TestAReaderWhoJoinsALongLoadDoesNotGetRowsFromBeforeAWriteElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		noMemory  bool
		listening bool
		joinAfter time.Duration // the write, which is a second after the load began
	}{
		"the message is lost":      {listening: true, joinAfter: LocalTTLDefault},
		"the subscription is lost": {joinAfter: time.Millisecond},
		"there is no memory":       {noMemory: true, listening: true, joinAfter: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &fleetDB{took: 5 * time.Second}
				fleet := NewFakeFleet()
				a, b := newProcess(t, fleet, db, Config{}), newProcess(t, fleet, db, Config{})
				if c.noMemory {
					b.forgetful()
				}
				b.engine.subscribed(c.listening)
				pol := testPolicy(Policy{TTL: time.Hour})
				var wg sync.WaitGroup
				wg.Go(func() { b.mustRead(t, "k", pol, 0, Miss) })
				time.Sleep(time.Second)
				fleet.DropMessages(true)
				db.version.Store(1)
				a.h.wrote(t.Context(), writeEffects{tags: []string{"t:t"}})
				time.Sleep(c.joinAfter)
				for range 10 {
					wg.Go(func() {
						if v, _, err := b.read(t.Context(), "k", pol); err != nil || v != 1 {
							t.Errorf("a reader after the write got %d, %v", v, err)
						}
					})
				}
				wg.Wait()
				if n := db.loads.Load(); n != 2 {
					t.Errorf("%d loads, want one before the write and one after it", n)
				}
			})
		})
	}
}

// Without a write the joiners' second look finds what the load has stored, and without Redis they believe it.
func TestCallersWhoAskAgainAfterALongLoadCostNoOther(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := &fleetDB{took: 5 * time.Second}
			fleet := NewFakeFleet()
			p := newProcess(t, fleet, db, Config{})
			p.forgetful()
			if away {
				fleet.SetErr("", errRefused)
			}
			pol := testPolicy(Policy{TTL: time.Hour})
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if v, _, err := p.read(t.Context(), "k", pol); err != nil || v != 0 {
						t.Errorf("got %d, %v", v, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
			if n := db.loads.Load(); n != 1 {
				t.Errorf("Redis away %t: %d loads, want 1", away, n)
			}
		})
	}
}

// A Redis whose clock is set, or a failover to one whose clock is another, neither brings old rows back nor keeps new
// ones out. No process compares its own clock with anybody's.
func TestAClockOfRedisThatIsSetBackOrForthKeepsNoRowsOutAndBringsNoneBack(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -time.Minute, time.Minute} {
		m := miniredis.RunT(t)
		c := newClient(t, &redis.Options{Addr: m.Addr()})
		f := redisFleet(t, c, nil, nil)
		a, b := f.store(), f.store()
		defer a.close()
		defer b.close()
		ctx, tags := t.Context(), []string{"t"}
		obtain := func(s sharedStore) lease {
			t.Helper()
			l, err := s.obtain(ctx, "k", tags, time.Second, time.Hour)
			if err != nil || !l.won {
				t.Fatalf("%v: %v, %v", jump, l, err)
			}
			return l
		}
		put := func(s sharedStore, l lease, n int, want putOutcome) {
			t.Helper()
			if out, err := s.put(ctx, l, testEntry(t, n)); err != nil || out != want {
				t.Errorf("%v: put %d gave %v, %v; want %v", jump, n, out, err, want)
			}
		}
		now := time.Now()
		m.SetTime(now)
		slow := obtain(a)
		m.FastForward(2 * time.Second) // its lease ends
		m.SetTime(now.Add(2 * time.Second))
		put(b, obtain(b), 2, putStored)
		m.SetTime(now.Add(2*time.Second + jump))
		put(a, slow, 1, putFenced) // it was overtaken, whatever the clock says
		l := obtain(b)
		m.FastForward(2 * time.Second)
		put(b, l, 3, putStored) // alone, though late
		if e, err := a.get(ctx, "k", tags); err != nil || e == nil || e.result.NumRows() != 3 {
			t.Errorf("%v: found %v, %v; want the newest", jump, e, err)
		}
	}
}
