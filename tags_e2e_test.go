package sqlherd_test

// Row-level tags, bound to arguments, through every way to write.

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// A listener writes down the tags that are invalidated.
type listener struct {
	sqlherd.ObserverBase
	mu   sync.Mutex
	tags []string
}

func (l *listener) Invalidation(e sqlherd.InvalidationEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tags = append(l.tags, e.Tags...)
}

// heard returns what was invalidated since the last call, in order.
func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tags := l.tags
	l.tags = nil
	return tags
}

func (l *listener) want(t *testing.T, when string, tags ...string) {
	t.Helper()
	if got := l.heard(); !slices.Equal(got, tags) {
		t.Errorf("%s: %v invalidated, want %v", when, got, tags)
	}
}

func listen(t *testing.T, cfg sqlherd.Config) (*sql.DB, *sqlherd.Herd, *fakeDB, *listener) {
	l := &listener{}
	cfg.Observer = l
	if cfg.Dialect == 0 {
		cfg.Dialect = sqlherd.PostgreSQL
	}
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, cfg)
	return p, h, db, l
}

const updateRow = "UPDATE /* @invalidate tags=product/{1} tables=none */ products SET v = 'x' WHERE id = $1"

func TestARowsTagIsInvalidatedByEveryWayToWriteIt(t *testing.T) {
	p, _, _, l := listen(t, sqlherd.Config{})
	ctx := t.Context()
	drain := func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	inTx := func(run func(*sql.Tx) error) error {
		tx, err := p.Begin()
		if err != nil {
			return err
		}
		if err := run(tx); err != nil {
			return err
		}
		l.want(t, "before the commit")
		return tx.Commit()
	}
	returning := updateRow + " RETURNING v"
	for name, write := range map[string]func(id any) error{
		"Exec":                    func(id any) error { _, err := p.Exec(updateRow, id); return err },
		"Query with RETURNING":    func(id any) error { return drain(p.Query(returning, id)) },
		"QueryRow with RETURNING": func(id any) error { var v string; return p.QueryRow(returning, id).Scan(&v) },
		"Exec on a Conn":          func(id any) error { _, err := connect(t, p).ExecContext(ctx, updateRow, id); return err },
		"Exec in a transaction": func(id any) error {
			return inTx(func(tx *sql.Tx) error { _, err := tx.Exec(updateRow, id); return err })
		},
		"Query in a transaction": func(id any) error { return inTx(func(tx *sql.Tx) error { return drain(tx.Query(returning, id)) }) },
		"Prepare, Exec": func(id any) error {
			st, err := p.Prepare(updateRow)
			return errors.Join(err, second(st.Exec(id)), st.Close())
		},
		"Prepare, Query": func(id any) error {
			st, err := p.Prepare(returning)
			return errors.Join(err, drain(st.Query(id)), st.Close())
		},
		"Prepare in a transaction": func(id any) error {
			return inTx(func(tx *sql.Tx) error { st, err := tx.Prepare(updateRow); return errors.Join(err, second(st.Exec(id))) })
		},
		"a statement of the pool's Tx": func(id any) error {
			st, err := p.Prepare(updateRow)
			return errors.Join(err, inTx(func(tx *sql.Tx) error { return second(tx.Stmt(st).Exec(id)) }), st.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, id := range []any{7, "8"} {
				if err := write(id); err != nil {
					t.Fatal(err)
				}
				l.want(t, name, fmt.Sprintf("g:product/%v", id))
			}
		})
	}
}

func second(_ sql.Result, err error) error { return err }

func TestAPreparedUpdateExecutedAThousandTimesInvalidatesAThousandRows(t *testing.T) {
	for _, within := range []bool{false, true} {
		p, h, _, l := listen(t, sqlherd.Config{})
		prepare := p.Prepare
		var tx *sql.Tx
		if within {
			tx = begin(t, p)
			prepare = tx.Prepare
		}
		st, err := prepare(updateRow)
		if err != nil {
			t.Fatal(err)
		}
		const n = 1000
		var want []string
		for i := range n {
			if _, err := st.Exec(i); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("g:product/%d", i))
		}
		if within {
			l.want(t, "before the commit")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		l.want(t, fmt.Sprint("within a transaction: ", within), want...)
		if st := h.Stats(); st.Invalidations != n || st.UnknownWrites != 0 {
			t.Errorf("%d invalidations, %d unknown writes", st.Invalidations, st.UnknownWrites)
		}
	}
}

