package sqlherd

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlherd/sqlherd/internal/flight"
	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// The engine decides, for one key at a time, whether rows are fresh, stale or dead, who
// loads them and who waits. It knows no SQL: a request carries a function that
// loads. Stale-while-revalidate and stale-if-error follow RFC 5861, early
// refresh follows XFetch (Vattani, Chierichetti, Lowenstein, VLDB 2015), and the lease of the fleet
// follows "Scaling Memcache at Facebook" (NSDI 2013).
type engine struct {
	cfg      *Config
	base     time.Time // of the clock
	epochs   *epochs
	mem      *memory
	store    sharedStore // nil without Redis
	doubt    func()      // tells the store once more of recent invalidations; nil without Redis
	back     func()      // tells it of what waits, since it seems to answer again; nil without Redis
	asks     flight.Group[asked]
	loads    flight.Group[landing]
	watch    watchers
	unfit    *unfitKeys
	failures *failingKeys
	counters *counters
	observe  Observer
	log      *slog.Logger
	dice     dice

	// listening says that messages of other processes arrive. While they may be
	// lost, memory is not trusted without asking Redis.
	listening atomic.Bool

	// refreshing bounds the refreshes under way, to less than the loader pool has room
	// for: a load that somebody waits for shall not queue behind slow refreshes.
	refreshing chan struct{}
}

// A request is one caller's wish for the rows of a key.
type request struct {
	key   string
	tags  []string
	slots []uint16 // of tags
	pol   *Policy
	name  string

	// load asks the database. It is called in a goroutine of the engine's, with a
	// context that outlives the caller.
	load func(context.Context) (loadResult, error)

	// gone is closed when load cannot work any more, because its pool is closed.
	gone <-chan struct{}

	// force says that what is cached is not to be used, only replaced.
	force bool
	// noRefresh says that nothing can be loaded without a caller who waits.
	noRefresh bool
}

// A loadResult is what the database gave.
type loadResult struct {
	rows  *rowcodec.Result // complete and within the caps, or nil
	took  time.Duration
	unfit Reason  // why rows is nil
	live  *stream // the rows of an unfit result, for one caller
}

// A landing is the result of a flight.
type landing struct {
	e       *entry
	outcome Outcome // the leader's
	reason  Reason
	live    *stream
}

// An answer is what one caller gets.
type answer struct {
	rows    *rowcodec.Result // nil: run it yourself, because of reason
	live    *stream          // instead of rows
	outcome Outcome
	reason  Reason
	age     time.Duration
}

// A verdict is what a look at an entry of memory comes to.
type verdict uint8

const (
	verdictAsk          verdict = iota // memory cannot tell
	verdictHit                         // fresh
	verdictHitCompare                  // fresh, and this caller shall start a comparison with Redis
	verdictHitRefresh                  // fresh, and this caller shall start the early refresh
	verdictStale                       // stale
	verdictStaleRefresh                // stale, and this caller shall start the refresh
)

// now is the engine's clock: nanoseconds since it was made, by the monotonic clock.
func (g *engine) now() int64 { return int64(time.Since(g.base)) }

// judge looks at an entry of memory, and gives this caller the work that is due, if any. With look it is the whole
// of the hot path; neither takes a lock.
func (g *engine) judge(e *entry, now int64, pol *Policy, noRefresh bool) verdict {
	v, compare := g.look(e, now, noRefresh)
	switch v {
	case verdictStale:
		if e.claim(now, pol.Lease) {
			return verdictStaleRefresh
		}
	case verdictHit:
		if compare && claim(&e.work.comparing, now, g.cfg.RedisTimeout) {
			return verdictHitCompare
		}
		if !noRefresh && g.early(e, e.soft-now, pol.EarlyBeta) && e.claim(now, pol.Lease) {
			return verdictHitRefresh
		}
	}
	return v
}

// look says whether an entry of memory is fresh (verdictHit), stale (verdictStale) or
// of no use (verdictAsk). compare says that it should be compared with Redis soon.
func (g *engine) look(e *entry, now int64, noRefresh bool) (v verdict, compare bool) {
	if now >= e.hard || noRefresh && now >= e.soft {
		return verdictAsk, false
	}
	if g.store != nil {
		since, trust := now-e.checked.Load(), g.trust()
		if since >= trust {
			return verdictAsk, false
		}
		// In the last fifth somebody compares, so that a hot key never waits for it.
		compare = since >= trust-trust/5
	}
	if now >= e.soft {
		return verdictStale, compare
	}
	return verdictHit, compare
}

