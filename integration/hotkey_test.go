package integration_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

const (
	hotProcesses = 4
	hotReaders   = 1000 // in all
	hotReads     = 300_000
	hotReadsLong = 1_000_000              // make soak
	hotEvery     = 100 * time.Millisecond // between two writes
	hotLoad      = 50 * time.Millisecond
)

// hotConfig tells a process what to read, and one of them to write.
type hotConfig struct {
	DSN, Redis, Namespace, Query string

	Writer bool
	Reads  int
}

// hotReport is what a process has seen. Moments are monotonic.
type hotReport struct {
	// LastRead has, by version, when the last read began that gave it.
	LastRead map[int]time.Duration
	// Written has, by version, when its write had returned.
	Written  map[int]time.Duration
	Took     []int // reads, by their time in units of hotUnit
	Loads    []time.Duration
	Outcomes map[string]int
	Stats    sqlherd.Stats
	Errors   []string
}

const hotUnit = 250 * time.Microsecond

// loadsSeen notes how long each load took.
type loadsSeen struct {
	sqlherd.ObserverBase
	mu   sync.Mutex
	took []time.Duration
}

func (l *loadsSeen) Load(e sqlherd.LoadEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, e.Took)
}

var hotWorker = dbtest.NewRole("hot worker", func(c *dbtest.Child) error {
	var cfg hotConfig
	if err := c.Config(&cfg); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Redis})
	defer rdb.Close()
	loads := &loadsSeen{}
	h, err := sqlherd.New(sqlherd.Config{
		Redis: rdb, Namespace: cfg.Namespace, RedisTimeout: redisTimeout, MaxDBConns: 2, Observer: loads, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer h.Close()
	base, err := driverNamed("pq")
	if err != nil {
		return err
	}
	connector, err := h.Driver(base).(sqldriver.DriverContext).OpenConnector(cfg.DSN)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(hotReaders)
	defer db.Close()

	r := &hotReport{
		LastRead: map[int]time.Duration{}, Written: map[int]time.Duration{}, Outcomes: map[string]int{},
		Took: make([]int, int(10*time.Second/hotUnit)),
	}
	// Ready: every process begins with the others, and has its connections.
	if _, _, err := text(sqlherd.WithScope(c.Context(), strconv.Itoa(os.Getpid())), db, "SELECT /* @cache ttl=1m */ v FROM items WHERE id = $1", 1); err != nil {
		return err
	}
	if err := db.PingContext(c.Context()); err != nil {
		return err
	}
	if err := c.Send("ready"); err != nil {
		return err
	}
	var start string
	if err := c.Recv(&start); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var writer sync.WaitGroup
	if cfg.Writer {
		writer.Go(func() { r.Errors = append(r.Errors, hotWrites(ctx, db, r.Written)...) })
	}
	r.read(ctx, db, cfg.Query, cfg.Reads)
	// The others may be slower; they too shall have read under writes to the end.
	if err := c.Send("done"); err != nil {
		return err
	}
	if err := c.Recv(&start); err != nil {
		return err
	}
	cancel()
	writer.Wait()
	r.Loads, r.Stats = loads.took, h.Stats()
	return c.Send(r)
})

// hotWrites writes the next version every hotEvery.
func hotWrites(ctx context.Context, db *sql.DB, written map[int]time.Duration) (problems []string) {
	tick := time.NewTicker(hotEvery)
	defer tick.Stop()
	for v := 1; ; v++ {
		select {
		case <-ctx.Done():
			return problems
		case <-tick.C:
		}
		if _, err := db.ExecContext(context.WithoutCancel(ctx), "UPDATE items SET v = $1 WHERE id = 1", strconv.Itoa(v)); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		written[v] = monotonic()
	}
}

// read lets this process's share of the readers read until there are enough reads.
func (r *hotReport) read(ctx context.Context, db *sql.DB, query string, reads int) {
	var left atomic.Int64
	left.Store(int64(reads))
	var mu sync.Mutex
	var wg sync.WaitGroup
	took := make([]atomic.Int64, len(r.Took))
	readers := hotReaders / hotProcesses
	if raceEnabled {
		readers /= 10
	}
	for range readers {
		wg.Go(func() {
			last, outcomes := map[int]time.Duration{}, map[string]int{}
			var failed []string
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				began := monotonic()
				s, info, err := text(ctx, db, query, 1)
				took[min(int((monotonic()-began)/hotUnit), len(took)-1)].Add(1)
				v, aerr := strconv.Atoi(s)
				if err != nil || aerr != nil {
					failed = append(failed, fmt.Sprint(err, aerr))
					continue
				}
				last[v] = max(last[v], began)
				outcomes[info.Outcome.String()]++
				time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			r.Errors = append(r.Errors, failed...)
			for v, at := range last {
				r.LastRead[v] = max(r.LastRead[v], at)
			}
			for o, n := range outcomes {
				r.Outcomes[o] += n
			}
		})
	}
	wg.Wait()
	for i := range took {
		r.Took[i] = int(took[i].Load())
	}
}

