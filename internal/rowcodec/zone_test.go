package rowcodec_test

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/rowcodec"
)

// throughWire encodes t and decodes it.
func throughWire(tb testing.TB, t time.Time) time.Time {
	tb.Helper()
	return decode(tb, encode(tb, build(tb, []driver.Value{t}))).Row(0)[0].(time.Time)
}

func TestATimeKeepsTheRulesOfItsLocation(t *testing.T) {
	rowcodec.ForgetZones()
	summer := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "Local", "Etc/GMT+5"} {
		want := summer.In(location(t, name))
		got := throughWire(t, want)
		for _, months := range []int{0, 6, -600, 6000} {
			if d := diffTime(got.AddDate(0, months, 0), want.AddDate(0, months, 0)); d != "" {
				t.Errorf("%s, %d months on: %s", name, months, d)
			}
		}
	}
}

func TestAFixedZoneStaysFixedWhateverItsName(t *testing.T) {
	summer := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, loc := range []*time.Location{
		time.FixedZone("CEST", 7200), time.FixedZone("CET", 3600), time.FixedZone("Europe/Berlin", 7200),
		time.FixedZone("UTC", 0), time.FixedZone("UTC", 60), time.FixedZone("Local", 0), time.FixedZone("", 0), time.FixedZone("", 20700),
	} {
		want := summer.In(loc)
		got := throughWire(t, want)
		if d := diffTime(got.AddDate(0, 6, 0), want.AddDate(0, 6, 0)); d != "" {
			t.Errorf("%q: %s", loc, d)
		}
	}
}

func TestATimeLooksTheSameWhereItsLocationIsUnknown(t *testing.T) {
	// Another process has other time zone files: none of this name, or one
	// with another offset or abbreviation at that instant.
	at := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, abbr string
		offset     int
		dst        bool
	}{
		{"Nowhere/Atlantis", "ATL", 3600, false},
		{"Nowhere/Atlantis", "ATST", 7200, true},
		{"Europe/Berlin", "CET", 3600, false},
		{"Europe/Berlin", "CEST", 7201, true},
		{"Europe/Berlin", "MESZ", 7200, true},
		{"Europe/Berlin", "CEST", 7200, false},
		{"../../etc/passwd", "EVIL", 60, false},
		{"/etc/localtime", "EVIL", 60, false},
		{"Local", "EVIL", -60, false},
		{"UTC", "EVIL", -60, false},
		{"", "EVIL", -60, false},
		{"Europe/Berlin", "", 0, false},
	} {
		loc, err := rowcodec.Lookalike(c.name, c.abbr, c.offset, c.dst)
		if err != nil {
			t.Fatal(err)
		}
		want := at.In(loc)
		if abbr, offset := want.Zone(); abbr != c.abbr || offset != c.offset || loc.String() != c.name || want.IsDST() != c.dst {
			t.Fatalf("%+v: the lookalike is not alike", c)
		}
		if d := diffTime(throughWire(t, want), want); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
}

func TestALocationLoadedTwiceIsOneZoneOrTwoButLooksRight(t *testing.T) {
	a, b := location(t, "Europe/Berlin"), location(t, "Europe/Berlin")
	var row []driver.Value
	for i := range 100 {
		loc := a
		if i%3 == 0 {
			loc = b
		}
		row = append(row, time.Date(2024, time.Month(1+i%12), 1, i%24, 0, 0, 0, loc))
	}
	r := build(t, row)
	if d := diffResults(decode(t, encode(t, r)), r); d != "" {
		t.Error(d)
	}
}

func TestADriverThatMakesAZonePerValueMakesOneZone(t *testing.T) {
	var one, many []driver.Value
	loc := time.FixedZone("+0545", 20700)
	for i := range 100 {
		one = append(one, time.Unix(int64(i), 0).In(loc))
		many = append(many, time.Unix(int64(i), 0).In(time.FixedZone("+0545", 20700)))
	}
	if a, b := encode(t, build(t, one)), encode(t, build(t, many)); string(a) != string(b) {
		t.Errorf("%d bytes, and %d", len(a), len(b))
	}
}

func TestTheCacheOfZonesIsBounded(t *testing.T) {
	rowcodec.ForgetZones()
	for i := range 2 * rowcodec.ZonesMax {
		throughWire(t, time.Unix(0, 0).In(time.FixedZone(fmt.Sprint("zone ", i), i)))
	}
	if n := rowcodec.ForgetZones(); n == 0 || n > rowcodec.ZonesMax {
		t.Errorf("%d zones in the cache", n)
	}
}

func TestManyUnknownLocationsInOneResultLookRight(t *testing.T) {
	// More than one Decode is willing to look for in the system's files.
	rowcodec.ForgetZones()
	var row []driver.Value
	for i := range 200 {
		loc, err := rowcodec.Lookalike(fmt.Sprint("Nowhere/No", i), "NO", i, false)
		if err != nil {
			t.Fatal(err)
		}
		row = append(row, time.Unix(0, 0).In(loc))
	}
	row = append(row, time.Unix(0, 0).In(location(t, "Europe/Berlin")))
	r := build(t, row)
	enc := encode(t, r)
	for range 5 { // each looks for some more
		if d := diffResults(decode(t, enc), r); d != "" {
			t.Error(d)
		}
	}
}

func TestLongZoneNamesComeBack(t *testing.T) {
	name := strings.Repeat("n", rowcodec.ZoneNameMax)
	loc, err := rowcodec.Lookalike(name, strings.Repeat("a", rowcodec.ZoneNameMax), -1, true)
	if err != nil {
		t.Fatal(err)
	}
	want := time.Unix(0, 0).In(loc)
	if d := diffTime(throughWire(t, want), want); d != "" {
		t.Error(d)
	}
}