// usable is look without Redis: what memory may serve when Redis is away.
func usable(e *entry, now int64, noRefresh bool) bool {
	return now < e.soft || !noRefresh && now < e.hard
}

// early draws whether this reader refreshes an entry that has left before it is stale:
// with probability exp(−left/(β·Δ)), Δ being the load time. XFetch as published
// has no window; with thousands of readers a second somebody then draws it again and again
// long before the end, and a hot key is loaded several times per TTL. So the draw
// begins when one load time is left, and never before the last quarter.
func (g *engine) early(e *entry, left int64, beta float64) bool {
	window := beta * float64(e.loadTime)
	if float64(left) >= window || left >= (e.soft-e.stored)/4 {
		return false
	}
	return g.dice.Float64() < math.Exp(-float64(left)/window)
}

// trust is how long memory is believed since it was last compared with Redis.
func (g *engine) trust() int64 {
	if !g.listening.Load() {
		return 0
	}
	return int64(g.cfg.Local.TTL)
}

// claim lets one reader in to refresh for the time d.
func (e *entry) claim(now int64, d time.Duration) bool { return claim(&e.work.quiet, now, d) }

func claim(taken *atomic.Int64, now int64, d time.Duration) bool {
	until := taken.Load()
	return now >= until && taken.CompareAndSwap(until, now+int64(d))
}

// await gets the rows of r from whatever takes time: a flight under way, Redis, another process, the database.
func (g *engine) await(ctx context.Context, r *request) (answer, error) {
	for {
		mark := g.epochs.mark(r.slots)
		land, err := g.flight(ctx, r, mark)
		switch {
		case err == nil:
		case errors.Is(err, flight.ErrClosed):
			return answer{}, ErrClosed
		case errors.Is(err, errElsewhere):
			// Who led could not load, on a connection that is no longer its own. Lead ourselves.
			continue
		case errors.Is(err, errGone) && !isClosed(r.gone):
			// The leader's pool was closed, not ours.
			continue
		case errors.Is(err, errGone):
			return answer{}, ErrClosed
		default:
			return answer{}, err
		}
		a := answer{outcome: land.outcome, reason: land.reason}
		if land.e == nil {
			a.outcome = Bypassed
			if land.live != nil && land.live.claim() {
				a.live = land.live
			}
			return a, nil
		}
		now := g.now()
		a.rows, a.age = land.e.result, time.Duration(now-land.e.stored)
		if a.outcome == Stale && !r.noRefresh && land.e.claim(now, r.pol.Lease) {
			g.refresh(ctx, r, land.e)
		}
		return a, nil
	}
}

// The flights of a key are of two kinds. The first one asks memory and the store: that is short, and
// runs in the goroutine of who leads it. When that does not do, each caller joins or begins one of the second
// kind, which loads. A refresh is of the second kind: it may take as long as a load may, and who can be served
// stale rows meanwhile must not join it, so nobody does without having asked.
//
// A load that somebody waits for began because there was nothing to serve. Whoever comes while it runs
// joins it at once.

// flight is one caller's way through both.
func (g *engine) flight(ctx context.Context, r *request, mark uint64) (landing, error) {
	key, arrived := flightKey(r, mark), g.now()
	var doubted landing
	if land, joined, err := g.loads.Join(ctx, key); joined && !leadersOwn(err) {
		if err != nil || g.believes(land, arrived) {
			return shared(land), err
		}
		doubted = shared(land)
	}
	a, err := g.askSince(ctx, r, key, arrived, mark)
	if err != nil || !a.load {
		return a.land, err
	}
	if doubted.e != nil && !a.shared && g.epochs.mark(r.slots) == mark {
		// Redis is away: another load would be the herd. When the epochs have moved, it is a write of
		// our own that is on its way to Redis, and what a write elsewhere ended is not to be served for that.
		return doubted, nil
	}
	return g.load(ctx, r, key, arrived, mark, a)
}

// askSince asks, or joins who asks already. A look at Redis that began before this caller came may know nothing of a write
// elsewhere that had ended by then. While memory is believed that is within the bound of memory; else the caller looks
// again, and all who came meanwhile share that look.
func (g *engine) askSince(ctx context.Context, r *request, key string, arrived int64, mark uint64) (asked, error) {
	for {
		a, role, err := g.asks.DoHere(ctx, key, func(ctx context.Context) (asked, error) {
			return g.ask(ctx, r, mark, false)
		})
		mayServe := a.land.e != nil || a.old != nil
		if err != nil || role == flight.Leader || !a.shared || !mayServe || a.began >= arrived-g.memoryTrust() {
			return a, err
		}
	}
}

