package sqlherd

// A fleet to which everything happens at random, under the promises that hold all the same.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A simulation is a fleet of processes over one database and one store: reads and writes through database/sql, in
// transactions and without, commits whose answer is lost, loads that fail, processes that die in the middle of
// a load, a write or an invalidation, a store that forgets, fails and stalls, messages that come late or never.
// Whatever each query answers is held against the history of what was committed.
//
// All draws come from the seed, the engine's own too, and time is virtual. What the seed does not decide is which
// of several goroutines is first at one nanosecond.
type simulation struct {
	t     *testing.T
	seed  uint64
	fleet *FakeFleet
	cfg   Config
	slots [simProcesses]atomic.Pointer[simProcess]

	writes, messages, crashes, storeFaults, dbFaults bool
	amnesia                                          bool // no cache in memory, as with Config.Local.Disabled
	spaced                                           bool // writes are so far apart that nobody waits in vain

	lag      time.Duration // of the replica that loads read
	longest  time.Duration // of loads
	mu       sync.Mutex
	rng      *rand.Rand // of loads and of the network
	rows     [simKeys]simRow
	changes  int // of the faults of messages
	dropping bool
	delaying bool
	faults   int       // of the store, under way
	failed   int       // faults of the store, so far
	forgot   int       // evictions of stamps, which take fences along, so far
	well     time.Time // when a fault of the store last ended
	dbErr    error
	dbWell   time.Time
	died     int // processes, so far

	reads, checked, violations int
	fenced, served             int // commits behind a fence; reads of rows from before a soft invalidation
	events                     []simEvent
}

const (
	simProcesses = 3
	simKeys      = 3
	simLasts     = 4 * time.Second
	simLoadMax   = 400 * time.Millisecond
	simLease     = 500 * time.Millisecond
	simAgain     = 550 * time.Millisecond // the jitter takes a fifth of a TTL, the early refresh a quarter of that
	simTrip      = 4 * time.Millisecond   // of the network, one way
	simSlack     = 150 * time.Millisecond
)

// A simRow is what the query of one key reads.
type simRow struct {
	commits []time.Time // when version i+1 was committed
	running map[int]int // loads, by the number of writes that had ended when they began
	left    bool        // a fence was left to itself, and will be there until the end: nobody shares loads
	loaded  time.Time   // the end of the last load
	writing int
	written int               // writes that have ended
	asked   [simProcesses]int // … when each process last asked for the lease
	vain    int               // … when a load began that is in vain

	seen   [simProcesses][]simTold // what each process has heard of
	redis  []simTold               // what Redis has been told of
	forced time.Time               // a Refresh was asked for: it may load at any time
}

type simTold struct {
	version int64
	at      time.Time
	soft    bool // rows from before it are stale, not dead
}

type simProcess struct {
	h     *Herd
	db    *sql.DB
	slot  int
	store *simStore

	// Guarded by simulation.mu. own is what this process has written.
	own    [simKeys][]simTold
	queued [simKeys][]simTold
	down   bool // no subscription

	// outdated is since when this process has served, as stale, rows from before a soft invalidation.
	outdated [simKeys]simTold
}

// A simEvent is a line of the log.
type simEvent struct {
	at   time.Duration
	key  int // -1: of all
	text string
	args []any
}

// note logs an event. s.mu is held.
func (s *simulation) note(key int, text string, args ...any) {
	s.events = append(s.events, simEvent{time.Since(start2000), key, text, args})
}

func (s *simulation) noteNow(key int, text string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(key, text, args...)
}

// start2000 is when bubbles begin.
var start2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// failf reports a violation; the first one with the command that repeats it and what has happened to the key.
func (s *simulation) failf(key int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(key, "VIOLATION: "+format, args...)
	s.violations++
	switch {
	case s.violations == 1:
		s.t.Errorf("%v: "+format+"\n\nto repeat it:  go test -run 'TestSimulation/seed=%d$' -v -cpu 1 .\n\n%s",
			append(append([]any{time.Since(start2000)}, args...), s.seed, s.story(key, 40))...)
	case s.violations <= 5:
		s.t.Errorf("%v: "+format, append([]any{time.Since(start2000)}, args...)...)
	}
}

// story is the end of the log as far as it is about key.
func (s *simulation) story(key, most int) string {
	var lines []string
	for _, e := range s.events {
		if key >= 0 && e.key >= 0 && e.key != key {
			continue
		}
		lines = append(lines, fmt.Sprintf("%13v  "+e.text, append([]any{e.at}, e.args...)...))
	}
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return fmt.Sprintf("config %+v, strict %v, policy ttl %v swr %v sie %v jitter %v early %v, replica lag %v, database faults %v\n",
		s.cfg.Local, s.cfg.Strict, s.cfg.Default.TTL, s.cfg.Default.SWR, s.cfg.Default.SIE, s.cfg.Default.Jitter, s.cfg.Default.EarlyBeta, s.lag, s.dbFaults) + strings.Join(lines, "\n")
}

// The database.

// A simConnector is the way of one process to it.
type simConnector struct {
	s    *simulation
	slot int
}

