//go:build go1.27

package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A scanDB is a database whose driver fills Scan's destinations itself when own is set: text such as "1,2" goes into a
// []int, which database/sql cannot do. Each query is one version of rows, so that rows of
// two versions can be told apart.
type scanDB struct {
	own     bool
	version atomic.Int64
	rows    int
	open    atomic.Int64 // rows that are not closed
}

func (db *scanDB) Connect(context.Context) (driver.Conn, error) { return &scanConn{db}, nil }
func (db *scanDB) Driver() driver.Driver                        { return db }
func (db *scanDB) Open(string) (driver.Conn, error)             { return &scanConn{db}, nil }

type scanConn struct{ db *scanDB }

func (c *scanConn) Close() error              { return nil }
func (c *scanConn) Begin() (driver.Tx, error) { return c, nil }
func (c *scanConn) Commit() error             { return nil }
func (c *scanConn) Rollback() error           { return nil }

func (c *scanConn) Prepare(string) (driver.Stmt, error) { return scanStmt{c}, nil }

func (c *scanConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.db.open.Add(1)
	r := &scanRows{db: c.db, left: c.db.rows, version: c.db.version.Add(1)}
	if c.db.own {
		return &ownScanRows{r}, nil
	}
	return r, nil
}

type scanStmt struct{ c *scanConn }

func (s scanStmt) Close() error                               { return nil }
func (s scanStmt) NumInput() int                              { return -1 }
func (s scanStmt) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(0), nil }
func (s scanStmt) Query([]driver.Value) (driver.Rows, error) {
	return s.c.QueryContext(context.Background(), "", nil)
}

type scanRows struct {
	db      *scanDB
	left    int
	version int64
	cur     []driver.Value
}

func (r *scanRows) Columns() []string { return []string{"version", "list"} }
func (r *scanRows) Close() error      { r.db.open.Add(-1); return nil }
func (r *scanRows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	r.cur = []driver.Value{r.version, fmt.Sprintf("%d,%d", r.version, r.left)}
	copy(dest, r.cur)
	return nil
}

type ownScanRows struct{ *scanRows }

func (r *ownScanRows) NextRow() error { return r.Next(make([]driver.Value, 2)) }

func (r *ownScanRows) ScanColumn(sc driver.ScanContext, i int, dest any) error {
	if list, ok := dest.(*[]int); ok {
		*list = nil
		for _, f := range strings.Split(fmt.Sprint(r.cur[i]), ",") {
			var n int
			if _, err := fmt.Sscan(f, &n); err != nil {
				return err
			}
			*list = append(*list, n)
		}
		return nil
	}
	return sql.ConvertAssign(sc, dest, r.cur[i])
}

func scanPool(t *testing.T, db *scanDB) (*sql.DB, *sqlherd.Herd) {
	h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	return openPool(t, h.Connector(db)), h
}

// versionAndList scans every row into an int and a []int.
func versionAndList(rows *sql.Rows, err error) (out string) {
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	for rows.Next() {
		var version int
		var list []int
		if err := rows.Scan(&version, &list); err != nil {
			return out + err.Error()
		}
		if list[0] != version {
			out += "torn: "
		}
		out += fmt.Sprint(list)
	}
	return out + tell(rows.Err())
}

func TestWhatOnlyTheDriverCanScanIntoIsFilledOnEveryWay(t *testing.T) {
	const query = "SELECT /* @cache ttl=1h */ version, list FROM t"
	for name, ask := range map[string]func(*sql.DB) string{
		"query":   func(p *sql.DB) string { return versionAndList(p.Query(query)) },
		"no hint": func(p *sql.DB) string { return versionAndList(p.Query("SELECT version, list FROM t")) },
		"a write": func(p *sql.DB) string {
			return versionAndList(p.Query("INSERT INTO t VALUES (1) RETURNING version, list"))
		},
		"too many": func(p *sql.DB) string {
			return versionAndList(p.Query("SELECT /* @cache ttl=1h max-rows=1 */ version, list FROM t"))
		},
		"prepared": func(p *sql.DB) string {
			st, err := p.Prepare(query)
			if err != nil {
				return err.Error()
			}
			defer st.Close()
			return versionAndList(st.Query())
		},
		"prepared, no hint": func(p *sql.DB) string {
			st, err := p.Prepare("SELECT version, list FROM t")
			if err != nil {
				return err.Error()
			}
			defer st.Close()
			return versionAndList(st.Query())
		},
		"in a transaction": func(p *sql.DB) string {
			tx, err := p.Begin()
			if err != nil {
				return err.Error()
			}
			defer func() { _ = tx.Rollback() }()
			return versionAndList(tx.Query(query))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := &scanDB{own: true, rows: 2}
			p, _ := scanPool(t, db)
			for range 3 {
				got := ask(p)
				v := db.version.Load()
				if want := fmt.Sprintf("[%d 1][%d 0]ok", v, v); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			if n := db.open.Load(); n != 0 {
				t.Errorf("%d rows were not closed", n)
			}
		})
	}
}

func TestAQueryThatOnlyTheDriverCanScanIsNotCachedAnyMore(t *testing.T) {
	db := &scanDB{own: true, rows: 1}
	p, h := scanPool(t, db)
	const query = "SELECT /* @cache ttl=1h */ version, list FROM t"
	for i := range 3 {
		var info sqlherd.Info
		got := versionAndList(p.QueryContext(sqlherd.WithInfo(t.Context(), &info), query))
		if !strings.HasSuffix(got, "ok") {
			t.Error(got)
		}
		if i > 0 && (info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonType) {
			t.Errorf("run %d: %v, %v", i, info.Outcome, info.Reason)
		}
	}
	if n := db.version.Load(); n != 4 { // the first was loaded, and ran again
		t.Errorf("%d queries, want 4", n)
	}
	if st := h.Stats(); st.Loads != 1 {
		t.Errorf("%d loads", st.Loads)
	}
}

