//go:build go1.27

package sqlherd

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// As of Go 1.27 a driver may fill the destinations of Scan itself (driver.RowsColumnScanner), and
// pgx does: it scans an array into a []int64. What such a driver puts into a plain destination,
// such as a *string, a *[]byte, a *any or a sql.Scanner, is what database/sql would
// have made of the value from Next, which is what the cache holds. Into any other destination only the driver can
// scan, and only from its own rows.
//
// Which destinations a query is scanned into is not known before the first Scan. So cached rows serve plain
// ones, and at the first other one the query runs after all, on its caller's connection, which
// database/sql keeps for these rows. What this Scan has filled already is filled again, so that no row is
// half cached and half live. From then on the text is not cached (reason type).

// live is how cached rows run their query after all, and the rows when they have.
type live struct {
	c      *conn // nil: they cannot
	p      *plan
	ctx    context.Context // of the query, which database/sql keeps no longer than the rows
	query  string
	args   []driver.NamedValue
	asStmt bool

	row  []driver.Value // the current row, cached or live
	into []any          // destinations of the current Scan that were filled from the cache
	seen bool           // an earlier Scan was: what it was given cannot be taken back

	rows      driver.Rows
	scanner   driver.RowsColumnScanner // rows, if they are one
	closeStmt func() error
}

// live returns how to run the query after all. A driver that is known not to scan needs none.
func (q *queryState) live(ctx context.Context, st *stmt, query string, args []driver.NamedValue) live {
	if q.c.src.known.Load() == scansNever {
		return live{}
	}
	// The caller may use its buffers again when the query has returned.
	return live{c: q.c, p: q.p, ctx: ctx, query: query, args: cloneArgs(args), asStmt: st != nil}
}

func (l *live) begun() bool { return l.rows != nil }

func (l *live) close() error {
	if l.rows == nil {
		return nil
	}
	err := l.rows.Close()
	if serr := l.closeStmt(); err == nil {
		err = serr
	}
	return err
}

// begin runs the query and goes to row n, counted from 1, of cols columns.
func (l *live) begin(n, cols int) error {
	real, err := l.c.dial(l.ctx)
	if err != nil {
		return err
	}
	rows, closeStmt, err := openRows(l.ctx, real, &loadQuery{query: l.query, args: l.args, prepared: l.asStmt})
	if err != nil {
		return err
	}
	l.rows, l.closeStmt = rows, closeStmt
	l.scanner, _ = rows.(driver.RowsColumnScanner)
	l.c.src.learn(rows)
	if len(rows.Columns()) != cols {
		return errors.New("sqlherd: the table's columns have changed since its rows were cached")
	}
	for range n {
		switch err := l.next(); err {
		case nil:
		case io.EOF:
			return sql.ErrNoRows // what the bare driver's caller would have been told by Next
		default:
			return err
		}
	}
	return nil
}

func (l *live) next() error {
	if l.scanner != nil {
		return l.scanner.NextRow()
	}
	return l.rows.Next(l.row)
}

func (l *live) scan(sc driver.ScanContext, i int, dest any) error {
	if l.scanner != nil {
		return l.scanner.ScanColumn(sc, i, dest)
	}
	return sql.ConvertAssign(sc, dest, l.row[i])
}

var (
	_ driver.RowsColumnScanner = (*cachedRows)(nil)
	_ driver.RowsColumnScanner = (*failedRows)(nil)
	_ driver.RowsColumnScanner = (*scannedWriteRows)(nil)
)

// NextRow is what database/sql calls instead of Next.
func (r *cachedRows) NextRow() error {
	if r.live.rows != nil {
		return r.live.next()
	}
	if r.live.row == nil {
		r.live.row = make([]driver.Value, len(r.res.Names()))
	}
	return r.Next(r.live.row)
}

func (r *failedRows) NextRow() error {
	err := r.cachedRows.NextRow()
	if err == io.EOF && !r.end.closing && !r.live.begun() {
		return r.end.err
	}
	return err
}