func (c simConnector) Connect(context.Context) (driver.Conn, error) {
	return &simConn{s: c.s, slot: c.slot}, nil
}
func (c simConnector) Driver() driver.Driver { return simDriver{} }

type simDriver struct{}

func (simDriver) Open(string) (driver.Conn, error) { return nil, errors.New("no names here") }

// A simWrite is one write of the simulation: it travels in the context, and comes back with what has become of it.
type simWrite struct {
	keys     []int
	versions [simKeys]int64 // that were committed
	told     bool           // Redis knows
	effect   bool           // the statement or the commit happens …
	answer   error          // … and ends so
	late     time.Duration  // … but the effect comes so much later, when the caller has its error already
	soft     bool

	token  fenceToken // of its fence
	fenced []string   // the tags that it fences
	must   bool       // it has to have a fence, unless Redis or its process fails
	began  simTroubles
}

// simTroubles counts what may keep a writer from its fence, or take it away.
type simTroubles struct{ failed, died, forgot int }

func (s *simulation) troublesLocked() simTroubles { return simTroubles{s.failed, s.died, s.forgot} }

type simWriteKey struct{}

// A simReadKey is the key in the context of what is done for a read.
type simReadKey struct{}

func writeOf(ctx context.Context) *simWrite {
	w, _ := ctx.Value(simWriteKey{}).(*simWrite)
	return w
}

type simConn struct {
	s       *simulation
	slot    int
	tx      *simWrite // what the open transaction has written
	within  bool
	inQuery atomic.Bool
}

func (c *simConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("nothing is prepared here")
}
func (c *simConn) Close() error { return nil }
func (c *simConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *simConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.within, c.tx = true, nil
	return simTx{c}, nil
}

type simTx struct{ c *simConn }

func (t simTx) Commit() error {
	w := t.c.tx
	t.c.within, t.c.tx = false, nil
	if w == nil {
		return nil
	}
	return t.c.s.commit(w)
}

func (t simTx) Rollback() error {
	t.c.within, t.c.tx = false, nil
	return nil
}

// commit makes new versions, at one moment of the time that the statement takes, or later.
func (s *simulation) commit(w *simWrite) error {
	s.trip()
	switch {
	case w.late > 0:
		// Whether there will be a fence shows then; w is the writer's.
		later := *w
		time.AfterFunc(w.late, func() { s.takeEffect(&later) })
	case w.effect:
		s.takeEffect(w)
	}
	s.trip()
	return w.answer
}

// takeEffect is the moment of a commit. When the writer's fence is there, everybody has been told of it,
// whatever becomes of the writer.
func (s *simulation) takeEffect(w *simWrite) {
	fenced := s.fencedBy(w)
	s.mu.Lock()
	if w.must && !fenced && w.began == s.troublesLocked() {
		defer s.failf(w.keys[0], "a commit without a fence, though nothing has failed")
	}
	now := time.Now()
	for _, k := range w.keys {
		row := &s.rows[k]
		row.commits = append(row.commits, now)
		w.versions[k] = int64(len(row.commits))
		s.note(k, "version %d is committed, fenced: %v", w.versions[k], fenced)
		if fenced {
			s.fenced++
			row.redis = append(row.redis, simTold{version: w.versions[k], at: now})
		}
	}
	s.mu.Unlock()
}

// fencedBy says whether w's own fence is around all its tags. It may have been evicted.
func (s *simulation) fencedBy(w *simWrite) bool {
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tag := range w.fenced {
		if _, there := f.tagLocked(tag).fences[w.token]; !there {
			return false
		}
	}
	return len(w.fenced) > 0
}

func (s *simulation) trip() {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(simTrip)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (c *simConn) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	w := writeOf(ctx)
	if c.within {
		c.tx = w
		return driver.RowsAffected(1), nil
	}
	return driver.RowsAffected(1), c.s.commit(w)
}

func (c *simConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.inQuery.CompareAndSwap(false, true) {
		c.s.failf(-1, "a connection was used by two goroutines at once")
	}
	defer c.inQuery.Store(false)
	if strings.HasPrefix(query, "UPDATE") { // … RETURNING
		return &simRows{versions: []int64{-1}}, c.s.commit(writeOf(ctx))
	}
	key := int(args[0].Value.(int64))
	if c.within {
		// It sees what it has written itself, which nobody else may.
		v := c.s.version(key)
		if c.tx != nil && slices.Contains(c.tx.keys, key) {
			v = uncommitted
		}
		return &simRows{versions: []int64{v}}, nil
	}
	return c.s.load(ctx, c.slot, key)
}

const uncommitted = 1 << 40

func (s *simulation) version(key int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versionLocked(key)
}

// versionLocked is what a query reads now: of a replica, an older version.
func (s *simulation) versionLocked(key int) int64 {
	row := &s.rows[key]
	v := len(row.commits)
	if s.lag > 0 {
		as := time.Now().Add(-time.Duration(s.rng.Int64N(int64(s.lag))))
		for v > 0 && row.commits[v-1].After(as) {
			v--
		}
	}
	return int64(v)
}

