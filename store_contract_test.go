package sqlherd

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// A storeFleet is one shared store, as the contract's tests see it.
type storeFleet struct {
	// store returns the view of another process; elsewhere that of one with another namespace.
	store     func() sharedStore
	elsewhere func() sharedStore
	// advance lets d pass, by the store's clock.
	advance func(d time.Duration)
	// evictStamp removes the stamp of a tag, as a full Redis may.
	evictStamp func(tag string)
}

// A storeBackend runs a test with a new storeFleet.
type storeBackend func(t *testing.T, test func(*testing.T, *storeFleet))

// fakeBackend is the store of the engine's tests, in a bubble of virtual time.
func fakeBackend(t *testing.T, test func(*testing.T, *storeFleet)) {
	synctest.Test(t, func(t *testing.T) {
		fleet, other := NewFakeFleet(), NewFakeFleet()
		test(t, &storeFleet{
			store:      func() sharedStore { return fleet.Store() },
			elsewhere:  func() sharedStore { return other.Store() },
			advance:    time.Sleep,
			evictStamp: fleet.EvictStamp,
		})
	})
}

func TestEveryStoreKeepsTheContract(t *testing.T) {
	t.Run("fake", func(t *testing.T) { testSharedStore(t, fakeBackend) })
	t.Run("miniredis", func(t *testing.T) { testSharedStore(t, miniredisBackend(nil)) })
	t.Run("miniredis, sealed", func(t *testing.T) { testSharedStore(t, miniredisBackend(testKeys("a"))) })
	t.Run("redis", func(t *testing.T) { testSharedStore(t, redisBackend(serverClient(t), nil)) })
	t.Run("redis, sealed", func(t *testing.T) { testSharedStore(t, redisBackend(serverClient(t), testKeys("a", "b"))) })
	t.Run("cluster", func(t *testing.T) { testSharedStore(t, redisBackend(clusterClient(t), nil)) })
}

