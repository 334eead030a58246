package sqlherd_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A ledger is a database of one table with one value, transactions, and sessions that can be
// set: what a session has set shows in what it reads.
type ledger struct {
	mu       sync.Mutex
	value    string
	open     map[*fakeConn]*string // transactions, and what they have written
	sessions map[*fakeConn]string
	manual   map[*fakeConn]bool                        // autocommit is off
	fail     func(verb, query string, done bool) error // before a statement is done, and after
}

func newLedger(t *testing.T) (*ledger, *fakeDB) {
	l := &ledger{
		value:    "v1",
		open:     make(map[*fakeConn]*string),
		sessions: make(map[*fakeConn]string),
		manual:   make(map[*fakeConn]bool),
	}
	db := newFakeDB(t, l.handle)
	db.onTx = func(c *fakeConn, what string) error { _, err := l.run(c, what, nil); return err }
	return l, db
}

func (l *ledger) handle(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
	return l.run(connOf(ctx), query, args)
}

// bare drops the comments in front.
func bare(query string) string {
	for {
		query = strings.TrimSpace(query)
		switch {
		case strings.HasPrefix(query, "/*"):
			_, query, _ = strings.Cut(query, "*/")
		case strings.HasPrefix(query, "--"):
			_, query, _ = strings.Cut(query, "\n")
		default:
			return query
		}
	}
}

func (l *ledger) run(c *fakeConn, query string, args []driver.NamedValue) (*fakeResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.ToUpper(bare(query))
	verb, _, _ := strings.Cut(strings.NewReplacer(";", " ", "\n", " ").Replace(text), " ")
	if l.fail != nil {
		if err := l.fail(verb, text, false); err != nil {
			return nil, err
		}
	}
	for part := range strings.SplitSeq(bare(query), ";") {
		l.statement(c, part, args)
	}
	if l.fail != nil {
		if err := l.fail(verb, text, true); err != nil {
			return nil, err
		}
	}
	v := l.value
	if p := l.open[c]; p != nil {
		v = *p
	}
	return one(v + l.sessions[c]), nil
}

func (l *ledger) statement(c *fakeConn, query string, args []driver.NamedValue) {
	text := strings.ToUpper(bare(query))
	verb, rest, _ := strings.Cut(text, " ")
	commit := func() {
		if p := l.open[c]; p != nil {
			l.value = *p
		}
		delete(l.open, c)
	}
	begin := func() { v := l.value; l.open[c] = &v }
	switch verb {
	case "BEGIN", "START":
		commit() // as MySQL
		begin()
	case "COMMIT", "END":
		commit()
		if strings.Contains(rest, "AND CHAIN") {
			begin()
		}
	case "ROLLBACK", "ABORT":
		if !strings.HasPrefix(rest, "TO ") {
			delete(l.open, c)
		}
	case "SAVEPOINT":
		if l.open[c] == nil { // as SQLite
			begin()
		}
	case "RELEASE":
		commit()
	case "CREATE":
		commit()
	case "SET", "USE", "PRAGMA", "RESET", "DISCARD", "SELECT_SET":
		if strings.Contains(rest, "AUTOCOMMIT") {
			l.manual[c] = true
			return
		}
		l.sessions[c] = " under " + rest
	case "UPDATE", "INSERT":
		v := "v2"
		if len(args) > 0 {
			v = args[0].Value.(string)
		} else if _, after, ok := strings.Cut(query, "'"); ok {
			v, _, _ = strings.Cut(after, "'")
		}
		if l.manual[c] && l.open[c] == nil {
			begin()
		}
		if p := l.open[c]; p != nil {
			*p = v
		} else {
			l.value = v
		}
	}
}

