package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// slack is what a fleet test allows for a busy machine, on top of what is promised.
const slack = 2 * time.Second

func TestWhenTheLoadingProcessIsKilledAnotherHasTheRowsWithinALease(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		const lease, load = time.Second, 400 * time.Millisecond
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		procs := spawn(t, 2, workerOn(b, rdb.Options().Addr, ns))
		query := b.slow("ttl=1m lease="+lease.String(), int(load.Milliseconds()))
		procs[0].Send(order{Query: query, Arg: 1, Callers: 5})
		await(t, "the first process loads", func() bool { return b.loads(t) == 1 })
		procs[1].Send(order{Query: query, Arg: 1, Callers: 50})
		killed := monotonic()
		procs[0].Kill()
		a := hear(procs[1])
		a.Tally.check(t, "one", 50)
		b.wantLoads(t, 2)
		if d := a.Returned - killed; d > lease+load+slack {
			t.Errorf("the rows came %v after the kill, want within %v", d, lease+load)
		} else {
			t.Logf("the rows came %v after the kill; lease %v, load %v", d, lease, load)
		}
	})
}

func TestALoadThatIsLongerThanItsLeaseIsStillTheOnlyOne(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := workerOn(b, rdb.Options().Addr, ns)
		cfg.RedisTimeout = 300 * time.Millisecond
		procs := spawn(t, 3, cfg)
		answers := tell(procs, order{Query: b.slow("ttl=1m lease=1s", 2000), Arg: 1, Callers: 20})
		sum(answers).check(t, "one", 60)
		b.wantLoads(t, 1)
	})
}

func TestALoaderThatSleptThroughItsLeaseDoesNotOverwriteNewerRows(t *testing.T) {
	eachEngine(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := workerOn(b, rdb.Options().Addr, ns)
		cfg.RedisTimeout = 200 * time.Millisecond
		procs := spawn(t, 3, cfg)
		query := b.slow("ttl=1m lease=500ms", 300)
		procs[0].Send(order{Query: query, Arg: 1, Callers: 1})
		await(t, "the first process loads", func() bool { return b.loads(t) == 1 })
		procs[0].Pause()
		b.set(t, 1, "newer")
		answers := tell(procs[1:2], order{Query: query, Arg: 1, Callers: 1})
		sum(answers).check(t, "newer", 1)
		procs[0].Resume()
		// Its own caller asked before the change.
		hear(procs[0]).Tally.check(t, "one", 1)
		if st := stats(procs[0]); st.Redis.PutsFenced+st.Redis.PutsStored == 0 || st.Redis.PutsStored != 0 {
			t.Errorf("the process that slept: %s; want its rows to be refused", figures(st))
		}
		third := tell(procs[2:], order{Query: query, Arg: 1, Callers: 20})
		sum(third).check(t, "newer", 20)
		b.wantLoads(t, 2)
	})
}

func TestALoaderThatSleptAloneIsStored(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	cfg := workerOn(b, rdb.Options().Addr, ns)
	cfg.RedisTimeout = 200 * time.Millisecond
	procs := spawn(t, 2, cfg)
	query := b.slow("ttl=1m lease=500ms", 300)
	procs[0].Send(order{Query: query, Arg: 1, Callers: 1})
	await(t, "the first process loads", func() bool { return b.loads(t) == 1 })
	procs[0].Pause()
	await(t, "the lease has ended", func() bool {
		keys, err := rdb.Keys(context.Background(), "*"+ns+"*:l").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(keys) == 0
	})
	procs[0].Resume()
	hear(procs[0]).Tally.check(t, "one", 1)
	sum(tell(procs[1:], order{Query: query, Arg: 1, Callers: 20})).check(t, "one", 20)
	b.wantLoads(t, 1)
}

