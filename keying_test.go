package sqlherd

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

// argsOf numbers values as database/sql does, and takes sql.Named apart as it does.
func argsOf(values ...any) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
		if n, ok := v.(sql.NamedArg); ok {
			args[i].Name, args[i].Value = n.Name, n.Value
		}
	}
	return args
}

func keyOf(t testing.TB, values ...any) string {
	t.Helper()
	key, bad := appendArgs(nil, argsOf(values...))
	if bad != nil {
		t.Fatalf("refused: %v", bad)
	}
	return string(key)
}

type (
	status      int32
	label       string
	otherLabel  string
	blob        []byte
	uuid        [16]byte
	weekdays    []time.Weekday
	execMode    int32   // as pgx.QueryExecMode
	formats     []int16 // as pgx.QueryResultFormats
	namedPtr    *int64
	selfPtr     *selfPtr
	plainStruct struct{ A int }
)

// grade is a Valuer of a basic kind whose Value tells less than it holds.
type grade int

func (g grade) Value() (driver.Value, error) {
	if g > 0 {
		return "pass", nil
	}
	return "fail", nil
}

// money is a Valuer that is a struct.
type money struct{ cents int64 }

func (m money) Value() (driver.Value, error) { return m.cents, nil }

// coin gives the same value as money.
type coin struct{ cents int64 }

func (c coin) Value() (driver.Value, error) { return c.cents, nil }

// viaPointer is a Valuer by its pointer only.
type viaPointer struct{ n int64 }

func (v *viaPointer) Value() (driver.Value, error) {
	if v == nil {
		return "nobody", nil
	}
	return v.n, nil
}

type brokenValuer struct{ s string }

func (f brokenValuer) Value() (driver.Value, error) { return nil, errors.New("no: " + f.s) }

type panickyValuer struct{ s string }

func (p panickyValuer) Value() (driver.Value, error) { panic(p.s) }

// ids is a Valuer that is a slice, as pq.Int64Array.
type ids []int64

func (ids) Value() (driver.Value, error) { return "{}", nil }

// rowsValuer is a Valuer that is a slice of what cannot be keyed.
type rowsValuer []plainStruct

func (r rowsValuer) Value() (driver.Value, error) { return int64(len(r)), nil }

func ptr[T any](v T) *T { return &v }

// Each function declares a type with the same full name; reflect prints both as
// sqlherd.local.
func localString(s string) any { type local string; return local(s) }
func localBytes(s string) any  { type local []byte; return local(s) }
func localMoney(n int64) any {
	type local struct{ money }
	return local{money{n}}
}
func localMoneyNote(n int64) any {
	type local struct {
		money
		note string //nolint:unused // what tells the two types apart
	}
	return local{money: money{n}}
}

var (
	tokyo   = time.FixedZone("JST", 9*3600)
	noon    = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)
	payload = math.Float64frombits(0x7ff8000000000002)
)

