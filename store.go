package sqlherd

import (
	"context"
	"errors"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// The seam between the engine and the cache that a fleet shares. The engine
// decides what is fresh, who loads and who waits; a sharedStore only keeps
// entries, leases and stamps, and carries messages. It knows no policy, and no
// SQL. redisstore.go is the one that ships; the tests have one in memory with
// virtual time. Both pass the same contract suite (store_contract_test.go).
//
// Every method is safe for concurrent use, returns within the store's own time
// limit whatever ctx says, and reports trouble as an error: the engine then
// goes on without the store. No method retries.
type sharedStore interface {
	// get looks key up together with the current stamps of tags, in one round
	// trip. It returns nil and no error when there is nothing that may be
	// served: no entry, one that cannot be read, one of another key, or one
	// whose stamps are not the current ones (a missing stamp is never current).
	get(ctx context.Context, key string, tags []string) (*sharedEntry, error)

	// obtain asks for the right to load key for the next ttl. In the same round
	// trip it reads the stamp of every tag, and creates those that are missing.
	// When somebody else holds the lease, the answer's won is false and left is
	// the rest of the other's lease. The stamps live for at least life.
	obtain(ctx context.Context, key string, tags []string, ttl, life time.Duration) (lease, error)

	// renew prolongs a lease that is still ours. It answers false when the
	// lease is gone or another's.
	renew(ctx context.Context, l lease, ttl time.Duration) (bool, error)

	// put stores an entry loaded under l, gives the lease back, and tells the
	// waiters of other processes. It stores when the lease is still ours, or when it
	// is gone and nothing newer was stored meanwhile.
	put(ctx context.Context, l lease, e *sharedEntry) (putOutcome, error)

	// release gives back a lease whose load failed, and tells the waiters of
	// other processes so that one of them can try. Somebody else's lease is left alone.
	release(ctx context.Context, l lease) error

	// invalidate gives every tag a new stamp, and tells the other processes, in one round
	// trip. On an error some tags may have been invalidated and some not; an untoldError has those that may not. Fences stay.
	invalidate(ctx context.Context, tags []string) error

	// soften makes entries that were loaded under the present stamps of tags stale, as
	// get says of them, and tells the other processes, in one round trip. An invalidation
	// before or after it wins. Its errors are like those of invalidate; and a store
	// that is short of memory may invalidate instead.
	soften(ctx context.Context, tags []string) error

	// fence puts the fence of a writer around every tag, or prolongs it to life from now, and tells the other
	// processes, in one round trip. While a tag is fenced no entry that
	// names it is valid, and none that is loaded can become so. A fence that is not lifted ends after life, and
	// so does the stamp: missing. On an error some tags may be fenced, and some may yet become so.
	fence(ctx context.Context, tags []string, token fenceToken, life time.Duration) error

	// lift takes away token's fences, and nobody else's, in one round trip. With wrote it is invalidate as well.
	// Without, a tag that nobody else fences has its old stamp again, unless that was
	// invalidated meanwhile or a fence ran out, whose writer may have died after it had
	// committed. A fence that is not there any more is no error.
	lift(ctx context.Context, tags []string, token fenceToken, wrote bool) error

	// id is the name that messages use for key.
	id(key string) keyID

	// listen registers who is told of messages. It is called once, before any
	// other method. The store calls back from its own goroutine; a callback must not block.
	listen(storeEvents)

	// counters returns the store's own figures.
	counters() StoreStats

	// close ends the store's goroutines and waits for them. It does not close
	// the client, which belongs to the application.
	close() error
}

// keyID names a key in messages and in key names: its SHA-256, or its HMAC when
// Config.EntryKeys is set.
type keyID [32]byte

// A sharedEntry is a result with what the fleet has to know about it.
type sharedEntry struct {
	result *rowcodec.Result

	// Lives, counted from the moment the entry was stored; jitter is already in
	// them. soft ≤ hard; sie is added to hard.
	soft, hard, sie time.Duration

	// age is how long ago the entry was stored, by the store's own clock. Only
	// get sets it; put ignores it.
	age time.Duration

	// loadTime is how long the database took.
	loadTime time.Duration

	// size is the number of bytes the entry takes in the store. Only get sets it.
	size int

	// softened says that one of its tags was softened since it was loaded. Only get sets it.
	softened bool
}

// A lease is the answer of obtain.
type lease struct {
	key  string
	tags []string

	won   bool          // the caller may load
	left  time.Duration // not won: the rest of the holder's lease
	token string        // fresh for every obtain
	fence uint64        // the store's clock at obtain, in microseconds

	// stamps are the tags' stamps as they were before the load. put keeps them
	// in the entry.
	stamps []stamp
	// fenced says that a tag is fenced: what is loaded now could not be served to anybody.
	fenced bool

	// entryPresent says that there was an entry at the moment the lease was won:
	// somebody may have stored one since the caller's last get, so it looks again
	// before it loads.
	entryPresent bool
}

// A stamp is the random version of a tag. The zero stamp is the missing one and
// equals nothing, itself included.
//
// Its last four bytes count soft invalidations; the others are replaced by the rest.
type stamp [16]byte

func (s stamp) hard() [12]byte { return [12]byte(s[:]) }

// A fenceToken tells one writer's fences from all others. It is random, and of one transaction.
type fenceToken [16]byte

// An untoldError is the error of invalidate or soften when it was in vain for tags, and has succeeded for the others.
type untoldError struct {
	error
	tags []string
}

func (e untoldError) Unwrap() error { return e.error }

// untoldOf returns which of tags a call that ended with err was in vain for.
func untoldOf(tags []string, err error) []string {
	var some untoldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &some):
		return some.tags
	}
	return tags
}

// putOutcome says what became of a result that was offered to the store.
type putOutcome uint8

const (
	putStored   putOutcome = iota // kept
	putFenced                     // a newer value or another's lease is there
	putTooLarge                   // over the store's limit
)

// storeEvents is told what other processes do. A store's own messages do not
// come back to it.
type storeEvents interface {
	// storedElsewhere: another process has stored id.
	storedElsewhere(id keyID)
	// releasedElsewhere: a load of id ended without a result; its lease is free.
	releasedElsewhere(id keyID)
	// invalidatedElsewhere: the tags have new stamps.
	invalidatedElsewhere(tags []string)
	// softenedElsewhere: what depends on the tags is stale.
	softenedElsewhere(tags []string)
	// fencedElsewhere: a writer is about to commit, or may be.
	fencedElsewhere(tags []string)
	// subscribed is called with true when messages begin to arrive, and with
	// false as soon as the store knows that they may be lost.
	subscribed(bool)
	// doubted is called when calls have failed in a way in which they fail before a replica becomes the
	// primary, which may not know of the last writes. It is called once a second at most.
	doubted()
}

// String returns the outcome's name as events carry it.
func (o putOutcome) String() string {
	switch o {
	case putStored:
		return "stored"
	case putFenced:
		return "fenced"
	case putTooLarge:
		return "too_large"
	}
	return "invalid"
}
