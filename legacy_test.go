package sqlherd_test

// A driver beneath sqlherd against the same driver alone, for drivers of every age.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A diffOp is something that an application does. What it answers tells all that the application
// can see of it. @ in its statements stands for where the hint goes.
type diffOp struct {
	name string
	do   func(ctx context.Context, db *sql.DB, hint string) string
	// plain says that it is not to be compared under a hint: see the tests of conn_test.go that
	// pin what differs.
	plain bool
	// outcome says that only what it answers is to be compared.
	outcome bool
}

// once drops from a log what is there before.
func once(log []string) (out []string) {
	for _, l := range log {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func tell(err error) string {
	var own *driverError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &own) && own == errShape:
		return fmt.Sprintf("%T %v (the driver's own)", err, err)
	}
	return fmt.Sprintf("%T %v", err, err)
}

func tellTypes(rows *sql.Rows) string {
	types, err := rows.ColumnTypes()
	if err != nil {
		return tell(err)
	}
	var b strings.Builder
	for _, ct := range types {
		n, hasLength := ct.Length()
		null, hasNull := ct.Nullable()
		prec, scale, hasPrec := ct.DecimalSize()
		fmt.Fprintf(&b, "{%s %s %v %d %v %v %v %d %d %v}", ct.Name(), ct.DatabaseTypeName(), ct.ScanType(), n, hasLength, null, hasNull, prec, scale, hasPrec)
	}
	return b.String()
}

func tellRows(rows *sql.Rows, err error) string {
	if err != nil {
		return tell(err)
	}
	var b strings.Builder
	for {
		cols, err := rows.Columns()
		fmt.Fprintf(&b, "%q %s types %s", cols, tell(err), tellTypes(rows))
		for rows.Next() {
			vals := make([]any, len(cols))
			dest := make([]any, len(cols))
			for i := range vals {
				dest[i] = &vals[i]
			}
			err := rows.Scan(dest...)
			fmt.Fprintf(&b, "\n  %s", tell(err))
			for _, v := range vals {
				fmt.Fprintf(&b, " %T:%#v", v, v)
				if t, ok := v.(time.Time); ok {
					fmt.Fprintf(&b, "(%s %s)", t.Location(), t.Format(time.RFC3339Nano))
				}
			}
		}
		if !rows.NextResultSet() {
			break
		}
		b.WriteString("\nnext set ")
	}
	fmt.Fprintf(&b, "\nerr %s close %s", tell(rows.Err()), tell(rows.Close()))
	return b.String()
}

func tellResult(res sql.Result, err error) string {
	if err != nil {
		return tell(err)
	}
	id, err := res.LastInsertId()
	n, err2 := res.RowsAffected()
	return fmt.Sprintf("id %d %s rows %d %s", id, tell(err), n, tell(err2))
}

func tellRow(row *sql.Row) string {
	var s any
	err := row.Scan(&s)
	return fmt.Sprintf("%T:%v %s", s, s, tell(err))
}

func opQuery(query string, args ...any) diffOp {
	return diffOp{name: "Query " + query, do: func(ctx context.Context, db *sql.DB, hint string) string {
		return tellRows(db.QueryContext(ctx, strings.ReplaceAll(query, "@", hint), args...))
	}}
}

func opRow(query string, args ...any) diffOp {
	return diffOp{name: "QueryRow " + query, do: func(ctx context.Context, db *sql.DB, hint string) string {
		return tellRow(db.QueryRowContext(ctx, strings.ReplaceAll(query, "@", hint), args...))
	}}
}

func opExec(query string, args ...any) diffOp {
	return diffOp{name: "Exec " + query, do: func(ctx context.Context, db *sql.DB, hint string) string {
		return tellResult(db.ExecContext(ctx, strings.ReplaceAll(query, "@", hint), args...))
	}}
}

