package sqlherd_test

// Config.Strict, and soft invalidation: what a fleet reads around a write.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// fencesEnd is when a fence that nobody lifts has ended.
const fencesEnd = 31 * time.Second

// The writer dies after its commit and before it can say so: the old rows are in Redis, and in memory everywhere.
func TestWithStrictAWriterThatDiesAtItsCommitLeavesNoOldRows(t *testing.T) {
	for _, strict := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newRaceBed(t, 3, sqlherd.Config{Strict: strict})
			writer, reader, late := b.pools[0], b.pools[1], b.pools[2]
			query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
			b.wantValue("before", reader, query, "v1")
			want(t, "before", reader, "v1", sqlherd.Miss, 0) // hinted, another policy: also in memory

			tx := begin(t, writer)
			do(t, tx, "UPDATE t SET v = 'v2'")
			for _, op := range []string{"invalidate", "lift"} { // nobody hears of the writer any more
				b.fleet.SetErr(op, errors.New("dead"))
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			seen := "v2"
			if !strict {
				seen = "v1" // until its life ends: what Strict is for
			}
			for range 3 {
				b.wantValue("after the commit", reader, query, seen)
				b.wantValue("after the commit", late, query, seen)
				time.Sleep(500 * time.Millisecond)
			}
			if !strict {
				return
			}
			if n := b.herds[1].Stats().FencesHeard; n == 0 {
				t.Error("nobody heard of the fence")
			}
			time.Sleep(fencesEnd)
			b.wantValue("after the fence", reader, query, "v2")
			loads := b.loads()
			b.wantValue("after the fence", late, query, "v2")
			b.wantValue("after the fence", reader, query, "v2")
			if n := b.loads(); n != loads {
				t.Errorf("%d loads although the fence has ended and the rows are stored again", n-loads)
			}
		})
	}
}

func TestWithStrictAFenceStandsFromBeforeTheCommitUntilTheInvalidation(t *testing.T) {
	type step struct {
		name   string
		write  func(t *testing.T, b *raceBed) error
		fences uint64
		reads  string
		hit    bool // the reader's entry holds again
	}
	refused := &driverError{}
	for _, s := range []step{
		{"commit", func(t *testing.T, b *raceBed) error {
			tx := begin(t, b.pools[0])
			do(t, tx, "UPDATE t SET v = 'v2'")
			return tx.Commit()
		}, 1, "v2", false},
		{"autocommit", func(t *testing.T, b *raceBed) error {
			_, err := b.pools[0].Exec("UPDATE t SET v = 'v2'")
			return err
		}, 1, "v2", false},
		{"rollback", func(t *testing.T, b *raceBed) error {
			tx := begin(t, b.pools[0])
			do(t, tx, "UPDATE t SET v = 'v2'")
			return tx.Rollback()
		}, 0, "v1", true},
		{"refused", func(t *testing.T, b *raceBed) error {
			b.l.mu.Lock()
			b.l.fail = func(verb, _ string, done bool) error {
				if verb == "UPDATE" && !done {
					return refused
				}
				return nil
			}
			b.l.mu.Unlock()
			_, err := b.pools[0].Exec("UPDATE t SET v = 'v2'")
			if !errors.Is(err, refused) {
				t.Errorf("got %v", err)
			}
			return nil
		}, 1, "v1", true},
		{"hint says none", func(t *testing.T, b *raceBed) error {
			_, err := b.pools[0].Exec("/* @invalidate none */ UPDATE t SET v = 'v1'")
			return err
		}, 0, "v1", true},
		{"textual transaction", func(t *testing.T, b *raceBed) error {
			c := connect(t, b.pools[0])
			defer c.Close()
			for _, q := range []string{"BEGIN", "UPDATE t SET v = 'v2'", "COMMIT"} {
				if _, err := c.ExecContext(t.Context(), q); err != nil {
					return err
				}
			}
			return nil
		}, 1, "v2", false},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 2, sqlherd.Config{Strict: true})
				query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
				b.wantValue("before", b.pools[1], query, "v1")
				// Whatever reaches the database to be committed finds its fence up.
				unfenced := 0
				b.l.mu.Lock()
				b.l.fail = func(verb, _ string, done bool) error {
					if done {
						return nil
					}
					fenced := b.fleet.Count("fence") > b.fleet.Count("lift")
					if verb == "COMMIT" && s.fences > 0 && !fenced {
						unfenced++
					}
					return nil
				}
				b.l.mu.Unlock()
				if err := s.write(t, b); err != nil {
					t.Fatal(err)
				}
				if unfenced > 0 {
					t.Errorf("%d commits without a fence", unfenced)
				}
				if n := b.herds[0].Stats().Fences; n != s.fences {
					t.Errorf("%d tags were fenced, want %d", n, s.fences)
				}
				loads := b.loads()
				b.wantValue("after", b.pools[1], query, s.reads)
				if hit := b.loads() == loads; hit != s.hit {
					t.Errorf("the reader's rows hold again: %v, want %v", hit, s.hit)
				}
				loads = b.loads()
				b.wantValue("once more", b.pools[1], query, s.reads)
				if b.loads() != loads {
					t.Error("a fence is left")
				}
			})
		})
	}
}

