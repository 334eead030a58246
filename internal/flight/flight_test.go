package flight_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd/internal/flight"
)

type group = flight.Group[int]

type role int // a key of contexts

// work takes d, unless its context ends, and counts.
func work(n *atomic.Int64, d time.Duration, v int, err error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		n.Add(1)
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return v, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func TestCallersOfOneKeyShareOneWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n, leaders atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				v, role, err := g.Do(t.Context(), "k", work(&n, time.Second, 7, nil))
				if v != 7 || err != nil {
					t.Errorf("got %d, %v", v, err)
				}
				if role == flight.Leader {
					leaders.Add(1)
				}
			})
		}
		wg.Wait()
		if n.Load() != 1 || leaders.Load() != 1 {
			t.Errorf("%d works, %d leaders; want 1, 1", n.Load(), leaders.Load())
		}
		if g.Len() != 0 {
			t.Error("a flight is left")
		}
	})
}

func TestKeysDoNotShare(t *testing.T) {
	var g group
	var n atomic.Int64
	for _, k := range []string{"a", "b", ""} {
		if _, role, err := g.Do(t.Context(), k, work(&n, 0, 1, nil)); role != flight.Leader || err != nil {
			t.Errorf("%q: role %v, %v", k, role, err)
		}
	}
	if n.Load() != 3 {
		t.Errorf("%d works, want 3", n.Load())
	}
}

func TestTheWorkHasTheLeadersValuesAndNeitherItsEndNorItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		defer cancel()
		release := make(chan struct{})
		go func() {
			// The leader leaves at its deadline …
			if _, _, err := g.Do(ctx, "k", func(ctx context.Context) (int, error) {
				if ctx.Value(key{}) != "v" {
					t.Error("the leader's values are lost")
				}
				if _, ok := ctx.Deadline(); ok {
					t.Error("the leader's deadline is there")
				}
				<-release
				return 1, ctx.Err()
			}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the leader got %v", err)
			}
		}()
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() {
			// … and its follower gets the result.
			if v, role, err := g.Do(t.Context(), "k", nil); v != 1 || role != flight.Follower || err != nil {
				t.Errorf("the follower got %d, %v, %v", v, role, err)
			}
		})
		time.Sleep(2 * time.Second)
		close(release)
		wg.Wait()
	})
}

func TestTheLastWaiterToLeaveCancelsAndANewcomerNeverJoinsCancelledWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		ctx, cancel := context.WithCancel(t.Context())
		slowToEnd := make(chan struct{})
		var cause error
		for range 3 {
			go func() {
				_, _, err := g.Do(ctx, "k", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					cause = context.Cause(ctx)
					<-slowToEnd // the old work is still there when the newcomer comes
					return 0, ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a waiter got %v", err)
				}
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if cause == nil || !strings.Contains(cause.Error(), "nobody waits") {
			t.Errorf("the work was cancelled by %v", cause)
		}
		var n atomic.Int64
		if v, role, err := g.Do(t.Context(), "k", work(&n, 0, 5, nil)); v != 5 || role != flight.Leader || err != nil {
			t.Errorf("the newcomer got %d, %v, %v", v, role, err)
		}
		close(slowToEnd)
		synctest.Wait()
	})
}

func TestAWaiterThatLeavesDoesNotMakeRoomForASecondWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() { _, _, _ = g.Do(t.Context(), "k", work(&n, 500*time.Millisecond, 1, nil)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, _, err := g.Do(ctx, "k", work(&n, 0, 2, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if v, role, _ := g.Do(t.Context(), "k", work(&n, 0, 2, nil)); v != 1 || role != flight.Follower {
			t.Errorf("got %d, %v", v, role)
		}
		wg.Wait()
		if n.Load() != 1 {
			t.Errorf("%d works, want 1", n.Load())
		}
	})
}

func TestBackgroundWorkGoesOnWithoutWaitersAndCanBeJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		if !g.Start(ctx, "k", work(&n, time.Second, 3, nil)) {
			t.Fatal("not started")
		}
		if g.Start(ctx, "k", work(&n, time.Second, 4, nil)) {
			t.Error("started twice")
		}
		cancel()
		short, cancelShort := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancelShort()
		if _, _, err := g.Do(short, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if v, role, err := g.Do(t.Context(), "k", nil); v != 3 || role != flight.Follower || err != nil {
			t.Errorf("got %d, %v, %v", v, role, err)
		}
		if n.Load() != 1 {
			t.Errorf("%d works, want 1", n.Load())
		}
	})
}

func TestAPanicIsEverybodysErrorAndTheKeyWorksAgain(t *testing.T) {
	for name, fall := range map[string]func(){
		"panic":         func() { panic("broken") },
		"panic by nil":  func() { panic(nil) }, //nolint:govet // what a driver might do
		"panic error":   func() { panic(errors.New("broken")) },
		"runtime panic": func() { var m map[string]int; m["x"] = 1 },
		"Goexit":        runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g group
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						_, _, err := g.Do(t.Context(), "k", func(context.Context) (int, error) {
							time.Sleep(time.Millisecond)
							fall()
							return 1, nil
						})
						if err == nil {
							t.Error("no error")
						}
						var p *flight.PanicError
						if name != "Goexit" && (!errors.As(err, &p) || len(p.Stack) == 0) {
							t.Errorf("got %T %v, want a PanicError with its stack", err, err)
						}
					})
				}
				wg.Wait()
				var n atomic.Int64
				if v, _, err := g.Do(t.Context(), "k", work(&n, 0, 1, nil)); v != 1 || err != nil {
					t.Errorf("the next call got %d, %v", v, err)
				}
			})
		})
	}
}

