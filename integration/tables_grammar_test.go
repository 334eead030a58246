package integration_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// A grammar makes one statement at random, of a dialect and over known tables. Every table, and every table
// expression, has the columns id, x and y, all of them numbers, so that nearly every text means something.
// Names are those of tables, also for aliases and table expressions, so that one hides the other wherever it can.
type grammar struct {
	*rand.Rand
	d       sqllex.Dialect
	words   []string            // tables whose name is a keyword that needs no quotes
	names   []string            // tables whose name needs none, or must be quoted
	qualify map[string][]string // schemas, and the tables in them; nil is all of names

	b      strings.Builder
	last   byte // what was written last
	glued  bool // nothing may stand before the next token
	depth  int
	ctes   []string   // in scope
	froms  [][]string // aliases in scope, innermost last
	within bool       // a table expression
	nested int        // sub-queries that are values
	exec   bool       // a part stands in an executed comment, which the lexer also reads as if it did not
	more   bool       // it names what the server may find unused
}

func newGrammar(r *rand.Rand, d sqllex.Dialect, words, names []string) *grammar {
	// SQLite does not say what it has found to be of no use.
	return &grammar{Rand: r, d: d, words: words, names: names, more: d == ltd}
}

func (g *grammar) chance(percent int) bool { return g.IntN(100) < percent }

func (g *grammar) is(d ...sqllex.Dialect) bool { return slices.Contains(d, g.d) }

const (
	pgd = sqllex.PostgreSQL
	myd = sqllex.MySQL
	ltd = sqllex.SQLite
)

// Tokens.

// gap is what stands between two tokens. Much of it looks like SQL, and is none.
func (g *grammar) gap(needed bool) string {
	if !needed && g.chance(60) {
		return ""
	}
	if g.chance(88) {
		return []string{" ", "  ", "\n", "\t", "\r\n"}[g.IntN(5)]
	}
	gaps := []string{"/**/", "/* FROM a */", "/* , \"b\" */", "-- JOIN c\n", "/* it's; */", "-- '\n", " /*+ x */ ", "/* ) ( */", "--\n"}
	switch g.d {
	case pgd:
		gaps = append(gaps, "/* /* nested */ FROM d */", "/* $$ */")
	case myd:
		gaps = append(gaps, "# FROM a\n", "/* /* not nested */", "#'\n")
	}
	s := gaps[g.IntN(len(gaps))]
	if g.d == myd && strings.HasPrefix(s, "--") {
		s = " " + s // 5--1
	}
	return s
}

func wordlike(c byte) bool {
	return c >= 0x80 || c == '_' || c == '$' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// raw writes one token as it is.
func (g *grammar) raw(s string) {
	first := s[0]
	needed := wordlike(g.last) && (wordlike(first) || first == '\'' || first == '"') ||
		(g.last == '\'' || g.last == '"' || g.last == '`') && first == g.last || g.last == '-' && first == '-' || g.last == '/' && first == '*' || g.last == '.' && wordlike(first) && g.b.Len() > 0 && !g.glued
	if g.b.Len() > 0 && !g.glued {
		g.b.WriteString(g.gap(needed))
	}
	g.glued = false
	if g.d == myd && g.chance(1) && len(s) > 1 && wordlike(first) && s != "1" {
		g.exec = true
		s = "/*!40000 " + s + " */"
	}
	g.b.WriteString(s)
	g.last = s[len(s)-1]
}

// say writes keywords and punctuation, in any case.
func (g *grammar) say(words string) {
	for w := range strings.FieldsSeq(words) {
		switch g.IntN(4) {
		case 0:
			w = strings.ToLower(w)
		case 1:
			b := []byte(strings.ToLower(w))
			for i := range b {
				if g.chance(50) {
					b[i] = strings.ToUpper(string(b[i : i+1]))[0]
				}
			}
			w = string(b)
		}
		g.raw(w)
	}
}

// call writes a function's name and the parenthesis behind it, which MySQL wants together.
func (g *grammar) call(name string) {
	g.say(name)
	g.glued = true
	g.raw("(")
}

func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != "select" && s != "only"
}

