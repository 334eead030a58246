package sqlherd_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// A shapeDB is a database whose driver has exactly the optional interfaces that a shape
// says, and which writes down every call that reaches it. It answers by words in the statement:
//
//	fail       an error          late   an error after two rows    types  every type
//	badclose   Close fails       sets   two result sets            empty  no row
//	noprepare  cannot be prepared       else: one row, of the arguments as they arrived
type shapeDB struct {
	shape   shape
	skip    bool        // direct calls with arguments answer ErrSkip
	invalid func() bool // what IsValid denies
	badOnce sync.Map    // statements that find the connection bad the first time

	mu    sync.Mutex
	log   []string
	opens int
	open  int
}

// A shape is a set of optional interfaces. inputs says that statements count their arguments.
type shape struct {
	name   string
	conn   func(*shapeConn) driver.Conn
	stmt   func(*shapeStmt) driver.Stmt
	inputs bool
}

var errShape = &driverError{Code: 11}

func (db *shapeDB) logf(format string, args ...any) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.log = append(db.log, fmt.Sprintf(format, args...))
}

// taken returns what was written down since the last call.
func (db *shapeDB) taken() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	log := db.log
	db.log = nil
	return log
}

// ran keeps the statements of a log: what the database has done.
func ran(log []string) []string {
	return slices.DeleteFunc(slices.Clone(log), func(l string) bool {
		return !strings.HasPrefix(l, "query") && !strings.HasPrefix(l, "exec") && !strings.HasPrefix(l, "begin") &&
			!strings.HasPrefix(l, "commit") && !strings.HasPrefix(l, "rollback")
	})
}

func (db *shapeDB) Connect(context.Context) (driver.Conn, error) {
	db.logf("open")
	db.mu.Lock()
	db.opens++
	db.open++
	db.mu.Unlock()
	return db.shape.conn(&shapeConn{db: db}), nil
}

func (db *shapeDB) Driver() driver.Driver { return shapeDriver{db} }

type shapeDriver struct{ db *shapeDB }

func (d shapeDriver) Open(string) (driver.Conn, error) { return d.db.Connect(context.Background()) }

type shapeConn struct{ db *shapeDB }

func (c *shapeConn) Prepare(query string) (driver.Stmt, error) {
	c.db.logf("prepare %s", query)
	if strings.Contains(query, "noprepare") {
		return nil, errShape
	}
	return c.db.shape.stmt(&shapeStmt{c: c, query: query}), nil
}

func (c *shapeConn) Close() error {
	c.db.logf("close")
	c.db.mu.Lock()
	c.db.open--
	c.db.mu.Unlock()
	return nil
}

func (c *shapeConn) Begin() (driver.Tx, error) {
	c.db.logf("begin")
	return shapeTx{c}, nil
}

type shapeTx struct{ c *shapeConn }

func (tx shapeTx) Commit() error   { tx.c.db.logf("commit"); return nil }
func (tx shapeTx) Rollback() error { tx.c.db.logf("rollback"); return nil }

// The optional interfaces of a connection, one type each.

type connQueryCtx struct{ c *shapeConn }

func (x connQueryCtx) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if x.c.db.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return x.c.db.query(ctx, query, args)
}

type connExecCtx struct{ c *shapeConn }

func (x connExecCtx) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if x.c.db.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return x.c.db.exec(ctx, query, args)
}

type connQuery struct{ c *shapeConn }

func (x connQuery) Query(query string, args []driver.Value) (driver.Rows, error) {
	return x.c.db.query(context.Background(), query, ordinals(args))
}

type connExec struct{ c *shapeConn }

func (x connExec) Exec(query string, args []driver.Value) (driver.Result, error) {
	return x.c.db.exec(context.Background(), query, ordinals(args))
}

type connPrepareCtx struct{ c *shapeConn }

func (x connPrepareCtx) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return x.c.Prepare(query)
}

type connBeginTx struct{ c *shapeConn }

func (x connBeginTx) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	x.c.db.logf("begin isolation=%d readonly=%v", opts.Isolation, opts.ReadOnly)
	return shapeTx{x.c}, nil
}

type connPing struct{ c *shapeConn }

func (x connPing) Ping(context.Context) error { x.c.db.logf("ping"); return errShape }

type connReset struct{ c *shapeConn }

