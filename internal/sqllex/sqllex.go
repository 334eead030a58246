// Package sqllex reads SQL once: hints, guards, keys, taint and writes.
//
// It is a tokenizer with a shallow reading of clauses, not a parser. One tokenizer serves every question that is
// asked of a text, because two that disagree on where a comment or a string ends are how a cache comes to serve one
// query's rows for another, or to run a write it took for a read.
//
// Every answer leans to the safe side. What is not proven a read is none; a table list may name too many tables,
// never too few; a statement that is not known is taken to write everywhere and to leave its session changed.
//
// What it takes for granted of a server: PostgreSQL runs with standard_conforming_strings on (the default since 9.1),
// MySQL without NO_BACKSLASH_ESCAPES, and the connection's character set is UTF-8 or another in which no byte of a
// longer character looks like a quote or a backslash. The caller knows of sessions that are otherwise: what it analyzes as
// Unknown is ambiguous where that matters.
package sqllex

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Dialect says how a text is to be tokenized, and which words are special in it.
// The zero value, Unknown, is the cautious union of the others.
type Dialect uint8

const (
	Unknown Dialect = iota
	PostgreSQL
	MySQL // and MariaDB
	SQLite
)

func (d Dialect) String() string {
	return name(d, "unknown", "postgresql", "mysql", "sqlite")
}

// A Class says what kind of thing a statement is.
type Class uint8

const (
	ClassUnknown Class = iota
	ClassRead          // proven; also SHOW and EXPLAIN, which a guard keeps out of the cache
	ClassWrite
	ClassSchema
	ClassSession
	ClassTx
)

func (c Class) String() string {
	return name(c, "unknown", "read", "write", "schema", "session", "tx")
}

// severity orders classes for a text of several statements.
func (c Class) severity() int {
	return [...]int{ClassRead: 0, ClassTx: 1, ClassSession: 2, ClassWrite: 3, ClassSchema: 4, ClassUnknown: 5}[c]
}

// A Guard names the obstacle to caching a statement. Where there are several, the one reported is the first of
// text, multi, write, locking, volatile, session, catalog.
type Guard uint8

const (
	GuardNone     Guard = iota
	GuardWrite          // it writes, or is not proven to read
	GuardLocking        // FOR UPDATE and its kin
	GuardVolatile       // a call whose answer belongs to this moment or this session, or that does something
	GuardMulti          // more than one statement
	GuardSession        // reads or changes state of the session
	GuardCatalog        // reads system catalogues
	GuardText           // not understood: empty, unterminated, unbalanced, or read differently by the dialects
	guards
)

func (g Guard) String() string {
	return name(g, "none", "write", "locking", "volatile", "multi", "session", "catalog", "text")
}

// guardOrder is the order in which obstacles are reported.
var guardOrder = [...]Guard{GuardText, GuardMulti, GuardWrite, GuardLocking, GuardVolatile, GuardSession, GuardCatalog}

// A TxEffect is what a text does to the transaction of its session.
type TxEffect uint8

const (
	TxNone TxEffect = iota
	// TxBegin: in a transaction afterwards. Also COMMIT AND CHAIN, so one that was open before may have ended.
	TxBegin
	// TxEnd: in none afterwards, whether by COMMIT or ROLLBACK.
	TxEnd
	// TxInside: SAVEPOINT, ROLLBACK TO, RELEASE. Outside a transaction SQLite takes SAVEPOINT for BEGIN and the RELEASE
	// that matches for COMMIT, so whoever sees TxInside outside a transaction knows nothing any more.
	TxInside
	// TxUnknown: cannot be known. Taints is set as well.
	TxUnknown
)

func (t TxEffect) String() string {
	return name(t, "none", "begin", "end", "inside", "unknown")
}

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "invalid"
}

// A Comment is one comment of a text.
type Comment struct {
	Text string // without delimiters
	Pos  int    // byte offset of the opening delimiter
}

