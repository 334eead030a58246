package sqlherd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func init() { redis.SetLogger(quiet{}) } // of servers that are away on purpose

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// testKeys are keys for Config.EntryKeys, one for each name.
func testKeys(names ...string) [][]byte {
	keys := make([][]byte, len(names))
	for i, n := range names {
		k := sha256.Sum256([]byte(n))
		keys[i] = k[:]
	}
	return keys
}

// patient is a time limit for tests of what is not the time limit, on a busy machine.
const patient = 10 * time.Second

// newTestStore makes a store that is closed with the test.
func newTestStore(t testing.TB, opt redisStoreOptions) *redisStore {
	t.Helper()
	if opt.namespace == "" {
		opt.namespace = uniqueNamespace(t)
	}
	if opt.timeout == 0 {
		opt.timeout = patient
	}
	opt.loadTimeout = time.Second
	s, err := newRedisStore(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var namespaces struct {
	sync.Mutex
	n int
}

func uniqueNamespace(t testing.TB) string {
	namespaces.Lock()
	defer namespaces.Unlock()
	namespaces.n++
	return fmt.Sprintf("sqlherd-test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), namespaces.n)
}

// miniredisBackend is a server inside the test, whose clock the test moves.
func miniredisBackend(keys [][]byte) storeBackend {
	return func(t *testing.T, test func(*testing.T, *storeFleet)) {
		m := miniredis.RunT(t)
		c := newClient(t, &redis.Options{Addr: m.Addr()})
		var ahead time.Duration
		test(t, redisFleet(t, c, keys, func(d time.Duration) {
			ahead += d
			m.FastForward(d) // the expiries
			m.SetTime(time.Now().Add(ahead))
		}))
	}
}

// redisBackend is a real server.
func redisBackend(c redis.UniversalClient, keys [][]byte) storeBackend {
	return func(t *testing.T, test func(*testing.T, *storeFleet)) {
		test(t, redisFleet(t, c, keys, time.Sleep))
	}
}

func redisFleet(t *testing.T, c redis.UniversalClient, keys [][]byte, advance func(time.Duration)) *storeFleet {
	ns, other := uniqueNamespace(t), uniqueNamespace(t)
	t.Cleanup(func() { checkExpiries(t, c, ns); checkExpiries(t, c, other) })
	open := func(ns string) func() sharedStore {
		return func() sharedStore {
			s, err := newRedisStore(redisStoreOptions{client: c, namespace: ns, keys: keys, timeout: patient, loadTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	names := redisNames{namespace: ns}
	if len(keys) > 0 {
		names.key = keys[len(keys)-1]
	}
	return &storeFleet{
		store:     open(ns),
		elsewhere: open(other),
		advance:   advance,
		evictStamp: func(tag string) {
			if err := c.Del(context.Background(), names.stamp(tag).(string)).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// checkExpiries fails the test when a key of the namespace would stay for ever, and removes all.
func checkExpiries(t *testing.T, c redis.UniversalClient, ns string) {
	t.Helper()
	scan := func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, "*"+ns+":*", 1000).Iterator()
		for it.Next(ctx) {
			if ttl, err := c.PTTL(ctx, it.Val()).Result(); err != nil || ttl == -1 {
				t.Errorf("%q has no expiry: %v, %v", it.Val(), ttl, err)
			}
			c.Del(ctx, it.Val())
		}
		return it.Err()
	}
	var err error
	switch c := c.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(context.Background(), scan)
	case *redis.Client:
		err = scan(context.Background(), c)
	}
	if err != nil {
		t.Error(err)
	}
}

func newClient(t testing.TB, opt *redis.Options) *redis.Client {
	c := redis.NewClient(opt)
	t.Cleanup(func() { c.Close() })
	return c
}

// testServer returns an environment variable that says where a server is. Without it the test
// is skipped, or fails when servers are required.
func testServer(t testing.TB, key string) string {
	t.Helper()
	v := os.Getenv(key)
	if v == "" {
		if os.Getenv("SQLHERD_TEST_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is not set, and SQLHERD_TEST_REQUIRE_SERVERS=1 asks for every server", key)
		}
		t.Skipf("%s is not set; run make test, or eval \"$(make servers)\" first", key)
	}
	return v
}

func serverClient(t testing.TB) *redis.Client {
	opt, err := redis.ParseURL(testServer(t, "SQLHERD_TEST_REDIS"))
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, opt)
}

func clusterClient(t testing.TB) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(testServer(t, "SQLHERD_TEST_REDIS_CLUSTER"), ",")})
	t.Cleanup(func() { c.Close() })
	return c
}

// privateServer starts a Redis for what would disturb others: no memory, restarts.
func privateServer(t testing.TB, args ...string) (socket string, proc *os.Process) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqlherd") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	program := testServer(t, "SQLHERD_TEST_REDIS_SERVER")
	cmd := exec.Command(program, append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir}, args...)...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	waitFor(t, "the server's socket", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return socket, cmd.Process
}

func unixClient(t testing.TB, socket string) *redis.Client {
	return newClient(t, &redis.Options{Network: "unix", Addr: socket})
}

// waitFor polls until cond is true.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still waiting for " + what)
		}
	}
}

