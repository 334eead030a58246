package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A step is something that an application does, and writes down all that it can see of it.
type step struct {
	name string
	do   func(ctx context.Context, db *sql.DB, v *sight)
}

func (v *sight) result(where string, res sql.Result, err error) {
	v.error(where, err)
	if err != nil {
		return
	}
	defer func() {
		// modernc.org/sqlite gives no result for no statement.
		if p := recover(); p != nil {
			v.add(where, "panics: %v", p)
		}
	}()
	id, err := res.LastInsertId()
	v.add(where, "last insert id %d", id)
	v.error(where+" last insert id", err)
	n, err := res.RowsAffected()
	v.add(where, "rows affected %d", n)
	v.error(where+" rows affected", err)
}

// writeExec is a write, direct and prepared, and without a context.
func writeExec(query string, args ...any) step {
	return step{query, func(ctx context.Context, db *sql.DB, v *sight) {
		res, err := db.ExecContext(ctx, query, args...)
		v.result("exec", res, err)
		st, err := db.PrepareContext(ctx, query)
		v.error("prepare", err)
		if err != nil {
			return
		}
		res, err = st.ExecContext(ctx, args...)
		v.result("prepared exec", res, err)
		v.error("close", st.Close())
	}}
}

func writeQuery(query string, args ...any) step {
	return step{"query " + query, func(ctx context.Context, db *sql.DB, v *sight) {
		for _, prepared := range []bool{false, true} {
			v.Cells = append(v.Cells, see(ctx, db, prepared, query, args...).Cells...)
		}
		// Closed before the rows are read.
		rows, err := db.QueryContext(ctx, query, args...)
		v.error("early", err)
		if err == nil {
			v.add("early", "%t", rows.Next())
			v.error("early close", rows.Close())
			v.error("early err", rows.Err())
		}
	}}
}

func writeTx(name string, opts *sql.TxOptions, do func(ctx context.Context, tx *sql.Tx, v *sight), commit bool) step {
	return step{name, func(ctx context.Context, db *sql.DB, v *sight) {
		tx, err := db.BeginTx(ctx, opts)
		v.error("begin", err)
		if err != nil {
			return
		}
		do(ctx, tx, v)
		if commit {
			v.error("commit", tx.Commit())
		}
		v.error("rollback", tx.Rollback())
		_, err = tx.ExecContext(ctx, "SELECT 1")
		v.error("after the end", err)
	}}
}

func execIn(query string, args ...any) func(context.Context, *sql.Tx, *sight) {
	return func(ctx context.Context, tx *sql.Tx, v *sight) {
		res, err := tx.ExecContext(ctx, query, args...)
		v.result(query, res, err)
	}
}

