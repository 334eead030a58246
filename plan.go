package sqlherd

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// A plan is what is known of a query's text for one source: what kind of statement it is,
// its policy, its tables, and the part of the key that does not change.
// It is made once per text, and the number of plans kept is bounded, since comments with trace
// identifiers can make every text unique. All but the atomics is fixed when it is made.
type plan struct {
	src  *source
	text string // "" when the plan is not kept
	stmt sqllex.Statement
	name string // label of the query family

	policy  *Policy // nil: none applies
	tags    []tagTemplate
	hinted  *hint // nil: no hint
	hintErr error
	byRule  bool   // policy comes from a rule, not from a hint
	off     bool   // @nocache, or a TTL of nothing
	refresh bool   // @refresh
	guard   Reason // why the statement can never be cached
	foreign string // a table that is not in Config.Tables, under policy

	reads []string // tables it depends on, as tags
	scope string   // of policy; see policyScope

	mayWrite   bool // that a hint says it writes nothing does not count
	plain      bool // no policy, no hint, no effects: nothing is asked of us
	hasEffects bool // any of the following
	taints     bool
	strings    bool // it taints, and may change how strings are read
	ambiguous  bool // it may be another statement where strings are read otherwise
	tx         sqllex.TxEffect
	writes     writeEffects // apart from tags with arguments
	writeTags  []tagTemplate

	// scans says that Scan was given a destination which only the driver can fill: see columnscan.go.
	scans atomic.Bool

	heads  [2][]byte // of keys: simple and prepared
	counts *familyCounts
	rules  *rulesVersion // that it was made under
}

// planTextMax bounds the texts that are kept, and those that can be cached.
const planTextMax = 64 << 10

// plansKept bounds how many plans one source keeps.
const plansKept = 4096

type planCache struct {
	src   *source
	cache *otter.Cache[string, *plan]
}

func newPlanCache(s *source) *planCache {
	// The options are constants that otter accepts.
	return &planCache{src: s, cache: otter.Must(&otter.Options[string, *plan]{MaximumSize: plansKept})}
}

func (pc *planCache) close() { pc.cache.StopAllGoroutines() }

// plan returns the plan of a text.
func (s *source) plan(text string) *plan {
	if p, ok := s.plans.cache.GetIfPresent(text); ok && p.rules == s.h.rules.Load() {
		return p
	}
	p := s.makePlan(text)
	if len(text) <= planTextMax {
		// The application's own string, so that conn.planFor sees the same one again.
		p.text = text
		s.plans.cache.Set(text, p)
	}
	return p
}

// plansRecent is how many plans a conn keeps at hand. Most texts are constants of the program, and
// two strings of the same bytes in memory are equal without a look at them.
const plansRecent = 4

// planFor returns the plan of what the conn is about to run.
func (c *conn) planFor(st *stmt, query string) *plan {
	rules := c.h.rules.Load()
	if st != nil && st.p.rules == rules {
		return st.p
	}
	for _, p := range c.recent {
		if p != nil && p.text == query && p.rules == rules {
			return p
		}
	}
	p := c.src.plan(query)
	if st != nil {
		st.p = p
	}
	if p.text != "" {
		c.recent[c.nextRecent%plansRecent] = p
		c.nextRecent++
	}
	return p
}

func (s *source) makePlan(text string) *plan {
	h := s.h
	p := &plan{src: s, stmt: sqllex.Analyze(text, s.lex), rules: h.rules.Load()}
	p.guard = guardReason(p.stmt.Guard)
	if len(text) > planTextMax && p.guard == ReasonNone {
		p.guard = ReasonText
	}
	p.name = sqlcName(p.stmt.Comments)
	p.makePolicy(text)
	p.makeEffects()
	p.strings = p.taints && turnsStrings(text)
	p.ambiguous = strings.Contains(text, `\'`) || strings.Contains(text, `\"`)
	if p.name == "" {
		sum := sha256.Sum256([]byte(p.stmt.Key))
		p.name = "q-" + hex.EncodeToString(sum[:4])
	}
	if p.policy != nil {
		p.counts = h.families.of(p.name)
	} else {
		p.counts = &noFamily
	}
	return p
}

