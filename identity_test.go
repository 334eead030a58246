package sqlherd

import (
	"errors"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

const (
	pqType     = "*github.com/lib/pq.Driver"
	pgxType    = "*github.com/jackc/pgx/v5/stdlib.Driver"
	mysqlType  = "*github.com/go-sql-driver/mysql.MySQLDriver"
	sqliteType = "*github.com/mattn/go-sqlite3.SQLiteDriver"
	otherType  = "*example.test/driver.Driver"
)

// cleanEnv takes away what PostgreSQL's drivers would read.
func cleanEnv(t testing.TB) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
}

// onMachine runs f as if on another machine.
func onMachine(name string, f func()) {
	old := machineName
	machineName = func() string { return name }
	defer func() { machineName = old }()
	f()
}

func identityOf(t testing.TB, d Dialect, driverType, dsn string) string {
	t.Helper()
	id, err := dsnIdentity(d, driverType, dsn)
	if err != nil {
		t.Fatalf("%s: %v", dsn, err)
	}
	return id
}

// dsnForms are the ways in which a password is written. dsn must be read alike
// whatever the password is.
var dsnForms = []struct {
	name       string
	dialect    Dialect
	driverType string
	dsn        func(password string) string
}{
	{"pq URL", PostgreSQL, pqType, func(p string) string {
		return "postgres://" + url.UserPassword("app", p).String() + "@db.test:5432/shop?sslmode=disable"
	}},
	{"pgx URL", PostgreSQL, pgxType, func(p string) string {
		return "postgresql://" + url.UserPassword("app", p).String() + "@db1.test:5432,db2.test/shop?search_path=x"
	}},
	{"PostgreSQL URL of another driver", PostgreSQL, otherType, func(p string) string {
		return "postgres://app:" + percent(p) + "@db.test/shop"
	}},
	{"pq URL with options", PostgreSQL, pqType, func(p string) string {
		return "postgres://db.test/shop?user=app&password=" + url.QueryEscape(p) + "&sslpassword=" + url.QueryEscape(p)
	}},
	{"pgx URL with options", PostgreSQL, pgxType, func(p string) string {
		return "postgres://db.test/shop?user=app&password=" + percent(p) + "x&sslpassword=" + percent(p)
	}},
	{"pq key=value", PostgreSQL, pqType, func(p string) string {
		return "host=db.test user=app password=" + quoteValue(p) + " dbname=shop sslpassword=" + quoteValue(p)
	}},
	{"pgx key=value", PostgreSQL, pgxType, func(p string) string {
		return "password = " + quoteValue(p) + " host = db.test\tuser=app\ndbname='shop'"
	}},
	{"key=value of another driver, unquoted", PostgreSQL, otherType, func(p string) string {
		return "host=db.test user=app password=" + escapeValue(p) + " dbname=shop"
	}},
	{"MySQL", MySQL, mysqlType, func(p string) string { return "app:" + p + "@tcp(db.test:3306)/shop?parseTime=true&loc=UTC" }},
	{"MySQL over IPv6", MySQL, mysqlType, func(p string) string { return "app:" + p + "@tcp([2001:db8::1]:3306)/shop" }},
	{"MySQL through a socket", MySQL, mysqlType, func(p string) string { return "app:" + p + "@unix(/run/mysqld/mysqld.sock)/shop" }},
	{"MySQL without an address", MySQL, mysqlType, func(p string) string { return "app:" + p + "@/shop" }},
	{"SQLite user", SQLite, sqliteType, func(p string) string {
		return "file:/srv/app.db?_auth&_auth_user=app&_auth_pass=" + url.QueryEscape(p) + "&_auth_salt=" + url.QueryEscape(p)
	}},
	{"SQLite key", SQLite, sqliteType, func(p string) string { return "/srv/app.db?_loc=auto&_key=" + url.QueryEscape(p) }},
	{"URL of an unknown driver", DialectUnknown, otherType, func(p string) string {
		return "clickhouse://" + url.UserPassword("app", p).String() + "@db.test:9000/shop?password=" + url.QueryEscape(p)
	}},
}

