package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/lib/pq"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// tenants is a table whose rows PostgreSQL shows by tenant: by the setting app.tenant, or, in the table logins, by
// the login. The login that is returned is no superuser, for whom policies do not count.
func tenants(t *testing.T, open func(testing.TB) dbtest.Database) (owner, login dbtest.Database) {
	owner = open(t)
	login = owner.WithUser(t, "secret")
	var name string
	if err := login.Open(t).QueryRow("SELECT current_user").Scan(&name); err != nil {
		t.Fatal(err)
	}
	owner.Exec(t, "ALTER ROLE "+name+" NOSUPERUSER",
		"CREATE TABLE docs (tenant text, v text)", "INSERT INTO docs VALUES ('a', 'of a'), ('b', 'of b'), ('', 'of nobody')",
		"ALTER TABLE docs ENABLE ROW LEVEL SECURITY",
		"CREATE POLICY tenants ON docs USING (tenant = coalesce(current_setting('app.tenant', true), ''))",
		"CREATE TABLE logins (login text, v text)", fmt.Sprintf("INSERT INTO logins VALUES ('%s', 'mine'), ('x', 'of x')", name),
		"ALTER TABLE logins ENABLE ROW LEVEL SECURITY", "CREATE POLICY logins ON logins USING (login = current_user)",
		"GRANT SELECT, UPDATE ON docs, logins TO "+name)
	return owner, login
}

var postgresDrivers = map[string]func(testing.TB) dbtest.Database{"pq": dbtest.PQ, "pgx": dbtest.PGX}

// C02, R18.
func TestRowsThatAPolicyHidesAreNotSeenByAnotherTenant(t *testing.T) {
	const query = "SELECT /* @cache ttl=10m */ v FROM docs"
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			rdb, ns := dbtest.Redis(t)
			_, d := tenants(t, open)
			db, h := openHerd(t, d, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
			wantText(t, db, "of nobody", sqlherd.Miss, query)
			wantText(t, db, "of nobody", sqlherd.Hit, query)
			for _, set := range []string{"SET app.tenant = '%s'", "SELECT set_config('app.tenant', '%s', false)", "SELECT set_config('app.tenant', '%s', false) FROM docs"} {
				for _, tenant := range []string{"a", "b", "a"} {
					mine := conn(t, db)
					mustExec(t, mine, fmt.Sprintf(set, tenant))
					for range 2 {
						info := wantText(t, mine, "of "+tenant, sqlherd.Bypassed, query)
						if info.Reason != sqlherd.ReasonSession {
							t.Errorf("%v, want session", info.Reason)
						}
					}
					wantText(t, db, "of nobody", sqlherd.Hit, query)
				}
			}
			// By transaction, as middleware for tenants does it: nothing of it stays on the connection.
			for _, tenant := range []string{"a", "b"} {
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				mustExec(t, tx, fmt.Sprintf("SELECT set_config('app.tenant', '%s', true)", tenant))
				wantText(t, tx, "of "+tenant, sqlherd.Bypassed, query)
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				wantText(t, db, "of nobody", sqlherd.Hit, query)
			}
			if st := h.Stats(); st.Loads != 1 {
				t.Errorf("%d loads, want the one of the default session", st.Loads)
			}
		})
	}
}

func TestALoginsPolicyIsNotAnothersWithTheSameStatement(t *testing.T) {
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			owner, login := tenants(t, open)
			owner.Exec(t, "INSERT INTO logins VALUES (current_user, 'of the owner')", "ALTER TABLE logins FORCE ROW LEVEL SECURITY", "DELETE FROM logins WHERE login = 'x'")
			other := owner.WithUser(t, "secret")
			var who string
			if err := other.Open(t).QueryRow("SELECT current_user").Scan(&who); err != nil {
				t.Fatal(err)
			}
			owner.Exec(t, "ALTER ROLE "+who+" NOSUPERUSER", "GRANT SELECT ON logins TO "+who, fmt.Sprintf("INSERT INTO logins VALUES ('%s', 'of the other')", who))
			apart(t, "v FROM logins", view{"login", login, "mine"}, view{"other", other, "of the other"})
		})
	}
}

