package sqlherd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// Defaults and bounds of a Config, in the order of its fields. Those of
// Config.Default are in policy.go.
const (
	NamespaceDefault  = "sqlherd"
	NamespaceBytesMax = 128

	LocalMaxBytesDefault int64 = 64 << 20

	LocalTTLDefault = time.Second
	LocalTTLMax     = time.Hour

	MaxLoadsDefault = 8

	LoadTimeoutDefault = 10 * time.Second
	LoadTimeoutMin     = time.Millisecond
	LoadTimeoutMax     = time.Hour

	RedisTimeoutDefault = 50 * time.Millisecond
	RedisTimeoutMin     = time.Millisecond
	RedisTimeoutMax     = 10 * time.Second

	ReplicaLagMax = time.Hour

	// EntryKeyBytes is the length of each of Config.EntryKeys (AES-256).
	EntryKeyBytes = 32
)

// Config says what a Herd caches, where, and within which bounds. The zero value
// works: an in-process cache with the defaults below. New copies it, fills in the
// defaults, and reports every invalid field by its name; a change of the
// original afterwards has no effect.
//
// In every field zero means the default. What can be turned off is turned off by
// a negative value, where the field says so.
type Config struct {
	// Redis is the cache that the fleet shares: any go-redis client, standalone,
	// Sentinel or Cluster. It stays the application's; Herd.Close does not close
	// it. A client of a Cluster must be a *redis.ClusterClient or embed one: it is used node by
	// node. Nil: each process caches and loads for itself. Defaults to nil.
	Redis redis.UniversalClient

	// Namespace is the first part of every key, and of the channel's name, in
	// Redis. Applications and environments on one Redis need one each; it is no guard
	// against people who can write to Redis, for which see EntryKeys. At most NamespaceBytesMax bytes, without white
	// space, control characters, and { } * ? [ ] \, which Cluster slots and key
	// patterns give a meaning. Defaults to NamespaceDefault ("sqlherd").
	Namespace string

	// Dialect is the grammar of the statements. DialectUnknown is always safe:
	// it caches less. Defaults to DialectAuto: by the package of the base driver,
	// and DialectUnknown for a driver that is not known.
	Dialect Dialect

	// Default fills what a hint, a rule or WithPolicy leaves out. It caches
	// nothing of its own accord. Defaults to what each field of Policy says.
	Default Policy

	// Rules are policies for queries that cannot be edited. The first one that matches a
	// query holds; those of RulesFile come after them. A hint beats them all.
	// Defaults to none.
	Rules []Rule

	// RulesFile is the path of a YAML file of rules; see Rule for its form. New
	// fails when it cannot be read. A change is taken over within seconds; a
	// broken change is logged once and counted, and the rules before it stay.
	// Defaults to no file.
	RulesFile string

	// Local bounds the cache in this process's memory. Defaults to what each of
	// its fields says.
	Local LocalConfig

	// Tables, when not empty, is the closed list of tables that may be cached: a
	// query that reads another is not cached (reason table), and a write to
	// another costs no round trip to Redis and tells nobody: every process on one namespace needs the
	// same list. Schemas, quotes and case do not count: public.a is a. Defaults to any table.
	Tables []string

	// MaxLoads is how many loads and refreshes may run at once in this process,
	// which is the size of the loader pool, per wrapped database. At least 1.
	// Defaults to MaxLoadsDefault (8).
	MaxLoads int

	// LoadTimeout is how long one load may take; it has no other deadline, since
	// it is not its caller's alone. From LoadTimeoutMin to LoadTimeoutMax. It cannot
	// be turned off: a load without an end would be renewed, and waited for, for
	// ever. Policy.Wait follows it. Defaults to LoadTimeoutDefault (10s).
	LoadTimeout time.Duration

	// MaxDBConns is how many real connections the application's pool may have
	// open through one wrapped connector. It is to be used instead of
	// SetMaxOpenConns, which would also count callers that wait for a load and have
	// no connection. Who needs a real connection takes an idle one of another conn of the pool rather
	// than dial, so that there are as many as are needed at once. The loader pool's MaxLoads come on top. It does not bound private
	// in-memory databases, whose connections cannot change hands. One that changes hands may outlive
	// the pool's SetConnMaxLifetime. Negative is an error.
	// Defaults to 0: unlimited.
	MaxDBConns int

	// LoadOnCallerConn runs loads on the caller's own connection, without a loader
	// pool and without background refresh. It is for a private in-memory database
	// (":memory:"), where another connection would see other tables: rows are shared only
	// where it is known that connections share a database, which is by the DSN, or
	// by the Identity of a connector. Defaults to false.
	LoadOnCallerConn bool

	// RedisTimeout is how long one call to Redis may take, whatever the client's
	// own settings say, and hence how late a query can be because Redis is slow.
	// From RedisTimeoutMin to RedisTimeoutMax, and at most half of
	// Default.Lease, so that a lease is renewed in time. Has no effect without
	// Redis. Defaults to RedisTimeoutDefault (50ms).
	RedisTimeout time.Duration

	// Strict fences the tables and tags of a write in Redis before it is sent, and those of
	// a transaction before its COMMIT, so that not even a process that dies between its commit and its
	// invalidation leaves old rows behind. While a tag is fenced, no process serves or stores
	// results that depend on it; they are loaded (reason "fenced") and kept in memory for a second at most.
	// The fence ends with the invalidation that follows the commit; that of a writer
	// that died, or whose commit nobody has answered, within 30 s. It costs every write that invalidates something one more
	// round trip to Redis. When Redis cannot be told, the write goes on as without Strict, and is counted in
	// Stats.FenceErrors. Soft invalidations are not fenced. Has no effect without Redis,
	// where nothing outlives the process. Every process of the fleet that writes should have it. Defaults to false.
	Strict bool

	// StrictHints fails a query whose hint is malformed, with a *HintError;
	// otherwise it runs uncached, is counted (reason hint) and logged once. It is
	// for tests and staging. Defaults to false.
	StrictHints bool

	// ReplicaLag is for reads that go to a replica: a load that runs within this
	// time after an invalidation of its tags or tables is not stored, since it may have
	// read the row before the write. From DurationMin to ReplicaLagMax. Negative is an error. Defaults to 0: reads see
	// every committed write.
	ReplicaLag time.Duration

	// EntryKeys seal what is stored in Redis with AES-256-GCM, and hide key names:
	// who can write to Redis can then neither read nor forge a result. The first one
	// seals, all open, so that a new key can be put in front and the old one dropped later.
	// EntryKeyBytes (32) bytes each, from a random source. Defaults to none: entries are
	// readable and writable by who can reach Redis.
	EntryKeys [][]byte

	// Logger is told, once each, what an operator has to know: malformed hints, statements that invalidate
	// everything, tainted sessions, Redis lost and found, writes that it could not be told of and when it was, broken rules files. Arguments and
	// rows are never logged. Defaults to slog.Default().
	Logger *slog.Logger

	// Observer is told of every query that has a policy, and of every load, refresh, lease,
	// store, invalidation, fence and call to Redis, on the goroutine that does it. Of queries
	// without a policy only Stats tells. Defaults to none.
	Observer Observer
}

