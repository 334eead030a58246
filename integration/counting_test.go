package integration_test

import (
	sqldriver "database/sql/driver"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"
	"modernc.org/sqlite"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// countingDriver returns d with a driver that counts the connections it opens. A driver's
// package tells sqlherd the dialect, so each of these stands in for the type that it embeds.
func countingDriver(d dbtest.Database) (dbtest.Database, *atomic.Int64) {
	n := new(atomic.Int64)
	switch base := d.Driver.(type) {
	case *sqlite3.SQLiteDriver:
		counted := *base
		hook := base.ConnectHook
		counted.ConnectHook = func(c *sqlite3.SQLiteConn) error {
			n.Add(1)
			return hook(c)
		}
		d.Driver = &counted
	case *sqlite.Driver:
		counted := &sqlite.Driver{}
		counted.MustRegisterScalarFunction("slow_v", 3, func(_ *sqlite.FunctionContext, args []sqldriver.Value) (sqldriver.Value, error) {
			return slowV(args[0].(int64), args[1].(string), args[2])
		})
		counted.RegisterConnectionHook(func(sqlite.ExecQuerierContext, string) error {
			n.Add(1)
			return nil
		})
		d.Driver = counted
	}
	return d, n
}