// memoryTrust is for how long what this process knows of the store is believed.
func (g *engine) memoryTrust() int64 {
	if g.mem.cache == nil {
		return 0
	}
	return g.trust()
}

// believes says whether a caller who arrived then may have what a load gave that had begun before. Another process
// may have written meanwhile. When its message has come, the load has another key; else the rows of the load count
// like those of memory, which are believed for a while. A load may take far longer than that.
func (g *engine) believes(land landing, arrived int64) bool {
	if g.store == nil || land.e == nil {
		return true
	}
	return land.e.checked.Load() >= arrived-g.memoryTrust()
}

// A lostConn is the error of a load that ran on the connection of its caller and lost it. The caller gets another
// one from database/sql; those who joined still have theirs.
type lostConn struct{ error }

func (e lostConn) Unwrap() error { return e.error }

// leadersOwn says that a load failed in a way that is no matter of those who joined: one of
// them leads the next. Besides a lostConn that is a refresh that left the work to another process,
// and a load that found its caller gone, who had the connection.
func leadersOwn(err error) bool {
	var lost lostConn
	return errors.Is(err, errElsewhere) || errors.As(err, &lost)
}

// shared is what a landing is for those who joined.
func shared(land landing) landing {
	if land.outcome == Miss {
		land.outcome = Shared
	}
	return land
}

// flightKey keeps apart, besides keys, what was asked before and after an invalidation here, and
// those who want a new load from those who take what there is.
func flightKey(r *request, mark uint64) string {
	b := make([]byte, 0, len(r.key)+9)
	b = append(b, r.key...)
	b = binary.BigEndian.AppendUint64(b, mark)
	force := byte('-')
	if r.force {
		force = 'f'
	}
	return string(append(b, force))
}

// asked is what memory and the store have said.
type asked struct {
	land landing
	load bool // nothing can be served: load

	// For the load.
	old    *entry // may be served when the database is unavailable
	shared bool   // the store can be asked, and was

	began int64 // when the look did
}

// ask is the work of a flight of the first kind. compare says that memory is not to be believed, because the point is to
// compare it with Redis.
func (g *engine) ask(ctx context.Context, r *request, mark uint64, compare bool) (asked, error) {
	now := g.now()
	began := now
	// Look again: a flight may have landed between the caller's look and this one.
	// A dead entry is kept in mind for stale-if-error.
	old := g.mem.get(r.key, now)
	if old != nil && !r.force && !compare {
		if v, _ := g.look(old, now, r.noRefresh); v != verdictAsk {
			return asked{land: g.served(old)}, nil
		}
	}

	shared := g.store != nil && g.epochs.settled(ctx, r.slots)
	if ctx.Err() != nil {
		return asked{}, ctx.Err()
	}
	switch {
	case r.force:
	case shared:
		e, err := g.fetch(ctx, r, mark)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				// The caller has left. That says nothing of Redis, and memory was not compared.
				return asked{}, ctx.Err()
			}
			shared = false
			if old != nil && usable(old, now, r.noRefresh) {
				// Redis is away. What memory has is within its TTL, and the alternative
				// is the herd.
				old.checked.Store(g.now())
				return asked{land: g.served(old)}, nil
			}
		case e != nil:
			if now = g.now(); usable(e, now, r.noRefresh) {
				return asked{land: g.served(e), shared: true, began: began}, nil
			}
			if now < e.dead {
				old = e
			}
		case old != nil:
			// Redis has it no more, perhaps because a write elsewhere whose message was
			// lost has made it invalid: nobody shall be served from memory meanwhile, nor
			// when the database turns out to be away.
			g.mem.drop(r.key, old)
			old = nil
		}
	case old != nil && g.store != nil && usable(old, now, r.noRefresh):
		// Pending, and Redis probably away: what memory has was read after the write that is
		// pending, or its epoch would be another. Without this every read would be a load.
		return asked{land: g.served(old)}, nil
	}
	return asked{load: true, old: old, shared: shared, began: began}, nil
}

