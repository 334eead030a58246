package sqlherd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Invalidate forgets every result that depends on one of tags, in whatever scope and of whatever database of
// the namespace, here at once and in other processes as soon as they ask Redis or hear of it. A tag is taken as it is: where
// that of the hint has an argument, Tag puts the value in as the hint does. It blocks for one round trip to Redis. When
// Redis cannot be reached it returns the error, goes on trying in the background,
// and until it succeeds this process neither reads nor fills Redis for the tags.
func (h *Herd) Invalidate(ctx context.Context, tags ...string) error {
	e := writeEffects{}
	for _, t := range tags {
		if err := checkTag(t); err != nil {
			return fmt.Errorf("sqlherd: Invalidate: tag %q %w", shorten(t), err)
		}
		e.tags = append(e.tags, tagPrefix+t)
	}
	return h.invalidate(ctx, e)
}

// InvalidateTables is Invalidate for every result that reads one of tables. Names are
// without schema and their case does not count.
func (h *Herd) InvalidateTables(ctx context.Context, tables ...string) error {
	names := make([]string, len(tables))
	for i, t := range tables {
		if err := checkTable(t); err != nil {
			return fmt.Errorf("sqlherd: InvalidateTables: table %q %w", shorten(t), err)
		}
		names[i] = tableName(t)
	}
	return h.invalidate(ctx, writeEffects{tags: tableTags(names)})
}

// InvalidateAll is Invalidate for every result of the namespace. It costs the same, whatever is cached.
func (h *Herd) InvalidateAll(ctx context.Context) error {
	return h.invalidate(ctx, writeEffects{all: true})
}

// InvalidateSoft makes every result that depends on one of tags stale: who allows stale rows
// (swr) goes on being served them while one caller in the fleet refreshes, for no longer than the result's own
// swr lets it, and for everybody else the result is dead. It spares a hot key the wait of an invalidation, and gives up what
// that gives: a reader who comes after it may get the rows from before. Invalidate, before or after it, wins. It
// blocks, fails and is retried like Invalidate. In a statement, @invalidate soft does the same.
func (h *Herd) InvalidateSoft(ctx context.Context, tags ...string) error {
	e := writeEffects{}
	for _, t := range tags {
		if err := checkTag(t); err != nil {
			return fmt.Errorf("sqlherd: InvalidateSoft: tag %q %w", shorten(t), err)
		}
		e.soft = append(e.soft, tagPrefix+t)
	}
	return h.invalidate(ctx, e)
}

// settle is what follows a statement or a transaction that may have written e, has ended with outcome, and
// for which f was put up; nil is no fence.
//
//	written   outcome            the fence
//	nothing   any but unsure     lifted, and the stamps hold again
//	any       any but unsure     lifted, with new stamps
//	any       nobody answered    stays until it ends by itself
func (h *Herd) settle(ctx context.Context, e writeEffects, f *writeFence, outcome error) {
	ctx = context.WithoutCancel(ctx)
	if f != nil {
		switch {
		case unsure(outcome):
			f.leave(ctx)
			f = nil
		case !e.hard():
			f.lift(ctx)
			f = nil
		default:
			f.stop()
			e.add(writeEffects{tags: f.tags, all: slices.Contains(f.tags, tagEverything)})
		}
	}
	h.wroteBehind(ctx, e, f)
}

// wrote invalidates what was written. The write has happened: that Redis cannot be told is no error of
// the statement.
func (h *Herd) wrote(ctx context.Context, e writeEffects) {
	h.wroteBehind(context.WithoutCancel(ctx), e, nil)
}

func (h *Herd) wroteBehind(ctx context.Context, e writeEffects, f *writeFence) {
	if !e.any() {
		return
	}
	_ = h.invalidateBehind(ctx, e, f) // it is queued, logged and counted
}

// unknownNamesMax bounds how many statements that invalidate everything are logged: a text into which values are put
// is another statement each time.
const unknownNamesMax = 100

