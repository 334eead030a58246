package sqlherd

import (
	"bytes"
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// codecs are an entryCodec of each kind.
func codecs() map[string]*entryCodec {
	return map[string]*entryCodec{
		"plain":  {},
		"sealed": {keys: testKeys("a")},
	}
}

func testStamps(n int) []stamp {
	stamps := make([]stamp, n)
	for i := range stamps {
		rand.Read(stamps[i][:])
	}
	return stamps
}

func mustEncode(t testing.TB, c *entryCodec, key string, e *sharedEntry, stamps []stamp) []byte {
	t.Helper()
	b, err := c.encode(key, e, stamps, 1234567890123456, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnEntryComesBackAsItWas(t *testing.T) {
	for name, c := range codecs() {
		for _, rows := range []int{0, 1, 3, 100, 1000} {
			for _, tags := range []int{0, 1, 5, 300} {
				t.Run(fmt.Sprint(name, rows, tags), func(t *testing.T) {
					e, stamps := testEntry(t, rows), testStamps(tags)
					b := mustEncode(t, c, "k", e, stamps)
					if got := binary.BigEndian.Uint64(b[offFence:]); got != 1234567890123456 {
						t.Errorf("the fence is not where the scripts look: %d", got)
					}
					if (b[offFlags]&flagCompressed != 0) != (rows >= 1000) {
						t.Errorf("flags %b of %d bytes", b[offFlags], len(b))
					}
					res, h, fault := c.decode(b, "k", stamps, nil)
					if fault != faultNone {
						t.Fatal(fault)
					}
					if d := diffResults(res, e.result); d != "" {
						t.Error(d)
					}
					if h != (entryHeader{1234567890123456, e.soft, e.hard, e.sie, time.Hour, e.loadTime, false}) {
						t.Errorf("header %+v", h)
					}
				})
			}
		}
	}
}

func TestNoByteOfAnEntryCanBeChangedUnnoticed(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			for _, rows := range []int{1, 500} {
				stamps := testStamps(2)
				b := mustEncode(t, c, "k", testEntry(t, rows), stamps)
				for i := 0; i < len(b); i++ {
					for _, flip := range []byte{1, 0x80, 0xff} {
						b[i] ^= flip
						if _, _, fault := c.decode(b, "k", stamps, nil); fault == faultNone {
							t.Fatalf("byte %d of %d, %#x: unnoticed", i, len(b), flip)
						}
						b[i] ^= flip
					}
					if rows > 1 && i > 300 {
						i += 50
					}
				}
				if _, _, fault := c.decode(b, "k", stamps, nil); fault != faultNone {
					t.Fatal(fault)
				}
			}
		})
	}
}

func TestNoTruncatedOrExtendedEntryIsServed(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			stamps := testStamps(2)
			b := mustEncode(t, c, "k", testEntry(t, 3), stamps)
			for n := range b {
				if _, _, fault := c.decode(b[:n], "k", stamps, nil); fault == faultNone {
					t.Fatalf("%d of %d bytes are served", n, len(b))
				}
				// Nor by what lies behind them.
				if _, _, fault := c.decode(bytes.Clone(b[:n]), "k", stamps, nil); fault == faultNone {
					t.Fatalf("%d of %d bytes are served", n, len(b))
				}
			}
			for _, more := range [][]byte{{0}, bytes.Repeat([]byte{0}, 16), b} {
				if _, _, fault := c.decode(append(bytes.Clone(b), more...), "k", stamps, nil); fault == faultNone {
					t.Errorf("%d bytes more are served", len(more))
				}
			}
		})
	}
}

func TestAnEntryIsOnlyItsOwnKeys(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			b := mustEncode(t, c, "alice", testEntry(t, 1), nil)
			for _, key := range []string{"bob", "", "alice\x00", "Alice", "alic"} {
				if _, _, fault := c.decode(b, key, nil, nil); fault != faultDigest && fault != faultSeal {
					t.Errorf("as %q: %v", key, fault)
				}
			}
		})
	}
}

func TestSealedAndPlainEntriesDoNotMix(t *testing.T) {
	plain, sealed, other := &entryCodec{}, &entryCodec{keys: testKeys("a")}, &entryCodec{keys: testKeys("b")}
	both := &entryCodec{keys: testKeys("b", "a")}
	e := testEntry(t, 1)
	inPlain, inSealed := mustEncode(t, plain, "k", e, nil), mustEncode(t, sealed, "k", e, nil)
	for _, tt := range []struct {
		name string
		c    *entryCodec
		b    []byte
		want entryFault
	}{
		{"plain by sealed", sealed, inPlain, faultSeal},
		{"sealed by plain", plain, inSealed, faultSeal},
		{"sealed by another key", other, inSealed, faultSeal},
		{"sealed by the second key", both, inSealed, faultNone},
	} {
		if _, _, fault := tt.c.decode(tt.b, "k", nil, nil); fault != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, fault, tt.want)
		}
	}
	if bytes.Contains(inSealed, []byte("customer")) || bytes.Equal(inSealed, mustEncode(t, sealed, "k", e, nil)) {
		t.Error("a sealed entry shows its rows, or that they are the same")
	}
}

