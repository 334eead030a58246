package sqlherd

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// The bytes of one entry in Redis, version 1; numbers are big-endian.
//
//	 0  4  magic "SQLH"       scripts look here, and
//	 4  1  version
//	 5  1  flags: compressed, sealed
//	 6  2  number of stamps
//	 8  8  fence              here: these two never move
//	16  8  soft life          milliseconds from when it was stored
//	24  8  hard life
//	32  8  stale-if-error life, on top of hard
//	40  8  physical life, as given to Redis with the entry
//	48  8  load time          microseconds
//	56  8  length of the rows before compression
//	64  8  checksum           XXH64 of all other bytes; zero when sealed
//	72 16  digest of the full key; zero when sealed
//	88 16n stamps
//	    …  rows, as rowcodec writes them, perhaps compressed (S2 block)
//
// Sealed, the rows are a nonce of 12 bytes and an AES-256-GCM ciphertext under a key that is
// derived from the sealing key and the full cache key. Everything before them, and the full key, is
// associated data: nothing can be changed, and nothing moved to another name.
const (
	entryMagic   = "SQLH"
	entryVersion = 1

	flagCompressed = 1 << 0
	flagSealed     = 1 << 1
	flagsKnown     = flagCompressed | flagSealed

	offVersion = 4
	offFlags   = 5
	offStamps  = 6
	offFence   = 8
	offSoft    = 16
	offHard    = 24
	offSIE     = 32
	offLife    = 40
	offLoad    = 48
	offRawLen  = 56
	offSum     = 64
	offDigest  = 72
	entryHead  = 88

	nonceLen = 12
	tagLen   = 16
)

// Bounds of what is written, and of what is believed when it is read.
const (
	// entryBytesMax bounds an entry in Redis, and its rows before compression.
	entryBytesMax = 64 << 20
	// compressMin is the size of rows from which compression is tried, and
	// compressGain the part that it has to save (an eighth). Below, a decompression costs a reader
	// more than the bytes cost the network.
	compressMin  = 8 << 10
	compressGain = 8
	// Rows that shrink more than ratioMax times are kept compressed only up to
	// ratioFree bytes, so that a small entry never makes a reader allocate much.
	ratioMax  = 100
	ratioFree = 1 << 20
	stampsMax = math.MaxUint16
)

// An entryFault says why the bytes of an entry are not believed. Every fault is a miss.
type entryFault uint8

const (
	faultNone     entryFault = iota
	faultShort               // shorter than its header says
	faultForeign             // not an entry at all
	faultVersion             // written by another version of the format
	faultChecksum            // damaged
	faultSeal                // not sealed by one of our keys, or sealed and we have none
	faultDigest              // another key's entry under this name
	faultSize                // over a limit
	faultRows                // rows that cannot be decoded
	faultStamp               // not corrupt: loaded before an invalidation
	faultType                // the name holds another Redis type
	faultNoExpiry            // the name has no expiry, or none to be seen
	entryFaults              // the number of faults
)

// String returns the fault's name as metrics carry it.
func (f entryFault) String() string {
	return [...]string{"none", "short", "foreign", "version", "checksum", "seal", "digest", "size", "rows", "stamp", "type", "expiry", "invalid"}[min(f, entryFaults)]
}

var errEntryTooLarge = errors.New("sqlherd: entry over the size limit")

// An entryCodec frames entries. Its zero value writes them in the clear.
type entryCodec struct {
	keys [][]byte // the first seals, any opens; empty: nothing is sealed
	max  int      // of the bytes of an entry; 0 is entryBytesMax
}

func (c *entryCodec) limit() int {
	if c.max > 0 {
		return c.max
	}
	return entryBytesMax
}

// resultLimit bounds a result in memory. It is over limit, because short encodings grow.
func (c *entryCodec) resultLimit() int64 { return 2 * int64(c.limit()) }