// ask reads the hinted value, and tells how it was answered.
func ask(t *testing.T, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (string, sqlherd.Info) {
	t.Helper()
	var info sqlherd.Info
	v, err := queryOne(sqlherd.WithInfo(t.Context(), &info), db, hinted)
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	return v, info
}

// want reads the hinted value and compares.
func want(t *testing.T, when string, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, v string, o sqlherd.Outcome, r sqlherd.Reason) {
	t.Helper()
	got, info := ask(t, db)
	if got != v || info.Outcome != o || info.Reason != r {
		t.Errorf("%s: read %q, %v, %v; want %q, %v, %v", when, got, info.Outcome, info.Reason, v, o, r)
	}
}

func do(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func connect(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestATransactionSeesItsOwnWritesAndNobodyElseDoesBeforeItCommits(t *testing.T) {
	_, db := newLedger(t)
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	tx := begin(t, p)
	want(t, "in the transaction before it writes", tx, "v1", sqlherd.Bypassed, sqlherd.ReasonTx)
	do(t, tx, "UPDATE t SET v = 'v2'")
	want(t, "in the transaction", tx, "v2", sqlherd.Bypassed, sqlherd.ReasonTx)
	want(t, "outside", p, "v1", sqlherd.Hit, 0)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	want(t, "after the commit", p, "v2", sqlherd.Miss, 0)
	want(t, "again", p, "v2", sqlherd.Hit, 0)
	if n := h.Stats().Reasons[sqlherd.ReasonTx]; n != 2 {
		t.Errorf("%d bypasses for a transaction, want 2", n)
	}
}

func TestATransactionThatIsRolledBackInvalidatesNothingAndStoresNothing(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *sql.Tx, context.CancelFunc){
		"Rollback": func(t *testing.T, tx *sql.Tx, _ context.CancelFunc) {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		},
		"its context ends": func(t *testing.T, tx *sql.Tx, cancel context.CancelFunc) {
			cancel()
			if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db := newLedger(t)
			p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			want(t, "first", p, "v1", sqlherd.Miss, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := p.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			do(t, tx, "UPDATE t SET v = 'v2'")
			want(t, "inside", tx, "v2", sqlherd.Bypassed, sqlherd.ReasonTx)
			end(t, tx, cancel)
			want(t, "after", p, "v1", sqlherd.Hit, 0)
			if n := h.Stats().Invalidations; n != 0 {
				t.Errorf("%d invalidations, want none", n)
			}
		})
	}
}

func TestACommitWhoseAnswerIsLostInvalidates(t *testing.T) {
	l, db := newLedger(t)
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	lost := errors.New("the connection was lost")
	l.fail = func(verb, _ string, done bool) error {
		if verb == "COMMIT" && done {
			return lost
		}
		return nil
	}
	tx := begin(t, p)
	do(t, tx, "UPDATE t SET v = 'v2'")
	if err := tx.Commit(); err != lost {
		t.Fatalf("Commit gave %v, want the driver's own error", err)
	}
	want(t, "after", p, "v2", sqlherd.Miss, 0)
}

// Every way to write within a transaction.
func TestEveryFormOfWriteInATransactionInvalidatesAfterTheCommit(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *sql.DB, *sql.Tx){
		"Exec": func(t *testing.T, _ *sql.DB, tx *sql.Tx) { do(t, tx, "UPDATE t SET v = ?", "v2") },
		"Prepare": func(t *testing.T, _ *sql.DB, tx *sql.Tx) {
			st, err := tx.Prepare("UPDATE t SET v = ?")
			if err == nil {
				_, err = st.Exec("v2")
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"Stmt": func(t *testing.T, p *sql.DB, tx *sql.Tx) {
			st, err := p.Prepare("UPDATE t SET v = ?")
			if err == nil {
				defer st.Close()
				_, err = tx.Stmt(st).Exec("v2")
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"QueryRow RETURNING": func(t *testing.T, _ *sql.DB, tx *sql.Tx) {
			if _, err := queryOne(t.Context(), tx, "INSERT INTO t VALUES (?) RETURNING v", "v2"); err != nil {
				t.Fatal(err)
			}
		},
		"rows left open": func(t *testing.T, _ *sql.DB, tx *sql.Tx) {
			if _, err := tx.Query("INSERT INTO t VALUES (?) RETURNING v", "v2"); err != nil { //nolint:rowserrcheck,sqlclosecheck // the point
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db := newLedger(t)
			p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			want(t, "first", p, "v1", sqlherd.Miss, 0)
			tx := begin(t, p)
			write(t, p, tx)
			want(t, "before the commit", p, "v1", sqlherd.Hit, 0)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			want(t, "after the commit", p, "v2", sqlherd.Miss, 0)
		})
	}
}

func TestATransactionBegunByAStatementInAnySpellingIsOne(t *testing.T) {
	for _, c := range []struct{ begin, commit, rollback string }{
		{"BEGIN", "COMMIT", "ROLLBACK"},
		{"begin;", "commit;", "rollback;"},
		{"/* trace */ Begin Transaction", "End", "Abort"},
		{"-- a line\nSTART TRANSACTION", "COMMIT WORK", "ROLLBACK WORK"},
		{"begin isolation level serializable", "end transaction", "rollback transaction"},
		{"\n\tBEGIN\n", "  COMMIT  ", "/*x*/rollback"},
	} {
		t.Run(c.begin, func(t *testing.T) {
			_, db := newLedger(t)
			p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			conn := connect(t, p)
			want(t, "first", p, "v1", sqlherd.Miss, 0)

			do(t, conn, c.begin)
			do(t, conn, "UPDATE t SET v = 'v2'")
			want(t, "inside", conn, "v2", sqlherd.Bypassed, sqlherd.ReasonTx)
			want(t, "another conn", p, "v1", sqlherd.Hit, 0)
			do(t, conn, c.rollback)
			want(t, "after the rollback, on the conn", conn, "v1", sqlherd.Miss, 0) // invalidated to be safe
			want(t, "after the rollback", p, "v1", sqlherd.Hit, 0)

			do(t, conn, c.begin)
			do(t, conn, "UPDATE t SET v = 'v3'")
			want(t, "another conn", p, "v1", sqlherd.Hit, 0)
			do(t, conn, c.commit)
			want(t, "after the commit", p, "v3", sqlherd.Miss, 0)
			want(t, "after the commit, on the conn", conn, "v3", sqlherd.Hit, 0)
			if n := h.Stats().Taints; n != 0 {
				t.Errorf("%d sessions became unknown, want none", n)
			}
		})
	}
}

// What is committed by a statement that does not look like it must be invalidated all the same. In each
// case somebody reads the old value while the transaction is open, so that an invalidation at the time of the
// write is not enough.
func TestACommitInDisguiseInvalidates(t *testing.T) {
	failOnce := func(l *ledger, verb string, done bool) {
		failed := false
		l.fail = func(v, _ string, d bool) error {
			if v == verb && d == done && !failed {
				failed = true
				return errors.New("busy")
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		dialect sqlherd.Dialect
		prepare func(*ledger)
		before  []string // the write
		commit  []string
		may     []string // statements that may fail
	}{
		"COMMIT AND CHAIN": {
			before: []string{"BEGIN", "UPDATE t SET v = 'v2'"},
			commit: []string{"COMMIT AND CHAIN"},
		},
		"BEGIN in a transaction": {
			dialect: sqlherd.MySQL,
			before:  []string{"BEGIN", "UPDATE t SET v = 'v2'"},
			commit:  []string{"BEGIN"},
		},
		"RELEASE of a SAVEPOINT that began it": {
			dialect: sqlherd.SQLite,
			before:  []string{"SAVEPOINT a", "UPDATE t SET v = 'v2'"},
			commit:  []string{"RELEASE a"},
		},
		"autocommit off": {
			dialect: sqlherd.MySQL,
			before:  []string{"SET autocommit = 0", "UPDATE t SET v = 'v2'"},
			commit:  []string{"COMMIT"},
		},
		"autocommit off, twice": {
			dialect: sqlherd.MySQL,
			before:  []string{"SET autocommit = 0", "UPDATE t SET v = 'v3'", "COMMIT", "UPDATE t SET v = 'v2'"},
			commit:  []string{"COMMIT"},
		},
		"CREATE TABLE, which commits in MySQL": {
			dialect: sqlherd.MySQL,
			before:  []string{"BEGIN", "UPDATE t SET v = 'v2'"},
			commit:  []string{"CREATE TABLE u (a int)"},
		},
		"a COMMIT that worked the second time": {
			dialect: sqlherd.SQLite,
			prepare: func(l *ledger) { failOnce(l, "COMMIT", false) },
			before:  []string{"BEGIN", "UPDATE t SET v = 'v2'", "COMMIT"},
			commit:  []string{"COMMIT"},
		},
		"a write after a BEGIN that failed": {
			prepare: func(l *ledger) { failOnce(l, "BEGIN", false) },
			before:  []string{"BEGIN"},
			commit:  []string{"UPDATE t SET v = 'v2'"},
		},
		"a BEGIN that failed and began": {
			prepare: func(l *ledger) { failOnce(l, "BEGIN", true) },
			before:  []string{"BEGIN", "UPDATE t SET v = 'v2'"},
			commit:  []string{"COMMIT"},
		},
		"several statements in one text": {
			commit: []string{"BEGIN; UPDATE t SET v = 'v2'; COMMIT"},
		},
		"several statements that end a transaction": {
			before: []string{"BEGIN", "UPDATE t SET v = 'v3'"},
			commit: []string{"UPDATE t SET v = 'v2'; COMMIT; BEGIN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, db := newLedger(t)
			dialect := c.dialect
			if dialect == 0 {
				dialect = sqlherd.PostgreSQL
			}
			p, _ := openHerd(t, db, sqlherd.Config{Dialect: dialect})
			conn := connect(t, p)
			if c.prepare != nil {
				c.prepare(l)
			}
			for _, s := range c.before {
				_, err := conn.ExecContext(t.Context(), s)
				if err != nil && err.Error() != "busy" {
					t.Fatal(err)
				}
			}
			old, _ := ask(t, p)
			if got, info := ask(t, p); got != old || info.Outcome != sqlherd.Hit || old == "v2" {
				t.Fatalf("before: read %q, %v, want a hit of what was there before", got, info.Outcome)
			}
			for _, s := range c.commit {
				do(t, conn, s)
			}
			want(t, "after", p, "v2", sqlherd.Miss, 0)
			// And the session is not taken for a clean one that sees what others see.
			if got, info := ask(t, conn); got != "v2" {
				t.Errorf("on the conn: read %q, %v", got, info.Outcome)
			}
		})
	}
}

func TestATextualCommitInsideABeginTxIsInvalidatedThoughTheTxIsRolledBack(t *testing.T) {
	_, db := newLedger(t)
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	tx, other := begin(t, p), connect(t, p)
	do(t, tx, "UPDATE t SET v = 'v2'")
	want(t, "before", other, "v1", sqlherd.Miss, 0)
	do(t, tx, "COMMIT")
	want(t, "after the textual commit", other, "v2", sqlherd.Miss, 0)
	do(t, tx, "UPDATE t SET v = 'v3'") // outside of any transaction now
	want(t, "after a write of which nobody knows whether it is committed", other, "v3", sqlherd.Miss, 0)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	want(t, "at the end", other, "v3", sqlherd.Miss, 0)
}

func TestASavepointInATransactionChangesNothing(t *testing.T) {
	_, db := newLedger(t)
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	tx := begin(t, p)
	for _, s := range []string{"SAVEPOINT a", "UPDATE t SET v = 'v2'", "ROLLBACK TO SAVEPOINT a"} {
		do(t, tx, s)
	}
	want(t, "outside", p, "v1", sqlherd.Hit, 0)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	want(t, "after", p, "v1", sqlherd.Hit, 0)
	if st := h.Stats(); st.Taints != 0 || st.Invalidations != 0 {
		t.Errorf("%d taints, %d invalidations, want none", st.Taints, st.Invalidations)
	}
}

func TestAPreparedWriteInvalidatesEachTimeItRuns(t *testing.T) {
	_, db := newLedger(t)
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	st, err := p.Prepare("UPDATE t SET v = ?")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, v := range []string{"a", "b", "c", "d"} {
		if _, err := st.Exec(v); err != nil {
			t.Fatal(err)
		}
		want(t, "after "+v, p, v, sqlherd.Miss, 0)
		want(t, "again", p, v, sqlherd.Hit, 0)
	}
}

func TestAWriteWithReturningInvalidatesHoweverEarlyItsRowsAreClosed(t *testing.T) {
	for name, write := range map[string]func(*sql.Rows) error{
		"closed at once": (*sql.Rows).Close,
		"read to the end": func(rows *sql.Rows) error {
			for rows.Next() {
			}
			return rows.Err()
		},
		"a Scan that fails": func(rows *sql.Rows) error {
			rows.Next()
			var n int
			if rows.Scan(&n) == nil {
				return errors.New("want an error of Scan")
			}
			return rows.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db := newLedger(t)
			p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
			want(t, "first", p, "v1", sqlherd.Miss, 0)
			for _, v := range []string{"v2", "v3"} {
				// A hint to cache does not make it one.
				rows, err := p.Query("INSERT /* @cache ttl=1h */ INTO t VALUES (?) RETURNING v", v)
				if err != nil {
					t.Fatal(err)
				}
				if err := write(rows); err != nil {
					t.Fatal(err)
				}
				want(t, "after "+v, p, v, sqlherd.Miss, 0)
			}
		})
	}
}

func TestAWriteThatFailsInvalidatesUnlessItSurelyDidNothing(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		query   string
		dialect sqlherd.Dialect
		want    sqlherd.Outcome
	}{
		"refused by PostgreSQL":        {&driverError{}, "UPDATE t SET v = 'v2'", sqlherd.PostgreSQL, sqlherd.Hit},
		"connection lost":              {errors.New("broken pipe"), "UPDATE t SET v = 'v2'", sqlherd.PostgreSQL, sqlherd.Miss},
		"timeout":                      {context.DeadlineExceeded, "UPDATE t SET v = 'v2'", sqlherd.PostgreSQL, sqlherd.Miss},
		"second of two statements":     {&driverError{}, "UPDATE t SET v = 'v2'; UPDATE u SET broken", sqlherd.PostgreSQL, sqlherd.Miss},
		"a procedure":                  {&driverError{}, "CALL p()", sqlherd.PostgreSQL, sqlherd.Miss},
		"syntax in MySQL":              {&MySQLError{Number: 1064}, "UPDATE t SET v = 'v2'", sqlherd.MySQL, sqlherd.Hit},
		"duplicate on row 2 of MyISAM": {&MySQLError{Number: 1062}, "INSERT INTO t VALUES ('v2'), ('v2')", sqlherd.MySQL, sqlherd.Miss},
	} {
		t.Run(name, func(t *testing.T) {
			l, db := newLedger(t)
			p, _ := openHerd(t, db, sqlherd.Config{Dialect: c.dialect})
			other := connect(t, p)
			want(t, "first", other, "v1", sqlherd.Miss, 0)
			l.fail = func(verb, _ string, done bool) error {
				if verb != "SELECT" && done {
					return c.err
				}
				return nil
			}
			if _, err := p.Exec(c.query); err != c.err {
				t.Fatalf("Exec gave %v, want the driver's own error", err)
			}
			if _, info := ask(t, other); info.Outcome != c.want {
				t.Errorf("the next read is a %v, want %v", info.Outcome, c.want)
			}
		})
	}
}

func TestAWriteThatATransactionRefusesInvalidatesNothingWhenItIsRolledBack(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		dialect sqlherd.Dialect
		want    sqlherd.Outcome
	}{
		"read-only in MySQL":  {&MySQLError{Number: 1792}, sqlherd.MySQL, sqlherd.Hit},
		"deadlock in MySQL":   {&MySQLError{Number: 1213}, sqlherd.MySQL, sqlherd.Miss}, // tables without transactions keep what was written
		"refused by Postgres": {&driverError{}, sqlherd.PostgreSQL, sqlherd.Hit},
	} {
		t.Run(name, func(t *testing.T) {
			l, db := newLedger(t)
			p, _ := openHerd(t, db, sqlherd.Config{Dialect: c.dialect})
			want(t, "first", p, "v1", sqlherd.Miss, 0)
			l.fail = func(verb, _ string, done bool) error {
				if verb == "UPDATE" && !done {
					return c.err
				}
				return nil
			}
			tx := begin(t, p)
			if _, err := tx.Exec("UPDATE t SET v = 'v2'"); err != c.err {
				t.Fatalf("Exec gave %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, info := ask(t, p); info.Outcome != c.want {
				t.Errorf("the next read is a %v, want %v", info.Outcome, c.want)
			}
		})
	}
}

func TestAWriteRunsOnceAndSucceedsThoughRedisCannotBeTold(t *testing.T) {
	fleet := sqlherd.NewFakeFleet()
	h, err := sqlherd.NewOnStore(sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.DiscardHandler)}, fleet.Store())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	_, db := newLedger(t)
	p := openPool(t, h.Connector(fakeConnector{db}))
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	fleet.SetErr("invalidate", driver.ErrBadConn) // the worst that a store could answer
	before := db.queries.Load()
	do(t, p, "UPDATE t SET v = 'v2'")
	if n := db.queries.Load() - before; n != 1 {
		t.Errorf("the write ran %d times", n)
	}
	if v, info := ask(t, p); v != "v2" {
		t.Errorf("the next read is a %v of %q", info.Outcome, v)
	}
	if n := h.Stats().InvalidationsPending; n == 0 {
		t.Error("no invalidation is waiting for Redis")
	}
	fleet.SetErr("invalidate", nil)
}

// MySQLError is what errors of go-sql-driver/mysql look like to who does not import it.
type MySQLError struct{ Number uint16 }

func (*MySQLError) Error() string { return "mysql" }

func TestTagsOfTheContextAreInvalidatedAlsoByAWriteToATableThatIsNotCached(t *testing.T) {
	_, db := newLedger(t)
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Tables: []string{"t"}})
	read := func() sqlherd.Outcome {
		var info sqlherd.Info
		ctx := sqlherd.WithTags(sqlherd.WithInfo(t.Context(), &info), "mine")
		if _, err := queryOne(ctx, p, hinted); err != nil {
			t.Fatal(err)
		}
		return info.Outcome
	}
	read()
	do(t, p, "UPDATE elsewhere SET v = 'x'")
	if o := read(); o != sqlherd.Hit {
		t.Errorf("after a write to a table that is not cached: %v, want hit", o)
	}
	if _, err := p.ExecContext(sqlherd.WithTags(t.Context(), "mine"), "UPDATE elsewhere SET v = 'x'"); err != nil {
		t.Fatal(err)
	}
	if o := read(); o != sqlherd.Miss {
		t.Errorf("after the same with the tag: %v, want miss", o)
	}
}

// Callers like to cancel their context as soon as they have what they wanted, and some deadlines end in a COMMIT.
func TestAWriteWhoseContextEndsWithItIsSeen(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, verb := range []string{"UPDATE", "COMMIT"} {
			synctest.Test(t, func(t *testing.T) {
				b := newRaceBed(t, 2, sqlherd.Config{Strict: strict})
				for _, p := range b.pools {
					b.wantValue("before", p, hinted, "v1")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b.l.mu.Lock()
				b.l.fail = func(v, _ string, after bool) error {
					if v == verb && after {
						cancel()
					}
					return nil
				}
				b.l.mu.Unlock()
				var err error
				if verb == "UPDATE" {
					_, err = b.pools[0].ExecContext(ctx, "UPDATE t SET v = 'v2'")
				} else {
					var tx *sql.Tx
					if tx, err = b.pools[0].BeginTx(ctx, nil); err == nil {
						if _, err = tx.ExecContext(ctx, "UPDATE t SET v = 'v2'"); err == nil {
							err = tx.Commit()
						}
					}
				}
				if err != nil || ctx.Err() == nil {
					t.Fatalf("%s: %v; the context: %v", verb, err, ctx.Err())
				}
				for _, p := range b.pools {
					b.wantValue("after "+verb, p, hinted, "v2")
				}
				if n := b.herds[0].Stats().InvalidationRetries; n != 0 {
					t.Errorf("%s: Redis was told after %d tries in vain", verb, n)
				}
			})
		}
	}
}

func TestAWriteAfterCloseIsSeenByOthersWhenTheRowsLifeEnds(t *testing.T) {
	const short = `SELECT /* @cache ttl=10s jitter=0 early=off */ v FROM t`
	synctest.Test(t, func(t *testing.T) {
		b := newRaceBed(t, 2, sqlherd.Config{})
		b.wantValue("before", b.pools[1], short, "v1")
		if err := b.herds[0].Close(); err != nil {
			t.Fatal(err)
		}
		do(t, b.pools[0], "UPDATE t SET v = 'v2'")
		b.wantValue("the writer, uncached", b.pools[0], short, "v2")
		b.wantValue("another process", b.pools[1], short, "v1")
		time.Sleep(10 * time.Second)
		b.wantValue("another process, past the life", b.pools[1], short, "v2")
	})
}