// distinctArgs are values no two of which may share a key.
func distinctArgs() []any {
	return []any{
		nil, "", "1", " 1", "1 ", []byte(nil), []byte{}, []byte("1"), true, false,
		int(1), int8(1), int16(1), int32(1), int64(1), uint(1), uint8(1), uint16(1), uint32(1), uint64(1),
		int64(0), int64(-1), uint64(math.MaxUint64), int64(math.MaxInt64), int64(math.MinInt64),
		1.0, float32(1), 0.0, math.Copysign(0, -1), math.NaN(), payload, math.Inf(1), math.Inf(-1),
		float32(0), float32(math.Copysign(0, -1)),
		noon, noon.Add(1), noon.In(tokyo), noon.In(time.FixedZone("", 0)), noon.In(time.FixedZone("Tokyo", 9*3600)),
		time.Time{}, time.Unix(0, 0).UTC(), time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC),

		status(1), execMode(1), label("1"), otherLabel("1"), label(""), blob("1"), blob{}, blob(nil),
		json.RawMessage("1"), uuid{}, uuid{15: 1}, [16]byte{}, [16]byte{15: 1}, [15]byte{}, [0]byte{},
		time.Duration(1), time.Monday, reflect.Int64,

		ptr(int64(1)), ptr(int32(1)), (*int64)(nil), (*int32)(nil), (*string)(nil), ptr("1"), ptr(""),
		ptr(ptr(int64(1))), (**int64)(nil), ptr((*int64)(nil)), namedPtr(nil), namedPtr(ptr(int64(1))),
		(*time.Time)(nil), &noon, (*plainStruct)(nil), (*uuid)(nil), &uuid{},

		[]int64(nil), []int64{}, []int64{1}, []int64{1, 0}, []int64{0, 1}, []int32{1}, []int{1}, [1]int64{1},
		[]string(nil), []string{}, []string{""}, []string{"", ""}, []string{"a", "b,c"}, []string{"a,b", "c"}, []string{"1"},
		[]label{"1"}, [][]byte{nil}, [][]byte{{}}, [][]byte{[]byte("1")}, []any{int64(1)}, []any{"1"}, []any{nil}, []any{},
		[]bool{true}, []float64{1}, []float32{1}, []*int64{nil}, []*int64{ptr(int64(1))}, [][]int64{{1}, {2}}, [][]int64{{1, 2}},
		[]time.Time{noon}, []uint8{1}, []int8{1}, []uint16{1}, weekdays{1}, formats{1}, []int16{1},

		sql.NullString{}, sql.NullString{String: "1", Valid: true}, sql.NullString{Valid: true}, sql.NullInt64{}, sql.NullInt64{Int64: 1, Valid: true},
		sql.NullInt32{Int32: 1, Valid: true}, sql.NullTime{Time: noon, Valid: true}, sql.Null[int64]{V: 1, Valid: true}, sql.Null[string]{},
		&sql.NullString{String: "1", Valid: true}, (*sql.NullString)(nil),
		money{1}, money{2}, coin{1}, &money{1}, (*money)(nil), &viaPointer{1}, (*viaPointer)(nil),
		grade(1), grade(2), grade(0), ids{}, ids{1}, ids(nil), rowsValuer{}, rowsValuer{{1}}, []money{{1}}, []grade{1}, []grade{2},
		[]sql.NullString{{}}, []sql.NullString{{String: "1", Valid: true}},

		localString("1"), localBytes("1"), localMoney(1), localMoneyNote(1), localMoney(2),
	}
}

func TestArgumentsOfDifferentTypeOrValueHaveDifferentKeys(t *testing.T) {
	seen := make(map[string]any)
	for _, v := range distinctArgs() {
		k := keyOf(t, v)
		if o, ok := seen[k]; ok {
			t.Errorf("%T(%v) has the key of %T(%v)", v, v, o, o)
		}
		seen[k] = v
	}
}

func TestTheSameArgumentHasTheSameKeyEachTime(t *testing.T) {
	again := distinctArgs() // other memory, same values
	for i, v := range distinctArgs() {
		if keyOf(t, v) != keyOf(t, again[i]) {
			t.Errorf("%T(%v) has two keys", v, v)
		}
	}
}

func TestArgumentsThatMeanTheSameShareAKey(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		a, b []any
	}{
		{"a time with and without its monotonic reading", []any{now}, []any{now.Round(0)}},
		{"zones made twice", []any{noon.In(time.FixedZone("JST", 9*3600))}, []any{noon.In(tokyo)}},
		{"pointers to equal values", []any{ptr("x")}, []any{ptr("x")}},
		{"a null with something left in it", []any{sql.NullString{String: "x"}}, []any{sql.NullString{}}},
		{"bytes with other capacity", []any{[]byte("ab")}, []any{[]byte("abc")[:2]}},
		{"no arguments and nil arguments", nil, []any{}},
	} {
		if keyOf(t, c.a...) != keyOf(t, c.b...) {
			t.Errorf("%s: the keys differ", c.name)
		}
	}
}

