package integration_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func conn(t testing.TB, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(withDeadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCopyFromOfPgxWorksThroughRaw(t *testing.T) {
	b := newBed(t, dbtest.PGX(t))
	db, h := openHerd(t, b.Database, sqlherd.Config{})
	const count = "SELECT /* @cache ttl=10m */ count(*)::text FROM items"
	wantText(t, db, "3", sqlherd.Miss, count)
	c := conn(t, db)
	err := sqlherd.Raw(c, func(dc any) error {
		rows := [][]any{{10, "ten"}, {11, "eleven"}}
		n, err := dc.(*stdlib.Conn).Conn().CopyFrom(context.Background(), pgx.Identifier{"items"}, []string{"id", "v"}, pgx.CopyFromRows(rows))
		if n != 2 {
			t.Errorf("%d rows were copied", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// What Raw writes is not seen; the conn is its own from now on.
	wantText(t, db, "3", sqlherd.Hit, count)
	wantText(t, c, "5", sqlherd.Bypassed, count)
	if err := h.InvalidateTables(withDeadline(t), "items"); err != nil {
		t.Fatal(err)
	}
	wantText(t, db, "5", sqlherd.Miss, count)
}

func TestCopyOfLibPqWorksAndInvalidatesWhenItIsCommitted(t *testing.T) {
	b := newBed(t, dbtest.PQ(t))
	db, _ := openHerd(t, b.Database, sqlherd.Config{})
	const count = "SELECT /* @cache ttl=10m */ count(*)::text FROM items"
	wantText(t, db, "3", sqlherd.Miss, count)
	copyIn := func(end func(*sql.Tx) error) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		stmt, err := tx.Prepare("COPY items (id, v) FROM STDIN")
		if err != nil {
			t.Fatal(err)
		}
		for id, v := range map[int]string{10: "ten", 11: "eleven"} {
			if _, err := stmt.Exec(id, v); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := stmt.Exec(); err != nil {
			t.Fatal(err)
		}
		if err := stmt.Close(); err != nil {
			t.Fatal(err)
		}
		wantText(t, db, "3", sqlherd.Hit, count)
		wantText(t, tx, "5", sqlherd.Bypassed, count)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	copyIn((*sql.Tx).Rollback)
	wantText(t, db, "3", sqlherd.Hit, count)
	copyIn((*sql.Tx).Commit)
	wantText(t, db, "5", sqlherd.Miss, count)
}

func TestTheResultOfSeveralMySQLStatementsIsThereThroughRaw(t *testing.T) {
	b := newBed(t, dbtest.MariaDB(t))
	db, _ := openHerd(t, b.WithParams("multiStatements=true"), sqlherd.Config{})
	c := conn(t, db)
	err := sqlherd.Raw(c, func(dc any) error {
		res, err := dc.(sqldriver.ExecerContext).ExecContext(context.Background(), "UPDATE items SET v = 'x' WHERE id = 1; UPDATE items SET v = 'y' WHERE id > 1", nil)
		if err != nil {
			return err
		}
		if got := res.(mysql.Result).AllRowsAffected(); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("rows affected %v, want [1 2]", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRawDialsAConnectionThatHasNone(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, h := openHerd(t, d, sqlherd.Config{})
		c := conn(t, db)
		if n := h.Stats().Dials; n != 0 {
			t.Fatalf("%d dials for a conn that nobody used", n)
		}
		var got, bare string
		if err := sqlherd.Raw(c, func(dc any) error { got = describeKind(dc); return nil }); err != nil {
			t.Fatal(err)
		}
		bc := conn(t, d.Open(t))
		if err := bc.Raw(func(dc any) error { bare = describeKind(dc); return nil }); err != nil {
			t.Fatal(err)
		}
		if got != bare {
			t.Errorf("Raw gives a %s, the bare driver's is a %s", got, bare)
		}
		if err := sqlherd.Raw(bc, func(any) error { return nil }); err == nil {
			t.Error("Raw takes a connection that is not sqlherd's")
		}
	})
}
