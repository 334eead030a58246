package rowcodec_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// bare are driver.Rows without any optional interface.
type bare struct{ names []string }

func (b bare) Columns() []string         { return b.names }
func (b bare) Close() error              { return nil }
func (b bare) Next([]driver.Value) error { return io.EOF }

// The optional interfaces, one type each, to be embedded beside bare.
type (
	hasName  struct{}
	hasLen   struct{}
	hasNull  struct{}
	hasPrec  struct{}
	hasScan  struct{ types []reflect.Type }
	hasNext  struct{}
	nameOnly struct {
		bare
		hasName
	}
	lenOnly struct {
		bare
		hasLen
	}
	nullOnly struct {
		bare
		hasNull
	}
	precOnly struct {
		bare
		hasPrec
	}
	scanOnly struct {
		bare
		hasScan
	}
	nextOnly struct {
		bare
		hasNext
	}
	everything struct {
		bare
		hasName
		hasLen
		hasNull
		hasPrec
		hasScan
		hasNext
	}
)

func (hasName) ColumnTypeDatabaseTypeName(i int) string { return []string{"INT8", "", "TEXT"}[i] }
func (hasLen) ColumnTypeLength(i int) (int64, bool) {
	return []int64{0, math.MaxInt64, 5}[i], i != 2 // a length with ok false is kept too
}
func (hasNull) ColumnTypeNullable(i int) (nullable, ok bool) { return i != 1, i != 2 }
func (hasPrec) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	return []int64{10, -1, 0}[i], []int64{2, 0, math.MinInt64}[i], i != 2
}
func (h hasScan) ColumnTypeScanType(i int) reflect.Type { return h.types[i] }
func (hasNext) HasNextResultSet() bool                  { return false }
func (hasNext) NextResultSet() error                    { return io.EOF }

var (
	abc       = bare{[]string{"a", "b", "a"}}
	scanTypes = hasScan{[]reflect.Type{reflect.TypeFor[int64](), nil, reflect.TypeFor[sql.NullString]()}}
)

func TestColumnsOfReadsExactlyTheInterfacesThatAreThere(t *testing.T) {
	for _, c := range []struct {
		rows   driver.Rows
		traits rowcodec.Traits
	}{
		{abc, 0},
		{nameOnly{bare: abc}, rowcodec.TraitDatabaseTypeName},
		{lenOnly{bare: abc}, rowcodec.TraitLength},
		{nullOnly{bare: abc}, rowcodec.TraitNullable},
		{precOnly{bare: abc}, rowcodec.TraitPrecisionScale},
		{scanOnly{abc, scanTypes}, rowcodec.TraitScanType},
		{nextOnly{bare: abc}, rowcodec.TraitNextResultSet},
		{everything{bare: abc, hasScan: scanTypes}, rowcodec.TraitDatabaseTypeName | rowcodec.TraitLength |
			rowcodec.TraitNullable | rowcodec.TraitPrecisionScale | rowcodec.TraitScanType | rowcodec.TraitNextResultSet},
	} {
		cols, traits := rowcodec.ColumnsOf(c.rows)
		if traits != c.traits {
			t.Errorf("%T: traits %b, want %b", c.rows, traits, c.traits)
		}
		want := []rowcodec.Column{{Name: "a"}, {Name: "b"}, {Name: "a"}}
		for i := range want {
			w := &want[i]
			if g, ok := c.rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
				w.DatabaseType, w.HasDatabaseType = g.ColumnTypeDatabaseTypeName(i), true
			}
			if g, ok := c.rows.(driver.RowsColumnTypeLength); ok {
				w.Length, w.HasLength = g.ColumnTypeLength(i)
			}
			if g, ok := c.rows.(driver.RowsColumnTypeNullable); ok {
				w.Nullable, w.HasNullable = g.ColumnTypeNullable(i)
			}
			if g, ok := c.rows.(driver.RowsColumnTypePrecisionScale); ok {
				w.Precision, w.Scale, w.HasPrecisionScale = g.ColumnTypePrecisionScale(i)
			}
			if g, ok := c.rows.(driver.RowsColumnTypeScanType); ok {
				w.ScanType = g.ColumnTypeScanType(i)
			}
		}
		if !reflect.DeepEqual(cols, want) {
			t.Errorf("%T: got %+v, want %+v", c.rows, cols, want)
		}
		built := buildColumns(t, cols, traits)
		if got := decode(t, encode(t, built)); !reflect.DeepEqual(got.Columns(), want) || got.Traits() != c.traits {
			t.Errorf("%T: decoded %+v, want %+v", c.rows, got.Columns(), want)
		}
	}
}

