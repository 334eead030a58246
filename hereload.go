package sqlherd

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"time"
)

// A hereLoad runs a load on the caller's own connection (Config.LoadOnCallerConn), for
// databases that exist on one connection only. The caller stays until the load is over,
// even when its context has ended, because the connection is in use.
type hereLoad struct {
	c       *conn
	query   *loadQuery
	timeout time.Duration

	mu   sync.Mutex
	left bool          // the caller has gone, or has the rows
	done chan struct{} // closed at the end of the load; nil if none began
}

// load is called in the flight's goroutine, while the caller waits for the flight.
func (l *hereLoad) load(ctx context.Context) (loadResult, error) {
	l.mu.Lock()
	if l.left {
		// The caller's connection is its own again. Whoever joined leads the next flight.
		l.mu.Unlock()
		return loadResult{}, errElsewhere
	}
	l.done = make(chan struct{})
	defer close(l.done)
	l.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, ErrLoadTimeout)
	defer cancel()
	began := time.Now()
	real, err := l.c.dial(ctx)
	if err != nil {
		return loadResult{}, err
	}
	res, err := readAll(ctx, real, l.query)
	if err != nil {
		if cause := context.Cause(ctx); cause == ErrLoadTimeout {
			err = cause
		}
		if errors.Is(err, driver.ErrBadConn) {
			err = lostConn{err}
		}
		return loadResult{}, err
	}
	if res.live != nil {
		// The rows are on this caller's connection, where no other could read them.
		res.live.cancel = func(error) {}
		res.live.free = func() {}
		_ = res.live.close() // the query runs again, and then tells
		res.live = nil
	}
	res.took = time.Since(began)
	return res, nil
}

// wait returns when the load does not use the connection any more, and never will.
func (l *hereLoad) wait() {
	l.mu.Lock()
	l.left = true
	done := l.done
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}