// keyDigest is what an entry in the clear carries to prove that it is key's: not the
// digest that names it, so that copying the bytes under another name does not do.
func keyDigest(key string) [16]byte {
	p := scratch.Get().(*[]byte)
	b := append(append((*p)[:0], "sqlherd entry v1\x00"...), key...)
	sum := sha256.Sum256(b)
	*p = b
	scratch.Put(p)
	return [16]byte(sum[:16])
}

// scratch holds buffers for what is needed no longer than a call.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// scratchMax bounds a buffer that goes back into the pool.
const scratchMax = 256 << 10

func putScratch(p *[]byte, b []byte) {
	if cap(b) <= scratchMax {
		*p = b[:0]
		scratch.Put(p)
	}
}

// encode returns the bytes of e, loaded under fence and stamps, to be given to Redis with
// life. It fails with errEntryTooLarge, or when rowcodec does not know a type.
func (c *entryCodec) encode(key string, e *sharedEntry, stamps []stamp, fence uint64, life time.Duration) ([]byte, error) {
	if len(stamps) > stampsMax || e.result.Size() > c.resultLimit() {
		return nil, errEntryTooLarge
	}
	bodyAt := entryHead + 16*len(stamps)
	nonceAt := bodyAt
	if len(c.keys) > 0 {
		bodyAt += nonceLen
	}
	// Room for the result as it is in memory is mostly too much, and never far too little.
	b := make([]byte, bodyAt, bodyAt+min(int(e.result.Size()), c.limit())/2+64)
	b, err := rowcodec.Append(b, e.result)
	if err != nil {
		return nil, err
	}
	raw := len(b) - bodyAt
	if raw > c.limit() {
		return nil, errEntryTooLarge
	}
	flags := byte(0)
	if raw >= compressMin {
		p := scratch.Get().(*[]byte)
		small := s2.Encode((*p)[:cap(*p)], b[bodyAt:])
		if len(small) <= raw-raw/compressGain && (raw <= ratioFree || raw/len(small) <= ratioMax) {
			flags |= flagCompressed
			b = append(b[:bodyAt], small...)
		}
		putScratch(p, small)
	}

	copy(b, entryMagic)
	b[offVersion] = entryVersion
	binary.BigEndian.PutUint16(b[offStamps:], uint16(len(stamps)))
	binary.BigEndian.PutUint64(b[offFence:], fence)
	binary.BigEndian.PutUint64(b[offSoft:], millis(e.soft))
	binary.BigEndian.PutUint64(b[offHard:], millis(e.hard))
	binary.BigEndian.PutUint64(b[offSIE:], millis(e.sie))
	binary.BigEndian.PutUint64(b[offLife:], millis(life))
	binary.BigEndian.PutUint64(b[offLoad:], uint64(max(e.loadTime, 0).Microseconds()))
	binary.BigEndian.PutUint64(b[offRawLen:], uint64(raw))
	for i, s := range stamps {
		copy(b[entryHead+16*i:], s[:])
	}
	if len(c.keys) > 0 {
		b[offFlags] = flags | flagSealed
		rand.Read(b[nonceAt:bodyAt]) // never fails
		aead := sealer(c.keys[0], key)
		b = aead.Seal(b[:bodyAt], b[nonceAt:bodyAt], b[bodyAt:], associated(b[:nonceAt], key))
	} else {
		b[offFlags] = flags
		d := keyDigest(key)
		copy(b[offDigest:], d[:])
		binary.BigEndian.PutUint64(b[offSum:], checksum(b))
	}
	if len(b) > c.limit() {
		return nil, errEntryTooLarge
	}
	return b, nil
}

// An entryHeader is what an entry says of itself, once it is believed.
type entryHeader struct {
	fence           uint64
	soft, hard, sie time.Duration
	life            time.Duration
	loadTime        time.Duration
	softened        bool // since it was loaded, by one of the stamps
}