func TestListsThatOnlyLookAlikeHaveDifferentKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []any
	}{
		{"a comma moved", []any{"a", "b,c"}, []any{"a,b", "c"}},
		{"a bar moved", []any{"a|", "b"}, []any{"a", "|b"}},
		{"a zero byte moved", []any{"a\x00", "b"}, []any{"a", "\x00b"}},
		{"joined", []any{"1", "23"}, []any{"12", "3"}},
		{"one empty string and no argument", []any{""}, nil},
		{"one NULL and no argument", []any{nil}, nil},
		{"one empty string and two", []any{""}, []any{"", ""}},
		{"swapped", []any{int64(1), int64(2)}, []any{int64(2), int64(1)}},
		{"a slice and its elements", []any{[]int64{1, 2}}, []any{int64(1), int64(2)}},
		{"named and not", []any{sql.Named("a", 1)}, []any{1}},
		{"another name", []any{sql.Named("a", 1)}, []any{sql.Named("b", 1)}},
		{"values of names swapped", []any{sql.Named("a", 5), sql.Named("b", 3)}, []any{sql.Named("a", 3), sql.Named("b", 5)}},
		{"a name that runs into the value", []any{sql.Named("ab", "c")}, []any{sql.Named("a", "bc")}},
		{"a string that is an encoding", []any{keyOf(t, "x")}, []any{"x"}},
	} {
		if keyOf(t, c.a...) == keyOf(t, c.b...) {
			t.Errorf("%s: the keys are equal", c.name)
		}
	}
	one, _ := appendArgs(nil, []driver.NamedValue{{Ordinal: 1, Value: "x"}})
	two, _ := appendArgs(nil, []driver.NamedValue{{Ordinal: 2, Value: "x"}})
	if bytes.Equal(one, two) {
		t.Error("$1 and $2 share a key")
	}
}

func TestWhatHasNoExactFormIsRefusedByTypeAndNeverByValue(t *testing.T) {
	const secret = "alice@example.test"
	var cyclic selfPtr
	cyclic = &cyclic
	loop := []any{nil}
	loop[0] = loop
	wide := make([]any, 100)
	for i := range wide {
		wide[i] = wide
	}
	var dest string
	for _, c := range []struct {
		name string
		v    any
		why  refusal
	}{
		{"an output argument", sql.Out{Dest: &dest}, refusedKind},
		{"a pointer to one", &sql.Out{Dest: &dest}, refusedKind},
		{"a struct", struct{ Email string }{secret}, refusedKind},
		{"a pointer to a struct", &struct{ Email string }{secret}, refusedKind},
		{"a Valuer by pointer, given by value", viaPointer{1}, refusedKind},
		{"a map, as pgx.NamedArgs", map[string]any{"a": secret}, refusedKind},
		{"a channel", make(chan int), refusedKind},
		{"a function", func() string { return secret }, refusedKind},
		{"a complex number", complex(1, 2), refusedKind},
		{"an address", uintptr(1), refusedKind},
		{"a slice of structs", []plainStruct{{1}}, refusedKind},
		{"a slice with a map in it", []any{"a", map[string]string{}}, refusedKind},
		{"an array of functions", [1]func(){}, refusedKind},
		{"a Valuer that fails", brokenValuer{secret}, refusedValuer},
		{"a Valuer that panics", panickyValuer{secret}, refusedValuer},
		{"a pointer to a Valuer that panics", ptr(panickyValuer{secret}), refusedValuer},
		{"a Valuer that panics in a slice", []panickyValuer{{secret}}, refusedValuer},
		{"a nil pointer embedded in a Valuer", struct{ *money }{}, refusedValuer},
		{"a pointer to itself", cyclic, refusedDeep},
		{"a slice in itself", loop, refusedDeep},
		{"a slice in itself, a hundred times", wide, refusedDeep},
		{"a long string", strings.Repeat(secret, 1<<16), refusedLong},
		{"long bytes", make([]byte, 2<<20), refusedLong},
		{"a long named string", label(strings.Repeat(secret, 1<<16)), refusedLong},
		{"a long string in a slice", []string{strings.Repeat(secret, 1<<16)}, refusedLong},
		{"a long slice", make([]int64, 1<<18), refusedLong},
		{"a huge array of nothing", make([]*int64, 1<<19), refusedLong},
	} {
		dst := []byte("kept")
		out, bad := appendArgs(dst, argsOf(int64(1), c.v))
		switch {
		case bad == nil:
			t.Errorf("%s: not refused", c.name)
			continue
		case bad.why != c.why:
			t.Errorf("%s: refused because %s, want %s", c.name, bad.why, c.why)
		case string(out) != "kept":
			t.Errorf("%s: dst came back as %q", c.name, out)
		case bad.ordinal != 2 || bad.goType != reflect.TypeOf(c.v).String():
			t.Errorf("%s: blames argument %d of type %s", c.name, bad.ordinal, bad.goType)
		}
		if msg := bad.Error(); strings.Contains(msg, secret) || !strings.Contains(msg, "argument 2") {
			t.Errorf("%s: the error says %q", c.name, msg)
		}
	}
}