// An id is what applications make of a key.
type id struct{ n int }

func (i id) Value() (driver.Value, error) { return int64(i.n), nil }

func TestReadersAndWritersMeetAtOneTagWhateverTypeTheirArgumentHas(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.FixedZone("x", 3600))
	seven, null := 7, (*int)(nil)
	for _, same := range [][]any{
		{7, int64(7), uint8(7), "7", []byte("7"), id{7}, &seven, sql.NullInt64{Int64: 7, Valid: true}},
		{nil, null, sql.NullInt64{}, []byte(nil)},
		{true, "true", sql.NullBool{Bool: true, Valid: true}},
		{at, at.UTC(), sql.NullTime{Time: at, Valid: true}},
		{"a/b,c", []byte("a/b,c")},
		{[]byte{0xff, 0}},
		{1.5, "1.5", float32(1.5)},
	} {
		for _, read := range same {
			for _, written := range same {
				p, _, _, _ := listen(t, sqlherd.Config{})
				query := "SELECT /* @cache ttl=1m tags=product/{1} tables=none */ v FROM products WHERE id = $1"
				infoOf(t, t.Context(), p, query, read)
				if info := infoOf(t, t.Context(), p, query, read); info.Outcome != sqlherd.Hit {
					t.Errorf("%T %v: %v, %v", read, read, info.Outcome, info.Detail)
				}
				do(t, p, updateRow, written)
				if info := infoOf(t, t.Context(), p, query, read); info.Outcome != sqlherd.Miss {
					t.Errorf("read by %T %v, written by %T %v: %v", read, read, written, written, info.Outcome)
				}
			}
		}
	}
}

func TestAWriteWhoseTagCannotBeNamedInvalidatesEverythingAndIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		query string
		args  []any
	}{
		"argument that is not there":        {"UPDATE /* @invalidate tags=product/{2} */ products SET v = $1", []any{"x"}},
		"name that is not there":            {"UPDATE /* @invalidate tags=product/{id} */ products SET v = $1", []any{"x"}},
		"tag that becomes too long":         {updateRow, []any{strings.Repeat("x", 5000)}},
		"hint that is malformed":            {"UPDATE /* @invalidate tagz=a */ products SET v = $1", []any{"x"}},
		"hint that is malformed, CALL":      {"CALL /* @invalidate */ p($1)", []any{"x"}},
		"missing argument, Query":           {"UPDATE /* @invalidate tags=a/{2} */ products SET v = $1 RETURNING v", []any{"x"}},
		"missing argument, no table at all": {"CALL /* @invalidate tags=a/{2} */ p($1)", []any{"x"}},
	} {
		for _, skip := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", ErrSkip: ", skip), func(t *testing.T) {
				var log bytes.Buffer
				p, h, db, l := listen(t, sqlherd.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				db.skip = skip
				db.handle = func(_ context.Context, _ string, _ []driver.NamedValue) (*fakeResult, error) { return one("v"), nil }
				for n := range 2 {
					var err error
					if strings.Contains(c.query, "RETURNING") {
						var v string
						err = p.QueryRow(c.query, c.args...).Scan(&v)
					} else {
						_, err = p.Exec(c.query, c.args...)
					}
					if err != nil {
						t.Fatal(err)
					}
					l.want(t, name, "*")
					if st := h.Stats(); st.HintErrors != uint64(n+1) || st.UnknownWrites != uint64(n+1) {
						t.Errorf("%d malformed hints and %d unknown writes after %d statements", st.HintErrors, st.UnknownWrites, n+1)
					}
				}
				if n := strings.Count(log.String(), `msg="sqlherd: malformed hint`); n != 1 {
					t.Errorf("logged %d times:\n%s", n, log.String())
				}
			})
		}
	}
}

