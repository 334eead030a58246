package sqllex

// A keyText builds the normalized text of a statement from the pieces that mean something and the gaps between them.
// A text that is normalized already costs no copy: its key is a part of it.
type keyText struct {
	text  string
	buf   []byte
	start int // text[start:end] is not in buf yet
	end   int
	begun bool
	semi  bool // the last piece was a ';', held back until it is known whether it ends the text
	semiS int
	semiG gap
	last  byte // last byte of the piece before
}

// A gap is what stood between two pieces.
type gap uint8

const (
	gapSpace gap = 1 << iota
	gapLine      // a line end among it
	gapBlock     // a block comment among it
)

// piece adds text[s:e], which g separates from the piece before.
func (k *keyText) piece(s, e int, g gap) {
	if k.semi {
		k.semi = false
		k.add(k.semiS, k.semiS+1, k.semiG)
	}
	if e == s+1 && k.text[s] == ';' {
		k.semi, k.semiS, k.semiG = true, s, g
		return
	}
	k.add(s, e, g)
}

func (k *keyText) add(s, e int, g gap) {
	if !k.begun {
		k.begun = true
		k.start, k.end, k.last = s, e, k.text[e-1]
		return
	}
	sep := ""
	switch {
	case g == 0 && k.last == '-' && k.text[s] == '-':
		// MySQL's "5--#x\n1" is 5 - -1. Without its comment the dashes would begin one.
		sep = " "
	case g != 0:
		sep = " "
		// Two strings with a line end between them are one string in PostgreSQL; with a space alone they are an error.
		// A block comment between them makes it an error again, line end or not.
		if g&gapLine != 0 && g&gapBlock == 0 && k.last == '\'' && k.text[s] == '\'' {
			sep = "\n"
		}
	}
	if k.text[k.end:s] != sep {
		if k.buf == nil {
			k.buf = make([]byte, 0, len(k.text))
		}
		k.buf = append(k.buf, k.text[k.start:k.end]...)
		k.buf = append(k.buf, sep...)
		k.start = s
	}
	k.end, k.last = e, k.text[e-1]
}

func (k *keyText) String() string {
	if k.semi && k.last == ';' {
		// ";;" at the end stays as it is: some servers take an empty statement and some do not.
		k.semi = false
		k.add(k.semiS, k.semiS+1, k.semiG)
	}
	if k.buf == nil {
		return k.text[k.start:k.end]
	}
	return string(append(k.buf, k.text[k.start:k.end]...))
}
