package sqlherd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// A line is how calls travel to Redis. It holds the promise that nobody waits longer
// than the time limit, whatever the client's own settings are: go-redis 9.23 retries a refused
// dial for seconds, and ignores a context's deadline unless told. So callers do not call the
// client. A few workers do, and a caller leaves at its limit while the worker
// is still inside.
//
// That hand-over pays for itself: a worker takes along all calls that have come up while it was
// away, so that many callers share one trip (measured with 64 callers: a third of the time of as many GETs).
//
// A worker that is overdue is replaced, up to stuckMax at a time; it ends when the client gives up. Beyond
// that calls fail at their limit, until the breaker keeps them away.
type line struct {
	client  redis.UniversalClient
	nodes   *nodes // of a Cluster; else nil
	timeout time.Duration

	quick chan *call // taken together
	bulky chan *call // one at a time: they carry much, and must not hold up others

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	calls  sync.Pool

	mu      sync.Mutex
	closed  bool
	workers int // alive, the stuck ones included
	stuck   int
	gone    chan struct{} // closed when the last worker has ended
}

const (
	// quickWorkers is the number of trips under way at once; each takes a connection of the
	// client's pool. A slow network needs no more, because trips then carry more.
	quickWorkers = 4
	bulkyWorkers = 2
	// tripMax bounds the calls of one trip.
	tripMax = 64
	// stuckMax bounds the workers that are inside a client that does not return.
	stuckMax = 16
	// lineBacklog is the number of calls that may wait for a worker without their callers noticing.
	lineBacklog = 1024
)

var (
	// errUnavailable is the answer while the breaker is open: Redis was not asked.
	errUnavailable = errors.New("sqlherd: Redis is left alone after repeated failures")
	// errStoreTimeout says that there was no answer within Config.RedisTimeout. What was asked
	// for may still happen.
	errStoreTimeout = errors.New("sqlherd: no answer from Redis within Config.RedisTimeout")
	// errStoreClosed is returned by a store that is closed.
	errStoreClosed = errors.New("sqlherd: the store is closed")
)

// callerLeft is the end of a caller's own context, which says nothing of Redis.
type callerLeft struct{ error }

func (e callerLeft) Unwrap() error { return e.error }

func newLine(client redis.UniversalClient, timeout time.Duration, log *slog.Logger) *line {
	l := &line{
		client:  client,
		timeout: timeout,
		quick:   make(chan *call, lineBacklog),
		bulky:   make(chan *call, 16),
		gone:    make(chan struct{}),
		workers: quickWorkers + bulkyWorkers,
	}
	if cluster, ok := client.(masterFinder); ok {
		l.nodes = &nodes{client: cluster, line: l, log: log, m: make(map[string]*node)}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.calls.New = func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return &call{done: make(chan struct{}, 1), timer: t}
	}
	for range quickWorkers {
		go l.work(l.quick, tripMax)
	}
	for range bulkyWorkers {
		go l.work(l.bulky, 1)
	}
	return l
}

// A call is a few commands that travel together, and their replies.
type call struct {
	cmds    []redis.Cmder
	scripts []*script // of cmds; nil where the command is not a script

	// stamps are the names of stamps to read. Calls of one trip that ask for the same
	// share one command.
	stamps    []any
	stampCmds []*redis.StringCmd

	// late, if any, gets the call when its caller had left before the replies came.
	late func(*call)

	err   error // of the whole call
	done  chan struct{}
	timer *time.Timer
	state atomic.Uint32
	sent  atomic.Bool // in a Cluster: to single nodes
}

const (
	callWaited uint32 = iota // its caller waits
	callDone                 // its replies are there
	callLeft                 // its caller has left
)

// newCall returns an empty call. Give it back with free, but only after do has said that it is done.
func (l *line) newCall() *call { return l.calls.Get().(*call) }

func (l *line) free(c *call) {
	clear(c.cmds)
	clear(c.scripts)
	clear(c.stamps)
	clear(c.stampCmds)
	c.cmds, c.scripts, c.stamps, c.stampCmds = c.cmds[:0], c.scripts[:0], c.stamps[:0], c.stampCmds[:0]
	c.late, c.err = nil, nil
	c.state.Store(callWaited)
	c.sent.Store(false)
	l.calls.Put(c)
}

// add appends a plain command.
func (c *call) add(cmd redis.Cmder) {
	c.cmds = append(c.cmds, cmd)
	c.scripts = append(c.scripts, nil)
}

