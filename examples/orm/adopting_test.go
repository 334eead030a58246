package orm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What docs/adopting.md shows is what these programs do.
func TestEverySnippetOfTheGuideIsInAProgramHere(t *testing.T) {
	guide, err := os.ReadFile("../../docs/adopting.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	var code strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			code.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	snippets := strings.Split(string(guide), "```go\n")[1:]
	if len(snippets) < 8 {
		t.Errorf("only %d snippets", len(snippets))
	}
	for _, s := range snippets {
		s, _, _ = strings.Cut(s, "```")
		if !strings.Contains(code.String(), s) {
			t.Errorf("no program has\n%s", s)
		}
	}
}
