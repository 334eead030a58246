package dbtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sqlherd/sqlherd/integration/dbtest"
)

var ctx = context.Background()

func TestSharedRedisIsLeftClean(t *testing.T) {
	var ns string
	t.Run("use it", func(t *testing.T) {
		var client *redis.Client
		client, ns = dbtest.Redis(t)
		if err := client.Set(ctx, "{"+ns+":k:1}", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	client, other := dbtest.Redis(t)
	if other == ns {
		t.Error("two tests have one namespace")
	}
	if keys := client.Keys(ctx, "*"+ns+"*").Val(); len(keys) > 0 {
		t.Errorf("left behind: %v", keys)
	}
}

func TestSharedClusterHasThreeMasters(t *testing.T) {
	client, ns := dbtest.RedisCluster(t)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := client.Set(ctx, ns+key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := client.ClusterNodes(ctx).Result()
	if err != nil || strings.Count(nodes, "master") != 3 {
		t.Errorf("%v\n%s", err, nodes)
	}
}

func TestRedisOfItsOwnStopsAndComesBack(t *testing.T) {
	s := dbtest.StartRedis(t, "--maxmemory", "3mb")
	c := s.Client()
	if got := c.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != "3145728" {
		t.Errorf("maxmemory is %q", got)
	}
	c.Set(ctx, "k", "v", 0)
	for name, end := range map[string]func(){"stopped": s.Stop, "killed": s.Kill} {
		end()
		impatient := quick(s)
		if err := impatient.Ping(ctx).Err(); err == nil {
			t.Errorf("%s, and still answers", name)
		}
		impatient.Close()
		s.Restart()
		if err := c.Get(ctx, "k").Err(); err != redis.Nil {
			t.Errorf("%s and restarted: %v, want no key", name, err)
		}
	}
}

func TestPausedRedisAnswersNobody(t *testing.T) {
	s := dbtest.StartRedis(t)
	c := quick(s)
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answers")
	}
	s.Resume()
	if err := s.Client().Ping(ctx).Err(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// quick returns a client that gives up soon.
func quick(s *dbtest.RedisServer) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 50 * time.Millisecond, ReadTimeout: 50 * time.Millisecond,
	})
}
