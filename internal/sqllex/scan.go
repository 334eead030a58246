package sqllex

import (
	"slices"
	"strings"
)

// A scanner reads the tokens of a text, statement by statement, and gathers effects. It keeps a stack of its own for
// parentheses: nothing in it recurses, since the input would choose the depth.
type scanner struct {
	src string
	t   []token
	reading

	// Of the whole text.
	class      Class
	time       bool
	random     bool
	taints     bool
	allTables  bool
	unbalanced bool
	tx         TxEffect
	guarded    [guards]bool
	words      [guards]string // the first word to blame for each guard
	names      []tableName
	calls      bool
	commits    bool

	// Of the statement at hand.
	frames    []frame
	ctes      []cte
	targets   []target // MySQL: what a DELETE of several tables names before it lists them
	as        int      // the last AS that introduces something, so that the word behind it is a name
	samples   int      // TABLESAMPLE without its REPEATABLE
	dates     int      // open calls in which 'now' is the present
	variable  bool
	assigned  bool
	wrote     bool // a part of it writes
	named     bool // it names a table
	unknownFn int  // the first call of a function nobody knows, or -1
	pending   fnFlags
	base      int  // of names, those of earlier statements
	deletes   int  // of names, where those of a DELETE begin
	openBody  bool // a BEGIN within it has no END

	steps int // work done, for the test that it is linear
}

// A frame is one level of parentheses.
type frame struct {
	cteBase int32
	// ctesAtVerb is how many table expressions a write has been given: those of its SELECT come later.
	ctesAtVerb int32
	cteName    int32 // while with: the token that names the table expression coming next
	bodyOf     int32 // token that names the table expression whose body this is, or -1
	commas     uint8
	verb       keyword // SELECT, INSERT … once met
	list       listState
	write      bool // the names of the list are written to
	single     bool // one name and no list: INSERT INTO t
	with       bool // between WITH and its main verb
	recursive  bool
	bodyRec    bool
	begun      bool
	second     bool    // in the second list of tables, behind USING, or the FROM of MySQL's DELETE a, b FROM
	match      bool    // a table in it is written if it is one of the targets
	visible    int32   // of ctes, the first that is certain to be in scope
	fn         fnFlags // of the function whose arguments these are
}

// A listState says where in a list of tables a frame is.
type listState uint8

const (
	outside listState = iota
	expects           // behind FROM, JOIN, UPDATE, a comma …: what comes next is a table
	within            // behind a table: a comma, or JOIN, leads to the next
)

// A cte is a common table expression that hides a table of its name.
type cte struct {
	name   string
	quoted bool
}

// A target is a table, or an alias, whose rows a DELETE of several tables deletes.
type target struct {
	name  string // in lower case
	found bool   // in the list
}

// maxTargets bounds the search for them. With more, every table of the list counts as written.
const maxTargets = 16

// maxCTEs bounds the search for them. Those beyond count as tables, which is safe.
const maxCTEs = 64

type tableName struct {
	name  string
	write bool
}

func (c *scanner) reset(l *lexer, r reading) {
	*c = scanner{
		src: l.text, t: l.toks, reading: r,
		frames: c.frames[:0], ctes: c.ctes[:0], names: c.names[:0], targets: c.targets[:0], steps: c.steps,
	}
}

// is reports whether token k is the unquoted keyword kw.
func (c *scanner) is(k int, kw keyword) bool { return c.t[k].kw == kw }

func (c *scanner) lit(k int) string { return c.src[c.t[k].start:c.t[k].end] }

// note records an obstacle; the first word to blame is kept.
func (c *scanner) note(g Guard, word string) {
	if !c.guarded[g] {
		c.guarded[g], c.words[g] = true, word
	}
}

// begin prepares for a statement.
func (c *scanner) begin() {
	c.frames = append(c.frames[:0], frame{bodyOf: -1, cteName: -1})
	c.ctes, c.targets, c.base = c.ctes[:0], c.targets[:0], len(c.names)
	c.as, c.samples, c.dates, c.unknownFn, c.pending = -1, 0, 0, -1, 0
	c.variable, c.assigned, c.wrote, c.named = false, false, false, false
}