// makePolicy finds the policy: the hint's, else a rule's. A context's comes with the call.
func (p *plan) makePolicy(text string) {
	h := p.src.h
	var said Policy
	if len(p.stmt.Comments) > 0 {
		ht, err := parseHint(text, p.stmt.Comments)
		if err != nil {
			p.hintErr = err
			p.hinted = &ht
			if ht.kind == hintInvalidate {
				return
			}
		} else if ht.kind != hintNone {
			p.hinted = &ht
		}
	}
	switch {
	case p.hintErr != nil:
		return
	case p.hinted != nil:
		switch p.hinted.kind {
		case hintNoCache:
			p.off = true
			return
		case hintInvalidate:
			return
		}
		p.refresh = p.hinted.kind == hintRefresh
		said = p.hinted.policy
	default:
		rule := p.rules.of(p.src.dialect).match(p.stmt.Key, p.name, p.stmt.Reads)
		if rule == nil {
			return
		}
		p.byRule = true
		said = rule.Policy
	}
	pol, err := h.resolve(said)
	if err != nil {
		p.hintErr = err
		return
	}
	p.setPolicy(pol)
}

// setPolicy takes over what of the policy belongs to the plan.
func (p *plan) setPolicy(pol *Policy) {
	h := p.src.h
	p.policy = pol
	p.off = pol.TTL <= 0
	if pol.Name != "" {
		p.name = pol.Name
	}
	p.tags, _ = parseTags(pol.Tags) // resolve has checked them
	tables := tablesFor(p.stmt.Reads, pol.Tables)
	p.foreign = h.foreignTable(tables)
	p.reads = tableTags(tables)
	p.scope = policyScope(pol)
}

// policyScope is the part of a key that the policy decides. Comments, and with them the hint, are no part of the
// key's text, but two policies are two results: an entry that lacks a tag which its reader names would outlive
// that tag's invalidation, and one that was stored for longer than its reader allows would be fresh for too long.
func policyScope(pol *Policy, lists ...[]string) string {
	b := make([]byte, 0, 64)
	for _, d := range []time.Duration{pol.TTL, pol.SWR, pol.SIE, pol.Empty} {
		b = binary.AppendUvarint(b, uint64(d/time.Millisecond))
	}
	for _, l := range append(lists, pol.Tags, pol.Tables) {
		b = appendScope(b, l...)
	}
	return string(b)
}

// foreignTable returns the first of tables that is not in Config.Tables; "" if all are.
func (h *Herd) foreignTable(tables []string) string {
	if len(h.tables) == 0 {
		return ""
	}
	for _, t := range tables {
		if !h.tables[t] {
			return t
		}
	}
	return ""
}

// mayCache says whether a query of this text may be answered without the database, so that
// preparing it can wait.
func (p *plan) mayCache() bool {
	return p.policy != nil && p.guard == ReasonNone && p.foreign == "" && !p.off
}

// head returns the part of the key that the text decides.
func (p *plan) head(prepared bool) []byte {
	if prepared {
		return p.heads[1]
	}
	return p.heads[0]
}