// setRaw overwrites the value of an entry's name and keeps its expiry.
func setRaw(t testing.TB, c redis.UniversalClient, name string, value []byte) {
	t.Helper()
	if err := c.Set(t.Context(), name, value, redis.KeepTTL).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageUnderAnEntrysNameIsAMissAndIsReplaced(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	s := newTestStore(t, redisStoreOptions{client: c})
	name := s.names.entry(s.id("k"))
	ctx := t.Context()
	mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 3))
	good, err := c.Get(ctx, name).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(good)
	newer[offVersion]++
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1

	for what, spoil := range map[string]func(){
		"empty":         func() { setRaw(t, c, name, nil) },
		"foreign":       func() { setRaw(t, c, name, bytes.Repeat([]byte("x"), 500)) },
		"truncated":     func() { setRaw(t, c, name, good[:len(good)-1]) },
		"newer version": func() { setRaw(t, c, name, newer) },
		"bit flip":      func() { setRaw(t, c, name, flipped) },
		"a list":        func() { c.Del(ctx, name); c.RPush(ctx, name, "x"); c.Expire(ctx, name, time.Hour) },
		"no expiry":     func() { c.Set(ctx, name, good, 0) },
	} {
		spoil()
		mustMiss(t, s, "k", "t:a")
		mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 2))
		mustHit(t, s, "k", "t:a")
		spoil()
		slow := mustWin(t, s, "k", "t:a") // and by one whose lease is gone
		c.Del(ctx, s.names.lease(s.id("k")))
		if out, err := s.put(ctx, slow, testEntry(t, 2)); err != nil || out != putStored {
			t.Errorf("%s: put without lease: %v, %v", what, out, err)
		}
		mustHit(t, s, "k", "t:a")
	}
	for _, cause := range []string{"short", "foreign", "checksum", "version", "type", "expiry"} {
		if s.counters().Corrupt[cause] == 0 {
			t.Errorf("no fault %q was counted: %v", cause, s.counters().Corrupt)
		}
	}
}

func TestAnEntryCopiedUnderAnotherNameIsAMiss(t *testing.T) {
	for name, keys := range map[string][][]byte{"plain": nil, "sealed": testKeys("a")} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			c := newClient(t, &redis.Options{Addr: m.Addr()})
			s := newTestStore(t, redisStoreOptions{client: c, keys: keys})
			mustPut(t, s, mustWin(t, s, "alice", "t:a"), testEntry(t, 1))
			mustPut(t, s, mustWin(t, s, "bob", "t:a"), testEntry(t, 2))
			b, err := c.Get(t.Context(), s.names.entry(s.id("alice"))).Bytes()
			if err != nil {
				t.Fatal(err)
			}
			setRaw(t, c, s.names.entry(s.id("bob")), b)
			mustMiss(t, s, "bob", "t:a")
			mustHit(t, s, "alice", "t:a")
			st := s.counters()
			if got := st.DigestMismatches + st.Corrupt["seal"]; got != 1 {
				t.Errorf("counted %d: %+v", got, st)
			}
		})
	}
}

func TestForeignValuesUnderTheNamesOfStampsAndLeasesDoNotHurt(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	s := newTestStore(t, redisStoreOptions{client: c})
	ctx := t.Context()
	stampName, leaseName := s.names.stamp("t:a").(string), s.names.lease(s.id("k"))
	for _, spoil := range []func(name string){
		func(name string) { c.Set(ctx, name, "x", 0) },
		func(name string) { c.Set(ctx, name, strings.Repeat("x", 100), time.Hour) },
		func(name string) { c.Del(ctx, name); c.RPush(ctx, name, "x") },
		func(name string) { c.Set(ctx, name, "", 0) },
	} {
		mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
		mustHit(t, s, "k", "t:a")
		spoil(stampName)
		mustMiss(t, s, "k", "t:a")
		mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
		mustHit(t, s, "k", "t:a")
	}
	// An orphan without expiry would otherwise keep everybody waiting for ever.
	for _, spoil := range []func(name string){
		func(name string) { c.Set(ctx, name, "somebody", 0) },
		func(name string) { c.Del(ctx, name); c.RPush(ctx, name, "x") },
	} {
		spoil(leaseName)
		mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
	}
	checkExpiries(t, c, s.opt.namespace)
}

