// Package rowcodec holds query results: built from a driver's rows, kept in
// memory, and turned into bytes and back without loss.
//
// A [Builder] takes the rows of a driver one at a time and copies them, so that
// the driver may reuse its buffers. Its [Result] never changes again and is read
// by any number of goroutines. [Append] encodes a Result, [Decode] makes an
// equal one from the bytes.
//
// Exact is the rule: a value comes back with its Go type, an int64 not as a
// float64, a []byte not as a string, a NaN with its payload, an empty []byte
// neither nil nor NULL, a time.Time with its location. What cannot be kept so is
// refused with an [UnknownTypeError] rather than approximated; the caller then
// does not cache.
//
// Few objects is the aim: the values of a result live in a handful of
// allocations, however many rows there are. A string or []byte that outlives
// its result therefore keeps the result's other strings, or other bytes, alive.
package rowcodec

import (
	"errors"
	"fmt"
)

// ErrCorrupt is returned by [Decode] for bytes that are not a result in the
// present version of the format. The caller treats them as a miss.
var ErrCorrupt = errors.New("rowcodec: corrupt or foreign bytes")

// ErrTooLarge is returned by [DecodeLimit] for a result whose Size would be
// over the limit. Nothing of that size was allocated.
var ErrTooLarge = errors.New("rowcodec: result over the size limit")

// An UnknownTypeError says that a result has a Go type that could not be
// reproduced exactly. [Builder.Append] returns it for a value, [Append] for a
// scan type without an unambiguous name, and [Decode] for a scan type that
// this process has not met yet.
type UnknownTypeError struct {
	Column string // name of the column
	Type   string // the type, as text
}

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("rowcodec: column %q: type %s cannot be kept exactly", e.Column, e.Type)
}
