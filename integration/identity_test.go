package integration_test

import (
	"database/sql"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A view is a database as one process sees it, and what it must see.
type view struct {
	name string
	d    dbtest.Database
	want string
}

// apart checks that views on one Redis never get each other's rows, from memory or from Redis.
func apart(t *testing.T, query string, views ...view) {
	t.Helper()
	rdb, ns := dbtest.Redis(t)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
	one := newHerd(t, cfg)
	hinted := "SELECT /* @cache ttl=10m */ " + query
	var pools []*sql.DB
	for _, v := range views {
		pools = append(pools, open(t, one, v.d))
	}
	for i, v := range views {
		t.Run(v.name, func(t *testing.T) {
			wantText(t, v.d.Open(t), v.want, sqlherd.Passthrough, "SELECT "+query)
			wantText(t, pools[i], v.want, sqlherd.Miss, hinted)
			wantText(t, pools[i], v.want, sqlherd.Hit, hinted)
		})
	}
	for _, v := range views { // from Redis, in a process of its own
		t.Run(v.name+" from Redis", func(t *testing.T) {
			db, _ := openHerd(t, v.d, cfg)
			wantText(t, db, v.want, sqlherd.Hit, hinted)
		})
	}
}

func TestTwoDatabasesNeverSeeEachOthersRows(t *testing.T) {
	for _, open := range []func(testing.TB) dbtest.Database{dbtest.PQ, dbtest.PGX, dbtest.MariaDB, dbtest.SQLite, dbtest.SQLiteCgo} {
		a, b := open(t), open(t)
		t.Run(a.Name, func(t *testing.T) {
			a.Exec(t, "CREATE TABLE who (v VARCHAR(10) NOT NULL)", "INSERT INTO who VALUES ('a')")
			b.Exec(t, "CREATE TABLE who (v VARCHAR(10) NOT NULL)", "INSERT INTO who VALUES ('b')")
			apart(t, "v FROM who", view{"a", a, "a"}, view{"b", b, "b"})
		})
	}
}

func TestTwoUsersNeverSeeEachOthersRows(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		switch d.Engine {
		case dbtest.EnginePostgres:
			d.Exec(t, "CREATE VIEW me AS SELECT current_user::text AS v")
		case dbtest.EngineMariaDB:
			d.Exec(t, "CREATE SQL SECURITY INVOKER VIEW me AS SELECT CURRENT_USER() AS v")
		}
		var views []view
		for i := range 2 {
			u := d.WithUser(t, "secret")
			var name string
			if err := u.Open(t).QueryRow("SELECT v FROM me").Scan(&name); err != nil {
				t.Fatal(err)
			}
			views = append(views, view{fmt.Sprint("user ", i+1), u, name})
		}
		apart(t, "v FROM me", views...)
	})
}

func TestTwoSearchPathsNeverSeeEachOthersRows(t *testing.T) {
	for _, open := range []func(testing.TB) dbtest.Database{dbtest.PQ, dbtest.PGX} {
		d := open(t)
		t.Run(d.Name, func(t *testing.T) {
			for _, s := range []string{"s1", "s2", "s3"} {
				d.Exec(t, "CREATE SCHEMA "+s, "CREATE TABLE "+s+".who (v text)", fmt.Sprintf("INSERT INTO %s.who VALUES ('%[1]s')", s))
			}
			apart(t, "v FROM who",
				view{"as a parameter, s1", d.WithParams("search_path=s1"), "s1"},
				view{"as a parameter, s2", d.WithParams("search_path=s2"), "s2"},
				view{"in the options, s2", d.WithParams("options=-c%20search_path%3Ds2"), "s2"},
				view{"in the options, s3", d.WithParams("options=-c%20search_path%3Ds3"), "s3"})
		})
	}
}

// A schema for each tenant is often set at its login, where neither the DSN nor the text tells of it.
func TestTwoRolesWithSearchPathsOfTheirOwnNeverSeeEachOthersRows(t *testing.T) {
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			var views []view
			for _, s := range []string{"s1", "s2"} {
				d.Exec(t, "CREATE SCHEMA "+s, "CREATE TABLE "+s+".who (v text)", fmt.Sprintf("INSERT INTO %s.who VALUES ('%[1]s')", s))
				login := d.WithUser(t, "secret")
				d.Exec(t, fmt.Sprintf("ALTER ROLE %s SET search_path = %s", loginOf(t, login), s))
				views = append(views, view{"login of " + s, login, s})
			}
			apart(t, "v FROM who", views...)
		})
	}
}

