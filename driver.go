package sqlherd

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ngrok/sqlmw"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// Driver returns base wrapped for sql.Register. It uses base's OpenConnector where there is one, so
// that what is registered with base (connection configurations, dialers) is found.
//
// sql.Open on the returned driver reports a DSN whose database cannot be told from others,
// and a private in-memory database without Config.LoadOnCallerConn.
func (h *Herd) Driver(base driver.Driver) driver.Driver {
	return &wrappedDriver{h: h, base: base}
}

// Connector returns base wrapped for sql.OpenDB. A connector has no DSN from which the
// database could be told, so with Config.Redis it must be named: Connect fails, and
// says so, unless there is an Identity.
func (h *Herd) Connector(base driver.Connector, opts ...ConnectorOption) driver.Connector {
	var o connectorOptions
	for _, opt := range opts {
		opt(&o)
	}
	identity, err := "", error(nil)
	switch {
	case o.identity != "":
		identity = "named\x00" + o.identity
	case h.cfg.Redis != nil:
		err = errors.New("sqlherd: a connector does not say which database it reaches; " +
			`with Redis it needs a name: herd.Connector(base, sqlherd.Identity("orders/app"))`)
	default:
		// Nobody else can see the rows: this connector is a database of its own.
		identity = "connector\x00" + strconv.FormatUint(h.serial.Add(1), 10)
	}
	// Loads on the caller's own connection are for databases that exist on one connection only,
	// and a connector does not say whether it reaches one. A name says that it does not.
	private := h.cfg.LoadOnCallerConn && o.identity == ""
	return h.newConnector(base, identity, err, private)
}

// A ConnectorOption changes what Herd.Connector returns.
type ConnectorOption func(*connectorOptions)

type connectorOptions struct{ identity string }

// Identity names the database, the user and every session default that a connector's
// connections have, such as "orders/app". Connectors with one name share their
// rows, in this process and through Redis: two that reach different databases, users, or have
// different settings must have different names.
func Identity(name string) ConnectorOption {
	return func(o *connectorOptions) { o.identity = name }
}

// Raw calls f with the driver's own connection beneath conn, for what database/sql does not
// offer (pgx CopyFrom, SQLite's backup). It dials when there is none yet. The session counts as
// unknown from then on, and what f writes is not seen: use Herd.Invalidate. f must
// not keep the connection.
func Raw(conn *sql.Conn, f func(driverConn any) error) error {
	return conn.Raw(func(dc any) error {
		s, ok := dc.(*shell)
		if !ok {
			return fmt.Errorf("sqlherd: Raw: %T is not a connection of sqlherd", dc)
		}
		real, err := s.dial(context.Background())
		if err != nil {
			return err
		}
		s.taint("sqlherd.Raw", "")
		return f(real)
	})
}

// FromDB returns the Herd beneath db, if db was opened on a driver or connector of one.
func FromDB(db *sql.DB) (*Herd, bool) {
	if d, ok := db.Driver().(*wrappedDriver); ok {
		return d.h, true
	}
	return nil, false
}

type wrappedDriver struct {
	h    *Herd
	base driver.Driver
}

var _ driver.DriverContext = (*wrappedDriver)(nil)

// Open is what database/sql calls only for drivers without OpenConnector.
func (d *wrappedDriver) Open(dsn string) (driver.Conn, error) {
	c, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return c.Connect(context.Background())
}