// percent escapes for PostgreSQL's own URL parser, to which '+' is no space.
func percent(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func quoteValue(s string) string {
	return "'" + strings.NewReplacer(`'`, `\'`, `\`, `\\`).Replace(s) + "'"
}

func escapeValue(s string) string {
	var b strings.Builder
	for _, r := range "p" + s { // an empty value would take the next word
		b.WriteString(`\` + string(r))
	}
	return b.String()
}

var passwords = []string{
	"", "hunter2", "p@ss:w/rd", "a'b", `a\b`, `a\'b`, "a b", "=", "a=b&c=d", "?x=y", "#frag", "%41", "+", "tcp(other:1)/db",
	"x@tcp(evil:1)/db", "/", "@", ":", "\u00a0\u0085", "パスワード", "dbname=evil", "' dbname='evil", "[::1]", "(", ")", "\t\n",
}

func TestAChangedPasswordDoesNotChangeTheIdentity(t *testing.T) {
	cleanEnv(t)
	for _, form := range dsnForms {
		want := identityOf(t, form.dialect, form.driverType, form.dsn("first"))
		for _, p := range passwords {
			if got := identityOf(t, form.dialect, form.driverType, form.dsn(p)); got != want {
				t.Errorf("%s with %q: %s, want %s", form.name, p, got, want)
			}
		}
	}
}

// FuzzPasswordNeverInIdentity: an identity is the same for every password, so that none
// can be in it.
func FuzzPasswordNeverInIdentity(f *testing.F) {
	for _, p := range passwords {
		f.Add(p)
	}
	cleanEnv(f)
	f.Fuzz(func(t *testing.T, p string) {
		if strings.ContainsRune(p, 0) || strings.ToValidUTF8(p, "") != p {
			t.Skip("PostgreSQL has no such password")
		}
		for _, form := range dsnForms {
			want := identityOf(t, form.dialect, form.driverType, form.dsn("first"))
			if got := identityOf(t, form.dialect, form.driverType, form.dsn(p)); got != want {
				t.Errorf("%s: %s, want %s", form.name, got, want)
			}
		}
	})
}

// FuzzIdentityOfAnything: whatever the DSN, there is an answer, and an error that holds
// nothing of it.
func FuzzIdentityOfAnything(f *testing.F) {
	for _, form := range dsnForms {
		f.Add(form.dsn("p@ss"))
	}
	for _, dsn := range []string{"", "registeredConnConfig0", ":memory:", "file:?", "file:%", "postgres://[::1", "a=\\", "a='", "=", "file://x", "?", "/", "(", "postgres://a,b,:1,/"} {
		f.Add(dsn)
	}
	cleanEnv(f)
	f.Fuzz(func(t *testing.T, dsn string) {
		for d := DialectUnknown; d <= SQLite; d++ {
			for _, driverType := range []string{pqType, pgxType, otherType} {
				id, err := dsnIdentity(d, driverType, dsn)
				if (id == "") == (err == nil) {
					t.Fatalf("%v: %q %v", d, id, err)
				}
				if err != nil && len(dsn) > 12 && !strings.Contains(dsn, "service") && strings.Contains(err.Error(), dsn) {
					t.Errorf("the error quotes the DSN: %v", err)
				}
				again, _ := dsnIdentity(d, driverType, dsn)
				if unique := strings.Contains(id, "unique:"); unique == (id == again) {
					t.Errorf("two answers: %s, %s", id, again)
				}
				if isPrivateMemoryDSN(d, dsn) && !strings.Contains(id, "unique:") {
					t.Errorf("private, but not unique: %s", id)
				}
			}
		}
	})
}

func TestAnythingElseThatChangesGivesAnotherIdentity(t *testing.T) {
	cleanEnv(t)
	for _, group := range []struct {
		name       string
		dialect    Dialect
		driverType string
		dsns       []string
	}{
		{"pq URLs", PostgreSQL, pqType, []string{
			"postgres://app:pw@db.test/shop", "postgres://app:pw@db2.test/shop", "postgres://app:pw@db.test:5433/shop",
			"postgres://app:pw@db.test/shop2", "postgres://bob:pw@db.test/shop", "postgres://app:pw@db.test/shop?search_path=t1",
			"postgres://app:pw@db.test/shop?search_path=t2", "postgres://app:pw@db.test/shop?TimeZone=UTC", "postgres://app:pw@db.test/shop?timezone=UTC",
			"postgres://app:pw@db.test/shop?options=-c%20search_path%3Dt1", "postgres://app:pw@db.test/shop?options=-c%20search_path%3Dt2",
			"postgres://app:pw@db.test/shop?binary_parameters=yes", "postgres://app:pw@db.test", "postgres://app:pw@/shop", "postgres://db.test/shop",
			"postgres://app:pw@db.test/shop?application_name=a", "postgres://app:pw@db.test/shop?dbname=a", "postgres://app:pw@db.test/shop?database=a",
			"postgres://app:pw@db.test/shop?hostaddr=10.0.0.1", "postgres://app:pw@db.test,db2.test/shop", "postgres://app:pw@db2.test,db.test/shop",
			"postgres://app:pw@[2001:db8::1]/shop", "postgres://app:pw@[2001:db8::1]:5433/shop", "postgres://app:pw@10.0.0.1/shop",
			"postgres://app:pw@db.test/shop?x=1&x=2", "postgres://app:pw@db.test/shop?x=2&x=1",
		}},
		{"pgx URLs", PostgreSQL, pgxType, []string{
			"postgres://app:pw@db.test/shop", "postgres://app:pw@db.test:1,db2.test:2/shop", "postgres://app:pw@db.test:1,db2.test:3/shop",
			"postgres://app:pw@db.test:1,db2.test/shop", "postgres://app:pw@db.test/shop?default_query_exec_mode=exec",
			"postgres://app:pw@db.test/shop?default_query_exec_mode=simple_protocol", "postgres://app:pw@db.test/shop?search_path=a+b",
			"postgres://app:pw@db.test/shop?search_path=a%20b", "postgres://app:pw@%2Frun%2Fpostgresql/shop",
			"postgres://app:pw@db.test/shop?host=db2.test", "postgres://app:pw@db.test/?dbname=shop2",
		}},
		{"key=value", PostgreSQL, otherType, []string{
			"host=db.test user=app dbname=shop", "host=db.test user=app dbname=shop options='-c a=b'", "host=db.test user=app dbname=shop options='-c a=c'",
			"host=db.test user=app dbname=sho\\p\\ x", "host=db.test user=app dbname='shop\\'s'", "host=db.test user=app dbname=''",
			"host=db.test user='' dbname=shop", "host=db.test,db2.test port=1,2 user=app dbname=shop", "host=db.test,db2.test port=2,1 user=app dbname=shop",
			"dbname=a database=b user=u host=db.test", "database=a dbname=b user=u host=db.test", "",
		}},
		{"MySQL", MySQL, mysqlType, []string{
			"app:pw@tcp(db.test:3306)/shop", "app:pw@tcp(db.test:3307)/shop", "app:pw@tcp(db2.test:3306)/shop", "app:pw@tcp(db.test:3306)/shop2",
			"bob:pw@tcp(db.test:3306)/shop", "app:pw@tcp(db.test:3306)/shop?parseTime=true", "app:pw@tcp(db.test:3306)/shop?parseTime=false",
			"app:pw@tcp(db.test:3306)/shop?loc=Local", "app:pw@tcp(db.test:3306)/shop?charset=latin1", "app:pw@tcp(db.test:3306)/shop?time_zone=%27%2B09:00%27",
			"app:pw@tcp(db.test:3306)/shop?interpolateParams=true", "app:pw@tcp(db.test:3306)/shop?columnsWithAlias=true", "app:pw@tcp(db.test:3306)/",
			"app:pw@unix(/a.sock)/shop", "app:pw@unix(/b.sock)/shop", "app:pw@ssh(db.test:3306)/shop", "tcp(db.test:3306)/shop", "/shop", "/", "app@/shop",
			"app:pw@tcp([2001:db8::1]:3306)/shop", "app:pw@tcp(db.test:3306)/shop?user=bob", "app:pw@tcp(db.test:3306)/a%2Fb",
		}},
		{"SQLite", SQLite, sqliteType, []string{
			"/srv/a.db", "/srv/b.db", "/srv/../a.db", "a.db", "/srv/a.db?_loc=auto", "/srv/a.db?_loc=UTC", "file:/srv/a.db?mode=ro", "file:/srv/c%3fd.db",
			"file:mem?mode=memory&cache=shared", "file:mem2?mode=memory&cache=shared", "file::memory:?cache=shared", ":memory:", ":memory: ", "",
			"file:/mem?vfs=memdb", "file:/srv/a.db?vfs=embedded", "/srv/a.db?_pragma=foreign_keys(1)", "/srv/a.db?_pragma=foreign_keys(0)",
			"/srv/a.db?_pragma=a&_pragma=b", "/srv/a.db?_pragma=b&_pragma=a", "/srv/a.db?_pragma=key('x');x", "?a", "file:",
		}},
		{"unknown drivers", DialectUnknown, otherType, []string{
			"clickhouse://app:pw@db.test/shop", "clickhouse://app:pw@db2.test/shop", "clickhouse://bob:pw@db.test/shop", "clickhouse://app:pw@db.test/shop2",
			"clickhouse://app:pw@db.test/shop?tz=1", "clickhouse://app:pw@db.test/shop?token=a", "clickhouse://app:pw@db.test/shop?token=b",
			"server=a;password=x", "server=b;password=x", "server=a", "file.db", "x", "", "duckdb://a.db", "a:b:c", ":memory:",
		}},
	} {
		seen := make(map[string]string)
		for _, dsn := range group.dsns {
			id := identityOf(t, group.dialect, group.driverType, dsn)
			if other, ok := seen[id]; ok {
				t.Errorf("%s: %s and %s share the identity %s", group.name, dsn, other, id)
			}
			seen[id] = dsn
		}
	}
}

func TestEveryDriverHasIdentitiesOfItsOwn(t *testing.T) {
	cleanEnv(t)
	dsn := "postgres://app:pw@db.test/shop"
	if identityOf(t, PostgreSQL, pqType, dsn) == identityOf(t, PostgreSQL, pgxType, dsn) {
		t.Error("pq and pgx share one, though they give other Go types")
	}
}

func TestTheOrderOfOptionsDoesNotMatter(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		dialect Dialect
		a, b    string
	}{
		{PostgreSQL, "host=db.test user=a dbname=b", "dbname=b  user = 'a' host=db.test"},
		{PostgreSQL, "postgres://db.test/b?a=1&c=2", "postgresql://db.test/b?c=2&a=1"},
		{MySQL, "u@tcp(db.test)/b?parseTime=true&loc=UTC", "u@tcp(db.test)/b?loc=UTC&parseTime=true"},
		{SQLite, "/a.db?_loc=UTC&_fk=1", "/a.db?_fk=1&_loc=UTC"},
	} {
		if a, b := identityOf(t, c.dialect, otherType, c.a), identityOf(t, c.dialect, otherType, c.b); a != b {
			t.Errorf("%s\n%s", a, b)
		}
	}
}

func TestWhatLooksLikeASecretIsOnlyThereAsADigest(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		dialect Dialect
		dsn     string // with SECRET in it
	}{
		{PostgreSQL, "postgres://app@db.test/shop?app.tenant_token=SECRET"},
		{PostgreSQL, "host=db.test user=app options='-c app.api_key=SECRET'"},
		{PostgreSQL, "postgres://app@db.test/shop?options=-c%20app.pass%3DSECRET"},
		{MySQL, "app@tcp(db.test:3306)/shop?connectionAttributes=program:x,secret:SECRET"},
		{MySQL, "app@tcp(db.test:3306)/shop?connectionAttributes=%73ecret:SECRET"},
		{SQLite, "/srv/a.db?_pragma=attach%20key%20SECRET"},
		{DialectUnknown, "libsql://db.test?authToken=SECRET"},
		{DialectUnknown, "token:SECRET"},
	} {
		one := identityOf(t, c.dialect, pqType, strings.ReplaceAll(c.dsn, "SECRET", "hunter2"))
		two := identityOf(t, c.dialect, pqType, strings.ReplaceAll(c.dsn, "SECRET", "hunter3"))
		if strings.Contains(one, "hunter") {
			t.Errorf("%s: %s", c.dsn, one)
		}
		if one == two {
			t.Errorf("%s: a setting that may decide the rows was left out", c.dsn)
		}
	}
}

