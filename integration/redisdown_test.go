package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A member is one process of a fleet, here all in one: a Herd, a pool and a client of its own.
type member struct {
	db *sql.DB
	h  *sqlherd.Herd
}

// A trouble is something that happens to Redis.
type trouble struct {
	name  string
	start func(*testing.T, *troubledFleet)
	mend  func(*testing.T, *troubledFleet)

	away     bool // nobody can ask it
	readonly bool // it can be asked and takes nothing
}

// A troubledFleet is two members on a Redis of their own, which they reach through a proxy.
type troubledFleet struct {
	*bed
	server  *dbtest.RedisServer
	proxy   *dbtest.Proxy
	admin   *redis.Client // direct
	members []member
}

func newTroubledFleet(t *testing.T, timeout time.Duration) *troubledFleet {
	f := &troubledFleet{bed: newBed(t, dbtest.PQ(t)), server: dbtest.StartRedis(t)}
	mustExec(t, f.bed.admin, "INSERT INTO items SELECT id, 'row ' || id FROM generate_series(1001, 2000) AS id")
	f.proxy = dbtest.NewProxy(t, f.server.Addr())
	f.admin = f.server.Client()
	for range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: f.proxy.Addr()}) // as an application would
		t.Cleanup(func() { rdb.Close() })
		db, h := openHerd(t, f.Database, sqlherd.Config{Redis: rdb, RedisTimeout: timeout})
		f.members = append(f.members, member{db, h})
	}
	f.awaitWell(t)
	return f
}

func (f *troubledFleet) awaitWell(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		await(t, "Redis is in use", func() bool {
			st := m.h.Stats()
			return st.Redis.Subscribed && !st.Redis.BreakerOpen && st.InvalidationsPending == 0
		})
	}
}

func (f *troubledFleet) log(t *testing.T) {
	t.Helper()
	for i, m := range f.members {
		t.Logf("member %d: %s", i, outcomes(m.h))
	}
}

func row(id int) string { return fmt.Sprintf("row %d", id) }