// ident writes a name, quoted or not.
func (g *grammar) ident(name string) {
	mayBare := plainName(name) || g.d == myd && (name == "2024_sales" || name == "1e5x" || name == "$dollar")
	if mayBare && (slices.Contains(g.words, name) || g.chance(60)) && !(slices.Contains(g.words, name) && g.chance(25)) {
		if g.d != myd {
			b := []byte(name)
			for i := range b {
				if g.chance(15) {
					b[i] = strings.ToUpper(string(b[i : i+1]))[0]
				}
			}
			name = string(b)
		}
		g.raw(name)
		return
	}
	switch {
	case g.d == myd:
		g.raw(backQuoted(name))
	case g.d == ltd && g.chance(20) && !strings.ContainsAny(name, "]"):
		g.raw("[" + name + "]")
	case g.d == ltd && g.chance(20):
		g.raw(backQuoted(name))
	default:
		g.raw(doubleQuoted(name))
	}
}

func (g *grammar) anyName() string {
	if len(g.words) > 0 && g.chance(40) {
		return g.words[g.IntN(len(g.words))]
	}
	return g.names[g.IntN(len(g.names))]
}

// table writes the name of a table, or of what hides it when it may be hidden.
func (g *grammar) table() {
	switch {
	case len(g.ctes) > 0 && g.chance(50):
		g.ident(g.ctes[g.IntN(len(g.ctes))])
	default:
		g.target()
	}
}

// target writes the name of a table that is written, which no table expression hides.
func (g *grammar) target() {
	if g.chance(15) {
		for schema, in := range g.qualify {
			if in == nil {
				in = g.names
			}
			g.ident(schema)
			g.raw(".")
			g.ident(in[g.IntN(len(in))])
			return
		}
		if g.d == ltd {
			g.ident("main")
			g.raw(".")
			g.ident(g.names[g.IntN(len(g.names))])
			return
		}
	}
	g.ident(g.anyName())
}

// Aliases that SQLite or MariaDB take for the next clause are not worth the trouble.
func (g *grammar) alias() string {
	for {
		a := g.anyName()
		if g.d == pgd || plainName(a) && !slices.Contains(g.words, a) || g.chance(30) {
			return a
		}
	}
}

// bind writes an alias and brings it into scope.
func (g *grammar) bind() {
	a := g.alias()
	top := &g.froms[len(g.froms)-1]
	for slices.ContainsFunc(*top, func(s string) bool { return strings.EqualFold(s, a) }) {
		a = g.alias()
	}
	if g.chance(50) {
		g.say("AS")
	}
	g.ident(a)
	*top = append(*top, a)
}

// Expressions.

func (g *grammar) column() {
	var all []string
	for _, f := range g.froms[max(0, len(g.froms)-1):] {
		all = append(all, f...)
	}
	if len(all) == 0 {
		g.raw(strconv.Itoa(g.IntN(9)))
		return
	}
	// Aliases are quoted here: a keyword before a dot is more than some grammars take.
	a := all[g.IntN(len(all))]
	if g.d == myd {
		g.raw(backQuoted(a))
	} else {
		g.raw(doubleQuoted(a))
	}
	g.glued = true
	g.raw(".")
	g.glued = true
	g.raw([]string{"id", "x", "y"}[g.IntN(3)])
}

func (g *grammar) expr() {
	g.depth++
	defer func() { g.depth-- }()
	n := g.IntN(22)
	if g.depth > 5 {
		n = g.IntN(8)
	}
	switch n {
	case 0, 1, 2, 3:
		g.column()
	case 4, 5:
		g.raw(strconv.Itoa(g.IntN(100)))
	case 6:
		g.call("coalesce")
		g.column()
		g.raw(",")
		g.raw("0")
		g.raw(")")
	case 7:
		g.call("abs")
		g.column()
		g.raw(")")
	case 8, 9:
		g.expr()
		g.raw([]string{"+", "-", "*"}[g.IntN(3)])
		g.expr()
	case 10:
		g.say("CASE WHEN")
		g.condition()
		g.say("THEN")
		g.expr()
		g.say("ELSE")
		g.expr()
		g.say("END")
	case 11:
		g.raw("(")
		g.expr()
		g.raw(")")
	case 12:
		if g.is(pgd, myd) {
			g.call("extract")
			g.say("year FROM")
			g.say("date")
			g.raw("'2024-05-06'")
			g.raw(")")
			return
		}
		g.call("length")
		g.raw("'FROM a'")
		g.raw(")")
	case 13:
		if g.is(pgd, myd) {
			g.call("length")
			g.call("substring")
			g.raw("'FROM t JOIN u'")
			g.say("FROM 2 FOR 3")
			g.raw(")")
			g.raw(")")
			return
		}
		g.call("max")
		g.column()
		g.raw(",")
		g.expr()
		g.raw(")")
	case 14:
		if g.is(pgd, myd) {
			g.call("length")
			g.call("trim")
			g.say([]string{"BOTH", "LEADING", "TRAILING"}[g.IntN(3)])
			g.raw("'x'")
			g.say("FROM")
			g.raw("'xyx'")
			g.raw(")")
			g.raw(")")
			return
		}
		g.column()
	case 15:
		g.call("length")
		g.raw([]string{"'it''s FROM b'", "'--'", "'/*'", "';'", "')'"}[g.IntN(5)])
		g.raw(")")
	default:
		g.raw("(")
		g.nested++
		g.query(1)
		g.nested--
		g.raw(")")
	}
}