// LocalConfig bounds the cache in this process's memory.
type LocalConfig struct {
	// MaxBytes is how many bytes the cached results may take in memory, with their
	// bookkeeping. A result that does not fit is kept in Redis only. Negative is an
	// error; Disabled turns the cache off. Defaults to LocalMaxBytesDefault (64 MiB).
	MaxBytes int64

	// TTL is, with Redis, how long memory is trusted since it was last compared
	// with Redis, and so how long another process's write can stay unseen when its
	// message is lost. A policy's own TTL still ends an entry. From DurationMin to LocalTTLMax.
	// Negative: every hit is compared. Ignored without Redis. Defaults to
	// LocalTTLDefault (1s).
	TTL time.Duration

	// Disabled keeps nothing in memory: every hit comes from Redis, which it
	// therefore needs. Defaults to false.
	Disabled bool
}

// withDefaults returns a copy that shares no slice with c, with every zero field
// at its default. Values that mean off stay as they are, for validate to name
// them as the user wrote them. Default.Empty stays zero, because its default depends on
// the TTL that each query ends up with.
func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, NamespaceDefault)
	c.Local.MaxBytes = cmp.Or(c.Local.MaxBytes, LocalMaxBytesDefault)
	c.Local.TTL = cmp.Or(c.Local.TTL, LocalTTLDefault)
	c.MaxLoads = cmp.Or(c.MaxLoads, MaxLoadsDefault)
	c.LoadTimeout = cmp.Or(c.LoadTimeout, LoadTimeoutDefault)
	c.RedisTimeout = cmp.Or(c.RedisTimeout, RedisTimeoutDefault)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}

	c.Default = c.Default.clone()
	c.Default.TTL = cmp.Or(c.Default.TTL, TTLDefault)
	c.Default.Jitter = cmp.Or(c.Default.Jitter, JitterDefault)
	c.Default.Lease = cmp.Or(c.Default.Lease, LeaseDefault)
	c.Default.Wait = cmp.Or(c.Default.Wait, c.LoadTimeout)
	c.Default.MaxRows = cmp.Or(c.Default.MaxRows, MaxRowsDefault)
	if c.Default.MaxBytes == 0 {
		c.Default.MaxBytes = MaxBytesDefault
		if c.Redis == nil && c.Local.MaxBytes > 0 {
			// A result that could be kept nowhere is not worth buffering.
			c.Default.MaxBytes = min(c.Default.MaxBytes, c.Local.MaxBytes)
		}
	}
	c.Default.EarlyBeta = cmp.Or(c.Default.EarlyBeta, EarlyBetaDefault)

	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i] = c.Rules[i].clone()
	}
	c.Tables = slices.Clone(c.Tables)
	c.EntryKeys = slices.Clone(c.EntryKeys)
	for i := range c.EntryKeys {
		c.EntryKeys[i] = bytes.Clone(c.EntryKeys[i])
	}
	return c
}

