package sqlherd

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"sync"
	"time"
)

// The key of a result is everything that decides which rows a query returns and
// which Go values they arrive as:
//
//	magic ‖ namespace ‖ identity ‖ prepared ‖ text ‖ naming   keyHead, once per plan and connection source
//	      ‖ scopes                                            appendScope, per call
//	      ‖ arguments                                         appendArgs, per call
//
// Every part is a fixed width, or preceded by its length or its number of
// parts, so that the bytes can be read back in one way only: two keys are equal
// exactly when all their parts are. No separator is searched for, hence no value
// can contain one.
//
// The bytes themselves are the key in memory. Other stores hash them.

// keyMagic sets these keys apart from all other bytes that may be hashed, and
// names the version of the encoding. Any change of an encoding below changes it.
const keyMagic = "sqlherd\x00k2"

// argsBytesMax is the longest encoding of one call's arguments. A key is held in
// memory beside its result, and a result asked for with a megabyte is not asked
// for twice.
const argsBytesMax = 1 << 20

// argDepthMax is how many pointers, slices and Valuers may be nested in an argument.
const argDepthMax = 8

// keyHead returns the part of a key that is the same for every execution of a
// query text on one connection source. naming is what of the text decides the columns' names and is not in its
// normalized form. The caller keeps it, and must not append
// to it in place: use appendKey, or copy it first.
func keyHead(namespace, identity, text, naming string, prepared bool) []byte {
	b := make([]byte, 0, len(keyMagic)+len(namespace)+len(identity)+len(text)+len(naming)+20)
	b = append(b, keyMagic...)
	b = appendFramed(b, namespace)
	b = appendFramed(b, identity)
	if prepared {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = appendFramed(b, text)
	return appendFramed(b, naming)
}

// appendScope appends the caller's scopes: the policy's and the context's, in
// that order. An empty scope is one too, so that ("a", "") and ("", "a") differ.
func appendScope(dst []byte, scopes ...string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(scopes)))
	for _, s := range scopes {
		dst = appendFramed(dst, s)
	}
	return dst
}

// appendKey appends a whole key to dst: head as keyHead made it, scopes, args.
func appendKey(dst, head []byte, args []driver.NamedValue, scopes ...string) ([]byte, *argError) {
	dst = append(dst, head...)
	dst = appendScope(dst, scopes...)
	return appendArgs(dst, args)
}

// appendArgs appends the arguments as the application gave them, before any
// driver has converted them, each with its Go type: int64(1), int32(1), "1",
// []byte("1"), true, 1.0, "" and NULL are eight different arguments.
//
// What has no exact form is refused with an argError, and dst is returned as it
// came: output arguments, structs and maps, channels and functions, a Valuer
// that fails or panics, whatever is nested too deep or is too long. A
// time.Time and any driver.Valuer are not refused for being structs.
//
// A Valuer is keyed by its type and by what Value returns. Its other fields
// are taken to say nothing to the database, and a second call of Value to return
// the same. Methods of a named type are taken to be the same in all programs that
// share the type's name, except in package main, where the name of the program
// is added.
//
// The arguments are neither changed nor kept. Built-in types cost no allocation
// but the growth of dst.
func appendArgs(dst []byte, args []driver.NamedValue) ([]byte, *argError) {
	out := binary.AppendUvarint(dst, uint64(len(args)))
	limit := len(out) + argsBytesMax
	for i := range args {
		a := &args[i]
		if a.Name == "" {
			out = append(out, 0)
			out = binary.AppendUvarint(out, uint64(a.Ordinal))
		} else {
			out = append(out, 1)
			out = appendFramed(out, a.Name)
		}
		var no refusal
		if out, no = appendValue(out, a.Value, limit, argDepthMax); no != "" {
			return dst, &argError{ordinal: a.Ordinal, name: a.Name, goType: goTypeName(a.Value), why: no}
		}
	}
	if len(out) > limit {
		return dst, &argError{ordinal: len(args), goType: "", why: refusedLong}
	}
	return out, nil
}

