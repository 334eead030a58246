package integration_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// soakConfig tells a process of the run where everything is.
type soakConfig struct {
	ID       int
	DSN      string
	Redis    string
	Seed     uint64
	NoMemory bool
	Log      string // file for its records
}

func (c *soakConfig) application() string { return fmt.Sprintf("soak-%d-", c.ID) }

// soakOrder is what a process is told while it runs.
type soakOrder struct {
	// Die says to die by SIGKILL between a commit and its invalidation; else it is to stop and report.
	Die bool
}

// soakReport is what a process says at its end, apart from its records.
type soakReport struct {
	Stats    sqlherd.Stats
	Problems []string
}

// A record is what happened, in the file that survives its process.
type record struct {
	Kind recordKind
	Row  int64
	T0   int64 // monotonic
	T1   int64
	V    int64
	Tok  int64
}

type recordKind int64

const (
	// recordRead: of Row, from T0 to T1, gave V and Tok; V is notThere when there was no row. The
	// outcome is added to the kind.
	recordRead recordKind = 100 + iota*100
	// recordBegin: a write of Row begins, under Tok. V is its manner.
	recordBegin
	// recordEnd: the writes of Tok have returned at T0. V is their end; nothing of them can still happen
	// in the database after T1. Row is 1 when Redis was not told.
	recordEnd
	// recordAway: from T0 to T1 Redis may not have answered this process.
	recordAway
	// recordLoad: a load took T0.
	recordLoad
)

const notThere = -1

// Manners of writing.
const (
	mannerWrapped = iota // through the wrapped driver
	mannerTold           // by another, who called Herd.Invalidate
	mannerUnseen         // by another, who told nobody
)

// Ends of a write.
const (
	endDone   = iota
	endUndone // surely
	endUnknown
	// endLate: the connection was cut with the commit on its way. It may have arrived after the answer
	// was given up, and after the invalidation.
	endLate
)

// A recorder appends records to a file.
type recorder struct {
	mu   sync.Mutex
	f    *os.File
	buf  []byte
	dead error
}

func (r *recorder) add(rec record, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range []int64{int64(rec.Kind), rec.Row, rec.T0, rec.T1, rec.V, rec.Tok} {
		r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(n))
	}
	if now || len(r.buf) > 1<<16 {
		r.flushLocked()
	}
}

func (r *recorder) flushLocked() {
	if _, err := r.f.Write(r.buf); err != nil && r.dead == nil {
		r.dead = err
	}
	r.buf = r.buf[:0]
}

func (r *recorder) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushLocked()
	return errors.Join(r.dead, r.f.Close())
}

// soakWatch notes what a Herd says of loads and invalidations.
type soakWatch struct {
	sqlherd.ObserverBase
	rec *recorder

	mu      sync.Mutex
	longest time.Duration
	untold  []untold
}

// untold is an invalidation that Redis did not take at once.
type untold struct {
	at   time.Duration
	tags []string
}

func (w *soakWatch) Load(e sqlherd.LoadEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Took > w.longest {
		w.longest = e.Took
		w.rec.add(record{Kind: recordLoad, T0: int64(e.Took)}, true)
	}
}

func (w *soakWatch) Invalidation(e sqlherd.InvalidationEvent) {
	if e.Err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.untold = append(w.untold, untold{monotonic(), e.Tags})
}

// wasTold says that Redis has taken every invalidation of rows since began.
func (w *soakWatch) wasTold(began time.Duration, rows []int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.untold) - 1; i >= 0 && w.untold[i].at >= began; i-- {
		for _, row := range rows {
			if slices.Contains(w.untold[i].tags, "g:row/"+strconv.Itoa(row)) || slices.Contains(w.untold[i].tags, "t:notes") {
				return false
			}
		}
	}
	return true
}

// A soaker is one process of the run.
type soaker struct {
	cfg   soakConfig
	ctx   context.Context
	herd  *sqlherd.Herd
	rec   *recorder
	watch *soakWatch
	bare  *sql.DB
	reads *sql.DB

	tokens atomic.Int64
	dying  atomic.Bool // the next transaction is the last

	mu       sync.Mutex
	problems []string
}

