package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An event is one line of go test -json; see go doc test2json and, for the
// build-… actions, go help buildjson.
type event struct {
	Action      string
	Package     string
	ImportPath  string // build-output, build-fail
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// A pkgRun gathers what is said of one package until its last event.
type pkgRun struct {
	tests  map[string]*testRun
	output strings.Builder // what belongs to no test
}

type testRun struct {
	action string // pass, fail, skip; empty while it runs
	parent bool   // has subtests
	output strings.Builder
}

// report reads events, prints the story to out, and returns the counts.
func report(in io.Reader, out io.Writer) result {
	var (
		res    result
		pkgs   = map[string]*pkgRun{}
		builds = map[string]*strings.Builder{} // compiler's words by import path
		shown  = map[string]bool{}             // … already printed
	)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, scanner.Text()) // not from test2json: pass it on
			continue
		}
		if strings.HasPrefix(e.Action, "build-") {
			b := builds[e.ImportPath]
			if b == nil {
				b = new(strings.Builder)
				builds[e.ImportPath] = b
			}
			b.WriteString(e.Output)
			continue
		}
		p := pkgs[e.Package]
		if p == nil {
			p = &pkgRun{tests: map[string]*testRun{}}
			pkgs[e.Package] = p
		}
		if e.Test != "" {
			p.testEvent(e)
			continue
		}
		switch e.Action {
		case "output":
			p.output.WriteString(e.Output)
		case "pass", "fail", "skip":
			if b := builds[e.FailedBuild]; b != nil && !shown[e.FailedBuild] {
				shown[e.FailedBuild] = true
				fmt.Fprint(out, b)
			}
			p.end(e, &res, out)
			delete(pkgs, e.Package)
		}
	}
	// A go command that is killed leaves packages without an end.
	for name, p := range pkgs {
		p.end(event{Action: "fail", Package: name}, &res, out)
	}
	return res
}

func (p *pkgRun) testEvent(e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = new(testRun)
		p.tests[e.Test] = t
		for name := e.Test; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			if parent := p.tests[name]; parent != nil {
				parent.parent = true
			}
		}
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.action = e.Action
	}
}

// end counts the tests of a package and prints its lines.
func (p *pkgRun) end(e event, res *result, out io.Writer) {
	var failed, skipped int
	passed := 0
	names := make([]string, 0, len(p.tests))
	for name := range p.tests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t := p.tests[name]
		top, _, sub := strings.Cut(name, "/")
		if sub && strings.HasPrefix(top, "Fuzz") {
			continue
		}
		if t.action == "" { // the process ended first
			if e.Action == "pass" {
				continue // a benchmark: test2json gives it no end
			}
			t.action = "fail"
			t.output.WriteString("    (did not end)\n")
		}
		switch {
		case t.action == "fail" && (!t.parent || !p.childFailed(name)):
			failed++
			res.Failed = append(res.Failed, e.Package+"."+name)
		case t.action == "skip":
			skipped++
			res.Skipped = append(res.Skipped, skip{e.Package + "." + name, skipReason(t.output.String())})
		case t.action == "pass" && (!t.parent || strings.HasPrefix(top, "Fuzz")):
			passed++
		}
	}
	res.Passed += passed

	took := time.Duration(e.Elapsed * float64(time.Second)).Round(100 * time.Millisecond)
	if e.Action != "fail" {
		if passed+skipped == 0 && e.Action == "skip" {
			return // no test files
		}
		note := ""
		if skipped > 0 {
			note = fmt.Sprintf(", %d skipped", skipped)
		}
		fmt.Fprintf(out, "ok    %-60s %8v  %d passed%s\n", e.Package, took, passed, note)
		return
	}
	if failed == 0 { // the build, TestMain, or the process
		failed++
		res.Failed = append(res.Failed, e.Package)
	}
	fmt.Fprintf(out, "FAIL  %-60s %8v  %d passed, %d failed\n", e.Package, took, passed, failed)
	for _, name := range names {
		if t := p.tests[name]; t.action == "fail" {
			printIndented(out, t.output.String())
		}
	}
	printIndented(out, p.output.String())
}

// childFailed says whether a subtest of name failed, so that name did only because of it.
func (p *pkgRun) childFailed(name string) bool {
	for other, t := range p.tests {
		if t.action != "pass" && t.action != "skip" && strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

func printIndented(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "=== RUN"), strings.HasPrefix(line, "=== PAUSE"),
			strings.HasPrefix(line, "=== CONT"), strings.HasPrefix(line, "=== NAME"),
			trimmed == "PASS", trimmed == "FAIL", strings.HasPrefix(trimmed, "FAIL\t"):
		default:
			fmt.Fprint(out, "      ", strings.TrimRight(line, "\n"), "\n")
		}
	}
}

var logLine = regexp.MustCompile(`^\s+[\w.\-]+\.go:\d+: `)

// skipReason takes the argument of t.Skip from a test's output: the last log
// entry before the verdict.
func skipReason(output string) string {
	reason, inReason := "", false
	for line := range strings.Lines(output) {
		switch prefix := logLine.FindString(line); {
		case prefix != "":
			reason, inReason = strings.TrimSpace(line[len(prefix):]), true
		case strings.HasPrefix(line, "        ") && inReason: // the entry goes on
			reason += " " + strings.TrimSpace(line)
		default:
			inReason = false
		}
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}
