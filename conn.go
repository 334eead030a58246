package sqlherd

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// A conn is the connection that database/sql's pool holds. It has no real one
// until a statement must reach the database: a hit, a stale hit and a waiter need
// none. It then keeps its real connection for its own life, so that the
// pool's settings and the session's state keep their meaning; only
// Config.MaxDBConns may take it away while the conn lies idle in the pool or waits for a load.
//
// database/sql calls a conn from one goroutine at a time, except that it closes
// statements and connections that lie idle, and that a budget may take the
// real connection of an idle conn. mu is for these.
type conn struct {
	h   *Herd
	src *source

	mu     sync.Mutex // held while real or the statements of an idle conn change
	real   driver.Conn
	gen    uint64  // counts the real connections; a stmt of another one is gone
	stmts  []*stmt // whose real statements are open on real
	closed bool

	// The session of real. All of it is forgotten with real.
	tainted   bool         // its state is unknown
	taintedBy string       // the word that made it so
	strings   bool         // strings may be read there otherwise than the lexer does
	inTx      bool         // between BeginTx and the end of the transaction
	textTx    bool         // the same, by a statement's text
	txBroken  bool         // a statement failed where that may have rolled back, and so ended, the transaction
	txRows    bool         // rows of the transaction went to the caller: whether they failed is not seen
	txDoubt   bool         // it has written after that; should they have failed as above, that is committed
	txUnknown bool         // it cannot be told whether a transaction is open; tainted as well
	dropAfter bool         // the bare driver's connection would not survive what happened
	used      bool         // since it left the pool: its rows may be open, and its session be what the caller counts on
	dirty     writeEffects // what the open transaction, or one that may be open, has written
	carried   *writeFence  // of a statement that the driver wants prepared: it runs next, as that

	// Guarded by the budget's mutex.
	idling    bool   // among its idlers
	idleSince uint64 // its doubts when c came

	// What the interceptor has just given to sqlmw, whose wrappers hide whatever interface they were not
	// made for: the shell takes it from here.
	rows   driver.Rows
	result driver.Result

	// Plans that ran last, of the goroutine that uses the conn.
	recent     [plansRecent]*plan
	nextRecent uint

	private string // identity of a private in-memory database; "" otherwise
}

// Every optional interface is here, because sqlmw asks only once what its parent
// can do; what the real connection lacks is answered as database/sql would have.
var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
)

// dial returns the real connection, and makes it when there is none. Whoever uses it comes here before.
func (c *conn) dial(ctx context.Context) (driver.Conn, error) {
	c.used = true
	if c.real != nil {
		return c.real, nil
	}
	handed, err := c.src.budget.acquire(ctx)
	if err != nil {
		return nil, err
	}
	real := handed
	if r, ok := real.(driver.SessionResetter); ok && r.ResetSession(ctx) != nil {
		// It changes hands as it would through the pool, where a driver finds out at
		// this moment that its connection is dead.
		c.src.budget.doubt()
		_ = real.Close() // it has just been found unusable
		real = nil
	}
	if real == nil {
		real, err = c.src.base.Connect(ctx)
		if err != nil {
			c.src.budget.release()
			return nil, err
		}
	}
	c.h.counters.dials.Add(1)
	c.mu.Lock()
	c.real = real
	c.gen++
	c.stmts = nil
	c.mu.Unlock()
	return real, nil
}

// detach takes the real connection away from an idle conn. It answers nil when the conn is
// closing a statement, or closed after all, and, with cleanOnly, when nobody else could go on with the connection; nobody
// could with one that is not trusted. The caller is the budget.
func (c *conn) detach(cleanOnly, trusted bool) *detached {
	if !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	if c.closed || c.real == nil {
		return nil
	}
	clean := trusted && len(c.stmts) == 0 && !c.tainted && !c.textTx && !c.inTx && !c.dropAfter
	if cleanOnly && !clean {
		return nil
	}
	d := &detached{real: c.real, clean: clean}
	for _, s := range c.stmts {
		d.stmts = append(d.stmts, s.real)
		s.real = nil
	}
	c.real = nil
	c.forget()
	return d
}

