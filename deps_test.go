package sqlherd_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// One text with two policies: what one caller stored must not outlive what the other one was promised.
func TestAReaderIsNeverServedByAnEntryOfAnotherPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		n.Store(1)
		db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
			return one(n.Load()), nil
		})
		p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.SQLite})
		read := func(ctx context.Context, query string, want int64) {
			t.Helper()
			var got int64
			if err := p.QueryRowContext(ctx, query).Scan(&got); err != nil || got != want {
				t.Errorf("%s: got %d, %v; want %d", query, got, err, want)
			}
		}
		write := func(stmt string, v int64) {
			t.Helper()
			n.Store(v)
			if _, err := p.Exec(stmt); err != nil {
				t.Fatal(err)
			}
		}

		read(t.Context(), "SELECT /* @cache ttl=1h tables=none tags=x */ n FROM p", 1)
		write("UPDATE p SET n = 2", 2)
		read(t.Context(), "SELECT /* @cache ttl=1h */ n FROM p", 2)

		read(t.Context(), "SELECT /* @cache ttl=1h tags=y */ n FROM p", 2)
		write("UPDATE /* @invalidate tags=y tables=none */ p SET n = 3", 3)
		read(t.Context(), "SELECT /* @cache ttl=1h tags=y */ n FROM p", 3)

		tagged := sqlherd.WithTags(t.Context(), "wt")
		read(t.Context(), "SELECT /* @cache ttl=1h name=a */ n FROM p", 2) // depends on p alone, which no write has named since
		read(tagged, "SELECT /* @cache ttl=1h name=a */ n FROM p", 3)
		n.Store(4)
		if err := h.Invalidate(t.Context(), "wt"); err != nil {
			t.Fatal(err)
		}
		read(tagged, "SELECT /* @cache ttl=1h name=a */ n FROM p", 4)

		n.Store(5)
		time.Sleep(2 * time.Second)
		read(t.Context(), "SELECT /* @cache ttl=1s */ n FROM p", 5) // fresh for an hour is not fresh for a second
		short := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{TTL: 1500 * time.Millisecond})
		read(short, "SELECT /* @cache ttl=1h */ n FROM p", 5)
	})
}

func TestAnOutageOfTheDatabaseIsLoggedOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
			if down.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return one("rows"), nil
		})
		var log bytes.Buffer
		p, h := openHerd(t, db, sqlherd.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const query = "SELECT /* @cache ttl=1s sie=1h name=q */ v FROM t"
		read := func() {
			t.Helper()
			time.Sleep(10 * time.Second)
			if _, err := queryOne(t.Context(), p, query); err != nil {
				t.Error(err)
			}
		}
		read()
		down.Store(true)
		read()
		read()
		down.Store(false)
		read()
		read()
		if n := h.Stats().Outcomes[sqlherd.StaleError]; n != 2 {
			t.Errorf("%d answers past their time, want 2", n)
		}
		for _, line := range []string{"database is unavailable", "answers again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q was logged %d times, want once:\n%s", line, n, &log)
			}
		}
	})
}

func TestWarmReportsRowsThatFailHalfWay(t *testing.T) {
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		r := rowsOf([]string{"v"}, []driver.Value{"1"}, []driver.Value{"2"})
		r.fail, r.failAt = errors.New("disk on fire"), 1
		return r, nil
	})
	p, h := openHerd(t, db, sqlherd.Config{})
	if err := h.Warm(t.Context(), p, hinted); err == nil || err.Error() != "disk on fire" {
		t.Errorf("got %v", err)
	}
}

// "a.b" is one name; the b of it is another table's.
func TestATableWithADotInItsNameIsInvalidatedByThatName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
			return one(n.Load()), nil
		})
		p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Tables: []string{`"a.b"`}})
		read := func(want int64) {
			t.Helper()
			var got int64
			if err := p.QueryRow(`SELECT /* @cache ttl=1h */ n FROM s."a.b"`).Scan(&got); err != nil || got != want {
				t.Errorf("got %d, %v; want %d", got, err, want)
			}
		}
		read(0)
		n.Store(1)
		read(0)
		for i, table := range []string{`"a.b"`, `s."a.b"`, `"A.B"`} {
			n.Store(int64(i) + 1)
			if err := h.InvalidateTables(t.Context(), table); err != nil {
				t.Fatal(err)
			}
			read(int64(i) + 1)
		}
		n.Store(10)
		if err := h.InvalidateTables(t.Context(), "b", "a"); err != nil {
			t.Fatal(err)
		}
		read(3)
	})
}