func TestTheKeyOfAnEncryptedDatabaseIsLeftOut(t *testing.T) {
	for _, dsn := range []string{"file:/a.db?_pragma=key('SECRET')", "/a.db?_pragma=main.hexkey%3D'SECRET'", "file:/a.db?vfs=unix&textkey=SECRET", "/a.db?_pragma_key=SECRET"} {
		one := identityOf(t, SQLite, sqliteType, strings.ReplaceAll(dsn, "SECRET", "hunter2"))
		two := identityOf(t, SQLite, sqliteType, strings.ReplaceAll(dsn, "SECRET", "hunter3"))
		if one != two || strings.Contains(one, "hunter") {
			t.Errorf("%s: %s, %s", dsn, one, two)
		}
	}
}

func TestWhatTheEnvironmentSaysCountsWhereTheDSNIsSilent(t *testing.T) {
	const silent, full = "sslmode=disable", "postgres://app:pw@db.test:5432/shop?options=-c%20a%3Db&application_name=x&target_session_attrs=any"
	for _, c := range []struct {
		env, value  string
		alsoForFull bool
	}{
		{"PGHOST", "db9.test", false}, {"PGPORT", "6000", false}, {"PGDATABASE", "nine", false}, {"PGUSER", "nine", false},
		{"PGOPTIONS", "-c search_path=nine", false}, {"PGTARGETSESSIONATTRS", "standby", false}, {"PGAPPNAME", "nine", false},
		{"PGHOSTADDR", "10.0.0.9", true}, {"PGTZ", "Asia/Tokyo", true}, {"PGDATESTYLE", "ISO, MDY", true}, {"PGCLIENTENCODING", "UTF8", true},
	} {
		t.Run(c.env, func(t *testing.T) {
			cleanEnv(t)
			silentBefore, fullBefore := identityOf(t, PostgreSQL, pqType, silent), identityOf(t, PostgreSQL, pqType, full)
			t.Setenv(c.env, c.value)
			if identityOf(t, PostgreSQL, pqType, silent) == silentBefore {
				t.Error("it did not count")
			}
			if (identityOf(t, PostgreSQL, pqType, full) != fullBefore) != c.alsoForFull {
				t.Errorf("a DSN that says it: changed %v, want %v", !c.alsoForFull, c.alsoForFull)
			}
		})
	}
	cleanEnv(t)
	before := identityOf(t, PostgreSQL, pgxType, silent)
	for _, name := range []string{"PGPASSWORD", "PGPASSFILE", "PGSSLPASSWORD", "PGSSLKEY"} {
		t.Setenv(name, "hunter2")
	}
	if after := identityOf(t, PostgreSQL, pgxType, silent); after != before {
		t.Errorf("passwords in the environment count: %s", after)
	}
}

