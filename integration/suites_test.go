//go:build !race

// The race detector has nothing to find here that the tests of this package do not show, and building each suite
// with it takes longer than all of them run.

package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jmoiron/sqlx" // whose tests are run; go.mod says which version

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A foreignSuite is the tests of somebody else's module, which know nothing of sqlherd. They are run over the bare drivers and
// over wrapped ones, from one test binary, and each test must end the same way.
type foreignSuite struct {
	module  string
	patches []patch
	added   string   // a file for the package; SQLHERD_SUITE says in it how to run
	flags   []string // of go test -c
	env     func(t *testing.T) []string
	skip    string // tests that have nothing to do with database/sql, or ask for a server of another kind

	// differs holds the tests that end otherwise over a wrapped driver, for the reason that stands beside each.
	differs map[string]bool // by mode and name; subtests are included
}

// A patch changes one line of a module's own files.
type patch struct{ file, old, new string }

// herdGo is put into every suite's package: openers of Herds as the environment asks for.
const herdGo = `
import (
	"database/sql/driver"
	"log/slog"
	"os"
	"time"

	"github.com/sqlherd/sqlherd"
)

// suiteDriver wraps d as SQLHERD_SUITE says: not at all, passing everything on, or caching each
// query that may be cached.
func suiteDriver(d driver.Driver) driver.Driver {
	cfg := sqlherd.Config{Logger: slog.New(slog.DiscardHandler)}
	switch os.Getenv("SQLHERD_SUITE") {
	case "wrapped":
	case "cached":
		cfg.Rules = []sqlherd.Rule{{Pattern: ".", Policy: sqlherd.Policy{TTL: time.Minute}}}
	default:
		return d
	}
	h, err := sqlherd.New(cfg)
	if err != nil {
		panic(err)
	}
	return h.Driver(d)
}
`

var foreignSuites = []foreignSuite{
	{
		module:  "github.com/lib/pq",
		patches: []patch{{"conn.go", `sql.Register("postgres", &Driver{})`, `sql.Register("postgres", suiteDriver(&Driver{}))`}},
		added:   "package pq\n" + herdGo,
		// The test changes a setting of the whole driver, EnableInfinityTs, under which the same rows decode to others.
		differs: map[string]bool{"cached TestTimeInfinity": true},
		skip:    "Listen|Notif|SSL|TLS|Example", // their own connections; certificates
		env: func(t *testing.T) []string {
			u, err := url.Parse(dbtest.PQ(t).DSN)
			if err != nil {
				t.Fatal(err)
			}
			password, _ := u.User.Password()
			return []string{
				"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=" + u.User.Username(), "PGPASSWORD=" + password,
				"PGDATABASE=" + u.Path[1:], "PGSSLMODE=disable",
			}
		},
	},
	{
		module: "github.com/go-sql-driver/mysql",
		added:  "package mysql\n" + strings.Replace(herdGo, "import (", "import (\n\t\"database/sql\"", 1) + `func init() { sql.Register("suite", suiteDriver(&MySQLDriver{})) }`,
		flags:  []string{"-ldflags=-X github.com/go-sql-driver/mysql.driverNameTest=suite"},
		// One dials into the internet; the others take the driver's own connection from sql.Conn.Raw, for which there is sqlherd.Raw.
		skip: "TestConnectorReturnsTimeout$|TestPing$|TestExecMultipleResults$|TestQueryMultipleResults$",
		env: func(t *testing.T) []string {
			cfg, err := mysql.ParseDSN(dbtest.MariaDB(t).DSN)
			if err != nil {
				t.Fatal(err)
			}
			return []string{
				"MYSQL_TEST_USER=" + cfg.User, "MYSQL_TEST_PASS=" + cfg.Passwd, "MYSQL_TEST_PROT=tcp", "MYSQL_TEST_ADDR=" + cfg.Addr,
				"MYSQL_TEST_DBNAME=" + cfg.DBName,
			}
		},
	},
	{
		module: "github.com/jmoiron/sqlx",
		patches: []patch{
			{"sqlx_test.go", `Connect("postgres",`, `suiteConnect("postgres",`},
			{"sqlx_test.go", `Connect("mysql",`, `suiteConnect("mysql",`},
			{"sqlx_test.go", `Connect("sqlite3",`, `suiteConnect("sqlite3",`},
		},
		added: "package sqlx\n" + strings.Replace(herdGo, "import (", "import (\n\t\"database/sql\"", 1) + `
// suiteConnect is the documented way to open sqlx on a wrapped driver: the name tells the placeholders.
func suiteConnect(name, dsn string) (*DB, error) {
	bare, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	d := suiteDriver(bare.Driver())
	if d == bare.Driver() {
		return Connect(name, dsn)
	}
	c, err := d.(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := NewDb(sql.OpenDB(c), name)
	return db, db.Ping()
}
`,
		env: func(t *testing.T) []string {
			return []string{
				"SQLX_POSTGRES_DSN=" + dbtest.PQ(t).DSN, "SQLX_MYSQL_DSN=" + dbtest.MariaDB(t).DSN,
				"SQLX_SQLITE_DSN=" + filepath.Join(t.TempDir(), "sqlx.db"),
			}
		},
	},
}

