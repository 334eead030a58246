package sqlherd

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/ngrok/sqlmw"
)

// An interceptor stands between database/sql and one conn. It is where a query is
// passed on, answered from the cache, or kept from it.
type interceptor struct {
	sqlmw.NullInterceptor
	c *conn
}

// ConnPing answers Raw's question for the conn beneath sqlmw's wrapper; other pings go on.
func (i *interceptor) ConnPing(ctx context.Context, p driver.Pinger) error {
	if ask, ok := ctx.Value(rawKey{}).(**conn); ok {
		*ask = i.c
		return nil
	}
	return p.Ping(ctx)
}

func (i *interceptor) ConnQueryContext(ctx context.Context, _ driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	rows, err := i.c.query(ctx, nil, query, args)
	return ctx, rows, err
}

func (i *interceptor) ConnExecContext(ctx context.Context, _ driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	return i.c.exec(ctx, nil, query, args)
}

// query answers one query. st is nil unless it was prepared.
func (c *conn) query(ctx context.Context, st *stmt, query string, args []driver.NamedValue) (driver.Rows, error) {
	p := c.planFor(st, query)
	opts := optionsOf(ctx)
	if p.policy == nil && opts == nil && p.hintErr == nil {
		// The way of most statements of most applications: nothing is asked of us.
		rows, err := c.runRows(ctx, st, p, query, args)
		if err != driver.ErrSkip {
			c.h.counters.outcomes[Passthrough].Add(1)
		}
		return rows, err
	}
	return c.queryWithPolicy(ctx, opts, st, p, query, args)
}

func (c *conn) queryWithPolicy(ctx context.Context, opts *ctxOptions, st *stmt, p *plan, query string, args []driver.NamedValue) (driver.Rows, error) {
	h := c.h
	q := queryState{c: c, p: p, opts: opts, pol: p.policy}
	if err := q.decide(); err != nil {
		return nil, err
	}
	if q.pol == nil && q.reason == ReasonNone {
		rows, err := c.runRows(ctx, st, p, query, args)
		if err != driver.ErrSkip {
			q.done(Passthrough, ReasonNone, 0)
		}
		return rows, err
	}
	if q.reason != ReasonNone {
		return q.bypass(ctx, st, query, args, q.reason)
	}

	buf := keyBuffers.Get().(*[]byte)
	key, bad := q.appendKey((*buf)[:0], st != nil, args)
	if bad != nil {
		*buf = key
		keyBuffers.Put(buf)
		q.detail = bad.Error()
		return q.bypass(ctx, st, query, args, ReasonArgs)
	}
	k := string(key)
	*buf = key
	keyBuffers.Put(buf)
	q.key = k

	// A context that has ended is not served, as database/sql would not.
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	g := h.engine
	now := g.now()
	if e := g.mem.get(k, now); e != nil && !q.refresh {
		v := g.judge(e, now, q.pol, c.loadsHere())
		if v != verdictAsk {
			outcome := Hit
			switch v {
			case verdictHitCompare, verdictHitRefresh, verdictStaleRefresh:
				q.background(ctx, v, st, query, args, e)
			}
			if v == verdictStale || v == verdictStaleRefresh {
				outcome = Stale
			}
			q.done(outcome, ReasonNone, time.Duration(now-e.stored))
			return &cachedRows{res: e.result}, nil
		}
	}
	if reason := g.unfit.get(k, now); reason != ReasonNone {
		return q.bypass(ctx, st, query, args, reason)
	}

	r, finished, err := q.request(st, query, args)
	if err != nil {
		q.detail = err.Error()
		return q.bypass(ctx, st, query, args, ReasonHint)
	}
	a, err := g.await(ctx, r)
	if finished != nil {
		// The load runs on this conn: it must be over before the conn goes back.
		finished()
	}
	switch {
	case err != nil:
		q.failed(err)
		var begun *rowsError
		if errors.As(err, &begun) {
			return &failedRows{names: begun.names, err: begun.err}, nil
		}
		return nil, err
	case a.rows != nil:
		q.done(a.outcome, a.reason, a.age)
		return &cachedRows{res: a.rows}, nil
	case a.live != nil:
		q.done(Bypassed, a.reason, 0)
		return a.live.rows(ctx), nil
	}
	return q.bypass(ctx, st, query, args, a.reason)
}

// queryState is what is known of one query on its way.
type queryState struct {
	c       *conn
	p       *plan
	opts    *ctxOptions
	pol     *Policy
	refresh bool
	reason  Reason
	detail  string
	key     string
	began   int64
}

// decide finds the policy that applies and the reason why it may not be followed.
func (q *queryState) decide() error {
	h, p := q.c.h, q.p
	q.refresh = p.refresh
	if o := q.opts; o != nil {
		if o.policy != nil {
			pol, err := h.resolve(*o.policy)
			if err != nil {
				return q.malformed(err)
			}
			q.pol = pol
		}
		q.refresh = q.refresh || o.refresh
	}
	if p.hintErr != nil && (q.opts == nil || q.opts.policy == nil) {
		return q.malformed(p.hintErr)
	}
	if q.pol == nil {
		if p.off && q.reason == ReasonNone && p.hinted != nil {
			q.reason = ReasonOff
		}
		return nil
	}
	if h.observed {
		q.began = h.engine.now()
	}
	switch {
	case h.closed.Load():
		q.reason = ReasonClosed
	case !h.enabled.Load():
		q.reason = ReasonDisabled
	case q.opts != nil && q.opts.bypass, p.off, q.pol.TTL <= 0:
		q.reason = ReasonOff
	case p.guard != ReasonNone:
		q.reason, q.detail = p.guard, p.stmt.Word
	case p.stmt.Random && !q.pol.AllowVolatile:
		q.reason, q.detail = ReasonVolatile, "random"
	case p.stmt.Time && p.byRule && (q.opts == nil || q.opts.policy == nil):
		q.reason, q.detail = ReasonVolatile, "time"
	default:
		q.reason = q.c.sessionReason()
	}
	return nil
}