func TestAnEntryOverTheLimitIsNotStoredAndItsLeaseIsFree(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	s := newTestStore(t, redisStoreOptions{client: c, maxBytes: 4096})
	if out, err := s.put(t.Context(), mustWin(t, s, "k"), testEntry(t, 1000)); err != nil || out != putTooLarge {
		t.Errorf("put: %v, %v", out, err)
	}
	mustMiss(t, s, "k")
	mustWin(t, s, "k")
	if n := s.counters().PutsTooLarge; n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestOptionsThatCannotWorkAreReportedByName(t *testing.T) {
	client := newClient(t, &redis.Options{Addr: "127.0.0.1:1"})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, RouteByLatency: true})
	defer replicas.Close()
	for want, opt := range map[string]redisStoreOptions{
		"Redis is nil":            {namespace: "n"},
		"Ring":                    {namespace: "n", client: ring},
		"RouteByLatency":          {namespace: "n", client: replicas},
		"Namespace":               {client: client, namespace: "a{b"},
		"EntryKeys[1]":            {client: client, namespace: "n", keys: [][]byte{make([]byte, 32), make([]byte, 16)}},
		"RedisTimeout is -1s":     {client: client, namespace: "n", timeout: -time.Second},
		"must not be empty":       {client: client},
		"EntryKeys[0] has 0 byte": {client: client, namespace: "n", keys: [][]byte{nil}},
	} {
		if _, err := newRedisStore(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestTheKeyThatSealsCanBeChangedWhileTheFleetRuns(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	ns := uniqueNamespace(t)
	open := func(keys ...string) *redisStore {
		return newTestStore(t, redisStoreOptions{client: c, namespace: ns, keys: testKeys(keys...)})
	}
	before, during := open("old"), open("new", "old")
	heard, heardBefore := listenTo(t, during), listenTo(t, before)

	mustPut(t, before, mustWin(t, before, "k", "t:a"), testEntry(t, 1))
	if n := mustHit(t, during, "k", "t:a").result.NumRows(); n != 1 {
		t.Error("the old key's entry is not opened", n)
	}
	mustPut(t, during, mustWin(t, during, "k", "t:a"), testEntry(t, 2))
	mustHit(t, during, "k", "t:a")
	mustMiss(t, before, "k", "t:a") // it has not got the new key: no error
	mustInvalidate(t, before, "t:a")
	mustMiss(t, during, "k", "t:a")
	heard.await(t, "invalidated t:a")
	mustInvalidate(t, during, "t:b")
	heardBefore.await(t, "invalidated t:b")
	if before.counters().Corrupt["seal"] == 0 {
		t.Error("not counted")
	}
}

func TestWithoutTheRightKeyNothingIsReadForgedOrGuessed(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	ns := uniqueNamespace(t)
	sealed := newTestStore(t, redisStoreOptions{client: c, namespace: ns, keys: testKeys("a")})
	const key, tag = "SELECT secret WHERE mail = 'alice@example.test'", "g:customer/alice@example.test"
	heard := listenTo(t, sealed)
	sub := c.Subscribe(t.Context(), ns+":ch")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, sealed, mustWin(t, sealed, key, tag), testEntry(t, 100))
	mustHit(t, sealed, key, tag)
	mustInvalidate(t, sealed, tag)
	mustPut(t, sealed, mustWin(t, sealed, key, tag), testEntry(t, 100))

	for _, name := range m.Keys() {
		v, _ := c.Get(t.Context(), name).Result()
		for _, secret := range []string{"alice", "customer", "created"} {
			if strings.Contains(name, secret) || strings.Contains(v, secret) {
				t.Errorf("%q is to be seen under %q", secret, name)
			}
		}
		// Nor can a guess be verified.
		for _, guess := range []string{key, tag} {
			sum := sha256.Sum256([]byte(guess))
			if strings.Contains(name, fmt.Sprintf("%x", sum[:8])) {
				t.Errorf("%q is the plain digest of %q", name, guess)
			}
			if d := keyDigest(guess); strings.Contains(v, string(d[:])) {
				t.Errorf("the value of %q has the plain digest of %q", name, guess)
			}
		}
	}
	for range 3 {
		msg, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(msg.Payload, "alice") {
			t.Error("a message shows its tag")
		}
	}

	// A plain store's bytes under the sealed one's name, and messages without the key.
	plain := newTestStore(t, redisStoreOptions{client: c, namespace: ns})
	forged, err := plain.codec.encode(key, testEntry(t, 1), nil, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	setRaw(t, c, sealed.names.entry(sealed.id(key)), forged)
	mustMiss(t, sealed, key, tag)
	mustInvalidate(t, plain, tag)
	stranger := newTestStore(t, redisStoreOptions{client: c, namespace: ns, keys: testKeys("b")})
	mustInvalidate(t, stranger, tag)
	friend := newTestStore(t, redisStoreOptions{client: c, namespace: ns, keys: testKeys("a")})
	mustInvalidate(t, friend, "t:end")
	heard.await(t, "invalidated t:end")
	if got := heard.all(); len(got) != 1 {
		t.Errorf("heard %q from strangers", got)
	}
	if n := sealed.counters().MessagesUnknown; n != 2 {
		t.Errorf("%d unknown messages counted, want 2", n)
	}
}

func TestUnknownMessagesAreIgnoredAndCounted(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	s := newTestStore(t, redisStoreOptions{client: c})
	heard := listenTo(t, s)
	other := newTestStore(t, redisStoreOptions{client: c, namespace: s.opt.namespace})
	good := string(other.message(messageInvalidated, appendTag(nil, "t:a")))
	bad := []string{
		"", "x", good[:messageHead-1], good[:messageHead], good[:len(good)-1], good + "\x05a",
		"\x02" + good[1:], good[:1] + "?" + good[2:], good[:1] + "s" + good[2:], good[:1] + "r" + good[2:messageHead],
		good[:messageHead] + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", strings.Repeat("y", 100_000),
	}
	for _, msg := range bad {
		c.Publish(t.Context(), s.channel(), msg)
	}
	c.Publish(t.Context(), s.channel(), good)
	heard.await(t, "invalidated t:a")
	if st := s.counters(); st.MessagesUnknown != uint64(len(bad)) || st.MessagesIn != 1 {
		t.Errorf("unknown %d, in %d; want %d and 1", st.MessagesUnknown, st.MessagesIn, len(bad))
	}
}

func TestAFlushedScriptCacheCostsNoError(t *testing.T) {
	for name, c := range map[string]redis.UniversalClient{
		"miniredis": newClient(t, &redis.Options{Addr: miniredis.RunT(t).Addr()}),
		"redis":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			if c == nil {
				c = serverClient(t)
			}
			s := newTestStore(t, redisStoreOptions{client: c})
			flush := func() {
				if err := c.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				flush()
				l := mustWin(t, s, "k", "t:a", "t:b", "t:c")
				flush()
				if ok, err := s.renew(t.Context(), l, leaseTTL); !ok || err != nil {
					t.Fatal(ok, err)
				}
				flush()
				mustPut(t, s, l, testEntry(t, 1))
				mustHit(t, s, "k", "t:a", "t:b", "t:c")
				l = mustWin(t, s, "k")
				flush()
				if err := s.release(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				flush()
				mustInvalidate(t, s, "t:a", "t:b")
				mustMiss(t, s, "k", "t:a", "t:b", "t:c")
			}
		})
	}
}

func FuzzMessage(f *testing.F) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f.Cleanup(func() { _ = c.Close() })
	var stores []*redisStore
	for _, keys := range [][][]byte{nil, testKeys("a")} {
		s := newTestStore(f, redisStoreOptions{client: c, namespace: "n", keys: keys})
		s.events = newHearing()
		stores = append(stores, s)
		id := s.id("k")
		other := &redisStore{opt: s.opt, names: redisNames{namespace: "n", key: s.names.key}}
		for _, payload := range [][]byte{nil, id[:], appendTag(nil, "t:a"), appendTag(appendTag(nil, ""), "g:b")} {
			for _, kind := range []byte{messageStored, messageReleased, messageInvalidated} {
				f.Add(string(other.message(kind, payload)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, m string) {
		for _, s := range stores {
			s.hear(m)
		}
	})
}

// A proxy stands between a client and a server, and can be told to misbehave.
type proxy struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	cond  *sync.Cond
	held  bool // bytes stay where they are
	down  bool // connections are refused, and cut
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: target, conns: make(map[net.Conn]bool)}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.hold(false)
		l.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		down := p.down
		p.mu.Unlock()
		if down {
			c.Close()
			continue
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(s, c) })
		p.wg.Go(func() { p.copy(c, s) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		for p.held {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// hold keeps all bytes back until it is called with false.
func (p *proxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = on
	p.cond.Broadcast()
}

// cut ends all connections, and, with down, all that come.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

// silentServer accepts and never answers.
func silentServer(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range conns {
					c.Close()
				}
				return
			}
			conns = append(conns, c)
			wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// refusedAddr is where nobody listens.
func refusedAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Case D17, and what go-redis does by itself: 3.4 s for a refused dial, its ReadTimeout for silence.
func TestACallReturnsInTimeWhateverRedisAndTheClientDo(t *testing.T) {
	m := miniredis.RunT(t)
	slow := newProxy(t, m.Addr())
	for server, addr := range map[string]string{"refused": refusedAddr(t), "silent": silentServer(t), "slow": slow.addr()} {
		for client, opt := range map[string]redis.Options{
			"defaults":       {},
			"heeds contexts": {ContextTimeoutEnabled: true, MaxRetries: -1},
		} {
			t.Run(server+", "+client, func(t *testing.T) {
				opt.Addr = addr
				c := redis.NewClient(&opt)
				var mu sync.Mutex
				var ops []string
				s := newTestStore(t, redisStoreOptions{client: c, timeout: 50 * time.Millisecond, observe: func(op string, d time.Duration, err error) {
					mu.Lock()
					defer mu.Unlock()
					ops = append(ops, op)
				}})
				t.Cleanup(func() { c.Close() }) // before the store: what is inside ends
				if server == "slow" {
					slow.hold(true)
					defer slow.hold(false)
				}
				s.listen(newHearing())

				calls := map[string]func() error{
					"get":        func() error { _, err := s.get(t.Context(), "k", []string{"t:a"}); return err },
					"obtain":     func() error { _, err := s.obtain(t.Context(), "k", []string{"t:a"}, leaseTTL, entryLife); return err },
					"put":        func() error { _, err := s.put(t.Context(), lease{key: "k"}, testEntry(t, 1)); return err },
					"release":    func() error { return s.release(t.Context(), lease{key: "k"}) },
					"invalidate": func() error { return s.invalidate(t.Context(), []string{"t:a"}) },
				}
				var wg sync.WaitGroup
				for range 20 {
					for name, call := range calls {
						wg.Go(func() {
							began := time.Now()
							err := call()
							// A put that is too late gives up by release: two limits at most. The rest is for a busy machine.
							if d := time.Since(began); err == nil || d > time.Second {
								t.Errorf("%s took %v: %v", name, d, err)
							}
						})
					}
				}
				wg.Wait()
				waitFor(t, "the breaker", func() bool {
					for _, call := range calls {
						_ = call()
					}
					return s.counters().BreakerOpen
				})
				quickest := time.Hour
				for range 20 {
					began := time.Now()
					if _, err := s.get(t.Context(), "k", nil); !errors.Is(err, errUnavailable) {
						t.Error(err)
					}
					quickest = min(quickest, time.Since(began))
				}
				if quickest > time.Millisecond {
					t.Errorf("the open breaker takes %v", quickest)
				}
				if st := s.counters(); st.Timeouts+st.Errors < breakerFailures || st.Refused == 0 || st.Subscribed {
					t.Errorf("%+v", st)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(ops) == 0 {
					t.Error("the observer was told of nothing")
				}
			})
		}
	}
}

// With a wrong password every figure looks as in an outage, and the log said no more than that.
func TestTheLogSaysWhyRedisIsGivenUp(t *testing.T) {
	m := miniredis.RunT(t)
	m.RequireAuth("right")
	for name, fault := range map[string]struct {
		options redis.Options
		want    string
	}{
		"no password":     {redis.Options{Addr: m.Addr()}, "NOAUTH"},
		"wrong password":  {redis.Options{Addr: m.Addr(), Password: "wrong"}, "WRONGPASS"},
		"nobody listens":  {redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1}, "connection refused"},
		"who is no Redis": {redis.Options{Addr: mute(t), MaxRetries: -1}, "Config.RedisTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			c := redis.NewClient(&fault.options)
			var log syncBuffer
			s := newTestStore(t, redisStoreOptions{client: c, timeout: time.Second / 2, logger: slog.New(slog.NewTextHandler(&log, nil))})
			t.Cleanup(func() { c.Close() })
			waitFor(t, "the breaker to open", func() bool { _, err := s.get(t.Context(), "k", nil); return errors.Is(err, errUnavailable) })
			waitFor(t, "a line in the log", func() bool { return strings.Contains(log.String(), "\n") })
			if got := log.String(); !strings.Contains(got, "Redis fails") || !strings.Contains(got, fault.want) || strings.Contains(got, "=wrong") {
				t.Errorf("the log is\n%s", got)
			}
		})
	}
}

// mute returns the address of a listener that accepts and says nothing.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestTheBreakerClosesWhenRedisIsBackAndNobodyPaysForAsking(t *testing.T) {
	m := miniredis.RunT(t)
	p := newProxy(t, m.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
	var log syncBuffer
	s := newTestStore(t, redisStoreOptions{client: c, timeout: 100 * time.Millisecond, logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(func() { c.Close() })
	get := func() error { _, err := s.get(t.Context(), "k", nil); return err }
	waitFor(t, "a first answer", func() bool { return get() == nil })

	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"held", func() { p.hold(true) }, func() { p.hold(false) }},
		{"cut", func() { p.cut(true) }, func() { p.cut(false) }},
	} {
		fault.begin()
		waitFor(t, "the breaker to open", func() bool { return errors.Is(get(), errUnavailable) })
		opens := s.counters().BreakerOpens
		// While it is open, callers are refused at once, also while a probe is under way.
		for end := time.Now().Add(2 * breakerPause); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err := get(); !errors.Is(err, errUnavailable) {
				t.Fatalf("%s: a caller was sent to see: %v", fault.name, err)
			}
		}
		fault.end()
		waitFor(t, "the breaker to close", func() bool { return !s.counters().BreakerOpen })
		waitFor(t, "an answer", func() bool { return get() == nil })
		if n := s.counters().BreakerOpens; n < opens {
			t.Errorf("%s: %d opens", fault.name, n)
		}
	}
	if got := log.String(); strings.Count(got, "Redis fails") < 2 || strings.Count(got, "is back") < 2 || len(got) > 4000 {
		t.Errorf("the log is\n%s", got)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestErrorsOfSingleCommandsDoNotOpenTheBreaker(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr(), MaxRetries: -1})
	s := newTestStore(t, redisStoreOptions{client: c})
	l := mustWin(t, s, "k")
	for reply, opens := range map[string]bool{
		"READONLY You can't write against a read only replica.":   false,
		"OOM command not allowed when used memory > 'maxmemory'.": false,
		"MISCONF Redis is configured to save RDB snapshots":       false,
		"NOPERM this user has no permissions":                     false,
		"ERR anything":                                            false,
		"LOADING Redis is loading":                                true,
		"CLUSTERDOWN The cluster is down":                         true,
		"NOAUTH Authentication required.":                         true,
		"BUSY Redis is busy running a script":                     true,
	} {
		m.SetError(reply)
		for range breakerFailures + 1 {
			if _, err := s.get(t.Context(), "k", nil); err == nil {
				t.Errorf("%s: no error", reply)
			}
			if _, err := s.renew(t.Context(), l, leaseTTL); err == nil {
				t.Errorf("%s: no error", reply)
			}
		}
		if got := s.counters().BreakerOpen; got != opens {
			t.Errorf("%s: breaker open is %v", reply, got)
		}
		m.SetError("")
		waitFor(t, "the breaker to close", func() bool { return !s.counters().BreakerOpen })
		mustMiss(t, s, "k")
	}
}

func TestCallersWhoLeaveDoNotOpenTheBreaker(t *testing.T) {
	m := miniredis.RunT(t)
	p := newProxy(t, m.Addr())
	c := newClient(t, &redis.Options{Addr: p.addr()})
	s := newTestStore(t, redisStoreOptions{client: c})
	mustMiss(t, s, "k")
	p.hold(true)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := s.get(ctx, "k", nil); done <- err }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	p.hold(false)
	mustMiss(t, s, "k")
	if st := s.counters(); st.BreakerOpens != 0 {
		t.Errorf("%+v", st)
	}
}

func TestALeaseWonForACallerWhoHasLeftIsGivenBack(t *testing.T) {
	m := miniredis.RunT(t)
	p := newProxy(t, m.Addr())
	s := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: p.addr()})})
	other := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: m.Addr()}), namespace: s.opt.namespace})
	mustMiss(t, s, "warm")
	p.hold(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := s.obtain(ctx, "k", nil, time.Hour, entryLife); done <- err }()
	// The caller leaves once the worker is inside.
	waitFor(t, "the worker", func() bool { return len(s.line.quick) == 0 })
	runtime.Gosched()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.hold(false)
	waitFor(t, "the lease", func() bool {
		l, err := other.obtain(t.Context(), "k", nil, leaseTTL, entryLife)
		if err != nil {
			t.Fatal(err)
		}
		return l.won
	})
}