// heard is told what the real connection answers.
func (c *conn) heard(err error) {
	if errors.Is(err, driver.ErrBadConn) {
		c.src.budget.doubt()
	}
}

// detached is a real connection that no conn has. clean says that another may go on with it.
type detached struct {
	real  driver.Conn
	stmts []driver.Stmt // open on real
	clean bool
}

// handOver makes the connection fit for another conn. One whose session is unknown, or that
// holds statements, is closed; the right to dial in its place remains.
func (d *detached) handOver() driver.Conn {
	if d.clean {
		return d.real
	}
	for _, st := range d.stmts {
		_ = st.Close() // nobody is left to whom its error could be told
	}
	_ = d.real.Close() // as above
	return nil
}

// forget resets what was known of the real connection's session.
func (c *conn) forget() {
	c.gen++
	c.stmts = nil
	c.strings = false
	c.tainted, c.inTx, c.textTx, c.txBroken, c.txUnknown, c.dropAfter = false, false, false, false, false, false
	c.txRows, c.txDoubt = false, false
	c.dirty = writeEffects{}
	if c.src.unsettled != "" {
		c.tainted, c.taintedBy, c.txUnknown = true, c.src.unsettled, true
	}
}

// sessionReason says why the session's state forbids the cache, if it does.
func (c *conn) sessionReason() Reason {
	switch {
	case c.inTx, c.textTx:
		return ReasonTx
	case c.tainted:
		return ReasonSession
	}
	return ReasonNone
}

// taint records that the session's state is unknown from now on, because of word, in the statement
// of the family query if one is to blame. The first cause is kept.
func (c *conn) taint(word, query string) {
	if c.tainted {
		return
	}
	c.tainted, c.taintedBy = true, word
	c.h.tainted(word, query)
}

// note records what running p may do to the session, before it runs: should it
// fail half-way, the state is as unknown.
func (c *conn) note(p *plan) {
	if !p.hasEffects {
		return
	}
	if p.taints {
		c.taint(p.stmt.Word, p.name)
		c.strings = c.strings || p.strings
	}
	if p.tx == sqllex.TxBegin {
		c.textTx = true
	}
}

// noteEffects records what the end of p means: e is what it may have written, err how it ended, and
// f the fence that was put up for it, if any.
func (c *conn) noteEffects(ctx context.Context, p *plan, e writeEffects, err error, f *writeFence) {
	if err != nil && (c.inTx || c.textTx) && c.src.dialect != PostgreSQL && !(c.src.dialect == MySQL && refusedWhole(err)) {
		// MySQL rolls back at a deadlock, SQLite for OR ROLLBACK and when its disk is full. What
		// comes after is no longer in a transaction, and a rollback does not take it back.
		c.txBroken = true
	}
	if !p.hasEffects && !e.any() {
		return
	}
	if e.all {
		c.h.wroteUnknown(p)
	}
	var written writeEffects
	if e.any() {
		within := c.inTx || c.textTx || c.txUnknown
		may := p.mayHaveWritten(err)
		if may && within {
			c.txDoubt = c.txDoubt || c.txRows
			c.dirty.add(e)
		}
		if may && (!within || c.txUnknown || c.txBroken) {
			written.add(e)
		}
	}
	written.add(c.noteTx(p, err))
	c.h.settle(ctx, written, f, err)
}

// fence puts up a fence for what running p may commit, if it may commit anything: e, which it writes itself, and what
// the open transaction has written. It follows noteEffects; note has been called.
func (c *conn) fence(ctx context.Context, p *plan, e writeEffects) *writeFence {
	if !c.h.cfg.Strict {
		return nil
	}
	var may writeEffects
	if p.hasEffects || e.any() {
		within := c.inTx || c.textTx || c.txUnknown
		ends := c.endsTx(p)
		if !within || c.txUnknown || c.txBroken || ends {
			may.add(e)
		}
		if ends {
			may.add(c.dirty)
		}
	}
	if f := c.carried; f != nil {
		c.carried = nil
		if f.covers(may) {
			f.keep(context.WithoutCancel(ctx))
			return f
		}
		f.lift(ctx)
	}
	return c.h.fence(ctx, may)
}

