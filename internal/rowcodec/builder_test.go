package rowcodec_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// poisoner is driver.Rows that keep all rows in one buffer, as the contract of
// driver.Rows allows, and spoil it on the next call.
type poisoner struct {
	buf  []byte
	next int
}

func (p *poisoner) Columns() []string { return []string{"b", "s", "e"} }
func (p *poisoner) Close() error      { p.spoil(); return nil }
func (p *poisoner) spoil() {
	for i := range p.buf {
		p.buf[i] = 0xdb
	}
}

func (p *poisoner) Next(dest []driver.Value) error {
	p.spoil()
	if p.next == 20 {
		return io.EOF
	}
	p.buf = fmt.Appendf(p.buf[:0], "bytes of %02d,text of %02d", p.next, p.next)
	p.next++
	dest[0] = p.buf[:11]
	dest[1] = unsafe.String(&p.buf[12], len(p.buf)-12) // no driver should; still
	dest[2] = p.buf[5:5]
	return nil
}

func TestABuilderKeepsNothingOfTheDriversBuffers(t *testing.T) {
	rows := &poisoner{buf: make([]byte, 0, 64)}
	b := rowcodec.NewBuilder(rowcodec.ColumnsOf(rows))
	dest := make([]driver.Value, 3)
	for rows.Next(dest) == nil {
		if err := b.Append(dest); err != nil {
			t.Fatal(err)
		}
	}
	clear(dest)
	rows.Close()
	r := b.Result()
	if r.NumRows() != 20 {
		t.Fatalf("%d rows", r.NumRows())
	}
	for i := range r.NumRows() {
		want := []driver.Value{fmt.Appendf(nil, "bytes of %02d", i), fmt.Sprintf("text of %02d", i), []byte{}}
		if !reflect.DeepEqual(r.Row(i), want) {
			t.Errorf("row %d is %q", i, r.Row(i))
		}
	}
}

type (
	namedInt    int64
	namedString string
	namedBytes  []byte
	namedTime   time.Time
	namedBool   bool
	uuid        [16]byte
)

func unknownValues() []driver.Value {
	n := int64(1)
	return []driver.Value{
		namedInt(1), namedString("a"), namedBytes("a"), namedTime{}, namedBool(true), uuid{},
		json.RawMessage("{}"), sql.RawBytes("a"), json.Number("1"), time.Second,
		&n, (*int64)(nil), []string{"a"}, []any{nil}, []int64{1}, map[string]any{}, struct{}{},
		[4]byte{}, complex64(1), complex128(1), uintptr(1), unsafe.Pointer(nil),
		sql.NullString{}, errors.New("a value"), func() {}, make(chan int), driver.Rows(&poisoner{}),
	}
}

func TestATypeThatIsNotExactlyKnownIsRefused(t *testing.T) {
	for _, v := range unknownValues() {
		b := rowcodec.NewBuilder(columns(2), 0)
		err := b.Append([]driver.Value{int64(1), v})
		var unknown *rowcodec.UnknownTypeError
		if !errors.As(err, &unknown) {
			t.Errorf("%T: got %v", v, err)
			continue
		}
		if unknown.Column != "c1" || unknown.Type != fmt.Sprintf("%T", v) {
			t.Errorf("%T: got %+v", v, unknown)
		}
		if !strings.Contains(err.Error(), `"c1"`) || !strings.Contains(err.Error(), unknown.Type) {
			t.Errorf("%T: the text is %q", v, err)
		}
	}
}

func TestATimeInAZoneThatCannotBeEncodedIsRefused(t *testing.T) {
	long := strings.Repeat("n", rowcodec.ZoneNameMax+1)
	for _, c := range []struct {
		zone *time.Location
		ok   bool
	}{
		{time.FixedZone(long[1:], 0), true},
		{time.FixedZone(long, 0), false},
		{time.FixedZone("x", math.MaxInt32), true},
		{time.FixedZone("x", math.MinInt32), true},
	} {
		v := time.Unix(0, 0).In(c.zone)
		err := rowcodec.NewBuilder(columns(1), 0).Append([]driver.Value{v})
		if refused := errors.As(err, new(*rowcodec.UnknownTypeError)); refused == c.ok {
			t.Errorf("%q: got %v", c.zone, err)
		}
	}
}