var soakWorker = dbtest.NewRole("soak worker", func(c *dbtest.Child) error {
	s := &soaker{}
	if err := c.Config(&s.cfg); err != nil {
		return err
	}
	f, err := os.OpenFile(s.cfg.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.rec = &recorder{f: f}
	s.watch = &soakWatch{rec: s.rec}
	rdb := redis.NewClient(&redis.Options{Addr: s.cfg.Redis})
	defer rdb.Close()
	s.herd, err = sqlherd.New(sqlherd.Config{
		Redis: rdb, Namespace: "soak", RedisTimeout: soakRedisTimeout, Observer: s.watch,
		Local:  sqlherd.LocalConfig{Disabled: s.cfg.NoMemory},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer s.herd.Close()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	s.ctx = ctx

	var wg sync.WaitGroup
	if s.reads, err = s.open(&wire{}); err != nil {
		return err
	}
	defer s.reads.Close()
	if s.bare, err = sql.Open("postgres", s.cfg.DSN); err != nil {
		return err
	}
	defer s.bare.Close()
	s.bare.SetMaxOpenConns(4)
	rng := func(n int) *rand.Rand {
		return rand.New(rand.NewPCG(s.cfg.Seed, uint64(s.cfg.ID)<<32|uint64(n)))
	}
	for i := range 2 {
		w := &wire{}
		db, err := s.open(w)
		if err != nil {
			return err
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		wg.Go(func() { s.write(rng(i), db, w) })
	}
	for i := range 12 {
		wg.Go(func() { s.read(rng(100 + i)) })
	}
	wg.Go(s.sample)

	for o := (soakOrder{Die: true}); o.Die; {
		if err := c.Recv(&o); err != nil {
			return nil // the test has ended early
		}
		s.dying.Store(o.Die)
	}
	cancel()
	wg.Wait()
	report := soakReport{Stats: s.herd.Stats(), Problems: s.problems}
	if err := s.rec.close(); err != nil {
		return err
	}
	return c.Send(report)
})

// open returns a wrapped pool whose connections go through w.
func (s *soaker) open(w *wire) (*sql.DB, error) {
	c, err := pq.NewConnector(s.cfg.DSN + "&application_name=" + s.cfg.application())
	if err != nil {
		return nil, err
	}
	c.Dialer(w)
	return sql.OpenDB(s.herd.Connector(c, sqlherd.Identity("soak"))), nil
}

func (s *soaker) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 20 {
		s.problems = append(s.problems, fmt.Sprintf("process %d: ", s.cfg.ID)+fmt.Sprintf(format, args...))
	}
}

// sample records when Redis has failed this process, or a write waits for it. Between two looks at
// the counters nothing is missed, however late they come.
func (s *soaker) sample() {
	last := int64(monotonic())
	var failed uint64
	var pending bool
	for s.ctx.Err() == nil {
		st := s.herd.Stats()
		now := int64(monotonic())
		n := st.Redis.Errors + st.Redis.Timeouts + st.Redis.Refused
		if n != failed || st.Redis.BreakerOpen || st.InvalidationsPending > 0 || pending {
			s.rec.add(record{Kind: recordAway, T0: last, T1: now}, true)
		}
		failed, pending, last = n, st.InvalidationsPending > 0, now
		time.Sleep(10 * time.Millisecond)
	}
}

// read is one reader.
func (s *soaker) read(rng *rand.Rand) {
	for s.ctx.Err() == nil {
		switch n := rng.IntN(20); {
		case n < 13:
			row := rng.IntN(soakItems + soakUnseen)
			if row >= soakItems {
				row += firstUnseen - soakItems
			}
			query := soakItem
			if row%2 == 1 {
				query = soakSlow
			}
			s.readRow(s.reads, query, row)
		case n < 16:
			s.readRow(s.reads, soakGuest, firstGuest+rng.IntN(soakGuests))
		default:
			s.readNotes()
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	}
}

func (s *soaker) readRow(q querier, query string, row int) {
	var info sqlherd.Info
	var v, tok int64
	began := monotonic()
	err := q.QueryRowContext(sqlherd.WithInfo(s.ctx, &info), query, row).Scan(&v, &tok)
	s.readDone(row, began, v, tok, info, err)
}

func (s *soaker) readDone(row int, began time.Duration, v, tok int64, info sqlherd.Info, err error) {
	if errors.Is(err, sql.ErrNoRows) {
		v, tok, err = notThere, 0, nil
	}
	if err != nil {
		// Of a connection that was cut, mostly. Whether errors are rightly errors is tested elsewhere.
		return
	}
	s.rec.add(record{Kind: recordRead + recordKind(info.Outcome), Row: int64(row), T0: int64(began), T1: int64(monotonic()), V: v, Tok: tok}, false)
}

func (s *soaker) readNotes() {
	var info sqlherd.Info
	began := monotonic()
	rows, err := s.reads.QueryContext(sqlherd.WithInfo(s.ctx, &info), soakNote)
	if err != nil {
		return
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id int
		var v, tok int64
		if err := rows.Scan(&id, &v, &tok); err != nil {
			s.problem("scanning notes: %v", err)
			return
		}
		n++
		s.readDone(id, began, v, tok, info, nil)
	}
	if rows.Err() == nil && n != soakNotes {
		s.problem("%d notes, %v", n, info.Outcome)
	}
}

// write is one writer. It has a pool of one connection, which goes through w.
func (s *soaker) write(rng *rand.Rand, db *sql.DB, w *wire) {
	for s.ctx.Err() == nil {
		wr := &writing{s: s, rng: rng, db: db, w: w, tok: int64(s.cfg.ID)<<32 | s.tokens.Add(1)}
		wr.run()
		w.cut.Store(cutNever)
		time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
	}
}

// A writing is one write, of one or two rows.
type writing struct {
	s    *soaker
	rng  *rand.Rand
	db   *sql.DB
	w    *wire
	tok  int64
	rows []int
	late bool
}

func (w *writing) run() {
	manner := mannerWrapped
	var how func(context.Context) error
	switch n := w.rng.IntN(100); {
	case n < 8:
		w.rows = []int{firstUnseen + w.rng.IntN(soakUnseen)}
		manner, how = mannerUnseen, w.unseen
	case n < 16:
		w.rows = []int{w.rng.IntN(soakItems)}
		manner, how = mannerTold, w.told
	case n < 26:
		w.rows = []int{firstNote + w.rng.IntN(soakNotes)}
		how = w.notes
	case n < 40:
		w.rows = []int{firstGuest + w.rng.IntN(soakGuests)}
		how = w.guest
	default:
		w.rows = []int{w.rng.IntN(soakItems)}
		how = [...]func(context.Context) error{
			w.exec, w.prepared, w.returning, w.transaction, w.transaction, w.twoRows, w.textual, w.rollback, w.abandoned, w.lostAnswer, w.lostCommit, w.lostCommit, w.cutCommit, w.terminated,
		}[w.rng.IntN(14)]
		if w.rng.IntN(3) == 0 {
			// A deadlock is none of ours: always in this order.
			if other := w.rng.IntN(soakItems); other > w.rows[0] {
				w.rows = append(w.rows, other)
			}
		}
	}
	for _, row := range w.rows {
		w.s.rec.add(record{Kind: recordBegin, Row: int64(row), T0: int64(monotonic()), V: int64(manner), Tok: w.tok}, true)
	}
	began := monotonic()
	// Not the run's own context: a write that has begun comes to its end.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := how(ctx)
	ended := monotonic()
	end := record{Kind: recordEnd, T0: int64(ended), T1: int64(ended), V: endDone, Tok: w.tok}
	switch {
	case errors.Is(err, errUndone):
		end.V = endUndone
	case err != nil && w.late:
		end.V = endLate
		w.settle()
		end.T1 = int64(monotonic())
	case err != nil:
		end.V = endUnknown
	}
	if !w.s.watch.wasTold(began, w.rows) {
		end.Row = 1
	}
	w.s.rec.add(end, true)
}

// errUndone says that a write has surely not happened, and no invalidation need have.
var errUndone = errors.New("rolled back")

// settle waits until nothing of the connection that was cut is under way in the database.
func (w *writing) settle() {
	pid := w.w.pid.Load()
	for n := 1; n != 0; time.Sleep(time.Millisecond) {
		if err := w.s.bare.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n); err != nil {
			n = 1 // ours may have been terminated
		}
	}
}

func (w *writing) update(row int) string {
	return fmt.Sprintf("UPDATE /* @invalidate tags=row/%d tables=none */ items SET v = v + 1, tok = %d WHERE id = %d", row, w.tok, row)
}

func (w *writing) exec(ctx context.Context) error {
	_, err := w.db.ExecContext(ctx, w.update(w.rows[0]))
	return err
}

func (w *writing) prepared(ctx context.Context) error {
	st, err := w.db.PrepareContext(ctx, "UPDATE /* @invalidate tags=row/{2} tables=none */ items SET v = v + 1, tok = $1 WHERE id = $2")
	if err != nil {
		return err
	}
	defer st.Close()
	for _, row := range w.rows {
		if _, err := st.ExecContext(ctx, w.tok, row); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) returning(ctx context.Context) error {
	var v int64
	return w.db.QueryRowContext(ctx, w.update(w.rows[0])+" RETURNING v").Scan(&v)
}

// inTx writes the rows in a transaction, in which it reads its own.
func (w *writing) inTx(ctx context.Context, q querier) error {
	for _, row := range w.rows {
		if _, err := q.ExecContext(ctx, w.update(row)); err != nil {
			return err
		}
	}
	var info sqlherd.Info
	var v, tok int64
	if err := q.QueryRowContext(sqlherd.WithInfo(ctx, &info), soakItem, w.rows[0]).Scan(&v, &tok); err != nil {
		return err
	}
	if tok != w.tok || info.Outcome != sqlherd.Bypassed {
		w.s.problem("a transaction that wrote %d reads %d, %v", w.tok, tok, info.Outcome)
	}
	return nil
}

func (w *writing) transaction(ctx context.Context) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.inTx(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if w.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	}
	if w.s.dying.Load() {
		w.w.arm(cutDie, "COMMIT")
	}
	return tx.Commit()
}

func (w *writing) twoRows(ctx context.Context) error {
	if len(w.rows) == 1 && w.rows[0] > 0 {
		w.s.rec.add(record{Kind: recordBegin, Row: 0, T0: int64(monotonic()), V: mannerWrapped, Tok: w.tok}, true)
		w.rows = []int{0, w.rows[0]}
	}
	return w.transaction(ctx)
}

func (w *writing) textual(ctx context.Context) error {
	c, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	if err := w.inTx(ctx, c); err != nil {
		_, rerr := c.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, rerr)
	}
	_, err = c.ExecContext(ctx, "COMMIT")
	return err
}

func (w *writing) rollback(ctx context.Context) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = w.inTx(ctx, tx)
	return errors.Join(errUndone, err, tx.Rollback())
}

// abandoned is a transaction whose context ends when it is about to commit.
func (w *writing) abandoned(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.inTx(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	go cancel()
	return tx.Commit()
}

// lostAnswer is a statement of its own that is executed, and whose answer is lost.
func (w *writing) lostAnswer(ctx context.Context) error {
	if err := w.db.PingContext(ctx); err != nil { // or the statement would meet a dead connection
		return err
	}
	w.w.arm(cutAnswer, "UPDATE")
	return w.exec(ctx)
}

func (w *writing) lostCommit(ctx context.Context) error { return w.commitUnder(ctx, cutAnswer) }

// cutCommit commits over a connection that is cut as soon as the statement is on its way, or before.
func (w *writing) cutCommit(ctx context.Context) error {
	w.late = true
	return w.commitUnder(ctx, []int32{cutSent, cutBefore}[w.rng.IntN(2)])
}

func (w *writing) commitUnder(ctx context.Context, cut int32) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = w.inTx(ctx, tx)
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&w.w.pidNow)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	w.w.pid.Store(w.w.pidNow)
	w.w.arm(cut, "COMMIT")
	return tx.Commit()
}

