package sqlherd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// RulesFileBytesMax bounds the size of Config.RulesFile.
	RulesFileBytesMax = 1 << 20

	// rulesPollInterval is how often the rules file is looked at. A change is
	// taken over at the second look that finds it the same, hence within twice this.
	rulesPollInterval = 2 * time.Second
)

// A Rule gives a policy to queries that cannot be edited: those of an ORM, a
// library, a report tool. Of several rules the first one that matches a query
// holds. A hint in the query beats it, as does WithPolicy.
//
// A rule matches when everything that it says matches; it must say something.
// All guards apply as with a hint, and one more: a rule never makes a query with a time function
// (now(), CURRENT_DATE) cached, because whoever wrote the query did not ask for it.
//
// A rules file (Config.RulesFile) holds the same in YAML. Its policies use the
// names and the notation of hints, and on-wait-timeout (load or error):
//
//	rules:
//	  - name: GetProduct*
//	    policy: {ttl: 30s, swr: 5m, tags: ["product/{1}"]}
//	  - tables: [countries, currencies]
//	    policy: {ttl: 1h, max-rows: 500}
//	  - pattern: '(?i)^select .* from audit_log'
//	    policy: {ttl: off}
type Rule struct {
	// Query is the whole text of the statement. Comments and white space outside
	// literals do not count, all else does. Defaults to any.
	Query string

	// Pattern is a regular expression (package regexp) that must match somewhere
	// in the text, of which comments are dropped and white space is folded into single spaces.
	// Defaults to any.
	Pattern string

	// Tables are all the tables that the query may read: it must read one of them, and
	// none that is not listed, so that a rule for countries does not catch a join of countries with
	// orders. Schemas, quotes and case do not count. Defaults to any.
	Tables []string

	// Name is the name that sqlc gave the query ("-- name: GetProduct :one"), with
	// the wildcards of path.Match: * ? [a-z]. Defaults to any.
	Name string

	// Policy is what the matching queries get. A negative TTL keeps them out of
	// the cache, and from the rules below. Defaults to Config.Default, field by field.
	Policy Policy
}

func (r Rule) clone() Rule {
	r.Tables = slices.Clone(r.Tables)
	r.Policy = r.Policy.clone()
	return r
}

// validate returns every problem of r as an error of its own; where is what the
// user calls r.
func (r Rule) validate(where string) []error {
	var problems []error
	if r.Query == "" && r.Pattern == "" && len(r.Tables) == 0 && r.Name == "" {
		problems = append(problems, fmt.Errorf("sqlherd: %s matches nothing; it needs a Query, a Pattern, Tables or a Name", where))
	}
	if _, err := regexp.Compile(r.Pattern); err != nil {
		problems = append(problems, fmt.Errorf("sqlherd: %s.Pattern is %q; %w", where, r.Pattern, err))
	}
	for i, t := range r.Tables {
		if err := checkTable(t); err != nil {
			problems = append(problems, fmt.Errorf("sqlherd: %s.Tables[%d] is %q; %w", where, i, t, err))
		}
	}
	if _, err := path.Match(r.Name, ""); err != nil {
		problems = append(problems, fmt.Errorf("sqlherd: %s.Name is %q; must be a name or a pattern as path.Match knows it", where, r.Name))
	}
	return append(problems, r.Policy.validate(where+".Policy")...)
}

// A ruleSet is rules made ready for matching. It does not change, and is safe for
// concurrent use. A nil one is empty.
type ruleSet struct {
	rules []compiledRule
}

type compiledRule struct {
	rule    Rule
	query   string
	pattern *regexp.Regexp
	tables  map[string]bool
}

// compileRules makes a set of rules that were validated. normalize is what makes
// the text part of a key out of a statement, so that Rule.Query meets it.
func compileRules(rules []Rule, normalize func(string) string) (*ruleSet, error) {
	set := &ruleSet{rules: make([]compiledRule, len(rules))}
	for i, r := range rules {
		c := compiledRule{rule: r}
		if r.Query != "" {
			c.query = normalize(r.Query)
		}
		if r.Pattern != "" {
			var err error
			if c.pattern, err = regexp.Compile(r.Pattern); err != nil {
				return nil, fmt.Errorf("sqlherd: rule %d: %w", i, err)
			}
		}
		if len(r.Tables) > 0 {
			c.tables = make(map[string]bool, len(r.Tables))
			for _, t := range r.Tables {
				c.tables[tableName(t)] = true
			}
		}
		set.rules[i] = c
	}
	return set, nil
}

// match returns the first rule for a statement, or nil. text is its normalized
// text, name its name by sqlc or "", tables are those that it reads, in the form of
// tableName. It is called once per text, when the plan is made.
func (s *ruleSet) match(text, name string, tables []string) *Rule {
	if s == nil {
		return nil
	}
	for i := range s.rules {
		if c := &s.rules[i]; c.matches(text, name, tables) {
			return &c.rule
		}
	}
	return nil
}

