package rowcodec

import "database/sql/driver"

// A Result is a query result in memory. It never changes and is safe for
// concurrent use. Whatever its methods return is shared with other readers and
// must not be written to. That includes the bytes of a []byte value: a reader
// that hands one on hands on a copy (see [Result.HasBytes]).
type Result struct {
	set    *columnSet
	rows   int
	vals   []driver.Value // row by row
	counts counts
	text   string // all strings of vals, in order
	blob   []byte // all []byte of vals, in order
	size   int64
}

// Columns returns the columns, in order, with whatever duplicates they have.
func (r *Result) Columns() []Column { return r.set.cols }

// Names returns the names of the columns.
func (r *Result) Names() []string { return r.set.names }

// Traits returns the optional interfaces of the driver's rows.
func (r *Result) Traits() Traits { return r.set.traits }

// NumRows returns the number of rows.
func (r *Result) NumRows() int { return r.rows }

// NumColumns returns the number of columns.
func (r *Result) NumColumns() int { return len(r.set.cols) }

// Row returns the values of row i, counted from 0.
func (r *Result) Row(i int) []driver.Value {
	if uint(i) >= uint(r.rows) {
		panic("bug: row out of range")
	}
	n := len(r.set.cols)
	return r.vals[i*n : (i+1)*n : (i+1)*n]
}

// HasBytes reports whether some value is a []byte. Everything else in a result
// cannot be changed by who gets it.
func (r *Result) HasBytes() bool { return r.counts.bytes != 0 }

// Size returns about how many bytes of heap the result takes. Columns that it
// shares with other results are not counted.
func (r *Result) Size() int64 { return r.size }