// testSharedStore is what every sharedStore has to do.
func testSharedStore(t *testing.T, backend storeBackend) {
	ctx := context.Background() // a test in a bubble must not use the context of one outside
	for _, tt := range []struct {
		name string
		test func(*testing.T, *storeFleet)
	}{
		{"nothing is found where nothing was put", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustMiss(t, s, "k", "t:a")
			mustMiss(t, s, "k")
		}},
		{"what was put is found, with its lives, by every process", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			e := testEntry(t, 3)
			mustPut(t, a, mustWin(t, a, "k", "t:a", "g:b"), e)
			for _, s := range []sharedStore{a, b} {
				got := mustHit(t, s, "k", "t:a", "g:b")
				if d := diffEntries(got, e); d != "" {
					t.Error(d)
				}
				if got.age < 0 || got.age > time.Minute {
					t.Errorf("age %v of an entry that was just stored", got.age)
				}
				if got.size <= 0 {
					t.Errorf("size %d", got.size)
				}
			}
		}},
		{"an entry needs no tags", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k"), testEntry(t, 1))
			mustHit(t, s, "k")
			mustMiss(t, s, "k", "t:a") // it was not loaded under a stamp of t:a
		}},
		{"a result without rows is kept", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k"), testEntry(t, 0))
			if got := mustHit(t, s, "k"); got.result.NumRows() != 0 {
				t.Errorf("%d rows", got.result.NumRows())
			}
		}},
		{"the age grows", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			f.advance(40 * time.Millisecond)
			first := mustHit(t, s, "k", "t:a").age
			f.advance(40 * time.Millisecond)
			second := mustHit(t, s, "k", "t:a").age
			// Redis counts in milliseconds, at both ends.
			if first < 38*time.Millisecond || second < first+38*time.Millisecond {
				t.Errorf("ages %v and %v, 40 ms and 80 ms after the put", first, second)
			}
		}},
		{"an entry is gone when it is of no use any more", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			e := testEntry(t, 1)
			e.soft, e.hard, e.sie = 20*time.Millisecond, 40*time.Millisecond, 40*time.Millisecond
			put := time.Now()
			mustPut(t, s, mustWin(t, s, "k"), e)
			f.advance(e.hard + 10*time.Millisecond)
			// Dead, but of use when the database fails; unless this machine has slept too long.
			if got, err := s.get(ctx, "k", nil); err != nil || got == nil && time.Since(put) < e.hard+e.sie+entrySlack {
				t.Fatal(got, err)
			}
			f.advance(e.sie + entrySlack)
			mustMiss(t, s, "k")
		}},
		{"the shortest of lives is kept, not refused", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			e := testEntry(t, 1)
			e.soft, e.hard, e.sie = 1, 1, 0
			put := time.Now()
			mustPut(t, s, mustWin(t, s, "k"), e)
			if got, err := s.get(ctx, "k", nil); err != nil || got == nil && time.Since(put) < entrySlack {
				t.Fatal(got, err)
			}
		}},
		{"one process holds the lease at a time, and gets a token of its own each time", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k", "t:a")
			for _, s := range []sharedStore{b, a} {
				lost, err := s.obtain(ctx, "k", []string{"t:a"}, leaseTTL, entryLife)
				if err != nil || lost.won || lost.left <= 0 || lost.left > leaseTTL {
					t.Fatalf("second obtain: %+v, %v", lost, err)
				}
				if lost.token == l.token {
					t.Error("two obtains have one token")
				}
				if !slices.Equal(lost.stamps, l.stamps) {
					t.Error("two obtains saw different stamps")
				}
			}
			mustWin(t, b, "other", "t:a")
		}},
		{"a lease ends by itself when its holder dies", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l, err := a.obtain(ctx, "k", nil, 30*time.Millisecond, entryLife)
			if err != nil || !l.won {
				t.Fatal(l, err)
			}
			f.advance(40 * time.Millisecond)
			mustWin(t, b, "k")
		}},
		{"a lease is as short as it is asked for, and never eternal", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			for _, ttl := range []time.Duration{1, time.Microsecond, time.Millisecond} {
				key := fmt.Sprint("k", ttl)
				if l, err := s.obtain(ctx, key, nil, ttl, entryLife); err != nil || !l.won {
					t.Fatal(ttl, l, err)
				}
				f.advance(5 * time.Millisecond)
				mustWin(t, s, key)
			}
		}},
		{"a renewed lease lives on", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			const ttl = 200 * time.Millisecond
			for try := 0; ; try++ {
				key, began := fmt.Sprint("k", try), time.Now()
				l, err := a.obtain(ctx, key, nil, ttl, entryLife)
				if err != nil || !l.won {
					t.Fatal(l, err)
				}
				ok, err := a.renew(ctx, l, leaseTTL)
				if err == nil && !ok && time.Since(began) >= ttl && try < 20 {
					continue // this machine has slept too long
				}
				if err != nil || !ok {
					t.Fatalf("renew: %v, %v", ok, err)
				}
				f.advance(ttl + 50*time.Millisecond)
				mustLose(t, b, key)
				return
			}
		}},
		{"a lost lease cannot be renewed", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l, err := a.obtain(ctx, "k", nil, 10*time.Millisecond, entryLife)
			if err != nil || !l.won {
				t.Fatal(l, err)
			}
			f.advance(20 * time.Millisecond)
			if ok, err := a.renew(ctx, l, leaseTTL); ok || err != nil {
				t.Errorf("renew of an expired lease: %v, %v", ok, err)
			}
			held := mustWin(t, b, "k")
			if ok, err := a.renew(ctx, l, time.Hour); ok || err != nil {
				t.Errorf("renew of another's lease: %v, %v", ok, err)
			}
			if ok, err := b.renew(ctx, held, leaseTTL); !ok || err != nil {
				t.Errorf("renew by the holder: %v, %v", ok, err)
			}
		}},
		{"a released lease is free at once", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k")
			if err := a.release(ctx, l); err != nil {
				t.Fatal(err)
			}
			mustWin(t, b, "k")
		}},
		{"a release by one who does not hold the lease leaves it", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k")
			lost := mustLose(t, b, "k")
			if err := b.release(ctx, lost); err != nil {
				t.Fatal(err)
			}
			mustLose(t, b, "k")
			if err := a.release(ctx, l); err != nil {
				t.Fatal(err)
			}
			held := mustWin(t, b, "k")
			if err := a.release(ctx, l); err != nil { // late, once more
				t.Fatal(err)
			}
			mustLose(t, a, "k")
			_ = held
		}},
		{"a put gives the lease back", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k"), testEntry(t, 1))
			mustWin(t, b, "k")
		}},
		{"the winner is told of an entry that came meanwhile", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k")
			if l.entryPresent {
				t.Error("present, before any put")
			}
			mustPut(t, a, l, testEntry(t, 1))
			if !mustWin(t, b, "k").entryPresent {
				t.Error("not present, after a put")
			}
		}},
		// Case 16 of the research: a lease ends under its holder, somebody else loads newer rows and
		// stores them, the first one wakes up.
		{"a slow loader does not overwrite what was loaded after it", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			slow, err := a.obtain(ctx, "k", []string{"t:a"}, 10*time.Millisecond, entryLife)
			if err != nil || !slow.won {
				t.Fatal(slow, err)
			}
			f.advance(20 * time.Millisecond)
			mustPut(t, b, mustWin(t, b, "k", "t:a"), testEntry(t, 2))
			if out, err := a.put(ctx, slow, testEntry(t, 1)); err != nil || out != putFenced {
				t.Errorf("put of the slow one: %v, %v", out, err)
			}
			if n := mustHit(t, a, "k", "t:a").result.NumRows(); n != 2 {
				t.Errorf("%d rows, want the newer two", n)
			}
		}},
		{"a slow loader does not overwrite while somebody else loads", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			slow, err := a.obtain(ctx, "k", nil, 10*time.Millisecond, entryLife)
			if err != nil || !slow.won {
				t.Fatal(slow, err)
			}
			f.advance(20 * time.Millisecond)
			held := mustWin(t, b, "k")
			if out, err := a.put(ctx, slow, testEntry(t, 1)); err != nil || out != putFenced {
				t.Errorf("put of the slow one: %v, %v", out, err)
			}
			mustMiss(t, a, "k")
			mustPut(t, b, held, testEntry(t, 2)) // its lease was left alone
		}},
		{"a slow loader that is alone stores what it has", func(t *testing.T, f *storeFleet) {
			a := open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k"), testEntry(t, 1)) // there is an older one, too
			slow, err := a.obtain(ctx, "k", nil, 10*time.Millisecond, entryLife)
			if err != nil || !slow.won {
				t.Fatal(slow, err)
			}
			f.advance(20 * time.Millisecond)
			mustPut(t, a, slow, testEntry(t, 2))
			if n := mustHit(t, a, "k").result.NumRows(); n != 2 {
				t.Errorf("%d rows, want two", n)
			}
		}},
		// The first finding on lease libraries: with one token per process, B's newer rows are refused
		// because A, of the same process, has used B's token up.
		{"two loads of one process are told apart", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			first, err := s.obtain(ctx, "k", nil, 10*time.Millisecond, entryLife)
			if err != nil || !first.won {
				t.Fatal(first, err)
			}
			f.advance(20 * time.Millisecond)
			second := mustWin(t, s, "k")
			if out, err := s.put(ctx, first, testEntry(t, 1)); err != nil || out != putFenced {
				t.Errorf("put of the first: %v, %v", out, err)
			}
			mustPut(t, s, second, testEntry(t, 2))
			if n := mustHit(t, s, "k").result.NumRows(); n != 2 {
				t.Errorf("%d rows, want those of the second", n)
			}
		}},
		{"fences grow", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			var last uint64
			for range 5 {
				l := mustWin(t, s, "k")
				if l.fence <= last {
					t.Fatalf("fence %d after %d", l.fence, last)
				}
				last = l.fence
				mustPut(t, s, l, testEntry(t, 1))
			}
		}},
		{"an invalidated entry is not served again", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a", "t:b"), testEntry(t, 1))
			mustPut(t, a, mustWin(t, a, "other", "t:b"), testEntry(t, 1))
			mustInvalidate(t, b, "t:a")
			mustMiss(t, a, "k", "t:a", "t:b")
			mustMiss(t, b, "k", "t:a", "t:b")
			mustHit(t, a, "other", "t:b")
			// Nor when the tag is in use again.
			mustPut(t, a, mustWin(t, a, "third", "t:a"), testEntry(t, 1))
			mustMiss(t, a, "k", "t:a", "t:b")
			mustPut(t, a, mustWin(t, a, "k", "t:a", "t:b"), testEntry(t, 2))
			mustHit(t, b, "k", "t:a", "t:b")
		}},
		{"many tags are invalidated at once", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			var tags []string
			for i := range 300 {
				tags = append(tags, fmt.Sprint("g:row/", i))
			}
			mustPut(t, s, mustWin(t, s, "k", tags...), testEntry(t, 1))
			mustHit(t, s, "k", tags...)
			mustInvalidate(t, s, tags[298:]...)
			mustMiss(t, s, "k", tags...)
			mustInvalidate(t, s, tags...)
			mustInvalidate(t, s)
			for _, tag := range []string{tags[0], tags[255], tags[256], tags[299]} {
				mustPut(t, s, mustWin(t, s, tag, tag), testEntry(t, 1))
				mustInvalidate(t, s, tags...)
				mustMiss(t, s, tag, tag)
			}
		}},
		// Race "RA stale set": the rows were read before the write, and stored after the invalidation.
		{"what was loaded before an invalidation and stored after it is not served", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k", "t:a")
			mustInvalidate(t, b, "t:a")
			if _, err := a.put(ctx, l, testEntry(t, 1)); err != nil {
				t.Fatal(err)
			}
			mustMiss(t, a, "k", "t:a")
			mustMiss(t, b, "k", "t:a")
			mustPut(t, b, mustWin(t, b, "k", "t:a"), testEntry(t, 2))
			mustHit(t, a, "k", "t:a")
		}},
		{"the same, when the tag is used again in between", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			l := mustWin(t, a, "k", "t:a")
			mustInvalidate(t, b, "t:a")
			mustWin(t, b, "other", "t:a")
			if _, err := a.put(ctx, l, testEntry(t, 1)); err != nil {
				t.Fatal(err)
			}
			mustMiss(t, a, "k", "t:a")
		}},
		// Race "RE evicted guard", case 17.
		{"an evicted stamp costs a miss and revives nothing", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			f.evictStamp("t:a")
			mustMiss(t, s, "k", "t:a")
			mustWin(t, s, "other", "t:a") // makes a new stamp
			mustMiss(t, s, "k", "t:a")

			l := mustWin(t, s, "third", "t:a")
			mustInvalidate(t, s, "t:a")
			f.evictStamp("t:a")
			if _, err := s.put(ctx, l, testEntry(t, 1)); err != nil {
				t.Fatal(err)
			}
			mustMiss(t, s, "third", "t:a")
			f.evictStamp("t:a")
			mustMiss(t, s, "third", "t:a")
		}},
		{"while a tag is fenced nothing of it is served, and nothing that is loaded can be", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a", "t:b"), testEntry(t, 1))
			mustPut(t, a, mustWin(t, a, "other", "t:b"), testEntry(t, 1))
			before := mustWin(t, a, "before", "t:a")
			token := mustFence(t, b, "t:a")
			for _, s := range []sharedStore{a, b} {
				mustMiss(t, s, "k", "t:a", "t:b")
				mustHit(t, s, "other", "t:b")
			}
			l := mustWin(t, a, "new", "t:b", "t:a")
			if !l.fenced || l.stamps[0] == (stamp{}) || l.stamps[1] != (stamp{}) {
				t.Errorf("fenced %v with stamps %x", l.fenced, l.stamps)
			}
			if l := mustWin(t, a, "newer", "t:b"); l.fenced {
				t.Error("a tag that nobody fences is fenced")
			}
			mustPut(t, a, l, testEntry(t, 1))
			mustPut(t, a, before, testEntry(t, 1))
			mustMiss(t, a, "new", "t:b", "t:a")
			mustMiss(t, a, "before", "t:a")
			mustLift(t, b, token, true, "t:a")
			for key, tags := range map[string][]string{"k": {"t:a", "t:b"}, "new": {"t:b", "t:a"}, "before": {"t:a"}} {
				mustMiss(t, a, key, tags...)
				l := mustWin(t, a, key, tags...)
				if l.fenced {
					t.Error("still fenced")
				}
				mustPut(t, a, l, testEntry(t, 2))
				mustHit(t, b, key, tags...)
			}
		}},
		{"a fence around a tag that has no stamp holds as well", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			token := mustFence(t, s, "t:a")
			if l := mustWin(t, s, "k", "t:a"); !l.fenced {
				t.Error("not fenced")
			}
			mustLift(t, s, token, false, "t:a")
			if l := mustWin(t, s, "other", "t:a"); l.fenced || l.stamps[0] == (stamp{}) {
				t.Errorf("%+v", l)
			}
		}},
		{"a fence that is lifted without a write gives the stamp back", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
			token := mustFence(t, b, "t:a")
			mustFence(t, b, "t:b")
			mustLift(t, b, token, false, "t:a", "t:c")
			mustHit(t, a, "k", "t:a")
			mustLift(t, b, token, false, "t:a") // twice is nothing
			mustHit(t, a, "k", "t:a")
			f.advance(50 * time.Millisecond)
			mustHit(t, a, "k", "t:a")
			mustInvalidate(t, a, "t:a")
			mustMiss(t, a, "k", "t:a")
		}},
		{"to lift one writer's fence does not lift another's", func(t *testing.T, f *storeFleet) {
			for _, wrote := range []bool{false, true} {
				for _, second := range []bool{false, true} {
					a, b := open(t, f.store), open(t, f.store)
					tag := fmt.Sprint("t:", wrote, second)
					mustPut(t, a, mustWin(t, a, "k"+tag, tag), testEntry(t, 1))
					one, two := mustFence(t, a, tag), mustFence(t, b, tag)
					mustLift(t, a, one, wrote, tag)
					mustMiss(t, a, "k"+tag, tag)
					if l := mustWin(t, a, "new"+tag, tag); !l.fenced {
						t.Error(tag, "the other's fence is gone")
					}
					mustInvalidate(t, a, "t:else")
					mustLift(t, a, one, wrote, tag) // once more
					if l := mustWin(t, a, "newer"+tag, tag); !l.fenced {
						t.Error(tag, "the other's fence is gone")
					}
					mustLift(t, b, two, second, tag)
					if wrote || second {
						mustMiss(t, a, "k"+tag, tag)
					} else {
						mustHit(t, a, "k"+tag, tag)
					}
					if l := mustWin(t, a, "newest"+tag, tag); l.fenced {
						t.Error(tag, "fenced by nobody")
					}
				}
			}
		}},
		{"an invalidation leaves fences, and the old stamp does not come back behind them", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
			token := mustFence(t, b, "t:a")
			mustInvalidate(t, a, "t:a")
			if l := mustWin(t, a, "new", "t:a"); !l.fenced {
				t.Error("the fence is gone")
			}
			mustLift(t, b, token, false, "t:a")
			mustMiss(t, a, "k", "t:a")
		}},
		{"a fence that nobody lifts ends, and with it the stamp", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			mustFenceFor(t, s, 30*time.Millisecond, "t:a")
			f.advance(60 * time.Millisecond)
			mustMiss(t, s, "k", "t:a")
			l := mustWin(t, s, "new", "t:a")
			if l.fenced {
				t.Error("still fenced")
			}
			mustPut(t, s, l, testEntry(t, 1))
			mustHit(t, s, "new", "t:a")
			mustMiss(t, s, "k", "t:a")
		}},
		{"the stamp does not come back when one of two writers has died and the other has written nothing", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
			mustFenceFor(t, a, 30*time.Millisecond, "t:a") // and dies
			token := mustFence(t, b, "t:a")
			f.advance(60 * time.Millisecond)
			mustMiss(t, b, "k", "t:a")
			mustFenceWith(t, b, token, time.Minute, "t:a") // prolonged
			mustLift(t, b, token, false, "t:a")
			mustMiss(t, b, "k", "t:a")
			mustPut(t, b, mustWin(t, b, "k", "t:a"), testEntry(t, 2))
			mustHit(t, b, "k", "t:a")
		}},
		{"a prolonged fence lives on, and is still one", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			token := mustFenceFor(t, s, 50*time.Millisecond, "t:a")
			mustFenceWith(t, s, token, time.Minute, "t:a")
			f.advance(100 * time.Millisecond)
			if l := mustWin(t, s, "new", "t:a"); !l.fenced {
				t.Error("the fence has ended")
			}
			mustLift(t, s, token, false, "t:a")
			if l := mustWin(t, s, "newer", "t:a"); l.fenced {
				t.Error("fenced by nobody")
			}
		}},
		{"an evicted fence is a missing stamp", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			token := mustFence(t, s, "t:a")
			f.evictStamp("t:a")
			mustMiss(t, s, "k", "t:a")
			mustPut(t, s, mustWin(t, s, "new", "t:a"), testEntry(t, 1)) // under another stamp
			mustLift(t, s, token, false, "t:a")
			mustHit(t, s, "new", "t:a")
			mustMiss(t, s, "k", "t:a")
			mustLift(t, s, token, true, "t:a")
			mustMiss(t, s, "new", "t:a")
		}},
		{"what was softened is stale for everybody, and what is loaded then is fresh", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			mustPut(t, a, mustWin(t, a, "k", "t:a", "t:b"), testEntry(t, 1))
			mustPut(t, a, mustWin(t, a, "other", "t:b"), testEntry(t, 1))
			overlapped := mustWin(t, a, "slow", "t:a")
			if mustHit(t, a, "k", "t:a", "t:b").softened {
				t.Error("softened by nobody")
			}
			mustSoften(t, b, "t:a", "t:none")
			for range 2 {
				if !mustHit(t, a, "k", "t:a", "t:b").softened {
					t.Error("fresh after it was softened")
				}
				mustSoften(t, b, "t:a")
			}
			if mustHit(t, a, "other", "t:b").softened {
				t.Error("another tag was softened")
			}
			mustPut(t, a, overlapped, testEntry(t, 1))
			if !mustHit(t, b, "slow", "t:a").softened {
				t.Error("what was loaded before it was softened, and stored after, is fresh")
			}
			mustPut(t, b, mustWin(t, b, "k", "t:a", "t:b"), testEntry(t, 2))
			if mustHit(t, a, "k", "t:a", "t:b").softened {
				t.Error("what was loaded since is stale")
			}
		}},
		{"a hard invalidation wins over soft ones, before and after", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			for _, order := range [][]func(testing.TB, sharedStore, ...string){
				{mustSoften, mustInvalidate}, {mustInvalidate, mustSoften}, {mustSoften, mustInvalidate, mustSoften},
			} {
				mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
				for _, do := range order {
					do(t, s, "t:a")
				}
				mustMiss(t, s, "k", "t:a")
				mustPut(t, s, mustWin(t, s, "other", "t:a"), testEntry(t, 1)) // makes a new stamp
				mustMiss(t, s, "k", "t:a")
			}
		}},
		{"what is softened under a fence is stale when the fence is lifted", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			token := mustFence(t, s, "t:a")
			mustSoften(t, s, "t:a")
			mustMiss(t, s, "k", "t:a")
			mustLift(t, s, token, false, "t:a")
			if !mustHit(t, s, "k", "t:a").softened {
				t.Error("fresh after it was softened")
			}
		}},
		{"a softened stamp lives as long as it would have", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			mustSoften(t, s, "t:a")
			f.advance(100 * time.Millisecond)
			if !mustHit(t, s, "k", "t:a").softened {
				t.Error("fresh")
			}
		}},
		{"tags in another order or number make a miss", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustPut(t, s, mustWin(t, s, "k", "t:a", "t:b"), testEntry(t, 1))
			mustMiss(t, s, "k", "t:a")
			mustMiss(t, s, "k", "t:a", "t:b", "t:c")
			mustMiss(t, s, "k")
		}},
		{"a stamp outlives every entry that names it", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			l, err := s.obtain(ctx, "short", []string{"t:a"}, leaseTTL, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			mustPut(t, s, mustWin(t, s, "long", "t:a"), testEntry(t, 1))                   // prolongs it
			_, err = s.obtain(ctx, "shorter", []string{"t:a"}, leaseTTL, time.Millisecond) // does not shorten it
			if err != nil {
				t.Fatal(err)
			}
			f.advance(100 * time.Millisecond)
			mustHit(t, s, "long", "t:a")
			again := mustWin(t, s, "third", "t:a")
			if !slices.Equal(again.stamps, l.stamps) {
				t.Error("the stamp has changed without an invalidation")
			}
		}},
		{"odd tags are tags", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			odd := []string{"", " ", "{", "}", "{}", "a{b}c", "#", "a#b", "ä", "\x00", "\xff\xfe", "*", "a\r\nb", string(make([]byte, 5000))}
			for i, tag := range odd {
				mustPut(t, s, mustWin(t, s, fmt.Sprint(i), tag), testEntry(t, 1))
			}
			for i, tag := range odd {
				mustHit(t, s, fmt.Sprint(i), tag)
				mustInvalidate(t, s, tag)
				for j, other := range odd {
					if j <= i {
						mustMiss(t, s, fmt.Sprint(j), other)
					} else {
						mustHit(t, s, fmt.Sprint(j), other)
					}
				}
			}
			mustPut(t, s, mustWin(t, s, "all", odd...), testEntry(t, 1))
			mustHit(t, s, "all", odd...)
		}},
		{"two keys do not mix", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			keys := []string{"", "k", "k\x00", "K", "{k}", "k:l", string(make([]byte, 10_000))}
			for i, k := range keys {
				mustMiss(t, s, k)
				mustPut(t, s, mustWin(t, s, k), testEntry(t, i))
			}
			for i, k := range keys {
				if n := mustHit(t, s, k).result.NumRows(); n != i {
					t.Errorf("key %d gives the rows of key %d", i, n)
				}
			}
			ids := make(map[keyID]bool)
			for _, k := range keys {
				ids[s.id(k)] = true
			}
			if len(ids) != len(keys) {
				t.Error("two keys have one id")
			}
		}},
		{"two namespaces do not mix", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.elsewhere)
			heardA, heardB := listenTo(t, a), listenTo(t, b)
			mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
			mustMiss(t, b, "k", "t:a")
			l := mustWin(t, b, "k", "t:a")
			mustPut(t, b, l, testEntry(t, 2))
			mustInvalidate(t, b, "t:a")
			if n := mustHit(t, a, "k", "t:a").result.NumRows(); n != 1 {
				t.Errorf("%d rows, want one", n)
			}
			// Whatever would have come has come before this.
			c := open(t, f.store)
			mustInvalidate(t, c, "g:end")
			heardA.await(t, "invalidated g:end")
			if got := heardA.all(); !slices.Equal(got, []string{"invalidated g:end"}) {
				t.Errorf("A heard %q", got)
			}
			if got := heardB.all(); len(got) != 0 {
				t.Errorf("B heard %q", got)
			}
		}},
		{"the others hear what happens, and oneself does not", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			heardA, heardB := listenTo(t, a), listenTo(t, b)
			id := a.id("k")

			mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
			heardB.await(t, fmt.Sprintf("stored %x", id[:4]))
			l := mustWin(t, a, "k")
			if err := a.release(ctx, l); err != nil {
				t.Fatal(err)
			}
			heardB.await(t, fmt.Sprintf("released %x", id[:4]))
			mustInvalidate(t, a, "t:a", "g:product/{7}")
			heardB.await(t, "invalidated t:a")
			heardB.await(t, "invalidated g:product/{7}")
			mustSoften(t, a, "t:soft")
			heardB.await(t, "softened t:soft")
			token := mustFence(t, a, "t:fence", "g:fence")
			heardB.await(t, "fenced t:fence")
			heardB.await(t, "fenced g:fence")
			mustLift(t, a, token, false, "t:fence")
			mustLift(t, a, token, true, "g:fence")
			heardB.await(t, "invalidated g:fence")
			if slices.Contains(heardB.all(), "invalidated t:fence") {
				t.Error("a fence that was lifted without a write was told as an invalidation")
			}

			mustInvalidate(t, b, "t:end")
			heardA.await(t, "invalidated t:end")
			if got := heardA.all(); len(got) != 1 {
				t.Errorf("A heard %q, mostly from itself", got)
			}
			if st := b.counters(); st.MessagesIn < 3 || st.MessagesUnknown != 0 || !st.Subscribed {
				t.Errorf("counters %+v", st)
			}
		}},
		{"who hears of an invalidation does not find the old entry", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			heard := listenTo(t, b)
			for i := range 20 {
				tag := fmt.Sprint("t:", i)
				mustPut(t, a, mustWin(t, a, "k", tag), testEntry(t, 1))
				done := make(chan error, 1)
				go func() { done <- a.invalidate(ctx, []string{tag}) }()
				heard.await(t, "invalidated "+tag)
				mustMiss(t, b, "k", tag)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"who hears of a fence, or of a soft invalidation, does not find the entry as it was", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			heard := listenTo(t, b)
			for i := range 10 {
				tag := fmt.Sprint("t:", i)
				mustPut(t, a, mustWin(t, a, "k", tag), testEntry(t, 1))
				done := make(chan error, 2)
				go func() {
					done <- a.soften(ctx, []string{tag})
					done <- a.fence(ctx, []string{tag}, fenceToken{1}, time.Minute)
				}()
				heard.await(t, "softened "+tag)
				if e, err := b.get(ctx, "k", []string{tag}); err != nil || e != nil && !e.softened {
					t.Errorf("got %+v, %v", e, err)
				}
				heard.await(t, "fenced "+tag)
				mustMiss(t, b, "k", tag)
				for range 2 {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
			}
		}},
		{"a fenced put and a foreign release tell nobody", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			heard := listenTo(t, b)
			slow, err := a.obtain(ctx, "k", nil, 10*time.Millisecond, entryLife)
			if err != nil {
				t.Fatal(err)
			}
			f.advance(20 * time.Millisecond)
			mustWin(t, b, "k")
			if out, err := a.put(ctx, slow, testEntry(t, 1)); err != nil || out != putFenced {
				t.Fatal(out, err)
			}
			if err := a.release(ctx, slow); err != nil {
				t.Fatal(err)
			}
			mustInvalidate(t, a, "t:end")
			heard.await(t, "invalidated t:end")
			if got := heard.all(); len(got) != 1 {
				t.Errorf("heard %q", got)
			}
		}},
		{"of many who ask at once one wins", func(t *testing.T, f *storeFleet) {
			a, b := open(t, f.store), open(t, f.store)
			for round := range 5 {
				key := fmt.Sprint("k", round)
				var wg sync.WaitGroup
				won := make(chan lease, 64)
				for i := range 64 {
					s := []sharedStore{a, b}[i%2]
					wg.Go(func() {
						l, err := s.obtain(ctx, key, []string{"t:a"}, leaseTTL, entryLife)
						if err != nil {
							t.Error(err)
						}
						if l.won {
							won <- l
						}
					})
				}
				wg.Wait()
				if len(won) != 1 {
					t.Errorf("%d winners", len(won))
				}
			}
		}},
		{"a caller whose context has ended gets its error", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			// The store may have been quicker than the look at the context; both are right.
			if _, err := s.get(ended, "k", nil); err != nil && err.Error() != context.Canceled.Error() {
				t.Error(err)
			}
			mustMiss(t, s, "k")
		}},
		{"the counters count", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			mustMiss(t, s, "k", "t:a")
			mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
			mustHit(t, s, "k", "t:a")
			mustInvalidate(t, s, "t:a")
			mustMiss(t, s, "k", "t:a")
			st := s.counters()
			if st.Gets != 3 || st.GetMisses != 2 || st.PutsStored != 1 || st.Errors+st.Timeouts+st.Refused != 0 {
				t.Errorf("%+v", st)
			}
		}},
		{"a closed store fails, and closing again is nothing", func(t *testing.T, f *storeFleet) {
			s := open(t, f.store)
			listenTo(t, s)
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.get(ctx, "k", nil); err == nil {
				t.Error("get of a closed store succeeds")
			}
			if err := s.invalidate(ctx, []string{"t:a"}); err == nil {
				t.Error("invalidate of a closed store succeeds")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { backend(t, tt.test) })
	}
}