func TestAResultMayHaveManyZonesButNotAnyNumber(t *testing.T) {
	b := rowcodec.NewBuilder(columns(1), 0)
	for i := range rowcodec.ZonesMax {
		if err := b.Append([]driver.Value{time.Unix(int64(i), 0).In(time.FixedZone("z", i))}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := b.Append([]driver.Value{time.Unix(0, 0).In(time.FixedZone("z", -1))}); !errors.As(err, new(*rowcodec.UnknownTypeError)) {
		t.Errorf("got %v", err)
	}
	// Those that are there already still work, and so do UTC and Local.
	for _, loc := range []*time.Location{time.FixedZone("z", 500), time.UTC, time.Local} {
		if err := b.Append([]driver.Value{time.Unix(0, 0).In(loc)}); err != nil {
			t.Error(err)
		}
	}
	r := b.Result()
	if d := diffResults(decode(t, encode(t, r)), r); d != "" {
		t.Error(d)
	}
}

func TestARefusedRowLeavesTheRowsBeforeIt(t *testing.T) {
	berlin, tokyo := location(t, "Europe/Berlin"), location(t, "Asia/Tokyo")
	at := time.Unix(1e9, 0)
	good := []driver.Value{"text", []byte("bytes"), at.In(berlin), int64(1e6), 1.5}
	b := rowcodec.NewBuilder(columns(5), 0)
	if err := b.Append(good); err != nil {
		t.Fatal(err)
	}
	size := b.Size()
	for _, bad := range []driver.Value{namedInt(1), struct{}{}} {
		if err := b.Append([]driver.Value{"other", []byte("other"), at.In(tokyo), int64(1e6), bad}); err == nil {
			t.Fatal("no error")
		}
	}
	if b.Rows() != 1 || b.Size() != size {
		t.Errorf("%d rows, %d bytes; before %d", b.Rows(), b.Size(), size)
	}
	again := []driver.Value{"", nil, at.In(tokyo), at.In(berlin), at.In(tokyo)}
	if err := b.Append(again); err != nil {
		t.Fatal(err)
	}
	r := b.Result()
	for _, r := range []*rowcodec.Result{r, decode(t, encode(t, r))} {
		for i, row := range [][]driver.Value{good, again} {
			for j, v := range row {
				if d := diff(r.Row(i)[j], v); d != "" {
					t.Errorf("row %d column %d: %s", i, j, d)
				}
			}
		}
	}
}

func TestARowOfAnotherWidthIsRefused(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		b := rowcodec.NewBuilder(columns(2), 0)
		if err := b.Append(make([]driver.Value, n)); err == nil || b.Rows() != 0 {
			t.Errorf("%d values for 2 columns: %v", n, err)
		}
	}
}

func TestABuilderIsUsedOnce(t *testing.T) {
	for name, use := range map[string]func(*rowcodec.Builder){
		"Append": func(b *rowcodec.Builder) { _ = b.Append([]driver.Value{int64(1)}) },
		"Result": func(b *rowcodec.Builder) { b.Result() },
	} {
		b := rowcodec.NewBuilder(columns(1), 0)
		b.Result()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s after Result did not panic", name)
				}
			}()
			use(b)
		}()
	}
}

func TestTheLocationOfABuiltTimeIsTheDriversOwn(t *testing.T) {
	berlin := location(t, "Europe/Berlin")
	named := time.FixedZone("", 3600)
	r := build(t, []driver.Value{time.Unix(0, 0).In(berlin), time.Unix(0, 0).In(named)})
	if r.Row(0)[0].(time.Time).Location() != berlin || r.Row(0)[1].(time.Time).Location() != named {
		t.Error("another location")
	}
}

func TestASizeGrowsWithWhatIsPutIn(t *testing.T) {
	b := rowcodec.NewBuilder(columns(1), 0)
	last := b.Size()
	for _, v := range []driver.Value{
		strings.Repeat("a", 100), bytes.Repeat([]byte{1}, 100), int64(1e12), time.Now(), 1.5, nil, nil,
		strings.Repeat("a", 1e6), bytes.Repeat([]byte{1}, 1e6),
	} {
		if err := b.Append([]driver.Value{v}); err != nil {
			t.Fatal(err)
		}
		size := b.Size()
		if size <= last {
			t.Errorf("%T: %d bytes after %d", v, size, last)
		}
		if s, ok := v.(string); ok && size-last < int64(len(s)) {
			t.Errorf("%d bytes for a string of %d", size-last, len(s))
		}
		last = size
	}
}

func TestReadersShareAResult(t *testing.T) {
	vals := allValues(t)
	built := build(t, vals, vals, vals)
	decoded := decode(t, encode(t, built))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := built
			if g%2 == 0 {
				r = decoded
			}
			for i := range r.NumRows() {
				for j, v := range vals {
					if d := diff(r.Row(i)[j], v); d != "" {
						t.Error(d)
						return
					}
				}
			}
			enc, err := rowcodec.Append(nil, r)
			if err != nil {
				t.Error(err)
				return
			}
			other, err := rowcodec.Decode(enc)
			if err != nil {
				t.Error(err)
				return
			}
			if d := diffResults(other, r); d != "" {
				t.Error(d)
			}
		})
	}
	wg.Wait()
}
