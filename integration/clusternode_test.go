package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// keysOfCluster are enough for every node, and every part of the keys, to have some.
const keysOfCluster = 96

func clusterMembers(t *testing.T, g *dbtest.ClusterOfThree) (members []member) {
	b := newBed(t, dbtest.SQLite(t))
	rows := make([]string, keysOfCluster)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, 'row %d')", 100+i, i)
	}
	mustExec(t, b.admin, "INSERT INTO items VALUES "+strings.Join(rows, ", "))
	for range 2 {
		// Memory would hide what Redis gives.
		db, h := openHerd(t, b.Database, sqlherd.Config{Redis: g.Client(), RedisTimeout: 200 * time.Millisecond, Local: sqlherd.LocalConfig{Disabled: true}})
		members = append(members, member{db, h})
		await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
	}
	return members
}

// outcomesOf reads every key once and says how.
func (m member) outcomesOf(t *testing.T) (all [keysOfCluster]sqlherd.Outcome) {
	t.Helper()
	for i := range all {
		v, info, err := text(context.Background(), m.db, "SELECT /* @cache ttl=10m tables=none tags=item/{1} */ v FROM items WHERE id = ?", 100+i)
		if want := fmt.Sprintf("row %d", i); err != nil || v != want {
			t.Fatalf("%q, %v; want %q", v, err, want)
		}
		all[i] = info.Outcome
	}
	return all
}

func ended(all [keysOfCluster]sqlherd.Outcome, o sqlherd.Outcome) (n int) {
	for _, have := range all {
		if have == o {
			n++
		}
	}
	return n
}

func TestInvalidateAllReachesEveryKeyOfACluster(t *testing.T) {
	members := clusterMembers(t, dbtest.StartCluster(t))
	a, b := members[0], members[1]
	a.outcomesOf(t)
	if n := ended(b.outcomesOf(t), sqlherd.Hit); n != keysOfCluster {
		t.Fatalf("%d hits of %d in the other process", n, keysOfCluster)
	}
	if err := a.h.InvalidateAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := ended(b.outcomesOf(t), sqlherd.Miss); n != keysOfCluster {
		t.Errorf("after InvalidateAll %d misses of %d keys", n, keysOfCluster)
	}
}

func TestWhenOneNodeOfAClusterFailsTheKeysOfTheOthersAreStillServed(t *testing.T) {
	for _, fail := range []struct {
		name       string
		start, end func(*dbtest.RedisServer)
	}{
		{"it stalls", (*dbtest.RedisServer).Pause, (*dbtest.RedisServer).Resume},
		{"it is killed and comes back empty", (*dbtest.RedisServer).Kill, (*dbtest.RedisServer).Restart},
	} {
		t.Run(fail.name, func(t *testing.T) {
			g := dbtest.StartCluster(t)
			members := clusterMembers(t, g)
			a, b := members[0], members[1]
			a.outcomesOf(t)
			stats := func() sqlherd.StoreStats { return a.h.Stats().Redis }
			if n := ended(a.outcomesOf(t), sqlherd.Hit); n != keysOfCluster {
				t.Fatalf("%d hits of %d", n, keysOfCluster)
			}

			// The channel is with one node; to lose that one is another matter.
			channel, err := g.Client().MasterForKey(context.Background(), "sqlherd:ch")
			if err != nil {
				t.Fatal(err)
			}
			victim := g.Nodes[0]
			if channel.Options().Addr == victim.Addr() {
				victim = g.Nodes[1]
			}
			fail.start(victim)
			for deadline := time.Now().Add(patience); stats().NodeBreakerOpens == 0; {
				if time.Now().After(deadline) {
					t.Fatalf("the node was never given up: %+v", stats())
				}
				a.outcomesOf(t)
			}

			// From here on nobody waits, and what the other nodes have is served.
			was := stats()
			first := a.outcomesOf(t)
			hits := ended(first, sqlherd.Hit)
			if hits < keysOfCluster/8 || hits > keysOfCluster*9/10 {
				t.Errorf("%d hits of %d: want those of which entry and stamps are on the nodes that live", hits, keysOfCluster)
			}
			for range 20 {
				if again := a.outcomesOf(t); again != first {
					t.Fatalf("a key is served now and not then:\n%v\n%v", first, again)
				}
			}
			now := stats()
			if now.Timeouts != was.Timeouts || now.BreakerOpens != 0 || now.Refused == was.Refused {
				t.Errorf("reads waited for the dead node, or the live ones were given up:\n%+v\n%+v", was, now)
			}

			// Writes to live nodes are told at once, and do not wait with those that must.
			told := 0
			for i, o := range first {
				tag := fmt.Sprintf("item/%d", 100+i)
				pending := a.h.Stats().InvalidationsPending
				err := a.h.Invalidate(context.Background(), tag)
				waits := a.h.Stats().InvalidationsPending != pending
				if o == sqlherd.Hit && (err != nil || waits) {
					t.Errorf("a write to %s, whose node lives: %v, waits: %v", tag, err, waits)
				}
				if err == nil {
					told++
				} else if !waits {
					t.Errorf("a write to %s, whose node is away, is forgotten: %v", tag, err)
				}
			}
			if told == keysOfCluster {
				t.Error("no tag is on the dead node: the test shows nothing")
			}
			second := b.outcomesOf(t)
			for i := range second {
				if first[i] == sqlherd.Hit && second[i] != sqlherd.Miss {
					t.Errorf("key %d was written to, and is a %v in the other process", i, second[i])
				}
			}

			fail.end(victim)
			await(t, "the writes have been told", func() bool { return a.h.Stats().InvalidationsPending == 0 })
			await(t, "every key is served again", func() bool {
				b.outcomesOf(t)
				return ended(a.outcomesOf(t), sqlherd.Hit) == keysOfCluster
			})
		})
	}
}