func TestWithStrictOneWritersEndDoesNotLiftAnothersFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 3, sqlherd.Config{Strict: true})
		query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
		b.wantValue("before", b.pools[2], query, "v1")

		// The first writer's commit is on its way for ten seconds.
		committing := make(chan struct{})
		slow := true
		onTx := b.db.onTx
		b.db.onTx = func(c *fakeConn, what string) error {
			if what == "COMMIT" && slow {
				slow = false
				close(committing)
				time.Sleep(10 * time.Second)
			}
			return onTx(c, what)
		}
		first := begin(t, b.pools[0])
		do(t, first, "UPDATE t SET v = 'v2'")
		done := make(chan error)
		go func() { done <- first.Commit() }()
		<-committing
		if _, err := b.pools[1].Exec("UPDATE t SET v = v"); err != nil {
			t.Fatal(err)
		}
		// The second one has come to its end; the first one's fence is still there.
		for range 3 {
			time.Sleep(sqlherd.LocalTTLDefault + time.Millisecond) // of rows in memory, which nobody compares with Redis before
			loads := b.loads()
			b.wantValue("meanwhile", b.pools[2], query, valueOfLedger(b))
			if b.loads() == loads {
				t.Error("rows were served from the cache while a commit is on its way")
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		b.wantValue("afterwards", b.pools[2], query, "v2")
		loads := b.loads()
		b.wantValue("afterwards", b.pools[2], query, "v2")
		if b.loads() != loads {
			t.Error("a fence is left")
		}
	})
}

func valueOfLedger(b *raceBed) string {
	b.l.mu.Lock()
	defer b.l.mu.Unlock()
	return b.l.value
}

// Nobody knows whether, or when, the commit takes effect: what is read now may be older than that.
func TestWithStrictTheFenceOfACommitThatNobodyAnsweredStaysForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{Strict: true})
		query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
		b.wantValue("before", b.pools[1], query, "v1")
		b.l.mu.Lock()
		b.l.fail = func(verb, _ string, done bool) error {
			if verb == "COMMIT" && !done {
				return driver.ErrBadConn
			}
			return nil
		}
		b.l.mu.Unlock()
		tx := begin(t, b.pools[0])
		do(t, tx, "UPDATE t SET v = 'v2'")
		if err := tx.Commit(); err == nil {
			t.Fatal("no error")
		}
		// The database gets round to it ten seconds later, when the caller has long had its error.
		time.Sleep(5 * time.Second)
		b.wantValue("before it takes effect", b.pools[1], query, "v1")
		time.Sleep(5 * time.Second)
		b.l.mu.Lock()
		b.l.value = "v2"
		b.l.mu.Unlock()
		b.wantValue("when it has taken effect", b.pools[1], query, "v2")
		time.Sleep(fencesEnd)
		b.wantValue("after the fence", b.pools[1], query, "v2")
		loads := b.loads()
		b.wantValue("after the fence", b.pools[1], query, "v2")
		if b.loads() != loads {
			t.Error("the fence has not ended")
		}
	})
}

