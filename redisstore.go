package sqlherd

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// Names in Redis. All commands and scripts name keys of one slot only, so that a
// Cluster needs no other way.
//
//	{ns:k:<id>}     an entry; <id> is the key's SHA-256, or its HMAC with Config.EntryKeys
//	{ns:k:<id>}:l   its lease: the holder's token
//	ns:t:<tag>      the stamp of a tag, or the fences around it; tags that are long or have odd
//	                characters, and all with Config.EntryKeys, by their digest
//	ns:t:*          the stamp that InvalidateAll replaces; in a Cluster ns:t:*0 to ns:t:*15, each for a
//	                part of the keys
//	ns:ch           the channel
//
// With several Config.EntryKeys the last one makes the names: while a new key goes first, everything stays where it is.
const (
	redisTimeoutDefault = 50 * time.Millisecond

	// entrySlack is what an entry lives in Redis longer than it can be of use.
	entrySlack = time.Second
	// stampSlack is what a stamp lives longer than the entries that name it, on top of
	// the time that their load may take. A stamp that dies early costs a miss.
	stampSlack = 5 * time.Second

	// bulkyMin is the size from which an entry travels to Redis alone.
	bulkyMin = 16 << 10

	// lastRowsKeys is the number of keys whose rows are remembered, while somebody has them.
	lastRowsKeys = 1 << 10

	// tagPlainMax is the length up to which a tag is its own name.
	tagPlainMax = 64
	// tagNamesMax bounds the names of stamps that are kept.
	tagNamesMax = 512
)

//go:embed lua/obtain.lua
var obtainSrc string

//go:embed lua/stamp.lua
var stampSrc string

//go:embed lua/renew.lua
var renewSrc string

//go:embed lua/put.lua
var putSrc string

//go:embed lua/release.lua
var releaseSrc string

//go:embed lua/fences.lua
var fencesSrc string

//go:embed lua/invalidate.lua
var invalidateSrc string

//go:embed lua/fence.lua
var fenceSrc string

//go:embed lua/lift.lua
var liftSrc string

//go:embed lua/soften.lua
var softenSrc string

var (
	obtainScript     = newScript(obtainSrc, "2")
	stampScript      = newScript(fencesSrc+stampSrc, "1")
	renewScript      = newScript(renewSrc, "1")
	putScript        = newScript(putSrc, "2")
	releaseScript    = newScript(releaseSrc, "1")
	invalidateScript = newScript(fencesSrc+invalidateSrc, "1")
	fenceScript      = newScript(fencesSrc+fenceSrc, "1")
	liftScript       = newScript(fencesSrc+liftSrc, "1")
	softenScript     = newScript(fencesSrc+softenSrc, "1")
)

// redisStoreOptions is what a redisStore needs to know.
type redisStoreOptions struct {
	client    redis.UniversalClient
	namespace string

	// timeout bounds every call. Defaults to 50 ms.
	timeout time.Duration
	// loadTimeout is how long a load may take between obtain and put.
	loadTimeout time.Duration
	// keys seal the entries; see Config.EntryKeys.
	keys [][]byte
	// maxBytes bounds one entry. Defaults to 64 MiB.
	maxBytes int

	// logger gets what an operator should know, without keys, tags or values. Defaults to none.
	logger *slog.Logger
	// observe, if any, is told of every call: its operation, duration and error.
	observe func(op string, d time.Duration, err error)
}

// A redisStore keeps what a fleet shares in Redis. It implements sharedStore over any
// go-redis client of a standalone server, one found by Sentinel, or a Cluster.
type redisStore struct {
	opt     redisStoreOptions
	codec   entryCodec
	names   redisNames
	line    *line
	breaker *breaker
	leases  gate // of obtain
	telling gate // of what is told of tags
	events  storeEvents
	self    sender

	listening atomic.Bool     // messages arrive
	doubtedAt atomic.Int64    // UnixNano
	ctx       context.Context // ends with close
	stop      context.CancelFunc
	silence   chan struct{} // closed when the subscriber has ended; nil before listen
	closing   sync.Once

	n storeCounters

	// last is a table without chains: a key that takes another's place costs it a decoding.
	last [lastRowsKeys]lastRows
}