func TestWithoutAUserTheSystemsUserCounts(t *testing.T) {
	cleanEnv(t)
	t.Setenv("USER", "alice")
	alice := identityOf(t, PostgreSQL, pqType, "host=db.test")
	named := identityOf(t, PostgreSQL, pqType, "host=db.test user=app")
	t.Setenv("USER", "bob")
	if identityOf(t, PostgreSQL, pqType, "host=db.test") == alice {
		t.Error("alice and bob share an identity")
	}
	if identityOf(t, PostgreSQL, pqType, "host=db.test user=app") != named {
		t.Error("it counts though the DSN names one")
	}
	t.Setenv("PGUSER", "app")
	if strings.Contains(identityOf(t, PostgreSQL, pqType, "host=db.test"), "bob") {
		t.Error("it counts though PGUSER is set")
	}
	t.Setenv("PGUSER", "")
	if u, err := user.Current(); err == nil && !strings.Contains(identityOf(t, PostgreSQL, pgxType, "user='' host=db.test"), u.Username) {
		t.Error("pgx asks the system, whatever USER is")
	}
}

func TestAServiceIsReadFromItsFile(t *testing.T) {
	cleanEnv(t)
	file := filepath.Join(t.TempDir(), "services")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PGSERVICEFILE", file)
	for _, driverType := range []string{pqType, pgxType, otherType} {
		write("# all\n[other]\nhost=db0.test\n\n[shop]\nhost = db1.test\nuser=app\npassword=hunter2\n[last]\nhost=db2.test\n")
		one := identityOf(t, PostgreSQL, driverType, "service=shop")
		if !strings.Contains(one, `service:host="db1.test"`) || strings.Contains(one, "hunter") || strings.Contains(one, "db0") ||
			strings.Contains(one, "db2") || strings.Contains(one, "machine:") || strings.Contains(one, "os.user:") {
			t.Errorf("%s", one)
		}
		write("[shop]\nhost = db1.test\nuser=app\npassword=changed\n")
		if got := identityOf(t, PostgreSQL, driverType, "service=shop"); got != one {
			t.Errorf("another password: %s", got)
		}
		write("[shop]\nhost = db9.test\nuser=app\n")
		if got := identityOf(t, PostgreSQL, driverType, "service=shop"); got == one {
			t.Errorf("another host: %s", got)
		}
		write("[shop]\nhost = localhost\n")
		if got := identityOf(t, PostgreSQL, driverType, "service=shop"); !strings.Contains(got, "machine:") || !strings.Contains(got, "os.user:") {
			t.Errorf("a local host and no user: %s", got)
		}
		write("[shop]\nnonsense\n")
		for _, dsn := range []string{"service=shop", "service=none"} {
			if _, err := dsnIdentity(PostgreSQL, driverType, dsn); !errors.Is(err, errNoIdentity) {
				t.Errorf("%s: %v", dsn, err)
			}
		}
	}
	t.Setenv("PGSERVICE", "shop")
	write("[shop]\nhost=db1.test\n")
	if got := identityOf(t, PostgreSQL, pqType, ""); !strings.Contains(got, "db1.test") {
		t.Errorf("PGSERVICE: %s", got)
	}
	t.Setenv("PGSERVICEFILE", "")
	if got, err := dsnIdentity(PostgreSQL, pqType, ""); err == nil {
		t.Errorf("without a file: %s", got)
	}
	if got := identityOf(t, PostgreSQL, pgxType, "servicefile="+quoteValue(file)); !strings.Contains(got, "db1.test") {
		t.Errorf("servicefile: %s", got)
	}
}

