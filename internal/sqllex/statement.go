package sqllex

import "strings"

// run reads every statement of the text.
func (c *scanner) run() {
	end := len(c.t) - 1
	count := 0
	for i := 1; i < end; {
		if c.t[i].kind == ';' {
			// An empty statement. One at the end is a habit; any other is not worth a closer look.
			if i+1 < end {
				c.note(GuardMulti, "")
			}
			i++
			continue
		}
		j := c.statementEnd(i, end)
		if count > 0 || j+1 < end {
			c.note(GuardMulti, "")
		}
		c.one(i, j, count)
		count++
		i = j + 1
	}
	if count == 0 {
		c.note(GuardText, "")
	}
}

// one reads the statement of tokens [i, j) and folds its effect into that of the text.
func (c *scanner) one(i, j, count int) {
	before := *c
	c.class, c.tx = ClassUnknown, TxNone
	c.begin()
	c.statement(i, j)
	if c.class != ClassRead {
		switch c.class {
		case ClassSession, ClassTx:
			c.note(GuardSession, c.lit(c.head(i, j)))
		default:
			c.note(GuardWrite, c.lit(c.head(i, j)))
		}
	}
	if count == 0 {
		if c.tx == TxUnknown {
			c.taints = true
		}
		return
	}
	if before.class.severity() > c.class.severity() {
		c.class = before.class
	}
	wroteBefore := before.allTables || before.class == ClassWrite || before.class == ClassSchema || before.class == ClassUnknown
	c.tx = then(before.tx, c.tx, wroteBefore)
	if c.tx == TxUnknown {
		c.taints = true
	}
}

// then is the effect of two statements in a row:
//
//	first     second    both
//	unknown   any       unknown
//	any       unknown   unknown
//	none      begin     begin, but unknown if the first wrote: its write is committed and the rest is not
//	begin     begin     begin
//	end       begin     unknown: one transaction is over and another is open
//	any       end       end
//	none      inside    inside
//	x         none      x
func then(first, second TxEffect, wrote bool) TxEffect {
	switch {
	case first == TxUnknown || second == TxUnknown:
		return TxUnknown
	case second == TxNone:
		return first
	case second == TxBegin && (first == TxEnd || wrote && first != TxBegin):
		return TxUnknown
	case second == TxInside && first != TxNone:
		return first
	}
	return second
}

// head returns the first token of a statement behind its opening parentheses.
func (c *scanner) head(i, j int) int {
	for i < j-1 && c.t[i].kind == '(' {
		i++
	}
	return i
}

// statementEnd returns the index of the token behind the statement that begins at i: its ';' or the end.
// Parentheses do not matter: an unclosed one must not hide a second statement.
func (c *scanner) statementEnd(i, end int) int {
	body := c.hasBody(i)
	depth := 0
	c.openBody = false
	for k := i; k < end; k++ {
		c.steps++
		t := &c.t[k]
		switch {
		case t.kind == ';':
			if depth == 0 {
				return k
			}
		case !body || t.kind != kWord || c.t[k-1].kind == '.':
		case t.kw == kwBegin:
			if c.dialect != PostgreSQL || c.is(k+1, kwAtomic) {
				depth++
			}
		case t.kw == kwCase && depth > 0 && !c.is(k-1, kwEnd):
			depth++
		case t.kw == kwEnd && depth > 0 && !c.is(k+1, kwIf) && !c.is(k+1, kwLoop) && !c.is(k+1, kwWhile) && !c.is(k+1, kwRepeat):
			depth--
		}
	}
	c.openBody = depth > 0
	return end
}

// hasBody reports whether the statement at i may contain statements of its own between BEGIN and END. Without it the
// END of a trigger would read as the end of a transaction.
func (c *scanner) hasBody(i int) bool {
	if c.is(i, kwBegin) {
		return c.beginsBlock(i)
	}
	if !c.is(i, kwCreate) && !c.is(i, kwAlter) {
		return false
	}
	for k := i + 1; k < i+24 && k < len(c.t) && c.t[k].kind != ';'; k++ {
		switch c.t[k].kw {
		case kwTrigger, kwProcedure, kwFunction, kwEvent, kwPackage:
			return true
		case kwTable, kwView, kwIndex:
			return false
		}
	}
	return false
}

