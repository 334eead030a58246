package sqlherd

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
)

// A budget bounds the real connections that the conns of one pool hold
// (Config.MaxDBConns), so that the pool itself can be left without a bound and a
// thousand waiters hold none. Whoever needs a real connection gets that of a conn that lies idle
// in the pool, if its session is clean; else dials; and when the bound is reached, takes any idle one's place or waits.
//
// A nil budget has no bound. The loader pool has a bound of its own and is not counted.
type budget struct {
	max int

	mu      sync.Mutex
	closed  bool            // the pool is: nobody waits any more
	open    int             // real connections, and dials under way
	doubts  uint64          // how often a connection turned out to be bad
	idlers  []*conn         // that have a real connection and do not need it, longest idle first
	waiters []*budgetWaiter // in the order they came
}

// A budgetWaiter gets a connection, or, when the channel yields nil, the right to dial. The channel is closed when the
// pool is.
type budgetWaiter struct {
	ready chan driver.Conn // capacity 1
}

// acquire returns a real connection to go on with, or nil and the right to dial
// one, which release gives back. It blocks until there is one of them or ctx ends.
func (b *budget) acquire(ctx context.Context) (driver.Conn, error) {
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	room := b.open < b.max && len(b.waiters) == 0
	if d := b.takeLocked(room); d != nil {
		b.mu.Unlock()
		return d.handOver(), nil
	}
	if room {
		b.open++
		b.mu.Unlock()
		return nil, nil
	}
	if b.closed {
		b.mu.Unlock()
		return nil, errPoolClosed
	}
	w := &budgetWaiter{ready: make(chan driver.Conn, 1)}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()

	select {
	case real, ok := <-w.ready:
		if !ok {
			return nil, errPoolClosed
		}
		return real, nil
	case <-ctx.Done():
		b.mu.Lock()
		for i, other := range b.waiters {
			if other == w {
				b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
				b.mu.Unlock()
				return nil, ctx.Err()
			}
		}
		b.mu.Unlock()
		// It was given at the same moment: pass it on, so that it is not lost.
		real, ok := <-w.ready
		if !ok {
			return nil, errPoolClosed
		}
		if real != nil {
			_ = real.Close() // it is idle and clean; its error tells nobody anything
		}
		b.release()
		return nil, ctx.Err()
	}
}

// errPoolClosed is what database/sql tells those who wait for a connection, in its words: its own error is not exported.
var errPoolClosed = errors.New("sql: database is closed")

// close sends away who waits, as database/sql does when the pool is closed. Connections in use go on.
func (b *budget) close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, w := range b.waiters {
		close(w.ready)
	}
	b.waiters = nil
}

// doubt says that a connection has turned out to be bad. A restart of the server, which kills the idle ones as well, is not to be
// told from other causes: none of those that lie idle now is given to anybody else. Their own conns find out as
// on the bare driver.
func (b *budget) doubt() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubts++
}

// takeLocked takes the real connection of the conn that has been idle longest. With clean it leaves those that nobody else
// could go on with.
func (b *budget) takeLocked(clean bool) *detached {
	for i, c := range b.idlers {
		if d := c.detach(clean, c.idleSince == b.doubts); d != nil {
			c.idling = false
			b.idlers = slices.Delete(b.idlers, i, i+1)
			return d
		}
	}
	return nil
}

// release says that a real connection is gone, or that a dial failed.
func (b *budget) release() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) > 0 {
		w := b.waiters[0]
		b.waiters = b.waiters[1:]
		w.ready <- nil
		return
	}
	b.open--
}

// idle says that c does not need its real connection for now: it goes back into the pool, or waits for a load.
func (b *budget) idle(c *conn) {
	if b == nil {
		return
	}
	b.mu.Lock()
	if c.idling {
		// database/sql asks IsValid twice of a conn whose next user has left at the last moment.
		b.mu.Unlock()
		return
	}
	c.idleSince = b.doubts
	if len(b.waiters) == 0 {
		c.idling = true
		b.idlers = append(b.idlers, c)
		b.mu.Unlock()
		return
	}
	d := c.detach(false, true)
	if d == nil {
		// A statement of it is being closed; serve finds it here when that is over.
		c.idling = true
		b.idlers = append(b.idlers, c)
		b.mu.Unlock()
		return
	}
	w := b.waiters[0]
	b.waiters = b.waiters[1:]
	b.mu.Unlock()
	w.ready <- d.handOver()
}

// busy says that c is taken out of the pool, has ended its wait, or is closed. After it, nobody takes c's
// real connection away.
func (b *budget) busy(c *conn) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.idling {
		return
	}
	c.idling = false
	i := slices.Index(b.idlers, c)
	b.idlers = slices.Delete(b.idlers, i, i+1)
}

// serve hands idle connections to those who wait. It is called after what has kept detach
// from taking one: a waiter may have come meanwhile, and nothing else may ever happen.
func (b *budget) serve() {
	if b == nil {
		return
	}
	for {
		b.mu.Lock()
		if len(b.waiters) == 0 {
			b.mu.Unlock()
			return
		}
		d := b.takeLocked(false)
		if d == nil {
			b.mu.Unlock()
			return
		}
		w := b.waiters[0]
		b.waiters = b.waiters[1:]
		b.mu.Unlock()
		w.ready <- d.handOver()
	}
}
