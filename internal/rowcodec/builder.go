package rowcodec

import (
	"database/sql/driver"
	"fmt"
)

// A Builder collects the rows of a driver into a [Result].
//
// It copies at once, so that the driver may reuse its buffers for the next row.
// What it holds meanwhile is the encoded form, which is smaller than the result:
// the result's exact sizes are known only at the end. A Builder is for one
// goroutine and one result.
type Builder struct {
	set  *columnSet
	rows int
	enc  encoder
	done bool
}

// NewBuilder returns a Builder for rows with the columns cols and the optional
// interfaces t, as [ColumnsOf] returns them. It keeps no part of cols.
func NewBuilder(cols []Column, t Traits) *Builder {
	return &Builder{set: newColumnSet(cols, t&traitsAll), enc: encoder{keep: true}}
}

// Append adds a copy of row. It returns an [UnknownTypeError] when a value is
// none of the types that are kept exactly (nil, bool, int…int64, uint…uint64,
// float32, float64, string, []byte, time.Time; no type derived from one), or a
// time in a zone that cannot be encoded: a name of over 255 bytes, or the 1025th
// zone of a result. After an error the Builder is as it
// was before: the rows up to here can still be had.
func (b *Builder) Append(row []driver.Value) error {
	if b.done {
		panic("bug: Append after Result")
	}
	if len(row) != len(b.set.cols) {
		return fmt.Errorf("rowcodec: a row of %d values for %d columns", len(row), len(b.set.cols))
	}
	e := &b.enc
	stream, text, blob, zones, counts := len(e.stream), len(e.text), len(e.blob), len(e.zones.zones), e.counts
	for i, v := range row {
		if !e.value(v) {
			e.stream, e.text, e.blob, e.counts = e.stream[:stream], e.text[:text], e.blob[:blob], counts
			e.zones.truncate(zones)
			return &UnknownTypeError{Column: b.set.names[i], Type: fmt.Sprintf("%T", v)}
		}
	}
	if len(row) == 0 {
		e.stream = append(e.stream, tagNull)
	}
	b.rows++
	return nil
}

// Rows returns the number of rows so far.
func (b *Builder) Rows() int { return b.rows }

// Size returns about how many bytes of heap the result would take if it ended here.
func (b *Builder) Size() int64 {
	return b.enc.counts.heap(b.rows*len(b.set.cols)) + b.set.size
}

// Result returns the rows so far as a Result and ends the Builder's life.
func (b *Builder) Result() *Result {
	if b.done {
		panic("bug: Result called twice")
	}
	e := &b.enc
	res := &Result{set: b.set, rows: b.rows, counts: e.counts, size: b.Size()}
	known := e.zones.zones
	if known == nil {
		known = []*zone{}
	}
	if err := res.fill(e.stream, string(e.text), append([]byte(nil), e.blob...), known); err != nil {
		panic("bug: a builder's rows do not decode")
	}
	*b = Builder{done: true, set: b.set, rows: b.rows}
	b.enc.counts = res.counts
	return res
}
