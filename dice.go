package sqlherd

import (
	"math/rand/v2"
	"time"
)

// dice are the random draws of an engine: jitter, pauses, the early refresh. The zero value is fair. A simulation loads
// them, so that its seed decides them too.
type dice struct {
	float func() float64 // in [0, 1); safe for concurrent use
}

func (d *dice) Float64() float64 {
	if d.float != nil {
		return d.float()
	}
	return rand.Float64()
}

// halfToWhole draws a pause of half of d to the whole of it, so that those who pause do not march in step.
func (d *dice) halfToWhole(pause time.Duration) time.Duration {
	return pause/2 + time.Duration(d.Float64()*float64(pause/2+1))
}
