package sqlherd

import (
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// A HintError says what is wrong with a hint, and where. With Config.StrictHints
// it is the error of the query; otherwise it is logged, once for each query family (the name
// by which Stats.Families counts it) and for at most 1,024 of them in a Herd's life, and the
// statement runs uncached.
type HintError struct {
	Option  string // the directive or option, as written
	Value   string // what follows its "=", as written
	Problem string

	Pos  int // byte offset in the text of the statement
	Line int // from 1; 0 when the hint fails only with the arguments of a call
	Col  int // from 1, in characters
}

func (e *HintError) Error() string {
	what := shorten(e.Option)
	if e.Value != "" {
		what += "=" + shorten(e.Value)
	}
	if e.Line == 0 {
		// It came to light when the arguments were put in.
		return fmt.Sprintf("sqlherd: malformed hint: %q: %s", what, e.Problem)
	}
	return fmt.Sprintf("sqlherd: malformed hint at line %d, column %d: %q: %s", e.Line, e.Col, what, e.Problem)
}

// shorten keeps a log line a line, whatever stands in the text.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// hintKind is the directive of a hint.
type hintKind uint8

const (
	hintNone       hintKind = iota
	hintCache               // @cache, and the attributes of sqlcache and Slonik
	hintNoCache             // @nocache
	hintRefresh             // @refresh: a @cache that loads now and replaces
	hintInvalidate          // @invalidate
)

// A hint is what the comments of one statement ask for.
type hint struct {
	kind hintKind

	// policy holds what was said; zero is "not said", as in every Policy, and an
	// explicit zero is the negative off value, so that "swr=0" beats a default of 5m.
	// For @invalidate only Tags and Tables are used.
	policy Policy

	// soft is @invalidate soft: results are stale rather than dead.
	soft bool

	// tags are policy.Tags, parsed.
	tags []tagTemplate
}

// parseHint finds the hint among the comments of a statement whose text is
// text. It returns a hint of kind hintNone when there is none. Its error is a
// *HintError; the hint then still tells the directive, and hintInvalidate if any of
// several was one, so that a write whose @invalidate cannot be understood
// is known to want more than its tables forgotten.
//
// The grammar:
//
//	hint       = directive { option }
//	directive  = "@cache" | "@nocache" | "@refresh" | "@invalidate"
//	option     = name "=" value | "soft" (of @invalidate)
//	value      = without white space; lists by commas, "none" for the empty list
//
// A directive counts when it is the first word of a comment, or of a line in a
// block comment, where a "*" that draws the box does not count; so prose that
// mentions @cache, or an address like me@cache.example, is none. Its options go on, over
// white space and line ends, until the comment ends, or a line begins with
// another word that starts with "@". What is no option there is malformed: a
// typing error must not turn into a query that quietly is cached another way.
//
// Nothing in it needs ? : or $, which sqlx, GORM and bun rebind even in comments.
//
// Attributes of sqlcache and of Slonik's query cache are understood as they
// are: @cache-ttl <seconds>, @cache-max-rows <n>, @cache-discard-empty <bool>,
// @cache-skip-empty-resultset <n>, all of which make up one hint, in one comment or
// in several. @cache-key and its kin are accepted and have no effect: the key here is
// always the whole text and every argument, which is never less exact.
func parseHint(text string, comments []sqllex.Comment) (hint, error) {
	p := hintParser{text: text}
	for _, c := range comments {
		if err := p.comment(c); err != nil {
			return hint{kind: p.hint.kind}, err
		}
	}
	if err := p.finish(); err != nil {
		return hint{kind: p.hint.kind}, err
	}
	return p.hint, nil
}

type hintParser struct {
	text string
	hint hint

	directive word            // where the hint began; zero without a hint
	legacy    bool            // it consists of @cache-… attributes
	seen      map[string]bool // options and attributes met
	list      string          // "tags" or "tables" if that is the option before; else ""
	ttl       bool            // legacy: @cache-ttl was met

	lineEnd int // where the comment before ended in text, if it was a line with the hint; else 0
}

// A word is a run of characters without white space, and where it is in the text.
type word struct {
	s     string
	pos   int
	first bool // of its line
}

// words splits s at white space; at is where s begins in the text. A "*" in front
// of a line's first word is dropped, so that hints can stand in /** boxes */.
func words(s string, at int) []word {
	var out []word
	first := true
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsSpace(r) {
			first = first || r == '\n' || r == '\r'
			i += n
			continue
		}
		end := len(s)
		if j := strings.IndexFunc(s[i:], unicode.IsSpace); j >= 0 {
			end = i + j
		}
		w := word{s: s[i:end], pos: at + i, first: first}
		if first {
			bare := strings.TrimLeft(w.s, "*")
			w.pos += len(w.s) - len(bare)
			w.s = bare
		}
		if w.s != "" {
			out = append(out, w)
			first = false
		}
		i = end
	}
	return out
}

