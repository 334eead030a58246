//go:build unix && !linux

package main

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttr gives a child its own process group (or session, when it is to
// outlive this process) and account.
func childAttr(acct *account, detached bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: !detached, Setsid: detached}
	if acct != nil {
		attr.Credential = &syscall.Credential{Uid: acct.uid, Gid: acct.gid}
	}
	return attr
}

// commandLine returns a process's arguments, or nothing when it is gone.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "stat=,command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || strings.HasPrefix(string(out), "Z") {
		return ""
	}
	return string(out)
}