// The new setting is that of connections that are made after it, bare as well; what was cached before is the old one's.
func TestASearchPathThatALoginIsGivenLaterIsFollowedOnceTheRowsAreForgotten(t *testing.T) {
	const query = "SELECT /* @cache ttl=10m tags=who */ v FROM who"
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			owner := open(t)
			d := owner.WithUser(t, "secret")
			login := loginOf(t, d)
			for _, s := range []string{"s1", "s2"} {
				owner.Exec(t, "CREATE SCHEMA "+s, "CREATE TABLE "+s+".who (v text)", fmt.Sprintf("INSERT INTO %s.who VALUES ('%[1]s')", s))
			}
			rdb, ns := dbtest.Redis(t)
			cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
			owner.Exec(t, "ALTER ROLE "+login+" SET search_path = s1")
			before, _ := openHerd(t, d, cfg)
			wantText(t, before, "s1", sqlherd.Miss, query)
			owner.Exec(t, "ALTER ROLE "+login+" SET search_path = s2")
			after, h := openHerd(t, d, cfg) // a process that starts now
			wantText(t, after, "s1", sqlherd.Hit, query)
			if err := h.Invalidate(withDeadline(t), "who"); err != nil {
				t.Fatal(err)
			}
			wantText(t, after, "s2", sqlherd.Miss, query)
			wantText(t, after, "s2", sqlherd.Hit, query)
		})
	}
}

func TestSettingsOfTheDSNKeepRowsApart(t *testing.T) {
	t.Run("sql_mode and charset of MariaDB", func(t *testing.T) {
		d := dbtest.MariaDB(t)
		d.Exec(t, "CREATE TABLE who (v VARCHAR(10) CHARACTER SET utf8mb4)", "INSERT INTO who VALUES ('é')")
		apart(t, `CONCAT("v", '|', v) AS v FROM who`,
			view{"neither", d, "v|é"},
			view{"ANSI_QUOTES", d.WithParams("sql_mode=%27ANSI_QUOTES%27"), "é|é"},
			view{"latin1", d.WithParams("charset=latin1"), "v|\xe9"})
	})
	t.Run("binary_parameters of lib/pq", func(t *testing.T) {
		d := dbtest.PQ(t)
		d.Exec(t, "CREATE TABLE who (v text)", "INSERT INTO who VALUES ('here')")
		apart(t, "v FROM who", view{"off", d, "here"}, view{"on", d.WithParams("binary_parameters=yes"), "here"})
	})
	t.Run("time zones of PostgreSQL", func(t *testing.T) {
		for _, open := range []func(testing.TB) dbtest.Database{dbtest.PQ, dbtest.PGX} {
			d := open(t)
			t.Run(d.Name, func(t *testing.T) {
				d.Exec(t, "CREATE TABLE times (at timestamptz)", "INSERT INTO times VALUES ('2024-07-01 20:00Z')")
				apart(t, "date_trunc('day', at)::date::text AS v FROM times",
					view{"UTC", d.WithParams("TimeZone=UTC"), "2024-07-01"},
					view{"Tokyo", d.WithParams("TimeZone=" + url.QueryEscape("Asia/Tokyo")), "2024-07-02"})
			})
		}
	})
	t.Run("time zones of MariaDB", func(t *testing.T) {
		d := dbtest.MariaDB(t)
		d.Exec(t, "CREATE TABLE times (at TIMESTAMP)")
		utc, tokyo := d.WithParams("time_zone=%27%2B00%3A00%27"), d.WithParams("time_zone=%27%2B09%3A00%27")
		utc.Exec(t, "INSERT INTO times VALUES ('2024-07-01 20:00:00')")
		apart(t, "CAST(DATE(at) AS CHAR) AS v FROM times", view{"UTC", utc, "2024-07-01"}, view{"Tokyo", tokyo, "2024-07-02"})
	})
	t.Run("parseTime of MariaDB", func(t *testing.T) {
		d := dbtest.MariaDB(t)
		d.Exec(t, "CREATE TABLE times (at DATETIME)", "INSERT INTO times VALUES ('2024-07-01 20:00:00')")
		apart(t, "at AS v FROM times",
			view{"off", d, "2024-07-01 20:00:00"},
			view{"on", d.WithParams("parseTime=true"), "2024-07-01T20:00:00Z"},
			view{"on, Tokyo", d.WithParams("parseTime=true", "loc=Asia%2FTokyo"), "2024-07-01T20:00:00+09:00"})

		// Two services on one Redis, each with its own Go type.
		rdb, ns := dbtest.Redis(t)
		h := newHerd(t, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		off, on := open(t, h, d), open(t, h, d.WithParams("parseTime=true"))
		for _, outcome := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			for _, c := range []struct {
				db   *sql.DB
				want any
			}{{off, []byte("2024-07-01 20:00:00")}, {on, time.Date(2024, 7, 1, 20, 0, 0, 0, time.UTC)}} {
				var info sqlherd.Info
				var got any
				err := c.db.QueryRowContext(sqlherd.WithInfo(withDeadline(t), &info), "SELECT /* @cache ttl=10m */ at FROM times").Scan(&got)
				if err != nil || !reflect.DeepEqual(got, c.want) || info.Outcome != outcome {
					t.Errorf("%T %v (%v), %v; want %T %v (%v)", got, got, info.Outcome, err, c.want, c.want, outcome)
				}
			}
		}
	})
	t.Run("_loc of SQLite", func(t *testing.T) {
		d := dbtest.SQLiteCgo(t)
		d.Exec(t, "CREATE TABLE times (at DATETIME)", "INSERT INTO times VALUES ('2024-07-01 20:00:00')")
		apart(t, "at AS v FROM times",
			view{"none", d, "2024-07-01T20:00:00Z"},
			view{"Tokyo", d.WithParams("_loc=Asia/Tokyo"), "2024-07-02T05:00:00+09:00"})
	})
}

