package sqlherd

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// The identity of a connection source says whose rows its queries return: which
// server, which database, as which user, under which options. It is part of every
// key, so two sources share results exactly when their identities are equal.
//
// It is made from the driver's type and the DSN:
//
//   - Passwords are left out, so that a changed one changes nothing. What merely
//     looks like a secret by its name (secret, token, key, …) may be a setting that
//     decides which rows come: it is there as a digest. An identity may be logged.
//   - All other options are there as they were written, in the order of their
//     names. Most could not change a row; leaving out the wrong one shows one
//     tenant the rows of another. So pods that set application_name to their own
//     name share nothing through Redis.
//   - For PostgreSQL the environment is read where the drivers read it: PGHOST,
//     PGUSER, PGOPTIONS, the service file and so on. It is read once, when the
//     source is opened.
//   - A loopback address, a Unix socket or a file means something else on each
//     machine: the machine's name is added. Use Identity when several machines
//     reach one database through a proxy on each.
//   - A shared in-memory database belongs to this process, whose random name is
//     added. A private one belongs to one connection and gets a name of its own.
//
// Names of hosts are taken at face value. Where staging and production both call
// theirs "db" and use one Redis, they must differ in Config.Namespace.

// errNoIdentity is part of every error of dsnIdentity.
var errNoIdentity = errors.New("sqlherd: cannot tell from the data source name which database it means; " +
	`open it with sql.OpenDB(herd.Connector(base, sqlherd.Identity("name"))), with one name for each database, user and set of options`)

// dsnIdentity returns the identity of the database behind dsn. driverType is the
// first answer of driverTypeOf. An error says what to do instead; it wraps errNoIdentity and
// holds nothing of the DSN, which may be all password.
//
// Each call for a private in-memory database, or for an unknown driver's empty
// DSN, gives a name that was never given before. All other answers are the same each
// time while the environment is.
func dsnIdentity(d Dialect, driverType, dsn string) (identity string, err error) {
	t := identityText{dialect: d, driverType: driverType}
	t.field("driver", driverType)
	switch d {
	case PostgreSQL:
		err = t.postgres(dsn)
	case MySQL:
		err = t.mysql(dsn)
	case SQLite:
		err = t.sqlite(dsn)
	default:
		t.unknown(dsn)
	}
	if err != nil {
		return "", fmt.Errorf("%w (%w)", errNoIdentity, err)
	}
	return t.b.String(), nil
}

// driverTypeOf names the type of a driver with its package's full path, as
// dsnIdentity takes it, and the package alone, as dialectOf takes it.
func driverTypeOf(driver any) (driverType, pkgPath string) {
	t, stars := reflect.TypeOf(driver), ""
	if t == nil {
		return "nil", ""
	}
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t, stars = t.Elem(), stars+"*"
	}
	if t.PkgPath() == "" {
		return stars + t.String(), ""
	}
	return stars + t.PkgPath() + "." + t.Name(), t.PkgPath()
}

// dialectOf tells the dialect by the package of the driver. A fork is known by the last
// elements of its path. It never answers DialectAuto.
func dialectOf(pkgPath string) Dialect {
	path := "/" + pkgPath + "/"
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(path, "/"+p+"/") })
	}
	switch {
	case has("lib/pq", "pq", "pgx", "pgdriver", "postgres", "postgresql", "pgxv4", "pgxv5"):
		return PostgreSQL
	case has("go-sql-driver/mysql", "mysql", "mariadb"):
		return MySQL
	case has("go-sqlite3", "go-sqlite", "modernc.org/sqlite", "glebarez/sqlite", "sqlite", "sqlite3"):
		return SQLite
	}
	return DialectUnknown
}

// An identityText collects what an identity is made of. It can be read back in one
// way only: values are quoted; name:"value" is what we say, name="value" what the DSN says, env:NAME="value"
// and service:name="value" what the environment says, and name~"digest" is one of these
// whose value is not to be read. A name from outside is quoted unless it is a plain word.
type identityText struct {
	b          strings.Builder
	dialect    Dialect
	driverType string
}

func (t *identityText) pair(name, op, value string) {
	if t.b.Len() > 0 {
		t.b.WriteByte(' ')
	}
	t.b.WriteString(name)
	t.b.WriteString(op)
	t.b.WriteString(strconv.Quote(value))
}