func (x connReset) ResetSession(context.Context) error { x.c.db.logf("reset"); return nil }

type connValid struct{ c *shapeConn }

func (x connValid) IsValid() bool { return x.c.db.invalid == nil || !x.c.db.invalid() }

type connCheck struct{ c *shapeConn }

func (x connCheck) CheckNamedValue(nv *driver.NamedValue) error { return x.c.db.check("conn", nv) }

type shapeStmt struct {
	c     *shapeConn
	query string
}

func (s *shapeStmt) Close() error { s.c.db.logf("close statement %s", s.query); return nil }

func (s *shapeStmt) NumInput() int {
	if !s.c.db.shape.inputs {
		return -1
	}
	return strings.Count(s.query, "?")
}

func (s *shapeStmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.c.db.query(context.Background(), s.query, ordinals(args))
}

func (s *shapeStmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.c.db.exec(context.Background(), s.query, ordinals(args))
}

// The optional interfaces of a statement.

type stmtQueryCtx struct{ s *shapeStmt }

func (x stmtQueryCtx) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return x.s.c.db.query(ctx, x.s.query, args)
}

type stmtExecCtx struct{ s *shapeStmt }

func (x stmtExecCtx) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return x.s.c.db.exec(ctx, x.s.query, args)
}

type stmtCheck struct{ s *shapeStmt }

func (x stmtCheck) CheckNamedValue(nv *driver.NamedValue) error { return x.s.c.db.check("stmt", nv) }

type stmtConvert struct{ s *shapeStmt }

func (x stmtConvert) ColumnConverter(i int) driver.ValueConverter { return upper{} }

// upper converts strings to upper case, leaves float64 to the default, and refuses false.
type upper struct{}

func (upper) ConvertValue(v any) (driver.Value, error) {
	switch v := v.(type) {
	case string:
		return strings.ToUpper(v), nil
	case float64:
		return nil, driver.ErrSkip
	case bool:
		if !v {
			return nil, errShape
		}
	case uint64:
		return v, nil // which is no driver.Value: an error of database/sql's
	}
	return driver.DefaultParameterConverter.ConvertValue(v)
}

// removed is an argument that the checkers take out; refused one that they refuse.
type (
	removed struct{}
	refused struct{}
)

// valuer is a driver.Valuer whose Value has a value receiver.
type valuer struct{ v driver.Value }

func (v valuer) Value() (driver.Value, error) { return v.v, nil }

func (db *shapeDB) check(who string, nv *driver.NamedValue) error {
	db.logf("%s checks %T", who, nv.Value)
	switch v := nv.Value.(type) {
	case []string:
		nv.Value = who + ":" + strings.Join(v, "+")
		return nil
	case uint64:
		return nil
	case removed:
		return driver.ErrRemoveArgument
	case refused:
		return errShape
	}
	return driver.ErrSkip
}

func ordinals(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, v := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}

func argText(args []driver.NamedValue) string {
	var b strings.Builder
	for _, a := range args {
		fmt.Fprintf(&b, " [%d %s %T %v]", a.Ordinal, a.Name, a.Value, a.Value)
	}
	return b.String()
}

func (db *shapeDB) query(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	db.logf("query %s%s", query, argText(args))
	if strings.Contains(query, "badconn") {
		if _, again := db.badOnce.LoadOrStore(query, true); !again {
			return nil, driver.ErrBadConn
		}
	}
	r := &shapeRows{db: db, cols: []string{"a", "b", "a"}}
	switch {
	case strings.Contains(query, "fail"):
		return nil, errShape
	case strings.Contains(query, "empty"):
	case strings.Contains(query, "types"):
		zone := time.FixedZone("NPT", 5*3600+45*60)
		r.cols = []string{"i", "f", "b", "s", "y", "e", "n", "t", "", "i"}
		r.rows = [][]driver.Value{
			{int64(1) << 60, 0.1, true, "0012", []byte("ab"), []byte{}, nil, time.Date(2024, 7, 1, 12, 0, 0, 999999, zone), "x", int64(-1)},
			{uint64(1) << 63, float32(1.5), false, "", []byte(nil), []byte{0}, "text", time.Time{}, int32(3), nil},
		}
	case strings.Contains(query, "late"):
		r.rows = [][]driver.Value{{"1", int64(1), nil}, {"2", int64(2), nil}}
		r.end = errShape
	case strings.Contains(query, "badclose"):
		r.rows = [][]driver.Value{{"1", int64(1), nil}}
		r.closing = errShape
	case strings.Contains(query, "sets"):
		r.rows = [][]driver.Value{{"1", int64(1), nil}}
		r.next = &shapeRows{db: db, cols: []string{"c"}, rows: [][]driver.Value{{"second"}}}
		return r.pick(r), nil
	default:
		r.cols = make([]string, len(args)+1)
		r.cols[len(args)] = "last"
		row := make([]driver.Value, len(args)+1)
		for i, a := range args {
			r.cols[i] = fmt.Sprint("p", a.Ordinal)
			row[i] = a.Value
			if !driver.IsValue(a.Value) {
				row[i] = fmt.Sprint(a.Value)
			}
		}
		row[len(args)] = "end"
		r.rows = [][]driver.Value{row}
	}
	return r.pick(r), nil
}

