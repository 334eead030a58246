package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sightings are what the callers of a mode saw.
type sightings struct {
	rounds     int
	cold, warm []time.Duration // of the reads that got their row, in the first round and after it
	failed     int
	why        string        // the first failure
	whyAfter   time.Duration // the longest that a caller waited for its failure
}

func (s *sightings) add(reports []roundReport) {
	s.rounds++
	for _, r := range reports {
		if s.rounds == 1 {
			s.cold = append(s.cold, r.Took...)
		} else {
			s.warm = append(s.warm, r.Took...)
		}
		s.failed += r.Failed
		s.why = cmp.Or(s.why, r.Why)
		s.whyAfter = max(s.whyAfter, r.WhyAfter)
	}
}

func (s *sightings) reads() int { return len(s.cold) + len(s.warm) + s.failed }

// A result is one run of one mode. Its JSON is what -json prints.
type result struct {
	Mode               string            `json:"mode"`
	Procs              int               `json:"procs"`
	Callers            int               `json:"callers"`
	Expiries           int               `json:"expiries"` // the cold start included
	Reads              int               `json:"reads"`
	DBQueries          int               `json:"db_queries"`
	DBQueriesPerExpiry float64           `json:"db_queries_per_expiry"`
	DBConnsPeak        int               `json:"db_conns_peak"`
	ColdMaxMS          float64           `json:"cold_max_ms"` // the slowest read of the cold start
	P50MS              float64           `json:"p50_ms"`      // these are of the expiries after it
	P95MS              float64           `json:"p95_ms"`
	P99MS              float64           `json:"p99_ms"`
	MaxMS              float64           `json:"max_ms"`
	Outcomes           map[string]uint64 `json:"outcomes"` // sqlherd's, besides uncached and error

	seen        sightings
	asked       int // expiries
	redisFailed uint64
}

func newResult(opt options, m mode, seen sightings, c count, outcomes map[string]uint64) result {
	if seen.failed > 0 {
		outcomes["error"] = uint64(seen.failed)
	}
	slices.Sort(seen.cold)
	slices.Sort(seen.warm)
	return result{
		Mode:               m.name,
		Procs:              m.procs(opt),
		Callers:            opt.callers,
		Expiries:           seen.rounds,
		Reads:              seen.reads(),
		DBQueries:          c.queries,
		DBQueriesPerExpiry: math.Round(1000*float64(c.queries)/float64(max(seen.rounds, 1))) / 1000,
		DBConnsPeak:        c.connsPeak,
		ColdMaxMS:          quantile(seen.cold, 1),
		P50MS:              quantile(seen.warm, 0.50),
		P95MS:              quantile(seen.warm, 0.95),
		P99MS:              quantile(seen.warm, 0.99),
		MaxMS:              quantile(seen.warm, 1),
		Outcomes:           outcomes,
		seen:               seen,
		asked:              opt.expiries,
	}
}

// quantile returns the q-quantile of sorted in milliseconds: the smallest value that at least q
// of all are not above. It is 0 when there are none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return milliseconds(sorted[max(i, 0)])
}

// milliseconds is d in milliseconds, to the microsecond.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond).Microseconds()) / 1000
}

func writeJSON(w io.Writer, runs []result) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Runs []result `json:"runs"`
	}{runs})
}

// writeSetting says what is about to be measured.
func writeSetting(w io.Writer, opt options, db database, cache *sharedCache) {
	fmt.Fprintf(w, "\n%s callers read one key. Its query takes %v, its rows are fresh for %v.\n", thousands(opt.callers), opt.load, opt.ttl)
	fmt.Fprintf(w, "%d times they find no fresh rows, and all of them read at once; the first time is the cold start.\n\n", opt.expiries)
	fmt.Fprintf(w, "  database  %s\n", db)
	if cache != nil {
		fmt.Fprintf(w, "  Redis     %s\n", cache.about)
	}
	fmt.Fprintln(w)
}

