package integration_test

// What drivers' own suites try, and what users of other wrappers have seen go wrong, on real databases.

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestTheResultOfSeveralMySQLStatementsIsTheDriversOwnBeneathTheWrapper(t *testing.T) {
	b := newBed(t, dbtest.MariaDB(t))
	db, _ := openHerd(t, b.WithParams("multiStatements=true"), sqlherd.Config{})
	err := conn(t, db).Raw(func(dc any) error {
		res, err := dc.(sqldriver.ExecerContext).ExecContext(withDeadline(t), "UPDATE items SET v = 'x' WHERE id = 1; UPDATE items SET v = 'y' WHERE id > 1", nil)
		if err != nil {
			return err
		}
		own, ok := res.(mysql.Result)
		if !ok {
			return fmt.Errorf("the result is a %T", res)
		}
		if got := own.AllRowsAffected(); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("rows affected %v, want [1 2]", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAConfigurationRegisteredWithPgxIsFoundByTheWrappedDriver(t *testing.T) {
	d := dbtest.PGX(t)
	cfg, err := pgx.ParseConfig(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	name := stdlib.RegisterConnConfig(cfg)
	t.Cleanup(func() { stdlib.UnregisterConnConfig(name) })
	h := newHerd(t, sqlherd.Config{})
	byName := d
	byName.DSN = name
	one := func(db *sql.DB) {
		t.Helper()
		for _, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
			wantText(t, db, "1", o, "SELECT /* @cache ttl=10m */ 1::text")
		}
	}
	one(open(t, h, byName))
	db := sql.OpenDB(h.Connector(stdlib.GetConnector(*cfg), sqlherd.Identity("orders/app")))
	t.Cleanup(func() { db.Close() })
	one(db)
}

// Several statements through the simple protocol: the bare driver's answer, never cached.
func TestSeveralStatementsThroughPgxsSimpleProtocol(t *testing.T) {
	b := newBed(t, dbtest.PGX(t))
	d := b.WithParams("default_query_exec_mode=simple_protocol")
	bare, wrapped := d.Open(t), open(t, newHerd(t, sqlherd.Config{}), d)
	ctx := withDeadline(t)
	for _, query := range []string{
		"SELECT /* @cache ttl=10m */ 1 AS a; SELECT 2 AS b",
		"SELECT /* @cache ttl=10m */ v FROM items; SELECT 1/0",
		"INSERT INTO items VALUES (50, 'x'); DELETE FROM items WHERE id = 50; SELECT count(*) FROM items",
	} {
		for range 2 {
			var info sqlherd.Info
			got, want := see(sqlherd.WithInfo(ctx, &info), wrapped, false, query), see(ctx, bare, false, query)
			if _, diff := got.differences(want); diff != nil {
				t.Errorf("%s\n%s", query, strings.Join(diff, "\n"))
			}
			if info.Outcome == sqlherd.Hit || info.Outcome == sqlherd.Miss {
				t.Errorf("%s: %v", query, info.Outcome)
			}
		}
	}
	const count = "SELECT /* @cache ttl=10m */ count(*)::text FROM items"
	wantText(t, wrapped, "3", sqlherd.Miss, count)
	if _, err := wrapped.ExecContext(ctx, "UPDATE items SET v = 'y' WHERE id = 1; INSERT INTO items VALUES (51, 'x')"); err != nil {
		t.Fatal(err)
	}
	wantText(t, wrapped, "4", sqlherd.Miss, count)
}

// blobs makes a table of rows that differ in every byte, and returns the digest of each.
func blobs(t *testing.T, d dbtest.Database, n int) [][32]byte {
	t.Helper()
	kind := map[dbtest.Engine]string{dbtest.EnginePostgres: "BYTEA", dbtest.EngineMariaDB: "BLOB", dbtest.EngineSQLite: "BLOB"}[d.Engine]
	d.Exec(t, "CREATE TABLE blobs (id INT PRIMARY KEY, b "+kind+")")
	db := d.Open(t)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	st, err := tx.Prepare(fmt.Sprintf("INSERT INTO blobs VALUES (%s, %s)", placeholder(d.Engine, 1), placeholder(d.Engine, 2)))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.NewChaCha8([32]byte{1})
	sums := make([][32]byte, n)
	for i := range n {
		b := make([]byte, 1024)
		_, _ = r.Read(b)
		sums[i] = sha256.Sum256(b)
		if _, err := st.Exec(i, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(st.Close(), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	return sums
}

// Readers who give up at any moment, and readers who write into what they were given, leave the entry as it is.
func TestAnEntryKeepsEachRowsOwnBytesWhateverItsReadersDo(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		const n, readers = 500, 10
		sums := blobs(t, d, n)
		rdb, ns := dbtest.Redis(t)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		db, _ := openHerd(t, d, cfg)
		other, _ := openHerd(t, d, cfg)
		const query = "SELECT /* @cache ttl=10m max-bytes=4MiB */ id, b FROM blobs ORDER BY id"
		read := func(ctx context.Context, db *sql.DB, spoil bool) error {
			rows, err := db.QueryContext(ctx, query)
			if err != nil {
				return err
			}
			defer rows.Close()
			seen := 0
			for ; rows.Next(); seen++ {
				var id int
				var raw sql.RawBytes
				if err := rows.Scan(&id, &raw); err != nil {
					return err
				}
				if id != seen || sha256.Sum256(raw) != sums[id] {
					t.Errorf("row %d holds other bytes", id)
				}
				if spoil {
					clear(raw) // a reader must not; one does
					_ = append(raw, "beyond the end"...)
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
			if seen != n {
				t.Errorf("%d rows without an error, want %d", seen, n)
			}
			return nil
		}
		ctx := withDeadline(t)
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
				defer cancel()
				_ = read(ctx, db, true) // it may be too late
			})
		}
		wg.Wait()
		for _, from := range []*sql.DB{db, other} {
			for range readers {
				wg.Go(func() {
					for range 3 {
						if err := read(ctx, from, true); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
	})
}

func TestTwentyThousandRowsOverTheCapsArriveWholeAndUnderThemAreHits(t *testing.T) {
	series := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SELECT %s g AS n FROM generate_series(1, 20000) AS g",
		dbtest.EngineMariaDB:  "SELECT %s seq AS n FROM seq_1_to_20000",
		dbtest.EngineSQLite:   "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 20000) SELECT %s n FROM g",
	}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, _ := openHerd(t, d, sqlherd.Config{})
		for _, hint := range []string{"/* @cache ttl=10m */", "/* @cache ttl=10m max-rows=30000 max-bytes=16MiB */"} {
			outcomes := []sqlherd.Outcome{sqlherd.Bypassed, sqlherd.Bypassed}
			if strings.Contains(hint, "max-rows") {
				outcomes = []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit}
			}
			for _, want := range outcomes {
				var info sqlherd.Info
				rows, err := db.QueryContext(sqlherd.WithInfo(withDeadline(t), &info), fmt.Sprintf(series[d.Engine], hint))
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for rows.Next() {
					var i int
					if err := rows.Scan(&i); err != nil {
						t.Fatal(err)
					}
					n++
					if i != n {
						t.Fatalf("row %d holds %d", n, i)
					}
				}
				if err := rows.Err(); err != nil || n != 20_000 {
					t.Errorf("%d rows, %v", n, err)
				}
				rows.Close()
				if info.Outcome != want {
					t.Errorf("%s: %v, want %v", hint, info.Outcome, want)
				}
			}
		}
	})
}

// One text prepared by many at once, on many connections, cached and not.
func TestStatementsPreparedAtOnceOnManyConnectionsWork(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		b := newBed(t, d)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		db.SetMaxOpenConns(5)
		ctx := withDeadline(t)
		want := []string{"one", "two", "three"}
		for _, hint := range []string{"", "/* @cache ttl=1ms */"} {
			query := "SELECT " + hint + " v FROM items WHERE id = " + b.placeholder()
			shared, err := db.PrepareContext(ctx, query)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					own, err := db.PrepareContext(ctx, query)
					if err != nil {
						t.Error(err)
						return
					}
					defer own.Close()
					for j := range 10 {
						st := shared
						if j%2 == 0 {
							st = own
						}
						var v string
						if err := st.QueryRowContext(ctx, (i+j)%3+1).Scan(&v); err != nil || v != want[(i+j)%3] {
							t.Errorf("%q, %v", v, err)
						}
					}
				})
			}
			wg.Wait()
			if err := shared.Close(); err != nil {
				t.Error(err)
			}
			var v string
			if err := shared.QueryRowContext(ctx, 1).Scan(&v); err == nil || err.Error() != "sql: statement is closed" {
				t.Errorf("a closed statement: %v", err)
			}
		}
	})
}