// A Statement is all that is known of a text. Its strings may share memory with the text.
// It is a value; nothing in it may be modified by who did not make it.
type Statement struct {
	Class Class
	Guard Guard
	// Word is what decided Guard, as written ("" if there is no one word to blame).
	Word string
	// Time says that a time function is called: cacheable only by an explicit hint. It sets no Guard.
	Time bool
	// Random says that a random or uuid function is called, or a sample taken: cacheable only when that is allowed.
	// It sets no Guard.
	Random bool
	// Taints says that running it may leave the session in a state other than the DSN's default.
	// A statement that taints always has a Guard.
	Taints bool
	// Tx is the effect of textual transaction control.
	Tx TxEffect
	// Comments holds every comment except /*+ */ and /*! */, in order.
	Comments []Comment
	// Key is the normalized text: equal keys mean equal queries. Of a text under GuardText it is the text itself.
	Key string
	// Naming is what the key leaves out and the result's column names may depend on: MySQL and SQLite name a column
	// after the text of its expression, with its white space and comments. Usually empty.
	Naming string
	// Reads and Writes are names of tables as TableTag makes them: the last component alone, without quotes, in lower
	// case, so that s.t, "T" and t are one name (which can only invalidate too much). Sorted, unique. A table may be in both.
	Reads, Writes []string
	// Calls says that it is a read that calls a function nobody knows and reads no table: SELECT create_order(7). It is
	// taken for a CALL, so AllTables is set.
	Calls bool
	// Commits says that it may end an open transaction that it does not name: MySQL commits before it changes a schema,
	// truncates, locks tables and the like, and a procedure may commit.
	Commits bool
	// AllTables says that its effect on tables cannot be known: take it for a write to every table.
	AllTables bool
	// MaxPlaceholder is the number of arguments the placeholders ask for, as far as they are $1, ?1 or ?.
	MaxPlaceholder int
}

// TableTag returns the name by which a table is known, from the last component of its name without quotes. It is in
// lower case, and cut where PostgreSQL cuts: to it, two names that agree so far are one.
func TableTag(name string) string {
	const most = 63 // bytes
	if len(name) > most {
		n := most
		for n > 0 && !utf8.RuneStart(name[n]) {
			n--
		}
		name = name[:n]
	}
	return lowered(name)
}

// maxText keeps offsets within int32. No server takes a text of this size.
const maxText = 1 << 30

// MayHint reports whether text could contain an '@' directive in a comment at all. It is a cheap check that keeps the
// tokenizer away from most texts: false is certain, true is not.
func MayHint(text string) bool {
	if strings.IndexByte(text, '@') < 0 {
		return false
	}
	return strings.Contains(text, "/*") || strings.Contains(text, "--") || strings.IndexByte(text, '#') >= 0
}

// Analyze reads text as dialect d would. It never fails: what it cannot understand comes back as GuardText.
// Time and memory are linear in the length of text.
func Analyze(text string, d Dialect) Statement {
	if len(text) > maxText {
		return Statement{Guard: GuardText, Taints: true, Tx: TxUnknown, AllTables: true, Commits: true, Key: text}
	}
	if d > SQLite {
		d = Unknown
	}
	a := analyzers.Get().(*analyzer)
	s := a.analyze(text, d)
	a.release()
	return s
}

var analyzers = sync.Pool{New: func() any { return new(analyzer) }}

// An analyzer is the scratch memory of one Analyze, reused by the next.
type analyzer struct {
	lexer
	scanner
}

func (a *analyzer) release() {
	// One huge text must not pin its scratch memory for ever.
	if cap(a.toks) > 1<<14 || cap(a.frames) > 1<<12 || cap(a.names) > 1<<10 {
		return
	}
	clear(a.names[:cap(a.names)]) // they point into the text
	clear(a.targets[:cap(a.targets)])
	a.lexer = lexer{toks: a.toks[:0]}
	a.scanner = scanner{frames: a.frames[:0], names: a.names[:0], ctes: a.ctes[:0], targets: a.targets[:0]}
	analyzers.Put(a)
}

// analyze chooses the readings a text needs. Usually that is one:
//
//	dialect known, no /*! */   as that dialect
//	MySQL with /*! */          with the comment's content executed, and without: it depends on the server's version
//	Unknown                    once, as long as nothing is met that dialects read differently
//	Unknown, ambiguous         as each dialect; cacheable only if all of them agree
func (a *analyzer) analyze(text string, d Dialect) Statement {
	s := a.read(text, reading{dialect: d, lex: d})
	switch {
	case d == MySQL && a.sawExec:
		executed := s
		return either(executed, a.read(text, reading{dialect: d, lex: MySQL, skipExec: true}))
	case d == Unknown && a.ambiguous:
		first := a.read(text, reading{lex: PostgreSQL})
		agreed := true
		merged := first
		var comments []Comment
		for _, r := range [...]reading{{lex: MySQL}, {lex: MySQL, skipExec: true}, {lex: SQLite}} {
			if r.skipExec && !a.sawExec {
				continue // a.sawExec is of the reading before
			}
			next := a.read(text, r)
			agreed = agreed && same(first, next)
			merged = either(merged, next)
			comments = append(comments, next.Comments...)
		}
		if !agreed {
			// A comment to any of them counts, lest an @invalidate be lost. An @cache does no harm under GuardText.
			comments = append(comments, first.Comments...)
			slices.SortFunc(comments, func(a, b Comment) int { return a.Pos - b.Pos })
			merged.Comments = slices.CompactFunc(comments, func(a, b Comment) bool { return a.Pos == b.Pos })
			merged.Guard, merged.Word, merged.Key = GuardText, "", text
		}
		return merged
	}
	return s
}

