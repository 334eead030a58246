package integration_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"modernc.org/sqlite"
)

// A sight is all that an application can see of what a statement came to: one cell for each thing, in a fixed order.
type sight struct {
	Cells []cell
	Fails bool // there is an error among them
	Rows  int
	Fewer int // values that were scanned into the common destinations only

	values [][]any // scanned into any; NaN, which is not equal to itself, as text
}

// A cell is one thing that can be seen, written so that two different things are never written alike.
type cell struct{ Where, What string }

func (v *sight) add(where, format string, args ...any) {
	v.Cells = append(v.Cells, cell{where, fmt.Sprintf(format, args...)})
}

// differences counts the cells of two sights and says in which they differ.
func (v *sight) differences(want *sight) (cells int, diff []string) {
	cells = max(len(v.Cells), len(want.Cells))
	for i := range cells {
		var g, w cell
		if i < len(v.Cells) {
			g = v.Cells[i]
		}
		if i < len(want.Cells) {
			w = want.Cells[i]
		}
		if g != w {
			diff = append(diff, fmt.Sprintf("got  %s: %s\nwant %s: %s", g.Where, g.What, w.Where, w.What))
		}
	}
	if diff == nil && v.values != nil && want.values != nil && !reflect.DeepEqual(v.values, want.values) {
		diff = append(diff, fmt.Sprintf("got  %#v\nwant %#v", v.values, want.values))
	}
	return cells, diff
}

// Values longer than sightLong are scanned into sightCommon destinations only, and those of rows after the first sightRows and of
// rows of more than sightWidth columns into any and sql.RawBytes: the others convert or refuse them like the ones before.
const (
	sightLong   = 4 << 10
	sightRows   = 12
	sightWidth  = 64
	sightCommon = 4
)

// destinations are what a column can be scanned into. The common ones come first, and the race detector, which has nothing more to
// find in database/sql's conversions, gets the first few.
var destinations = underRace(5,
	into[any](), into[string](), into[[]byte](), into[sql.Null[string]](), into[witness](), into[int64](), into[time.Time](), into[sql.NullTime](),
	into[bool](), into[int](), into[int8](), into[int16](), into[int32](), into[uint](), into[uint8](), into[uint32](), into[uint64](),
	into[float32](), into[float64](),
	into[*string](), into[*int64](), into[*time.Time](), into[*any](),
	into[sql.NullString](), into[sql.NullInt64](), into[sql.NullInt32](), into[sql.NullInt16](), into[sql.NullByte](), into[sql.NullFloat64](), into[sql.NullBool](),
	into[sql.Null[int64]](), into[sql.Null[uint64]](), into[sql.Null[float64]](), into[sql.Null[bool]](), into[sql.Null[time.Time]](), into[sql.Null[[]byte]](), into[sql.Null[any]](),
	into[namedText](), into[namedNumber](), into[json.RawMessage](),
)

type (
	namedText   string
	namedNumber int32
)

// A witness is a sql.Scanner that writes down what the driver's value is.
type witness struct{ saw string }

func (w *witness) Scan(v any) error {
	w.saw = describe(v)
	if v == "refuse" {
		return errors.New("refused")
	}
	return nil
}

type destination struct {
	name string
	make func() (ptr any, read func() any)
}

func into[T any]() destination {
	return destination{reflect.TypeFor[T]().String(), func() (any, func() any) {
		v := new(T)
		return v, func() any { return *v }
	}}
}

// A discard is a destination that nobody looks at.
type discard struct{}

func (discard) Scan(any) error { return nil }

