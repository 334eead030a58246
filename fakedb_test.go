package sqlherd_test

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A fakeDB is a database of one handler function. It counts what reaches it, and its
// driver re-uses, and spoils, every buffer that a driver may re-use. Delays are by
// time.Sleep, which testing/synctest makes virtual.
type fakeDB struct {
	t *testing.T

	// handle answers a query. It runs in the goroutine that queries, and should end with ctx.
	handle func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error)

	queries  atomic.Int64 // that reached handle
	opens    atomic.Int64
	open     atomic.Int64
	peak     atomic.Int64
	prepares atomic.Int64
	closes   atomic.Int64 // rows
	pulled   atomic.Int64 // rows that were read

	mu        sync.Mutex
	log       []string
	dialError error
	skip      bool // QueryContext and ExecContext answer ErrSkip
	invalid   bool // IsValid answers false

	// Hooks into what is not a query; nil does nothing.
	onTx        func(c *fakeConn, what string) error // BEGIN, COMMIT, ROLLBACK of driver.Tx
	onReset     func(c *fakeConn) error
	onPrepare   func(c *fakeConn) error
	onStmtClose func()
	onRowsClose func(res *fakeResult)
}

// connOf returns the connection that a handler is called on.
func connOf(ctx context.Context) *fakeConn { return ctx.Value(connCtxKey{}).(*fakeConn) }

type connCtxKey struct{}

type fakeResult struct {
	cols   []string
	rows   [][]driver.Value
	failAt int   // after this many rows …
	fail   error // … fail with this
	hook   func(row int)
	next   *fakeResult // next result set

	count int // instead of rows: as many, each made by make
	make  func(row int) []driver.Value
}

func rowsOf(cols []string, rows ...[]driver.Value) *fakeResult {
	return &fakeResult{cols: cols, rows: rows}
}

// one is a result of one value.
func one(v driver.Value) *fakeResult { return rowsOf([]string{"v"}, []driver.Value{v}) }

func newFakeDB(t *testing.T, handle func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error)) *fakeDB {
	return &fakeDB{t: t, handle: handle}
}

// slowly answers v after d, or ends with ctx.
func slowly(d time.Duration, v driver.Value) func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
	return func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
		return one(v), nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (db *fakeDB) statements() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return append([]string(nil), db.log...)
}

// fakeConnector and fakeDriver are the two ways to the database.
type fakeConnector struct{ db *fakeDB }

func (c fakeConnector) Connect(context.Context) (driver.Conn, error) { return c.db.connect() }
func (c fakeConnector) Driver() driver.Driver                        { return fakeDriver{c.db} }

type fakeDriver struct{ db *fakeDB }

func (d fakeDriver) Open(string) (driver.Conn, error) { return d.db.connect() }

func (db *fakeDB) connect() (driver.Conn, error) {
	db.mu.Lock()
	err := db.dialError
	db.mu.Unlock()
	if err != nil {
		return nil, err
	}
	db.opens.Add(1)
	n := db.open.Add(1)
	for p := db.peak.Load(); n > p && !db.peak.CompareAndSwap(p, n); p = db.peak.Load() {
	}
	return &fakeConn{db: db}, nil
}

type fakeConn struct {
	db     *fakeDB
	inUse  atomic.Bool
	closed bool
}

func (c *fakeConn) note(query string) {
	c.db.mu.Lock()
	c.db.log = append(c.db.log, query)
	c.db.mu.Unlock()
}

func (c *fakeConn) run(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	// database/sql promises one goroutine at a time; a wrapper must keep that promise.
	if !c.inUse.CompareAndSwap(false, true) {
		c.db.t.Error("a connection was used by two goroutines at once")
	}
	defer c.inUse.Store(false)
	c.db.queries.Add(1)
	c.note(query)
	res, err := c.db.handle(context.WithValue(ctx, connCtxKey{}, c), query, args)
	if err != nil {
		return nil, err
	}
	return &fakeRows{db: c.db, res: res}, nil
}

