package rowcodec_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// diff says how got differs from want, or returns "".
func diff(got, want driver.Value) string {
	if reflect.TypeOf(got) != reflect.TypeOf(want) {
		return fmt.Sprintf("got %T, want %T", got, want)
	}
	same := false
	switch want := want.(type) {
	case float64:
		same = math.Float64bits(got.(float64)) == math.Float64bits(want)
	case float32:
		same = math.Float32bits(got.(float32)) == math.Float32bits(want)
	case []byte:
		same = bytes.Equal(got.([]byte), want) && (got.([]byte) == nil) == (want == nil)
	case time.Time:
		return diffTime(got.(time.Time), want)
	default:
		same = got == want
	}
	if !same {
		return fmt.Sprintf("got %#v, want %#v", got, want)
	}
	return ""
}

// diffTime compares all that a program can see of a time, but for the rules of
// its location at other instants.
func diffTime(got, want time.Time) string {
	const layout = "2006-01-02T15:04:05.999999999Z07:00:00 MST -0700 Monday"
	see := func(t time.Time) string {
		abbr, offset := t.Zone()
		return fmt.Sprintf("%q unix %d.%09d zone %q %d dst %v in %q utc %v local %v",
			t.Format(layout), t.Unix(), t.Nanosecond(), abbr, offset, t.IsDST(),
			t.Location().String(), t.Location() == time.UTC, t.Location() == time.Local)
	}
	if g, w := see(got), see(want); g != w {
		return "\ngot  " + g + "\nwant " + w
	}
	if strings.Contains(got.String(), "m=") {
		return "has a monotonic reading: " + got.String()
	}
	return ""
}

// diffResults compares results value by value, and column by column.
func diffResults(got, want *rowcodec.Result) string {
	if !reflect.DeepEqual(got.Columns(), want.Columns()) {
		return fmt.Sprintf("columns: got %+v, want %+v", got.Columns(), want.Columns())
	}
	if got.Traits() != want.Traits() || got.NumRows() != want.NumRows() || got.HasBytes() != want.HasBytes() {
		return "traits, number of rows or HasBytes differ"
	}
	for i := range want.NumRows() {
		for j, v := range want.Row(i) {
			if d := diff(got.Row(i)[j], v); d != "" {
				return fmt.Sprintf("row %d column %d: %s", i, j, d)
			}
		}
	}
	return ""
}

func columns(n int) []rowcodec.Column {
	cols := make([]rowcodec.Column, n)
	for i := range cols {
		cols[i].Name = fmt.Sprint("c", i)
	}
	return cols
}

// build makes a result of rows that all have the width of the first.
func build(t testing.TB, rows ...[]driver.Value) *rowcodec.Result {
	t.Helper()
	n := 0
	if len(rows) > 0 {
		n = len(rows[0])
	}
	return buildColumns(t, columns(n), 0, rows...)
}