// A statement outlives the connection that it was prepared on, and goes on like one of the bare driver.
func TestAStatementWorksAgainWhenItsConnectionWasLost(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		direct := newBed(t, d)
		b, proxy := direct.through(t)
		wrapped, _ := openHerd(t, b.Database, sqlherd.Config{})
		ctx := withDeadline(t)
		for name, db := range map[string]*sql.DB{"bare": b.Open(t), "wrapped": wrapped} {
			for _, hint := range []string{"", "/* @cache ttl=1ms */"} {
				st, err := db.PrepareContext(ctx, "SELECT "+hint+" v FROM items WHERE id = "+b.placeholder())
				if err != nil {
					t.Fatal(err)
				}
				read := func() error {
					var v string
					err := st.QueryRowContext(ctx, 1).Scan(&v)
					if err == nil && v != "one" {
						t.Errorf("%s: %q", name, v)
					}
					return err
				}
				if err := read(); err != nil {
					t.Fatal(err)
				}
				proxy.Cut()
				// A driver may learn of it by an error of the first statement.
				await(t, name+" goes on", func() bool { return read() == nil })
				if err := st.Close(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// A transaction whose connection is lost fails as on the bare driver, and is not retried.
func TestATransactionWhoseConnectionWasLostFailsAndTheNextOneWorks(t *testing.T) {
	eachServer(t, func(t *testing.T, d dbtest.Database) {
		direct := newBed(t, d)
		b, proxy := direct.through(t)
		db, _ := openHerd(t, b.Database, sqlherd.Config{})
		ctx := withDeadline(t)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, "UPDATE items SET v = 'lost' WHERE id = 1")
		proxy.Cut()
		_, err = tx.ExecContext(ctx, "UPDATE items SET v = 'lost' WHERE id = 2")
		if err == nil {
			t.Error("a write on a lost connection succeeds")
		}
		if err := tx.Commit(); err == nil {
			t.Error("a lost transaction commits")
		}
		await(t, "the next transaction works", func() bool {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return false
			}
			var v string
			err = tx.QueryRowContext(ctx, "SELECT v FROM items WHERE id = 1").Scan(&v)
			if err == nil && v != "one" {
				t.Errorf("a lost transaction has written %q", v)
			}
			return errors.Join(err, tx.Commit()) == nil
		})
	})
}

// A private in-memory database is there on one connection only, which loads for itself.
func TestAnInMemoryDatabaseIsCachedOnItsOwnConnection(t *testing.T) {
	on(t, func(t *testing.T, d dbtest.Database) {
		d.DSN = ":memory:"
		h := newHerd(t, sqlherd.Config{})
		if _, err := connectorOf(h, d); err == nil || !strings.Contains(err.Error(), "LoadOnCallerConn") {
			t.Errorf("without LoadOnCallerConn: %v", err)
		}
		db, h := openHerd(t, d, sqlherd.Config{LoadOnCallerConn: true})
		db.SetMaxOpenConns(1)
		bare := d.Open(t)
		bare.SetMaxOpenConns(1)
		for _, p := range []*sql.DB{bare, db} {
			mustExec(t, p, "CREATE TABLE items (id INTEGER PRIMARY KEY, v TEXT, at DATETIME)", "INSERT INTO items VALUES (1, 'one', '2024-07-01 12:00:00'), (2, NULL, NULL)")
		}
		const query = "SELECT /* @cache ttl=10m */ id, v, at, max(id) OVER () AS m FROM items ORDER BY id"
		for i, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit, sqlherd.Hit} {
			for _, prepared := range []bool{false, true} {
				var info sqlherd.Info
				got := see(sqlherd.WithInfo(withDeadline(t), &info), db, prepared, query)
				if _, diff := got.differences(see(withDeadline(t), bare, prepared, query)); diff != nil {
					t.Errorf("%d: %s", i, strings.Join(diff, "\n"))
				}
				if info.Outcome != o {
					t.Errorf("%d: %v, want %v", i, info.Outcome, o)
				}
			}
		}
		for _, p := range []*sql.DB{bare, db} {
			mustExec(t, p, "UPDATE items SET v = 'changed' WHERE id = 2")
		}
		if _, diff := see(withDeadline(t), db, false, query).differences(see(withDeadline(t), bare, false, query)); diff != nil {
			t.Error(strings.Join(diff, "\n"))
		}
		if st := h.Stats(); st.Dials != 1 {
			t.Errorf("%d connections", st.Dials)
		}
	}, dbtest.SQLite, dbtest.SQLiteCgo)
}

// Rows are scanned into the fields of a struct, as applications do.
func TestAStructScannedFromAHitIsTheOneFromTheBareDriver(t *testing.T) {
	type item struct {
		ID    int64
		Name  string
		Note  sql.NullString
		Price float64
		Count *int
		Raw   []byte
		Any   any
	}
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		raw := map[dbtest.Engine]string{dbtest.EnginePostgres: "BYTEA", dbtest.EngineMariaDB: "BLOB", dbtest.EngineSQLite: "BLOB"}[d.Engine]
		d.Exec(t, "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, note VARCHAR(20), price DOUBLE PRECISION, n INT, raw "+raw+", at TIMESTAMP NULL)",
			"INSERT INTO items VALUES (1, 'one', 'n', 1.5, 7, 'abc', '2024-07-01 12:00:00'), (2, '', NULL, 0.1, NULL, NULL, NULL)")
		db, _ := openHerd(t, d, sqlherd.Config{})
		read := func(p *sql.DB) (items []item) {
			rows, err := p.QueryContext(withDeadline(t), "SELECT /* @cache ttl=10m */ id, name, note, price, n, raw, at FROM items ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var i item
				if err := rows.Scan(&i.ID, &i.Name, &i.Note, &i.Price, &i.Count, &i.Raw, &i.Any); err != nil {
					t.Fatal(err)
				}
				items = append(items, i)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return items
		}
		describeAll := func(items []item) string {
			var b strings.Builder
			for _, i := range items {
				fmt.Fprintln(&b, i.ID, i.Name, i.Note, i.Price, describe(i.Count), describe(i.Raw), describe(i.Any))
			}
			return b.String()
		}
		want := describeAll(read(d.Open(t)))
		for range 3 {
			if got := describeAll(read(db)); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		}
	})
}