// load reads the row at a random moment of a random time.
func (s *simulation) load(ctx context.Context, slot, key int) (driver.Rows, error) {
	s.mu.Lock()
	row := &s.rows[key]
	quiet := !s.messages && !s.crashes && !s.storeFaults && !s.dbFaults && s.lag == 0
	if d := time.Since(row.loaded); quiet && !s.writes && !row.loaded.IsZero() && d < simAgain {
		defer s.failf(key, "k%d was loaded again %v after it had been loaded", key, d)
	}
	since := row.written
	if row.asked[slot] < since {
		// What Redis answered is from before the write: a fence, or a stamp that has gone. Nobody can share the load.
		row.vain = since
	}
	if row.running == nil {
		row.running = make(map[int]int)
	}
	row.running[since]++
	if n := row.running[since]; n > 1 && quiet && (since == 0 || row.vain != since) && (s.spaced || !s.writes) && row.writing == 0 && !row.left && time.Since(row.forced) > 10*simLoadMax {
		defer s.failf(key, "%d loads of k%d at once, though nothing was written since they began", n, key)
	}
	d := time.Duration(s.rng.Int64N(int64(s.longest)))
	before := time.Duration(s.rng.Float64() * float64(d) * float64(s.rng.IntN(2)))
	s.note(key, "process %d loads k%d, which takes %v", slot, key, d)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		row.running[since]--
		s.mu.Unlock()
	}()
	if !sleepFor(ctx, before) {
		return nil, ctx.Err()
	}
	version := s.version(key)
	if !sleepFor(ctx, d-before) {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	err := s.dbErr
	odd := -1
	if s.dbFaults {
		odd = s.rng.IntN(60)
	}
	if err == nil {
		row.loaded = time.Now()
	}
	s.note(key, "process %d has loaded version %d of k%d, %v", slot, version, key, err)
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case odd == 0:
		panic(errSyntax)
	}
	return &simRows{versions: []int64{version}}, nil
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type simRows struct{ versions []int64 }

func (r *simRows) Columns() []string { return []string{"v"} }
func (r *simRows) Close() error      { return nil }
func (r *simRows) Next(dest []driver.Value) error {
	if len(r.versions) == 0 {
		return io.EOF
	}
	dest[0] = r.versions[0]
	r.versions = r.versions[1:]
	return nil
}

var errSyntax = errors.New("syntax error")

// errUnique is the database's certain no to a write.
var errUnique = simRefusal("23505")

type simRefusal string

func (e simRefusal) Error() string    { return "SQLSTATE " + string(e) }
func (e simRefusal) SQLState() string { return string(e) }

// The store.

// A simStore is a FakeStore behind a network.
type simStore struct {
	*FakeStore
	s    *simulation
	slot int
}

func (st *simStore) get(ctx context.Context, key string, tags []string) (*sharedEntry, error) {
	st.s.trip()
	defer st.s.trip()
	return st.FakeStore.get(ctx, key, tags)
}

func (st *simStore) obtain(ctx context.Context, key string, tags []string, ttl, life time.Duration) (lease, error) {
	st.s.trip()
	defer st.s.trip()
	if k, ok := ctx.Value(simReadKey{}).(int); ok {
		st.s.mu.Lock()
		st.s.rows[k].asked[st.slot] = st.s.rows[k].written
		st.s.mu.Unlock()
	}
	return st.FakeStore.obtain(ctx, key, tags, ttl, life)
}

func (st *simStore) put(ctx context.Context, l lease, e *sharedEntry) (putOutcome, error) {
	st.s.trip()
	defer st.s.trip()
	out, err := st.FakeStore.put(ctx, l, e)
	st.s.noteNow(-1, "process %d puts version %d: %v, %v", st.slot, valueOf(e.result), out, err)
	return out, err
}

// gone says that the process has died.
func (st *simStore) gone() bool {
	st.FakeStore.mu.Lock()
	defer st.FakeStore.mu.Unlock()
	return st.FakeStore.closed
}

// tells makes a call that a write makes. It may also have its effect and lose the answer.
func (st *simStore) tells(what string, tags []string, call func() error) error {
	s := st.s
	s.trip()
	defer s.trip()
	err := call()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.storeFaults && s.rng.IntN(20) == 0 {
		err = ErrFake
		s.failed++
	}
	s.note(-1, "process %d tells Redis: %s %v: %v", st.slot, what, tags, err)
	return err
}

func (st *simStore) invalidate(ctx context.Context, tags []string) error {
	err := st.tells("invalidate", tags, func() error { return st.FakeStore.invalidate(ctx, tags) })
	if w := writeOf(ctx); w != nil {
		w.told = err == nil
	}
	return err
}

func (st *simStore) soften(ctx context.Context, tags []string) error {
	err := st.tells("soften", tags, func() error { return st.FakeStore.soften(ctx, tags) })
	if w := writeOf(ctx); w != nil {
		w.told = err == nil
	}
	return err
}

func (st *simStore) fence(ctx context.Context, tags []string, token fenceToken, life time.Duration) error {
	err := st.tells("fence", tags, func() error { return st.FakeStore.fence(ctx, tags, token, life) })
	if w := writeOf(ctx); w != nil {
		w.token, w.fenced = token, tags
	}
	return err
}

