package main

import (
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// server returns the address of a server that make test has started, or skips.
func server(t *testing.T, name string) string {
	t.Helper()
	address := os.Getenv(name)
	if address == "" && os.Getenv("SQLHERD_TEST_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set", name)
	}
	if address == "" {
		t.Skipf("%s is not set; make test sets it", name)
	}
	return address
}

func TestOnPostgreSQLAndRedisTheServerCounts(t *testing.T) {
	dsn := server(t, "SQLHERD_TEST_POSTGRES")
	testOnServers(t, dsn, server(t, "SQLHERD_TEST_REDIS"))

	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	mustBeGone(t, db, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'sqlherd\_stampede\_%'`)
}

func TestOnMySQLAndRedisTheServerCounts(t *testing.T) {
	const name = "sqlherd_example"
	cfg, err := mysql.ParseDSN(server(t, "SQLHERD_TEST_MYSQL"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = ""
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE DATABASE IF NOT EXISTS `+name); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := db.Exec(`DROP DATABASE ` + name); err != nil {
			t.Error(err)
		}
	}()

	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + name}
	testOnServers(t, u.String(), server(t, "SQLHERD_TEST_REDIS"))
	mustBeGone(t, db, `SELECT count(*) FROM information_schema.tables WHERE table_schema = '`+name+`'`)
	mustBeGone(t, db, `SELECT count(*) FROM information_schema.routines WHERE routine_schema = '`+name+`'`)
}

func testOnServers(t *testing.T, dsn, redis string) {
	const callers, procs, expiries = 40, 2, 2
	code, stdout, stderr := program(t, t.Context(), "-json", "-mode=none,fleet,fleet+swr", "-procs=2", "-callers=40", "-expiries=2",
		"-load=50ms", "-ttl=1s", "-dsn", dsn, "-redis", redis)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, r := range runsOf(t, stdout) {
		perExpiry, connsMax := 1, procs
		if r.Mode == "none" {
			perExpiry, connsMax = callers, callers
		}
		if r.DBQueries != perExpiry*expiries || r.Reads != callers*expiries || r.Outcomes["error"] > 0 {
			t.Errorf("%s: %d queries, %d reads, outcomes %v; want %d, %d and no error",
				r.Mode, r.DBQueries, r.Reads, r.Outcomes, perExpiry*expiries, callers*expiries)
		}
		if r.DBConnsPeak < 1 || r.DBConnsPeak > connsMax {
			t.Errorf("%s: %d connections; want at most %d", r.Mode, r.DBConnsPeak, connsMax)
		}
	}
}

// mustBeGone checks that nothing is left at the server.
func mustBeGone(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	var left int
	if err := db.QueryRowContext(t.Context(), query).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%s gives %d", strings.TrimSpace(query), left)
	}
}
