package sqlherd

import "time"

// A Policy says how one family of queries is cached.
type Policy struct {
	TTL, SWR, SIE, Empty time.Duration
	Jitter               float64
	Lease, Wait          time.Duration
	OnWaitTimeout        WaitAction
	MaxRows              int
	MaxBytes             int64
	Tags, Tables         []string
	Name                 string
	Scope                string
	EarlyBeta            float64
	AllowVolatile        bool
}

// WaitAction says what a caller does that has waited for another process for Policy.Wait.
type WaitAction uint8

const (
	// WaitLoad asks the database, within the loader pool's bound.
	WaitLoad WaitAction = iota
	// WaitError returns ErrWaitTimeout.
	WaitError
)

// Dialect names the SQL grammar that a database speaks.
type Dialect uint8

const (
	// DialectAuto takes the dialect from the base driver's package.
	DialectAuto Dialect = iota
	// DialectUnknown is the cautious union of all: what any of them reads as a write, a quote or a comment is one.
	DialectUnknown
	PostgreSQL
	MySQL
	SQLite
)
