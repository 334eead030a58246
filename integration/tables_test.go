package integration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// What a write invalidates, and what a cached read depends on, comes from the text of the statements. Here the
// databases themselves say which tables a statement touches, and the lexer must have said so:
//
//	PostgreSQL  the locks that EXPLAIN takes; it locks whatever the text names, also what the planner removes
//	MariaDB     the metadata locks that EXPLAIN takes
//	SQLite      the questions that the compiler asks its authorizer
//
// All three are exact for what the text names. What it does not name, such as the tables of a view, is the
// subject of tables_unseen_test.go.

// touched is what a server says of one statement.
type touched struct {
	reads, writes []string // sorted, unique, in lower case; a table that is written may be in both
	writing       bool     // it is no read, whether or not a table is known to be written
}

// An oracle is a database that can say what a statement would touch.
type oracle interface {
	dialect() sqllex.Dialect
	// touches fails when the server does not accept the statement. Nothing of it remains.
	touches(text string) (touched, error)
}

// A ruling is what is asked of a statement beyond coverage.
type ruling struct {
	more bool // the lexer may name tables that the server does not touch, as long as they exist
	odd  bool // and what does not exist
}

// A judge compares the lexer with a server.
type judge struct {
	oracle
	tables map[string]bool // every table there is, in lower case
}

// check returns what is wrong with the lexer's reading of text, or "" and whether the server accepted it.
func (j judge) check(text string, r ruling) (fault string, accepted bool, err error) {
	got, err := j.touches(text)
	if err != nil {
		return "", false, err
	}
	s := sqllex.Analyze(text, j.dialect())
	if fault := covers(s, got); fault != "" {
		return fault, true, nil
	}
	if cautious := sqllex.Analyze(text, sqllex.Unknown); covers(cautious, got) != "" {
		return "as an unknown dialect: " + covers(cautious, got), true, nil
	}
	named := union(s.Reads, s.Writes)
	for _, t := range named {
		switch {
		case !j.tables[t] && !r.odd:
			return fmt.Sprintf("names %q, which is no table", t), true, nil
		case !r.more && !r.odd && !slices.Contains(union(got.reads, got.writes), t):
			return fmt.Sprintf("names %q, which the server does not touch", t), true, nil
		}
	}
	if r.odd {
		return "", true, nil
	}
	if s.AllTables {
		return "is not known", true, nil
	}
	if !got.writing && s.Class != sqllex.ClassRead {
		return fmt.Sprintf("is of class %v", s.Class), true, nil
	}
	return "", true, nil
}

// covers says what of got is missing in s.
func covers(s sqllex.Statement, got touched) string {
	if got.writing && s.Class == sqllex.ClassRead {
		return "passes for a read"
	}
	if got.writing && s.Guard == sqllex.GuardNone {
		return "could be cached, and writes"
	}
	if s.AllTables {
		return ""
	}
	for _, t := range got.writes {
		if !slices.Contains(s.Writes, t) {
			return fmt.Sprintf("does not write %q", t)
		}
	}
	for _, t := range got.reads {
		if !slices.Contains(s.Reads, t) && !slices.Contains(s.Writes, t) {
			return fmt.Sprintf("does not read %q", t)
		}
	}
	return ""
}

func union(a, b []string) []string {
	u := slices.Concat(a, b)
	slices.Sort(u)
	return slices.Compact(u)
}

func (j judge) explain(t *testing.T, text, fault string) {
	t.Helper()
	got, _ := j.touches(text)
	s := sqllex.Analyze(text, j.dialect())
	t.Errorf("%s\n%s\nserver: reads %q writes %q\nlexer:  reads %q writes %q, class %v, guard %v, all %v",
		fault, text, got.reads, got.writes, s.Reads, s.Writes, s.Class, s.Guard, s.AllTables)
}

// runCorpus judges statements one by one. Their marks are those of the corpus.
func (j judge) runCorpus(t *testing.T, corpus string) {
	n := 0
	for text := range strings.SplitSeq(corpus, "\n") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		n++
		text, more := strings.CutPrefix(text, "~ ")
		text, odd := strings.CutPrefix(text, "+ ")
		fault, accepted, err := j.check(text, ruling{more: more, odd: odd})
		switch {
		case !accepted:
			t.Errorf("%s\nis not accepted: %v", text, err)
		case fault != "":
			j.explain(t, text, fault)
		}
	}
	if n < 150 {
		t.Errorf("%d statements, want at least 150", n)
	}
	t.Logf("%d statements", n)
}

// generated is how many statements of the generator a server must accept. SQLHERD_TEST_GENERATED asks for more,
// SQLHERD_TEST_SEED for those of another seed.
const generated = 2500

// maxFaults is how many of them are shown.
const maxFaults = 10

// runGenerated judges what the generator makes.
func (j judge) runGenerated(t *testing.T, newGrammar func(*rand.Rand) *grammar) {
	want, seed := generated, uint64(1)
	if raceEnabled {
		want /= 5 // the lexer has no goroutines
	}
	if s := os.Getenv("SQLHERD_TEST_GENERATED"); s != "" {
		want, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("SQLHERD_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	accepted, refused, faults, writes := 0, 0, 0, 0
	for i := uint64(0); accepted < want && faults < maxFaults; i++ {
		g := newGrammar(rand.New(rand.NewPCG(seed, i)))
		text := g.statement()
		fault, ok, err := j.check(text, ruling{more: g.more, odd: g.exec})
		if !ok {
			refused++
			if refused > 3*want {
				t.Fatalf("the server refuses more than it accepts, such as\n%s\n%v", text, err)
			}
			continue
		}
		accepted++
		if s := sqllex.Analyze(text, j.dialect()); s.Class != sqllex.ClassRead {
			writes++
		}
		if fault != "" {
			faults++
			t.Logf("seed %d, statement %d", seed, i)
			j.explain(t, text, fault)
		}
	}
	if writes < accepted/5 || writes > accepted*4/5 {
		t.Errorf("%d of %d statements write: the generator makes too many or too few", writes, accepted)
	}
	t.Logf("seed %d: %d statements, %d of them write; %d more were refused", seed, accepted, writes, refused)
}

// corpusTables are those of every corpus: three columns of numbers each.
var corpusTables = []string{"a", "b", "c", "d", "t", "u", "v"}

// createTables returns statements that make tables, and a judge's set of their names.
func createTables(names []string, quote func(string) string, columns string) (statements []string, set map[string]bool) {
	set = map[string]bool{}
	for _, n := range names {
		statements = append(statements, "CREATE TABLE "+quote(n)+" "+columns)
		set[strings.ToLower(n)] = true
	}
	return statements, set
}

func doubleQuoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func backQuoted(name string) string   { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