// field adds a value that is no option and no secret.
func (t *identityText) field(name, value string) { t.pair(name, ":", value) }

// option adds an option: not at all when it is a password, as a digest when it
// looks like a secret, else as it is. from is "", "env:" or "service:".
func (t *identityText) option(from, name, value string) {
	lower := strings.ToLower(name)
	switch {
	case passwordOptions[lower]:
		return
	case t.dialect == SQLite && (sqliteKeys[lower] || lower == "_pragma" && keyPragma(value)):
		return
	}
	written := name
	if !plainName(name) {
		written = strconv.Quote(name)
	}
	if looksSecret(lower) || !coreOptions[lower] && looksSecret(value) {
		t.pair(from+written, "~", t.digest(name, value))
		return
	}
	t.pair(from+written, "=", value)
}

// options adds options in the order of their names. Options of one name stay in
// the order in which they were given, since drivers differ in which of them wins.
func (t *identityText) options(opts []option) {
	opts = slices.Clone(opts)
	slices.SortStableFunc(opts, func(a, b option) int { return strings.Compare(a.name, b.name) })
	for _, o := range opts {
		t.option("", o.name, o.value)
	}
}

// digest stands in for a value that must not be read. The name and the driver are
// in it, so that equal secrets do not show as equal.
func (t *identityText) digest(name, value string) string {
	b := appendFramed([]byte("sqlherd identity\x00"), t.driverType)
	b = appendFramed(b, name)
	b = appendFramed(b, value)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// machine adds the name of this machine.
func (t *identityText) machine() { t.field("machine", machineName()) }

// An option is one setting of a DSN, as its parser gave it.
type option struct{ name, value string }

// passwordOptions only prove who the user is, who is named elsewhere. Names are
// in lower case.
var passwordOptions = map[string]bool{
	"password": true, "passwd": true, "pwd": true, "pass": true,
	"passfile": true, "sslpassword": true, "sslkey": true, // sslkey is the key itself with lib/pq's sslinline
}

// sqliteKeys are passwords in the names of SQLite databases.
var sqliteKeys = map[string]bool{
	"_auth_pass": true, "_auth_salt": true,
	"_key": true, "_pragma_key": true, "key": true, "hexkey": true, "textkey": true,
}

// coreOptions name things that people call "tokens" or "keystore". Their values
// are no secrets.
var coreOptions = map[string]bool{
	"host": true, "hostaddr": true, "port": true, "user": true, "dbname": true, "database": true,
	"pghost": true, "pghostaddr": true, "pgport": true, "pguser": true, "pgdatabase": true,
}

// looksSecret reports whether a name, or the text of a value that sets things by
// name (PostgreSQL's options, SQLite's _pragma), has a word of secrets in it.
func looksSecret(s string) bool {
	s = strings.ToLower(s)
	if u, err := url.QueryUnescape(s); err == nil {
		s += " " + strings.ToLower(u)
	}
	return slices.ContainsFunc([]string{"pass", "pwd", "secret", "token", "key", "credential"},
		func(word string) bool { return strings.Contains(s, word) })
}

// keyPragma reports whether the value of a _pragma option sets the key of an
// encrypted database: key('x'), main.hexkey=…, in any escaping.
func keyPragma(value string) bool {
	if u, err := url.QueryUnescape(value); err == nil {
		value = u
	}
	name := value
	if i := strings.IndexAny(name, "(= \t\r\n"); i >= 0 {
		name = name[:i]
	}
	name = strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	switch name {
	case "key", "hexkey", "textkey", "rekey", "hexrekey", "textrekey":
		// A second statement behind the first would be left out as well.
		return !strings.Contains(value, ";")
	}
	return false
}

// plainName reports whether a name can stand unquoted, and is one that a database could
// know. Of a DSN that was read wrongly, a piece of the password is rarely plain.
func plainName(s string) bool {
	for _, r := range s {
		if r != '_' && r != '.' && r != '-' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return s != ""
}

// PostgreSQL

// pgEnv are the variables that lib/pq or pgx read, with the options that leave
// them unread by both. Passwords and TLS are not among them.
var pgEnv = []struct {
	name   string
	unless []string
}{
	{name: "PGAPPNAME", unless: []string{"application_name"}},
	{name: "PGCLIENTENCODING", unless: []string{"client_encoding"}},
	{name: "PGDATABASE", unless: []string{"dbname", "database"}},
	{name: "PGDATESTYLE", unless: []string{"datestyle"}},
	{name: "PGGEQO", unless: []string{"geqo"}},
	{name: "PGHOST", unless: []string{"host"}},
	{name: "PGHOSTADDR", unless: []string{"hostaddr"}},
	{name: "PGLOADBALANCEHOSTS", unless: []string{"load_balance_hosts"}},
	{name: "PGOPTIONS", unless: []string{"options"}},
	{name: "PGPORT", unless: []string{"port"}},
	{name: "PGTARGETSESSIONATTRS", unless: []string{"target_session_attrs"}},
	{name: "PGTZ"}, // lib/pq calls the option tz, pgx timezone
	{name: "PGUSER", unless: []string{"user"}},
}

// postgres adds what lib/pq, pgx or a driver that agrees with both makes of dsn.
func (t *identityText) postgres(dsn string) error {
	opts, err := parsePostgres(t.driverType, dsn)
	if err != nil {
		return err
	}
	t.options(opts)

	service := cmp.Or(last(opts, "service"), os.Getenv("PGSERVICE"))
	var fromService []option
	if service != "" {
		file := os.Getenv("PGSERVICEFILE")
		if !isPQ(t.driverType) { // to which servicefile is a run-time setting
			file = cmp.Or(last(opts, "servicefile"), file)
		}
		if fromService, err = readService(file, service); err != nil {
			return err
		}
		t.field("service", service)
		for _, o := range fromService {
			t.option("service:", o.name, o.value)
		}
	}

	given := slices.Concat(opts, fromService)
	// An empty value may or may not leave the default in place: it is given, and
	// so is what stands behind it.
	has := func(name string) bool {
		is := func(o option) bool { return o.name == name }
		empty := func(o option) bool { return is(o) && o.value == "" }
		return slices.ContainsFunc(given, is) && !slices.ContainsFunc(given, empty)
	}
	env := make(map[string]string)
	for _, e := range pgEnv {
		if slices.ContainsFunc(e.unless, has) {
			continue
		}
		if v := os.Getenv(e.name); v != "" {
			env[e.name] = v
			t.option("env:", e.name, v)
		}
	}

	if !has("user") && env["PGUSER"] == "" {
		t.field("os.user", osUser(t.driverType))
	}

	// A list of hosts is local when one of them is: then its rows may come from here.
	var hosts []string
	for _, o := range given {
		if o.name == "host" || o.name == "hostaddr" {
			hosts = append(hosts, strings.Split(o.value, ",")...)
		}
	}
	for _, name := range []string{"PGHOST", "PGHOSTADDR"} {
		if v := env[name]; v != "" {
			hosts = append(hosts, strings.Split(v, ",")...)
		}
	}
	if len(hosts) == 0 || slices.ContainsFunc(hosts, isLocalHost) {
		t.machine()
	}
	return nil
}

// last returns the last value of an option, or "".
func last(opts []option, name string) string {
	for _, o := range slices.Backward(opts) {
		if o.name == name {
			return o.value
		}
	}
	return ""
}

// parsePostgres reads a DSN as the driver will. lib/pq and pgx disagree on what
// is a space, on '+' in a URL, on where a password with an '@' ends; for another
// driver only what both read alike is known.
func parsePostgres(driverType, dsn string) ([]option, error) {
	var opts []option
	var err error
	switch {
	case isPGX(driverType):
		opts, err = parsePGX(dsn)
	case isPQ(driverType):
		opts, err = parsePQ(dsn)
	default:
		if opts, err = parsePGX(dsn); err != nil {
			return nil, err
		}
		var other []option
		if other, err = parsePQ(dsn); err != nil {
			return nil, err
		}
		if !sameOptions(opts, other) {
			return nil, errors.New("lib/pq and pgx would read it differently, and the driver is neither")
		}
	}
	if err != nil {
		return nil, err
	}
	for _, o := range opts {
		if !plainName(o.name) {
			return nil, errors.New("it has an option whose name is no word")
		}
	}
	return opts, nil
}

func isPQ(driverType string) bool  { return strings.Contains(driverType, "pq.Driver") }
func isPGX(driverType string) bool { return strings.Contains(driverType, "pgx") }

// sameOptions reports whether two parsers found the same. lib/pq drops what is
// empty, and pgx notes that no host of a list has a port.
func sameOptions(a, b []option) bool {
	norm := func(opts []option) []option {
		opts = slices.DeleteFunc(slices.Clone(opts), func(o option) bool {
			return o.value == "" || o.name == "port" && strings.Trim(o.value, ",") == ""
		})
		slices.SortStableFunc(opts, func(a, b option) int { return strings.Compare(a.name, b.name) })
		return opts
	}
	return slices.Equal(norm(a), norm(b))
}

var (
	errNotURL      = errors.New("it is not a valid URL; are the password and the options percent-encoded?")
	errNotKeyValue = errors.New("it is neither a URL nor a list of key=value")
)

func isPostgresURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// parsePQ reads a DSN as lib/pq does.
func parsePQ(dsn string) ([]option, error) {
	if !isPostgresURL(dsn) {
		return parseKeyValue(dsn, unicode.IsSpace)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errNotURL // err would quote the DSN
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errNotURL
	}
	var opts []option
	add := func(name, value string) {
		if value != "" {
			opts = append(opts, option{name, value})
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		add("user", u.User.Username())
		add("password", password)
	}
	if host, port, err := net.SplitHostPort(u.Host); err != nil {
		add("host", u.Host)
	} else {
		add("host", host)
		add("port", port)
	}
	if u.Path != "" {
		add("dbname", u.Path[1:])
	}
	// An '@' that ends no user means that what was meant as the password was not
	// read as one.
	if strings.Contains(u.Host+u.EscapedPath(), "@") || u.User == nil && strings.Contains(dsn, "@") {
		return nil, errNotURL
	}
	for name, values := range query {
		add(name, values[0]) // as lib/pq does
	}
	return opts, nil
}

// parsePGX reads a DSN as pgx does, which does as libpq.
func parsePGX(dsn string) ([]option, error) {
	if strings.IndexByte(dsn, 0) >= 0 {
		return nil, errNotKeyValue
	}
	if !isPostgresURL(dsn) {
		return parseKeyValue(dsn, func(r rune) bool { return strings.ContainsRune(" \t\n\r\v\f", r) })
	}
	_, p, _ := strings.Cut(dsn, "://")

	var opts []option
	bad := false
	add := func(name, raw string) {
		v, ok := uriDecode(raw)
		bad = bad || !ok
		if raw != "" {
			opts = append(opts, option{name, v})
		}
	}
	// Only a '/' ends the search for the '@', so that what looks like a query
	// may still be the password.
	if i := strings.IndexAny(p, "@/"); i >= 0 && p[i] == '@' {
		name, password, _ := strings.Cut(p[:i], ":")
		add("user", name)
		add("password", password)
		p = p[i+1:]
	} else if strings.Contains(p, "@") {
		return nil, errNotURL // see parsePQ
	}

	// host[:port][,host[:port]…], where a host may be in brackets.
	var hosts, ports strings.Builder
	for {
		if strings.HasPrefix(p, "[") {
			end := strings.IndexByte(p, ']')
			if end < 2 {
				return nil, errNotURL
			}
			hosts.WriteString(p[1:end])
			if p = p[end+1:]; p != "" && !strings.ContainsRune(":/?,", rune(p[0])) {
				return nil, errNotURL
			}
		} else {
			i := indexAnyOrEnd(p, ":/?,")
			hosts.WriteString(p[:i])
			p = p[i:]
		}
		if strings.HasPrefix(p, ":") {
			i := indexAnyOrEnd(p, "/?,")
			ports.WriteString(p[1:i])
			p = p[i:]
		}
		if !strings.HasPrefix(p, ",") {
			break
		}
		p = p[1:]
		hosts.WriteByte(',')
		ports.WriteByte(',')
	}
	add("host", hosts.String())
	add("port", ports.String())

	path, query, _ := strings.Cut(p, "?")
	add("dbname", strings.TrimPrefix(path, "/"))
	if strings.Contains(hosts.String()+ports.String()+path, "@") {
		return nil, errNotURL
	}
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		rawName, raw, found := strings.Cut(pair, "=")
		name, ok := uriDecode(rawName)
		v, ok2 := uriDecode(raw)
		if !found || !ok || !ok2 || strings.ContainsRune(raw, '=') {
			return nil, errNotURL
		}
		opts = append(opts, option{name, v})
	}
	if bad {
		return nil, errNotURL
	}
	return opts, nil
}

func indexAnyOrEnd(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// uriDecode decodes as libpq does: '+' stays, spaces may surround but not be
// inside, and there is no NUL.
func uriDecode(raw string) (string, bool) {
	raw = strings.Trim(raw, " ")
	v, err := url.PathUnescape(raw)
	return v, err == nil && !strings.ContainsAny(raw, " ") && strings.IndexByte(v, 0) < 0
}

// parseKeyValue reads key=value pairs. A value may be in single quotes, and a
// backslash takes the next character as it is. The drivers differ in what is a space.
func parseKeyValue(s string, isSpace func(rune) bool) ([]option, error) {
	var opts []option
	for {
		if s = strings.TrimLeftFunc(s, isSpace); s == "" {
			return opts, nil
		}
		name, rest, found := strings.Cut(s, "=")
		name = strings.TrimRightFunc(name, isSpace)
		if !found || name == "" || strings.ContainsFunc(name, isSpace) {
			return nil, errNotKeyValue
		}
		s = strings.TrimLeftFunc(rest, isSpace)

		quoted := strings.HasPrefix(s, "'")
		if quoted {
			s = s[1:]
		}
		var v []byte
	value:
		for {
			r, n := utf8.DecodeRuneInString(s)
			switch {
			case n == 0 && quoted:
				return nil, errNotKeyValue
			case n == 0, !quoted && isSpace(r):
				break value
			case quoted && r == '\'':
				s = s[n:]
				break value
			case r == '\\':
				s = s[n:]
				_, n = utf8.DecodeRuneInString(s)
			}
			v = append(v, s[:n]...)
			s = s[n:]
		}
		opts = append(opts, option{name, string(v)})
	}
}

// readService returns the settings of a service. Of several sections with its
// name lib/pq takes the first and pgx the last; here all of them count.
func readService(file, service string) ([]option, error) {
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, errors.New("it names a service, and there is no home directory to find its file in")
		}
		file = filepath.Join(home, ".pg_service.conf")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("it names a service: %w", err)
	}
	defer f.Close()

	var opts []option
	found, inside := false, false
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			switch {
			case lines.Err() != nil:
				return nil, fmt.Errorf("it names a service: %w", lines.Err())
			case !found:
				return nil, fmt.Errorf("it names the service %q, which is not in %s", service, file)
			}
			return opts, nil
		}
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && line[len(line)-1] == ']':
			inside = strings.TrimSpace(line[1:len(line)-1]) == service
			found = found || inside
		case inside:
			name, value, ok := strings.Cut(line, "=")
			name = strings.TrimSpace(name)
			if !ok || !plainName(name) {
				return nil, fmt.Errorf("the service %q in %s has a line that is no key=value", service, file)
			}
			opts = append(opts, option{name, strings.TrimSpace(value)})
		}
	}
}

