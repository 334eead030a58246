package pgnotify_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/pgnotify"
)

func kind(k pgnotify.EventKind) func(pgnotify.Event) bool {
	return func(e pgnotify.Event) bool { return e.Kind == k }
}

func catchUp(e pgnotify.Event) bool { return e.CatchUp }

// A write while nobody listens is told to nobody, and yet the read after the listener's return is fresh.
func TestAWriteWhileTheListenerIsAwayIsMadeUpFor(t *testing.T) {
	for _, rows := range []bool{false, true} {
		t.Run(fmt.Sprintf("rows=%t", rows), func(t *testing.T) {
			table, query := pgnotify.Table{Name: "products"}, byTable
			if rows {
				table.Tags, table.TagsOnly, table.GroupTag = []string{"product/{id}"}, true, "products-rows"
				query = byTag
			}
			dsn, bare := newDatabase(t)
			mustExec(t, bare, products, `CREATE TABLE other (v text); INSERT INTO other VALUES ('other')`)
			cfg := pgnotify.Config{Tables: []pgnotify.Table{table}, ReconnectMax: 50 * time.Millisecond}
			if err := pgnotify.Install(t.Context(), bare, cfg); err != nil {
				t.Fatal(err)
			}
			p := newProxy(t, dsn)
			b := &bed{t: t, dsn: p.dsn, bare: bare, cfg: cfg}
			b.listen(sqlherd.Config{})
			const other = `SELECT /* @cache ttl=1h */ v FROM other`
			b.cached("one", query, 1)
			b.cached("other", other)

			from := b.events.len()
			p.refuse(true) // what reaches the database from now on is new
			mustExec(t, bare, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^(NOTIFY|$)' AND pid <> pg_backend_pid()`)
			i := b.events.await(t, from, "the loss", kind(pgnotify.Disconnected))
			if err := b.events.since(i)[0].Err; err == nil || !strings.Contains(err.Error(), "terminating connection") {
				t.Errorf("the loss says %v", err)
			}
			if b.l.Stats().Connected {
				t.Error("Stats say connected")
			}
			psql(t, dsn, `UPDATE products SET name = 'new' WHERE id = 1`)
			b.events.await(t, i, "an attempt in vain", kind(pgnotify.ConnectFailed))
			b.want("one", sqlherd.Hit, query, 1)
			p.refuse(false)
			i = b.events.await(t, i, "the return", kind(pgnotify.Connected))
			b.events.await(t, i, "the catch-up", catchUp)
			b.want("new", sqlherd.Miss, query, 1)
			b.want("other", sqlherd.Hit, other)

			b.after(func() { psql(t, dsn, `UPDATE products SET name = 'newer' WHERE id = 1`) })
			b.want("newer", sqlherd.Miss, query, 1)
			if s := b.l.Stats(); !s.Connected || s.Connects != 2 || s.CatchUps != 2 || s.Failures < 2 || s.Notifications < 2 {
				t.Errorf("Stats: %+v", s)
			}
		})
	}
}

func TestWhatWasCachedBeforeTheStartIsForgotten(t *testing.T) {
	b := newBed(t, one("products"), products)
	if err := b.l.Close(); err != nil {
		t.Fatal(err)
	}
	b.cached("one", byTable, 1)
	psql(t, b.dsn, `UPDATE products SET name = 'new' WHERE id = 1`)
	b.l, b.events = listen(t, b.dsn, b.herd, b.cfg)
	b.want("new", sqlherd.Miss, byTable, 1)
}

// The peer has vanished: nothing arrives, and nothing says so.
func TestAConnectionThatDiedSilentlyIsNoticed(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	cfg := one("products")
	cfg.Ping, cfg.ReconnectMax = 100*time.Millisecond, 50*time.Millisecond
	if err := pgnotify.Install(t.Context(), bare, cfg); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, dsn)
	n := &notes{}
	l, events := listen(t, p.dsn, n, cfg)
	from := events.len()
	p.stall(true)
	i := events.await(t, from, "the loss", kind(pgnotify.Disconnected))
	if err := events.since(i)[0].Err; err == nil || !strings.Contains(err.Error(), "did not answer within") {
		t.Errorf("the loss says %v", err)
	}
	p.stall(false)
	i = events.await(t, i, "the return", kind(pgnotify.Connected))
	events.await(t, i, "the catch-up", catchUp)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseDoesNotWaitForAServerThatIsStalledOrGone(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	p := newProxy(t, dsn)
	cfg := one("products")
	cfg.Ping = time.Hour
	l, _ := listen(t, p.dsn, &notes{}, cfg)
	p.stall(true)
	closed := make(chan struct{})
	go func() { l.Close(); l.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close does not return")
	}
	if l.Stats().Connected {
		t.Error("connected after Close")
	}

	e := newEvents()
	cfg = one("products")
	cfg.OnEvent, cfg.Logger, cfg.ReconnectMax = e.add, slog.New(slog.DiscardHandler), time.Hour
	gone, err := pgnotify.Listen("postgres://nobody@127.0.0.1:1/x?sslmode=disable", &notes{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.await(t, 0, "an attempt", kind(pgnotify.ConnectFailed))
	gone.Close()
	select {
	case <-gone.Ready():
		t.Error("ready without a connection")
	default:
	}
}

// Each reconnect costs the tables' results, so a server that throws the listener out again and again must not be asked in a loop.
func TestConnectionsThatDoNotLiveAreMadeLessAndLessOften(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	cfg := one("products")
	cfg.ReconnectMax = time.Hour
	l, events := listen(t, dsn, &notes{}, cfg)
	from := 0
	var at []time.Time
	for range 4 {
		from = events.await(t, from, "a connection", kind(pgnotify.Connected)) + 1
		at = append(at, time.Now())
		mustExec(t, bare, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ '^(NOTIFY|$)'`)
	}
	// The pauses are at least 50, 100 and 200 ms.
	if d := at[3].Sub(at[0]); d < 350*time.Millisecond {
		t.Errorf("four connections within %v", d)
	}
	l.Close()
}

func TestRedisThatIsAwayIsToldLater(t *testing.T) {
	mr := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: mr.Addr()})
	t.Cleanup(func() { rdb.Close() })
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	cfg := one("products")
	if err := pgnotify.Install(t.Context(), bare, cfg); err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dsn: dsn, bare: bare, cfg: cfg}
	b.listen(sqlherd.Config{Redis: rdb})
	other := &bed{t: t, dsn: dsn} // another process, in effect: a Herd without a listener
	other.listenNot(sqlherd.Config{Redis: rdb, Local: sqlherd.LocalConfig{Disabled: true}})
	b.cached("one", byTable, 1)
	other.want("one", sqlherd.Hit, byTable, 1)

	mr.SetError("READONLY sorry")
	e := b.after(func() { psql(t, dsn, `UPDATE products SET name = 'new' WHERE id = 1`) })
	wantTold(t, e, false, []string{"products"}, nil)
	if s := b.l.Stats(); s.Errors == 0 {
		t.Errorf("Stats: %+v", s)
	}
	if v, _ := b.read(byTable, 1); v != "new" {
		t.Errorf("read %q here, while Redis is away", v)
	}
	mr.SetError("")
	deadline := time.Now().Add(patience)
	for b.herd.Stats().InvalidationsPending > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the Herd does not tell Redis")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if v, _ := other.read(byTable, 1); v != "new" {
		t.Errorf("read %q elsewhere after Redis is back", v)
	}
}

func TestNotificationsOfOthersDoNoHarm(t *testing.T) {
	b := newBed(t, one("products"), products)
	for _, text := range []string{``, `x`, `{}`, `[]`, `null`, `{"v":2,"tags":["a"]}`, `{"v":1}`, `{"v":1,"tags":["a"]} `, `{"v":1,"tags":["a"]}{}`, `{"v":1,"tags":"a"}`,
		`{"v":1,"tagz":["a"]}`, `{"v":1,"tags":[""]}`, `{"v":1,"tables":[""]}`, `{"v":1,"tables":["` + strings.Repeat("x", 600) + `"]}`, `{"v":1,"tags":["` + strings.Repeat("x", 2000) + `"]}`,
		`{"v":1,"tags":["\u0000"]}`, `{"v":1,"tables":["a\nb"]}`, `{"v":1,"all":false}`, `{"v":1,"probe":"x"}`, strings.Repeat("[", 7000)} {
		b.cached(scan(t, b.bare, `SELECT name FROM products WHERE id = 1`), byTable, 1)
		name := fmt.Sprintf("%d", len(text))
		e := b.after(func() {
			// Together, so that one could spoil the other.
			mustExecArgs(t, b, `SELECT pg_notify('sqlherd', $1)`, text)
			mustExecArgs(t, b, `UPDATE products SET name = $1 WHERE id = 1`, name)
		})
		if e.Err != nil {
			t.Errorf("%.80s: %v", text, e.Err)
		}
		if v, _ := b.read(byTable, 1); v != name {
			t.Errorf("%.80s: read %q, want %q", text, v, name)
		}
	}
	if s := b.l.Stats(); s.Malformed == 0 || s.Errors != 0 || s.Connects != 1 {
		t.Errorf("Stats: %+v", s)
	}
}

// An invalidator that is slow must not make the server's queue grow: what comes meanwhile is taken in, and told at once.
func TestABurstIsToldTogether(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	cfg := pgnotify.Config{Tables: []pgnotify.Table{{Name: "products", Tags: []string{"product/{id}"}, TagsOnly: true}}}
	if err := pgnotify.Install(t.Context(), bare, cfg); err != nil {
		t.Fatal(err)
	}
	n := &notes{}
	l, events := listen(t, dsn, n, cfg)
	before := l.Stats()
	n.mu.Lock() // the next call hangs
	from := events.len()
	psql(t, dsn, strings.Repeat("UPDATE products SET name = 'x' WHERE id = 1; UPDATE products SET name = 'x' WHERE id = 2;\n", 250))
	deadline := time.Now().Add(patience)
	for l.Stats().Notifications < before.Notifications+500 {
		if time.Now().After(deadline) {
			t.Fatalf("Stats: %+v", l.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	n.mu.Unlock()
	got := 0
	events.await(t, from, "all of them", func(e pgnotify.Event) bool { got += e.Notifications; return got == 500 })
	if calls := l.Stats().Invalidations - before.Invalidations; calls > 2 {
		t.Errorf("%d calls for what came while the first was under way", calls)
	}
}

func TestWhatHasArrivedIsToldBeforeCloseReturns(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	n := &notes{}
	l, _ := listen(t, dsn, n, one("products"))
	before := l.Stats().Notifications
	n.mu.Lock()
	mustExec(t, bare, `SELECT pg_notify('sqlherd', '{"v":1,"tags":["a"]}')`, `SELECT pg_notify('sqlherd', '{"v":1,"tags":["last"]}')`)
	for l.Stats().Notifications < before+2 {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan struct{})
	go func() { l.Close(); close(closed) }()
	n.mu.Unlock()
	<-closed
	n.mu.Lock()
	defer n.mu.Unlock()
	if got := fmt.Sprint(n.tags); !strings.Contains(got, "last") {
		t.Errorf("told %s", got)
	}
}

func TestListenReportsEveryMistakeAndNoPassword(t *testing.T) {
	_, err := pgnotify.Listen("postgres://u:secret@host:port/x", nil, pgnotify.Config{
		Channel: "a\x00", Schema: "pg_x", TagsMax: -1, Ping: 1, ReconnectMax: -1,
		Tables: []pgnotify.Table{{}, {Name: "a.b.c"}, {Name: `"x`}, {Name: "odd name"}, {Name: "a-b"}, {Name: strings.Repeat("x", 64)}, {Name: "ok", Tags: []string{"{"}}, {Name: "ok", Tags: []string{"a{}"}},
			{Name: "ok", Tags: []string{"a", ""}}, {Name: "ok", TagsOnly: true}, {Name: "ok", GroupTag: "g"}, {Name: "ok", Tags: []string{"{id}"}, GroupTag: "{id}"}, {Name: "t"}, {Name: `PUBLIC."t"`}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Config.Channel:", "Config.Schema:", "Config.TagsMax:", "Config.Ping:", "Config.ReconnectMax:", "Tables[0].Name", "Tables[1].Name", "Tables[2].Name", "Tables[3].Name",
		"Tables[4].Name", "Tables[5].Name", "Tables[6].Tags[0]", "Tables[7].Tags[0]", "Tables[8].Tags[1]", "Tables[9].TagsOnly", "Tables[10].GroupTag", "Tables[11].GroupTag", "Tables[13].Name", "there twice", "Invalidator is nil", "DSN cannot be read"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in the error: %v", err)
	}
	if _, err := pgnotify.InstallSQL(pgnotify.Config{}); err == nil || !strings.Contains(err.Error(), "Config.Tables: must name") {
		t.Errorf("InstallSQL: %v", err)
	}
}

func TestTheLogSaysWhenWritesAreNotSeenAndNoPassword(t *testing.T) {
	dsn, bare := newDatabase(t)
	mustExec(t, bare, products)
	var log lockedBuffer
	p := newProxy(t, dsn)
	e := newEvents()
	cfg := one("products")
	cfg.Logger, cfg.OnEvent, cfg.ReconnectMax = slog.New(slog.NewTextHandler(&log, nil)), e.add, 20*time.Millisecond
	p.refuse(true)
	l, err := pgnotify.Listen(p.dsn, &notes{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e.await(t, 0, "an attempt in vain", kind(pgnotify.ConnectFailed))
	p.refuse(false)
	<-l.Ready()
	p.cut()
	i := e.await(t, 0, "the loss", kind(pgnotify.Disconnected))
	e.await(t, i, "the return", kind(pgnotify.Connected))
	l.Close()
	u, _ := url.Parse(dsn)
	password, _ := u.User.Password()
	for _, want := range []string{"not seen until", `event="connect failed"`, "event=disconnected", "connected again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("nothing of %q in:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), password) {
		t.Errorf("the password is in the log:\n%s", log.String())
	}
}

// listenNot makes a Herd without a listener.
func (b *bed) listenNot(cfg sqlherd.Config) {
	b.cfg = one("products")
	l := *b
	l.listen(cfg)
	l.l.Close()
	b.db, b.herd = l.db, l.herd
}

// notes is an Invalidator that takes down what it is told.
type notes struct {
	mu     sync.Mutex
	tags   []string
	tables []string
	all    int
}

func (n *notes) Invalidate(_ context.Context, tags ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tags = append(n.tags, tags...)
	return nil
}

func (n *notes) InvalidateTables(_ context.Context, tables ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tables = append(n.tables, tables...)
	return nil
}

func (n *notes) InvalidateAll(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all++
	return nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A proxy stands before the server, and refuses, stalls or cuts.
type proxy struct {
	dsn    string
	server string
	ln     net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool
	refused bool
	moving  chan struct{} // closed unless stalled
}

func newProxy(t testing.TB, dsn string) *proxy {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{server: u.Host, ln: ln, conns: map[net.Conn]bool{}, moving: make(chan struct{})}
	close(p.moving)
	u.Host = ln.Addr().String()
	p.dsn = u.String()
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.stall(false)
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refused := p.refused
		p.mu.Unlock()
		s, err := net.Dial("tcp", p.server)
		if refused || err != nil {
			c.Close()
			if err == nil {
				s.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(c, s) })
		p.wg.Go(func() { p.pump(s, c) })
	}
}

func (p *proxy) pump(to, from net.Conn) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		moving := p.moving
		p.mu.Unlock()
		<-moving
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = yes
}

func (p *proxy) stall(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.moving:
		if yes {
			p.moving = make(chan struct{})
		}
	default:
		if !yes {
			close(p.moving)
		}
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}