func (c *compiledRule) matches(text, name string, tables []string) bool {
	if c.query != "" && c.query != text {
		return false
	}
	if c.rule.Name != "" {
		// The pattern was validated; name == "" must not match "*".
		if ok, _ := path.Match(c.rule.Name, name); !ok || name == "" {
			return false
		}
	}
	if c.tables != nil {
		if len(tables) == 0 {
			return false
		}
		for _, t := range tables {
			if !c.tables[t] {
				return false
			}
		}
	}
	// Last, because it costs the most.
	return c.pattern == nil || c.pattern.MatchString(text)
}

// loadRulesFile reads the rules of a file. Its error names the file, and the
// line where there is one. All problems are reported together.
func loadRulesFile(file string) ([]Rule, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("sqlherd: Config.RulesFile is %q; %w", file, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, RulesFileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("sqlherd: rules file: %w", err)
	}
	if len(data) > RulesFileBytesMax {
		return nil, fmt.Errorf("sqlherd: rules file %s is too large; must be at most %d bytes", file, RulesFileBytesMax)
	}
	return parseRules(file, data)
}

// parseRules parses the content of a rules file. It walks the nodes itself,
// because decoding into structs would know neither the line of a bad value nor
// the difference between "swr: 0" and no swr.
func parseRules(file string, data []byte) ([]Rule, error) {
	p := rulesParser{file: file}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		// More likely a file that is just being written than a wish for no rules.
		return nil, fmt.Errorf("sqlherd: %s: is empty; for no rules write rules: []", file)
	case err != nil:
		return nil, yamlError(file, err)
	}
	var more yaml.Node
	switch err := d.Decode(&more); {
	case err == nil:
		p.bad(&more, "a second document; one file holds one list of rules")
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, err)
	}
	rules := p.document(&doc)
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return rules, nil
}

// yamlError turns "yaml: line 3: did not find expected key" into the form of our
// own errors, file:line.
func yamlError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if line, problem, ok := strings.Cut(text, ": "); ok {
		if n, ok := strings.CutPrefix(line, "line "); ok {
			return fmt.Errorf("sqlherd: %s:%s: %s", file, n, problem)
		}
	}
	return fmt.Errorf("sqlherd: %s: %s", file, text)
}

type rulesParser struct {
	file     string
	problems []error
}

// bad notes a problem at the place of n.
func (p *rulesParser) bad(n *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("sqlherd: %s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...)))
}

func (p *rulesParser) document(doc *yaml.Node) []Rule {
	if len(doc.Content) != 1 {
		p.bad(doc, "must be a mapping with the key rules")
		return nil
	}
	var rules []Rule
	found := false
	p.mapping(doc.Content[0], "the file", func(key string, k, v *yaml.Node) {
		if key != "rules" {
			p.bad(k, "unknown key %q; there is rules", key)
			return
		}
		found = true
		if v.Kind != yaml.SequenceNode {
			p.bad(v, "rules must be a list")
			return
		}
		for i, n := range v.Content {
			rules = append(rules, p.rule(n, i))
		}
	})
	if !found && len(p.problems) == 0 {
		p.bad(doc.Content[0], "the key rules is missing; for no rules write rules: []")
	}
	return rules
}

func (p *rulesParser) rule(n *yaml.Node, i int) (r Rule) {
	before := len(p.problems)
	hasPolicy := false
	p.mapping(n, "a rule", func(key string, k, v *yaml.Node) {
		switch key {
		case "query":
			r.Query = p.scalar(v, key)
		case "pattern":
			r.Pattern = p.scalar(v, key)
			if _, err := regexp.Compile(r.Pattern); err != nil {
				p.bad(v, "pattern: %v", err)
				r.Pattern = ""
			}
		case "tables":
			r.Tables = p.list(v, key)
		case "name":
			r.Name = p.scalar(v, key)
		case "policy":
			hasPolicy = true
			r.Policy = p.policy(v)
		default:
			p.bad(k, "unknown key %q; there are query, pattern, tables, name and policy", key)
		}
	})
	if len(p.problems) > before {
		return r
	}
	if !hasPolicy {
		p.bad(n, "the rule has no policy; for the defaults write policy: {}")
	}
	// What is left after the checks above names no line of its own.
	for _, err := range r.validate(fmt.Sprintf("rules[%d]", i)) {
		p.bad(n, "%s", strings.TrimPrefix(err.Error(), "sqlherd: "))
	}
	return r
}

func (p *rulesParser) policy(n *yaml.Node) (pol Policy) {
	p.mapping(n, "policy", func(key string, k, v *yaml.Node) {
		var err error
		switch {
		case key == "tags" || key == "tables":
			list := p.list(v, key)
			if list == nil {
				return // told already
			}
			err = pol.setList(key, list)
		case key == "on-wait-timeout":
			switch s := p.scalar(v, key); s {
			case "":
			case WaitLoad.String():
				pol.OnWaitTimeout = WaitLoad
			case WaitError.String():
				pol.OnWaitTimeout = WaitError
			default:
				err = errors.New("must be load or error")
			}
		case slices.Contains(optionNames, key):
			s := p.scalar(v, key)
			if s == "" {
				return
			}
			err = pol.setOption(key, s)
		default:
			p.bad(k, "unknown option %q; there are %s, on-wait-timeout", key, strings.Join(optionNames, ", "))
			return
		}
		if err != nil {
			p.bad(v, "%s: %v", key, err)
		}
	})
	return pol
}

// mapping calls each for every key of n, which what must be a mapping.
func (p *rulesParser) mapping(n *yaml.Node, what string, each func(key string, k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.bad(n, "%s must be a mapping", what)
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		// Anchors and aliases, by which a small file becomes a large one, have no use here.
		if k.Kind != yaml.ScalarNode || v.Kind == yaml.AliasNode {
			p.bad(k, "anchors, aliases and keys that are no words are not supported")
			continue
		}
		if seen[k.Value] {
			p.bad(k, "%q is given twice", k.Value)
			continue
		}
		seen[k.Value] = true
		each(k.Value, k, v)
	}
}

// scalar returns the text of n as it stands in the file; "" when it was reported.
// What YAML would make of it (off is a bool to some, 1e3 a float) does not matter.
func (p *rulesParser) scalar(n *yaml.Node, key string) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		p.bad(n, "%s must have a value, and one only", key)
		return ""
	}
	return n.Value
}

