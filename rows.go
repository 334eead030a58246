package sqlherd

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// cachedRows gives the rows of a result that many readers share. It has every optional
// interface and answers like the real rows where those had it, and like database/sql where they
// had not, which cannot be told apart through database/sql.
type cachedRows struct {
	live live // how to run the query after all
	res  *rowcodec.Result
	i    int
	// buf holds the []byte values of the current row. A reader may write into what it is given
	// (sql.RawBytes hands it on), so it never gets the shared ones; and as with
	// any driver they are good until the next call.
	buf []byte

	// few is what Columns gives, which database/sql hands on and callers may change, unless there are more: most results need
	// no allocation for it.
	few   [6]string
	named bool // few is filled
}

func (r *cachedRows) Columns() []string {
	names := r.res.Names()
	n := len(names)
	if n > len(r.few) {
		return slices.Clone(names)
	}
	if !r.named {
		copy(r.few[:n], names)
		r.named = true
	}
	return r.few[:n:n]
}

func (r *cachedRows) Close() error { return r.live.close() }

func (r *cachedRows) Next(dest []driver.Value) error {
	if r.i >= r.res.NumRows() {
		return io.EOF
	}
	copy(dest, r.res.Row(r.i))
	r.i++
	if r.res.HasBytes() {
		r.copyBytes(dest)
	}
	return nil
}

func (r *cachedRows) copyBytes(dest []driver.Value) {
	r.buf = r.buf[:0]
	for i, v := range dest {
		b, ok := v.([]byte)
		if !ok || len(b) == 0 {
			continue
		}
		if cap(r.buf)-len(r.buf) < len(b) {
			// Values of this row that are in the old buffer keep it alive.
			r.buf = make([]byte, 0, max(2*cap(r.buf), len(b), 256))
		}
		start := len(r.buf)
		r.buf = append(r.buf, b...)
		dest[i] = r.buf[start:len(r.buf):len(r.buf)]
	}
}

func (r *cachedRows) ColumnTypeDatabaseTypeName(i int) string {
	return r.res.Columns()[i].DatabaseType
}

func (r *cachedRows) ColumnTypeScanType(i int) reflect.Type {
	if t := r.res.Columns()[i].ScanType; t != nil || r.res.Traits().Has(rowcodec.TraitScanType) {
		return t
	}
	return reflect.TypeFor[any]()
}

func (r *cachedRows) ColumnTypeLength(i int) (int64, bool) {
	c := &r.res.Columns()[i]
	return c.Length, c.HasLength
}

func (r *cachedRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	c := &r.res.Columns()[i]
	return c.Nullable, c.HasNullable
}

func (r *cachedRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	c := &r.res.Columns()[i]
	return c.Precision, c.Scale, c.HasPrecisionScale
}

// failedRows are rows that end in an error.
type failedRows struct {
	cachedRows
	end *rowsError
}

func (r *failedRows) Next(dest []driver.Value) error {
	err := r.cachedRows.Next(dest)
	if err == io.EOF && !r.end.closing {
		return r.end.err
	}
	return err
}

func (r *failedRows) Close() error {
	if r.end.closing && !r.live.begun() {
		return r.end.err
	}
	return r.cachedRows.Close()
}

// A stream gives the rows of a load whose result could not be kept: first those already
// read, then the live ones. Exactly one caller gets it.
type stream struct {
	head    *rowcodec.Result
	pending []driver.Value // the row that was read and could not be kept; nil if none
	ended   bool           // the live rows of the first result set are at their end
	live    driver.Rows
	after   func() error            // closes the statement, when there is one
	cancel  context.CancelCauseFunc // of the load
	free    func()                  // gives the loader's connection back, once

	claimed atomic.Bool
	reaper  *time.Timer
}

// claimWithin is how long a stream waits for its caller. Those who wait for a flight wake
// at once when it lands; a stream that nobody takes has lost its only caller at that very moment.
const claimWithin = time.Second

func (s *stream) offer() {
	s.reaper = time.AfterFunc(claimWithin, func() {
		if s.claimed.CompareAndSwap(false, true) {
			s.discard()
		}
	})
}

// claim answers true to one caller.
func (s *stream) claim() bool {
	if !s.claimed.CompareAndSwap(false, true) {
		return false
	}
	s.reaper.Stop()
	return true
}

// discard ends a claimed stream that is not going to be read.
func (s *stream) discard() {
	s.cancel(context.Canceled)
	_ = s.close() // nobody reads it: nobody can be told
}

func (s *stream) close() error {
	err := s.live.Close()
	if aerr := s.after(); err == nil {
		err = aerr
	}
	s.cancel(nil)
	s.free()
	return err
}

// rows returns the rows for the caller with ctx, whose end ends them.
func (s *stream) rows(ctx context.Context) driver.Rows {
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	return &streamRows{s: s, stop: stop}
}

type streamRows struct {
	s    *stream
	i    int
	stop func() bool
	done bool
}

