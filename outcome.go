package sqlherd

// An Outcome says how one query was answered. Every query that passes through a
// wrapped driver ends in exactly one. The set is closed.
type Outcome uint8

const (
	// Passthrough: no policy applies; the query ran as on the bare driver.
	Passthrough Outcome = iota
	// Hit: answered from memory or Redis with rows that count as fresh.
	Hit
	// Stale: answered with rows past their soft TTL; a refresh is on its way.
	Stale
	// StaleError: the load failed because the database is unavailable, and rows
	// within their stale-if-error window were served instead (RFC 5861).
	StaleError
	// Miss: this caller loaded the rows from the database.
	Miss
	// Shared: waited for a load that another caller in this process had begun.
	Shared
	// Waited: another process loaded the rows.
	Waited
	// Bypassed: a policy applies, but the query ran uncached; see Reason.
	Bypassed

	outcomes // the number of outcomes
)

// String returns the outcome's name as metrics and logs carry it.
func (o Outcome) String() string {
	switch o {
	case Passthrough:
		return "passthrough"
	case Hit:
		return "hit"
	case Stale:
		return "stale"
	case StaleError:
		return "stale_error"
	case Miss:
		return "miss"
	case Shared:
		return "shared"
	case Waited:
		return "waited"
	case Bypassed:
		return "bypass"
	}
	return "invalid"
}

// A Reason says why a query with a policy was not cached. The set is closed;
// docs/reasons.md explains each and what to do about it.
type Reason uint8

const (
	// ReasonNone: the query was cached, or has no policy.
	ReasonNone Reason = iota
	// ReasonTx: inside a transaction, whether begun by BeginTx or by a statement.
	ReasonTx
	// ReasonSession: the connection's session state is unknown, or the statement
	// reads session state (a temporary table, a user variable).
	ReasonSession
	// ReasonWrite: not proven to be a read.
	ReasonWrite
	// ReasonLocking: takes row locks (FOR UPDATE and its kin).
	ReasonLocking
	// ReasonVolatile: calls a function whose result must not be reused.
	ReasonVolatile
	// ReasonCatalog: reads a system catalogue.
	ReasonCatalog
	// ReasonArgs: an argument has no exact canonical form, or is an output.
	ReasonArgs
	// ReasonMulti: several statements, or several result sets.
	ReasonMulti
	// ReasonSize: the result is over max-rows or max-bytes.
	ReasonSize
	// ReasonType: a column has a Go type that the row codec does not know.
	ReasonType
	// ReasonTable: reads a table that is not in Config.Tables.
	ReasonTable
	// ReasonHint: the hint is malformed.
	ReasonHint
	// ReasonText: the text could not be understood, or is too long.
	ReasonText
	// ReasonOff: the policy says not to cache (@nocache, ttl=0, Bypass).
	ReasonOff
	// ReasonDisabled: SetEnabled(false).
	ReasonDisabled
	// ReasonClosed: after Herd.Close.
	ReasonClosed
	// ReasonWaitTimeout: another process did not finish within Policy.Wait, and
	// this caller asked the database itself.
	ReasonWaitTimeout
	// ReasonFenced: a writer anywhere in the fleet is about to commit a write of
	// a table or tag that the rows depend on (Config.Strict). The rows were
	// loaded, and are kept in memory for a moment only.
	ReasonFenced

	reasons // the number of reasons
)

// String returns the reason's name as metrics and logs carry it.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return "none"
	case ReasonTx:
		return "tx"
	case ReasonSession:
		return "session"
	case ReasonWrite:
		return "write"
	case ReasonLocking:
		return "locking"
	case ReasonVolatile:
		return "volatile"
	case ReasonCatalog:
		return "catalog"
	case ReasonArgs:
		return "args"
	case ReasonMulti:
		return "multi"
	case ReasonSize:
		return "size"
	case ReasonType:
		return "type"
	case ReasonTable:
		return "table"
	case ReasonHint:
		return "hint"
	case ReasonText:
		return "text"
	case ReasonOff:
		return "off"
	case ReasonDisabled:
		return "disabled"
	case ReasonClosed:
		return "closed"
	case ReasonWaitTimeout:
		return "wait_timeout"
	case ReasonFenced:
		return "fenced"
	}
	return "invalid"
}
