//go:build !unix

package dbtest

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

// pause fails: a test that needs it cannot run here, and says so.
func pause(int) error {
	return errors.New("dbtest: a process cannot be paused on " + runtime.GOOS + "; run this test on Linux or macOS")
}

func resume(*os.Process) {}
