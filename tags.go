package sqlherd

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// A tag is a name that a write can invalidate. Inside, every tag carries its kind in
// front, so that the table "a" and the tag "a" are two.
const (
	tagEverything = "*" // every entry depends on it: InvalidateAll gives it a new stamp
	tagPrefix     = "g:"
	tablePrefix   = "t:"
)

// epochSlots bounds the memory that epochs take, however many row-level tags there are. Two tags
// in one slot cost a miss now and then, never a stale row.
const epochSlots = 1 << 14

// epochs count, in this process, the invalidations of every tag, hard and soft ones apart. An entry of memory
// remembers the sums over its tags from before its rows were read; any invalidation since
// makes a sum another, because the counts only grow.
//
// A pending tag is one whose invalidation Redis does not know yet: see invalidate.go.
type epochs struct {
	seed    maphash.Seed
	moves   atomic.Uint64 // of any slot; when it stands still, no entry has to be looked at
	slots   [epochSlots]atomic.Uint64
	softs   [epochSlots]atomic.Uint64
	pending atomic.Int64 // of any slot
	waits   [epochSlots]atomic.Int32
	movedAt [epochSlots]atomic.Int64 // the herd's clock at the last of either, for Config.ReplicaLag

	mu      sync.Mutex
	errands map[*errand]struct{} // under way; each ends within the time limit of a call
}

// An errand is a trip to Redis that ends in tags no longer being pending, unless it fails.
type errand struct {
	slots []uint16
	done  chan struct{}
}

func newEpochs() *epochs { return &epochs{seed: maphash.MakeSeed()} }

// slot returns where tag is counted.
func (e *epochs) slot(tag string) uint16 {
	return uint16(maphash.String(e.seed, tag) % epochSlots)
}

func (e *epochs) slotsOf(tags []string) []uint16 {
	slots := make([]uint16, len(tags))
	for i, t := range tags {
		slots[i] = e.slot(t)
	}
	return slots
}

// mark is what an entry remembers: take it before reading anything from which rows come. Its upper half is the sum of
// the hard counts, its lower half that of the soft ones. A half that has come round to the same
// value in an entry's life would have counted four thousand million invalidations of its tags.
func (e *epochs) mark(slots []uint16) uint64 {
	var hard, soft uint64
	for _, s := range slots {
		hard += e.slots[s].Load()
		soft += e.softs[s].Load()
	}
	return hard<<32 | soft&math.MaxUint32
}

// softOnly says that from one mark to another there were soft invalidations at most.
func softOnly(before, after uint64) bool { return before>>32 == after>>32 }

// soften makes what depends on the tags stale here.
func (e *epochs) soften(slots []uint16, now int64) {
	for _, s := range slots {
		e.movedAt[s].Store(now)
		e.softs[s].Add(1)
	}
	e.moves.Add(1) // last, as in move
}

// move invalidates the tags here.
func (e *epochs) move(slots []uint16, now int64) {
	for _, s := range slots {
		e.movedAt[s].Store(now)
		e.slots[s].Add(1)
	}
	// Last: who sees the old count of moves has not yet seen an entry that must go.
	e.moves.Add(1)
}

// lastMove returns when any of the slots was last invalidated, hard or softly; 0 is never.
func (e *epochs) lastMove(slots []uint16) int64 {
	var last int64
	for _, s := range slots {
		last = max(last, e.movedAt[s].Load())
	}
	return last
}

// hold marks tags as pending; free ends it.
func (e *epochs) hold(slots []uint16) {
	for _, s := range slots {
		e.waits[s].Add(1)
	}
	e.pending.Add(int64(len(slots)))
}

func (e *epochs) free(slots []uint16) {
	e.pending.Add(-int64(len(slots)))
	for _, s := range slots {
		e.waits[s].Add(-1)
	}
}

// tell notes that Redis is being told of an invalidation of slots, which are held; told ends that.
func (e *epochs) tell(slots []uint16) (told func()) {
	t := &errand{slots: slots, done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.errands == nil {
		e.errands = make(map[*errand]struct{})
	}
	e.errands[t] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.errands, t)
		close(t.done)
	}
}

// settled says whether none of slots is pending, after it has waited for the trips to Redis that are under way. Without
// that, whoever reads right after a write would go to the database past the lease, and the next one of another
// process with it: two loads for every write to a hot key. It waits for no later trip, or readers
// of a table that is written all the time would wait for ever.
func (e *epochs) settled(ctx context.Context, slots []uint16) bool {
	if !e.isPending(slots) {
		return true
	}
	var trips []*errand
	e.mu.Lock()
	for t := range e.errands {
		if slices.ContainsFunc(t.slots, func(s uint16) bool { return slices.Contains(slots, s) }) {
			trips = append(trips, t)
		}
	}
	e.mu.Unlock()
	for _, t := range trips {
		select {
		case <-t.done:
		case <-ctx.Done():
			return false
		}
	}
	return !e.isPending(slots)
}

func (e *epochs) isPending(slots []uint16) bool {
	if e.pending.Load() == 0 {
		return false
	}
	for _, s := range slots {
		if e.waits[s].Load() > 0 {
			return true
		}
	}
	return false
}