const (
	leaseTTL  = 30 * time.Second
	entryLife = time.Hour
)

// open makes a store that is closed with the test.
func open(t testing.TB, store func() sharedStore) sharedStore {
	t.Helper()
	s := store()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// testResult is a result of n rows.
func testResult(t testing.TB, n int) *rowcodec.Result {
	t.Helper()
	cols := []rowcodec.Column{{Name: "id"}, {Name: "name"}, {Name: "price"}, {Name: "active"}, {Name: "created"}}
	b := rowcodec.NewBuilder(cols, 0)
	for i := range n {
		err := b.Append([]driver.Value{
			int64(i)*7919 + 1000, fmt.Sprint("customer number ", i), float64(i) * 1.25, i%2 == 0,
			time.Date(2024, 7, 1, 12, 0, i, i*1000, time.UTC),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Result()
}

// testEntry is an entry of n rows that is of use for an hour.
func testEntry(t testing.TB, n int) *sharedEntry {
	return &sharedEntry{
		result: testResult(t, n), soft: 10 * time.Minute, hard: 40 * time.Minute, sie: 20 * time.Minute,
		loadTime: 1500 * time.Microsecond,
	}
}

// diffEntries says where two entries differ, but for what only get sets.
func diffEntries(got, want *sharedEntry) string {
	if got.soft != want.soft || got.hard != want.hard || got.sie != want.sie || got.loadTime != want.loadTime {
		return fmt.Sprintf("lives %v %v %v and load time %v, want %v %v %v and %v",
			got.soft, got.hard, got.sie, got.loadTime, want.soft, want.hard, want.sie, want.loadTime)
	}
	return diffResults(got.result, want.result)
}

func diffResults(got, want *rowcodec.Result) string {
	if got.NumRows() != want.NumRows() || !reflect.DeepEqual(got.Columns(), want.Columns()) || got.Traits() != want.Traits() {
		return fmt.Sprintf("%d rows of %v, want %d of %v", got.NumRows(), got.Names(), want.NumRows(), want.Names())
	}
	for i := range want.NumRows() {
		if !reflect.DeepEqual(got.Row(i), want.Row(i)) {
			return fmt.Sprintf("row %d is %v, want %v", i, got.Row(i), want.Row(i))
		}
	}
	return ""
}

func mustWin(t testing.TB, s sharedStore, key string, tags ...string) lease {
	t.Helper()
	l, err := s.obtain(t.Context(), key, tags, leaseTTL, entryLife)
	if err != nil {
		t.Fatal("obtain:", err)
	}
	if !l.won || l.fence == 0 || l.token == "" || len(l.stamps) != len(tags) || l.key != key {
		t.Fatalf("obtain did not win: %+v", l)
	}
	return l
}

func mustLose(t testing.TB, s sharedStore, key string) lease {
	t.Helper()
	l, err := s.obtain(t.Context(), key, nil, leaseTTL, entryLife)
	if err != nil || l.won {
		t.Fatalf("obtain: %+v, %v", l, err)
	}
	return l
}

func mustPut(t testing.TB, s sharedStore, l lease, e *sharedEntry) {
	t.Helper()
	if out, err := s.put(t.Context(), l, e); err != nil || out != putStored {
		t.Fatalf("put: %v, %v", out, err)
	}
}

func mustHit(t testing.TB, s sharedStore, key string, tags ...string) *sharedEntry {
	t.Helper()
	e, err := s.get(t.Context(), key, tags)
	if err != nil {
		t.Fatal("get:", err)
	}
	if e == nil {
		t.Fatalf("get found nothing; %+v", s.counters())
	}
	return e
}

func mustMiss(t testing.TB, s sharedStore, key string, tags ...string) {
	t.Helper()
	e, err := s.get(t.Context(), key, tags)
	if err != nil {
		t.Fatal("get:", err)
	}
	if e != nil {
		t.Fatalf("get found an entry of %d rows, want none", e.result.NumRows())
	}
}

func mustInvalidate(t testing.TB, s sharedStore, tags ...string) {
	t.Helper()
	if err := s.invalidate(t.Context(), tags); err != nil {
		t.Fatal("invalidate:", err)
	}
}

func mustSoften(t testing.TB, s sharedStore, tags ...string) {
	t.Helper()
	if err := s.soften(t.Context(), tags); err != nil {
		t.Fatal("soften:", err)
	}
}

func mustFence(t testing.TB, s sharedStore, tags ...string) fenceToken {
	t.Helper()
	return mustFenceFor(t, s, time.Minute, tags...)
}

func mustFenceFor(t testing.TB, s sharedStore, life time.Duration, tags ...string) (token fenceToken) {
	t.Helper()
	rand.Read(token[:])
	mustFenceWith(t, s, token, life, tags...)
	return token
}

func mustFenceWith(t testing.TB, s sharedStore, token fenceToken, life time.Duration, tags ...string) {
	t.Helper()
	if err := s.fence(t.Context(), tags, token, life); err != nil {
		t.Fatal("fence:", err)
	}
}

func mustLift(t testing.TB, s sharedStore, token fenceToken, wrote bool, tags ...string) {
	t.Helper()
	if err := s.lift(t.Context(), tags, token, wrote); err != nil {
		t.Fatal("lift:", err)
	}
}

// A hearing keeps the messages that a store has passed on.
type hearing struct {
	mu     sync.Mutex
	heard  []string
	ups    []bool
	signal chan struct{} // closed and replaced at every event
}

// listenTo registers a hearing with s and waits until messages arrive.
func listenTo(t testing.TB, s sharedStore) *hearing {
	t.Helper()
	h := newHearing()
	s.listen(h)
	h.awaitUp(t, true)
	return h
}

func newHearing() *hearing { return &hearing{signal: make(chan struct{})} }

func (h *hearing) event(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.signal)
	h.signal = make(chan struct{})
}

func (h *hearing) note(m string) { h.event(func() { h.heard = append(h.heard, m) }) }

func (h *hearing) storedElsewhere(id keyID)   { h.note(fmt.Sprintf("stored %x", id[:4])) }
func (h *hearing) releasedElsewhere(id keyID) { h.note(fmt.Sprintf("released %x", id[:4])) }
func (h *hearing) invalidatedElsewhere(tags []string) {
	for _, t := range tags {
		h.note("invalidated " + t)
	}
}
func (h *hearing) doubted() { h.note("doubted") }
func (h *hearing) fencedElsewhere(tags []string) {
	for _, t := range tags {
		h.note("fenced " + t)
	}
}
func (h *hearing) softenedElsewhere(tags []string) {
	for _, t := range tags {
		h.note("softened " + t)
	}
}
func (h *hearing) subscribed(up bool) { h.event(func() { h.ups = append(h.ups, up) }) }

func (h *hearing) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

// until waits until cond, which is called with h.mu held, is true.
func (h *hearing) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		h.mu.Lock()
		ok, signal := cond(), h.signal
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-signal:
		case <-deadline:
			t.Fatalf("did not hear %q; heard %q, subscribed %v", what, h.heard, h.ups)
		}
	}
}

func (h *hearing) await(t testing.TB, message string) {
	t.Helper()
	h.until(t, message, func() bool { return slices.Contains(h.heard, message) })
}

// awaitUp waits until the last word on the subscription is up.
func (h *hearing) awaitUp(t testing.TB, up bool) {
	t.Helper()
	h.until(t, fmt.Sprint("subscribed ", up), func() bool { return len(h.ups) > 0 && h.ups[len(h.ups)-1] == up })
}