// load gets the rows from a flight of the second kind, after memory and the store have said a.
func (g *engine) load(ctx context.Context, r *request, key string, arrived int64, mark uint64, a asked) (landing, error) {
	if f := g.failures.get(r.key, g.now()); f != nil {
		g.counters.backedOff.Add(1)
		return g.failed(r, a.old, f.err)
	}
	for {
		land, role, err := g.loads.Do(ctx, key, func(ctx context.Context) (landing, error) {
			land, err := g.obtainAndLoad(ctx, r, mark, a.shared)
			if err != nil {
				// Here, so that those who joined without having asked get the old rows too.
				return g.failed(r, a.old, err)
			}
			return land, nil
		})
		switch {
		case role == flight.Leader:
			return land, err
		case err == nil && a.shared && !g.believes(land, arrived):
			continue // the next one began after we arrived
		case err == nil:
			return shared(land), nil
		case ctx.Err() != nil:
			return landing{}, ctx.Err()
		case leadersOwn(err):
			continue
		}
		// It was perhaps a refresh, which has no old rows to give.
		return g.failed(r, a.old, err)
	}
}

// failed answers a load that failed with err: with old rows when they are in their sie window and the
// database is unavailable, else with err. old is nil, or was valid when the flight began.
func (g *engine) failed(r *request, old *entry, err error) (landing, error) {
	if old != nil && !r.force && g.now() < old.dead && classify(err) == classUnavailable {
		return landing{e: old, outcome: StaleError}, nil
	}
	return landing{}, err
}

// obtainAndLoad is the work of a flight that loads. shared says that the store can be asked.
func (g *engine) obtainAndLoad(ctx context.Context, r *request, mark uint64, shared bool) (landing, error) {
	if !r.force {
		// A refresh may have landed between the look of who leads and this one.
		now := g.now()
		if e := g.mem.get(r.key, now); e != nil {
			if v, _ := g.look(e, now, r.noRefresh); v != verdictAsk {
				return g.served(e), nil
			}
		}
	}
	var l lease
	reason := ReasonNone
	if shared {
		var e *entry
		var err error
		l, e, err = g.obtain(ctx, r, mark)
		switch {
		case e != nil:
			land := g.served(e)
			if land.outcome == Hit {
				land.outcome = Waited
			}
			return land, nil
		case errors.Is(err, errWaited):
			if r.pol.OnWaitTimeout == WaitError {
				return landing{}, ErrWaitTimeout
			}
			reason = ReasonWaitTimeout
		case err != nil:
			return landing{}, err
		case l.fenced:
			reason = ReasonFenced
		}
	}
	land, err := g.loadAndStore(ctx, r, mark, l)
	if err == nil && land.outcome == Miss {
		land.reason = reason
	}
	return land, err
}

// served is the landing of an entry that is not dead.
func (g *engine) served(e *entry) landing {
	if g.now() < e.soft {
		return landing{e: e, outcome: Hit}
	}
	return landing{e: e, outcome: Stale}
}

// fetch gets what the store has under r, and puts it into memory. It returns nil, and no error,
// when there is nothing. mark is from before.
func (g *engine) fetch(ctx context.Context, r *request, mark uint64) (*entry, error) {
	asked := g.now()
	seen := g.mem.get(r.key, asked)
	se, err := g.store.get(ctx, r.key, r.tags)
	if se == nil || err != nil {
		return nil, err
	}
	e := adopt(r, mark, se, asked)
	if seen != nil && !e.isNewer(seen) {
		// It is what memory has, seen anew: who refreshes it, and how often that failed, still holds.
		e.work = seen.work
	}
	g.mem.put(r.key, e, seen)
	return e, nil
}

// adopt makes an entry of memory from one of the store. asked is from before the store was asked: the
// entry may seem older than it is by the time of the reply, but not younger by that of a process
// that was stopped.
func adopt(r *request, mark uint64, se *sharedEntry, asked int64) *entry {
	e := &entry{
		result:   se.result,
		stored:   asked - int64(se.age),
		loadTime: se.loadTime,
		slots:    r.slots,
		mark:     mark,
		work:     new(work),
	}
	e.soft = e.stored + int64(se.soft)
	e.hard = e.stored + int64(se.hard)
	e.dead = e.hard + int64(se.sie)
	e.read = e.stored - int64(se.loadTime)
	if se.softened {
		e.soften()
	}
	e.checked.Store(asked)
	return e
}

// errWaited says that the holder of a lease did not come to an end in time.
var errWaited = errors.New("sqlherd: waited for another process in vain")

