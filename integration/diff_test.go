package integration_test

// The differential suite: one table of statements and values for each kind of database, run on the bare driver and on
// every way by which sqlherd answers a query, for every driver and the settings of its DSN that change what it returns.

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A preparer can prepare; so can a *sql.DB.
type preparer interface {
	querier
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// A probe is a query whose answer must be the same, wherever it comes from.
type probe struct {
	query string
	args  []any

	fails bool // on the bare driver too
	sets  bool // several statements or result sets: never cached
}

// mistake is a probe of a query that fails.
func mistake(query string, args ...any) probe { return probe{query: query, args: args, fails: true} }

// expr is a probe of one expression.
func expr(e string) probe { return probe{query: "SELECT " + e + " AS c"} }

func exprs(all ...string) (probes []probe) {
	for _, e := range all {
		probes = append(probes, expr(e))
	}
	return probes
}

// wide is a probe of many columns.
func wide(n int) probe {
	var b strings.Builder
	b.WriteString("SELECT ")
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d AS column_number_%d", i, i)
	}
	return probe{query: b.String()}
}

// hinted is the probe's text with a hint. The bare driver gets the same text, since errors quote it and count its columns.
func (p *probe) hinted() string {
	return strings.Replace(p.query, "SELECT ", "SELECT /* @cache ttl=10m empty=10m max-bytes=16MiB max-rows=100000 */ ", 1)
}

// A variant is a driver with settings in its DSN.
type variant struct {
	name string
	open func(testing.TB) dbtest.Database
	with []string
	// alone says that the table is also run in a process of its own.
	alone bool
	deep  bool // in full under the race detector, too
}

// A table is what one kind of database is asked.
type table struct {
	engine   dbtest.Engine
	make     []string // statements that fill the database
	with     []string // settings of the DSN with which they run
	probes   func(v variant) []probe
	variants []variant
}

var tables = []table{postgresTable, mariadbTable, sqliteTable}

// cells counts what was compared, by driver.
type cells struct {
	mu       sync.Mutex
	compared map[string]int
	fewer    map[string]int
}

func (c *cells) compare(t *testing.T, driver, what string, got, want *sight) {
	t.Helper()
	n, diff := got.differences(want)
	c.mu.Lock()
	c.compared[driver] += n
	c.fewer[driver] += got.Fewer
	c.mu.Unlock()
	for i, d := range diff {
		if i == 5 {
			t.Errorf("%s: and %d more differences", what, len(diff)-i)
			break
		}
		t.Errorf("%s\n%s", what, d)
	}
}

// cellsMin is how many cells each driver has at the least, so that a table that has come to be empty is noticed.
const cellsMin = 100_000

