//go:build cgo

package integration_test

import "github.com/mattn/go-sqlite3"

// mattn/go-sqlite3 has its error type only where it has SQLite.

func addAsCgo(v *sight, where string, err error) { addAs[sqlite3.Error](v, where, err) }

func (v *sight) assertedCgo(where string, err error) bool {
	e, ok := err.(sqlite3.Error) //nolint:errorlint // that is the point
	if ok {
		v.add(where, "%d %d %d", e.Code, e.ExtendedCode, e.SystemErrno)
	}
	return ok
}