// An argError says which argument cannot be part of a key, by its place and its
// Go type. It never holds the value, because errors are logged.
type argError struct {
	ordinal int    // counted from 1
	name    string // of a named argument, else ""
	goType  string // "" when all arguments together are too long
	why     refusal
}

// Error names the argument and the reason.
func (e *argError) Error() string {
	switch {
	case e.goType == "":
		return fmt.Sprintf("sqlherd: the arguments cannot be part of a key: %s", e.why)
	case e.name != "":
		return fmt.Sprintf("sqlherd: argument %d (%s) of type %s cannot be part of a key: %s", e.ordinal, e.name, e.goType, e.why)
	}
	return fmt.Sprintf("sqlherd: argument %d of type %s cannot be part of a key: %s", e.ordinal, e.goType, e.why)
}

// A refusal says why a value has no canonical form. The empty one means it has.
type refusal string

const (
	refusedKind   refusal = "a value of this kind has no exact canonical form"
	refusedValuer refusal = "its Value method failed"
	refusedDeep   refusal = "nested too deep"
	refusedLong   refusal = "longer than 1 MiB"
)

// Tags say which Go type the following bytes are of. A tag fixes the length of
// what follows, or is followed by a length.
const (
	tagNil byte = iota
	tagFalse
	tagTrue
	tagInt
	tagInt8
	tagInt16
	tagInt32
	tagInt64
	tagUint
	tagUint8
	tagUint16
	tagUint32
	tagUint64
	tagFloat32
	tagFloat64
	tagString
	tagBytes
	tagNilBytes
	tagTime
	tagTyped  // digest of the type, then one of the forms below
	tagValuer // what Value returned, then tagKind or tagOpaque
	tagKind   // by reflect.Kind, which the type has fixed
	tagOpaque // nothing
)

// appendValue appends one value. limit is the length that dst may reach.
//
// The built-in types are here, first and without reflection. A change of the
// set changes keyMagic.
func appendValue(dst []byte, v any, limit, depth int) ([]byte, refusal) {
	switch v := v.(type) {
	case nil:
		return append(dst, tagNil), ""
	case int64:
		return append64(dst, tagInt64, uint64(v)), ""
	case string:
		if len(v) > limit-len(dst) {
			return dst, refusedLong
		}
		return appendFramed(append(dst, tagString), v), ""
	case int:
		return append64(dst, tagInt, uint64(v)), ""
	case bool:
		if v {
			return append(dst, tagTrue), ""
		}
		return append(dst, tagFalse), ""
	case float64:
		// By bits: -0 and 0 differ, as they may in the database, and every
		// NaN equals itself, as it must to be found again.
		return append64(dst, tagFloat64, math.Float64bits(v)), ""
	case []byte:
		if v == nil {
			return append(dst, tagNilBytes), ""
		}
		if len(v) > limit-len(dst) {
			return dst, refusedLong
		}
		dst = binary.AppendUvarint(append(dst, tagBytes), uint64(len(v)))
		return append(dst, v...), ""
	case time.Time:
		return appendTime(append(dst, tagTime), v), ""
	case int32:
		return append64(dst, tagInt32, uint64(v)), ""
	case int16:
		return append64(dst, tagInt16, uint64(v)), ""
	case int8:
		return append64(dst, tagInt8, uint64(v)), ""
	case uint:
		return append64(dst, tagUint, uint64(v)), ""
	case uint64:
		return append64(dst, tagUint64, v), ""
	case uint32:
		return append64(dst, tagUint32, uint64(v)), ""
	case uint16:
		return append64(dst, tagUint16, uint64(v)), ""
	case uint8:
		return append64(dst, tagUint8, uint64(v)), ""
	case float32:
		return append64(dst, tagFloat32, uint64(math.Float32bits(v))), ""
	}
	return appendTyped(dst, v, limit, depth)
}