// osUser names the user that a DSN without one means.
func osUser(driverType string) string {
	env := os.Getenv("USER")
	if isPQ(driverType) && env != "" {
		return env
	}
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if !isPQ(driverType) && !isPGX(driverType) {
		name = env + "/" + name // the driver may ask either
	}
	return name
}

// MySQL

// mysql adds what go-sql-driver/mysql makes of dsn:
//
//	[user[:password]@][net[(addr)]]/dbname[?option=value&…]
//
// A password may hold any of the delimiters, so each is looked for from the side where it is
// certain: the last '/', the last '@' before it, the first ':'.
func (t *identityText) mysql(dsn string) error {
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 && dsn != "" {
		return errors.New("it has no slash before the name of the database")
	}
	left, right := "", ""
	if slash >= 0 {
		left, right = dsn[:slash], dsn[slash+1:]
	}

	userName := ""
	if at := strings.LastIndexByte(left, '@'); at >= 0 {
		userName, _, _ = strings.Cut(left[:at], ":")
		left = left[at+1:]
	}
	network, addr, hasAddr := strings.Cut(left, "(")
	if hasAddr && !strings.HasSuffix(addr, ")") {
		return errors.New("its address has no closing parenthesis; are the options percent-encoded?")
	}
	addr = strings.TrimSuffix(addr, ")")
	switch network {
	case "", "tcp":
		network, addr = "tcp", cmp.Or(addr, "127.0.0.1:3306")
	case "unix":
		addr = cmp.Or(addr, "/tmp/mysql.sock")
	default:
		if addr == "" || !plainName(strings.ReplaceAll(network, "+", "-")) {
			return errors.New("it has a network without an address")
		}
	}

	name, params, _ := strings.Cut(right, "?")
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped
	} else {
		return errors.New("the name of the database is wrongly escaped")
	}
	var opts []option
	for pair := range strings.SplitSeq(params, "&") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			if !plainName(k) {
				return errors.New("it has an option whose name is no word")
			}
			opts = append(opts, option{k, v})
		}
	}

	t.field("user", userName)
	t.field("net", network)
	t.field("addr", addr)
	t.field("database", name)
	t.options(opts)
	host := addr
	if h, _, err := net.SplitHostPort(addr); err == nil {
		host = h
	}
	if network == "unix" || isLocalHost(host) {
		t.machine()
	}
	return nil
}

