package dbtest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

type echoConfig struct{ Greeting string }

// echo greets, and then returns every message until there are no more.
var echo = dbtest.NewRole("echo", func(c *dbtest.Child) error {
	var cfg echoConfig
	if err := c.Config(&cfg); err != nil {
		return err
	}
	fmt.Println("this print is not a message")
	if err := c.Send(cfg.Greeting); err != nil {
		return err
	}
	for {
		var v any
		err := c.Recv(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.Send(v); err != nil {
			return err
		}
	}
	<-c.Context().Done()
	return nil
})

// fail ends with an error at once.
var fail = dbtest.NewRole("fail", func(*dbtest.Child) error { return errors.New("no luck") })

func TestChildrenSpeakWithTheirTest(t *testing.T) {
	var procs []*dbtest.Proc
	for i := range 4 {
		procs = append(procs, dbtest.Spawn(t, echo, echoConfig{fmt.Sprint("child ", i)}))
	}
	pids := map[int]bool{os.Getpid(): true}
	for i, p := range procs {
		var greeting string
		if p.Recv(&greeting); greeting != fmt.Sprint("child ", i) {
			t.Errorf("child %d greets with %q", i, greeting)
		}
		if pids[p.PID()] {
			t.Errorf("child %d is no process of its own", i)
		}
		pids[p.PID()] = true
		for n := range 3 {
			p.Send(n)
		}
		for n := range 3 {
			var got int
			if p.Recv(&got); got != n {
				t.Errorf("child %d returns %d for %d", i, got, n)
			}
		}
	}
}

func TestAKilledChildIsGoneAndNoFailure(t *testing.T) {
	p := dbtest.Spawn(t, echo, echoConfig{"hello"})
	var s string
	p.Recv(&s)
	p.Kill()
	if proc, err := os.FindProcess(p.PID()); err == nil {
		if err := proc.Signal(os.Interrupt); err == nil {
			t.Error("the process is still there")
		}
	}
}

func TestAPausedChildGoesOnWhenResumed(t *testing.T) {
	p := dbtest.Spawn(t, echo, echoConfig{"hello"})
	var s string
	p.Recv(&s)
	p.Pause()
	p.Send("are you there?")
	got := make(chan string)
	go func() {
		var s string
		p.Recv(&s)
		got <- s
	}()
	select {
	case s := <-got:
		t.Errorf("a paused child says %q", s)
	case <-time.After(30 * time.Millisecond):
	}
	p.Resume()
	if s := <-got; s != "are you there?" {
		t.Errorf("got %q", s)
	}
}

// fakeTB notes failures rather than fail. It stands for the test around a child
// that goes wrong.
type fakeTB struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Helper()           {}
func (f *fakeTB) Failed() bool      { return len(f.failures) > 0 }
func (f *fakeTB) Errorf(format string, a ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, a...))
}

func TestAChildThatFailsFailsItsTest(t *testing.T) {
	f := &fakeTB{TB: t}
	dbtest.Spawn(f, fail, nil)
	for _, fn := range f.cleanups {
		fn()
	}
	if len(f.failures) != 1 {
		t.Errorf("%d failures: %q", len(f.failures), f.failures)
	}
}
