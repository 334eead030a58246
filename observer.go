package sqlherd

import "time"

// An Observer is told of what happens, for metrics and traces. Its methods are called on
// the path of the query, from many goroutines at once: they must be quick, must not
// block, and must not use the Herd. Embed ObserverBase, so that events added later do not
// break the build.
//
// Events hold names, digests and errors of the database; no argument, and no row.
type Observer interface {
	Query(QueryEvent)
	Load(LoadEvent)
	Refresh(RefreshEvent)
	Lease(LeaseEvent)
	Store(StoreEvent)
	Invalidation(InvalidationEvent)
	Fence(FenceEvent)
	RedisCall(RedisEvent)
}

// ObserverBase ignores every event.
type ObserverBase struct{}

var _ Observer = ObserverBase{}

func (ObserverBase) Query(QueryEvent)               {}
func (ObserverBase) Load(LoadEvent)                 {}
func (ObserverBase) Refresh(RefreshEvent)           {}
func (ObserverBase) Lease(LeaseEvent)               {}
func (ObserverBase) Store(StoreEvent)               {}
func (ObserverBase) Invalidation(InvalidationEvent) {}
func (ObserverBase) Fence(FenceEvent)               {}
func (ObserverBase) RedisCall(RedisEvent)           {}

// QueryEvent is the end of one query that has a policy, before its rows are read.
// Statements without one are counted in Stats only.
type QueryEvent struct {
	Name    string // label of the query family
	Outcome Outcome
	Reason  Reason
	Age     time.Duration // of the rows
	Took    time.Duration // until the rows were there
	Err     error         // when they could not be had; Outcome is Miss then
}

// LoadEvent is the end of a load, in the foreground or of a refresh.
type LoadEvent struct {
	Name string
	Took time.Duration // including the wait for a connection of the loader pool
	Err  error
}

// RefreshEvent is the end of a refresh.
type RefreshEvent struct {
	Name    string
	Outcome RefreshOutcome
	Took    time.Duration
	Err     error
}

// RefreshOutcome says what became of a refresh. The set is closed.
type RefreshOutcome uint8

const (
	// RefreshDone: new rows were loaded and stored.
	RefreshDone RefreshOutcome = iota
	// RefreshElsewhere: another process refreshes, or has just done so.
	RefreshElsewhere
	// RefreshFailed: the load failed; a later hit tries again.
	RefreshFailed
	// RefreshUnfit: the new result cannot be cached.
	RefreshUnfit
	// RefreshDropped: too many refreshes were under way; a later hit tries again.
	RefreshDropped

	refreshOutcomes
)

// String returns the outcome's name as metrics and logs carry it.
func (o RefreshOutcome) String() string {
	switch o {
	case RefreshDone:
		return "done"
	case RefreshElsewhere:
		return "elsewhere"
	case RefreshFailed:
		return "failed"
	case RefreshUnfit:
		return "unfit"
	case RefreshDropped:
		return "dropped"
	}
	return "invalid"
}

// LeaseEvent is the end of the way to a lease: it was won, or another process had the rows.
type LeaseEvent struct {
	Name   string
	Won    bool
	Waited time.Duration
}

// StoreEvent is a result offered to Redis. Unless Err is set, Outcome is "stored", "fenced" (not stored: another's
// lease or a newer result is there; nothing to do with Config.Strict) or "too_large".
type StoreEvent struct {
	Name    string
	Outcome string
	Err     error
}

// InvalidationEvent is tags that were invalidated by this process. Err says that Redis does not know yet;
// when it does there is no other event, but Stats.InvalidationsPending goes down to 0, and the log says so.
// A tag begins with its kind: "t:" for a table, "g:" for a tag; "*" is everything.
type InvalidationEvent struct {
	Tags []string
	Soft bool // the results are stale rather than dead
	Err  error
}

// FenceEvent is tags that were fenced by this process before a write was committed, or whose fence was
// prolonged (Config.Strict). Err says that Redis could not be told, and that the write goes on.
type FenceEvent struct {
	Tags []string
	Err  error
}

// RedisEvent is one call of Redis. What is not sent because the circuit breaker is open is none: Stats.Redis.Refused counts it. Op is one of "get",
// "obtain", "renew", "put" and "release" (an entry and its lease), "invalidate", "soften", "fence" and "lift" (tags), and
// "probe", which asks whether Redis is back.
type RedisEvent struct {
	Op   string
	Took time.Duration
	Err  error // also when the caller left before the answer came
}