func (db *shapeDB) exec(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	db.logf("exec %s%s", query, argText(args))
	switch {
	case strings.Contains(query, "fail"):
		return nil, errShape
	case strings.Contains(query, "ddl"):
		return driver.ResultNoRows, nil
	}
	return richResult{id: 41, rows: 2}, nil
}

// richResult tells more than driver.Result, as go-sql-driver/mysql's does.
type richResult struct{ id, rows int64 }

func (r richResult) LastInsertId() (int64, error)   { return r.id, nil }
func (r richResult) RowsAffected() (int64, error)   { return r.rows, nil }
func (r richResult) AllRowsAffected() []int64       { return []int64{1, 2} }
func (r richResult) AllLastInsertIds() []int64      { return []int64{40, 41} }
func (db *shapeDB) String() string                  { return db.shape.name }
func (c *shapeConn) Copy(rows ...string) (int, any) { return len(rows), c.db }

type shapeRows struct {
	db      *shapeDB
	cols    []string
	rows    [][]driver.Value
	i       int
	over    bool
	end     error
	closing error
	next    *shapeRows
}

func (r *shapeRows) Columns() []string { return r.cols }
func (r *shapeRows) Close() error      { r.db.logf("close rows"); return r.closing }

func (r *shapeRows) Next(dest []driver.Value) error {
	if r.i >= len(r.rows) {
		r.over = true
		if r.end != nil {
			return r.end
		}
		return io.EOF
	}
	copy(dest, r.rows[r.i])
	r.i++
	return nil
}

type nextSet struct{ r *shapeRows }

func (x nextSet) HasNextResultSet() bool { return x.r.next != nil }

func (x nextSet) NextResultSet() error {
	if x.r.next == nil {
		return io.EOF
	}
	*x.r = *x.r.next
	return nil
}

// The optional getters. What a column is called decides what they say.
type (
	typeName  struct{ r *shapeRows }
	scanKind  struct{ r *shapeRows }
	lengths   struct{ r *shapeRows }
	nullables struct{ r *shapeRows }
	precision struct{ r *shapeRows }
)

func (x typeName) ColumnTypeDatabaseTypeName(i int) string {
	if x.r.over {
		return "forgotten" // as some drivers do at the end of the rows
	}
	return "T" + strings.ToUpper(x.r.cols[i])
}

func (x scanKind) ColumnTypeScanType(i int) reflect.Type {
	if i == 1 {
		return nil
	}
	return reflect.TypeFor[int32]()
}

func (x lengths) ColumnTypeLength(i int) (int64, bool)    { return int64(10 + i), i%2 == 0 }
func (x nullables) ColumnTypeNullable(i int) (bool, bool) { return i%2 == 0, i != 3 }
func (x precision) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	return int64(i), int64(-i), i == 2
}

// pick returns rows with one of the 64 subsets of optional interfaces.
func (*shapeRows) pick(r *shapeRows) driver.Rows {
	return r.subset(int(shapeSubset(r.db.shape.name)))
}

func shapeSubset(name string) uint8 {
	var n uint8
	if i := strings.LastIndexByte(name, '#'); i >= 0 {
		if _, err := fmt.Sscan(name[i+1:], &n); err != nil {
			panic(err)
		}
	}
	return n
}

