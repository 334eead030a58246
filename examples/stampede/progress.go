package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells on standard error how far things are: on a terminal one line that changes, elsewhere a line
// for each mode.
type progress struct {
	w        io.Writer
	terminal bool
	mode     mode
	procs    int
	began    time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) start(m mode, procs int) {
	p.mode, p.procs, p.began = m, procs, time.Now()
	p.line("starts")
}

func (p *progress) expiry(i, of int) { p.line(fmt.Sprintf("expiry %d of %d", i, of)) }

// line shows what a mode is at. Elsewhere than on a terminal there would be too many of them.
func (p *progress) line(what string) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%-16s  %s, %s", p.mode.name, processes(p.procs), what)
	}
}

// clear takes away the line that changes.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *progress) done(r result) {
	p.clear()
	fmt.Fprintf(p.w, "%-16s  %s, %d expiries, %s queries, %.1f s\n", p.mode.name, processes(p.procs),
		r.Expiries, thousands(r.DBQueries), time.Since(p.began).Seconds())
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
