package sqlherd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Of a Redis Cluster one node may fail while the others answer. Then the breaker of the whole would help nobody: open, it
// gives up the keys of all nodes, and closed, whoever asks for a key of the dead one waits. So in a Cluster each node has
// a breaker of its own, commands travel to each node apart, and a call comes back when those nodes have answered that it
// asks. The breaker of the whole is left for what concerns all of them, such as a Cluster whose
// nodes cannot be learned.

// nodes are the masters of a Cluster that have been asked.
type nodes struct {
	client masterFinder
	line   *line
	log    *slog.Logger
	opens  atomic.Uint64

	mu sync.Mutex
	m  map[string]*node // by address
}

// A masterFinder is a *redis.ClusterClient, or what embeds one.
type masterFinder interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// nodesMax bounds the addresses that are remembered. A Cluster has no more nodes.
const nodesMax = 1000

// A node is one master, and its breaker: after breakerFailures in a row its commands are refused at once. From then on
// the first one after each breakerPause has the node probed in the background; nobody waits for that.
type node struct {
	ns     *nodes
	client *redis.Client

	mu       sync.Mutex
	failures int       // in a row
	since    time.Time // when it was shut; zero while it is open
	next     time.Time // when to probe
}

// nodeError is the failure of one node of a Cluster, which says nothing of the others.
type nodeError struct{ error }

func (e nodeError) Unwrap() error { return e.error }

// of returns the node that has a key. It blocks while the client learns the Cluster's nodes.
func (ns *nodes) of(ctx context.Context, key string) (*node, error) {
	client, err := ns.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	addr := client.Options().Addr
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[addr]
	if n == nil || n.client != client { // another node has come to the address, or the client has forgotten it meanwhile
		if n == nil && len(ns.m) == nodesMax {
			clear(ns.m)
		}
		n = &node{ns: ns, client: client}
		ns.m[addr] = n
	}
	return n, nil
}

// allow says whether the node may be asked.
func (n *node) allow() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() {
		return true
	}
	if now := time.Now(); now.After(n.next) {
		n.next = now.Add(breakerPause)
		n.ns.line.aside(n.probe)
	}
	return false
}

// report says how a trip to the node has ended.
func (n *node) report(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		n.failures = 0
	case !n.since.IsZero():
	default:
		if n.failures++; n.failures < breakerFailures {
			return
		}
		n.since = time.Now()
		n.next = n.since.Add(breakerPause)
		n.ns.opens.Add(1)
		n.ns.log.Warn("sqlherd: a node of the Redis Cluster fails; going on without its keys",
			"node", n.client.Options().Addr, "failures", breakerFailures, "error", err)
	}
}

