package sqllex

import (
	"strconv"
	"strings"
)

// MySQL and SQLite name a column that has no alias by the text of its expression, white space and comments included,
// which the key folds away. So what decides the names is gathered here: the raw text of such an expression, where it is
// not what the key has of it anyway.

// naming returns the expressions of all select lists whose raw text decides a column's name, each with its number.
func (l *lexer) naming() string {
	if l.lex == PostgreSQL {
		return "" // which calls it ?column?, or by its last function
	}
	var b strings.Builder
	items := 0
	for k := 1; k < len(l.toks)-1; k++ {
		if kw := l.toks[k].kw; kw != kwSelect && kw != kwValues {
			continue
		}
		for k++; l.toks[k].kw == kwDistinct; k++ {
		}
		k = l.namingList(k, &items, &b)
	}
	return b.String()
}

// namingList reads one list, which begins at k, with what is nested in it, and returns its last token.
func (l *lexer) namingList(k int, items *int, b *strings.Builder) int {
	first, depth := k, 0
	for ; ; k++ {
		t := &l.toks[k]
		ends := t.kind == kEnd || t.kind == ';'
		switch t.kind {
		case '(':
			depth++
		case ')':
			depth--
			ends = depth < 0
		}
		if depth == 0 {
			switch t.kw {
			case kwFrom:
				ends = l.toks[k-1].kw != kwDistinct // IS DISTINCT FROM
			case kwWhere, kwGroup, kwHaving, kwOrder, kwLimit, kwWindow, kwInto, kwSelect:
				ends = true
			}
		}
		if ends || depth == 0 && t.kind == ',' {
			*items++
			if raw := l.namingItem(first, k); raw != "" {
				b.WriteString(strconv.Itoa(*items))
				b.WriteByte(' ')
				b.WriteString(strconv.Itoa(len(raw)))
				b.WriteByte(' ')
				b.WriteString(raw)
			}
			first = k + 1
		}
		if ends {
			return k - 1 // a SELECT that follows has a list of its own
		}
	}
}

// namingItem returns the raw text of the tokens from i to before j, or "" when it names nothing that the key does not tell.
func (l *lexer) namingItem(i, j int) string {
	if i >= j || j-i > 2 && l.toks[j-2].kw == kwAs {
		return ""
	}
	raw := l.text[l.toks[i].start:l.toks[j-1].end]
	if l.lex != MySQL {
		// SQLite goes on to the next token.
		raw = strings.TrimRight(l.text[l.toks[i].start:l.toks[j].start], " \t\r\n\f\v")
	}
	column, folded := true, len(raw) > int(l.toks[j-1].end-l.toks[i].start)
	for k := i; k < j; k++ {
		switch l.toks[k].kind {
		case kWord, kQuoted, '.', '*':
		default:
			column = false
		}
		if k > i {
			if gap := l.text[l.toks[k-1].end:l.toks[k].start]; gap != "" && gap != " " {
				folded = true
			}
		}
	}
	if column || !folded {
		return ""
	}
	return raw
}
