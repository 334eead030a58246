package sqlherd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Invalidate forgets every result that depends on one of tags, here at once and in other
// processes as soon as they ask Redis or hear of it. It blocks for one round trip to Redis. When
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

// wrote invalidates what a statement or a transaction has written. The write has
// happened: that Redis cannot be told is no error of the statement.
func (h *Herd) wrote(ctx context.Context, e writeEffects) {
	if !e.any() {
		return
	}
	if err := h.invalidate(context.WithoutCancel(ctx), e); err != nil && !h.closed.Load() {
		h.invalLog.Do(func() {
			h.log.Warn("sqlherd: Redis could not be told of a write; trying again in the background", "error", err)
		})
	}
}

// wroteUnknown counts a statement that invalidates everything, and logs the first one.
func (h *Herd) wroteUnknown(p *plan) {
	h.counters.unknownWrites.Add(1)
	if !p.stmt.AllTables {
		return // it is for its hint's sake, which malformed logs
	}
	h.unknownLog.Do(func() {
		h.log.Info("sqlherd: a statement invalidates everything, since it is not known what it writes; @invalidate tells",
			"query", p.name, "word", p.stmt.Word)
	})
}

// invalidate moves the epochs here, and then gives the tags new stamps in Redis. Between the
// two the tags are pending: a reader here that took the old entry from
// Redis now, whose stamp is still the old one, would put it into memory under
// the new epoch, where it would survive the new stamp.
func (h *Herd) invalidate(ctx context.Context, e writeEffects) error {
	if !e.any() {
		return nil
	}
	g := h.engine
	tags := e.list()
	slots := g.epochs.slotsOf(tags)
	g.counters.invalidations.Add(uint64(len(tags)))
	if g.store == nil {
		g.epochs.move(slots, g.now())
		g.observe.Invalidation(InvalidationEvent{Tags: tags})
		return nil
	}
	told := g.epochs.tell(slots) // first: nobody shall see the tags pending and nothing to wait for
	g.epochs.hold(slots)
	g.epochs.move(slots, g.now())
	err := g.store.invalidate(ctx, tags)
	if err != nil {
		h.retry.add(tags, slots)
	} else {
		h.retry.told(tags)
		g.epochs.free(slots)
	}
	told()
	g.observe.Invalidation(InvalidationEvent{Tags: tags, Err: err})
	return err
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
	tags   map[string]uint64  // to seq at the last add: a flush under way does not take a later one for told
	held   map[uint16]bool    // slots to free once all is told
	recent map[string]telling // what Redis was told of lately
	swept  int64              // when recent was last rid of what is old
	closed bool

	wake chan struct{} // capacity 1
	quit chan struct{}
	done sync.WaitGroup
}

func newRetryQueue(g *engine) *retryQueue {
	q := &retryQueue{
		g:      g,
		tags:   make(map[string]uint64),
		held:   make(map[uint16]bool),
		recent: make(map[string]telling),
		wake:   make(chan struct{}, 1),
		quit:   make(chan struct{}),
	}
	q.done.Go(q.run)
	return q
}

// add queues tags whose slots are held, and takes the holds over.
func (q *retryQueue) add(tags []string, slots []uint16) {
	q.mu.Lock()
	q.seq++
	for _, t := range tags {
		q.tags[t] = q.seq
	}
	q.holdLocked(slots)
	if len(q.tags) > retryTagsMax {
		q.tags = map[string]uint64{tagEverything: q.seq}
		all := q.g.epochs.slotsOf([]string{tagEverything})
		q.g.epochs.hold(all)
		q.holdLocked(all)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// told remembers that Redis knows of tags now.
func (q *retryQueue) told(tags []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.g.now()
	for _, t := range tags {
		q.recent[t] = telling{at: now}
	}
	q.sweepLocked(now)
}

// sweepLocked bounds what is remembered, by age and number.
func (q *retryQueue) sweepLocked(now int64) {
	if now-q.swept < int64(doubtAfter) && len(q.recent) <= retryTagsMax {
		return
	}
	q.swept = now
	maps.DeleteFunc(q.recent, func(_ string, t telling) bool { return now-t.at > int64(doubtAfter) })
	if len(q.recent) > retryTagsMax {
		q.recent = map[string]telling{tagEverything: {at: now}}
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
	var tags []string
	for t, last := range q.recent {
		if now-last.at <= int64(doubtAfter) && last.again < doubtMax {
			last.again++
			q.recent[t] = last
			tags = append(tags, t)
		}
	}
	q.mu.Unlock()
	if len(tags) == 0 {
		return
	}
	q.g.counters.invalidationRepeats.Add(uint64(len(tags)))
	slots := q.g.epochs.slotsOf(tags)
	q.g.epochs.hold(slots)
	q.add(tags, slots)
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
			}
		}
	}
}

// flush tells Redis of all that waits. It answers false when it could not.
func (q *retryQueue) flush() bool {
	q.mu.Lock()
	told := maps.Clone(q.tags)
	q.mu.Unlock()
	if len(told) == 0 {
		return true
	}
	tags := slices.Collect(maps.Keys(told))
	if err := q.g.store.invalidate(context.Background(), tags); err != nil {
		q.g.counters.invalidationRetries.Add(1)
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.g.now()
	for _, t := range tags {
		if _, again := q.recent[t]; !again {
			q.recent[t] = telling{at: now}
		}
	}
	q.sweepLocked(now)
	for t, seq := range told {
		if q.tags[t] == seq {
			delete(q.tags, t)
		}
	}
	if len(q.tags) > 0 {
		return false
	}
	q.g.epochs.free(slices.Collect(maps.Keys(q.held)))
	clear(q.held)
	return true
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