// beginsBlock reports whether the BEGIN at i opens a block of statements rather than a transaction.
func (c *scanner) beginsBlock(i int) bool {
	next := &c.t[i+1]
	switch next.kw {
	case kwWork, kwTransaction, kwTran, kwDeferred, kwImmediate, kwExclusive, kwConcurrent, kwIsolation, kwRead, kwDeferrable:
		return false
	case kwNot:
		return !c.is(i+2, kwDeferrable)
	}
	return next.kind != ';' && next.kind != kEnd && next.kind != ')'
}

// statement reads one statement. Its class is ClassUnknown until something better is proven.
func (c *scanner) statement(i, j int) {
	h := c.head(i, j)
	explain := false
	for {
		inner, analyze, ok := c.explains(h, j)
		if !ok {
			break
		}
		if !explain {
			c.note(GuardSession, c.lit(h))
			explain = true
		}
		if !analyze || inner >= j {
			c.class = ClassRead
			// SQLite may obey a PRAGMA while it prepares it, explained or not. INTO @x assigns the plan.
			for k := h; k < min(j, h+8); k++ {
				if c.is(k, kwPragma) || c.t[k].kind == kVar {
					c.taints = true
				}
			}
			return
		}
		i, h = inner, c.head(inner, j)
	}

	switch kw := c.t[h].kw; kw {
	case kwSelect, kwValues, kwTable, kwWith:
		c.query(i, j)
	case kwInsert, kwUpdate, kwDelete, kwMerge, kwReplace:
		c.class = ClassWrite
		c.frames[0].begun = true
		if i == h {
			c.verb(&c.frames[0], h)
			c.scan(h+1, j)
		} else {
			c.scan(i, j)
		}
		c.wantTarget()
	case kwTruncate:
		c.class = ClassWrite
		c.implicitCommit()
		c.list(h+1, j)
		c.cascade(h, j)
	case kwCopy:
		c.copy(h, j)
	case kwLoad:
		c.load(h, j)
	case kwRefresh:
		c.class = ClassWrite
		k := h + 1
		for c.is(k, kwMaterialized) || c.is(k, kwView) || c.is(k, kwConcurrently) {
			k++
		}
		c.target(k)
		c.wantTarget()
	case kwCreate, kwAlter, kwDrop, kwRename:
		c.class = ClassSchema
		c.implicitCommit()
		c.ddl(h, j)
		if c.openBody {
			c.tx = TxUnknown // what looked like a body may have been a transaction
		}
	case kwComment:
		c.class = ClassSchema
	case kwGrant, kwRevoke, kwImport, kwReassign, kwSecurity:
		// Who may see what has changed, or objects have come from elsewhere.
		c.class, c.allTables = ClassSchema, true
		c.implicitCommit()

	case kwBegin:
		c.class, c.tx = ClassTx, TxBegin
		if c.beginsBlock(h) {
			c.unknown()
			c.tx = TxUnknown
		}
	case kwStart:
		if !c.is(h+1, kwTransaction) {
			c.unknown()
			return
		}
		c.class, c.tx = ClassTx, TxBegin
	case kwCommit, kwEnd, kwRollback, kwAbort:
		c.endTx(h, j)
	case kwSavepoint, kwRelease:
		c.class, c.tx = ClassTx, TxInside

	case kwShow, kwHelp, kwChecksum:
		c.class = ClassRead
		c.note(GuardSession, c.lit(h))
	case kwRepair:
		c.class, c.allTables = ClassWrite, true // it may lose rows
		c.implicitCommit()
	case kwVacuum:
		c.class = ClassSession
		c.allTables = c.dialect == SQLite || c.dialect == Unknown // a rowid that is no column may be another
		c.implicitCommit()
	case kwAnalyze, kwAnalyse, kwReindex, kwCluster, kwCheckpoint, kwOptimize, kwCheck, kwKill, kwNotify:
		c.class = ClassSession // maintenance: neither rows nor the session change
		c.implicitCommit()
	case kwSet:
		c.class, c.taints = ClassSession, true
		if c.dialect == PostgreSQL && (c.is(h+1, kwLocal) || c.is(h+1, kwTransaction) || strings.EqualFold(c.lit(h+1), "constraints")) {
			// It ends with the transaction, in which nothing is cached; outside of one it
			// does nothing. MySQL's SET LOCAL is for the whole session.
			c.taints = false
		}
		if strings.EqualFold(c.lit(h+1), "password") || c.is(h+1, kwDefault) {
			c.implicitCommit()
		}
		for k := h; k < j; k++ {
			switch c.t[k].kw {
			case kwAutocommit:
				c.tx = TxUnknown
			case kwFor: // MariaDB: SET STATEMENT x = 1 FOR DELETE …, or for an ALTER TABLE, which commits
				c.allTables = true
				c.implicitCommit()
			}
			if c.t[k+1].kind == '(' && c.nameLike(k) && c.dialect != PostgreSQL && called(unquote(c.lit(k)))&fnKnown == 0 {
				c.allTables = true // SET @id = create_order(7), which is SELECT create_order(7)
			}
			if c.t[k].kind == kVar && hasAutocommit(c.lit(k)) {
				c.tx = TxUnknown
			}
		}
	case kwPrepare:
		c.class, c.taints = ClassSession, true
		if c.is(h+1, kwTransaction) {
			c.class, c.tx = ClassTx, TxEnd
		}
	case kwXa:
		// A transaction of its own kind, which COMMIT may even end for somebody else.
		c.class, c.taints, c.tx = ClassTx, true, TxUnknown
		c.allTables = c.is(h+1, kwCommit)
	case kwDeclare:
		c.class, c.taints, c.allTables = ClassSession, true, true
		for k := h; k < j; k++ {
			if c.is(k, kwCursor) {
				c.allTables = false
				break
			}
		}
	case kwLock, kwUnlock, kwReset:
		c.class, c.taints = ClassSession, true
		c.implicitCommit()
	case kwDiscard, kwUse, kwPragma, kwListen, kwUnlisten, kwAttach, kwDetach, kwDeallocate,
		kwHandler, kwFetch, kwMove, kwClose:
		c.class, c.taints = ClassSession, true
	default: // CALL, DO, EXECUTE and all that is not known
		c.unknown()
	}
}

