package sqlherd_test

// Hints, rules and contexts through a whole pool.

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
)

// infoOf runs the query and reads its first value.
func infoOf(t *testing.T, ctx context.Context, p *sql.DB, query string, args ...any) sqlherd.Info {
	t.Helper()
	var info sqlherd.Info
	rows, err := p.QueryContext(sqlherd.WithInfo(ctx, &info), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	for rows.Next() {
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return info
}

func TestEveryQueryThatMayNotBeCachedIsNotAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		query  string
		reason sqlherd.Reason
		detail string
	}{
		{"SELECT /* @cache ttl=1m */ nextval('s')", sqlherd.ReasonVolatile, "nextval"},
		{"SELECT /* @cache ttl=1m */ pg_catalog.nextval('s') FROM t", sqlherd.ReasonVolatile, "nextval"},
		{"SELECT /* @cache ttl=1m */ pg_advisory_lock(1)", sqlherd.ReasonVolatile, "pg_advisory_lock"},
		{"SELECT /* @cache ttl=1m */ set_config('a', 'b', false)", sqlherd.ReasonVolatile, "set_config"},
		{"/* @cache ttl=1m */ WITH x AS (SELECT v FROM t FOR UPDATE) SELECT v FROM x", sqlherd.ReasonLocking, ""},
		{"SELECT /* @cache ttl=1m */ v FROM t FOR SHARE", sqlherd.ReasonLocking, ""},
		{"/* @cache ttl=1m */ EXPLAIN ANALYZE INSERT INTO t VALUES (1)", sqlherd.ReasonWrite, ""},
		{"/* @cache ttl=1m */ WITH x AS (UPDATE t SET v = 'x' RETURNING v) SELECT v FROM x", sqlherd.ReasonWrite, ""},
		{"/* @cache ttl=1m */ WITH x AS (DELETE FROM t RETURNING v) SELECT v FROM x", sqlherd.ReasonWrite, ""},
		{"SELECT /* @cache ttl=1m */ v INTO u FROM t", sqlherd.ReasonWrite, ""},
		{"INSERT /* @cache ttl=1m */ INTO t VALUES ('x') RETURNING v", sqlherd.ReasonWrite, ""},
		{"CALL /* @cache ttl=1m */ p()", sqlherd.ReasonWrite, ""},
		{"SELECT /* @cache ttl=1m */ v FROM t; SELECT 2", sqlherd.ReasonMulti, ""},
		{"SELECT /* @cache ttl=1m */ relname FROM pg_class", sqlherd.ReasonCatalog, "pg_class"},
		{"SELECT /* @cache ttl=1m */ v FROM elsewhere", sqlherd.ReasonTable, "elsewhere"},
		{"SELECT /* @cache ttl=1m tables=elsewhere */ v FROM t", sqlherd.ReasonTable, "elsewhere"},
		{"SELECT /* @cache ttl=1m */ random() FROM t", sqlherd.ReasonVolatile, "random"},
		{"SELECT /* @nocache */ v FROM t", sqlherd.ReasonOff, ""},
		{"SELECT /* @cache ttl=0 */ v FROM t", sqlherd.ReasonOff, ""},
		{"SELECT /* @cache ttl=forever */ v FROM t", sqlherd.ReasonHint, "ttl"},
		{"SELECT /* @cache ttl=1m tags=a/{3} */ v FROM t WHERE a = $1", sqlherd.ReasonHint, "a/{3}"},
		{"SELECT /* @cache ttl=1m */ 'unterminated FROM t", sqlherd.ReasonNone, ""},
	} {
		t.Run(c.query, func(t *testing.T) {
			db := newFakeDB(t, slowly(0, "rows"))
			p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Tables: []string{"t"}})
			for range 2 {
				// A connection of its own each time, since some of them leave it in an unknown state.
				p.SetMaxIdleConns(-1)
				info := infoOf(t, t.Context(), p, c.query, "secret")
				if c.reason == sqlherd.ReasonNone {
					continue // whatever it is, it is not cached: see below
				}
				if info.Outcome != sqlherd.Bypassed || info.Reason != c.reason || !strings.Contains(info.Detail, c.detail) {
					t.Errorf("%v, %v, %q; want a bypass because of %v, %q", info.Outcome, info.Reason, info.Detail, c.reason, c.detail)
				}
				if strings.Contains(info.Detail, "secret") {
					t.Errorf("the detail %q holds an argument", info.Detail)
				}
			}
			st := h.Stats()
			if c.reason != 0 && st.Reasons[c.reason] != 2 {
				t.Errorf("reasons %v", st.Reasons)
			}
			if n := db.queries.Load(); n != 2 || st.MemoryEntries != 0 || st.Loads != 0 {
				t.Errorf("%d queries, %d entries, %d loads; want 2, none, none", n, st.MemoryEntries, st.Loads)
			}
		})
	}
}

