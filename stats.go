package sqlherd

import (
	"cmp"
	"database/sql"
	"slices"
	"sync/atomic"
)

// counters are plain atomics: the figures are read rarely, and a profile has not asked for more.
type counters struct {
	outcomes [outcomes]atomic.Uint64
	reasons  [reasons]atomic.Uint64

	queryErrors atomic.Uint64
	hintErrors  atomic.Uint64
	dials       atomic.Uint64
	taints      atomic.Uint64

	loads      atomic.Uint64
	loadErrors atomic.Uint64
	loading    atomic.Int64
	backedOff  atomic.Uint64
	lagSkipped atomic.Uint64

	leasesWon     atomic.Uint64
	leasesLost    atomic.Uint64
	leasesExpired atomic.Uint64
	waitTimeouts  atomic.Uint64
	waitsInVain   atomic.Uint64
	storeErrors   atomic.Uint64

	refreshes        [refreshOutcomes]atomic.Uint64
	refreshesDropped atomic.Uint64

	unknownWrites       atomic.Uint64
	invalidations       atomic.Uint64
	invalidationsHeard  atomic.Uint64
	invalidationRetries atomic.Uint64
	invalidationRepeats atomic.Uint64

	soft        atomic.Uint64
	softHeard   atomic.Uint64
	fences      atomic.Uint64
	fencesHeard atomic.Uint64
	fenceErrors atomic.Uint64
	fencedLoads atomic.Uint64
}

// Stats is a snapshot of what a Herd has done since New, and of what it holds now. The
// figures are read one after the other, not all at one moment.
type Stats struct {
	// Outcomes counts queries by how they were answered, Reasons those that were not cached by
	// why. Outcomes and reasons that have not occurred are absent.
	Outcomes map[Outcome]uint64
	Reasons  map[Reason]uint64

	QueryErrors uint64 // queries with a policy whose rows could not be had
	HintErrors  uint64 // malformed hints and policies, per query
	Dials       uint64 // real connections given to conns of the application's pools since New; those of loads are in LoaderPools
	Taints      uint64 // sessions whose state became unknown

	Loads      uint64 // queries sent to the database by the engine, refreshes included
	LoadErrors uint64
	Loading    int64  // now
	BackedOff  uint64 // callers answered from a failing key's back-off
	LagSkipped uint64 // results not stored because of Config.ReplicaLag

	LeasesWon     uint64
	LeasesLost    uint64 // times that another process held the lease
	LeasesExpired uint64 // leases that ran out under a load of ours
	WaitTimeouts  uint64
	WaitsInVain   uint64 // loads past the lease, because writes had ended what others loaded before it arrived, twice in a row

	Refreshes        map[RefreshOutcome]uint64
	RefreshesRunning int // now

	// UnknownWrites counts the statements that invalidate everything, because it is not known what they write: CALL, DO
	// and the like, a SELECT that only calls a function of the application, DDL that may reach other tables, what the
	// tokenizer does not know, and an @invalidate that is malformed or lacks its argument. An @invalidate narrows them.
	UnknownWrites uint64

	Invalidations        uint64 // tags invalidated by this process
	InvalidationsHeard   uint64 // tags of which other processes told
	InvalidationRetries  uint64
	InvalidationRepeats  uint64 // tags told to Redis once more, since a failover may have lost them
	InvalidationsPending int    // tags that Redis does not know of yet

	SoftInvalidations      uint64 // tags softly invalidated by this process
	SoftInvalidationsHeard uint64 // tags of which other processes told

	// With Config.Strict.
	Fences      uint64 // tags fenced by this process, before a commit
	FencesHeard uint64 // tags of which other processes told
	FenceErrors uint64 // writes that went on although Redis could not be told of their fence, and failed renewals
	FencedLoads uint64 // loads not stored because a tag was fenced

	MemoryEntries int   // now
	MemoryBytes   int64 // now

	Redis StoreStats // zero without Redis

	// LoaderPools are the pools that loads run in, one for each sql.DB that is open.
	LoaderPools []sql.DBStats

	// Families are the query families with a policy, most queries first.
	Families []FamilyStats
}