// SQLite

// A sqliteName is a data source name as SQLite's sqlite3ParseUri reads it.
type sqliteName struct {
	path    string // decoded
	vfs     string
	memory  bool // mode=memory, or the path :memory:
	shared  bool // cache=shared
	options []option
}

// parseSQLite reads a name. A "file:" URI carries SQLite's own options. From
// another name most drivers cut off a '?' and what follows, and read their own options there;
// to the others (cut is false) it is a part of the file's name.
func parseSQLite(dsn string, cut bool) (sqliteName, error) {
	path, isURI := strings.CutPrefix(dsn, "file:")
	query := ""
	if isURI || cut && !strings.HasPrefix(dsn, "?") {
		path, query, _ = strings.Cut(path, "?")
	}
	n := sqliteName{path: path}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); pair != "" {
			n.options = append(n.options, option{name, value})
		}
	}

	if isURI {
		var fragment bool
		if path, _, fragment = strings.Cut(path, "#"); fragment {
			query = "" // SQLite ends there
		}
		query, _, _ = strings.Cut(query, "#")
		if after, ok := strings.CutPrefix(path, "//"); ok {
			i := strings.IndexByte(after, '/')
			if i < 0 || i > 0 && after[:i] != "localhost" {
				return n, errors.New("its URI has an authority, which SQLite refuses")
			}
			path = after[i:]
		}
		var err error
		if n.path, err = sqliteDecode(path); err != nil {
			return n, err
		}
	}
	n.memory = n.path == ":memory:"
	for pair := range strings.SplitSeq(query, "&") {
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := sqliteDecode(rawName)
		if err != nil {
			return n, err
		}
		value, err := sqliteDecode(rawValue)
		if err != nil {
			return n, err
		}
		switch {
		case name == "vfs": // of several, drivers take the first and SQLite the last
			if n.vfs == "" || !sqliteFileVFS(value) {
				n.vfs = value
			}
		case name == "mode" && isURI: // the last one wins
			n.memory = value == "memory" || n.path == ":memory:"
		case name == "cache" && isURI:
			n.shared = value == "shared"
		}
	}
	return n, nil
}