func opPrepared(query string, args ...any) diffOp {
	return diffOp{name: "prepared " + query, plain: strings.Contains(query, "noprepare"), do: func(ctx context.Context, db *sql.DB, hint string) string {
		st, err := db.PrepareContext(ctx, strings.ReplaceAll(query, "@", hint))
		if err != nil {
			return tell(err)
		}
		defer st.Close()
		return tellRows(st.QueryContext(ctx, args...)) + "\n" + tellResult(st.ExecContext(ctx, args...)) + "\n" + tellRow(st.QueryRow(args...))
	}}
}

func opTx(opts *sql.TxOptions, commit bool) diffOp {
	return diffOp{name: fmt.Sprintf("transaction %+v", opts), do: func(ctx context.Context, db *sql.DB, hint string) string {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return tell(err)
		}
		var b strings.Builder
		b.WriteString(tellRows(tx.QueryContext(ctx, `SELECT `+hint+` ?, x FROM t`, int64(1))))
		b.WriteString(tellResult(tx.Exec(`UPDATE t SET a = ?`, "a")))
		if st, err := tx.Prepare(`SELECT ` + hint + ` ?, y FROM t`); err == nil {
			b.WriteString(tellRows(st.Query(2.5)))
			b.WriteString(tell(st.Close()))
		} else {
			b.WriteString(tell(err))
		}
		if commit {
			b.WriteString(tell(tx.Commit()))
		}
		return b.String() + tell(tx.Rollback())
	}}
}