// FamilyStats are the outcomes of one query family. Families beyond the first 1024 are not told apart.
type FamilyStats struct {
	Name     string
	Outcomes map[Outcome]uint64
	Queries  uint64
}

// Stats returns a snapshot. It takes no lock that a query waits for, and is cheap
// enough to be called every second.
func (h *Herd) Stats() Stats {
	g, c := h.engine, h.counters
	s := Stats{
		Outcomes:             make(map[Outcome]uint64),
		Reasons:              make(map[Reason]uint64),
		Refreshes:            make(map[RefreshOutcome]uint64),
		QueryErrors:          c.queryErrors.Load(),
		HintErrors:           c.hintErrors.Load(),
		Dials:                c.dials.Load(),
		Taints:               c.taints.Load(),
		Loads:                c.loads.Load(),
		LoadErrors:           c.loadErrors.Load(),
		Loading:              c.loading.Load(),
		BackedOff:            c.backedOff.Load(),
		LagSkipped:           c.lagSkipped.Load(),
		LeasesWon:            c.leasesWon.Load(),
		LeasesLost:           c.leasesLost.Load(),
		LeasesExpired:        c.leasesExpired.Load(),
		WaitTimeouts:         c.waitTimeouts.Load(),
		WaitsInVain:          c.waitsInVain.Load(),
		RefreshesRunning:     len(g.refreshing),
		UnknownWrites:        c.unknownWrites.Load(),
		Invalidations:        c.invalidations.Load(),
		InvalidationsHeard:   c.invalidationsHeard.Load(),
		InvalidationRetries:  c.invalidationRetries.Load(),
		InvalidationRepeats:  c.invalidationRepeats.Load(),
		InvalidationsPending: h.pendingInvalidations(),

		SoftInvalidations:      c.soft.Load(),
		SoftInvalidationsHeard: c.softHeard.Load(),
		Fences:                 c.fences.Load(),
		FencesHeard:            c.fencesHeard.Load(),
		FenceErrors:            c.fenceErrors.Load(),
		FencedLoads:            c.fencedLoads.Load(),
	}
	for o := range outcomes {
		if n := c.outcomes[o].Load(); n > 0 {
			s.Outcomes[o] = n
		}
	}
	for r := range reasons {
		if n := c.reasons[r].Load(); n > 0 {
			s.Reasons[r] = n
		}
	}
	for o := range refreshOutcomes {
		if n := c.refreshes[o].Load(); n > 0 {
			s.Refreshes[o] = n
		}
	}
	if n := c.refreshesDropped.Load(); n > 0 {
		s.Refreshes[RefreshDropped] = n
	}
	s.MemoryEntries, s.MemoryBytes = g.mem.stats()
	if g.store != nil {
		s.Redis = g.store.counters()
	}
	for _, src := range h.openSources() {
		s.LoaderPools = append(s.LoaderPools, src.loader.stats())
	}
	s.Families = h.families.stats()
	return s
}

func (f *families) stats() []FamilyStats {
	f.mu.Lock()
	all := make([]*familyCounts, 0, len(f.m)+1)
	for _, c := range f.m {
		all = append(all, c)
	}
	f.mu.Unlock()
	all = append(all, &f.rest)

	var out []FamilyStats
	for _, c := range all {
		s := FamilyStats{Name: c.name, Outcomes: make(map[Outcome]uint64)}
		for o := range outcomes {
			if n := c.counts[o].Load(); n > 0 {
				s.Outcomes[o] = n
				s.Queries += n
			}
		}
		if s.Queries > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b FamilyStats) int {
		return cmp.Or(cmp.Compare(b.Queries, a.Queries), cmp.Compare(a.Name, b.Name))
	})
	return out
}
