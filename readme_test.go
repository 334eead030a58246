package sqlherd_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
)

// The README's tables are read by more people than the doc comments, so they are held to the constants.
func TestTheReadmesDefaultsAreTheConstants(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	for option, want := range map[string]string{
		"`ttl`":                   "`" + sqlherd.TTLDefault.String() + "`",
		"`empty`":                 "`ttl`/10, at most `" + sqlherd.EmptyDefaultMax.String() + "`",
		"`jitter`":                fmt.Sprintf("`%v`", sqlherd.JitterDefault),
		"`early`":                 fmt.Sprintf("`%v`", sqlherd.EarlyBetaDefault),
		"`lease`":                 "`" + sqlherd.LeaseDefault.String() + "`",
		"`max-rows`, `max-bytes`": fmt.Sprintf("`%d`, `%dMiB`", sqlherd.MaxRowsDefault, sqlherd.MaxBytesDefault>>20),
		"`Namespace`":             "`" + sqlherd.NamespaceDefault + "`",
		"`Local.MaxBytes`":        mib(sqlherd.LocalMaxBytesDefault),
		"`Local.TTL`":             "`" + sqlherd.LocalTTLDefault.String() + "`",
		"`MaxLoads`":              fmt.Sprint(sqlherd.MaxLoadsDefault),
		"`LoadTimeout`":           "`" + sqlherd.LoadTimeoutDefault.String() + "`",
		"`RedisTimeout`":          "`" + sqlherd.RedisTimeoutDefault.String() + "`",
	} {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(option) + ` \| ([^|]*) \|`).FindSubmatch(readme)
		if row == nil {
			t.Errorf("the README has no row for %s", option)
			continue
		}
		if got := string(row[1]); got != want {
			t.Errorf("the README says that %s defaults to %s, the constant says %s", option, got, want)
		}
	}
}

// docs/reasons.md explains every outcome and every reason, by the names that metrics carry.
func TestEveryOutcomeAndReasonIsExplained(t *testing.T) {
	page, err := os.ReadFile("docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for o := sqlherd.Outcome(0); o.String() != "invalid"; o++ {
		names = append(names, o.String())
	}
	for r := sqlherd.ReasonTx; r.String() != "invalid"; r++ {
		names = append(names, r.String())
	}
	if len(names) < 20 {
		t.Fatalf("only %d names: %v", len(names), names)
	}
	for _, n := range names {
		if !strings.Contains(string(page), "| `"+n+"` |") {
			t.Errorf("docs/reasons.md does not explain %q", n)
		}
	}
}