// newRedisStore makes a store. It does not talk to Redis, which may be away.
func newRedisStore(opt redisStoreOptions) (*redisStore, error) {
	opt.timeout = cmp.Or(opt.timeout, redisTimeoutDefault)
	if opt.logger == nil {
		opt.logger = slog.New(slog.DiscardHandler)
	}
	if err := checkRedisOptions(&opt); err != nil {
		return nil, err
	}
	s := &redisStore{
		opt:   opt,
		codec: entryCodec{keys: opt.keys, max: opt.maxBytes},
		names: redisNames{namespace: opt.namespace},
	}
	if len(opt.keys) > 0 {
		s.names.key = opt.keys[len(opt.keys)-1]
	}
	_, cluster := opt.client.(masterFinder)
	s.names.shareEverything(cluster)
	rand.Read(s.self[:])
	s.line = newLine(opt.client, opt.timeout, opt.logger)
	s.breaker = newBreaker(opt.logger, s.probe)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// checkRedisOptions reports every option that cannot work, by the name its user knows.
func checkRedisOptions(opt *redisStoreOptions) error {
	var errs []error
	switch c := opt.client.(type) {
	case nil:
		errs = append(errs, errors.New("Redis is nil"))
	case *redis.Ring:
		// A shard that comes back would bring back the stamps from before it went.
		errs = append(errs, errors.New("Redis must not be a *redis.Ring: use a Cluster"))
	case *redis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			// A replica that lags shows stamps from before an invalidation.
			errs = append(errs, errors.New("Redis must read from primaries: ReadOnly, RouteByLatency and RouteRandomly must be off"))
		}
	}
	if opt.namespace == "" || strings.ContainsAny(opt.namespace, "{}") {
		errs = append(errs, fmt.Errorf("Namespace is %q: it must not be empty and not contain { or }", opt.namespace))
	}
	for i, k := range opt.keys {
		if len(k) != 32 {
			errs = append(errs, fmt.Errorf("EntryKeys[%d] has %d bytes: it must have 32", i, len(k)))
		}
	}
	if opt.timeout < 0 {
		errs = append(errs, fmt.Errorf("RedisTimeout is %v: it must be positive", opt.timeout))
	}
	return errors.Join(errs...)
}

func (s *redisStore) get(ctx context.Context, key string, tags []string) (*sharedEntry, error) {
	s.n.gets.Add(1)
	c := s.line.newCall()
	id := s.names.id(key)
	var name any = s.names.entry(id)
	// The remaining life first. Should another entry be stored between the two, the
	// new one seems as old as the old one, and not the other way round.
	left, value := redis.NewIntCmd(context.Background(), "pttl", name), redis.NewStringCmd(context.Background(), "get", name)
	c.add(left)
	c.add(value)
	for _, t := range tags {
		c.stamps = append(c.stamps, s.names.stampFor(t, id))
	}
	done, err := s.call(ctx, "get", c, s.line.quick, s.opt.timeout)
	if done {
		defer s.line.free(c)
	}
	if err != nil {
		return nil, err
	}

	switch err := cmp.Or(value.Err(), left.Err()); {
	case err == nil:
	case errors.Is(err, redis.Nil):
		s.n.getMisses.Add(1)
		return nil, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		s.fault(faultType)
		return nil, nil
	default:
		s.n.errors.Add(1)
		return nil, err
	}
	current := make([]stamp, 0, 8)
	for _, cmd := range c.stampCmds {
		v, err := cmd.Result()
		switch {
		case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
			v = ""
		case err != nil:
			s.n.errors.Add(1)
			return nil, err
		}
		current = append(current, stampOf(v))
	}
	pttl := left.Val()
	if pttl < 0 {
		s.fault(faultNoExpiry)
		return nil, nil
	}
	raw := value.Val()
	last := &s.last[binary.BigEndian.Uint16(id[:])%lastRowsKeys]
	res, h, fault := s.codec.decode(unsafe.Slice(unsafe.StringData(raw), len(raw)), key, current, last)
	if fault != faultNone {
		s.fault(fault)
		return nil, nil
	}
	return &sharedEntry{
		result:   res,
		soft:     h.soft,
		hard:     h.hard,
		sie:      h.sie,
		age:      max(h.life-time.Duration(pttl)*time.Millisecond, 0),
		softened: h.softened,
		loadTime: h.loadTime,
		size:     len(raw),
	}, nil
}

// fault counts an entry that was found and cannot be served.
func (s *redisStore) fault(f entryFault) {
	s.n.getMisses.Add(1)
	s.n.faults[f].Add(1)
}

// stampOf turns a reply into a stamp; what is none is missing.
func stampOf(v string) stamp {
	if len(v) != len(stamp{}) {
		return stamp{}
	}
	return stamp([]byte(v))
}

func (s *redisStore) obtain(ctx context.Context, key string, tags []string, ttl, life time.Duration) (lease, error) {
	if err := s.leases.allow(); err != nil {
		s.n.refused.Add(1)
		return lease{}, err
	}
	l, err := s.obtainNow(ctx, key, tags, ttl, life)
	s.leases.report(err)
	return l, err
}