func (p Policy) clone() Policy {
	p.Tags = slices.Clone(p.Tags)
	p.Tables = slices.Clone(p.Tables)
	return p
}

// validate reports all problems of c together, each on a line of its own that
// names the field and the bound. It runs after withDefaults. It touches neither
// Redis nor the file system: RulesFile is read when its watcher is made.
func (c *Config) validate() error {
	var problems []error
	bad := func(field string, value any, must string) {
		problems = append(problems, fmt.Errorf("sqlherd: Config.%s is %v; %s", field, value, must))
	}
	between := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			bad(field, d, fmt.Sprintf("must be from %v to %v", least, most)+withUnit(d, most))
		}
	}

	// A nil *redis.Client in the interface is not nil, and would panic at the first query.
	if v := reflect.ValueOf(c.Redis); c.Redis != nil && v.Kind() == reflect.Pointer && v.IsNil() {
		bad("Redis", fmt.Sprintf("a nil %T", c.Redis), "leave the field out for an in-process cache")
	}
	if err := checkNamespace(c.Namespace); err != nil {
		bad("Namespace", fmt.Sprintf("%q", c.Namespace), err.Error())
	}
	if c.Dialect >= dialects {
		bad("Dialect", uint8(c.Dialect), "must be DialectAuto, DialectUnknown, PostgreSQL, MySQL or SQLite")
	}
	def := c.Default
	if def.Wait == c.LoadTimeout {
		def.Wait = 0 // its default: a LoadTimeout that is out of bounds is reported as that alone
	}
	problems = append(problems, def.validate("Config.Default")...)
	for i, r := range c.Rules {
		problems = append(problems, r.validate(fmt.Sprintf("Config.Rules[%d]", i))...)
	}
	if c.Local.MaxBytes < 0 {
		bad("Local.MaxBytes", c.Local.MaxBytes, "must be at least 0 (Config.Local.Disabled turns the cache in memory off)")
	}
	if c.Local.TTL > LocalTTLMax {
		bad("Local.TTL", c.Local.TTL, fmt.Sprintf("must be at most %v (negative: compare every hit with Redis)", LocalTTLMax))
	} else if c.Local.TTL > 0 && c.Local.TTL < DurationMin {
		bad("Local.TTL", c.Local.TTL, fmt.Sprintf("must be at least %v (negative: compare every hit with Redis)", DurationMin)+withUnit(c.Local.TTL, LocalTTLMax))
	}
	if c.Local.Disabled && c.Redis == nil {
		bad("Local.Disabled", true, "needs Config.Redis: without both there is nowhere to keep a result")
	}
	if c.Redis == nil && c.Local.MaxBytes >= 0 && c.Default.MaxBytes > c.Local.MaxBytes {
		bad("Default.MaxBytes", c.Default.MaxBytes,
			fmt.Sprintf("must be at most Config.Local.MaxBytes (%d) without Config.Redis, or its results could be kept nowhere", c.Local.MaxBytes))
	}
	for i, t := range c.Tables {
		if err := checkTable(t); err != nil {
			bad(fmt.Sprintf("Tables[%d]", i), fmt.Sprintf("%q", t), err.Error())
		}
	}
	if c.MaxLoads < 1 {
		bad("MaxLoads", c.MaxLoads, fmt.Sprintf("must be at least 1 (0: the default, %d)", MaxLoadsDefault))
	}
	between("LoadTimeout", c.LoadTimeout, LoadTimeoutMin, LoadTimeoutMax)
	if c.MaxDBConns < 0 {
		bad("MaxDBConns", c.MaxDBConns, "must be at least 0 (0: unlimited)")
	}
	between("RedisTimeout", c.RedisTimeout, RedisTimeoutMin, RedisTimeoutMax)
	if c.Redis != nil && c.Default.Lease >= LeaseMin && c.RedisTimeout > c.Default.Lease/2 {
		bad("RedisTimeout", c.RedisTimeout,
			fmt.Sprintf("must be at most half of Config.Default.Lease (%v), or a lease may end while its renewal is on the way", c.Default.Lease))
	}
	if c.ReplicaLag > 0 && c.ReplicaLag < DurationMin {
		bad("ReplicaLag", c.ReplicaLag, fmt.Sprintf("must be at least %v (0: reads see every committed write)", DurationMin)+withUnit(c.ReplicaLag, ReplicaLagMax))
	} else {
		between("ReplicaLag", c.ReplicaLag, 0, ReplicaLagMax)
	}
	for i, k := range c.EntryKeys {
		// The value is a secret: only its shape is told.
		switch {
		case len(k) != EntryKeyBytes:
			bad(fmt.Sprintf("EntryKeys[%d]", i), fmt.Sprintf("%d bytes long", len(k)), fmt.Sprintf("must be %d bytes long", EntryKeyBytes))
		case bytes.Equal(k, make([]byte, EntryKeyBytes)):
			bad(fmt.Sprintf("EntryKeys[%d]", i), "all zeros", "must be random")
		}
	}
	return errors.Join(problems...)
}

// checkNamespace reports what keeps ns from being the first part of a key's
// name. Braces would move the hash tag, so that the keys of one entry land in
// different slots; the others turn an operator's pattern (ACL, SCAN) into something else.
func checkNamespace(ns string) error {
	if err := checkWord(ns, NamespaceBytesMax); err != nil {
		return err
	}
	if i := strings.IndexFunc(ns, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`{}*?[]\`, r) }); i >= 0 {
		return errors.New(`must not contain white space or any of { } * ? [ ] \`)
	}
	return nil
}