func TestWhatIsLocalBelongsToItsMachine(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		dialect Dialect
		dsn     string
		local   bool
	}{
		{PostgreSQL, "", true},
		{PostgreSQL, "user=app", true},
		{PostgreSQL, "host=localhost", true},
		{PostgreSQL, "host=LOCALHOST.", true},
		{PostgreSQL, "host=127.0.0.2", true},
		{PostgreSQL, "host=::1", true},
		{PostgreSQL, "host=::ffff:127.0.0.1", true},
		{PostgreSQL, "host=0.0.0.0", true},
		{PostgreSQL, "host=127.1", true},
		{PostgreSQL, "host=0x7f000001", true},
		{PostgreSQL, "host=/run/postgresql", true},
		{PostgreSQL, "host=@abstract", true},
		{PostgreSQL, "host=db.test,localhost", true},
		{PostgreSQL, "host=db.test,", true},
		{PostgreSQL, "host=fe80::1", true},
		{PostgreSQL, "host=db.test hostaddr=127.0.0.1", true},
		{PostgreSQL, "postgres://u:p@host.docker.internal/x", true},
		{PostgreSQL, "host=db.test", false},
		{PostgreSQL, "host=10.0.0.1", false},
		{PostgreSQL, "host=2001:db8::1", false},
		{PostgreSQL, "host=localhost.test", true}, // by its first label: rather too often
		{PostgreSQL, "host=db.test,db2.test", false},
		{MySQL, "/shop", true},
		{MySQL, "u@unix(/x.sock)/shop", true},
		{MySQL, "u@tcp(127.0.0.1:3306)/shop", true},
		{MySQL, "u@tcp(localhost)/shop", true},
		{MySQL, "u@tcp([::1]:3306)/shop", true},
		{MySQL, "u@tcp(:3306)/shop", true},
		{MySQL, "u@tcp(db.test:3306)/shop", false},
		{MySQL, "u@tcp([2001:db8::1])/shop", false},
		{MySQL, "u@cloudsql(project:region:shop)/shop", false},
		{SQLite, "/srv/a.db", true},
		{DialectUnknown, "server=db.test", true},
		{DialectUnknown, "x://localhost:1/db", true},
		{DialectUnknown, "x:///db", true},
		{DialectUnknown, "sqlite://db.test/a.db", true},
		{DialectUnknown, "x://u:p@db.test:1/db", false},
	} {
		var here, there string
		onMachine("here", func() { here = identityOf(t, c.dialect, otherType, c.dsn) })
		onMachine("there", func() { there = identityOf(t, c.dialect, otherType, c.dsn) })
		if (here != there) != c.local {
			t.Errorf("%s: local %v, want %v (%s)", c.dsn, !c.local, c.local, here)
		}
	}
}