func (s *redisStore) obtainNow(ctx context.Context, key string, tags []string, ttl, life time.Duration) (lease, error) {
	l := lease{key: key, tags: tags, token: rand.Text()}
	id := s.names.id(key)
	entry, held := s.names.entry(id), s.names.lease(id)
	c := s.line.newCall()
	c.run(obtainScript, entry, held, l.token, int64(max(millis(ttl), 1)))
	stampLife := int64(millis(life + entrySlack + s.opt.loadTimeout + stampSlack))
	for _, t := range tags {
		var fresh stamp
		rand.Read(fresh[:])
		c.run(stampScript, s.names.stampFor(t, id), fresh[:], stampLife)
	}
	// A lease that is won when its caller has left would keep everybody waiting for nobody.
	c.late = func(c *call) {
		if r, err := c.reply(0); err == nil && len(ints(r)) == 4 && ints(r)[0] == 1 {
			s.line.post(s.releaseCall(l))
		}
	}
	done, err := s.call(ctx, "obtain", c, s.line.quick, s.opt.timeout)
	if done {
		defer s.line.free(c)
	}
	if err != nil {
		return lease{}, err
	}

	r, err := c.reply(0)
	if err != nil {
		s.n.errors.Add(1)
		return lease{}, err
	}
	n := ints(r)
	if len(n) != 4 {
		return lease{}, s.oddReply("obtain", r)
	}
	l.won, l.left = n[0] == 1, time.Duration(n[1])*time.Millisecond
	l.fence, l.entryPresent = uint64(n[2]), n[3] == 1
	l.stamps = make([]stamp, len(tags))
	for i := range tags {
		r, err := c.reply(1 + i)
		v, ok := r.(string)
		if err == nil && !ok {
			err = s.oddReply("stamp", r)
		}
		if err != nil {
			s.n.errors.Add(1)
			if l.won {
				_ = s.release(ctx, l) // else it ends by itself
			}
			return lease{}, err
		}
		l.stamps[i] = stampOf(v)
		l.fenced = l.fenced || v == ""
	}
	return l, nil
}

// ints reads an array of integers; anything else is none.
func ints(reply any) []int64 {
	list, _ := reply.([]any)
	n := make([]int64, 0, 4)
	for _, v := range list {
		i, ok := v.(int64)
		if !ok {
			return nil
		}
		n = append(n, i)
	}
	return n
}

func (s *redisStore) oddReply(op string, r any) error {
	s.n.errors.Add(1)
	return fmt.Errorf("sqlherd: Redis answered %s with a %T", op, r)
}

func (s *redisStore) renew(ctx context.Context, l lease, ttl time.Duration) (bool, error) {
	c := s.line.newCall().run(renewScript, s.names.lease(s.names.id(l.key)), l.token, int64(max(millis(ttl), 1)))
	r, err := s.one(ctx, "renew", c, s.line.quick)
	return err == nil && r == int64(1), err
}

func (s *redisStore) put(ctx context.Context, l lease, e *sharedEntry) (putOutcome, error) {
	life := e.hard + e.sie + entrySlack
	value, err := s.codec.encode(l.key, e, l.stamps, l.fence, life)
	if errors.Is(err, errEntryTooLarge) {
		s.n.putsTooLarge.Add(1)
		return putTooLarge, s.release(ctx, l)
	}
	if err != nil {
		s.n.errors.Add(1)
		return putTooLarge, errors.Join(err, s.release(ctx, l))
	}
	id := s.names.id(l.key)
	c := s.line.newCall().run(putScript, s.names.entry(id), s.names.lease(id),
		l.token, int64(l.fence), int64(millis(life)), value,
		s.channel(), s.message(messageStored, id[:]), s.message(messageReleased, id[:]))
	queue := s.line.quick
	if len(value) > bulkyMin {
		queue = s.line.bulky
	}
	r, err := s.one(ctx, "put", c, queue)
	switch {
	case errors.Is(err, errStoreTimeout):
		// It may never be sent. Should it arrive after the release, it is stored all the same, if nothing newer is there.
		s.line.post(s.releaseCall(l))
		return putFenced, err
	case err != nil:
		return putFenced, err
	case r == int64(1):
		s.n.putsStored.Add(1)
		s.n.messagesOut.Add(1)
		s.n.bytesPut.Add(uint64(len(value)))
		return putStored, nil
	}
	s.n.putsFenced.Add(1)
	return putFenced, nil
}

