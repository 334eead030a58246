// Command testreport runs go test and says in few lines what became of it, and
// after several such runs how many tests passed, failed and were skipped.
//
//	testreport run -name NAME -state FILE -- go test -json …
//	testreport summary -state FILE -skips FILE
//
// run prints one line for each package and the output of what failed, appends
// the counts to the state file, and exits as the command did. summary lists
// every skipped test with its reason, fails when the list of allowed skips does
// not know one, and ends with "N passed, N failed, N skipped".
//
// Counted are tests without subtests and subtests without subtests of their
// own; a fuzz target with its seeds is one. A package that cannot be built, or
// ends outside of any test, counts as one failure.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

func main() {
	code, err := command(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func command(args []string, out io.Writer) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("usage: testreport run|summary …")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	name := flags.String("name", "", "what this run is called in the summary")
	state := flags.String("state", "", "file that collects the counts of several runs")
	skips := flags.String("skips", "", "file with the skips that are allowed")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	if *state == "" {
		return 2, errors.New("-state is missing")
	}
	switch args[0] {
	case "run":
		return runTests(*name, *state, flags.Args(), out)
	case "summary":
		return summary(*state, *skips, out)
	}
	return 2, fmt.Errorf("unknown command %q", args[0])
}

// A result is the counts of one run, as the state file keeps them.
type result struct {
	Name    string   `json:"name"`
	Passed  int      `json:"passed"`
	Failed  []string `json:"failed,omitempty"`  // package.Test, or a package
	Skipped []skip   `json:"skipped,omitempty"` // never in Failed
}

type skip struct {
	Test   string `json:"test"` // package.Test
	Reason string `json:"reason"`
}

func runTests(name, state string, args []string, out io.Writer) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("no command to run")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	res := report(stdout, out)
	res.Name = name
	waitErr := cmd.Wait()
	if waitErr != nil && len(res.Failed) == 0 {
		res.Failed = append(res.Failed, strings.Join(args, " "))
		fmt.Fprintf(out, "FAIL  %s: %v\n", strings.Join(args, " "), waitErr)
	}
	if err := appendState(state, res); err != nil {
		return 1, err
	}
	if len(res.Failed) > 0 {
		return max(cmd.ProcessState.ExitCode(), 1), nil
	}
	return 0, nil
}

func appendState(file string, res result) error {
	line, err := json.Marshal(res)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func readState(file string) ([]result, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []result
	for dec := json.NewDecoder(f); ; {
		var res result
		err := dec.Decode(&res)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, res)
	}
}

func summary(state, skips string, out io.Writer) (int, error) {
	allowed, err := readAllowed(skips)
	if err != nil {
		return 1, err
	}
	runs, err := readState(state)
	if err != nil {
		return 1, err
	}
	passed, failed, skipped, forbidden := 0, 0, 0, 0
	for _, res := range runs {
		fmt.Fprintf(out, "  %-40s %5d passed  %3d failed  %3d skipped\n", res.Name, res.Passed, len(res.Failed), len(res.Skipped))
		passed += res.Passed
		failed += len(res.Failed)
		skipped += len(res.Skipped)
	}
	for _, res := range runs {
		for _, test := range res.Failed {
			fmt.Fprintf(out, "failed   %s  (%s)\n", test, res.Name)
		}
	}
	for _, res := range runs {
		for _, s := range res.Skipped {
			note := ""
			if !allowed.match(s) {
				forbidden++
				note = "  <- not in " + skips
			}
			fmt.Fprintf(out, "skipped  %s: %s  (%s)%s\n", s.Test, s.Reason, res.Name, note)
		}
	}
	if forbidden > 0 {
		fmt.Fprintf(out, "%d skips are not allowed: make the tests run, or give a reason in %s\n", forbidden, skips)
	}
	if passed+failed+skipped == 0 {
		fmt.Fprintln(out, "no test ran")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || forbidden > 0 || passed == 0 {
		return 1, nil
	}
	return 0, nil
}

// allowedSkips are regular expressions for "package.Test: reason".
type allowedSkips []*regexp.Regexp

func (a allowedSkips) match(s skip) bool {
	for _, re := range a {
		if re.MatchString(s.Test + ": " + s.Reason) {
			return true
		}
	}
	return false
}

// readAllowed reads the list: one expression a line, each with a comment right above it.
func readAllowed(file string) (allowedSkips, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var (
		list      allowedSkips
		commented bool
	)
	scanner := bufio.NewScanner(f)
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		switch {
		case line == "":
			commented = false
		case strings.HasPrefix(line, "#"):
			commented = true
		case !commented:
			return nil, fmt.Errorf("%s:%d: no comment above says why this skip is allowed", file, n)
		default:
			re, err := regexp.Compile(line)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			list = append(list, re)
			commented = false
		}
	}
	return list, scanner.Err()
}