func TestRowsAreRightWhileSlotsMoveFromNodeToNode(t *testing.T) {
	g := dbtest.StartCluster(t)
	members := clusterMembers(t, g)
	a, b := members[0], members[1]
	a.outcomesOf(t)
	ctx := withDeadline(t)
	from, to := g.Nodes[0].Client(), g.Nodes[1].Client()
	source, target := nodeID(t, from), nodeID(t, to)
	keys, err := from.Keys(ctx, "*sqlherd:*").Result()
	if err != nil || len(keys) < 8 {
		t.Fatalf("%d keys on the first node, %v", len(keys), err)
	}
	moved := map[int64]bool{}
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	check := func(when string) {
		t.Helper()
		// Every read is right (outcomesOf looks), every write is told, and seen by the other process.
		i := len(moved) % keysOfCluster
		if err := a.h.Invalidate(ctx, fmt.Sprintf("item/%d", 100+i)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if o := b.outcomesOf(t); o[i] != sqlherd.Miss {
			t.Errorf("%s: key %d was written to, and is a %v", when, i, o[i])
		}
		a.outcomesOf(t)
	}
	for _, key := range keys {
		slot, err := from.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if moved[slot] || len(moved) == 8 {
			continue
		}
		moved[slot] = true
		do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
		do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
		check("a slot is about to move")
		inSlot, err := from.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range inSlot {
			host, port, _ := strings.Cut(g.Nodes[1].Addr(), ":")
			do(from, "MIGRATE", host, port, k, 0, 5000, "REPLACE")
		}
		check("its keys have moved")
		for _, c := range []*redis.Client{to, from, g.Nodes[2].Client()} {
			do(c, "CLUSTER", "SETSLOT", slot, "NODE", target)
		}
		check("it has moved")
	}
	for _, m := range members {
		if st := m.h.Stats(); st.Redis.Errors != 0 || st.Redis.BreakerOpens+st.Redis.NodeBreakerOpens != 0 || st.InvalidationsPending != 0 {
			t.Errorf("%s; want no error", figures(&st))
		}
	}
	if n := ended(a.outcomesOf(t), sqlherd.Hit); n != keysOfCluster {
		t.Errorf("%d hits of %d when all is done", n, keysOfCluster)
	}
}

func nodeID(t *testing.T, c *redis.Client) string {
	t.Helper()
	id, err := c.Do(withDeadline(t), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