func TestTraitsHas(t *testing.T) {
	both := rowcodec.TraitLength | rowcodec.TraitScanType
	if !both.Has(rowcodec.TraitLength) || !both.Has(both) || rowcodec.TraitLength.Has(both) || both.Has(rowcodec.TraitNullable) {
		t.Error("Has is wrong")
	}
}

func TestAResultDoesNotKeepTheCallersColumns(t *testing.T) {
	for _, typ := range []reflect.Type{nil, reflect.TypeFor[struct{ unnameable int }]()} {
		cols := columns(2)
		cols[0].ScanType = typ
		b := rowcodec.NewBuilder(cols, 0)
		cols[0].Name, cols[1].Name = "changed", "changed"
		if got := b.Result().Names(); got[0] != "c0" || got[1] != "c1" {
			t.Errorf("got %q", got)
		}
	}
}

type metOnce struct{ X int }

type generic[T any] struct{ X T }

func TestScanTypesComeBack(t *testing.T) {
	types := append([]reflect.Type{
		reflect.TypeFor[metOnce](), reflect.TypeFor[*metOnce](), reflect.TypeFor[[]metOnce](), reflect.TypeFor[[3]*metOnce](),
		reflect.TypeFor[map[string][]*metOnce](), reflect.TypeFor[map[[2]string]any](), reflect.TypeFor[big.Int](),
		reflect.TypeFor[netip.Addr](), reflect.TypeFor[generic[int]](), reflect.TypeFor[generic[metOnce]](), reflect.TypeFor[generic[[]*big.Int]](),
		reflect.TypeFor[sql.Null[metOnce]](), reflect.TypeFor[error](), reflect.TypeFor[fmt.Stringer](), reflect.TypeFor[[]string](),
		reflect.TypeFor[time.Duration](),
	}, rowcodec.WellKnown...)
	cols := columns(len(types))
	for i, typ := range types {
		cols[i].ScanType = typ
	}
	got := decode(t, encode(t, buildColumns(t, cols, rowcodec.TraitScanType))).Columns()
	for i, typ := range types {
		if got[i].ScanType != typ {
			t.Errorf("%v came back as %v", typ, got[i].ScanType)
		}
	}
}

func TestNoTwoScanTypesHaveOneName(t *testing.T) {
	names := map[string]reflect.Type{}
	for _, typ := range append([]reflect.Type{
		reflect.TypeFor[metOnce](), reflect.TypeFor[*metOnce](), reflect.TypeFor[[]metOnce](), reflect.TypeFor[[1]metOnce](),
		reflect.TypeFor[map[string]metOnce](), reflect.TypeFor[map[metOnce]string](), reflect.TypeFor[map[string]*metOnce](),
		reflect.TypeFor[generic[int]](), reflect.TypeFor[generic[metOnce]](),
	}, rowcodec.WellKnown...) {
		name := rowcodec.TypeName(typ)
		if other := names[name]; name == "" || other != nil {
			t.Errorf("%v and %v are both %q", typ, other, name)
		}
		names[name] = typ
	}
	if got := rowcodec.TypeName(reflect.TypeFor[*metOnce]()); got != "*github.com/sqlherd/sqlherd/internal/rowcodec_test.metOnce" {
		t.Errorf("got %q", got)
	}
}

func TestAScanTypeWithoutAnUnambiguousNameIsNotEncoded(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[struct{ A int }](), reflect.TypeFor[*struct{ A int }](), reflect.TypeFor[func()](), reflect.TypeFor[chan int](),
		reflect.TypeFor[interface{ M() }](), reflect.TypeFor[[]interface{ M() }](), reflect.TypeFor[map[struct{ A int }]int](),
		reflect.ArrayOf(1, reflect.TypeFor[func()]()),
	} {
		cols := columns(2)
		cols[1].ScanType = typ
		r := buildColumns(t, cols, rowcodec.TraitScanType, []driver.Value{int64(1), "a"})
		if r.Columns()[1].ScanType != typ || r.Row(0)[1] != "a" {
			t.Errorf("%v: the result in memory lacks it", typ)
		}
		dst, err := rowcodec.Append([]byte("x"), r)
		var unknown *rowcodec.UnknownTypeError
		if !errors.As(err, &unknown) || unknown.Column != "c1" || unknown.Type != typ.String() {
			t.Errorf("%v: got %v", typ, err)
		}
		if string(dst) != "x" {
			t.Errorf("%v: something was appended", typ)
		}
	}
}