// latencies lets two processes read fifty cold keys at the same time, and returns how long after the
// leader's query returned from the database the other process had its rows.
func latencies(t *testing.T, b *bed, cfg workerConfig, rounds int) []time.Duration {
	procs := spawn(t, 2, cfg)
	mustExec(t, b.admin, "INSERT INTO items SELECT id + 100, v FROM items")
	for range 5 { // 3 × 2^6 rows
		mustExec(t, b.admin, "INSERT INTO items SELECT id + (SELECT MAX(id) FROM items), v FROM items WHERE id > 100")
	}
	rows, err := b.admin.Query("SELECT id, v FROM items WHERE id > 100 ORDER BY id LIMIT " + fmt.Sprint(rounds))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var took, takenFromStore []time.Duration
	for rows.Next() {
		var id int
		var v string
		if err := rows.Scan(&id, &v); err != nil {
			t.Fatal(err)
		}
		answers := tell(procs, order{Query: b.slow("ttl=1m", 30), Arg: id, Callers: 1})
		sum(answers).check(t, v, 2)
		if answers[0].Tally.Outcomes["miss"] == 0 {
			slices.Reverse(answers)
		}
		leader, waiter := answers[0], answers[1]
		if leader.Tally.Outcomes["miss"] != 1 || waiter.Tally.Outcomes["waited"] != 1 {
			t.Fatalf("item %d: %v and %v; want a miss and a waiter", id, leader.Tally, waiter.Tally)
		}
		took = append(took, waiter.Returned-leader.Loaded)
		takenFromStore = append(takenFromStore, waiter.Returned-leader.Stored)
	}
	if len(took) != rounds {
		t.Fatalf("%d rounds, want %d: %v", len(took), rounds, rows.Err())
	}
	b.wantLoads(t, rounds)
	slices.Sort(took)
	slices.Sort(takenFromStore)
	t.Logf("a waiter in another process had its rows, after the leader's query returned: median %v, 90%% %v, max %v; after it was stored: median %v",
		took[rounds/2], took[rounds*9/10], took[rounds-1], takenFromStore[rounds/2])
	return took
}

func TestWaitersInAnotherProcessHaveTheRowsWithinFiveMilliseconds(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	took := latencies(t, b, workerOn(b, rdb.Options().Addr, ns), 50)
	limit := 5 * time.Millisecond
	if raceEnabled {
		limit *= 4 // the detector makes everything slower
	}
	if median := took[25]; median > limit {
		t.Errorf("median %v, want at most %v", median, limit)
	}
}

func TestWaitersHaveTheRowsByPollingWhenNothingIsPushed(t *testing.T) {
	server := dbtest.StartRedis(t)
	rdb := server.Client()
	ctx := withDeadline(t)
	for _, rule := range []string{"-subscribe", "resetchannels"} {
		if err := rdb.Do(ctx, "ACL", "SETUSER", "mute"+rule, "on", ">pw", "~*", "&*", "+@all", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for user, what := range map[string]string{"mute-subscribe": "SUBSCRIBE refused", "muteresetchannels": "channels refused"} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, dbtest.PQ(t))
			cfg := workerOn(b, server.Addr(), "mute")
			cfg.User, cfg.Password = user, "pw"
			took := latencies(t, b, cfg, 10)
			// The longest pause between two looks, and a round trip.
			if median := took[5]; median > 150*time.Millisecond+slack {
				t.Errorf("median %v", median)
			}
		})
	}
}

func TestAWaiterGoesOnWhenItsWaitEnds(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	procs := spawn(t, 2, workerOn(b, rdb.Options().Addr, ns))
	query := b.slow("ttl=1m wait=100ms", 1500)
	procs[0].Send(order{Query: query, Arg: 1, Callers: 5})
	await(t, "the first process loads", func() bool { return b.loads(t) == 1 })
	procs[1].Send(order{Query: query, Arg: 1, Callers: 5})
	hear(procs[1]).Tally.check(t, "one", 5)
	hear(procs[0]).Tally.check(t, "one", 5)
	b.wantLoads(t, 2)
	if st := stats(procs[1]); st.WaitTimeouts != 1 || st.Reasons[sqlherd.ReasonWaitTimeout] == 0 {
		t.Errorf("%s, reasons %v; want one wait that timed out", figures(st), st.Reasons)
	}
}
