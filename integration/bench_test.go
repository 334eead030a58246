package integration_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// BenchmarkUncached compares statements that are not cached with the bare driver, on a server of this
// machine, where sqlherd weighs most. Budget: ≤ 2 %. Batches alternate, and the figure is the median of
// their ratios: what else the machine does falls on both alike.
func BenchmarkUncached(b *testing.B) {
	for name, database := range map[string]func(testing.TB) dbtest.Database{"pq": dbtest.PQ, "pgx": dbtest.PGX} {
		for _, rows := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				d := database(b)
				bare := d.Open(b)
				herd, h := openHerd(b, d, sqlherd.Config{})
				read := func(db *sql.DB) {
					r, err := db.Query("SELECT i, 'a product with a name', i * 1.5::float8 FROM generate_series(1, $1::int) AS i", rows)
					if err != nil {
						b.Fatal(err)
					}
					n := 0
					var id int64
					var name string
					var price float64
					for r.Next() {
						if err := r.Scan(&id, &name, &price); err != nil {
							b.Fatal(err)
						}
						n++
					}
					if err := r.Close(); err != nil || n != rows {
						b.Fatal(n, err)
					}
				}
				batch := max(64/rows, 1)
				run := func(db *sql.DB) float64 {
					began := time.Now()
					for range batch {
						read(db)
					}
					return float64(time.Since(began).Nanoseconds()) / float64(batch)
				}
				run(bare)
				run(herd)
				var ratios, floors []float64
				for b.Loop() {
					// In turn first and second, or what is second is always warmer.
					var f, w float64
					if len(ratios)%2 == 0 {
						f, w = run(bare), run(herd)
					} else {
						w, f = run(herd), run(bare)
					}
					ratios, floors = append(ratios, w/f), append(floors, f)
				}
				slices.Sort(ratios)
				slices.Sort(floors)
				b.ReportMetric(0, "ns/op") // of a pair of batches: means nothing
				b.ReportMetric(ratios[len(ratios)/2], "x-floor")
				b.ReportMetric(floors[len(floors)/2], "ns/floor")
				if st := h.Stats(); st.Outcomes[sqlherd.Passthrough] == 0 {
					b.Fatal("not passed through")
				}
			})
		}
	}
}