// writeSteps are done on tables w, child and log, which are made anew for each side.
func writeSteps(d dbtest.Database) []step {
	p := func(n int) string { return placeholder(d.Engine, n) }
	steps := []step{
		writeExec("INSERT INTO log (v) VALUES ('one')"),
		writeExec("INSERT INTO log (v) VALUES ("+p(1)+"), ("+p(2)+"), (NULL)", "two", "three"),
		writeExec("UPDATE log SET v = v"),
		writeExec("UPDATE log SET v = "+p(1)+" WHERE v = "+p(2), "2", "two"),
		writeExec("UPDATE log SET v = 'x' WHERE id < 0"),
		writeExec("DELETE FROM log WHERE v = "+p(1), "nothing"),
		writeExec("/* don't */ DELETE FROM log WHERE v IS NULL -- it's"),
		writeExec("INSERT INTO w VALUES (1, 'one', 1), (2, 'two', 2)"),                  // again: the key is taken
		writeExec("INSERT INTO w VALUES ("+p(1)+", "+p(2)+", "+p(3)+")", 3, nil, 3),     // not null
		writeExec("INSERT INTO w VALUES ("+p(1)+", "+p(2)+", "+p(3)+")", 4, "four", -4), // check
		writeExec("INSERT INTO child VALUES ("+p(1)+", 99)", 1),                         // foreign key
		writeExec("INSERT INTO not_there VALUES (1)"),
		writeExec("INSERT INTO w VALUES (1"),
		writeExec("UPDATE w SET n = n + 1 WHERE id = "+p(1), 1, 2), // too many arguments
		writeExec("UPDATE w SET n = n + 1 WHERE id = " + p(1)),     // too few
		writeExec("UPDATE w SET n = "+p(1)+" WHERE id = 1", struct{ A int }{1}),
		writeExec("CREATE TABLE made (a INT)"),
		writeExec("DROP TABLE made"),
		writeExec("SELECT 1"),
		writeQuery("INSERT INTO log (v) VALUES ('r') RETURNING id, v"),
		writeQuery("INSERT INTO log (v) VALUES ("+p(1)+") RETURNING v AS x, id", "s"),
		writeQuery("DELETE FROM log WHERE v = 'one' RETURNING v"),
		writeQuery("INSERT INTO w VALUES (1, 'one', 1) RETURNING id"),
		{"the query is empty", func(ctx context.Context, db *sql.DB, v *sight) {
			for _, q := range []string{"", ";", "-- nothing", "/* nothing */"} {
				res, err := db.ExecContext(ctx, q)
				v.result(q, res, err)
			}
		}},
		{"no rows", func(ctx context.Context, db *sql.DB, v *sight) {
			var s string
			v.error("no rows", db.QueryRowContext(ctx, "SELECT v FROM w WHERE id = "+p(1), 99).Scan(&s))
		}},
		{"cancelled before", func(ctx context.Context, db *sql.DB, v *sight) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := db.ExecContext(ctx, "UPDATE w SET n = 0")
			v.error("exec", err)
			_, err = db.QueryContext(ctx, "SELECT n FROM w") //nolint:rowserrcheck,sqlclosecheck // there are none
			v.error("query", err)
			_, err = db.BeginTx(ctx, nil)
			v.error("begin", err)
			_, err = db.PrepareContext(ctx, "SELECT n FROM w")
			v.error("prepare", err)
			v.error("ping", db.PingContext(ctx))
		}},
		{"cancelled between rows", func(ctx context.Context, db *sql.DB, v *sight) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			rows, err := db.QueryContext(ctx, "SELECT w.id FROM w, w AS x, w AS y")
			v.error("query", err)
			if err != nil {
				return
			}
			defer rows.Close()
			v.add("first row", "%t", rows.Next())
			cancel()
			for rows.Next() {
			}
			// They may have arrived before.
			v.add("complete, or canceled", "%t", rows.Err() == nil || errors.Is(rows.Err(), context.Canceled))
		}},
		writeTx("a commit", nil, execIn("UPDATE w SET n = 5 WHERE id = 1"), true),
		writeTx("a rollback", nil, execIn("UPDATE w SET n = 6 WHERE id = 1"), false),
		writeTx("a commit after a mistake", nil, func(ctx context.Context, tx *sql.Tx, v *sight) {
			execIn("UPDATE w SET n = 7 WHERE id = 2")(ctx, tx, v)
			execIn("UPDATE not_there SET n = 8")(ctx, tx, v)
			execIn("UPDATE w SET n = 9 WHERE id = 2")(ctx, tx, v)
		}, true),
		writeTx("read only", &sql.TxOptions{ReadOnly: true}, execIn("UPDATE w SET n = 10 WHERE id = 1"), true),
		writeTx("serializable", &sql.TxOptions{Isolation: sql.LevelSerializable}, execIn("UPDATE w SET n = 11 WHERE id = 1"), true),
		writeTx("linearizable", &sql.TxOptions{Isolation: sql.LevelLinearizable}, execIn("UPDATE w SET n = 12 WHERE id = 1"), true),
		writeTx("snapshot", &sql.TxOptions{Isolation: sql.LevelSnapshot}, execIn("UPDATE w SET n = 13 WHERE id = 1"), true),
		writeTx("read committed", &sql.TxOptions{Isolation: sql.LevelReadCommitted}, execIn("UPDATE w SET n = 14 WHERE id = 1"), true),
		writeTx("savepoints", nil, func(ctx context.Context, tx *sql.Tx, v *sight) {
			for _, s := range []string{"SAVEPOINT a", "UPDATE w SET n = 15 WHERE id = 2", "ROLLBACK TO a", "UPDATE w SET n = 16 WHERE id = 1", "RELEASE a", "RELEASE a"} {
				if d.Engine == dbtest.EngineMariaDB {
					s = strings.Replace(s, "RELEASE a", "RELEASE SAVEPOINT a", 1)
				}
				execIn(s)(ctx, tx, v)
			}
		}, true),
		writeTx("a statement of the pool", nil, func(ctx context.Context, tx *sql.Tx, v *sight) {
			st, err := tx.PrepareContext(ctx, "UPDATE w SET n = n + "+p(1)+" WHERE id = "+p(2))
			v.error("prepare", err)
			if err != nil {
				return
			}
			for i := range 3 {
				res, err := st.ExecContext(ctx, i, 2)
				v.result("exec", res, err)
			}
			v.error("close", st.Close())
			_, err = st.ExecContext(ctx, 1, 2)
			v.error("closed", err)
		}, true),
		{"what is left", func(ctx context.Context, db *sql.DB, v *sight) {
			for _, q := range []string{"SELECT id, v, n FROM w ORDER BY id", "SELECT id, v FROM log ORDER BY id", "SELECT count(*) AS n FROM child"} {
				v.Cells = append(v.Cells, see(ctx, db, false, q).Cells...)
			}
		}},
	}
	switch d.Name {
	case "pq", "pgx":
		steps = append(steps,
			writeExec("INSERT INTO w VALUES (1, 'again', 1) ON CONFLICT (id) DO UPDATE SET v = 'again'"),
			writeExec("WITH gone AS (DELETE FROM log WHERE v = 'r' RETURNING id) UPDATE w SET n = 1 WHERE id IN (SELECT id FROM gone)"),
			writeExec("UPDATE w SET n = 1/0"),
			writeExec("TRUNCATE log"),
			writeExec("SET LOCAL work_mem = '1MB'"), // a warning: not in a transaction
			writeExec("DO $$ BEGIN RAISE EXCEPTION 'own %', 1 USING ERRCODE = 'P1234', HINT = 'h', DETAIL = 'd'; END $$"),
			writeExec("UPDATE w SET n = 1; UPDATE w SET n = 2 WHERE id = 1"),
		)
	case "mariadb":
		steps = append(steps,
			writeExec("INSERT INTO w VALUES (1, 'again', 1) ON DUPLICATE KEY UPDATE v = 'again'"),
			writeExec("REPLACE INTO w VALUES (2, 'new', 1)"),
			writeExec("INSERT IGNORE INTO w VALUES (2, 'new', 1)"),
			writeExec("UPDATE w SET v = '"+strings.Repeat("x", 200)+"'"), // too long
			writeExec("UPDATE w SET n = 1; UPDATE w SET n = 2 WHERE id = 1"),
			writeExec("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own', MYSQL_ERRNO = 30001"),
		)
	default:
		steps = append(steps,
			writeExec("INSERT INTO w VALUES (1, 'again', 1) ON CONFLICT (id) DO UPDATE SET v = 'again'"),
			writeExec("INSERT OR REPLACE INTO w VALUES (2, 'new', 1)"),
			writeExec("UPDATE w SET n = abs(-9223372036854775808)"),
			writeExec("UPDATE w SET n = 1; UPDATE w SET n = 2 WHERE id = 1"),
			writeExec("UPDATE w SET n = "+p(1)+"; UPDATE w SET n = "+p(2)+" WHERE id = 1", 3, 4),
		)
	}
	return steps
}