// scan reads the tokens [i, j) for tables, calls, locks and parts that write.
func (c *scanner) scan(i, j int) {
	for k := i; k < j; k++ {
		c.steps++
		t := &c.t[k]
		f := &c.frames[len(c.frames)-1]
		first := !f.begun
		switch t.kind {
		case ')', ']':
			c.pop()
			continue
		case '(', '[':
			f.begun = true
			c.push(k)
			continue
		}
		f.begun = true
		if f.list == expects {
			next, more := c.expected(f, k, first)
			if !more {
				k = next
				continue
			}
			k = next
			t = &c.t[k]
		}
		switch t.kind {
		case ',':
			if f.commas < 2 {
				f.commas++
			}
			if f.with {
				if c.nameLike(k + 1) {
					f.cteName = int32(k + 1)
					k = c.glue(k + 1)
				}
			} else if f.list == within {
				f.list = expects
			}
		case kWord:
			k = c.word(f, k, j, first)
		case kQuoted:
			if c.t[k+1].kind == '(' {
				c.call(k, called(unquote(c.lit(k))))
			}
			c.dateLiteral(k)
		case kString:
			c.dateLiteral(k)
		case kVar:
			c.variable = true
			c.note(GuardSession, c.lit(k))
		case kAssign:
			c.assigned = true
		}
	}
	for len(c.frames) > 1 {
		c.unbalanced = true
		c.pop()
	}
	c.settleTargets()
	if c.samples > 0 {
		c.random = true
	}
	// "@x := 1" assigns; without a variable in sight ":=" is PostgreSQL's way to name an argument.
	if c.assigned && (c.variable || c.dialect == MySQL) {
		c.taints = true
		c.note(GuardSession, ":=")
	}
}

func (c *scanner) push(k int) {
	f := &c.frames[len(c.frames)-1]
	child := frame{cteBase: int32(len(c.ctes)), cteName: -1, bodyOf: -1, visible: f.visible, fn: c.pending}
	c.pending = 0
	if c.t[k].kind == '(' {
		if f.list == expects {
			// A parenthesised join, or a sub-query, which its SELECT will tell.
			child.list, child.write, child.match = expects, f.write, f.match
			f.list = within
		}
		if f.with {
			switch prev := c.t[k-1]; {
			case f.cteName >= 0 && (c.as == k-1 || prev.kw == kwMaterialized):
				child.bodyOf, child.bodyRec = f.cteName, f.recursive
				f.cteName = -1
				if c.dialect == MySQL || c.dialect == Unknown {
					// In a WITH within another's query, MariaDB 10.11 takes the other's names for tables.
					child.visible = f.cteBase
				}
				if f.recursive {
					c.define(child.bodyOf)
					child.cteBase = int32(len(c.ctes))
				}
			case prev.kind == ')':
				// WITH … (SELECT …): the main query, in parentheses.
				f.with, f.verb = false, kwSelect
			}
		}
		if child.fn&fnDate != 0 {
			c.dates++
		}
	}
	c.frames = append(c.frames, child)
}

func (c *scanner) pop() {
	if len(c.frames) == 1 {
		c.unbalanced = true
		return
	}
	f := c.frames[len(c.frames)-1]
	c.frames = c.frames[:len(c.frames)-1]
	c.ctes = c.ctes[:f.cteBase]
	if f.bodyOf >= 0 && !f.bodyRec {
		c.define(f.bodyOf)
	}
	if f.fn&fnDate != 0 {
		c.dates--
	}
	if f.fn&fnTime0 != 0 && !f.begun || f.fn&fnTime1 != 0 && f.commas == 0 {
		c.time = true
	}
}

// define makes the table expression named by token k visible until its frame ends.
func (c *scanner) define(k int32) {
	if len(c.ctes) < maxCTEs {
		i := int(k)
		c.ctes = append(c.ctes, cte{name: unquote(c.src[c.t[i].start:c.t[c.glue(i)].end]), quoted: c.t[i].kind != kWord})
	}
}

// hides reports whether a table expression in scope certainly bears this name. The dialects differ in when two
// spellings are one name, so where they would not all agree the answer is no, and the name counts as a table's.
func (c *scanner) hides(name string, quoted bool) bool {
	visible := int(c.frames[len(c.frames)-1].visible)
	for i := len(c.ctes) - 1; i >= visible; i-- {
		c.steps++
		if c.sameName(&c.ctes[i], name, quoted) {
			return true
		}
	}
	return false
}