func TestAChangedPasswordKeepsTheKeys(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		query := b.slow("ttl=10m", 0)
		before := b.WithUser(t, "first-secret")
		db, _ := openHerd(t, before, cfg)
		wantText(t, db, "one", sqlherd.Miss, query, 1)

		after := before
		switch d.Engine {
		case dbtest.EnginePostgres:
			u, err := url.Parse(before.DSN)
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, b.admin, fmt.Sprintf("ALTER ROLE %s PASSWORD 'second-secret'", u.User.Username()))
			u.User = url.UserPassword(u.User.Username(), "second-secret")
			after.DSN = u.String()
		case dbtest.EngineMariaDB:
			cfg, err := mysql.ParseDSN(before.DSN)
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, b.admin, fmt.Sprintf("ALTER USER '%s'@'%%' IDENTIFIED BY 'second-secret'", cfg.User))
			cfg.Passwd = "second-secret"
			after.DSN = cfg.FormatDSN()
		}
		again, _ := openHerd(t, after, cfg)
		wantText(t, again, "one", sqlherd.Hit, query, 1)
		wantText(t, again, "two", sqlherd.Miss, query, 2) // the new password works
		b.wantLoads(t, 2)
	})
}

func TestAConnectorNeedsANameWhenThereIsARedis(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		h := newHerd(t, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		nameless := sql.OpenDB(h.Connector(b.Connector(t)))
		defer nameless.Close()
		if err := nameless.Ping(); err == nil {
			t.Error("a connector without a name works with Redis")
		} else {
			t.Log(err)
		}
		query := b.slow("ttl=10m", 0)
		for _, want := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			db := sql.OpenDB(h.Connector(b.Connector(t), sqlherd.Identity("orders/app")))
			defer db.Close()
			wantText(t, db, "one", want, query, 1)
			other := sql.OpenDB(h.Connector(b.Connector(t), sqlherd.Identity("orders/admin")))
			defer other.Close()
			wantText(t, other, "one", want, query, 1)
			b.wantLoads(t, 2)
		}
	})
}