func TestAQueryIsNotCachedWhileTheHerdIsSwitchedOffOrAfterItIsClosed(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, sqlherd.Config{})
	want(t, "first", p, "rows", sqlherd.Miss, 0)
	h.SetEnabled(false)
	want(t, "switched off", p, "rows", sqlherd.Bypassed, sqlherd.ReasonDisabled)
	h.SetEnabled(true)
	want(t, "switched on", p, "rows", sqlherd.Hit, 0)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "closed", p, "rows", sqlherd.Bypassed, sqlherd.ReasonClosed)
	if n := db.queries.Load(); n != 3 {
		t.Errorf("%d queries, want 3", n)
	}
}

func TestATimeFunctionIsCachedByAHintAndRefusedUnderARule(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Rules: []sqlherd.Rule{{Tables: []string{"ruled"}}}})
	for _, c := range []struct {
		query string
		o     sqlherd.Outcome
	}{
		{"SELECT /* @cache ttl=1m */ now()", sqlherd.Hit},
		{"SELECT /* @cache ttl=1m */ v FROM t WHERE at > CURRENT_DATE", sqlherd.Hit},
		{"SELECT v FROM ruled", sqlherd.Hit},
		{"SELECT v FROM ruled WHERE at > now()", sqlherd.Bypassed},
		{"SELECT v FROM t WHERE at > now()", sqlherd.Passthrough},
		{"SELECT /* @cache ttl=1m allow=volatile */ random()", sqlherd.Hit},
		{"SELECT /* @cache ttl=1m allow=volatile */ nextval('s')", sqlherd.Bypassed},
	} {
		infoOf(t, t.Context(), p, c.query)
		if info := infoOf(t, t.Context(), p, c.query); info.Outcome != c.o {
			t.Errorf("%s: %v, %v; want %v", c.query, info.Outcome, info.Reason, c.o)
		}
	}
	// A context asks for it as a hint does.
	ctx := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{})
	infoOf(t, ctx, p, "SELECT v, 2 FROM ruled WHERE at > now()")
	if info := infoOf(t, ctx, p, "SELECT v, 2 FROM ruled WHERE at > now()"); info.Outcome != sqlherd.Hit {
		t.Errorf("with a policy in the context: %v, %v", info.Outcome, info.Reason)
	}
}

func TestAHintThatIsDataIsNone(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	for _, q := range []string{
		`SELECT '/* @cache ttl=1h */' AS a`, `SELECT "/* @cache ttl=1h */" FROM t`, `SELECT $x$/* @cache ttl=1h */$x$`,
		`SELECT $$-- @cache ttl=1h` + "\n$$", `SELECT E'\'/* @cache ttl=1h */'`, `SELECT U&'/* @cache ttl=1h */'`,
		`SELECT N'/* @cache ttl=1h */'`, `SELECT '-- @cache ttl=1h'`, "SELECT '\n-- @cache ttl=1h\n'", `SELECT x'2f2a' AS "/* @cache ttl=1h */"`,
		`SELECT v FROM t WHERE a = 'it''s /* @cache ttl=1h */'`, `SELECT v /* write to me@cache.example */ FROM t`,
	} {
		for range 2 {
			if info := infoOf(t, t.Context(), p, q, "/* @cache ttl=1h */"); info.Outcome != sqlherd.Passthrough {
				t.Errorf("%s: %v", q, info.Outcome)
			}
		}
	}
	if st := h.Stats(); st.HintErrors != 0 || st.Loads != 0 {
		t.Errorf("%d hint errors, %d loads", st.HintErrors, st.Loads)
	}
}

