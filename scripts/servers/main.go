//go:build unix

// Command servers runs the database servers that the tests talk to: PostgreSQL,
// MariaDB, Redis and a Redis Cluster of three masters, each on a free port of
// 127.0.0.1, with its data in one temporary folder and durability switched off.
//
//	servers run COMMAND [ARG…]   start them, run COMMAND with the SQLHERD_TEST_* variables
//	                             set, stop them; exits as COMMAND did
//	servers start STATEFILE      start them and leave them running; prints export lines
//	servers stop STATEFILE       stop what start has started
//	servers missing              print the Debian package of each server that is not installed
//
// The servers must be installed; scripts/install-servers.sh does that. Run as
// root, PostgreSQL and MariaDB get the unprivileged account of their package,
// since both refuse to be root.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// commandGrace is how long the command of "run" has to end after an interrupt.
	commandGrace = 10 * time.Second
	// stopGrace is how long a server has to end before it is killed.
	stopGrace = 5 * time.Second
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	switch {
	case len(args) >= 2 && args[0] == "run":
		return runCommand(args[1:])
	case len(args) == 2 && args[0] == "start":
		return 0, startDetached(args[1])
	case len(args) == 2 && args[0] == "stop":
		return 0, stopDetached(args[1])
	case len(args) == 1 && args[0] == "missing":
		printMissing()
		return 0, nil
	}
	return 2, errors.New("usage: servers run COMMAND [ARG…] | start STATEFILE | stop STATEFILE | missing")
}

// runCommand starts the servers, runs the command, and stops the servers
// whatever happens: also when the command fails, on a signal, and when this
// process is killed (Linux: the kernel takes its children along).
func runCommand(args []string) (code int, err error) {
	begin := time.Now()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

	f := &fleet{}
	started := make(chan error, 1)
	go func() { started <- f.start() }()
	select {
	case err = <-started:
	case s := <-signals:
		f.interrupt()
		<-started
		code, err = 130, fmt.Errorf("%v while the servers were starting", s)
	}
	defer func() {
		if stopErr := f.stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
	}()
	if err != nil {
		return code, err
	}

	fmt.Printf("PostgreSQL, MariaDB, Redis and a Redis Cluster are up after %v\n", time.Since(begin).Round(100*time.Millisecond))

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	for _, k := range slices.Sorted(maps.Keys(f.env)) {
		cmd.Env = append(cmd.Env, k+"="+f.env[k])
	}
	// A process group of its own: an interrupt from the terminal reaches this
	// process alone, which passes it on and stops the servers afterwards.
	cmd.SysProcAttr = childAttr(nil, false)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // cmd.ProcessState says more
		close(done)
	}()

	for interrupted := false; ; {
		select {
		case <-done:
			// Whatever the command left behind in its group ends with it.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			if interrupted {
				return 130, errors.New("interrupted")
			}
			code := cmd.ProcessState.ExitCode()
			if code < 0 {
				return 1, fmt.Errorf("%s: %v", args[0], cmd.ProcessState)
			}
			if died := f.died(); died != nil {
				return max(code, 1), died
			}
			return code, nil
		case s := <-signals:
			sig := s.(syscall.Signal)
			if interrupted {
				sig = syscall.SIGKILL
			}
			interrupted = true
			_ = syscall.Kill(-cmd.Process.Pid, sig)
			time.AfterFunc(commandGrace, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		}
	}
}

func printMissing() {
	for _, need := range []struct {
		debian   string
		programs [][]string // of each, one of the alternatives
	}{
		{"postgresql", [][]string{{"initdb"}}}, // brings the others along
		{"mariadb-server", [][]string{{"mariadbd"}, {"mariadb-install-db"}, {"mariadb"}}},
		{"redis-server", [][]string{{"redis-server", "valkey-server"}, {"redis-cli", "valkey-cli"}}},
	} {
		if slices.ContainsFunc(need.programs, func(names []string) bool { _, err := find(names...); return err != nil }) {
			fmt.Println(need.debian)
		}
	}
}

// state is what start leaves behind for stop.
type state struct {
	Dir   string            `json:"dir"`
	Env   map[string]string `json:"env"`
	Procs []procState       `json:"procs"`
}

type procState struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

func startDetached(file string) error {
	if st, err := readState(file); err == nil {
		if slices.ContainsFunc(st.Procs, func(p procState) bool { return !isOurs(p.PID, st.Dir) }) {
			// Some of it is gone, by a crash or a reboot: begin anew.
			if err := stopDetached(file); err != nil {
				return err
			}
		} else {
			printExports(st.Env)
			return nil
		}
	}
	f := &fleet{detached: true}
	if err := f.start(); err != nil {
		return errors.Join(err, f.stop())
	}
	st := state{Dir: f.dir, Env: f.env}
	for _, s := range f.servers {
		st.Procs = append(st.Procs, procState{s.name, s.cmd.Process.Pid})
	}
	data, err := json.MarshalIndent(st, "", "\t")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return errors.Join(err, f.stop())
	}
	printExports(f.env)
	return nil
}

func printExports(env map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Printf("export %s='%s'\n", k, env[k])
	}
}

func stopDetached(file string) error {
	st, err := readState(file)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "servers: none are running")
		return nil
	}
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(st.Procs))
	for i, p := range st.Procs {
		wg.Go(func() { errs[i] = stopPID(p, st.Dir) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(st.Dir), os.Remove(file))
}

// stopPID ends a process that an earlier run has started, and returns when it is gone.
func stopPID(p procState, dir string) error {
	if !isOurs(p.PID, dir) {
		return nil
	}
	_ = syscall.Kill(p.PID, stopSignal(p.Name))
	deadline := time.Now().Add(stopGrace)
	for isOurs(p.PID, dir) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
			deadline = deadline.Add(stopGrace)
		}
		if time.Now().After(deadline.Add(stopGrace)) {
			return fmt.Errorf("%s (pid %d) does not end", p.Name, p.PID)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func readState(file string) (state, error) {
	var st state
	data, err := os.ReadFile(file)
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, fmt.Errorf("%s: %w", file, err)
	}
	return st, nil
}
