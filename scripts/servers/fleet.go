//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// setupTimeout bounds one step of bringing a server up.
	setupTimeout = 90 * time.Second
	// startTries is how often a server is started anew, each time on another
	// port, when it ends before it is ready: the port may have been taken meanwhile.
	startTries = 3
	// poll is the pause between two looks at a server that is not ready yet.
	poll = 25 * time.Millisecond
	// tailBytes is how much of a dead server's log is shown.
	tailBytes = 4 << 10
)

// A fleet is all the servers of one run, in one temporary folder.
type fleet struct {
	detached bool // the servers outlive this process

	dir      string
	password string // of the databases' superuser; fresh for each run
	env      map[string]string
	ctx      context.Context // ends when the start is interrupted
	cancel   context.CancelFunc

	mu      sync.Mutex
	ports   map[int]bool // handed out by freePort
	servers []*server
	once    sync.Once
}

// init makes the folder. Separate from start so that interrupt may be called at any time.
func (f *fleet) init() {
	f.once.Do(func() { f.ctx, f.cancel = context.WithCancel(context.Background()) })
}

func (f *fleet) interrupt() {
	f.init()
	f.cancel()
}

// start brings all servers up and returns when each of them answers.
func (f *fleet) start() error {
	f.init()
	f.env = map[string]string{"SQLHERD_TEST_REQUIRE_SERVERS": "1"}
	f.ports = map[int]bool{}
	f.password = randomHex(12)

	dir, err := os.MkdirTemp("", "sqlherd-")
	if err != nil {
		return err
	}
	f.dir = dir
	// Other accounts may pass through, not look: the folders below are their own.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}

	var (
		wg   sync.WaitGroup
		errs [4]error
	)
	for i, up := range []func() error{f.postgres, f.mariadb, f.redis, f.redisCluster} {
		wg.Go(func() {
			if errs[i] = up(); errs[i] != nil {
				f.cancel() // the others need not finish
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// stop ends every server, waits until each is gone, and removes the folder.
func (f *fleet) stop() error {
	f.interrupt()
	f.mu.Lock()
	servers := f.servers
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(s.stop)
	}
	wg.Wait()
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// died reports servers that have ended by themselves.
func (f *fleet) died() error {
	var errs []error
	for _, s := range f.servers {
		select {
		case <-s.exited:
			errs = append(errs, s.diedError())
		default:
		}
	}
	return errors.Join(errs...)
}

func (f *fleet) setenv(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.env[key] = value
}

// subdir makes a folder that belongs to acct.
func (f *fleet) subdir(name string, acct *account) (string, error) {
	dir := filepath.Join(f.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if acct != nil {
		return dir, os.Chown(dir, int(acct.uid), int(acct.gid))
	}
	return dir, nil
}

// do runs a client or a set-up program to its end.
func (f *fleet) do(acct *account, dir, name string, args ...string) error {
	_, err := f.output(acct, dir, name, args...)
	return err
}

func (f *fleet) output(acct *account, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(f.ctx, setupTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	cmd.SysProcAttr = childAttr(acct, false)
	// With its children: mariadb-install-db is a script.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(out))
	}
	return string(out), nil
}

// A server is one running server process.
type server struct {
	name   string
	log    string // file
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
}

// startServer starts a server on a free port and waits until ready answers nil.
// args and ready are given the port.
func (f *fleet) startServer(name string, acct *account, dir, program string, args func(port int) []string, ready func(port int) error) (int, error) {
	for try := 1; ; try++ {
		port, err := f.freePort()
		if err != nil {
			return 0, err
		}
		s, err := f.launch(name, acct, dir, program, args(port))
		if err != nil {
			return 0, err
		}
		err = f.await(s, func() error { return ready(port) })
		if err == nil {
			return port, nil
		}
		select {
		case <-s.exited:
			if try < startTries && f.ctx.Err() == nil {
				f.forget(s)
				continue
			}
		default:
		}
		return 0, err
	}
}

func (f *fleet) launch(name string, acct *account, dir, program string, args []string) (*server, error) {
	s := &server{name: name, log: filepath.Join(f.dir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// Not CommandContext: a server is ended by stop, in its own way.
	s.cmd = exec.Command(program, args...)
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = childAttr(acct, f.detached)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	f.servers = append(f.servers, s)
	return s, nil
}

func (f *fleet) forget(dead *server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.servers[:0:0]
	for _, s := range f.servers {
		if s != dead {
			kept = append(kept, s)
		}
	}
	f.servers = kept
}

// await asks until ready answers nil, the server ends, or the time is up.
func (f *fleet) await(s *server, ready func() error) error {
	deadline := time.Now().Add(setupTimeout)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %v: %w\n%s", s.name, setupTimeout, err, s.logTail())
		}
		select {
		case <-s.exited:
			return s.diedError()
		case <-f.ctx.Done():
			return f.ctx.Err()
		case <-time.After(poll):
		}
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(stopSignal(s.name))
	select {
	case <-s.exited:
	case <-time.After(stopGrace):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// stopSignal asks for the quickest orderly end. The data is thrown away, so
// nobody needs a checkpoint; SIGQUIT makes PostgreSQL take its backends along.
func stopSignal(name string) syscall.Signal {
	if name == "postgres" {
		return syscall.SIGQUIT
	}
	if name == "mariadb" {
		return syscall.SIGKILL // one process; an orderly end takes seconds
	}
	return syscall.SIGTERM
}

func (s *server) diedError() error {
	return fmt.Errorf("%s ended by itself: %v\n%s", s.name, s.cmd.ProcessState, s.logTail())
}

func (s *server) logTail() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return "--- the end of its log:\n" + tail(data)
}

func tail(data []byte) string {
	if len(data) > tailBytes {
		data = data[len(data)-tailBytes:]
	}
	return strings.TrimRight(string(data), "\n")
}

// Ports lie below the range from which systems take the ports of outgoing
// connections (32768 and up on Linux, 49152 and up elsewhere), so that nothing
// gets one by chance between our look and the server's. A Redis Cluster node
// also takes the port 10000 above its own; both are looked at.
const (
	portMin    = 20000
	portMax    = 22700
	busOffset  = 10000
	portsTried = 200
)

func (f *fleet) freePort() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range portsTried {
		port := portMin + mathrand.IntN(portMax-portMin)
		if !f.ports[port] && canListen(port) && canListen(port+busOffset) {
			f.ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("found no free port on 127.0.0.1")
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// An account is whom a server runs as when this process is root.
type account struct{ uid, gid uint32 }

// accountOf returns the first of the named accounts that exists, or nil when
// this process is not root and servers run as itself.
func accountOf(names ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, fmt.Errorf("root may not run this server, and none of the accounts %s exists", strings.Join(names, ", "))
}

// find returns the path of the first of the named programs, looked for in the
// PATH and then in folders that packages use without putting them there.
func find(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, pattern := range []string{
			"/usr/sbin/", "/usr/local/sbin/",
			"/usr/lib/postgresql/*/bin/", "/usr/pgsql-*/bin/", // Debian, Fedora
			"/opt/homebrew/opt/*/bin/", "/usr/local/opt/*/bin/", // Homebrew
		} {
			paths, _ := filepath.Glob(pattern + name)
			if len(paths) > 0 {
				return paths[len(paths)-1], nil // the newest version
			}
		}
	}
	return "", fmt.Errorf("%s is not installed; scripts/install-servers.sh says what to install", names[0])
}

// isOurs says whether pid is a live process that was started with dir in its
// arguments, rather than one that was given the number of a dead one.
func isOurs(pid int, dir string) bool {
	return strings.Contains(commandLine(pid), dir)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
