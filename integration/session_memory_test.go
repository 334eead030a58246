package integration_test

import (
	"database/sql"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A private in-memory database is another one on every connection, so what one has cached is nothing to the others.
func TestADatabaseInMemoryIsCachedOnItsOwnConnectionAlone(t *testing.T) {
	const query = "SELECT /* @cache ttl=10m swr=10m */ v FROM items"
	on(t, func(t *testing.T, d dbtest.Database) {
		for _, dsn := range []string{":memory:", "file::memory:"} {
			d.DSN = dsn
			if _, err := connectorOf(newHerd(t, sqlherd.Config{}), d); err == nil {
				t.Errorf("%s is opened without LoadOnCallerConn, on which nothing could be loaded", dsn)
			}
			db, h := openHerd(t, d, sqlherd.Config{LoadOnCallerConn: true})
			var conns []*sql.Conn
			for _, v := range []string{"first", "second"} {
				c := conn(t, db)
				mustExec(t, c, "CREATE TABLE items (v TEXT)", "INSERT INTO items VALUES ('"+v+"')")
				wantText(t, c, v, sqlherd.Miss, query)
				wantText(t, c, v, sqlherd.Hit, query)
				conns = append(conns, c)
			}
			wantText(t, conns[0], "first", sqlherd.Miss, query) // the other's INSERT names the same table
			wantText(t, conns[0], "first", sqlherd.Hit, query)
			mustExec(t, conns[0], "UPDATE items SET v = 'changed'")
			wantText(t, conns[0], "changed", sqlherd.Miss, query)
			if v, _, err := text(withDeadline(t), conns[1], query); err != nil || v != "second" {
				t.Errorf("%s: the other connection reads %q, %v", dsn, v, err)
			}
			if st := h.Stats(); st.Dials != 2 {
				t.Errorf("%s: %d connections, want the two", dsn, st.Dials)
			}
		}
	}, dbtest.SQLite, dbtest.SQLiteCgo)
}
