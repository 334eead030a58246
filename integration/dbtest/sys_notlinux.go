//go:build unix && !linux

package dbtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// pause stops a process.
func pause(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
