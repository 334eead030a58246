package rowcodec_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

func TestTheFormatIsStable(t *testing.T) {
	// Processes of different versions share one Redis. When this fails, the
	// version byte has to change with the format.
	cols := []rowcodec.Column{
		{Name: "id", DatabaseType: "INT8", HasDatabaseType: true, ScanType: reflect.TypeFor[int64](), Nullable: false, HasNullable: true},
		{Name: "t", Length: -2, HasLength: true, Precision: 10, Scale: 2, HasPrecisionScale: true, ScanType: reflect.TypeFor[sql.NullTime]()},
	}
	r := buildColumns(t, cols, rowcodec.TraitLength|rowcodec.TraitScanType,
		[]driver.Value{int64(7), time.Unix(1, 2).In(time.FixedZone("X", 3600))},
		[]driver.Value{int64(-300), time.Unix(-1, 0).UTC()},
		[]driver.Value{"text", []byte{1, 2}},
		[]driver.Value{nil, []byte(nil)},
		[]driver.Value{1.5, float32(-2)},
		[]driver.Value{true, uint64(1 << 63)},
		[]driver.Value{int8(-1), strings.Repeat("a", 64)},
	)
	const want = "01" + // version
		"14" + "1202" + // head: 20 bytes, traits, 2 columns
		"29026964" + "04494e5438" + "07" +
		"f20174" + "00" + "1a" + "03" + "1404" +
		"07" + "05" + "02" + "02" + "02" + "44" + "02" + // rows, counts
		"c7" + "0802" + "01a0380158" + "0202" +
		"03d704" + "08000100" +
		"44" + "82" +
		"00" + "07" +
		"04000000000000f83f" + "12000000c0" +
		"02" + "1180808080808080808001" +
		"0a01" + "0540"
	got := hex.EncodeToString(encode(t, r))
	full := want + hex.EncodeToString([]byte("text"+strings.Repeat("a", 64))) + "0102"
	if got != full {
		t.Errorf("\ngot  %s\nwant %s", got, full)
	}
}

// samples are encodings for tests that damage them, and seeds of the fuzzers.
func samples(t testing.TB) [][]byte {
	rich := []rowcodec.Column{
		{Name: "id", DatabaseType: "INT8", HasDatabaseType: true, ScanType: reflect.TypeFor[int64](), HasNullable: true},
		{Name: "price", DatabaseType: "NUMERIC", HasDatabaseType: true, Precision: 10, Scale: 2, HasPrecisionScale: true},
		{Name: "note", ScanType: reflect.TypeFor[metOnce](), Length: 80, HasLength: true},
	}
	at := time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC)
	results := []*rowcodec.Result{
		build(t), build(t, []driver.Value{}), build(t, []driver.Value{nil}), build(t, []driver.Value{int64(5)}),
		build(t, allValues(t)),
		buildColumns(t, rich, rowcodec.TraitScanType|rowcodec.TraitLength,
			[]driver.Value{int64(1 << 40), []byte("12.50"), "note"}, []driver.Value{int64(2), []byte{}, nil}),
		build(t, []driver.Value{at.In(location(t, "Europe/Berlin")), at.In(time.FixedZone("x", 60)), at.Local()}),
		build(t, benchRows(3)...),
	}
	encs := make([][]byte, len(results))
	for i, r := range results {
		encs[i] = encode(t, r)
	}
	return encs
}

func TestATruncatedResultIsCorrupt(t *testing.T) {
	for s, enc := range samples(t) {
		for n := range len(enc) {
			if _, err := rowcodec.Decode(enc[:n]); err == nil {
				t.Errorf("sample %d: %d of %d bytes decode", s, n, len(enc))
			}
		}
	}
}

func TestBytesAfterAResultAreCorrupt(t *testing.T) {
	for s, enc := range samples(t) {
		for _, more := range []string{"\x00", "\x01", "trailing"} {
			if _, err := rowcodec.Decode(append(bytes.Clone(enc), more...)); !errors.Is(err, rowcodec.ErrCorrupt) {
				t.Errorf("sample %d: got %v", s, err)
			}
		}
	}
}

func TestADamagedResultNeverPanicsAndStaysConsistent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, enc := range samples(t) {
		for i := 0; i < len(enc); i += 1 + len(enc)/150 { // every byte of the short ones
			for bit := range 8 {
				bad := bytes.Clone(enc)
				bad[i] ^= 1 << bit
				checkDecode(t, bad)
			}
			for _, v := range []byte{0, 0x7f, 0x80, 0xff, byte(rng.Uint32())} {
				bad := bytes.Clone(enc)
				bad[i] = v
				checkDecode(t, bad)
			}
			// A length of 2³¹, and one of 2⁶³, in place of this byte.
			for _, n := range []uint64{1 << 31, 1 << 63, math.MaxUint64} {
				bad := binary.AppendUvarint(bytes.Clone(enc[:i]), n)
				checkDecode(t, append(bad, enc[i+1:]...))
			}
		}
		for range 200 {
			bad := bytes.Clone(enc)
			for range 1 + rng.IntN(4) {
				bad[rng.IntN(len(bad))] = byte(rng.Uint32())
			}
			checkDecode(t, bad)
		}
	}
}

