package sqlherd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func fold(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestTheFirstRuleThatMatchesHolds(t *testing.T) {
	set, err := compileRules([]Rule{
		0: {Query: "SELECT  1\n FROM a"},
		1: {Name: "Get*"},
		2: {Name: "ListA", Tables: []string{"a"}},
		3: {Tables: []string{"geo.Countries", "currencies"}},
		4: {Pattern: `(?i)^select .* from audit`},
		5: {Name: "*", Pattern: "b"},
	}, fold)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why    string
		text   string
		name   string
		tables []string
		want   int // -1: none
	}{
		{"the text but for white space", "SELECT 1 FROM a", "", nil, 0},
		{"it comes before other matches", "SELECT 1 FROM a", "GetA", nil, 0},
		{"not a part of the text", "SELECT 1 FROM a WHERE b", "", nil, -1},
		{"a name by wildcard", "SELECT 2", "GetUser", nil, 1},
		{"a name as a whole", "SELECT 2", "MustGetUser", nil, -1},
		{"everything in a rule must match", "SELECT 2", "ListA", []string{"a"}, 2},
		{"the name alone is not enough", "SELECT 2", "ListA", []string{"c"}, -1},
		{"one of the tables", "SELECT 2", "", []string{"countries"}, 3},
		{"all of the tables", "SELECT 2", "", []string{"currencies", "countries"}, 3},
		{"a join with another table", "SELECT 2", "", []string{"countries", "orders"}, -1},
		{"no table at all", "SELECT 2", "", nil, -1},
		{"a pattern somewhere in the text", "Select x From audit_log", "", []string{"audit_log"}, 4},
		{"a wildcard does not match a query without a name", "SELECT b", "", nil, -1},
		{"but any name", "SELECT b", "B", nil, 5},
	} {
		got := -1
		if r := set.match(tt.text, tt.name, tt.tables); r != nil {
			for i := range set.rules {
				if r == &set.rules[i].rule {
					got = i
				}
			}
		}
		if got != tt.want {
			t.Errorf("%s: rule %d; want %d", tt.why, got, tt.want)
		}
	}
	if (*ruleSet)(nil).match("SELECT 1", "a", nil) != nil {
		t.Error("a nil set matches")
	}
}

const goodRules = `# What the reports may cost.
rules:
  - name: GetProduct*
    policy: {ttl: 30s, swr: 5m, tags: ["product/{1}", all], tables: none}
  - tables: [countries, currencies]
    query: |
      SELECT *
        FROM countries
    policy:
      ttl: 1h
      swr: 0
      jitter: 10%
      max-rows: 500
      max-bytes: 64KiB
      early: off
      allow: volatile
      on-wait-timeout: error
      name: geo
  - pattern: '(?i)^select .* from audit_log'
    policy: {ttl: off}
  - name: Rest
    policy: {}
`

