package sqlherd

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config says what a Herd caches, where, and within which bounds. The zero value
// works: an in-process cache with the defaults below. New copies it.
type Config struct {
	Redis            redis.UniversalClient
	Namespace        string
	Dialect          Dialect
	Default          Policy
	Rules            []Rule
	RulesFile        string
	Local            LocalConfig
	Tables           []string
	MaxLoads         int
	LoadTimeout      time.Duration
	MaxDBConns       int
	LoadOnCallerConn bool
	RedisTimeout     time.Duration
	Strict           bool
	StrictHints      bool
	ReplicaLag       time.Duration
	EntryKeys        [][]byte
	Logger           *slog.Logger
	Observer         Observer
}

// LocalConfig bounds the cache in this process's memory.
type LocalConfig struct {
	MaxBytes int64
	TTL      time.Duration
	Disabled bool
}
