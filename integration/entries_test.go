package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// keysOf returns the names of a namespace's keys that match pattern.
func keysOf(t testing.TB, rdb *redis.Client, ns string) []string {
	t.Helper()
	var keys []string
	it := rdb.Scan(context.Background(), 0, "*"+ns+"*", 1000).Iterator()
	for it.Next(context.Background()) {
		keys = append(keys, it.Val())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func entryKeys(t testing.TB, rdb *redis.Client, ns string) []string {
	t.Helper()
	return slices.DeleteFunc(keysOf(t, rdb, ns), func(k string) bool { return !strings.HasPrefix(k, "{"+ns+":k:") || !strings.HasSuffix(k, "}") })
}

func TestDamagedEntriesAreMissesAndCounted(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	db, h := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout, Local: sqlherd.LocalConfig{Disabled: true}})
	query := b.slow("ttl=10m", 0)
	ctx := withDeadline(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wantText(t, db, "one", sqlherd.Miss, query, 1)
	entry := entryKeys(t, rdb, ns)[0]
	if digest := strings.TrimSuffix(strings.TrimPrefix(entry, "{"+ns+":k:"), "}"); len(digest) != 64 {
		t.Errorf("the name has a digest of %d hex digits: %s", len(digest), entry)
	}
	wantText(t, db, "two", sqlherd.Miss, query, 2)
	other := slices.DeleteFunc(entryKeys(t, rdb, ns), func(k string) bool { return k == entry })[0]
	whole, err := rdb.Get(ctx, entry).Bytes()
	must(err)
	foreign, err := rdb.Get(ctx, other).Bytes()
	must(err)

	damages := map[string]func(){
		"empty":             func() { must(rdb.Set(ctx, entry, "", time.Minute).Err()) },
		"text":              func() { must(rdb.Set(ctx, entry, "hello", time.Minute).Err()) },
		"other version":     func() { must(rdb.Set(ctx, entry, flip(whole, 4, 0xff), time.Minute).Err()) },
		"other magic":       func() { must(rdb.Set(ctx, entry, flip(whole, 0, 0xff), time.Minute).Err()) },
		"with a tail":       func() { must(rdb.Set(ctx, entry, append(bytes.Clone(whole), 0), time.Minute).Err()) },
		"twice":             func() { must(rdb.Set(ctx, entry, append(bytes.Clone(whole), whole...), time.Minute).Err()) },
		"of another key":    func() { must(rdb.Set(ctx, entry, foreign, time.Minute).Err()) },
		"a hash":            func() { must(rdb.Del(ctx, entry).Err()); must(rdb.HSet(ctx, entry, "a", "b").Err()) },
		"a list":            func() { must(rdb.Del(ctx, entry).Err()); must(rdb.RPush(ctx, entry, "a").Err()) },
		"without an expiry": func() { must(rdb.Persist(ctx, entry).Err()) },
		"sixteen megabytes": func() {
			must(rdb.Set(ctx, entry, append(bytes.Clone(whole), make([]byte, 16<<20)...), time.Minute).Err())
		},
	}
	step := max(len(whole)/40, 1)
	for i := 0; i < len(whole); i += step {
		damages[fmt.Sprintf("cut to %d bytes", i)] = func() { must(rdb.Set(ctx, entry, whole[:i], time.Minute).Err()) }
		damages[fmt.Sprintf("bit %d of byte %d flipped", i%8, i)] = func() { must(rdb.Set(ctx, entry, flip(whole, i, 1<<(i%8)), time.Minute).Err()) }
	}
	faults := func() (n uint64) {
		r := h.Stats().Redis
		n = r.DigestMismatches + r.StampMismatches
		for _, c := range r.Corrupt {
			n += c
		}
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		damages[name]()
		loads, counted := b.loads(t), faults()
		wantText(t, db, "one", sqlherd.Miss, query, 1)
		wantText(t, db, "one", sqlherd.Hit, query, 1)
		b.wantLoads(t, loads+1)
		if n := faults() - counted; n == 0 {
			t.Errorf("%s: not counted", name)
		}
		if t.Failed() {
			t.Fatalf("after an entry that is %s", name)
		}
		// What replaced it is whole, and not of the damage's making.
		if ttl := rdb.PTTL(ctx, entry).Val(); ttl <= 0 {
			t.Errorf("%s: the new entry lives %v", name, ttl)
		}
	}
	wantText(t, db, "two", sqlherd.Hit, query, 2)
	t.Logf("%d damages: %+v", len(damages), h.Stats().Redis.Corrupt)
}

// flip returns b with bits of one byte flipped.
func flip(b []byte, i int, bits byte) []byte {
	b = bytes.Clone(b)
	b[i] ^= bits
	return b
}

func TestEntriesOfOneNamespaceAreNothingToAnother(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	query := b.slow("ttl=10m", 0)
	staging, sh := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns + "-staging", RedisTimeout: redisTimeout})
	production, _ := openHerd(t, b.Database, sqlherd.Config{Redis: rdb, Namespace: ns + "-production", RedisTimeout: redisTimeout})
	ctx := withDeadline(t)
	if err := rdb.Set(ctx, ns+"-foreign", "untouched", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	wantText(t, staging, "one", sqlherd.Miss, query, 1)
	wantText(t, production, "one", sqlherd.Miss, query, 1)
	if err := sh.InvalidateAll(ctx); err != nil {
		t.Fatal(err)
	}
	wantText(t, production, "one", sqlherd.Hit, query, 1)
	wantText(t, staging, "one", sqlherd.Miss, query, 1)
	if v := rdb.Get(ctx, ns+"-foreign").Val(); v != "untouched" {
		t.Errorf("a foreign key is %q now", v)
	}
}