// list returns the elements of n: a sequence, or one word. Nil when it was reported.
func (p *rulesParser) list(n *yaml.Node, key string) []string {
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return []string{n.Value}
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.bad(n, "%s must be a list that is not empty; write none for nothing", key)
		return nil
	}
	var list []string
	for _, item := range n.Content {
		s := p.scalar(item, key)
		if s == "" {
			return nil
		}
		list = append(list, s)
	}
	return list
}

// A rulesWatcher keeps the rules of a file up to date. It looks at the file every few
// seconds, since a poll works where notifications do not (NFS, Kubernetes'
// ConfigMaps, editors that rename) and needs no dependency. Its owner is the Herd.
type rulesWatcher struct {
	path   string
	every  time.Duration
	logger *slog.Logger

	// apply takes rules over. It is called from the watcher's goroutine, one call at a time. An error
	// counts as a broken file.
	apply func([]Rule) error

	// loaded is the state of the file that was last read, with whatever result;
	// seen is its state at the last look. Only newRulesWatcher and run touch them.
	loaded, seen os.FileInfo
	missing      bool // told that the file is gone

	reloads  atomic.Int64 // changes taken over
	failures atomic.Int64 // broken changes

	startOnce sync.Once
	stopOnce  sync.Once
	quit      chan struct{}
	done      sync.WaitGroup
}

// newRulesWatcher reads the file for the first time, and hands its rules to
// apply. Unlike later ones, an error of this reading is the caller's.
func newRulesWatcher(file string, logger *slog.Logger, apply func([]Rule) error) (*rulesWatcher, error) {
	w := &rulesWatcher{path: file, every: rulesPollInterval, logger: logger, apply: apply, quit: make(chan struct{})}
	// The state from before the reading: a change in between is then seen as one.
	w.loaded, _ = os.Stat(file) // an error is loadRulesFile's too
	rules, err := loadRulesFile(file)
	if err != nil {
		return nil, err
	}
	if err := apply(rules); err != nil {
		return nil, fmt.Errorf("sqlherd: %s: %w", file, err)
	}
	w.seen = w.loaded
	return w, nil
}

// start begins to look.
func (w *rulesWatcher) start() {
	w.startOnce.Do(func() { w.done.Go(w.run) })
}

// stop ends the watcher and waits for its goroutine. It may be called again, and
// without start.
func (w *rulesWatcher) stop() {
	w.startOnce.Do(func() {}) // a start that comes later does nothing
	w.stopOnce.Do(func() { close(w.quit) })
	w.done.Wait()
}

func (w *rulesWatcher) run() {
	t := time.NewTicker(w.every)
	defer t.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-t.C:
			w.look()
		}
	}
}

// look takes over a change of the file.
//
//	state of the file        what is done
//	as last read             nothing
//	new since the last look  remembered: somebody may be in the middle of writing it
//	new, as at the last look read; if broken, told once and not read again until it changes
//	gone                     told once; the rules stay
func (w *rulesWatcher) look() {
	info, err := os.Stat(w.path)
	if err != nil {
		if !w.missing {
			w.missing = true
			w.fail(err)
		}
		return
	}
	w.missing = false
	settled := sameFile(info, w.seen)
	w.seen = info
	if !settled || sameFile(info, w.loaded) {
		return
	}
	w.loaded = info
	rules, err := loadRulesFile(w.path)
	if err == nil {
		err = w.apply(rules)
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.reloads.Add(1)
	w.logger.LogAttrs(context.Background(), slog.LevelInfo, "sqlherd: rules file taken over",
		slog.String("file", w.path), slog.Int("rules", len(rules)))
}

func (w *rulesWatcher) fail(err error) {
	w.failures.Add(1)
	w.logger.LogAttrs(context.Background(), slog.LevelError, "sqlherd: rules file is broken; the rules before it stay",
		slog.String("file", w.path), slog.String("error", err.Error()))
}

// sameFile reports whether a file has not changed between two looks. A file that
// was put in another's place with its time and size is another.
func sameFile(a, b os.FileInfo) bool {
	return a != nil && b != nil && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}