// diffOps is a day in an application's life. Every text is used once, so that under a hint its first run is a miss.
func diffOps() []diffOp {
	var nilValuer *valuer
	when := time.Date(2024, 7, 1, 12, 0, 0, 5, time.FixedZone("X", 3600))
	return []diffOp{
		opQuery(`SELECT @ types FROM t`),
		opRow(`SELECT @ types, 2 FROM t`),
		opQuery(`SELECT @ 1, x FROM t`),
		opQuery(`SELECT @ ?, ?, ?, ?, ?, ? FROM t`, 1, "two", []byte("three"), nil, when, true),
		opQuery(`SELECT @ ?, ?, ?, ? FROM t`, sql.NullString{}, nilValuer, valuer{"v"}, int8(-3)),
		opQuery(`SELECT @ ?, 'slice' FROM t`, []string{"a", "b"}),
		opQuery(`SELECT @ ?, 'high bit' FROM t`, uint64(1<<63)),
		opQuery(`SELECT @ ?, 'removed' FROM t`, removed{}),
		opQuery(`SELECT @ ?, ?, 'removed first' FROM t`, removed{}, "kept"),
		opQuery(`SELECT @ ?, 'refused' FROM t`, refused{}),
		opQuery(`SELECT @ ?, 'struct' FROM t`, struct{ A int }{1}),
		opQuery(`SELECT @ ?, 'bad valuer' FROM t`, valuer{[]string{"x"}}),
		opQuery(`SELECT @ ?, 'named' FROM t`, sql.Named("who", "me")),
		{name: "badly named", outcome: true, do: opQuery(`SELECT @ ?, 'badly named' FROM t`, sql.Named("9", "me")).do},
		opQuery(`SELECT @ ?, ?, 'too few' FROM t`, 1),
		opQuery(`SELECT @ ?, 'too many' FROM t`, 1, 2, 3),
		opQuery(`SELECT @ ?, 'float' FROM t`, 0.5),
		opQuery(`SELECT @ ?, 'false' FROM t`, false),
		opQuery(`SELECT @ fail FROM t`),
		opQuery(`SELECT @ ?, fail FROM t`, 1),
		opQuery(`SELECT @ late FROM t`),
		opRow(`SELECT @ late, 2 FROM t`),
		opQuery(`SELECT @ badclose FROM t`),
		opRow(`SELECT @ badclose, 2 FROM t`),
		opQuery(`SELECT @ sets FROM t`),
		opQuery(`SELECT @ empty FROM t`),
		opRow(`SELECT @ empty, 2 FROM t`),
		opQuery(`SELECT @ badconn FROM t`),
		opQuery(`SELECT @ badconn, ? FROM t`, "again"),
		opExec(`INSERT INTO t VALUES (?, ?)`, "a", 2),
		opExec(`INSERT INTO t VALUES ('slice', ?)`, []string{"x", "y"}),
		opExec(`INSERT INTO t VALUES (fail, ?)`, 1),
		opExec(`CREATE TABLE ddl (a int)`),
		opExec(`INSERT INTO t VALUES ('named', ?)`, sql.Named("n", 1)),
		opExec(`INSERT INTO t VALUES ('few', ?)`),
		opExec(`SELECT @ 1, 'exec' FROM t`),
		opQuery(`INSERT INTO t VALUES (?) RETURNING a`, "r"),
		opRow(`INSERT INTO t VALUES (?, 1) RETURNING a`, "r"),
		opQuery(`INSERT INTO t VALUES (types) RETURNING a`),
		opQuery(`INSERT INTO t VALUES (fail) RETURNING a`),
		opQuery(`INSERT INTO t VALUES (late) RETURNING a`),
		opQuery(`INSERT INTO t VALUES (sets) RETURNING a`),
		opPrepared(`SELECT @ ?, 'prepared' FROM t`, "p"),
		opPrepared(`SELECT @ ?, ?, 'prepared slice' FROM t`, []string{"s"}, 0.5),
		opPrepared(`SELECT @ ?, 'prepared removed' FROM t`, removed{}),
		opPrepared(`SELECT @ ?, ?, 'prepared few' FROM t`, "one"),
		opPrepared(`SELECT @ ?, 'prepared many' FROM t`, "one", "two"),
		opPrepared(`SELECT @ ?, 'prepared named' FROM t`, sql.Named("q", "one")),
		opPrepared(`SELECT @ ?, 'prepared uint64' FROM t`, uint64(1<<63)),
		opPrepared(`SELECT @ ?, 'prepared false' FROM t`, false),
		opPrepared(`SELECT @ ?, 'prepared valuer' FROM t`, valuer{"v"}),
		opPrepared(`SELECT @ ?, 'prepared bad valuer' FROM t`, valuer{[]string{"x"}}),
		opPrepared(`SELECT @ types, 'prepared' FROM t`),
		opPrepared(`SELECT @ fail, 'prepared' FROM t`),
		opPrepared(`SELECT @ noprepare FROM t`),
		opPrepared(`UPDATE t SET a = ?`, "u"),
		opTx(nil, true),
		opTx(nil, false),
		opTx(&sql.TxOptions{Isolation: sql.LevelSerializable}, true),
		opTx(&sql.TxOptions{ReadOnly: true}, true),
		{name: "Ping", do: func(ctx context.Context, db *sql.DB, _ string) string { return tell(db.PingContext(ctx)) }},
		// A cached query does not ask a driver that ignores its context.
		{name: "cancelled before", plain: true, do: func(ctx context.Context, db *sql.DB, hint string) string {
			c, err := db.Conn(ctx)
			if err != nil {
				return tell(err)
			}
			defer c.Close()
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			rows, qerr := c.QueryContext(ctx, `SELECT `+hint+` ?, 'cancelled' FROM t`, 1)
			if qerr == nil {
				rows.Close()
			}
			_, xerr := c.ExecContext(ctx, `UPDATE t SET cancelled = 1`)
			_, berr := c.BeginTx(ctx, nil)
			return tell(qerr) + tell(xerr) + tell(berr)
		}},
		{name: "one Conn", do: func(ctx context.Context, db *sql.DB, hint string) string {
			c, err := db.Conn(ctx)
			if err != nil {
				return tell(err)
			}
			defer c.Close()
			out := tellRows(c.QueryContext(ctx, `SELECT `+hint+` ?, 'conn' FROM t`, "c"))
			out += tellResult(c.ExecContext(ctx, `UPDATE t SET conn = ?`, "c"))
			st, err := c.PrepareContext(ctx, `SELECT `+hint+` ?, 'conn prepared' FROM t`)
			if err != nil {
				return out + tell(err)
			}
			out += tellRows(st.Query("d")) + tell(st.Close())
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return out + tell(err)
			}
			return out + tellRows(tx.Query(`SELECT `+hint+` ?, 'conn tx' FROM t`, "e")) + tell(tx.Commit())
		}},
		{name: "a statement of the pool in a transaction", do: func(ctx context.Context, db *sql.DB, hint string) string {
			st, err := db.PrepareContext(ctx, `UPDATE t SET pooled = ?`)
			if err != nil {
				return tell(err)
			}
			defer st.Close()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return tell(err)
			}
			return tellResult(tx.StmtContext(ctx, st).Exec(1)) + tellResult(tx.Stmt(st).Exec(2)) + tell(tx.Commit())
		}},
		{name: "without contexts", do: func(_ context.Context, db *sql.DB, hint string) string {
			out := tellRows(db.Query(`SELECT `+hint+` ?, 'no context' FROM t`, 1)) + tellResult(db.Exec(`UPDATE t SET nocontext = ?`, 1))
			st, err := db.Prepare(`SELECT ` + hint + ` ?, 'no context prepared' FROM t`)
			if err != nil {
				return out + tell(err)
			}
			defer st.Close()
			tx, err := db.Begin()
			if err != nil {
				return out + tell(err)
			}
			return out + tellRows(st.Query(1)) + tellResult(st.Exec(2)) + tellRows(tx.Stmt(st).Query(3)) + tell(tx.Rollback())
		}},
	}
}