// run appends a script.
func (c *call) run(s *script, keysAndArgs ...any) *call {
	args := make([]any, 0, 3+len(keysAndArgs))
	args = append(append(args, "evalsha", s.sha, s.keys), keysAndArgs...)
	c.cmds = append(c.cmds, redis.NewCmd(context.Background(), args...))
	c.scripts = append(c.scripts, s)
	return c
}

// reply returns what the script at i answered.
func (c *call) reply(i int) (any, error) { return c.cmds[i].(*redis.Cmd).Result() }

// A script is a file of lua/. Redis is asked by its digest, and told its text when it does not
// know it: after a restart, a failover, SCRIPT FLUSH.
type script struct {
	src  string
	sha  any // boxed once
	keys any // their number, as text
}

func newScript(src string, keys string) *script {
	return &script{src: src, sha: redis.NewScript(src).Hash(), keys: keys}
}

// do sends c and waits, but no longer than limit and ctx. Without an error c's replies are
// there, each with an error of its own or none. With done false, c must not be touched again.
func (l *line) do(ctx context.Context, c *call, queue chan *call, limit time.Duration) (done bool, err error) {
	c.timer.Reset(limit)
	select {
	case queue <- c:
	default:
		select {
		case queue <- c:
		case <-c.timer.C:
			return true, errStoreTimeout
		case <-ctx.Done():
			c.timer.Stop()
			return true, callerLeft{ctx.Err()}
		case <-l.ctx.Done():
			c.timer.Stop()
			return true, errStoreClosed
		}
	}
	select {
	case <-c.done:
		c.timer.Stop()
		return true, c.err
	case <-c.timer.C:
		err = errStoreTimeout
	case <-ctx.Done():
		err = callerLeft{ctx.Err()}
	case <-l.ctx.Done():
		err = errStoreClosed
	}
	c.timer.Stop()
	if !c.state.CompareAndSwap(callWaited, callLeft) {
		<-c.done // at the same moment
		return true, c.err
	}
	return false, err
}

// post sends c for its effect alone, if there is room.
func (l *line) post(c *call) {
	select {
	case l.quick <- c:
	default:
	}
}

func (c *call) finish() {
	if c.state.CompareAndSwap(callWaited, callDone) {
		c.done <- struct{}{}
	} else if c.late != nil {
		c.late(c)
	}
}

// A worker makes trips.
type worker struct {
	line  *line
	queue chan *call
	most  int // calls of a trip

	trip    []*call
	cmds    []redis.Cmder
	scripts []spot // of cmds
	stamps  map[any]*redis.StringCmd

	guard *time.Timer
	armed atomic.Bool
	stuck bool // guarded by line.mu: somebody else has taken over
}