// same reports whether two readings of one text agree in all that decides about caching.
// Tables are not compared: the union of both is right for either.
func same(a, b Statement) bool {
	return a.Key == b.Key && a.Class == b.Class && a.Guard == b.Guard && a.Tx == b.Tx && slices.Equal(a.Comments, b.Comments)
}

// either is what is known of a text that the server reads one way or the other.
func either(a, b Statement) Statement {
	s := a
	switch {
	case a.Class == b.Class || empty(b):
	case empty(a) || b.Class.severity() > a.Class.severity():
		s.Class = b.Class
	}
	switch {
	case empty(b) && b.Guard == GuardText:
	case empty(a) && a.Guard == GuardText:
		s.Guard, s.Word = b.Guard, b.Word
	default:
		for _, g := range guardOrder {
			if a.Guard == g {
				break
			}
			if b.Guard == g {
				s.Guard, s.Word = g, b.Word
				break
			}
		}
	}
	s.Time = a.Time || b.Time
	s.Random = a.Random || b.Random
	s.Taints = a.Taints || b.Taints
	s.AllTables = a.AllTables || b.AllTables
	s.Calls = a.Calls && b.Calls
	s.Commits = a.Commits || b.Commits
	s.Reads = union(a.Reads, b.Reads)
	s.Writes = union(a.Writes, b.Writes)
	s.MaxPlaceholder = max(a.MaxPlaceholder, b.MaxPlaceholder)
	if a.Tx != b.Tx {
		s.Tx, s.Taints = TxUnknown, true
	}
	if a.Naming != b.Naming {
		s.Naming = a.Naming + "\x00" + b.Naming
	}
	understood := a.Guard != GuardText && b.Guard != GuardText // else the key is the text
	if understood && a.Key != b.Key || !slices.Equal(a.Comments, b.Comments) {
		s.Guard, s.Word = GuardText, ""
	}
	if s.Guard == GuardNone && (s.Taints || s.AllTables || s.Class != ClassRead) {
		s.Guard = GuardText
	}
	return s
}

// empty reports whether a reading saw no statement: drivers ping with ";" or "-- ping".
func empty(s Statement) bool {
	return s.Class == ClassUnknown && !s.AllTables
}

func union(a, b []string) []string {
	if len(b) == 0 || slices.Equal(a, b) {
		return a
	}
	u := slices.Concat(a, b)
	slices.Sort(u)
	return slices.Compact(u)
}

// A reading is one way to read a text.
type reading struct {
	dialect  Dialect // whose words and functions count; Unknown: everybody's
	lex      Dialect // whose tokens
	skipExec bool    // MySQL: /*! */ is a comment, since the server is older than it asks for
}

// read reads text one way.
func (a *analyzer) read(text string, r reading) Statement {
	a.lexer.reset(text, r)
	a.lexer.run()
	if a.ambiguous {
		return Statement{} // the caller reads it again, dialect by dialect
	}
	a.scanner.reset(&a.lexer, r)
	a.scanner.run()
	return a.result()
}

// result gathers what lexer and scanner have found.
func (a *analyzer) result() Statement {
	s := Statement{
		Class:          a.class,
		Time:           a.time,
		Random:         a.random,
		Taints:         a.taints,
		Tx:             a.tx,
		Comments:       a.comments,
		AllTables:      a.allTables,
		Calls:          a.calls,
		Commits:        a.commits,
		MaxPlaceholder: a.placeholders,
	}
	s.Reads, s.Writes = a.tables()
	switch {
	case a.broken:
		// Something is open at the end. What stands inside it is unknown, so nothing can be ruled out.
		s.Guard, s.Taints, s.AllTables, s.Commits = GuardText, true, true, true
		if s.Tx != TxNone {
			s.Tx = TxUnknown
		}
	case a.odd || a.unbalanced:
		s.Guard = GuardText
	default:
		for _, g := range guardOrder {
			if a.guarded[g] {
				s.Guard, s.Word = g, a.words[g]
				break
			}
		}
	}
	if s.Guard == GuardText {
		s.Key = a.text
	} else {
		s.Key, s.Naming = a.key.String(), a.naming()
	}
	return s
}
