package pgnotify_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(dropDatabases)) }

// patience bounds every wait for something that must happen. It is no measure of anything.
const patience = 30 * time.Second

// server returns the URL of the test server, whose login is a superuser.
func server(t testing.TB) string {
	t.Helper()
	const key = "SQLHERD_TEST_POSTGRES"
	if dsn := os.Getenv(key); dsn != "" {
		return dsn
	}
	if os.Getenv("SQLHERD_TEST_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set, and SQLHERD_TEST_REQUIRE_SERVERS=1 asks for every server", key)
	}
	t.Skipf("%s is not set; run make test, or eval \"$(make servers)\" first", key)
	return ""
}

// To make a database and to drop it takes longer than most tests: they are emptied and used again.
var databases struct {
	sync.Mutex
	free, all []string
}

// newDatabase returns the URL of an empty database and a bare pool on it.
func newDatabase(t testing.TB) (string, *sql.DB) {
	t.Helper()
	u, err := url.Parse(server(t))
	if err != nil {
		t.Fatal(err)
	}
	databases.Lock()
	defer databases.Unlock()
	var name string
	if n := len(databases.free); n > 0 {
		name, databases.free = databases.free[n-1], databases.free[:n-1]
	} else {
		name = "pgnotify_" + strings.ToLower(rand.Text()[:12])
		mustExec(t, openBare(t, u.String()), "CREATE DATABASE "+name)
		databases.all = append(databases.all, name)
	}
	u.Path = "/" + name
	db := openBare(t, u.String())
	t.Cleanup(func() {
		mustExec(t, db, `DO $$ DECLARE s text; BEGIN
	FOR s IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
		EXECUTE format('DROP SCHEMA %I CASCADE', s);
	END LOOP;
	CREATE SCHEMA public;
	GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$`)
		databases.Lock()
		defer databases.Unlock()
		databases.free = append(databases.free, name)
	})
	return u.String(), db
}

// dropDatabases is what is done last.
func dropDatabases(code int) {
	if len(databases.all) > 0 {
		db, err := sql.Open("postgres", os.Getenv("SQLHERD_TEST_POSTGRES"))
		for _, name := range databases.all {
			if err == nil {
				_, err = db.Exec("DROP DATABASE " + name + " WITH (FORCE)")
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func openBare(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// mustExec also runs in cleanups, when the test's context has ended.
func mustExec(t testing.TB, db execer, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			t.Fatalf("%.300s: %v", s, err)
		}
	}
}

// psql runs statements as somebody else's program does: in another process.
func psql(t testing.TB, dsn, statements string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-At", "-d", dsn)
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return string(out)
}

// A bed is a database with triggers, a Herd on it and a listener that tells the Herd.
type bed struct {
	t      testing.TB
	dsn    string
	bare   *sql.DB
	db     *sql.DB // beneath the Herd
	herd   *sqlherd.Herd
	l      *pgnotify.Listener
	cfg    pgnotify.Config
	events *events
}

// events keeps what a listener did.
type events struct {
	mu   sync.Mutex
	all  []pgnotify.Event
	more chan struct{}
}

func (e *events) add(ev pgnotify.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
	close(e.more)
	e.more = make(chan struct{})
}

func newEvents() *events { return &events{more: make(chan struct{})} }

// await returns when an event from index from on fits, and that event's index.
func (e *events) await(t testing.TB, from int, what string, fits func(pgnotify.Event) bool) int {
	t.Helper()
	deadline := time.After(patience)
	for i := from; ; {
		e.mu.Lock()
		for ; i < len(e.all); i++ {
			if fits(e.all[i]) {
				e.mu.Unlock()
				return i
			}
		}
		more := e.more
		e.mu.Unlock()
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("not within %v: %s; events: %+v", patience, what, e.since(from))
		}
	}
}

func (e *events) since(i int) []pgnotify.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all[i:])
}

func (e *events) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

// newBed runs setup, installs triggers and starts a listener that is ready.
func newBed(t testing.TB, cfg pgnotify.Config, setup ...string) *bed {
	t.Helper()
	b := &bed{t: t, events: newEvents(), cfg: cfg}
	b.dsn, b.bare = newDatabase(t)
	mustExec(t, b.bare, setup...)
	if err := pgnotify.Install(t.Context(), b.bare, cfg); err != nil {
		t.Fatal(err)
	}
	b.listen(sqlherd.Config{})
	return b
}

