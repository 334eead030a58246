package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis returns a client of the shared Redis server, and a namespace that is
// this test's alone. Keys that contain it are deleted with the test.
func Redis(t testing.TB) (*redis.Client, string) {
	t.Helper()
	opt, err := redis.ParseURL(lookup(t, envRedis))
	if err != nil {
		t.Fatalf("%s: %v", envRedis, err)
	}
	client := redis.NewClient(opt)
	ns := uniqueName(t)
	t.Cleanup(func() {
		if err := deleteKeys(context.Background(), client, ns); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return client, ns
}

// RedisCluster is Redis for the shared Cluster of three masters.
func RedisCluster(t testing.TB) (*redis.ClusterClient, string) {
	t.Helper()
	addrs := strings.Split(lookup(t, envRedisCluster), ",")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	ns := uniqueName(t)
	t.Cleanup(func() {
		err := client.ForEachMaster(context.Background(), func(ctx context.Context, c *redis.Client) error {
			return deleteKeys(ctx, c, ns)
		})
		if err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return client, ns
}

// deleteKeys deletes the keys of a namespace that live on one server.
func deleteKeys(ctx context.Context, c *redis.Client, ns string) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	keys := c.Scan(ctx, 0, "*"+ns+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// A RedisServer is a Redis process of one test's own, on a port that it keeps.
// Its methods fail the test when they fail, so they are for the test's goroutine.
type RedisServer struct {
	t     testing.TB
	port  int
	dir   string
	first []string
	args  []string

	cmd    *exec.Cmd
	log    *syncBuffer
	exited chan struct{}
}

// StartRedis starts a Redis server, empty and without persistence. args are
// options of redis-server, such as "--maxmemory", "2mb"; they come last, so
// they win over the defaults.
func StartRedis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, nil, args...)
}

// startRedis is StartRedis with arguments that have to come first.
func startRedis(t testing.TB, first []string, args ...string) *RedisServer {
	t.Helper()
	lookup(t, envRedisServer)
	s := &RedisServer{t: t, dir: t.TempDir(), first: first, args: args}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("redis-server on port %d said:\n%s", s.port, s.log)
		}
	})
	for try := 1; ; try++ {
		s.port = freePort(t)
		err := s.start()
		if err == nil {
			return s
		}
		if try == 3 { // the port may have been taken meanwhile
			t.Fatal(err)
		}
	}
}

// Addr returns where the server listens, host:port. It never changes.
func (s *RedisServer) Addr() string { return localAddr(s.port) }

// Client returns a client with go-redis' own settings. It is closed with the test.
func (s *RedisServer) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Stop ends the server in good order; clients see a closed connection, then
// refused ones. Without persistence among the arguments, its data is gone.
func (s *RedisServer) Stop() {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Kill() // it is gone, or this system has no such signal
		return
	}
	s.Resume()
	select {
	case <-s.exited:
	case <-time.After(setupTimeout):
		s.Kill()
	}
}

