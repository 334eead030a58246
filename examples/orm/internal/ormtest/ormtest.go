// Package ormtest is what the tests of the examples share: a database at a real server, a Herd on
// it, and a log of every statement that an ORM sends, with what sqlherd made of it.
package ormtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ngrok/sqlmw"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A Bed is an empty database beneath a Herd.
type Bed struct {
	dbtest.Database
	DB   *sql.DB
	Herd *sqlherd.Herd
	Log  *Log // of what is sent through DB
}

// Open returns a Bed on d, which ends with the test.
func Open(t testing.TB, d dbtest.Database, cfg sqlherd.Config) *Bed {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	herd, err := sqlherd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := herd.Close(); err != nil {
			t.Error(err)
		}
	})
	log := &Log{}
	connector, err := sqlmw.Driver(herd.Driver(d.Driver), recorder{log: log}).(driver.DriverContext).OpenConnector(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return &Bed{Database: d, DB: db, Herd: herd, Log: log}
}

// A Log holds a line for each statement: how it was answered, and its text.
//
//	miss SELECT …            a query, by its outcome
//	bypass(tx) SELECT …      and its reason
//	exec INSERT …            a statement without rows
//	begin, commit, rollback
type Log struct {
	mu    sync.Mutex
	lines []string
	args  [][]driver.NamedValue
}

func (l *Log) add(line string, args []driver.NamedValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.args = append(l.args, slices.Clone(args))
}

// Take returns the lines since the last Take.
func (l *Log) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines, l.args = nil, nil
	return lines
}

// Want fails the test unless the lines since the last Take are want. White space counts as one blank.
func (l *Log) Want(t testing.TB, what string, want ...string) {
	t.Helper()
	got := l.Take()
	for i := range got {
		got[i] = squeeze(got[i])
	}
	for i := range want {
		want[i] = squeeze(want[i])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\ngot\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// Outcomes returns how the statements since the last Take were answered, without their texts.
func (l *Log) Outcomes() string {
	lines := l.Take()
	for i := range lines {
		lines[i], _, _ = strings.Cut(lines[i], " ")
	}
	return strings.Join(lines, " ")
}

// Args returns the arguments of the last statement.
func (l *Log) Args() []driver.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []driver.Value
	for _, a := range l.args[len(l.args)-1] {
		out = append(out, a.Value)
	}
	return out
}

var blanks = regexp.MustCompile(`\s+`)

func squeeze(s string) string { return strings.TrimSpace(blanks.ReplaceAllString(s, " ")) }

// A recorder stands above sqlherd, where an ORM's statements arrive.
type recorder struct {
	sqlmw.NullInterceptor
	log *Log
}

func outcome(i sqlherd.Info) string {
	if i.Reason == sqlherd.ReasonNone {
		return i.Outcome.String()
	}
	return i.Outcome.String() + "(" + i.Reason.String() + ")"
}

func (r recorder) ConnQueryContext(ctx context.Context, c driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	var info sqlherd.Info
	rows, err := c.QueryContext(r.inform(ctx, &info), query, args)
	if err != driver.ErrSkip {
		r.log.add(outcome(info)+" "+query, args)
	}
	return ctx, rows, err
}

func (r recorder) StmtQueryContext(ctx context.Context, s driver.StmtQueryContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	var info sqlherd.Info
	rows, err := s.QueryContext(r.inform(ctx, &info), args)
	r.log.add(outcome(info)+" "+query, args)
	return ctx, rows, err
}

// inform does not take a caller's own Info away from it: it has none in these tests.
func (recorder) inform(ctx context.Context, info *sqlherd.Info) context.Context {
	info.Outcome = sqlherd.Passthrough
	return sqlherd.WithInfo(ctx, info)
}

func (r recorder) ConnExecContext(ctx context.Context, c driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.ExecContext(ctx, query, args)
	if err != driver.ErrSkip {
		r.log.add("exec "+query, args)
	}
	return res, err
}

func (r recorder) StmtExecContext(ctx context.Context, s driver.StmtExecContext, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := s.ExecContext(ctx, args)
	r.log.add("exec "+query, args)
	return res, err
}

func (r recorder) ConnBeginTx(ctx context.Context, c driver.ConnBeginTx, opts driver.TxOptions) (context.Context, driver.Tx, error) {
	tx, err := c.BeginTx(ctx, opts)
	r.log.add("begin", nil)
	return ctx, tx, err
}

func (r recorder) TxCommit(_ context.Context, tx driver.Tx) error {
	err := tx.Commit()
	r.log.add("commit", nil)
	return err
}

func (r recorder) TxRollback(_ context.Context, tx driver.Tx) error {
	err := tx.Rollback()
	r.log.add("rollback", nil)
	return err
}

// Transcript is what every example program prints: the second read costs no query, and the
// write makes the third one ask the database again.
const Transcript = `miss tea 350
hit tea 350
miss tea 400
`

// FullHint has every option that there is, on a table herd_products. ORMs fill in arguments also in comments, so
// whatever they look for must be in none of them.
const FullHint = "/* @cache ttl=30s swr=5m sie=1h empty=1s jitter=10% lease=5s wait=1s tags=product/{1},all tables=herd_products " +
	"scope=shop name=full max-rows=10 max-bytes=64KiB early=off allow=volatile */"

// TagsWithPlaceholders are what a hint might look like to which that was not known. ORMs take ?, $1, :id and @id for
// arguments, each some of them.
var TagsWithPlaceholders = []string{"user?id", "user$1", "user:id", "user@id"}

// SameAsBare fails the test unless an ORM's query of one number ended alike on the bare driver and, each time,
// beneath sqlherd, where sent is what was sent and how it was answered.
func (b *Bed) SameAsBare(t testing.TB, what string, bare func() (int, error), wrapped func() (int, error), sent ...string) {
	t.Helper()
	want, wantErr := bare()
	for range sent {
		got, err := wrapped()
		if got != want || said(err) != said(wantErr) {
			t.Errorf("%s: %d, %v; the bare driver says %d, %v", what, got, err, want, wantErr)
		}
	}
	b.Log.Want(t, what, sent...)
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