// carry keeps f for the statement that database/sql prepares next, because the driver has
// asked for that. Should it never run, the fence is lifted with the next use of c, or when c goes back to the pool.
func (c *conn) carry(f *writeFence) {
	if f != nil {
		f.stop()
		c.carried = f
	}
}

// drop lifts a fence that was carried in vain.
func (c *conn) drop() {
	if f := c.carried; f != nil {
		c.carried = nil
		f.lift(context.Background())
	}
}

// noteTx follows the transactions that statements begin and end by their text.
//
// What has been written is invalidated whenever it may have been committed, and
// forgotten only when the transaction is surely over: to invalidate once too often, as
// after a textual ROLLBACK, costs a miss, and to miss a commit would cost stale rows.
//
//	statement                    in a transaction of       afterwards            dirty
//	BEGIN, COMMIT AND CHAIN      none, or of a text        in one of a text      invalidated, kept
//	COMMIT, ROLLBACK             none, or of a text        in none               invalidated, forgotten
//	any of these that fails      any                       cannot be told        invalidated, kept
//	BEGIN, COMMIT, ROLLBACK      BeginTx                   cannot be told        invalidated, kept
//	SAVEPOINT and its kin        any                       the same              kept
//	SAVEPOINT and its kin        none (SQLite begins one)  cannot be told        invalidated, kept
//	what may commit by itself    any                       cannot be told        invalidated, kept
//
// It returns what is to be invalidated.
func (c *conn) noteTx(p *plan, err error) writeEffects {
	switch {
	case !c.endsTx(p):
		return writeEffects{}
	case p.tx == sqllex.TxBegin && err == nil && !c.inTx:
		c.txBroken, c.txRows, c.txDoubt = false, false, false
		return c.dirty
	case p.tx == sqllex.TxEnd && err == nil && !c.inTx:
		dirty := c.dirty
		c.textTx, c.txBroken, c.txRows, c.txDoubt, c.dirty = false, false, false, false, writeEffects{}
		return dirty
	}
	// From here on every write invalidates at once, and again when it may be committed.
	c.txUnknown, c.textTx = true, false
	c.taint(p.stmt.Word, p.name)
	return c.dirty
}

// endsTx says whether p may end the open transaction, or one that may be open.
func (c *conn) endsTx(p *plan) bool {
	within := c.inTx || c.textTx
	switch p.tx {
	case sqllex.TxInside:
		return !within || c.txUnknown
	case sqllex.TxNone:
		return within && p.stmt.Commits
	}
	return true
}

// takeRows returns the rows that sqlmw has wrapped, with its error.
func (c *conn) takeRows(_ driver.Rows, err error) (driver.Rows, error) {
	rows := c.rows
	c.rows = nil
	return rows, err
}

// takeResult returns the result that sqlmw has wrapped, with its error. Some drivers give none.
func (c *conn) takeResult(_ driver.Result, err error) (driver.Result, error) {
	result := c.result
	c.result = nil
	return result, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, nil, query, args)
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, nil, query, args)
}

// exec runs a statement that returns no rows. It never touches the cache, except to
// tell it what was written.
func (c *conn) exec(ctx context.Context, st *stmt, query string, args []driver.NamedValue) (driver.Result, error) {
	p := c.planFor(st, query)
	effects, bad := c.effectsOf(ctx, p, args)
	if bad == nil {
		bad = p.hintErr
	}
	if err := c.malformedWrite(p, bad, effects.all); err != nil {
		return nil, err
	}
	real, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.note(p)
	f, returned := c.fence(ctx, p, effects), false
	defer func() {
		if !returned {
			c.noteEffects(ctx, p, effects, errPanicked, f)
		}
	}()
	var res driver.Result
	if st == nil {
		res, err = realExec(ctx, real, query, args)
	} else {
		var rst driver.Stmt
		if rst, err = st.ready(ctx, real); err == nil {
			res, err = realStmtExec(ctx, real, rst, args)
		}
	}
	returned = true
	c.heard(err)
	if err == driver.ErrSkip && st == nil {
		// database/sql prepares it next, and the statement will tell.
		c.carry(f)
		return nil, err
	}
	if bad != nil {
		c.h.counters.hintErrors.Add(1)
	}
	c.noteEffects(ctx, p, effects, err, f)
	return res, err
}

