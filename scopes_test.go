package sqlherd_test

// A scope is part of everything that is shared: entries, flights, leases, refreshes, what is remembered as empty.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

type tenantKey struct{}

// A tenantBed is a fleet on a database that shows each tenant its own rows, by something that sqlherd cannot see: the
// context. All tenants send one statement without arguments, so that nothing but the scope tells their results apart.
type tenantBed struct {
	t     *testing.T
	fleet *sqlherd.FakeFleet
	herds []*sqlherd.Herd
	pools []*sql.DB

	mu    sync.Mutex
	value map[string]string // by tenant; "" is no row
	loads map[string]int
	down  bool
}

const ofTenant = "SELECT /* @cache ttl=10s swr=10s sie=1m empty=5s jitter=0 early=off tags=docs */ v FROM docs"

func newTenantBed(t *testing.T) *tenantBed {
	b := &tenantBed{t: t, fleet: sqlherd.NewFakeFleet(), value: map[string]string{}, loads: map[string]int{}}
	db := newFakeDB(t, func(ctx context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loads[tenant]++
		switch v := b.value[tenant]; {
		case b.down:
			return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		case v == "":
			return rowsOf([]string{"v"}), nil
		default:
			return one(v), nil
		}
	})
	for range 2 {
		h, err := sqlherd.NewOnStore(sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.DiscardHandler)}, b.fleet.Store())
		if err != nil {
			t.Fatal(err)
		}
		p := sql.OpenDB(h.Connector(fakeConnector{db}))
		t.Cleanup(func() {
			if err := errors.Join(p.Close(), h.Close()); err != nil {
				t.Error(err)
			}
		})
		b.herds, b.pools = append(b.herds, h), append(b.pools, p)
	}
	return b
}

func (b *tenantBed) set(tenant, v string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.value[tenant] = v
}

func (b *tenantBed) setDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

func (b *tenantBed) wantLoads(when string, ofA, ofZ int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads["a"] != ofA || b.loads["z"] != ofZ || len(b.loads) > 2 {
		b.t.Errorf("%s: loads %v; want %d of a and %d of z", when, b.loads, ofA, ofZ)
	}
}

// read wants v, or no row if it is empty.
func (b *tenantBed) read(when string, p *sql.DB, tenant, v string, outcomes ...sqlherd.Outcome) {
	b.t.Helper()
	var info sqlherd.Info
	ctx := sqlherd.WithScope(context.WithValue(sqlherd.WithInfo(b.t.Context(), &info), tenantKey{}, tenant), "tenant:"+tenant)
	var got string
	err := p.QueryRowContext(ctx, ofTenant).Scan(&got)
	if v == "" && err == sql.ErrNoRows {
		err = nil
	}
	ok := len(outcomes) == 0
	for _, o := range outcomes {
		ok = ok || info.Outcome == o
	}
	if err != nil || got != v || !ok {
		b.t.Errorf("%s: %s reads %q (%v), %v; want %q (%v)", when, tenant, got, info.Outcome, err, v, outcomes)
	}
}

func TestATenantsRowsStayItsOwnOnEveryWayToServeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTenantBed(t)
		here, there := b.pools[0], b.pools[1]
		b.set("a", "a1")
		b.set("z", "z1")

		// A cold key, many callers of both tenants in both processes: nobody joins the other's flight, waits for its lease or
		// is pushed its rows.
		var wg sync.WaitGroup
		for i := range 80 {
			wg.Go(func() {
				tenant := []string{"a", "z"}[i%2]
				b.read("a cold key", b.pools[i/2%2], tenant, tenant+"1", sqlherd.Miss, sqlherd.Shared, sqlherd.Waited)
			})
		}
		wg.Wait()
		b.wantLoads("a cold key", 1, 1)
		b.read("from memory", here, "a", "a1", sqlherd.Hit)
		b.read("from memory", here, "z", "z1", sqlherd.Hit)
		keys := b.fleet.Keys()
		if len(keys) != 2 || strings.Contains(keys[0], "tenant:a") == strings.Contains(keys[1], "tenant:a") ||
			strings.Contains(keys[0], "tenant:z") == strings.Contains(keys[1], "tenant:z") {
			t.Errorf("the entries are %q", keys)
		}

		// A refresh of one tenant's rows leaves the other's stale.
		time.Sleep(11 * time.Second)
		b.set("a", "a2")
		b.set("z", "z2")
		b.read("stale", here, "a", "a1", sqlherd.Stale)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.read("refreshed", here, "a", "a2", sqlherd.Hit)
		b.read("refreshed elsewhere", there, "a", "a2", sqlherd.Hit)
		b.wantLoads("a refresh", 2, 1)
		b.read("not refreshed", there, "z", "z1", sqlherd.Stale)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.read("refreshed by its own tenant", here, "z", "z2", sqlherd.Hit)
		b.wantLoads("both refreshes", 2, 2)

		// The database is down, and both have but old rows.
		time.Sleep(21 * time.Second)
		b.setDown(true)
		for _, p := range b.pools {
			b.read("the database is down", p, "a", "a2", sqlherd.StaleError)
			b.read("the database is down", p, "z", "z2", sqlherd.StaleError)
		}
		b.setDown(false)

		// One has no rows any more. What is remembered of that is nothing to the other.
		b.set("a", "")
		if err := b.herds[0].Invalidate(t.Context(), "docs"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // longer than a failing key backs off
		synctest.Wait()
		for _, p := range b.pools {
			b.read("no rows", p, "a", "", sqlherd.Miss, sqlherd.Hit)
			b.read("rows all the same", p, "z", "z2", sqlherd.Miss, sqlherd.Hit)
			b.read("no rows, remembered", p, "a", "", sqlherd.Hit)
		}
		b.set("a", "a3")
		time.Sleep(6 * time.Second)
		b.read("the empty result's life is over", there, "a", "a3", sqlherd.Miss)
		b.read("while the other's goes on", there, "z", "z2", sqlherd.Hit)

		// A write reaches both.
		b.set("a", "a4")
		b.set("z", "z4")
		if _, err := here.Exec("UPDATE docs SET v = 'x'"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, p := range []*sql.DB{there, here} {
			b.read("after a write", p, "a", "a4", sqlherd.Miss, sqlherd.Hit)
			b.read("after a write", p, "z", "z4", sqlherd.Miss, sqlherd.Hit)
		}
		if keys := b.fleet.Keys(); len(keys) != 2 {
			t.Errorf("the entries are %q", keys)
		}
	})
}