// sqliteDecode decodes %HH, and leaves any other % alone as SQLite does.
func sqliteDecode(s string) (string, error) {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				if c == 0 {
					return "", errors.New("its URI holds a zero byte")
				}
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b), nil
}

// private reports whether each connection has a database of its own.
func (n sqliteName) private() bool {
	switch {
	case n.path == "": // a temporary database
		return true
	case n.vfs == "memdb": // shared when its name says so
		return n.path[0] != '/' && n.path[0] != '\\'
	}
	return n.memory && !n.shared
}

// isPrivateMemoryDSN reports whether every connection opened with dsn has an empty
// database of its own: SQLite's ":memory:", "file::memory:", a URI with
// mode=memory and without cache=shared, and the empty name. Of an unknown driver
// only the names with "memory" in them are known.
func isPrivateMemoryDSN(d Dialect, dsn string) bool {
	if d != SQLite && (d == PostgreSQL || d == MySQL || dsn == "" || !strings.Contains(dsn, "memory")) {
		return false
	}
	n, err := parseSQLite(dsn, true)
	return err == nil && n.private()
}

// sqlite adds the file, made absolute, or the memory that dsn names.
func (t *identityText) sqlite(dsn string) error {
	n, err := parseSQLite(dsn, !strings.Contains(t.driverType, "ncruces"))
	if err != nil {
		return err
	}
	switch {
	case n.private():
		t.unique()
	case n.memory, !sqliteFileVFS(n.vfs):
		t.field("process", processName())
		t.field("path", n.path)
	default:
		path, err := absolute(n.path)
		if err != nil {
			return err
		}
		t.machine()
		t.field("path", path)
	}
	t.options(n.options)
	return nil
}

