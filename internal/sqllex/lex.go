package sqllex

import "strings"

// A kind is the kind of a token. Punctuation is its own kind, by its byte.
type kind uint8

const (
	kEnd    kind = 0x80 + iota // before the first token and after the last
	kWord                      // unquoted identifier or keyword
	kQuoted                    // "x", `x`, [x]: an identifier, or in MySQL's default mode "x" a string
	kString                    // 'x' or a dollar quote
	kNumber
	kParam  // ? $1 :name @name
	kVar    // @x @@x where that is a variable of the session
	kCast   // ::
	kAssign // :=
)

// A token is 16 bytes, since there may be as many of them as bytes in the text.
type token struct {
	start, end int32
	kw         keyword // of a kWord
	fn         fnFlags // of a kWord
	kind       kind
	glued      bool // stands right behind a number: MySQL takes 2024_sales for one name
}

// A lexer cuts one text into tokens, comments and a key.
type lexer struct {
	text string
	reading
	toks     []token // toks[0] and the last are kEnd
	comments []Comment
	key      keyText

	gap     gap
	inExec  bool // within /*! */ that is executed
	execAt  int
	execGap gap // before it

	escaping     int // PostgreSQL: the last token, if it is a string in which a backslash escapes
	sawExec      bool
	ambiguous    bool // Unknown only: the dialects disagree about what follows, and the lexer has stopped
	broken       bool // something is not terminated
	odd          bool // something only an exotic text contains; tokens are right, or a superset
	placeholders int
	steps        int // work done, for the test that it is linear
}

func (l *lexer) reset(text string, r reading) {
	*l = lexer{text: text, reading: r, toks: append(l.toks[:0], token{kind: kEnd}), key: keyText{text: text}, steps: l.steps}
}

// Classes of bytes.
const (
	cSpace = 1 << iota
	cIdentStart
	cIdent
	cDigit
)

var class = func() (t [256]uint8) {
	for _, c := range " \t\n\r\f" {
		t[c] = cSpace
	}
	for c := range t {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80:
			t[c] = cIdentStart | cIdent
		case c >= '0' && c <= '9':
			t[c] = cDigit | cIdent
		case c == '$':
			t[c] = cIdent
		}
	}
	return t
}()

func (l *lexer) at(p int) byte {
	if p < len(l.text) {
		return l.text[p]
	}
	return 0
}

// emit adds a token, and to the key the piece it is.
func (l *lexer) emit(k kind, s, e int) *token {
	if !l.inExec {
		l.key.piece(s, e, l.gap)
		l.gap = 0
	}
	prev := &l.toks[len(l.toks)-1]
	glued := int(prev.end) == s && (prev.kind == kNumber || prev.glued) && s > 0
	l.toks = append(l.toks, token{start: int32(s), end: int32(e), kind: k, glued: glued})
	l.steps += e - s + 1
	return &l.toks[len(l.toks)-1]
}

func (l *lexer) run() {
	text := l.text
	for p := 0; p < len(text) && !l.ambiguous; {
		c := text[p]
		cl := class[c]
		switch {
		case cl&cSpace != 0:
			l.gap |= gapSpace
			if c == '\n' || c == '\r' {
				l.gap |= gapLine
			}
			p++
			l.steps++
		case cl&cIdentStart != 0:
			p = l.word(p)
		case cl&cDigit != 0:
			p = l.number(p)
		default:
			p = l.other(p, c)
		}
	}
	if l.inExec {
		l.broken = true
	}
	n := int32(len(text))
	l.toks = append(l.toks, token{start: n, end: n, kind: kEnd})
}

func (l *lexer) word(p int) int {
	e := p + 1
	for e < len(l.text) && class[l.text[e]]&cIdent != 0 {
		e++
	}
	t := l.emit(kWord, p, e)
	w := lookup(l.text[p:e])
	t.kw, t.fn = w.kw, w.fn
	return e
}

// number ends a number where a name or a keyword can begin: "1.FROM t" and, before PostgreSQL 15, "LIMIT 1FOR UPDATE"
// are two tokens each.
func (l *lexer) number(p int) int {
	e := l.digits(p)
	if l.at(e) == '.' && l.at(e+1) != '.' {
		e = l.digits(e + 1)
	}
	if c := l.at(e); c == 'e' || c == 'E' {
		x := e + 1
		if c := l.at(x); c == '+' || c == '-' {
			x++
		}
		if class[l.at(x)]&cDigit != 0 {
			e = l.digits(x)
		}
	}
	l.emit(kNumber, p, e)
	return e
}

