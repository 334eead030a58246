package rowcodec_test

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// heapOf returns how many bytes of heap one of the results takes that make makes.
func heapOf(n int, make1 func(i int) *rowcodec.Result) (heap, size float64) {
	keep := make([]*rowcodec.Result, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = make1(i)
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, r := range keep {
		size += float64(r.Size())
	}
	heap = float64(after.HeapAlloc) - float64(before.HeapAlloc)
	runtime.KeepAlive(keep)
	return heap / float64(n), size / float64(n)
}

func TestSizeIsWhatTheHeapHolds(t *testing.T) {
	at := time.Date(2024, 7, 1, 0, 0, 0, 1, time.UTC)
	repeat := func(n int, row ...driver.Value) [][]driver.Value {
		rows := make([][]driver.Value, n)
		for i := range rows {
			rows[i] = row
		}
		return rows
	}
	for name, rows := range map[string][][]driver.Value{
		"one int64":            repeat(1, int64(1e9)),
		"one small int64":      repeat(1, int64(1)),
		"one row of a product": repeat(1, int64(12345), "a name of a product", []byte("12.50"), true, at, nil),
		"100 mixed rows":       benchRows(100),
		"1000 int64":           repeat(1000, int64(1e12)),
		"1000 small int64":     repeat(1000, int64(7)),
		"1000 floats and NULL": repeat(1000, 1.25, nil),
		"500 short strings":    repeat(500, "ab", "c", ""),
		"500 short bytes":      repeat(500, []byte("ab"), []byte{}, []byte(nil)),
		"200 times":            repeat(200, at, at.In(time.FixedZone("", 3600))),
		"a blob":               repeat(1, bytes.Repeat([]byte{1}, 100_000)),
		"a text":               repeat(1, strings.Repeat("x", 5_000)),
		"wide":                 repeat(3, allValues(t)...),
	} {
		width := len(rows[0])
		b := buildColumns(t, columns(width), 0, rows...)
		enc := encode(t, b)
		share(t, enc)
		n := int(max(20, 2<<20/b.Size()))
		makers := map[string]func(int) *rowcodec.Result{
			"decoded": func(int) *rowcodec.Result { return decode(t, enc) },
			"built":   func(int) *rowcodec.Result { return buildColumns(t, columns(width), 0, rows...) },
		}
		for how, make1 := range makers {
			heap, size := heapOf(n, make1)
			// In the pure Go build empty values need no box, and Size is an upper bound.
			if heap > 1.3*size || size > 1.3*heap && !pureGo {
				t.Errorf("%s, %s: the heap holds %.0f bytes, Size says %.0f", name, how, heap, size)
			}
			t.Logf("%-22s %-8s heap %8.0f  Size %8.0f  encoded %7d", name, how, heap, size, len(enc))
		}
	}
}

func TestSizeCountsColumnsThatAreNotShared(t *testing.T) {
	run := time.Now().UnixNano()
	heap, size := heapOf(2000, func(i int) *rowcodec.Result {
		cols := columns(6)
		cols[0].Name = fmt.Sprint("alias of query ", i, " of run ", run)
		return buildColumns(t, cols, 0, []driver.Value{int64(1), nil, nil, nil, nil, "x"})
	})
	if heap > 1.3*size || size > 1.3*heap {
		t.Errorf("the heap holds %.0f bytes, Size says %.0f", heap, size)
	}
}
