package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
)

// A dsnDriver is a driver of many databases, named by their DSN.
type dsnDriver struct {
	t *testing.T

	mu         sync.Mutex
	connectors int
	closed     int
	dbs        map[string]*fakeDB // by database and user
}

func (d *dsnDriver) Open(string) (driver.Conn, error) {
	d.t.Error("Open was called though there is OpenConnector")
	return nil, driver.ErrBadConn
}

func (d *dsnDriver) OpenConnector(dsn string) (driver.Connector, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connectors++
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	who := u.User.Username() + u.Path
	if d.dbs == nil {
		d.dbs = make(map[string]*fakeDB)
	}
	if d.dbs[who] == nil {
		d.dbs[who] = newFakeDB(d.t, slowly(0, "rows of "+who))
	}
	return &dsnFakeConnector{d: d, db: d.dbs[who]}, nil
}

type dsnFakeConnector struct {
	d  *dsnDriver
	db *fakeDB
}

func (c *dsnFakeConnector) Connect(context.Context) (driver.Conn, error) { return c.db.connect() }
func (c *dsnFakeConnector) Driver() driver.Driver                        { return c.d }
func (c *dsnFakeConnector) Close() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.closed++
	return nil
}

func newHerd(t *testing.T, cfg sqlherd.Config) *sqlherd.Herd {
	t.Helper()
	h, err := sqlherd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func openDSN(t *testing.T, h *sqlherd.Herd, d driver.Driver, dsn string) *sql.DB {
	t.Helper()
	c, err := h.Driver(d).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := sql.OpenDB(c)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestTheDriversConnectorIsMadeOnceAndClosedOnce(t *testing.T) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	d := &dsnDriver{t: t}
	name := fmt.Sprintf("herd-dsn-%p", d) // -count runs it again in one process
	sql.Register(name, h.Driver(d))
	p, err := sql.Open(name, "postgres://app@db.example/orders")
	if err != nil {
		t.Fatal(err)
	}
	p.SetMaxIdleConns(-1)
	for range 3 {
		if _, err := p.Exec(plain); err != nil {
			t.Fatal(err)
		}
		if _, err := queryOne(t.Context(), p, hinted); err != nil {
			t.Fatal(err)
		}
	}
	if other, ok := sqlherd.FromDB(p); !ok || other != h {
		t.Error("FromDB does not find the Herd")
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if d.connectors != 1 || d.closed != 1 {
		t.Errorf("%d connectors made and %d closed, want 1 and 1", d.connectors, d.closed)
	}
	if n := d.dbs["app/orders"].open.Load(); n != 0 {
		t.Errorf("%d connections left open", n)
	}
	if _, ok := sqlherd.FromDB(sql.OpenDB(fakeConnector{newFakeDB(t, nil)})); ok {
		t.Error("FromDB finds a Herd beneath a bare pool")
	}
}

func TestRowsOfOneDatabaseOrUserNeverReachAnother(t *testing.T) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	d := &dsnDriver{t: t}
	keys := make(map[string]string)
	for _, dsn := range []string{
		"postgres://app:secret@db.example/orders",
		"postgres://app:secret@db.example/staging",
		"postgres://other:secret@db.example/orders",
	} {
		u, _ := url.Parse(dsn)
		p := openDSN(t, h, d, dsn)
		for _, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			v, info := ask(t, p)
			if v != "rows of "+u.User.Username()+u.Path || info.Outcome != o {
				t.Errorf("%s: %q, %v; want %v", dsn, v, info.Outcome, o)
			}
			if other, ok := keys[info.Key]; ok && other != dsn {
				t.Errorf("%s and %s have one key", dsn, other)
			}
			keys[info.Key] = dsn
		}
	}
	// Connectors without a name are databases of their own.
	for i := range 3 {
		p := sql.OpenDB(h.Connector(fakeConnector{newFakeDB(t, slowly(0, fmt.Sprint(i)))}))
		defer p.Close()
		want(t, "a connector", p, fmt.Sprint(i), sqlherd.Miss, 0)
	}
	// Those of one name are one database.
	for i, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
		p := sql.OpenDB(h.Connector(fakeConnector{newFakeDB(t, slowly(0, "named"))}, sqlherd.Identity("orders/app")))
		defer p.Close()
		want(t, fmt.Sprint("named connector ", i), p, "named", o, 0)
	}
	p := sql.OpenDB(h.Connector(fakeConnector{newFakeDB(t, slowly(0, "other"))}, sqlherd.Identity("orders/other")))
	defer p.Close()
	want(t, "another name", p, "other", sqlherd.Miss, 0)
}

func TestAChangedPasswordKeepsTheKeys(t *testing.T) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	d := &dsnDriver{t: t}
	first := openDSN(t, h, d, "postgres://app:old@db.example/orders")
	_, a := ask(t, first)
	second := openDSN(t, h, d, "postgres://app:new@db.example/orders")
	_, b := ask(t, second)
	if a.Key == "" || a.Key != b.Key || b.Outcome != sqlherd.Hit {
		t.Errorf("keys %q and %q, second a %v; want one key and a hit", a.Key, b.Key, b.Outcome)
	}
	two := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	_, c := ask(t, openDSN(t, two, d, "postgres://app:other@db.example/orders"))
	if c.Key != a.Key {
		t.Errorf("in another process the key is %q, not %q", c.Key, a.Key)
	}
}

func TestAConnectorWithoutANameIsRefusedWithRedisAndTheErrorSaysWhatToDo(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	h := newHerd(t, sqlherd.Config{Redis: client})
	db := newFakeDB(t, slowly(0, "rows"))
	p := sql.OpenDB(h.Connector(fakeConnector{db}))
	defer p.Close()
	_, err := queryOne(t.Context(), p, plain)
	if err == nil || !strings.Contains(err.Error(), "sqlherd.Identity(") {
		t.Errorf("got %v, want an error that names sqlherd.Identity", err)
	}
	named := sql.OpenDB(h.Connector(fakeConnector{db}, sqlherd.Identity("orders/app")))
	defer named.Close()
	if v, err := queryOne(t.Context(), named, hinted); v != "rows" || err != nil {
		t.Errorf("with a name: %q, %v", v, err)
	}
}

func TestADriverWithoutConnectorsIsOpenedByItsDSN(t *testing.T) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	db := newFakeDB(t, slowly(0, "rows"))
	p := openDSN(t, h, fakeDriver{db}, "postgres://app@db.example/orders")
	want(t, "first", p, "rows", sqlherd.Miss, 0)
	want(t, "second", p, "rows", sqlherd.Hit, 0)
	c, err := h.Driver(fakeDriver{db}).Open("postgres://app@db.example/orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func openPool(t *testing.T, c driver.Connector) *sql.DB {
	p := sql.OpenDB(c)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
