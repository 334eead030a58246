package integration_test

import (
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// The database's answer is the number of its load, so that the readers see every refresh.
func TestTwoHundredCallersInFourProcessesGetOldRowsAtOnceAndOneRefreshPerExpiry(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		const (
			procCount, perProc = 4, 50
			ttl                = 500 * time.Millisecond
			load               = 300 * time.Millisecond
			during             = 2500 * time.Millisecond
		)
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		query := b.slow("ttl=500ms swr=1m jitter=0 early=off", int(load.Milliseconds()))
		procs := spawn(t, procCount, workerOn(b, rdb.Options().Addr, ns))
		sum(tell(procs, order{Query: query, Arg: 1, Callers: 1})).check(t, "one", procCount)
		b.wantLoads(t, 1)

		began := time.Now()
		all := sum(tell(procs, order{Query: query, Arg: 1, Callers: perProc, For: during, Pause: 5 * time.Millisecond}))
		took := time.Since(began)
		loads := b.loads(t) - 1
		if len(all.Errors) != 0 || len(all.Values) != 1 {
			t.Errorf("%v; want one value and no error", all)
		}
		for name, n := range all.Outcomes {
			if name != "hit" && name != "stale" {
				t.Errorf("%d reads ended as %s: nobody shall wait", n, name)
			}
		}
		if all.Outcomes["stale"] == 0 {
			t.Errorf("%v: nothing was ever stale", all)
		}
		// A refresh begins when the rows are ttl old; they are new when it ends.
		// How many there are is up to the machine; that there are no more is not.
		most, least := int(took/(ttl+load))+1, 1
		if loads > most || loads < least {
			t.Errorf("%d refreshes in %v, want %d to %d: one per expiry in the fleet", loads, took, least, most)
		}
		if all.Max > load && !raceEnabled {
			t.Errorf("the slowest read took %v: it waited for the refresh", all.Max)
		}
		t.Logf("%d refreshes in %v; %v", loads, took, all)
		if t.Failed() {
			for _, p := range procs {
				t.Log(figures(stats(p)))
			}
		}
	})
}

func TestARefreshOutlivesTheRequestThatStartedIt(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		query := b.slow("ttl=1s swr=1m jitter=0 early=off", 200)
		procs := spawn(t, 2, workerOn(b, rdb.Options().Addr, ns))
		sum(tell(procs, order{Query: query, Arg: 1, Callers: 1})).check(t, "one", 2)
		b.set(t, 1, "changed")
		await(t, "the rows are stale", func() bool {
			return tell(procs[:1], order{Query: query, Arg: 1, Callers: 1})[0].Tally.Outcomes["stale"] == 1
		})
		// Nobody asks any more: the refresh is nobody's.
		defer func() {
			if t.Failed() {
				t.Log(figures(stats(procs[0])))
			}
		}()
		await(t, "the refresh is done", func() bool { return stats(procs[0]).Refreshes[sqlherd.RefreshDone] > 0 })
		b.wantLoads(t, 2)
		sum(tell(procs[:1], order{Query: query, Arg: 1, Callers: 1})).check(t, "changed", 1)
		await(t, "the other process has the new rows", func() bool {
			return tell(procs[1:], order{Query: query, Arg: 1, Callers: 1})[0].Tally.Values["changed"] == 1
		})
	})
}

// A refresh may take longer than memory is trusted without asking Redis. Readers must then ask Redis, and not
// wait for the refresh.
func TestARefreshThatTakesSecondsKeepsNobodyWaiting(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	query := b.slow("ttl=100ms swr=10m jitter=0 early=off", 2500)
	db, h := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
	await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
	wantText(t, db, "one", sqlherd.Miss, query, 1)
	await(t, "the refresh has begun", func() bool {
		v, _, err := text(withDeadline(t), db, query, 1)
		if err != nil || v != "one" {
			t.Fatalf("%q, %v", v, err)
		}
		return b.loads(t) == 2
	})
	for b.loads(t) == 2 && h.Stats().RefreshesRunning == 1 {
		began := time.Now()
		v, info, err := text(withDeadline(t), db, query, 1)
		if err != nil || v != "one" || info.Outcome == sqlherd.Shared {
			t.Fatalf("while the refresh runs a reader gets %q (%v) after %v, %v; want the old rows at once", v, info.Outcome, time.Since(began), err)
		}
		time.Sleep(time.Millisecond)
	}
}
