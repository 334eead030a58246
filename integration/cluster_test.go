package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestOnAClusterFourProcessesShareOneLoadAndHearOfWrites(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.RedisCluster(t)
		b := newBed(t, d)
		cfg := workerOn(b, "", ns)
		cfg.Cluster = rdb.Options().Addrs
		procs := spawn(t, 4, cfg)
		for _, p := range procs {
			await(t, "messages arrive", func() bool { return stats(p).Redis.Subscribed })
		}
		query := b.slow("ttl=10m tags=item/{1},all-items", loadMS)
		for id, v := range map[int]string{1: "one", 2: "two", 3: "three"} { // in several slots
			loads := b.loads(t)
			sum(tell(procs, order{Query: query, Arg: id, Callers: 50})).check(t, v, 200)
			b.wantLoads(t, loads+1)
		}
		procs[0].Send(order{Exec: "UPDATE /* @invalidate tags=item/1 tables=none */ items SET v = 'changed' WHERE id = 1"})
		hear(procs[0])
		await(t, "every process has heard of the write", func() bool {
			return sum(tell(procs, order{Query: query, Arg: 1, Callers: 1})).Values["changed"] == 4
		})
		b.wantLoads(t, 4)
		for _, p := range procs {
			if st := stats(p); st.Redis.Errors != 0 || st.Redis.BreakerOpens != 0 {
				t.Errorf("%s; want no error (such as CROSSSLOT)", figures(st))
			}
		}
	})
}

// oddTags are tags that could choose a slot, break a pattern or a name.
var oddTags = []string{"{a}", "}{", "a{b}c", "{}", "{sqlherd}", "a:b", "*", "[x]", "č", strings.Repeat("long", 50), `\`, "#", "a b", "a,b", "a|b"}

func TestOddTagsWorkOnEveryRedis(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) (redis.UniversalClient, string){
		"standalone": func(t *testing.T) (redis.UniversalClient, string) { c, ns := dbtest.Redis(t); return c, ns },
		"cluster":    func(t *testing.T) (redis.UniversalClient, string) { c, ns := dbtest.RedisCluster(t); return c, ns },
	} {
		t.Run(name, func(t *testing.T) {
			rdb, ns := connect(t)
			b := newBed(t, dbtest.PQ(t))
			var members []member
			for range 2 {
				db, h := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
				members = append(members, member{db, h})
				await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
			}
			query := b.slow("ttl=10m", 0)
			for i, tag := range oddTags {
				id := 100 + i
				mustExec(t, b.admin, fmt.Sprintf("INSERT INTO items VALUES (%d, 'odd')", id))
				ctx := sqlherd.WithTags(withDeadline(t), append(oddTags[:3:3], tag)...)
				read := func(m member, want sqlherd.Outcome) {
					t.Helper()
					v, info, err := text(ctx, m.db, query, id)
					if err != nil || v != "odd" || info.Outcome != want {
						t.Errorf("tag %q: %q, %v, %v (%v %s); want %v", tag, v, err, info.Outcome, info.Reason, info.Detail, want)
					}
				}
				read(members[0], sqlherd.Miss)
				read(members[1], sqlherd.Hit)
				heard := members[1].h.Stats().InvalidationsHeard
				if err := members[0].h.Invalidate(ctx, tag); err != nil {
					t.Fatalf("tag %q: %v", tag, err)
				}
				read(members[0], sqlherd.Miss)
				await(t, "the other process has heard of it", func() bool { return members[1].h.Stats().InvalidationsHeard > heard })
				read(members[1], sqlherd.Hit)
			}
			for _, m := range members {
				if st := m.h.Stats(); st.Redis.Errors != 0 {
					t.Errorf("%s; want no error", outcomes(m.h))
				}
			}
		})
	}
}
