package sqlherd

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// Defaults and bounds of a Policy, in the order of its fields.
const (
	// DurationMin is the least that TTL, SWR, SIE, Empty and Wait may be, and of a Config
	// Local.TTL and ReplicaLag, where they are neither zero nor negative: what is
	// shorter is a number that was written without its unit, since 30 means 30 ns.
	DurationMin = time.Millisecond

	TTLDefault = 30 * time.Second
	TTLMax     = 365 * 24 * time.Hour

	SWRMax = TTLMax
	SIEMax = TTLMax

	// EmptyDefaultMax bounds the default of Policy.Empty, which is a tenth of TTL.
	EmptyDefaultMax = 5 * time.Second
	EmptyMax        = TTLMax

	JitterDefault = 0.1

	LeaseDefault = 3 * time.Second
	LeaseMin     = 100 * time.Millisecond
	LeaseMax     = 5 * time.Minute

	WaitMax = time.Hour

	MaxRowsDefault = 10_000

	MaxBytesDefault int64 = 1 << 20
	// MaxBytesMax is as much as Redis keeps in one value.
	MaxBytesMax int64 = 512 << 20

	// TagsMax bounds how many tags one statement may name: every read asks Redis for the stamp of each.
	TagsMax = 64
	// TagBytesMax bounds the length of a tag, with its arguments put in.
	TagBytesMax = 1024
	// TableBytesMax bounds the length of a table's name.
	TableBytesMax = 512

	// NameBytesMax bounds Policy.Name, which becomes the label of a metric.
	NameBytesMax = 128

	ScopeBytesMax = 256

	EarlyBetaDefault = 1.0
	EarlyBetaMax     = 100.0
)

// A Policy says how one family of queries is cached. It comes from a hint, a
// Rule or WithPolicy, and Config.Default fills what these leave out; what
// Config.Default leaves out too has the default given with each field.
//
// The zero value of a field means "not said here". Where a thing can be turned
// off, a negative value turns it off, and so beats a Config.Default that turns it
// on; a hint and a rules file write 0 or off for that.
//
// An entry is fresh for TTL, then stale for SWR, then dead but of use for SIE if
// the database is unavailable. Durations count in whole milliseconds, rounded up;
// one above zero and below DurationMin (1ms) is an error, such as TTL: 30, which lacks its unit.
type Policy struct {
	// TTL is how long a result counts as fresh; jitter only shortens it. At most
	// TTLMax. Negative: the query is not cached. Defaults to TTLDefault (30s).
	TTL time.Duration

	// SWR (stale-while-revalidate) is how long after TTL a result is still served
	// while a refresh runs in the background. The staleness of a result is bounded
	// by TTL + SWR. At most SWRMax. Negative: off. Defaults to off.
	SWR time.Duration

	// SIE (stale-if-error) is how long after TTL + SWR a result is still served
	// when the database is unavailable, and only then. At most SIEMax. Negative:
	// off. Defaults to off.
	SIE time.Duration

	// Empty is the TTL of a result without rows. It is never longer than TTL; a
	// larger value counts as TTL. At most EmptyMax. Negative: empty results are
	// not cached. Defaults to a tenth of TTL, at most EmptyDefaultMax (5s).
	Empty time.Duration

	// Jitter is the largest part of TTL and SWR, from 0 up to but not including 1, that is
	// taken off at random, per stored entry, so that entries that were stored together do not
	// expire together. Negative: off. Defaults to JitterDefault (0.1).
	Jitter float64

	// Lease is how long the right to load a key in the fleet outlives a loader
	// that dies; a living one renews it, so that it need not cover the load. From
	// LeaseMin to LeaseMax, and at least twice Config.RedisTimeout. Has no effect
	// without Redis. Defaults to LeaseDefault (3s).
	Lease time.Duration

	// Wait is how long a caller waits for another process that loads the key,
	// before OnWaitTimeout says what it does. At most WaitMax; the caller's own
	// deadline always comes first. Negative: it does not wait. Has no effect
	// without Redis. Defaults to Config.LoadTimeout.
	Wait time.Duration

	// OnWaitTimeout is what a caller does after Wait. Config.Default's WaitError
	// holds for every policy, since WaitLoad cannot be told from "not said here".
	// Defaults to WaitLoad.
	OnWaitTimeout WaitAction

	// MaxRows is how many rows a result may have to be cached; a larger one is
	// handed to its caller whole, and not stored. Negative: no limit but MaxBytes.
	// Defaults to MaxRowsDefault (10000).
	MaxRows int

	// MaxBytes is how many bytes a result may have to be cached, encoded and
	// before compression; a larger one is handed to its caller whole, and not
	// stored. From 1 to MaxBytesMax. It cannot be turned off, since a load holds the result
	// in memory up to this bound. Defaults to MaxBytesDefault (1 MiB), or to
	// Config.Local.MaxBytes if that is less and there is no Redis.
	MaxBytes int64

	// Tags are the names under which a write, or Herd.Invalidate, forgets the
	// result. "product/{1}" puts in the first argument, "product/{id}" the one
	// named id. []string{"none"}: no tags, not even those of Config.Default. At
	// most TagsMax of TagBytesMax each. Defaults to none.
	Tags []string

	// Tables are tables that the result depends on beside those of its text, such
	// as the tables under a view. Schemas, quotes and case do not count: public.a is a. "none" among them stands for "not those of the
	// text": []string{"none"} leaves only the tags, for row-level tags on a busy
	// table. Defaults to the tables of the text.
	Tables []string

	// Name is the label of the query family in metrics and logs. At most
	// NameBytesMax bytes. Defaults to the name in sqlc's "-- name:", else to a
	// short digest of the text.
	Name string

	// Scope becomes part of the key: results of one scope are never served in another. It
	// is for what the text and the arguments do not show, such as the tenant of
	// row-level security; WithScope gives it per call. At most ScopeBytesMax
	// bytes. Defaults to the empty scope.
	Scope string

	// EarlyBeta is how eagerly a fresh entry is refreshed before it is stale
	// (XFetch's β): larger is earlier. At most EarlyBetaMax. Negative: off.
	// Defaults to EarlyBetaDefault (1).
	EarlyBeta float64

	// AllowVolatile permits calls of random and uuid functions in a cached query:
	// every caller gets the same "random" rows for TTL. Sequences, locks and
	// session functions are refused whatever it says. True in Config.Default holds for every
	// policy. Defaults to false.
	AllowVolatile bool
}

