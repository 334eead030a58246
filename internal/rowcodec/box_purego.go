//go:build sqlherd_purego

package rowcodec

import (
	"database/sql/driver"
	"time"
)

// The boxes of box.go without package unsafe: one allocation per value.

type boxes struct{}

// wordSize is the heap that a word takes: often half of it, as small objects
// share a block, but that block lives as long as its last object.
const wordSize = 16

func (b *boxes) make(*counts) {}

type word interface {
	int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

func box[T word](_ *boxes, v *driver.Value, x T) { *v = x }

func (b *boxes) string(v *driver.Value, x string)  { *v = x }
func (b *boxes) bytes(v *driver.Value, x []byte)   { *v = x }
func (b *boxes) time(v *driver.Value, x time.Time) { *v = x }
