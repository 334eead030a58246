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
