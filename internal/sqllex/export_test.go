package sqllex

// Steps returns how much work Analyze does for text: bytes looked at by the lexer and tokens by the scanner, each as
// often as it is looked at.
func Steps(text string, d Dialect) int {
	a := new(analyzer)
	a.analyze(text, d)
	return a.lexer.steps + a.scanner.steps
}

// Reusing returns Analyze with scratch memory of its own, since the race detector makes a sync.Pool forget at random.
func Reusing() func(text string, d Dialect) Statement {
	a := new(analyzer)
	return func(text string, d Dialect) Statement {
		s := a.analyze(text, d)
		clear(a.names)
		return s
	}
}

// KeywordsSpelled reports whether every keyword has a spelling.
func KeywordsSpelled() bool {
	for _, s := range keywords[1:] {
		if s == "" {
			return false
		}
	}
	return true
}

// Cuts returns the offsets in text where tokens begin at which a gap may stand, or nil when some tokens depend on what they
// stand next to.
func Cuts(text string, d Dialect) []int {
	a := new(analyzer)
	a.lexer.reset(text, reading{dialect: d, lex: d})
	a.lexer.run()
	if a.ambiguous || a.sawExec || a.broken || a.odd {
		return nil
	}
	var cuts []int
	for i := 1; i < len(a.toks); i++ {
		t, prev := &a.toks[i], &a.toks[i-1]
		s := int(t.start)
		if prev.kind == kEnd || prev.end != t.start || t.kind == kEnd {
			continue
		}
		switch {
		case t.glued, prev.kind == kNumber, t.kind == kNumber: // 1a, 1.e5, a.5b
		case prev.kind == kWord && (t.kind == kString || t.kind == kQuoted): // E'x', U&"x"
		case prev.kind == '&', t.kind == '&':
		case t.kind == '.' && class[a.at(s+1)]&cDigit != 0: // a .5
		case prev.kind == kString && t.kind == kString:
		case text[s-1] == '@' || text[s] == '@', text[s-1] == '<' || text[s-1] == ':' || text[s] == ':':
		case prev.kind == '$' || t.kind == '$' || t.kind == kParam || prev.kind == kParam || t.kind == kVar || prev.kind == kVar:
		case prev.kind == '-' || prev.kind == '/' || prev.kind == '*':
		default:
			cuts = append(cuts, s)
		}
	}
	return cuts
}
