package dbtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	envRole = "SQLHERD_TEST_ROLE" // set in child processes

	// messageTimeout bounds how long a test waits for a child's next message.
	messageTimeout = time.Minute
	// endTimeout bounds how long a child may take to end when asked to.
	endTimeout = 30 * time.Second
	// maxMessage bounds one message.
	maxMessage = 64 << 20
)

// A Role is a part that a child process can play. Declare it as a variable
// beside the test that uses it:
//
//	var reader = dbtest.NewRole("reader", func(c *dbtest.Child) error { … })
//
//	func TestFleet(t *testing.T) {
//		p := dbtest.Spawn(t, reader, readerConfig{…})
//
// The package's TestMain must call Main.
type Role struct{ name string }

var roles = map[string]func(*Child) error{}

// NewRole registers a role. It panics if the name is taken.
func NewRole(name string, play func(*Child) error) Role {
	if _, taken := roles[name]; taken {
		panic("dbtest: two roles are named " + name)
	}
	roles[name] = play
	return Role{name}
}

// Main is for TestMain: it runs the tests and then looks for goroutines that
// they left behind. In a child process it plays the role instead. It does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	if name := os.Getenv(envRole); name != "" {
		os.Exit(playRole(name))
	}
	goleak.VerifyTestMain(m, opts...)
}

func playRole(name string) int {
	c := newChild(os.Stdin, os.Stdout)
	os.Stdout = os.Stderr // prints of the code under test are no messages
	play, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "dbtest: no role is named %q\n", name)
		return 2
	}
	if err := play(c); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// A Child is the child's end of the conversation with its test.
type Child struct {
	ctx    context.Context
	config json.RawMessage
	in     *mailbox

	mu  sync.Mutex
	out io.Writer
}

func newChild(in io.Reader, out io.Writer) *Child {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Child{ctx: ctx, in: newMailbox(), out: out}
	go func() {
		defer cancel()
		c.in.fill(in)
	}()
	c.config, _ = c.in.next(nil) // the first message
	return c
}

// Context ends when the test closes the child, or is no longer there.
func (c *Child) Context() context.Context { return c.ctx }

// Config decodes what Spawn was given.
func (c *Child) Config(v any) error { return json.Unmarshal(c.config, v) }

// Send sends a message to the test.
func (c *Child) Send(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeMessage(c.out, v)
}

// Recv waits for the test's next message. After the last one it returns io.EOF.
func (c *Child) Recv(v any) error {
	data, err := c.in.next(nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// A Proc is a child process that plays a role. It ends with the test, which
// fails if the child did, or if the race detector spoke up in it. Its methods
// are for the test's goroutine.
type Proc struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *syncBuffer
	in     *mailbox
	exited chan struct{}
	killed bool
	closed bool
}

// Spawn starts a process that plays role; config, encoded as JSON, tells it what to do.
func Spawn(t testing.TB, role Role, config any) *Proc {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Proc{t: t, name: role.name, stderr: new(syncBuffer), in: newMailbox(), exited: make(chan struct{})}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), envRole+"="+role.name)
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = dieWithParent()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.in.fill(stdout) // to the end, as Wait closes the pipe
		_ = p.cmd.Wait()  // ProcessState says more
		close(p.exited)
	}()
	t.Cleanup(p.Close)
	p.Send(config)
	return p
}

// PID returns the process's number.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Send sends a message to the child.
func (p *Proc) Send(v any) {
	p.t.Helper()
	if err := writeMessage(p.stdin, v); err != nil {
		p.t.Fatalf("sending to %s: %v\n%s", p.name, err, p.stderr)
	}
}

// Recv waits for the child's next message and decodes it into v. The test fails
// if the child ends first.
func (p *Proc) Recv(v any) {
	p.t.Helper()
	timer := time.NewTimer(messageTimeout)
	defer timer.Stop()
	data, err := p.in.next(timer.C)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if errors.Is(err, io.EOF) {
		<-p.exited
		err = fmt.Errorf("it ended: %v", p.cmd.ProcessState)
	}
	if err != nil {
		p.t.Fatalf("waiting for %s: %v\n%s", p.name, err, p.stderr)
	}
}

// Kill ends the child with SIGKILL, and returns when it is gone.
func (p *Proc) Kill() {
	p.killed = true
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Pause freezes the child and returns when it stands still. The test fails on Windows, which cannot do it.
func (p *Proc) Pause() {
	p.t.Helper()
	if err := pause(p.PID()); err != nil {
		p.t.Fatal(err)
	}
}

// Resume ends a Pause.
func (p *Proc) Resume() { resume(p.cmd.Process) }

// Close ends the conversation, which ends Child.Context, and waits until the
// child is gone. A child that does not end, or ends with an error, fails the test.
func (p *Proc) Close() {
	p.t.Helper()
	if p.closed {
		return
	}
	p.closed = true
	p.stdin.Close()
	p.Resume()
	select {
	case <-p.exited:
	case <-time.After(endTimeout):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines, into stderr
		select {
		case <-p.exited:
		case <-time.After(time.Second):
			p.Kill()
		}
		p.t.Errorf("%s did not end within %v\n%s", p.name, endTimeout, p.stderr)
		return
	}
	said := p.stderr.String()
	if strings.Contains(said, "WARNING: DATA RACE") || (!p.killed && !p.cmd.ProcessState.Success()) {
		p.t.Errorf("%s: %v\n%s", p.name, p.cmd.ProcessState, said)
	} else if said != "" && p.t.Failed() {
		p.t.Logf("%s said:\n%s", p.name, said)
	}
}

func writeMessage(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// A mailbox keeps messages until they are asked for, so that a sender never waits.
type mailbox struct {
	mu       sync.Mutex
	messages [][]byte
	err      error         // what ended it; io.EOF in good order
	changed  chan struct{} // closed and replaced at every change
}

func newMailbox() *mailbox { return &mailbox{changed: make(chan struct{})} }

// fill reads messages until the end of r.
func (m *mailbox) fill(r io.Reader) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxMessage)
	for scanner.Scan() {
		m.change(func() { m.messages = append(m.messages, bytes.Clone(scanner.Bytes())) })
	}
	err := scanner.Err()
	if err == nil {
		err = io.EOF
	}
	m.change(func() { m.err = err })
	_, _ = io.Copy(io.Discard, r) // after an overlong message the sender must still not wait
}

func (m *mailbox) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

// next returns the oldest message, waiting for one until timeout fires.
func (m *mailbox) next(timeout <-chan time.Time) ([]byte, error) {
	for {
		m.mu.Lock()
		if len(m.messages) > 0 {
			first := m.messages[0]
			m.messages = m.messages[1:]
			m.mu.Unlock()
			return first, nil
		}
		err, changed := m.err, m.changed
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, errors.New("no message in time")
		}
	}
}
