package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A database holds the product that everybody reads. Its query takes -load inside the
// database, in a function named slow. (A plain sleep would not do: sqlherd refuses to cache one.)
type database interface {
	// String describes the database, without its password.
	String() string
	// query returns the callers' query, with the comment in it. Its argument is productID.
	query(comment string) string
	// source is what one of procs workers needs to connect.
	source(procs int) source
	// reset begins a new count.
	reset(context.Context) error
	// tally ends the count. Where the database cannot count, the workers' ledgers do.
	tally(context.Context, []ledger) (count, error)
	// close removes what was created.
	close() error
}

// A count is what reached the database.
type count struct {
	queries   int
	connsPeak int // the most connections that were open at once, over all processes
}

// The row that everybody reads.
const (
	productID   = 7
	productName = "a hot product"
)

// cleanupTimeout bounds what is done at a server after the end, or after ^C.
const cleanupTimeout = 5 * time.Second

// checkDSN reports what keeps a -dsn from being used at all.
func checkDSN(dsn string) (err error) {
	switch scheme, _, _ := strings.Cut(dsn, ":"); scheme {
	case "mysql":
		_, err = mysqlConfig(dsn)
	case "postgres", "postgresql":
		_, err = pgx.ParseConfig(dsn)
	}
	if err != nil {
		return fmt.Errorf("-dsn: %w", err)
	}
	return nil
}

func openDatabase(ctx context.Context, opt options) (database, error) {
	switch scheme, _, _ := strings.Cut(opt.dsn, ":"); scheme {
	case "":
		return openSQLite(ctx, opt.load)
	case "mysql":
		return openMySQL(ctx, opt.dsn, opt.load)
	default:
		return openPostgres(ctx, opt.dsn, opt.load)
	}
}

// objectName is the name, or the beginning of the names, of what is created at a server.
func objectName() string { return "sqlherd_stampede_" + strings.ToLower(rand.Text()[:8]) }

// A source tells a worker how to connect. It travels as JSON.
type source struct {
	Driver string `json:"driver"`
	DSN    string `json:"dsn"`
	// Slots is how many queries run at a time. SQLite only; a server has its own limits.
	Slots int `json:"slots,omitempty"`
	// App is the connections' application_name. PostgreSQL only.
	App string `json:"app,omitempty"`
}

// connector returns the base connector: what the application would have without
// sqlherd. Where the server cannot count its connections, book does.
func (s source) connector(book *bookkeeper) (driver.Connector, error) {
	switch s.Driver {
	case "sqlite":
		return sqliteConnector(s, book)
	case "mysql":
		return mysqlConnector(s, book)
	case "postgres":
		return postgresConnector(s)
	}
	return nil, fmt.Errorf("unknown driver %q", s.Driver)
}

// A ledger is what one worker's driver did.
type ledger struct {
	Queries int64       `json:"queries"`
	Conns   []connEvent `json:"conns"`
}

// A connEvent is a connection that opens (Step 1) or closes (Step -1). At is in nanoseconds of the
// machine's clock, which all processes share.
type connEvent struct {
	At   int64 `json:"at"`
	Step int   `json:"step"`
}

// connsPeak returns the most connections that were open at one moment in all processes together.
// When one opens as another closes, both count: it may be one too many, never one too few.
func connsPeak(ledgers []ledger) int {
	var all []connEvent
	for _, l := range ledgers {
		all = append(all, l.Conns...)
	}
	slices.SortFunc(all, func(a, b connEvent) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(b.Step, a.Step))
	})
	open, peak := 0, 0
	for _, e := range all {
		open += e.Step
		peak = max(peak, open)
	}
	return peak
}

func countLedgers(ledgers []ledger) count {
	c := count{connsPeak: connsPeak(ledgers)}
	for _, l := range ledgers {
		c.queries += int(l.Queries)
	}
	return c
}

// A bookkeeper writes the ledger of this process.
type bookkeeper struct {
	queries atomic.Int64

	mu    sync.Mutex
	conns []connEvent
}

func (b *bookkeeper) conn(step int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, connEvent{At: time.Now().UnixNano(), Step: step})
}

func (b *bookkeeper) ledger() ledger {
	b.mu.Lock()
	defer b.mu.Unlock()
	return ledger{Queries: b.queries.Load(), Conns: slices.Clone(b.conns)}
}

// A countingConnector notes the connections that base opens. It is beneath sqlherd.
type countingConnector struct {
	base driver.Connector
	book *bookkeeper
}

func (c countingConnector) Driver() driver.Driver { return c.base.Driver() }

func (c countingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.book.conn(+1) // before it is dialed: a connection that is on its way counts
	conn, err := c.base.Connect(ctx)
	if err != nil {
		c.book.conn(-1)
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		c.book.conn(-1)
		return nil, errors.Join(fmt.Errorf("%T lacks a method of a modern driver", conn), conn.Close())
	}
	return &countedConn{fullConn: full, book: c.book}, nil
}

// A fullConn is a connection with all the methods that database/sql asks for, so that none is
// lost in wrapping it.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type countedConn struct {
	fullConn
	book *bookkeeper
}

func (c *countedConn) Close() error {
	err := c.fullConn.Close()
	c.book.conn(-1)
	return err
}
