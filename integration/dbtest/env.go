package dbtest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// The variables that say where the servers are.
const (
	envPostgres     = "SQLHERD_TEST_POSTGRES"      // postgres:// URL of a superuser
	envMySQL        = "SQLHERD_TEST_MYSQL"         // DSN of go-sql-driver/mysql, of a superuser
	envRedis        = "SQLHERD_TEST_REDIS"         // redis:// URL
	envRedisCluster = "SQLHERD_TEST_REDIS_CLUSTER" // host:port, separated by commas
	envRedisServer  = "SQLHERD_TEST_REDIS_SERVER"  // path of the redis-server program
	envRequire      = "SQLHERD_TEST_REQUIRE_SERVERS"
)

// lookup returns a variable's value. Without one the test is skipped, or fails
// when servers are required: the test command never skips silently.
func lookup(t testing.TB, key string) string {
	t.Helper()
	value := os.Getenv(key)
	if value != "" {
		return value
	}
	if os.Getenv(envRequire) == "1" {
		t.Fatalf("%s is not set, and %s=1 asks for every server", key, envRequire)
	}
	t.Skipf("%s is not set; run make test, or eval \"$(make servers)\" first", key)
	return ""
}

// uniqueName returns a name for a database, a namespace or the like, which says
// whose it is. It is a plain identifier of at most 60 bytes.
func uniqueName(t testing.TB) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, t.Name())
	return "t_" + name[:min(len(name), 45)] + "_" + hex.EncodeToString(b)
}