// appendTyped appends a value whose type is none of the built-in ones: a pointer, a
// Valuer, a named type, a slice or an array.
func appendTyped(dst []byte, v any, limit, depth int) ([]byte, refusal) {
	if depth == 0 {
		return dst, refusedDeep
	}
	rv := reflect.ValueOf(v)
	info := infoOf(rv.Type())
	dst = append(append(dst, tagTyped), info.digest[:]...)

	vr, ok := v.(driver.Valuer)
	if !ok {
		return appendContent(append(dst, tagKind), rv, info, limit, depth)
	}
	val, ok := tryValuer(vr)
	if !ok {
		return dst, refusedValuer
	}
	dst, no := appendValue(append(dst, tagValuer), val, limit, depth-1)
	if no != "" {
		return dst, no
	}
	// Some drivers look at the value itself before they ask its Value method
	// (pgx at a [16]byte or a named string), and Value need not tell all of it. So what
	// can be told of the content is told as well.
	switch rv.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan:
		return append(dst, tagOpaque), ""
	}
	mark := len(dst)
	if dst, no = appendContent(append(dst, tagKind), rv, info, limit, depth); no == refusedKind {
		return append(dst[:mark], tagOpaque), ""
	}
	return dst, no
}

// appendContent appends what rv holds. The type has been written already.
func appendContent(dst []byte, rv reflect.Value, info *typeInfo, limit, depth int) ([]byte, refusal) {
	if isBasic(rv.Kind()) {
		if rv.Kind() == reflect.String && rv.Len() > limit-len(dst) {
			return dst, refusedLong
		}
		return appendBasic(dst, rv), ""
	}
	switch rv.Kind() {
	case reflect.Pointer:
		if rv.IsNil() {
			return append(dst, 0), ""
		}
		return appendValue(append(dst, 1), rv.Elem().Interface(), limit, depth-1)
	case reflect.Slice:
		if rv.IsNil() {
			return append(dst, 0), ""
		}
		dst = append(dst, 1)
	case reflect.Array:
		dst = append(dst, 1)
	default:
		return dst, refusedKind
	}

	n := rv.Len()
	if n > limit-len(dst) { // every element takes a byte at least
		return dst, refusedLong
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	if info.plain && rv.Kind() == reflect.Slice && rv.Type().Elem().Kind() == reflect.Uint8 {
		return append(dst, rv.Bytes()...), ""
	}
	var no refusal
	for i := range n {
		e := rv.Index(i)
		switch {
		case len(dst) > limit || info.plain && e.Kind() == reflect.String && e.Len() > limit-len(dst):
			return dst, refusedLong
		case info.plain:
			dst = appendBasic(dst, e)
		default:
			if dst, no = appendValue(dst, e.Interface(), limit, depth-1); no != "" {
				return dst, no
			}
		}
	}
	return dst, ""
}

// isBasic reports whether appendBasic knows the kind. Complex numbers and
// uintptr are missing because no driver takes them.
func isBasic(k reflect.Kind) bool {
	switch k {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// appendBasic appends the bits of a basic value, whose kind follows from the type.
func appendBasic(dst []byte, rv reflect.Value) []byte {
	switch {
	case rv.Kind() == reflect.Bool:
		if rv.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case rv.Kind() == reflect.String:
		return appendFramed(dst, rv.String())
	case rv.Kind() == reflect.Uint8:
		return append(dst, byte(rv.Uint()))
	case rv.CanInt():
		return binary.BigEndian.AppendUint64(dst, uint64(rv.Int()))
	case rv.CanUint():
		return binary.BigEndian.AppendUint64(dst, rv.Uint())
	}
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(rv.Float()))
}

// appendTime appends the instant, and all that a driver can print of the zone:
// drivers differ in whether they send the instant, the wall clock or the text. The
// monotonic reading is left out.
func appendTime(dst []byte, t time.Time) []byte {
	zone, offset := t.Zone()
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Unix()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(t.Nanosecond()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(offset))
	dst = appendFramed(dst, zone)
	return appendFramed(dst, t.Location().String())
}

// appendFramed appends s behind its length.
func appendFramed(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func append64(dst []byte, tag byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tag), v)
}

// tryValuer calls Value as database/sql does. A panic is a failure here; when
// the statement runs uncached after it, the panic is the application's to see.
func tryValuer(vr driver.Valuer) (v driver.Value, ok bool) {
	defer func() {
		if recover() != nil {
			v, ok = nil, false
		}
	}()
	v, err := callValuer(vr)
	return v, err == nil
}

var valuerType = reflect.TypeFor[driver.Valuer]()

// A typeInfo is what appendTyped wants to know of a type.
type typeInfo struct {
	digest [sha256.Size]byte
	// plain: a slice or array whose elements are of a basic kind and have no
	// Value method, so that they can be read without boxing each.
	plain bool
}

// typeInfos remembers infoOf by reflect.Type: a type's description is long, and a
// program has few types that are arguments.
var typeInfos sync.Map // of reflect.Type to *typeInfo

// infoOf returns what is known of a type, above all the digest of its full description.
//
// The name alone is not enough. Two types declared in two functions may both be
// called pkg.T, and reflect has nothing else to tell them apart by; so the
// description goes on with what the type is made of. Two such types with equal
// descriptions cannot be told apart by a driver either, for a type declared in a
// function has no methods but those of the types it embeds.
func infoOf(t reflect.Type) *typeInfo {
	if i, ok := typeInfos.Load(t); ok {
		return i.(*typeInfo)
	}
	i := &typeInfo{digest: sha256.Sum256(appendType([]byte("sqlherd type\x00"), t, nil))}
	if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
		i.plain = isBasic(t.Elem().Kind()) && !t.Elem().Implements(valuerType)
	}
	typeInfos.Store(t, i)
	return i
}

