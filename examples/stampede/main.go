// Stampede shows what happens when a hot result expires, and what sqlherd makes of
// it: many callers, in one process or four, read one key at the moment its rows have run out.
//
//	go run ./examples/stampede
//
// It needs no server. The database is a SQLite file, Redis is embedded, and the
// processes of the fleet are copies of this program. See -h for real servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitInterrupted = 130
)

func main() {
	if isWorker() {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program but for its process. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printHelp(stdout)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "stampede: %v\nRun it with -h for the flags.\n", err)
		return exitUsage
	}

	runs, err := stampede(ctx, opt, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "stampede: interrupted; processes and data are cleaned up")
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(stderr, "stampede: %v\n", err)
		return exitFailed
	}
	if opt.json {
		err = writeJSON(stdout, runs)
	} else {
		err = writeTable(stdout, runs)
	}
	if err != nil {
		fmt.Fprintf(stderr, "stampede: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// stampede sets the servers up, runs the modes one after the other, and takes everything down again.
func stampede(ctx context.Context, opt options, stdout, stderr io.Writer) (runs []result, err error) {
	db, err := openDatabase(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.close()) }()

	var cache *sharedCache
	if opt.needsRedis() {
		if cache, err = openSharedCache(ctx, opt.redis); err != nil {
			return nil, err
		}
		defer cache.close()
	}

	if !opt.json {
		writeSetting(stdout, opt, db, cache)
	}
	show := newProgress(stderr)
	for _, m := range opt.modes {
		r, err := runMode(ctx, opt, m, db, cache, show)
		if err != nil {
			show.clear()
			return nil, fmt.Errorf("mode %s: %w", m.name, err)
		}
		show.done(r)
		runs = append(runs, r)
	}
	fmt.Fprintln(stderr)
	return runs, nil
}