// A logBook is a slog handler that keeps everything.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// eventBook is an Observer that writes all events down.
type eventBook struct{ logBook }

func (e *eventBook) Query(v sqlherd.QueryEvent)               { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Load(v sqlherd.LoadEvent)                 { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Refresh(v sqlherd.RefreshEvent)           { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Lease(v sqlherd.LeaseEvent)               { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Store(v sqlherd.StoreEvent)               { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Invalidation(v sqlherd.InvalidationEvent) { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) Fence(v sqlherd.FenceEvent)               { fmt.Fprintf(&e.logBook, "%+v\n", v) }
func (e *eventBook) RedisCall(v sqlherd.RedisEvent)           { fmt.Fprintf(&e.logBook, "%+v\n", v) }

// After a run of everything, no key stays in Redis for ever, and what is private is in none of their names, nor in
// any log or event.
func TestAfterAMixedRunNoKeyIsEternalAndNothingPrivateIsSeen(t *testing.T) {
	const secret, password = "alice@example.test", "pass-w0rd"
	dbtest.EachDatabase(t, func(t *testing.T, d dbtest.Database) {
		rdb, ns := dbtest.Redis(t)
		b := newBed(t, d)
		seen := b.Database
		if d.Engine != dbtest.EngineSQLite {
			seen = b.WithUser(t, password)
		}
		logs, events := &logBook{}, &eventBook{}
		cfg := sqlherd.Config{
			Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout, Observer: events,
			Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		db, h := openHerd(t, seen, cfg)
		other, _ := openHerd(t, seen, cfg)
		ctx := withDeadline(t)
		p := placeholder(d.Engine, 1)
		byValue := "SELECT /* @cache ttl=50ms swr=200ms empty=1s */ v FROM items WHERE v = " + p
		missing := "SELECT /* @cache ttl=10m tags=people */ v FROM nowhere WHERE v = " + p
		malformed := "SELECT /* @cache ttl=soon */ v FROM items WHERE v = " + p
		for round := range 30 {
			for _, q := range []querier{db, other} {
				for _, query := range []string{byValue, missing, malformed, b.slow("ttl=20ms swr=20ms sie=1s", 1)} {
					arg := any(secret)
					if strings.Contains(query, "id =") {
						arg = round % 4
					}
					_, _, _ = text(ctx, q, query, arg) // some fail, and that is the point
					_, _, _ = text(sqlherd.Refresh(ctx), q, query, arg)
				}
			}
			switch round % 5 {
			case 0:
				mustExec(t, db, "UPDATE items SET v = 'x' WHERE id = 2")
			case 1:
				if err := h.Invalidate(ctx, "people"); err != nil {
					t.Error(err)
				}
			case 2:
				if err := h.InvalidateAll(ctx); err != nil {
					t.Error(err)
				}
			case 3:
				if _, err := db.ExecContext(ctx, "UPDATE items SET v = "+p+" WHERE id = 3", secret); err != nil {
					t.Error(err)
				}
			case 4:
				c := conn(t, db)
				_, _, _ = text(ctx, c, byValue, secret)
				_, _ = c.ExecContext(ctx, "SET nonsense")
				_, _, _ = text(ctx, c, byValue, secret)
				c.Close()
				canceled, cancel := context.WithCancel(ctx)
				cancel()
				_, _, _ = text(canceled, db, byValue, secret+"?")
			}
		}
		for _, key := range keysOf(t, rdb, ns) {
			// A key that has just expired has no life left; a key without an end says -1.
			if ttl := rdb.PTTL(ctx, key).Val(); ttl == -1 {
				t.Errorf("%s lives for ever", key)
			}
		}
		names := strings.Join(keysOf(t, rdb, ns), "\n")
		if names == "" {
			t.Error("the run left nothing to look at")
		}
		for what, where := range map[string]string{"names of keys": names, "logs": logs.String(), "events": events.String(), "Stats": fmt.Sprintf("%+v", h.Stats())} {
			for _, private := range []string{secret, password, seen.DSN} {
				if i := strings.Index(where, private); i >= 0 {
					t.Errorf("the %s hold %q: …%s…", what, private, where[max(0, i-200):min(len(where), i+200)])
				}
			}
		}
		if !strings.Contains(logs.String(), "malformed hint") {
			t.Errorf("the log does not mention the malformed hint:\n%s", logs)
		}
	})
}

func TestAnArgumentInATagIsHiddenByEntryKeys(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	b := newBed(t, dbtest.PQ(t))
	key := bytes.Repeat([]byte{7}, 32)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout, EntryKeys: [][]byte{key}}
	db, h := openHerd(t, b.Database, cfg)
	const secret = "alice@example.test"
	b.set(t, 1, secret)
	query := "SELECT /* @cache ttl=10m tags=person/{1} */ v FROM items WHERE v = $1"
	wantText(t, db, secret, sqlherd.Miss, query, secret)
	other, _ := openHerd(t, b.Database, cfg)
	wantText(t, other, secret, sqlherd.Hit, query, secret)
	ctx := withDeadline(t)
	for _, k := range keysOf(t, rdb, ns) {
		v, _ := rdb.Get(ctx, k).Result()
		if strings.Contains(k, "alice") || strings.Contains(v, "alice") {
			t.Errorf("%s is readable in Redis", k)
		}
	}
	if err := h.Invalidate(ctx, "person/"+secret); err != nil {
		t.Fatal(err)
	}
	wantText(t, db, secret, sqlherd.Miss, query, secret)
	// Without the key its entries are nothing, and its tags are not found.
	cfg.EntryKeys = nil
	keyless, _ := openHerd(t, b.Database, cfg)
	wantText(t, keyless, secret, sqlherd.Miss, query, secret)
}

// The tags of a hint are in a comment, and those of a context nowhere in the query. Readers of one query that
// name different tags must each see theirs invalidated.
func TestReadersThatNameDifferentTagsEachSeeTheirsInvalidated(t *testing.T) {
	rdb, ns := dbtest.Redis(t)
	for name, cfg := range map[string]sqlherd.Config{
		"in memory": {},
		"in Redis":  {Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, dbtest.PQ(t))
			db, h := openHerd(t, b.Database, cfg)
			ctx := withDeadline(t)
			read := func(ctx context.Context, options string, want sqlherd.Outcome) {
				t.Helper()
				v, info, err := text(ctx, db, b.slow("ttl=10m "+options, 0), 1)
				if err != nil || v != "one" || info.Outcome != want {
					t.Errorf("%s: %q, %v, %v; want %v", options, v, err, info.Outcome, want)
				}
			}
			readers := map[string]func(sqlherd.Outcome){
				"a": func(o sqlherd.Outcome) { read(ctx, "tags=a", o) },
				"b": func(o sqlherd.Outcome) { read(ctx, "tags=b", o) },
				"c": func(o sqlherd.Outcome) { read(sqlherd.WithTags(ctx, "c"), "", o) },
				"d": func(o sqlherd.Outcome) { read(sqlherd.WithTags(ctx, "d"), "tags=e", o) },
				"f": func(o sqlherd.Outcome) {
					read(sqlherd.WithPolicy(ctx, sqlherd.Policy{TTL: time.Minute, Tags: []string{"f"}}), "tags=g", o)
				},
				"h": func(o sqlherd.Outcome) {
					read(sqlherd.WithPolicy(ctx, sqlherd.Policy{TTL: time.Minute, Tables: []string{"h"}}), "", o)
				},
			}
			for _, read := range readers {
				read(sqlherd.Miss)
				read(sqlherd.Hit)
			}
			for tag, read := range readers {
				read(sqlherd.Hit)
				if err := h.Invalidate(ctx, tag); err != nil {
					t.Fatal(err)
				}
				if err := h.InvalidateTables(ctx, tag); err != nil {
					t.Fatal(err)
				}
				read(sqlherd.Miss)
			}
		})
	}
}