func TestAMalformedHintRunsAsWithoutItIsCountedAndLoggedOncePerQuery(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	var log bytes.Buffer
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 5 {
		// A trace comment makes every text another one.
		info := infoOf(t, t.Context(), p, fmt.Sprintf("SELECT /* @cache ttl=1m bogus=1 */ v FROM t /* traceparent=%d */", i))
		if info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonHint || !strings.Contains(info.Detail, "bogus") {
			t.Errorf("%v, %v, %q", info.Outcome, info.Reason, info.Detail)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, &log)
	}
	infoOf(t, t.Context(), p, "SELECT /* @cache ttl=1m */ /* @cache ttl=2m */ v, 2 FROM t")
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("two hints in one statement: logged %d times in all, want twice", n)
	}
	if _, err := p.Exec("UPDATE /* @invalidate bogus=1 */ t SET v = 'x'"); err != nil {
		t.Error(err)
	}
	if n := h.Stats().HintErrors; n != 7 {
		t.Errorf("%d hint errors, want 7", n)
	}
}

func TestWithStrictHintsAMalformedHintFailsItsStatementAndQuotesTheOption(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, StrictHints: true})
	for query, option := range map[string]string{
		"SELECT /* @cache ttl=1m bogus=1 */ v FROM t":    `"bogus=1"`,
		"SELECT /* @cache ttl=soon */ v FROM t":          `"ttl=soon"`,
		"UPDATE /* @invalidate bogus=1 */ t SET v = 'x'": `"bogus=1"`,
	} {
		_, err := queryOne(t.Context(), p, query)
		_, xerr := p.Exec(query)
		for _, err := range []error{err, xerr} {
			var he *sqlherd.HintError
			if !errors.As(err, &he) || !strings.Contains(err.Error(), option) {
				t.Errorf("%s: %v, want a *HintError that quotes %s", query, err, option)
			}
		}
	}
	if _, err := queryOne(t.Context(), p, "SELECT /* @cache ttl=1m tags=a/{3} */ v FROM t WHERE a = $1", 1); err == nil || !strings.Contains(err.Error(), "a/{3}") {
		t.Errorf("a tag with an argument that is not there: %v", err)
	}
	if _, err := queryOne(sqlherd.WithPolicy(t.Context(), sqlherd.Policy{MaxBytes: -1}), p, plain); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("an invalid policy in the context: %v", err)
	}
	if n := db.queries.Load(); n != 0 {
		t.Errorf("%d statements reached the database", n)
	}
}

func TestTraceCommentsDoNotMakeAnotherKeyAndReachTheDatabase(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	first := "/* traceparent='00-1' */ SELECT /* @cache ttl=1m */ v FROM t"
	a := infoOf(t, t.Context(), p, first)
	b := infoOf(t, t.Context(), p, "SELECT  /* @cache ttl=1m */ v\n FROM t /* traceparent='00-2' */ -- end")
	if a.Outcome != sqlherd.Miss || b.Outcome != sqlherd.Hit || a.Key != b.Key {
		t.Errorf("%v with key %s, then %v with key %s", a.Outcome, a.Key, b.Outcome, b.Key)
	}
	if got := db.statements(); len(got) != 1 || got[0] != first {
		t.Errorf("the database saw %q", got)
	}
	for _, other := range []string{
		"SELECT /*+ SeqScan(t) */ /* @cache ttl=1m */ v FROM t",
		"SELECT /* @cache ttl=1m */ v FROM t WHERE 'a' = 'a  b'",
		"SELECT /* @cache ttl=1m */ v FROM t WHERE 'a' = 'a b'",
	} {
		if info := infoOf(t, t.Context(), p, other); info.Outcome != sqlherd.Miss || info.Key == a.Key {
			t.Errorf("%s: %v, key %s", other, info.Outcome, info.Key)
		}
	}
}

