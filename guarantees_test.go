package sqlherd_test

import (
	"os"
	"regexp"
	"testing"
)

// docs/guarantees.md promises nothing that no test holds.
func TestEveryGuaranteeNamesATestThatExists(t *testing.T) {
	page, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := testsDeclared(t)
	names := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 40 {
		t.Fatalf("the page names %d tests", len(names))
	}
	for _, m := range names {
		if !declared[m[1]] {
			t.Errorf("docs/guarantees.md: there is no %s", m[1])
		}
	}
}
