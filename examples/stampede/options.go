package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A mode is one way to read the hot key.
type mode struct {
	name  string
	about string
	herd  bool // through sqlherd, else through the bare driver
	swr   bool // stale rows while they are refreshed
	redis bool // leases and rows shared through Redis
	alone bool // one process, whatever -procs says
}

// modes are all of them, in the order in which they run.
var modes = []mode{
	{name: "none", about: "the bare driver, in all processes"},
	{name: "singleflight", about: "sqlherd in one process, without Redis", herd: true, alone: true},
	{name: "singleflight+swr", about: "... and stale rows are served while they are refreshed", herd: true, swr: true, alone: true},
	{name: "fleet", about: "sqlherd in all processes, one lease in Redis", herd: true, redis: true},
	{name: "fleet+swr", about: "... and stale rows are served while they are refreshed", herd: true, swr: true, redis: true},
}

func (m mode) procs(opt options) int {
	if m.alone {
		return 1
	}
	return opt.procs
}

func modeNames() []string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = m.name
	}
	return names
}

// options are the flags, checked.
type options struct {
	dsn       string // empty: SQLite
	redis     string // empty: embedded
	procs     int
	callers   int
	expiries  int
	load, ttl time.Duration
	modes     []mode
	json      bool
}

func (o options) needsRedis() bool {
	return slices.ContainsFunc(o.modes, func(m mode) bool { return m.redis })
}

// Bounds of the flags.
const (
	procsMax    = 64
	callersMax  = 100_000
	loadMin     = time.Millisecond
	loadMax     = 9 * time.Second // below sqlherd's default LoadTimeout
	ttlMin      = 100 * time.Millisecond
	ttlMax      = time.Minute
	expiriesMin = 2
	expiriesMax = 1000
)

func flagSet(opt *options, modeList *string) *flag.FlagSet {
	fs := flag.NewFlagSet("stampede", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run reports the error, once
	fs.StringVar(&opt.dsn, "dsn", "", "`URL` of a database, postgres://user:password@host/name or mysql://user:password@host/name;\n"+
		"tables and a function of its own are created there, and dropped again (default: a SQLite file)")
	fs.StringVar(&opt.redis, "redis", "", "`URL` of Redis, redis://host:6379 (default: an embedded server)")
	fs.IntVar(&opt.procs, "procs", 4, "`number` of processes in the modes none, fleet and fleet+swr")
	fs.IntVar(&opt.callers, "callers", 1000, "`number` of callers that read at once, over all processes")
	fs.DurationVar(&opt.load, "load", 150*time.Millisecond, "how long the query takes in the database")
	fs.DurationVar(&opt.ttl, "ttl", 500*time.Millisecond, "how long its rows count as fresh; with a `duration` above 1s\n"+
		"(Config.Local.TTL) the fleet's callers find that their memory has to be compared with Redis first")
	fs.IntVar(&opt.expiries, "expiries", 5, "`number` of times that the callers find no fresh rows; the first is the cold start")
	fs.StringVar(modeList, "mode", "all", "`modes` to run, separated by commas")
	fs.BoolVar(&opt.json, "json", false, "print one JSON object, and nothing else, to standard output")
	return fs
}

// parseOptions reports flag.ErrHelp for -h, and the first thing that is wrong otherwise.
func parseOptions(args []string) (options, error) {
	var opt options
	var modeList string
	fs := flagSet(&opt, &modeList)
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	if fs.NArg() > 0 {
		return opt, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}

	between := func(name string, n, least, most int) error {
		if n < least || n > most {
			return fmt.Errorf("-%s is %d; must be from %d to %d", name, n, least, most)
		}
		return nil
	}
	lasts := func(name string, d, least, most time.Duration) error {
		if d < least || d > most {
			return fmt.Errorf("-%s is %v; must be from %v to %v", name, d, least, most)
		}
		return nil
	}
	for _, err := range []error{
		between("procs", opt.procs, 1, procsMax),
		between("callers", opt.callers, 1, callersMax),
		between("expiries", opt.expiries, expiriesMin, expiriesMax),
		lasts("load", opt.load, loadMin, loadMax),
		lasts("ttl", opt.ttl, ttlMin, ttlMax),
		checkURL("dsn", opt.dsn, "postgres", "postgresql", "mysql"),
		checkURL("redis", opt.redis, "redis", "rediss", "unix"),
		checkDSN(opt.dsn),
		checkRedis(opt.redis),
	} {
		if err != nil {
			return opt, err
		}
	}
	if opt.callers < opt.procs {
		return opt, fmt.Errorf("-callers is %d; must be at least -procs, which is %d", opt.callers, opt.procs)
	}
	var err error
	opt.modes, err = parseModes(modeList)
	return opt, err
}

// parseModes returns the modes named in list, in the order in which they are named.
func parseModes(list string) ([]mode, error) {
	if list == "all" {
		return modes, nil
	}
	var named []mode
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(modes, func(m mode) bool { return m.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("-mode has %q; must be all or some of %s", name, strings.Join(modeNames(), ","))
		}
		named = append(named, modes[i])
	}
	return named, nil
}

// checkURL does not repeat the URL, which may hold a password.
func checkURL(name, raw string, schemes ...string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return fmt.Errorf("-%s is not a URL: %w", name, err)
	}
	if !slices.Contains(schemes, u.Scheme) {
		return fmt.Errorf("-%s begins with %q; must begin with %s://", name, u.Scheme+"://", strings.Join(schemes, ":// or "))
	}
	return nil
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, `Stampede shows what happens to a database when a hot result expires.

  go run ./examples/stampede [flags]

Callers in one or several processes read one key. Whenever its rows have expired, all of
them read at once. Five modes are compared:

`)
	for _, m := range modes {
		fmt.Fprintf(w, "  %-17s %s\n", m.name, m.about)
	}
	fmt.Fprint(w, `
Latency is what a caller sees, from its call until it has its row. The cold start, when there
are no rows at all, has a column of its own; p50 to max are of the expiries after it.
Queries are counted in the database, and connections at the server (PostgreSQL) or where the
driver opens them (SQLite, MySQL), never in sqlherd.

Flags:

`)
	var opt options
	var list string
	fs := flagSet(&opt, &list)
	fs.SetOutput(w)
	fs.PrintDefaults()
	fmt.Fprint(w, `
Examples:

  go run ./examples/stampede -mode none,fleet+swr
  go run ./examples/stampede -dsn postgres://postgres@localhost/postgres -redis redis://localhost:6379
`)
}
