package sqlherd

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fill sets every field of the struct at v to a value other than zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Float64:
			f.SetFloat(0.5)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"x"}))
		default:
			t.Fatalf("a field of kind %v: teach fill, merge and this test about it", f.Kind())
		}
	}
}

func TestMergeTakesEveryFieldThatIsSetAndKeepsEveryOther(t *testing.T) {
	var full Policy
	fill(t, reflect.ValueOf(&full).Elem())
	if got := (Policy{}).merge(full); !reflect.DeepEqual(got, full) {
		t.Errorf("a set field is lost: %+v", got)
	}
	if got := full.merge(Policy{}); !reflect.DeepEqual(got, full) {
		t.Errorf("an unset field wins: %+v", got)
	}
	under := Policy{TTL: time.Hour, SWR: time.Hour, Tags: []string{"a"}, Name: "a"}
	got := under.merge(Policy{TTL: time.Second, SWR: off, Tags: []string{none}})
	if want := (Policy{TTL: time.Second, SWR: off, Tags: []string{none}, Name: "a"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestResolve(t *testing.T) {
	constants := Policy{
		TTL: 30 * time.Second, Empty: 3 * time.Second, Jitter: 0.1, Lease: 3 * time.Second, Wait: 7 * time.Second,
		MaxRows: 10_000, MaxBytes: 1 << 20, EarlyBeta: 1,
	}
	with := func(set func(*Policy)) Policy {
		p := constants
		set(&p)
		return p
	}
	for _, tt := range []struct {
		name   string
		p, def Policy
		want   Policy
	}{
		{"what nobody says comes from the constants", Policy{}, Policy{}, constants},
		{
			"the default fills what the hint leaves out",
			Policy{TTL: time.Minute}, Policy{TTL: time.Hour, SWR: time.Hour, Name: "n"},
			with(func(p *Policy) { p.TTL, p.SWR, p.Empty, p.Name = time.Minute, time.Hour, 5*time.Second, "n" }),
		},
		{
			"off beats a default and becomes zero",
			Policy{TTL: -3, SWR: off, SIE: off, Empty: off, Jitter: off, Wait: off, EarlyBeta: off},
			Policy{TTL: 1e9, SWR: 1e9, SIE: 1e9, Empty: 1e9, Jitter: 0.5, Wait: 1e9, EarlyBeta: 2},
			with(func(p *Policy) { p.TTL, p.Empty, p.Jitter, p.Wait, p.EarlyBeta = 0, 0, 0, 0, 0 }),
		},
		{"no limit of rows is the largest one", Policy{MaxRows: off}, Policy{}, with(func(p *Policy) { p.MaxRows = math.MaxInt })},
		{"empty results live for a tenth", Policy{TTL: 20 * time.Second}, Policy{}, with(func(p *Policy) { p.TTL, p.Empty = 20*time.Second, 2*time.Second })},
		{"but no longer than five seconds", Policy{TTL: time.Hour}, Policy{}, with(func(p *Policy) { p.TTL, p.Empty = time.Hour, 5*time.Second })},
		{"and never longer than others", Policy{TTL: time.Second, Empty: time.Minute}, Policy{}, with(func(p *Policy) { p.TTL, p.Empty = time.Second, time.Second })},
		{"the shortest life is a millisecond", Policy{TTL: time.Millisecond}, Policy{}, with(func(p *Policy) { p.TTL, p.Empty = time.Millisecond, time.Millisecond })},
		{"the longest duration does not overflow", Policy{SWR: math.MaxInt64}, Policy{}, with(func(p *Policy) { p.SWR = math.MaxInt64 })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.p.resolve(tt.def, 7*time.Second)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestAPolicyReportsEveryProblem(t *testing.T) {
	p := Policy{
		TTL: TTLMax + 1, SWR: SWRMax + 1, SIE: SIEMax + 1, Empty: EmptyMax + 1, Jitter: 1, Lease: LeaseMin - 1, Wait: WaitMax + 1,
		OnWaitTimeout: 7, MaxBytes: -1, Tags: []string{"ok", none, "a{"}, Tables: []string{"ok", ""},
		Name: "a\nb", Scope: strings.Repeat("s", ScopeBytesMax+1), EarlyBeta: math.Inf(1),
	}
	want := strings.Split(strings.TrimSpace(`
sqlherd: P.TTL is 8760h0m0.000000001s; must be at most 8760h0m0s (negative: not cached)
sqlherd: P.SWR is 8760h0m0.000000001s; must be at most 8760h0m0s (negative: off)
sqlherd: P.SIE is 8760h0m0.000000001s; must be at most 8760h0m0s (negative: off)
sqlherd: P.Empty is 8760h0m0.000000001s; must be at most 8760h0m0s (negative: empty results are not cached)
sqlherd: P.Jitter is 1; must be below 1 (negative: off)
sqlherd: P.Lease is 99.999999ms; must be from 100ms to 5m0s
sqlherd: P.Wait is 1h0m0.000000001s; must be at most 1h0m0s (negative: do not wait)
sqlherd: P.OnWaitTimeout is 7; must be WaitLoad or WaitError
sqlherd: P.MaxBytes is -1; must be from 1 to 536870912
sqlherd: P.Tags[1] is "none"; must stand alone
sqlherd: P.Tags[2] is "a{"; has a brace without its partner; an argument is {1} or {name}
sqlherd: P.Tables[1] is ""; must not be empty
sqlherd: P.Name is "a\nb"; must not contain control characters
sqlherd: P.Scope is "`+p.Scope+`"; must be at most 256 bytes long
sqlherd: P.EarlyBeta is +Inf; must be at most 100 (negative: off)`), "\n")
	got := strings.Split(errors.Join(p.validate("P")...).Error(), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, p := range []Policy{{Jitter: math.NaN()}, {EarlyBeta: math.NaN()}, {Tags: make([]string, TagsMax+1)}, {Name: "\xff"}, {Lease: -1}} {
		if p.validate("P") == nil {
			t.Errorf("%+v is valid", p)
		}
	}
}

func TestADurationThatLacksItsUnitIsAnErrorThatWritesItOut(t *testing.T) {
	for _, tt := range []struct {
		p    Policy
		want string
	}{
		{Policy{TTL: 30}, "P.TTL is 30ns; must be at least 1ms (negative: not cached); a number without a unit is nanoseconds: write 30 * time.Second"},
		{Policy{TTL: 86_400}, "P.TTL is 86.4µs; must be at least 1ms (negative: not cached); a number without a unit is nanoseconds: write 86400 * time.Second"},
		{Policy{SWR: 300}, "P.SWR is 300ns; must be at least 1ms (negative: off); a number without a unit is nanoseconds: write 300 * time.Second"},
		{Policy{SIE: 1}, "P.SIE is 1ns; must be at least 1ms (negative: off); a number without a unit is nanoseconds: write 1 * time.Second"},
		{Policy{Empty: 5}, "P.Empty is 5ns; must be at least 1ms (negative: empty results are not cached); a number without a unit is nanoseconds: write 5 * time.Second"},
		{Policy{Wait: 5_000}, "P.Wait is 5µs; must be at least 1ms (negative: do not wait); a number without a unit is nanoseconds: write 5000 * time.Millisecond"},
		{Policy{Wait: 999_999}, "P.Wait is 999.999µs; must be at least 1ms (negative: do not wait); a number without a unit is nanoseconds: write 999999 * time.Millisecond"},
		{Policy{Lease: 3}, "P.Lease is 3ns; must be from 100ms to 5m0s; a number without a unit is nanoseconds: write 3 * time.Second"},
		{Policy{Lease: 999_999}, "P.Lease is 999.999µs; must be from 100ms to 5m0s"},
	} {
		if err := errors.Join(tt.p.validate("P")...); err == nil || err.Error() != "sqlherd: "+tt.want {
			t.Errorf("got  %v\nwant sqlherd: %s", err, tt.want)
		}
	}
	if errs := (Policy{TTL: DurationMin, SWR: DurationMin, SIE: DurationMin, Empty: DurationMin, Wait: DurationMin}).validate("P"); errs != nil {
		t.Error("a millisecond is refused:", errs)
	}
}

func TestAPolicyThatTurnsEverythingOffIsValid(t *testing.T) {
	p := Policy{TTL: off, SWR: off, SIE: off, Empty: off, Jitter: off, Wait: off, MaxRows: off, EarlyBeta: off, Tags: []string{none}, Tables: []string{none}}
	if errs := p.validate("P"); errs != nil {
		t.Error(errors.Join(errs...))
	}
}

func TestNamedTablesAddToTheTextsUnlessNoneIsAmongThem(t *testing.T) {
	text := []string{"a", "b"}
	for _, tt := range []struct{ named, want []string }{
		{nil, []string{"a", "b"}},
		{[]string{"c"}, []string{"c", "a", "b"}},
		{[]string{none}, nil},
		{[]string{"c", none}, []string{"c"}},
		{[]string{none, "c", "d"}, []string{"c", "d"}},
		{[]string{none, `public."C"`, `"none"`}, []string{"c", "none"}},
	} {
		if got := tablesFor(text, tt.named); !slices.Equal(got, tt.want) {
			t.Errorf("tablesFor(%v) = %v; want %v", tt.named, got, tt.want)
		}
	}
}

func TestATableHasOneName(t *testing.T) {
	for want, names := range map[string][]string{
		"a":     {"a", "A", "public.a", `"a"`, `public."A"`, `"x.y".a`, "`s`.`a`", "[db].[dbo].[a]"},
		"a.b":   {`"a.b"`, `s."a.b"`, "[a.b]", "`a.b`"},
		`a"b`:   {`"a""b"`, `s."a""b"`},
		`"`:     {`"`},
		"größe": {"Größe", `"GRÖßE"`},
		"":      {"", "a.", `""`},
	} {
		for _, n := range names {
			if got := tableName(n); got != want {
				t.Errorf("tableName(%s) = %s; want %s", n, got, want)
			}
			if err := checkTable(n); (err == nil) != (want != "") {
				t.Errorf("checkTable(%s) = %v", n, err)
			}
		}
	}
}

func TestNamesOfDialectsAndActionsDiffer(t *testing.T) {
	seen := map[string]bool{"invalid": true}
	for d := range dialects {
		if s := d.String(); seen[s] {
			t.Errorf("dialect %d is %q", d, s)
		} else {
			seen[s] = true
		}
	}
	for _, a := range []WaitAction{WaitLoad, WaitError} {
		if s := a.String(); seen[s] {
			t.Errorf("action %d is %q", a, s)
		} else {
			seen[s] = true
		}
	}
	if dialects.String() != "invalid" || WaitAction(9).String() != "invalid" {
		t.Error("what is no dialect or action has a name")
	}
}
