package sqlherd

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"syscall"
)

var (
	// ErrClosed is returned to callers who wait for a load when their pool, or the Herd,
	// is closed. Queries that begin after Herd.Close run uncached on the bare driver.
	ErrClosed = errors.New("sqlherd: closed while the query waited for its rows")

	// ErrWaitTimeout is returned when another process did not finish loading
	// within Policy.Wait and Policy.OnWaitTimeout is WaitError.
	ErrWaitTimeout = errors.New("sqlherd: another process did not finish loading in time")

	// ErrLoadTimeout is the error of a load that took longer than
	// Config.LoadTimeout. It wraps context.DeadlineExceeded.
	ErrLoadTimeout error = loadTimeout{}

	// errPanicked is how a statement ended whose driver has panicked: it may or may not have run. The panic
	// goes on to the caller, who may recover it.
	errPanicked = errors.New("sqlherd: the driver panicked")

	// errGone is the end of a load whose pool was closed.
	errGone = errors.New("sqlherd: the pool of the load was closed")
)

type loadTimeout struct{}

func (loadTimeout) Error() string   { return "sqlherd: the load took longer than Config.LoadTimeout" }
func (loadTimeout) Unwrap() error   { return context.DeadlineExceeded }
func (loadTimeout) Timeout() bool   { return true }
func (loadTimeout) Temporary() bool { return true }

// An errorClass sorts the errors of a database by what they say of it.
type errorClass uint8

const (
	// classUnknown: it may or may not have run.
	classUnknown errorClass = iota
	// classUnavailable: the database cannot be reached, is too slow or overloaded.
	// Old rows may be served instead, and the key backs off.
	classUnavailable
	// classDefinite: the server has looked at the statement and refused it
	// (syntax, permission, constraint, …). It did not run.
	classDefinite
)

// classify sorts an error without knowing the drivers: by the standard library's
// errors, by SQLSTATE where the error tells it (lib/pq, pgx), and by the error
// number of MySQL and the result code of SQLite, found by the field's name.
func classify(err error) errorClass {
	var netErr net.Error
	switch {
	case err == nil:
		return classUnknown
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return classUnavailable
	case errors.Is(err, context.Canceled):
		return classUnknown
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return classifySQLState(state.SQLState())
	}
	if errors.As(err, &netErr) {
		return classUnavailable
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := errorNumber(e, "MySQLError", "Number"); ok {
			return classifyMySQL(n)
		}
		if code, ok := e.(interface{ Code() int }); ok {
			return classifySQLite(code.Code())
		}
		if n, ok := errorNumber(e, "Error", "Code"); ok {
			return classifySQLite(int(n))
		}
	}
	if strings.Contains(err.Error(), "invalid connection") {
		return classUnavailable // go-sql-driver/mysql has an error of its own for it
	}
	return classUnknown
}

// refusedWhole says whether err is the server's certain no: nothing of the
// statement was done. A table of MySQL without transactions keeps the rows that came before
// the one that was refused, as INSERT OR FAIL of SQLite does; so of these
// servers only errors from before the statement runs are certain.
func refusedWhole(err error) bool {
	if err == nil || classify(err) != classDefinite {
		return false
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := errorNumber(e, "MySQLError", "Number"); ok {
			switch n {
			case 1044, 1045, 1046, 1049, // no right, no database
				1054, 1064, 1136, 1142, 1143, 1146, // no column, syntax, count, no right, no table
				1290, 1792: // a read-only server, a read-only transaction
				return true
			}
			return false
		}
		if code, ok := e.(interface{ Code() int }); ok {
			return code.Code()&0xff != sqliteConstraint
		}
		if n, ok := errorNumber(e, "Error", "Code"); ok {
			return n&0xff != sqliteConstraint
		}
	}
	return true
}

const sqliteConstraint = 19

// classifySQLState knows the classes of SQLSTATE that PostgreSQL documents.
func classifySQLState(state string) errorClass {
	if len(state) < 2 {
		return classUnknown
	}
	switch state[:2] {
	case "08", // connection exception
		"53", // insufficient resources
		"58": // system error
		return classUnavailable
	}
	switch state {
	case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, starting up, idle
		"57014", // canceled, by statement_timeout as far as a load can tell
		"25006": // read-only: a primary that was demoted
		return classUnavailable
	}
	return classDefinite
}

func classifyMySQL(n uint64) errorClass {
	switch n {
	case 1040, 1203, 1226, // too many connections
		1053, 1077, 1079, 1927, // shutdown, killed
		1129, 1130, // host blocked
		1205,       // lock wait timeout
		1317, 3024, // interrupted, max_execution_time
		1969,                   // MariaDB's max_statement_time
		2002, 2003, 2006, 2013: // gone away
		return classUnavailable
	}
	return classDefinite
}

func classifySQLite(code int) errorClass {
	switch code & 0xff {
	case 5, 6, 10, 13, 14: // busy, locked, I/O error, full, cannot open
		return classUnavailable
	}
	return classDefinite
}

// errorNumber reads an integer field of an error struct whose type has the name.
func errorNumber(err error, typeName, field string) (uint64, bool) {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type().Name() != typeName {
		return 0, false
	}
	switch f := v.FieldByName(field); f.Kind() {
	case reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		return f.Uint(), true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return uint64(f.Int()), true
	}
	return 0, false
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
