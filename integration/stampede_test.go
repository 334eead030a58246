package integration_test

import (
	"fmt"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

const (
	callers = 1000
	loadMS  = 150
)

func TestAThousandCallersOnAColdKeyAreOneQueryAndOneConnection(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		loads := 0
		for _, pool := range []int{1, 20, 0} {
			t.Run(fmt.Sprintf("pool=%d", pool), func(t *testing.T) {
				d, connections := counted(t, b)
				db, h := openHerd(t, d, sqlherd.Config{})
				db.SetMaxOpenConns(pool)
				all := stampede(withDeadline(t), db, callers, b.slow("ttl=1m", loadMS), 1)
				all.check(t, "one", callers)
				loads++
				b.wantLoads(t, loads)
				if n := connections(); n != 1 {
					t.Errorf("%d connections were made, want 1", n)
				}
				if all.Outcomes["miss"] != 1 || all.Outcomes["bypass"] != 0 {
					t.Errorf("%v; want one miss", all)
				}
				if st := h.Stats(); st.Dials != 0 || st.Loads != 1 {
					t.Errorf("%d dials of the application's pool and %d loads, want 0 and 1", st.Dials, st.Loads)
				}
			})
		}
	})
}

// counted returns b's database with a count of the connections that are made to it: by a proxy,
// checked against the server's own list, and by the connector where there is no server.
func counted(t *testing.T, b *bed) (dbtest.Database, func() int) {
	if b.Engine == dbtest.EngineSQLite {
		d, n := countingDriver(b.Database)
		return d, func() int { return int(n.Load()) }
	}
	seen, proxy := b.through(t)
	before := b.Connections(t)
	return seen.Database, func() int {
		if made, listed := proxy.Accepted(), b.Connections(t)-before; made < listed {
			t.Errorf("the server lists %d connections, the proxy %d", listed, made)
		}
		return proxy.Accepted()
	}
}

func TestAThousandCallersInFourProcessesAreOneQueryAndOneConnection(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		seen, connections := b, func() int { return 1 }
		if d.Engine != dbtest.EngineSQLite {
			var proxy *dbtest.Proxy
			seen, proxy = b.through(t)
			connections = proxy.Accepted
		}
		procs := spawn(t, 4, workerOn(seen, rdb.Options().Addr, ns))
		answers := tell(procs, order{Query: b.slow("ttl=1m", loadMS), Arg: 1, Callers: callers / 4})
		all := sum(answers)
		all.check(t, "one", callers)
		b.wantLoads(t, 1)
		if n := connections(); n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
		if all.Outcomes["miss"] != 1 {
			t.Errorf("%v; want one miss", all)
		}
		if t.Failed() {
			for _, p := range procs {
				t.Log(figures(stats(p)))
			}
		}
		t.Logf("slowest of %d callers in 4 processes: %v, of which %d ms in the database", callers, all.Max, loadMS)
	})
}

func TestTwoHerdsInOneProcessShareThroughRedisOnly(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		query := b.slow("ttl=1m", 0)
		one, _ := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		two, h := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		wantText(t, one, "one", sqlherd.Miss, query, 1)
		wantText(t, two, "one", sqlherd.Hit, query, 1)
		wantText(t, two, "one", sqlherd.Hit, query, 1)
		b.wantLoads(t, 1)
		if st := h.Stats(); st.Loads != 0 || st.Dials != 0 || st.Redis.Gets != 1 {
			t.Errorf("the second herd: %s\nwant one look into Redis and no load", outcomes(h))
		}
	})
}