func (st *simStore) lift(ctx context.Context, tags []string, token fenceToken, wrote bool) error {
	err := st.tells(fmt.Sprintf("lift, wrote: %v,", wrote), tags, func() error { return st.FakeStore.lift(ctx, tags, token, wrote) })
	if w := writeOf(ctx); w != nil && wrote {
		w.told = err == nil
	}
	return err
}

// The processes.

func (s *simulation) spawn(slot int) {
	h, err := New(s.cfg)
	if err != nil {
		panic(err)
	}
	if s.amnesia { // New refuses it without Redis
		h.engine.mem.close()
		h.engine.mem.cache = nil
	}
	p := &simProcess{h: h, slot: slot}
	s.mu.Lock()
	draws := rand.New(rand.NewPCG(s.seed, uint64(1000+s.died*simProcesses+slot)))
	s.mu.Unlock()
	var mu sync.Mutex
	h.engine.dice.float = func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return draws.Float64()
	}
	p.store = &simStore{s.fleet.Store(), s, slot}
	h.useStore(p.store)
	p.db = sql.OpenDB(h.Connector(simConnector{s, slot}, Identity("sim")))
	s.slots[slot].Store(p)
}

func (p *simProcess) close() error { return errors.Join(p.db.Close(), p.h.Close()) }

// crash ends a process, and starts another in its place. Without warning, its leases stay behind and nobody is told
// of its writes any more.
func (s *simulation) crash(rng *rand.Rand) {
	slot := rng.IntN(simProcesses)
	p := s.slots[slot].Load()
	sudden := rng.IntN(2) == 0
	s.mu.Lock()
	if sudden {
		_ = p.store.FakeStore.close()
	}
	s.died++
	s.note(-1, "process %d dies, suddenly: %v", slot, sudden)
	s.mu.Unlock()
	s.spawn(slot)
	if err := p.close(); err != nil {
		s.failf(-1, "closing: %v", err)
	}
}

// simTable is the table of a key, simQuery what reads it.
func simTable(key int) string { return string(rune('a' + key%2)) }

var simQuery = func() (q [simKeys]string) {
	for k := range q {
		q[k] = "SELECT /* @cache tags=row/{1} */ v FROM " + simTable(k) + " WHERE id = $1"
	}
	return q
}()

// A simFloor is the version below which rows must not be: those that are called fresh, and those that are
// called stale, to which a soft invalidation does nothing.
type simFloor struct{ fresh, stale int64 }

// and raises f to what list has said until at.
func (f simFloor) and(list []simTold, at time.Time) simFloor {
	for _, t := range list {
		if t.at.After(at) {
			continue
		}
		f.fresh = max(f.fresh, t.version)
		if !t.soft {
			f.stale = max(f.stale, t.version)
		}
	}
	return f
}

// floor is what a read of key which begins now in p must not be below: always, and when Redis stays well.
//
//	written or heard of by this process            at once
//	told to Redis, message on its way or lost      Local.TTL after that, while Redis is well
//	committed behind a fence                       Local.TTL after that, though the writer be dead or without an answer
//	… and read from a replica                      its lag later, and a load that began before may be joined
//
// After a soft invalidation all that is true of rows that are called fresh. For who allows no stale rows, no others are.
func (s *simulation) floor(p *simProcess, key int, now time.Time) (always, well simFloor) {
	row := &s.rows[key]
	if s.lag > 0 {
		now = now.Add(-s.lag - s.longest)
	}
	always = always.and(row.seen[p.slot], now).and(p.own[key], now)
	if s.faults > 0 || p.h.engine.epochs.pending.Load() > 0 || !s.well.IsZero() && now.Sub(s.well) <= s.trust() {
		return always, always
	}
	return always, always.and(row.redis, now.Add(-s.trust()-time.Nanosecond))
}

// staleAllowed says whether anybody is to be served stale rows while they are refreshed.
func (s *simulation) staleAllowed() bool { return s.cfg.Default.SWR > 0 && !s.cfg.LoadOnCallerConn }

func (s *simulation) trust() time.Duration {
	if s.amnesia {
		return 0
	}
	return s.cfg.Local.TTL
}

func (s *simulation) read(ctx context.Context, rng *rand.Rand, slot int) {
	key := rng.IntN(simKeys)
	faulty := s.messages || s.crashes || s.storeFaults
	// Where loads are counted nobody leaves: after vainMax loads that were abandoned, a waiter loads without the lease.
	if faulty && rng.IntN(8) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 1+time.Duration(rng.Int64N(int64(300*time.Millisecond))))
		defer cancel()
	}
	_, _ = s.readKey(ctx, slot, key, s.writes && rng.IntN(60) == 0) // readKey reports what is wrong
}