func writeRules(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestARulesFileIsTheSameInYAML(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, file, goodRules)
	got, err := loadRulesFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Rule{
		{Name: "GetProduct*", Policy: Policy{TTL: 30 * time.Second, SWR: 5 * time.Minute, Tags: []string{"product/{1}", "all"}, Tables: []string{none}}},
		{
			Query: "SELECT *\n  FROM countries\n", Tables: []string{"countries", "currencies"},
			Policy: Policy{TTL: time.Hour, SWR: off, Jitter: 0.1, MaxRows: 500, MaxBytes: 64 << 10, EarlyBeta: off, AllowVolatile: true, OnWaitTimeout: WaitError, Name: "geo"},
		},
		{Pattern: "(?i)^select .* from audit_log", Policy: Policy{TTL: off}},
		{Name: "Rest"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got, err := parseRules("f", []byte("rules: []")); err != nil || len(got) != 0 {
		t.Errorf("no rules: %v, %v", got, err)
	}
}

var badRules = []struct{ name, text, want string }{
	{"an empty file", "", "sqlherd: f: is empty; for no rules write rules: []"},
	{"comments only", "# nothing\n", "sqlherd: f: is empty; for no rules write rules: []"},
	{"another key", "\nrule: []\n", `sqlherd: f:2: unknown key "rule"; there is rules`},
	{"an empty mapping", "{}", `sqlherd: f:1: the key rules is missing; for no rules write rules: []`},
	{"a list alone", "- name: a\n", `sqlherd: f:1: the file must be a mapping`},
	{"rules that are no list", "rules: 1\n", `sqlherd: f:1: rules must be a list`},
	{"a rule that is no mapping", "rules:\n  - a\n", `sqlherd: f:2: a rule must be a mapping`},
	{"two documents", "rules: []\n---\nrules: []\n", `sqlherd: f:2: a second document; one file holds one list of rules`},
	{"no YAML", "rules:\n  - name: 'a\n", `sqlherd: f:2: found unexpected end of stream`},
	{"an unknown key of a rule", "rules:\n  - nam: a\n    policy: {}\n", `sqlherd: f:2: unknown key "nam"; there are query, pattern, tables, name and policy`},
	{"a key twice", "rules:\n  - name: a\n    name: b\n    policy: {}\n", `sqlherd: f:3: "name" is given twice`},
	{"a rule that matches all", "rules:\n  - policy: {}\n", `sqlherd: f:2: rules[0] matches nothing; it needs a Query, a Pattern, Tables or a Name`},
	{"a rule without a policy", "rules:\n  - name: a\n", `sqlherd: f:2: the rule has no policy; for the defaults write policy: {}`},
	{"a bad pattern", "rules:\n  - policy: {}\n    pattern: '('\n", "sqlherd: f:3: pattern: error parsing regexp: missing closing ): `(`"},
	{"a bad wildcard", "rules:\n  - policy: {}\n    name: '['\n", `sqlherd: f:2: rules[0].Name is "["; must be a name or a pattern as path.Match knows it`},
	{"an unknown option", "rules:\n  - name: a\n    policy:\n      ttl: 1s\n      tll: 1s\n", `sqlherd: f:5: unknown option "tll"; there are ` + cacheOptions + `, on-wait-timeout`},
	{"a duration without a unit", "rules:\n  - name: a\n    policy:\n      ttl: 30\n", `sqlherd: f:4: ttl: has no unit; write 30s for seconds`},
	{"a duration below a millisecond", "rules:\n  - name: a\n    policy: {swr: 30ns}\n", `sqlherd: f:3: swr: must be at least 1ms; off turns it off`},
	{"a negative duration", "rules:\n  - name: a\n    policy: {ttl: -1s}\n", `sqlherd: f:3: ttl: must not be negative`},
	{"a list where one value belongs", "rules:\n  - name: [a]\n    policy: {}\n", `sqlherd: f:2: name must have a value, and one only`},
	{"an empty list", "rules:\n  - name: a\n    policy: {tags: []}\n", `sqlherd: f:3: tags must be a list that is not empty; write none for nothing`},
	{"a bad tag", "rules:\n  - name: a\n    policy: {tags: ['a{']}\n", `sqlherd: f:3: tags: tag "a{": has a brace without its partner; an argument is {1} or {name}`},
	{"an unknown action", "rules:\n  - name: a\n    policy: {on-wait-timeout: panic}\n", `sqlherd: f:3: on-wait-timeout: must be load or error`},
	{"an alias", "rules:\n  - &r {name: a, policy: {}}\n  - *r\n", `sqlherd: f:3: a rule must be a mapping`},
	{"a merge", "rules:\n  - name: a\n    policy: &p {ttl: 1s}\n  - name: b\n    policy: {<<: *p}\n", `sqlherd: f:5: anchors, aliases and keys that are no words are not supported`},
	{"several problems", "rules:\n  - name: a\n    policy: {ttl: x, swr: y}\n  - name: b\n", "sqlherd: f:3: ttl: must be a duration such as 30s, 5m or 1h30m\n" +
		"sqlherd: f:3: swr: must be a duration such as 30s, 5m or 1h30m\nsqlherd: f:4: the rule has no policy; for the defaults write policy: {}"},
}

func TestABadRulesFileSaysWhatAndInWhichLine(t *testing.T) {
	for _, tt := range badRules {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := parseRules("f", []byte(tt.text))
			if err == nil {
				t.Fatalf("no error but %+v", rules)
			}
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

func TestARulesFileThatCannotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	writeRules(t, large, "rules: [] #"+strings.Repeat("x", RulesFileBytesMax))
	for _, file := range []string{dir, large, filepath.Join(dir, "none.yaml")} {
		if _, err := loadRulesFile(file); err == nil || !strings.Contains(err.Error(), file) || !strings.HasPrefix(err.Error(), "sqlherd: ") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add([]byte(goodRules))
	for _, tt := range badRules {
		f.Add([]byte(tt.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := parseRules("f", data)
		if err != nil {
			return
		}
		for _, r := range rules {
			if errs := r.validate("r"); errs != nil {
				t.Fatalf("%q was taken, but %v", data, errs)
			}
		}
		if _, err := compileRules(rules, fold); err != nil {
			t.Fatal(err)
		}
	})
}

// A watched file in a bubble: its clock is virtual, its disk is real.
type watched struct {
	*testing.T
	*rulesWatcher
	file string

	mu      sync.Mutex // the watcher's goroutine writes what the test reads
	log     bytes.Buffer
	applied [][]Rule
	refuse  error
	version int
}

// Write takes in what is logged.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func watch(t *testing.T, text string) *watched {
	w := &watched{T: t, file: filepath.Join(t.TempDir(), "rules.yaml")}
	w.write(text)
	var err error
	w.rulesWatcher, err = newRulesWatcher(w.file, slog.New(slog.NewTextHandler(w, nil)), func(r []Rule) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.refuse != nil {
			return w.refuse
		}
		w.applied = append(w.applied, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	w.start()
	return w
}

// write replaces the content. The time of the file is set, since two writings
// can fall into one tick of the file system's clock.
func (w *watched) write(text string) {
	w.Helper()
	w.version++
	writeRules(w.T, w.file, text)
	if err := os.Chtimes(w.file, time.Time{}, time.Unix(int64(1_000_000+w.version), 0)); err != nil {
		w.Fatal(err)
	}
}

// looks lets the watcher look n times.
func (w *watched) looks(n int) {
	time.Sleep(time.Duration(n)*rulesPollInterval + time.Millisecond)
	synctest.Wait()
}

func (w *watched) expect(applied int, reloads, failures int64, logLines int) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.applied) != applied || w.reloads.Load() != reloads || w.failures.Load() != failures || strings.Count(w.log.String(), "\n") != logLines {
		w.Errorf("%d applied, %d reloads, %d failures; want %d, %d, %d, and %d lines in the log:\n%s",
			len(w.applied), w.reloads.Load(), w.failures.Load(), applied, reloads, failures, logLines, w.log.String())
	}
}

func TestAChangedRulesFileIsTakenOverOnceItHasSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "rules: [{name: a, policy: {}}]")
		w.looks(3)
		w.expect(1, 0, 0, 0)

		w.write("rules: [{name: b, policy: {}}]")
		w.looks(1)
		w.expect(1, 0, 0, 0) // it may still be being written
		w.looks(1)
		w.expect(2, 1, 0, 1)
		if got := w.applied[1][0].Name; got != "b" {
			t.Errorf("the rule is for %s", got)
		}
		w.looks(3)
		w.expect(2, 1, 0, 1)
		w.stop()
	})
}

func TestAFileThatIsBeingWrittenIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "rules: []")
		for i := range 5 {
			w.write("rules: [" + strings.Repeat("{name: x, policy: {}},", i))
			w.looks(1)
		}
		w.expect(1, 0, 0, 0)
		w.write("rules: [{name: x, policy: {}}]")
		w.looks(2)
		w.expect(2, 1, 0, 1)
		w.stop()
	})
}

func TestABrokenChangeKeepsTheRulesAndIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "rules: []")
		w.write("rules: [{name: a}]")
		w.looks(10)
		w.expect(1, 0, 1, 1)
		if !strings.Contains(w.log.String(), w.file+":1: the rule has no policy") {
			t.Errorf("the log does not say where: %s", w.log.String())
		}
		w.write("rules: [{name: a, policy: {}}]")
		w.looks(2)
		w.expect(2, 1, 1, 2)

		w.mu.Lock()
		w.refuse = errors.New("refused")
		w.mu.Unlock()
		w.write("rules: []")
		w.looks(5)
		w.expect(2, 1, 2, 3)
		w.stop()
	})
}

func TestALostFileKeepsTheRulesAndIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "rules: []")
		if err := os.Remove(w.file); err != nil {
			t.Fatal(err)
		}
		w.looks(5)
		w.expect(1, 0, 1, 1)
		w.write("rules: [{name: a, policy: {}}]")
		w.looks(3)
		w.expect(2, 1, 1, 2)
		w.stop()
	})
}

func TestTheWatcherEndsWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "rules: []")
		w.stop()
		w.stop()
		w.write("rules: [{name: a, policy: {}}]")
		time.Sleep(time.Minute)
		w.expect(1, 0, 0, 0)

		idle, err := newRulesWatcher(w.file, slog.New(slog.DiscardHandler), func([]Rule) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		idle.stop() // never started
		idle.start()
	})
}

func TestAWatcherOfABrokenFileIsAnErrorAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, file, "rules: [{name: a}]")
	if _, err := newRulesWatcher(file, slog.Default(), func([]Rule) error { return nil }); err == nil {
		t.Error("no error")
	}
	writeRules(t, file, "rules: []")
	refused := errors.New("refused")
	if _, err := newRulesWatcher(file, slog.Default(), func([]Rule) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error is %v", err)
	}
}