// Kill ends the server with SIGKILL. Killing a dead one does nothing.
func (s *RedisServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Restart starts the server again on its port, after it was stopped or killed.
// A running one is killed first.
func (s *RedisServer) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause freezes the process: the kernel still accepts connections and bytes for
// it, and nobody answers. It returns when the process stands still.
func (s *RedisServer) Pause() {
	s.t.Helper()
	if err := pause(s.cmd.Process.Pid); err != nil {
		s.t.Fatal(err)
	}
}

// Resume ends a Pause.
func (s *RedisServer) Resume() { resume(s.cmd.Process) }

func (s *RedisServer) start() error {
	s.log = new(syncBuffer)
	s.exited = make(chan struct{})
	s.cmd = exec.Command(os.Getenv(envRedisServer), slices.Concat(s.first, []string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
	}, s.args)...)
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	exited, cmd := s.exited, s.cmd
	go func() {
		_ = cmd.Wait() // it ends by a signal, mostly
		close(exited)
	}()

	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	deadline := time.Now().Add(setupTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := client.Ping(ctx).Err()
		cancel()
		select {
		case <-exited: // somebody else may have answered
			return fmt.Errorf("%s ended at its start: %v\n%s", filepath.Base(cmd.Path), cmd.ProcessState, s.log)
		default:
		}
		// An error reply, as of a replica that has no data yet, is an answer too.
		if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
			return nil
		}
		if time.Now().After(deadline) {
			s.Kill()
			return fmt.Errorf("redis-server does not answer: %w\n%s", err, s.log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A SentinelGroup is a primary, a replica and the Sentinel that watches them, all of one test's own.
type SentinelGroup struct {
	Primary, Replica *RedisServer // as they were at the start
	sentinel         *RedisServer
}

// sentinelName is what the group calls its primary.
const sentinelName = "herd"

// StartSentinel starts a group, and returns when the replica has all that the primary has, and Sentinel
// knows of both. It takes the primary for dead after half a second without an answer.
func StartSentinel(t testing.TB) *SentinelGroup {
	t.Helper()
	g := &SentinelGroup{Primary: StartRedis(t, "--repl-diskless-sync-delay", "0")}
	g.Replica = StartRedis(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", fmt.Sprint(g.Primary.port))
	awaitInfo(t, g.Replica.Client(), "replication", "master_link_status:up")

	// Sentinel keeps what it learns in its file.
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 1\nsentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 5000\n",
		sentinelName, g.Primary.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.sentinel = startRedis(t, []string{conf, "--sentinel"})
	awaitInfo(t, g.sentinel.Client(), "sentinel", "slaves=1")
	return g
}

// Client returns a client that asks Sentinel for the primary, with go-redis' own settings otherwise. It is closed with the
// test.
func (g *SentinelGroup) Client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinelName, SentinelAddrs: []string{g.sentinel.Addr()}})
	g.sentinel.t.Cleanup(func() { c.Close() })
	return c
}

// AwaitReplica returns when the replica has all that the primary has.
func (g *SentinelGroup) AwaitReplica() {
	g.sentinel.t.Helper()
	n, err := g.Primary.Client().Do(context.Background(), "WAIT", 1, int(setupTimeout.Milliseconds())).Int()
	if err != nil || n != 1 {
		g.sentinel.t.Fatalf("WAIT: %d replicas, %v", n, err)
	}
}

// AwaitPromotion returns when the replica has become the primary.
func (g *SentinelGroup) AwaitPromotion() {
	g.sentinel.t.Helper()
	awaitInfo(g.sentinel.t, g.Replica.Client(), "replication", "role:master")
}

// A ClusterOfThree is a Redis Cluster of three masters without replicas, all of one test's own. When one of them is gone the
// others go on serving their slots.
type ClusterOfThree struct {
	Nodes []*RedisServer // the first has the lowest slots
}

// StartCluster starts a Cluster, and returns when every node knows all slots.
func StartCluster(t testing.TB) *ClusterOfThree {
	t.Helper()
	const slots, n = 16384, 3
	g := &ClusterOfThree{}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	for i := range n {
		s := StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no",
			"--cluster-port", fmt.Sprint(freePort(t)))
		if err := s.Client().ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		g.Nodes = append(g.Nodes, s)
	}
	for _, s := range g.Nodes[1:] {
		bus := s.args[len(s.args)-1]
		if err := g.Nodes[0].Client().Do(ctx, "CLUSTER", "MEET", "127.0.0.1", s.port, bus).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range g.Nodes {
		c := s.Client()
		for {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil {
				t.Fatalf("the nodes of the Cluster have not met: %v", err)
			}
			// A node that has met others waits for a while before it takes writes.
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d", slots)) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return g
}

// Client returns a client with go-redis' own settings. It is closed with the test.
func (g *ClusterOfThree) Client() *redis.ClusterClient {
	addrs := make([]string, len(g.Nodes))
	for i, s := range g.Nodes {
		addrs[i] = s.Addr()
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	g.Nodes[0].t.Cleanup(func() { c.Close() })
	return c
}

// awaitInfo waits until a section of INFO says what is wanted.
func awaitInfo(t testing.TB, c *redis.Client, section, want string) {
	t.Helper()
	deadline := time.Now().Add(setupTimeout)
	for {
		info, err := c.Info(context.Background(), section).Result()
		if strings.Contains(info, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("INFO %s never said %s: %v\n%s", section, want, err, info)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A syncBuffer collects what a process says.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