// readKey reads one key and holds the rows against what was committed. It returns how that ended.
func (s *simulation) readKey(ctx context.Context, slot, key int, force bool) (Outcome, error) {
	p := s.slots[slot].Load()
	ctx = context.WithValue(ctx, simReadKey{}, key)
	if force {
		ctx = Refresh(ctx)
	}
	began := time.Now()
	s.mu.Lock()
	always, floors := s.floor(p, key, began)
	died, failed := s.died, s.failed
	if force {
		s.rows[key].forced = began
	}
	s.mu.Unlock()

	var info Info
	var v int64
	err := p.db.QueryRowContext(WithInfo(ctx, &info), simQuery[key], int64(key)).Scan(&v)

	took := time.Since(began)
	s.mu.Lock()
	if s.failed != failed {
		floors = always // Redis has failed meanwhile
	}
	floor := floors.fresh
	if info.Outcome == Stale && s.staleAllowed() || info.Outcome == StaleError {
		floor = floors.stale
	}
	s.reads++
	if floor > 0 {
		s.checked++
	}
	died = s.died - died
	dbBad := s.dbErr != nil || !s.dbWell.IsZero() && began.Sub(s.dbWell) < backoffMax+s.longest
	var age time.Duration
	row := &s.rows[key]
	if err == nil && v >= 0 && v < int64(len(row.commits)) {
		age = began.Sub(row.commits[v])
	}
	last := int64(len(row.commits))
	late := time.Duration(0)
	if err == nil && info.Outcome == Stale {
		late = s.outdatedLocked(p, key, v, floors.fresh, began)
	}
	s.note(key, "process %d read version %d of k%d: %v after %v, at least %d, %v", slot, v, key, info.Outcome, took, floor, err)
	s.mu.Unlock()

	// A load of its own, those it may wait for in vain, and a lease for each holder that died.
	most := time.Duration(1+died)*(simLease+s.longest) + vainMax*s.longest + 4*simSlack
	if s.messages || s.storeFaults {
		most += 3 * (s.longest + pollMax) // who does not hear that it waits in vain does not count it
	}
	if took > most && !force {
		s.failf(key, "a read of k%d in process %d took %v with %d deaths, %v, %v; want %v at most", key, slot, took, died, info.Outcome, err, most)
	}
	switch {
	case (errors.Is(err, ErrClosed) || err != nil && strings.Contains(err.Error(), "database is closed")) && s.crashes:
		return info.Outcome, err
	case err != nil && ctx.Err() != nil:
		return info.Outcome, err
	case err != nil && dbBad, errors.Is(err, errSyntax) && s.dbFaults:
		return info.Outcome, err
	case err != nil:
		s.failf(key, "a read of k%d failed: %v", key, err)
		return info.Outcome, err
	}
	if most := 3*s.longest + simLease + 4*simSlack; late > most {
		s.failf(key, "k%d in process %d: rows from before a soft invalidation are served for %v; want %v at most", key, slot, late, most)
	}
	if v < floor || v > last {
		s.failf(key, "k%d in process %d (%v, after %v) has version %d of %d, and %d was written before the read began at %v",
			key, slot, info.Outcome, took, v, last, floor, began.Sub(start2000))
	}
	most = s.cfg.Default.TTL + max(s.cfg.Default.SWR, 0) + s.longest + s.lag + simSlack
	if info.Outcome == StaleError {
		most += max(s.cfg.Default.SIE, 0)
	}
	if age > most {
		s.failf(key, "k%d in process %d: %v with rows of age %v; want %v at most", key, slot, info.Outcome, age, most)
	}
	return info.Outcome, nil
}

// outdatedLocked returns for how long this process has known that its rows of version v, which are from before a soft
// invalidation if they are below fresh, are to be refreshed. Where nothing breaks that has its bound. Then the first
// reader who is served them starts the refresh, which may have to wait for a load that began before.
func (s *simulation) outdatedLocked(p *simProcess, key int, v, fresh int64, began time.Time) time.Duration {
	if v >= fresh {
		return 0
	}
	s.served++
	since := &p.outdated[key]
	if v >= since.version {
		*since = simTold{version: fresh, at: began}
	}
	if s.messages || s.crashes || s.storeFaults || s.dbFaults || s.lag > 0 {
		return 0
	}
	return began.Sub(since.at)
}