// checkDecode decodes b, which may be anything. Whatever decodes must be whole
// and come back from its own encoding.
func checkDecode(t *testing.T, b []byte) {
	t.Helper()
	r, err := rowcodec.Decode(b)
	if err != nil {
		if r != nil || !errors.Is(err, rowcodec.ErrCorrupt) && !errors.As(err, new(*rowcodec.UnknownTypeError)) {
			t.Fatalf("% x: %v", b, err)
		}
		return
	}
	enc, err := rowcodec.Append(nil, r)
	if err != nil {
		t.Fatalf("% x: decodes but does not encode: %v", b, err)
	}
	again, err := rowcodec.Decode(enc)
	if err != nil {
		t.Fatalf("% x: its own encoding does not decode: %v", b, err)
	}
	if d := diffResults(again, r); d != "" {
		t.Fatalf("% x: %s", b, d)
	}
}

func TestForeignBytesAreCorrupt(t *testing.T) {
	for _, b := range []string{
		"", "\x00", "\x01", "\x02", "\xff", "null", "{}", "PK\x03\x04", "\x1f\x8b\x08", strings.Repeat("\x01", 100),
		strings.Repeat("\xff", 1000), "\x01\x00", "\x01\x02\x00\x00",
	} {
		if _, err := rowcodec.Decode([]byte(b)); !errors.Is(err, rowcodec.ErrCorrupt) {
			t.Errorf("%q: got %v", b, err)
		}
	}
	if _, err := rowcodec.Decode(nil); !errors.Is(err, rowcodec.ErrCorrupt) {
		t.Errorf("nil: got %v", err)
	}
}