func TestOfTwoTypesWithOneNameOnlyTheFirstIsEncoded(t *testing.T) {
	// Types declared inside functions have the name of their package only.
	first := func() reflect.Type { type local struct{ A int }; return reflect.TypeFor[local]() }()
	second := func() reflect.Type { type local struct{ B string }; return reflect.TypeFor[local]() }()
	if first == second || rowcodec.TypeName(first) != rowcodec.TypeName(second) {
		t.Skip("this Go tells them apart by name")
	}
	enc := func(typ reflect.Type) ([]byte, error) {
		cols := columns(1)
		cols[0].ScanType = typ
		return rowcodec.Append(nil, buildColumns(t, cols, 0))
	}
	b, err := enc(first)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := enc(second); !errors.As(err, new(*rowcodec.UnknownTypeError)) {
			t.Errorf("got %v", err)
		}
	}
	if got := decode(t, b).Columns()[0].ScanType; got != first {
		t.Errorf("got %v", got)
	}
}

type metLater struct{ X int }

func TestAScanTypeIsKnownOnceTheProcessHasMetIt(t *testing.T) {
	typ := reflect.TypeFor[metLater]()
	cols := columns(1)
	cols[0].ScanType = typ
	enc := encode(t, buildColumns(t, cols, rowcodec.TraitScanType))
	rowcodec.ForgetType(typ)
	for range 3 {
		_, err := rowcodec.Decode(enc)
		var unknown *rowcodec.UnknownTypeError
		if !errors.As(err, &unknown) || unknown.Column != "c0" || !strings.HasSuffix(unknown.Type, ".metLater") {
			t.Fatalf("got %v", err)
		}
	}
	rowcodec.ColumnsOf(scanOnly{bare{[]string{"a"}}, hasScan{[]reflect.Type{typ}}})
	if got := decode(t, enc).Columns()[0].ScanType; got != typ {
		t.Errorf("got %v", got)
	}
}

func TestAScanTypeOfANewerVersionIsUnknown(t *testing.T) {
	cols := columns(1)
	cols[0].ScanType = reflect.TypeFor[any]() // number 1
	enc := encode(t, buildColumns(t, cols, 0))
	i := bytes.Index(enc, []byte("\x02c0\x00\x01"))
	if i < 0 {
		t.Fatalf("% x", enc)
	}
	enc[i+4] = 0x7f
	if _, err := rowcodec.Decode(enc); !errors.As(err, new(*rowcodec.UnknownTypeError)) {
		t.Errorf("got %v", err)
	}
}

func TestTooManyColumnsAreNotEncoded(t *testing.T) {
	r := buildColumns(t, columns(rowcodec.MaxColumns), 0)
	if got := decode(t, encode(t, r)); got.NumColumns() != rowcodec.MaxColumns {
		t.Errorf("%d columns", got.NumColumns())
	}
	r = buildColumns(t, columns(rowcodec.MaxColumns+1), 0)
	if _, err := rowcodec.Append(nil, r); !errors.As(err, new(*rowcodec.UnknownTypeError)) {
		t.Errorf("got %v", err)
	}
}

func TestResultsOfOneQueryShareTheirColumns(t *testing.T) {
	rowcodec.ForgetColumns()
	cols := []rowcodec.Column{{Name: "shared by results of one query", DatabaseType: "INT8", HasDatabaseType: true}}
	enc := encode(t, buildColumns(t, cols, 0))
	share(t, enc)
	a, b := decode(t, enc), buildColumns(t, cols, 0)
	if !rowcodec.SharesColumns(a, b) {
		t.Error("a decoded result and a built one have columns of their own")
	}
	if c := buildColumns(t, cols, rowcodec.TraitLength); rowcodec.SharesColumns(a, c) {
		t.Error("results with different traits share columns")
	}
}

func TestColumnsSeenOnceAreNotShared(t *testing.T) {
	rowcodec.ForgetColumns()
	cols := []rowcodec.Column{{Name: "seen once " + time.Now().String()}}
	a := buildColumns(t, cols, 0)
	b := buildColumns(t, cols, 0)
	if rowcodec.SharesColumns(a, b) {
		t.Error("shared at first sight")
	}
	if a.Size() <= b.Size() {
		t.Errorf("with columns of its own %d bytes, without %d", a.Size(), b.Size())
	}
}
