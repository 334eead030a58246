//go:build unix

package dbtest

import (
	"os"
	"syscall"
)

// resume lets a process go on that pause has stopped; any other goes on anyhow.
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
