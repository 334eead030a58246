package dbtest_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// echoServer answers every byte with itself.
func echoServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func dial(t *testing.T, p *dbtest.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

func wantRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != want {
		t.Fatalf("read %q, %v; want %q", buf, err, want)
	}
}

func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 100)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %d bytes, %v; want a reset", n, err)
	}
}

func TestProxyPassesBothWaysAndCounts(t *testing.T) {
	p := dbtest.NewProxy(t, echoServer(t))
	a, b := dial(t, p), dial(t, p)
	write(t, a, "to a")
	write(t, b, "to b")
	wantRead(t, a, "to a")
	wantRead(t, b, "to b")
	if p.Accepted() != 2 || p.Open() != 2 || p.Peak() != 2 {
		t.Errorf("accepted %d, open %d, peak %d; want 2 each", p.Accepted(), p.Open(), p.Peak())
	}
	// The end of one side reaches the other, and back.
	if err := a.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the end: %v, want EOF", err)
	}
}

func TestProxyRefusesAndComesBackOnItsAddress(t *testing.T) {
	p := dbtest.NewProxy(t, echoServer(t))
	c := dial(t, p)
	write(t, c, "x")
	wantRead(t, c, "x")
	p.Refuse()
	wantReset(t, c)
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want refused", err)
	}
	p.Pass()
	c = dial(t, p)
	write(t, c, "y")
	wantRead(t, c, "y")
}

func TestProxyHoldsBackWhileItStalls(t *testing.T) {
	p := dbtest.NewProxy(t, echoServer(t))
	before := dial(t, p)
	write(t, before, "1")
	wantRead(t, before, "1")

	p.Stall()
	write(t, before, "2")
	during := dial(t, p)
	write(t, during, "3")
	for _, c := range []net.Conn{before, during} {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.EAGAIN) && err == nil {
			t.Errorf("%d bytes came through", n)
		}
	}

	p.Pass()
	wantRead(t, before, "2")
	wantRead(t, during, "3")
}

func TestProxyCutsWhatStalls(t *testing.T) {
	p := dbtest.NewProxy(t, echoServer(t))
	c := dial(t, p)
	write(t, c, "1")
	wantRead(t, c, "1")
	p.Stall()
	write(t, c, "2")
	p.Cut()
	wantReset(t, c)
	p.Pass()
	c = dial(t, p)
	write(t, c, "3")
	wantRead(t, c, "3")
}

func TestProxyCutsAfterSoManyBytes(t *testing.T) {
	p := dbtest.NewProxy(t, echoServer(t))
	p.CutAfter(5)
	c := dial(t, p)
	write(t, c, "123")
	wantRead(t, c, "123")
	write(t, c, "456789")
	// A reset may overtake the last bytes, as it does on a real network.
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(c)
	if len(got) > 2 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want at most 2 bytes and a reset", got, err)
	}
	p.CutAfter(0)
	c = dial(t, p)
	write(t, c, "0123456789")
	wantRead(t, c, "0123456789")
}

func TestProxyWithoutServerResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	c, err := net.Dial("tcp", dbtest.NewProxy(t, l.Addr().String()).Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return // so quickly that the dial saw it
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantReset(t, c)
}