// comment takes in one comment.
func (p *hintParser) comment(c sqllex.Comment) error {
	at := commentStart(p.text, c)
	// A line comment is delimited by -- or, in MySQL, by #.
	before, line := strings.CutSuffix(p.text[:at], "--")
	if !line {
		before, line = strings.CutSuffix(before, "#")
	}
	follows := line && p.lineEnd > 0 && p.lineEnd <= len(before) && strings.TrimSpace(before[p.lineEnd:]) == ""
	p.lineEnd = 0
	if !follows && !strings.Contains(c.Text, "@") {
		return nil // nearly every comment
	}

	ws := words(c.Text, at)
	if follows && len(ws) > 0 {
		// A hint that somebody went on with in the next line's comment. To drop the
		// rest without a word could lose the tag that a write relies on.
		if name, _, ok := strings.Cut(ws[0].s, "="); ok && slices.Contains(optionNames, name) {
			return p.errorAt(ws[0], `stands outside the hint, which ended with its line; use /* … */ for a longer one`)
		}
	}
	found := false
	for i := 0; i < len(ws); {
		if !ws[i].first || !isDirective(ws[i].s) {
			i++ // prose
			continue
		}
		n, err := p.parseDirective(ws[i:])
		if err != nil {
			return err
		}
		found = true
		i += n
	}
	if found && line {
		p.lineEnd = at + len(c.Text)
	}
	return nil
}

// commentStart returns where the text of c begins in the statement. c.Pos may be
// that of the delimiter.
func commentStart(text string, c sqllex.Comment) int {
	pos := min(max(c.Pos, 0), len(text))
	for at := pos; at <= min(pos+2, len(text)); at++ {
		if strings.HasPrefix(text[at:], c.Text) {
			return at
		}
	}
	return pos
}

// isDirective reports whether a line's first word is ours: a directive, or
// something that begins like one. "@cached" and "@invalidates" are more likely slips
// than prose, and a slip should be told.
func isDirective(s string) bool {
	if strings.EqualFold(s, "@refresh") {
		return true
	}
	if hasPrefixFold(s, "@cache") || hasPrefixFold(s, "@nocache") || hasPrefixFold(s, "@invalidate") {
		return true
	}
	for _, d := range []string{"@cache", "@nocache", "@refresh", "@invalidate"} {
		if oneSlip(strings.ToLower(s), d) {
			return true
		}
	}
	return false
}