func (l *line) work(queue chan *call, most int) {
	w := &worker{line: l, queue: queue, most: most, stamps: make(map[any]*redis.StringCmd)}
	w.guard = time.AfterFunc(time.Hour, w.overdue)
	w.guard.Stop()
	defer l.leave()
	for {
		select {
		case c := <-queue:
			// Whoever is about to ask comes along: a trip costs more than a call (measured with 64 callers of as many
			// keys: a fifth of the time).
			runtime.Gosched()
			if !w.gather(c) {
				continue
			}
			w.armed.Store(true)
			w.guard.Reset(l.timeout)
			w.travel()
			if w.relieved() {
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// gather fills the trip with first and what else has come up. It answers false when there is
// nobody left to travel for.
func (w *worker) gather(first *call) bool {
	w.trip = w.trip[:0]
	for c := first; ; {
		// What a caller has given up before it was sent is not sent: nobody would hold the lease.
		if c.state.Load() == callWaited {
			w.trip = append(w.trip, c)
		}
		if len(w.trip) == w.most {
			return true
		}
		select {
		case c = <-w.queue:
		default:
			return len(w.trip) > 0
		}
	}
}

// overdue runs when a trip takes longer than its callers wait.
func (w *worker) overdue() {
	l := w.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.armed.CompareAndSwap(true, false) || l.closed || l.stuck >= stuckMax {
		return
	}
	w.stuck = true
	l.stuck++
	l.workers++
	go l.work(w.queue, w.most)
}

// relieved says, after a trip, whether another worker has taken this one's place.
func (w *worker) relieved() bool {
	if w.armed.CompareAndSwap(true, false) {
		w.guard.Stop()
		return false
	}
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	if w.stuck {
		w.line.stuck--
	}
	return w.stuck
}

func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers--
	if l.closed && l.workers == 0 {
		close(l.gone)
	}
}

// travel carries the trip to Redis and its replies back.
func (w *worker) travel() {
	// The client may or may not heed the deadline.
	ctx, cancel := context.WithTimeout(w.line.ctx, w.line.timeout)
	defer cancel()
	if w.line.nodes != nil {
		w.travelApart(ctx)
	} else {
		w.travelTogether(ctx)
	}
	clear(w.trip)
}

// travelTogether is travel to a Redis that is one server.
func (w *worker) travelTogether(ctx context.Context) {
	w.cmds, w.scripts = w.cmds[:0], w.scripts[:0]
	for _, c := range w.trip {
		w.cmds = append(w.cmds, c.cmds...)
		for i, s := range c.scripts {
			if s != nil {
				w.scripts = append(w.scripts, spot{c, i})
			}
		}
	}
	for _, c := range w.trip {
		for _, name := range c.stamps {
			cmd := w.stamps[name]
			if cmd == nil {
				cmd = redis.NewStringCmd(context.Background(), "get", name)
				w.stamps[name] = cmd
				w.cmds = append(w.cmds, cmd)
			}
			c.stampCmds = append(c.stampCmds, cmd)
		}
	}
	clear(w.stamps)
	err := w.line.exec(ctx, w.cmds)
	if err == nil {
		err = w.line.teach(ctx, w.scripts)
	}
	for _, c := range w.trip {
		c.err = err
		c.finish()
	}
	clear(w.cmds) // they hold replies
	clear(w.scripts)
}

// teach sends the scripts again, with their text, that Redis did not know.
func (l *line) teach(ctx context.Context, scripts []spot) error {
	var again []redis.Cmder
	for _, at := range scripts {
		cmd := at.call.cmds[at.i]
		if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			continue
		}
		args := append([]any(nil), cmd.Args()...)
		args[0], args[1] = "eval", at.call.scripts[at.i].src
		at.call.cmds[at.i] = redis.NewCmd(context.Background(), args...)
		again = append(again, at.call.cmds[at.i])
	}
	if len(again) == 0 {
		return nil
	}
	err := l.exec(ctx, again)
	if err != nil {
		for _, cmd := range again {
			cmd.SetErr(err)
		}
	}
	return err
}

// exec sends cmds. Errors of single commands are in them; the error returned is one that none of
// them tells.
func (l *line) exec(ctx context.Context, cmds []redis.Cmder) (err error) {
	defer func() {
		// A hook of the application's, or a fault of the client: no reason to end the process.
		if p := recover(); p != nil {
			err = fmt.Errorf("sqlherd: the Redis client panicked: %v", p)
		}
	}()
	pipe := l.client.Pipeline()
	if err := pipe.BatchProcess(ctx, cmds...); err != nil {
		return err
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return nil
			}
		}
		return err
	}
	return nil
}

// close sends callers away and waits for the workers, within a bound: those inside a client that does
// not return end when it does.
func (l *line) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.cancel()
		if l.workers == 0 {
			close(l.gone)
		}
	}
	l.mu.Unlock()
	t := time.NewTimer(2 * l.timeout)
	defer t.Stop()
	select {
	case <-l.gone:
	case <-t.C:
	}
}

// failure returns the first error of c that says something of Redis as a whole, rather than of one
// command. Those count against it; see failing.
func (c *call) failure() error {
	for _, cmd := range c.cmds {
		if err := cmd.Err(); err != nil && failing(err) {
			return err
		}
	}
	for _, cmd := range c.stampCmds {
		if err := cmd.Err(); err != nil && failing(err) {
			return err
		}
	}
	return nil
}

