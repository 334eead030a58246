package rowcodec

import (
	"encoding/binary"
	"math"
	"strings"
	"sync"
	"time"
)

// Limits of what a time's location may be.
const (
	zoneNameMax  = 255  // bytes of a location's name and of an abbreviation
	zonesMax     = 1024 // different zones in one result, and in the cache
	zoneLoadsMax = 64   // locations that one Decode loads from the system's files
)

// Zone numbers as a time value carries them. From zoneFirst on they count the
// zones of the result in the order of their first use, where they are defined.
const (
	zoneUTC = iota
	zoneLocal
	zoneFirst
)

// A zoneID is how a time.Location looks at one instant: everything that a
// formatted time shows of it.
type zoneID struct {
	name   string // Location.String
	abbr   string // Time.Zone
	offset int    // Time.Zone, seconds east of UTC
	dst    bool   // Time.IsDST

	// fixed says that the location has this one zone for all time, and that
	// its abbreviation is its name: time.FixedZone made it, or could have. Such
	// a one must not come back as a location of the same name with rules (CET).
	fixed bool
}

// zoneIDOf describes t's location. It is not ok when that cannot be encoded.
func zoneIDOf(t time.Time) (id zoneID, ok bool) {
	id.name = t.Location().String()
	id.abbr, id.offset = t.Zone()
	id.dst = t.IsDST()
	if id.name == id.abbr && !id.dst {
		start, end := t.ZoneBounds()
		id.fixed = start.IsZero() && end.IsZero()
	}
	return id, id.encodable()
}

// encodable reports whether a location like id can be made again: lookalike has
// room for an offset of 32 bits and ends the abbreviation with a zero byte.
func (id *zoneID) encodable() bool {
	return len(id.name) <= zoneNameMax && len(id.abbr) <= zoneNameMax &&
		int64(id.offset) >= math.MinInt32 && int64(id.offset) <= math.MaxInt32 &&
		(id.fixed || strings.IndexByte(id.abbr, 0) < 0)
}

const (
	zoneFlagFixed = 1 << iota
	zoneFlagDST
)

func (id *zoneID) append(dst []byte) []byte {
	var f byte
	if id.fixed {
		f |= zoneFlagFixed
	}
	if id.dst {
		f |= zoneFlagDST
	}
	dst = append(dst, f)
	dst = binary.AppendVarint(dst, int64(id.offset))
	dst = appendText(dst, id.name)
	if !id.fixed {
		dst = appendText(dst, id.abbr)
	}
	return dst
}

// skipZone reads over what zoneID.append wrote and returns the bytes.
func (r *reader) skipZone() []byte {
	start := r.pos
	f := r.byte()
	r.varint()
	r.text()
	if f&zoneFlagFixed == 0 {
		r.text()
	}
	return r.b[start:r.pos]
}

// parseZone is the inverse of zoneID.append for bytes that skipZone returned.
func parseZone(raw []byte) (id zoneID, ok bool) {
	r := reader{b: raw}
	f := r.byte()
	offset := r.varint()
	name := r.text()
	abbr := name
	if f&zoneFlagFixed == 0 {
		abbr = r.text()
	}
	id = zoneID{
		name:   string(name),
		abbr:   string(abbr),
		offset: int(offset),
		dst:    f&zoneFlagDST != 0,
		fixed:  f&zoneFlagFixed != 0,
	}
	ok = f&^(zoneFlagFixed|zoneFlagDST) == 0 && !(id.fixed && id.dst) && int64(id.offset) == offset
	return id, ok && id.encodable()
}

// A zone gives the times of a result their location.
type zone struct {
	id zoneID

	// loc is the location of that name, nil when there is none here. Its rules
	// may not be those of the process that encoded the time (another version of
	// the time zone database), therefore every time in it is compared with id,
	// unless exact is set.
	loc   *time.Location
	exact bool

	// lookalike is a location that has id's name, abbreviation and offset for
	// all time. It stands in where loc does not agree.
	lookalike *time.Location
}

// at returns the instant in this zone.
func (z *zone) at(sec, nsec int64) time.Time {
	t := time.Unix(sec, nsec)
	if z.exact {
		return t.In(z.loc)
	}
	if z.loc != nil {
		t = t.In(z.loc)
		abbr, offset := t.Zone()
		if offset == z.id.offset && abbr == z.id.abbr && t.IsDST() == z.id.dst {
			return t
		}
	}
	return t.In(z.lookalike)
}