// oneSlip reports whether a becomes b by one letter too many, too few or wrong, or by
// two that change places.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if i == len(a) || a[i+1:] == b[i+1:] {
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// parseDirective takes in ws, whose first word is a directive, and returns how
// many words belong to it.
func (p *hintParser) parseDirective(ws []word) (int, error) {
	first := ws[0]
	if strings.HasPrefix(first.s, "@cache-") {
		return p.parseLegacy(ws)
	}
	var kind hintKind
	switch first.s {
	case "@cache":
		kind = hintCache
	case "@nocache":
		kind = hintNoCache
	case "@refresh":
		kind = hintRefresh
	case "@invalidate":
		kind = hintInvalidate
	default:
		if hasPrefixFold(first.s, "@invalidate") {
			p.hint.kind = hintInvalidate
		}
		problem := "unknown directive; there are @cache, @nocache, @refresh and @invalidate"
		if strings.ToLower(first.s) != first.s {
			problem += ", in lower case"
		}
		return 0, p.errorAt(first, problem)
	}
	if err := p.begin(first); err != nil {
		return 0, err
	}
	p.hint.kind = kind

	n := 1
	for ; n < len(ws); n++ {
		w := ws[n]
		if strings.HasPrefix(w.s, "@") {
			if w.first {
				break // another annotation, or the second hint: the caller looks
			}
			if isDirective(w.s) {
				return 0, p.second(w)
			}
		}
		if err := p.option(w); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// begin notes that a hint starts at w.
func (p *hintParser) begin(w word) error {
	if p.directive.s != "" {
		return p.second(w)
	}
	p.directive = w
	p.seen, p.list = make(map[string]bool), ""
	return nil
}

func (p *hintParser) second(w word) error {
	if hasPrefixFold(w.s, "@invalidate") {
		p.hint.kind = hintInvalidate
	}
	line, col := lineCol(p.text, p.directive.pos)
	return p.errorAt(w, fmt.Sprintf("second hint in one statement; the first, %s, is at line %d, column %d", p.directive.s, line, col))
}

// option takes in one option of the current directive.
func (p *hintParser) option(w word) error {
	name, value, given := strings.Cut(w.s, "=")
	unknown := func(there string) error {
		problem := "unknown option; " + there
		switch lower := strings.ToLower(name); {
		case lower != name && slices.Contains(optionNames, lower):
			problem += ", in lower case"
		case p.list != "" && !given:
			// tags=a b, as one would write it elsewhere.
			problem += "; the elements of " + p.list + " are separated by commas, without white space"
		}
		return p.errorAt(w, problem)
	}
	switch p.hint.kind {
	case hintNoCache:
		return p.errorAt(w, "@nocache takes no options")
	case hintInvalidate:
		switch {
		case w.s == "soft":
			if p.hint.soft {
				return p.errorAt(w, "given twice")
			}
			p.hint.soft, p.list = true, ""
			return nil
		case w.s == none: // "@invalidate none" reads well
			name, value, given = "tables", none, true
		case name != "tags" && name != "tables":
			return unknown("@invalidate has tags, tables and soft")
		}
	default:
		if !slices.Contains(optionNames, name) {
			return unknown("there are " + strings.Join(optionNames, ", "))
		}
	}
	if !given || value == "" {
		return p.errorAt(w, "has no value; write "+name+"=…")
	}
	if p.seen[name] {
		return p.errorAt(w, "given twice")
	}
	p.seen[name] = true

	var err error
	p.list = ""
	if name == "tags" || name == "tables" {
		p.list = name
		err = p.hint.policy.setList(name, strings.Split(value, ","))
	} else {
		err = p.hint.policy.setOption(name, value)
	}
	if err != nil {
		return p.errorAt(w, err.Error())
	}
	return nil
}

// parseLegacy takes in an attribute of sqlcache or Slonik with its value. Words
// after the value are left alone: both find their attributes anywhere in a text,
// so that old queries have remarks there.
func (p *hintParser) parseLegacy(ws []word) (int, error) {
	attr := ws[0]
	if p.directive.s == "" || !p.legacy {
		if err := p.begin(attr); err != nil {
			return 0, err
		}
		p.legacy = true
		p.hint.kind = hintCache
	}
	bad := func(problem string) (int, error) { return 0, p.errorAt(attr, problem) }
	if p.seen[attr.s] {
		return bad("given twice")
	}
	p.seen[attr.s] = true

	value := ""
	if len(ws) > 1 && !strings.HasPrefix(ws[1].s, "@") {
		value = strings.TrimRight(ws[1].s, ",;")
	}
	number, err := strconv.ParseUint(value, 10, 31)
	isNumber := err == nil
	switch attr.s {
	case "@cache-ttl":
		ttl := time.Duration(number) * time.Second
		switch {
		case !isNumber:
			return bad("needs a whole number of seconds after it, such as @cache-ttl 30")
		case ttl > TTLMax:
			return bad(fmt.Sprintf("must be at most %d seconds", TTLMax/time.Second))
		}
		p.ttl = true
		p.hint.policy.TTL = ttl
		if ttl == 0 {
			p.hint.policy.TTL = off
		}
	case "@cache-max-rows":
		if !isNumber || number == 0 {
			return bad("needs a number of rows, at least 1, after it, such as @cache-max-rows 100")
		}
		p.hint.policy.MaxRows = int(number)
	case "@cache-discard-empty":
		switch value {
		case "true":
			p.hint.policy.Empty = off
		case "false":
		default:
			return bad("needs true or false after it")
		}
	case "@cache-skip-empty-resultset":
		if !isNumber {
			return bad("needs a number after it, 1 for yes")
		}
		if number > 0 {
			p.hint.policy.Empty = off
		}
	case "@cache-key", "@cache-id", "@cache-hash-values":
	default:
		return bad("unknown attribute; there are @cache-ttl and @cache-max-rows, and the options of @cache")
	}

	// Up to the next word with an "@", which may be an attribute in the same line.
	n := 1
	for n < len(ws) && !strings.HasPrefix(ws[n].s, "@") {
		n++
	}
	if n < len(ws) && !ws[n].first && isDirective(ws[n].s) {
		more, err := p.parseDirective(ws[n:])
		return n + more, err
	}
	return n, nil
}

// finish checks what only the whole hint shows.
func (p *hintParser) finish() error {
	if p.directive.s == "" {
		return nil
	}
	if p.legacy && !p.ttl {
		return p.errorAt(p.directive, "needs @cache-ttl <seconds> beside it")
	}
	if p.hint.kind == hintInvalidate && !p.hint.soft && p.hint.policy.Tags == nil && p.hint.policy.Tables == nil {
		return p.errorAt(p.directive, "names nothing; write tags=… or tables=…, or none")
	}
	var err error
	p.hint.tags, err = parseTags(p.hint.policy.Tags)
	if err != nil {
		return p.errorAt(p.directive, err.Error())
	}
	return nil
}

// errorAt returns a *HintError about w.
func (p *hintParser) errorAt(w word, problem string) error {
	e := &HintError{Problem: problem, Pos: w.pos}
	e.Option, e.Value, _ = strings.Cut(w.s, "=")
	e.Line, e.Col = lineCol(p.text, w.pos)
	return e
}

// lineCol turns a byte offset into the line and column that an editor shows.
func lineCol(text string, pos int) (line, col int) {
	before := text[:min(pos, len(text))]
	line = 1 + strings.Count(before, "\n")
	return line, 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

// optionNames are the options of @cache and @refresh, and the keys of a policy in
// a rules file.
var optionNames = []string{
	"ttl", "swr", "sie", "empty", "jitter", "lease", "wait", "tags", "tables",
	"scope", "name", "max-rows", "max-bytes", "early", "allow",
}

// setOption sets the field of p that an option with a single value stands for,
// within its bounds. Hints and rules files share it.
func (p *Policy) setOption(name, value string) (err error) {
	switch name {
	case "ttl":
		p.TTL, err = parseLife(value, TTLMax)
	case "swr":
		p.SWR, err = parseLife(value, SWRMax)
	case "sie":
		p.SIE, err = parseLife(value, SIEMax)
	case "empty":
		p.Empty, err = parseLife(value, EmptyMax)
	case "wait":
		p.Wait, err = parseLife(value, WaitMax)
	case "lease":
		p.Lease, err = parseDuration(value)
		p.Lease = effective(p.Lease)
		if err == nil && (p.Lease < LeaseMin || p.Lease > LeaseMax) {
			err = fmt.Errorf("must be from %v to %v", LeaseMin, LeaseMax)
		}
	case "jitter":
		p.Jitter, err = parseFraction(value)
	case "early":
		p.EarlyBeta, err = parseNumber(value)
		if err == nil && p.EarlyBeta > EarlyBetaMax {
			err = fmt.Errorf("must be at most %v", EarlyBetaMax)
		}
	case "max-rows":
		if value == "off" {
			p.MaxRows = off
			break
		}
		n, perr := strconv.ParseUint(value, 10, 31)
		if perr != nil || n == 0 {
			return errors.New("must be a whole number of rows, at least 1, or off for no limit")
		}
		p.MaxRows = int(n)
	case "max-bytes":
		p.MaxBytes, err = parseBytes(value)
	case "scope":
		if err = checkWord(value, ScopeBytesMax); err == nil && strings.ContainsAny(value, "{}") {
			err = errors.New("must be fixed: an argument cannot be put in, and is in the key anyway")
		}
		p.Scope = value
	case "name":
		err = checkWord(value, NameBytesMax)
		p.Name = value
	case "allow":
		if value != "volatile" {
			return errors.New("there is only allow=volatile")
		}
		p.AllowVolatile = true
	default:
		panic("bug: option " + name + " is in optionNames and not in setOption")
	}
	return err
}

// setList sets Tags or Tables.
func (p *Policy) setList(name string, items []string) error {
	var list []string
	for _, item := range items {
		if item == "" {
			return errors.New("has an empty element; commas stand between two, without white space")
		}
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	if name == "tables" {
		for _, t := range list {
			if err := checkTable(t); err != nil {
				return fmt.Errorf("table %q: %w", shorten(t), err)
			}
		}
		p.Tables = list
		return nil
	}
	if len(list) > TagsMax {
		return fmt.Errorf("has %d tags; must be at most %d", len(list), TagsMax)
	}
	if len(list) > 1 && slices.Contains(list, none) {
		return errors.New("none must stand alone")
	}
	if _, err := parseTags(list); err != nil {
		return err
	}
	p.Tags = list
	return nil
}

// parseLife parses a duration that can be turned off, and has an upper bound.
func parseLife(s string, most time.Duration) (time.Duration, error) {
	if s == "off" {
		return off, nil
	}
	d, err := parseDuration(s)
	switch {
	case err != nil:
		return 0, err
	case d == 0:
		return off, nil
	case d < DurationMin:
		return 0, fmt.Errorf("must be at least %v; off turns it off", DurationMin)
	case d > most:
		return 0, fmt.Errorf("must be at most %v", most)
	}
	return effective(d), nil
}

// parseDuration parses a duration as Go writes it.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, errors.New("has no unit; write " + shorten(s) + "s for seconds")
		}
		return 0, errors.New("must be a duration such as 30s, 5m or 1h30m")
	}
	if d < 0 {
		return 0, errors.New("must not be negative")
	}
	return d, nil
}

// parseNumber parses a number that 0 and off turn off.
func parseNumber(s string) (float64, error) {
	if s == "off" {
		return off, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		return 0, errors.New("must be a number, or off")
	case f < 0:
		return 0, errors.New("must not be negative")
	case f == 0:
		return off, nil
	}
	return f, nil
}

// parseFraction parses a part of one: 0.1 or 10%.
func parseFraction(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	f, err := parseNumber(number)
	if err != nil || f < 0 {
		return f, err
	}
	if percent {
		f /= 100
	}
	if f >= 1 {
		return 0, errors.New("must be below 1 (100%)")
	}
	return f, nil
}

// byteUnits are looked for in this order, so that "B" comes after what ends with it.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// parseBytes parses a size: 1024, 64KiB, 1MB.
func parseBytes(s string) (int64, error) {
	number, unit := s, int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = n, u.bytes
			break
		}
	}
	// 31 bits times a unit of 30 does not overflow.
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return 0, errors.New("must be a size such as 65536, 64KiB or 1MB")
	}
	size := int64(n) * unit
	if size < 1 || size > MaxBytesMax {
		return 0, fmt.Errorf("must be from 1 to %d bytes", MaxBytesMax)
	}
	return size, nil
}

