package sqlherd_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// recorder keeps every event.
type recorder struct {
	sqlherd.ObserverBase
	mu      sync.Mutex
	queries []sqlherd.QueryEvent
	all     []string
}

func (r *recorder) note(e any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%T %+v", e, e))
}

func (r *recorder) Query(e sqlherd.QueryEvent) {
	r.note(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queries = append(r.queries, e)
}
func (r *recorder) Load(e sqlherd.LoadEvent)                 { r.note(e) }
func (r *recorder) Refresh(e sqlherd.RefreshEvent)           { r.note(e) }
func (r *recorder) Invalidation(e sqlherd.InvalidationEvent) { r.note(e) }

func TestEveryQueryWithAPolicyIsOneEventAndTheFiguresAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, func(ctx context.Context, q string, _ []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			if strings.Contains(q, "broken") {
				return nil, &driverError{}
			}
			return one("rows"), nil
		})
		rec := &recorder{}
		p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Observer: rec})
		queries := []string{
			"SELECT /* @cache ttl=1s swr=1s jitter=0 early=off */ v FROM t",
			"SELECT /* @nocache */ v FROM t",
			"SELECT /* @cache bogus */ v FROM t",
			"SELECT /* @cache ttl=1s */ nextval('s')",
			"SELECT /* @cache ttl=1s */ broken FROM t",
			plain,
		}
		asked := 0
		var wg sync.WaitGroup
		for range 4 {
			for _, q := range queries {
				for _, withInfo := range []bool{false, true} {
					ctx := t.Context()
					var info sqlherd.Info
					if withInfo {
						ctx = sqlherd.WithInfo(ctx, &info)
					}
					if q != plain {
						asked++
					}
					wg.Go(func() {
						if _, err := queryOne(ctx, p, q); err != nil && !strings.Contains(q, "broken") {
							t.Error(err)
						}
					})
				}
			}
			wg.Wait()
			time.Sleep(600 * time.Millisecond)
		}
		st := h.Stats()
		var events, failed uint64
		outcomes := make(map[sqlherd.Outcome]uint64)
		reasons := make(map[sqlherd.Reason]uint64)
		for _, e := range rec.queries {
			events++
			if e.Took < 0 || e.Took > 20*time.Millisecond {
				t.Errorf("%s took %v", e.Name, e.Took)
			}
			if e.Err != nil {
				failed++
				continue
			}
			outcomes[e.Outcome]++
			if e.Reason != 0 {
				reasons[e.Reason]++
			}
		}
		if int(events) != asked {
			t.Errorf("%d events for %d queries with a policy", events, asked)
		}
		if failed != st.QueryErrors || failed != 8 {
			t.Errorf("%d failed events, %d errors counted; want 8", failed, st.QueryErrors)
		}
		var sum uint64
		for o, n := range st.Outcomes {
			sum += n
			if o != sqlherd.Passthrough && outcomes[o] != n {
				t.Errorf("%v: %d events, %d counted", o, outcomes[o], n)
			}
		}
		if got := sum + st.QueryErrors; got != 4*2*6 {
			t.Errorf("%d outcomes and %d errors are not %d queries", sum, st.QueryErrors, 4*2*6)
		}
		if st.Outcomes[sqlherd.Passthrough] != 8 || st.Outcomes[sqlherd.Bypassed] != 24 {
			t.Errorf("outcomes %v", st.Outcomes)
		}
		for r, n := range st.Reasons {
			if reasons[r] != n {
				t.Errorf("%v: %d events, %d counted", r, reasons[r], n)
			}
		}
		if st.Outcomes[sqlherd.Stale] == 0 || st.Refreshes[sqlherd.RefreshDone] == 0 {
			t.Errorf("outcomes %v, refreshes %v: the test has seen no refresh", st.Outcomes, st.Refreshes)
		}
	})
}

func TestInfoIsOfTheLastQueryAlsoWhenItFails(t *testing.T) {
	broken := false
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		if broken {
			return nil, &driverError{}
		}
		return one("rows"), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	var info sqlherd.Info
	ctx := sqlherd.WithInfo(t.Context(), &info)
	if _, err := queryOne(ctx, p, "SELECT /* @nocache */ v FROM t"); err != nil || info.Reason != sqlherd.ReasonOff {
		t.Fatalf("%v, %v", info.Reason, err)
	}
	broken = true
	if _, err := queryOne(ctx, p, hinted); err == nil || info.Outcome != sqlherd.Miss || info.Reason != 0 || info.Key == "" {
		t.Errorf("after a query that failed (%v): %+v", err, info)
	}
}

func TestNoArgumentAndNoPasswordIsEverWrittenDown(t *testing.T) {
	const secret = "alice@example.test"
	rec := &recorder{}
	var log bytes.Buffer
	h := newHerd(t, sqlherd.Config{
		Dialect: sqlherd.PostgreSQL, Observer: rec,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	fail := false
	db := newFakeDB(t, func(ctx context.Context, q string, _ []driver.NamedValue) (*fakeResult, error) {
		if fail {
			return nil, errors.New("failed")
		}
		if strings.Contains(q, "panics") {
			panic("a driver that panics")
		}
		return one(secret), nil
	})
	p := openDSN(t, h, fakeDriver{db}, "postgres://app:hunter2@db.example/orders")
	var said strings.Builder
	for _, q := range []string{
		"SELECT /* @cache ttl=1m tags=user/{1} */ v FROM t WHERE a = $1",
		"SELECT /* @cache ttl=1m tags=user/{2} */ v FROM t WHERE a = $1",
		"SELECT /* @cache ttl=x */ v FROM t WHERE a = $1",
		"SELECT /* @cache ttl=1m */ panics FROM t WHERE a = $1",
		"SELECT /* @cache ttl=1m */ nextval($1)",
		"SELECT v FROM t WHERE a = $1",
	} {
		for range 2 {
			for _, arg := range []any{secret, []byte(secret), map[string]any{"a": secret}, valuer{secret}} {
				var info sqlherd.Info
				func() {
					defer func() { _ = recover() }()
					_, err := queryOne(sqlherd.WithInfo(t.Context(), &info), p, q, arg)
					if err != nil && !strings.Contains(err.Error(), "unsupported type") {
						fmt.Fprintln(&said, err)
					}
				}()
				fmt.Fprintf(&said, "%+v %+v\n", info, info.Policy)
			}
		}
		fail = !fail
	}
	fmt.Fprintf(&said, "%+v\n%s\n%s", h.Stats(), strings.Join(rec.all, "\n"), &log)
	for _, s := range []string{"alice", "hunter2", fmt.Sprint([]byte(secret))} {
		if i := strings.Index(said.String(), s); i >= 0 {
			t.Errorf("%q was written down: …%s…", s, said.String()[max(0, i-200):min(said.Len(), i+100)])
		}
	}
}