func (s *redisStore) release(ctx context.Context, l lease) error {
	r, err := s.one(ctx, "release", s.releaseCall(l), s.line.quick)
	if r == int64(1) {
		s.n.messagesOut.Add(1)
	}
	if errors.Is(err, errStoreTimeout) {
		s.line.post(s.releaseCall(l)) // it may never have been sent
	}
	return err
}

func (s *redisStore) releaseCall(l lease) *call {
	id := s.names.id(l.key)
	return s.line.newCall().run(releaseScript, s.names.lease(id), l.token, s.channel(), s.message(messageReleased, id[:]))
}

// tagsMax bounds the tags of one trip: a time limit must be enough for it.
const tagsMax = 256

// tellTags makes one trip for every tagsMax tags.
func (s *redisStore) tellTags(tags []string, tell func([]string) error) error {
	if err := s.telling.allow(); err != nil {
		s.n.refused.Add(1)
		return err
	}
	var untold []string
	var err error
	for n := 0; n < len(tags); n += tagsMax {
		perr := tell(tags[n:min(n+tagsMax, len(tags))])
		if perr == nil {
			continue
		}
		err = perr
		var some untoldError
		if !errors.As(perr, &some) {
			untold = append(untold, tags[n:]...)
			break
		}
		untold = append(untold, some.tags...)
	}
	s.telling.report(err)
	if err != nil && len(untold) < len(tags) {
		return untoldError{err, untold}
	}
	return err
}

func (s *redisStore) invalidate(ctx context.Context, tags []string) error {
	return s.invalidateAs(ctx, tags, nil)
}

func (s *redisStore) lift(ctx context.Context, tags []string, token fenceToken, wrote bool) error {
	if wrote {
		return s.invalidateAs(ctx, tags, token[:])
	}
	return s.tellTags(tags, func(tags []string) error {
		return s.eachTag(ctx, "lift", tags, func(c *call, stamp any, _ string) { c.run(liftScript, stamp, token[:]) })
	})
}

func (s *redisStore) fence(ctx context.Context, tags []string, token fenceToken, life time.Duration) error {
	ms := int64(max(millis(life), 1))
	return s.tellTags(tags, func(tags []string) error {
		return s.eachTag(ctx, "fence", tags, func(c *call, stamp any, tag string) {
			c.run(fenceScript, stamp, token[:], ms, s.channel(), s.message(messageFenced, appendTag(nil, tag)))
		})
	})
}

func (s *redisStore) soften(ctx context.Context, tags []string) error {
	return s.tellTags(tags, func(tags []string) error {
		return s.eachTag(ctx, "soften", tags, func(c *call, stamp any, tag string) {
			c.run(softenScript, stamp, s.channel(), s.message(messageSoftened, appendTag(nil, tag)))
		})
	})
}

// eachTag makes one trip with a script for every stamp of every tag. Its error is an untoldError when the trip was made and some scripts
// failed, with the last of their errors.
func (s *redisStore) eachTag(ctx context.Context, op string, tags []string, add func(c *call, stamp any, tag string)) error {
	c := s.line.newCall()
	of := make([]string, 0, len(tags)) // the script's tag
	for _, t := range tags {
		for _, stamp := range s.names.stamps(t) {
			add(c, stamp, t)
			of = append(of, t)
		}
	}
	done, err := s.call(ctx, op, c, s.line.quick, s.opt.timeout)
	if done {
		defer s.line.free(c)
	}
	if err != nil && !(done && c.answered(err)) {
		return err
	}
	err = nil // each tag's node has answered for itself
	var failed []string
	for i, t := range of {
		switch r, rerr := c.reply(i); {
		case rerr != nil:
			err = rerr
			if len(failed) == 0 || failed[len(failed)-1] != t {
				failed = append(failed, t)
			}
		case op == "lift": // which tells nobody
		case r != int64(1):
			s.n.messagesRefused.Add(1)
		default:
			s.n.messagesOut.Add(1)
		}
	}
	if err != nil && op != "invalidate" {
		s.n.errors.Add(1)
	}
	if err != nil {
		return untoldError{s.line.ofNode(c, err), failed}
	}
	return nil
}

// invalidateAs is invalidate for the writer whose fence has token, if it has one.
func (s *redisStore) invalidateAs(ctx context.Context, tags []string, token []byte) error {
	return s.tellTags(tags, func(tags []string) error {
		deadline := time.Now().Add(s.opt.timeout)
		err := s.eachTag(ctx, "invalidate", tags, func(c *call, stamp any, tag string) {
			c.run(invalidateScript, stamp, s.channel(), s.message(messageInvalidated, appendTag(nil, tag)), token)
		})
		var some untoldError
		switch {
		case !errors.As(err, &some): // none has failed, or the trip
			return err
		case redis.IsReadOnlyError(some.error):
			s.n.errors.Add(1)
			return err
		case failing(some.error): // a node's, which has counted it
			return err
		}
		// Scripts may be what is refused: for want of memory, or of permission. Deleting the stamps
		// is what counts.
		return s.invalidatePlainly(ctx, some.tags, time.Until(deadline))
	})
}