func TestAnEntryOrAReleaseThatRedisDidNotTakeInTimeDoesNotKeepItsLease(t *testing.T) {
	for what, end := range map[string]func(*redisStore, lease) error{
		"put":     func(s *redisStore, l lease) error { _, err := s.put(t.Context(), l, testEntry(t, 1)); return err },
		"release": func(s *redisStore, l lease) error { return s.release(t.Context(), l) },
	} {
		t.Run(what, func(t *testing.T) {
			m := miniredis.RunT(t)
			p := newProxy(t, m.Addr())
			s := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: p.addr()}), timeout: redisTimeoutDefault})
			other := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: m.Addr()}), namespace: s.opt.namespace})
			l, err := s.obtain(t.Context(), "k", nil, time.Hour, entryLife)
			if err != nil || !l.won {
				t.Fatal(l, err)
			}
			// Every worker is inside the client, so that the call waits for one until its time is over.
			p.hold(true)
			var wg sync.WaitGroup
			for range quickWorkers {
				wg.Go(func() { _, _ = s.get(t.Context(), "x", nil) })
				waitFor(t, "a worker", func() bool { return len(s.line.quick) == 0 })
				runtime.Gosched()
			}
			if err := end(s, l); !errors.Is(err, errStoreTimeout) {
				t.Fatal(err)
			}
			wg.Wait()
			p.hold(false)
			waitFor(t, "the lease", func() bool {
				l, err := other.obtain(t.Context(), "k", nil, leaseTTL, entryLife)
				if err != nil {
					t.Fatal(err)
				}
				return l.won
			})
		})
	}
}

