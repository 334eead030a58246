package sqlherd

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ngrok/sqlmw"
)

// An interceptor stands between database/sql and one conn. It is where a query is
// passed on, answered from the cache, or kept from it.
type interceptor struct {
	sqlmw.NullInterceptor
	c *conn
}

func (i *interceptor) ConnQueryContext(ctx context.Context, _ driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	rows, err := i.c.query(ctx, nil, query, args)
	i.c.rows = rows
	return ctx, rows, err
}

func (i *interceptor) ConnExecContext(ctx context.Context, _ driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := i.c.exec(ctx, nil, query, args)
	i.c.result = res
	return res, err
}

func (i *interceptor) StmtQueryContext(ctx context.Context, st driver.StmtQueryContext, _ string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	rows, err := st.QueryContext(ctx, args)
	i.c.rows = rows
	return ctx, rows, err
}

func (i *interceptor) StmtExecContext(ctx context.Context, st driver.StmtExecContext, _ string, args []driver.NamedValue) (driver.Result, error) {
	res, err := st.ExecContext(ctx, args)
	i.c.result = res
	return res, err
}

// query answers one query. st is nil unless it was prepared.
func (c *conn) query(ctx context.Context, st *stmt, query string, args []driver.NamedValue) (driver.Rows, error) {
	p := c.planFor(st, query)
	opts := optionsOf(ctx)
	if p.policy == nil && opts == nil && p.hintErr == nil && !p.off {
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

	if bad := q.makeKey(st != nil, args); bad != nil {
		q.detail = bad.Error()
		return q.bypass(ctx, st, query, args, ReasonArgs)
	}
	// A context that has ended is not served, as database/sql would not.
	if err := ctx.Err(); err != nil {
		q.failed(err)
		return nil, err
	}
	if rows := q.fromMemory(ctx, st, query, args); rows != nil {
		return rows, nil
	}
	g := h.engine
	if reason := g.unfit.get(q.key, q.pol, g.now()); reason != ReasonNone {
		return q.bypass(ctx, st, query, args, reason)
	}

	r, finished, err := q.request(st, query, args)
	if err != nil {
		if err := q.malformed(err); err != nil {
			return nil, err
		}
		return q.bypass(ctx, st, query, args, ReasonHint)
	}
	// Whoever waits holds a conn of the pool, and perhaps one that has a real connection from before. Others may need
	// that one meanwhile, and it is not needed here: the load runs elsewhere. Unless a *sql.Conn has used it: rows may be
	// open on it, and its caller may count on what its session holds, such as a lock or the last insert's id.
	offered := finished == nil && c.real != nil && !c.used
	if offered {
		c.src.budget.idle(c)
	}
	a, err := g.await(ctx, r)
	if offered {
		c.src.budget.busy(c)
	}
	if finished != nil {
		// The load runs on this conn: it must be over before the conn goes back.
		finished()
	}
	switch {
	case err != nil:
		q.failed(err)
		var begun *rowsError
		if errors.As(err, &begun) {
			return begun.rows(q.live(ctx, st, query, args)), nil
		}
		var lost lostConn
		switch {
		case errors.As(err, &lost):
			err = lost.error
		case c.used && errors.Is(err, driver.ErrBadConn):
			err = badElsewhere{err}
		}
		return nil, err
	case a.rows != nil:
		q.done(a.outcome, a.reason, a.age)
		return &cachedRows{live: q.live(ctx, st, query, args), res: a.rows}, nil
	case a.live != nil:
		q.done(Bypassed, a.reason, 0)
		return a.live.rows(ctx), nil
	}
	return q.bypass(ctx, st, query, args, a.reason)
}

// badElsewhere is the driver.ErrBadConn of a load, for a caller whose own connection has a session to lose: database/sql
// would close that one. Who has none is better off with the driver's own error.
type badElsewhere struct{ cause error }

func (e badElsewhere) Error() string { return e.cause.Error() }

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

	// borrowed says that key is in a buffer that will be used for others: who keeps
	// it makes a copy.
	borrowed bool
}