// wroteUnknown counts a statement that invalidates everything, and logs each once: the operator who sees the cache
// being emptied all day has to find every one that does it.
func (h *Herd) wroteUnknown(p *plan) {
	h.counters.unknownWrites.Add(1)
	if !p.stmt.AllTables {
		return // it is for its hint's sake, which malformed logs
	}
	h.mu.Lock()
	known := h.unknownNames[p.name] || len(h.unknownNames) >= unknownNamesMax
	if !known {
		h.unknownNames[p.name] = true
	}
	h.mu.Unlock()
	if !known {
		h.log.Warn("sqlherd: a statement invalidates everything, since it is not known what it writes; say so beside it: @invalidate tables=…, or tables=none",
			"query", p.name, "word", p.stmt.Word)
	}
}

func (h *Herd) invalidate(ctx context.Context, e writeEffects) error {
	return h.invalidateBehind(ctx, e, nil)
}

// invalidateBehind moves the epochs here, and then gives the tags new stamps in Redis, where it lifts f, if it is not nil.
// Between the two the tags are pending: a reader here that took the old entry from
// Redis now, whose stamp is still the old one, would put it into memory under
// the new epoch, where it would survive the new stamp.
func (h *Herd) invalidateBehind(ctx context.Context, e writeEffects, f *writeFence) error {
	g := h.engine
	var err error
	if tags := e.list(); len(tags) > 0 {
		g.counters.invalidations.Add(uint64(len(tags)))
		err = h.tell(tags, false, g.epochs.move, func() error {
			if f != nil {
				return g.store.lift(ctx, tags, f.token, true)
			}
			return g.store.invalidate(ctx, tags)
		})
	}
	if soft := e.softList(); len(soft) > 0 {
		g.counters.soft.Add(uint64(len(soft)))
		err = errors.Join(err, h.tell(soft, true, g.epochs.soften, func() error { return g.store.soften(ctx, soft) }))
	}
	return err
}

// tell invalidates tags here, and then there.
func (h *Herd) tell(tags []string, soft bool, here func(slots []uint16, now int64), there func() error) (err error) {
	g := h.engine
	slots := g.epochs.slotsOf(tags)
	if g.store == nil {
		here(slots, g.now())
	} else {
		told := g.epochs.tell(slots) // first: nobody shall see the tags pending and nothing to wait for
		g.epochs.hold(slots)
		here(slots, g.now())
		err = there()
		left := untoldOf(tags, err)
		if len(left) > 0 {
			h.retry.add(left, soft, g.epochs.slotsOf(left), func() {}, err)
		}
		if ok := without(tags, left); len(ok) > 0 {
			h.retry.told(ok, soft)
			g.epochs.free(g.epochs.slotsOf(ok))
		}
		told()
	}
	g.observe.Invalidation(InvalidationEvent{Tags: tags, Soft: soft, Err: err})
	return err
}

// without returns what is in all and not in some.
func without(all, some []string) []string {
	if len(some) == 0 {
		return all
	}
	gone := make(map[string]bool, len(some))
	for _, v := range some {
		gone[v] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool { return gone[v] })
}

// retryTagsMax bounds the invalidations that wait for Redis one by one; above it
// they become one of everything.
const retryTagsMax = 10_000

// doubtAfter is how long an invalidation that Redis was told of is remembered. Replication of Redis is
// asynchronous: a replica that becomes the primary may never have heard of the last writes, and brings back the stamps
// that they had replaced, with the entries that are valid under them. It is far longer than a replica that is fit to be
// promoted lags. Each is told at most doubtMax times more, so that a Redis in lasting trouble is not told of every write for ever.
const (
	doubtAfter = 10 * time.Second
	doubtMax   = 2
)

// An untold is an invalidation by what Redis is told.
type untold struct {
	tag  string
	soft bool
}

// A telling is an invalidation that Redis knows of, or did.
type telling struct {
	at    int64 // when it was told first, by the engine's clock
	again uint8 // how often it was told once more
}

