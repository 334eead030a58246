package sqlherd_test

import (
	"context"
	"database/sql/driver"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sqlherd/sqlherd"
)

// Local.MaxBytes is what an operator plans the process's memory by.
func TestTheHeapHoldsLittleMoreThanMaxBytesWhateverIsAsked(t *testing.T) {
	const maxBytes = 4 << 20
	for name, shape := range map[string]struct{ rows, text int }{
		"many small results":       {1, 10},
		"rows of numbers":          {100, 0},
		"rows of text":             {50, 200},
		"few large results":        {2000, 50},
		"results of one long text": {1, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			db := newFakeDB(t, func(_ context.Context, _ string, args []driver.NamedValue) (*fakeResult, error) {
				id := args[0].Value.(int64)
				return &fakeResult{cols: []string{"id", "name", "price"}, count: shape.rows, make: func(i int) []driver.Value {
					return []driver.Value{id*1000 + int64(i), strings.Repeat("x", shape.text), float64(i)}
				}}, nil
			})
			app, h := openHerd(t, db, sqlherd.Config{Local: sqlherd.LocalConfig{MaxBytes: maxBytes}})
			ask := func(id int64) {
				rows, err := app.Query(`SELECT /* @cache ttl=1h */ id, name, price FROM t WHERE id > $1`, id)
				if err != nil {
					t.Error(err)
					return
				}
				for rows.Next() {
				}
				if err := rows.Close(); err != nil {
					t.Error(err)
				}
			}
			ask(0)
			before := heap()
			// Until three times as much has been asked for as there is room.
			per := h.Stats().MemoryBytes
			total := max(3*maxBytes/per, 100)
			var wg sync.WaitGroup
			const callers = 8
			for c := range int64(callers) {
				wg.Go(func() {
					for id := c; id < total; id += callers {
						ask(id)
					}
				})
			}
			wg.Wait()
			held := heap() - before
			st := h.Stats()
			t.Logf("%d results asked for, %d kept: %d bytes by our count, %d on the heap (%.2f)", total, st.MemoryEntries, st.MemoryBytes, held, float64(held)/float64(st.MemoryBytes))
			if st.MemoryBytes > maxBytes {
				t.Errorf("%d bytes are kept, MaxBytes is %d", st.MemoryBytes, maxBytes)
			}
			if float64(held) > 1.3*maxBytes {
				t.Errorf("the heap holds %d bytes, more than 1.3 times MaxBytes (%d)", held, maxBytes)
			}
			if st.MemoryEntries < 3 || held < maxBytes/2 {
				t.Errorf("%d results and %d bytes: memory was not filled", st.MemoryEntries, held)
			}
		})
	}
}

func heap() int64 {
	var ms runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}
