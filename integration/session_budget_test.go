package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// budgetBed is a bed on PostgreSQL whose connections of the wrapped driver are known by their application_name, and
// counted by a proxy too.
type budgetBed struct {
	*bed
	seen  dbtest.Database
	proxy *dbtest.Proxy
	peak  int // most connections at the server in any sample
}

const budgetName = "sqlherd-budget"

func newBudgetBed(t *testing.T) *budgetBed {
	b := &budgetBed{bed: newBed(t, dbtest.PQ(t))}
	var seen *bed
	seen, b.proxy = b.through(t)
	b.seen = seen.WithParams("application_name=" + budgetName)
	return b
}

// watch samples the server's own list of connections until stop is called.
func (b *budgetBed) watch(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(withDeadline(t))
	admin := b.Open(t)
	u, err := url.Parse(b.DSN)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var n int
			err := admin.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = $2",
				budgetName, u.Path[1:]).Scan(&n)
			if err == nil {
				b.peak = max(b.peak, n)
			}
			time.Sleep(2 * time.Millisecond) // how often it is sampled
		}
	}()
	return func() { cancel(); <-done }
}

// A thousand callers wait for one slow key, and two hundred others ask for something else on the same pool, which has no
// bound of its own.
func TestOthersAreNotDelayedByAThousandWaitersUnderMaxDBConns(t *testing.T) {
	const limit, loads, others, waiting = 20, 8, 200, 1000
	b := newBudgetBed(t)
	// The load ends when the test opens the gate, however slow the machine is.
	const gate = 4242
	b.Exec(t, fmt.Sprintf("CREATE FUNCTION gated(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN $1; END $$", gate))
	gatekeeper := conn(t, b.admin)
	stop := b.watch(t)
	db, h := openHerd(t, b.seen, sqlherd.Config{MaxDBConns: limit, MaxLoads: loads, LoadTimeout: patience})
	hot := "SELECT /* @cache ttl=1ms */ gated(slow_v(0, v)) FROM items WHERE id = $1" // every round finds it dead

	// ask lets the others ask at the same time, and returns how long each took.
	ask := func() []time.Duration {
		took := make([]time.Duration, others)
		var wg sync.WaitGroup
		for i := range others {
			wg.Go(func() {
				began := time.Now()
				v, info, err := text(withDeadline(t), db, "SELECT v || pg_sleep(0.005)::text FROM items WHERE id = $1", 1+i%3)
				took[i] = time.Since(began)
				if err != nil || v != []string{"one", "two", "three"}[i%3] || info.Outcome != sqlherd.Passthrough {
					t.Errorf("%q (%v), %v", v, info.Outcome, err)
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took
	}
	ask() // dials
	var alone, beside []time.Duration
	for range 3 {
		alone = append(alone, ask()...)

		before := b.loads(t)
		mustExec(t, gatekeeper, fmt.Sprintf("SELECT pg_advisory_lock(%d)", gate))
		herd := make(chan *tally)
		go func() { herd <- stampede(withDeadline(t), db, waiting, hot, 1) }()
		await(t, "all wait for the load", func() bool { return b.loads(t) == before+1 && db.Stats().InUse >= waiting })
		asked := h.Stats().Dials
		beside = append(beside, ask()...)
		if st := db.Stats(); st.InUse < waiting {
			t.Errorf("only %d conns of the pool are in use: the waiters have gone", st.InUse)
		}
		if dials := h.Stats().Dials - asked; dials > others {
			t.Errorf("%d real connections were taken for %d queries", dials, others)
		}
		mustExec(t, gatekeeper, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", gate))
		(<-herd).check(t, "one", waiting)
		b.wantLoads(t, before+1)
	}
	stop()
	slices.Sort(alone)
	slices.Sort(beside)
	at := func(d []time.Duration, q float64) time.Duration {
		return d[int(q*float64(len(d)-1))].Round(100 * time.Microsecond)
	}
	t.Logf("%d others, p50 and p99: alone %v, %v; beside %d waiters %v, %v; p99 %.2f times. At most %d connections at the server, of %d+%d",
		others, at(alone, .5), at(alone, .99), waiting, at(beside, .5), at(beside, .99), float64(at(beside, .99))/float64(at(alone, .99)), b.peak, limit, loads)
	if b.peak > limit+1 {
		t.Errorf("%d connections at the server, want at most %d and the one that loads", b.peak, limit)
	}
	if b.peak < limit {
		t.Errorf("%d connections at the server: the others have not needed what is allowed", b.peak)
	}
	if b.proxy.Accepted() > limit+loads {
		t.Errorf("%d connections were made, want at most %d: clean ones are handed on", b.proxy.Accepted(), limit+loads)
	}
}

func TestATaintedIdleConnectionIsNeverHandedToAnother(t *testing.T) {
	b := newBudgetBed(t)
	b.Exec(t, "CREATE SCHEMA other", "CREATE TABLE other.items AS SELECT id, 'elsewhere' AS v FROM items")
	stop := b.watch(t)
	db, _ := openHerd(t, b.seen, sqlherd.Config{MaxDBConns: 1})
	const query = "SELECT v FROM items WHERE id = 1"
	for i, taint := range []string{
		"SET search_path TO other", "SELECT set_config('search_path', 'other', false)", "CREATE TEMP TABLE items AS SELECT 1 AS id, 'elsewhere' AS v",
		"BEGIN", "PREPARE p AS SELECT 1", "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
	} {
		mine, other := conn(t, db), conn(t, db)
		mustExec(t, mine, taint)
		made := b.proxy.Accepted()
		mine.Close() // into the pool, where its real connection can be taken
		wantText(t, other, "one", sqlherd.Passthrough, query)
		if n := b.proxy.Accepted() - made; n != 1 {
			t.Errorf("%s: %d connections were made, want one in its place", taint, n)
		}
		other.Close()
		// A clean one is handed on.
		a, z := conn(t, db), conn(t, db)
		wantText(t, a, "one", sqlherd.Passthrough, query)
		made = b.proxy.Accepted()
		a.Close()
		wantText(t, z, "one", sqlherd.Passthrough, query)
		if n := b.proxy.Accepted() - made; n != 0 {
			t.Errorf("round %d: %d connections were made, want none", i, n)
		}
		z.Close()
	}
	stop()
	if b.peak > 1 {
		t.Errorf("%d connections at the server, want 1", b.peak)
	}
}

func TestAStatementOutlivesTheConnectionThatIsTakenFromIt(t *testing.T) {
	b := newBudgetBed(t)
	db, _ := openHerd(t, b.seen, sqlherd.Config{MaxDBConns: 1})
	st, err := db.Prepare("SELECT v FROM items WHERE id = $1")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	read := func(id int, want string) {
		t.Helper()
		var v string
		if err := st.QueryRowContext(withDeadline(t), id).Scan(&v); err != nil || v != want {
			t.Errorf("%q, %v; want %q", v, err, want)
		}
	}
	for range 3 {
		read(1, "one")
		idle := conn(t, db) // the pool's idle conn, which has the statement and the real connection
		other := conn(t, db)
		idle.Close()
		mustExec(t, other, "UPDATE items SET v = v")
		other.Close()
		read(2, "two")
		tx, err := db.BeginTx(withDeadline(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		var v string
		if err := tx.StmtContext(withDeadline(t), st).QueryRow(3).Scan(&v); err != nil || v != "three" {
			t.Errorf("in a transaction: %q, %v", v, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// What nests on one pool ends as long as the connections suffice for it, as with SetMaxOpenConns, and what is cached
// needs none.
func TestLoopsWithinLoopsAndTransactionsEndUnderMaxDBConns(t *testing.T) {
	b := newBudgetBed(t)
	stop := b.watch(t)
	const limit, at = 4, 30
	db, _ := openHerd(t, b.seen, sqlherd.Config{MaxDBConns: limit, MaxLoads: 2})
	query := b.slow("ttl=20ms", 1)
	each := func(ctx context.Context, q querier, f func(id int) error) error {
		rows, err := q.QueryContext(ctx, "SELECT id FROM items ORDER BY id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id int
			if err := rows.Scan(&id); err != nil {
				return err
			}
			if err := f(id); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	names := []string{"", "one", "two", "three"}
	cached := func(ctx context.Context, id int) error {
		v, _, err := text(ctx, db, query, id)
		if err == nil && v != names[id] {
			err = fmt.Errorf("item %d is %q", id, v)
		}
		return err
	}
	ctx := withDeadline(t)
	// One after the other three deep: rows, rows within, and a cached query within those.
	if err := each(ctx, db, func(int) error {
		return each(ctx, db, func(id int) error { return cached(ctx, id) })
	}); err != nil {
		t.Error(err)
	}
	// At the same time: each holds one connection at most, and reads what is cached meanwhile.
	var wg sync.WaitGroup
	for i := range at {
		wg.Go(func() {
			err := func() error {
				switch i % 3 {
				case 0:
					return each(ctx, db, func(id int) error { return cached(ctx, id) })
				case 1:
					tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
					if err != nil {
						return err
					}
					defer tx.Rollback() //nolint:errcheck // of a committed one
					if err := each(ctx, tx, func(id int) error { return cached(ctx, id) }); err != nil {
						return err
					}
					return tx.Commit()
				}
				c, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer c.Close()
				if _, err := c.ExecContext(ctx, "SET app.x = '1'"); err != nil {
					return err
				}
				return cached(ctx, 1+i%3)
			}()
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// Too deep is an end at the deadline and no deadlock.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var deep func(n int) error
	deep = func(n int) error {
		if n == 0 {
			return nil
		}
		return each(short, db, func(int) error { return deep(n - 1) })
	}
	if err := deep(limit + 1); err == nil || !strings.Contains(err.Error(), "deadline") && !strings.Contains(err.Error(), "canceling") {
		t.Errorf("%d deep on %d connections: %v", limit+1, limit, err)
	}
	wantText(t, db, "one", sqlherd.Passthrough, "SELECT v FROM items WHERE id = 1")
	stop()
	if b.peak > limit+2 {
		t.Errorf("%d connections at the server, want at most %d and the loader's 2", b.peak, limit)
	}
}
