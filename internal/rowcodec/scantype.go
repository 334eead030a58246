package rowcodec

import (
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wellKnown are the scan types that are written as a number, which is their
// place here plus one. The order is part of the format: append only.
var wellKnown = []reflect.Type{
	reflect.TypeFor[any](),
	reflect.TypeFor[bool](),
	reflect.TypeFor[int](),
	reflect.TypeFor[int8](),
	reflect.TypeFor[int16](),
	reflect.TypeFor[int32](),
	reflect.TypeFor[int64](),
	reflect.TypeFor[uint](),
	reflect.TypeFor[uint8](),
	reflect.TypeFor[uint16](),
	reflect.TypeFor[uint32](),
	reflect.TypeFor[uint64](),
	reflect.TypeFor[float32](),
	reflect.TypeFor[float64](),
	reflect.TypeFor[string](),
	reflect.TypeFor[[]byte](),
	reflect.TypeFor[time.Time](),
	reflect.TypeFor[sql.RawBytes](),
	reflect.TypeFor[sql.NullBool](),
	reflect.TypeFor[sql.NullByte](),
	reflect.TypeFor[sql.NullInt16](),
	reflect.TypeFor[sql.NullInt32](),
	reflect.TypeFor[sql.NullInt64](),
	reflect.TypeFor[sql.NullFloat64](),
	reflect.TypeFor[sql.NullString](),
	reflect.TypeFor[sql.NullTime](),
	reflect.TypeFor[sql.Null[bool]](),
	reflect.TypeFor[sql.Null[int]](),
	reflect.TypeFor[sql.Null[int8]](),
	reflect.TypeFor[sql.Null[int16]](),
	reflect.TypeFor[sql.Null[int32]](),
	reflect.TypeFor[sql.Null[int64]](),
	reflect.TypeFor[sql.Null[uint]](),
	reflect.TypeFor[sql.Null[uint8]](),
	reflect.TypeFor[sql.Null[uint16]](),
	reflect.TypeFor[sql.Null[uint32]](),
	reflect.TypeFor[sql.Null[uint64]](),
	reflect.TypeFor[sql.Null[float32]](),
	reflect.TypeFor[sql.Null[float64]](),
	reflect.TypeFor[sql.Null[string]](),
	reflect.TypeFor[sql.Null[[]byte]](),
	reflect.TypeFor[sql.Null[time.Time]](),
	reflect.TypeFor[json.RawMessage](),
	reflect.TypeFor[uintptr](),
	reflect.TypeFor[complex64](),
	reflect.TypeFor[complex128](),
	reflect.TypeFor[*any](),
	reflect.TypeFor[*bool](),
	reflect.TypeFor[*int](),
	reflect.TypeFor[*int8](),
	reflect.TypeFor[*int16](),
	reflect.TypeFor[*int32](),
	reflect.TypeFor[*int64](),
	reflect.TypeFor[*uint](),
	reflect.TypeFor[*uint8](),
	reflect.TypeFor[*uint16](),
	reflect.TypeFor[*uint32](),
	reflect.TypeFor[*uint64](),
	reflect.TypeFor[*float32](),
	reflect.TypeFor[*float64](),
	reflect.TypeFor[*string](),
	reflect.TypeFor[*[]byte](),
	reflect.TypeFor[*time.Time](),
}

// wellKnownCode is the inverse of wellKnown.
var wellKnownCode = func() map[reflect.Type]uint64 {
	m := make(map[reflect.Type]uint64, len(wellKnown))
	for i, t := range wellKnown {
		m[t] = uint64(i) + 1
	}
	return m
}()

// Limits of the table of types met at run time.
const (
	metTypesMax     = 1024
	typeNameMaxSize = 1024
)

// met holds the other scan types that drivers showed to this process. They are
// written by name, and Go cannot turn a name into a type: a process reads the
// name only after it has met the type itself.
var met = struct {
	sync.RWMutex
	byName map[string]reflect.Type
	byType map[reflect.Type]string // "" for a type that cannot be named
}{byName: map[string]reflect.Type{}, byType: map[reflect.Type]string{}}

// registerType makes t known by name and returns the name. It is not ok when t
// has no unambiguous name, or the table is full.
func registerType(t reflect.Type) (name string, ok bool) {
	if wellKnownCode[t] != 0 {
		return "", true
	}
	met.RLock()
	name, ok = met.byType[t]
	met.RUnlock()
	if ok {
		return name, name != ""
	}
	name = typeName(t)
	met.Lock()
	defer met.Unlock()
	if other := met.byName[name]; other != nil && other != t {
		name = "" // two types declared inside functions can have one name; the first keeps it
	}
	if len(met.byType) < metTypesMax {
		met.byType[t] = name
		if name != "" {
			met.byName[name] = t
		}
	} else if met.byType[t] == "" {
		name = ""
	}
	return name, name != ""
}

// typeName returns a name that tells t from every other type of a program, or
// "" when it has none: reflect's String alone calls a/x.T and b/x.T both "x.T".
// Pointers, slices, arrays and maps are named after their elements; structs,
// functions and other types without a name are refused.
func typeName(t reflect.Type) string {
	var b strings.Builder
	if !writeTypeName(&b, t) || b.Len() > typeNameMaxSize {
		return ""
	}
	return b.String()
}

func writeTypeName(b *strings.Builder, t reflect.Type) bool {
	if b.Len() > typeNameMaxSize {
		return false
	}
	if name := t.Name(); name != "" {
		if p := t.PkgPath(); p != "" {
			b.WriteString(p)
			b.WriteByte('.')
		}
		b.WriteString(name)
		return true
	}
	switch t.Kind() {
	case reflect.Pointer:
		b.WriteByte('*')
	case reflect.Slice:
		b.WriteString("[]")
	case reflect.Array:
		b.WriteString("[" + strconv.Itoa(t.Len()) + "]")
	case reflect.Map:
		b.WriteString("map[")
		if !writeTypeName(b, t.Key()) {
			return false
		}
		b.WriteByte(']')
	case reflect.Interface:
		b.WriteString("any")
		return t.NumMethod() == 0
	default:
		return false
	}
	return writeTypeName(b, t.Elem())
}

// appendType appends the code of a well-known type, or 0 and the name.
func appendType(dst []byte, t reflect.Type) ([]byte, bool) {
	if code := wellKnownCode[t]; code != 0 {
		return binary.AppendUvarint(dst, code), true
	}
	name, ok := registerType(t)
	if !ok {
		return dst, false
	}
	return appendText(append(dst, 0), name), true
}

// scanType reads what appendType wrote. The type is nil when this process does
// not know it; name is then its name.
func (r *reader) scanType() (t reflect.Type, name string) {
	switch code := r.uvarint(); {
	case code == 0:
		b := r.text()
		met.RLock()
		t = met.byName[string(b)]
		met.RUnlock()
		if t == nil {
			name = string(b)
		}
	case code <= uint64(len(wellKnown)):
		t = wellKnown[code-1]
	default:
		name = "#" + strconv.FormatUint(code, 10) // of a newer version
	}
	return t, name
}