// invalidatePlainly is invalidate without scripts. Two trips: the messages must not be
// faster than the deletions.
func (s *redisStore) invalidatePlainly(ctx context.Context, tags []string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	c := s.line.newCall()
	for _, t := range tags {
		for _, stamp := range s.names.stamps(t) {
			c.add(redis.NewIntCmd(context.Background(), "del", stamp))
		}
	}
	if err := s.all(ctx, c, limit); err != nil {
		return err
	}
	c = s.line.newCall()
	for _, t := range tags {
		c.add(redis.NewIntCmd(context.Background(), "publish", s.channel(), s.message(messageInvalidated, appendTag(nil, t))))
	}
	if err := s.all(ctx, c, time.Until(deadline)); err != nil {
		s.n.messagesRefused.Add(uint64(len(tags)))
		return err
	}
	s.n.messagesOut.Add(uint64(len(tags)))
	return nil
}

// all runs c and returns its first error.
func (s *redisStore) all(ctx context.Context, c *call, limit time.Duration) error {
	done, err := s.call(ctx, "invalidate", c, s.line.quick, limit)
	if done {
		defer s.line.free(c)
	}
	if err != nil {
		return err
	}
	for _, cmd := range c.cmds {
		if err := cmd.Err(); err != nil {
			s.n.errors.Add(1)
			return err
		}
	}
	return nil
}

// one runs c, a single script, and returns its reply.
func (s *redisStore) one(ctx context.Context, op string, c *call, queue chan *call) (any, error) {
	done, err := s.call(ctx, op, c, queue, s.opt.timeout)
	if done {
		defer s.line.free(c)
	}
	if err != nil {
		return nil, err
	}
	r, err := c.reply(0)
	if err != nil {
		s.n.errors.Add(1)
	}
	return r, err
}

// call sends c, unless the breaker is open, and tells the breaker, the counters and the observer
// what came of it. See line.do for its results; in addition, an error of a command that
// concerns Redis as a whole is the call's error.
func (s *redisStore) call(ctx context.Context, op string, c *call, queue chan *call, limit time.Duration) (done bool, err error) {
	report, err := s.breaker.allow()
	if err != nil {
		s.n.refused.Add(1)
		return true, err
	}
	return s.send(ctx, op, c, queue, limit, report)
}

func (s *redisStore) send(ctx context.Context, op string, c *call, queue chan *call, limit time.Duration, report func(error)) (done bool, err error) {
	var began time.Time
	if s.opt.observe != nil {
		began = time.Now()
	}
	done, err = s.line.do(ctx, c, queue, limit)
	if err == nil {
		err = c.failure()
	}
	err = s.line.ofNode(c, err)
	report(err)
	refused := errors.Is(err, errUnavailable)
	var left callerLeft
	if err != nil && !refused && !errors.As(err, &left) && !errors.Is(err, errStoreClosed) {
		s.doubt()
	}
	switch {
	case err == nil:
	case refused:
		s.n.refused.Add(1)
	case errors.Is(err, errStoreTimeout):
		s.n.timeouts.Add(1)
	default:
		s.n.errors.Add(1)
	}
	if s.opt.observe != nil {
		s.opt.observe(op, time.Since(began), err)
	}
	return done, err
}

// doubtPause is the least time between two doubts.
const doubtPause = time.Second

// doubt passes on that Redis may have lost its memory of the last writes. The subscription alone does not tell: in a
// Cluster it is with one server of many.
func (s *redisStore) doubt() {
	last, now := s.doubtedAt.Load(), time.Now().UnixNano()
	if s.events != nil && now-last >= int64(doubtPause) && s.doubtedAt.CompareAndSwap(last, now) {
		s.events.doubted()
	}
}

// probe asks Redis, past the breaker, for a key that is in any slot of a Cluster.
func (s *redisStore) probe() error {
	c := s.line.newCall()
	c.add(redis.NewStringCmd(s.ctx, "get", s.opt.namespace+":probe:"+rand.Text()[:8]))
	var outcome error
	done, _ := s.send(s.ctx, "probe", c, s.line.quick, s.opt.timeout, func(err error) { outcome = err })
	if done {
		s.line.free(c)
	}
	return outcome
}

func (s *redisStore) id(key string) keyID { return s.names.id(key) }

func (s *redisStore) channel() string { return s.opt.namespace + ":ch" }