// differ runs all ops on a bare pool and on a wrapped one.
func differ(t *testing.T, s shape, skip bool, hint string) {
	bareDB, herdDB := &shapeDB{shape: s, skip: skip}, &shapeDB{shape: s, skip: skip}
	bare := sql.OpenDB(bareDB)
	h, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	wrapped := sql.OpenDB(h.Connector(herdDB))
	for _, p := range []*sql.DB{bare, wrapped} {
		p.SetMaxIdleConns(1)
	}
	ctx := t.Context()
	for _, op := range diffOps() {
		if op.plain && hint != "" {
			continue
		}
		want := op.do(ctx, bare, hint)
		wantLog := bareDB.taken()
		got := op.do(ctx, wrapped, hint)
		log := herdDB.taken()
		if hint != "" {
			// A miss does in another pool what the bare driver does in this one.
			wantLog, log = ran(wantLog), ran(log)
			again := op.do(ctx, wrapped, hint)
			herdDB.taken()
			if want := op.do(ctx, bare, hint); again != want {
				t.Errorf("%s: %s, a second time:\n got %s\nwant %s", s.name, op.name, again, want)
			}
			bareDB.taken()
		}
		if got != want {
			t.Errorf("%s: %s:\n got %s\nwant %s", s.name, op.name, got, want)
		}
		if hint != "" && strings.HasPrefix(op.name, "prepared") {
			// The same statement in one op is a hit already.
			log, wantLog = once(log), once(wantLog)
		}
		if !slices.Equal(log, wantLog) && !op.outcome {
			t.Errorf("%s: %s: reached the driver:\n got %s\nwant %s", s.name, op.name, strings.Join(log, "\n     "), strings.Join(wantLog, "\n     "))
		}
		if t.Failed() {
			break
		}
	}
	bare.Close()
	wrapped.Close()
	if herdDB.open != 0 || bareDB.open != 0 {
		t.Errorf("%s: %d connections left open, bare %d", s.name, herdDB.open, bareDB.open)
	}
}

func TestAStatementWithoutAHintBehavesAsOnTheBareDriverWhateverTheDriverImplements(t *testing.T) {
	for _, s := range allShapes() {
		differ(t, s, false, "")
	}
}

func TestADriverThatAnswersErrSkipBehavesAsBare(t *testing.T) {
	for _, s := range allShapes() {
		if strings.Contains(s.name, "conn contexts") || strings.Contains(s.name, "conn everything") || strings.Contains(s.name, "conn both ages") {
			differ(t, s, true, "")
			differ(t, s, true, "/* @cache ttl=1h */")
		}
	}
}

func TestMissAndHitCannotBeToldFromTheBareDriverWhateverItImplements(t *testing.T) {
	for _, s := range allShapes() {
		differ(t, s, false, "/* @cache ttl=1h */")
	}
}
