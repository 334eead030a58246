package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The workers of a test are copies of the test binary.
func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// program runs the program and returns what it did.
func program(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func runsOf(t *testing.T, stdout string) []result {
	t.Helper()
	var report struct {
		Runs []result `json:"runs"`
	}
	dec := json.NewDecoder(strings.NewReader(stdout))
	if err := dec.Decode(&report); err != nil {
		t.Fatalf("standard output is not JSON: %v\n%s", err, stdout)
	}
	if dec.More() {
		t.Fatalf("more than one JSON object on standard output:\n%s", stdout)
	}
	return report.Runs
}

func TestEachModeAsksTheDatabaseAsOftenAsItShould(t *testing.T) {
	const callers, expiries = 60, 3
	code, stdout, stderr := program(t, t.Context(), "-json", "-procs=2", "-callers=60", "-expiries=3", "-load=50ms", "-ttl=1s")
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	runs := runsOf(t, stdout)
	if len(runs) != len(modes) {
		t.Fatalf("%d runs; want %d\n%s", len(runs), len(modes), stdout)
	}
	for i, r := range runs {
		m := modes[i]
		if r.Mode != m.name {
			t.Errorf("run %d is %q; want %q", i, r.Mode, m.name)
		}
		perExpiry, connsMax, procs := 1.0, 2, 2
		if !m.herd {
			perExpiry, connsMax = callers, callers
		}
		if m.alone {
			connsMax, procs = 1, 1
		}
		if r.DBQueriesPerExpiry != perExpiry || r.DBQueries != int(perExpiry)*expiries {
			t.Errorf("%s: %d queries, %v per expiry; want %v", r.Mode, r.DBQueries, r.DBQueriesPerExpiry, perExpiry)
		}
		if r.DBConnsPeak < 1 || r.DBConnsPeak > connsMax {
			t.Errorf("%s: %d connections; want at most %d", r.Mode, r.DBConnsPeak, connsMax)
		}
		if r.Procs != procs || r.Callers != callers || r.Expiries != expiries || r.Reads != callers*expiries {
			t.Errorf("%s: %d processes, %d callers, %d expiries, %d reads; want %d, %d, %d, %d",
				r.Mode, r.Procs, r.Callers, r.Expiries, r.Reads, procs, callers, expiries, callers*expiries)
		}
		var sum uint64
		for _, n := range r.Outcomes {
			sum += n
		}
		if sum != uint64(r.Reads) || r.Outcomes["error"] > 0 {
			t.Errorf("%s: outcomes %v; want %d in all, no error", r.Mode, r.Outcomes, r.Reads)
		}
		if !slices.IsSorted([]float64{0, r.P50MS, r.P95MS, r.P99MS, r.MaxMS}) || r.P50MS == 0 {
			t.Errorf("%s: p50 %v, p95 %v, p99 %v, max %v ms", r.Mode, r.P50MS, r.P95MS, r.P99MS, r.MaxMS)
		}
		if r.ColdMaxMS < 50 {
			t.Errorf("%s: a cold read took at most %v ms; the load alone takes 50", r.Mode, r.ColdMaxMS)
		}
		// A process that comes late finds the rows that another one has refreshed meanwhile.
		if m.swr && (r.Outcomes["stale"] == 0 || r.Outcomes["stale"]+r.Outcomes["hit"] < callers*(expiries-1)) {
			t.Errorf("%s: outcomes %v; want %d stale", r.Mode, r.Outcomes, callers*(expiries-1))
		}
	}
}

func TestJSONHasTheDocumentedFields(t *testing.T) {
	var out bytes.Buffer
	opt := options{procs: 1, callers: 1, expiries: 2}
	if err := writeJSON(&out, []result{newResult(opt, modes[0], sightings{}, count{}, map[string]uint64{})}); err != nil {
		t.Fatal(err)
	}
	var report map[string][]map[string]any
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"mode", "procs", "callers", "expiries", "reads", "db_queries", "db_queries_per_expiry", "db_conns_peak",
		"p50_ms", "p95_ms", "p99_ms", "max_ms", "outcomes",
	} {
		if _, ok := report["runs"][0][field]; !ok {
			t.Errorf("no field %s in %s", field, out.String())
		}
	}
}

func TestABadFlagIsNamedWithWhatItMustBe(t *testing.T) {
	for _, test := range []struct{ flag, want string }{
		{"-procs=0", "-procs is 0; must be from 1 to 64"},
		{"-callers=-1", "-callers is -1; must be from 1"},
		{"-callers=3", "-callers is 3; must be at least -procs, which is 4"},
		{"-expiries=1", "-expiries is 1; must be from 2"},
		{"-load=0", "-load is 0s; must be from 1ms"},
		{"-load=1h", "-load is 1h0m0s; must be from 1ms to 9s"},
		{"-load=fast", `invalid value "fast" for flag -load`},
		{"-ttl=1ms", "-ttl is 1ms; must be from 100ms"},
		{"-mode=fast", `-mode has "fast"; must be all or some of none,singleflight,singleflight+swr,fleet,fleet+swr`},
		{"-dsn=sqlite://x", `-dsn begins with "sqlite://"; must begin with postgres:// or`},
		{"-dsn=mysql://localhost", "must name a host and a database"},
		{"-redis=localhost:6379", `-redis begins with "localhost://"; must begin with redis://`},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"fleet", `unexpected argument "fleet"`},
	} {
		code, stdout, stderr := program(t, t.Context(), test.flag)
		if code != exitUsage || stdout != "" {
			t.Errorf("%s: exit code %d, standard output %q; want %d and nothing", test.flag, code, stdout, exitUsage)
		}
		if !strings.Contains(stderr, test.want) {
			t.Errorf("%s: said %q; want %q in it", test.flag, stderr, test.want)
		}
	}
}

