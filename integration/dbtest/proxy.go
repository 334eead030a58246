package dbtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relistenTimeout bounds how long a refusing proxy tries to get its port back.
const relistenTimeout = 5 * time.Second

// A Proxy stands between clients and a server, and is the network between them:
// it passes, refuses, stalls or cuts. It begins passing. All methods are safe
// for concurrent use.
type Proxy struct {
	target string
	addr   string

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	gate     chan struct{}
	links    map[*link]struct{}
	accepted int
	peak     int
	cutAfter int64
	closed   bool

	wg sync.WaitGroup
}

// A link is one client's connection and the server's beyond it.
type link struct {
	client net.Conn

	mu     sync.Mutex
	server net.Conn // nil until dialed
	sent   int64    // bytes from the server, since CutAfter
	done   chan struct{}
	ended  bool
}

// NewProxy starts a proxy for the server at target, host:port.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, links: map[*link]struct{}{}, gate: make(chan struct{})}
	close(p.gate)
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", localAddr(freePort(t)))
		if err == nil {
			p.addr = l.Addr().String()
			p.serveLocked(l)
			break
		}
		if try == 10 {
			t.Fatal(err)
		}
	}
	t.Cleanup(p.close)
	return p
}

// Addr returns where clients connect to, host:port. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Pass lets everything through, also what a stall has held back.
func (p *Proxy) Pass() { p.open(true) }

// Stall holds everything back: connections are accepted and nothing moves.
func (p *Proxy) Stall() { p.open(false) }

// Refuse resets all connections and refuses new ones, as a machine does that
// runs no such server.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.cutLocked()
}

// Cut resets all connections. What happens to new ones does not change.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// CutAfter resets every connection, present and future, once the server has
// sent n more bytes on it. Zero: no longer.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = n
	for l := range p.links {
		l.mu.Lock()
		l.sent = 0
		l.mu.Unlock()
	}
}

// Accepted returns how many connections clients have made in all.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open returns how many connections are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Peak returns the largest number of connections that were open at once.
func (p *Proxy) Peak() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

func (p *Proxy) open(pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	passing := false
	select {
	case <-p.gate:
		passing = true
	default:
	}
	switch {
	case pass && !passing:
		close(p.gate)
	case !pass && passing:
		p.gate = make(chan struct{})
	}
	if p.listener != nil {
		return
	}
	deadline := time.Now().Add(relistenTimeout)
	for {
		l, err := net.Listen("tcp", p.addr)
		if err == nil {
			p.serveLocked(l)
			return
		}
		if time.Now().After(deadline) {
			panic("dbtest: the proxy cannot get its port back: " + err.Error())
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *Proxy) cutLocked() {
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
	}
	p.cutLocked()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) serveLocked(listener net.Listener) {
	p.listener = listener
	p.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l := &link{client: conn, done: make(chan struct{})}
			p.mu.Lock()
			if p.listener != listener || p.closed { // Refuse came in between
				p.mu.Unlock()
				l.reset()
				continue
			}
			p.links[l] = struct{}{}
			p.accepted++
			p.peak = max(p.peak, len(p.links))
			p.wg.Go(func() { p.serve(l) })
			p.mu.Unlock()
		}
	})
}

// serve moves bytes both ways until both sides are done.
func (p *Proxy) serve(l *link) {
	defer func() {
		l.close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	if !p.pass(l) {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		l.reset()
		return
	}
	if !l.attach(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.move(l, server, l.client, false) })
	p.move(l, l.client, server, true)
	wg.Wait()
}

// pass waits while the proxy stalls. It answers false when the link has ended.
func (p *Proxy) pass(l *link) bool {
	for {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		select {
		case <-l.done:
			return false
		default:
		}
		select {
		case <-gate:
			return true
		case <-l.done:
			return false
		}
	}
}

func (p *Proxy) move(l *link, dst, src net.Conn, toClient bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if !p.pass(l) {
			return
		}
		cut := false
		if toClient {
			n, cut = p.allowance(l, n)
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				l.reset()
				return
			}
		}
		switch {
		case cut:
			l.reset()
			return
		case errors.Is(err, io.EOF):
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			l.reset()
			return
		}
	}
}

// allowance says how many of n bytes may still go to the client, and whether
// the connection is to be cut after them.
func (p *Proxy) allowance(l *link, n int) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += int64(n)
	if p.cutAfter == 0 || l.sent < p.cutAfter {
		return n, false
	}
	return n - int(l.sent-p.cutAfter), true
}

// attach gives the link its server side. It answers false when the link has
// ended meanwhile.
func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		server.Close()
		return false
	}
	l.server = server
	return true
}

// reset ends both sides the hard way: whoever reads or writes gets an error.
func (l *link) reset() { l.end(true) }

func (l *link) close() { l.end(false) }

func (l *link) end(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	for _, c := range []net.Conn{l.client, l.server} {
		if c == nil {
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // RST instead of FIN
		}
		c.Close()
	}
}
