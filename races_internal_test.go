package sqlherd

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
