package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
)

// A worker is one process of the fleet: this program again, with workerEnv set. It is
// spoken to in lines of JSON: a job, then rounds until its input ends. It answers
// the job and each round, and sends an account at the end.
const workerEnv = "SQLHERD_STAMPEDE_WORKER"

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// A job is what a worker shall do.
type job struct {
	Callers   int    `json:"callers"`
	Query     string `json:"query"`
	Source    source `json:"source"`
	Herd      bool   `json:"herd"`
	Redis     string `json:"redis,omitempty"` // URL; empty: in-process only
	Namespace string `json:"namespace,omitempty"`
}

// A round is one expiry: all callers of all workers read at the same moment.
type round struct {
	At int64 `json:"at"` // nanoseconds since 1970
}

// An answer is what a worker says.
type answer struct {
	Error   string       `json:"error,omitempty"` // the worker cannot go on
	Round   *roundReport `json:"round,omitempty"`
	Account *account     `json:"account,omitempty"`
}

// A roundReport is what the callers of one worker saw.
type roundReport struct {
	Took   []time.Duration `json:"took"` // of the reads that got their row
	Failed int             `json:"failed"`
	// Why is the first failure, WhyAfter the longest that a caller waited for one.
	Why      string        `json:"why,omitempty"`
	WhyAfter time.Duration `json:"why_after,omitempty"`
}

// An account is what a worker did, all in all.
type account struct {
	Ledger   ledger            `json:"ledger"`
	Outcomes map[string]uint64 `json:"outcomes"`
	// RedisFailed is how many calls of Redis failed or took too long.
	RedisFailed uint64 `json:"redis_failed"`
}

// work is a worker's main. It returns the exit code.
func work(in io.Reader, out io.Writer) int {
	// ^C reaches the whole group of processes. The parent ends its workers.
	signal.Ignore(os.Interrupt)
	enc := json.NewEncoder(out)
	if err := serve(json.NewDecoder(in), enc); err != nil {
		_ = enc.Encode(answer{Error: err.Error()}) // if nobody listens, nobody is to be told
		return exitFailed
	}
	return exitOK
}

func serve(in *json.Decoder, out *json.Encoder) error {
	var j job
	if err := in.Decode(&j); err != nil {
		return err
	}
	w, err := openWorker(j)
	if err != nil {
		return err
	}
	defer w.close()
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	for {
		var r round
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return out.Encode(answer{Account: w.settle()})
		case err != nil:
			return err
		}
		report := w.round(time.Unix(0, r.At))
		if err := out.Encode(answer{Round: &report}); err != nil {
			return err
		}
	}
}

// redisTimeout is above sqlherd's default, because callers, processes, database and Redis
// share one machine here: it is the machine that is late then, and to go on without Redis does not help.
const redisTimeout = time.Second

type worker struct {
	job  job
	book *bookkeeper
	rdb  *redis.Client // nil without Redis
	herd *sqlherd.Herd // nil with the bare driver
	db   *sql.DB
	read uint64 // reads that got their row
}

// openWorker opens the application's pool. It is where sqlherd comes in; the rest
// of the worker is the same with and without.
func openWorker(j job) (*worker, error) {
	w := &worker{job: j, book: &bookkeeper{}}
	base, err := j.Source.connector(w.book)
	if err != nil {
		return nil, err
	}
	if !j.Herd {
		w.db = sql.OpenDB(base)
		return w, nil
	}

	cfg := sqlherd.Config{Namespace: j.Namespace, RedisTimeout: redisTimeout}
	if j.Redis != "" {
		opt, err := redis.ParseURL(j.Redis)
		if err != nil {
			return nil, err
		}
		w.rdb = redis.NewClient(opt)
		cfg.Redis = w.rdb
	}
	if w.herd, err = sqlherd.New(cfg); err != nil {
		return nil, err
	}
	w.db = sql.OpenDB(w.herd.Connector(base, sqlherd.Identity("stampede")))
	return w, nil
}

func (w *worker) close() {
	w.db.Close()
	if w.herd != nil {
		_ = w.herd.Close() // there is nothing left that could be lost
	}
	if w.rdb != nil {
		_ = w.rdb.Close()
	}
}

// round lets all callers read at at, and returns when no load is under way any more.
func (w *worker) round(at time.Time) roundReport {
	n := w.job.Callers
	took, errs := make([]time.Duration, n), make([]error, n)
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-gate
			began := time.Now()
			errs[i] = w.readProduct(context.Background())
			took[i] = time.Since(began)
		})
	}
	ready.Wait()
	time.Sleep(time.Until(at))
	close(gate)
	done.Wait()

	var report roundReport
	for i, err := range errs {
		if err == nil {
			w.read++
			report.Took = append(report.Took, took[i])
			continue
		}
		report.Failed++
		report.Why = cmp.Or(report.Why, err.Error())
		report.WhyAfter = max(report.WhyAfter, took[i])
	}
	w.awaitLoads()
	return report
}

// readProduct is what a caller does.
func (w *worker) readProduct(ctx context.Context) error {
	var id, load int
	var name string
	if err := w.db.QueryRowContext(ctx, w.job.Query, productID).Scan(&id, &name, &load); err != nil {
		return err
	}
	if id != productID || name != productName {
		return fmt.Errorf("read product %d, %q; want %d, %q", id, name, productID, productName)
	}
	return nil
}

// awaitLoads returns when sqlherd has nothing under way: after its callers have left with stale
// rows, a refresh still runs.
func (w *worker) awaitLoads() {
	if w.herd == nil {
		return
	}
	for {
		s := w.herd.Stats()
		if s.Loading == 0 && s.RefreshesRunning == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *worker) settle() *account {
	a := &account{Ledger: w.book.ledger(), Outcomes: make(map[string]uint64)}
	if w.herd == nil {
		if w.read > 0 {
			a.Outcomes["uncached"] = w.read
		}
		return a
	}
	s := w.herd.Stats()
	for outcome, n := range s.Outcomes {
		a.Outcomes[outcome.String()] = n
	}
	a.RedisFailed = s.Redis.Timeouts + s.Redis.Errors
	return a
}
