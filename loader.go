package sqlherd

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// The loader pool is a second, bounded pool on the same base connector. Loads never run on the
// caller's connection: a caller who leaves would hand it back while it is in use, and a refresh has no caller.
// The pool has only ever run cacheable reads, so its
// sessions are in the DSN's default state, and its bound is the bulkhead that keeps a
// stampede over many keys from the database.
type loader struct {
	base    driver.Connector
	max     int
	timeout time.Duration

	// streams bounds the results that are too large to keep and have their caller read them from
	// the pool's connections, for as long as the caller takes: loads shall find room beside them.
	streams chan struct{}

	ctx  context.Context // ends with the pool, and with it what runs in it
	stop context.CancelFunc

	mu      sync.Mutex
	db      *sql.DB // opened by the first load
	closed  bool
	running sync.WaitGroup // loads; none begins after closed
}

// Idle connections of the loader pool are closed after loaderIdle, and any after
// loaderLife, so that a fail-over or a changed password gets through to it.
const (
	loaderIdle = time.Minute
	loaderLife = 10 * time.Minute
)

func newLoader(base driver.Connector, limit int, timeout time.Duration) *loader {
	ctx, stop := context.WithCancel(context.Background())
	return &loader{base: base, max: limit, timeout: timeout, streams: make(chan struct{}, limit/2), ctx: ctx, stop: stop}
}

// begin returns the pool for one load, which ends with running.Done.
func (l *loader) begin() (*sql.DB, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errGone
	}
	l.running.Add(1)
	if l.db == nil {
		l.db = sql.OpenDB(loaderConnector{l.base})
		l.db.SetMaxOpenConns(l.max)
		l.db.SetMaxIdleConns(l.max)
		l.db.SetConnMaxIdleTime(loaderIdle)
		l.db.SetConnMaxLifetime(loaderLife)
	}
	return l.db, nil
}

// close ends the pool, cancels the loads that run in it, and waits for them.
func (l *loader) close() error {
	l.mu.Lock()
	l.closed = true
	db := l.db
	l.mu.Unlock()
	l.stop()
	l.running.Wait()
	if db == nil {
		return nil
	}
	return db.Close()
}

func (l *loader) stats() sql.DBStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		return sql.DBStats{MaxOpenConnections: l.max}
	}
	return l.db.Stats()
}

// loaderConnector hides the base connector's Close, which belongs to the application's pool.
type loaderConnector struct{ base driver.Connector }

func (c loaderConnector) Connect(ctx context.Context) (driver.Conn, error) {
	return c.base.Connect(ctx)
}

func (c loaderConnector) Driver() driver.Driver { return c.base.Driver() }

// A loadQuery is a query as a load runs it.
type loadQuery struct {
	src      *source
	query    string
	args     []driver.NamedValue // as given; never changed
	prepared bool
	maxRows  int
	maxBytes int64
}

// load runs q in the loader pool and reads its whole result, up to the caps.
func (l *loader) load(ctx context.Context, q *loadQuery) (loadResult, error) {
	db, err := l.begin()
	if err != nil {
		return loadResult{}, err
	}
	defer l.running.Done()
	began := time.Now()
	// The load's context outlives ctx when its rows turn out to be a stream.
	lctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unfollow := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	ungone := context.AfterFunc(l.ctx, func() { cancel(errGone) })
	timer := time.AfterFunc(l.timeout, func() { cancel(ErrLoadTimeout) })

	res, err := l.run(lctx, cancel, db, q)
	timer.Stop()
	unfollow()
	ungone() // rows that are being read survive the pool's Close, as database/sql's do
	if res.live == nil {
		defer cancel(nil)
	}
	if err != nil {
		if cause := context.Cause(lctx); errors.Is(cause, ErrLoadTimeout) || errors.Is(cause, errGone) {
			err = cause
		}
		return loadResult{}, err
	}
	res.took = time.Since(began)
	return res, nil
}

// run gets a connection of the pool and runs q on it. A connection that turns out to
// be dead is replaced, as database/sql does; all idle ones may be.
func (l *loader) run(ctx context.Context, cancel context.CancelCauseFunc, db *sql.DB, q *loadQuery) (loadResult, error) {
	for attempt := 0; ; attempt++ {
		sc, err := db.Conn(ctx)
		if err != nil {
			return loadResult{}, err
		}
		var res loadResult
		err = sc.Raw(func(dc any) error {
			res, err = readAll(ctx, dc.(driver.Conn), q)
			return err
		})
		if res.live != nil {
			res.live.cancel = cancel
			res.live.free = func() { _ = sc.Close() }
			// Rows already read through Next could not be given to a driver that fills the
			// destinations itself.
			if scansColumns(res.live.live) || !l.lend(res.live) {
				// The query runs again, on its caller's connection.
				res.live.discard()
				res.live = nil
				return res, nil
			}
			res.live.offer()
			return res, nil
		}
		_ = sc.Close() // the rows are complete, or err tells why not
		var begun *rowsError
		if errors.Is(err, driver.ErrBadConn) && !errors.As(err, &begun) && attempt <= l.max {
			continue
		}
		if err != nil {
			return loadResult{}, err
		}
		return res, nil
	}
}