func writeTables(e dbtest.Engine) []string {
	id := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SERIAL PRIMARY KEY", dbtest.EngineMariaDB: "INT AUTO_INCREMENT PRIMARY KEY", dbtest.EngineSQLite: "INTEGER PRIMARY KEY AUTOINCREMENT",
	}[e]
	return []string{
		"DROP TABLE IF EXISTS child", "DROP TABLE IF EXISTS w", "DROP TABLE IF EXISTS log", "DROP TABLE IF EXISTS made",
		"CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(100) NOT NULL, n BIGINT CHECK (n >= 0))",
		"CREATE TABLE child (id INT PRIMARY KEY, w INT, FOREIGN KEY (w) REFERENCES w (id))",
		"CREATE TABLE log (id " + id + ", v VARCHAR(20))",
		"INSERT INTO w VALUES (1, 'first', 1), (2, 'second', 2)",
	}
}

func TestWritesTransactionsAndMistakesAreTheSameAsOnTheBareDriver(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		switch d.Name {
		case "mariadb":
			d = d.WithParams("multiStatements=true")
		case "sqlite":
			d = d.WithParams("_pragma=foreign_keys(1)")
		case "sqlite-cgo":
			d = d.WithParams("_foreign_keys=1")
		}
		rdb, ns := dbtest.Redis(t)
		wrapped, _ := openHerd(t, d, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
		sides := []*sql.DB{d.Open(t), wrapped}
		steps := writeSteps(d)
		all := [2][]*sight{}
		for side, db := range sides {
			d.Exec(t, writeTables(d.Engine)...)
			db.SetMaxOpenConns(2)
			for _, s := range steps {
				v := &sight{}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				s.do(ctx, db, v)
				cancel()
				all[side] = append(all[side], v)
			}
		}
		compared := 0
		for i, s := range steps {
			n, diff := all[1][i].differences(all[0][i])
			compared += n
			if diff != nil {
				t.Errorf("%s\n%s", s.name, strings.Join(diff, "\n"))
			}
		}
		t.Logf("%s: %d cells of %d steps compared", d.Name, compared, len(steps))
		if compared < 500 {
			t.Errorf("only %d cells were compared", compared)
		}
	})
}

