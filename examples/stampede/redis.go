package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A sharedCache is the Redis of the fleet.
type sharedCache struct {
	url      string
	about    string
	embedded *miniredis.Miniredis // nil with a real server
}

// pingTimeout bounds the question whether there is a server.
const pingTimeout = 2 * time.Second

// checkRedis reports what keeps a -redis from being used at all.
func checkRedis(rawURL string) error {
	if rawURL == "" {
		return nil
	}
	if _, err := redis.ParseURL(rawURL); err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	return nil
}

// openSharedCache starts an embedded server when rawURL is empty.
func openSharedCache(ctx context.Context, rawURL string) (*sharedCache, error) {
	if rawURL == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true) // else keys would live for ever
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("embedded Redis: %w", err)
		}
		return &sharedCache{url: "redis://" + m.Addr(), about: "embedded (miniredis)", embedded: m}, nil
	}

	opt, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	redis.SetLogger(silence{}) // the error says it
	client := redis.NewClient(opt)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("-redis: no answer from %s: %w", opt.Addr, err)
	}
	return &sharedCache{url: rawURL, about: "Redis at " + opt.Addr}, nil
}

func (c *sharedCache) close() {
	if c.embedded != nil {
		c.embedded.Close()
	}
}

// silence is a logger for go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
