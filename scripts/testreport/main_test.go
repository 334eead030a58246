package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// events is what go test -json prints, less what nobody reads here.
const events = `
{"Action":"start","Package":"p/a"}
{"Action":"run","Package":"p/a","Test":"TestOK"}
{"Action":"pass","Package":"p/a","Test":"TestOK"}
{"Action":"run","Package":"p/a","Test":"TestParent"}
{"Action":"run","Package":"p/a","Test":"TestParent/good"}
{"Action":"pass","Package":"p/a","Test":"TestParent/good"}
{"Action":"run","Package":"p/a","Test":"TestParent/bad"}
{"Action":"output","Package":"p/a","Test":"TestParent/bad","Output":"    a_test.go:7: four is not five\n"}
{"Action":"fail","Package":"p/a","Test":"TestParent/bad"}
{"Action":"fail","Package":"p/a","Test":"TestParent"}
{"Action":"run","Package":"p/a","Test":"TestSkipped"}
{"Action":"output","Package":"p/a","Test":"TestSkipped","Output":"    a_test.go:9: some words before\n"}
{"Action":"output","Package":"p/a","Test":"TestSkipped","Output":"    a_test.go:10: needs a kernel\n        of version 7\n"}
{"Action":"output","Package":"p/a","Test":"TestSkipped","Output":"--- SKIP: TestSkipped (0.00s)\n"}
{"Action":"skip","Package":"p/a","Test":"TestSkipped"}
{"Action":"run","Package":"p/a","Test":"FuzzIt"}
{"Action":"run","Package":"p/a","Test":"FuzzIt/seed#0"}
{"Action":"pass","Package":"p/a","Test":"FuzzIt/seed#0"}
{"Action":"run","Package":"p/a","Test":"FuzzIt/seed#1"}
{"Action":"pass","Package":"p/a","Test":"FuzzIt/seed#1"}
{"Action":"pass","Package":"p/a","Test":"FuzzIt"}
{"Action":"fail","Package":"p/a","Elapsed":1.5}
{"ImportPath":"p/b [p/b.test]","Action":"build-output","Output":"b/b.go:3: undefined: x\n"}
{"ImportPath":"p/b [p/b.test]","Action":"build-fail"}
{"Action":"start","Package":"p/b"}
{"Action":"fail","Package":"p/b","Elapsed":0,"FailedBuild":"p/b [p/b.test]"}
{"Action":"start","Package":"p/c"}
{"Action":"run","Package":"p/c","Test":"TestPanics"}
{"Action":"output","Package":"p/c","Test":"TestPanics","Output":"panic: ouch\n"}
{"Action":"fail","Package":"p/c","Elapsed":0.1}
{"Action":"start","Package":"p/d"}
{"Action":"run","Package":"p/d","Test":"TestOK"}
{"Action":"pass","Package":"p/d","Test":"TestOK"}
{"Action":"output","Package":"p/d","Output":"goleak: found unexpected goroutines\n"}
{"Action":"fail","Package":"p/d","Elapsed":0.1}
{"Action":"start","Package":"p/e"}
{"Action":"skip","Package":"p/e","Elapsed":0}
{"Action":"start","Package":"p/f"}
{"Action":"run","Package":"p/f","Test":"TestSlow"}
`

func TestReportCountsLeavesAndWhateverKeptTestsFromRunning(t *testing.T) {
	var out strings.Builder
	res := report(strings.NewReader(events), &out)
	if res.Passed != 4 { // TestOK, TestParent/good, FuzzIt; TestOK of p/d
		t.Errorf("%d passed, want 4", res.Passed)
	}
	if want := []string{"p/a.TestParent/bad", "p/b", "p/c.TestPanics", "p/d", "p/f.TestSlow"}; !slices.Equal(res.Failed, want) {
		t.Errorf("failed: %q\nwant    %q", res.Failed, want)
	}
	if want := []skip{{"p/a.TestSkipped", "needs a kernel of version 7"}}; !slices.Equal(res.Skipped, want) {
		t.Errorf("skipped: %q\nwant     %q", res.Skipped, want)
	}
	for _, want := range []string{"four is not five", "undefined: x", "panic: ouch", "unexpected goroutines", "did not end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "p/e") || strings.Contains(out.String(), "some words before") {
		t.Errorf("the report says what is of no interest:\n%s", &out)
	}
}

func TestSummaryFailsForASkipThatIsNotAllowed(t *testing.T) {
	dir := t.TempDir()
	state, skips := filepath.Join(dir, "state"), filepath.Join(dir, "skips")
	for _, res := range []result{
		{Name: "one", Passed: 3},
		{Name: "two", Passed: 2, Skipped: []skip{{"p.TestX", "needs a kernel of version 7"}}},
	} {
		if err := appendState(state, res); err != nil {
			t.Fatal(err)
		}
	}
	for list, want := range map[string]int{
		"# This one runs on newer machines.\n" + `p\.TestX: needs a kernel`: 0,
		"# Nothing is allowed.\n":  1,
		`p\.TestX: needs a kernel`: 1, // without a comment
	} {
		if err := os.WriteFile(skips, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		code, err := summary(state, skips, &out)
		if code != want {
			t.Errorf("with the list %q: exit %d (%v), want %d", list, code, err, want)
		}
		if err == nil && !strings.HasSuffix(out.String(), "\n5 passed, 0 failed, 1 skipped\n") {
			t.Errorf("the last line is missing:\n%s", &out)
		}
	}
}

func TestSummaryFailsWhenNoTestRan(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := appendState(state, result{Name: "none"}); err != nil {
		t.Fatal(err)
	}
	if code, _ := summary(state, "", new(strings.Builder)); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}

func TestAnEmptyStateFileIsNoSuccess(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := summary(state, "", new(strings.Builder)); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}
