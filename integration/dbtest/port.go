package dbtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports of servers and proxies lie below the range from which systems take the
// ports of outgoing connections: one that is given up for a while, by a stopped
// server, is still free when it comes back.
const (
	portMin = 23000
	portMax = 29999
)

// freePort returns a port of 127.0.0.1 that nobody listened on a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := portMin + rand.IntN(portMax-portMin)
		if l, err := net.Listen("tcp", localAddr(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("found no free port on 127.0.0.1")
	return 0
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