// A thousand readers of one key in four processes, while one of them writes it every tenth of a second.
func TestReadersOfAHotKeyThatIsWrittenAllTheTimeGetNewRowsForOneLoadAWrite(t *testing.T) {
	reads := hotReads
	switch {
	case os.Getenv("SQLHERD_TEST_SOAK") != "":
		reads = hotReadsLong
	case raceEnabled:
		reads = hotReads / 15
	}
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	b.set(t, 1, "0")
	var procs []*dbtest.Proc
	for i := range hotProcesses {
		procs = append(procs, dbtest.Spawn(t, hotWorker, hotConfig{
			DSN: b.DSN, Redis: rdb.Options().Addr, Namespace: ns, Writer: i == 0, Reads: reads / hotProcesses,
			Query: b.slow("ttl=1m", int(hotLoad.Milliseconds())),
		}))
	}
	step := func(say string) {
		for _, p := range procs {
			var heard string
			p.Recv(&heard)
		}
		for _, p := range procs {
			p.Send(say)
		}
	}
	step("start")
	began := time.Now()
	step("stop")
	lasted := time.Since(began)
	reports := make([]hotReport, len(procs))
	for i, p := range procs {
		p.Recv(&reports[i])
	}

	written := reports[0].Written
	total, outcomes, took := 0, map[string]int{}, make([]int, len(reports[0].Took))
	var loads []time.Duration
	var elsewhere time.Duration
	for i, r := range reports {
		if len(r.Errors) > 0 {
			t.Errorf("process %d: %d errors, such as %s", i, len(r.Errors), r.Errors[0])
		}
		bound := sqlherd.LocalTTLDefault
		if i == 0 {
			bound = 0 // the writer's own process
		}
		for v, last := range r.LastRead {
			next, ok := written[v+1]
			if !ok {
				continue
			}
			if late := last - next; late > bound {
				t.Errorf("process %d read version %d %v after the next one was written; want at most %v", i, v, late, bound)
			} else if i > 0 {
				elsewhere = max(elsewhere, late)
			}
		}
		for o, n := range r.Outcomes {
			outcomes[o] += n
		}
		for j, n := range r.Took {
			took[j] += n
			total += n
		}
		loads = append(loads, r.Loads...)
	}
	// One for each write, and the first one. On a machine that is so busy that loads take longer than the pause between writes,
	// readers who have waited in vain twice load for themselves.
	inVain := 0
	for _, r := range reports {
		inVain += int(r.Stats.WaitsInVain)
	}
	if n := b.loads(t); n > len(written)+1+inVain {
		t.Errorf("%d loads for %d writes", n, len(written))
		for i, r := range reports {
			t.Logf("process %d: %s", i, figures(&r.Stats))
		}
	}
	if total < reads || outcomes["hit"] == 0 || outcomes["shared"] == 0 || outcomes["waited"] == 0 {
		t.Errorf("%d reads, want %d: %v", total, reads, outcomes)
	}
	slices.Sort(loads)
	typical, p99 := loads[len(loads)/2], percentile(took, 0.99)
	t.Logf("%d reads in %v, %d writes, %d loads of %v (%d past the lease); p50 %v, p99 %v = %.2f × a load; oldest read elsewhere %v after the next write; %v", total,
		lasted.Round(time.Millisecond), len(written), b.loads(t), typical, inVain, percentile(took, 0.5), p99, float64(p99)/float64(typical), max(elsewhere, 0), outcomes)
}

// percentile returns the upper end of the unit in which the q-th of all is.
func percentile(took []int, q float64) time.Duration {
	total := 0
	for _, n := range took {
		total += n
	}
	seen := 0
	for i, n := range took {
		if seen += n; float64(seen) >= q*float64(total) {
			return time.Duration(i+1) * hotUnit
		}
	}
	return 0
}