// ScanColumn fills dest from the cached row, or begins with live ones.
func (r *cachedRows) ScanColumn(sc driver.ScanContext, i int, dest any) error {
	l := &r.live
	switch {
	case l.rows != nil:
		return l.scan(sc, i, dest)
	case l.c == nil || l.c.src.known.Load() == scansNever:
		return sql.ConvertAssign(sc, dest, l.row[i])
	}
	if i == 0 {
		l.seen = l.seen || len(l.into) > 0
		l.into = l.into[:0]
	}
	if isPlain(dest) {
		l.into = append(l.into, dest)
		return sql.ConvertAssign(sc, dest, l.row[i])
	}
	l.p.scans.Store(true)
	if l.seen {
		return fmt.Errorf("sqlherd: only the driver can scan into a %T, and rows before this one came from the cache; "+
			"this query is not cached any more", dest)
	}
	if err := l.begin(r.i, len(l.row)); err != nil {
		return err
	}
	for j, filled := range l.into {
		if err := l.scan(sc, j, filled); err != nil {
			return err
		}
	}
	return l.scan(sc, i, dest)
}

// scanning remembers whether a source's driver scans by itself. All rows of a driver are of one kind.
type scanning struct{ known atomic.Int32 }

const (
	scansUnknown int32 = iota
	scansAlways
	scansNever
)

// learn looks at real rows.
func (s *scanning) learn(rows driver.Rows) {
	if s.known.Load() == scansAlways {
		return
	}
	known := scansNever
	if scansColumns(rows) {
		known = scansAlways
	}
	s.known.Store(known)
}

func scansColumns(rows driver.Rows) bool {
	_, ok := rows.(driver.RowsColumnScanner)
	return ok
}

// scannedWriteRows are writeRows of a driver that scans by itself.
type scannedWriteRows struct {
	writeRows
	scanner driver.RowsColumnScanner
}

func newWriteRows(rows driver.Rows, done func(error)) driver.Rows {
	w := writeRows{Rows: rows, done: done}
	if scanner, ok := rows.(driver.RowsColumnScanner); ok {
		return &scannedWriteRows{writeRows: w, scanner: scanner}
	}
	return &w
}

func (r *scannedWriteRows) NextRow() error {
	returned := false
	defer r.panicked(&returned)
	err := r.scanner.NextRow()
	returned = true
	if err != nil && err != io.EOF {
		r.err = err
	}
	return err
}

func (r *scannedWriteRows) ScanColumn(sc driver.ScanContext, i int, dest any) error {
	return r.scanner.ScanColumn(sc, i, dest)
}

// isPlain says whether database/sql fills dest as well as any driver. On doubt it does not.
func isPlain(dest any) bool {
	switch dest.(type) {
	case nil, *string, *[]byte, *any, *int64, *int, *int32, *bool, *float64, sql.Scanner, *sql.RawBytes:
		return true
	}
	t := reflect.TypeOf(dest)
	if plain, ok := plainTypes.Load(t); ok {
		return plain.(bool)
	}
	plain := isPlainType(t)
	plainTypes.Store(t, plain)
	return plain
}

var plainTypes sync.Map // reflect.Type of a destination → bool

// plainDepth bounds the pointers to pointers that are looked through.
const plainDepth = 8

func isPlainType(t reflect.Type) bool {
	for range plainDepth {
		if t.Implements(reflect.TypeFor[sql.Scanner]()) {
			return true
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.String:
		// A driver's own type may scan by itself, whatever it is made of.
		return !scansByMethod(t)
	case reflect.Interface:
		return t.NumMethod() == 0
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 && !scansByMethod(t)
	case reflect.Struct:
		return t.ConvertibleTo(reflect.TypeFor[time.Time]()) && !scansByMethod(t)
	}
	return false
}

// scansByMethod says whether t has a method by which a driver might scan, such as pgx's ScanBytes or SetDimensions.
func scansByMethod(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for i := range p.NumMethod() {
		if name := p.Method(i).Name; strings.HasPrefix(name, "Scan") || strings.HasPrefix(name, "Set") {
			return true
		}
	}
	return false
}