func buildColumns(t testing.TB, cols []rowcodec.Column, tr rowcodec.Traits, rows ...[]driver.Value) *rowcodec.Result {
	t.Helper()
	b := rowcodec.NewBuilder(cols, tr)
	for _, row := range rows {
		if err := b.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	if b.Rows() != len(rows) {
		t.Fatalf("Rows() = %d, want %d", b.Rows(), len(rows))
	}
	size := b.Size()
	r := b.Result()
	if r.Size() != size {
		t.Fatalf("the builder said %d bytes, the result %d", size, r.Size())
	}
	return r
}

func encode(t testing.TB, r *rowcodec.Result) []byte {
	t.Helper()
	enc, err := rowcodec.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

func decode(t testing.TB, b []byte) *rowcodec.Result {
	t.Helper()
	r, err := rowcodec.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// allValues are the values that tests of every kind begin from.
func allValues(t testing.TB) []driver.Value {
	vals := []driver.Value{
		nil, true, false,
		int64(0), int64(1), int64(63), int64(64), int64(-1), int64(255), int64(256), int64(1<<53 + 1),
		int64(math.MaxInt64), int64(math.MinInt64),
		int(0), int(-1), int(math.MaxInt), int(math.MinInt),
		int8(math.MinInt8), int8(math.MaxInt8), int16(math.MinInt16), int16(math.MaxInt16),
		int32(math.MinInt32), int32(math.MaxInt32),
		uint(0), uint(math.MaxUint), uint8(0), uint8(math.MaxUint8), uint16(math.MaxUint16), uint32(math.MaxUint32),
		uint64(0), uint64(1 << 63), uint64(math.MaxUint64),
		0.0, math.Copysign(0, -1), 1.0, 0.1, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff8_0000_dead_beef), math.Float64frombits(0xfff0_0000_0000_0001),
		float32(0), float32(math.Copysign(0, -1)), float32(0.1), float32(math.Inf(-1)), float32(math.MaxFloat32),
		math.Float32frombits(0x7fc0_1234),
		"", "a", "0012", "1e5", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("y", 200), "\x00", "\xff\xfe invalid \xc0", "a\u00e9\u20ac\U0001f411",
		[]byte{}, []byte(nil), []byte("b"), []byte{0}, bytes.Repeat([]byte{0xff}, 63), bytes.Repeat([]byte{0xfe}, 64), []byte(`{"b":1,  "a":1.0, "n":1e2}`),
	}
	for _, ts := range allTimes(t) {
		vals = append(vals, ts)
	}
	return vals
}

func allTimes(t testing.TB) []time.Time {
	at := time.Date(2024, 7, 1, 12, 30, 45, 123456789, time.UTC)
	winter := time.Date(2024, 1, 1, 0, 0, 0, 1000, time.UTC)
	berlin, kathmandu := location(t, "Europe/Berlin"), location(t, "Asia/Kathmandu")
	parsed, err := time.Parse(time.RFC3339Nano, "2024-02-29T23:59:59.999999999+05:45")
	if err != nil {
		t.Fatal(err)
	}
	return []time.Time{
		{}, at, winter, at.Local(), winter.Local(), time.Now(), time.Now().UTC(), parsed,
		at.In(berlin), winter.In(berlin), at.In(kathmandu), at.In(location(t, "America/New_York")),
		time.Date(1800, 1, 1, 0, 0, 0, 0, berlin),                 // local mean time, an offset with seconds
		time.Date(2024, 10, 27, 0, 30, 0, 0, time.UTC).In(berlin), // 2:30 for the first time
		time.Date(2024, 10, 27, 1, 30, 0, 0, time.UTC).In(berlin), // and for the second
		at.In(time.FixedZone("", 0)), at.In(time.FixedZone("", 3600)), at.In(time.FixedZone("", -1)),
		at.In(time.FixedZone("", 5*3600+45*60)), at.In(time.FixedZone("x", -7*3600)),
		at.In(time.FixedZone("UTC", 0)), at.In(time.FixedZone("UTC", 3600)), at.In(time.FixedZone("Local", 60)),
		at.In(time.FixedZone("Europe/Berlin", 7200)), at.In(time.FixedZone("CET", 3600)), at.In(location(t, "CET")),
		at.In(time.FixedZone("a\x00b\xff", 1)), at.In(location(t, "Etc/GMT+5")), at.In(&time.Location{}),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, berlin),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, berlin),
		time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(294276, 12, 31, 23, 59, 59, 999999000, time.UTC), // PostgreSQL's range
		time.Unix(math.MaxInt64, 999999999).UTC(), time.Unix(math.MinInt64, 0).UTC(), time.Unix(-1, 999999999).UTC(),
	}
}

func TestEveryValueComesBackAsItWas(t *testing.T) {
	for _, v := range allValues(t) {
		built := build(t, []driver.Value{v})
		if d := diff(built.Row(0)[0], v); d != "" {
			t.Errorf("built from %T %v: %s", v, v, d)
		}
		if d := diff(decode(t, encode(t, built)).Row(0)[0], v); d != "" {
			t.Errorf("decoded from %T %v: %s", v, v, d)
		}
	}
}

func TestAllValuesTogetherComeBackAsTheyWere(t *testing.T) {
	vals := allValues(t)
	var wide [][]driver.Value
	for i := range 5 { // in a different order in each row
		wide = append(wide, append(append([]driver.Value{}, vals[i*7:]...), vals[:i*7]...))
	}
	var narrow [][]driver.Value
	for i, v := range vals {
		narrow = append(narrow, []driver.Value{v, int64(i), vals[len(vals)-1-i]})
	}
	for _, rows := range [][][]driver.Value{wide, narrow} {
		built := build(t, rows...)
		decoded := decode(t, encode(t, built))
		for i, row := range rows {
			for j, v := range row {
				if d := diff(built.Row(i)[j], v); d != "" {
					t.Errorf("built, row %d, column %d: %s", i, j, d)
				}
				if d := diff(decoded.Row(i)[j], v); d != "" {
					t.Errorf("decoded, row %d, column %d: %s", i, j, d)
				}
			}
		}
		if d := diffResults(decoded, built); d != "" {
			t.Error(d)
		}
	}
}

func TestEncodingTwiceGivesTheSameBytes(t *testing.T) {
	r := build(t, allValues(t))
	enc := encode(t, r)
	if again := encode(t, decode(t, enc)); !bytes.Equal(again, enc) {
		t.Error("the encoding of the decoded result differs")
	}
	appended, err := rowcodec.Append([]byte("before"), r)
	if err != nil || string(appended) != "before"+string(enc) {
		t.Error("Append does not append", err)
	}
}