// malformed counts a malformed hint or policy, logs it once, and fails the query
// under Config.StrictHints. Otherwise the query runs as without it.
func (q *queryState) malformed(err error) error {
	h := q.c.h
	h.counters.hintErrors.Add(1)
	q.p.logOnce.Do(func() {
		h.log.Warn("sqlherd: malformed hint; the query runs uncached", "query", q.p.name, "error", err)
	})
	if h.cfg.StrictHints {
		q.done(Bypassed, ReasonHint, 0)
		return err
	}
	q.pol, q.reason, q.detail = nil, ReasonHint, err.Error()
	return nil
}

// appendKey appends the query's key to dst.
func (q *queryState) appendKey(dst []byte, prepared bool, args []driver.NamedValue) ([]byte, *argError) {
	scope := q.pol.Scope
	if q.opts != nil && q.opts.scope != "" {
		scope = q.opts.scope
	}
	return appendKey(dst, q.p.head(prepared), args, q.c.private, scope)
}

// keyBuffers hold keys while they are looked up.
var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// request is what the engine needs when memory cannot tell. finished is nil unless
// the load runs on the caller's connection.
func (q *queryState) request(st *stmt, query string, args []driver.NamedValue) (r *request, finished func(), err error) {
	tags, err := q.tags(args)
	if err != nil {
		return nil, nil, err
	}
	g := q.c.h.engine
	load := &loadQuery{
		query:    query,
		args:     cloneArgs(args),
		prepared: st != nil,
		maxRows:  q.pol.MaxRows,
		maxBytes: q.pol.MaxBytes,
	}
	r = &request{
		key:   q.key,
		tags:  tags,
		slots: g.epochs.slotsOf(tags),
		pol:   q.pol,
		name:  q.p.name,
		gone:  q.c.src.loader.ctx.Done(),
		force: q.refresh,
	}
	if !q.c.loadsHere() {
		src := q.c.src
		r.load = func(ctx context.Context) (loadResult, error) { return src.loader.load(ctx, load) }
		return r, nil, nil
	}
	r.noRefresh = true
	here := &hereLoad{c: q.c, query: load, timeout: q.c.h.cfg.LoadTimeout}
	r.load = here.load
	return r, here.wait, nil
}

// loadsHere says whether loads run on the caller's own connection.
func (c *conn) loadsHere() bool { return c.h.cfg.LoadOnCallerConn }

// background starts what a look at memory has found due.
func (q *queryState) background(ctx context.Context, v verdict, st *stmt, query string, args []driver.NamedValue, e *entry) {
	r, _, err := q.request(st, query, args)
	if err != nil {
		return // the tags cannot be made: the entry was stored under others
	}
	if v == verdictHitCompare {
		q.c.h.engine.compare(ctx, r)
		return
	}
	q.c.h.engine.refresh(ctx, r, e)
}

// bypass runs the query uncached on the caller's own connection.
func (q *queryState) bypass(ctx context.Context, st *stmt, query string, args []driver.NamedValue, reason Reason) (driver.Rows, error) {
	rows, err := q.c.runRows(ctx, st, q.p, query, args)
	if err != driver.ErrSkip {
		q.done(Bypassed, reason, 0)
	}
	return rows, err
}

// done counts the query and tells the caller and the observer how it ended.
func (q *queryState) done(o Outcome, reason Reason, age time.Duration) {
	h := q.c.h
	h.counters.outcomes[o].Add(1)
	if o == Bypassed || reason != ReasonNone {
		h.counters.reasons[reason].Add(1)
	}
	q.p.counts.add(o)
	if q.opts != nil && q.opts.info != nil {
		info := Info{Outcome: o, Reason: reason, Detail: q.detail, Age: age, Name: q.p.name}
		if q.key != "" {
			id := keyDigest(q.key)
			info.Key = hex.EncodeToString(id[:8])
		}
		if q.pol != nil {
			pol := *q.pol
			info.Policy = &pol
		}
		*q.opts.info = info
	}
	if h.observed {
		h.engine.observe.Query(QueryEvent{
			Name: q.p.name, Outcome: o, Reason: reason, Age: age, Took: time.Duration(h.engine.now() - q.began),
		})
	}
}

// failed counts a query whose rows could not be had.
func (q *queryState) failed(err error) {
	q.c.h.counters.queryErrors.Add(1)
	if q.c.h.observed {
		q.c.h.engine.observe.Query(QueryEvent{
			Name: q.p.name, Outcome: Miss, Err: err, Took: time.Duration(q.c.h.engine.now() - q.began),
		})
	}
}