// decide finds the policy that applies and the reason why it may not be followed.
func (q *queryState) decide() error {
	h, p := q.c.h, q.p
	if h.observed {
		q.began = h.engine.now()
	}
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
	if q.opts != nil && q.opts.badTag != nil {
		// Nobody could name it to invalidate what depends on it.
		return q.malformed(q.opts.badTag)
	}
	// A context's policy beats the hint and the rule, also in what they turn off.
	own, off, foreign := q.pol == p.policy, p.off, p.foreign
	if !own {
		off, foreign = false, h.foreignTable(tablesFor(p.stmt.Reads, q.pol.Tables))
	}
	switch {
	case h.closed.Load():
		q.reason = ReasonClosed
	case !h.enabled.Load():
		q.reason = ReasonDisabled
	case q.opts != nil && q.opts.bypass, off, q.pol.TTL <= 0:
		q.reason = ReasonOff
	case p.guard != ReasonNone:
		q.reason, q.detail = p.guard, p.stmt.Word
	case foreign != "":
		q.reason, q.detail = ReasonTable, foreign
	case p.stmt.Random && !q.pol.AllowVolatile:
		q.reason, q.detail = ReasonVolatile, "random"
	case p.stmt.Time && p.byRule && own:
		q.reason, q.detail = ReasonVolatile, "time"
	case p.scans.Load():
		q.reason, q.detail = ReasonType, "scanned by the driver"
	default:
		if q.reason = q.c.sessionReason(); q.reason == ReasonSession {
			q.detail = q.c.taintedBy
		}
	}
	return nil
}

// malformed keeps the query from the cache because of a malformed hint or policy. It
// returns an error when the query must fail.
func (q *queryState) malformed(err error) error {
	q.pol, q.reason, q.detail = nil, ReasonHint, err.Error()
	if err := q.c.h.malformed(q.p, err, false); err != nil {
		q.done(Bypassed, ReasonHint, 0)
		return err
	}
	return nil
}

// malformed logs the first malformed hint of a query family, and returns the error under
// Config.StrictHints. Otherwise a read runs as without the hint, and a write whose @invalidate
// cannot be understood forgets everything.
func (h *Herd) malformed(p *plan, err error, forgets bool) error {
	if h.families.firstMistake(p.name) {
		then := "the query runs uncached"
		switch {
		case h.cfg.StrictHints:
			then = "the statement fails"
		case forgets, p.hinted != nil && p.hinted.kind == hintInvalidate:
			then = "every result is forgotten"
		}
		h.log.Warn("sqlherd: malformed hint; "+then, "query", p.name, "error", err)
	}
	if h.cfg.StrictHints {
		return err
	}
	return nil
}

// fast answers what memory can answer, and passes on what nothing is asked of us for. It is the way of nearly
// all queries, and goes around sqlmw, whose wrappers cost as much as all that is done here. done is false
// when the query must take the long way, which begins anew.
func (c *conn) fast(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, done bool, err error) {
	p := c.planFor(nil, query)
	opts := optionsOf(ctx)
	if p.plain && opts == nil {
		rows, err := c.runRows(ctx, nil, p, query, args)
		if err != driver.ErrSkip {
			c.h.counters.outcomes[Passthrough].Add(1)
		}
		return rows, true, err
	}
	if !p.mayCache() || opts != nil && opts.policy != nil || ctx.Err() != nil {
		return nil, false, nil
	}
	q := queryState{c: c, p: p, opts: opts, pol: p.policy}
	if err := q.decide(); err != nil || q.reason != ReasonNone || q.refresh {
		return nil, false, nil
	}
	// The key is only looked up here, so it stays in its buffer.
	buf := keyBuffers.Get().(*[]byte)
	key, bad := q.appendKey((*buf)[:0], false, args)
	if bad == nil && len(key) > 0 {
		q.key, q.borrowed = unsafe.String(&key[0], len(key)), true
		rows = q.fromMemory(ctx, nil, query, args)
	}
	*buf = key
	keyBuffers.Put(buf)
	return rows, rows != nil, nil
}

// fromMemory answers the query from memory if that is possible now, and else returns nil.
func (q *queryState) fromMemory(ctx context.Context, st *stmt, query string, args []driver.NamedValue) driver.Rows {
	if q.refresh {
		return nil
	}
	g := q.c.h.engine
	now := g.now()
	e := g.mem.get(q.key, now)
	if e == nil {
		return nil
	}
	outcome := Hit
	switch v := g.judge(e, now, q.pol, q.c.loadsHere()); v {
	case verdictAsk:
		return nil
	case verdictHitCompare, verdictHitRefresh:
		q.background(ctx, v, st, query, args, e)
	case verdictStaleRefresh:
		outcome = Stale
		q.background(ctx, v, st, query, args, e)
	case verdictStale:
		outcome = Stale
	}
	q.done(outcome, ReasonNone, time.Duration(now-e.stored))
	return &cachedRows{live: q.live(ctx, st, query, args), res: e.result}
}

