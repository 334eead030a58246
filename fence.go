package sqlherd

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

// fenceLife is how long a fence outlives the last sign of life of its writer. What the
// writer has sent must have been committed or refused by the end of it, also behind a connection that is
// stuck; until then the tags of a writer that died are not cached. A writer gives
// a sign of life three times as often.
const fenceLife = 30 * time.Second

// A writeFence keeps the fleet from the tags of a write, from before it may be committed until what
// was written is invalidated: Config.Strict. Should its process die in between, the fence
// ends by itself, and every result from before it with it. One goroutine uses it at a
// time, besides its own timer.
type writeFence struct {
	h     *Herd
	tags  []string
	token fenceToken

	mu    sync.Mutex // held while the fence is put up, or prolonged; guards what follows
	timer *time.Timer
	still bool // nobody prolongs it
	at    time.Time
}

// fences are the fences that a Herd has put up: what Close waits for.
type fences struct {
	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup // prolonging
}

// begin says whether a fence may still be prolonged; done ends that.
func (f *fences) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.busy.Add(1)
	}
	return !f.closed
}

func (f *fences) done() { f.busy.Done() }

func (f *fences) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.busy.Wait()
}

// fence puts up a fence for what is about to be committed, and returns nil when none is
// needed. It blocks for one round trip to Redis. When Redis cannot be told, the write goes on, with the
// promise that it would have without Config.Strict: a fault of the cache is none of the query.
func (h *Herd) fence(ctx context.Context, e writeEffects) *writeFence {
	g := h.engine
	if !h.cfg.Strict || g.store == nil || !e.hard() {
		return nil
	}
	f := &writeFence{h: h, tags: e.list()}
	rand.Read(f.token[:]) // never fails
	g.counters.fences.Add(uint64(len(f.tags)))
	f.keep(context.WithoutCancel(ctx))
	return f
}

// keep puts the fence up unless that was just done, and prolongs it from now on, while the write takes long.
func (f *writeFence) keep(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) > fenceLife/3 {
		f.putLocked(ctx)
	}
	f.still = false
	f.timer = time.AfterFunc(fenceLife/3, f.prolong)
}

func (f *writeFence) putLocked(ctx context.Context) {
	g := f.h.engine
	f.at = time.Now()
	err := g.store.fence(ctx, f.tags, f.token, fenceLife)
	if err != nil {
		g.counters.fenceErrors.Add(1)
		f.h.fenceLog.Do(func() {
			f.h.log.Warn("sqlherd: Redis could not be told of a write before its commit; should the process die at its commit, old rows may be served", "error", err)
		})
	}
	g.observe.Fence(FenceEvent{Tags: f.tags, Err: err})
}

// prolong runs when the fence has stood for a while.
func (f *writeFence) prolong() {
	if !f.h.fences.begin() {
		return
	}
	defer f.h.fences.done()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.still {
		f.putLocked(context.Background())
		f.timer.Reset(fenceLife / 3)
	}
}

// stop ends the prolonging: what is sent to Redis afterwards is not overtaken by it.
func (f *writeFence) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still = true
	f.timer.Stop()
}

// leave gives the fence its full life once more, and leaves it to itself.
func (f *writeFence) leave(ctx context.Context) {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(ctx)
}

// lift takes the fence away after all: nothing was written. Nil is fine. When Redis cannot be told, the fence ends by
// itself, and costs misses until then.
func (f *writeFence) lift(ctx context.Context) {
	if f == nil {
		return
	}
	f.stop()
	if err := f.h.engine.store.lift(context.WithoutCancel(ctx), f.tags, f.token, false); err != nil {
		f.h.counters.storeErrors.Add(1)
	}
}

// covers says whether f is a fence for just what e invalidates.
func (f *writeFence) covers(e writeEffects) bool { return slices.Equal(f.tags, e.list()) }

// unsure says whether a statement, or a commit, that ended with err may yet come to pass: nobody has answered, and
// the database may still be at it. Then its fence stays until it ends by itself, because what is read
// now may be older than the write, and nobody will tell when that is visible.
func unsure(err error) bool { return err != nil && classify(err) != classDefinite }
