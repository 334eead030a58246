package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestTheWholeProgramOfTheReadmeIsThisOne(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(source), "\npackage main\n") // what precedes it is for go doc
	if !ok || !strings.Contains(string(readme), "```go\npackage main\n"+program+"```\n") {
		t.Error("the README does not show main.go as it is")
	}
}

func TestTheWholeProgramOfTheReadmePrintsWhatItsCommentsSay(t *testing.T) {
	t.Setenv("DATABASE_URL", dbtest.PQ(t).DSN)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	main()
	os.Stdout = stdout
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := "miss 12.5\nhit 12.5\nmiss 9.5\n"; string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