func (c *scanner) sameName(e *cte, name string, quoted bool) bool {
	same := e.name == name
	switch c.dialect {
	case MySQL: // on some systems case counts
		return same
	case SQLite:
		return same || isASCII(name) && strings.EqualFold(e.name, name)
	case PostgreSQL:
		// Without quotes, capitals are taken for small letters, and of letters beyond ASCII only the server knows which.
		switch {
		case e.quoted == quoted:
			return same || !quoted && isASCII(name) && strings.EqualFold(e.name, name)
		case quoted:
			return isLower(name) && strings.EqualFold(e.name, name)
		}
		return isLower(e.name) && strings.EqualFold(e.name, name)
	}
	return same && (e.quoted == quoted || isLower(name))
}

// mayHide reports whether a table expression in scope bears this name as some dialect or setting would see it.
func (c *scanner) mayHide(name string) bool {
	for i := range c.ctes {
		c.steps++
		if strings.EqualFold(c.ctes[i].name, name) {
			return true
		}
	}
	return false
}

// nameLike reports whether token k can be a name.
func (c *scanner) nameLike(k int) bool {
	switch t := &c.t[k]; t.kind {
	case kWord, kQuoted, kString:
		return true
	case kParam, '$':
		// MySQL lets a name begin with a dollar sign.
		return c.src[t.start] == '$' && (c.dialect == MySQL || c.dialect == Unknown)
	case kNumber:
		return c.t[k+1].glued
	}
	return false
}

// expected handles token k where a table is expected. It returns the last token it has used, and whether that one is
// still to be looked at as any other.
func (c *scanner) expected(f *frame, k int, first bool) (last int, more bool) {
	t := &c.t[k]
	next := &c.t[k+1]
	switch t.kind {
	case '.', '{', '*':
		return k, false
	case ',':
		return k, true
	case kWord:
		switch t.kw {
		case kwSelect:
			return k, true
		case kwWith:
			// To SQLite it is a name where no query can begin.
			if first && c.withList(k) > 0 {
				return k, true
			}
		case kwValues:
			if (next.kind == '(' || next.kw == kwRow) && !f.write {
				return k, true
			}
		case kwInsert, kwMerge, kwReplace:
			// A verb only with what cannot be an alias behind it, in parentheses of their own.
			if first && f.verb == 0 && next.kw == kwInto {
				return k, true
			}
		case kwDelete:
			if first && f.verb == 0 && next.kw == kwFrom {
				return k, true
			}
		case kwUpdate:
			if first && f.verb == 0 && c.is(k+2, kwSet) {
				return k, true
			}
		case kwFrom, kwInto:
			if f.verb == kwDelete || f.write {
				return k, false
			}
		case kwOj:
			if c.t[k-1].kind == '{' {
				return k, false
			}
		case kwTable:
			if next.kind == '(' { // TABLE(f(x))
				f.list = within
				return k, false
			}
			return k, false
		case kwLateral:
			switch {
			case next.kind == '(' && c.dialect != SQLite && !f.write, c.dialect == PostgreSQL:
				return k, false
			case c.dialect == Unknown && c.nameLike(k+1):
				c.table("lateral", f.write) // which it is where the word is not reserved, and then what follows its alias
				return k, false
			}
		case kwOnly:
			if next.kind == '(' || c.nameLike(k+1) {
				if (c.dialect == MySQL || c.dialect == SQLite) && next.kind != '(' {
					c.table("only", f.write) // "only" is a name there, and what follows its alias
				}
				return k, false
			}
		case kwRows:
			if next.kw == kwFrom {
				return k + 1, false
			}
		case kwIf: // DROP TABLE IF EXISTS
			if f.write && next.kw == kwExists {
				return k + 1, false
			}
		case kwOr: // INSERT OR REPLACE, UPDATE OR FAIL
			if f.write {
				return k + 1, false
			}
		case kwConcurrently:
			if f.write && c.nameLike(k+1) {
				return k, false // DROP INDEX CONCURRENTLY
			}
		case kwLowPriority, kwHighPriority, kwDelayed, kwQuick, kwIgnore:
			// What MySQL takes between a verb and its table is a table's name to the others.
			if (c.dialect == MySQL || c.dialect == Unknown) && f.write && c.modifies(k) {
				if c.dialect == Unknown && next.kw != kwInto && next.kw != kwFrom {
					c.table(lowered(c.lit(k)), true)
				}
				return k, false
			}
		case kwTemp, kwTemporary, kwUnlogged, kwLocal, kwGlobal:
			// SELECT INTO TEMP t. Elsewhere each of them may name a table.
			if f.single && f.verb == kwSelect && (next.kw == kwTable || c.nameLike(k+1) && next.kw != kwFrom && next.kw != kwWhere) {
				if t.kw == kwTemp || t.kw == kwTemporary {
					c.taints = true
				}
				return k, false
			}
		}
	case kVar:
		f.list = outside
		return k, true
	}
	if !c.nameLike(k) {
		f.list = within
		return k, true
	}
	return c.tableName(f, k)
}