func TestTheMachineHasANameAndDoesNotShowItsID(t *testing.T) {
	name := machineName()
	if name == "" || name != machineName() {
		t.Errorf("it is called %q", name)
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) > 8 && strings.Contains(name, strings.TrimSpace(string(id))) {
		t.Errorf("it shows: %q", name)
	}
}

func TestAFileIsTheSameByEveryNameOfIt(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := identityOf(t, SQLite, sqliteType, filepath.Join(dir, "a b.db"))
	for _, dsn := range []string{"a b.db", "./a b.db", "file:a b.db", "file:a%20b.db", "file:" + dir + "/a%20b.db", "file://localhost" + dir + "/a b.db", "file://" + dir + "/a b.db", "file:a b.db#frag", "file:a b.db?"} {
		if got := identityOf(t, SQLite, sqliteType, dsn); got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
	}
	// Elsewhere a relative name is another file.
	t.Chdir(t.TempDir())
	if got := identityOf(t, SQLite, sqliteType, "a b.db"); got == want {
		t.Errorf("in another directory: %s", got)
	}
	if up := identityOf(t, SQLite, sqliteType, "x/../a.db"); !strings.Contains(up, "x/../a.db") {
		t.Errorf("a link may be followed by ..: %s", up)
	}
}

func TestADriverThatKeepsTheQuestionMarkHasAnotherFile(t *testing.T) {
	const ncruces = "*github.com/ncruces/go-sqlite3/driver.SQLite"
	if identityOf(t, SQLite, ncruces, "/a.db?key=1") == identityOf(t, SQLite, ncruces, "/a.db?key=2") {
		t.Error("two files share an identity")
	}
}