func TestUnderStrictHintsAWriteWhoseTagCannotBeNamedDoesNotRun(t *testing.T) {
	for _, skip := range []bool{false, true} {
		p, h, db, l := listen(t, sqlherd.Config{StrictHints: true})
		db.skip = skip
		for n, query := range []string{"UPDATE /* @invalidate tags=product/{2} */ products SET v = $1", "UPDATE /* @invalidate tagz=a */ products SET v = $1"} {
			var bad *sqlherd.HintError
			if _, err := p.Exec(query, "x"); !errors.As(err, &bad) {
				t.Errorf("%s: %v", query, err)
			}
			if st := h.Stats(); st.HintErrors != uint64(n+1) {
				t.Errorf("%d malformed hints, want %d", st.HintErrors, n+1)
			}
		}
		l.want(t, "nothing ran")
		if n := db.queries.Load(); n != 0 {
			t.Errorf("%d statements ran", n)
		}
	}
}

func TestTagsTakeNamedArguments(t *testing.T) {
	p, _, _, l := listen(t, sqlherd.Config{Dialect: sqlherd.SQLite})
	do(t, p, "UPDATE /* @invalidate tags=shop/{shop}/{id},all tables=none */ products SET v = @v WHERE id = @id",
		sql.Named("v", "x"), sql.Named("id", 7), sql.Named("shop", "a b"))
	l.want(t, "by name", "g:shop/a b/7", "g:all")
}

func TestAnInvalidateNarrowsAddsOrTakesAway(t *testing.T) {
	p, h, _, l := listen(t, sqlherd.Config{})
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"UPDATE t SET v = 1", []string{"t:t"}},
		{"UPDATE t SET v = 1 /* @invalidate tags=a */", []string{"t:t", "g:a"}},
		{"UPDATE t SET v = 1 /* @invalidate tables=U,s.v */", []string{"t:u", "t:v", "t:t"}},
		{"UPDATE t SET v = 1 /* @invalidate tables=none */", nil},
		{"UPDATE t SET v = 1 /* @invalidate none */", nil},
		{"UPDATE t SET v = 1 /* @invalidate tables=none,u */", []string{"t:u"}},
		{"CALL p()", []string{"*"}},
		{"CALL p() /* @invalidate tables=t */", []string{"t:t"}},
		{"CALL p() /* @invalidate tags=a */", []string{"g:a"}},
		{"CALL p() /* @invalidate none */", nil},
		{"SELECT create_order(7)", []string{"*"}},
		{"SELECT create_order(7) /* @invalidate tables=orders */", []string{"t:orders"}},
		{"SELECT report(7) /* @invalidate none */", nil},
		{"SELECT report(7) /* @cache ttl=1m */", nil}, // it is said to be a query
		{"SELECT name(id) FROM t", nil},
		{"SELECT v FROM t", nil},
		{"DELETE FROM t USING u", []string{"t:t"}},
		{"TRUNCATE t, s.u", []string{"t:t", "t:u"}},
		{"TRUNCATE t CASCADE", []string{"*"}},
		{"COPY t FROM STDIN", []string{"t:t"}},
		{"SET x = 1", nil}, {"ANALYZE t", nil}, {"VACUUM t", nil}, {"LISTEN c", nil}, {"SAVEPOINT a", nil}, {"EXPLAIN DELETE FROM t", nil},
		{"EXPLAIN ANALYZE DELETE FROM t", []string{"t:t"}},
		{"WITH x AS (DELETE FROM t RETURNING v) SELECT v FROM x", []string{"t:t"}},
		{"REFRESH MATERIALIZED VIEW m", []string{"t:m"}},
		{"ALTER TABLE a RENAME TO b", []string{"t:a", "t:b"}},
		{"FROBNICATE t", []string{"*"}},
	} {
		before := h.Stats().UnknownWrites
		for _, run := range []func(string) error{
			func(q string) error { _, err := p.Exec(q); return err },
			func(q string) error {
				rows, err := p.Query(q)
				if err == nil {
					err = rows.Close()
				}
				return err
			},
		} {
			// A connection of its own, since some of these leave a transaction or an unknown state.
			p.SetMaxIdleConns(-1)
			if err := run(c.query); err != nil {
				t.Fatal(err)
			}
			l.want(t, c.query, c.want...)
		}
		if n, all := h.Stats().UnknownWrites-before, slices.Contains(c.want, "*"); all && n != 2 || !all && n != 0 {
			t.Errorf("%s: counted %d times as unknown", c.query, n)
		}
	}
}