// none in a list of tags or tables means none of those that would be there otherwise.
const none = "none"

// off is what an explicit zero of a hint or a rules file becomes in a Policy,
// where zero itself means "not said".
const off = -1

// merge returns p with the fields that over sets in place of p's own. The lists
// are shared with the originals; nobody changes them after New.
func (p Policy) merge(over Policy) Policy {
	p.TTL = cmp.Or(over.TTL, p.TTL)
	p.SWR = cmp.Or(over.SWR, p.SWR)
	p.SIE = cmp.Or(over.SIE, p.SIE)
	p.Empty = cmp.Or(over.Empty, p.Empty)
	p.Jitter = cmp.Or(over.Jitter, p.Jitter)
	p.Lease = cmp.Or(over.Lease, p.Lease)
	p.Wait = cmp.Or(over.Wait, p.Wait)
	p.OnWaitTimeout = cmp.Or(over.OnWaitTimeout, p.OnWaitTimeout)
	p.MaxRows = cmp.Or(over.MaxRows, p.MaxRows)
	p.MaxBytes = cmp.Or(over.MaxBytes, p.MaxBytes)
	if len(over.Tags) > 0 {
		p.Tags = over.Tags
	}
	if len(over.Tables) > 0 {
		p.Tables = over.Tables
	}
	p.Name = cmp.Or(over.Name, p.Name)
	p.Scope = cmp.Or(over.Scope, p.Scope)
	p.EarlyBeta = cmp.Or(over.EarlyBeta, p.EarlyBeta)
	p.AllowVolatile = p.AllowVolatile || over.AllowVolatile
	return p
}