func (l *lexer) digits(p int) int {
	for p < len(l.text) && class[l.text[p]]&cDigit != 0 {
		p++
	}
	return p
}

// other lexes what begins with neither space, letter nor digit.
func (l *lexer) other(p int, c byte) int {
	switch c {
	case '\'':
		return l.quoted(p, c, kString)
	case '"':
		if (l.lex == PostgreSQL || l.lex == Unknown) && p >= 2 && l.text[p-1] == '&' && l.text[p-2]|0x20 == 'u' {
			// U&"…" spells a name with escapes, of a letter the text itself may choose: any table, any function.
			l.broken = true
		}
		return l.quoted(p, c, kQuoted)
	case '`':
		if l.lex != PostgreSQL {
			return l.quoted(p, c, kQuoted)
		}
	case '[':
		switch l.lex {
		case Unknown:
			l.ambiguous = true // an array in PostgreSQL, a quoted name in SQLite
			return p
		case SQLite:
			n := strings.IndexByte(l.text[p:], ']')
			if n < 0 {
				return l.unterminated(p, kQuoted)
			}
			l.emit(kQuoted, p, p+n+1)
			return p + n + 1
		}
	case '-':
		if l.at(p+1) == '-' {
			if e, ok := l.lineComment(p, 2); ok {
				return e
			}
		}
	case '#':
		switch l.lex {
		case Unknown:
			l.ambiguous = true // a comment in MySQL, an operator in PostgreSQL
			return p
		case MySQL:
			e, _ := l.lineComment(p, 1)
			return e
		}
	case '/':
		if l.at(p+1) == '*' {
			return l.blockComment(p)
		}
	case '*':
		if l.inExec && l.at(p+1) == '/' {
			l.inExec = false
			l.key.piece(l.execAt, p+2, l.execGap)
			l.gap = 0
			return p + 2
		}
	case '$':
		return l.dollar(p)
	case '?':
		return l.question(p)
	case ':':
		switch n := l.at(p + 1); {
		case n == ':':
			l.emit(kCast, p, p+2)
			return p + 2
		case n == '=':
			l.emit(kAssign, p, p+2)
			return p + 2
		case class[n]&cIdent != 0 && (l.lex == SQLite || l.lex == Unknown):
			return l.param(p)
		}
	case '@':
		return l.at_(p)
	case '.':
		// ".5" is a number, but in "db.5tables" the dot belongs to the name before.
		prev := l.toks[len(l.toks)-1]
		afterName := int(prev.end) == p && (prev.kind == kWord || prev.kind == kQuoted)
		if class[l.at(p+1)]&cDigit != 0 && !afterName {
			return l.number(p)
		}
	case 0, '\v':
		// A NUL ends the text for some and is an error for others; a vertical tab is white space for some.
		l.odd = true
		if c == '\v' {
			l.gap |= gapSpace
			return p + 1
		}
	}
	l.emit(kind(c), p, p+1)
	return p + 1
}

func (l *lexer) unterminated(p int, k kind) int {
	l.broken = true
	l.emit(k, p, len(l.text))
	return len(l.text)
}

// quoted lexes 'x', "x" or `x`, beginning at p.
func (l *lexer) quoted(p int, q byte, k kind) int {
	var plain, escaped int
	switch {
	case q == '`' || l.lex == SQLite:
		plain = l.quoteEnd(p, q)
	case l.lex == PostgreSQL:
		if q == '\'' && l.escapes(p) {
			plain = l.escapedEnd(p, q)
			l.escaping = len(l.toks) // as the token will be
		} else {
			plain = l.quoteEnd(p, q)
		}
	case l.lex == MySQL:
		escaped = l.escapedEnd(p, q)
		// Under ANSI_QUOTES "x" is a name, where a backslash means itself.
		if q == '"' && !l.odd && l.quoteEnd(p, q) != escaped {
			l.odd = true
		}
		plain = escaped
	default:
		plain, escaped = l.quoteEnd(p, q), l.escapedEnd(p, q)
		if plain != escaped {
			l.ambiguous = true
			return p
		}
	}
	if plain < 0 {
		return l.unterminated(p, k)
	}
	if q == '`' && l.lex == Unknown {
		// To PostgreSQL a backtick is an operator, so what is between two of them must not matter.
		in := l.text[p+1 : plain-1]
		if strings.ContainsAny(in, "'\"\\;#$[@") || strings.Contains(in, "--") || strings.Contains(in, "/*") {
			l.ambiguous = true
			return p
		}
	}
	l.emit(k, p, plain)
	return plain
}