func (p *plan) makeEffects() {
	st := &p.stmt
	p.taints, p.tx = st.Taints, st.Tx
	named, none := []string(nil), false
	if p.hinted != nil && p.hinted.kind == hintInvalidate {
		p.writeTags = p.hinted.tags
		named = p.hinted.policy.Tables
		none = slices.Contains(named, "none")
	}
	switch {
	case p.hintErr != nil && p.hinted != nil && p.hinted.kind == hintInvalidate:
		// It wants something forgotten, and we do not know what.
		p.writes.all = true
	case st.AllTables && !none && len(p.writeTags) == 0 && len(named) == 0 && !p.saidToRead():
		// A hint narrows what cannot be known; without one it is everything.
		p.writes.all = true
	default:
		for _, t := range tableTags(tablesFor(st.Writes, named)) {
			if p.src.h.cachesTable(t) {
				p.writes.tags = append(p.writes.tags, t)
			}
		}
	}
	p.mayWrite = len(st.Writes) > 0 || p.writes.any() || len(p.writeTags) > 0 || st.AllTables && !p.saidToRead()
	p.hasEffects = p.taints || p.tx != sqllex.TxNone || p.writes.any() || len(p.writeTags) > 0 || p.stmt.Commits
	p.plain = p.policy == nil && p.hinted == nil && p.hintErr == nil && !p.hasEffects
	p.heads[0] = keyHead(p.src.h.cfg.Namespace, p.src.identity, st.Key, st.Naming, false)
	p.heads[1] = keyHead(p.src.h.cfg.Namespace, p.src.identity, st.Key, st.Naming, true)
}

// saidToRead says whether the statement only calls a function that nobody knows, and its own hint says that
// it is a query: who asks for a report to be cached does not want everything forgotten each time it is asked for.
func (p *plan) saidToRead() bool {
	return p.stmt.Calls && p.hinted != nil && p.hintErr == nil && p.hinted.kind != hintInvalidate
}

// effectsOf returns what running the statement with args may write. Its error is that of an @invalidate into
// which an argument could not be put, or of a context's tag that is none: forget everything then, rather than too little.
func (p *plan) effectsOf(ctx context.Context, args []driver.NamedValue) (writeEffects, error) {
	if !p.mayWrite {
		return writeEffects{}, nil
	}
	e := p.writes
	for _, t := range p.writeTags {
		tag, err := t.expand(args)
		if err != nil {
			return writeEffects{all: true}, err
		}
		e.tags = append(slices.Clip(e.tags), tagPrefix+tag)
	}
	if o := optionsOf(ctx); o != nil {
		if o.badTag != nil {
			return writeEffects{all: true}, o.badTag
		}
		for _, t := range o.tags {
			e.tags = append(slices.Clip(e.tags), tagPrefix+t)
		}
	}
	if p.hinted != nil && p.hinted.soft {
		e = e.softly()
	}
	return e, nil
}

// tags returns the tags that the query's rows depend on.
func (q *queryState) tags(args []driver.NamedValue) ([]string, error) {
	p := q.p
	templates, reads := p.tags, p.reads
	if q.pol != p.policy {
		// A context's policy beats the hint, but for its tags: to lose one would cost
		// stale rows, to have one too many costs a miss.
		own, _ := parseTags(q.pol.Tags) // resolve has checked them
		templates = append(slices.Clip(own), p.tags...)
		reads = tableTags(tablesFor(p.stmt.Reads, q.pol.Tables))
	}
	tags := make([]string, 0, 1+len(reads)+len(templates))
	tags = append(tags, tagEverything)
	tags = append(tags, reads...)
	for _, t := range templates {
		tag, err := t.expand(args)
		if err != nil {
			return nil, err
		}
		tags = append(tags, tagPrefix+tag)
	}
	if q.opts != nil {
		for _, t := range q.opts.tags {
			tags = append(tags, tagPrefix+t)
		}
	}
	return tags, nil
}

// mayHaveWritten says whether the statement may have written though it ended with err.
func (p *plan) mayHaveWritten(err error) bool {
	// Of several statements, or of a procedure, the last one alone may have failed.
	return p.stmt.Guard == sqllex.GuardMulti || p.stmt.AllTables || !refusedWhole(err)
}

// tableTags returns the tags of tables, whose names are in the lexer's form: to bring them there again would
// take the "b" of "a.b" for a table in the schema "a".
func tableTags(tables []string) []string {
	out := make([]string, len(tables))
	for i, t := range tables {
		out[i] = tablePrefix + t
	}
	return out
}