// A query that the database takes long for ends with its context, with the same error as on the bare driver.
func TestACancelledStatementGivesTheBareDriversError(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		wrapped, _ := openHerd(t, b.Database, sqlherd.Config{})
		bare := b.Open(t)
		p1 := b.placeholder()
		ask := func(db *sql.DB, query string) *sight {
			c := conn(t, db)
			if err := c.PingContext(withDeadline(t)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(withDeadline(t))
			defer cancel()
			before := b.loads(t)
			ended := make(chan *sight)
			go func() {
				var v string
				s := &sight{}
				s.error("row", c.QueryRowContext(ctx, query, 1).Scan(&v))
				ended <- s
			}()
			await(t, "the database is at it", func() bool { return b.loads(t) > before })
			cancel()
			s := <-ended
			// Where in the statement the server was is by chance.
			s.Cells = slices.DeleteFunc(s.Cells, func(c cell) bool { return strings.HasSuffix(c.Where, "asserted") })
			return s
		}
		for _, query := range []string{
			fmt.Sprintf("SELECT %s FROM items WHERE id = %s", b.call(20_000), p1),
			fmt.Sprintf("UPDATE items SET v = %s WHERE id = %s RETURNING v", b.call(20_000), p1),
		} {
			if d.Engine == dbtest.EngineMariaDB && strings.HasPrefix(query, "UPDATE") {
				continue // MariaDB has no such statement
			}
			want := ask(bare, query)
			if _, diff := ask(wrapped, query).differences(want); diff != nil {
				t.Errorf("%s\n%s", query, strings.Join(diff, "\n"))
			}
		}
	})
}