var _ interface{ Unwrap() driver.Rows } = (*streamRows)(nil)

// Unwrap lets sqlmw see which optional interfaces the live rows have.
func (r *streamRows) Unwrap() driver.Rows { return r.s.live }

func (r *streamRows) Columns() []string {
	if r.s.head != nil {
		return slices.Clone(r.s.head.Names())
	}
	return r.s.live.Columns()
}

func (r *streamRows) Next(dest []driver.Value) error {
	if r.s.head != nil && r.i < r.s.head.NumRows() {
		copy(dest, r.s.head.Row(r.i))
		r.i++
		return nil
	}
	if r.s.pending != nil {
		copy(dest, r.s.pending)
		r.s.pending = nil
		return nil
	}
	if r.s.ended {
		return io.EOF
	}
	return r.s.live.Next(dest)
}

func (r *streamRows) Close() error {
	if r.done {
		return nil
	}
	r.done = true
	r.stop()
	return r.s.close()
}

func (r *streamRows) HasNextResultSet() bool {
	n, ok := r.s.live.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *streamRows) NextResultSet() error {
	n, ok := r.s.live.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	if err := n.NextResultSet(); err != nil {
		return err
	}
	r.s.head, r.s.pending, r.s.ended = nil, nil, false
	return nil
}

// told returns who tells of the columns: for the first result set what was read before its first
// row, since some drivers forget their columns at the end of the rows, and that may have been met.
func (r *streamRows) told() driver.Rows {
	if r.s.head != nil {
		return &cachedRows{res: r.s.head}
	}
	return r.s.live
}

func (r *streamRows) ColumnTypeDatabaseTypeName(i int) string { return databaseTypeName(r.told(), i) }
func (r *streamRows) ColumnTypeScanType(i int) reflect.Type   { return scanType(r.told(), i) }
func (r *streamRows) ColumnTypeLength(i int) (int64, bool)    { return length(r.told(), i) }
func (r *streamRows) ColumnTypeNullable(i int) (bool, bool)   { return nullable(r.told(), i) }
func (r *streamRows) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	return precisionScale(r.told(), i)
}

// writeRows are the rows of a statement that writes. done is called once, when they
// are closed, with the error that ended them.
type writeRows struct {
	driver.Rows
	done func(error)
	err  error
}

// panicked is deferred around the driver's calls: who recovers its panic may never close the rows, and then others would be
// served old ones, and a fence be prolonged for ever. Should it go on with the rows, Close says once more that they are over.
func (r *writeRows) panicked(returned *bool) {
	if !*returned {
		r.err = errPanicked
		if r.done != nil {
			r.done(r.err)
		}
	}
}

// Unwrap lets sqlmw see which optional interfaces the real rows have.
func (r *writeRows) Unwrap() driver.Rows { return r.Rows }

func (r *writeRows) Next(dest []driver.Value) error {
	returned := false
	defer r.panicked(&returned)
	err := r.Rows.Next(dest)
	returned = true
	if err != nil && err != io.EOF {
		r.err = err
	}
	return err
}

func (r *writeRows) Close() error {
	returned := false
	defer r.panicked(&returned)
	err := r.Rows.Close()
	returned = true
	if done := r.done; done != nil {
		r.done = nil
		if r.err == nil {
			r.err = err
		}
		done(r.err)
	}
	return err
}

func (r *writeRows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *writeRows) NextResultSet() error {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	returned := false
	defer r.panicked(&returned)
	err := n.NextResultSet()
	returned = true
	return err
}

func (r *writeRows) ColumnTypeDatabaseTypeName(i int) string { return databaseTypeName(r.Rows, i) }
func (r *writeRows) ColumnTypeScanType(i int) reflect.Type   { return scanType(r.Rows, i) }
func (r *writeRows) ColumnTypeLength(i int) (int64, bool)    { return length(r.Rows, i) }
func (r *writeRows) ColumnTypeNullable(i int) (bool, bool)   { return nullable(r.Rows, i) }
func (r *writeRows) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	return precisionScale(r.Rows, i)
}

// What the real rows say of a column, or what database/sql assumes where they say nothing.

func databaseTypeName(rows driver.Rows, i int) string {
	if c, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return c.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func scanType(rows driver.Rows, i int) reflect.Type {
	if c, ok := rows.(driver.RowsColumnTypeScanType); ok {
		return c.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func length(rows driver.Rows, i int) (int64, bool) {
	if c, ok := rows.(driver.RowsColumnTypeLength); ok {
		return c.ColumnTypeLength(i)
	}
	return 0, false
}

func nullable(rows driver.Rows, i int) (isNullable, ok bool) {
	if c, ok := rows.(driver.RowsColumnTypeNullable); ok {
		return c.ColumnTypeNullable(i)
	}
	return false, false
}

func precisionScale(rows driver.Rows, i int) (precision, scale int64, ok bool) {
	if c, ok := rows.(driver.RowsColumnTypePrecisionScale); ok {
		return c.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