// decode reads the bytes of key's entry. current holds the present stamps of the reader's tags. What it
// allocates is bounded by the bytes' length and by limits, whatever they say.
//
// When last holds the rows of the very same bytes, and somebody still has them, they are returned again; nil does
// without.
func (c *entryCodec) decode(b []byte, key string, current []stamp, last *lastRows) (*rowcodec.Result, entryHeader, entryFault) {
	body, h, flags, rawLen, fault := c.open(b, key)
	if fault != faultNone {
		return nil, entryHeader{}, fault
	}
	// Before the rows are decoded: a busy tag makes many such entries.
	valid, softened := compareStamps(b[entryHead:entryHead+16*int(binary.BigEndian.Uint16(b[offStamps:]))], current)
	if !valid {
		return nil, entryHeader{}, faultStamp
	}
	h.softened = softened
	if len(body) < lastRowsMin {
		last = nil
	}
	if res := last.find(b, key); res != nil {
		return res, h, faultNone
	}

	if flags&flagCompressed != 0 {
		n, err := s2.DecodedLen(body)
		if err != nil || uint64(n) != rawLen {
			return nil, entryHeader{}, faultRows
		}
		if n > c.limit() || n > ratioFree && n/len(body) > ratioMax {
			return nil, entryHeader{}, faultSize
		}
		p := scratch.Get().(*[]byte)
		raw, err := s2.Decode((*p)[:cap(*p)], body)
		if err != nil {
			putScratch(p, raw)
			return nil, entryHeader{}, faultRows
		}
		body = raw
		defer putScratch(p, raw)
	} else if uint64(len(body)) != rawLen {
		return nil, entryHeader{}, faultRows
	}

	res, err := rowcodec.DecodeLimit(body, c.resultLimit())
	switch {
	case err == nil:
		last.keep(b, key, res)
		return res, h, faultNone
	case errors.Is(err, rowcodec.ErrTooLarge):
		return nil, entryHeader{}, faultSize
	}
	return nil, entryHeader{}, faultRows
}

// lastRows remembers the rows that were last decoded from an entry, for as long as somebody
// else keeps them: memory, or the callers who are reading them. An entry is read far more often than it
// changes, for memory is compared with Redis every now and then, and decoding its rows costs more than
// all the rest of a look-up.
type lastRows struct{ p atomic.Pointer[knownRows] }

type knownRows struct {
	key  string
	mark entryMark
	rows weak.Pointer[rowcodec.Result]
}

// An entryMark tells the bytes of one key's entry, which have been verified, from all others of that key: header, with fence
// and checksum, and the last 16 bytes, which are the tag when it is sealed.
type entryMark struct {
	size int
	head [entryHead]byte
	tail [tagLen]byte
}

func markOf(b []byte) entryMark {
	return entryMark{len(b), [entryHead]byte(b), [tagLen]byte(b[len(b)-tagLen:])}
}

// lastRowsMin is the size of encoded rows from which it pays to remember them.
const lastRowsMin = 1 << 10

func (l *lastRows) find(b []byte, key string) *rowcodec.Result {
	if l == nil {
		return nil
	}
	known := l.p.Load()
	if known == nil || known.key != key || known.mark != markOf(b) {
		return nil
	}
	return known.rows.Value()
}

func (l *lastRows) keep(b []byte, key string, res *rowcodec.Result) {
	if l != nil {
		l.p.Store(&knownRows{key, markOf(b), weak.Make(res)})
	}
}

