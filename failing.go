package sqlherd

import (
	"time"

	"github.com/maypok86/otter/v2"
)

// A key that fails because the database is unavailable is left alone for a while: from the
// second failure in a row, 50 ms doubling to 5 s, half of it at random. A failing database
// is not hammered, and a slow one not asked in a loop.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 5 * time.Second
)

// keysRemembered bounds how many failing, and how many unfit keys are remembered.
const keysRemembered = 8192

type failingKey struct {
	count int
	until int64 // of the engine's clock
	err   error
}

// failingKeys remembers the keys whose last load found the database unavailable.
type failingKeys struct {
	cache *otter.Cache[string, *failingKey]
	dice  *dice
}

func newFailingKeys(draws *dice) (*failingKeys, error) {
	c, err := otter.New(&otter.Options[string, *failingKey]{MaximumSize: keysRemembered})
	return &failingKeys{cache: c, dice: draws}, err
}

// get returns the failure of a key that is backing off at now, or nil.
func (f *failingKeys) get(key string, now int64) *failingKey {
	if k, ok := f.cache.GetIfPresent(key); ok && now < k.until {
		return k
	}
	return nil
}

func (f *failingKeys) add(key string, err error, now int64) {
	f.cache.Compute(key, func(old *failingKey, found bool) (*failingKey, otter.ComputeOp) {
		k := &failingKey{count: 1, err: withoutRows(err)}
		if found {
			k.count = old.count + 1
		}
		if k.count > 1 {
			d := min(backoffMin<<min(k.count-2, 16), backoffMax)
			k.until = now + int64(f.dice.halfToWhole(d))
		}
		return k, otter.WriteOp
	})
}

func (f *failingKeys) clear(key string) { f.cache.Invalidate(key) }

func (f *failingKeys) close() { f.cache.StopAllGoroutines() }

// unfitFor is how long a key is remembered whose result could not be kept. Until
// then its callers run their own queries at once, rather than queue behind a load that
// can never be shared.
const unfitFor = 30 * time.Second

type unfitKey struct {
	reason   Reason
	until    int64
	maxRows  int // the caps that it was over, when they are the reason
	maxBytes int64
}

// unfitKeys remembers them.
type unfitKeys struct {
	cache *otter.Cache[string, unfitKey]
}

func newUnfitKeys() (*unfitKeys, error) {
	c, err := otter.New(&otter.Options[string, unfitKey]{MaximumSize: keysRemembered})
	return &unfitKeys{cache: c}, err
}

// get returns why key cannot be kept under pol, or ReasonNone. Caps are no part of a key: what is over one caller's may be
// within another's.
func (u *unfitKeys) get(key string, pol *Policy, now int64) Reason {
	k, ok := u.cache.GetIfPresent(key)
	switch {
	case !ok || now >= k.until:
		return ReasonNone
	case k.reason == ReasonSize && (pol.MaxRows > k.maxRows || pol.MaxBytes > k.maxBytes):
		return ReasonNone
	}
	return k.reason
}

func (u *unfitKeys) add(key string, reason Reason, pol *Policy, now int64) {
	u.cache.Set(key, unfitKey{reason: reason, until: now + int64(unfitFor), maxRows: pol.MaxRows, maxBytes: pol.MaxBytes})
}

func (u *unfitKeys) close() { u.cache.StopAllGoroutines() }