func TestARefusedNamedArgumentIsCalledByItsName(t *testing.T) {
	_, bad := appendArgs(nil, argsOf(sql.Named("who", map[string]int{"secret": 1})))
	if bad == nil || !strings.Contains(bad.Error(), "(who) of type map[string]int") || strings.Contains(bad.Error(), "secret") {
		t.Errorf("the error is %v", bad)
	}
}

func TestArgumentsThatAreLongOnlyTogetherAreRefused(t *testing.T) {
	half := strings.Repeat("x", argsBytesMax/2)
	if _, bad := appendArgs(nil, argsOf(half)); bad != nil {
		t.Fatal(bad)
	}
	if _, bad := appendArgs(nil, argsOf(half, half)); bad == nil || bad.why != refusedLong {
		t.Errorf("two halves: %v", bad)
	}
	many := make([]driver.NamedValue, argsBytesMax/2)
	if _, bad := appendArgs(nil, many); bad == nil || bad.Error() == "" {
		t.Errorf("very many: %v", bad)
	}
}

func TestALocalTypeIsNotAnotherOfTheSameName(t *testing.T) {
	a, b := reflect.TypeOf(localMoney(1)), reflect.TypeOf(localMoneyNote(1))
	if a == b || a.PkgPath() != b.PkgPath() || a.String() != b.String() {
		t.Fatalf("the test is wrong: %v %v", a, b)
	}
	if infoOf(a).digest == infoOf(b).digest {
		t.Error("two types of one name and different structure share a digest")
	}
}

func TestRecursiveTypesHaveADigest(t *testing.T) {
	type node struct {
		Next, Prev *node
		Kids       map[string][]node
		Visit      func(*node, ...int) interface{ Do(node) }
		C          <-chan node
	}
	type leaf struct {
		Next, Prev *leaf
		Kids       map[string][]leaf
		Visit      func(*leaf, ...int) interface{ Do(leaf) }
		C          chan leaf
	}
	if infoOf(reflect.TypeFor[node]()).digest == infoOf(reflect.TypeFor[leaf]()).digest {
		t.Error("two types share a digest")
	}
	if keyOf(t, (*node)(nil)) == keyOf(t, (*leaf)(nil)) {
		t.Error("their nil pointers share a key")
	}
}

func TestAppendArgsNeitherChangesNorKeepsArguments(t *testing.T) {
	b, s := []byte("abc"), [][]byte{[]byte("x")}
	args := argsOf(b, s)
	key, _ := appendArgs(nil, args)
	before := string(key)
	b[0], s[0][0] = 'z', 'y'
	if string(key) != before {
		t.Error("the key changed with its arguments")
	}
	key[len(key)-1] ^= 0xff
	if string(b) != "zbc" || string(s[0]) != "y" {
		t.Error("the arguments changed with the key")
	}
}