func TestPrivateMemoryIsKnown(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		dsn     string
		private bool
	}{
		{SQLite, ":memory:", true},
		{SQLite, ":memory:?_loc=auto", true},
		{SQLite, ":memory:?cache=shared", true}, // no URI, so SQLite never sees the option
		{SQLite, "", true},
		{SQLite, "file:", true},
		{SQLite, "file:?cache=shared", true}, // a temporary database is never shared
		{SQLite, "file::memory:", true},
		{SQLite, "file:%3Amemory%3A", true},
		{SQLite, "file::memory:?cache=private", true},
		{SQLite, "file::memory:?cache=shared", false},
		{SQLite, "file::memory:?cache=shared&cache=private", true},
		{SQLite, "file::memory:?cache=private&cache=shared", false},
		{SQLite, "file::memory:?%63ache=s%68ared", false},
		{SQLite, "file::memory:?x#&cache=shared", true},
		{SQLite, "file:x?mode=memory", true},
		{SQLite, "file:x?mode=memory&cache=shared", false},
		{SQLite, "file:x?mode=memory&mode=rwc", false},
		{SQLite, "file:/x?vfs=memdb", false},
		{SQLite, "file:x?vfs=memdb", true},
		{SQLite, "x.db", false},
		{SQLite, "x.db?mode=memory", false},
		{SQLite, "file:x.db", false},
		{SQLite, "memory", false},
		{PostgreSQL, "", false},
		{PostgreSQL, "dbname=:memory:", false},
		{MySQL, ":memory:", false},
		{DialectUnknown, "", false},
		{DialectUnknown, ":memory:", true},
		{DialectUnknown, "file::memory:", true},
		{DialectUnknown, "x.db", false},
		{DialectAuto, ":memory:", true},
	} {
		if got := isPrivateMemoryDSN(c.dialect, c.dsn); got != c.private {
			t.Errorf("%d %q: %v, want %v", c.dialect, c.dsn, got, c.private)
		}
	}
}

func TestMemoryIsNotSharedWithOthers(t *testing.T) {
	for _, dsn := range []string{":memory:", "", "file:x?mode=memory"} {
		if identityOf(t, SQLite, sqliteType, dsn) == identityOf(t, SQLite, sqliteType, dsn) {
			t.Errorf("%q: two handles share an identity, but not a database", dsn)
		}
	}
	dsn := "file:x?mode=memory&cache=shared"
	mine := identityOf(t, SQLite, sqliteType, dsn)
	if mine != identityOf(t, SQLite, sqliteType, dsn) {
		t.Error("two handles share a database, but not an identity")
	}
	old := processName
	defer func() { processName = old }()
	processName = func() string { return "another" }
	if mine == identityOf(t, SQLite, sqliteType, dsn) {
		t.Error("another process has its own memory")
	}
}