// close waits for the store's goroutines, within a bound: those that are inside a client that does not return end when
// it does.
func (s *redisStore) close() error {
	s.closing.Do(func() {
		s.stop()
		s.breaker.close()
		s.line.close()
		if s.silence == nil {
			return
		}
		t := time.NewTimer(2 * s.opt.timeout)
		defer t.Stop()
		select {
		case <-s.silence:
		case <-t.C:
		}
	})
	return nil
}

// redisNames makes the names of keys.
type redisNames struct {
	namespace string
	key       []byte // of the HMACs; nil: plain digests

	// known are the names of the stamps that were asked for first, boxed. It is copied when it grows.
	known atomic.Pointer[map[string]any]

	// everything are the names of the stamps that all entries of a part of the keys have.
	everything []any
}

// everythingParts is the number of parts into which a Cluster's keys fall. With one stamp for all of them
// its node would be asked at every look, and nothing could be served while it is away.
const everythingParts = 16

func (n *redisNames) shareEverything(cluster bool) {
	if !cluster {
		n.everything = []any{n.stamp(tagEverything)}
		return
	}
	for i := range everythingParts {
		n.everything = append(n.everything, n.stamp(tagEverything+strconv.Itoa(i)))
	}
}

// stampFor returns the name of the stamp that an entry's tag has, boxed.
func (n *redisNames) stampFor(tag string, id keyID) any {
	if tag == tagEverything {
		return n.everything[int(id[0])%len(n.everything)]
	}
	return n.stamp(tag)
}

// stamps returns the names of all stamps of a tag, boxed.
func (n *redisNames) stamps(tag string) []any {
	if tag == tagEverything {
		return n.everything
	}
	return []any{n.stamp(tag)}
}

func (n *redisNames) id(key string) keyID {
	if n.key != nil {
		return n.mac("name", key)
	}
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key)))
}

func (n *redisNames) mac(purpose, s string) keyID {
	m := hmac.New(sha256.New, n.key)
	m.Write([]byte("sqlherd " + purpose + " v1\x00"))
	m.Write([]byte(s))
	return keyID(m.Sum(nil))
}

func (n *redisNames) entry(id keyID) string {
	b := make([]byte, 0, 160)
	return string(n.appendEntry(b, id))
}

func (n *redisNames) lease(id keyID) string {
	b := make([]byte, 0, 160)
	return string(append(n.appendEntry(b, id), ":l"...))
}

func (n *redisNames) appendEntry(b []byte, id keyID) []byte {
	b = append(b, '{')
	b = append(b, n.namespace...)
	b = append(b, ":k:"...)
	b = hex.AppendEncode(b, id[:])
	return append(b, '}')
}

// stamp returns the name of a tag's stamp, boxed.
func (n *redisNames) stamp(tag string) any {
	known := n.known.Load()
	if known != nil {
		if name, ok := (*known)[tag]; ok {
			return name
		}
	}
	var name any = n.namespace + ":t:" + n.tag(tag)
	if known == nil || len(*known) < tagNamesMax {
		grown := make(map[string]any, tagNamesMax/8)
		if known != nil {
			maps.Copy(grown, *known)
		}
		grown[strings.Clone(tag)] = name
		n.known.CompareAndSwap(known, &grown) // or another one goes in, and this one the next time
	}
	return name
}

// tag returns how a tag appears in a name: as it is when it is short and tame, else a digest behind
// a #, which a tame one does not have. Braces would choose the slot.
func (n *redisNames) tag(tag string) string {
	if n.key != nil {
		sum := n.mac("tag", tag)
		return "#" + hex.EncodeToString(sum[:16])
	}
	tame := len(tag) <= tagPlainMax
	for i := 0; tame && i < len(tag); i++ {
		c := tag[i]
		tame = c > ' ' && c < 0x7f && c != '{' && c != '}' && c != '#'
	}
	if tame {
		return tag
	}
	sum := sha256.Sum256([]byte(tag))
	return "#" + hex.EncodeToString(sum[:16])
}

// A message travels as
//
//	0  1  version
//	1  1  kind
//	2  8  sender
//	10    payload: a key's id, or tags, each behind its length
//
// With Config.EntryKeys the payload is a nonce and a ciphertext; everything before it, and the namespace, is
// associated data.
const (
	messageVersion = 1
	messageHead    = 10

	messageStored      = 's'
	messageReleased    = 'r'
	messageInvalidated = 'i'
	messageFenced      = 'f'
	messageSoftened    = 'w'
)

// A sender is a store, as its messages name it.
type sender [8]byte