// write changes one row, a table or everything, in one of the ways in which applications do, and holds the fleet to
// what has become of it.
func (s *simulation) write(rng *rand.Rand, slot int) {
	p := s.slots[slot].Load()
	key := rng.IntN(simKeys)
	w := &simWrite{keys: []int{key}, effect: true}
	text := "UPDATE /* @invalidate tables=none tags=row/{1} */ " + simTable(key) + " SET v = v + 1 WHERE id = $1"
	everything := false
	switch rng.IntN(8) {
	case 0:
		w.keys, everything = []int{0, 1, 2}, true
	case 1, 2, 3:
		w.keys = nil
		for k := range simKeys {
			if k%2 == key%2 {
				w.keys = append(w.keys, k)
			}
		}
		text = "UPDATE " + simTable(key) + " SET v = v + 1 WHERE $1 IS NOT NULL"
	}
	switch rng.IntN(12) {
	case 0, 1: // nobody can tell whether it has happened
		w.answer = fmt.Errorf("read: %w", syscall.ECONNRESET)
		w.effect = rng.IntN(2) == 0
		if w.effect && rng.IntN(3) == 0 {
			w.late = 1 + time.Duration(rng.Int64N(int64(time.Second)))
		}
	case 2:
		w.answer, w.effect = errUnique, false
	}
	hard := text
	if w.soft = rng.IntN(4) == 0; w.soft {
		text = strings.Replace(text, "@invalidate tables", "@invalidate soft tables", 1)
		text = strings.Replace(text, "UPDATE "+simTable(key), "UPDATE /* @invalidate soft */ "+simTable(key), 1)
	}
	how, pause := rng.IntN(5), time.Duration(rng.IntN(20))*time.Millisecond
	texts := []string{text}
	if w.soft && how == 4 && !everything && rng.IntN(2) == 0 { // hard wins
		texts, w.soft = []string{text, hard}, false
		if rng.IntN(2) == 0 {
			slices.Reverse(texts)
		}
	}
	ctx := context.WithValue(s.t.Context(), simWriteKey{}, w)

	s.mu.Lock()
	s.note(key, "process %d writes %v in way %d, everything %v, soft %v, answer %v, late %v", slot, w.keys, how, everything, w.soft, w.answer, w.late)
	changes, deaf := s.changes, s.dropping || s.delaying
	w.began = s.troublesLocked()
	w.must = s.cfg.Strict && !w.soft && !everything && s.faults == 0 && s.slots[slot].Load() == p && !p.store.gone() && (s.well.IsZero() || time.Now().After(s.well))
	for _, k := range w.keys {
		s.rows[k].writing++
	}
	s.mu.Unlock()

	err := s.writeSo(ctx, p, w, how, everything, texts, key, pause)

	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	deaf = deaf || changes != s.changes
	s.note(key, "process %d has written %v, told Redis: %v, %v", slot, w.versions, w.told, err)
	for _, k := range w.keys {
		row := &s.rows[k]
		row.writing--
		row.written++
		row.left = row.left || unsure(w.answer) && len(w.fenced) > 0
		v := w.versions[k]
		if v == 0 {
			continue
		}
		told := simTold{v, now, w.soft}
		p.own[k] = append(p.own[k], told)
		if !w.told {
			p.queued[k] = append(p.queued[k], told)
			continue
		}
		row.seen[slot] = append(row.seen[slot], told)
		row.redis = append(row.redis, told)
		for other := range simProcesses {
			if q := s.slots[other].Load(); !deaf && !q.down {
				row.seen[other] = append(row.seen[other], told)
			}
		}
	}
}