func TestWithStrictAWriteGoesOnWhenRedisCannotBeToldOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{Strict: true})
		b.wantValue("before", b.pools[1], hinted, "v1")
		b.fleet.SetErr("", errors.New("redis is down"))
		if _, err := b.pools[0].Exec("UPDATE t SET v = 'v2'"); err != nil {
			t.Fatal(err)
		}
		if st := b.herds[0].Stats(); st.FenceErrors == 0 || st.InvalidationsPending == 0 {
			t.Errorf("%d fence errors, %d pending", st.FenceErrors, st.InvalidationsPending)
		}
		b.wantValue("the writer", b.pools[0], hinted, "v2")
		b.fleet.SetErr("", nil)
		time.Sleep(10 * time.Second)
		b.wantValue("afterwards", b.pools[1], hinted, "v2")
	})
}

// A driver that answers ErrSkip has the statement prepared: that is one write, and one fence.
func TestWithStrictAPreparedFallbackIsFencedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{Strict: true})
		b.db.skip = true
		query := `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
		b.wantValue("before", b.pools[1], query, "v1")
		if _, err := b.pools[0].ExecContext(context.Background(), "UPDATE t SET v = 'v2'"); err != nil {
			t.Fatal(err)
		}
		if n := b.herds[0].Stats().Fences; n != 1 {
			t.Errorf("%d tags were fenced, want 1", n)
		}
		b.wantValue("after", b.pools[1], query, "v2")
		loads := b.loads()
		b.wantValue("once more", b.pools[1], query, "v2")
		if b.loads() != loads {
			t.Error("a fence is left")
		}
	})
}

func TestSoftInvalidationServesOldRowsToThoseWhoAllowThemAndRefreshesOnce(t *testing.T) {
	const (
		lenient = `SELECT /* @cache ttl=1h swr=1h jitter=0 early=off */ v FROM t`
		strict  = `SELECT /* @cache ttl=1h jitter=0 early=off */ v FROM t`
	)
	for name, write := range map[string]func(b *raceBed) error{
		"hint": func(b *raceBed) error {
			_, err := b.pools[0].Exec("UPDATE /* @invalidate soft */ t SET v = 'v2'")
			return err
		},
		"hint in a transaction": func(b *raceBed) error {
			tx, err := b.pools[0].Begin()
			if err != nil {
				return err
			}
			if _, err := tx.Exec("UPDATE /* @invalidate soft */ t SET v = 'v2'"); err != nil {
				return err
			}
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 3, sqlherd.Config{Strict: true}) // which does not fence it
				for _, p := range b.pools {
					b.wantValue("before", p, lenient, "v1")
					b.wantValue("before", p, strict, "v1")
				}
				loads := b.loads()
				if err := write(b); err != nil {
					t.Fatal(err)
				}
				if st := b.herds[0].Stats(); st.SoftInvalidations == 0 || st.Invalidations != 0 || st.Fences != 0 {
					t.Errorf("%d soft, %d hard, %d fences", st.SoftInvalidations, st.Invalidations, st.Fences)
				}
				for i, p := range b.pools {
					v, info, err := askInfo(p, lenient)
					if err != nil || i == 0 && (v != "v1" || info.Outcome != sqlherd.Stale) {
						t.Errorf("process %d, with swr: %q, %v, %v; want the old rows at once", i, v, info.Outcome, err)
					}
					if v == "v1" && info.Outcome == sqlherd.Hit {
						t.Errorf("process %d takes the old rows for fresh although it was told", i)
					}
				}
				time.Sleep(time.Second)
				for i, p := range b.pools {
					if v, info, err := askInfo(p, lenient); v != "v2" || info.Outcome != sqlherd.Hit && info.Outcome != sqlherd.Stale || err != nil {
						t.Errorf("process %d, with swr, a second later: %q, %v, %v", i, v, info.Outcome, err)
					}
					if v, info, err := askInfo(p, strict); v != "v2" || err != nil {
						t.Errorf("process %d, without swr: %q, %v, %v", i, v, info.Outcome, err)
					}
				}
				if n := b.loads() - loads; n != 2 {
					t.Errorf("%d loads, want one for each query", n)
				}
			})
		})
	}
}

func askInfo(p *sql.DB, query string) (string, sqlherd.Info, error) {
	var info sqlherd.Info
	v, err := queryOne(sqlherd.WithInfo(context.Background(), &info), p, query)
	return v, info, err
}

func TestAHardInvalidationBeforeOrAfterASoftOneWins(t *testing.T) {
	const lenient = `SELECT /* @cache ttl=1h swr=1h jitter=0 early=off tags=x */ v FROM t`
	for _, order := range [][]bool{{true, false}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newRaceBed(t, 2, sqlherd.Config{})
			for _, p := range b.pools {
				b.wantValue("before", p, lenient, "v1")
			}
			b.l.mu.Lock()
			b.l.value = "v2"
			b.l.mu.Unlock()
			for _, soft := range order {
				var err error
				if soft {
					err = b.herds[0].InvalidateSoft(t.Context(), "x")
				} else {
					err = b.herds[0].Invalidate(t.Context(), "x")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for i, p := range b.pools {
				if v, info, err := askInfo(p, lenient); v != "v2" || err != nil {
					t.Errorf("soft first %v, process %d: %q, %v, %v", order[0], i, v, info.Outcome, err)
				}
			}
		})
	}
}

// A load that has read before a soft invalidation is not fresh after it.
func TestALoadThatASoftInvalidationOverlapsIsStale(t *testing.T) {
	const lenient = `SELECT /* @cache ttl=1h swr=1h jitter=0 early=off tags=x */ v FROM t`
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		release := b.hold()
		result := b.reading(b.pools[0], lenient)
		b.l.mu.Lock()
		b.l.value = "v2"
		b.l.mu.Unlock()
		if err := b.herds[1].InvalidateSoft(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		release()
		if v := result(); v != "v1" {
			t.Errorf("the load gave %q", v)
		}
		for i, p := range b.pools {
			_, _, err := askInfo(p, lenient) // stale at most: it starts the refresh
			if err != nil {
				t.Error(i, err)
			}
		}
		time.Sleep(2 * time.Second)
		for i, p := range b.pools {
			if v, info, err := askInfo(p, lenient); v != "v2" || err != nil {
				t.Errorf("process %d reads %q, %v, %v: rows from before are taken for fresh", i, v, info.Outcome, err)
			}
		}
	})
}

func TestSlipsInASoftInvalidationAreTold(t *testing.T) {
	h := newHerd(t, sqlherd.Config{})
	if err := h.InvalidateSoft(t.Context(), "ok", ""); err == nil || !strings.HasPrefix(err.Error(), `sqlherd: InvalidateSoft: tag ""`) {
		t.Errorf("got %v", err)
	}
	h = newHerd(t, sqlherd.Config{StrictHints: true})
	p := openPool(t, h.Connector(fakeConnector{newFakeDB(t, nil)}))
	for query, want := range map[string]string{
		"UPDATE /* @invalidate soft soft */ t SET v = 1": `"soft": given twice`,
		"UPDATE /* @invalidate hard */ t SET v = 1":      `"hard": unknown option; @invalidate has tags, tables and soft`,
		"SELECT /* @cache soft */ v FROM t":              `"soft"`,
	} {
		if _, err := p.Exec(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", query, err, want)
		}
	}
}