// What an argument is decides what typeof and its kin answer, and which row a comparison finds.
func TestArgumentsThatLookAlikeAreAnsweredAsOnTheBareDriver(t *testing.T) {
	at := time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.UTC)
	arguments := []any{
		int64(1), int32(1), uint64(1), uint64(math.MaxUint64), int64(-1), 1.0, float32(1), "1", []byte("1"), true, false, int64(0), 0.0, math.Copysign(0, -1), math.NaN(), nil, "", []byte{}, []byte(nil),
		sql.NullString{}, sql.NullString{String: "1", Valid: true}, at, at.Add(1000), at.Add(1), at.In(time.FixedZone("", 3600)), "1.0", []byte("1.0"), "a ", "a",
	}
	queries := map[dbtest.Engine][]string{
		dbtest.EnginePostgres: {"SELECT pg_typeof($1)::text AS v", "SELECT $1 AS v", "SELECT $1::text AS v", "SELECT code AS v FROM who WHERE code = $1"},
		dbtest.EngineMariaDB:  {"SELECT ? AS v", "SELECT code AS v FROM who WHERE code = ?"},
		dbtest.EngineSQLite:   {"SELECT typeof(?) AS v", "SELECT code AS v FROM who WHERE code = ?"},
	}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE who (code CHAR(3) NOT NULL)", "INSERT INTO who VALUES ('1'), ('a')")
		rdb, ns := dbtest.Redis(t)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		bare := d.Open(t)
		first, _ := openHerd(t, d, cfg)
		other, _ := openHerd(t, d, cfg)
		keys := map[string]string{} // by key, the query and argument whose it is
		answered := 0
		for _, way := range []struct {
			name    string
			db      *sql.DB
			outcome sqlherd.Outcome
		}{{"miss", first, sqlherd.Miss}, {"hit from memory", first, sqlherd.Hit}, {"hit from Redis", other, sqlherd.Hit}} {
			for _, query := range queries[d.Engine] {
				hinted := "SELECT /* @cache ttl=10m empty=10m */" + strings.TrimPrefix(query, "SELECT")
				for _, arg := range arguments {
					what := fmt.Sprintf("%s with %T %#v", query, arg, arg)
					want := see(withDeadline(t), bare, false, hinted, arg)
					var info sqlherd.Info
					got := see(sqlherd.WithInfo(withDeadline(t), &info), way.db, false, hinted, arg)
					if _, diff := got.differences(want); diff != nil {
						t.Errorf("%s, %s\n%s", what, way.name, strings.Join(diff, "\n"))
					}
					if want.Fails {
						continue // errors are not cached
					}
					answered++
					if info.Outcome != way.outcome {
						t.Errorf("%s, %s: %v (%v %s)", what, way.name, info.Outcome, info.Reason, info.Detail)
					}
					if whose, taken := keys[info.Key]; taken && whose != what {
						t.Errorf("one key for\n%s\n%s", what, whose)
					}
					keys[info.Key] = what
				}
			}
		}
		if answered < 3*len(arguments) {
			t.Errorf("only %d of the questions were answered", answered)
		}
	})
}

// Nothing is configured but Redis, as in a first trial: two environments that share it by mistake.
func TestTwoAppsOnOneRedisWithoutANamespaceKeepTheirRowsAndWhatIsNotTheirs(t *testing.T) {
	for _, file := range []func(testing.TB) dbtest.Database{dbtest.SQLite, dbtest.SQLiteCgo} {
		staging, production := file(t), file(t)
		t.Run(staging.Name, func(t *testing.T) {
			rdb := dbtest.StartRedis(t).Client()
			ctx := withDeadline(t)
			foreign := map[string]string{"session:1": "untouched", "sqlherdish": "untouched", "sqlherd": "untouched", "{sqlherd}:x": "untouched"}
			for k, v := range foreign {
				if err := rdb.Set(ctx, k, v, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			const query = "SELECT /* @cache ttl=10m */ v FROM who"
			var pools []*sql.DB
			var herds []*sqlherd.Herd
			for i, d := range []dbtest.Database{staging, production} {
				d.Exec(t, "CREATE TABLE who (v text)", fmt.Sprintf("INSERT INTO who VALUES ('of %d')", i))
				db, h := openHerd(t, d, sqlherd.Config{Redis: rdb, RedisTimeout: redisTimeout})
				await(t, "messages arrive", func() bool { return h.Stats().Redis.Subscribed })
				pools, herds = append(pools, db), append(herds, h)
			}
			both := func(outcome sqlherd.Outcome) {
				t.Helper()
				for i, db := range pools {
					wantText(t, db, fmt.Sprintf("of %d", i), outcome, query)
				}
			}
			both(sqlherd.Miss)
			both(sqlherd.Hit)
			// An invalidation is of a table's name, which both have: a miss too many for the other, and never its rows.
			heard := func() {
				t.Helper()
				await(t, "the other app has heard", func() bool { return herds[1].Stats().InvalidationsHeard >= herds[0].Stats().Invalidations })
			}
			mustExec(t, pools[0], "UPDATE who SET v = 'of 0'")
			heard()
			both(sqlherd.Miss)
			both(sqlherd.Hit)
			if err := herds[0].InvalidateAll(ctx); err != nil {
				t.Fatal(err)
			}
			heard()
			both(sqlherd.Miss)
			for k, v := range foreign {
				if got := rdb.Get(ctx, k).Val(); got != v {
					t.Errorf("%s is %q now", k, got)
				}
			}
			// No command that walks or empties what belongs to others.
			used, err := rdb.Info(ctx, "commandstats").Result()
			if err != nil || !strings.Contains(used, "cmdstat_eval") {
				t.Fatalf("%v in\n%s", err, used)
			}
			for _, command := range []string{"flushdb", "flushall", "keys", "scan", "randomkey", "swapdb"} {
				if strings.Contains(used, "cmdstat_"+command+":") {
					t.Errorf("%s was used", command)
				}
			}
		})
	}
}