// Concatenation would not do: "name/a/b" is not the tag of name/{1} with a/b.
func TestAnInvalidationByTagReachesARowWhateverItsValue(t *testing.T) {
	p, h, _, l := listen(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	const read = "SELECT /* @cache ttl=1h tables=none tags=name/{1} */ v FROM t WHERE name = $1"
	for _, v := range []any{7, uint8(8), "plain", "a/b", "50%, or \n", "", nil, []byte("b/c"), []byte{0xff}, true, 1.5, time.Unix(1, 5), sql.NullString{String: "x/y", Valid: true}} {
		for _, want := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			if info := infoOf(t, t.Context(), p, read, v); info.Outcome != want {
				t.Fatalf("%T %v: %v %v, want %v", v, v, info.Outcome, info.Detail, want)
			}
		}
		tag, err := sqlherd.Tag("name/{1}", v)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Invalidate(t.Context(), tag); err != nil {
			t.Fatal(err)
		}
		l.want(t, "Invalidate", "g:"+tag)
		if got := infoOf(t, t.Context(), p, read, v).Outcome; got != sqlherd.Miss {
			t.Errorf("%T %v: after the invalidation of %q: %v", v, v, tag, got)
		}
		if _, err := p.Exec("UPDATE /* @invalidate tables=none tags=name/{1} */ t SET v = 1 WHERE name = $1", v); err != nil {
			t.Fatal(err)
		}
		l.want(t, "a write", "g:"+tag)
	}
	if tag, err := sqlherd.Tag("t/{id}/{2}", sql.Named("id", 3), "x"); tag != "t/3/x" || err != nil {
		t.Errorf("%q, %v", tag, err)
	}
}

func TestATagThatCannotBeMadeSaysWhy(t *testing.T) {
	for template, want := range map[string]string{
		"a/{":    `template "a/{" has a brace without its partner; an argument is {1} or {name}`,
		"":       `template "" must not be empty`,
		"a/{2}":  `template "a/{2}": the statement has 1 argument(s)`,
		"a/{id}": `template "a/{id}": the statement has no argument named id`,
		"a/{1}":  `template "a/{1}": an argument of type []string has no place in a tag`,
	} {
		if tag, err := sqlherd.Tag(template, []string{"x"}); tag != "" || err == nil || err.Error() != "sqlherd: Tag: "+want {
			t.Errorf("%q, %v\nwant %s", tag, err, want)
		}
	}
	if _, err := sqlherd.Tag("a/{1}", strings.Repeat("x", sqlherd.TagBytesMax)); err == nil || !strings.Contains(err.Error(), "1026 bytes long") {
		t.Errorf("a tag that is too long: %v", err)
	}
}

