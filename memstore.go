package sqlherd

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// An entry is a result in this process's memory. Its times are of the herd's clock
// (Herd.now). All but the atomics is fixed when it is made.
type entry struct {
	result   *rowcodec.Result
	read     int64 // its rows are no older than this
	stored   int64 // when it was stored, here or in Redis
	soft     int64 // fresh before, stale after
	hard     int64 // dead after
	dead     int64 // not even for stale-if-error after
	loadTime time.Duration

	slots []uint16 // of its tags
	mark  uint64   // the epochs' mark from before its rows were read

	// moves is the epochs' count at the last time that mark was found unchanged.
	moves atomic.Uint64
	// checked is when it was last compared with Redis.
	checked atomic.Int64
	// work is shared with the entries that replace it without being newer: each
	// comparison with Redis makes one.
	work *work
}

// work is what readers of an entry do for it.
type work struct {
	// quiet is until when no reader starts a refresh: somebody has just started one,
	// here or in another process.
	quiet atomic.Int64
	// comparing is the same for comparisons with Redis. It is apart, or the one reader who
	// finds the rows stale while they are compared would start no refresh, and be the last for long.
	comparing atomic.Int64
	// failed counts the refreshes that have failed.
	failed atomic.Int32
}

// memory is the first level: decoded results, bounded by their bytes. Which entries
// go is otter's business (W-TinyLFU); time is ours, because stale and
// dead entries are still of use.
type memory struct {
	cache  *otter.Cache[string, *entry]
	epochs *epochs
}

// newMemory makes a memory of about maxBytes; nil when it is disabled.
func newMemory(cfg LocalConfig, ep *epochs) (*memory, error) {
	m := &memory{epochs: ep}
	if cfg.Disabled {
		return m, nil
	}
	cache, err := otter.New(&otter.Options[string, *entry]{
		MaximumWeight: uint64(cfg.MaxBytes),
		Weigher:       weigh,
	})
	if err != nil {
		return nil, err
	}
	m.cache = cache
	return m, nil
}

// entryOverhead is what an entry takes besides its result and key: the entry itself, its slots,
// and otter's node and table.
const entryOverhead = 320

func weigh(key string, e *entry) uint32 {
	w := e.result.Size() + int64(len(key)) + int64(2*len(e.slots)) + entryOverhead
	return uint32(min(w, math.MaxUint32))
}

// get returns the entry of key unless it has been invalidated or is of no use at now. It does
// not keep key, whose bytes may be used for another one afterwards.
func (m *memory) get(key string, now int64) *entry {
	if m.cache == nil {
		return nil
	}
	e, ok := m.cache.GetIfPresent(key)
	if !ok {
		return nil
	}
	if now < e.dead && m.valid(e) {
		return e
	}
	return m.moved(strings.Clone(key), e, now)
}

// moved is the rest of get: e is of no use, or a tag of it was invalidated.
func (m *memory) moved(key string, e *entry, now int64) *entry {
	mark := m.epochs.mark(e.slots)
	if now >= e.dead || !softOnly(e.mark, mark) {
		m.drop(key, e)
		return nil
	}
	s := e.softened(mark)
	m.cache.ComputeIfPresent(key, func(old *entry) (*entry, otter.ComputeOp) {
		if old == e {
			return s, otter.WriteOp
		}
		return old, otter.CancelOp
	})
	return s
}

// softened is e after a soft invalidation, which mark counts already.
func (e *entry) softened(mark uint64) *entry {
	s := &entry{
		result: e.result, read: e.read, stored: e.stored, soft: e.soft, hard: e.hard, dead: e.dead,
		loadTime: e.loadTime, slots: e.slots, mark: mark, work: new(work),
	}
	s.soften()
	s.moves.Store(math.MaxUint64) // as in put
	s.checked.Store(e.checked.Load())
	return s
}

// soften makes an entry that nobody has seen yet one that was never fresh: stale, or dead where
// its policy allows nothing stale.
func (e *entry) soften() {
	if e.hard == e.soft {
		e.hard = e.stored
	}
	e.soft = e.stored
}

// isSoftened says that e is not fresh because of a soft invalidation.
func (e *entry) isSoftened() bool { return e.soft == e.stored }

// valid says whether no tag of e was invalidated here since before its rows were read.
func (m *memory) valid(e *entry) bool {
	moves := m.epochs.moves.Load()
	if e.moves.Load() == moves {
		return true
	}
	if m.epochs.mark(e.slots) != e.mark {
		return false
	}
	e.moves.Store(moves)
	return true
}

// put keeps e, unless it is invalid by now or somebody has put rows there that were read later. seen is what
// was there before the caller asked the store: that goes in any case, since the store knows better.
func (m *memory) put(key string, e, seen *entry) {
	if m.cache == nil {
		return
	}
	if mark := m.epochs.mark(e.slots); mark != e.mark {
		if !softOnly(e.mark, mark) {
			return
		}
		e = e.softened(mark)
	}
	// No count of moves is this one: the first reader compares the mark, since the epochs may
	// move between our look and now.
	e.moves.Store(math.MaxUint64)
	m.cache.Compute(key, func(old *entry, found bool) (*entry, otter.ComputeOp) {
		if found && old != seen && old.read > e.read && m.valid(old) {
			return old, otter.CancelOp
		}
		return e, otter.WriteOp
	})
}

// drop removes e, but not what may have taken its place meanwhile.
func (m *memory) drop(key string, e *entry) {
	m.cache.ComputeIfPresent(key, func(old *entry) (*entry, otter.ComputeOp) {
		if old == e {
			return nil, otter.InvalidateOp
		}
		return old, otter.CancelOp
	})
}

func (m *memory) stats() (entries int, bytes int64) {
	if m.cache == nil {
		return 0, 0
	}
	return m.cache.EstimatedSize(), int64(m.cache.WeightedSize())
}

func (m *memory) close() {
	if m.cache != nil {
		m.cache.InvalidateAll()
		m.cache.StopAllGoroutines()
	}
}