func (s *redisStore) message(kind byte, payload []byte) []byte {
	b := make([]byte, messageHead, messageHead+nonceLen+len(payload)+tagLen)
	b[0], b[1] = messageVersion, kind
	copy(b[2:], s.self[:])
	if len(s.opt.keys) == 0 {
		return append(b, payload...)
	}
	b = b[:messageHead+nonceLen]
	nonce := b[messageHead:]
	rand.Read(nonce)
	// By the key that makes the names: every process of the fleet has it.
	return s.messageSealer(s.names.key, s.self).Seal(b, nonce, payload, associated(b[:messageHead], s.opt.namespace))
}

func (s *redisStore) messageSealer(key []byte, from sender) interface {
	Seal(dst, nonce, plaintext, additionalData []byte) []byte
	Open(dst, nonce, ciphertext, additionalData []byte) ([]byte, error)
} {
	return sealer(key, "message\x00"+string(from[:]))
}

// appendTag appends a tag behind its length.
func appendTag(b []byte, tag string) []byte {
	b = binary.AppendUvarint(b, uint64(len(tag)))
	return append(b, tag...)
}

// hear passes a message on. What is not understood is counted.
func (s *redisStore) hear(m string) {
	if len(m) < messageHead || m[0] != messageVersion {
		s.n.messagesUnknown.Add(1)
		return
	}
	from := sender([]byte(m[2:messageHead]))
	if from == s.self {
		return
	}
	payload, ok := m[messageHead:], true
	if len(s.opt.keys) > 0 {
		payload, ok = s.openMessage(m, from)
	}
	if !ok || !s.deliver(m[1], payload) {
		s.n.messagesUnknown.Add(1)
		return
	}
	s.n.messagesIn.Add(1)
}

func (s *redisStore) openMessage(m string, from sender) (payload string, ok bool) {
	if len(m) < messageHead+nonceLen+tagLen {
		return "", false
	}
	head, nonce, sealed := []byte(m[:messageHead]), []byte(m[messageHead:messageHead+nonceLen]), []byte(m[messageHead+nonceLen:])
	for _, k := range s.opt.keys {
		if b, err := s.messageSealer(k, from).Open(nil, nonce, sealed, associated(head, s.opt.namespace)); err == nil {
			return string(b), true
		}
	}
	return "", false
}

func (s *redisStore) deliver(kind byte, payload string) bool {
	switch kind {
	case messageStored, messageReleased:
		if len(payload) != len(keyID{}) {
			return false
		}
		id := keyID([]byte(payload))
		if kind == messageStored {
			s.events.storedElsewhere(id)
		} else {
			s.events.releasedElsewhere(id)
		}
		return true
	case messageInvalidated, messageFenced, messageSoftened:
		var tags []string
		for len(payload) > 0 {
			n, w := binary.Uvarint(unsafe.Slice(unsafe.StringData(payload), len(payload)))
			if w <= 0 || n > uint64(len(payload)-w) {
				return false
			}
			tags = append(tags, payload[w:w+int(n)])
			payload = payload[w+int(n):]
		}
		if len(tags) == 0 {
			return false
		}
		switch kind {
		case messageInvalidated:
			s.events.invalidatedElsewhere(tags)
		case messageFenced:
			s.events.fencedElsewhere(tags)
		case messageSoftened:
			s.events.softenedElsewhere(tags)
		}
		return true
	}
	return false
}

// Bounds of the subscription.
const (
	// pulse is the pause between two looks at whether the subscription is alive. Silence of two
	// pulses, in spite of a PING at every one, ends it: then messages may be lost.
	pulse = 500 * time.Millisecond
	// subscribeTimeout bounds the attempt to subscribe.
	subscribeTimeout = 2 * time.Second
	// resubscribeMin and resubscribeMax bound the pauses between attempts.
	resubscribeMin = 20 * time.Millisecond
	resubscribeMax = 2 * time.Second
)

func (s *redisStore) listen(e storeEvents) {
	s.events = e
	s.silence = make(chan struct{})
	go func() {
		defer close(s.silence)
		s.subscribe()
	}()
}

// subscribe keeps a subscription until the store is closed.
func (s *redisStore) subscribe() {
	pause := resubscribeMin
	var lost time.Time // when the last one that was up ended; zero before there was one
	for s.ctx.Err() == nil {
		if s.receive(lost) {
			pause = resubscribeMin
			lost = time.Now()
		}
		t := time.NewTimer(pause/2 + mathrand.N(pause/2+1))
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, resubscribeMax)
	}
}

