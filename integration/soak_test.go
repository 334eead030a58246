package integration_test

// The run that tries to make a fleet serve rows that are too old: processes read and write
// for two minutes, while Redis is killed, flushed, paused and evicted, connections are cut, and processes are
// stopped and killed. Every read is recorded, and checked afterwards against the versions that were
// really committed. soakcheck_test.go says what each read is held to; soakworker_test.go is a process.

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

const (
	// envSoak is how long the run takes, and envSoakSeed what it repeats. Reality does not repeat itself: the seed
	// fixes what is read, written and broken in which order, and not what overlaps.
	envSoak     = "SQLHERD_TEST_SOAK"
	envSoakSeed = "SQLHERD_TEST_SOAK_SEED"

	soakDefault = 2 * time.Minute
	// soakRace is for the race detector, which makes everything slow and finds what it finds at once.
	soakRace = 45 * time.Second

	soakProcesses = 4
	// soakLocalTTL is the default. The last process has no memory.
	soakLocalTTL     = sqlherd.LocalTTLDefault
	soakRedisTimeout = 100 * time.Millisecond
	soakPauseMax     = 700 * time.Millisecond
)

// The rows, by what reads and writes them.
const (
	soakItems   = 12 // 0 to 11: row-level tags; the odd ones take 20 ms to read, and one 300
	soakNotes   = 4  // read together, under their table's own tag
	soakGuests  = 2  // that come and go: "not found" is a version too
	soakUnseen  = 2  // written by somebody who tells nobody
	firstNote   = soakItems
	firstGuest  = firstNote + soakNotes
	firstUnseen = firstGuest + soakGuests
	soakRows    = firstUnseen + soakUnseen
)

// Longest lives of what is cached below; jitter only shortens.
const (
	soakTTL, soakSWR, soakSIE = 2 * time.Second, 3 * time.Second, time.Second
)

var (
	soakItem  = fmt.Sprintf("SELECT /* @cache ttl=%v swr=%v sie=%v tags=row/{1} tables=none */ v, tok FROM items WHERE id = $1", soakTTL, soakSWR, soakSIE)
	soakSlow  = fmt.Sprintf("SELECT /* @cache ttl=%v swr=%v sie=%v tags=row/{1} tables=none */ slowly(CASE id WHEN 11 THEN 300 ELSE 20 END, v), tok FROM items WHERE id = $1", soakTTL, soakSWR, soakSIE)
	soakNote  = fmt.Sprintf("SELECT /* @cache ttl=%v swr=%v */ id, v, tok FROM notes ORDER BY id", soakTTL, soakSWR)
	soakGuest = fmt.Sprintf("SELECT /* @cache ttl=%v empty=%v tags=row/{1} tables=none */ v, tok FROM guests WHERE id = $1", soakTTL, soakTTL)
)

// newSoakBed makes the tables. history gets every version that is committed, whoever writes it.
func newSoakBed(t *testing.T) (dbtest.Database, *sql.DB) {
	d := dbtest.PQ(t)
	d.Exec(t, "CREATE TABLE items (id INT PRIMARY KEY, v BIGINT NOT NULL, tok BIGINT NOT NULL)",
		"CREATE TABLE notes (id INT PRIMARY KEY, v BIGINT NOT NULL, tok BIGINT NOT NULL)",
		"CREATE TABLE guests (id INT PRIMARY KEY, v BIGINT NOT NULL, tok BIGINT NOT NULL)",
		"CREATE TABLE history (id INT NOT NULL, v BIGINT NOT NULL, tok BIGINT NOT NULL)",
		`CREATE FUNCTION note_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO history VALUES (new.id, new.v, new.tok);
	RETURN new;
END $$`,
		// The rows are read first: what is returned is as old as it takes.
		`CREATE FUNCTION slowly(ms int, v bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(ms / 1000.0);
	RETURN v;
END $$`,
		"CREATE TRIGGER versions AFTER INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION note_version()",
		"CREATE TRIGGER versions AFTER INSERT OR UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION note_version()",
		// A guest's versions are those of its item: odd ones are there, even ones are not.
		fmt.Sprintf("INSERT INTO items SELECT id, 0, 0 FROM generate_series(0, %d) id WHERE id NOT BETWEEN %d AND %d", soakRows-1, firstNote, firstGuest-1),
		fmt.Sprintf("INSERT INTO notes SELECT id, 0, 0 FROM generate_series(%d, %d) id", firstNote, firstGuest-1))
	return d, d.Open(t)
}

// A soak is the run, seen from the test's own process, which breaks things.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	dir    string
	base   soakConfig
	server *dbtest.RedisServer
	rdb    *redis.Client
	bare   *sql.DB

	procs  []*soakProc
	faults map[string]int
}

// A soakProc is one process, dead or alive.
type soakProc struct {
	*dbtest.Proc
	cfg  soakConfig
	gone time.Duration // killed, and nothing of it is under way in the database any more
}