// escapes reports whether a backslash escapes in PostgreSQL's string at p: in E'it\'s', and in what continues one
// behind a line end, without an E of its own.
func (l *lexer) escapes(p int) bool {
	last := len(l.toks) - 1
	prev := l.toks[last]
	if prev.kind == kString {
		return l.escaping == last && l.gap&gapLine != 0 && l.gap&gapBlock == 0
	}
	return int(prev.end) == p && prev.kind == kWord && prev.end-prev.start == 1 && l.text[p-1]|0x20 == 'e'
}

// quoteEnd returns the end of what q opened at p, where a quote is doubled, or -1.
func (l *lexer) quoteEnd(p int, q byte) int {
	for e := p + 1; ; {
		n := strings.IndexByte(l.text[e:], q)
		if n < 0 {
			l.steps += len(l.text) - p
			return -1
		}
		e += n + 1
		if l.at(e) != q || e >= len(l.text) {
			l.steps += e - p
			return e
		}
		e++
	}
}

// escapedEnd is quoteEnd where a backslash takes the next byte along.
func (l *lexer) escapedEnd(p int, q byte) int {
	for e := p + 1; e < len(l.text); e++ {
		switch l.text[e] {
		case '\\':
			e++
		case q:
			if l.at(e+1) != q || e+1 >= len(l.text) {
				l.steps += e - p
				return e + 1
			}
			e++
		}
	}
	l.steps += len(l.text) - p
	return -1
}

// lineComment lexes a comment whose delimiter of width w stands at p, if it is one.
func (l *lexer) lineComment(p, w int) (end int, ok bool) {
	if n := l.at(p + 2); w == 2 && p+2 < len(l.text) && n > ' ' && n != 0x7f {
		// MySQL wants white space or a control character behind "--", so that "5--1" is 6.
		switch l.lex {
		case MySQL:
			return p, false
		case Unknown:
			l.ambiguous = true
			return p, true
		}
	}
	body := l.text[p+w:]
	// PostgreSQL alone ends a comment at a carriage return.
	ends := "\n"
	if l.lex == PostgreSQL {
		ends = "\r\n"
	}
	n := strings.IndexAny(body, ends)
	if n < 0 {
		n = len(body)
	}
	body = body[:n]
	l.steps += n + w
	if cr := strings.IndexByte(body, '\r'); cr >= 0 {
		// Before a line feed, or at the end, it is all the same.
		switch {
		case cr == len(body)-1:
			body = body[:cr]
		case l.lex == Unknown:
			l.ambiguous = true
			return p, true
		}
	}
	if l.inExec {
		l.odd = true
	} else {
		l.comments = append(l.comments, Comment{Text: body, Pos: p})
		l.gap |= gapSpace | gapLine
	}
	return p + w + len(body), true
}

func (l *lexer) blockComment(p int) int {
	if l.inExec {
		l.odd = true // servers disagree on whether a comment may stand in an executed one
	}
	var keep, exec bool
	switch l.at(p + 2) {
	case '+':
		keep = true
	case '!':
		keep, exec = true, true
	case 'M', 'm':
		exec = l.at(p+3) == '!'
		keep = exec
	}
	if exec {
		switch {
		case l.lex == Unknown:
			l.ambiguous = true
			return p
		case l.lex == MySQL:
			l.sawExec = true
			if !l.skipExec && !l.inExec {
				return l.exec(p)
			}
		}
	}
	e := l.blockEnd(p)
	if l.ambiguous {
		return p
	}
	if e < 0 {
		// To SQLite this is a comment all the same, but it is not worth an exception.
		l.broken = true
		return len(l.text)
	}
	switch {
	case l.inExec:
	case keep:
		l.key.piece(p, e, l.gap)
		l.gap = 0
	default:
		l.comments = append(l.comments, Comment{Text: l.text[p+2 : e-2], Pos: p})
		l.gap |= gapSpace | gapBlock
	}
	return e
}

// exec enters /*!50000 … */, whose content is SQL.
func (l *lexer) exec(p int) int {
	l.inExec, l.execAt, l.execGap = true, p, l.gap
	p += 3
	if l.text[p-1] != '!' {
		p++
	}
	for n := 0; n < 6 && class[l.at(p)]&cDigit != 0; n++ {
		p++
	}
	return p
}