func (b *bed) listen(cfg sqlherd.Config) {
	t := b.t
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	h, err := sqlherd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	b.herd = h
	c, err := pq.NewConnector(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	b.db = sql.OpenDB(h.Connector(c, sqlherd.Identity("test")))
	t.Cleanup(func() { b.db.Close() })
	b.l, b.events = listen(t, b.dsn, h, b.cfg)
}

// listen starts a listener and waits until it is ready.
func listen(t testing.TB, dsn string, to pgnotify.Invalidator, cfg pgnotify.Config) (*pgnotify.Listener, *events) {
	t.Helper()
	e := newEvents()
	cfg.OnEvent, cfg.Logger = e.add, slog.New(slog.DiscardHandler)
	l, err := pgnotify.Listen(dsn, to, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	select {
	case <-l.Ready():
	case <-time.After(patience):
		t.Fatalf("the listener is not ready after %v; events: %+v", patience, e.since(0))
	}
	// Its event follows.
	e.await(t, 0, "the first catch-up", func(ev pgnotify.Event) bool { return ev.CatchUp })
	return l, e
}

// read reads one value and its outcome.
func (b *bed) read(query string, args ...any) (string, sqlherd.Outcome) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var info sqlherd.Info
	var v string
	if err := b.db.QueryRowContext(sqlherd.WithInfo(ctx, &info), query, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return v, info.Outcome
}

// want fails the test unless a read gives v with an outcome.
func (b *bed) want(v string, o sqlherd.Outcome, query string, args ...any) {
	b.t.Helper()
	if got, outcome := b.read(query, args...); got != v || outcome != o {
		b.t.Errorf("%s %v\ngot  %q (%v)\nwant %q (%v)", query, args, got, outcome, v, o)
	}
}

// cached fills the cache, and makes sure that it did.
func (b *bed) cached(v, query string, args ...any) {
	b.t.Helper()
	if got, _ := b.read(query, args...); got != v {
		b.t.Fatalf("%s %v: got %q before the write, want %q", query, args, got, v)
	}
	b.want(v, sqlherd.Hit, query, args...)
}

// after runs a write by somebody else and returns what the Herd was told because of it, when it was: the listener gets
// notifications in the order of commits, so a mark that is committed after the write comes after it.
func (b *bed) after(write func()) pgnotify.Event {
	b.t.Helper()
	from := b.events.len()
	write()
	return b.settle(from)
}

func (b *bed) settle(from int) pgnotify.Event {
	b.t.Helper()
	mark := "mark-" + rand.Text()
	mustExec(b.t, b.bare, fmt.Sprintf(`SELECT pg_notify('%s', '{"v":1,"tags":["%s"]}')`, cmpOr(b.cfg.Channel, "sqlherd"), mark))
	end := b.events.await(b.t, from, "the mark of a write", func(e pgnotify.Event) bool { return e.All || slices.Contains(e.Tags, mark) })
	var sum pgnotify.Event
	for _, e := range b.events.since(from)[:end-from+1] {
		if e.Kind != pgnotify.Invalidated {
			continue
		}
		sum.All = sum.All || e.All
		sum.Notifications += e.Notifications
		sum.CatchUp = sum.CatchUp || e.CatchUp
		for _, t := range e.Tables {
			if !slices.Contains(sum.Tables, t) {
				sum.Tables = append(sum.Tables, t)
			}
		}
		for _, t := range e.Tags {
			if t != mark && !slices.Contains(sum.Tags, t) {
				sum.Tags = append(sum.Tags, t)
			}
		}
	}
	slices.Sort(sum.Tables)
	slices.Sort(sum.Tags)
	return sum
}

func cmpOr(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

func wantTold(t testing.TB, e pgnotify.Event, all bool, tables, tags []string) {
	t.Helper()
	if e.All != all || !slices.Equal(e.Tables, tables) || !slices.Equal(e.Tags, tags) {
		t.Errorf("told: all %t, tables %q, tags %q\nwant: all %t, tables %q, tags %q", e.All, e.Tables, e.Tags, all, tables, tags)
	}
}