// probe opens the breaker when the node answers within the time that callers wait.
func (n *node) probe(ctx context.Context) {
	began := time.Now()
	err := n.client.Ping(ctx).Err()
	if err != nil || time.Since(began) > n.ns.line.timeout {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() {
		return
	}
	n.ns.log.Info("sqlherd: the node of the Redis Cluster is back", "node", n.client.Options().Addr, "away", time.Since(n.since))
	n.failures, n.since = 0, time.Time{}
}

// A leg is the part of a trip that goes to one node.
type leg struct {
	node    *node
	cmds    []redis.Cmder
	scripts []spot // of cmds
	calls   []int  // of the trip, that wait for it
}

// A spot is where a script stands.
type spot struct {
	call *call
	i    int
}

// travelApart is travel in a Cluster.
func (w *worker) travelApart(ctx context.Context) {
	legs, err := w.split(ctx)
	if err != nil {
		for _, c := range w.trip {
			c.err = err
			c.finish()
		}
		return
	}
	waiting := make([]atomic.Int32, len(w.trip))
	for i, c := range w.trip {
		c.sent.Store(true)
		waiting[i].Store(1) // ours: no call is to be back before all legs have been counted
	}
	for _, g := range legs {
		for _, i := range g.calls {
			waiting[i].Add(1)
		}
	}
	arrive := func(i int) {
		if waiting[i].Add(-1) == 0 {
			w.trip[i].finish()
		}
	}
	var wg sync.WaitGroup
	for _, g := range legs {
		if !g.node.allow() {
			for _, cmd := range g.cmds {
				cmd.SetErr(errUnavailable)
			}
			for _, i := range g.calls {
				arrive(i)
			}
			continue
		}
		wg.Go(func() {
			w.line.visit(ctx, g)
			for _, i := range g.calls {
				arrive(i)
			}
		})
	}
	for i := range w.trip {
		arrive(i)
	}
	wg.Wait()
}

// split sorts the trip's commands by node. Calls that ask for the same stamp share one command.
func (w *worker) split(ctx context.Context) (map[*node]*leg, error) {
	legs := make(map[*node]*leg)
	of := func(i int, key string) (*leg, error) {
		n, err := w.line.nodes.of(ctx, key)
		if err != nil {
			return nil, err
		}
		g := legs[n]
		if g == nil {
			g = &leg{node: n}
			legs[n] = g
		}
		if len(g.calls) == 0 || g.calls[len(g.calls)-1] != i {
			g.calls = append(g.calls, i)
		}
		return g, nil
	}
	defer clear(w.stamps)
	for i, c := range w.trip {
		for j, cmd := range c.cmds {
			g, err := of(i, firstKey(cmd, c.scripts[j]))
			if err != nil {
				return nil, err
			}
			g.cmds = append(g.cmds, cmd)
			if c.scripts[j] != nil {
				g.scripts = append(g.scripts, spot{c, j})
			}
		}
		for _, name := range c.stamps {
			g, err := of(i, name.(string))
			if err != nil {
				return nil, err
			}
			cmd := w.stamps[name]
			if cmd == nil {
				cmd = redis.NewStringCmd(context.Background(), "get", name)
				w.stamps[name] = cmd
				g.cmds = append(g.cmds, cmd)
			}
			c.stampCmds = append(c.stampCmds, cmd)
		}
	}
	return legs, nil
}

// firstKey returns the first key of a command of ours.
func firstKey(cmd redis.Cmder, s *script) string {
	i := 1
	if s != nil {
		i = 3 // EVALSHA digest numkeys key
	}
	key, _ := cmd.Args()[i].(string)
	return key
}

// visit carries a leg to its node and the replies back, and tells the node's breaker what came of it. It may take longer
// than callers wait; that breaker hears of it in time.
func (l *line) visit(ctx context.Context, g *leg) {
	overdue := time.AfterFunc(l.timeout, func() { g.node.report(errStoreTimeout) })
	err := l.exec(ctx, g.cmds)
	if err == nil {
		err = l.teach(ctx, g.scripts)
	}
	failure := err
	for _, cmd := range g.cmds {
		switch cerr := cmd.Err(); {
		case cerr == nil && err != nil:
			cmd.SetErr(err)
		case cerr != nil && failure == nil && failing(cerr):
			failure = cerr
		}
	}
	// A trip that came back late has been reported.
	if overdue.Stop() {
		g.node.report(failure)
	}
}

// aside runs f beside the workers, unless the line is closed, with a context that ends with it or after the time limit.
func (l *line) aside(f func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.workers++
	go func() {
		defer l.leave()
		ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
		defer cancel()
		f(ctx)
	}()
}

// answered says whether the replies of c are there though it failed with err: those of the nodes that have not failed.
func (c *call) answered(err error) bool {
	var node nodeError
	return errors.As(err, &node) && c.err == nil && !errors.Is(err, errStoreTimeout)
}

// ofNode makes err a nodeError when it is the failure of single nodes, which have been told of it.
func (l *line) ofNode(c *call, err error) error {
	var left callerLeft
	if err == nil || l.nodes == nil || !c.sent.Load() || errors.As(err, &left) || errors.Is(err, errStoreClosed) {
		return err
	}
	return nodeError{err}
}