// sqlcName returns the name of a query that sqlc generated, from its comment
// "name: GetUser :one", or "".
func sqlcName(comments []sqllex.Comment) string {
	for _, c := range comments {
		rest, ok := strings.CutPrefix(strings.TrimSpace(c.Text), "name:")
		if !ok {
			continue
		}
		// "-- name: …" in prose has no :command after one word.
		f := strings.Fields(rest)
		if len(f) >= 2 && strings.HasPrefix(f[1], ":") && len(f[1]) > 1 && checkWord(f[0], NameBytesMax) == nil {
			return f[0]
		}
	}
	return ""
}

// A tagTemplate is a tag with places for arguments. Text and places alternate:
// text[0] arg[0] text[1] arg[1] … text[n].
type tagTemplate struct {
	source string
	text   []string
	args   []tagArg
}

// A tagArg names an argument, by its number from 1 or by its name.
type tagArg struct {
	ordinal int
	name    string
}

// parseTags parses the tags of a policy; "none" alone is no tag.
func parseTags(tags []string) ([]tagTemplate, error) {
	if len(tags) == 0 || len(tags) == 1 && tags[0] == none {
		return nil, nil
	}
	out := make([]tagTemplate, len(tags))
	for i, s := range tags {
		var err error
		if out[i], err = parseTag(s); err != nil {
			return nil, fmt.Errorf("tag %q: %w", shorten(s), err)
		}
	}
	return out, nil
}