func TestAPanicOfTheClientIsAnErrorOfTheCall(t *testing.T) {
	m := miniredis.RunT(t)
	c := newClient(t, &redis.Options{Addr: m.Addr()})
	s := newTestStore(t, redisStoreOptions{client: c})
	mustMiss(t, s, "k")
	h := &panicHook{}
	c.AddHook(h)
	if _, err := s.get(t.Context(), "k", nil); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Error(err)
	}
	h.off.Store(true)
	mustMiss(t, s, "k")
}

func TestALostSubscriptionIsReportedAndComesBack(t *testing.T) {
	m := miniredis.RunT(t)
	p := newProxy(t, m.Addr())
	for name, fault := range map[string]struct{ begin, end func() }{
		"cut":          {func() { p.cut(true) }, func() { p.cut(false) }},
		"cut for once": {func() { p.cut(false) }, func() {}},
		"silent":       {func() { p.hold(true) }, func() { p.hold(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, &redis.Options{Addr: p.addr()})
			var log syncBuffer
			s := newTestStore(t, redisStoreOptions{client: c, logger: slog.New(slog.NewTextHandler(&log, nil))})
			heard := listenTo(t, s)
			other := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: m.Addr()}), namespace: s.opt.namespace})
			began := time.Now()
			fault.begin()
			heard.until(t, "subscribed false", func() bool { return len(heard.ups) >= 2 && !heard.ups[1] })
			// Two pulses and the way there; not the seconds that the client takes to dial again in vain.
			if d := time.Since(began); d > 3*pulse+time.Second {
				t.Errorf("noticed after %v", d)
			}
			fault.end()
			heard.awaitUp(t, true)
			mustInvalidate(t, other, "t:a")
			heard.await(t, "invalidated t:a")
			if !s.counters().Subscribed {
				t.Error("the counters do not say so")
			}
			waitFor(t, "the log to say that it is back", func() bool {
				return strings.Count(log.String(), "subscription to Redis is lost") == 1 && strings.Count(log.String(), "subscription to Redis is back") == 1
			})
		})
	}
}