// newZone makes the zone that id describes. It reads files of the system when
// load is set.
func newZone(id zoneID, load bool) (*zone, bool) {
	if id.fixed {
		return &zone{id: id, loc: time.FixedZone(id.name, id.offset), exact: true}, true
	}
	like, err := lookalike(id)
	if err != nil {
		return nil, false
	}
	z := &zone{id: id, lookalike: like}
	if load && loadableZone(id.name) {
		if loc, err := time.LoadLocation(id.name); err == nil {
			z.loc = loc
		}
	}
	return z, true
}

// loadableZone reports whether name may be looked up in the system's files. It
// comes from bytes that anybody may have written, so only what names of the time
// zone database consist of. LoadLocation has meanings of its own for "UTC" and
// "Local", which are not those of a location that merely has that name.
func loadableZone(name string) bool {
	if name == "" || name == "UTC" || name == "Local" || name[0] == '/' {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '+', c == '-', c == '/':
		default:
			return false
		}
	}
	return true
}

// lookalike makes a location with one zone, like time.FixedZone, but with a name
// of its own beside the abbreviation. The way to have one is a time zone file
// (RFC 8536, version 1) without transitions.
func lookalike(id zoneID) (*time.Location, error) {
	f := make([]byte, 0, 44+6+len(id.abbr)+1)
	f = append(f, "TZif"...)
	f = append(f, make([]byte, 16)...)      // version 1, reserved
	f = append(f, make([]byte, 4*4)...)     // no UT and standard indicators, leap seconds, transitions
	f = binary.BigEndian.AppendUint32(f, 1) // zones
	f = binary.BigEndian.AppendUint32(f, uint32(len(id.abbr)+1))
	f = binary.BigEndian.AppendUint32(f, uint32(int32(id.offset)))
	dst := byte(0)
	if id.dst {
		dst = 1
	}
	f = append(f, dst, 0)
	f = append(f, id.abbr...)
	f = append(f, 0)
	return time.LoadLocationFromTZData(id.name, f)
}

// zoneCache keeps zones by their encoding, so that a decode neither reads the
// system's files nor makes locations anew. What is in it came from untrusted
// bytes: when it is full, any one makes room.
var zoneCache = struct {
	sync.RWMutex
	m map[string]*zone
}{m: map[string]*zone{}}

func cachedZone(raw []byte) *zone {
	zoneCache.RLock()
	defer zoneCache.RUnlock()
	return zoneCache.m[string(raw)] // does not allocate
}

func cacheZone(raw []byte, z *zone) {
	zoneCache.Lock()
	defer zoneCache.Unlock()
	if len(zoneCache.m) >= zonesMax {
		for k := range zoneCache.m {
			delete(zoneCache.m, k)
			break
		}
	}
	zoneCache.m[string(raw)] = z
}

// A zoneTable numbers the zones of the times that an encoder meets. The zero
// value is empty.
type zoneTable struct {
	zones []*zone
	index map[zoneKey]int

	// The zone of the last time, which is mostly that of the next.
	lastLoc *time.Location
	last    int
}

// A zoneKey tells zones apart. Locations made by FixedZone are equal when they
// look alike (a driver may make one per value), others when they are the same.
type zoneKey struct {
	id  zoneID
	loc *time.Location
}

// of returns the number of t's zone, and whether it is a new one. It is not ok
// when the zone cannot be encoded, or there are too many.
func (zt *zoneTable) of(t time.Time) (n int, isNew, ok bool) {
	loc := t.Location()
	if loc == time.UTC {
		return zoneUTC, false, true
	}
	if loc == time.Local && loc.String() == "Local" {
		return zoneLocal, false, true
	}
	if loc == zt.lastLoc {
		id := &zt.zones[zt.last].id
		if abbr, offset := t.Zone(); offset == id.offset && abbr == id.abbr && t.IsDST() == id.dst {
			return zoneFirst + zt.last, false, true
		}
	}
	id, ok := zoneIDOf(t)
	if !ok {
		return 0, false, false
	}
	k := zoneKey{id: id, loc: loc}
	if id.fixed {
		k.loc = nil
	}
	i, found := zt.index[k]
	if !found {
		if i = len(zt.zones); i == zonesMax {
			return 0, false, false
		}
		if zt.index == nil {
			zt.index = make(map[zoneKey]int)
		}
		zt.index[k] = i
		zt.zones = append(zt.zones, &zone{id: id, loc: loc, exact: true})
	}
	zt.lastLoc, zt.last = loc, i
	return zoneFirst + i, !found, true
}

// truncate forgets the zones from the nth on.
func (zt *zoneTable) truncate(n int) {
	if len(zt.zones) == n {
		return
	}
	zt.zones = zt.zones[:n]
	zt.lastLoc = nil
	for k, i := range zt.index {
		if i >= n {
			delete(zt.index, k)
		}
	}
}