// Two tenants whose sessions differ by something that sqlherd cannot see, such as a setting the DSN's connector makes in
// its own way, are told apart by their scopes.
func TestAScopeIsSharedInsideATenantAndByNobodyElse(t *testing.T) {
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
		here, _ := openHerd(t, b.Database, cfg)
		there, th := openHerd(t, b.Database, cfg) // another process
		await(t, "messages arrive", func() bool { return th.Stats().Redis.Subscribed })
		query := b.slow("ttl=10m", 0)
		a := sqlherd.WithScope(withDeadline(t), "tenant:a")
		z := sqlherd.WithScope(withDeadline(t), "tenant:z")
		read := func(ctx context.Context, db *sql.DB, want string, outcome sqlherd.Outcome) {
			t.Helper()
			v, info, err := text(ctx, db, query, 1)
			if err != nil || v != want || info.Outcome != outcome {
				t.Errorf("%q (%v), %v; want %q (%v)", v, info.Outcome, err, want, outcome)
			}
		}
		read(a, here, "one", sqlherd.Miss)
		read(a, here, "one", sqlherd.Hit)
		read(a, there, "one", sqlherd.Hit)
		b.set(t, 1, "changed")
		read(z, there, "changed", sqlherd.Miss)
		read(z, here, "changed", sqlherd.Hit)
		read(a, there, "one", sqlherd.Hit)
		read(withDeadline(t), here, "changed", sqlherd.Miss) // no scope is one of its own
		b.wantLoads(t, 3)
		if names := entryKeys(t, rdb, ns); len(names) != 3 {
			t.Errorf("%d entries in Redis, want one for each scope: %q", len(names), names)
		}

		// C11: a write reaches every tenant's result, in both processes, and refills stay apart.
		mustExec(t, here, "UPDATE items SET v = 'again' WHERE id = 1")
		read(a, here, "again", sqlherd.Miss)
		read(z, here, "again", sqlherd.Miss)
		await(t, "the other process has heard of it", func() bool { return th.Stats().InvalidationsHeard > 0 })
		read(a, there, "again", sqlherd.Hit)
		read(z, there, "again", sqlherd.Hit)
	})
}

// C04.
func TestAPrivilegeThatIsTakenAwayIsNoticedWhenTheRowsAreForgotten(t *testing.T) {
	const query = "SELECT /* @cache ttl=10m sie=1h tags=docs */ v FROM docs"
	for name, open := range postgresDrivers {
		t.Run(name, func(t *testing.T) {
			rdb, ns := dbtest.Redis(t)
			owner, d := tenants(t, open)
			db, h := openHerd(t, d, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout})
			wantText(t, db, "of nobody", sqlherd.Miss, query)
			owner.Exec(t, "REVOKE SELECT ON docs FROM PUBLIC, "+loginOf(t, d))
			wantText(t, db, "of nobody", sqlherd.Hit, query) // until the ttl: docs/guarantees.md
			if err := h.Invalidate(withDeadline(t), "docs"); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				v, info, err := text(withDeadline(t), db, query)
				if code := sqlState(err); code != "42501" {
					t.Errorf("%q (%v), %v; want the database's refusal", v, info.Outcome, err)
				}
			}
		})
		// Rows that are old enough for stale-if-error, and would be served if the database could not be reached.
		t.Run(name+", when the rows' life ends", func(t *testing.T) {
			const query = "SELECT /* @cache ttl=20ms jitter=0 sie=1h */ v FROM docs"
			owner, d := tenants(t, open)
			db, _ := openHerd(t, d, sqlherd.Config{})
			wantText(t, db, "of nobody", sqlherd.Miss, query)
			owner.Exec(t, "REVOKE SELECT ON docs FROM PUBLIC, "+loginOf(t, d))
			var err error
			await(t, "the rows' life ends", func() bool {
				var info sqlherd.Info
				_, info, err = text(withDeadline(t), db, query)
				if err == nil && info.Outcome != sqlherd.Hit {
					t.Fatalf("%v after the privilege is gone", info.Outcome)
				}
				return err != nil
			})
			for range 3 {
				if code := sqlState(err); code != "42501" {
					t.Errorf("%v; want the database's refusal", err)
				}
				_, _, err = text(withDeadline(t), db, query)
			}
		})
	}
}

func loginOf(t *testing.T, d dbtest.Database) (name string) {
	t.Helper()
	if err := d.Open(t).QueryRow("SELECT current_user").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// sqlState returns the SQLSTATE of a PostgreSQL error.
func sqlState(err error) string {
	var ofPQ *pq.Error
	var ofPGX *pgconn.PgError
	switch {
	case errors.As(err, &ofPQ):
		return string(ofPQ.Code)
	case errors.As(err, &ofPGX):
		return ofPGX.Code
	}
	return ""
}
