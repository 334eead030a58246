package sqlherd

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A FakeFleet is the shared store of a fleet without a network: what Redis is to redisStore. Time is
// time.Now and timers alone, so that in a testing/synctest bubble it is virtual. Faults
// are made with its methods; by default there are none.
//
//	fleet := NewFakeFleet()
//	a, b := fleet.Store(), fleet.Store() // two processes
//
// Messages are delivered before the call that sends them returns, unless delayed.
// All methods are safe for concurrent use. The exported ones are for the engine's tests, in package sqlherd_test.
type FakeFleet struct {
	mu      sync.Mutex
	entries map[string]*fakeEntry
	leases  map[string]fakeLease
	stamps  map[string]fakeStamp
	stores  []*FakeStore
	calls   map[string]int

	err     map[string]error // by operation; "" is every one
	tagErr  map[string]error // by tag, of what is told of it
	blocked chan struct{}    // open while calls are not answered
	drop    bool
	delay   time.Duration
	reply   time.Duration // that the answer to a get is under way
	hook    func(op, key string)
}

// fakeTimeout is what Config.RedisTimeout is to a redisStore.
const fakeTimeout = 50 * time.Millisecond

type fakeEntry struct {
	e       sharedEntry
	fence   uint64
	stamps  []stamp
	stored  time.Time
	expires time.Time
}

type fakeLease struct {
	token   string
	expires time.Time
}

type fakeStamp struct {
	stamp   stamp
	expires time.Time
	fences  map[fenceToken]time.Time // to their ends
}

func NewFakeFleet() *FakeFleet {
	return &FakeFleet{
		entries: make(map[string]*fakeEntry),
		leases:  make(map[string]fakeLease),
		stamps:  make(map[string]fakeStamp),
		calls:   make(map[string]int),
		err:     make(map[string]error),
		tagErr:  make(map[string]error),
	}
}

// Store returns another process's view of the fleet's store.
func (f *FakeFleet) Store() *FakeStore {
	s := &FakeStore{fleet: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stores = append(f.stores, s)
	return s
}

// SetErr makes the operation fail ("get", "obtain", "renew", "put", "release", "invalidate", "soften", "fence", "lift"; "" is
// all of them), without doing anything. A nil err ends it.
func (f *FakeFleet) SetErr(op string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err[op] = err
}

// SetTagErr makes what is told of one tag fail, as when its node of a Cluster is away, and of no other. A nil err ends it.
func (f *FakeFleet) SetTagErr(tag string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tagErr[tag] = err
}

// Block makes every call wait for Unblock, or for its time limit, after which it fails without having
// done anything.
func (f *FakeFleet) Block() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocked == nil {
		f.blocked = make(chan struct{})
	}
}

func (f *FakeFleet) Unblock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocked != nil {
		close(f.blocked)
		f.blocked = nil
	}
}

// DropMessages loses messages, silently.
func (f *FakeFleet) DropMessages(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = on
}

// DelayMessages delivers messages after d, from goroutines of their own, in any order.
func (f *FakeFleet) DelayMessages(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

// OnCall calls hook at the beginning of every call, before it has any effect, without a lock held. key is empty for
// invalidate. A nil hook ends it.
func (f *FakeFleet) OnCall(hook func(op, key string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Evict forgets an entry, EvictStamp a stamp, as a full Redis may at any time; KillLease a lease, as if
// it had expired.
func (f *FakeFleet) Evict(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.entries, key)
}

func (f *FakeFleet) EvictStamp(tag string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.stamps, tag)
}

func (f *FakeFleet) KillLease(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, key)
}

// Flush forgets everything.
func (f *FakeFleet) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.entries)
	clear(f.leases)
	clear(f.stamps)
}

// Save remembers what the store holds, as a replica that lags does. The function it returns brings that back, with the lives
// that were left.
func (f *FakeFleet) Save() (restore func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, leases, stamps := maps.Clone(f.entries), maps.Clone(f.leases), maps.Clone(f.stamps)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.entries, f.leases, f.stamps = maps.Clone(entries), maps.Clone(leases), maps.Clone(stamps)
	}
}

