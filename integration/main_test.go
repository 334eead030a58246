// Package integration_test holds the read path to its promises with real
// databases, real Redis and real processes. It needs the servers of make servers.
package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience bounds every wait for something that must happen. It is no measure of anything.
const patience = 30 * time.Second

// await returns when happened answers true.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// withDeadline returns a context that ends long before the test binary's time does.
func withDeadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// eachServer runs f on an empty database of every driver that uses a network.
func eachServer(t *testing.T, f func(t *testing.T, d dbtest.Database)) {
	on(t, f, dbtest.PQ, dbtest.PGX, dbtest.MariaDB)
}

// eachEngine runs f on an empty database of every kind, for tests of many processes in which
// one driver is as good as another.
func eachEngine(t *testing.T, f func(t *testing.T, d dbtest.Database)) {
	on(t, f, underRace(1, dbtest.PQ, dbtest.MariaDB, dbtest.SQLite)...)
}

func on(t *testing.T, f func(t *testing.T, d dbtest.Database), databases ...func(testing.TB) dbtest.Database) {
	for _, open := range databases {
		d := open(t)
		t.Run(d.Name, func(t *testing.T) { f(t, d) })
	}
}

// underRace returns all variants of a test, or the first n when the race detector, which has nothing more to
// find in the others, makes each take many times as long.
func underRace[V any](n int, all ...V) []V {
	if raceEnabled {
		return all[:n]
	}
	return all
}

// newHerd makes a Herd that ends with the test.
func newHerd(t testing.TB, cfg sqlherd.Config) *sqlherd.Herd {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := sqlherd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error("closing the herd:", err)
		}
	})
	return h
}

// open returns a pool on d beneath h. Unlike dbtest.OpenDB it does not connect.
func open(t testing.TB, h *sqlherd.Herd, d dbtest.Database) *sql.DB {
	t.Helper()
	c, err := connectorOf(h, d)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(1000)         // or database/sql closes conns by the hundred after a stampede
	t.Cleanup(func() { db.Close() }) // its error may be that of a connection a test has cut
	return db
}

func connectorOf(h *sqlherd.Herd, d dbtest.Database) (driver.Connector, error) {
	return h.Driver(d.Driver).(driver.DriverContext).OpenConnector(d.DSN)
}

// openHerd is newHerd and open.
func openHerd(t testing.TB, d dbtest.Database, cfg sqlherd.Config) (*sql.DB, *sqlherd.Herd) {
	t.Helper()
	h := newHerd(t, cfg)
	return open(t, h, d), h
}

// A querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// text reads one value and says how it was answered.
func text(ctx context.Context, q querier, query string, args ...any) (string, sqlherd.Info, error) {
	var info sqlherd.Info
	var v string
	err := q.QueryRowContext(sqlherd.WithInfo(ctx, &info), query, args...).Scan(&v)
	return v, info, err
}

// wantText fails the test unless a read gives want with outcome.
func wantText(t testing.TB, q querier, want string, outcome sqlherd.Outcome, query string, args ...any) sqlherd.Info {
	t.Helper()
	v, info, err := text(withDeadline(t), q, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if v != want || info.Outcome != outcome {
		t.Errorf("%s %v\ngot  %q (%v, %v %s)\nwant %q (%v)", query, args, v, info.Outcome, info.Reason, info.Detail, want, outcome)
	}
	return info
}

func mustExec(t testing.TB, q querier, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := q.ExecContext(withDeadline(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// A tally is what many reads came to.
type tally struct {
	Values   map[string]int
	Outcomes map[string]int
	Errors   map[string]int
	Max      time.Duration // the slowest read
}

func newTally() *tally {
	return &tally{Values: map[string]int{}, Outcomes: map[string]int{}, Errors: map[string]int{}}
}

func (a *tally) add(v string, info sqlherd.Info, took time.Duration, err error) {
	a.Max = max(a.Max, took)
	if err != nil {
		a.Errors[err.Error()]++
		return
	}
	a.Values[v]++
	a.Outcomes[info.Outcome.String()]++
}

func (a *tally) merge(b *tally) {
	a.Max = max(a.Max, b.Max)
	for _, m := range []struct{ to, from map[string]int }{{a.Values, b.Values}, {a.Outcomes, b.Outcomes}, {a.Errors, b.Errors}} {
		for k, n := range m.from {
			m.to[k] += n
		}
	}
}

func (a *tally) String() string {
	return fmt.Sprintf("values %v, outcomes %v, errors %v, slowest %v", a.Values, a.Outcomes, a.Errors, a.Max)
}

// check fails the test unless n reads all gave want.
func (a *tally) check(t testing.TB, want string, n int) {
	t.Helper()
	if a.Values[want] != n || len(a.Values) != 1 || len(a.Errors) != 0 {
		t.Errorf("%v\nwant %d times %q and no error", a, n, want)
	}
}

// stampede lets callers read at once.
func stampede(ctx context.Context, q querier, callers int, query string, args ...any) *tally {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := newTally()
	start := make(chan struct{})
	for range callers {
		wg.Go(func() {
			<-start
			began := time.Now()
			v, info, err := text(ctx, q, query, args...)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			all.add(v, info, took, err)
		})
	}
	close(start)
	wg.Wait()
	return all
}

// outcomes reads the counts of a Herd by name.
func outcomes(h *sqlherd.Herd) string {
	st := h.Stats()
	return figures(&st)
}

func figures(st *sqlherd.Stats) string {
	var b strings.Builder
	fmt.Fprintf(&b, "outcomes %v, reasons %v, loads %d (%d failed), refreshes %v, leases %d won %d lost %d expired",
		st.Outcomes, st.Reasons, st.Loads, st.LoadErrors, st.Refreshes, st.LeasesWon, st.LeasesLost, st.LeasesExpired)
	r := st.Redis
	fmt.Fprintf(&b, "; redis: gets %d (%d misses), stored %d, fenced %d, errors %d, timeouts %d, refused %d, breaker %t (%d), subscribed %t",
		r.Gets, r.GetMisses, r.PutsStored, r.PutsFenced, r.Errors, r.Timeouts, r.Refused, r.BreakerOpen, r.BreakerOpens, r.Subscribed)
	return b.String()
}