func TestAnotherVersionIsCorrupt(t *testing.T) {
	enc := encode(t, build(t, []driver.Value{int64(1)}))
	for _, v := range []byte{0, 2, 0xff} {
		enc[0] = v
		if _, err := rowcodec.Decode(enc); !errors.Is(err, rowcodec.ErrCorrupt) {
			t.Errorf("version %d: got %v", v, err)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// wire writes an encoding by hand: uvarints for ints, bytes for strings.
func wire(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.AppendUvarint(b, uint64(p))
		case uint64:
			b = binary.AppendUvarint(b, p)
		case string:
			b = append(b, p...)
		}
	}
	return b
}

func TestCountsThatTheBytesCannotHoldAllocateNothing(t *testing.T) {
	const head = "\x01\x05\x00\x01\x00\x01a\x00" // version, head: one column named a
	for name, b := range map[string][]byte{
		"rows":                                 wire(head[:1], 6, head[2:], uint64(1<<40), 0, 0, 0, 0, 0, 0),
		"rows over int":                        wire(head[:1], 6, head[2:], uint64(math.MaxInt64), 0, 0, 0, 0, 0, 0),
		"words":                                wire(head[:1], 6, head[2:], 2, uint64(1<<40), 0, 0, 0, 0, 0, "\x00\x00"),
		"strings":                              wire(head[:1], 6, head[2:], 2, 0, uint64(1<<31), 0, 0, 0, 0, "\x00\x00"),
		"bytes":                                wire(head[:1], 6, head[2:], 2, 0, 0, uint64(1<<31), 0, 0, 0, "\x00\x00"),
		"times":                                wire(head[:1], 6, head[2:], 2, 0, 0, 0, uint64(1<<31), 0, 0, "\x00\x00"),
		"text":                                 wire(head[:1], 6, head[2:], 2, 0, 0, 0, 0, uint64(1<<31), 0, "\x00\x00"),
		"blob":                                 wire(head[:1], 6, head[2:], 2, 0, 0, 0, 0, 0, uint64(1<<31), "\x00\x00"),
		"columns":                              wire("\x01", 6, "\x00", uint64(1<<31), "\x00"),
		"more boxes than values":               wire(head[:1], 6, head[2:], 2, 1, 1, 1, 0, 0, 0, "\x00\x00"),
		"unused boxes":                         wire(head[:1], 6, head[2:], 2, 0, 1, 0, 0, 0, 0, "\x00\x00"),
		"unused text":                          wire(head[:1], 6, head[2:], 2, 0, 0, 0, 0, 1, 0, "\x00\x00", "x"),
		"unused blob":                          wire(head[:1], 6, head[2:], 2, 0, 0, 0, 0, 0, 1, "\x00\x00", "x"),
		"rows of no columns":                   wire("\x01", 2, "\x00", 0, uint64(1<<40), 0, 0, 0, 0, 0, 0),
		"rows of no columns, few":              wire("\x01", 2, "\x00", 0, 5, 0, 0, 0, 0, 0, 0, "\x00\x00\x00\x00"),
		"text of no columns":                   wire("\x01", 2, "\x00", 0, 0, 0, 0, 0, 0, 1, 0, "x"),
		"blob of no columns":                   wire("\x01", 2, "\x00", 0, 0, 0, 0, 0, 0, 0, 1, "x"),
		"a row of no columns that is not zero": wire("\x01", 2, "\x00", 0, 1, 0, 0, 0, 0, 0, 0, "\x01"),
	} {
		var err error
		n := allocated(func() { _, err = rowcodec.Decode(b) })
		if !errors.Is(err, rowcodec.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
		if n > 64<<10 {
			t.Errorf("%s: allocated %d bytes", name, n)
		}
	}
}

func TestValuesThatNoEncoderWritesAreCorrupt(t *testing.T) {
	const head = "\x00\x01\x00\x01a\x00"
	one := func(words, strings, bytes, times, text, blob int, rest string) []byte {
		return wire("\x01", len(head), head, 1, words, strings, bytes, times, text, blob, rest)
	}
	for name, b := range map[string][]byte{
		"unknown tag":              one(0, 0, 0, 0, 0, 0, "\x13"),
		"unknown tag with a word":  one(1, 0, 0, 0, 0, 0, "\x13\x00"),
		"int64 without a word":     one(0, 0, 0, 0, 0, 0, "\x03\x80\x01"),
		"int64 in the long way":    one(1, 0, 0, 0, 0, 0, "\x03\x02"),
		"int8 out of range":        one(1, 0, 0, 0, 0, 0, "\x0a\x80\x02"),
		"uint8 out of range":       one(1, 0, 0, 0, 0, 0, "\x0e\x80\x02"),
		"varint of 11 bytes":       one(1, 0, 0, 0, 0, 0, "\x11"+strings.Repeat("\x80", 10)+"\x01"),
		"short float64":            one(1, 0, 0, 0, 0, 0, "\x04\x00\x00\x00\x00\x00\x00\x00"),
		"short float32":            one(1, 0, 0, 0, 0, 0, "\x12\x00\x00\x00"),
		"string over the text":     one(0, 1, 0, 0, 1, 0, "\x42a"),
		"bytes over the blob":      one(0, 0, 1, 0, 0, 1, "\x82a"),
		"string without a box":     one(0, 0, 0, 0, 1, 0, "\x41a"),
		"bytes without a box":      one(0, 0, 0, 0, 0, 1, "\x81a"),
		"no bytes without a box":   one(0, 0, 0, 0, 0, 0, "\x07"),
		"time without a box":       one(0, 0, 0, 0, 0, 0, "\x08\x00\x00\x00"),
		"time in an unknown zone":  one(0, 0, 0, 1, 0, 0, "\x08\x03\x00\x00"),
		"10⁹ nanoseconds":          one(0, 0, 0, 1, 0, 0, "\x08\x00\x00\x80\x94\xeb\xdc\x03"),
		"zone with unknown flags":  one(0, 0, 0, 1, 0, 0, "\x08\x02\x80\x00\x01X\x00\x00\x00"),
		"fixed zone with summer":   one(0, 0, 0, 1, 0, 0, "\x08\x02\x03\x00\x01X\x00\x00"),
		"zone offset over 32 bits": one(0, 0, 0, 1, 0, 0, "\x08\x02\x01\x80\x80\x80\x80\x20\x01X\x00\x00"),
		"zone abbreviation with 0": one(0, 0, 0, 1, 0, 0, "\x08\x02\x00\x00\x01X\x01\x00\x00\x00"),
		"zone with a long name":    one(0, 0, 0, 1, 0, 0, string(wire("\x08\x02\x01\x00", 256, strings.Repeat("n", 256), "\x00\x00"))),
		"traits of the future":     wire("\x01", len(head), "\x40"+head[1:], 0, 0, 0, 0, 0, 0, 0),
		"bytes after the columns":  wire("\x01", len(head)+1, head+"\x00", 0, 0, 0, 0, 0, 0, 0),
	} {
		if _, err := rowcodec.Decode(b); !errors.Is(err, rowcodec.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, b := range map[string][]byte{ // so that the above fail for their reason
		"nothing": one(0, 0, 0, 0, 0, 0, "\x00"),
		"string":  one(0, 1, 0, 0, 1, 0, "\x41a"),
		"time":    one(0, 0, 0, 1, 0, 0, "\x08\x00\x00\x00"),
		"zone":    one(0, 0, 0, 1, 0, 0, "\x08\x02\x01\x00\x01X\x00\x00"),
		"long":    one(0, 1, 0, 0, 1, 0, "\x05\x01a"),
	} {
		if _, err := rowcodec.Decode(b); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAResultOverTheLimitIsNotAllocated(t *testing.T) {
	r := build(t, slices.Repeat([][]driver.Value{{nil}}, 10000)...) // NULLs are small only when encoded
	enc := encode(t, r)
	rowcodec.ForgetColumns()
	share(t, enc)
	r = decode(t, enc) // whose columns are shared, as those of the next ones will be
	if _, err := rowcodec.DecodeLimit(enc, r.Size()); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	var err error
	n := allocated(func() { _, err = rowcodec.DecodeLimit(enc, r.Size()-1) })
	if !errors.Is(err, rowcodec.ErrTooLarge) || n > 32<<10 {
		t.Errorf("got %v, allocated %d bytes", err, n)
	}
}

func TestDecodingAllocatesTheSameForAnyNumberOfRows(t *testing.T) {
	if pureGo {
		t.Skip("the pure Go build allocates per value")
	}
	for _, n := range []int{1, 100, 10000} {
		enc := encode(t, build(t, benchRows(n)...))
		rowcodec.ForgetColumns()
		share(t, enc)
		if got := testing.AllocsPerRun(5, func() { _, _ = rowcodec.Decode(enc) }); got > 8 {
			t.Errorf("%d rows: %v allocations", n, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, enc := range samples(f) {
		f.Add(enc)
		f.Add(enc[:len(enc)/2])
	}
	f.Add([]byte(strings.Repeat("\xff", 64)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := allocated(func() { _, _ = rowcodec.Decode(b) })
		if max := uint64(64*len(b)) + 4<<20; n > max { // the constant is for time zone files
			t.Fatalf("%d bytes allocate %d", len(b), n)
		}
		checkDecode(t, b)
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, uint8(4), int64(-5), uint64(1<<63), "text", []byte("bytes"), "zone", int32(3600))
	f.Add([]byte{8, 18, 19}, uint8(1), int64(math.MaxInt64), uint64(0x7ff8_0000_dead_beef), "\xff", []byte{}, "Europe/Berlin", int32(7200))
	f.Add([]byte{}, uint8(0), int64(0), uint64(0), "", []byte(nil), "", int32(0))
	f.Fuzz(func(t *testing.T, pick []byte, width uint8, i int64, u uint64, s string, b []byte, zone string, offset int32) {
		if len(zone) > rowcodec.ZoneNameMax {
			return
		}
		berlin := location(t, "Europe/Berlin")
		var rows [][]driver.Value
		for n := int(width%8) + 1; len(pick) >= n; pick = pick[n:] {
			row := make([]driver.Value, n)
			for j, p := range pick[:n] {
				k := int64(p>>5) + i
				switch p % 21 {
				case 0:
				case 1:
					row[j] = k
				case 2:
					row[j] = math.Float64frombits(u + uint64(p>>5))
				case 3:
					row[j] = p&32 != 0
				case 4:
					row[j] = s
				case 5:
					row[j] = b
				case 6:
					row[j] = time.Unix(k, int64(u%1e9)).UTC()
				case 7:
					row[j] = time.Unix(k, int64(u%1e9))
				case 8:
					row[j] = time.Unix(k, int64(u%1e9)).In(time.FixedZone(zone, int(offset)))
				case 9:
					row[j] = int(k)
				case 10:
					row[j] = int8(k)
				case 11:
					row[j] = int16(k)
				case 12:
					row[j] = int32(k)
				case 13:
					row[j] = uint(u)
				case 14:
					row[j] = uint8(u)
				case 15:
					row[j] = uint16(u)
				case 16:
					row[j] = uint32(u)
				case 17:
					row[j] = u
				case 18:
					row[j] = math.Float32frombits(uint32(u))
				case 19:
					row[j] = time.Unix(k, 0).In(berlin)
				case 20:
					row[j] = k & 0xff
				}
			}
			rows = append(rows, row)
		}
		built := build(t, rows...)
		decoded := decode(t, encode(t, built))
		for n, row := range rows {
			for j, v := range row {
				if d := diff(built.Row(n)[j], v); d != "" {
					t.Fatalf("built, row %d column %d: %s", n, j, d)
				}
				if d := diff(decoded.Row(n)[j], v); d != "" {
					t.Fatalf("decoded, row %d column %d: %s", n, j, d)
				}
			}
		}
	})
}