func TestARestartedRedisIsFoundAgain(t *testing.T) {
	socket, proc := privateServer(t)
	c := unixClient(t, socket)
	s := newTestStore(t, redisStoreOptions{client: c})
	heard := listenTo(t, s)
	mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
	proc.Kill()
	heard.awaitUp(t, false)
	os.Remove(socket)
	cmd := exec.Command(testServer(t, "SQLHERD_TEST_REDIS_SERVER"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", filepath.Dir(socket))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	heard.awaitUp(t, true)
	waitFor(t, "an answer", func() bool { _, err := s.get(t.Context(), "k", nil); return err == nil })
	mustMiss(t, s, "k", "t:a")
	mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1)) // scripts and all
	mustHit(t, s, "k", "t:a")
}

// Cases G04 and G05.
func TestWithoutMemoryRedisRefusesEntriesAndStillInvalidates(t *testing.T) {
	socket, _ := privateServer(t, "--maxmemory-policy", "noeviction")
	c := unixClient(t, socket)
	a := newTestStore(t, redisStoreOptions{client: c})
	b := newTestStore(t, redisStoreOptions{client: c, namespace: a.opt.namespace})
	heard := listenTo(t, b)
	mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 1))
	l := mustWin(t, a, "k", "t:a")

	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	mustHit(t, b, "k", "t:a")
	if _, err := a.put(t.Context(), l, testEntry(t, 2)); !redis.IsOOMError(err) {
		t.Errorf("put: %v", err)
	}
	id := a.id("k")
	heard.await(t, fmt.Sprintf("released %x", id[:4]))
	if n, err := c.Exists(t.Context(), a.names.lease(id)).Result(); err != nil || n != 0 {
		t.Errorf("the lease is still there: %d, %v", n, err)
	}
	if _, err := a.obtain(t.Context(), "other", nil, leaseTTL, entryLife); !redis.IsOOMError(err) {
		t.Errorf("obtain: %v", err)
	}
	for range 2 {
		mustInvalidate(t, a, "t:a")
		mustMiss(t, b, "k", "t:a")
	}
	heard.await(t, "invalidated t:a")
	if a.counters().BreakerOpens+b.counters().BreakerOpens != 0 {
		t.Error("the breaker has opened, though reads are good")
	}
	if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	mustPut(t, a, mustWin(t, a, "k", "t:a"), testEntry(t, 2))
	mustHit(t, b, "k", "t:a")
}