func TestAPolicyInTheContextBeatsTheHint(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Tables: []string{"t"}})
	cached := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{Name: "family", MaxRows: 77})
	for _, q := range []string{
		"SELECT /* @nocache */ v FROM t", "SELECT /* @cache ttl=0 */ v, 2 FROM t", "SELECT /* @cache bogus */ v, 3 FROM t",
		"SELECT v, 4 FROM t", "SELECT /* @cache max-rows=1 */ v, 5 FROM t",
	} {
		for _, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			info := infoOf(t, cached, p, q)
			if info.Outcome != o || info.Name != "family" || info.Policy == nil || info.Policy.MaxRows != 77 {
				t.Errorf("%s: %v, name %q, policy %+v; want %v", q, info.Outcome, info.Name, info.Policy, o)
			}
		}
	}
	off := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{TTL: -1})
	if info := infoOf(t, off, p, "SELECT /* @cache ttl=1m */ v, 6 FROM t"); info.Reason != sqlherd.ReasonOff {
		t.Errorf("a policy that is off: %v, %v", info.Outcome, info.Reason)
	}
	// It does not make cacheable what is not.
	for q, reason := range map[string]sqlherd.Reason{
		"SELECT v FROM t FOR UPDATE": sqlherd.ReasonLocking, "SELECT v FROM elsewhere": sqlherd.ReasonTable,
		"UPDATE t SET v = 'x' RETURNING v": sqlherd.ReasonWrite, "SELECT random() FROM t": sqlherd.ReasonVolatile,
	} {
		if info := infoOf(t, cached, p, q); info.Reason != reason {
			t.Errorf("%s: %v, %v; want %v", q, info.Outcome, info.Reason, reason)
		}
	}
	// What the context's policy says of tables holds for it, and not what the hint says.
	only := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{Tables: []string{"none", "t"}, Tags: []string{"x"}})
	if info := infoOf(t, only, p, "SELECT /* @cache tables=other */ v FROM elsewhere"); info.Outcome != sqlherd.Miss {
		t.Errorf("tables of the context: %v, %v", info.Outcome, info.Reason)
	}
	var family sqlherd.FamilyStats
	for _, f := range h.Stats().Families {
		if f.Name == "family" {
			family = f
		}
	}
	if family.Outcomes[sqlherd.Hit] != 5 || family.Outcomes[sqlherd.Miss] != 5 {
		t.Errorf("the family that the context names has %v", family.Outcomes)
	}
}

func TestScopesSeeOnlyTheirOwnRows(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{})
	keys := make(map[string]bool)
	for _, scope := range []string{"", "tenant:1", "tenant:2", "tenant:\x001", "tenant", "tenant:1\n", "tenant:1\x00", "{tenant:1}", "tenant:{1}", "tenant:1,2", "tenant:1 2", ":", "{", "}", "\n", "\x00"} {
		ctx := sqlherd.WithScope(t.Context(), scope)
		if info := infoOf(t, ctx, p, hinted); info.Outcome != sqlherd.Miss || keys[info.Key] {
			t.Errorf("scope %q: %v, key %s", scope, info.Outcome, info.Key)
		} else {
			keys[info.Key] = true
		}
		if info := infoOf(t, ctx, p, hinted); info.Outcome != sqlherd.Hit {
			t.Errorf("scope %q again: %v", scope, info.Outcome)
		}
	}
	// The scope of a hint is one too.
	byHint := "SELECT /* @cache ttl=10s jitter=0 early=off scope=tenant:1 */ v FROM t"
	if info := infoOf(t, sqlherd.WithScope(t.Context(), "tenant:1"), p, byHint); info.Outcome != sqlherd.Hit {
		t.Errorf("the same scope by hint and context: %v", info.Outcome)
	}
	if info := infoOf(t, t.Context(), p, byHint); info.Outcome != sqlherd.Hit {
		t.Errorf("the same scope by hint: %v", info.Outcome)
	}
}