// effectsOf returns what running p here may write: anything, where it may be read as another text than the lexer has read.
func (c *conn) effectsOf(ctx context.Context, p *plan, args []driver.NamedValue) (writeEffects, error) {
	e, err := p.effectsOf(ctx, args)
	if c.strings && p.ambiguous {
		e.all = true
	}
	return e, err
}

// malformedWrite handles a hint that is malformed, or into which an argument could not be put. It returns an error when the
// statement must fail; one that runs is counted when it has, since a driver may answer ErrSkip and be asked again.
func (c *conn) malformedWrite(p *plan, bad error, forgets bool) error {
	if bad == nil {
		return nil
	}
	err := c.h.malformed(p, bad, forgets)
	if err != nil {
		c.h.counters.hintErrors.Add(1)
	}
	return err
}

// runRows runs a query on the caller's own connection, uncached.
func (c *conn) runRows(ctx context.Context, st *stmt, p *plan, query string, args []driver.NamedValue) (driver.Rows, error) {
	effects, bad := c.effectsOf(ctx, p, args)
	if err := c.malformedWrite(p, bad, effects.all); err != nil {
		return nil, err
	}
	real, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.note(p)
	f, returned := c.fence(ctx, p, effects), false
	defer func() {
		if !returned {
			c.noteEffects(ctx, p, effects, errPanicked, f)
		}
	}()
	var rows driver.Rows
	if st == nil {
		rows, err = realQuery(ctx, real, query, args)
	} else {
		var rst driver.Stmt
		if rst, err = st.ready(ctx, real); err == nil {
			rows, err = realStmtQuery(ctx, real, rst, args)
		}
	}
	returned = true
	c.heard(err)
	if err == driver.ErrSkip && st == nil {
		c.carry(f)
		return nil, err
	}
	if bad != nil {
		c.h.counters.hintErrors.Add(1)
	}
	if err == nil {
		// A deadlock, for instance, may show while rows are read, and MySQL rolls back. They are not
		// wrapped to see that: a rollback that comes after it costs a miss instead.
		c.txRows = c.txRows || (c.inTx || c.textTx) && c.src.dialect != PostgreSQL
	}
	if err == nil && effects.any() {
		// INSERT … RETURNING and its kin: the write is over when the rows are,
		// however early they are closed.
		return newWriteRows(rows, func(err error) { c.noteEffects(context.WithoutCancel(ctx), p, effects, err, f) }), nil
	}
	c.noteEffects(ctx, p, effects, err, f)
	return rows, err
}

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares at once what has no policy, so that a mistake shows where the
// bare driver shows it. What has one is prepared when it must really run.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	p := c.src.plan(query)
	st := &stmt{c: c, p: p, query: query}
	if p.mayCache() {
		return st, nil
	}
	real, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := st.ready(ctx, real); err != nil {
		c.heard(err)
		return nil, err
	}
	return st, nil
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	real, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	rtx, err := realBegin(ctx, real, opts)
	if err != nil {
		c.heard(err)
		return nil, err
	}
	c.inTx = true
	return &tx{c: c, ctx: ctx, real: rtx}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	real, err := c.dial(ctx)
	if err != nil {
		return err
	}
	if p, ok := real.(driver.Pinger); ok {
		err = p.Ping(ctx)
		c.heard(err)
	}
	return err
}

// CheckNamedValue accepts everything: see args.go.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// ResetSession is called when the conn leaves the pool. It does not end a taint: no
// driver's ResetSession resets the whole session.
func (c *conn) ResetSession(ctx context.Context) error {
	c.src.budget.busy(c)
	if c.real == nil {
		return nil
	}
	var err error
	if r, ok := c.real.(driver.SessionResetter); ok {
		err = r.ResetSession(ctx)
		c.heard(err)
	}
	return err
}

