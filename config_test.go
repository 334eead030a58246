package sqlherd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func someRedis(t *testing.T) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1"}) // it is never called
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTheZeroConfigIsValidAndHasTheDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	want := Config{
		Namespace:    "sqlherd",
		Local:        LocalConfig{MaxBytes: 64 << 20, TTL: time.Second},
		MaxLoads:     8,
		LoadTimeout:  10 * time.Second,
		RedisTimeout: 50 * time.Millisecond,
		Logger:       slog.Default(),
		Default: Policy{
			TTL: 30 * time.Second, Jitter: 0.1, Lease: 3 * time.Second, Wait: 10 * time.Second,
			MaxRows: 10_000, MaxBytes: 1 << 20, EarlyBeta: 1,
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if again := c.withDefaults(); !reflect.DeepEqual(again, want) {
		t.Errorf("defaults of defaults are %+v", again)
	}
}

func TestAFullConfigIsValid(t *testing.T) {
	c := Config{
		Redis: someRedis(t), Namespace: "shop:prod/eu-1", Dialect: MySQL,
		Default:   Policy{TTL: time.Minute, SWR: 5 * time.Minute, Jitter: off, EarlyBeta: off},
		Rules:     []Rule{{Name: "Get*", Policy: Policy{TTL: off}}},
		RulesFile: "does/not/exist.yaml", // reading it is the watcher's
		Local:     LocalConfig{TTL: off, Disabled: true},
		Tables:    []string{"public.products"}, MaxLoads: 1, LoadTimeout: time.Second, MaxDBConns: 1,
		LoadOnCallerConn: true, RedisTimeout: time.Second, Strict: true, StrictHints: true, ReplicaLag: time.Second,
		EntryKeys: [][]byte{[]byte(strings.Repeat("k", 32))}, Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	if err := c.validate(); err != nil {
		t.Error(err)
	}
	if c.Local.TTL != off || c.Default.Jitter != off {
		t.Error("off has become a default")
	}
}

func TestEveryInvalidFieldIsReportedByItsName(t *testing.T) {
	rdb := someRedis(t)
	for _, tt := range []struct {
		c    Config
		want string
	}{
		{Config{Redis: (*redis.Client)(nil)}, "Config.Redis is a nil *redis.Client; leave the field out for an in-process cache"},
		{Config{Namespace: "a b"}, `Config.Namespace is "a b"; must not contain white space or any of { } * ? [ ] \`},
		{Config{Namespace: "a{b}"}, `Config.Namespace is "a{b}"; must not contain white space or any of { } * ? [ ] \`},
		{Config{Namespace: "a\x00"}, `Config.Namespace is "a\x00"; must not contain control characters`},
		{Config{Namespace: strings.Repeat("a", 129)}, `Config.Namespace is "` + strings.Repeat("a", 129) + `"; must be at most 128 bytes long`},
		{Config{Dialect: 9}, "Config.Dialect is 9; must be DialectAuto, DialectUnknown, PostgreSQL, MySQL or SQLite"},
		{Config{Default: Policy{Jitter: 1}}, "Config.Default.Jitter is 1; must be below 1 (negative: off)"},
		{Config{Rules: []Rule{{Name: "a"}, {}}}, "Config.Rules[1] matches nothing; it needs a Query, a Pattern, Tables or a Name"},
		{Config{Rules: []Rule{{Pattern: "("}}}, "Config.Rules[0].Pattern is \"(\"; error parsing regexp: missing closing ): `(`"},
		{Config{Rules: []Rule{{Name: "["}}}, `Config.Rules[0].Name is "["; must be a name or a pattern as path.Match knows it`},
		{Config{Rules: []Rule{{Tables: []string{""}}}}, `Config.Rules[0].Tables[0] is ""; must not be empty`},
		{Config{Rules: []Rule{{Name: "a", Policy: Policy{Lease: 1}}}}, "Config.Rules[0].Policy.Lease is 1ns; must be from 100ms to 5m0s; a number without a unit is nanoseconds: write 1 * time.Second"},
		{Config{Default: Policy{TTL: 30}}, "Config.Default.TTL is 30ns; must be at least 1ms (negative: not cached); a number without a unit is nanoseconds: write 30 * time.Second"},
		{Config{Rules: []Rule{{Name: "a", Policy: Policy{SWR: 300}}}}, "Config.Rules[0].Policy.SWR is 300ns; must be at least 1ms (negative: off); a number without a unit is nanoseconds: write 300 * time.Second"},
		{Config{Local: LocalConfig{MaxBytes: -1}}, "Config.Local.MaxBytes is -1; must be at least 0 (Config.Local.Disabled turns the cache in memory off)"},
		{Config{Local: LocalConfig{TTL: 2 * time.Hour}}, "Config.Local.TTL is 2h0m0s; must be at most 1h0m0s (negative: compare every hit with Redis)"},
		{Config{Local: LocalConfig{TTL: 5}}, "Config.Local.TTL is 5ns; must be at least 1ms (negative: compare every hit with Redis); a number without a unit is nanoseconds: write 5 * time.Second"},
		{Config{Local: LocalConfig{Disabled: true}}, "Config.Local.Disabled is true; needs Config.Redis: without both there is nowhere to keep a result"},
		{Config{Local: LocalConfig{MaxBytes: 1000}, Default: Policy{MaxBytes: 1001}}, "Config.Default.MaxBytes is 1001; must be at most Config.Local.MaxBytes (1000) without Config.Redis, or its results could be kept nowhere"},
		{Config{Tables: []string{"a", ""}}, `Config.Tables[1] is ""; must not be empty`},
		{Config{MaxLoads: -1}, "Config.MaxLoads is -1; must be at least 1 (0: the default, 8)"},
		{Config{LoadTimeout: -1}, "Config.LoadTimeout is -1ns; must be from 1ms to 1h0m0s"},
		{Config{LoadTimeout: 30}, "Config.LoadTimeout is 30ns; must be from 1ms to 1h0m0s; a number without a unit is nanoseconds: write 30 * time.Second"},
		{Config{LoadTimeout: 2 * time.Hour}, "Config.LoadTimeout is 2h0m0s; must be from 1ms to 1h0m0s"},
		{Config{MaxDBConns: -1}, "Config.MaxDBConns is -1; must be at least 0 (0: unlimited)"},
		{Config{RedisTimeout: time.Minute}, "Config.RedisTimeout is 1m0s; must be from 1ms to 10s"},
		{Config{RedisTimeout: 50}, "Config.RedisTimeout is 50ns; must be from 1ms to 10s; a number without a unit is nanoseconds: write 50 * time.Millisecond"},
		{Config{Redis: rdb, RedisTimeout: 2 * time.Second}, "Config.RedisTimeout is 2s; must be at most half of Config.Default.Lease (3s), or a lease may end while its renewal is on the way"},
		{Config{ReplicaLag: -1}, "Config.ReplicaLag is -1ns; must be from 0s to 1h0m0s"},
		{Config{ReplicaLag: 2}, "Config.ReplicaLag is 2ns; must be at least 1ms (0: reads see every committed write); a number without a unit is nanoseconds: write 2 * time.Second"},
		{Config{EntryKeys: [][]byte{[]byte("secret")}}, "Config.EntryKeys[0] is 6 bytes long; must be 32 bytes long"},
		{Config{EntryKeys: [][]byte{make([]byte, 32)}}, "Config.EntryKeys[0] is all zeros; must be random"},
	} {
		c := tt.c.withDefaults()
		if err := c.validate(); err == nil || err.Error() != "sqlherd: "+tt.want {
			t.Errorf("got  %v\nwant sqlherd: %s", err, tt.want)
		}
	}
}

func TestAllInvalidFieldsAreReportedTogether(t *testing.T) {
	c := Config{MaxLoads: -1, RedisTimeout: -1, Default: Policy{TTL: TTLMax + 1, Jitter: 2}, EntryKeys: [][]byte{nil, nil}}.withDefaults()
	err := c.validate()
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 6 {
		t.Errorf("%d lines:\n%v", len(lines), err)
	}
	for _, l := range lines {
		if !strings.HasPrefix(l, "sqlherd: Config.") {
			t.Errorf("a line that names no field: %s", l)
		}
	}
}

func TestASmallMemoryLowersTheDefaultSizeOfAResult(t *testing.T) {
	c := Config{Local: LocalConfig{MaxBytes: 1}}.withDefaults()
	if err := c.validate(); err != nil || c.Default.MaxBytes != 1 {
		t.Errorf("MaxBytes is %d, error %v", c.Default.MaxBytes, err)
	}
	c = Config{Local: LocalConfig{MaxBytes: 1}, Redis: someRedis(t)}.withDefaults()
	if err := c.validate(); err != nil || c.Default.MaxBytes != MaxBytesDefault {
		t.Errorf("with Redis MaxBytes is %d, error %v", c.Default.MaxBytes, err)
	}
}

func TestAConfigIsCopiedAtTheDoor(t *testing.T) {
	key := []byte(strings.Repeat("k", 32))
	c := Config{
		Tables: []string{"a"}, EntryKeys: [][]byte{key},
		Default: Policy{Tags: []string{"a"}, Tables: []string{"a"}},
		Rules:   []Rule{{Name: "a", Tables: []string{"a"}, Policy: Policy{Tags: []string{"a"}}}},
	}
	got := c.withDefaults()
	c.Tables[0], c.Default.Tags[0], c.Default.Tables[0], c.Rules[0].Tables[0], c.Rules[0].Policy.Tags[0] = "b", "b", "b", "b", "b"
	c.Rules[0].Name = "b"
	clear(key)
	if got.Tables[0] != "a" || got.Default.Tags[0] != "a" || got.Default.Tables[0] != "a" || got.EntryKeys[0][0] != 'k' ||
		got.Rules[0].Name != "a" || got.Rules[0].Tables[0] != "a" || got.Rules[0].Policy.Tags[0] != "a" {
		t.Errorf("a change of the original got in: %+v", got)
	}
}

// The documentation of a field is the one place where its default is told in
// words; it must be there, and must agree with the constants.
func TestEveryFieldTellsItsDefault(t *testing.T) {
	constants := map[string]string{
		"NamespaceDefault":     fmt.Sprintf("%q", NamespaceDefault),
		"LocalMaxBytesDefault": fmt.Sprintf("%d MiB", LocalMaxBytesDefault>>20),
		"LocalTTLDefault":      LocalTTLDefault.String(),
		"MaxLoadsDefault":      fmt.Sprint(MaxLoadsDefault),
		"LoadTimeoutDefault":   LoadTimeoutDefault.String(),
		"RedisTimeoutDefault":  RedisTimeoutDefault.String(),
		"TTLDefault":           TTLDefault.String(),
		"EmptyDefaultMax":      EmptyDefaultMax.String(),
		"JitterDefault":        fmt.Sprint(JitterDefault),
		"LeaseDefault":         LeaseDefault.String(),
		"MaxRowsDefault":       fmt.Sprint(MaxRowsDefault),
		"MaxBytesDefault":      fmt.Sprintf("%d MiB", MaxBytesDefault>>20),
		"EarlyBetaDefault":     fmt.Sprint(EarlyBetaDefault),
	}
	mention := regexp.MustCompile(`(\w+Default(?:Max)?) \(([^)]+)\)`)
	for _, s := range []struct {
		file, name string
		fields     int
	}{
		{"config.go", "Config", reflect.TypeFor[Config]().NumField()},
		{"config.go", "LocalConfig", reflect.TypeFor[LocalConfig]().NumField()},
		{"policy.go", "Policy", reflect.TypeFor[Policy]().NumField()},
		{"rules.go", "Rule", reflect.TypeFor[Rule]().NumField()},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), s.file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		fields := 0
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != s.name {
				return true
			}
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				fields += len(field.Names)
				name := s.name + "." + field.Names[0].Name
				doc := strings.Join(strings.Fields(field.Doc.Text()), " ")
				if !strings.Contains(doc, "Defaults to ") {
					t.Errorf("the comment of %s does not say its default", name)
				}
				for _, m := range mention.FindAllStringSubmatch(doc, -1) {
					if want, ok := constants[m[1]]; !ok || m[2] != want {
						t.Errorf("the comment of %s says %s; the constant is %q", name, m[0], want)
					}
				}
			}
			return false
		})
		if fields != s.fields {
			t.Errorf("%s: %d fields were found of %d", s.name, fields, s.fields)
		}
	}
}
