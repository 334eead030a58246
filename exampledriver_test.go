package sqlherd_test

import (
	"context"
	"database/sql/driver"
)

// exampleDriver is a database of one product, for the examples of the documentation.
type exampleDriver struct{}

func (exampleDriver) Open(string) (driver.Conn, error)             { return exampleConn{}, nil }
func (exampleDriver) Connect(context.Context) (driver.Conn, error) { return exampleConn{}, nil }
func (d exampleDriver) Driver() driver.Driver                      { return d }

type exampleConn struct{}

func (exampleConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (exampleConn) Close() error                        { return nil }
func (exampleConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (exampleConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &benchRows{rows: [][]driver.Value{{"a product"}}, columns: []string{"name"}}, nil
}