func (c *scanner) unknown() {
	c.class, c.taints, c.allTables, c.commits = ClassUnknown, true, true, true
}

// implicitCommit notes what MySQL commits for.
func (c *scanner) implicitCommit() {
	c.commits = c.commits || c.dialect == MySQL || c.dialect == Unknown
}

// hasAutocommit reports whether a variable is @@autocommit or @@session.autocommit.
func hasAutocommit(v string) bool {
	const name = "autocommit"
	return len(v) >= len(name) && lowered(v[len(v)-len(name):]) == name
}

// query reads a statement that may turn out to be a read.
func (c *scanner) query(i, j int) {
	c.scan(i, j)
	switch {
	case c.wrote:
		c.class = ClassWrite
	case c.frames[0].with && c.frames[0].verb == 0:
		c.unknown() // WITH, and then nothing that is known
		return
	default:
		c.class = ClassRead
	}
	if !c.named && c.unknownFn >= 0 {
		// SELECT set_tenant(7), SELECT create_order(8): called for what it does rather than for rows, as far as
		// anybody can tell. It is how procedures were called before there was CALL.
		c.calls = !c.allTables
		c.taints, c.allTables = true, true
		c.note(GuardSession, c.lit(c.unknownFn))
	}
}

// wantTarget makes up for a write whose target has not been found.
func (c *scanner) wantTarget() {
	for i := c.base; i < len(c.names); i++ {
		if c.names[i].write {
			return
		}
	}
	c.allTables = true
}

// explains strips EXPLAIN, DESCRIBE and MariaDB's ANALYZE SELECT from the statement whose first word is token h.
func (c *scanner) explains(h, j int) (inner int, analyze, ok bool) {
	switch c.t[h].kw {
	case kwExplain, kwDescribe, kwDesc:
	case kwAnalyze:
		// Elsewhere ANALYZE is followed by a table, if by anything.
		if c.dialect == PostgreSQL || c.dialect == SQLite {
			return h, false, false
		}
		k := c.skipFormat(h + 1)
		switch c.t[k].kw {
		case kwSelect, kwInsert, kwUpdate, kwDelete, kwReplace, kwWith, kwValues, kwMerge:
			return k, true, true
		}
		return h, false, false
	default:
		return h, false, false
	}
	k := h + 1
	for k < j {
		switch c.t[k].kw {
		case kwAnalyze, kwAnalyse:
			analyze = true
			k++
			continue
		case kwVerbose, kwExtended, kwPartitions, kwQuery, kwPlan:
			k++
			continue
		case kwFormat:
			k = c.skipFormat(k)
			continue
		}
		if c.t[k].kind != '(' {
			break
		}
		// Options, or a query in parentheses.
		switch c.t[c.head(k, j)].kw {
		case kwSelect, kwWith, kwValues, kwTable:
			return k, analyze, true
		}
		for k < j && c.t[k].kind != ')' {
			if c.is(k, kwAnalyze) || c.is(k, kwAnalyse) {
				analyze = true // "analyze false" too; who writes that can do without a cache
			}
			k++
		}
		k++
	}
	return min(k, j), analyze, true
}