// writeTable is the report for people.
func writeTable(w io.Writer, runs []result) error {
	table := [][]string{
		{"mode", "procs", "queries", "per expiry", "conns", "cold", "p50", "p95", "p99", "max", "outcomes"},
	}
	for _, r := range runs {
		table = append(table, []string{
			r.Mode, strconv.Itoa(r.Procs), thousands(r.DBQueries), decimal(r.DBQueriesPerExpiry), thousands(r.DBConnsPeak),
			latency(r.ColdMaxMS), latency(r.P50MS), latency(r.P95MS), latency(r.P99MS), latency(r.MaxMS),
			outcomeList(r.Outcomes),
		})
	}
	var b strings.Builder
	writeColumns(&b, table)
	b.WriteString(`
conns: most connections open at once, idle ones too. cold: slowest caller of the cold start. p50 to max: the expiries after it.
miss: loaded the row. shared, waited: waited for that load, in this or another process. stale: got the old row at once.

`)
	for _, r := range runs {
		r.writeRemarks(&b)
	}
	b.WriteString(verdict(runs) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRemarks says what the figures do not.
func (r result) writeRemarks(b *strings.Builder) {
	remark := func(format string, args ...any) {
		fmt.Fprintf(b, r.Mode+": "+format+"\n\n", args...)
	}
	if r.Expiries < r.asked {
		remark("ended after %d of %d expiries, since it took longer than %v.", r.Expiries, r.asked, bareMax)
	}
	if r.seen.failed > 0 {
		remark("%s of %s reads failed, after up to %s, and are not in the latencies: %s",
			thousands(r.seen.failed), thousands(r.Reads), latency(milliseconds(r.seen.whyAfter)), r.seen.why)
	}
	if r.redisFailed > 0 {
		remark("Redis answered late or not at all (%s times), and a process went on without it.", thousands(int(r.redisFailed)))
	}
}

// writeColumns sets the first and the last column flush left, and those between flush right.
func writeColumns(b *strings.Builder, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range table {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case i == len(row)-1:
				line.WriteString("  " + cell)
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// verdict is one sentence on what the runs show.
func verdict(runs []result) string {
	find := func(name string) *result {
		i := slices.IndexFunc(runs, func(r result) bool { return r.Mode == name })
		if i < 0 {
			return nil
		}
		return &runs[i]
	}
	bare := find("none")
	var best *result
	for _, name := range []string{"fleet+swr", "fleet", "singleflight+swr", "singleflight"} {
		if best = find(name); best != nil {
			break
		}
	}
	switch {
	case best == nil:
		return fmt.Sprintf("Without sqlherd each expiry costs the database %s, and a caller up to %s.",
			queries(bare.DBQueriesPerExpiry), latency(bare.MaxMS))
	case bare == nil:
		return fmt.Sprintf("With sqlherd (%s) each expiry costs the database %s, and 99 of 100 callers have their row within %s.",
			best.Mode, queries(best.DBQueriesPerExpiry), latency(best.P99MS))
	}
	return fmt.Sprintf("Without sqlherd each expiry costs the database %s and 99 of 100 callers up to %s; with it (%s), %s and %s.",
		queries(bare.DBQueriesPerExpiry), latency(bare.P99MS), best.Mode, queries(best.DBQueriesPerExpiry), latency(best.P99MS))
}

func queries(n float64) string {
	if n == 1 {
		return "1 query"
	}
	return decimal(n) + " queries"
}

// outcomeList has the most frequent outcome first.
func outcomeList(outcomes map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(outcomes), func(a, b string) int {
		return cmp.Or(cmp.Compare(outcomes[b], outcomes[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " " + thousands(int(outcomes[name]))
	}
	return strings.Join(names, ", ")
}

// latency is ms in the unit that leaves two or three digits.
func latency(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2fs", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0fms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fµs", ms*1000)
}

// decimal is n with at most one decimal, none when it is whole.
func decimal(n float64) string {
	if n == math.Trunc(n) {
		return thousands(int(n))
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

// thousands is n with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