// appendType appends the description of t. open are the types whose description
// has begun and not ended: one that occurs again is named by its place
// among them, which ends the recursion of recursive types.
func appendType(dst []byte, t reflect.Type, open []reflect.Type) []byte {
	for i, o := range open {
		if o == t {
			return binary.AppendUvarint(append(dst, 0xff), uint64(i))
		}
	}
	open = append(open, t)

	dst = append(dst, byte(t.Kind()))
	pkg := t.PkgPath()
	if pkg == "main" {
		pkg += " " + program()
	}
	dst = appendFramed(dst, pkg)
	dst = appendFramed(dst, t.Name())

	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return appendType(dst, t.Elem(), open)
	case reflect.Array:
		return appendType(binary.AppendUvarint(dst, uint64(t.Len())), t.Elem(), open)
	case reflect.Chan:
		return appendType(append(dst, byte(t.ChanDir())), t.Elem(), open)
	case reflect.Map:
		return appendType(appendType(dst, t.Key(), open), t.Elem(), open)
	case reflect.Struct:
		dst = binary.AppendUvarint(dst, uint64(t.NumField()))
		for f := range t.Fields() {
			dst = appendFramed(dst, f.PkgPath)
			dst = appendFramed(dst, f.Name)
			dst = appendFramed(dst, string(f.Tag))
			dst = append(dst, boolByte(f.Anonymous))
			dst = appendType(dst, f.Type, open)
		}
	case reflect.Interface:
		dst = binary.AppendUvarint(dst, uint64(t.NumMethod()))
		for m := range t.Methods() {
			dst = appendFramed(dst, m.PkgPath)
			dst = appendFramed(dst, m.Name)
			dst = appendType(dst, m.Type, open)
		}
	case reflect.Func:
		dst = append(dst, boolByte(t.IsVariadic()))
		dst = binary.AppendUvarint(dst, uint64(t.NumIn()))
		for in := range t.Ins() {
			dst = appendType(dst, in, open)
		}
		dst = binary.AppendUvarint(dst, uint64(t.NumOut()))
		for out := range t.Outs() {
			dst = appendType(dst, out, open)
		}
	}
	return dst
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// program names the program, because main.Status of one is not main.Status of
// another that shares the Redis.
var program = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Path
	}
	return ""
})

// goTypeName names the type of v for people.
func goTypeName(v any) string {
	if v == nil {
		return "nil"
	}
	return reflect.TypeOf(v).String()
}