// failing says whether an error means that Redis cannot serve anybody at present.
//
//	no answer at all: network, timeout, pool exhausted    yes
//	LOADING, CLUSTERDOWN, MASTERDOWN, BUSY, max clients   yes, it says so itself
//	NOAUTH, WRONGPASS                                     yes: nothing works
//	READONLY, OOM, MISCONF, NOREPLICAS                    no: reads are still good
//	WRONGTYPE, NOPERM, NOSCRIPT, anything else            no: of one command
func failing(err error) bool {
	if errors.Is(err, redis.Nil) {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	return redis.IsLoadingError(err) || redis.IsClusterDownError(err) || redis.IsMasterDownError(err) ||
		redis.IsMaxClientsError(err) || redis.IsAuthError(err) || redis.HasErrorPrefix(err, "BUSY ")
}

// Bounds of the breaker.
const (
	// breakerFailures in a row open it.
	breakerFailures = 3
	// breakerPause is the time until a probe asks whether Redis is back, and between probes.
	breakerPause = time.Second
)

// A breaker keeps callers away from a Redis that fails them: after breakerFailures in a row, calls
// are refused at once, and a probe in the background closes it again. No caller
// pays for probing.
type breaker struct {
	cb    *gobreaker.TwoStepCircuitBreaker[struct{}]
	probe func() error // asks Redis, within the time limit
	log   *slog.Logger

	open  atomic.Bool
	opens atomic.Uint64

	failure error // the last one; under gobreaker's lock

	mu     sync.Mutex
	closed bool
	done   chan struct{} // ends the prober
	wg     sync.WaitGroup
}

func newBreaker(log *slog.Logger, probe func() error) *breaker {
	b := &breaker{done: make(chan struct{}), log: log, probe: probe}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "sqlherd-redis",
		Timeout:     breakerPause,
		MaxRequests: 1,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsExcluded: func(err error) bool {
			// The caller left, or we did: that says nothing of Redis. And one node says nothing of a Cluster.
			var left callerLeft
			var node nodeError
			return errors.As(err, &left) || errors.As(err, &node) || errors.Is(err, errStoreClosed)
		},
		IsSuccessful: func(err error) bool {
			if err != nil {
				b.failure = err
			}
			return err == nil
		},
		OnStateChange: b.changed,
	})
	return b
}

// changed is called under gobreaker's lock.
func (b *breaker) changed(_ string, from, to gobreaker.State) {
	b.open.Store(to != gobreaker.StateClosed)
	if from == gobreaker.StateClosed && to == gobreaker.StateOpen {
		b.opens.Add(1)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.closed {
			why := b.failure
			b.wg.Go(func() { b.watch(why) })
		}
	}
}

// close ends the prober and waits for it.
func (b *breaker) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.done)
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// allow refuses a call with errUnavailable, or returns where to report its outcome.
func (b *breaker) allow() (report func(error), err error) {
	if b.open.Load() {
		return nil, errUnavailable
	}
	report, err = b.cb.Allow()
	if err != nil {
		return nil, errUnavailable
	}
	return report, nil
}

// watch says why Redis was given up, and probes until it is back. The reason matters: a wrong password or address
// looks like an outage in every figure, and does not pass.
func (b *breaker) watch(why error) {
	began := time.Now()
	b.log.Warn("sqlherd: Redis fails; going on without it", "failures", breakerFailures, "error", why)
	// A little longer than gobreaker's own pause, which ends strictly after.
	pause := time.NewTimer(breakerPause + time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-pause.C:
		}
		report, err := b.cb.Allow()
		if err != nil {
			pause.Reset(time.Millisecond)
			continue
		}
		report(b.probe())
		pause.Reset(breakerPause + time.Millisecond)
		if !b.open.Load() {
			b.log.Info("sqlherd: Redis is back", "away", time.Since(began))
			return
		}
	}
}

// A gate keeps one kind of call away from a Redis that answers others, and this kind not: a replica, or
// a primary that has lost its replicas, takes no writes, and go-redis tries these again and again for
// longer than anybody waits. Reads go on, so the breaker never opens.
//
// After breakerFailures in a row the gate is shut for breakerPause; then one failure more shuts it again.
// The zero value is open.
type gate struct {
	failures atomic.Int32
	until    atomic.Int64 // UnixNano
}

// allow refuses a call with errUnavailable while the gate is shut.
func (g *gate) allow() error {
	if g.failures.Load() < breakerFailures {
		return nil
	}
	until, now := g.until.Load(), time.Now().UnixNano()
	// One call finds out whether it is over, for everybody.
	if now < until || !g.until.CompareAndSwap(until, now+int64(breakerPause)) {
		return errUnavailable
	}
	return nil
}

// report says how an allowed call has ended.
func (g *gate) report(err error) {
	var left callerLeft
	var node nodeError
	switch {
	case err == nil:
		if g.failures.Load() != 0 {
			g.failures.Store(0)
		}
	case errors.As(err, &left), errors.As(err, &node), errors.Is(err, errStoreClosed), errors.Is(err, errUnavailable):
	case g.failures.Load() < breakerFailures:
		g.until.Store(time.Now().Add(breakerPause).UnixNano())
		g.failures.Add(1)
	}
}