func TestPlainDestinationsAreServedFromTheCacheAlsoWhenTheDriverScans(t *testing.T) {
	type named string
	db := &scanDB{own: true, rows: 2}
	p, _ := scanPool(t, db)
	for range 3 {
		rows, err := p.Query("SELECT /* @cache ttl=1h */ version, list FROM t")
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		for rows.Next() {
			var i int64
			var a any
			var b []byte
			var raw sql.RawBytes
			var s *string
			var own named
			var null sql.Null[string]
			for _, dest := range []any{&a, &b, &s, &own, &null, &raw} {
				if err := rows.Scan(&i, dest); err != nil {
					t.Errorf("%T: %v", dest, err)
				}
			}
			want := fmt.Sprintf("1,%d", n)
			if i != 1 || a != want || string(b) != want || string(raw) != want || *s != want || string(own) != want || null.V != want {
				t.Errorf("row %d: %v %v %s %s %s %s %v", n, i, a, b, raw, *s, own, null)
			}
			n--
		}
		if err := rows.Err(); err != nil {
			t.Error(err)
		}
		rows.Close()
	}
	if n := db.version.Load(); n != 1 {
		t.Errorf("%d queries, want 1", n)
	}
}

func TestADriverThatDoesNotScanGivesItsErrorAndKeepsItsHits(t *testing.T) {
	db := &scanDB{rows: 1}
	p, _ := scanPool(t, db)
	bare := openPool(t, &scanDB{rows: 1})
	const query = "SELECT /* @cache ttl=1h */ version, list FROM t"
	for range 3 {
		if got, want := versionAndList(p.Query(query)), versionAndList(bare.Query(query)); got != want || !strings.Contains(got, "unsupported Scan") {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	if n := db.version.Load(); n != 1 {
		t.Errorf("%d queries, want 1", n)
	}
}

func TestARowThatWasReadFromTheCacheIsNotFollowedByLiveOnes(t *testing.T) {
	db := &scanDB{own: true, rows: 3}
	p, _ := scanPool(t, db)
	const query = "SELECT /* @cache ttl=1h */ version, list FROM t"
	read := func() error {
		rows, err := p.Query(query)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		var v, w any
		if err := rows.Scan(&v, &w); err != nil {
			return err
		}
		rows.Next()
		var list []int
		return rows.Scan(&v, &list)
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "only the driver can scan into a *[]int") {
		t.Errorf("got %v", err)
	}
	if err := read(); err != nil { // not cached any more
		t.Error(err)
	}
	// Rows that nobody looked at are no obstacle.
	rows, err := p.Query("SELECT /* @cache ttl=1h */ version, list FROM t WHERE true")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	rows.Next()
	rows.Next()
	var version int
	var list []int
	if err := rows.Scan(&version, &list); err != nil || list[0] != version || list[1] != 1 {
		t.Errorf("%d %v %v", version, list, err)
	}
	if rows.Next(); rows.Scan(&version, &list) != nil || list[1] != 0 || rows.Next() {
		t.Errorf("after that %v", list)
	}
}

func TestRowsThatAreGoneWhenTheDriverMustScanAreNoRows(t *testing.T) {
	db := &scanDB{own: true, rows: 1}
	p, _ := scanPool(t, db)
	const query = "SELECT /* @cache ttl=1h */ version, list FROM t"
	var v, w any
	if err := p.QueryRow(query).Scan(&v, &w); err != nil {
		t.Fatal(err)
	}
	db.rows = 0
	var list []int
	if err := p.QueryRow(query).Scan(&v, &list); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("got %v", err)
	}
	if n := db.open.Load(); n != 0 {
		t.Errorf("%d rows were not closed", n)
	}
}

func TestWhichDestinationsArePlain(t *testing.T) {
	type (
		namedInt   int
		namedBytes []byte
		namedTime  time.Time
	)
	for _, c := range []struct {
		t     reflect.Type
		plain bool
	}{
		{reflect.TypeFor[*string](), true}, {reflect.TypeFor[**string](), true}, {reflect.TypeFor[*namedInt](), true},
		{reflect.TypeFor[*namedBytes](), true}, {reflect.TypeFor[*namedTime](), true}, {reflect.TypeFor[**time.Time](), true},
		{reflect.TypeFor[*sql.NullInt64](), true}, {reflect.TypeFor[**sql.NullInt64](), true}, {reflect.TypeFor[*any](), true},
		{reflect.TypeFor[*uint8](), true}, {reflect.TypeFor[*float32](), true}, {reflect.TypeFor[*sql.RawBytes](), true},
		{reflect.TypeFor[*[]string](), false}, {reflect.TypeFor[*[]int64](), false}, {reflect.TypeFor[*[16]byte](), false},
		{reflect.TypeFor[*struct{ A int }](), false}, {reflect.TypeFor[*map[string]any](), false}, {reflect.TypeFor[*driver.Rows](), false},
		{reflect.TypeFor[*ownBytes](), false},
	} {
		if got := sqlherd.IsPlainType(c.t); got != c.plain {
			t.Errorf("%v: %t, want %t", c.t, got, c.plain)
		}
	}
}

// ownBytes is filled by a method of its own, as pgtype.PreallocBytes is.
type ownBytes []byte

func (*ownBytes) ScanBytes([]byte) error { return nil }