func TestWithoutPermissionForScriptsAnInvalidationIsPlain(t *testing.T) {
	socket, _ := privateServer(t)
	admin := unixClient(t, socket)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-@scripting").Err(); err != nil {
		t.Fatal(err)
	}
	a := newTestStore(t, redisStoreOptions{client: admin})
	heard := listenTo(t, a)
	b := newTestStore(t, redisStoreOptions{namespace: a.opt.namespace, client: newClient(t, &redis.Options{Network: "unix", Addr: socket, Username: "app", Password: "pw"})})
	mustPut(t, a, mustWin(t, a, "k", "t:a", "t:b"), testEntry(t, 1))
	mustInvalidate(t, b, "t:b", "t:c")
	mustMiss(t, a, "k", "t:a", "t:b")
	heard.await(t, "invalidated t:b")
	heard.await(t, "invalidated t:c")
	if _, err := b.obtain(t.Context(), "k", nil, leaseTTL, entryLife); err == nil {
		t.Error("obtain without scripts has no error")
	}
	if b.counters().BreakerOpens != 0 {
		t.Error("the breaker has opened")
	}
}

// Case G01.
func TestAReadOnlyRedisStillAnswersReads(t *testing.T) {
	socket, _ := privateServer(t)
	c := newClient(t, &redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	s := newTestStore(t, redisStoreOptions{client: c})
	mustPut(t, s, mustWin(t, s, "k", "t:a"), testEntry(t, 1))
	// It becomes a replica of nobody in reach, as the old primary after a failover.
	if err := c.ConfigSet(t.Context(), "replica-serve-stale-data", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * breakerFailures {
		mustHit(t, s, "k", "t:a")
		// What only fails is soon left alone, and tried again by and by; see gate.
		right := redis.IsReadOnlyError
		if i >= breakerFailures {
			right = func(err error) bool { return errors.Is(err, errUnavailable) }
		}
		if err := s.invalidate(t.Context(), []string{"t:a"}); !right(err) {
			t.Errorf("invalidate, time %d: %v", i, err) // the engine tries again
		}
		if _, err := s.obtain(t.Context(), "k", nil, leaseTTL, entryLife); !right(err) {
			t.Errorf("obtain, time %d: %v", i, err)
		}
	}
	if s.counters().BreakerOpens != 0 {
		t.Error("the breaker has opened, though reads are good")
	}
}

// A splitHook lets something happen between the first command of a pipeline and the others.
type splitHook struct{ between func() }

func (h *splitHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *splitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *splitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.between == nil {
			return next(ctx, cmds)
		}
		err := next(ctx, cmds[:1])
		h.between()
		return errors.Join(err, next(ctx, cmds[1:]))
	}
}

// The entry and its remaining life are two commands. Were the entry read first, the old rows
// would seem as young as the entry that replaced them in between.
func TestARefreshUnderAReadNeverMakesTheOldRowsLookYoung(t *testing.T) {
	m := miniredis.RunT(t)
	hooked := newClient(t, &redis.Options{Addr: m.Addr()})
	a := newTestStore(t, redisStoreOptions{client: newClient(t, &redis.Options{Addr: m.Addr()})})
	b := newTestStore(t, redisStoreOptions{client: hooked, namespace: a.opt.namespace})
	h := &splitHook{}
	hooked.AddHook(h)
	mustPut(t, a, mustWin(t, a, "k"), testEntry(t, 1))
	m.FastForward(20 * time.Minute)
	h.between = func() { mustPut(t, a, mustWin(t, a, "k"), testEntry(t, 2)) }
	switch e := mustHit(t, b, "k"); e.result.NumRows() {
	case 1:
		if e.age < 20*time.Minute {
			t.Errorf("old rows of age %v", e.age)
		}
	case 2: // of any age
	}
	h.between = nil
	if e := mustHit(t, b, "k"); e.result.NumRows() != 2 || e.age > time.Minute {
		t.Errorf("%d rows of age %v", e.result.NumRows(), e.age)
	}
}

// A panicHook is a hook of the application's that is broken.
type panicHook struct{ off atomic.Bool }

func (h *panicHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *panicHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *panicHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !h.off.Load() {
			panic("hook")
		}
		return next(ctx, cmds)
	}
}