func TestNobodyCanTellWhereRowsCameFromOnAnyDriver(t *testing.T) {
	t.Parallel()
	count := &cells{compared: map[string]int{}, fewer: map[string]int{}}
	t.Run("drivers", func(t *testing.T) {
		for _, tab := range tables {
			for _, v := range tab.variants {
				t.Run(v.name, func(t *testing.T) {
					t.Parallel()
					// A megabyte takes the race detector long.
					size, shallow := strings.NewReplacer(), raceEnabled && !v.deep
					if shallow {
						size = strings.NewReplacer("1048576", "65536", "524288", "32768")
					}
					d := withSlowFunction(v.open(t))
					for _, statement := range tab.make {
						d.WithParams(tab.with...).Exec(t, size.Replace(statement))
					}
					s := newSuite(t, d.WithParams(v.with...), count)
					probes := tab.probes(v)
					for i := range probes {
						probes[i].query = size.Replace(probes[i].query)
						for _, prepared := range []bool{false, true} {
							if !shallow || prepared == (i%2 == 0) {
								s.run(t, &probes[i], prepared)
							}
						}
					}
					s.followers(t)
					if v.alone {
						s.inAnotherProcess(t, tab.engine, v)
					}
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	for _, driver := range []string{"pq", "pgx", "mariadb", "sqlite", "sqlite-cgo"} {
		t.Logf("%s: %d cells compared; %d values, long or beyond the first rows, were scanned into fewer destinations",
			driver, count.compared[driver], count.fewer[driver])
		if n := count.compared[driver]; n < cellsMin {
			t.Errorf("%s: only %d cells were compared", driver, n)
		}
	}
}

// A suite is one variant of one driver: all the ways by which a result can come, on one database and one Redis.
type suite struct {
	d     dbtest.Database
	count *cells
	rdb   *redis.Client
	ns    string

	bare  *sql.DB
	first *sql.DB // misses, then hits from memory
	other *sql.DB // of another Herd: hits from Redis
	alone *sql.DB // without Redis: rows that are stale

	asked []asked
}

// asked is a probe with what the bare driver answered.
type asked struct {
	*probe
	prepared bool
	want     *sight
}

func newSuite(t *testing.T, d dbtest.Database, count *cells) *suite {
	rdb, ns := dbtest.Redis(t)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
	s := &suite{d: d, count: count, rdb: rdb, ns: ns, bare: d.Open(t)}
	s.first, _ = openHerd(t, d, cfg)
	s.other, _ = openHerd(t, d, cfg)
	s.alone, _ = openHerd(t, d, sqlherd.Config{})
	return s
}

// stalePolicy makes rows stale at once and for long.
var stalePolicy = sqlherd.Policy{TTL: time.Millisecond, Empty: time.Millisecond, SWR: 10 * time.Minute, Jitter: -1, EarlyBeta: -1, MaxBytes: 16 << 20, MaxRows: 100_000}

// run asks a probe on every way.
func (s *suite) run(t *testing.T, p *probe, prepared bool) {
	t.Helper()
	ctx := withDeadline(t)
	hinted := p.hinted()
	plain := see(ctx, s.bare, prepared, p.query, p.args...)
	want := see(ctx, s.bare, prepared, hinted, p.args...)
	name := fmt.Sprintf("%.200s %v, prepared %t", p.query, p.args, prepared)
	if want.Fails != p.fails && !p.sets {
		t.Errorf("%s: the bare driver says\n%v", name, want)
	}
	if _, diff := see(ctx, s.bare, prepared, hinted, p.args...).differences(want); diff != nil {
		t.Errorf("%s: the bare driver answers differently each time:\n%s", name, strings.Join(diff, "\n"))
	}
	s.asked = append(s.asked, asked{p, prepared, want})
	miss, hit := sqlherd.Miss, sqlherd.Hit
	switch {
	case p.sets:
		miss, hit = sqlherd.Bypassed, sqlherd.Bypassed
	case want.Fails:
		hit = sqlherd.Miss // errors are not cached
	}
	for _, way := range []struct {
		name    string
		db      *sql.DB
		query   string
		outcome sqlherd.Outcome
	}{
		{"without a hint", s.first, p.query, sqlherd.Passthrough},
		{"miss", s.first, hinted, miss},
		{"hit from memory", s.first, hinted, hit},
		{"hit from Redis", s.other, hinted, hit},
		{"hit from memory that came from Redis", s.other, hinted, hit},
	} {
		var info sqlherd.Info
		got := see(sqlherd.WithInfo(ctx, &info), way.db, prepared, way.query, p.args...)
		want := want
		if way.outcome == sqlherd.Passthrough {
			want = plain
		}
		s.count.compare(t, s.d.Name, name+", "+way.name, got, want)
		// A statement that cannot be prepared was no query.
		if info.Outcome != way.outcome && !(want.Fails && prepared) {
			t.Errorf("%s, %s: outcome %v (%v %s), want %v", name, way.name, info.Outcome, info.Reason, info.Detail, way.outcome)
		}
	}
	s.stale(t, name, prepared, p, want)
	s.inTransaction(t, name, prepared, p, want)
}

// stale asks until the rows are stale ones. What cannot be stale, errors and no rows, is compared all the same.
func (s *suite) stale(t *testing.T, name string, prepared bool, p *probe, want *sight) {
	t.Helper()
	var info sqlherd.Info
	ctx := sqlherd.WithInfo(sqlherd.WithPolicy(withDeadline(t), stalePolicy), &info)
	deadline := time.Now().Add(patience)
	for tries := 1; ; tries++ {
		s.count.compare(t, s.d.Name, name+", stale", see(ctx, s.alone, prepared, p.hinted(), p.args...), want)
		switch {
		case info.Outcome == sqlherd.Stale, tries > 1 && (want.Fails || want.Rows == 0 || p.sets):
			return
		case time.Now().After(deadline):
			t.Fatalf("%s: never stale, but %v (%v %s)", name, info.Outcome, info.Reason, info.Detail)
		}
	}
}

// inTransaction asks inside a transaction, where nothing is cached.
func (s *suite) inTransaction(t *testing.T, name string, prepared bool, p *probe, want *sight) {
	t.Helper()
	var info sqlherd.Info
	ctx := withDeadline(t)
	tx, err := s.first.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	got := see(sqlherd.WithInfo(ctx, &info), tx, prepared, p.hinted(), p.args...)
	bare, err := s.bare.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Rollback() }()
	if want.Fails {
		want = see(ctx, bare, prepared, p.hinted(), p.args...)
	}
	s.count.compare(t, s.d.Name, name+", in a transaction", got, want)
	if info.Outcome != sqlherd.Bypassed && !(want.Fails && prepared) {
		t.Errorf("%s, in a transaction: %v", name, info.Outcome)
	}
}

// followers asks everything again while the only connection of the loader is held: one caller of each probe waits for the
// connection, and another for the first one's load.
func (s *suite) followers(t *testing.T) {
	t.Helper()
	d, release := s.d, func() {}
	h := newHerd(t, sqlherd.Config{MaxLoads: 1, LoadTimeout: time.Minute})
	var proxy *dbtest.Proxy
	if d.Engine != dbtest.EngineSQLite {
		d, proxy = d.Through(t)
		release = proxy.Pass
	}
	db := open(t, h, d)
	if proxy != nil {
		proxy.Stall()
	} else {
		gate := filepath.Join(t.TempDir(), "gate")
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		gated := fmt.Sprintf("SELECT /* @cache ttl=1m */ slow_v(%d, '%s', id) FROM kinds WHERE id = 1", slowAsLongAsThere, filepath.ToSlash(gate))
		held := make(chan error, 1)
		go func() { held <- db.QueryRowContext(withDeadline(t), gated).Err() }()
		release = func() {
			if err := errors.Join(os.Remove(gate), <-held); err != nil {
				t.Error(err)
			}
		}
		await(t, "the loader's connection is held", func() bool {
			f, err := os.Stat(gate)
			return err == nil && f.Size() > 0
		})
	}
	type caller struct {
		info sqlherd.Info
		view *sight
	}
	var asked []asked
	for _, a := range s.asked {
		if !a.sets {
			asked = append(asked, a)
		}
	}
	ask := func(c *caller, i, round int) {
		ctx := sqlherd.WithScope(sqlherd.WithInfo(withDeadline(t), &c.info), fmt.Sprint(round))
		c.view = see(ctx, db, asked[i].prepared, asked[i].hinted(), asked[i].args...)
	}
	leaders, followers := make([]caller, len(asked)), make([]caller, len(asked))
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() { ask(&leaders[i], i, 0) })
	}
	loader := func() sql.DBStats { return h.Stats().LoaderPools[0] }
	wait := len(asked)
	if proxy != nil {
		wait-- // one has the connection, or is about to make it
	}
	await(t, "every leader waits", func() bool { return int(loader().WaitCount) >= wait })
	for i := range asked {
		wg.Go(func() { ask(&followers[i], i, 0) })
	}
	await(t, "every follower has a connection to wait on", func() bool { return db.Stats().InUse >= 2*len(asked) })
	release()
	wg.Wait()
	late := 0
	for i, a := range asked {
		name := fmt.Sprintf("%.200s %v, prepared %t", a.query, a.args, a.prepared)
		s.count.compare(t, s.d.Name, name+", leader", leaders[i].view, a.want)
		s.count.compare(t, s.d.Name, name+", follower", followers[i].view, a.want)
		switch o := followers[i].info.Outcome; {
		case a.want.Fails:
		case o == sqlherd.Hit:
			late++ // it had its connection, and was not on it yet
		case o != sqlherd.Shared:
			t.Errorf("%s: the follower's outcome is %v", name, o)
		}
	}
	if late > len(asked)/4 {
		t.Errorf("%d of %d followers did not follow", late, len(asked))
	}
}

// lookerConfig tells a looker which table to run.
type lookerConfig struct {
	Worker  workerConfig
	Engine  dbtest.Engine
	Variant string
}

// A look is what a looker sees of one probe.
type look struct {
	Index    int
	Prepared bool
	Outcome  string
	View     *sight
}

// looker is a process that has never seen the database, and finds the rows of a table in Redis.
var looker = dbtest.NewRole("looker", func(c *dbtest.Child) error {
	var cfg lookerConfig
	if err := c.Config(&cfg); err != nil {
		return err
	}
	w := cfg.Worker
	rdb := redis.NewClient(&redis.Options{Addr: w.Redis, Username: w.User, Password: w.Password})
	defer rdb.Close()
	h, err := sqlherd.New(sqlherd.Config{Redis: rdb, Namespace: w.Namespace, RedisTimeout: w.RedisTimeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer h.Close()
	base, err := driverNamed(w.Driver)
	if err != nil {
		return err
	}
	connector, err := h.Driver(base).(sqldriver.DriverContext).OpenConnector(w.DSN)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	tab, v, err := tableOf(cfg.Engine, cfg.Variant)
	if err != nil {
		return err
	}
	for i, p := range tab.probes(v) {
		for _, prepared := range []bool{false, true} {
			var info sqlherd.Info
			got := see(sqlherd.WithInfo(c.Context(), &info), db, prepared, p.hinted(), p.args...)
			if err := c.Send(look{i, prepared, info.Outcome.String(), got}); err != nil {
				return err
			}
		}
	}
	if err := c.Recv(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("not the end: %w", err)
	}
	return nil
})

func tableOf(engine dbtest.Engine, name string) (table, variant, error) {
	for _, tab := range tables {
		i := slices.IndexFunc(tab.variants, func(v variant) bool { return v.name == name })
		if tab.engine == engine && i >= 0 {
			return tab, tab.variants[i], nil
		}
	}
	return table{}, variant{}, fmt.Errorf("no variant %q", name)
}

func (s *suite) inAnotherProcess(t *testing.T, engine dbtest.Engine, v variant) {
	t.Helper()
	opt := s.rdb.Options()
	p := dbtest.Spawn(t, looker, lookerConfig{
		Worker:  workerConfig{Driver: s.d.Name, DSN: s.d.DSN, Redis: opt.Addr, User: opt.Username, Password: opt.Password, Namespace: s.ns, RedisTimeout: redisTimeout},
		Engine:  engine,
		Variant: v.name,
	})
	for i, a := range s.asked {
		var l look
		p.Recv(&l)
		name := fmt.Sprintf("%.200s %v, prepared %t, in another process", a.query, a.args, a.prepared)
		if l.Index != i/2 || l.Prepared != a.prepared {
			t.Fatalf("%s: the child is at %d, %t", name, l.Index, l.Prepared)
		}
		s.count.compare(t, s.d.Name, name, l.View, a.want)
		if l.Outcome != sqlherd.Hit.String() && !a.want.Fails && !a.sets {
			t.Errorf("%s: %s, want a hit", name, l.Outcome)
		}
	}
}

// It makes sure that describe itself can tell.
func TestTheComparisonOfSightsTellsThemApart(t *testing.T) {
	now := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	text, empty := "1", ""
	different := []any{
		nil, int64(1), int32(1), uint64(1), float64(1), float32(1), true, "1", []byte("1"), []byte{}, []byte(nil), "", math.Copysign(0, -1), 0.0,
		now, now.In(time.FixedZone("", 0)), now.In(time.FixedZone("UTC", 0)), now.In(time.FixedZone("", 5*3600+45*60)), now.Add(1),
		slices.Repeat([]byte{1}, 300), slices.Repeat([]byte{2}, 300), "\xff", "\xfe", "\ufffd",
		&text, &empty, (*string)(nil), sql.NullString{}, sql.NullString{Valid: true}, sql.NullString{String: "1", Valid: true}, sql.Null[string]{V: "1", Valid: true},
		sql.Null[time.Time]{V: now, Valid: true}, sql.NullTime{Time: now, Valid: true}, sql.Null[[]byte]{V: []byte{}, Valid: true}, sql.Null[[]byte]{Valid: true},
		sql.Null[any]{V: int64(1), Valid: true}, sql.Null[any]{V: "1", Valid: true}, namedText("1"), namedNumber(1), witness{"1"},
	}
	seen := map[string]int{}
	for i, v := range different {
		s := describe(v)
		if j, ok := seen[s]; ok {
			t.Errorf("%#v and %#v look the same: %s", different[j], v, s)
		}
		seen[s] = i
	}
	a, b := &sight{}, &sight{}
	a.add("x", "1")
	if n, diff := a.differences(b); n != 1 || len(diff) != 1 {
		t.Errorf("a missing cell: %d cells, %q", n, diff)
	}
	b.add("x", "2")
	if _, diff := a.differences(b); len(diff) != 1 {
		t.Errorf("another cell: %q", diff)
	}
	a.values, b.values, b.Cells = [][]any{{int64(1)}}, [][]any{{int32(1)}}, a.Cells
	if _, diff := a.differences(b); len(diff) != 1 {
		t.Errorf("another value: %q", diff)
	}
}
