package integration_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"testing"

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

func TestSettingsOfTheDSNKeepRowsApart(t *testing.T) {
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
