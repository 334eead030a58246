package integration_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sqlherd/sqlherd"
)

// What a read is held to. A version is one that was committed; it is due for a reader from a moment on, and a read
// that began then or later and gave an older one is a violation. All processes read one clock.
//
//	the write was …                                   due, in the writer's process   due in another
//	through the wrapped driver, and has returned      then                           then + trust
//	by another, who called Herd.Invalidate here       then                           then + trust
//	… and Redis could not be told of it               then                           then + longest life
//	cut with the commit on its way                    it is over + longest life      the same
//	of a process that was killed                      -                              it is over + longest life
//	by another who told nobody                        then + longest life            the same
//
// trust is Local.TTL where there is memory. Where there is none, every read is compared with Redis, but may share a look
// that another reader of the process has just begun: it takes Config.RedisTimeout at most.
// A reader to whom Redis did not answer lately serves what memory has: everything by other processes is due after
// the longest life then. The longest life is ttl + swr, and what it takes to load and store; rows served because the
// database is unavailable have sie besides.
type soakCheck struct {
	s         *soak
	versions  [soakRows][]version
	processes []*soakHistory

	writes, unknown, untold, undone, killed, late int

	reads      int
	outcomes   map[sqlherd.Outcome]int
	excused    int
	outdated   int           // reads of other processes, older than a write that had returned
	oldest     time.Duration // by how much
	absent     int
	violations int
}

// A version is a committed version of a row.
type version struct {
	tok    int64
	manner int64
	proc   int
	begin  int64
	end    int64
	over   int64 // nothing of the write happens after
	how    int64
	untold bool
}

// A soakHistory is what one process has recorded, apart from its reads.
type soakHistory struct {
	p       *soakProc
	longest int64 // load
	away    []record
	dues    map[dueKey]*dues
}

func newSoakCheck(s *soak) *soakCheck {
	return &soakCheck{s: s, outcomes: map[sqlherd.Outcome]int{}}
}

// each calls f for every record of a process. The last one may be cut short by a SIGKILL.
func (p *soakProc) each(f func(record)) error {
	file, err := os.Open(p.cfg.Log)
	if errors.Is(err, os.ErrNotExist) {
		return nil // killed at birth
	}
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	var b [48]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
		n := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
		f(record{recordKind(n(0)), n(1), n(2), n(3), n(4), n(5)})
	}
}