// sqliteFileVFS reports whether a VFS opens the file of the given path. Any other is
// registered by the program, and its files may be anything.
func sqliteFileVFS(vfs string) bool {
	return vfs == "" || vfs == "os" || vfs == "unix" || vfs == "win32" ||
		strings.HasPrefix(vfs, "unix-") || strings.HasPrefix(vfs, "win32-")
}

// absolute makes a path absolute. It leaves a ".." alone: behind a symbolic link it
// is not the directory before it.
func absolute(path string) (string, error) {
	if !slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return filepath.Abs(path)
	}
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := os.Getwd()
	return dir + string(filepath.Separator) + path, err
}

// Unknown drivers

// unknown adds a digest of dsn, which may hold a secret anywhere. Of a URL the
// password is left out, so that it can change. Whatever is not a URL with a remote
// host may name a local file: it is another database in each directory of each machine.
func (t *identityText) unknown(dsn string) {
	private := isPrivateMemoryDSN(DialectUnknown, dsn)
	if dsn == "" || private {
		t.unique()
	}
	text, remote := dsn, false
	u, err := url.Parse(dsn)
	if err == nil && u.Scheme != "" && u.Opaque == "" && strings.Contains(dsn, "://") {
		if u.User != nil {
			u.User = url.User(u.User.Username())
		}
		query, rest := "", u.RawQuery
		for rest != "" {
			var pair string
			pair, rest, _ = strings.Cut(rest, "&")
			if name, _, _ := strings.Cut(pair, "="); !passwordOptions[strings.ToLower(name)] {
				query += "&" + pair
			}
		}
		u.RawQuery = query
		text = u.String()
		file := slices.ContainsFunc([]string{"file", "sqlite", "duckdb"}, func(s string) bool {
			return strings.HasPrefix(strings.ToLower(u.Scheme), s)
		})
		remote = !file && !slices.ContainsFunc(strings.Split(u.Hostname(), ","), isLocalHost)
	}
	if !remote {
		dir, _ := os.Getwd()
		t.machine()
		text = dir + "\x00" + text
	}
	t.pair("dsn", "~", t.digest("dsn", text))
}