// see runs a query and writes down all that can be seen of its answer. With prepared it goes through a prepared statement.
func see(ctx context.Context, q preparer, prepared bool, query string, args ...any) *sight {
	v := &sight{}
	var rows *sql.Rows
	var err error
	if prepared {
		var stmt *sql.Stmt
		if stmt, err = q.PrepareContext(ctx, query); err == nil {
			defer stmt.Close()
			rows, err = stmt.QueryContext(ctx, args...)
		}
	} else {
		rows, err = q.QueryContext(ctx, query, args...)
	}
	if err != nil {
		v.error("query", err)
		return v
	}
	for set := 0; ; set++ {
		v.resultSet(set, rows)
		if !rows.NextResultSet() {
			break
		}
	}
	v.error("rows.Err", rows.Err())
	v.error("rows.Close", rows.Close())
	return v
}

func (v *sight) resultSet(set int, rows *sql.Rows) {
	cols, err := rows.Columns()
	v.add("columns", "%d: %q", set, cols)
	v.error("columns", err)
	types, err := rows.ColumnTypes()
	v.error("column types", err)
	for _, ct := range types {
		v.columnType(ct)
	}
	for row := 0; rows.Next(); row++ {
		v.Rows++
		v.row(row, cols, rows)
	}
}

func (v *sight) columnType(ct *sql.ColumnType) {
	where := "column " + ct.Name()
	length, hasLength := ct.Length()
	nullable, hasNullable := ct.Nullable()
	precision, scale, hasDecimal := ct.DecimalSize()
	v.add(where, "name %q", ct.Name())
	v.add(where, "database type %q", ct.DatabaseTypeName())
	v.add(where, "scan type %v", ct.ScanType())
	v.add(where, "length %d, %t", length, hasLength)
	v.add(where, "nullable %t, %t", nullable, hasNullable)
	v.add(where, "decimal %d, %d, %t", precision, scale, hasDecimal)
}

func (v *sight) row(row int, cols []string, rows *sql.Rows) {
	values, raw := make([]any, len(cols)), make([]sql.RawBytes, len(cols))
	ptrs := make([]any, len(cols))
	for i := range values {
		ptrs[i] = &values[i]
	}
	v.error("scan into any", rows.Scan(ptrs...))
	kept := make([]any, len(cols))
	for i, value := range values {
		kept[i] = value
		if f, ok := value.(float64); ok && math.IsNaN(f) {
			kept[i] = "NaN"
		}
	}
	v.values = append(v.values, kept)
	for i := range ptrs {
		ptrs[i] = discard{}
	}
	many := row >= sightRows || len(cols) > sightWidth
	for i, value := range values {
		use := destinations
		switch {
		case many:
			v.add(fmt.Sprintf("row %d column %d into interface {}", row, i), "%s", describe(value))
			v.Fewer += len(use) - 1
			continue
		case length(value) > sightLong:
			v.Fewer += len(use) - sightCommon
			use = use[:sightCommon]
		}
		for _, d := range use {
			ptr, read := d.make()
			ptrs[i] = ptr
			err := rows.Scan(ptrs...)
			v.add(fmt.Sprintf("row %d column %d into %s", row, i, d.name), "%s, %s", describe(read()), describeError(err))
		}
		ptrs[i] = discard{}
	}
	// Last, because no other Scan may follow one into RawBytes.
	for i := range raw {
		ptrs[i] = &raw[i]
	}
	err := rows.Scan(ptrs...)
	for i := range raw {
		v.add(fmt.Sprintf("row %d column %d into sql.RawBytes", row, i), "%s, %s", describe([]byte(raw[i])), describeError(err))
	}
}

func length(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}

// error adds everything that can be asked of an error: its type, its text, what it wraps, whether it is one of those
// that applications look for, and as what it can be had.
func (v *sight) error(where string, err error) {
	v.Fails = v.Fails || err != nil
	v.add(where, "%s", describeError(err))
	if err == nil {
		return
	}
	for e := errors.Unwrap(err); e != nil; e = errors.Unwrap(e) {
		v.add(where+" wraps", "%s", describeError(e))
	}
	for _, known := range []error{sql.ErrNoRows, sql.ErrTxDone, sql.ErrConnDone, context.Canceled, context.DeadlineExceeded, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF} {
		v.add(where+" is", "%v: %t", known, errors.Is(err, known))
	}
	v.asserted(where, err)
	addAs[*pq.Error](v, where, err)
	addAs[*pgconn.PgError](v, where, err)
	addAs[*mysql.MySQLError](v, where, err)
	addAs[*sqlite.Error](v, where, err)
	addAsCgo(v, where, err)
}