// skipFormat skips FORMAT = x at token k.
func (c *scanner) skipFormat(k int) int {
	if !c.is(k, kwFormat) {
		return k
	}
	k++
	if c.t[k].kind == '=' {
		k++
	}
	if c.t[k].kind == kWord || c.t[k].kind == kString {
		k++
	}
	return k
}

// endTx reads COMMIT, END, ROLLBACK or ABORT.
func (c *scanner) endTx(h, j int) {
	c.class, c.tx = ClassTx, TxEnd
	k := h + 1
	switch c.t[k].kw {
	case kwIf, kwLoop, kwWhile, kwRepeat, kwCase:
		c.unknown() // the tail of a block whose head was not understood
		c.tx = TxUnknown
		return
	case kwPrepared:
		// Somebody's transaction, whose writes are not known here. The own one, if any, is not touched.
		c.class, c.tx, c.allTables = ClassTx, TxNone, true
		return
	}
	for ; k < j; k++ {
		switch {
		case c.is(k, kwTo) && c.is(h, kwRollback):
			c.tx = TxInside
			return
		case c.is(k, kwAnd) && c.is(k+1, kwChain):
			c.tx = TxBegin
			return
		}
	}
}

// target takes the name at token k for one that is written, and returns what follows it.
func (c *scanner) target(k int) int {
	if !c.nameLike(k) {
		return k
	}
	f := &c.frames[0]
	f.list, f.write, f.single = expects, true, true
	last, _ := c.tableName(f, k)
	return last + 1
}

// list takes the tokens [k, j) for a list of names that are written.
func (c *scanner) list(k, j int) {
	f := &c.frames[0]
	f.begun, f.list, f.write = true, expects, true
	c.scan(k, j)
	c.wantTarget()
}

// cascade looks for CASCADE, which reaches tables that are not named.
func (c *scanner) cascade(k, j int) {
	for ; k < j; k++ {
		if c.is(k, kwCascade) {
			c.allTables = true
			return
		}
	}
}

// copy reads COPY t FROM, COPY t TO and COPY (query) TO.
func (c *scanner) copy(h, j int) {
	c.note(GuardWrite, c.lit(h))
	k := h + 1
	if c.is(k, kwBinary) && c.nameLike(k+1) {
		k++
	}
	if c.t[k].kind == '(' {
		c.query(k, j)
		return
	}
	start := k
	for ; k < j; k++ {
		if c.t[k-1].kind == '.' || k == start {
			continue
		}
		if c.is(k, kwFrom) || c.is(k, kwTo) {
			break
		}
	}
	switch {
	case k >= j || !c.nameLike(start):
		c.unknown()
	case c.is(k, kwFrom):
		c.class = ClassWrite
		c.target(start)
	default:
		c.class = ClassRead
		f := &c.frames[0]
		f.list = expects
		c.tableName(f, start)
		// COPY t (a, b) TO: with the parenthesis it looked like a function.
		if last := c.lastOfName(start); c.t[last+1].kind == '(' {
			c.addName(last, last, last != start, false)
		}
	}
}

// lastOfName returns the last component of the name that begins at token k.
func (c *scanner) lastOfName(k int) int {
	for c.t[k+1].kind == '.' && c.nameLike(k+2) {
		k += 2
	}
	return k
}

// load reads MySQL's LOAD DATA. PostgreSQL's LOAD brings a library into the session.
func (c *scanner) load(h, j int) {
	if !c.is(h+1, kwData) && !c.is(h+1, kwXml) {
		c.class, c.taints = ClassSession, true
		c.implicitCommit() // LOAD INDEX INTO CACHE
		return
	}
	c.class = ClassWrite
	c.implicitCommit()
	for k := h; k < j; k++ {
		if c.is(k, kwInto) && c.is(k+1, kwTable) {
			c.target(k + 2)
			break
		}
		if c.t[k].kind == kVar {
			c.taints = true // fields read into variables
		}
	}
	c.wantTarget()
}

