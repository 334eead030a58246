//go:build !sqlherd_purego

package rowcodec_test

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

const pureGo = false

func TestABoxIsWhatGoMakes(t *testing.T) {
	// Every use that Go has for an interface: type switch, comparison, map key,
	// reflection, formatting.
	vals := allValues(t)
	got := decode(t, encode(t, build(t, vals))).Row(0)
	for i, want := range vals {
		if reflect.TypeOf(got[i]) != reflect.TypeOf(want) {
			t.Errorf("value %d is a %T, want %T", i, got[i], want)
			continue
		}
		if want == nil {
			continue
		}
		if _, ok := want.(time.Time); ok { // its location is another pointer
			continue
		}
		if fmt.Sprintf("%#v", got[i]) != fmt.Sprintf("%#v", want) {
			t.Errorf("value %d is %#v, want %#v", i, got[i], want)
		}
		if reflect.ValueOf(got[i]).CanAddr() || !reflect.DeepEqual(got[i], want) && want == want {
			t.Errorf("reflect sees value %d as %#v, want %#v", i, got[i], want)
		}
		if reflect.TypeOf(want).Comparable() && want == want {
			if got[i] != want || map[any]int{want: 1}[got[i]] != 1 {
				t.Errorf("value %d, %#v, does not equal %#v", i, got[i], want)
			}
		}
	}
}

func TestAValueOutlivesItsResult(t *testing.T) {
	var kept []driver.Value
	enc := encode(t, build(t, []driver.Value{int64(1e15), 2.5, strings.Repeat("s", 100), []byte("bytes"), time.Unix(1e9, 5).In(time.FixedZone("z", 60))}))
	want := decode(t, enc).Row(0)
	for range 200 {
		kept = append(kept, decode(t, enc).Row(0)...)
	}
	for range 3 {
		runtime.GC()
		_ = make([]byte, 1<<20) // something else in their place, were they free
	}
	for i, v := range kept {
		if d := diff(v, want[i%len(want)]); d != "" {
			t.Fatal(d)
		}
	}
}