func TestSuitesOfOthersEndTheSameOverAWrappedDriver(t *testing.T) {
	dbtest.PQ(t) // without servers there is nothing to compare
	for _, s := range foreignSuites {
		t.Run(s.module, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			bin, dir := s.build(t)
			bare := s.results(t, bin, dir, "bare", "")
			passed := 0
			for _, how := range bare {
				if how == "PASS" {
					passed++
				}
			}
			t.Logf("%d tests, of which %d pass over the bare driver", len(bare), passed)
			if passed < 30 {
				t.Error("too few for this to prove anything")
			}
			for _, mode := range []string{"wrapped", "cached"} {
				got := s.results(t, bin, dir, mode, "")
				// Some of these tests hold the clock against the code: what differs has three more tries, alone.
				for range 3 {
					again := map[string]bool{}
					for _, name := range s.differing(bare, got, mode) {
						test, _, _ := strings.Cut(name, "/")
						again["^"+test+"$"] = true
					}
					if len(again) == 0 {
						break
					}
					maps.Copy(got, s.results(t, bin, dir, mode, strings.Join(slices.Sorted(maps.Keys(again)), "|")))
				}
				for _, name := range s.differing(bare, got, mode) {
					t.Errorf("%s, %s: %q, and bare %q", name, mode, got[name], bare[name])
				}
			}
		})
	}
}

// differing returns the tests that ended otherwise than over the bare driver, though they need not.
func (s *foreignSuite) differing(bare, got map[string]string, mode string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(bare)) {
		test, _, _ := strings.Cut(name, "/")
		if got[name] != bare[name] && !s.differs[mode+" "+test] {
			names = append(names, name)
		}
	}
	return names
}

// build makes the suite's test binary from a patched copy of the module. dir is where its test data is.
func (s *foreignSuite) build(t *testing.T) (bin, dir string) {
	t.Helper()
	tmp := t.TempDir()
	src := strings.TrimSpace(goCommand(t, "list", "-m", "-f", "{{.Dir}}", s.module))
	dir = filepath.Join(tmp, "module")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.patches {
		file := filepath.Join(dir, p.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(text, []byte(p.old)) != 1 {
			t.Fatalf("%s has not once %s", p.file, p.old)
		}
		write(t, file, strings.Replace(string(text), p.old, p.new, 1))
	}
	name := "suite_test.go"
	if len(s.patches) > 0 && !strings.HasSuffix(s.patches[0].file, "_test.go") {
		name = "suite.go"
	}
	write(t, filepath.Join(dir, name), s.added)

	// The copy takes the module's place in this module's own list.
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(mod), "=> ../", "=> "+root)
	write(t, filepath.Join(tmp, "go.mod"), text+fmt.Sprintf("\nreplace %s => %s\n", s.module, dir))
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tmp, "go.sum"), string(sums))
	bin = filepath.Join(tmp, "suite.test")
	args := append([]string{"test", "-c", "-vet=off", "-modfile", filepath.Join(tmp, "go.mod"), "-o", bin}, s.flags...)
	goCommand(t, append(args, s.module)...)
	return bin, dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	_ = os.Chmod(file, 0o600) // the module cache is read-only; a new file is not there yet
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// results runs the suite, or the tests that match run, on databases of its own, and returns how each test ended.
func (s *foreignSuite) results(t *testing.T, bin, dir, mode, run string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.v", "-test.timeout=2m", "-test.run="+run, "-test.skip="+s.skip)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SQLHERD_SUITE="+mode)
	cmd.Env = append(cmd.Env, s.env(t)...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	ends := map[string]string{}
	for _, m := range resultLine.FindAllSubmatch(out, -1) {
		ends[string(m[2])] = string(m[1])
	}
	if bytes.Contains(out, []byte("\npanic: ")) {
		t.Errorf("%s: the suite panics\n%s", mode, tail(out))
	}
	t.Logf("%s: %d tests in %v (%v)", mode, len(ends), time.Since(began).Round(100*time.Millisecond), err)
	if keep := os.Getenv("SQLHERD_SUITE_LOGS"); keep != "" {
		write(t, filepath.Join(keep, strings.ReplaceAll(s.module, "/", "_")+"."+mode+".log"), string(out))
	}
	return ends
}

func tail(out []byte) []byte { return out[max(0, len(out)-4000):] }
