package integration_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// documentedRule is the ACL rule of docs/adopting.md, in words, without its verb and the user's name. With cluster it has
// what a Cluster needs besides.
func documentedRule(t *testing.T, cluster bool) []any {
	t.Helper()
	doc, err := os.ReadFile("../docs/adopting.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?ms)^ACL SETUSER sqlherd (.+?)$.+?In a Cluster it needs .(.+?). besides`).FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/adopting.md has no ACL SETUSER sqlherd")
	}
	rule := string(found[1])
	if cluster {
		rule += " " + string(found[2])
	}
	var words []any
	for word := range strings.FieldsSeq(rule) {
		words = append(words, word)
	}
	return words
}

// grant makes the documented user on a server, on which nothing else may be tried then: Redis writes down what it refuses.
func grant(t *testing.T, admin *redis.Client, cluster bool) {
	t.Helper()
	if err := admin.Do(withDeadline(t), append([]any{"ACL", "SETUSER", "sqlherd"}, documentedRule(t, cluster)...)...).Err(); err != nil {
		t.Fatal(err)
	}
	addr := admin.Options().Addr
	t.Cleanup(func() {
		admin := redis.NewClient(&redis.Options{Addr: addr})
		defer admin.Close()
		refused, err := admin.Do(context.Background(), "ACL", "LOG").Slice()
		if err != nil || len(refused) > 0 {
			t.Errorf("refused: %v, %v", refused, err)
		}
	})
}

func TestARedisUserMayDoWhatTheDocumentationGrantsItAndThatIsEnough(t *testing.T) {
	server := dbtest.StartRedis(t)
	grant(t, server.Client(), false)
	var nodes []string
	for _, n := range dbtest.StartCluster(t).Nodes {
		nodes = append(nodes, n.Addr())
		grant(t, n.Client(), true)
	}
	alone := func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "sqlherd", Password: "secret"})
	}
	key := []byte("thirty-two bytes for the example")
	for _, c := range []struct {
		name   string
		client func() redis.UniversalClient
		cfg    sqlherd.Config
	}{
		{"plain", alone, sqlherd.Config{}},
		{"sealed", alone, sqlherd.Config{EntryKeys: [][]byte{key}}},
		{"strict", alone, sqlherd.Config{Strict: true, Local: sqlherd.LocalConfig{Disabled: true}}},
		{"cluster", func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes, Username: "sqlherd", Password: "secret"})
		}, sqlherd.Config{Strict: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, dbtest.PQ(t))
			var fleet []member
			for range 2 {
				cfg := c.cfg
				cfg.Redis, cfg.RedisTimeout = c.client(), redisTimeout
				t.Cleanup(func() { cfg.Redis.Close() })
				db, h := openHerd(t, b.Database, cfg)
				await(t, "the subscription", func() bool { return h.Stats().Redis.Subscribed })
				fleet = append(fleet, member{db, h})
			}
			useEverything(t, b, fleet[0], fleet[1])
			for i, m := range fleet {
				if st := m.h.Stats(); st.Redis.Errors > 0 {
					t.Errorf("member %d: %+v", i, st.Redis)
				}
			}
			if c.name == "cluster" {
				return
			}
			// The texts of scripts are sent again when Redis has lost them.
			if err := server.Client().ScriptFlush(withDeadline(t)).Err(); err != nil {
				t.Fatal(err)
			}
			wantText(t, fleet[0].db, "two", sqlherd.Miss, b.slow("ttl=2m", 1), 1)
		})
	}
}

// useEverything makes two processes use all of the commands of Redis that a fleet does.
func useEverything(t *testing.T, b *bed, one, two member) {
	t.Helper()
	ctx := withDeadline(t)
	query := b.slow("ttl=1m swr=1m tags=item/{1}", 1)
	wantText(t, one.db, "one", sqlherd.Miss, query, 1)
	if v, info, err := text(ctx, two.db, query, 1); v != "one" || info.Outcome != sqlherd.Hit || err != nil {
		t.Errorf("in another process %q, %v, %v; want a hit", v, info.Outcome, err)
	}
	mustExec(t, one.db, "UPDATE items SET v = 'two' WHERE id = 1")
	await(t, "the write elsewhere", func() bool {
		v, _, err := text(ctx, two.db, query, 1)
		return err == nil && v == "two"
	})
	for _, forget := range []func() error{
		func() error { return one.h.InvalidateSoft(ctx, "item/1") },
		func() error { return one.h.Invalidate(ctx, "item/1") },
		func() error { return one.h.InvalidateAll(ctx) },
	} {
		if err := forget(); err != nil {
			t.Error(err)
		}
	}
	tx, err := one.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE items SET v = v"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	// A load that is longer than a third of its lease renews it.
	if v, _, err := text(ctx, two.db, b.slow("ttl=1m lease=100ms", 150), 1); v != "two" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// Redis closes a subscription whose reader is too slow for it, or that an operator kills.
func TestASubscriptionThatRedisClosesComesBackAndNoWriteIsMissed(t *testing.T) {
	for _, c := range []struct {
		name  string
		close func(ctx context.Context, admin *redis.Client, channel string) error
	}{
		{"killed", func(ctx context.Context, admin *redis.Client, _ string) error {
			return admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()
		}},
		{"too much to be sent", func(ctx context.Context, admin *redis.Client, channel string) error {
			if err := admin.ConfigSet(ctx, "client-output-buffer-limit", "pubsub 65536 0 0").Err(); err != nil {
				return err
			}
			return admin.Publish(ctx, channel, strings.Repeat("x", 1<<20)).Err()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newTroubledFleet(t, redisTimeout)
			ctx := withDeadline(t)
			query := f.slow("ttl=10m", 1)
			one, two := f.members[0], f.members[1]
			for round := range 3 {
				want := fmt.Sprint("round ", round)
				if _, _, err := text(ctx, two.db, query, 1); err != nil {
					t.Fatal(err)
				}
				if err := c.close(ctx, f.admin, sqlherd.NamespaceDefault+":ch"); err != nil {
					t.Fatal(err)
				}
				mustExec(t, one.db, fmt.Sprintf("UPDATE items SET v = '%s' WHERE id = 1", want))
				wrote := time.Now()
				for {
					began := time.Now()
					v, _, err := text(ctx, two.db, query, 1)
					if err != nil {
						t.Fatal(err)
					}
					if v == want {
						break
					}
					if late := began.Sub(wrote); late > sqlherd.LocalTTLDefault {
						t.Fatalf("%q %v after %q was written", v, late, want)
					}
				}
				f.awaitWell(t)
			}
		})
	}
}