func TestBuiltInArgumentsCostNoAllocation(t *testing.T) {
	head := keyHead("ns", "db", "SELECT 1", "", false)
	buf := make([]byte, 0, 4096)
	local := time.Now()
	for _, c := range []struct {
		name string
		args []driver.NamedValue
	}{
		{"built-in types", argsOf(nil, 1, int8(1), int16(1), int32(1), int64(1), uint(1), uint8(1), uint16(1), uint32(1),
			uint64(1), 1.5, float32(1.5), true, "text", []byte("bytes"), noon, local, sql.Named("name", "v"))},
		{"named types", argsOf(status(1), label("x"), blob("x"), time.Second, json.RawMessage("{}"), uuid{})},
		{"slices", argsOf([]string{"a", "b"}, []int64{1, 2}, []float64{1}, []bool{true}, formats{1})},
	} {
		keyOf(t, 1) // learn nothing, warm nothing
		if _, bad := appendKey(buf, head, c.args, "scope", ""); bad != nil {
			t.Fatal(bad)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = appendKey(buf, head, c.args, "scope", "") }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// keyParts are all that a key is made of.
type keyParts struct {
	Namespace, Identity, Text, Naming string
	Prepared                          bool
	Scopes                            []string
	Arg                               string
}

func (p keyParts) key() string {
	head := keyHead(p.Namespace, p.Identity, p.Text, p.Naming, p.Prepared)
	key, _ := appendKey(nil, head, argsOf(p.Arg), p.Scopes...)
	return string(key)
}

func TestEveryPartOfAKeyCounts(t *testing.T) {
	base := keyParts{"ns", "id", "SELECT 1", "1 3 1+1", false, []string{"a", "b"}, "x"}
	for _, c := range []struct {
		name   string
		change func(*keyParts)
	}{
		{"namespace", func(p *keyParts) { p.Namespace = "other" }},
		{"identity", func(p *keyParts) { p.Identity = "other" }},
		{"text", func(p *keyParts) { p.Text = "SELECT 2" }},
		{"naming", func(p *keyParts) { p.Naming = "" }},
		{"text runs into naming", func(p *keyParts) { p.Text, p.Naming = "SELECT 11", " 3 1+1" }},
		{"prepared", func(p *keyParts) { p.Prepared = true }},
		{"scope", func(p *keyParts) { p.Scopes = []string{"a", "c"} }},
		{"scopes swapped", func(p *keyParts) { p.Scopes = []string{"b", "a"} }},
		{"scopes joined", func(p *keyParts) { p.Scopes = []string{"ab"} }},
		{"no scope", func(p *keyParts) { p.Scopes = nil }},
		{"argument", func(p *keyParts) { p.Arg = "y" }},
		{"namespace runs into identity", func(p *keyParts) { p.Namespace, p.Identity = "nsi", "d" }},
		{"identity runs into text", func(p *keyParts) { p.Identity, p.Text = "idS", "ELECT 1" }},
		{"the digit at the text's end runs into the argument", func(p *keyParts) { p.Text, p.Arg = "SELECT ", "1x" }},
		{"the argument runs into the text", func(p *keyParts) { p.Text, p.Arg = "SELECT 1x", "" }},
		{"scope runs into argument", func(p *keyParts) { p.Scopes, p.Arg = []string{"a"}, "bx" }},
	} {
		p := base
		c.change(&p)
		if p.key() == base.key() {
			t.Errorf("%s: the key is the same", c.name)
		}
	}
	if p := base; p.key() != base.key() {
		t.Error("equal parts have different keys")
	}
}

func TestKeysAreEqualExactlyWhenTheirPartsAre(t *testing.T) {
	// Short strings over a small alphabet meet often.
	short := func(s string) string {
		s = strings.Map(func(r rune) rune { return 'a' + r%2 }, s)
		return s[:min(len(s), 2)]
	}
	norm := func(p keyParts) keyParts {
		p.Namespace, p.Identity, p.Text, p.Naming, p.Arg = short(p.Namespace), short(p.Identity), short(p.Text), short(p.Naming), short(p.Arg)
		p.Scopes = append([]string{}, p.Scopes[:min(len(p.Scopes), 2)]...)
		for i := range p.Scopes {
			p.Scopes[i] = short(p.Scopes[i])
		}
		return p
	}
	check := func(a, b keyParts) bool {
		a, b = norm(a), norm(b)
		return (a.key() == b.key()) == reflect.DeepEqual(a, b)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

// spell writes a value out in full, slowly, with its type by identity: the oracle
// of FuzzKeysDistinct.
func spell(v any) string {
	if v == nil {
		return "nil"
	}
	rv := reflect.ValueOf(v)
	s := fmt.Sprintf("%p", rv.Type()) // the address of the type, which is unique
	if vr, ok := v.(driver.Valuer); ok {
		got, err := driver.DefaultParameterConverter.ConvertValue(vr)
		if err != nil {
			panic(err)
		}
		s += " gives " + spell(got)
	}
	switch rv.Kind() {
	case reflect.Float32, reflect.Float64:
		return s + " " + strconv.FormatUint(math.Float64bits(rv.Float()), 16)
	case reflect.Pointer:
		if rv.IsNil() {
			return s + " nil"
		}
		if _, ok := v.(driver.Valuer); ok {
			return s
		}
		return s + " to (" + spell(rv.Elem().Interface()) + ")"
	case reflect.Slice, reflect.Array:
		if rv.Kind() == reflect.Slice && rv.IsNil() {
			return s + " nil"
		}
		s += " ["
		for i := range rv.Len() {
			s += "(" + spell(rv.Index(i).Interface()) + ")"
		}
		return s + "]"
	case reflect.Struct:
		if tm, ok := v.(time.Time); ok {
			return s + tm.Format(" 2006-01-02T15:04:05.000000000 -07:00:00 MST ") + strconv.Quote(tm.Location().String()) + strconv.Itoa(tm.Year())
		}
		return s
	}
	return s + " " + fmt.Sprintf("%q", fmt.Sprint(rv.Convert(basicTypes[rv.Kind()]).Interface()))
}

var basicTypes = map[reflect.Kind]reflect.Type{
	reflect.Bool: reflect.TypeFor[bool](), reflect.String: reflect.TypeFor[string](),
	reflect.Int: reflect.TypeFor[int64](), reflect.Int8: reflect.TypeFor[int64](), reflect.Int16: reflect.TypeFor[int64](),
	reflect.Int32: reflect.TypeFor[int64](), reflect.Int64: reflect.TypeFor[int64](),
	reflect.Uint: reflect.TypeFor[uint64](), reflect.Uint8: reflect.TypeFor[uint64](), reflect.Uint16: reflect.TypeFor[uint64](),
	reflect.Uint32: reflect.TypeFor[uint64](), reflect.Uint64: reflect.TypeFor[uint64](),
}

func spellArgs(args []driver.NamedValue) string {
	var s strings.Builder
	for _, a := range args {
		if a.Name == "" {
			fmt.Fprintf(&s, "#%d", a.Ordinal)
		} else {
			fmt.Fprintf(&s, "%q", a.Name)
		}
		fmt.Fprintf(&s, "=(%s);", spell(a.Value))
	}
	return s.String()
}

// A recipe makes arguments of bytes.
type recipe struct{ b []byte }

func (r *recipe) next() byte {
	if len(r.b) == 0 {
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *recipe) text() string {
	n := min(int(r.next()%5), len(r.b))
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *recipe) args() []driver.NamedValue {
	var values []any
	for len(r.b) > 0 && len(values) < 8 {
		v := r.value(3)
		if r.next()%8 == 7 {
			v = sql.Named("n"+r.text(), v)
		}
		values = append(values, v)
	}
	return argsOf(values...)
}

func (r *recipe) value(depth int) any {
	kinds := byte(32)
	if depth == 0 {
		kinds = 20
	}
	n := int64(int8(r.next()))
	switch r.next() % kinds {
	case 0:
		return nil
	case 1:
		return n
	case 2:
		return int(n)
	case 3:
		return int32(n)
	case 4:
		return uint64(n)
	case 5:
		return uint8(n)
	case 6:
		return float64(n)
	case 7:
		return math.Float64frombits(uint64(n) << 52)
	case 8:
		return float32(n)
	case 9:
		return n > 0
	case 10:
		return r.text()
	case 11:
		return []byte(r.text())
	case 12:
		return []byte(nil)
	case 13:
		return time.Unix(n, int64(r.next())).In([]*time.Location{time.UTC, tokyo, time.FixedZone("X", int(n))}[r.next()%3])
	case 14:
		return label(r.text())
	case 15:
		return otherLabel(r.text())
	case 16:
		return grade(n)
	case 17:
		return money{n}
	case 18:
		return sql.NullString{String: r.text(), Valid: n > 0}
	case 19:
		return localString(r.text())
	case 20:
		return ptr(n)
	case 21:
		return (*int64)(nil)
	case 22:
		return ptr(r.value(depth - 1))
	case 23:
		return []string{r.text(), r.text()}[:1+n&1]
	case 24:
		return []int64{n, int64(r.next())}[:n&1]
	case 25:
		return []any{r.value(depth - 1), r.value(depth - 1)}[:n&1+1]
	case 26:
		return [2]any{r.value(depth - 1), r.value(depth - 1)}
	case 27:
		return blob(r.text())
	case 28:
		return [][]byte{[]byte(r.text()), nil}
	case 29:
		return &money{n}
	case 30:
		return uuid{byte(n)}
	}
	return ids{n}
}

// FuzzKeysDistinct: two lists of arguments have the same key exactly when they
// are spelled the same.
func FuzzKeysDistinct(f *testing.F) {
	for i := range byte(32) {
		f.Add([]byte{1, i, 2, 'a', 'b', 1, i, 0}, []byte{1, i, 2, 'a', 'b', 1, 31 - i, 0})
		f.Add([]byte{0, i, 0}, []byte{0, i, 0})
	}
	f.Add([]byte{1, 25, 1, 10, 2, 'a', 'b'}, []byte{1, 10, 2, 'a', 'b'})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := (&recipe{a}).args(), (&recipe{b}).args()
		kx, bad := appendArgs(nil, x)
		if bad != nil {
			t.Fatal(bad)
		}
		ky, bad := appendArgs([]byte("before"), y)
		if bad != nil {
			t.Fatal(bad)
		}
		ky = ky[len("before"):]
		if same := spellArgs(x) == spellArgs(y); same != bytes.Equal(kx, ky) {
			t.Errorf("spelled the same: %v, keys equal: %v\n%s\n%s", same, !same, spellArgs(x), spellArgs(y))
		}
		if again, _ := appendArgs(nil, (&recipe{a}).args()); !bytes.Equal(kx, again) {
			t.Errorf("two keys for %s", spellArgs(x))
		}
	})
}

func BenchmarkAppendKey(b *testing.B) {
	head := keyHead("sqlherd", strings.Repeat("i", 120), "SELECT name, price FROM products WHERE id = $1", "", false)
	for _, c := range []struct {
		name string
		args []driver.NamedValue
	}{
		{"int64", argsOf(int64(7))},
		{"mixed", argsOf(int64(7), "text", noon, true, nil)},
		{"named type", argsOf(status(1))},
		{"slice", argsOf([]int64{1, 2, 3, 4})},
		{"NullString", argsOf(sql.NullString{String: "x", Valid: true})},
	} {
		b.Run(c.name, func(b *testing.B) {
			buf := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				if _, bad := appendKey(buf, head, c.args, ""); bad != nil {
					b.Fatal(bad)
				}
			}
		})
	}
}