// noRedial is a context for PubSub's methods that has ended. They look at it only when they have lost their connection and dial
// another one, which may take seconds before they say that they had lost it.
var noRedial = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive subscribes once and passes on what comes, until the connection ends. It says whether it was
// ever up. lost is when an earlier one ended, if any. All events come from here, in order.
func (s *redisStore) receive(lost time.Time) (was bool) {
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	ps := s.opt.client.Subscribe(ctx, s.channel())
	cancel()

	var heard atomic.Int64
	heard.Store(time.Now().UnixNano())
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer ps.Close()
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-s.ctx.Done():
				return
			case <-tick.C:
			}
			if time.Since(time.Unix(0, heard.Load())) > 2*pulse || ps.Ping(noRedial) != nil {
				return
			}
		}
	})
	defer wg.Wait()
	defer close(ended)

	defer func() {
		if was {
			s.listening.Store(false)
			s.events.subscribed(false)
			if s.ctx.Err() == nil {
				s.opt.logger.Warn("sqlherd: the subscription to Redis is lost; memory is compared with Redis at every read until it is back")
			}
		}
	}()
	for {
		m, err := ps.Receive(noRedial)
		if err != nil {
			return was
		}
		heard.Store(time.Now().UnixNano())
		switch m := m.(type) {
		case *redis.Subscription:
			if !was {
				was = true
				s.listening.Store(true)
				s.events.subscribed(true)
				if !lost.IsZero() {
					s.opt.logger.Info("sqlherd: the subscription to Redis is back", "away", time.Since(lost))
				}
			}
		case *redis.Message:
			s.hear(m.Payload)
		}
	}
}

// storeCounters count since the store was made.
type storeCounters struct {
	gets, getMisses                      atomic.Uint64
	faults                               [entryFaults]atomic.Uint64
	putsStored, putsFenced, putsTooLarge atomic.Uint64
	bytesPut                             atomic.Uint64
	errors, timeouts, refused            atomic.Uint64

	messagesOut, messagesIn, messagesUnknown, messagesRefused atomic.Uint64
}

// StoreStats is a snapshot of what a store has counted.
type StoreStats struct {
	Gets      uint64 // look-ups, also those that failed
	GetMisses uint64 // look-ups that found nothing to serve, for whatever cause

	// Entries that were found and not served, by cause. Corrupt holds those that are damaged,
	// foreign or of another version, by the name of what is wrong with them.
	StampMismatches  uint64 // loaded before an invalidation
	DigestMismatches uint64 // of another key
	Corrupt          map[string]uint64

	PutsStored   uint64
	PutsFenced   uint64 // refused: something newer was there
	PutsTooLarge uint64
	BytesPut     uint64

	Errors   uint64 // calls that failed otherwise than by timeout
	Timeouts uint64 // calls without an answer in time
	Refused  uint64 // calls not made because a breaker was open

	BreakerOpen      bool
	BreakerOpens     uint64
	NodeBreakerOpens uint64 // the same of single nodes of a Cluster, which have breakers of their own

	MessagesOut     uint64
	MessagesIn      uint64
	MessagesUnknown uint64 // of another version, or malformed
	MessagesRefused uint64 // not sent: Redis does not let us publish
	Subscribed      bool   // messages arrive
}

func (s *redisStore) counters() StoreStats {
	st := StoreStats{
		Gets:             s.n.gets.Load(),
		GetMisses:        s.n.getMisses.Load(),
		StampMismatches:  s.n.faults[faultStamp].Load(),
		DigestMismatches: s.n.faults[faultDigest].Load(),
		PutsStored:       s.n.putsStored.Load(),
		PutsFenced:       s.n.putsFenced.Load(),
		PutsTooLarge:     s.n.putsTooLarge.Load(),
		BytesPut:         s.n.bytesPut.Load(),
		Errors:           s.n.errors.Load(),
		Timeouts:         s.n.timeouts.Load(),
		Refused:          s.n.refused.Load(),
		BreakerOpen:      s.breaker.open.Load(),
		BreakerOpens:     s.breaker.opens.Load(),
		MessagesOut:      s.n.messagesOut.Load(),
		MessagesIn:       s.n.messagesIn.Load(),
		MessagesUnknown:  s.n.messagesUnknown.Load(),
		MessagesRefused:  s.n.messagesRefused.Load(),
		Subscribed:       s.listening.Load(),
	}
	if s.line.nodes != nil {
		st.NodeBreakerOpens = s.line.nodes.opens.Load()
	}
	for f := range s.n.faults {
		if n := s.n.faults[f].Load(); n > 0 && entryFault(f) != faultStamp && entryFault(f) != faultDigest {
			if st.Corrupt == nil {
				st.Corrupt = make(map[string]uint64)
			}
			st.Corrupt[entryFault(f).String()] = n
		}
	}
	return st
}