// Count returns how often the operation was called, by any process, also in vain.
func (f *FakeFleet) Count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Leased says whether somebody holds the lease of key.
func (f *FakeFleet) Leased(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.leases[key]
	return ok && time.Now().Before(l.expires)
}

// Has says whether an entry of key is there, valid or not.
func (f *FakeFleet) Has(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.entries[key]
	return ok && time.Now().Before(e.expires)
}

// Keys returns the keys of all entries, valid or not.
func (f *FakeFleet) Keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.entries))
}

// A FakeStore is one process's view of a FakeFleet.
type FakeStore struct {
	fleet *FakeFleet

	mu     sync.Mutex
	events storeEvents
	down   bool
	closed bool
	stats  StoreStats
}

var _ sharedStore = (*FakeStore)(nil)

// Subscription says that messages reach this process, or that they do not; they do at first.
func (s *FakeStore) Subscription(up bool) {
	s.mu.Lock()
	changed := s.down == up
	s.down = !up
	events := s.events
	s.mu.Unlock()
	if changed && events != nil {
		events.subscribed(up)
	}
}

// enter begins a call: faults first. It returns with fleet.mu held when there is no error.
func (s *FakeStore) enter(ctx context.Context, op, key string) error {
	f := s.fleet
	f.mu.Lock()
	f.calls[op]++
	hook, blocked := f.hook, f.blocked
	f.mu.Unlock()
	if hook != nil {
		hook(op, key)
	}
	if blocked != nil {
		limit := time.NewTimer(fakeTimeout)
		defer limit.Stop()
		select {
		case <-blocked:
		case <-limit.C:
			return errStoreTimeout
		case <-ctx.Done():
			return callerLeft{ctx.Err()}
		}
	}
	if err := ctx.Err(); err != nil {
		return callerLeft{err}
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	f.mu.Lock()
	var err error
	switch {
	case closed:
		err = errStoreClosed
	case f.err[op] != nil:
		err = f.err[op]
	case f.err[""] != nil:
		err = f.err[""]
	}
	if err != nil {
		f.mu.Unlock()
	}
	return err
}

// tell brings a message to the other processes. fleet.mu is not held.
func (s *FakeStore) tell(message func(storeEvents)) {
	f := s.fleet
	f.mu.Lock()
	stores, drop, delay := slices.Clone(f.stores), f.drop, f.delay
	f.mu.Unlock()
	s.count(func(st *StoreStats) { st.MessagesOut++ })
	if drop {
		return
	}
	for _, other := range stores {
		if other == s {
			continue
		}
		deliver := func() {
			other.mu.Lock()
			events, down := other.events, other.down || other.closed
			other.mu.Unlock()
			if events != nil && !down {
				other.count(func(st *StoreStats) { st.MessagesIn++ })
				message(events)
			}
		}
		if delay > 0 {
			time.AfterFunc(delay, deliver)
		} else {
			deliver()
		}
	}
}

func (s *FakeStore) count(f func(*StoreStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// tagLocked returns what there is of a tag. A fence that ran out voids the stamp.
func (f *FakeFleet) tagLocked(tag string) fakeStamp {
	st, now := f.stamps[tag], time.Now()
	if !now.Before(st.expires) {
		st.stamp = stamp{}
	}
	for token, ends := range st.fences {
		if !now.Before(ends) {
			delete(st.fences, token)
			st.stamp = stamp{}
			f.stamps[tag] = st
		}
	}
	return st
}

// stampLocked returns the stamp of a tag, zero when it is missing or fenced.
func (f *FakeFleet) stampLocked(tag string) stamp {
	st := f.tagLocked(tag)
	if len(st.fences) > 0 {
		return stamp{}
	}
	return st.stamp
}

// Fenced says whether a writer's fence is around the tag.
func (f *FakeFleet) Fenced(tag string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tagLocked(tag).fences) > 0
}

// ReplyAfter lets the answer to a get be under way for d.
func (f *FakeFleet) ReplyAfter(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reply = d
}

func (s *FakeStore) get(ctx context.Context, key string, tags []string) (*sharedEntry, error) {
	found, err := s.find(ctx, key, tags)
	s.fleet.mu.Lock()
	d := s.fleet.reply
	s.fleet.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
	return found, err
}

func (s *FakeStore) find(ctx context.Context, key string, tags []string) (*sharedEntry, error) {
	s.count(func(st *StoreStats) { st.Gets++ })
	if err := s.enter(ctx, "get", key); err != nil {
		return nil, err
	}
	f, now := s.fleet, time.Now()
	defer f.mu.Unlock()
	e, ok := f.entries[key]
	miss := !ok || !now.Before(e.expires)
	valid, softened := !miss && len(tags) == len(e.stamps), false
	for i := 0; valid && i < len(tags); i++ {
		current := f.stampLocked(tags[i])
		valid = current != (stamp{}) && current.hard() == e.stamps[i].hard()
		softened = softened || current != e.stamps[i]
	}
	if !valid {
		s.count(func(st *StoreStats) {
			st.GetMisses++
			if !miss {
				st.StampMismatches++
			}
		})
		return nil, nil
	}
	found := e.e
	found.age, found.softened = now.Sub(e.stored), softened
	found.size = int(found.result.Size())
	return &found, nil
}

func (s *FakeStore) obtain(ctx context.Context, key string, tags []string, ttl, life time.Duration) (lease, error) {
	if err := s.enter(ctx, "obtain", key); err != nil {
		return lease{}, err
	}
	f, now := s.fleet, time.Now()
	defer f.mu.Unlock()
	l := lease{key: key, tags: tags, token: rand.Text(), stamps: make([]stamp, len(tags))}
	for i, t := range tags {
		st := f.tagLocked(t)
		if len(st.fences) > 0 {
			l.fenced = true
			continue
		}
		if st.stamp == (stamp{}) {
			rand.Read(st.stamp[:])
			st.expires = now
		}
		l.stamps[i] = st.stamp
		if until := now.Add(life + entrySlack + stampSlack + time.Minute); st.expires.Before(until) {
			st.expires = until
		}
		f.stamps[t] = st
	}
	if held, ok := f.leases[key]; ok && now.Before(held.expires) {
		l.left = held.expires.Sub(now)
		return l, nil
	}
	f.leases[key] = fakeLease{token: l.token, expires: now.Add(ttl)}
	l.won, l.fence = true, uint64(now.UnixMicro())
	if e, ok := f.entries[key]; ok && now.Before(e.expires) {
		l.entryPresent = true
		l.fence = max(l.fence, e.fence+1)
	}
	return l, nil
}

// oursLocked says whether the lease is still the caller's, and whether anybody's.
func (f *FakeFleet) oursLocked(l lease) (ours, any bool) {
	held, ok := f.leases[l.key]
	any = ok && time.Now().Before(held.expires)
	return any && held.token == l.token, any
}

func (s *FakeStore) renew(ctx context.Context, l lease, ttl time.Duration) (bool, error) {
	if err := s.enter(ctx, "renew", l.key); err != nil {
		return false, err
	}
	defer s.fleet.mu.Unlock()
	ours, _ := s.fleet.oursLocked(l)
	if ours {
		s.fleet.leases[l.key] = fakeLease{token: l.token, expires: time.Now().Add(ttl)}
	}
	return ours, nil
}

func (s *FakeStore) put(ctx context.Context, l lease, e *sharedEntry) (putOutcome, error) {
	if err := s.enter(ctx, "put", l.key); err != nil {
		return putFenced, err
	}
	f, now := s.fleet, time.Now()
	ours, held := f.oursLocked(l)
	old, present := f.entries[l.key]
	if !ours && (held || present && now.Before(old.expires) && old.fence > l.fence) {
		f.mu.Unlock()
		s.count(func(st *StoreStats) { st.PutsFenced++ })
		return putFenced, nil
	}
	f.entries[l.key] = &fakeEntry{
		e: *e, fence: l.fence, stamps: slices.Clone(l.stamps),
		stored: now, expires: now.Add(e.hard + e.sie + entrySlack),
	}
	if ours {
		delete(f.leases, l.key)
	}
	f.mu.Unlock()
	s.count(func(st *StoreStats) { st.PutsStored++ })
	s.tell(func(ev storeEvents) { ev.storedElsewhere(s.id(l.key)) })
	return putStored, nil
}

func (s *FakeStore) release(ctx context.Context, l lease) error {
	if err := s.enter(ctx, "release", l.key); err != nil {
		return err
	}
	ours, _ := s.fleet.oursLocked(l)
	if ours {
		delete(s.fleet.leases, l.key)
	}
	s.fleet.mu.Unlock()
	if ours {
		s.tell(func(ev storeEvents) { ev.releasedElsewhere(s.id(l.key)) })
	}
	return nil
}

// eachTag changes what there is of every tag, and then tells the others.
func (s *FakeStore) eachTag(ctx context.Context, op string, tags []string, change func(*fakeStamp), message func(storeEvents, []string)) error {
	if len(tags) == 0 {
		return nil
	}
	if err := s.enter(ctx, op, ""); err != nil {
		return err
	}
	var told, untold []string
	var err error
	for _, t := range tags {
		if terr := s.fleet.tagErr[t]; terr != nil {
			untold, err = append(untold, t), terr
			continue
		}
		told = append(told, t)
		st := s.fleet.tagLocked(t)
		change(&st)
		if st.stamp == (stamp{}) && len(st.fences) == 0 {
			delete(s.fleet.stamps, t)
		} else {
			s.fleet.stamps[t] = st
		}
	}
	s.fleet.mu.Unlock()
	if message != nil && len(told) > 0 {
		s.tell(func(ev storeEvents) { message(ev, slices.Clone(told)) })
	}
	if err != nil {
		return untoldError{err, untold}
	}
	return nil
}

func (s *FakeStore) invalidate(ctx context.Context, tags []string) error {
	return s.eachTag(ctx, "invalidate", tags, func(st *fakeStamp) { st.stamp = stamp{} }, storeEvents.invalidatedElsewhere)
}

func (s *FakeStore) soften(ctx context.Context, tags []string) error {
	return s.eachTag(ctx, "soften", tags, func(st *fakeStamp) {
		if st.stamp != (stamp{}) {
			binary.BigEndian.PutUint32(st.stamp[12:], binary.BigEndian.Uint32(st.stamp[12:])+1)
		}
	}, storeEvents.softenedElsewhere)
}

func (s *FakeStore) fence(ctx context.Context, tags []string, token fenceToken, life time.Duration) error {
	return s.eachTag(ctx, "fence", tags, func(st *fakeStamp) {
		if st.fences == nil {
			st.fences = make(map[fenceToken]time.Time)
		}
		st.fences[token] = time.Now().Add(life)
	}, storeEvents.fencedElsewhere)
}

func (s *FakeStore) lift(ctx context.Context, tags []string, token fenceToken, wrote bool) error {
	if wrote {
		return s.eachTag(ctx, "lift", tags, func(st *fakeStamp) {
			delete(st.fences, token)
			st.stamp = stamp{}
		}, storeEvents.invalidatedElsewhere)
	}
	return s.eachTag(ctx, "lift", tags, func(st *fakeStamp) { delete(st.fences, token) }, nil)
}

func (s *FakeStore) id(key string) keyID { return sha256.Sum256([]byte(key)) }

func (s *FakeStore) listen(e storeEvents) {
	s.mu.Lock()
	s.events = e
	down := s.down
	s.mu.Unlock()
	if !down {
		e.subscribed(true)
	}
}

func (s *FakeStore) counters() StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Subscribed = s.events != nil && !s.down && !s.closed
	return st
}

func (s *FakeStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// ErrFake is an error for SetErr.
var ErrFake = errors.New("fake: the store is away")