// terminated commits while somebody terminates its backend.
func (w *writing) terminated(ctx context.Context) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = w.inTx(ctx, tx)
	var pid int64
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	before := time.Duration(w.rng.IntN(1500)) * time.Microsecond
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = w.s.bare.ExecContext(ctx, "SELECT pg_terminate_backend($1)", pid) })
	time.Sleep(before)
	err = tx.Commit()
	wg.Wait()
	return err
}

func (w *writing) notes(ctx context.Context) error {
	// Its tag is the table's, which the text names.
	_, err := w.db.ExecContext(ctx, "UPDATE notes SET v = v + 1, tok = $1 WHERE id = $2", w.tok, w.rows[0])
	return err
}

// guest lets a guest come or go.
func (w *writing) guest(ctx context.Context) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	row := w.rows[0]
	err = func() error {
		var v int64
		if err := tx.QueryRowContext(ctx, "UPDATE /* @invalidate tables=none */ items SET v = v + 1, tok = $1 WHERE id = $2 RETURNING v", w.tok, row).Scan(&v); err != nil {
			return err
		}
		if v%2 == 1 {
			var id int
			return tx.QueryRowContext(ctx, "INSERT /* @invalidate tags=row/{1} tables=none */ INTO guests VALUES ($1, $2, $3) RETURNING id", row, v, w.tok).Scan(&id)
		}
		_, err := tx.ExecContext(ctx, "DELETE /* @invalidate tags=row/{1} tables=none */ FROM guests WHERE id = $1", row)
		return err
	}()
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// told is a write through another driver, whose author calls Herd.Invalidate.
func (w *writing) told(ctx context.Context) error {
	_, err := w.s.bare.ExecContext(ctx, w.update(w.rows[0]))
	// Told in the event too: wasTold knows.
	_ = w.s.herd.Invalidate(ctx, "row/"+strconv.Itoa(w.rows[0]))
	return err
}