// ddl reads CREATE, ALTER, DROP and RENAME.
func (c *scanner) ddl(h, j int) {
	verb := c.t[h].kw
	// What stands between the verb and the kind of object: OR REPLACE, TEMPORARY, UNIQUE, DEFINER = … . The bound only
	// keeps a long text of another kind from being searched.
	object, described := 0, false
	for k := h + 1; k < min(j, h+24) && object == 0; k++ {
		switch c.t[k].kw {
		case kwTemp, kwTemporary:
			if verb == kwCreate {
				c.taints = true
			}
		case kwTable, kwTables, kwView, kwIndex:
			object = k
		case kwOr, kwReplace, kwMaterialized, kwRecursive, kwUnlogged, kwGlobal, kwLocal, kwIgnore:
		case kwTrigger, kwFunction, kwProcedure, kwEvent, kwPackage, kwSchema:
			k = j
		case kwSession:
			c.taints = true // ALTER SESSION
		default:
			switch lowered(c.lit(k)) {
			case "unique", "foreign", "virtual", "fulltext", "spatial", "online", "offline", "force":
			case "algorithm", "definer", "sql":
				described = true // CREATE DEFINER = a@b SQL SECURITY INVOKER VIEW v
			default:
				// CREATE RULE r AS … TABLE t: another kind of object, which holds these words.
				c.allTables = c.allTables || !described
			}
		}
	}
	if verb == kwCreate {
		c.temporaryName(h, j)
	}
	if object == 0 {
		c.allTables = true // roles, functions, triggers, schemas: anything may mean something else now
		return
	}
	k := object + 1
	if verb == kwRename {
		c.rename(object, j)
		return
	}
	if verb == kwDrop {
		c.list(k, j)
		c.cascade(h, j)
		for ; k < j; k++ {
			if c.is(k, kwOn) { // MySQL: DROP INDEX i ON t
				c.target(k + 1)
				break
			}
		}
		return
	}
	for c.is(k, kwIf) || c.is(k, kwNot) || c.is(k, kwExists) || c.is(k, kwOnly) || c.is(k, kwConcurrently) {
		k++
	}
	if c.is(object, kwIndex) {
		if verb == kwAlter {
			c.allTables = true // its table is not named
			return
		}
		for ; k < j; k++ {
			if c.is(k, kwOn) && c.t[k-1].kind != '.' {
				k++
				if c.is(k, kwOnly) && c.nameLike(k+1) {
					k++
				}
				c.target(k)
				break
			}
		}
		c.wantTarget()
		return
	}
	k = c.target(k)
	c.wantTarget()
	if verb == kwAlter {
		c.alter(k, j)
		return
	}
	// CREATE TABLE … AS SELECT reads.
	c.frames[0].verb = kwCreate
	c.scan(k, j)
}

// temporaryName looks for the name of an object that lasts as long as the session, whatever kind it is: a sequence in
// pg_temp hides a table of its name, and a domain there a type.
func (c *scanner) temporaryName(k, j int) {
	for j = min(j, k+24); k < j; k++ {
		if c.t[k+1].kind != '.' || !c.nameLike(k) {
			continue
		}
		s := lowered(unquote(c.lit(k)))
		if strings.HasPrefix(s, "pg_temp") || s == "temp" && c.dialect != MySQL && c.dialect != PostgreSQL {
			c.taints = true
		}
		return // the first name is the one that is made
	}
}

// alter reads what is done to a table: most of it concerns this table alone.
func (c *scanner) alter(k, j int) {
	for ; k < j; k++ {
		switch c.t[k].kw {
		case kwRename:
			c.renamed(k + 1)
		case kwTo:
			c.renamed(k)
		case kwAttach, kwDetach, kwExchange, kwInherit, kwSchema, kwCascade, kwMerge:
			c.allTables = true
		default:
			// MariaDB's CONVERT TABLE u TO PARTITION p, PostgreSQL's SPLIT PARTITION.
			if l := c.lit(k); strings.EqualFold(l, "split") || strings.EqualFold(l, "convert") {
				c.allTables = true
			}
		}
	}
}

// renamed takes the name behind an optional TO, AS or = at token k as written too: the table has it now.
func (c *scanner) renamed(k int) {
	if c.is(k, kwTo) || c.is(k, kwAs) || c.t[k].kind == '=' {
		k++
	}
	if !c.is(k, kwColumn) {
		c.target(k)
	}
}

// rename reads MySQL's RENAME TABLE a TO b, b TO c.
func (c *scanner) rename(k, j int) {
	for k++; k < j; k++ {
		if c.t[k].kind == ',' || c.is(k, kwTo) || c.is(k, kwIf) && c.is(k+1, kwExists) || c.is(k, kwExists) && c.is(k-1, kwIf) {
			continue
		}
		if n := c.target(k); n > k {
			k = n - 1
		}
	}
	c.wantTarget()
}
