package rowcodec_test

import (
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// benchRow is a row like many: int64, string, float64, bool, time.Time.
func benchRow(i int) []driver.Value {
	return []driver.Value{
		int64(i)*7919 + 1000, fmt.Sprintf("customer number %d", i), float64(i) * 1.25, i%2 == 0,
		time.Date(2024, 7, 1, 12, 0, i, i*1000, time.UTC),
	}
}

func benchRows(n int) [][]driver.Value {
	rows := make([][]driver.Value, n)
	for i := range rows {
		rows[i] = benchRow(i)
	}
	return rows
}

// share makes the results of a shape share their columns, as those of a query
// that is asked more than once do.
func share(tb testing.TB, enc []byte) {
	for range 3 {
		decode(tb, enc)
	}
}

func benchmarkDecode(b *testing.B, rows [][]driver.Value) {
	enc := encode(b, build(b, rows...))
	share(b, enc)
	b.SetBytes(int64(len(enc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rowcodec.Decode(enc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode1Row(b *testing.B)     { benchmarkDecode(b, benchRows(1)) }
func BenchmarkDecode100Rows(b *testing.B)  { benchmarkDecode(b, benchRows(100)) }
func BenchmarkDecode1000Rows(b *testing.B) { benchmarkDecode(b, benchRows(1000)) }

func BenchmarkDecode100RowsOfBerlin(b *testing.B) {
	berlin := location(b, "Europe/Berlin")
	rows := benchRows(100)
	for _, row := range rows {
		row[4] = row[4].(time.Time).In(berlin)
	}
	benchmarkDecode(b, rows)
}

func BenchmarkAppend100Rows(b *testing.B) {
	r := build(b, benchRows(100)...)
	enc := encode(b, r)
	dst := make([]byte, 0, 2*len(enc))
	b.SetBytes(int64(len(enc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rowcodec.Append(dst, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild100Rows(b *testing.B) {
	rows, cols := benchRows(100), columns(5)
	b.ReportAllocs()
	for b.Loop() {
		bl := rowcodec.NewBuilder(cols, 0)
		for _, row := range rows {
			if err := bl.Append(row); err != nil {
				b.Fatal(err)
			}
		}
		bl.Result()
	}
}