// makeKey sets the query's key.
func (q *queryState) makeKey(prepared bool, args []driver.NamedValue) *argError {
	buf := keyBuffers.Get().(*[]byte)
	key, bad := q.appendKey((*buf)[:0], prepared, args)
	if bad == nil {
		q.key = string(key)
	}
	*buf = key
	keyBuffers.Put(buf)
	return bad
}

// appendKey appends the query's key to dst.
func (q *queryState) appendKey(dst []byte, prepared bool, args []driver.NamedValue) ([]byte, *argError) {
	scope := q.pol.Scope
	if q.opts != nil && q.opts.scope != "" {
		scope = q.opts.scope
	}
	policy := q.p.scope
	if o := q.opts; o != nil && (len(o.tags) > 0 || q.pol != q.p.policy) {
		var hinted []string
		if q.p.policy != nil {
			hinted = q.p.policy.Tags // which are the query's too: see tags
		}
		policy = policyScope(q.pol, hinted, o.tags)
	}
	return appendKey(dst, q.p.head(prepared), args, q.c.private, scope, policy)
}

// keyBuffers hold keys while they are looked up.
var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// keepKey makes the key the query's own.
func (q *queryState) keepKey() {
	if q.borrowed {
		q.key, q.borrowed = strings.Clone(q.key), false
	}
}

// request is what the engine needs when memory cannot tell. finished is nil unless
// the load runs on the caller's connection.
func (q *queryState) request(st *stmt, query string, args []driver.NamedValue) (r *request, finished func(), err error) {
	tags, err := q.tags(args)
	if err != nil {
		return nil, nil, err
	}
	q.keepKey()
	g := q.c.h.engine
	w := &struct { // one allocation
		request
		query loadQuery
	}{
		request: request{
			key:   q.key,
			tags:  tags,
			slots: g.epochs.slotsOf(tags),
			pol:   q.pol,
			name:  q.name(),
			gone:  q.c.src.loader.ctx.Done(),
			force: q.refresh,
		},
		query: loadQuery{
			src:      q.c.src,
			query:    query,
			args:     cloneArgs(args),
			prepared: st != nil,
			maxRows:  q.pol.MaxRows,
			maxBytes: q.pol.MaxBytes,
		},
	}
	r, load := &w.request, &w.query
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
	switch o {
	case Miss:
		age = 0 // from the end of the load to here
		if h.outage.Load() && h.outage.Swap(false) {
			h.log.Info("sqlherd: the database answers again", "query", q.name())
		}
	case StaleError:
		if !h.outage.Swap(true) {
			h.log.Warn("sqlherd: the database is unavailable; serving rows past their time", "query", q.name(), "age", age)
		}
	}
	h.counters.outcomes[o].Add(1)
	if o == Bypassed || reason != ReasonNone {
		h.counters.reasons[reason].Add(1)
	}
	if reason == ReasonHint {
		h.counters.hintErrors.Add(1)
	}
	counts := q.p.counts
	if q.pol != nil && q.pol != q.p.policy {
		counts = h.families.of(q.name())
	}
	counts.add(o)
	q.inform(o, reason, age)
	if h.observed && o != Passthrough {
		h.engine.observe.Query(QueryEvent{
			Name: q.name(), Outcome: o, Reason: reason, Age: age, Took: time.Duration(h.engine.now() - q.began),
		})
	}
}

// failed counts a query whose rows could not be had.
func (q *queryState) failed(err error) {
	h := q.c.h
	h.counters.queryErrors.Add(1)
	q.inform(Miss, ReasonNone, 0)
	if h.observed {
		h.engine.observe.Query(QueryEvent{
			Name: q.name(), Outcome: Miss, Err: err, Took: time.Duration(h.engine.now() - q.began),
		})
	}
}

// inform fills the Info of the caller's context.
func (q *queryState) inform(o Outcome, reason Reason, age time.Duration) {
	if q.opts == nil || q.opts.info == nil {
		return
	}
	info := Info{Outcome: o, Reason: reason, Detail: q.detail, Age: age, Name: q.name()}
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

// name returns the label of the query family, which a context's policy may give.
func (q *queryState) name() string {
	if q.pol != nil && q.pol.Name != "" {
		return q.pol.Name
	}
	return q.p.name
}