// plainRows hides every optional interface of shapeRows.
type plainRows struct{ r *shapeRows }

func (p plainRows) Columns() []string              { return p.r.Columns() }
func (p plainRows) Close() error                   { return p.r.Close() }
func (p plainRows) Next(dest []driver.Value) error { return p.r.Next(dest) }

// connShapes and stmtShapes are what drivers look like: from before Go 1.8, after, and odd ones.
var connShapes = map[string]func(*shapeConn) driver.Conn{
	"nothing": func(c *shapeConn) driver.Conn { return c },
	"old": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQuery
			connExec
		}{c, connQuery{c}, connExec{c}}
	},
	"old with a checker": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQuery
			connExec
			connCheck
		}{c, connQuery{c}, connExec{c}, connCheck{c}}
	},
	"contexts": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQueryCtx
			connExecCtx
			connPrepareCtx
			connBeginTx
			connReset
			connValid
		}{c, connQueryCtx{c}, connExecCtx{c}, connPrepareCtx{c}, connBeginTx{c}, connReset{c}, connValid{c}}
	},
	"everything": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQueryCtx
			connExecCtx
			connPrepareCtx
			connBeginTx
			connPing
			connReset
			connValid
			connCheck
		}{c, connQueryCtx{c}, connExecCtx{c}, connPrepareCtx{c}, connBeginTx{c}, connPing{c}, connReset{c}, connValid{c}, connCheck{c}}
	},
	"both ages": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQueryCtx
			connExecCtx
			connQuery
			connExec
		}{c, connQueryCtx{c}, connExecCtx{c}, connQuery{c}, connExec{c}}
	},
	"only a checker": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connCheck
		}{c, connCheck{c}}
	},
	"queries but does not exec": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connQueryCtx
		}{c, connQueryCtx{c}}
	},
	"execs but does not query": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connExecCtx
		}{c, connExecCtx{c}}
	},
	"pings": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connPing
		}{c, connPing{c}}
	},
	"resets only": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connReset
		}{c, connReset{c}}
	},
	"validates only": func(c *shapeConn) driver.Conn {
		return struct {
			*shapeConn
			connValid
		}{c, connValid{c}}
	},
}

var stmtShapes = map[string]func(*shapeStmt) driver.Stmt{
	"old": func(s *shapeStmt) driver.Stmt { return s },
	"contexts": func(s *shapeStmt) driver.Stmt {
		return struct {
			*shapeStmt
			stmtQueryCtx
			stmtExecCtx
		}{s, stmtQueryCtx{s}, stmtExecCtx{s}}
	},
	"query context": func(s *shapeStmt) driver.Stmt {
		return struct {
			*shapeStmt
			stmtQueryCtx
		}{s, stmtQueryCtx{s}}
	},
	"checker": func(s *shapeStmt) driver.Stmt {
		return struct {
			*shapeStmt
			stmtExecCtx
			stmtCheck
		}{s, stmtExecCtx{s}, stmtCheck{s}}
	},
	"converter": func(s *shapeStmt) driver.Stmt {
		return struct {
			*shapeStmt
			stmtConvert
		}{s, stmtConvert{s}}
	},
	"everything": func(s *shapeStmt) driver.Stmt {
		return struct {
			*shapeStmt
			stmtQueryCtx
			stmtExecCtx
			stmtCheck
			stmtConvert
		}{s, stmtQueryCtx{s}, stmtExecCtx{s}, stmtCheck{s}, stmtConvert{s}}
	},
}

// allShapes is every connection with every statement, counting its arguments and not; the 64
// subsets of what rows may have are spread over them.
func allShapes() []shape {
	var out []shape
	n := 0
	for cname, conn := range sorted(connShapes) {
		for sname, stmt := range sorted(stmtShapes) {
			for _, inputs := range []bool{true, false} {
				if !inputs && sname != "converter" && sname != "old" {
					continue // the count matters to these
				}
				name := fmt.Sprintf("conn %s, stmt %s, inputs %v #%d", cname, sname, inputs, n%64)
				out = append(out, shape{name: name, conn: conn, stmt: stmt, inputs: inputs})
				n++
			}
		}
	}
	return out
}

func sorted[V any](m map[string]V) func(func(string, V) bool) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return func(yield func(string, V) bool) {
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
