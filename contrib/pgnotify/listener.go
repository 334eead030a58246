package pgnotify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// An Invalidator is who is told: a *sqlherd.Herd. When it returns an error it must go on trying by itself, as a Herd does
// while Redis is away.
type Invalidator interface {
	Invalidate(ctx context.Context, tags ...string) error
	InvalidateTables(ctx context.Context, tables ...string) error
	InvalidateAll(ctx context.Context) error
}

// A Listener turns notifications into invalidations, from Listen until Close. It is safe for concurrent use.
type Listener struct {
	dsn     string
	channel string
	cfg     Config
	to      Invalidator
	away    payload // what may have changed while nobody listened

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	ready  chan struct{}

	mu      sync.Mutex
	pending pending
	wake    chan struct{} // capacity 1

	events    sync.Mutex // held during Config.OnEvent
	connected atomic.Bool
	n         struct{ connects, failures, notifications, malformed, catchUps, invalidations, errors atomic.Uint64 }
}

// pending is what the invalidator has not been told of. It is a set, so that what arrives often is told once.
type pending struct {
	all, catchUp  bool
	notifications int
	tables, tags  map[string]bool
}

func (p *pending) any() bool { return p.all || p.catchUp || len(p.tables) > 0 || len(p.tags) > 0 }

func (p *pending) add(add payload) {
	if p.tables == nil {
		p.tables, p.tags = map[string]bool{}, map[string]bool{}
	}
	p.all = p.all || add.All
	for _, t := range add.Tables {
		p.tables[t] = true
	}
	for _, t := range add.Tags {
		p.tags[t] = true
	}
}

// pendingMax bounds the tags and tables that wait while the invalidator is slow; above it everything is invalidated.
const pendingMax = 100_000

// An Event is something that the listener did or saw.
type Event struct {
	Kind EventKind

	// Of Invalidated: what the invalidator was told, after how many notifications, and whether that included the tables of Config
	// because notifications may have been missed.
	Tables, Tags  []string
	All           bool
	Notifications int
	CatchUp       bool

	// Err is why a connection was lost or could not be made, what is wrong with a notification, or what the invalidator
	// said: of a Herd, that Redis could not be told, which it goes on trying.
	Err error
}

// An EventKind says what an Event is about.
type EventKind uint8

const (
	// Connected: notifications arrive, from now on. An Invalidated with CatchUp follows.
	Connected EventKind = iota + 1
	// Disconnected: the connection was lost. Until Connected, writes are not seen.
	Disconnected
	// ConnectFailed: an attempt to connect has failed; another one follows.
	ConnectFailed
	// Invalidated: the invalidator was told.
	Invalidated
	// Malformed: a notification was not understood. The tables of Config are invalidated.
	Malformed
)

