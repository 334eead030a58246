package sqlherd

import (
	"database/sql/driver"
	"fmt"
	"testing"
)

type noDriver struct{ driver.Driver }

// Comments with trace identifiers make every text unique.
func TestTextsWithoutNumberKeepABoundedNumberOfPlans(t *testing.T) {
	h, err := New(Config{Dialect: PostgreSQL})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := h.newConnector(dsnConnector{driver: noDriver{}}, "db", nil, false)
	defer s.Close()
	head := ""
	for i := range 20 * plansKept {
		p := s.plan(fmt.Sprintf("/* traceparent='00-%d' */ SELECT /* @cache */ v FROM t", i))
		if head == "" {
			head = string(p.head(false))
		}
		if string(p.head(false)) != head {
			t.Fatalf("text %d has a key of its own", i)
		}
	}
	s.plans.cache.CleanUp()
	if n := s.plans.cache.EstimatedSize(); n > plansKept {
		t.Errorf("%d plans are kept, want at most %d", n, plansKept)
	}
}
