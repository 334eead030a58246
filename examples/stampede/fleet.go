package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// swr is how long stale rows may be served in the modes that do. It only has to
// outlast a refresh.
const swr = time.Minute

const (
	// roundLead is how far ahead a round is announced, so that all workers are ready.
	roundLead = 100 * time.Millisecond
	// expiryMargin is how long after the end of the TTL the callers come.
	expiryMargin = 50 * time.Millisecond
	// workerGrace is how long a worker that has been told to end may take.
	workerGrace = 5 * time.Second
	// bareMax is the time after which the mode without sqlherd begins no further round. A database
	// that has to fork a process for each of a thousand connections may take its time.
	bareMax = 25 * time.Second
)

// runMode starts the workers of a mode and leads them through the expiries:
//
//	all callers read · the last load ends · TTL passes · all callers read · …
//
// In the first round nothing is cached. Since nobody reads between two rounds, each
// costs at least one load, and whatever is more than one is a stampede.
func runMode(ctx context.Context, opt options, m mode, db database, cache *sharedCache, show *progress) (result, error) {
	show.start(m, m.procs(opt))
	if err := db.reset(ctx); err != nil {
		return result{}, err
	}
	f, err := startFleet(ctx, opt, m, db, cache)
	if err != nil {
		return result{}, err
	}
	defer f.kill()

	var seen sightings
	began := time.Now()
	for i := range opt.expiries {
		if !m.herd && i >= expiriesMin && time.Since(began) > bareMax {
			break
		}
		if i > 0 {
			if err := sleep(ctx, opt.ttl+expiryMargin); err != nil {
				return result{}, err
			}
		}
		show.expiry(i+1, opt.expiries)
		reports, err := f.round(time.Now().Add(roundLead))
		if err != nil {
			return result{}, err
		}
		seen.add(reports)
	}
	accounts, err := f.end()
	if err != nil {
		return result{}, err
	}

	outcomes := make(map[string]uint64)
	var ledgers []ledger
	var redisFailed uint64
	for _, a := range accounts {
		ledgers = append(ledgers, a.Ledger)
		redisFailed += a.RedisFailed
		for name, n := range a.Outcomes {
			outcomes[name] += n
		}
	}
	c, err := db.tally(ctx, ledgers)
	if err != nil {
		return result{}, err
	}
	r := newResult(opt, m, seen, c, outcomes)
	r.redisFailed = redisFailed
	return r, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// comment is what the mode puts into the query. The example switches off what would blur its figures:
// jitter, which lets rows expire earlier, and early refresh, which loads before they do.
func (m mode) comment(ttl time.Duration) string {
	switch {
	case !m.herd:
		return ""
	case m.swr:
		return fmt.Sprintf("/* @cache ttl=%v swr=%v jitter=off early=off name=product */", ttl, swr)
	}
	return fmt.Sprintf("/* @cache ttl=%v jitter=off early=off name=product */", ttl)
}

// A fleet is the workers of one mode.
type fleet struct {
	workers []*process
	cancel  context.CancelFunc
}

func startFleet(ctx context.Context, opt options, m mode, db database, cache *sharedCache) (_ *fleet, err error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{cancel: cancel}
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	procs := m.procs(opt)
	j := job{Query: db.query(m.comment(opt.ttl)), Source: db.source(procs), Herd: m.herd}
	if m.redis {
		j.Redis, j.Namespace = cache.url, objectName() // fresh: the cache is cold
	}
	for i := range procs {
		j.Callers = (opt.callers + i) / procs // adds up to opt.callers
		p, err := startProcess(ctx, j)
		if err != nil {
			return nil, err
		}
		f.workers = append(f.workers, p)
	}
	for _, p := range f.workers {
		if _, err := p.hear(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// round lets all callers read at at.
func (f *fleet) round(at time.Time) (reports []roundReport, err error) {
	for _, p := range f.workers {
		if err := p.tell(round{At: at.UnixNano()}); err != nil {
			return nil, err
		}
	}
	for _, p := range f.workers {
		a, err := p.hear()
		if err != nil {
			return nil, err
		}
		if a.Round == nil {
			return nil, errors.New("a worker answers a round with something else")
		}
		reports = append(reports, *a.Round)
	}
	return reports, nil
}

// end lets the workers come to their end, and returns their accounts.
func (f *fleet) end() (accounts []account, err error) {
	for _, p := range f.workers {
		if err := p.in.Close(); err != nil {
			return nil, err
		}
	}
	for _, p := range f.workers {
		a, err := p.hear()
		if err != nil {
			return nil, err
		}
		if a.Account == nil {
			return nil, errors.New("a worker ends without an account")
		}
		accounts = append(accounts, *a.Account)
	}
	for _, p := range f.workers {
		if err := p.wait(); err != nil {
			return nil, err
		}
	}
	return accounts, nil
}

// kill ends the workers that are left, at once, and waits for them.
func (f *fleet) kill() {
	f.cancel()
	for _, p := range f.workers {
		_ = p.wait() // that it was killed is no news
	}
}

// A process is a worker as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	enc    *json.Encoder
	dec    *json.Decoder
	stderr strings.Builder
	waited bool
}

func startProcess(ctx context.Context, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), workerEnv+"=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = workerGrace
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.enc, p.dec = json.NewEncoder(p.in), json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	// The job may hold passwords, so it is neither an argument nor in the environment.
	if err := p.tell(j); err != nil {
		return nil, errors.Join(err, p.wait())
	}
	return p, nil
}

func (p *process) tell(message any) error {
	if err := p.enc.Encode(message); err != nil {
		return fmt.Errorf("worker %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

func (p *process) hear() (a answer, err error) {
	switch err := p.dec.Decode(&a); {
	case errors.Is(err, io.EOF):
		err = p.wait()
		return a, fmt.Errorf("worker %d ended early: %w\n%s", p.cmd.Process.Pid, err, p.stderr.String())
	case err != nil:
		return a, fmt.Errorf("worker %d: %w", p.cmd.Process.Pid, err)
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

func (p *process) wait() error {
	if p.waited {
		return nil
	}
	p.waited = true
	_ = p.in.Close() // it may be closed already
	return p.cmd.Wait()
}