func (k EventKind) String() string {
	switch k {
	case Connected:
		return "connected"
	case Disconnected:
		return "disconnected"
	case ConnectFailed:
		return "connect failed"
	case Invalidated:
		return "invalidated"
	case Malformed:
		return "malformed"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Stats are the counts of a Listener since it began.
type Stats struct {
	Connected     bool   // writes are seen now
	Connects      uint64 // connections made; all but the first are reconnects
	Failures      uint64 // attempts to connect that failed, and connections lost
	Notifications uint64 // received, of writes
	Malformed     uint64 // received, not understood
	CatchUps      uint64 // times that the tables were invalidated because notifications may have been missed
	Invalidations uint64 // times that the invalidator was told, each of everything that had come meanwhile
	Errors        uint64 // of these, how many it returned an error for
}

// Listen starts a listener on the database of dsn, a URL or key=value string of lib/pq, which must
// reach a primary itself: a pooler in transaction mode keeps no LISTEN, and a standby allows none. The login needs no right but
// to connect. Listen does not wait for the connection: see Ready. It reports every invalid field of cfg by its name.
//
// A fleet that shares Redis needs one listener that lives; more of them do no harm but
// tell Redis more often. Processes without Redis need one each.
func Listen(dsn string, to Invalidator, cfg Config) (*Listener, error) {
	cfg, tables, problems := cfg.withDefaults()
	dsn, err := withTimeout(dsn, connectTimeout)
	if to == nil {
		err = errors.Join(err, errors.New("sqlherd/pgnotify: Listen: there is nobody to tell: the Invalidator is nil"))
	}
	if err := errors.Join(problems, err); err != nil {
		return nil, err
	}
	l := &Listener{dsn: dsn, channel: cfg.Channel, cfg: cfg, to: to, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	for _, t := range tables {
		many := t.many()
		l.away.All = l.away.All || many.All
		l.away.Tables = append(l.away.Tables, t.name)
		l.away.Tags = append(l.away.Tags, many.Tags...)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.done.Go(l.tell)
	l.done.Go(l.run)
	return l, nil
}

// connectTimeout is how long making a connection may take when the DSN does not say. Close waits as long, at worst.
const connectTimeout = 5 * time.Second

// withTimeout adds a connect_timeout to a DSN that has none, and says what is wrong with a DSN, without its password.
func withTimeout(dsn string, timeout time.Duration) (string, error) {
	cfg, err := pq.NewConfig(dsn)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // the rest of it is the URL
		}
		return "", fmt.Errorf("sqlherd/pgnotify: Listen: the DSN cannot be read: %w", err)
	}
	if cfg.ConnectTimeout > 0 {
		return dsn, nil
	}
	seconds := fmt.Sprint(int(timeout.Seconds()))
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		u, err := url.Parse(dsn)
		if err != nil { // pq could read it
			return "", errors.New("sqlherd/pgnotify: Listen: the DSN cannot be read as a URL")
		}
		q := u.Query()
		q.Set("connect_timeout", seconds)
		u.RawQuery = q.Encode()
		return u.String(), nil
	}
	return strings.TrimSpace(dsn + " connect_timeout=" + seconds), nil
}

// Ready is closed when the listener has connected for the first time and has invalidated what was
// cached before: from then on a foreign write is seen.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// Stats returns the counts. It does not block.
func (l *Listener) Stats() Stats {
	return Stats{
		Connected:     l.connected.Load(),
		Connects:      l.n.connects.Load(),
		Failures:      l.n.failures.Load(),
		Notifications: l.n.notifications.Load(),
		Malformed:     l.n.malformed.Load(),
		CatchUps:      l.n.catchUps.Load(),
		Invalidations: l.n.invalidations.Load(),
		Errors:        l.n.errors.Load(),
	}
}

// Close ends the listener: it tells what has arrived and returns when the connection is closed and the goroutines have ended. An attempt to
// connect that is under way is waited for, 5 s at most unless the DSN's connect_timeout says otherwise. Close it before the Herd. It may be called more than once.
func (l *Listener) Close() error {
	l.cancel()
	l.done.Wait()
	return nil
}

// reconnectMin is the pause after the first failure.
const reconnectMin = 100 * time.Millisecond

// run keeps a connection. The first loss of one that had lived for a while is answered at once; the pause grows with failures
// and with connections that do not live, since each costs the tables' results.
func (l *Listener) run() {
	defer close(l.wake) // nothing is added any more
	pause := time.Duration(0)
	for l.ctx.Err() == nil {
		began := time.Now()
		listened, err := l.listen()
		if l.ctx.Err() != nil {
			return
		}
		l.n.failures.Add(1)
		kind := ConnectFailed
		if listened {
			kind = Disconnected
		}
		l.cfg.Logger.Warn("sqlherd/pgnotify: writes by others are not seen until the listener has connected again", "event", kind.String(), "error", err)
		l.event(Event{Kind: kind, Err: err})
		if listened && time.Since(began) > l.cfg.ReconnectMax {
			pause = 0
			continue
		}
		pause = min(max(2*pause, reconnectMin), l.cfg.ReconnectMax)
		select {
		case <-l.ctx.Done():
		case <-time.After(pause/2 + mathrand.N(pause/2+1)):
		}
	}
}

// listen makes a connection and holds it until it is lost. It answers whether it ever received notifications.
func (l *Listener) listen() (listened bool, err error) {
	received := make(chan *pq.Notification, 64)
	conn, err := pq.NewListenerConn(l.dsn, received)
	if err != nil {
		return false, err
	}
	// Whatever waits for the server below returns when the connection is closed.
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	probe, probed, lost := rand.Text(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(lost)
		l.receive(received, probe, probed)
	}()
	defer func() {
		stop()
		_ = conn.Close() // it may be closed already
		<-lost           // lib/pq's goroutine closes the channel as the last thing it does
		l.connected.Store(false)
		if listened {
			if cause := conn.Err(); cause != nil && err == nil {
				err = cause
			}
		}
	}()

	if err := l.exec(conn, "LISTEN "+pq.QuoteIdentifier(l.channel)); err != nil {
		return false, err
	}
	// Behind a pooler in transaction mode LISTEN succeeds, on a connection that is then somebody else's.
	if err := l.exec(conn, "NOTIFY "+pq.QuoteIdentifier(l.channel)+", "+pq.QuoteLiteral(payload{Probe: probe}.String())); err != nil {
		return false, err
	}
	select {
	case <-probed:
	case <-lost:
		return false, errors.Join(errors.New("sqlherd/pgnotify: the connection was lost"), conn.Err())
	case <-time.After(l.cfg.Ping):
		return false, errors.New("sqlherd/pgnotify: a notification to itself did not arrive; the DSN must reach PostgreSQL directly, not through a pooler in transaction mode")
	}

	// What was written before LISTEN took effect was told to nobody, and only now is nothing missed any more.
	l.n.connects.Add(1)
	l.connected.Store(true)
	if l.n.connects.Load() > 1 {
		l.cfg.Logger.Info("sqlherd/pgnotify: connected again")
	}
	l.event(Event{Kind: Connected})
	l.add(func(p *pending) { p.catchUp = true })

	ping := time.NewTicker(l.cfg.Ping)
	defer ping.Stop()
	for {
		select {
		case <-lost:
			return true, conn.Err()
		case <-ping.C:
			if err := l.exec(conn, ""); err != nil {
				return true, err
			}
		}
	}
}

// exec runs a statement, and closes the connection if there is no answer within Config.Ping: a write to a peer that has
// vanished succeeds, and the answer would be waited for until TCP gives up.
func (l *Listener) exec(conn *pq.ListenerConn, statement string) error {
	late := time.AfterFunc(l.cfg.Ping, func() { _ = conn.Close() })
	_, err := conn.ExecSimpleQuery(statement)
	if !late.Stop() && err != nil {
		return fmt.Errorf("sqlherd/pgnotify: the server did not answer within %v: %w", l.cfg.Ping, err)
	}
	return err
}

// receive takes notifications in until the connection is closed. It waits for nobody: what is not taken in fills the
// server's queue, and a full queue makes writers fail.
func (l *Listener) receive(received <-chan *pq.Notification, probe string, probed chan<- struct{}) {
	for n := range received {
		p, err := parsePayload(n.Extra)
		switch {
		case err != nil:
			// Perhaps of a newer version.
			if l.n.malformed.Add(1) == 1 {
				l.cfg.Logger.Warn("sqlherd/pgnotify: a notification is not understood; the tables are invalidated", "channel", n.Channel, "pid", n.BePid, "error", err)
			}
			l.event(Event{Kind: Malformed, Err: err})
			l.add(func(p *pending) { p.catchUp = true })
		case p.Probe != "":
			if p.Probe == probe && probed != nil {
				close(probed)
				probed = nil
			}
		default:
			l.n.notifications.Add(1)
			l.add(func(w *pending) {
				w.notifications++
				w.add(p)
			})
		}
	}
}

func (l *Listener) add(change func(*pending)) {
	l.mu.Lock()
	change(&l.pending)
	if len(l.pending.tags)+len(l.pending.tables) > pendingMax {
		l.pending = pending{all: true, catchUp: l.pending.catchUp, notifications: l.pending.notifications}
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell tells the invalidator. Whatever arrives meanwhile is told together, next time: that is all the batching, and it delays nothing.
func (l *Listener) tell() {
	ready := l.ready
	for {
		_, more := <-l.wake
		l.mu.Lock()
		p := l.pending
		l.pending = pending{}
		l.mu.Unlock()
		if p.any() {
			l.tellOf(p)
			if p.catchUp && ready != nil {
				close(ready)
				ready = nil
			}
		}
		if !more {
			return
		}
	}
}

func (l *Listener) tellOf(p pending) {
	e := Event{Kind: Invalidated, Notifications: p.notifications, CatchUp: p.catchUp}
	if p.catchUp {
		l.n.catchUps.Add(1)
		p.add(l.away)
	}
	for t := range p.tables {
		if checkIdent(t) != nil { // the Herd would refuse it, and all others with it
			p.all = true
			continue
		}
		e.Tables = append(e.Tables, t)
	}
	for t := range p.tags {
		if checkTag(t) == nil { // else no result can have it
			e.Tags = append(e.Tags, t)
		}
	}
	e.All = p.all

	l.n.invalidations.Add(1)
	ctx := context.Background() // also while closing; the Herd keeps its own time
	if e.All {
		e.Tables, e.Tags = nil, nil
		e.Err = l.to.InvalidateAll(ctx)
	} else {
		if len(e.Tables) > 0 {
			quoted := make([]string, len(e.Tables))
			for i, t := range e.Tables {
				quoted[i] = pq.QuoteIdentifier(t) // or a dot in it would divide it
			}
			e.Err = l.to.InvalidateTables(ctx, quoted...)
		}
		if len(e.Tags) > 0 {
			e.Err = errors.Join(e.Err, l.to.Invalidate(ctx, e.Tags...))
		}
	}
	if e.Err != nil {
		if l.n.errors.Add(1) == 1 {
			l.cfg.Logger.Warn("sqlherd/pgnotify: not everybody could be told of a write yet", "error", e.Err)
		}
	}
	l.event(e)
}

func (l *Listener) event(e Event) {
	if l.cfg.OnEvent == nil {
		return
	}
	l.events.Lock()
	defer l.events.Unlock()
	l.cfg.OnEvent(e)
}