func (d *wrappedDriver) OpenConnector(dsn string) (driver.Connector, error) {
	switch d.base.(type) {
	case nil:
		return nil, errors.New("sqlherd: Herd.Driver was given no driver")
	case *wrappedDriver:
		return nil, errors.New("sqlherd: Herd.Driver was given a driver that is wrapped already")
	}
	var base driver.Connector = dsnConnector{dsn: dsn, driver: d.base}
	if dc, ok := d.base.(driver.DriverContext); ok {
		var err error
		if base, err = dc.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}
	driverType, pkg := driverTypeOf(d.base)
	dialect := d.h.dialectFor(pkg)
	private := isPrivateMemoryDSN(dialect, dsn)
	if private && !d.h.cfg.LoadOnCallerConn {
		return nil, errors.New("sqlherd: a private in-memory database exists on one connection only, so that " +
			"nothing can be loaded beside it; set Config.LoadOnCallerConn, or share it (file:name?mode=memory&cache=shared)")
	}
	identity := ""
	if !private {
		id, err := dsnIdentity(dialect, driverType, dsn)
		switch {
		case err == nil:
			identity = "dsn\x00" + id
		case d.h.cfg.Redis != nil:
			return nil, err
		default:
			// Without Redis nobody else can see the rows.
			identity = "connector\x00" + strconv.FormatUint(d.h.serial.Add(1), 10)
		}
	}
	s := d.h.newConnector(base, identity, nil, private)
	if setting := stringsBy(dialect, dsn); setting != "" {
		s.lex = sqllex.Unknown
		d.h.log.Warn("sqlherd: the DSN changes how the server reads strings; where it matters, queries are not cached and writes forget everything", "setting", setting)
	}
	if dialect == MySQL {
		if s.unsettled = unsettledBy(dsn); s.unsettled != "" {
			d.h.log.Warn("sqlherd: the DSN keeps every connection in a transaction; nothing is cached on them", "setting", s.unsettled)
		}
	}
	return s, nil
}

// unsettledBy returns the setting of a MySQL DSN under which a connection is in a transaction from its first
// statement on, so that what it reads is a snapshot and what it writes is not committed. "" is none.
func unsettledBy(dsn string) string {
	_, params, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for param := range strings.SplitSeq(params, "&") {
		key, value, _ := strings.Cut(param, "=")
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		key, value = strings.ToLower(key), strings.ToLower(strings.Trim(value, `'" `))
		switch {
		case key == "autocommit" && value != "1" && value != "on" && value != "true",
			key == "completion_type" && value != "0" && value != "no_chain":
			return key
		}
	}
	return ""
}

// stringsBy returns the setting in a DSN under which a backslash in a string means something else than by default, so that
// strings may end elsewhere. "" is none.
func stringsBy(d Dialect, dsn string) string {
	dsn = strings.ToLower(dsn)
	switch {
	case d == PostgreSQL && strings.Contains(dsn, stringsOfPostgreSQL) && !stringsAsByDefault.MatchString(dsn):
		return stringsOfPostgreSQL
	case d == MySQL && strings.Contains(dsn, stringsOfMySQL):
		return stringsOfMySQL
	}
	return ""
}

const (
	stringsOfPostgreSQL = "standard_conforming_strings"
	stringsOfMySQL      = "no_backslash_escapes"
)

var stringsAsByDefault = regexp.MustCompile(stringsOfPostgreSQL + `(=|%3d|\s)+'?(on|true|yes|1)\b`)

// turnsStrings says whether a statement that changes its session may change how strings are read there.
func turnsStrings(text string) bool {
	text = strings.ToLower(text)
	// Another sql_mode than a literal one may have it inside.
	return strings.Contains(text, stringsOfPostgreSQL) || strings.Contains(text, stringsOfMySQL) ||
		strings.Contains(text, "sql_mode") && !strings.ContainsAny(text, `'"`)
}

// dsnConnector connects through a driver that has no connector of its own.
type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// dialectFor returns the dialect of a driver of the package, or the one that Config says.
func (h *Herd) dialectFor(pkgPath string) Dialect {
	if h.cfg.Dialect != DialectAuto {
		return h.cfg.Dialect
	}
	return dialectOf(pkgPath)
}

// A source is one base connector and what belongs to it: whose rows its connections see,
// the pool that loads them, and the plans of the texts that pass through.
type source struct {
	h         *Herd
	base      driver.Connector
	identity  string
	err       error  // why connections cannot be had
	private   bool   // every connection is a database of its own
	unsettled string // the setting that keeps every connection in a transaction; "" otherwise
	dialect   Dialect
	lex       sqllex.Dialect // by which texts are read
	budget    *budget
	loader    *loader
	plans     *planCache
	driver    *wrappedDriver
	scanning  // whether the driver fills Scan's destinations itself
	closed    atomic.Bool
	once      sync.Once
	closeErr  error
}

