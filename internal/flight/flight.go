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
	finished chan struct{}
	cancel   context.CancelCauseFunc

	// Written by the work's goroutine before finished is closed, read after.
	val V
	err error

	// Guarded by the group's mu.
	waiters int
	owned   bool // somebody can use the result though nobody waits
}

// Do returns the result of work for key: of the work under way, which it joins, or
// of run, which it starts in a goroutine of its own.
//
// run's context has the values of ctx, but neither its cancellation nor its deadline:
// it is cancelled when the last waiter has left, or by Close. Do itself
// returns ctx.Err() as soon as ctx ends, whatever the work does.
func (g *Group[V]) Do(ctx context.Context, key string, run func(context.Context) (V, error)) (V, Role, error) {
	var zero V
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return zero, Leader, ErrClosed
	}
	role := Follower
	c := g.calls[key]
	if c == nil {
		role = Leader
		c = g.startLocked(ctx, key, run)
	}
	c.waiters++
	closing := g.done
	g.mu.Unlock()

	select {
	case <-c.finished:
		return c.val, role, c.err
	case <-ctx.Done():
		g.leave(key, c)
		return zero, role, ctx.Err()
	case <-closing:
		g.leave(key, c)
		return zero, role, ErrClosed
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
			c.cancel(ErrClosed)
		}
	}
	g.mu.Unlock()
	g.wg.Wait()
}

func (g *Group[V]) startLocked(ctx context.Context, key string, run func(context.Context) (V, error)) *call[V] {
	if g.calls == nil {
		g.calls = make(map[string]*call[V])
	}
	if g.done == nil {
		g.done = make(chan struct{})
	}
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &call[V]{finished: make(chan struct{}), cancel: cancel}
	g.calls[key] = c
	g.wg.Add(1)
	go g.run(runCtx, key, c, run)
	return c
}

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
		g.mu.Unlock()
		close(c.finished)
		c.cancel(nil)
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
