package integration_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// GORM puts an execution mode before the arguments; {1} was that mode, the same for every row, and the
// tag that a write named was not the one that the rows had.
func TestATagsArgumentIsThatOfThePlaceholderAlsoBehindOptionsOfPgx(t *testing.T) {
	d := dbtest.PGX(t)
	d.Exec(t, "CREATE TABLE items (id int PRIMARY KEY, v text)", "INSERT INTO items VALUES (1, 'one'), (2, 'two')")
	db, h := openHerd(t, d, sqlherd.Config{})
	const query = "SELECT /* @cache ttl=10m tags=item/{1} tables=none */ v FROM items WHERE id = $1"
	options := []any{pgx.QueryExecModeExec, pgx.QueryResultFormats{pgx.TextFormatCode}}
	read := func(id int, want string, outcome sqlherd.Outcome) {
		t.Helper()
		wantText(t, db, want, outcome, query, append(options, id)...)
	}
	read(1, "one", sqlherd.Miss)
	read(2, "two", sqlherd.Miss)
	read(1, "one", sqlherd.Hit)

	if _, err := db.ExecContext(withDeadline(t), "UPDATE /* @invalidate tags=item/{1} tables=none */ items SET v = 'new' WHERE id = $1", 1); err != nil {
		t.Fatal(err)
	}
	read(1, "new", sqlherd.Miss)
	read(2, "two", sqlherd.Hit)

	if _, err := db.ExecContext(withDeadline(t), "UPDATE /* @invalidate tags=item/{2} tables=none */ items SET v = $1 WHERE id = $2",
		pgx.QueryExecModeExec, "newer", 2); err != nil {
		t.Fatal(err)
	}
	read(1, "new", sqlherd.Hit)
	read(2, "newer", sqlherd.Miss)
	if st := h.Stats(); st.HintErrors != 0 {
		t.Error(st.HintErrors, "malformed hints")
	}
}