func (h *Herd) newConnector(base driver.Connector, identity string, err error, private bool) *source {
	_, pkg := driverTypeOf(base.Driver())
	s := &source{
		h:        h,
		base:     base,
		identity: identity,
		err:      err,
		private:  private,
		dialect:  h.dialectFor(pkg),
		lex:      h.dialectFor(pkg).lex(),
		loader:   newLoader(base, h.cfg.MaxLoads, h.cfg.LoadTimeout),
		driver:   &wrappedDriver{h: h, base: base.Driver()},
	}
	if h.cfg.MaxDBConns > 0 && !private {
		s.budget = &budget{max: h.cfg.MaxDBConns}
	}
	s.plans = newPlanCache(s)
	h.addSource(s)
	return s
}

var (
	_ driver.Connector = (*source)(nil)
	_ io.Closer        = (*source)(nil)
)

// Connect returns a connection that has not dialed yet.
func (s *source) Connect(context.Context) (driver.Conn, error) {
	if s.err != nil {
		return nil, s.err
	}
	c := &conn{h: s.h, src: s}
	c.forget()
	if s.private {
		c.private = "private\x00" + s.h.nonce + strconv.FormatUint(s.h.serial.Add(1), 10)
	}
	// An interceptor of its own for every connection: sqlmw does not tell it which one calls.
	wrapped, err := sqlmw.Driver(opener{c}, &interceptor{c: c}).Open("")
	if err != nil {
		return nil, err
	}
	return &shell{conn: c, mw: wrapped.(intercepted)}, nil
}

// A shell is what database/sql's pool holds: the conn, with sqlmw's wrapper of it for the calls that are intercepted.
// What sqlmw has nothing to do with (conversion of arguments, validation, reset, ping)
// goes to the conn at once, as do the queries that need no interception.
type shell struct {
	*conn
	mw intercepted
}

// intercepted is what sqlmw's connection does for us.
type intercepted interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

func (s *shell) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if rows, done, err := s.fast(ctx, query, args); done {
		return rows, err
	}
	return s.takeRows(s.mw.QueryContext(ctx, query, args))
}

func (s *shell) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return s.takeResult(s.mw.ExecContext(ctx, query, args))
}

func (s *shell) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := s.mw.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &shellStmt{interceptedStmt: st.(interceptedStmt), c: s.conn}, nil
}

func (s *shell) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return s.mw.BeginTx(ctx, opts)
}

func (s *shell) Prepare(query string) (driver.Stmt, error) {
	return s.PrepareContext(context.Background(), query)
}

func (s *shell) Begin() (driver.Tx, error) { return s.mw.Begin() } //nolint:staticcheck // driver.Conn has it

// A shellStmt is to sqlmw's statement what the shell is to its connection.
type shellStmt struct {
	interceptedStmt
	c *conn
}

// interceptedStmt is what sqlmw's statement does for us.
type interceptedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (s *shellStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.takeRows(s.interceptedStmt.QueryContext(ctx, args))
}

func (s *shellStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.takeResult(s.interceptedStmt.ExecContext(ctx, args))
}

// opener gives sqlmw the connection to wrap.
type opener struct{ c *conn }

func (o opener) Open(string) (driver.Conn, error) { return o.c, nil }

// Driver returns a driver that FromDB knows. Its base is the real driver.
func (s *source) Driver() driver.Driver { return s.driver }

// Close is called by sql.DB.Close, when the pool's connections are closed. It ends the loads of
// this pool and its callers' waits.
func (s *source) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.budget.close()
		s.closeErr = s.loader.close()
		s.plans.close()
		s.h.removeSource(s)
		if c, ok := s.base.(io.Closer); ok {
			s.closeErr = errors.Join(s.closeErr, c.Close())
		}
	})
	return s.closeErr
}