// pollMin and pollMax bound the pauses of a waiter that hears nothing.
const (
	pollMin = 10 * time.Millisecond
	pollMax = 150 * time.Millisecond
)

// vainMax bounds the loads of others that a waiter waits for and that leave nothing of use to it: they failed, or
// a write has ended their rows already. On a table that is written more often than the query
// takes, every waiter would have to load for itself, one after the other.
const vainMax = 2

// obtain gets the right to load, or the entry that another process has loaded
// meanwhile. It returns neither, and no error, when the store is away or it has waited in vain: then load without.
func (g *engine) obtain(ctx context.Context, r *request, mark uint64) (lease, *entry, error) {
	id := g.store.id(r.key)
	var timeout <-chan time.Time
	began := g.now()
	vain := 0
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		// Watch before asking, or the message may pass between the two.
		w := g.watch.add(id)
		l, err := g.store.obtain(ctx, r.key, r.tags, r.pol.Lease, g.life(r.pol))
		if err != nil {
			w.end()
			if cause := context.Cause(ctx); cause != nil {
				return lease{}, nil, cause
			}
			return lease{}, nil, nil
		}
		if l.fenced {
			// Nobody can use what anybody loads now but its own callers: there is nothing to wait for.
			w.end()
			return g.withoutLease(ctx, l), nil, nil
		}
		if l.won {
			w.end()
			g.counters.leasesWon.Add(1)
			if l.entryPresent && !r.force {
				// Somebody may have stored between our look and the lease.
				if e, err := g.fetch(ctx, r, mark); err == nil && e != nil && usable(e, g.now(), r.noRefresh) {
					g.release(ctx, l)
					return lease{}, e, nil
				}
			}
			g.observe.Lease(LeaseEvent{Name: r.name, Won: true, Waited: time.Duration(g.now() - began)})
			return l, nil, nil
		}

		g.counters.leasesLost.Add(1)
		if vain >= vainMax {
			w.end()
			g.counters.waitsInVain.Add(1)
			return lease{}, nil, nil
		}
		if timeout == nil {
			timer := time.NewTimer(r.pol.Wait)
			defer timer.Stop()
			timeout = timer.C
		}
		// Half to whole of the pause, so that waiters do not march in step; the end
		// of the holder's lease is a moment worth looking at.
		d := g.dice.halfToWhole(pause)
		if l.left > 0 {
			d = min(d, l.left+time.Millisecond)
		}
		poll := time.NewTimer(d)
		told := false
		select {
		case <-w.told:
			told = true
			pause = pollMin
		case <-poll.C:
		case <-timeout:
			poll.Stop()
			w.end()
			g.counters.waitTimeouts.Add(1)
			return lease{}, nil, errWaited
		case <-ctx.Done():
			poll.Stop()
			w.end()
			return lease{}, nil, context.Cause(ctx)
		}
		poll.Stop()
		w.end()
		if r.force {
			continue
		}
		e, err := g.fetch(ctx, r, mark)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return lease{}, nil, cause
			}
			return lease{}, nil, nil
		}
		if e != nil && usable(e, g.now(), r.noRefresh) {
			g.observe.Lease(LeaseEvent{Name: r.name, Waited: time.Duration(g.now() - began)})
			return lease{}, e, nil
		}
		if told {
			vain++
		}
	}
}

// life is how long an entry under pol can be of use, and so its tags' stamps must live at least.
func (g *engine) life(pol *Policy) time.Duration {
	return pol.TTL + pol.SWR + pol.SIE + g.cfg.LoadTimeout
}

// release gives a lease back, whatever has become of ctx.
func (g *engine) release(ctx context.Context, l lease) {
	if err := g.store.release(context.WithoutCancel(ctx), l); err != nil {
		g.counters.storeErrors.Add(1)
	}
	g.tellHere(l)
}

// withoutLease gives back what came with the news that a tag is fenced.
func (g *engine) withoutLease(ctx context.Context, l lease) lease {
	g.counters.fencedLoads.Add(1)
	if l.won {
		g.release(ctx, l)
	}
	return lease{fenced: true}
}

// tellHere tells the waiters of this process that a lease is free. The store's own messages do not come
// back; those who wait here began after an invalidation that the load has not seen, or want a load of their own.
func (g *engine) tellHere(l lease) { g.watch.tell(g.store.id(l.key)) }