func TestADSNThatCannotBeReadIsAnErrorThatSaysWhatToDo(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		name       string
		dialect    Dialect
		driverType string
		dsn        string
	}{
		{"a config registered with pgx", PostgreSQL, pgxType, "registeredConnConfig7"},
		{"no key=value", PostgreSQL, pqType, "hunter2"},
		{"a key without a value", PostgreSQL, pqType, "host=db.test hunter2"},
		{"a key in two words", PostgreSQL, pgxType, "host name=hunter2"},
		{"an open quote", PostgreSQL, pqType, "password='hunter2"},
		{"an open quote with an escape", PostgreSQL, pgxType, `password='hunter2\`},
		{"a raw @ in a pgx password", PostgreSQL, pgxType, "postgres://app:x@hunter2@db.test/shop"},
		{"a raw / in a pgx password", PostgreSQL, pgxType, "postgres://app:1/hunter2@db.test/shop"},
		{"a raw / in a pq password", PostgreSQL, pqType, "postgres://app:1/hunter2@db.test/shop"},
		{"a raw ? in a pq password", PostgreSQL, pqType, "postgres://app:1?a=hunter2@db.test/shop"},
		{"a raw # in a pq password", PostgreSQL, pqType, "postgres://app:1#hunter2@db.test/shop"},
		{"a bad escape", PostgreSQL, pqType, "postgres://app:%hunter2@db.test/shop"},
		{"a bad escape for pgx", PostgreSQL, pgxType, "postgres://app:%hunter2@db.test/shop"},
		{"a bad escape in a query", PostgreSQL, pqType, "postgres://db.test/shop?password=%hunter2"},
		{"a query without =", PostgreSQL, pgxType, "postgres://db.test/shop?hunter2"},
		{"a query with two =", PostgreSQL, pgxType, "postgres://db.test/shop?a=b=hunter2"},
		{"an open bracket", PostgreSQL, pgxType, "postgres://[::hunter2/shop"},
		{"text behind a bracket", PostgreSQL, pgxType, "postgres://[::1]hunter2/shop"},
		{"a name that is no word", PostgreSQL, pqType, "postgres://db.test/shop?password%3D'hunter2'%20x=1"},
		{"two readings", PostgreSQL, otherType, "postgres://db.test/shop?search_path=a+b"},
		{"two readings of a user", PostgreSQL, otherType, "user=a\u00a0password=hunter2"},
		{"a zero byte", PostgreSQL, pgxType, "host=\x00hunter2"},
		{"no slash", MySQL, mysqlType, "app:hunter2@tcp(db.test:3306)"},
		{"no closing parenthesis", MySQL, mysqlType, "app:hunter2@tcp(db.test:3306/shop"},
		{"a slash in an option", MySQL, mysqlType, "app:hunter2@tcp(db.test:3306)/shop?loc=Asia/Tokyo"},
		{"a slash in an option without an address", MySQL, mysqlType, "app:hunter2@/shop?loc=Asia/Tokyo"},
		{"a URL", MySQL, mysqlType, "mysql://app:hunter2@db.test/shop"},
		{"no user, and a password", MySQL, mysqlType, "app:hunter2/shop"},
		{"a wrongly escaped name", MySQL, mysqlType, "app:hunter2@/shop%"},
		{"an option that is no word", MySQL, mysqlType, "app@/shop?hunter 2=1"},
		{"an authority", SQLite, sqliteType, "file://hunter2/a.db"},
		{"a zero byte in a path", SQLite, sqliteType, "file:a%00hunter2"},
		{"a zero byte in an option", SQLite, sqliteType, "file:a?b=%00hunter2"},
	} {
		id, err := dsnIdentity(c.dialect, c.driverType, c.dsn)
		if err == nil {
			t.Errorf("%s: no error but %s", c.name, id)
			continue
		}
		if msg := err.Error(); !errors.Is(err, errNoIdentity) || !strings.Contains(msg, `sqlherd.Identity("name")`) ||
			strings.Contains(msg, "hunter") || id != "" {
			t.Errorf("%s: %q %v", c.name, id, err)
		}
	}
}

func TestAnIdentityCanBeReadBackInOneWayOnly(t *testing.T) {
	cleanEnv(t)
	// Options named like our own fields, values that look like further options.
	for _, c := range [][2]string{
		{`host=db.test user=a machine=x`, `host=db.test user='a" machine="x'`},
		{`host=db.test user=a x='1" y="2'`, `host=db.test user=a x=1 y=2`},
	} {
		if a, b := identityOf(t, PostgreSQL, pqType, c[0]), identityOf(t, PostgreSQL, pqType, c[1]); a == b {
			t.Errorf("%s and %s share %s", c[0], c[1], a)
		}
	}
	fake := identityOf(t, SQLite, sqliteType, `/a.db?machine:"x"=1`)
	if strings.Contains(fake, ` machine:"x"`) {
		t.Errorf("an option passes for a field: %s", fake)
	}
}

func TestTheDialectIsThatOfTheDriversPackage(t *testing.T) {
	for path, want := range map[string]Dialect{
		"github.com/lib/pq":                               PostgreSQL,
		"example.test/fork/lib/pq":                        PostgreSQL,
		"github.com/jackc/pgx/v5/stdlib":                  PostgreSQL,
		"github.com/jackc/pgx/v4/stdlib":                  PostgreSQL,
		"github.com/jackc/pgx/stdlib":                     PostgreSQL,
		"cloud.google.com/go/cloudsqlconn/postgres/pgxv5": PostgreSQL,
		"github.com/uptrace/bun/driver/pgdriver":          PostgreSQL,
		"github.com/go-sql-driver/mysql":                  MySQL,
		"github.com/go-sql-driver/mysql/v2":               MySQL,
		"example.test/me/mysql":                           MySQL,
		"github.com/mattn/go-sqlite3":                     SQLite,
		"modernc.org/sqlite":                              SQLite,
		"github.com/ncruces/go-sqlite3/driver":            SQLite,
		"github.com/glebarez/sqlite":                      SQLite,
		"github.com/glebarez/go-sqlite":                   SQLite,
		"github.com/DATA-DOG/go-sqlmock":                  DialectUnknown,
		"github.com/microsoft/go-mssqldb":                 DialectUnknown,
		"example.test/notpq":                              DialectUnknown,
		"":                                                DialectUnknown,
	} {
		if got := dialectOf(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestADriversTypeIsNamedWithItsWholePackage(t *testing.T) {
	for _, c := range []struct {
		driver       any
		typeName, in string
	}{
		{&money{}, "*github.com/sqlherd/sqlherd.money", "github.com/sqlherd/sqlherd"},
		{money{}, "github.com/sqlherd/sqlherd.money", "github.com/sqlherd/sqlherd"},
		{struct{ *money }{}, "struct { *sqlherd.money }", ""},
		{nil, "nil", ""},
	} {
		if typeName, in := driverTypeOf(c.driver); typeName != c.typeName || in != c.in {
			t.Errorf("%T: %q in %q", c.driver, typeName, in)
		}
	}
}