func (g *grammar) condition() {
	g.depth++
	defer func() { g.depth-- }()
	n := g.IntN(10)
	if g.depth > 5 {
		n = g.IntN(3)
	}
	switch n {
	case 0, 1, 2:
		g.column()
		g.raw([]string{"=", "<", ">", "<>"}[g.IntN(4)])
		g.expr()
	case 3:
		g.condition()
		g.say([]string{"AND", "OR"}[g.IntN(2)])
		g.condition()
	case 4:
		g.column()
		if g.is(pgd, ltd) {
			g.say([]string{"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}[g.IntN(2)])
		} else {
			g.raw("<=>")
		}
		g.expr()
	case 5:
		g.say([]string{"", "NOT"}[g.IntN(2)])
		g.say("EXISTS")
		g.raw("(")
		g.query(3)
		g.raw(")")
	case 6:
		g.column()
		g.say("IN")
		g.raw("(")
		g.query(1)
		g.raw(")")
	case 7:
		g.column()
		g.say("IN")
		g.raw("(")
		g.expr()
		g.raw(",")
		g.expr()
		g.raw(")")
	case 8:
		g.column()
		g.say("BETWEEN")
		g.expr()
		g.say("AND")
		g.expr()
	default:
		if g.d == pgd {
			g.column()
			g.raw([]string{"=", "<"}[g.IntN(2)])
			g.say([]string{"ANY", "ALL"}[g.IntN(2)])
			g.raw("(")
			g.query(1)
			g.raw(")")
			return
		}
		g.column()
		g.say("IS NOT NULL")
	}
}

// Queries of n columns: one of any name, or three named id, x and y.

func (g *grammar) query(n int) {
	g.depth++
	defer func() { g.depth-- }()
	outer := len(g.ctes)
	defer func() { g.ctes = g.ctes[:outer] }()
	if g.mayWith() && g.chance(18) {
		g.with()
	}
	one := n == 1
	switch k := g.IntN(100); {
	case g.depth > 4 || k < 70:
		g.selectOne(n)
	case k < 82:
		g.selectOne(n)
		g.say([]string{"UNION", "UNION ALL", "EXCEPT", "INTERSECT"}[g.IntN(4)])
		g.selectOne(n)
	case k < 90 && g.is(pgd, myd):
		g.raw("(")
		g.query(n)
		g.raw(")")
		g.say("UNION")
		g.raw("(")
		g.query(n)
		g.raw(")")
	case k < 95 && g.d == pgd && !one:
		g.say("TABLE")
		g.table()
	case k < 97 && g.is(pgd, ltd):
		g.say("VALUES")
		g.row(n)
		if g.d == ltd {
			return // without a limit
		}
		g.raw(",")
		g.row(n)
	default:
		g.selectOne(n)
	}
	// One row where one value is wanted; a table statement has no order.
	if one {
		g.say("LIMIT 1")
	} else if g.chance(10) {
		g.say("LIMIT 3")
	}
}

// mayWith keeps table expressions from where MariaDB 10.11 may end at them.
func (g *grammar) mayWith() bool {
	if g.d == myd {
		return !g.within && g.depth <= 2 && g.nested == 0
	}
	return g.depth < 5
}

func (g *grammar) row(n int) {
	g.raw("(")
	for i := range n {
		if i > 0 {
			g.raw(",")
		}
		g.raw(strconv.Itoa(g.IntN(9)))
	}
	g.raw(")")
}

func (g *grammar) with() {
	g.more = g.more || g.d == myd // it does not look at a table expression that nobody uses
	g.say("WITH")
	outerWithin := g.within
	g.within = true
	defer func() { g.within = outerWithin }()
	recursive := g.chance(25) && !(g.d == myd && g.depth > 1)
	if recursive {
		g.say("RECURSIVE")
	}
	defined := []string{}
	n := 1 + g.IntN(3)
	if g.d == myd {
		n = 1 + g.IntN(2)
	}
	g.more = g.more || recursive && n > 1 // which PostgreSQL lets name those that come after them
	for i := 0; i < n; i++ {
		name := g.alias()
		if slices.ContainsFunc(defined, func(s string) bool { return strings.EqualFold(s, name) }) {
			continue
		}
		if len(defined) > 0 {
			g.raw(",")
		}
		defined = append(defined, name)
		g.ident(name)
		columns := recursive || g.chance(30)
		if columns {
			g.raw("(")
			g.say("id")
			g.raw(",")
			g.say("x")
			g.raw(",")
			g.say("y")
			g.raw(")")
		}
		g.say("AS")
		if g.is(pgd, ltd) && g.chance(20) {
			g.say([]string{"MATERIALIZED", "NOT MATERIALIZED"}[g.IntN(2)])
		}
		g.raw("(")
		outer := g.froms
		g.froms = nil
		if recursive && g.chance(60) {
			g.say("SELECT 1")
			g.raw(",")
			g.raw("1")
			g.raw(",")
			g.raw("1")
			g.say("UNION ALL SELECT")
			g.froms = append(g.froms, nil)
			g.raw("r.id")
			g.raw("+")
			g.raw("1")
			g.raw(",")
			g.raw("r.x")
			g.raw(",")
			g.raw("r.y")
			g.say("FROM")
			g.ident(name)
			g.raw("r")
			g.say("WHERE")
			g.raw("r.id")
			g.raw("<")
			g.raw("3")
		} else {
			g.query(3)
		}
		g.froms = outer
		g.raw(")")
		g.ctes = append(g.ctes, name)
	}
}

func (g *grammar) selectOne(n int) {
	// Aliases are needed before they are bound: the list is written first and the tables behind it.
	head := g.b.String()
	last, glued := g.last, g.glued
	g.b.Reset()
	g.froms = append(g.froms, nil)
	g.last = 'x' // of FROM
	if g.chance(94) {
		g.say("FROM")
		g.from()
	}
	tail, tailLast := g.b.String(), g.last
	g.b.Reset()
	g.b.WriteString(head)
	g.last, g.glued = last, glued
	g.say("SELECT")
	if n == 3 && g.chance(8) {
		g.say("DISTINCT")
	}
	names := []string{"id", "x", "y"}
	for i := range n {
		if i > 0 {
			g.raw(",")
		}
		g.expr()
		g.say("AS")
		g.raw(names[i])
	}
	if tail != "" {
		g.b.WriteString(" ")
		g.b.WriteString(tail)
		g.last = tailLast
		if g.chance(50) {
			g.say("WHERE")
			g.condition()
		}
	}
	g.froms = g.froms[:len(g.froms)-1]
}

func (g *grammar) from() {
	for i := range 1 + g.IntN(3) {
		if i > 0 {
			g.raw(",")
		}
		g.item()
	}
}

// item writes one part of a list of tables.
func (g *grammar) item() {
	g.depth++
	defer func() { g.depth-- }()
	n := g.IntN(20)
	if g.depth > 5 {
		n = 0
	}
	switch n {
	default:
		g.table()
		g.bind()
	case 8, 9:
		g.raw("(")
		// What it holds cannot see its neighbours.
		outer := g.froms
		g.froms = nil
		g.query(3)
		g.froms = outer
		g.raw(")")
		g.bind()
	case 10, 11, 12:
		g.item()
		g.say([]string{"JOIN", "LEFT JOIN", "INNER JOIN", "LEFT OUTER JOIN"}[g.IntN(4)])
		g.item()
		g.say("ON")
		g.on()
	case 13:
		g.raw("(")
		g.item()
		g.say("JOIN")
		g.item()
		g.say("ON")
		g.on()
		g.raw(")")
	case 14:
		g.item()
		g.say("CROSS JOIN")
		g.item()
	case 15:
		if g.d != pgd {
			g.table()
			g.bind()
			return
		}
		g.say("ONLY")
		if g.chance(50) {
			g.raw("(")
			g.table()
			g.raw(")")
		} else {
			g.table()
		}
		g.bind()
	case 16:
		if g.d != pgd {
			g.table()
			g.bind()
			return
		}
		g.say("LATERAL")
		g.raw("(")
		g.query(3)
		g.raw(")")
		g.bind()
	case 17:
		if g.d != pgd {
			g.table()
			g.bind()
			return
		}
		if g.chance(50) {
			g.call("generate_series")
			g.raw("1")
			g.raw(",")
			g.raw("3")
			g.raw(")")
		} else {
			g.say("ROWS FROM")
			g.raw("(")
			g.call("unnest")
			g.say("ARRAY")
			g.raw("[")
			g.raw("1")
			g.raw(",")
			g.raw("2")
			g.raw("]")
			g.raw(")")
			g.raw(",")
			g.call("generate_series")
			g.raw("1")
			g.raw(",")
			g.raw("2")
			g.raw(")")
			g.raw(")")
			g.say("WITH ORDINALITY")
		}
		// Its columns are not ours.
		g.say("AS")
		g.raw("f" + strconv.Itoa(g.IntN(1e6)))
	case 18:
		if g.d != pgd {
			g.table()
			g.bind()
			return
		}
		g.raw("(")
		g.say("VALUES")
		g.row(3)
		g.raw(",")
		g.row(3)
		g.raw(")")
		g.bind()
		g.raw("(")
		g.say("id")
		g.raw(",")
		g.say("x")
		g.raw(",")
		g.say("y")
		g.raw(")")
	}
}

// on is a condition that names no column, since what it may name depends on the nesting.
func (g *grammar) on() {
	outer := g.froms
	g.froms = nil
	defer func() { g.froms = outer }()
	if g.chance(70) {
		g.raw("1")
		g.raw("=")
		g.raw("1")
		return
	}
	g.condition()
}

// Statements.

func (g *grammar) statement() string {
	switch g.IntN(9) {
	case 0, 1:
		g.insert()
	case 2, 3:
		g.update()
	case 4:
		g.delete()
	case 5:
		switch g.d {
		case pgd:
			g.merge()
		case myd:
			g.several()
		default:
			g.delete()
		}
	default:
		g.query(3)
		if g.d == pgd && g.chance(5) {
			g.say("FOR UPDATE")
		}
	}
	if g.chance(10) {
		g.raw(";")
	}
	return g.b.String()
}

func (g *grammar) columns() {
	g.raw("(")
	g.raw("id")
	g.raw(",")
	g.raw("x")
	g.raw(",")
	g.raw("y")
	g.raw(")")
}

func (g *grammar) returning(bound bool) {
	if g.d == myd || !g.chance(20) {
		return
	}
	g.say("RETURNING")
	if bound && g.chance(50) && g.d == pgd {
		g.expr()
		return
	}
	g.raw("*")
}

func (g *grammar) insert() {
	if g.is(pgd, ltd) && g.chance(20) {
		g.with()
	}
	switch {
	case g.d == myd && g.chance(20):
		g.say("REPLACE")
	case g.d == ltd && g.chance(20):
		g.say("REPLACE INTO")
	case g.d == ltd && g.chance(30):
		g.say("INSERT OR")
		g.say([]string{"REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK"}[g.IntN(5)])
		g.say("INTO")
	case g.d == myd && g.chance(30):
		g.say("INSERT")
		g.say([]string{"IGNORE", "LOW_PRIORITY", "HIGH_PRIORITY", "LOW_PRIORITY IGNORE"}[g.IntN(4)])
		g.say([]string{"INTO", ""}[g.IntN(2)])
	case g.d == myd && g.chance(30):
		g.say("INSERT")
	default:
		g.say("INSERT INTO")
	}
	g.target()
	if g.d == myd && g.chance(20) {
		g.say("SET")
		g.raw("x")
		g.raw("=")
		g.raw("(")
		g.query(1)
		g.raw(")")
		return
	}
	if g.is(pgd, ltd) && g.chance(20) {
		g.say("AS")
		g.ident(g.alias())
	}
	g.columns()
	if g.chance(40) {
		g.say("VALUES")
		g.raw("(")
		g.expr()
		g.raw(",")
		g.expr()
		g.raw(",")
		g.expr()
		g.raw(")")
	} else {
		g.query(3)
		if g.d == ltd {
			// Else the ON below would belong to a join.
			return
		}
	}
	switch {
	case g.is(pgd, ltd) && g.chance(30):
		g.say("ON CONFLICT")
		if g.chance(40) {
			g.say("DO NOTHING")
		} else {
			g.raw("(")
			g.raw("id")
			g.raw(")")
			g.say("DO UPDATE SET")
			g.raw("x")
			g.raw("=")
			g.raw("excluded.x")
			g.raw(",")
			g.raw("y")
			g.raw("=")
			g.raw("(")
			g.query(1)
			g.raw(")")
		}
	case g.d == myd && g.chance(30):
		g.say("ON DUPLICATE KEY UPDATE")
		g.raw("x")
		g.raw("=")
		g.raw("1")
		g.raw(",")
		g.raw("y")
		g.raw("=")
		g.raw("2")
	}
	g.returning(false)
}

func (g *grammar) update() {
	if g.is(pgd, ltd) && g.chance(25) {
		g.with()
	}
	g.say("UPDATE")
	switch {
	case g.d == ltd && g.chance(20):
		g.say("OR")
		g.say([]string{"REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK"}[g.IntN(5)])
	case g.d == myd && g.chance(20):
		g.say([]string{"IGNORE", "LOW_PRIORITY"}[g.IntN(2)])
	case g.d == pgd && g.chance(20):
		g.say("ONLY")
	}
	g.froms = [][]string{nil}
	g.target()
	if g.d == pgd && g.chance(10) {
		g.raw("*")
	}
	g.bind()
	g.say("SET")
	g.raw("x")
	g.raw("=")
	g.expr()
	g.raw(",")
	g.raw("y")
	g.raw("=")
	g.expr()
	if g.is(pgd, ltd) && g.chance(40) {
		g.say("FROM")
		g.from()
	}
	if g.chance(60) {
		g.say("WHERE")
		g.condition()
	}
	g.returning(true)
}

func (g *grammar) delete() {
	if g.is(pgd, ltd) && g.chance(25) {
		g.with()
	}
	g.say("DELETE FROM")
	if g.d == pgd && g.chance(20) {
		g.say("ONLY")
	}
	g.froms = [][]string{nil}
	g.target()
	if g.d == myd {
		g.froms = nil // no alias without a second list
	} else {
		g.bind()
	}
	if g.d == pgd && g.chance(40) {
		g.say("USING")
		g.from()
	}
	if g.chance(70) {
		g.say("WHERE")
		if g.d == myd {
			g.say("x IN")
			g.raw("(")
			g.query(1)
			g.raw(")")
		} else {
			g.condition()
		}
	}
	g.returning(true)
}

func (g *grammar) merge() {
	if g.chance(25) {
		g.with()
	}
	g.say("MERGE INTO")
	g.froms = [][]string{nil}
	g.target()
	g.bind()
	g.say("USING")
	g.item()
	g.say("ON")
	g.condition()
	g.say("WHEN MATCHED THEN")
	g.say([]string{"DELETE", "DO NOTHING", "UPDATE SET x = 1"}[g.IntN(3)])
	g.say("WHEN NOT MATCHED THEN INSERT ( id , x , y ) VALUES ( 1 , 2 , 3 )")
}

// several makes MySQL's statements that write several tables.
func (g *grammar) several() {
	g.froms = [][]string{nil}
	switch g.IntN(3) {
	case 0:
		g.say("UPDATE")
		for i := range 2 + g.IntN(2) {
			if i > 0 {
				g.raw(",")
			}
			if i > 0 && g.chance(30) {
				g.raw("(")
				outer := g.froms
				g.froms = nil
				g.query(3)
				g.froms = outer
				g.raw(")")
				g.bind()
				continue
			}
			g.target()
			g.bind()
		}
		g.say("SET")
		first := g.froms[0][0]
		g.raw(backQuoted(first) + ".x")
		g.raw("=")
		g.expr()
	default:
		// The aliases come first in the text and are bound by what follows.
		g.target()
		g.bind()
		if g.chance(50) {
			g.raw(",")
		} else {
			g.say("JOIN")
		}
		g.target()
		g.bind()
		list := g.b.String()
		g.b.Reset()
		g.last = 0
		targets := g.froms[0][:1+g.IntN(2)]
		g.say("DELETE")
		using := g.chance(40)
		if using {
			g.say("FROM")
		}
		for i, a := range targets {
			if i > 0 {
				g.raw(",")
			}
			g.raw(backQuoted(a))
			if g.chance(20) {
				g.raw(".*")
			}
		}
		if using {
			g.say("USING")
		} else {
			g.say("FROM")
		}
		g.b.WriteString(" " + list)
		g.last = 'x'
	}
	if g.chance(60) {
		g.say("WHERE")
		g.condition()
	}
}
