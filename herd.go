package sqlherd

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// A Herd is one cache with its policies: what New returns, and what wraps drivers and
// connectors. It is safe for concurrent use. One Herd may be beneath many
// pools; their results are kept apart by the database's identity.
type Herd struct {
	cfg      Config
	engine   *engine
	counters *counters
	families families
	rules    atomic.Pointer[rulesVersion]
	watcher  *rulesWatcher
	retry    *retryQueue // nil without Redis
	tables   map[string]bool
	log      *slog.Logger
	observed bool // somebody listens to events
	nonce    string
	serial   atomic.Uint64
	enabled  atomic.Bool
	closed   atomic.Bool
	outage   atomic.Bool // rows are served because the database is unavailable, and that was logged
	fenceLog sync.Once
	fences   fences

	mu         sync.Mutex
	sources    map[*source]struct{}
	taintWords map[string]bool // that were told of
	// unknownNames are the statements that were told of because they invalidate everything.
	unknownNames map[string]bool

	closing   sync.Once
	closeDone chan struct{}
	closeErr  error
}

// New makes a Herd. It reports every invalid field of cfg by its name, all together. It does not ask
// Redis: one that is away makes queries go to the database, not New fail. It reads
// Config.RulesFile.
func New(cfg Config) (*Herd, error) {
	cfg = cfg.withDefaults()
	problems := cfg.validate()
	var watcher *rulesWatcher
	var fileRules []Rule
	if cfg.RulesFile != "" {
		// Read already, so that its mistakes are told together with the others.
		var err error
		watcher, err = newRulesWatcher(cfg.RulesFile, cfg.Logger, func(r []Rule) error { fileRules = r; return nil })
		problems = errors.Join(problems, err)
	}
	if problems != nil {
		return nil, problems
	}
	h := &Herd{
		cfg:          cfg,
		counters:     &counters{},
		log:          cfg.Logger,
		observed:     cfg.Observer != nil,
		nonce:        rand.Text(),
		sources:      make(map[*source]struct{}),
		taintWords:   make(map[string]bool),
		unknownNames: make(map[string]bool),
		closeDone:    make(chan struct{}),
	}
	h.enabled.Store(true)
	if len(cfg.Tables) > 0 {
		h.tables = make(map[string]bool, len(cfg.Tables))
		for _, t := range cfg.Tables {
			h.tables[tableName(t)] = true
		}
	}
	if err := h.setRules(fileRules); err != nil {
		return nil, err
	}
	if h.watcher = watcher; watcher != nil {
		watcher.apply = h.setRules // for the changes; it has not started yet
	}
	var observe Observer = ObserverBase{}
	if cfg.Observer != nil {
		observe = cfg.Observer
	}
	g, err := newEngine(&h.cfg, h.counters, observe, h.log)
	if err != nil {
		return nil, err
	}
	h.engine = g
	if cfg.Redis != nil {
		store, err := newRedisStore(redisStoreOptions{
			client:      cfg.Redis,
			namespace:   cfg.Namespace,
			timeout:     cfg.RedisTimeout,
			keys:        cfg.EntryKeys,
			logger:      h.log,
			loadTimeout: cfg.LoadTimeout,
			observe:     redisObserver(cfg.Observer),
		})
		if err != nil {
			g.close()
			return nil, err
		}
		h.useStore(store)
	}
	if h.watcher != nil {
		h.watcher.start()
	}
	return h, nil
}

// useStore gives the engine its second level. It is part of New.
func (h *Herd) useStore(s sharedStore) {
	h.engine.store = s
	h.retry = newRetryQueue(h.engine)
	h.engine.doubt, h.engine.back = h.retry.doubt, h.retry.hurry
	s.listen(h.engine)
}

func redisObserver(o Observer) func(string, time.Duration, error) {
	if o == nil {
		return nil
	}
	return func(op string, took time.Duration, err error) {
		o.RedisCall(RedisEvent{Op: op, Took: took, Err: err})
	}
}

func newEngine(cfg *Config, c *counters, observe Observer, log *slog.Logger) (*engine, error) {
	g := &engine{
		cfg:        cfg,
		base:       time.Now(),
		epochs:     newEpochs(),
		counters:   c,
		observe:    observe,
		log:        log,
		refreshing: make(chan struct{}, max(1, cfg.MaxLoads*3/4)),
	}
	var err error
	if g.mem, err = newMemory(cfg.Local, g.epochs); err != nil {
		return nil, err
	}
	if g.failures, err = newFailingKeys(&g.dice); err != nil {
		return nil, err
	}
	if g.unfit, err = newUnfitKeys(); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *engine) close() {
	g.loads.Close()
	g.asks.Close()
	g.watch.close()
	g.mem.close()
	g.failures.close()
	g.unfit.close()
}