func TestAStampCountsOnlyInItsPlace(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			s := testStamps(3)
			b := mustEncode(t, c, "k", testEntry(t, 1), s[:2])
			zeroed := mustEncode(t, c, "k", testEntry(t, 1), []stamp{{}})
			for _, tt := range []struct {
				b       []byte
				current []stamp
				want    entryFault
			}{
				{b, s[:2], faultNone},
				{b, nil, faultStamp},
				{b, s[:1], faultStamp},
				{b, s, faultStamp},
				{b, []stamp{s[1], s[0]}, faultStamp},
				{b, []stamp{s[0], s[2]}, faultStamp},
				{b, []stamp{s[0], {}}, faultStamp},
				{zeroed, []stamp{{}}, faultStamp}, // the missing stamp equals nothing, itself included
			} {
				if _, _, fault := c.decode(tt.b, "k", tt.current, nil); fault != tt.want {
					t.Errorf("%x: %v, want %v", tt.current, fault, tt.want)
				}
			}
		})
	}
}

// resum makes a changed plain entry pass its checksum, as an attacker can.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint64(b[offSum:], checksum(b))
	return b
}

func TestASmallEntryNeverMakesAReaderAllocateMuch(t *testing.T) {
	c := &entryCodec{}
	good := mustEncode(t, c, "k", testEntry(t, 1), nil)
	head := good[:entryHead]
	bomb := func(raw, body []byte, rawLen uint64) []byte {
		b := append(bytes.Clone(head), body...)
		b[offFlags] = flagCompressed
		binary.BigEndian.PutUint64(b[offRawLen:], rawLen)
		return resum(b)
	}
	zeros := make([]byte, 60<<20)
	small := s2.Encode(nil, zeros)
	lying := binary.AppendUvarint(nil, 4<<30-1) // an S2 block that only says that it is long
	for name, tt := range map[string]struct {
		b    []byte
		want entryFault
	}{
		"a bomb":                   {bomb(zeros, small, uint64(len(zeros))), faultSize},
		"a bomb that denies it":    {bomb(zeros, small, 100), faultRows},
		"a length without a block": {bomb(nil, lying, 4<<30-1), faultSize},
		"no block":                 {bomb(nil, nil, 0), faultRows},
		"a plain entry too long":   {resum(append(bytes.Clone(good), 0)), faultRows},
		"more stamps than bytes":   {func() []byte { b := bytes.Clone(good); b[offStamps] = 0xff; return resum(b) }(), faultShort},
		"rows that are none":       {func() []byte { b := bytes.Clone(good); b[entryHead] ^= 0xff; return resum(b) }(), faultRows},
		"an entry over the limit":  {make([]byte, 0), faultShort},
		"lives beyond any calendar": {func() []byte {
			b := bytes.Clone(good)
			copy(b[offSoft:offRawLen], bytes.Repeat([]byte{0xff}, 40))
			return resum(b)
		}(), faultNone},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, h, fault := c.decode(tt.b, "k", nil, nil)
		runtime.ReadMemStats(&after)
		if fault != tt.want {
			t.Errorf("%s: %v, want %v", name, fault, tt.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes allocated for an entry of %d", name, n, len(tt.b))
		}
		if h.hard < 0 || h.hard+h.sie+h.soft < 0 || h.life < 0 || h.loadTime < 0 {
			t.Errorf("%s: negative lives: %+v", name, h)
		}
	}
}

func TestRowsThatShrinkTooMuchAreStoredAsTheyAre(t *testing.T) {
	c := &entryCodec{}
	e := testEntry(t, 0)
	e.result = repeatedResult(t, 3<<20)
	b := mustEncode(t, c, "k", e, nil)
	if b[offFlags]&flagCompressed != 0 || len(b) < 3<<20 {
		t.Errorf("flags %b, %d bytes", b[offFlags], len(b))
	}
	if _, _, fault := c.decode(b, "k", nil, nil); fault != faultNone {
		t.Error(fault)
	}
	e.result = repeatedResult(t, ratioFree/2)
	b = mustEncode(t, c, "k", e, nil)
	if b[offFlags]&flagCompressed == 0 || len(b) > ratioFree/100 {
		t.Errorf("flags %b, %d bytes", b[offFlags], len(b))
	}
	if _, _, fault := c.decode(b, "k", nil, nil); fault != faultNone {
		t.Error(fault)
	}
}

func TestAnEntryOverTheLimitIsNeitherWrittenNorRead(t *testing.T) {
	for name, c := range codecs() {
		b := mustEncode(t, c, "k", testEntry(t, 500), nil)
		c.max = len(b) - 1
		if _, err := c.encode("k", testEntry(t, 500), nil, 1, time.Hour); err == nil && c.limit() < len(b) {
			// Sealing and compression come out the same to within a few bytes.
			t.Logf("%s: %d bytes", name, len(b))
		}
		if _, _, fault := c.decode(b, "k", nil, nil); fault != faultSize {
			t.Errorf("%s: %v", name, fault)
		}
		c.max = 1000
		if _, err := c.encode("k", testEntry(t, 500), nil, 1, time.Hour); err != errEntryTooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheRowsOfAnUnchangedEntryAreDecodedOnceWhileSomebodyHasThem(t *testing.T) {
	for name, c := range codecs() {
		t.Run(name, func(t *testing.T) {
			var last lastRows
			get := func(b []byte, key string) *rowcodec.Result {
				t.Helper()
				res, _, fault := c.decode(b, key, nil, &last)
				if fault != faultNone {
					t.Fatal(fault)
				}
				return res
			}
			b := mustEncode(t, c, "k", testEntry(t, 100), nil)
			first := get(b, "k")
			if get(bytes.Clone(b), "k") != first {
				t.Error("decoded twice")
			}
			// Another key's bytes, and another entry of the key.
			if other := get(mustEncode(t, c, "other", testEntry(t, 200), nil), "other"); other.NumRows() != 200 {
				t.Error("another key got the rows")
			}
			get(b, "k")
			if next := get(mustEncode(t, c, "k", testEntry(t, 101), nil), "k"); next.NumRows() != 101 {
				t.Error("the next entry got the last one's rows")
			}
			// What is damaged is found out all the same.
			get(b, "k")
			for _, at := range []int{offSoft, entryHead + 20, len(b) / 2, len(b) - 30} {
				bad := bytes.Clone(b)
				bad[at] ^= 1
				if _, _, fault := c.decode(bad, "k", nil, &last); fault == faultNone {
					t.Errorf("byte %d is damaged, and the entry served", at)
				}
			}
			if _, _, fault := c.decode(b, "other", nil, &last); fault == faultNone {
				t.Error("served to another key")
			}
			if _, _, fault := c.decode(b, "k", testStamps(1), &last); fault != faultStamp {
				t.Error("served under other stamps")
			}
			runtime.KeepAlive(first)
			first = nil //nolint:ineffassign // nobody has them any more
			runtime.GC()
			if known := last.p.Load(); known != nil && known.rows.Value() != nil {
				t.Error("the rows are kept in memory")
			}
			if get(b, "k").NumRows() != 100 {
				t.Error("decoded anew, but not the same")
			}
		})
	}
}

func TestEveryFaultHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for f := range entryFaults {
		if s := f.String(); s == "" || s == "invalid" || seen[s] {
			t.Errorf("fault %d is %q", f, s)
		} else {
			seen[s] = true
		}
	}
	if s := (entryFaults + 3).String(); s != "invalid" {
		t.Error(s)
	}
}

func FuzzEntry(f *testing.F) {
	all := codecs()
	stamps := []stamp{{1}, {2}}
	for _, c := range all {
		for _, rows := range []int{0, 1, 250} {
			b := mustEncode(f, c, "k", testEntry(f, rows), stamps)
			f.Add(b)
			f.Add(b[:len(b)/2])
		}
	}
	f.Add([]byte(nil))
	f.Add([]byte(entryMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, c := range all {
			if name == "plain" && len(b) >= entryHead {
				// Else the fuzzer never gets past the checksum.
				b = resum(bytes.Clone(b))
			}
			res, h, fault := c.decode(b, "k", stamps, nil)
			if (res == nil) != (fault != faultNone) {
				t.Fatalf("%s: result %v, fault %v", name, res, fault)
			}
			if res == nil {
				continue
			}
			if h.soft < 0 || h.hard < 0 || h.sie < 0 || h.life < 0 || h.loadTime < 0 {
				t.Fatalf("%s: %+v", name, h)
			}
			e := &sharedEntry{result: res, soft: h.soft, hard: h.hard, sie: h.sie, loadTime: h.loadTime}
			again, err := c.encode("k", e, stamps, h.fence, h.life)
			if err != nil {
				t.Fatalf("%s: what was decoded cannot be encoded: %v", name, err)
			}
			res2, h2, fault := c.decode(again, "k", stamps, nil)
			if fault != faultNone || h2 != h {
				t.Fatalf("%s: %v, %+v, want %+v", name, fault, h2, h)
			}
			if res2.NumRows() != res.NumRows() {
				t.Fatalf("%s: %d rows, want %d", name, res2.NumRows(), res.NumRows())
			}
		}
	})
}

// repeatedResult is one row of n equal bytes.
func repeatedResult(t testing.TB, n int) *rowcodec.Result {
	b := rowcodec.NewBuilder([]rowcodec.Column{{Name: "v"}}, 0)
	if err := b.Append([]driver.Value{string(bytes.Repeat([]byte("x"), n))}); err != nil {
		t.Fatal(err)
	}
	return b.Result()
}