// open checks that b is an entry of key and unchanged, and returns its rows, perhaps still
// compressed.
func (c *entryCodec) open(b []byte, key string) (body []byte, h entryHeader, flags byte, rawLen uint64, fault entryFault) {
	switch {
	case len(b) < entryHead:
		fault = faultShort
	case string(b[:len(entryMagic)]) != entryMagic:
		fault = faultForeign
	case b[offVersion] != entryVersion || b[offFlags]&^flagsKnown != 0:
		fault = faultVersion
	case len(b) > c.limit():
		fault = faultSize
	}
	if fault != faultNone {
		return
	}
	bodyAt := entryHead + 16*int(binary.BigEndian.Uint16(b[offStamps:]))
	if len(b) < bodyAt {
		fault = faultShort
		return
	}

	flags = b[offFlags]
	switch sealed := flags&flagSealed != 0; {
	case sealed != (len(c.keys) > 0):
		fault = faultSeal
		return
	case sealed:
		if body = c.unseal(b, bodyAt, key); body == nil {
			fault = faultSeal
			return
		}
	default:
		if binary.BigEndian.Uint64(b[offSum:]) != checksum(b) {
			fault = faultChecksum
			return
		}
		if keyDigest(key) != [16]byte(b[offDigest:entryHead]) {
			fault = faultDigest
			return
		}
		body = b[bodyAt:]
	}

	rawLen = binary.BigEndian.Uint64(b[offRawLen:])
	h = entryHeader{
		fence:    binary.BigEndian.Uint64(b[offFence:]),
		soft:     duration(b[offSoft:], time.Millisecond),
		hard:     duration(b[offHard:], time.Millisecond),
		sie:      duration(b[offSIE:], time.Millisecond),
		life:     duration(b[offLife:], time.Millisecond),
		loadTime: duration(b[offLoad:], time.Microsecond),
	}
	return
}

// checksum is of all but the checksum itself.
func checksum(b []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	d.Write(b[:offSum])
	d.Write(b[offDigest:])
	return d.Sum64()
}

// unseal returns the rows of a sealed entry, or nil when none of our keys opens it.
func (c *entryCodec) unseal(b []byte, bodyAt int, key string) []byte {
	if len(b) < bodyAt+nonceLen+tagLen {
		return nil
	}
	nonce, sealed := b[bodyAt:bodyAt+nonceLen], b[bodyAt+nonceLen:]
	aad := associated(b[:bodyAt], key)
	for _, k := range c.keys {
		// Not in place: the bytes may be a string's.
		if body, err := sealer(k, key).Open(make([]byte, 0, len(sealed)), nonce, sealed, aad); err == nil {
			return body
		}
	}
	return nil
}

// sealer returns the cipher for what is sealed with master for one purpose. Each purpose, so each cache
// key, has a key of its own, and random nonces collide only within it: the bound on the
// number of messages under one key, which random nonces of 96 bits have, is
// then out of reach.
func sealer(master []byte, purpose string) cipher.AEAD {
	m := hmac.New(sha256.New, master)
	m.Write([]byte("sqlherd seal v1\x00"))
	m.Write([]byte(purpose))
	block, err := aes.NewCipher(m.Sum(nil))
	if err != nil {
		panic("bug: " + err.Error()) // the key has 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return aead
}

// associated is the data that is sealed but not hidden. The length of head is in head.
func associated(head []byte, key string) []byte {
	b := make([]byte, 0, len(head)+len(key))
	return append(append(b, head...), key...)
}

// compareStamps compares the stamps in an entry with the current ones of the
// reader's tags, one by one. A missing one equals nothing. What differs in a soft part only is
// valid, and softened.
func compareStamps(in []byte, current []stamp) (valid, softened bool) {
	if len(in) != 16*len(current) {
		return false, false
	}
	for i := range current {
		of := stamp(in[16*i : 16*i+16])
		if current[i] == (stamp{}) || of.hard() != current[i].hard() {
			return false, false
		}
		softened = softened || of != current[i]
	}
	return true, softened
}

// millis rounds up: a life never becomes zero, which Redis takes for an error, by rounding.
func millis(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// duration reads a number of units, with a bound that keeps sums of several from overflowing.
func duration(b []byte, unit time.Duration) time.Duration {
	const most = 1 << 30 * time.Second // 34 years
	n := binary.BigEndian.Uint64(b)
	if n > uint64(most/unit) {
		return most
	}
	return time.Duration(n) * unit
}