// IsValid is called when the conn is about to go back into the pool.
func (c *conn) IsValid() bool {
	c.drop()
	c.used = false
	if c.real == nil {
		return true
	}
	if c.dropAfter {
		return false
	}
	if v, ok := c.real.(driver.Validator); ok && !v.IsValid() {
		c.src.budget.doubt()
		return false
	}
	c.src.budget.idle(c)
	return true
}

func (c *conn) Close() error {
	c.drop()
	c.src.budget.busy(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.real == nil {
		return nil
	}
	real := c.real
	c.real = nil
	c.forget()
	defer c.src.budget.release()
	return real.Close()
}

// A tx is a transaction of a real connection. What is written in it is
// forgotten by the cache when Commit has returned, whatever it returned: a commit
// whose answer is lost may have happened.
type tx struct {
	c    *conn
	ctx  context.Context // BeginTx's; database/sql keeps no other
	real driver.Tx
}

func (t *tx) Commit() error {
	f, returned := t.c.h.fence(t.ctx, t.c.dirty), false
	defer func() {
		if !returned {
			t.c.h.settle(t.ctx, t.end(), f, errPanicked)
		}
	}()
	err := t.real.Commit()
	returned = true
	t.c.h.settle(t.ctx, t.end(), f, err)
	return err
}

func (t *tx) Rollback() error {
	err := t.real.Rollback()
	// A statement's text may have committed it before.
	unsure := t.c.txUnknown || t.c.txBroken || t.c.txDoubt
	if dirty := t.end(); unsure {
		t.c.h.wrote(t.ctx, dirty)
	}
	// After a rollback that a context forced, database/sql keeps a connection
	// only if the driver can reset and validate it. It sees that we can; the
	// real one decides.
	if t.ctx.Err() != nil {
		_, resets := t.c.real.(driver.SessionResetter)
		_, validates := t.c.real.(driver.Validator)
		t.c.dropAfter = t.c.dropAfter || !resets || !validates
	}
	return err
}

func (t *tx) end() writeEffects {
	dirty := t.c.dirty
	t.c.dirty = writeEffects{}
	t.c.inTx, t.c.textTx, t.c.txBroken, t.c.txRows, t.c.txDoubt = false, false, false, false, false
	return dirty
}

// A stmt is a prepared statement. It is prepared on the real connection when it first
// runs there, and again when the conn has been given another real connection.
type stmt struct {
	c     *conn
	p     *plan
	query string
	real  driver.Stmt
	gen   uint64
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// ready returns the statement of the real connection. The caller has dialed.
func (s *stmt) ready(ctx context.Context, real driver.Conn) (driver.Stmt, error) {
	if s.real != nil && s.gen == s.c.gen {
		return s.real, nil
	}
	if s.p.taints {
		// SQLite obeys some PRAGMAs while it prepares them, run or not.
		s.c.taint(s.p.stmt.Word, s.p.name)
	}
	st, err := realPrepare(ctx, real, s.query)
	if err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	s.real, s.gen = st, s.c.gen
	s.c.stmts = append(s.c.stmts, s)
	s.c.mu.Unlock()
	return st, nil
}

func (s *stmt) Close() error {
	err := s.close()
	// Meanwhile nobody could take the conn's real connection, though it may lie idle.
	s.c.src.budget.serve()
	return err
}

func (s *stmt) close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.real == nil || s.gen != s.c.gen {
		return nil
	}
	st := s.real
	s.real = nil
	if i := slices.Index(s.c.stmts, s); i >= 0 {
		s.c.stmts = slices.Delete(s.c.stmts, i, i+1)
	}
	return st.Close()
}

// NumInput leaves the count to convertArgs, which knows what the real driver takes out.
func (s *stmt) NumInput() int { return -1 }

// CheckNamedValue accepts everything: see args.go.
func (s *stmt) CheckNamedValue(*driver.NamedValue) error { return nil }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s, s.query, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, s, s.query, args)
}

var errOldCall = errors.New("sqlherd: bug: database/sql used a call without a context")

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errOldCall }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errOldCall }