// inTable takes the name at token k behind an IN, in the middle of whatever else f is at.
func (c *scanner) inTable(f *frame, k int) (last int) {
	list, write, single, match := f.list, f.write, f.single, f.match
	f.write, f.single, f.match = false, false, false
	last, more := c.tableName(f, k)
	if more {
		last-- // a call, which is still to be looked at
	}
	f.list, f.write, f.single, f.match = list, write, single, match
	return last
}

// modifies reports whether the word at token k stands between the verb of a write and its table: UPDATE IGNORE t.
func (c *scanner) modifies(k int) bool {
	switch c.t[k+1].kw {
	case kwSet, kwValues, kwSelect, kwDefault, kwAs, kwWhere, kwUsing, kwWith, kwTable, kwJoin:
		return false
	}
	const most = 4 // of them, in any grammar
	for i := k - 1; i >= 0 && k-i <= most; i-- {
		c.steps++
		switch c.t[i].kw {
		case kwDelete:
			return c.nameLike(k + 1)
		case kwInsert, kwUpdate, kwReplace:
			return c.nameLike(k+1) && !c.is(k, kwQuick)
		case kwLowPriority, kwHighPriority, kwDelayed, kwQuick, kwIgnore:
			continue
		}
		return false
	}
	return false
}

// tableName takes the name that begins at token k.
func (c *scanner) tableName(f *frame, k int) (last int, more bool) {
	qualified, first := false, k
	s, e := k, c.glue(k)
	for c.t[e+1].kind == '.' {
		n := e + 2
		if !c.nameLike(n) && c.t[n].kind != kNumber {
			break
		}
		c.schema(e, f.write)
		qualified = true
		s, e = n, c.glue(n)
	}
	f.list = within
	if c.t[e+1].kind == '(' && !f.write {
		if c.t[e].kind == kWord || c.t[e].kind == kQuoted {
			// A function. SQLite calls a virtual table as one, by its own name.
			if name := unquote(c.lit(e)); called(name)&fnKnown == 0 {
				switch c.dialect {
				case SQLite:
					c.table(TableTag(name), false)
				case Unknown:
					c.names = append(c.names, tableName{TableTag(name), false}) // which makes no call harmless
				}
			}
			return e, true
		}
	}
	if f.single {
		f.list, f.write, f.single = outside, false, false
		c.addName(s, e, qualified, true)
		return e, false
	}
	if !qualified && s == first && c.t[s].kind == kWord {
		c.bare(s)
	}
	write := f.write
	if f.match {
		write = c.targeted(s, e)
	}
	c.addName(s, e, qualified, write)
	return e, false
}

// secondList begins the list of tables that follows the targets of MySQL's DELETE: DELETE a, b FROM t a JOIN u b JOIN v.
// The targets may be aliases; the list says whose.
func (c *scanner) secondList(f *frame) {
	f.match = true
	for _, n := range c.names[c.deletes:] {
		if len(c.targets) <= maxTargets {
			c.targets = append(c.targets, target{name: n.name})
		}
	}
	c.names = c.names[:c.deletes]
}

// targeted reports whether the table named by the tokens s to e, or the alias behind it, is a target.
func (c *scanner) targeted(s, e int) bool {
	if len(c.targets) > maxTargets {
		return true
	}
	alias := e + 1
	if c.is(alias, kwAs) {
		alias++
	}
	found := false
	for i := range c.targets {
		c.steps++
		for _, n := range [...]string{c.src[c.t[s].start:c.t[e].end], c.src[c.t[alias].start:c.t[c.glue(alias)].end]} {
			if c.targets[i].name == TableTag(unquote(n)) {
				c.targets[i].found, found = true, true
			}
		}
	}
	return found
}