func TestRowsAreRightWhateverHappensToRedis(t *testing.T) {
	refuse := func(_ *testing.T, f *troubledFleet) { f.proxy.Refuse() }
	pass := func(_ *testing.T, f *troubledFleet) { f.proxy.Pass() }
	nothing := func(*testing.T, *troubledFleet) {}
	do := func(args ...any) func(*testing.T, *troubledFleet) {
		return func(t *testing.T, f *troubledFleet) {
			t.Helper()
			if err := f.admin.Do(withDeadline(t), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tr := range []trouble{
		{name: "refused", start: refuse, mend: pass, away: true},
		{name: "stalled", start: func(_ *testing.T, f *troubledFleet) { f.proxy.Stall() }, mend: pass, away: true},
		{name: "paused", start: func(_ *testing.T, f *troubledFleet) { f.server.Pause() }, mend: func(_ *testing.T, f *troubledFleet) { f.server.Resume() }, away: true},
		{name: "killed", start: func(_ *testing.T, f *troubledFleet) { f.server.Kill() }, mend: func(_ *testing.T, f *troubledFleet) { f.server.Restart() }, away: true},
		{name: "password changed", start: func(t *testing.T, f *troubledFleet) {
			do("CONFIG", "SET", "requirepass", "other")(t, f)
			f.proxy.Cut() // who is in already stays in
		}, mend: do("CONFIG", "SET", "requirepass", ""), away: true},
		{name: "connections cut", start: func(_ *testing.T, f *troubledFleet) { f.proxy.Cut() }, mend: nothing},
		{name: "flushed", start: do("FLUSHALL"), mend: nothing},
		{name: "scripts flushed", start: do("SCRIPT", "FLUSH"), mend: nothing},
		{name: "full", start: do("CONFIG", "SET", "maxmemory", "1"), mend: do("CONFIG", "SET", "maxmemory", "0"), readonly: true},
		{name: "a replica", start: do("REPLICAOF", "127.0.0.1", "1"), mend: do("REPLICAOF", "NO", "ONE"), readonly: true},
		{name: "too few replicas", start: do("CONFIG", "SET", "min-replicas-to-write", "3"), mend: do("CONFIG", "SET", "min-replicas-to-write", "0"), readonly: true},
	} {
		t.Run(tr.name, func(t *testing.T) {
			f := newTroubledFleet(t, 0)
			query := f.slow("ttl=10m tags=item/{1}", 20)
			a, b := f.members[0], f.members[1]
			wantText(t, a.db, "one", sqlherd.Miss, query, 1)
			// A hit, unless this machine is too busy for RedisTimeout.
			if v, _, err := text(withDeadline(t), b.db, query, 1); err != nil || v != "one" {
				t.Fatalf("%q, %v", v, err)
			}
			began := time.Now()
			before := []sqlherd.Stats{a.h.Stats(), b.h.Stats()}

			tr.start(t, f)

			// Cold keys: each process asks the database once, and nobody waits long for Redis.
			const keys, together = 12, 20
			for id := 1001; id < 1001+keys; id++ {
				loads := f.loads(t)
				for _, m := range f.members {
					stampede(withDeadline(t), m.db, together, query, id).check(t, row(id), together)
				}
				if n := f.loads(t) - loads; n > len(f.members) {
					t.Errorf("item %d: %d queries of %d processes", id, n, len(f.members))
				}
			}
			// What was warm stays warm.
			loads := f.loads(t)
			for _, m := range f.members {
				stampede(withDeadline(t), m.db, together, query, 1).check(t, "one", together)
			}
			if n := f.loads(t) - loads; n > 1 || n > 0 && tr.name != "flushed" {
				t.Errorf("%d queries for rows that were cached", n)
			}
			// A write is seen at once by its own process.
			mustExec(t, a.db, "UPDATE /* @invalidate tags=item/1 tables=none */ items SET v = 'changed' WHERE id = 1")
			v, _, err := text(withDeadline(t), a.db, query, 1)
			if err != nil || v != "changed" {
				t.Errorf("after the write its process reads %q, %v", v, err)
			}

			elapsed := time.Since(began)
			for i, m := range f.members {
				st, was := m.h.Stats().Redis, before[i].Redis
				failed := int(st.Errors - was.Errors + st.Timeouts - was.Timeouts)
				// Three in a row open the breaker; later ones are probes, one a second, and
				// what was under way in the background.
				if most := 6 + int(elapsed/time.Second); tr.away && failed > most {
					t.Errorf("member %d: %d calls failed in %v, want at most %d", i, failed, elapsed, most)
				}
				if tr.away && (st.BreakerOpens == was.BreakerOpens || st.Refused == was.Refused) {
					t.Errorf("member %d: %s; want an open breaker", i, outcomes(m.h))
				}
				// Three leases and three invalidations, and then one of each a second.
				if late := int(st.Timeouts - was.Timeouts); tr.readonly && late > 6+2*int(elapsed/time.Second) {
					t.Errorf("member %d: %d calls got no answer in time in %v: %s", i, late, elapsed, outcomes(m.h))
				}
				if tr.readonly && (st.BreakerOpen || st.BreakerOpens != was.BreakerOpens) {
					t.Errorf("member %d: %s; reads are still good", i, outcomes(m.h))
				}
			}

			tr.mend(t, f)

			f.awaitWell(t)
			id := 1500
			await(t, "the processes share again", func() bool {
				id++
				loads := f.loads(t)
				for _, m := range f.members {
					v, _, err := text(withDeadline(t), m.db, query, id)
					if err != nil || v != row(id) {
						t.Fatalf("item %d: %q, %v", id, v, err)
					}
				}
				return f.loads(t) == loads+1
			})
			await(t, "the other process has heard of the write", func() bool {
				v, _, err := text(withDeadline(t), b.db, query, 1)
				if err != nil || v != "changed" && v != "one" {
					t.Fatalf("%q, %v", v, err)
				}
				return v == "changed"
			})
			wantText(t, a.db, "changed", sqlherd.Hit, query, 1)
			if t.Failed() {
				f.log(t)
			}
		})
	}
}

// While Redis comes and goes, every read has the right rows.
func TestReadsGoOnWhileRedisIsKilledAndRestarted(t *testing.T) {
	f := newTroubledFleet(t, 0)
	query := f.slow("ttl=50ms swr=100ms", 1)
	ctx, stop := context.WithCancel(withDeadline(t))
	defer stop()
	results := make(chan *tally)
	for _, m := range f.members {
		for i := range 4 {
			go func() {
				all := newTally()
				for ctx.Err() == nil {
					began := time.Now()
					v, info, err := text(context.Background(), m.db, query, 1001+i)
					if err == nil && v == row(1001+i) {
						v = "right"
					}
					all.add(v, info, time.Since(began), err)
				}
				results <- all
			}()
		}
	}
	for range 3 {
		reads := func() (n uint64) {
			for _, m := range f.members {
				st := m.h.Stats()
				n += st.Outcomes[sqlherd.Hit] + st.Outcomes[sqlherd.Stale] + st.Outcomes[sqlherd.Miss] + st.Outcomes[sqlherd.Shared]
			}
			return n
		}
		goOn := func() {
			n := reads() + 2000
			await(t, "the reads go on", func() bool { return reads() > n })
		}
		f.server.Kill()
		goOn()
		f.server.Restart()
		goOn()
	}
	stop()
	all := newTally()
	for range 8 {
		all.merge(<-results)
	}
	if len(all.Errors) != 0 || len(all.Values) != 1 || all.Values["right"] == 0 {
		t.Error(all)
	}
	t.Log(all)
	f.awaitWell(t)
}