// writeSo runs the statements of a write.
func (s *simulation) writeSo(ctx context.Context, p *simProcess, w *simWrite, how int, everything bool, texts []string, key int, pause time.Duration) error {
	if everything {
		// By somebody whom nobody sees, and who says so.
		w.answer, w.late = nil, 0
		if err := s.commit(w); err != nil {
			return err
		}
		if w.soft {
			return p.h.InvalidateSoft(ctx, "row/0", "row/1", "row/2")
		}
		return p.h.InvalidateAll(ctx)
	}
	switch how {
	case 0, 1:
		_, err := p.db.ExecContext(ctx, texts[0], int64(key))
		return err
	case 2:
		rows, err := p.db.QueryContext(ctx, texts[0]+" RETURNING v", int64(key))
		if err != nil {
			return err
		}
		for rows.Next() {
			time.Sleep(pause)
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if _, err := tx.ExecContext(ctx, text, int64(key)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	var v int64
	if err := tx.QueryRowContext(ctx, simQuery[key], int64(key)).Scan(&v); err != nil || v != uncommitted {
		s.failf(key, "a transaction does not see what it has written: %d, %v", v, err)
	}
	time.Sleep(pause)
	if how == 3 {
		w.effect = false
		return tx.Rollback()
	}
	return tx.Commit()
}

// retried looks which writes Redis has been told of in the end.
func (s *simulation) retried() {
	for slot := range simProcesses {
		p := s.slots[slot].Load()
		s.mu.Lock()
		queued := p.queued
		s.mu.Unlock()
		if p.h.pendingInvalidations() > 0 || p.h.closed.Load() {
			continue
		}
		s.mu.Lock()
		for k, list := range queued {
			for _, told := range list {
				told.at = time.Now()
				s.rows[k].redis = append(s.rows[k].redis, told)
			}
			p.queued[k] = p.queued[k][len(list):]
		}
		s.mu.Unlock()
	}
}

// chaos does one thing to the fleet; some things it takes back by itself.
func (s *simulation) chaos(rng *rand.Rand) {
	pause := func() { time.Sleep(time.Duration(rng.Int64N(int64(700 * time.Millisecond)))) }
	key := rng.IntN(simKeys)
	flag := func(what string, set func(on bool)) {
		s.mu.Lock()
		s.changes++
		s.note(-1, "%s: from now on", what)
		s.mu.Unlock()
		set(true)
		pause()
		set(false)
		s.mu.Lock()
		s.changes++
		s.note(-1, "%s: no more", what)
		s.mu.Unlock()
	}
	forget := func(what string, do func()) {
		s.mu.Lock()
		s.forgot++
		s.note(-1, "%s", what)
		s.mu.Unlock()
		do()
	}
	var can []func()
	if s.messages {
		tag := []string{tagEverything, tablePrefix + simTable(key), tagPrefix + "row/" + strconv.Itoa(key)}[rng.IntN(3)]
		keys := s.fleet.Keys()
		can = append(can,
			func() { forget("the stamp of "+tag+" is evicted", func() { s.fleet.EvictStamp(tag) }) },
			func() { forget("everything is flushed", s.fleet.Flush) },
			func() {
				flag("messages are lost", func(on bool) {
					s.mu.Lock()
					s.dropping = on
					s.mu.Unlock()
					s.fleet.DropMessages(on)
				})
			},
			func() {
				most := time.Duration(rng.IntN(300)) * time.Millisecond
				flag("messages are late", func(on bool) {
					d := time.Duration(0)
					if on {
						d = most
					}
					s.mu.Lock()
					s.delaying = on
					s.mu.Unlock()
					s.fleet.DelayMessages(d)
				})
			},
			func() {
				p := s.slots[rng.IntN(simProcesses)].Load()
				flag(fmt.Sprintf("process %d has no subscription", p.slot), func(on bool) {
					s.mu.Lock()
					p.down = on
					s.mu.Unlock()
					p.store.Subscription(!on)
				})
			})
		if len(keys) > 0 {
			k := keys[rng.IntN(len(keys))]
			can = append(can,
				func() { s.noteNow(-1, "an entry is evicted"); s.fleet.Evict(k) },
				func() { s.noteNow(-1, "a lease is evicted"); s.fleet.KillLease(k) })
		}
	}
	if s.crashes {
		can = append(can, func() { s.crash(rng) })
	}
	if s.storeFaults {
		bad := func(what string, set func(on bool)) {
			s.mu.Lock()
			s.faults++
			s.failed++
			s.note(-1, "Redis fails: %s", what)
			s.mu.Unlock()
			set(true)
			pause()
			set(false)
			// Calls under way may still fail.
			s.mu.Lock()
			s.faults--
			s.well = time.Now().Add(fakeTimeout + 2*simTrip)
			s.note(-1, "Redis is well")
			s.mu.Unlock()
		}
		op := []string{"", "get", "obtain", "renew", "put", "release", "invalidate", "fence", "lift", "soften"}[rng.IntN(10)]
		can = append(can,
			func() {
				bad(strconv.Quote(op), func(on bool) { s.fleet.SetErr(op, map[bool]error{true: ErrFake}[on]) })
			},
			func() {
				bad("it stalls", func(on bool) {
					if on {
						s.fleet.Block()
					} else {
						s.fleet.Unblock()
					}
				})
			})
	}
	if s.dbFaults {
		err := []error{errRefused, errSyntax}[rng.IntN(2)]
		can = append(can, func() {
			s.mu.Lock()
			s.dbErr = err
			s.note(-1, "the database fails: %v", err)
			s.mu.Unlock()
			pause()
			s.mu.Lock()
			s.dbErr, s.dbWell = nil, time.Now()
			s.note(-1, "the database is well")
			s.mu.Unlock()
		})
	}
	if len(can) > 0 {
		can[rng.IntN(len(can))]()
	}
}

// simulate runs the fleet of one seed. Its kind decides what happens to it:
//
//	0  reads alone: one load at a time, and none too early
//	1  and writes: one load for each, or reads from a replica that lags
//	2  and lost messages, evictions, FLUSHALL   3  and processes that die
//	4  and a store that fails and stalls        5  everything
func simulate(t *testing.T, seed uint64) *simulation {
	rng := func(id uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, id)) }
	draw := rng(0)
	pick := func(ds ...time.Duration) time.Duration { return ds[draw.IntN(len(ds))] }
	s := &simulation{t: t, seed: seed, fleet: NewFakeFleet(), rng: rng(1)}
	s.cfg = Config{
		Local: LocalConfig{TTL: pick(300*time.Millisecond, time.Second)},
		Default: Policy{
			TTL: time.Second, Lease: simLease, Wait: time.Minute,
			SWR:       pick(-1, time.Second, 3*time.Second),
			SIE:       pick(-1, 2*time.Second),
			Jitter:    []float64{-1, 0.2}[draw.IntN(2)],
			EarlyBeta: []float64{-1, 1}[draw.IntN(2)],
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	kind := seed % 6
	s.writes = kind >= 1
	s.messages = kind >= 2 && kind != 3
	s.crashes = kind == 3 || kind == 5
	s.storeFaults = kind >= 4
	s.dbFaults = draw.IntN(2) == 0 && kind >= 2
	s.cfg.LoadOnCallerConn, s.amnesia = draw.IntN(5) == 0, draw.IntN(5) == 0
	s.cfg.Strict = kind >= 1 && draw.IntN(3) == 0
	s.longest = simLoadMax
	if draw.IntN(4) == 0 && kind >= 1 {
		s.longest *= 4 // longer than memory is trusted
	}
	s.spaced = kind == 1 && draw.IntN(2) == 0
	if !s.spaced && kind == 1 && draw.IntN(2) == 0 {
		s.lag = 200 * time.Millisecond
		s.cfg.ReplicaLag = s.lag
	}
	for slot := range simProcesses {
		s.spawn(slot)
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	every := func(id uint64, most time.Duration, act func(*rand.Rand)) {
		r := rng(id)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(1 + time.Duration(r.Int64N(int64(most)))):
					act(r)
				}
			}
		})
	}
	for i := range 3 * simProcesses {
		every(uint64(100+i), 100*time.Millisecond, func(r *rand.Rand) { s.read(t.Context(), r, i%simProcesses) })
	}
	if s.writes {
		most := pick(100*time.Millisecond, time.Second, 3*time.Second)
		if s.spaced {
			every(200, 5*s.longest, func(r *rand.Rand) {
				s.write(r, r.IntN(simProcesses))
				time.Sleep(3 * s.longest)
			})
		}
		for slot := range simProcesses {
			if !s.spaced {
				every(uint64(200+slot), most, func(r *rand.Rand) { s.write(r, slot) })
			}
		}
		every(300, 20*time.Millisecond, func(*rand.Rand) { s.retried() })
	}
	for i := range 2 {
		every(uint64(400+i), 500*time.Millisecond, s.chaos)
	}
	time.Sleep(simLasts)
	close(stop)
	wg.Wait()
	time.Sleep(s.longest + LocalTTLDefault) // refreshes under way
	if s.cfg.Strict {
		s.afterFences()
		time.Sleep(s.longest + LocalTTLDefault) // and what that has started
	}
	for slot := range simProcesses {
		p := s.slots[slot].Load()
		g := p.h.engine
		if n := g.asks.Len() + g.loads.Len(); n > 0 {
			s.failf(-1, "process %d has %d flights at the end", slot, n)
		}
		if n := len(g.refreshing); n > 0 {
			s.failf(-1, "process %d has %d refreshes at the end", slot, n)
		}
		g.watch.mu.Lock()
		n := len(g.watch.m)
		g.watch.mu.Unlock()
		if n > 0 {
			s.failf(-1, "process %d watches %d keys at the end", slot, n)
		}
		if err := p.close(); err != nil {
			s.failf(-1, "closing: %v", err)
		}
	}
	return s
}

