package integration_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// workerConfig tells a worker where everything is.
type workerConfig struct {
	Driver    string // as dbtest.Database.Name
	DSN       string
	Redis     string // host:port; empty for none
	User      string // of Redis
	Password  string
	Cluster   []string
	Namespace string

	RedisTimeout time.Duration
	MaxOpen      int
}

// order is what a worker is asked to do, one at a time.
type order struct {
	Query   string
	Arg     int
	Callers int           // reads at once
	For     time.Duration // go on reading for so long; zero: once each
	Pause   time.Duration // between two reads of a caller
	Exec    string        // run this statement, and do nothing else
	Stats   bool          // report the Herd's figures, and do nothing else
}

// answer is a worker's report on one order.
type answer struct {
	Tally    *tally
	Returned time.Duration // monotonic, when the last caller had its rows
	Loaded   time.Duration // monotonic, when the last load of this process ended
	Stored   time.Duration // monotonic, when its rows were stored
	Stats    *sqlherd.Stats
}

// worker is a process of a fleet: it opens a wrapped pool, which dials nothing, and does as it is told.
var worker = dbtest.NewRole("worker", func(c *dbtest.Child) error {
	var cfg workerConfig
	if err := c.Config(&cfg); err != nil {
		return err
	}
	times := &loadTimes{}
	conf := sqlherd.Config{
		Namespace: cfg.Namespace, RedisTimeout: cfg.RedisTimeout, Observer: times,
		Logger: slog.New(slog.DiscardHandler),
	}
	switch {
	case len(cfg.Cluster) > 0:
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cfg.Cluster})
		defer rdb.Close()
		conf.Redis = rdb
	case cfg.Redis != "":
		rdb := redis.NewClient(&redis.Options{Addr: cfg.Redis, Username: cfg.User, Password: cfg.Password})
		defer rdb.Close()
		conf.Redis = rdb
	}
	h, err := sqlherd.New(conf)
	if err != nil {
		return err
	}
	defer h.Close()
	base, err := driverNamed(cfg.Driver)
	if err != nil {
		return err
	}
	connector, err := h.Driver(base).(sqldriver.DriverContext).OpenConnector(cfg.DSN)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(cfg.MaxOpen)

	for {
		var o order
		if err := c.Recv(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := &answer{}
		switch {
		case o.Stats:
			st := h.Stats()
			a.Stats = &st
		case o.Exec != "":
			if _, err := db.ExecContext(c.Context(), o.Exec); err != nil {
				return err
			}
		default:
			a.Tally = o.run(c, db)
			a.Returned = monotonic()
			a.Loaded, a.Stored = times.last()
		}
		if err := c.Send(a); err != nil {
			return err
		}
	}
})

func driverNamed(name string) (sqldriver.Driver, error) {
	switch name {
	case "pq":
		return &pq.Driver{}, nil
	case "pgx":
		return stdlib.GetDefaultDriver(), nil
	case "mariadb":
		return &mysql.MySQLDriver{}, nil
	case "sqlite":
		return slowModernc, nil
	case "sqlite-cgo":
		return slowMattn, nil
	}
	return nil, fmt.Errorf("no driver is named %q", name)
}

func (o *order) run(c *dbtest.Child, db *sql.DB) *tally {
	if o.For == 0 {
		return stampede(c.Context(), db, o.Callers, o.Query, o.Arg)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := newTally()
	end := time.Now().Add(o.For)
	for range o.Callers {
		wg.Go(func() {
			mine := newTally()
			for time.Now().Before(end) && c.Context().Err() == nil {
				began := time.Now()
				v, info, err := text(c.Context(), db, o.Query, o.Arg)
				mine.add(v, info, time.Since(began), err)
				time.Sleep(o.Pause)
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(mine)
		})
	}
	wg.Wait()
	return all
}

// loadTimes notes when loads end and when their rows are stored.
type loadTimes struct {
	sqlherd.ObserverBase
	mu             sync.Mutex
	loaded, stored time.Duration
}

func (l *loadTimes) Load(sqlherd.LoadEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = monotonic()
}

func (l *loadTimes) Store(sqlherd.StoreEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = monotonic()
}

func (l *loadTimes) last() (loaded, stored time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded, l.stored
}

// redisTimeout is for tests in which Redis is well: on a machine that is busy with other tests,
// the 50 ms of the default pass before a process gets its turn.
const redisTimeout = time.Second

// workerOn is the config of a worker on b that shares a standalone Redis.
func workerOn(b *bed, addr, namespace string) workerConfig {
	return workerConfig{Driver: b.Name, DSN: b.DSN, Redis: addr, Namespace: namespace, RedisTimeout: redisTimeout}
}

// spawn starts n workers and returns when they are ready.
func spawn(t testing.TB, n int, cfg workerConfig) []*dbtest.Proc {
	t.Helper()
	procs := make([]*dbtest.Proc, n)
	for i := range procs {
		procs[i] = dbtest.Spawn(t, worker, cfg)
	}
	for _, p := range procs {
		stats(p)
	}
	return procs
}

// tell gives every worker the order, and returns their answers when all have done it.
func tell(procs []*dbtest.Proc, o order) []*answer {
	for _, p := range procs {
		p.Send(o)
	}
	answers := make([]*answer, len(procs))
	for i, p := range procs {
		answers[i] = hear(p)
	}
	return answers
}

func hear(p *dbtest.Proc) *answer {
	var a answer
	p.Recv(&a)
	return &a
}

func stats(p *dbtest.Proc) *sqlherd.Stats {
	p.Send(order{Stats: true})
	return hear(p).Stats
}

func sum(answers []*answer) *tally {
	all := newTally()
	for _, a := range answers {
		all.merge(a.Tally)
	}
	return all
}
