package integration_test

import (
	"fmt"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// What a failover does to a fleet: the primary dies with its connections, for a second there is none, then the replica is one, with
// what it had been told by then.
func TestAFailoverBySentinelCostsLoadsAndNeverAnError(t *testing.T) {
	b := newBed(t, dbtest.PQ(t))
	g := dbtest.StartSentinel(t)
	var members []member
	for range 2 {
		db, h := openHerd(t, b.Database, sqlherd.Config{Redis: g.Client(), Namespace: "failover", RedisTimeout: redisTimeout})
		members = append(members, member{db, h})
		await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
	}
	ctx := withDeadline(t)
	query := b.slow("ttl=10m", 0)
	read := func(m member, id int, want string) sqlherd.Outcome {
		t.Helper()
		v, info, err := text(ctx, m.db, query, id)
		if err != nil || v != want {
			t.Errorf("item %d reads %q, %v; want %q", id, v, err, want)
		}
		return info.Outcome
	}
	read(members[0], 1, "one")
	if o := read(members[1], 1, "one"); o != sqlherd.Hit {
		t.Errorf("before, the other process has a %v; want a hit", o)
	}

	g.Primary.Kill()
	// Nobody waits for Redis: after a few calls have failed it is left alone.
	for i := range 50 {
		id := i%3 + 1
		read(members[i%2], id, map[int]string{1: "one", 2: "two", 3: "three"}[id])
	}
	// A write that Redis cannot be told of now is told the new primary.
	mustExec(t, members[0].db, "UPDATE items SET v = 'changed' WHERE id = 1")
	read(members[0], 1, "changed")

	g.AwaitPromotion()
	for _, m := range members {
		await(t, "Redis is in use again", func() bool {
			st := m.h.Stats()
			return st.Redis.Subscribed && !st.Redis.BreakerOpen && st.InvalidationsPending == 0
		})
	}
	await(t, "the other process reads what was written", func() bool { v, _, err := text(ctx, members[1].db, query, 1); return err == nil && v == "changed" })

	// And it is a cache again: what one loads, the other has.
	for i := range 3 {
		mustExec(t, b.admin, fmt.Sprintf("INSERT INTO items VALUES (%d, 'new')", 100+i))
		if o := read(members[0], 100+i, "new"); o != sqlherd.Miss {
			t.Errorf("after the failover the first read is a %v", o)
		}
		if o := read(members[1], 100+i, "new"); o != sqlherd.Hit {
			t.Errorf("after the failover the other process has a %v; want a hit", o)
		}
	}
	mustExec(t, members[1].db, "UPDATE items SET v = 'newer' WHERE id = 100")
	read(members[1], 100, "newer")
	await(t, "the write is heard of", func() bool { v, _, err := text(ctx, members[0].db, query, 100); return err == nil && v == "newer" })
}

// The replica that takes over has the stamps from before the last write, and the entry that is valid under them.
func TestAWriteThatTheNewPrimaryHasNeverHeardOfIsSeenAllTheSame(t *testing.T) {
	b := newBed(t, dbtest.PQ(t))
	g := dbtest.StartSentinel(t)
	var members []member
	for range 2 {
		db, h := openHerd(t, b.Database, sqlherd.Config{Redis: g.Client(), Namespace: "forgetful", RedisTimeout: redisTimeout})
		members = append(members, member{db, h})
		await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
	}
	ctx := withDeadline(t)
	query := b.slow("ttl=1h", 0)
	writer, other := members[0], members[1]
	wantText(t, writer.db, "one", sqlherd.Miss, query, 1)
	wantText(t, other.db, "one", sqlherd.Hit, query, 1)
	g.AwaitReplica()

	g.Replica.Pause()
	mustExec(t, writer.db, "UPDATE items SET v = 'changed' WHERE id = 1")
	g.Primary.Kill()
	g.Replica.Resume()
	for range 20 {
		if v, _, err := text(ctx, writer.db, query, 1); v != "changed" || err != nil {
			t.Fatalf("the writer reads %q, %v", v, err)
		}
	}
	g.AwaitPromotion()
	for _, m := range members {
		await(t, "Redis is in use again", func() bool {
			st := m.h.Stats()
			return st.Redis.Subscribed && !st.Redis.BreakerOpen && st.InvalidationsPending == 0
		})
	}
	for range 20 {
		for name, m := range map[string]member{"writer": writer, "other process": other} {
			if v, _, err := text(ctx, m.db, query, 1); v != "changed" || err != nil {
				t.Fatalf("after the failover the %s reads %q, %v", name, v, err)
			}
		}
	}
	if n := writer.h.Stats().InvalidationRepeats; n == 0 {
		t.Error("nothing was told once more")
	}
}