func TestTagsOfHintAndContextInvalidate(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	query := "SELECT /* @cache ttl=1m tags=product/{1} tables=none */ v FROM t WHERE id = $1"
	ctx := sqlherd.WithTags(sqlherd.WithTags(t.Context(), "a"), "b")
	for _, forget := range []func() error{
		func() error { return h.Invalidate(t.Context(), "product/7") },
		func() error { return h.Invalidate(t.Context(), "a") },
		func() error { return h.Invalidate(t.Context(), "b") },
		func() error { return h.InvalidateAll(t.Context()) },
		func() error {
			_, err := p.Exec("UPDATE /* @invalidate tags=product/{1} */ u SET v = 'x' WHERE id = $1", 7)
			return err
		},
		func() error {
			_, err := p.ExecContext(sqlherd.WithTags(t.Context(), "b"), "UPDATE u SET v = 'x'")
			return err
		},
	} {
		infoOf(t, ctx, p, query, 7)
		if info := infoOf(t, ctx, p, query, 7); info.Outcome != sqlherd.Hit {
			t.Errorf("before: %v", info.Outcome)
		}
		if err := forget(); err != nil {
			t.Fatal(err)
		}
		if info := infoOf(t, ctx, p, query, 7); info.Outcome != sqlherd.Miss {
			t.Errorf("after: %v, want a miss", info.Outcome)
		}
	}
	for _, keep := range []func() error{
		func() error { return h.Invalidate(t.Context(), "product/8", "c") },
		func() error { return h.InvalidateTables(t.Context(), "t") },
		func() error { _, err := p.Exec("UPDATE t SET v = 'x'"); return err },
		func() error {
			_, err := p.Exec("UPDATE /* @invalidate tags=product/{1} */ u SET v = 'x' WHERE id = $1", "70")
			return err
		},
	} {
		if err := keep(); err != nil {
			t.Fatal(err)
		}
		if info := infoOf(t, ctx, p, query, 7); info.Outcome != sqlherd.Hit {
			t.Errorf("after something else: %v, want a hit", info.Outcome)
		}
	}
}

// Herd.Invalidate refuses what is no tag, so what depended on it could not be forgotten.
func TestATagOfAContextThatNobodyCouldInvalidateKeepsItsQueryFromTheCache(t *testing.T) {
	byArgument := "SELECT /* @cache ttl=1m tags=product/{1} tables=none */ v FROM t WHERE id = $1"
	for _, tag := range []string{"", "a\nb", "a\x00b", "\x7f", "\xff", strings.Repeat("x", sqlherd.TagBytesMax+1)} {
		db := newFakeDB(t, slowly(0, "rows"))
		var log bytes.Buffer
		p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := h.Invalidate(t.Context(), tag); err == nil {
			t.Errorf("%.20q can be invalidated", tag)
		}
		for _, ctx := range []context.Context{
			sqlherd.WithTags(t.Context(), "good", tag), sqlherd.WithTags(sqlherd.WithTags(t.Context(), tag), "good"),
			sqlherd.WithPolicy(sqlherd.WithTags(t.Context(), tag), sqlherd.Policy{TTL: time.Minute}),
		} {
			for range 2 {
				if info := infoOf(t, ctx, p, hinted); info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonHint || !strings.Contains(info.Detail, "WithTags") {
					t.Errorf("%.20q: %v, %v, %q", tag, info.Outcome, info.Reason, info.Detail)
				}
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%.20q: logged %d times:\n%s", tag, n, &log)
		}
		// A write under it wants something forgotten, and nobody knows what.
		infoOf(t, t.Context(), p, byArgument, 7)
		if _, err := p.ExecContext(sqlherd.WithTags(t.Context(), tag), "UPDATE elsewhere SET v = 'x'"); err != nil {
			t.Fatal(err)
		}
		if info := infoOf(t, t.Context(), p, byArgument, 7); info.Outcome != sqlherd.Miss {
			t.Errorf("%.20q: %v after a write under it", tag, info.Outcome)
		}
		if st := h.Stats(); st.UnknownWrites != 1 || !strings.Contains(log.String(), "every result is forgotten") {
			t.Errorf("%.20q: %d unknown writes, log\n%s", tag, st.UnknownWrites, &log)
		}

		// An argument is data: the tag it makes is spelled in another way, and is its own.
		infoOf(t, t.Context(), p, byArgument, tag)
		infoOf(t, t.Context(), p, byArgument, tag+"!")
		do(t, p, "UPDATE /* @invalidate tags=product/{1} tables=none */ t SET v = 'x' WHERE id = $1", tag)
		if info := infoOf(t, t.Context(), p, byArgument, tag); info.Outcome == sqlherd.Hit {
			t.Errorf("%.20q as an argument: %v, %v", tag, info.Outcome, info.Detail)
		}
		if info := infoOf(t, t.Context(), p, byArgument, tag+"!"); len(tag) < 100 && info.Outcome != sqlherd.Hit {
			t.Errorf("another argument than %.20q: %v, %v", tag, info.Outcome, info.Detail)
		}

		strict, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, StrictHints: true})
		ctx, before := sqlherd.WithTags(t.Context(), tag), db.queries.Load()
		_, err := queryOne(ctx, strict, hinted)
		_, xerr := strict.ExecContext(ctx, "UPDATE t SET v = 'x'")
		for _, err := range []error{err, xerr} {
			if err == nil || !strings.Contains(err.Error(), "WithTags") {
				t.Errorf("%.20q under StrictHints: %v", tag, err)
			}
		}
		if n := db.queries.Load(); n != before {
			t.Errorf("%.20q under StrictHints: %d statements ran", tag, n-before)
		}
	}
}