// resolve returns the policy that the engine works with: p, what it leaves out
// from def (Config.Default), and the rest from the constants. In the result zero
// no longer means "not said" but off (TTL: do not cache; Wait: do not wait), no
// number is negative, and no limit of rows is math.MaxInt. So it runs once: a
// resolved policy must not be resolved again.
func (p Policy) resolve(def Policy, loadTimeout time.Duration) Policy {
	p = def.merge(p)

	p.TTL = effective(cmp.Or(p.TTL, TTLDefault))
	p.SWR = effective(p.SWR)
	p.SIE = effective(p.SIE)
	// The default of Empty follows the TTL that was settled on, not Config.Default's.
	// An explicit Empty above TTL is no mistake worth an error, since the two may come
	// from different places; it is cut, because negative results must not outlive positive ones.
	p.Empty = effective(cmp.Or(p.Empty, min(p.TTL/10, EmptyDefaultMax)))
	p.Empty = min(p.Empty, p.TTL)
	p.Jitter = max(0, cmp.Or(p.Jitter, JitterDefault))
	p.Lease = effective(cmp.Or(p.Lease, LeaseDefault))
	p.Wait = effective(cmp.Or(p.Wait, loadTimeout))
	p.MaxRows = cmp.Or(p.MaxRows, MaxRowsDefault)
	if p.MaxRows < 0 {
		p.MaxRows = math.MaxInt
	}
	p.MaxBytes = cmp.Or(p.MaxBytes, MaxBytesDefault)
	p.EarlyBeta = max(0, cmp.Or(p.EarlyBeta, EarlyBetaDefault))
	return p
}

// effective turns the off value into zero, and rounds up to whole milliseconds, the
// finest that Redis expires by: 500µs must not become PX 0, which Redis refuses.
func effective(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	if part := d % time.Millisecond; part > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - part
	}
	return d
}

// validate returns every problem of p as an error of its own. where is what the
// user calls p, such as "Config.Default".
func (p Policy) validate(where string) []error {
	var problems []error
	bad := func(field string, value any, must string) {
		problems = append(problems, fmt.Errorf("sqlherd: %s.%s is %v; %s", where, field, value, must))
	}
	life := func(field string, d, most time.Duration, offMeans string) {
		if d > most {
			bad(field, d, fmt.Sprintf("must be at most %v (negative: %s)", most, offMeans))
		} else if d > 0 && d < DurationMin {
			bad(field, d, fmt.Sprintf("must be at least %v (negative: %s)", DurationMin, offMeans)+withUnit(d, most))
		}
	}
	life("TTL", p.TTL, TTLMax, "not cached")
	life("SWR", p.SWR, SWRMax, "off")
	life("SIE", p.SIE, SIEMax, "off")
	life("Empty", p.Empty, EmptyMax, "empty results are not cached")
	if math.IsNaN(p.Jitter) || p.Jitter >= 1 {
		bad("Jitter", p.Jitter, "must be below 1 (negative: off)")
	}
	if p.Lease != 0 && (p.Lease < LeaseMin || p.Lease > LeaseMax) {
		bad("Lease", p.Lease, fmt.Sprintf("must be from %v to %v", LeaseMin, LeaseMax)+withUnit(p.Lease, LeaseMax))
	}
	life("Wait", p.Wait, WaitMax, "do not wait")
	if p.OnWaitTimeout > WaitError {
		bad("OnWaitTimeout", uint8(p.OnWaitTimeout), "must be WaitLoad or WaitError")
	}
	if p.MaxBytes < 0 || p.MaxBytes > MaxBytesMax {
		bad("MaxBytes", p.MaxBytes, fmt.Sprintf("must be from 1 to %d", MaxBytesMax))
	}
	if len(p.Tags) > TagsMax {
		bad("Tags", fmt.Sprintf("a list of %d", len(p.Tags)), fmt.Sprintf("must be at most %d", TagsMax))
	}
	for i, tag := range p.Tags {
		if tag == none && len(p.Tags) > 1 {
			bad(fmt.Sprintf("Tags[%d]", i), `"none"`, "must stand alone")
		} else if _, err := parseTag(tag); err != nil {
			bad(fmt.Sprintf("Tags[%d]", i), fmt.Sprintf("%q", tag), err.Error())
		}
	}
	for i, table := range p.Tables {
		if err := checkTable(table); err != nil {
			bad(fmt.Sprintf("Tables[%d]", i), fmt.Sprintf("%q", table), err.Error())
		}
	}
	if err := checkWord(p.Name, NameBytesMax); p.Name != "" && err != nil {
		bad("Name", fmt.Sprintf("%q", p.Name), err.Error())
	}
	if err := checkWord(p.Scope, ScopeBytesMax); p.Scope != "" && err != nil {
		bad("Scope", fmt.Sprintf("%q", p.Scope), err.Error())
	}
	if math.IsNaN(p.EarlyBeta) || p.EarlyBeta > EarlyBetaMax {
		bad("EarlyBeta", p.EarlyBeta, fmt.Sprintf("must be at most %v (negative: off)", EarlyBetaMax))
	}
	return problems
}