// settleTargets makes up for a target that was not found: then all that was listed may be written.
func (c *scanner) settleTargets() {
	for _, t := range c.targets {
		if t.found {
			continue
		}
		c.table(t.name, true)
		for i := c.deletes; i < len(c.names); i++ {
			c.names[i].write = true
		}
	}
	c.targets = c.targets[:0]
}

// glue returns the last token of a name that begins with a number, as MySQL allows: 2024_sales.
func (c *scanner) glue(k int) int {
	if c.t[k].kind != kNumber {
		return k
	}
	for c.t[k+1].glued && (c.t[k+1].kind == kWord || c.t[k+1].kind == kParam || c.t[k+1].kind == kNumber) {
		k++
	}
	return k
}

// schema looks at what qualifies a table.
func (c *scanner) schema(k int, write bool) {
	s := unquote(c.lit(k))
	switch l := lowered(s); {
	case strings.HasPrefix(l, "pg_temp"), l == "temp" && c.dialect != MySQL && c.dialect != PostgreSQL:
		c.note(GuardSession, c.lit(k))
		if write {
			c.taints = true
		}
	case l == "pg_catalog", l == "information_schema", l == "mysql", l == "performance_schema", l == "sys", l == "pg_toast":
		c.note(GuardCatalog, c.lit(k))
	}
}

// addName records the table named by the tokens s to e.
func (c *scanner) addName(s, e int, qualified, write bool) {
	raw := c.src[c.t[s].start:c.t[e].end]
	name := unquote(raw)
	if !write && !qualified && c.hides(name, c.t[s].kind != kWord) {
		return
	}
	l := TableTag(name)
	if l == "dual" && !qualified && !write {
		// Elsewhere it may be a table, but not one that makes a call harmless.
		if c.dialect != MySQL {
			c.names = append(c.names, tableName{l, false})
		}
		return
	}
	switch {
	case write:
	case strings.HasPrefix(l, "pg_") && c.dialect != MySQL && c.dialect != SQLite,
		strings.HasPrefix(l, "sqlite_"), strings.HasPrefix(l, "pragma_"), l == "dbstat":
		c.note(GuardCatalog, raw)
	}
	if !write && !qualified && c.mayHide(name) {
		// Perhaps a table, but not one that makes a call harmless.
		c.names = append(c.names, tableName{l, false})
		return
	}
	c.table(l, write)
}

func (c *scanner) table(lower string, write bool) {
	c.named = true
	c.names = append(c.names, tableName{lower, write})
}

// tables returns the names read and written, each sorted and unique.
func (c *scanner) tables() (reads, writes []string) {
	slices.SortFunc(c.names, func(a, b tableName) int {
		if a.write != b.write {
			if a.write {
				return 1
			}
			return -1
		}
		return strings.Compare(a.name, b.name)
	})
	names := slices.Compact(c.names)
	n := 0
	for n < len(names) && !names[n].write {
		n++
	}
	if len(names) == 0 {
		return nil, nil
	}
	all := make([]string, len(names))
	for i := range names {
		all[i] = names[i].name
	}
	if n > 0 {
		reads = all[:n:n]
	}
	if n < len(all) {
		writes = all[n:]
	}
	return reads, writes
}