// parseTag parses one tag.
func parseTag(s string) (tagTemplate, error) {
	t := tagTemplate{source: s}
	if err := checkTag(s); err != nil {
		return t, err
	}
	// A rebound placeholder would give every row the same tag.
	if strings.ContainsAny(s, "?$") {
		return t, errors.New("must not contain ? or $, which ORMs replace; the first argument is {1}")
	}
	rest := s
	for {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.text = append(t.text, rest)
			return t, nil
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if rest[open] == '}' || end < 0 || rest[open+1+end] == '{' {
			return t, errors.New("has a brace without its partner; an argument is {1} or {name}")
		}
		arg, err := parseTagArg(rest[open+1 : open+1+end])
		if err != nil {
			return t, err
		}
		t.text = append(t.text, rest[:open])
		t.args = append(t.args, arg)
		rest = rest[open+1+end+1:]
	}
}

func parseTagArg(s string) (tagArg, error) {
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		if n == 0 {
			return tagArg{}, errors.New("{0}: arguments are numbered from 1")
		}
		return tagArg{ordinal: int(n)}, nil
	}
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return tagArg{}, fmt.Errorf("{%s}: an argument is {1} or {name}", s)
		}
	}
	if s == "" {
		return tagArg{}, errors.New("{}: an argument is {1} or {name}")
	}
	return tagArg{name: s}, nil
}

