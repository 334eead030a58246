package main

import (
	"fmt"
	"os"
	"syscall"
)

// childAttr gives a child its own process group (or session, when it is to
// outlive this process) and account. On Linux the kernel kills a child whose
// parent dies; the thread that forked counts as the parent, and the Go runtime
// keeps its threads.
func childAttr(acct *account, detached bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: !detached, Setsid: detached}
	if !detached {
		attr.Pdeathsig = syscall.SIGKILL
	}
	if acct != nil {
		attr.Credential = &syscall.Credential{Uid: acct.uid, Gid: acct.gid}
	}
	return attr
}

// commandLine returns a process's arguments, or nothing when it is gone. A
// process that ended and was not waited for has none either.
func commandLine(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(data)
}