// word handles the unquoted word k of a query or a write, and returns the last token it has used.
func (c *scanner) word(f *frame, k, j int, first bool) int {
	t := &c.t[k]
	prev, next := &c.t[k-1], &c.t[k+1]
	if prev.kind == '.' {
		if next.kind == '(' {
			c.call(k, called(c.lit(k)))
		}
		return k
	}
	alias := c.as == k-1
	if t.kw == 0 && t.fn == 0 {
		if next.kind == '(' && !alias {
			c.call(k, called(c.lit(k)))
		}
		return k
	}
	if t.kw == kwAs {
		if !alias {
			c.as = k
		}
		return k
	}
	if alias {
		// "SELECT a AS from": a label may be any word. Only what can begin a query is looked at.
		switch t.kw {
		case kwSelect, kwValues, kwTable, kwWith, kwMaterialized, kwNot:
		default:
			return k
		}
	}
	switch t.kw {
	case kwSelect:
		if f.verb == 0 {
			f.verb = kwSelect
		}
		f.list, f.write, f.single, f.with = outside, false, false, false
	case kwWith:
		if f.list == within {
			return k // WITH ORDINALITY, or to SQLite an alias: FROM a with JOIN (…)
		}
		return c.withClause(f, k)
	case kwNot, kwMaterialized:
		if alias && f.with {
			c.as = k // AS NOT MATERIALIZED (
		}
	case kwValues:
		if next.kind == '(' || next.kw == kwRow {
			if f.verb == kwSelect && f.list == within && !setOperator(c.lit(k-1)) {
				return k // FROM (…) values (x, y), t: an alias
			}
			if f.verb == 0 {
				f.verb = kwSelect
			}
			f.list, f.write, f.single, f.with = outside, false, false, false
			return k
		}
	case kwTable:
		if alias && f.verb != kwCreate {
			return k // SELECT a AS table FROM t
		}
		if next.kind != '(' && c.nameLike(k+1) && (f.verb == 0 || f.verb == kwSelect || f.verb == kwInsert || f.verb == kwReplace || f.verb == kwCreate) {
			if f.verb == 0 {
				f.verb = kwSelect
			}
			f.list, f.write, f.single, f.with = expects, false, false, false
			return k
		}
	case kwInsert, kwUpdate, kwDelete, kwMerge, kwReplace:
		if (first || f.with) && f.verb == 0 && next.kind != '(' && c.nameLike(k+1) {
			c.verb(f, k)
			return k
		}
		if t.kw == kwUpdate && (prev.kw == kwKey || prev.kw == kwDo) {
			// ON DUPLICATE KEY UPDATE, DO UPDATE: the SELECT before it is over, and so is its WITH.
			f.list = outside
			c.ctes = c.ctes[:min(len(c.ctes), int(f.ctesAtVerb))]
		}
	case kwFrom:
		switch {
		case f.fn&fnFrom != 0 && f.verb == 0: // extract(year FROM x)
		case prev.kw == kwDistinct && (c.is(k-2, kwIs) || c.is(k-2, kwNot)): // IS DISTINCT FROM
		default:
			f.list, f.single = expects, false
			f.write = f.verb == kwDelete || f.verb == kwUpdate && c.dialect == Unknown
			if f.verb == kwDelete && c.dialect == MySQL && !f.second {
				f.second = true
				c.secondList(f)
			}
		}
		return k
	case kwJoin:
		f.list = expects
		return k
	case kwStraightJoin:
		if f.list == within {
			f.list = expects
		}
		return k
	case kwApply:
		if prev.kw == kwCross || prev.kw == kwOuter {
			f.list = expects
		}
	case kwUsing:
		if (f.verb != kwMerge && f.verb != kwDelete) || f.second {
			return k // JOIN … USING (x)
		}
		f.list, f.second = expects, true
		f.write = f.verb == kwDelete && (c.dialect == MySQL || c.dialect == Unknown)
		if f.write && c.dialect == MySQL {
			c.secondList(f)
		}
		return k
	case kwSet:
		if f.verb != kwSelect && next.kind != ',' {
			f.list, f.write = outside, false
		}
	case kwWhere, kwHaving, kwOrder, kwLimit, kwGroup:
		if next.kind != ',' && prev.kw != kwWithin {
			f.list, f.write = outside, false
		}
	case kwReturning:
		if f.verb != kwSelect && f.verb != 0 && (c.nameLike(k+1) || next.kind == '*' || next.kind == '(') {
			f.list, f.write = outside, false
		}
	case kwWindow:
		if c.nameLike(k+1) && c.is(k+2, kwAs) {
			f.list = outside
		}
	case kwFor:
		n := c.forClause(k)
		if n > k && f.verb == kwSelect && c.guarded[GuardLocking] {
			f.list = outside // FOR UPDATE OF a, b: they are named before
		}
		return n
	case kwIn:
		if (c.dialect == SQLite || c.dialect == Unknown) && next.kind != kParam && c.nameLike(k+1) {
			return c.inTable(f, k+1) // SQLite: x IN t
		}
	case kwLock:
		if next.kw == kwIn && c.is(k+2, kwShare) {
			c.note(GuardLocking, "LOCK IN SHARE MODE")
			return k + 2
		}
	case kwInto:
		// Not the INTO of INSERT and MERGE, which comes where a table is expected.
		c.wrote = true
		c.note(GuardWrite, c.lit(k))
		switch next.kind {
		case kVar:
			c.taints = true
		case kWord:
			if next.kw != kwOutfile && next.kw != kwDumpfile {
				f.list, f.write, f.single = expects, true, true
			}
		case kQuoted:
			f.list, f.write, f.single = expects, true, true
		}
		return k
	case kwTablesample:
		c.samples++
	case kwRepeatable:
		if c.samples > 0 && next.kind == '(' {
			c.samples--
		}
	case kwNext, kwPrevious:
		if next.kw == kwValue && c.is(k+2, kwFor) {
			c.note(GuardVolatile, c.lit(k))
		}
	case kwSqlCalcFoundRows:
		c.note(GuardVolatile, c.lit(k)) // it is read by the next statement's FOUND_ROWS()
	}
	if next.kind == '(' {
		c.call(k, called(c.lit(k)))
	} else {
		c.bare(k)
	}
	return k
}

