package sqlherd_test

// Every optional interface of database/sql/driver, present and absent, on the driver alone and beneath sqlherd. The
// drivers are those of shapes_test.go.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
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

// has says which of its optional interfaces v has.
func has(v any, interfaces map[string]func(any) bool) map[string]bool {
	out := map[string]bool{}
	for name, is := range interfaces {
		out[name] = is(v)
	}
	return out
}

func is[I any](v any) bool { _, ok := v.(I); return ok }

var (
	connInterfaces = map[string]func(any) bool{
		"Pinger": is[driver.Pinger], "SessionResetter": is[driver.SessionResetter], "Validator": is[driver.Validator],
		"NamedValueChecker": is[driver.NamedValueChecker], "QueryerContext": is[driver.QueryerContext], "ExecerContext": is[driver.ExecerContext],
		"Queryer": is[driver.Queryer], "Execer": is[driver.Execer], //nolint:staticcheck // what old drivers have
		"ConnPrepareContext": is[driver.ConnPrepareContext], "ConnBeginTx": is[driver.ConnBeginTx],
	}
	stmtInterfaces = map[string]func(any) bool{
		"StmtQueryContext": is[driver.StmtQueryContext], "StmtExecContext": is[driver.StmtExecContext],
		"NamedValueChecker": is[driver.NamedValueChecker], "ColumnConverter": is[driver.ColumnConverter], //nolint:staticcheck // as above
	}
	rowsInterfaces = map[string]func(any) bool{
		"RowsNextResultSet": is[driver.RowsNextResultSet], "RowsColumnTypeDatabaseTypeName": is[driver.RowsColumnTypeDatabaseTypeName],
		"RowsColumnTypeScanType": is[driver.RowsColumnTypeScanType], "RowsColumnTypeLength": is[driver.RowsColumnTypeLength],
		"RowsColumnTypeNullable": is[driver.RowsColumnTypeNullable], "RowsColumnTypePrecisionScale": is[driver.RowsColumnTypePrecisionScale],
	}
)

// The tests that run all shapes prove nothing of an interface that no shape has, or none lacks.
func TestTheShapesHaveAndLackEveryOptionalInterface(t *testing.T) {
	seen := map[string]map[bool]bool{}
	note := func(kind string, have map[string]bool) {
		for name, ok := range have {
			name = kind + " " + name
			if seen[name] == nil {
				seen[name] = map[bool]bool{}
			}
			seen[name][ok] = true
		}
	}
	subsets := map[string]bool{}
	for _, s := range allShapes() {
		db := &shapeDB{shape: s}
		c := s.conn(&shapeConn{db: db})
		note("conn", has(c, connInterfaces))
		note("stmt", has(s.stmt(&shapeStmt{c: &shapeConn{db: db}}), stmtInterfaces))
		rows := has((&shapeRows{db: db}).subset(int(shapeSubset(s.name))), rowsInterfaces)
		note("rows", rows)
		subsets[fmt.Sprint(rows)] = true
	}
	for name, have := range seen {
		if !have[true] || !have[false] {
			t.Errorf("%s is in every shape, or in none", name)
		}
	}
	if len(seen) != len(connInterfaces)+len(stmtInterfaces)+len(rowsInterfaces) || len(subsets) != 1<<len(rowsInterfaces) {
		t.Errorf("%d interfaces, %d subsets of those of rows", len(seen), len(subsets))
	}
}

// Every subset of what rows may have: rows without a hint, a miss, a hit, rows over the caps, two result sets, rows that fail,
// rows of a write.
func TestRowsOfEverySubsetOfInterfacesAreTheSameOnEveryWay(t *testing.T) {
	for n := range 64 {
		s := shapeOf("contexts", "contexts")
		s.name = fmt.Sprintf("subset #%d", n)
		bare := openPool(t, &shapeDB{shape: s})
		h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
		p := openPool(t, h.Connector(&shapeDB{shape: s}))
		for _, query := range []string{
			"SELECT types FROM t", "SELECT /* @cache ttl=1m */ types FROM t", "SELECT /* @cache ttl=1m */ types FROM t WHERE hit",
			"SELECT /* @cache ttl=1m max-rows=1 */ types, 'over' FROM t", "SELECT /* @cache ttl=1m */ sets FROM t", "SELECT sets FROM t",
			"SELECT /* @cache ttl=1m */ late FROM t", "SELECT /* @cache ttl=1m */ badclose FROM t", "SELECT /* @cache ttl=1m */ empty FROM t",
			"INSERT INTO t VALUES (types) RETURNING a", "INSERT INTO t VALUES (sets) RETURNING a",
		} {
			for range 2 {
				if got, want := tellRows(p.Query(query)), tellRows(bare.Query(query)); got != want {
					t.Errorf("%s: %s\n got %s\nwant %s", s.name, query, got, want)
				}
			}
		}
	}
}

func TestADriverWithoutValidatorIsValidAndOneThatHasItIsAsked(t *testing.T) {
	for name, want := range map[string]int{"old": 1, "validates only": 2} {
		for _, hint := range []string{"", "/* @nocache */"} {
			var asked int
			db := &shapeDB{shape: shapeOf(name, "old")}
			db.invalid = func() bool { asked++; return asked == 1 }
			h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			p := openPool(t, h.Connector(db))
			for range 2 {
				if got := tellRows(p.Query("SELECT " + hint + " 1 FROM t")); !strings.Contains(got, "err ok") {
					t.Error(got)
				}
			}
			if db.opens != want {
				t.Errorf("%s: %d connections, want %d", name, db.opens, want)
			}
			if (asked > 0) != (want == 2) {
				t.Errorf("%s: asked %d times", name, asked)
			}
		}
	}
}

func TestABeginTxThatTheDriverCannotHonourIsRefusedInDatabaseSQLsWords(t *testing.T) {
	for _, opts := range []*sql.TxOptions{{Isolation: sql.LevelSerializable}, {ReadOnly: true}, {Isolation: sql.LevelReadCommitted, ReadOnly: true}, {}, nil} {
		for _, conn := range []string{"old", "contexts"} {
			var told []string
			bothPools(t, shapeOf(conn, "old"), func(t *testing.T, db *shapeDB, p *sql.DB) {
				tx, err := p.BeginTx(t.Context(), opts)
				told = append(told, tell(err)+strings.Join(ran(db.taken()), ","))
				if err == nil {
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				}
			})
			if told[0] != told[1] {
				t.Errorf("%s, %+v: %s, bare %s", conn, opts, told[1], told[0])
			}
			if refused := strings.Contains(told[0], "does not support"); refused != (conn == "old" && opts != nil && *opts != sql.TxOptions{}) {
				t.Errorf("%s, %+v: %s", conn, opts, told[0])
			}
		}
	}
}

// A connector may have a Close, which belongs to the pool and is called once; a driver may have no connector.
func TestAConnectorsCloseIsCalledOnceAndMayBeMissing(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	closed := 0
	for range 2 {
		h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
		for _, c := range []driver.Connector{fakeConnector{db}, closingConnector{fakeConnector{db}, &closed}} {
			p := sql.OpenDB(h.Connector(c))
			if v, err := queryOne(t.Context(), p, hinted); v != "rows" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if closed != 2 {
		t.Errorf("closed %d times, want once for each pool", closed)
	}
}

type closingConnector struct {
	fakeConnector
	closed *int
}

var _ io.Closer = closingConnector{}

func (c closingConnector) Close() error { *c.closed++; return nil }