func TestBypassRefreshAndWarm(t *testing.T) {
	l, db := newLedger(t)
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	set := func(v string) { l.mu.Lock(); l.value = v; l.mu.Unlock() } // by somebody whom nobody sees
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	set("v2")
	want(t, "cached", p, "v1", sqlherd.Hit, 0)
	if info := infoOf(t, sqlherd.Bypass(t.Context()), p, hinted); info.Reason != sqlherd.ReasonOff {
		t.Errorf("Bypass: %v, %v", info.Outcome, info.Reason)
	}
	want(t, "after a bypass", p, "v1", sqlherd.Hit, 0)
	if info := infoOf(t, sqlherd.Refresh(t.Context()), p, hinted); info.Outcome != sqlherd.Miss {
		t.Errorf("Refresh: %v", info.Outcome)
	}
	want(t, "after a refresh", p, "v2", sqlherd.Hit, 0)
	set("v3")
	if info := infoOf(t, t.Context(), p, strings.Replace(hinted, "@cache", "@refresh", 1)); info.Outcome != sqlherd.Miss {
		t.Errorf("@refresh: %v", info.Outcome)
	}
	want(t, "after @refresh", p, "v3", sqlherd.Hit, 0)
	set("v4")
	if err := h.Warm(t.Context(), p, hinted); err != nil {
		t.Error(err)
	}
	want(t, "after Warm", p, "v4", sqlherd.Hit, 0)
	if _, err := p.ExecContext(sqlherd.Bypass(t.Context()), "UPDATE t SET v = 'v5'"); err != nil {
		t.Fatal(err)
	}
	want(t, "after a write under Bypass", p, "v5", sqlherd.Miss, 0)

	for query, says := range map[string]string{plain: "no policy", "SELECT /* @cache ttl=1m */ nextval('s')": "volatile"} {
		if err := h.Warm(t.Context(), p, query); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Warm of %s: %v, want an error that says %q", query, err, says)
		}
	}
	other, _ := openHerd(t, db, sqlherd.Config{})
	if err := h.Warm(t.Context(), other, hinted); err == nil {
		t.Error("Warm through another Herd's pool is no error")
	}
}

func TestRulesCacheQueriesThatCannotBeEditedAndAHintBeatsThem(t *testing.T) {
	db := newFakeDB(t, slowly(0, "rows"))
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Rules: []sqlherd.Rule{
		{Query: "SELECT secret FROM t", Policy: sqlherd.Policy{TTL: -1}},
		{Name: "Get*", Policy: sqlherd.Policy{Name: "getters"}},
		{Tables: []string{"t"}},
	}})
	for _, c := range []struct {
		query  string
		o      sqlherd.Outcome
		reason sqlherd.Reason
	}{
		{"SELECT v FROM public.t", sqlherd.Hit, 0},
		{"select  secret\nfrom t -- x", sqlherd.Hit, 0}, // another text than the rule's: its key is not folded in case
		{"SELECT secret /* x */ FROM t", sqlherd.Bypassed, sqlherd.ReasonOff},
		{"-- name: GetThing :one\nSELECT v FROM u", sqlherd.Hit, 0},
		{"SELECT v FROM u", sqlherd.Passthrough, 0},
		{"SELECT v FROM t, u", sqlherd.Passthrough, 0},
		{"SELECT /* @nocache */ v, 2 FROM t", sqlherd.Bypassed, sqlherd.ReasonOff},
		{"SELECT v FROM t FOR UPDATE", sqlherd.Bypassed, sqlherd.ReasonLocking},
		{"UPDATE t SET v = 'x' RETURNING v", sqlherd.Passthrough, 0},
	} {
		infoOf(t, t.Context(), p, c.query)
		if info := infoOf(t, t.Context(), p, c.query); info.Outcome != c.o || info.Reason != c.reason {
			t.Errorf("%s: %v, %v; want %v, %v", c.query, info.Outcome, info.Reason, c.o, c.reason)
		}
	}
}