// withList returns the token that names the first table expression, if the WITH at token k begins a list of them.
func (c *scanner) withList(k int) int {
	n := k + 1
	if c.recursive(k) {
		n++
	}
	if !c.nameLike(n) {
		return 0 // WITH (fillfactor = 70)
	}
	e := c.glue(n)
	switch {
	case c.t[e+1].kind == '(':
	case c.is(e+1, kwAs) && (c.t[e+2].kind == '(' || c.is(e+2, kwMaterialized) || c.is(e+2, kwNot)):
	default:
		return 0 // WITH ORDINALITY, WITH TIES, WITH TIME ZONE
	}
	return n
}

// recursive reports whether RECURSIVE, and not a table expression of that name, stands behind the WITH at token k.
func (c *scanner) recursive(k int) bool {
	return c.is(k+1, kwRecursive) && c.nameLike(k+2) && !c.is(k+2, kwAs)
}

// withClause begins a list of table expressions, if the WITH at token k does.
func (c *scanner) withClause(f *frame, k int) int {
	n := c.withList(k)
	if n == 0 {
		return k
	}
	f.with, f.recursive, f.cteName = true, c.recursive(k), int32(n)
	f.list = outside
	return c.glue(n)
}

// verb begins a part that writes: the head of a statement, or of a table expression.
func (c *scanner) verb(f *frame, k int) {
	kw := c.t[k].kw
	c.wrote = true
	c.note(GuardWrite, c.lit(k))
	f.verb, f.with = kw, false
	f.list, f.write = expects, true
	c.deletes = len(c.names)
	f.ctesAtVerb = int32(len(c.ctes))
	f.single = kw == kwInsert || kw == kwReplace || kw == kwMerge
}

// forClause handles FOR: a lock, an index hint, or a part of something else.
func (c *scanner) forClause(k int) int {
	if p := c.t[k-1].kw; p == kwIndex || p == kwKey {
		// USE INDEX FOR JOIN (i): neither a join nor an ORDER BY. In SQLite "FROM key for JOIN t" has an alias.
		switch next := c.t[k+1].kw; {
		case next == kwJoin && c.dialect == MySQL, (next == kwOrder || next == kwGroup) && (c.dialect == MySQL || c.dialect == Unknown):
			return k + 1
		}
	}
	switch {
	case c.is(k+1, kwUpdate):
		c.note(GuardLocking, "FOR UPDATE")
		return k + 1
	case c.is(k+1, kwShare):
		c.note(GuardLocking, "FOR SHARE")
		return k + 1
	case c.is(k+1, kwNo) && c.is(k+2, kwKey) && c.is(k+3, kwUpdate):
		c.note(GuardLocking, "FOR NO KEY UPDATE")
		return k + 3
	case c.is(k+1, kwKey) && c.is(k+2, kwShare):
		c.note(GuardLocking, "FOR KEY SHARE")
		return k + 2
	}
	return k
}

// setOperator reports whether a word stands between two queries.
func setOperator(s string) bool {
	switch lowered(s) {
	case "union", "all", "distinct", "except", "intersect", "minus":
		return true
	}
	return false
}

// bare handles a word that some functions are without parentheses.
func (c *scanner) bare(k int) {
	fn := c.t[k].fn
	if fn&fnBare == 0 && (fn&fnBarePG == 0 || c.dialect != PostgreSQL && c.dialect != Unknown) {
		return
	}
	if fn&fnVolatile != 0 {
		c.note(GuardVolatile, c.lit(k))
	}
	if fn&fnTime != 0 {
		c.time = true
	}
}