// withUnit is what the error about a duration below its bound says besides: how to write
// d, if it is a number that was to be seconds (or milliseconds, where as many seconds would be above
// most) and was written without a unit. "" where d is no such number.
func withUnit(d, most time.Duration) string {
	if d <= 0 || d >= DurationMin {
		return ""
	}
	unit, name := time.Second, "time.Second"
	if d > most/unit {
		unit, name = time.Millisecond, "time.Millisecond"
	}
	if d > most/unit {
		return ""
	}
	return fmt.Sprintf("; a number without a unit is nanoseconds: write %d * %s", int64(d), name)
}

// tablesFor returns the tables that a statement depends on, or invalidates: those
// of its text, joined by the ones that its policy or hint names; "none" among
// these drops the ones of the text.
//
// The named ones add, and do not replace, so that a list which forgets one of
// the text's tables costs a needless miss and not a stale row. What comes out are
// names as tableName makes them, as the lexer's are.
func tablesFor(text, named []string) []string {
	if len(named) == 0 {
		return text
	}
	var all []string
	for _, t := range named {
		if t == none {
			text = nil
		} else {
			all = append(all, tableName(t))
		}
	}
	return append(all, text...)
}

// tableName turns the name of a table as a user writes it, with or without schema and
// quotes, into the lexer's form: the last component alone, bare, as sqllex.TableTag has it.
// Both sides of every comparison must have that form: a dependency on
// "public.Products" that a write to products does not meet is a stale row.
func tableName(s string) string {
	start := 0
	closing := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case closing != 0: // a doubled quote closes and opens again
			if c == closing {
				closing = 0
			}
		case c == '"' || c == '`':
			closing = c
		case c == '[':
			closing = ']'
		case c == '.':
			start = i + 1
		}
	}
	s = s[start:]
	if n := len(s); n >= 2 {
		switch q := s[0]; {
		case q == '[' && s[n-1] == ']':
			s = s[1 : n-1]
		case (q == '"' || q == '`') && s[n-1] == q:
			s = strings.ReplaceAll(s[1:n-1], string([]byte{q, q}), string(rune(q)))
		}
	}
	return sqllex.TableTag(s)
}

// checkTable reports what is wrong with the name of a table.
func checkTable(name string) error {
	if err := checkWord(name, TableBytesMax); err != nil {
		return err
	}
	if tableName(name) == "" {
		return errors.New("must end with the name of a table")
	}
	return nil
}

// checkWord reports what keeps s from being a label, a scope or a part of a key name.
func checkWord(s string, most int) error {
	switch {
	case s == "":
		return errors.New("must not be empty")
	case len(s) > most:
		return fmt.Errorf("must be at most %d bytes long", most)
	case !utf8.ValidString(s):
		return errors.New("must be UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("must not contain control characters")
	}
	return nil
}

// WaitAction says what a caller does that has waited for another process for Policy.Wait.
type WaitAction uint8

const (
	// WaitLoad asks the database, within the loader pool's bound.
	WaitLoad WaitAction = iota
	// WaitError returns ErrWaitTimeout.
	WaitError
)

// String returns the action's name as a rules file and the logs carry it.
func (a WaitAction) String() string {
	switch a {
	case WaitLoad:
		return "load"
	case WaitError:
		return "error"
	}
	return "invalid"
}

// Dialect names the SQL grammar that a database speaks.
type Dialect uint8

const (
	// DialectAuto takes the dialect from the base driver's package.
	DialectAuto Dialect = iota
	// DialectUnknown is the cautious union of all: what any of them reads as a write, a quote or a comment is one.
	DialectUnknown
	PostgreSQL
	MySQL // and MariaDB
	SQLite

	dialects // the number of dialects
)

// String returns the dialect's name as logs carry it.
func (d Dialect) String() string {
	switch d {
	case DialectAuto:
		return "auto"
	case DialectUnknown:
		return "unknown"
	case PostgreSQL:
		return "postgresql"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	}
	return "invalid"
}
