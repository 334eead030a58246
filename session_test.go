package sqlherd_test

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
)

func TestASessionWhoseStateIsUnknownBypassesAndTheOthersStillHit(t *testing.T) {
	for dialect, statements := range map[sqlherd.Dialect][]string{
		sqlherd.PostgreSQL: {
			"SET search_path TO tenant1", "set Search_Path = tenant1", "  /* x */ SET ROLE bob", "-- x\nset session authorization bob",
			"SET time zone 'Asia/Tokyo'", "RESET ALL", "reset search_path", "DISCARD ALL", "LISTEN x", "CREATE TEMP TABLE t (v text)",
			"LOCK TABLE t", "DECLARE c CURSOR FOR SELECT 1", "PREPARE p AS SELECT 1", "SELECT set_config('search_path', 'tenant1', false)",
			"SET a = 1; SELECT 1",
		},
		sqlherd.MySQL: {
			"SET time_zone = '+09:00'", "set @@session.time_zone='+09:00'", "SET @a = 1", "USE two", "use `two`;", "SET NAMES latin1",
			"SET ROLE r", "LOCK TABLES t READ", "CREATE TEMPORARY TABLE t (v text)", "# x\nUSE two",
		},
		sqlherd.SQLite: {
			"PRAGMA case_sensitive_like = ON", "pragma foreign_keys=on", "ATTACH 'other.db' AS other", "DETACH other", "CREATE TEMP TABLE t (v)",
		},
	} {
		for _, s := range statements {
			for _, prepared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v %s prepared %v", dialect, s, prepared), func(t *testing.T) {
					_, db := newLedger(t)
					p, h := openHerd(t, db, sqlherd.Config{Dialect: dialect})
					conn, other := connect(t, p), connect(t, p)
					want(t, "first", conn, "v1", sqlherd.Miss, 0)
					if prepared {
						st, err := conn.PrepareContext(t.Context(), s)
						if err == nil {
							_, err = st.Exec()
						}
						if err != nil {
							t.Fatal(err)
						}
					} else {
						do(t, conn, s)
					}
					for range 2 {
						got, info := ask(t, conn)
						if info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonSession {
							t.Errorf("on the conn: %v, %v; want a bypass because of the session", info.Outcome, info.Reason)
						}
						if strings.HasPrefix(strings.ToUpper(bare(s)), "SET ") && strings.Contains(s, "=") && !strings.Contains(got, "under") {
							t.Errorf("on the conn: %q is not what the session sees", got)
						}
					}
					// The table in the text may have been written; what matters is whose rows they are.
					if got, info := ask(t, other); got != "v1" || info.Outcome == sqlherd.Bypassed {
						t.Errorf("another conn: %q, %v", got, info.Outcome)
					}
					want(t, "another conn, again", other, "v1", sqlherd.Hit, 0)
					if n := h.Stats().Taints; n != 1 {
						t.Errorf("%d taints, want 1", n)
					}
				})
			}
		}
	}
}

func TestAPragmaThatIsPreparedAndNeverRunMakesTheSessionUnknown(t *testing.T) {
	_, db := newLedger(t)
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.SQLite})
	conn := connect(t, p)
	want(t, "first", conn, "v1", sqlherd.Miss, 0)
	st, err := conn.PrepareContext(t.Context(), "PRAGMA case_sensitive_like = ON") // SQLite obeys here and now
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	if _, info := ask(t, conn); info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonSession {
		t.Errorf("afterwards: %v, %v; want a bypass because of the session", info.Outcome, info.Reason)
	}
	want(t, "another conn", p, "v1", sqlherd.Hit, 0)
	if n := h.Stats().Taints; n != 1 {
		t.Errorf("%d taints, want 1", n)
	}
}

func TestAStatementThatOnlyLooksLikeASettingLeavesTheSessionAlone(t *testing.T) {
	_, db := newLedger(t)
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	conn := connect(t, p)
	want(t, "first", conn, "v1", sqlherd.Miss, 0)
	for _, s := range []string{"SELECT 'SET ROLE bob'", `SELECT "set" FROM t`, "/* SET ROLE bob */ SELECT 1", "-- USE two\nSELECT 1", "SELECT $$ SET x = 1 $$", "ANALYZE t", "VACUUM"} {
		do(t, conn, s)
		want(t, "after "+s, conn, "v1", sqlherd.Hit, 0)
	}
	if n := h.Stats().Taints; n != 0 {
		t.Errorf("%d taints, want none", n)
	}
}

func TestRawOnAPooledConnectionIsCountedAndLoggedAndEndsWithTheConnection(t *testing.T) {
	_, db := newLedger(t)
	var log bytes.Buffer
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p.SetMaxOpenConns(1)
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	conn := connect(t, p)
	for range 2 { // one session, however often
		if err := sqlherd.Raw(conn, func(any) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	// Without the count and the line nobody would know why the pool's hits have gone.
	want(t, "on the pool, after Raw", p, "v1", sqlherd.Bypassed, sqlherd.ReasonSession)
	if n := h.Stats().Taints; n != 1 {
		t.Errorf("%d taints, want 1", n)
	}
	if n := strings.Count(log.String(), "state that is not known"); n != 1 || !strings.Contains(log.String(), "word=sqlherd.Raw") {
		t.Errorf("logged %d times, want once, by name:\n%s", n, &log)
	}
	// What docs/adopting.md says to do about it.
	conn = connect(t, p)
	if err := conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
		t.Fatal(err)
	}
	want(t, "on a new connection", p, "v1", sqlherd.Hit, 0)
}

func TestAnUnknownSessionStaysUnknownInThePoolAndIsLoggedOnce(t *testing.T) {
	_, db := newLedger(t)
	var log bytes.Buffer
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p.SetMaxOpenConns(1)
	want(t, "first", p, "v1", sqlherd.Miss, 0)
	do(t, p, "SET search_path = tenant1") // the mistake: on a pool it lands on any connection
	do(t, p, "SET search_path = tenant2")
	want(t, "after", p, "v1 under SEARCH_PATH = TENANT2", sqlherd.Bypassed, sqlherd.ReasonSession)
	if n := strings.Count(log.String(), "state that is not known"); n != 1 || !strings.Contains(log.String(), "DSN") {
		t.Errorf("logged %d times, want once and with advice:\n%s", n, &log)
	}
	if n := h.Stats().Taints; n != 1 {
		t.Errorf("%d taints, want 1", n)
	}
	// The conn goes, and with it the state of its session.
	p.SetMaxIdleConns(-1)
	want(t, "on a new connection", p, "v1", sqlherd.Hit, 0)
}