// lend lets the caller of s have its connection of the pool, if not too many are lent already.
func (l *loader) lend(s *stream) bool {
	select {
	case l.streams <- struct{}{}:
	default:
		return false
	}
	free := s.free
	s.free = func() { free(); <-l.streams }
	return true
}

// readAll runs q on a real connection and reads the first result set up to the caps. When the
// result cannot be kept, res.unfit says why and res.live has all of it.
func readAll(ctx context.Context, real driver.Conn, q *loadQuery) (res loadResult, err error) {
	rows, closeStmt, err := openRows(ctx, real, q)
	if err != nil {
		return loadResult{}, err
	}
	handed := false
	defer func() {
		if handed {
			return
		}
		// Complete only if the end is clean: Close may have the error that cut the rows short.
		cerr := rows.Close()
		if serr := closeStmt(); cerr == nil {
			cerr = serr
		}
		if err == nil && cerr != nil {
			res, err = loadResult{}, &rowsError{head: res.rows, err: cerr, closing: true}
		}
	}()

	q.src.learn(rows)
	cols, traits := rowcodec.ColumnsOf(rows)
	b := rowcodec.NewBuilder(cols, traits)
	row := make([]driver.Value, len(cols))
	hand := func(reason Reason, pending []driver.Value, ended bool) (loadResult, error) {
		handed = true
		return loadResult{unfit: reason, live: &stream{
			head:    b.Result(),
			pending: pending,
			ended:   ended,
			live:    rows,
			after:   closeStmt,
		}}, nil
	}
	for {
		err := rows.Next(row)
		if err == io.EOF {
			break
		}
		if err != nil {
			return loadResult{}, &rowsError{head: b.Result(), err: err}
		}
		if err := b.Append(row); err != nil {
			return hand(ReasonType, row, false)
		}
		if b.Rows() > q.maxRows || b.Size() > q.maxBytes {
			return hand(ReasonSize, nil, false)
		}
	}
	if n, ok := rows.(driver.RowsNextResultSet); ok && n.HasNextResultSet() {
		return hand(ReasonMulti, nil, true)
	}
	if err := ctx.Err(); err != nil {
		// Some drivers end the rows early, and cleanly, when their context ends.
		return loadResult{}, err
	}
	return loadResult{rows: b.Result()}, nil
}

// A rowsError is the end of rows that began well. The caller's query succeeds, as it would
// have, and its rows fail where those of the driver did.
type rowsError struct {
	head    *rowcodec.Result // the rows before
	err     error
	closing bool // it is Close that failed, after the last row
}

func (e *rowsError) Error() string { return e.err.Error() }
func (e *rowsError) Unwrap() error { return e.err }

// rows returns what one of its callers reads.
func (e *rowsError) rows(again live) *failedRows {
	return &failedRows{cachedRows: cachedRows{live: again, res: e.head}, end: e}
}

// withoutRows returns err as it can be remembered: a rowsError without the rows, which would
// take memory that nobody counts.
func withoutRows(err error) error {
	var e *rowsError
	if !errors.As(err, &e) {
		return err
	}
	empty := rowcodec.NewBuilder(e.head.Columns(), e.head.Traits()).Result()
	return &rowsError{head: empty, err: e.err, closing: e.closing}
}

// openRows runs q the way the application would have: as a prepared statement if it was one, and as
// one if the driver asks for that.
func openRows(ctx context.Context, real driver.Conn, q *loadQuery) (driver.Rows, func() error, error) {
	if !q.prepared {
		rows, err := realQuery(ctx, real, q.query, cloneArgs(q.args))
		if err != driver.ErrSkip {
			return rows, func() error { return nil }, err
		}
	}
	st, err := realPrepare(ctx, real, q.query)
	if err != nil {
		return nil, nil, err
	}
	rows, err := realStmtQuery(ctx, real, st, cloneArgs(q.args))
	if err != nil {
		_ = st.Close() // the query's error is the one to tell
		return nil, nil, err
	}
	return rows, st.Close, nil
}