// renew keeps a lease alive while the load runs. end stops it and waits for its goroutine. A load that
// goes on after LoadTimeout, because its driver ignores that, loses the lease: the fleet would wait for it for ever.
func (g *engine) renew(ctx context.Context, l lease, ttl time.Duration) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.LoadTimeout)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(ttl/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Whether it is still ours is found out by put; a failed renewal may be
			// followed by one that works.
			if ok, err := g.store.renew(ctx, l, ttl); err == nil && !ok {
				g.counters.leasesExpired.Add(1)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// loadAndStore asks the database, and gives what it says to memory and the store.
//
//	the load …            lease     stored  the caller gets
//	gives rows            released  yes     the rows
//	… of a fenced tag     none      no      the rows
//	gives unfit rows      released  no      the live rows; others run their own
//	gives rows of no life released  no      the rows
//	fails                 released  no      the error
func (g *engine) loadAndStore(ctx context.Context, r *request, mark uint64, l lease) (landing, error) {
	stopRenewing := func() {}
	if l.won {
		stopRenewing = g.renew(ctx, l, r.pol.Lease)
	}
	settled := false
	defer func() {
		// Also when the driver panics: nobody shall wait for our lease to run out.
		if !settled {
			stopRenewing()
			if l.won {
				g.release(ctx, l)
			}
		}
	}()

	began := g.now()
	g.counters.loads.Add(1)
	g.counters.loading.Add(1)
	res, err := g.loadCounted(ctx, r)
	ended := g.now()

	g.observe.Load(LoadEvent{Name: r.name, Took: time.Duration(ended - began), Err: err})
	if err != nil {
		return landing{}, g.loadFailed(ctx, r, err)
	}
	g.failures.clear(r.key)
	if res.unfit != ReasonNone {
		g.unfit.add(r.key, res.unfit, r.pol, ended)
		return landing{outcome: Bypassed, reason: res.unfit, live: res.live}, nil
	}

	e, se := newEntry(r, mark, ended, res, &g.dice)
	// An invalidation elsewhere since then, whose message was lost, has ended these rows.
	e.read = began
	e.checked.Store(began)
	if e.hard == e.stored {
		return landing{e: e, outcome: Miss}, nil
	}
	if lag := g.cfg.ReplicaLag; lag > 0 {
		if last := g.epochs.lastMove(r.slots); last != 0 && began < last+int64(lag) {
			// What was read may be from a replica that has not seen the write.
			g.counters.lagSkipped.Add(1)
			return landing{e: e, outcome: Miss}, nil
		}
	}
	if l.fenced {
		// A writer may commit at any moment, and die before anybody hears of it. Until then
		// memory keeps the herd off the database, for as long as it is trusted, and no longer if Redis is away.
		e.soft = min(e.soft, began+min(int64(g.cfg.Local.TTL), int64(LocalTTLDefault)))
		e.hard, e.dead = e.soft, e.soft
	}
	g.mem.put(r.key, e, nil)
	if l.won {
		settled = true
		stopRenewing()
		if g.epochs.isPending(r.slots) {
			g.release(ctx, l)
		} else {
			out, err := g.store.put(context.WithoutCancel(ctx), l, se)
			if err != nil {
				g.counters.storeErrors.Add(1)
			}
			g.tellHere(l)
			g.observe.Store(StoreEvent{Name: r.name, Outcome: out.String(), Err: err})
		}
	}
	return landing{e: e, outcome: Miss}, nil
}

// loadCounted keeps the gauge of running loads right when the driver panics.
func (g *engine) loadCounted(ctx context.Context, r *request) (loadResult, error) {
	defer g.counters.loading.Add(-1)
	res, err := r.load(ctx)
	return res, err
}

// loadFailed sorts a failed load, and returns the error to tell.
func (g *engine) loadFailed(ctx context.Context, r *request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		// Nobody waits any more, or we are closing: this says nothing of the database.
		return cause
	}
	if isClosed(r.gone) {
		return errGone
	}
	if leadersOwn(err) {
		return err // nor was it asked
	}
	g.counters.loadErrors.Add(1)
	if classify(err) == classUnavailable {
		g.failures.add(r.key, err, g.now())
	} else {
		g.failures.clear(r.key)
	}
	return err
}

// newEntry makes the entry of memory and of the store, with one draw of jitter for both, which only shortens.
func newEntry(r *request, mark uint64, now int64, res loadResult, draws *dice) (*entry, *sharedEntry) {
	soft, hard, sie := r.pol.TTL, r.pol.TTL+r.pol.SWR, r.pol.SIE
	if res.rows.NumRows() == 0 {
		// "Not there" is what a write most often changes, and nothing to fall back on.
		soft, hard, sie = r.pol.Empty, r.pol.Empty, 0
	}
	if j := r.pol.Jitter; j > 0 && soft > 0 {
		f := 1 - j*draws.Float64()
		soft = max(time.Duration(f*float64(soft)), time.Millisecond)
		hard = max(time.Duration(f*float64(hard)), soft)
	}
	e := &entry{
		result:   res.rows,
		stored:   now,
		soft:     now + int64(soft),
		hard:     now + int64(hard),
		dead:     now + int64(hard+sie),
		loadTime: res.took,
		slots:    r.slots,
		read:     now,
		mark:     mark,
		work:     new(work),
	}
	e.checked.Store(now)
	return e, &sharedEntry{result: res.rows, soft: soft, hard: hard, sie: sie, loadTime: res.took}
}

// errElsewhere is the end of a flight whose work is another's: a refresh that another process does, or a
// load on a connection whose caller has left.
var errElsewhere = errors.New("sqlherd: another loads")

// refresh replaces seen in the background, if there is room and nobody does already. The
// caller has claimed seen. It does not block.
func (g *engine) refresh(ctx context.Context, r *request, seen *entry) {
	select {
	case g.refreshing <- struct{}{}:
	default:
		g.counters.refreshesDropped.Add(1)
		g.observe.Refresh(RefreshEvent{Name: r.name, Outcome: RefreshDropped})
		seen.work.quiet.Store(0)
		return
	}
	mark := g.epochs.mark(r.slots)
	started := g.loads.Start(ctx, flightKey(r, mark), func(ctx context.Context) (landing, error) {
		defer func() { <-g.refreshing }()
		began := g.now()
		land, out, err := g.runRefresh(ctx, r, mark, seen)
		g.counters.refreshes[out].Add(1)
		g.observe.Refresh(RefreshEvent{Name: r.name, Outcome: out, Took: time.Duration(g.now() - began), Err: err})
		return land, err
	})
	if !started {
		<-g.refreshing
		// A load is under way. It takes the place of seen, or fails; then another hit tries.
		seen.work.quiet.Store(g.now() + int64(g.cfg.RedisTimeout))
	}
}

// refreshPauseMax bounds how long a failing refresh is left alone.
const refreshPauseMax = 5 * time.Second

func (g *engine) runRefresh(ctx context.Context, r *request, mark uint64, seen *entry) (land landing, out RefreshOutcome, err error) {
	out = RefreshFailed
	defer func() {
		// Also when the driver panics: a later hit tries again.
		if out == RefreshFailed {
			n := seen.work.failed.Add(1)
			pause := min(backoffMin<<min(n-1, 10), refreshPauseMax)
			seen.work.quiet.Store(g.now() + int64(g.dice.halfToWhole(pause)))
		}
	}()
	if f := g.failures.get(r.key, g.now()); f != nil {
		return landing{}, RefreshFailed, f.err
	}
	var l lease
	if g.store != nil && g.epochs.settled(ctx, r.slots) {
		var id = g.store.id(r.key)
		w := g.watch.add(id)
		got, oerr := g.store.obtain(ctx, r.key, r.tags, r.pol.Lease, g.life(r.pol))
		if oerr == nil && !got.won && !got.fenced {
			// Another process refreshes: take its rows when it says that they are
			// there, or look again when its lease is over.
			seen.work.quiet.Store(g.now() + int64(max(got.left, time.Millisecond)))
			w.then(got.left, func() { g.compare(context.WithoutCancel(ctx), r) })
			return landing{}, RefreshElsewhere, errElsewhere
		}
		w.end()
		switch {
		case oerr != nil:
		case got.fenced:
			l = g.withoutLease(ctx, got)
		default:
			l = got
			if l.entryPresent {
				if e, err := g.fetch(ctx, r, mark); err == nil && e != nil && e.isNewer(seen) && usable(e, g.now(), r.noRefresh) {
					g.release(ctx, l)
					return g.served(e), RefreshElsewhere, nil
				}
			}
		}
	}
	land, err = g.loadAndStore(ctx, r, mark, l)
	switch {
	case err != nil:
		return land, RefreshFailed, err
	case land.e == nil:
		if land.live != nil && land.live.claim() {
			land.live.discard()
		}
		return land, RefreshUnfit, nil
	}
	return land, RefreshDone, nil
}

// isNewer says whether e, of the store, is another than seen: its age tells, to within
// what a round trip and the store's clock can blur, which is far less than a quarter of a life.
func (e *entry) isNewer(seen *entry) bool {
	if seen.isSoftened() && !e.isSoftened() {
		return true
	}
	return e.stored > seen.stored+(seen.soft-seen.stored)/4 && e.stored > seen.stored+int64(10*time.Millisecond)
}

// compare asks the store in the background whether what memory has is still what the fleet has, and
// loads when the fleet has nothing. It does not block.
func (g *engine) compare(ctx context.Context, r *request) {
	mark := g.epochs.mark(r.slots)
	key := flightKey(r, mark)
	g.asks.Start(ctx, key, func(ctx context.Context) (asked, error) {
		a, err := g.ask(ctx, r, mark, true)
		// Loads of r run on the connection of a caller who waits, when refreshes are not possible, and
		// none does.
		if err == nil && a.load && !r.noRefresh && g.failures.get(r.key, g.now()) == nil {
			g.loads.Start(ctx, key, func(ctx context.Context) (landing, error) {
				return g.obtainAndLoad(ctx, r, mark, a.shared)
			})
		}
		return a, err
	})
}

// The engine hears of other processes from the store.

func (g *engine) storedElsewhere(id keyID)   { g.watch.tell(id) }
func (g *engine) releasedElsewhere(id keyID) { g.watch.tell(id) }

func (g *engine) invalidatedElsewhere(tags []string) {
	g.epochs.move(g.epochs.slotsOf(tags), g.now())
	g.counters.invalidationsHeard.Add(uint64(len(tags)))
}

// fencedElsewhere forgets what memory has: should the writer die after its commit, no other
// message will come.
func (g *engine) fencedElsewhere(tags []string) {
	g.epochs.move(g.epochs.slotsOf(tags), g.now())
	g.counters.fencesHeard.Add(uint64(len(tags)))
}

func (g *engine) softenedElsewhere(tags []string) {
	g.epochs.soften(g.epochs.slotsOf(tags), g.now())
	g.counters.softHeard.Add(uint64(len(tags)))
}

func (g *engine) subscribed(up bool) {
	g.listening.Store(up)
	g.doubted()
	if up && g.back != nil {
		g.back()
	}
}

func (g *engine) doubted() {
	if g.doubt != nil {
		g.doubt()
	}
}

// watchers are those who wait for a message about a key.
type watchers struct {
	mu sync.Mutex
	m  map[keyID]map[*watching]struct{}
}

type watching struct {
	ws   *watchers
	id   keyID
	told chan struct{} // capacity 1

	// Guarded by ws.mu.
	call  func()
	timer *time.Timer
}

func (ws *watchers) add(id keyID) *watching {
	w := &watching{ws: ws, id: id, told: make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.m == nil {
		ws.m = make(map[keyID]map[*watching]struct{})
	}
	if ws.m[id] == nil {
		ws.m[id] = make(map[*watching]struct{})
	}
	ws.m[id][w] = struct{}{}
	return w
}

func (w *watching) end() {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	w.endLocked()
}

func (w *watching) endLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	delete(w.ws.m[w.id], w)
	if len(w.ws.m[w.id]) == 0 {
		delete(w.ws.m, w.id)
	}
}

// then calls f at the next message, which may have come already, unless d passes first. It ends the watch
// itself. One such watch is enough for a key: without memory, every read of stale rows comes here. f must not block.
func (w *watching) then(d time.Duration, f func()) {
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	select {
	case <-w.told:
		w.endLocked()
		go f() // not under the lock; f only starts a flight
		return
	default:
	}
	for other := range w.ws.m[w.id] {
		if other.call != nil {
			w.endLocked()
			return
		}
	}
	w.call = f
	w.timer = time.AfterFunc(d, w.end)
}

func (ws *watchers) tell(id keyID) {
	var calls []func()
	ws.mu.Lock()
	for w := range ws.m[id] {
		if w.call != nil {
			calls = append(calls, w.call)
			w.endLocked()
			continue
		}
		select {
		case w.told <- struct{}{}:
		default:
		}
	}
	ws.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// close forgets the watches that nobody waits on.
func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, set := range ws.m {
		for w := range set {
			if w.call != nil {
				w.endLocked()
			}
		}
	}
}