// asserted adds what an application sees that takes errors as they come, without errors.As.
func (v *sight) asserted(where string, err error) {
	where += " asserted"
	switch e := err.(type) { //nolint:errorlint // that is the point
	case *pq.Error:
		v.add(where, "%+q", fmt.Sprintf("%+v", *e))
	case *pgconn.PgError:
		v.add(where, "%+q", fmt.Sprintf("%+v", *e))
	case *mysql.MySQLError:
		v.add(where, "%+q", fmt.Sprintf("%d %s %s", e.Number, e.SQLState, e.Message))
	case *sqlite.Error:
		v.add(where, "%d", e.Code())
	default:
		if !v.assertedCgo(where, err) {
			v.add(where, "none of the drivers'")
		}
	}
}

func addAs[E error](v *sight, where string, err error) {
	var e E
	if !errors.As(err, &e) {
		return
	}
	as := &sight{}
	as.asserted(where+" as "+reflect.TypeFor[E]().String(), e)
	v.Cells = append(v.Cells, as.Cells...)
}

func describeError(err error) string {
	if err == nil {
		return "ok"
	}
	text := err.Error()
	if len(text) > sightLong {
		text = fmt.Sprintf("%d bytes, %x", len(text), bytesDigest([]byte(text)))
	}
	return fmt.Sprintf("%T %q", err, text)
}

// describe tells values apart that == or %v would not.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprintf("%T %v", v, v)
	case float64:
		return fmt.Sprintf("float64 %v bits %x", v, math.Float64bits(v))
	case float32:
		return fmt.Sprintf("float32 %v bits %x", v, math.Float32bits(v))
	case time.Time:
		name, offset := v.Zone()
		return fmt.Sprintf("time.Time %s unix %d.%09d location %q zone %q %d == %t", v.Format(time.RFC3339Nano), v.Unix(), v.Nanosecond(),
			v.Location(), name, offset, v.Location() == time.UTC || v.Location() == time.Local)
	case []byte:
		if v == nil {
			return "[]byte nil"
		}
		if len(v) > 200 {
			return fmt.Sprintf("[]byte of %d, %x", len(v), bytesDigest(v))
		}
		return fmt.Sprintf("[]byte %+q", v)
	case string:
		if len(v) > 200 {
			return fmt.Sprintf("string of %d, %x", len(v), bytesDigest([]byte(v)))
		}
		return fmt.Sprintf("string %+q", v)
	case witness:
		return "saw " + v.saw
	}
	// What is made of these: pointers, the nullable types, named ones.
	switch r := reflect.ValueOf(v); {
	case r.Kind() == reflect.Pointer && r.IsNil():
		return fmt.Sprintf("%T nil", v)
	case r.Kind() == reflect.Pointer:
		return "pointer to " + describe(r.Elem().Interface())
	case r.Kind() == reflect.Struct && r.NumField() == 2:
		return fmt.Sprintf("%T{%s, %s}", v, describe(r.Field(0).Interface()), describe(r.Field(1).Interface()))
	case r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		return fmt.Sprintf("%T of %s", v, describe(r.Bytes()))
	}
	return fmt.Sprintf("%T %#v", v, v)
}

func bytesDigest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:8]
}

func describeKind(v any) string { return fmt.Sprintf("%T", v) }

func (v *sight) String() string {
	var b strings.Builder
	for _, c := range v.Cells {
		fmt.Fprintf(&b, "%s: %s\n", c.Where, c.What)
	}
	return b.String()
}