func TestCloseSendsEverybodyAwayAndWaitsForTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var ended atomic.Bool
		for range 3 {
			go func() {
				_, _, err := g.Do(t.Context(), "k", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					time.Sleep(time.Second)
					ended.Store(true)
					return 0, ctx.Err()
				})
				if !errors.Is(err, flight.ErrClosed) {
					t.Errorf("a waiter got %v", err)
				}
			}()
		}
		synctest.Wait()
		g.Close()
		if !ended.Load() {
			t.Error("Close did not wait for the work")
		}
		g.Close()
		if _, _, err := g.Do(t.Context(), "k", nil); !errors.Is(err, flight.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if g.Start(t.Context(), "k", nil) {
			t.Error("Start after Close")
		}
	})
}

func TestShortWorkRunsInTheGoroutineAndTheContextOfWhoBeginsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n, leaders atomic.Int64
		ctx := context.WithValue(t.Context(), role(0), "leader")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				v, role, err := g.DoHere(ctx, "k", func(got context.Context) (int, error) {
					if got != ctx {
						t.Error("another context")
					}
					return work(&n, time.Second, 7, nil)(got)
				})
				if v != 7 || err != nil {
					t.Errorf("got %d, %v", v, err)
				}
				if role == flight.Leader {
					leaders.Add(1)
				}
			})
		}
		synctest.Wait()
		if running := runtime.NumGoroutine(); running > 110 {
			t.Errorf("%d goroutines", running)
		}
		wg.Wait()
		if n.Load() != 1 || leaders.Load() != 1 || g.Len() != 0 {
			t.Errorf("%d works, %d leaders, %d left; want 1, 1, 0", n.Load(), leaders.Load(), g.Len())
		}
	})
}

func TestALeaderOfShortWorkThatLeavesIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		lead, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, role, err := g.DoHere(lead, "k", work(&n, time.Second, 1, nil)); err != context.Canceled || role != flight.Leader {
				t.Errorf("the leader got %v as %d", err, role)
			}
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if v, _, err := g.DoHere(t.Context(), "k", work(&n, time.Second, 2, nil)); v != 2 || err != nil {
					t.Errorf("a follower got %d, %v; want 2 of the second work", v, err)
				}
			})
		}
		synctest.Wait()
		leave()
		wg.Wait()
		if n.Load() != 2 || g.Len() != 0 {
			t.Errorf("%d works, %d left; want 2, 0", n.Load(), g.Len())
		}
	})
}

func TestAnErrorOfShortWorkIsEverybodysUnlessItsLeaderLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		broken := errors.New("broken")
		var wg sync.WaitGroup
		all := func() {
			if _, _, err := g.DoHere(t.Context(), "k", work(&n, time.Second, 0, broken)); err != broken {
				t.Error(err)
			}
		}
		wg.Go(all)
		synctest.Wait()
		for range 3 {
			wg.Go(all)
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, role, err := g.DoHere(ctx, "k", work(&n, time.Second, 0, broken)); err != context.DeadlineExceeded || role != flight.Follower {
					t.Errorf("with a short deadline: %v as %d", err, role)
				}
			})
		}
		wg.Wait()
		if n.Load() != 1 {
			t.Errorf("%d works", n.Load())
		}
		if _, _, err := g.DoHere(t.Context(), "p", func(context.Context) (int, error) { panic("short") }); err == nil || !strings.Contains(err.Error(), "short") {
			t.Error("after a panic:", err)
		}
		if v, _, err := g.DoHere(t.Context(), "p", work(&n, 0, 5, nil)); v != 5 || err != nil {
			t.Error("after a panic the key is", v, err)
		}
	})
}

func TestCloseWaitsForShortWorkAndSendsItsFollowersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() {
			if v, _, err := g.DoHere(t.Context(), "k", work(&n, time.Second, 3, nil)); v != 3 || err != nil {
				t.Error("the leader got", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, _, err := g.DoHere(t.Context(), "k", work(&n, time.Second, 3, nil)); err != flight.ErrClosed || time.Since(began) != 0 {
				t.Error("a follower got", err, "after", time.Since(began))
			}
		})
		synctest.Wait()
		g.Close()
		if d := time.Since(began); d != time.Second {
			t.Error("Close returned after", d)
		}
		wg.Wait()
		if _, _, err := g.DoHere(t.Context(), "k", work(&n, 0, 0, nil)); err != flight.ErrClosed {
			t.Error("after Close:", err)
		}
	})
}

func TestJoinBeginsNothingAndJoinsOnlyWorkThatACallerWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var n atomic.Int64
		if _, joined, _ := g.Join(t.Context(), "k"); joined {
			t.Error("joined nothing")
		}
		g.Start(t.Context(), "k", work(&n, time.Second, 1, nil))
		if _, joined, _ := g.Join(t.Context(), "k"); joined {
			t.Error("joined work in the background")
		}
		time.Sleep(2 * time.Second)
		var wg sync.WaitGroup
		leader, leave := context.WithCancel(t.Context())
		wg.Go(func() { _, _, _ = g.Do(leader, "k", work(&n, time.Second, 2, nil)) })
		synctest.Wait()
		wg.Go(func() {
			if v, joined, err := g.Join(t.Context(), "k"); v != 2 || !joined || err != nil {
				t.Error("joined", joined, v, err)
			}
		})
		synctest.Wait()
		leave() // the one who joined keeps the work alive
		wg.Wait()
		if n.Load() != 2 || g.Len() != 0 {
			t.Errorf("%d works, %d left", n.Load(), g.Len())
		}
	})
}
