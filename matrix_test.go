package sqlherd_test

// Every optional interface of database/sql/driver, present and absent, on the driver alone and beneath sqlherd. The
// drivers are those of shapes_test.go.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/sqlherd/sqlherd"
)

// A columnScanner has the methods by which a driver fills Scan's destinations itself (driver.RowsColumnScanner of Go
// 1.27, with any for its ScanContext): an interface that no wrapper of before knows.
type columnScanner interface {
	driver.Rows
	NextRow() error
	ScanColumn(scanCtx any, index int, dest any) error
}

type futureRows struct{ driver.Rows }

func (futureRows) NextRow() error                 { return nil }
func (futureRows) ScanColumn(any, int, any) error { return nil }

// futureConn is a connection whose rows have an interface from the future.
type futureConn struct{ *fakeConn }

func (c futureConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fakeConn.QueryContext(ctx, query, args)
	return futureRows{rows}, err
}

func (c futureConn) Prepare(query string) (driver.Stmt, error) { return futureStmt{c, query}, nil }

func (c futureConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return richResult{id: 41, rows: 2}, nil
}

type futureStmt struct {
	c     futureConn
	query string
}

func (s futureStmt) Close() error                               { return nil }
func (s futureStmt) NumInput() int                              { return -1 }
func (s futureStmt) Query([]driver.Value) (driver.Rows, error)  { panic("old call") }
func (s futureStmt) Exec([]driver.Value) (driver.Result, error) { panic("old call") }
func (s futureStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

func (s futureStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

type futureConnector struct{ fakeConnector }

func (c futureConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.db.connect()
	if err != nil {
		return nil, err
	}
	return futureConn{conn.(*fakeConn)}, nil
}

func TestRowsAndResultsReachTheCallerAsTheDriverMadeThem(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	p := openPool(t, h.Connector(futureConnector{fakeConnector{db}}))
	c := connect(t, p)
	ctx := t.Context()
	rows := func(what string, r driver.Rows, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, ok := r.(columnScanner); !ok {
			t.Errorf("%s: the rows are a %T, without the driver's own methods", what, r)
		}
		r.Close()
	}
	result := func(what string, r driver.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, ok := r.(richResult); !ok {
			t.Errorf("%s: the result is a %T", what, r)
		}
	}
	all := func(in string, bypassed bool) {
		t.Helper()
		err := c.Raw(func(dc any) error {
			queries := []string{plain, "SELECT /* @cache ttl=1m */ nextval('s')", "SELECT /* @nocache */ v FROM t"}
			if bypassed {
				queries = append(queries, hinted)
			}
			for _, q := range queries {
				r, err := dc.(driver.QueryerContext).QueryContext(ctx, q, nil)
				rows(in+q, r, err)
				st, err := dc.(driver.ConnPrepareContext).PrepareContext(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				r, err = st.(driver.StmtQueryContext).QueryContext(ctx, nil)
				rows(in+"prepared "+q, r, err)
				st.Close()
			}
			const write = "UPDATE t SET a = 1"
			res, err := dc.(driver.ExecerContext).ExecContext(ctx, write, nil)
			result(in+write, res, err)
			st, err := dc.(driver.Conn).Prepare(write)
			if err != nil {
				t.Fatal(err)
			}
			res, err = st.(driver.StmtExecContext).ExecContext(ctx, nil)
			result(in+"prepared "+write, res, err)
			return st.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all("", false)
	tx, err := c.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	all("in a transaction, ", true)
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}