func TestMegabyteBlobsAndTextsComeBack(t *testing.T) {
	blob := bytes.Repeat([]byte{0, 1, 0xfe, 0xff}, 1<<18)
	text := strings.Repeat("\xff\x00ab", 1<<18)
	r := build(t, []driver.Value{blob, text, blob}, []driver.Value{[]byte{}, "", nil})
	got := decode(t, encode(t, r))
	if d := diffResults(got, r); d != "" {
		t.Error("differs") // not d: megabytes
	}
	if !bytes.Equal(got.Row(0)[2].([]byte), blob) || got.Row(0)[1] != text {
		t.Error("differs from what was put in")
	}
}

func TestAResultMayHaveNoRowsOrNoColumns(t *testing.T) {
	for _, c := range []struct{ rows, cols int }{{0, 0}, {0, 3}, {3, 0}, {1, 0}, {1, 1}} {
		var rows [][]driver.Value
		for range c.rows {
			rows = append(rows, make([]driver.Value, c.cols))
		}
		r := buildColumns(t, columns(c.cols), 0, rows...)
		for _, r := range []*rowcodec.Result{r, decode(t, encode(t, r))} {
			if r.NumRows() != c.rows || r.NumColumns() != c.cols || len(r.Names()) != c.cols || r.HasBytes() {
				t.Errorf("%+v: has %d rows, %d columns", c, r.NumRows(), r.NumColumns())
			}
			for i := range c.rows {
				if len(r.Row(i)) != c.cols {
					t.Errorf("%+v: a row of %d values", c, len(r.Row(i)))
				}
			}
		}
	}
}

func TestDuplicateAndEmptyColumnNamesKeepTheirOrder(t *testing.T) {
	names := []string{"id", "id", "", "name", "?column?", "?column?", "", "\xff", "ID"}
	cols := make([]rowcodec.Column, len(names))
	for i, n := range names {
		cols[i].Name = n
	}
	r := buildColumns(t, cols, 0)
	for _, r := range []*rowcodec.Result{r, decode(t, encode(t, r))} {
		if !reflect.DeepEqual(r.Names(), names) {
			t.Errorf("got %q", r.Names())
		}
	}
}

func TestHasBytesIsTrueOnlyWithBytes(t *testing.T) {
	for _, c := range []struct {
		v    driver.Value
		want bool
	}{{[]byte("a"), true}, {[]byte{}, true}, {[]byte(nil), true}, {nil, false}, {"a", false}, {int64(1), false}} {
		r := build(t, []driver.Value{int64(1), c.v})
		if r.HasBytes() != c.want || decode(t, encode(t, r)).HasBytes() != c.want {
			t.Errorf("%#v: want %v", c.v, c.want)
		}
	}
}

func TestAppendingToAValueDoesNotReachItsNeighbour(t *testing.T) {
	r := build(t, []driver.Value{[]byte("one"), []byte("two"), []byte{}, []byte("three")})
	for _, r := range []*rowcodec.Result{r, decode(t, encode(t, r))} {
		for i, v := range r.Row(0) {
			if b := v.([]byte); cap(b) != len(b) {
				t.Errorf("value %d has %d bytes and a capacity of %d", i, len(b), cap(b))
			}
		}
		if row := r.Row(0); cap(row) != len(row) {
			t.Error("a row can be appended to")
		}
	}
}

func TestDecodedValuesDoNotPointIntoTheInput(t *testing.T) {
	vals := allValues(t)
	enc := encode(t, build(t, vals))
	r := decode(t, enc)
	for i := range enc {
		enc[i] = 0xa5
	}
	for i, v := range vals {
		if d := diff(r.Row(0)[i], v); d != "" {
			t.Errorf("value %d: %s", i, d)
		}
	}
	if r.Names()[0] != "c0" {
		t.Error("a column name changed")
	}
}

func TestARowOutOfRangePanics(t *testing.T) {
	r := build(t, []driver.Value{int64(1)})
	for _, i := range []int{-1, 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Row(%d) did not panic", i)
				}
			}()
			r.Row(i)
		}()
	}
}

func TestScanningAResultGivesWhatScanningTheRowsGives(t *testing.T) {
	// database/sql looks at dynamic types; one it does not take as it takes
	// Go's own interfaces would fail here.
	vals := []driver.Value{int64(7), "text", []byte("bytes"), 1.5, true, time.Unix(5, 0), uint64(1 << 63), nil}
	r := decode(t, encode(t, build(t, vals)))
	for i, v := range vals {
		var want, got sql.Null[any]
		if err := want.Scan(v); err != nil {
			t.Fatal(err)
		}
		if err := got.Scan(r.Row(0)[i]); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
}
