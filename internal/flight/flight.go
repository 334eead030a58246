// Package flight lets concurrent callers of one key share one piece of work.
//
// It differs from golang.org/x/sync/singleflight in what a stampede needs and
// that package cannot give from outside: the number of waiters and the
// cancellation of the work change under one lock, so that work is cancelled
// exactly when its last waiter has left, and a newcomer never joins work that
// was cancelled a moment before.
package flight

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

var (
	// ErrClosed is returned to everybody who waits, or comes, after Close.
	ErrClosed = errors.New("flight: group closed")

	// errAbandoned is the cause that work sees in its context when its last
	// waiter has left.
	errAbandoned = errors.New("flight: nobody waits any more")

	errGoexit = errors.New("flight: the work called runtime.Goexit")

	// errLeft ends work whose leader's context has ended.
	errLeft = errors.New("flight: the leader has left")
)

// A PanicError is the result of work that panicked. The panic goes no further: a
// driver that panics must not end the process from a goroutine of ours.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A Role says what part a caller had in a flight.
type Role uint8

const (
	Leader   Role = iota // began the work
	Follower             // joined work that had begun
)

// A Group holds the flights of one kind of work. The zero value is ready; it must not be copied.
type Group[V any] struct {
	mu     sync.Mutex // never held while work runs
	calls  map[string]*call[V]
	done   chan struct{} // closed by Close; made on first use
	closed bool
	wg     sync.WaitGroup
}

type call[V any] struct {
	cancel context.CancelCauseFunc // nil: the work runs under its leader's context

	// Written by the work's goroutine before finished is closed, read after.
	val V
	err error

	// Guarded by the group's mu.
	finished chan struct{} // made for the first who waits on it
	waiters  int
	owned    bool // somebody can use the result though nobody waits
}

// Do returns the result of work for key: of the work under way, which it joins, or
// of run, which it starts in a goroutine of its own.
//
// run's context has the values of ctx, but neither its cancellation nor its deadline:
// it is cancelled when the last waiter has left, or by Close. Do itself
// returns ctx.Err() as soon as ctx ends, whatever the work does.
func (g *Group[V]) Do(ctx context.Context, key string, run func(context.Context) (V, error)) (V, Role, error) {
	return g.do(ctx, key, run, false)
}

// DoHere is Do for work that is short: run runs in the goroutine of the caller who begins it,
// under its context. That costs no goroutine and no context, and Close waits for run instead of cancelling it. When
// the leader's context has ended it, those who had joined begin again, one
// of them as the leader.
func (g *Group[V]) DoHere(ctx context.Context, key string, run func(context.Context) (V, error)) (V, Role, error) {
	return g.do(ctx, key, run, true)
}

func (g *Group[V]) do(ctx context.Context, key string, run func(context.Context) (V, error), here bool) (V, Role, error) {
	var zero V
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return zero, Leader, ErrClosed
		}
		role := Follower
		c := g.calls[key]
		switch {
		case c != nil:
		case here:
			c = &call[V]{owned: true}
			g.addLocked(key, c)
			g.mu.Unlock()
			g.runHere(ctx, key, c, run)
			if c.err == errLeft {
				return zero, Leader, ctx.Err()
			}
			return c.val, Leader, c.err
		default:
			role = Leader
			c = g.startLocked(ctx, key, run)
		}
		if err := g.waitLocked(ctx, key, c); err != nil {
			return zero, role, err
		}
		if c.err != errLeft {
			return c.val, role, c.err
		}
	}
}

// Join is Do without beginning anything. It answers false when there is no work for key that
// a caller of Do has begun.
func (g *Group[V]) Join(ctx context.Context, key string) (v V, joined bool, err error) {
	g.mu.Lock()
	c := g.calls[key]
	if g.closed || c == nil || c.owned {
		g.mu.Unlock()
		return v, false, nil
	}
	if err := g.waitLocked(ctx, key, c); err != nil {
		return v, true, err
	}
	return c.val, true, c.err
}

// waitLocked waits for the end of c as one of its waiters. It unlocks mu.
func (g *Group[V]) waitLocked(ctx context.Context, key string, c *call[V]) error {
	c.waiters++
	if c.finished == nil {
		c.finished = make(chan struct{})
	}
	finished, closing := c.finished, g.done
	g.mu.Unlock()

	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		g.leave(key, c)
		return ctx.Err()
	case <-closing:
		g.leave(key, c)
		return ErrClosed
	}
}

// Start begins work for key in the background, where no caller waits and none need
// to: it ends by itself or by Close. Callers of Do may join it. Start answers
// false, and does nothing, when there is work for key already or after Close.
func (g *Group[V]) Start(ctx context.Context, key string, run func(context.Context) (V, error)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.calls[key] != nil {
		return false
	}
	g.startLocked(ctx, key, run).owned = true
	return true
}

// Len returns the number of flights under way.
func (g *Group[V]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

// Close cancels all work, sends every waiter away with ErrClosed, refuses
// newcomers, and returns when the work has ended. It may be called more than once.
func (g *Group[V]) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		if g.done == nil {
			g.done = make(chan struct{})
		}
		close(g.done)
		for _, c := range g.calls {
			if c.cancel != nil {
				c.cancel(ErrClosed)
			}
		}
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// addLocked puts c on the map.
func (g *Group[V]) addLocked(key string, c *call[V]) {
	if g.calls == nil {
		g.calls = make(map[string]*call[V])
	}
	if g.done == nil {
		g.done = make(chan struct{})
	}
	g.calls[key] = c
	g.wg.Add(1)
}

func (g *Group[V]) startLocked(ctx context.Context, key string, run func(context.Context) (V, error)) *call[V] {
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &call[V]{cancel: cancel}
	g.addLocked(key, c)
	go func() {
		defer cancel(nil)
		g.run(runCtx, key, c, run)
	}()
	return c
}

// runHere runs the work of DoHere.
func (g *Group[V]) runHere(ctx context.Context, key string, c *call[V], run func(context.Context) (V, error)) {
	g.run(ctx, key, c, func(ctx context.Context) (V, error) {
		v, err := run(ctx)
		if err != nil && ctx.Err() != nil {
			err = errLeft // which is no reason for the others
		}
		return v, err
	})
}

// run runs the work and ends the flight.
func (g *Group[V]) run(ctx context.Context, key string, c *call[V], run func(context.Context) (V, error)) {
	defer g.wg.Done()
	returned := false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				c.err = &PanicError{Value: v, Stack: debug.Stack()}
			} else {
				c.err = errGoexit
			}
		}
		// The flight leaves the map before its result is seen: whoever acts on the
		// result and asks again starts anew.
		g.mu.Lock()
		if g.calls[key] == c {
			delete(g.calls, key)
		}
		finished := c.finished
		g.mu.Unlock()
		if finished != nil {
			close(finished)
		}
	}()
	c.val, c.err = run(ctx)
	returned = true
}

// leave takes one waiter out. The last one cancels the work, and takes it out of the
// map under the same lock, so that nobody can join it between the two.
func (g *Group[V]) leave(key string, c *call[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.waiters--
	if c.waiters == 0 && !c.owned {
		if g.calls[key] == c {
			delete(g.calls, key)
		}
		c.cancel(errAbandoned)
	}
}
