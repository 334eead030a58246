package rowcodec

import (
	"reflect"
	"time"
)

const (
	ZonesMax    = zonesMax
	ZoneNameMax = zoneNameMax
	MaxColumns  = maxColumns
)

// WellKnown are the scan types with a number in the format.
var WellKnown = wellKnown

// TypeName is the name that a scan type is written by.
func TypeName(t reflect.Type) string { return typeName(t) }

// SharesColumns reports whether a and b have one set of columns between them.
func SharesColumns(a, b *Result) bool { return a.set == b.set }

// Lookalike makes a location without the system's files.
func Lookalike(name, abbr string, offset int, dst bool) (*time.Location, error) {
	return lookalike(zoneID{name: name, abbr: abbr, offset: offset, dst: dst})
}

// ForgetZones empties the cache of zones and returns how many it held.
func ForgetZones() int {
	zoneCache.Lock()
	defer zoneCache.Unlock()
	n := len(zoneCache.m)
	clear(zoneCache.m)
	return n
}

// ForgetColumns empties the table of shared columns, which other tests may have filled.
func ForgetColumns() {
	interned.Lock()
	defer interned.Unlock()
	clear(interned.sets)
	interned.bytes = 0
}

// ForgetType makes a scan type unknown, as it is to another process.
func ForgetType(t reflect.Type) {
	ForgetColumns()
	met.Lock()
	delete(met.byName, met.byType[t])
	delete(met.byType, t)
	met.Unlock()
}