// checkTag reports what is wrong with a tag, be it a template or one that is given as it is
// (WithTags, Herd.Invalidate).
func checkTag(s string) error {
	return checkWord(s, TagBytesMax)
}

// fixed reports whether the tag has no place for an argument.
func (t tagTemplate) fixed() bool { return len(t.args) == 0 }

// expand puts the arguments into the tag.
//
// A read and a write must come to the same tag for the same row, although one
// says int64 7 and the other "7", or uint32 7, or []byte("7"). So an argument is
// rendered by its value: numbers in decimal, bool as true or false, time.Time as
// RFC 3339 with nanoseconds in UTC, a string and UTF-8 bytes as they are, a
// Valuer as its value, a pointer as what it points to. In what is
// rendered, % / , and control characters are escaped as %XX, so that the value
// "7/x" cannot pass for another tag. Other bytes are %x and their hex digits, and NULL
// is %null; no string becomes either, because its own % is escaped.
//
// It fails when there is no such argument, when the argument has no such
// rendering, and when the tag becomes too long. For a read that means reason
// args; a write has to invalidate more than this tag then.
func (t tagTemplate) expand(args []driver.NamedValue) (string, error) {
	if t.fixed() {
		return t.source, nil
	}
	var b strings.Builder
	for i, a := range t.args {
		b.WriteString(t.text[i])
		v, err := a.find(args)
		if err == nil {
			err = renderTagValue(&b, v)
		}
		if err != nil {
			return "", &HintError{Option: "tags", Value: t.source, Problem: err.Error()}
		}
	}
	b.WriteString(t.text[len(t.args)])
	if b.Len() > TagBytesMax {
		return "", &HintError{Option: "tags", Value: t.source,
			Problem: fmt.Sprintf("%d bytes long with its arguments; must be at most %d", b.Len(), TagBytesMax)}
	}
	return b.String(), nil
}

// Tag returns the tag that a hint or a Policy with template makes of a statement's arguments, for who names it
// elsewhere: Herd.Invalidate, Herd.InvalidateSoft, WithTags, the webhook of contrib. Tag("product/{1}", 7) is
// "product/7". Concatenation gives the same only for numbers and plain words: in a value, % / , and control characters
// are escaped (a/b is a%2Fb), and NULL, times and bytes have a form of their own. args are what the statement is given, in its
// order; {name} is a sql.Named. An error says that template is malformed, that it names an argument which is not
// there or has no such form, or that the tag is over TagBytesMax.
func Tag(template string, args ...any) (string, error) {
	t, err := parseTag(template)
	if err != nil {
		return "", fmt.Errorf("sqlherd: Tag: template %q %w", shorten(template), err)
	}
	values := make([]driver.NamedValue, len(args))
	for i, v := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
		if named, ok := v.(sql.NamedArg); ok {
			values[i].Name, values[i].Value = named.Name, named.Value
		}
	}
	tag, err := t.expand(values)
	if problem := (*HintError)(nil); errors.As(err, &problem) {
		return "", fmt.Errorf("sqlherd: Tag: template %q: %s", shorten(template), problem.Problem)
	}
	return tag, err
}