func TestNoReadIsOlderThanPromisedWhateverBreaks(t *testing.T) {
	lasts, seed := soakDefault, rand.Uint64()
	if raceEnabled {
		lasts = soakRace
	}
	if s := os.Getenv(envSoak); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", envSoak, err)
		}
	}
	if s := os.Getenv(envSoakSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSoakSeed, err)
		}
	}
	t.Logf("%v with %s=%d", lasts, envSoakSeed, seed)

	s := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), faults: map[string]int{}}
	var d dbtest.Database
	d, s.bare = newSoakBed(t)
	s.server = dbtest.StartRedis(t)
	s.rdb = redis.NewClient(&redis.Options{Addr: s.server.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { s.rdb.Close() })
	s.base = soakConfig{DSN: d.DSN, Redis: s.server.Addr(), Seed: seed}
	for i := range soakProcesses {
		s.spawn(i == soakProcesses-1)
	}

	end := time.Now().Add(lasts)
	for time.Now().Before(end) {
		// So that what comes does not come in step with what the library waits for.
		time.Sleep(time.Duration(500+s.rng.IntN(2500)) * time.Millisecond)
		s.breakSomething()
	}

	var totals soakTotals
	for _, p := range s.procs {
		if p.gone == 0 {
			p.Send(soakOrder{})
			var r soakReport
			p.Recv(&r)
			totals.add(r)
		}
	}
	check := newSoakCheck(s)
	check.run()
	check.report(&totals, lasts >= time.Minute)
	if t.Failed() {
		t.Logf("%s=%d", envSoakSeed, seed)
	}
}

// spawn starts the next process.
func (s *soak) spawn(noMemory bool) {
	cfg := s.base
	cfg.ID = len(s.procs)
	cfg.NoMemory = noMemory
	cfg.Log = filepath.Join(s.dir, fmt.Sprintf("process-%d", cfg.ID))
	s.procs = append(s.procs, &soakProc{Proc: dbtest.Spawn(s.t, soakWorker, cfg), cfg: cfg})
}

// alive returns a living process.
func (s *soak) alive() *soakProc {
	var living []*soakProc
	for _, p := range s.procs {
		if p.gone == 0 {
			living = append(living, p)
		}
	}
	return living[s.rng.IntN(len(living))]
}

func (s *soak) breakSomething() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	some := func(least, most int) time.Duration {
		return time.Duration(least+s.rng.IntN(most-least)) * time.Millisecond
	}
	redisDo := func(args ...any) {
		if err := s.rdb.Do(ctx, args...).Err(); err != nil {
			s.t.Errorf("%v: %v", args, err)
		}
	}
	faults := []struct {
		name string
		do   func()
	}{
		{"Redis killed and restarted", func() {
			s.server.Kill()
			time.Sleep(some(50, 1500))
			s.server.Restart()
		}},
		{"FLUSHALL", func() { redisDo("FLUSHALL") }},
		{"subscriptions cut", func() { redisDo("CLIENT", "KILL", "TYPE", "pubsub") }},
		{"connections of Redis cut", func() { redisDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }},
		{"Redis paused", func() { redisDo("CLIENT", "PAUSE", some(50, int(soakPauseMax/time.Millisecond)).Milliseconds(), "ALL") }},
		{"half of the keys evicted", func() { s.evict(ctx) }},
		{"process killed", func() { s.kill(ctx, false) }},
		{"process killed between commit and invalidation", func() { s.kill(ctx, true) }},
		{"process stopped for a while", func() {
			p := s.alive()
			p.Pause()
			time.Sleep(some(100, 2500))
			p.Resume()
		}},
		{"backends terminated", func() {
			if _, err := s.bare.ExecContext(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'soak-%'"); err != nil {
				s.t.Error(err)
			}
		}},
	}
	f := faults[s.rng.IntN(len(faults))]
	s.faults[f.name]++
	f.do()
}

// evict deletes keys as a full Redis would: stamps, entries and leases alike.
func (s *soak) evict(ctx context.Context) {
	keys, err := s.rdb.Keys(ctx, "*").Result()
	if err != nil {
		s.t.Error(err)
		return
	}
	slices.Sort(keys)
	for _, k := range keys {
		if s.rng.IntN(2) == 0 {
			if err := s.rdb.Del(ctx, k).Err(); err != nil {
				s.t.Error(err)
			}
		}
	}
}

// kill ends a process by SIGKILL, wherever its writes are or when the next one is committed, and starts another
// in its place.
func (s *soak) kill(ctx context.Context, committed bool) {
	p := s.alive()
	if committed {
		p.Send(soakOrder{Die: true})
	} else {
		p.Kill()
	}
	name := p.cfg.application()
	await(s.t, name+" has left the database", func() bool {
		var n int
		if err := s.bare.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		return n == 0
	})
	p.gone = monotonic()
	p.Kill()
	s.spawn(p.cfg.NoMemory)
}

func (s *soak) faultsMade() string {
	var made []string
	n := 0
	for name, times := range s.faults {
		made = append(made, fmt.Sprintf("%s %d", name, times))
		n += times
	}
	slices.Sort(made)
	return fmt.Sprintf("%d faults: %s", n, strings.Join(made, ", "))
}