func (c *fakeConn) skips() bool {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	return c.db.skip
}

func (c *fakeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.skips() {
		return nil, driver.ErrSkip
	}
	return c.run(ctx, query, args)
}

func (c *fakeConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.skips() {
		return nil, driver.ErrSkip
	}
	return c.exec(ctx, query, args)
}

func (c *fakeConn) exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	rows, err := c.run(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(1), rows.Close()
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	c.db.prepares.Add(1)
	if f := c.db.onPrepare; f != nil {
		if err := f(c); err != nil {
			return nil, err
		}
	}
	return &fakeStmt{c: c, query: query}, nil
}

func (c *fakeConn) Close() error {
	if !c.closed {
		c.closed = true
		c.db.open.Add(-1)
	}
	return nil
}

func (c *fakeConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if err := c.tx("BEGIN"); err != nil {
		return nil, err
	}
	return fakeTx{c}, nil
}

func (c *fakeConn) tx(what string) error {
	c.note(what)
	if c.db.onTx == nil {
		return nil
	}
	return c.db.onTx(c, what)
}

func (c *fakeConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *fakeConn) ResetSession(context.Context) error {
	if c.db.onReset == nil {
		return nil
	}
	return c.db.onReset(c)
}

func (c *fakeConn) IsValid() bool {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	return !c.db.invalid
}

type fakeTx struct{ c *fakeConn }

func (tx fakeTx) Commit() error   { return tx.c.tx("COMMIT") }
func (tx fakeTx) Rollback() error { return tx.c.tx("ROLLBACK") }

type fakeStmt struct {
	c     *fakeConn
	query string
}

func (s *fakeStmt) Close() error {
	if s.c.closed {
		s.c.db.t.Error("a statement was closed after its connection")
	}
	if s.c.db.onStmtClose != nil {
		s.c.db.onStmtClose()
	}
	return nil
}
func (s *fakeStmt) NumInput() int { return -1 }
func (s *fakeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.run(ctx, s.query, args)
}
func (s *fakeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s.query, args)
}
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) { panic("old call") }
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error)  { panic("old call") }

type fakeRows struct {
	db   *fakeDB
	res  *fakeResult
	i    int
	bufs [][]byte // given out for the current row
}

func (r *fakeRows) Columns() []string { return r.res.cols }

func (r *fakeRows) spoil() {
	for _, b := range r.bufs {
		for i := range b {
			b[i] = 'X'
		}
	}
	r.bufs = r.bufs[:0]
}

func (r *fakeRows) Close() error {
	r.spoil()
	r.db.closes.Add(1)
	if r.db.onRowsClose != nil {
		r.db.onRowsClose(r.res)
	}
	return nil
}

func (r *fakeRows) Next(dest []driver.Value) error {
	r.spoil()
	if r.res.hook != nil {
		r.res.hook(r.i)
	}
	if r.res.fail != nil && r.i == r.res.failAt {
		return r.res.fail
	}
	var row []driver.Value
	switch {
	case r.res.make != nil && r.i < r.res.count:
		row = r.res.make(r.i)
	case r.i < len(r.res.rows):
		row = r.res.rows[r.i]
	default:
		return io.EOF
	}
	r.db.pulled.Add(1)
	for i, v := range row {
		if b, ok := v.([]byte); ok && b != nil {
			c := append(make([]byte, 0, len(b)+8), b...) // a capacity that reaches into the neighbour
			r.bufs = append(r.bufs, c)
			v = c
		}
		dest[i] = v
	}
	r.i++
	return nil
}

func (r *fakeRows) HasNextResultSet() bool { return r.res.next != nil }

func (r *fakeRows) NextResultSet() error {
	if r.res.next == nil {
		return io.EOF
	}
	r.res, r.i = r.res.next, 0
	return nil
}

func (r *fakeRows) ColumnTypeDatabaseTypeName(int) string { return "FAKE" }
func (r *fakeRows) ColumnTypeScanType(i int) reflect.Type { return reflect.TypeFor[string]() }