// find returns the value of the argument. The arguments are in order nearly
// always, which makes the first look the last.
func (a tagArg) find(args []driver.NamedValue) (any, error) {
	if a.name != "" {
		for _, nv := range args {
			if nv.Name == a.name {
				return nv.Value, nil
			}
		}
		return nil, fmt.Errorf("the statement has no argument named %s", a.name)
	}
	ordinal := a.ordinal + pgxOptions(args)
	if i := ordinal - 1; i < len(args) && args[i].Ordinal == ordinal {
		return args[i].Value, nil
	}
	for _, nv := range args {
		if nv.Ordinal == ordinal {
			return nv.Value, nil
		}
	}
	return nil, fmt.Errorf("the statement has %d argument(s)", len(args))
}

// pgxOptions counts the values in front of the arguments that pgx takes for options of the call, such as
// an execution mode. They have no $n: behind one, {1} is the second value, and a tag made of
// the first would never be the one that a write without the option names.
func pgxOptions(args []driver.NamedValue) int {
	for i, nv := range args {
		switch nv.Value.(type) {
		case nil, int64, int, string, []byte, bool, float64, time.Time:
			return i // nearly always
		}
		t := reflect.TypeOf(nv.Value)
		switch t.Name() {
		case "QueryExecMode", "QueryResultFormats", "QueryResultFormatsByOID":
			if strings.Contains("/"+t.PkgPath()+"/", "/pgx/") {
				continue
			}
		}
		return i
	}
	return len(args)
}

// renderTagValue appends an argument to a tag; see expand.
func renderTagValue(b *strings.Builder, v any) error {
	switch v := v.(type) {
	case nil:
		b.WriteString("%null")
		return nil
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
		return nil
	case string:
		renderTagString(b, v)
		return nil
	case []byte:
		switch {
		case v == nil:
			b.WriteString("%null") // as database/sql sends it
		case utf8.Valid(v):
			renderTagString(b, string(v))
		default:
			b.WriteString("%x" + hex.EncodeToString(v))
		}
		return nil
	case time.Time:
		b.WriteString(v.UTC().Format(time.RFC3339Nano))
		return nil
	case driver.Valuer:
		value, err := callValuer(v)
		if err != nil {
			return err
		}
		if _, again := value.(driver.Valuer); again {
			return fmt.Errorf("%T gives another Valuer", v)
		}
		return renderTagValue(b, value)
	}

	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer:
		if rv.IsNil() {
			return renderTagValue(b, nil)
		}
		return renderTagValue(b, rv.Elem().Interface())
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(rv.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(rv.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		b.WriteString(strconv.FormatUint(rv.Uint(), 10))
	case reflect.Float32:
		b.WriteString(strconv.FormatFloat(rv.Float(), 'f', -1, 32))
	case reflect.Float64:
		b.WriteString(strconv.FormatFloat(rv.Float(), 'f', -1, 64))
	case reflect.String:
		renderTagString(b, rv.String())
	case reflect.Slice:
		if rv.Type().Elem().Kind() != reflect.Uint8 {
			return fmt.Errorf("an argument of type %T has no place in a tag", v)
		}
		return renderTagValue(b, rv.Bytes())
	default:
		return fmt.Errorf("an argument of type %T has no place in a tag", v)
	}
	return nil
}

// renderTagString appends s, escaped.
func renderTagString(b *strings.Builder, s string) {
	if !utf8.ValidString(s) {
		b.WriteString("%x" + hex.EncodeToString([]byte(s)))
		return
	}
	for _, r := range s {
		if r != '%' && r != '/' && r != ',' && !unicode.IsControl(r) {
			b.WriteRune(r)
			continue
		}
		// C1 control characters take two bytes; each is escaped.
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}