// afterFences waits until every fence has ended that nobody has lifted. Whoever had put it up, nobody is kept from
// caching any more, and nobody has rows from before what was committed behind it.
func (s *simulation) afterFences() {
	time.Sleep(fenceLife)
	s.retried()
	for key := range simKeys {
		for _, tag := range []string{tagEverything, tablePrefix + simTable(key), tagPrefix + "row/" + strconv.Itoa(key)} {
			if s.fleet.Fenced(tag) {
				s.failf(key, "%s is still fenced", tag)
			}
		}
		for slot := range simProcesses {
			if _, err := s.readKey(s.t.Context(), slot, key, false); err != nil {
				continue // a fault of the database
			}
			if out, err := s.readKey(s.t.Context(), slot, key, false); err != nil || out != Hit && out != Stale {
				s.failf(key, "k%d in process %d, after all fences: %v, %v", key, slot, out, err)
			}
		}
	}
}

// simSeeds is how many seeds `go test` runs; the test command runs 10,000. SQLHERD_SEEDS says otherwise, as a number or
// as from-to.
const simSeeds = 300

func seedsToRun(t *testing.T) (seeds []uint64) {
	if m := regexp.MustCompile(`seed=(\d+)`).FindStringSubmatch(flag.Lookup("test.run").Value.String()); m != nil {
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{n}
	}
	from, to := uint64(0), uint64(simSeeds)
	if env := os.Getenv("SQLHERD_SEEDS"); env != "" {
		if _, err := fmt.Sscanf(env, "%d-%d", &from, &to); err != nil {
			from = 0
			if to, err = strconv.ParseUint(env, 10, 64); err != nil {
				t.Fatalf("SQLHERD_SEEDS is %q: want a number, or from-to", env)
			}
		}
	}
	for seed := from; seed < to; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

func TestSimulation(t *testing.T) {
	var reads, checked, fenced, served atomic.Int64
	seeds := seedsToRun(t)
	t.Cleanup(func() { // after the last of them
		t.Logf("%d seeds, %d reads, of which %d came after a write that they had to see, and %d were served rows from before a soft one; %d versions were committed behind a fence",
			len(seeds), reads.Load(), checked.Load(), served.Load(), fenced.Load())
		if len(seeds) >= 100 && checked.Load() < reads.Load()/4 {
			t.Errorf("of %d reads only %d came after a write that they had to see", reads.Load(), checked.Load())
		}
		if len(seeds) >= 100 && (served.Load() == 0 || fenced.Load() == 0) {
			t.Errorf("%d reads were served rows from before a soft invalidation, %d versions were committed behind a fence", served.Load(), fenced.Load())
		}
	})
	for _, seed := range seeds {
		t.Run("seed="+strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := simulate(t, seed)
				reads.Add(int64(s.reads))
				checked.Add(int64(s.checked))
				fenced.Add(int64(s.fenced))
				served.Add(int64(s.served))
				if len(seeds) == 1 && testing.Verbose() {
					t.Log("\n" + s.story(-1, 1<<20))
				}
			})
		})
	}
}