func (c *soakCheck) run() {
	t := c.s.t
	t.Helper()
	began := map[[2]int64]version{} // by row and token
	ends := map[int64]record{}
	for _, p := range c.s.procs {
		h := &soakHistory{p: p, dues: map[dueKey]*dues{}}
		c.processes = append(c.processes, h)
		if err := p.each(func(r record) {
			switch r.Kind {
			case recordBegin:
				began[[2]int64{r.Row, r.Tok}] = version{tok: r.Tok, manner: r.V, proc: p.cfg.ID, begin: r.T0}
			case recordEnd:
				ends[r.Tok] = r
			case recordAway:
				h.away = append(h.away, r)
			case recordLoad:
				h.longest = max(h.longest, r.T0)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	c.writes = len(ends)
	for _, e := range ends {
		switch e.V {
		case endUnknown:
			c.unknown++
		case endUndone:
			c.undone++
		case endLate:
			c.late++
		}
		if e.Row == 1 {
			c.untold++
		}
	}

	rows, err := c.s.bare.QueryContext(withDeadline(t), "SELECT id, v, tok FROM history ORDER BY id, v")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, v, tok int64
		if err := rows.Scan(&id, &v, &tok); err != nil {
			t.Fatal(err)
		}
		if v != int64(len(c.versions[id])) {
			t.Fatalf("row %d: version %d comes after %d versions", id, v, len(c.versions[id]))
		}
		ver := version{begin: math.MinInt64, end: math.MinInt64}
		if v > 0 {
			var ok bool
			if ver, ok = began[[2]int64{id, tok}]; !ok {
				t.Fatalf("row %d, version %d: nobody has begun to write %d", id, v, tok)
			}
			end, ok := ends[tok]
			if ok {
				ver.end, ver.over, ver.how, ver.untold = end.T0, end.T1, end.V, end.Row == 1
			} else {
				ver.how, ver.end, ver.over = endLate, math.MaxInt64, int64(c.s.procs[ver.proc].gone)
				c.killed++
				if ver.over == 0 {
					t.Errorf("row %d, version %d: process %d lives and has not ended its write", id, v, ver.proc)
				}
			}
			if ver.how == endUndone {
				t.Errorf("row %d, version %d was rolled back and is there", id, v)
			}
		}
		c.versions[id] = append(c.versions[id], ver)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	for _, h := range c.processes {
		if err := h.p.each(func(r record) {
			if r.Kind >= recordRead && r.Kind < recordBegin {
				c.read(h, r)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// read checks one read.
func (c *soakCheck) read(h *soakHistory, r record) {
	o := sqlherd.Outcome(r.Kind - recordRead)
	c.reads++
	c.outcomes[o]++
	versions := c.versions[r.Row]
	excused := h.wasAway(r)
	if excused {
		c.excused++
	}
	due := h.due(c, dueKey{r.Row, excused, o == sqlherd.StaleError}).at(r.T0)
	if r.V == notThere {
		// An even version of a guest, which had begun before the read ended and is not too old.
		c.absent++
		for v := due; v < len(versions) && versions[v].begin <= r.T1; v++ {
			if v%2 == 0 {
				return
			}
		}
		c.violation("row %d, process %d: no guest, %v; version %d was due%s", r.Row, h.p.cfg.ID, o, due, c.story(r, due))
		return
	}
	switch {
	case r.V >= int64(len(versions)) || versions[r.V].tok != r.Tok:
		c.violation("row %d, process %d: version %d of %d, %v, was never committed", r.Row, h.p.cfg.ID, r.V, r.Tok, o)
		return
	case versions[r.V].begin > r.T1:
		c.violation("row %d, process %d: version %d was read before it was written", r.Row, h.p.cfg.ID, r.V)
		return
	case r.V < int64(due):
		c.violation("row %d, process %d: version %d, %v, excused %t; %d was due%s", r.Row, h.p.cfg.ID, r.V, o, excused, due, c.story(r, due))
		return
	}
	if next := r.V + 1; !excused && next < int64(len(versions)) {
		if w := versions[next]; w.how != endLate && w.manner != mannerUnseen && !w.untold && w.end <= r.T0 {
			c.outdated++
			c.oldest = max(c.oldest, time.Duration(r.T0-w.end))
		}
	}
}

func (c *soakCheck) violation(format string, args ...any) {
	if c.violations++; c.violations <= 20 {
		c.s.t.Errorf(format, args...)
	}
}

// story tells what led to a violation.
func (c *soakCheck) story(r record, due int) string {
	var b strings.Builder
	first := max(int(r.V), due-2)
	for v := first; v <= due && v < len(c.versions[r.Row]); v++ {
		w := c.versions[r.Row][v]
		fmt.Fprintf(&b, "\n\tversion %d by process %d: manner %d, end %d, untold %t; began %v, returned %v, was over %v before the read began, which took %v", v, w.proc, w.manner, w.how, w.untold,
			time.Duration(r.T0-w.begin), time.Duration(r.T0-w.end), time.Duration(r.T0-w.over), time.Duration(r.T1-r.T0))
	}
	return b.String()
}

// wasAway says that Redis may have failed the reader so late that it was believed without being compared.
func (h *soakHistory) wasAway(r record) bool {
	since := r.T0 - int64(soakLocalTTL)
	// The records are in order.
	i, _ := slices.BinarySearchFunc(h.away, since, func(a record, t int64) int {
		if a.T1 < t {
			return -1
		}
		return 1
	})
	return i < len(h.away) && h.away[i].T0 <= r.T1
}

type dueKey struct {
	row     int64
	excused bool
	sie     bool
}

// dues are moments, in order, with the newest version that is due from each on.
type dues struct {
	at_ []int64
	v   []int
}

// at returns the newest version that is due at a moment.
func (d *dues) at(now int64) int {
	i, found := slices.BinarySearch(d.at_, now)
	for found && i+1 < len(d.at_) && d.at_[i+1] == now {
		i++
	}
	if !found {
		i--
	}
	return d.v[i]
}

func (h *soakHistory) due(c *soakCheck, k dueKey) *dues {
	if d := h.dues[k]; d != nil {
		return d
	}
	type moment struct {
		at int64
		v  int
	}
	// Whoever loads may be slow to store, and Redis slow to take it.
	var slowest int64
	for _, p := range c.processes {
		slowest = max(slowest, p.longest)
	}
	life := int64(soakTTL+soakSWR+soakRedisTimeout+soakPauseMax) + slowest
	if k.sie {
		life += int64(soakSIE)
	}
	trust := int64(soakLocalTTL)
	if h.p.cfg.NoMemory {
		trust = int64(soakRedisTimeout) // a look under way may be shared
	}
	var moments []moment
	for v, w := range c.versions[k.row] {
		at := w.end
		switch own := w.proc == h.p.cfg.ID; {
		case v == 0:
		case w.how == endLate:
			at = w.over + life
		case w.manner == mannerUnseen:
			at += life
		case own:
		case k.excused || w.untold:
			at += life
		default:
			at += trust
		}
		moments = append(moments, moment{at, v})
	}
	slices.SortFunc(moments, func(a, b moment) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return a.v - b.v
	})
	d := &dues{}
	newest := 0
	for _, m := range moments {
		newest = max(newest, m.v)
		d.at_, d.v = append(d.at_, m.at), append(d.v, newest)
	}
	h.dues[k] = d
	return d
}

// soakTotals is what the processes that lived to the end say.
type soakTotals struct {
	loads, stampMismatches, heard, retries uint64
	problems                               []string
}

func (s *soakTotals) add(r soakReport) {
	s.loads += r.Stats.Loads
	s.stampMismatches += r.Stats.Redis.StampMismatches
	s.heard += r.Stats.InvalidationsHeard
	s.retries += r.Stats.InvalidationRetries
	s.problems = append(s.problems, r.Problems...)
}

// report prints the figures. A full run has to have met everything that it is about.
func (c *soakCheck) report(totals *soakTotals, full bool) {
	t := c.s.t
	t.Helper()
	for _, p := range totals.problems {
		t.Error(p)
	}
	committed := 0
	for _, v := range c.versions {
		committed += len(v) - 1
	}
	t.Logf("%d reads, %d violations; %d writes (%d versions; %d rolled back, %d with an unknown end, %d cut on their way, %d of killed processes, %d that Redis could not be told of)",
		c.reads, c.violations, c.writes, committed, c.undone, c.unknown, c.late, c.killed, c.untold)
	t.Logf("%s; %d processes", c.s.faultsMade(), len(c.s.procs))
	t.Logf("outcomes %v, %d times not found; %d reads while Redis was away; %d reads elsewhere of rows a write had replaced, at most %v before",
		c.outcomes, c.absent, c.excused, c.outdated, c.oldest)
	t.Logf("who lived to the end: %d loads, %d entries refused by their stamps, %d tags heard of, %d retries", totals.loads, totals.stampMismatches, totals.heard, totals.retries)
	if c.violations > 0 {
		t.Errorf("%d violations", c.violations)
	}
	if !full {
		return
	}
	for what, n := range map[string]int{
		"hits": c.outcomes[sqlherd.Hit], "stale reads": c.outcomes[sqlherd.Stale], "misses": c.outcomes[sqlherd.Miss],
		"followers": c.outcomes[sqlherd.Shared], "waiters": c.outcomes[sqlherd.Waited], "rows not found": c.absent,
		"unknown ends": c.unknown, "rollbacks": c.undone, "commits cut": c.late, "writes untold": c.untold,
		"reads with Redis well": c.reads - c.excused, "stamps refused": int(totals.stampMismatches), "messages": int(totals.heard),
		"writes of killed processes": c.killed, "Redis kills": c.s.faults["Redis killed and restarted"], "flushes": c.s.faults["FLUSHALL"],
	} {
		if n == 0 {
			t.Errorf("no %s: the run proves nothing of them", what)
		}
	}
}