// A retryQueue brings invalidations to Redis that it could not be told of, and those again that
// it may have forgotten.
type retryQueue struct {
	g *engine

	mu     sync.Mutex
	seq    uint64
	tags   map[untold]uint64  // to seq at the last add: a flush under way does not take a later one for told
	held   map[uint16]bool    // slots to free once all is told
	recent map[untold]telling // what Redis was told of lately
	swept  int64              // when recent was last rid of what is old
	after  []func()           // to be called when what waits now was tried
	paused bool               // the last try failed
	late   bool               // a write could not be told of when it happened, and that was logged
	lateAt int64              // since when
	closed bool

	wake chan struct{} // capacity 1
	back chan struct{} // capacity 1: Redis seems to answer again
	quit chan struct{}
	done sync.WaitGroup
}

func newRetryQueue(g *engine) *retryQueue {
	q := &retryQueue{
		g:      g,
		tags:   make(map[untold]uint64),
		held:   make(map[uint16]bool),
		recent: make(map[untold]telling),
		wake:   make(chan struct{}, 1),
		back:   make(chan struct{}, 1),
		quit:   make(chan struct{}),
	}
	q.done.Go(q.run)
	return q
}

// add queues tags whose slots are held, and takes the holds over. tried is called when Redis was told of them, or that
// was tried in vain. why is the error because of which they wait, nil where they are only told once more. The
// first one that waits is logged, and when none does any more: until then other processes may serve rows from before.
func (q *retryQueue) add(tags []string, soft bool, slots []uint16, tried func(), why error) {
	q.mu.Lock()
	begins := why != nil && !q.late && !q.closed
	if begins {
		q.late, q.lateAt = true, q.g.now()
	}
	q.seq++
	q.after = append(q.after, tried)
	for _, t := range tags {
		q.tags[untold{t, soft}] = q.seq
	}
	q.holdLocked(slots)
	if len(q.tags) > retryTagsMax {
		q.tags = map[untold]uint64{{tagEverything, false}: q.seq}
		all := q.g.epochs.slotsOf([]string{tagEverything})
		q.g.epochs.hold(all)
		q.holdLocked(all)
	}
	q.mu.Unlock()
	if begins {
		q.g.log.Warn("sqlherd: Redis could not be told of a write; trying again in the background", "error", why)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// told remembers that Redis knows of tags now.
func (q *retryQueue) told(tags []string, soft bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.g.now()
	for _, t := range tags {
		q.recent[untold{t, soft}] = telling{at: now}
	}
	q.sweepLocked(now)
}

// sweepLocked bounds what is remembered, by age and number.
func (q *retryQueue) sweepLocked(now int64) {
	if now-q.swept < int64(doubtAfter) && len(q.recent) <= retryTagsMax {
		return
	}
	q.swept = now
	maps.DeleteFunc(q.recent, func(_ untold, t telling) bool { return now-t.at > int64(doubtAfter) })
	if len(q.recent) > retryTagsMax {
		q.recent = map[untold]telling{{tagEverything, false}: {at: now}}
	}
}

// doubt tells Redis once more of what it was told lately, because its connections have failed, as they do in a
// failover. Until Redis knows, this process loads from the database what it has written lately. It does not block.
func (q *retryQueue) doubt() {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	now := q.g.now()
	var again []untold
	for t, last := range q.recent {
		if now-last.at <= int64(doubtAfter) && last.again < doubtMax {
			last.again++
			q.recent[t] = last
			again = append(again, t)
		}
	}
	paused := q.paused
	q.mu.Unlock()
	q.g.counters.invalidationRepeats.Add(uint64(len(again)))
	for soft, tags := range bySoftness(again) {
		slots := q.g.epochs.slotsOf(tags)
		told := func() {}
		if !paused {
			// Readers wait for the try: what memory has is newer than these writes, and perhaps older than
			// others, of which the subscription that was lost would have told.
			told = q.g.epochs.tell(slots)
		}
		q.g.epochs.hold(slots)
		q.add(tags, soft, slots, told, nil)
	}
}

// bySoftness yields the tags of the hard invalidations, and then those of the soft ones.
func bySoftness(all []untold) iter.Seq2[bool, []string] {
	return func(yield func(bool, []string) bool) {
		for _, soft := range []bool{false, true} {
			var tags []string
			for _, t := range all {
				if t.soft == soft {
					tags = append(tags, t.tag)
				}
			}
			if len(tags) > 0 && !yield(soft, tags) {
				return
			}
		}
	}
}

// holdLocked takes over one hold of each slot.
func (q *retryQueue) holdLocked(slots []uint16) {
	for _, s := range slots {
		if q.held[s] {
			q.g.epochs.free([]uint16{s})
		}
		q.held[s] = true
	}
}

func (q *retryQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tags)
}

const (
	retryPauseMin = 100 * time.Millisecond
	retryPauseMax = 5 * time.Second
)

func (q *retryQueue) run() {
	for {
		select {
		case <-q.quit:
			return
		case <-q.wake:
		}
		for pause := retryPauseMin; !q.flush(); pause = min(2*pause, retryPauseMax) {
			t := time.NewTimer(q.g.dice.halfToWhole(pause))
			select {
			case <-q.quit:
				t.Stop()
				return
			case <-t.C:
			case <-q.back:
				t.Stop()
				pause = retryPauseMin / 2
			}
		}
	}
}

// hurry ends the pause, which has become long when Redis was away for long: until it is told, other
// processes serve what it has from before. The breaker may take a moment more, so the pauses begin anew.
func (q *retryQueue) hurry() {
	select {
	case q.back <- struct{}{}:
	default:
	}
}

// flush tells Redis of all that waits. It answers false when it could not.
func (q *retryQueue) flush() bool {
	q.mu.Lock()
	wait, after := maps.Clone(q.tags), q.after
	q.after = nil
	q.mu.Unlock()
	left := q.tell(wait)
	q.mu.Lock()
	q.paused = len(left) > 0
	for _, t := range left {
		delete(wait, t)
	}
	q.wellLocked(wait)
	ends := q.late && len(q.tags) == 0
	away := time.Duration(q.g.now() - q.lateAt)
	if ends {
		q.late = false
	}
	q.mu.Unlock()
	if ends {
		q.g.log.Info("sqlherd: Redis has been told of every write that waited", "after", away)
	}
	for _, f := range after {
		f()
	}
	return len(left) == 0
}

// tell tells Redis of what was untold, and returns what still is.
func (q *retryQueue) tell(what map[untold]uint64) (left []untold) {
	for soft, tags := range bySoftness(slices.Collect(maps.Keys(what))) {
		tell := q.g.store.invalidate
		if soft {
			tell = q.g.store.soften
		}
		err := tell(context.Background(), tags)
		if err != nil {
			q.g.counters.invalidationRetries.Add(1)
		}
		for _, t := range untoldOf(tags, err) {
			left = append(left, untold{t, soft})
		}
	}
	return left
}

// wellLocked takes what Redis was told of out of the queue.
func (q *retryQueue) wellLocked(told map[untold]uint64) {
	if len(told) == 0 && len(q.tags) > 0 {
		return
	}
	now := q.g.now()
	for t, seq := range told {
		if _, again := q.recent[t]; !again {
			q.recent[t] = telling{at: now}
		}
		if q.tags[t] == seq {
			delete(q.tags, t)
		}
	}
	q.sweepLocked(now)
	wanted := make(map[uint16]bool, len(q.held))
	for t := range q.tags {
		for _, s := range q.g.epochs.slotsOf([]string{t.tag}) {
			wanted[s] = true
		}
	}
	for s := range q.held {
		if !wanted[s] {
			q.g.epochs.free([]uint16{s})
			delete(q.held, s)
		}
	}
}

// close tries once more, since Redis may be back and the pause long, and gives up what it cannot tell; it
// answers how much that is.
func (q *retryQueue) close() int {
	q.mu.Lock()
	closed := q.closed
	q.closed = true
	q.mu.Unlock()
	if !closed {
		close(q.quit)
	}
	q.done.Wait()
	if !closed {
		q.flush()
	}
	return q.len()
}

// cachesTable says whether results that read the table, named as a tag, may be cached at all.
func (h *Herd) cachesTable(tag string) bool {
	return len(h.tables) == 0 || h.tables[strings.TrimPrefix(tag, tablePrefix)]
}