// A rulesVersion is the rules of one moment, ready for texts of every dialect.
type rulesVersion struct{ sets [dialects]*ruleSet }

func (v *rulesVersion) of(d Dialect) *ruleSet { return v.sets[d] }

// setRules takes over the rules of the file; those of Config.Rules come first.
func (h *Herd) setRules(file []Rule) error {
	all := slices.Concat(h.cfg.Rules, file)
	v := &rulesVersion{}
	for d := range dialects {
		set, err := compileRules(all, func(text string) string { return sqllex.Analyze(text, d.lex()).Key })
		if err != nil {
			return err
		}
		v.sets[d] = set
	}
	h.rules.Store(v)
	return nil
}

// resolve fills a policy that was said somewhere, and checks it.
func (h *Herd) resolve(said Policy) (*Policy, error) {
	if problems := said.validate("Policy"); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	pol := said.resolve(h.cfg.Default, h.cfg.LoadTimeout)
	if _, err := parseTags(pol.Tags); err != nil {
		return nil, err
	}
	return &pol, nil
}

// SetEnabled is the kill switch: after SetEnabled(false) every query goes to the database and
// nothing is stored. Writes still invalidate. Loads under way end as they
// would have. It takes effect at once, in this process.
func (h *Herd) SetEnabled(on bool) { h.enabled.Store(on) }

// Warm runs query, which must have a policy, through db and stores its result, whether or not one is
// cached. It returns an error that names the reason when the query cannot be cached, and the
// database's error otherwise. It blocks until the rows are stored.
func (h *Herd) Warm(ctx context.Context, db *sql.DB, query string, args ...any) error {
	if other, ok := FromDB(db); !ok || other != h {
		return errors.New("sqlherd: Warm: db was not opened on a driver or connector of this Herd")
	}
	var info Info
	rows, err := db.QueryContext(WithInfo(Refresh(ctx), &info), query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		// To the end, where a load that failed half-way says so.
	}
	if err := rows.Err(); err != nil {
		return err
	}
	switch {
	case info.Outcome == Passthrough:
		return errors.New("sqlherd: Warm: the query has no policy; it needs a @cache hint, a rule or WithPolicy")
	case info.Outcome == Bypassed && info.Detail != "":
		return fmt.Errorf("sqlherd: Warm: not cached: %s (%s)", info.Reason, info.Detail)
	case info.Outcome == Bypassed:
		return fmt.Errorf("sqlherd: Warm: not cached: %s", info.Reason)
	}
	return nil
}

// Close ends the Herd: its loads and refreshes are cancelled, callers who wait for them get
// ErrClosed, and it returns when the last of its goroutines has ended. It closes neither the
// wrapped pools nor the Redis client. Queries that come later run uncached on the bare driver (reason "closed"). Redis is
// told of writes until Close returns, and not of those that come later: close the pools first. It may be called more than
// once, also concurrently, and before or after the pools are closed.
func (h *Herd) Close() error {
	h.closing.Do(func() {
		defer close(h.closeDone)
		h.closed.Store(true)
		if h.watcher != nil {
			h.watcher.stop()
		}
		h.engine.close()
		for _, s := range h.openSources() {
			h.closeErr = errors.Join(h.closeErr, s.loader.close())
		}
		h.fences.close()
		if h.retry != nil {
			if n := h.retry.close(); n > 0 {
				h.log.Warn("sqlherd: closed before Redis could be told of writes", "tags", n)
			}
			h.closeErr = errors.Join(h.closeErr, h.engine.store.close())
		}
	})
	<-h.closeDone
	return h.closeErr
}

func (h *Herd) pendingInvalidations() int {
	if h.retry == nil {
		return 0
	}
	return h.retry.len()
}

func (h *Herd) addSource(s *source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sources[s] = struct{}{}
}

func (h *Herd) removeSource(s *source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sources, s)
}

func (h *Herd) openSources() []*source {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*source, 0, len(h.sources))
	for s := range h.sources {
		out = append(out, s)
	}
	return out
}

// tainted counts a session whose state has become unknown, and says once for each word that does
// it what to do about it.
func (h *Herd) tainted(word, query string) {
	h.counters.taints.Add(1)
	h.mu.Lock()
	known := h.taintWords[word] || len(h.taintWords) >= taintWordsMax
	if !known {
		h.taintWords[word] = true
	}
	h.mu.Unlock()
	if !known {
		h.log.Warn("sqlherd: a statement, or Raw, leaves its connection in a state that is not known; while that connection lives, reads on it are not cached. "+
			"Put settings into the DSN, or run such statements on a pool of their own", "word", word, "query", query)
	}
}

// taintWordsMax bounds how many words are told.
const taintWordsMax = 32
