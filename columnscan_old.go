//go:build !go1.27

package sqlherd

import (
	"context"
	"database/sql/driver"
)

// Before Go 1.27 database/sql alone fills Scan's destinations: see columnscan.go.

type (
	live     struct{}
	scanning struct{}
)

func (*queryState) live(context.Context, *stmt, string, []driver.NamedValue) live { return live{} }

func (*live) begun() bool  { return false }
func (*live) close() error { return nil }

func (scanning) learn(driver.Rows) {}

func scansColumns(driver.Rows) bool { return false }

func newWriteRows(rows driver.Rows, done func(error)) driver.Rows {
	return &writeRows{Rows: rows, done: done}
}