// blockEnd returns the end of the block comment at p, or -1.
func (l *lexer) blockEnd(p int) int {
	body := l.text[p+2:]
	if l.lex != PostgreSQL {
		n := strings.Index(body, "*/")
		if n < 0 {
			l.steps += len(body)
			return -1
		}
		l.steps += n
		if l.lex == Unknown && strings.Contains(body[:n+2], "/*") {
			l.ambiguous = true // PostgreSQL nests
		}
		return p + 2 + n + 2
	}
	depth := 1
	for i := 0; i+1 < len(body); i++ {
		switch {
		case body[i] == '*' && body[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				l.steps += i
				return p + 2 + i + 1
			}
		case body[i] == '/' && body[i+1] == '*':
			depth++
			i++
		}
	}
	l.steps += len(body)
	return -1
}

// dollar lexes $1, $name and $tag$ … $tag$.
func (l *lexer) dollar(p int) int {
	if class[l.at(p+1)]&cDigit != 0 {
		e := l.digits(p + 1)
		l.count(l.text[p+1 : e])
		l.emit(kParam, p, e)
		return e
	}
	e := p + 1
	if class[l.at(e)]&cIdentStart != 0 && e < len(l.text) {
		for e < len(l.text) && class[l.text[e]]&cIdent != 0 && l.text[e] != '$' {
			e++
		}
	}
	if l.at(e) == '$' && l.lex != SQLite {
		switch l.lex {
		case Unknown:
			l.ambiguous = true
			return p
		case PostgreSQL:
			tag := l.text[p : e+1]
			n := strings.Index(l.text[e+1:], tag)
			if n < 0 {
				l.steps += len(l.text) - p
				return l.unterminated(p, kString)
			}
			end := e + 1 + n + len(tag)
			l.emit(kString, p, end)
			return end
		case MySQL:
			l.odd = true // part of a name up to 8.0, a quote since 9.0
		}
	}
	if e == p+1 && l.lex != SQLite {
		l.emit('$', p, e)
		return e
	}
	return l.param(p)
}

// param lexes a named parameter with its one-byte sigil at p.
func (l *lexer) param(p int) int {
	e := p + 1
	for e < len(l.text) && class[l.text[e]]&cIdent != 0 {
		e++
	}
	// SQLite's Tcl heritage: "$a::b(c)" and even ":a('/*)" are one parameter each.
	if (l.lex == SQLite || l.lex == Unknown) && (l.at(e) == '(' || l.at(e) == ':' && l.at(e+1) == ':') {
		l.odd = true
	}
	l.emit(kParam, p, e)
	return e
}

func (l *lexer) question(p int) int {
	if l.lex == PostgreSQL {
		l.emit('?', p, p+1) // an operator of jsonb
		return p + 1
	}
	e := l.digits(p + 1)
	if e > p+1 {
		l.count(l.text[p+1 : e])
	} else {
		l.placeholders++
	}
	l.emit(kParam, p, e)
	return e
}

func (l *lexer) count(digits string) {
	n := 0
	for i := 0; i < len(digits) && n < 1<<20; i++ {
		n = n*10 + int(digits[i]-'0')
	}
	l.placeholders = max(l.placeholders, n)
}

// at_ lexes what begins with '@': a variable in MySQL, a parameter in SQLite, an operator in PostgreSQL.
func (l *lexer) at_(p int) int {
	switch l.lex {
	case PostgreSQL:
		l.emit('@', p, p+1)
		return p + 1
	case SQLite:
		if class[l.at(p+1)]&cIdent != 0 {
			return l.param(p)
		}
		l.emit('@', p, p+1)
		return p + 1
	case Unknown:
		e := p + 1
		if l.at(e) == '@' {
			e++
		}
		n := l.at(e)
		name := class[n]&cIdent != 0 || n == '`' || n == '\'' || n == '"'
		if !name || p > 0 && l.text[p-1] == '<' {
			l.emit('@', p, p+1) // @> <@ @@ and the like
			return p + 1
		}
	}
	e := p + 1
	for e < len(l.text) && (class[l.text[e]]&cIdent != 0 || l.text[e] == '@' || l.text[e] == '.') {
		e++
	}
	l.emit(kVar, p, e)
	return e
}