// writeEffects are the tags that a statement, or a transaction, invalidates.
type writeEffects struct {
	all  bool // everything
	tags []string
	soft []string // softly; everything is tagEverything alone
}

func (e writeEffects) any() bool  { return e.hard() || len(e.soft) > 0 }
func (e writeEffects) hard() bool { return e.all || len(e.tags) > 0 }

// softly is e with soft invalidations alone.
func (e writeEffects) softly() writeEffects { return writeEffects{soft: e.list()} }

// effectsMax bounds the tags that one transaction is remembered to have written; more are
// everything.
const effectsMax = 1000

func (e *writeEffects) add(o writeEffects) {
	e.all = e.all || o.all
	for _, t := range o.tags {
		if e.all {
			break
		}
		if !slices.Contains(e.tags, t) {
			e.tags = append(e.tags, t)
		}
		e.all = len(e.tags) > effectsMax
	}
	if e.all {
		e.tags, e.soft = nil, nil
		return
	}
	for _, t := range o.soft {
		if !slices.Contains(e.soft, t) {
			e.soft = append(e.soft, t)
		}
		if t == tagEverything || len(e.soft) > effectsMax {
			e.soft = []string{tagEverything}
			break
		}
	}
}

// list returns the tags to invalidate.
func (e writeEffects) list() []string {
	if e.all {
		return []string{tagEverything}
	}
	return e.tags
}

// softList returns the tags to invalidate softly, without those that are invalidated anyhow.
func (e writeEffects) softList() []string {
	if len(e.tags) == 0 || len(e.soft) == 0 {
		return e.soft
	}
	var out []string
	for _, t := range e.soft {
		if !slices.Contains(e.tags, t) {
			out = append(out, t)
		}
	}
	return out
}

func guardReason(g sqllex.Guard) Reason {
	switch g {
	case sqllex.GuardNone:
		return ReasonNone
	case sqllex.GuardWrite:
		return ReasonWrite
	case sqllex.GuardLocking:
		return ReasonLocking
	case sqllex.GuardVolatile:
		return ReasonVolatile
	case sqllex.GuardMulti:
		return ReasonMulti
	case sqllex.GuardSession:
		return ReasonSession
	case sqllex.GuardCatalog:
		return ReasonCatalog
	}
	return ReasonText
}

// lex is the lexer's name of the dialect.
func (d Dialect) lex() sqllex.Dialect {
	switch d {
	case PostgreSQL:
		return sqllex.PostgreSQL
	case MySQL:
		return sqllex.MySQL
	case SQLite:
		return sqllex.SQLite
	}
	return sqllex.Unknown
}

// familyCounts counts the outcomes of one query family.
type familyCounts struct {
	name   string
	counts [outcomes]atomic.Uint64
}

func (f *familyCounts) add(o Outcome) {
	if f != &noFamily {
		f.counts[o].Add(1)
	}
}

// noFamily takes the counts of queries without a policy: nobody reads them.
var noFamily familyCounts

// familiesKept bounds how many families are counted apart; the rest is counted together.
const familiesKept = 1024

type families struct {
	mu     sync.Mutex
	m      map[string]*familyCounts
	rest   familyCounts
	logged map[string]bool // families whose malformed hint has been logged
}

// firstMistake answers true once for a family. It goes by the family and not by the text, which
// trace comments can make another one each time.
func (f *families) firstMistake(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logged[name] || len(f.logged) >= familiesKept {
		return false
	}
	if f.logged == nil {
		f.logged = make(map[string]bool)
	}
	f.logged[name] = true
	return true
}

func (f *families) of(name string) *familyCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.m[name]; c != nil {
		return c
	}
	if len(f.m) >= familiesKept {
		return &f.rest
	}
	if f.m == nil {
		f.m = make(map[string]*familyCounts)
	}
	c := &familyCounts{name: name}
	f.m[name] = c
	return c
}