func TestAPasswordInAnUnusableURLIsNotRepeated(t *testing.T) {
	for _, flag := range []string{"-dsn", "-redis"} {
		for _, url := range []string{"postgres://me:hunter2@ho st/x", "http://me:hunter2@host/x"} {
			_, _, stderr := program(t, t.Context(), flag, url)
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("%s %s: said %q", flag, url, stderr)
			}
		}
	}
}

func TestAServerThatIsNotThereIsAnErrorThatNamesTheFlag(t *testing.T) {
	for _, args := range [][]string{
		{"-dsn=postgres://localhost:1/x"}, {"-dsn=mysql://localhost:1/x"}, {"-redis=redis://localhost:1"},
	} {
		code, _, stderr := program(t, t.Context(), append(args, "-mode=fleet", "-json")...)
		name, _, _ := strings.Cut(args[0], "=")
		if code != exitFailed || !strings.Contains(stderr, "stampede: "+name+":") {
			t.Errorf("%v: exit code %d, said %q", args, code, stderr)
		}
	}
}

func TestHelpNamesEveryFlagAndMode(t *testing.T) {
	code, stdout, _ := program(t, t.Context(), "-h")
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range append(modeNames(), "-dsn", "-redis", "-procs", "-callers", "-load", "-ttl", "-expiries", "-mode", "-json") {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %s in the help", want)
		}
	}
}

func TestAnInterruptEndsWorkersAndRemovesTheFile(t *testing.T) {
	temp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, temp)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan int)
	var out, errs bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"-json", "-procs=2", "-callers=10", "-expiries=1000", "-mode=fleet"}, &out, &errs)
	}()
	// The file is there before the first worker starts, and gone when the program has ended,
	// which waits for its workers.
	deadline := time.After(30 * time.Second)
	for {
		files, err := filepath.Glob(filepath.Join(temp, "sqlherd-stampede-*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			break
		}
		select {
		case code := <-ended:
			t.Fatalf("ended with code %d\n%s", code, errs.String())
		case <-deadline:
			t.Fatal("no database file after 30 s")
		case <-time.After(time.Millisecond):
		}
	}
	interrupt()
	if code := <-ended; code != exitInterrupted || out.Len() > 0 {
		t.Errorf("exit code %d, standard output %q; want %d and nothing\n%s", code, out.String(), exitInterrupted, errs.String())
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestThePeakIsOfTheSumOverProcesses(t *testing.T) {
	a := ledger{Conns: []connEvent{{At: 1, Step: 1}, {At: 2, Step: 1}, {At: 5, Step: -1}, {At: 6, Step: -1}}}
	b := ledger{Conns: []connEvent{{At: 5, Step: 1}, {At: 7, Step: -1}, {At: 8, Step: 1}, {At: 9, Step: -1}}}
	if got := connsPeak([]ledger{a, b}); got != 3 {
		t.Errorf("peak %d; want 3: one opens at the moment another closes", got)
	}
	if got := connsPeak([]ledger{a}); got != 2 {
		t.Errorf("peak of one %d; want 2", got)
	}
	if got := connsPeak(nil); got != 0 {
		t.Errorf("peak of none %d", got)
	}
}

func TestQuantilesAreExact(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1)*time.Millisecond)
	}
	for _, test := range []struct{ q, want float64 }{{0.5, 50}, {0.95, 95}, {0.99, 99}, {1, 100}} {
		if got := quantile(hundred, test.q); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("quantile %v is %v; want %v", test.q, got, test.want)
		}
	}
	if got := quantile(hundred[:1], 0.5); got != 1 {
		t.Errorf("quantile of one value is %v", got)
	}
	if got := quantile(nil, 0.99); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}

func TestTheTableSaysWhatFailed(t *testing.T) {
	opt := options{procs: 4, callers: 1000, expiries: 5}
	reads := slices.Repeat([]time.Duration{time.Millisecond}, 5000)
	bad := newResult(opt, modes[0], sightings{rounds: 5, cold: reads[:1000], warm: reads[:3988], failed: 12, why: "too many clients", whyAfter: 15 * time.Second}, count{queries: 4988, connsPeak: 97}, map[string]uint64{"uncached": 4988})
	good := newResult(opt, modes[4], sightings{rounds: 5, warm: reads[:1]}, count{queries: 5, connsPeak: 2}, map[string]uint64{"stale": 4000, "miss": 1})
	var out bytes.Buffer
	if err := writeTable(&out, []result{bad, good}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"none: 12 of 5,000 reads failed, after up to 15.00s, and are not in the latencies: too many clients",
		"uncached 4,988, error 12",
		"stale 4,000, miss 1",
		"997.6",
		"with it (fleet+swr), 1 query and 1.0ms.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