func TestNothingIsLeftRunningAfterClose(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: m.Addr()})
	s, err := newRedisStore(redisStoreOptions{client: c, namespace: "n"})
	if err != nil {
		t.Fatal(err)
	}
	listenTo(t, s)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() { _, _ = s.get(t.Context(), fmt.Sprint(i), []string{"t:a"}) })
	}
	s.close()
	wg.Wait()
	c.Close()
	m.Close()
	goleak.VerifyNone(t, ignore)
}

func TestAClientThatDoesNotReturnIsNotWaitedForByClose(t *testing.T) {
	addr := silentServer(t)
	ignore := goleak.IgnoreCurrent()
	c := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 200 * time.Millisecond})
	s, err := newRedisStore(redisStoreOptions{client: c, namespace: "n", timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.listen(newHearing())
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() { _, _ = s.get(t.Context(), fmt.Sprint(i), nil) })
	}
	wg.Wait()
	s.line.mu.Lock()
	stuck := s.line.stuck
	s.line.mu.Unlock()
	if stuck > stuckMax {
		t.Errorf("%d workers inside the client", stuck)
	}
	began := time.Now()
	s.close()
	if d := time.Since(began); d > time.Second {
		t.Errorf("close took %v", d)
	}
	c.Close() // now the client gives up, and what was inside ends
	goleak.VerifyNone(t, ignore)
}

// BenchmarkGet compares a look-up, by 64 callers, with a bare GET of the same bytes by go-redis:
//
//	bare    client.Get alone
//	store   remaining life, entry and two stamps, checked and decoded
func BenchmarkGet(b *testing.B) {
	url := os.Getenv("SQLHERD_TEST_REDIS")
	if url == "" {
		b.Skip("SQLHERD_TEST_REDIS is not set")
	}
	opt, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	c := newClient(b, opt)
	tags := []string{"*", "t:products"} // as the engine has them: all, and a table
	parallel := func(b *testing.B, f func() error) {
		b.ReportAllocs()
		b.SetParallelism(max(64/runtime.GOMAXPROCS(0), 1))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := f(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, rows := range []int{1, 100, 1000} {
		for kind, keys := range map[string][][]byte{"store": nil, "sealed": testKeys("a")} {
			s := newTestStore(b, redisStoreOptions{client: c, keys: keys})
			mustPut(b, s, mustWin(b, s, "k", tags...), testEntry(b, rows))
			if keys == nil {
				name := s.names.entry(s.id("k"))
				b.Run(fmt.Sprintf("bare/%drows", rows), func(b *testing.B) {
					parallel(b, func() error { return c.Get(b.Context(), name).Err() })
				})
			}
			b.Run(fmt.Sprintf("%s/%drows", kind, rows), func(b *testing.B) {
				parallel(b, func() error {
					e, err := s.get(b.Context(), "k", tags)
					if err == nil && e == nil {
						err = errors.New("miss")
					}
					return err
				})
			})
		}
	}
}