func TestEveryStatementThatInvalidatesEverythingIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	p, h, _, _ := listen(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p.SetMaxIdleConns(-1) // DO leaves a connection that is not trusted
	for range 3 {
		for _, q := range []string{"TRUNCATE t CASCADE", "DO $$ BEGIN PERFORM f(); END $$", "SELECT create_order(7) AS made", "CALL a() /* @invalidate tables=t */"} {
			if _, err := p.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := h.Stats().UnknownWrites; n != 9 {
		t.Errorf("%d unknown writes, want 9", n)
	}
	for _, word := range []string{"TRUNCATE", "DO", "create_order"} {
		n := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "a statement invalidates everything") && strings.Contains(line, "word="+word+"\n") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %d lines, want one", word, n)
		}
	}
	if n := strings.Count(log.String(), "a statement invalidates everything"); n != 3 {
		t.Errorf("%d lines in all, want 3:\n%s", n, &log)
	}

	log.Reset()
	for n := range 300 {
		if _, err := p.Exec(fmt.Sprintf("SELECT create_order(%d)", n)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "a statement invalidates everything"); n != 97 {
		t.Errorf("%d lines of texts that differ in a value, want 100 with those from before", n+3)
	}
}

func TestTagsOfTheContextAreInvalidatedAlsoByACallThatIsSaidToWriteNothing(t *testing.T) {
	p, _, _, l := listen(t, sqlherd.Config{})
	ctx := sqlherd.WithTags(t.Context(), "mine")
	if _, err := p.ExecContext(ctx, "CALL p() /* @invalidate none */"); err != nil {
		t.Fatal(err)
	}
	l.want(t, "a call", "g:mine")
	if _, err := p.ExecContext(ctx, "UPDATE t SET v = 1 /* @invalidate none */"); err != nil {
		t.Fatal(err)
	}
	l.want(t, "an update", "g:mine")
	if _, err := p.ExecContext(ctx, "SELECT v FROM t"); err != nil {
		t.Fatal(err)
	}
	l.want(t, "a read")
}

// What MySQL commits for, it commits also in a transaction that is then rolled back.
func TestAWriteThatATruncateCommittedIsInvalidatedThoughTheTransactionIsRolledBack(t *testing.T) {
	for _, commits := range []string{"TRUNCATE u", "LOCK TABLES u WRITE", "ANALYZE TABLE u", "CREATE TABLE w (a int)"} {
		for d, stale := range map[sqlherd.Dialect]bool{sqlherd.MySQL: false, sqlherd.PostgreSQL: true} {
			p, _, _, l := listen(t, sqlherd.Config{Dialect: d})
			tx := begin(t, p)
			do(t, tx, "UPDATE t SET v = 1")
			do(t, tx, commits)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(l.heard(), "t:t"); got == stale {
				t.Errorf("%v, %s: the table is invalidated: %v", d, commits, got)
			}
		}
	}
}

// A deadlock in MySQL, or OR ROLLBACK in SQLite, ends the transaction. Who goes on writes without one.
func TestAWriteBehindAStatementThatEndedTheTransactionIsInvalidatedThoughItIsRolledBack(t *testing.T) {
	for d, broken := range map[sqlherd.Dialect]bool{sqlherd.MySQL: true, sqlherd.SQLite: true, sqlherd.PostgreSQL: false} {
		p, _, db, l := listen(t, sqlherd.Config{Dialect: d})
		db.handle = func(_ context.Context, query string, _ []driver.NamedValue) (*fakeResult, error) {
			if strings.Contains(query, "deadlock") {
				return nil, errors.New("deadlock")
			}
			return one("v"), nil
		}
		tx := begin(t, p)
		do(t, tx, "UPDATE a SET v = 1")
		l.want(t, "in the transaction")
		if _, err := tx.Exec("SELECT deadlock FROM u FOR UPDATE"); err == nil {
			t.Fatal("no error")
		}
		do(t, tx, "UPDATE b SET v = 1")
		if got := slices.Contains(l.heard(), "t:b"); got != broken {
			t.Errorf("%v: behind the failure, the table is invalidated: %v", d, got)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(l.heard(), "t:b"); got != broken {
			t.Errorf("%v: after the rollback: %v", d, got)
		}
		tx = begin(t, p)
		do(t, tx, "UPDATE c SET v = 1")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		l.want(t, "a transaction after it")
	}
}

func TestInvalidateAllCostsTheSameWhateverIsCached(t *testing.T) {
	p, h, _, l := listen(t, sqlherd.Config{})
	query := "SELECT /* @cache ttl=1m tags=a/{1} */ v FROM t WHERE id = $1"
	for i := range 500 {
		infoOf(t, t.Context(), p, query, i)
	}
	l.heard()
	before := h.Stats()
	if err := h.InvalidateAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want(t, "one tag, whatever is cached", "*")
	if after := h.Stats(); after.Invalidations != before.Invalidations+1 || after.UnknownWrites != 0 {
		t.Errorf("%d invalidations", after.Invalidations-before.Invalidations)
	}
	for i := range 500 {
		if info := infoOf(t, t.Context(), p, query, i); info.Outcome != sqlherd.Miss {
			t.Fatalf("%d: %v", i, info.Outcome)
		}
	}
}

func TestAStatementThatInvalidatesEverythingIsLoggedOnceWithTheWordToBlame(t *testing.T) {
	var log bytes.Buffer
	p, _, _, _ := listen(t, sqlherd.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		do(t, p, "CALL p()")
	}
	if n := strings.Count(log.String(), "invalidates everything"); n != 1 || !strings.Contains(log.String(), "word=CALL") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