func (w *writing) unseen(ctx context.Context) error {
	_, err := w.s.bare.ExecContext(ctx, w.update(w.rows[0]))
	return err
}

// A wire dials connections that can be cut at a chosen moment.
type wire struct {
	cut    atomic.Int32
	at     atomic.Pointer[string]
	pid    atomic.Int64 // of the backend beyond
	pidNow int64
}

const (
	cutNever  int32 = iota
	cutAnswer       // when the answer has arrived, which is lost
	cutSent         // when the statement has been sent
	cutBefore       // instead of sending it
	cutDie          // when the answer has arrived, which nobody lives to see
)

// arm cuts the connection at the next statement that contains text.
func (w *wire) arm(cut int32, text string) {
	w.at.Store(&text)
	w.cut.Store(cut)
}

func (w *wire) Dial(network, addr string) (net.Conn, error) {
	return w.DialTimeout(network, addr, patience)
}

func (w *wire) DialTimeout(network, addr string, d time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &cuttable{Conn: c, w: w}, nil
}

type cuttable struct {
	net.Conn
	w       *wire
	swallow atomic.Bool
	die     atomic.Bool
}

func (c *cuttable) Write(b []byte) (int, error) {
	cut := c.w.cut.Load()
	if cut == cutNever || !bytes.Contains(b, []byte(*c.w.at.Load())) {
		return c.Conn.Write(b)
	}
	c.w.cut.Store(cutNever)
	switch cut {
	case cutAnswer, cutDie:
		c.swallow.Store(true)
		c.die.Store(cut == cutDie)
		return c.Conn.Write(b)
	case cutSent:
		n, err := c.Conn.Write(b)
		_ = c.Conn.Close()
		return n, err
	}
	_ = c.Conn.Close()
	return 0, syscall.ECONNRESET
}

func (c *cuttable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.die.Load() {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {}
	}
	if err == nil && c.swallow.Load() {
		_ = c.Conn.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}