// Places

// isLocalHost reports whether a host, written as in a DSN, may be this machine or one
// that only this machine calls so: loopback in any spelling, a Unix socket, nothing.
func isLocalHost(host string) bool {
	h := strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[] "), "."))
	switch {
	case h == "", h[0] == '/', h[0] == '@', filepath.IsAbs(host), len(h) > 2 && h[1] == ':' && h[2] == '\\':
		return true
	case h == "localhost", strings.HasPrefix(h, "localhost."), strings.HasSuffix(h, ".localhost"),
		strings.HasPrefix(h, "ip6-"), h == "host.docker.internal", h == "gateway.docker.internal",
		h == "host.containers.internal":
		return true
	}
	if a, err := netip.ParseAddr(h); err == nil {
		a = a.Unmap()
		return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast()
	}
	// 127.1, 0x7f000001 and 2130706433 are loopback to some resolvers.
	return strings.Trim(h, "0123456789.") == "" || strings.HasPrefix(h, "0x")
}

// machineName names this machine: its host name and, on Linux, a digest of its
// machine-id (which is not to be shown), since host names repeat. A machine without a
// host name is known to nobody but this process.
var machineName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "process " + processName()
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil {
		sum := sha256.Sum256(append([]byte("sqlherd machine\x00"), id...))
		host += "/" + hex.EncodeToString(sum[:6])
	}
	return host
})

// processName is random, and the same for the life of this process.
var processName = sync.OnceValue(rand.Text)

var uniques atomic.Uint64

// unique adds a name that no other identity has.
func (t *identityText) unique() {
	t.field("unique", processName()+"/"+strconv.FormatUint(uniques.Add(1), 10))
}