// call handles the call of the function named by token k.
func (c *scanner) call(k int, fn fnFlags) {
	if fn&fnVolatile != 0 {
		c.note(GuardVolatile, c.lit(k))
	}
	if fn&fnCatalog != 0 {
		c.note(GuardCatalog, c.lit(k))
	}
	c.time = c.time || fn&fnTime != 0
	c.random = c.random || fn&fnRandom != 0
	c.allTables = c.allTables || fn&fnWrites != 0
	c.taints = c.taints || fn&fnTaint != 0 && !c.untilCommit(k)
	c.pending = fn
	known := fn&fnKnown != 0
	if c.t[k-1].kind == '.' {
		s := unquote(c.lit(k - 2))
		if len(s) >= 7 && strings.EqualFold(s[:7], "pg_temp") {
			c.note(GuardSession, c.lit(k-2))
		}
		// In a schema of the application even "lower" is anybody's.
		known = known && (fn&^(fnPure|fnNotCall) != 0 && fn&fnPure == 0 || strings.EqualFold(s, "pg_catalog") || strings.EqualFold(s, "sys"))
	}
	// "FROM (…) v(a)" and "WITH v(a) AS" name columns.
	columns := c.t[k-1].kind == ')' || c.as == k-1
	if !known && !columns {
		if c.unknownFn < 0 {
			c.unknownFn = k
		}
		if soundsLikeSession(unquote(c.lit(k))) {
			c.taints = true
			c.note(GuardSession, c.lit(k))
		}
	}
}

// soundsLikeSession guesses by its name whether a function of the application changes the session. Most of those that
// read a table beside it do not, and are too many to be left out for the few that do.
func soundsLikeSession(name string) bool {
	for _, verb := range [...]string{"set", "use", "switch", "change", "enter", "become", "assume", "impersonate", "login"} {
		if len(name) > len(verb) && name[len(verb)] == '_' && strings.EqualFold(name[:len(verb)], verb) {
			return true
		}
	}
	return false
}

// untilCommit says whether the call at k is PostgreSQL's set_config(…, …, true), which ends with the
// transaction as SET LOCAL does. Arguments that are long, or not literally true, are not looked through.
func (c *scanner) untilCommit(k int) bool {
	const most = 32
	if c.dialect != PostgreSQL || !strings.EqualFold(unquote(c.lit(k)), "set_config") {
		return false
	}
	depth := 0
	for i := k + 1; i < min(len(c.t), k+most); i++ {
		switch c.t[i].kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return c.t[i-2].kind == ',' && strings.EqualFold(c.lit(i-1), "true")
			}
		}
	}
	return false
}

// dateLiteral handles a quoted text that may be spelled like a moment.
func (c *scanner) dateLiteral(k int) {
	t := &c.t[k]
	if n := t.end - t.start; n < 5 || n > 20 {
		return
	}
	s := c.lit(k)
	now := false
	switch strings.ToLower(strings.TrimSpace(s[1 : len(s)-1])) {
	case "now":
		now = true
	case "today", "tomorrow", "yesterday":
	default:
		return
	}
	if now && c.dates > 0 {
		c.time = true
		return
	}
	if t.kind != kString || c.dialect != PostgreSQL && c.dialect != Unknown {
		return
	}
	// PostgreSQL takes them for dates wherever a date is wanted: by a cast, a type, or what they are compared with.
	prev := &c.t[k-1]
	switch {
	case c.dates > 0, c.t[k+1].kind == kCast, prev.fn&fnType != 0, prev.kw == kwBetween, prev.kind == '<', prev.kind == '>',
		prev.kind == '=', c.frames[len(c.frames)-1].fn&fnCast != 0:
		c.time = true
	}
}

// unquote returns a name as it is meant.
func unquote(s string) string {
	if len(s) < 2 {
		return s
	}
	q := s[0]
	switch q {
	case '[':
		return s[1 : len(s)-1]
	case '"', '`', '\'':
		if s[len(s)-1] != q {
			return s
		}
		in := s[1 : len(s)-1]
		if strings.IndexByte(in, q) < 0 {
			return in
		}
		return strings.ReplaceAll(in, string([]byte{q, q}), string([]byte{q}))
	}
	return s
}

// lowered is strings.ToLower, which for most names is the name itself.
func lowered(s string) string {
	if isLower(s) {
		return s
	}
	return strings.ToLower(s)
}

// isLower reports whether s is ASCII without capitals: a name that every dialect takes for the same.
func isLower(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 0x80 || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
