package rowcodec

import (
	"database/sql/driver"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"strings"
	"sync"
	"unsafe"
)

// maxColumns bounds the columns of an encoded result. No database returns as
// many; a corrupt count must not become a large allocation.
const maxColumns = 1<<16 - 1

// A Column is what a driver told about one column, value for value as its
// optional getters returned it. A getter's value is kept even where its ok was
// false, because database/sql hands both on.
type Column struct {
	Name string

	DatabaseType    string
	HasDatabaseType bool

	ScanType reflect.Type // nil when the driver gave none

	Length    int64
	HasLength bool

	Nullable, HasNullable bool

	Precision, Scale  int64
	HasPrecisionScale bool
}

// Traits are the optional interfaces of driver.Rows that the real rows
// implemented, as bits. Rows played back from a [Result] show the same ones.
type Traits uint8

const (
	TraitDatabaseTypeName Traits = 1 << iota // driver.RowsColumnTypeDatabaseTypeName
	TraitLength                              // driver.RowsColumnTypeLength
	TraitNullable                            // driver.RowsColumnTypeNullable
	TraitPrecisionScale                      // driver.RowsColumnTypePrecisionScale
	TraitScanType                            // driver.RowsColumnTypeScanType
	TraitNextResultSet                       // driver.RowsNextResultSet

	traitsAll = TraitNextResultSet<<1 - 1
)

// Has reports whether all of want are set.
func (t Traits) Has(want Traits) bool { return t&want == want }

// ColumnsOf reads the column names of rows and everything its optional getters
// tell. Call it before the first Next: some drivers forget their columns at the
// end of the rows. A driver's getter that panics is not caught here.
func ColumnsOf(rows driver.Rows) ([]Column, Traits) {
	var t Traits
	names := rows.Columns()
	cols := make([]Column, len(names))
	for i, name := range names {
		cols[i].Name = name
	}
	if g, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		t |= TraitDatabaseTypeName
		for i := range cols {
			cols[i].DatabaseType, cols[i].HasDatabaseType = g.ColumnTypeDatabaseTypeName(i), true
		}
	}
	if g, ok := rows.(driver.RowsColumnTypeLength); ok {
		t |= TraitLength
		for i := range cols {
			cols[i].Length, cols[i].HasLength = g.ColumnTypeLength(i)
		}
	}
	if g, ok := rows.(driver.RowsColumnTypeNullable); ok {
		t |= TraitNullable
		for i := range cols {
			cols[i].Nullable, cols[i].HasNullable = g.ColumnTypeNullable(i)
		}
	}
	if g, ok := rows.(driver.RowsColumnTypePrecisionScale); ok {
		t |= TraitPrecisionScale
		for i := range cols {
			c := &cols[i]
			c.Precision, c.Scale, c.HasPrecisionScale = g.ColumnTypePrecisionScale(i)
		}
	}
	if g, ok := rows.(driver.RowsColumnTypeScanType); ok {
		t |= TraitScanType
		for i := range cols {
			if cols[i].ScanType = g.ColumnTypeScanType(i); cols[i].ScanType != nil {
				registerType(cols[i].ScanType)
			}
		}
	}
	if _, ok := rows.(driver.RowsNextResultSet); ok {
		t |= TraitNextResultSet
	}
	return cols, t
}

// A columnSet is the part of a result that every result of the same query has
// in common. It never changes once made.
type columnSet struct {
	traits Traits
	cols   []Column
	names  []string
	head   string // the encoding of all this; what cols' strings point into
	err    error  // not nil: there is no encoding

	// size is the heap that a result has to answer for: nothing when the set
	// is one of the shared ones.
	size int64
}

// newColumnSet returns the set of cols and t, a shared one where there is one.
func newColumnSet(cols []Column, t Traits) *columnSet {
	head, err := appendHead(nil, cols, t)
	if err == nil {
		if s, err := internedColumns(head); err == nil {
			return s
		}
		panic("bug: columns do not decode: " + string(head))
	}
	s := &columnSet{traits: t, err: err, cols: make([]Column, len(cols)), names: make([]string, len(cols))}
	for i, c := range cols {
		c.Name, c.DatabaseType = strings.Clone(c.Name), strings.Clone(c.DatabaseType)
		s.cols[i], s.names[i] = c, c.Name
	}
	s.size = s.heap()
	return s
}

func (s *columnSet) heap() int64 {
	n := heapBlock(int64(unsafe.Sizeof(*s)))
	n += heapBlock(int64(len(s.cols)) * int64(unsafe.Sizeof(Column{})))
	n += heapBlock(int64(len(s.names)) * int64(unsafe.Sizeof("")))
	if s.err == nil {
		return n + heapBlock(int64(len(s.head)))
	}
	for i := range s.cols {
		n += heapBlock(int64(len(s.cols[i].Name))) + heapBlock(int64(len(s.cols[i].DatabaseType)))
	}
	return n
}

// The bits of a column's first byte.
const (
	colHasDatabaseType = 1 << iota
	colHasLength
	colNullable
	colHasNullable
	colHasPrecisionScale
	colScanType       // a scan type follows
	colLength         // a length other than 0 follows
	colPrecisionScale // a precision and a scale follow, not both 0
)

// appendHead appends the encoding of cols and t:
//
//	traits byte | count | per column: flags byte, name, database type,
//	[scan type] [length] [precision, scale]
//
// Texts are framed by their length; counts and lengths are uvarints, the
// driver's numbers varints.
func appendHead(dst []byte, cols []Column, t Traits) ([]byte, error) {
	if len(cols) > maxColumns {
		return dst, &UnknownTypeError{Column: cols[maxColumns].Name, Type: "(more than 65535 columns)"}
	}
	dst = append(dst, byte(t&traitsAll))
	dst = binary.AppendUvarint(dst, uint64(len(cols)))
	for i := range cols {
		c := &cols[i]
		var f byte
		set := func(bit byte, on bool) {
			if on {
				f |= bit
			}
		}
		set(colHasDatabaseType, c.HasDatabaseType)
		set(colHasLength, c.HasLength)
		set(colNullable, c.Nullable)
		set(colHasNullable, c.HasNullable)
		set(colHasPrecisionScale, c.HasPrecisionScale)
		set(colScanType, c.ScanType != nil)
		set(colLength, c.Length != 0)
		set(colPrecisionScale, c.Precision != 0 || c.Scale != 0)
		dst = append(dst, f)
		dst = appendText(dst, c.Name)
		dst = appendText(dst, c.DatabaseType)
		if c.ScanType != nil {
			var ok bool
			if dst, ok = appendType(dst, c.ScanType); !ok {
				return dst, &UnknownTypeError{Column: c.Name, Type: c.ScanType.String()}
			}
		}
		if c.Length != 0 {
			dst = binary.AppendVarint(dst, c.Length)
		}
		if c.Precision != 0 || c.Scale != 0 {
			dst = binary.AppendVarint(dst, c.Precision)
			dst = binary.AppendVarint(dst, c.Scale)
		}
	}
	return dst, nil
}

// parseHead is the inverse of appendHead. The set's texts are parts of one copy of b.
func parseHead(b []byte) (*columnSet, error) {
	r := reader{b: b}
	head := string(b)
	s := &columnSet{head: head, traits: Traits(r.byte())}
	n := r.count(3) // the shortest column is flags and two empty texts
	if r.bad || n > maxColumns || s.traits&^traitsAll != 0 {
		return nil, ErrCorrupt
	}
	text := func() string {
		n := len(r.text())
		return head[r.pos-n : r.pos]
	}
	s.cols, s.names = make([]Column, n), make([]string, n)
	for i := range s.cols {
		c := &s.cols[i]
		f := r.byte()
		c.HasDatabaseType = f&colHasDatabaseType != 0
		c.HasLength = f&colHasLength != 0
		c.Nullable = f&colNullable != 0
		c.HasNullable = f&colHasNullable != 0
		c.HasPrecisionScale = f&colHasPrecisionScale != 0
		c.Name = text()
		c.DatabaseType = text()
		if f&colScanType != 0 {
			t, name := r.scanType()
			if r.bad {
				return nil, ErrCorrupt
			}
			if t == nil {
				return nil, &UnknownTypeError{Column: c.Name, Type: name}
			}
			c.ScanType = t
		}
		if f&colLength != 0 {
			c.Length = r.varint()
		}
		if f&colPrecisionScale != 0 {
			c.Precision = r.varint()
			c.Scale = r.varint()
		}
		if r.bad {
			return nil, ErrCorrupt
		}
		s.names[i] = c.Name
	}
	if r.left() != 0 {
		return nil, ErrCorrupt
	}
	return s, nil
}

// Limits of the table of shared column sets: about 2 MiB of heap in all, of
// which no one set takes much.
const (
	internMaxBytes = 2 << 20
	internMaxHead  = 8 << 10
)

// interned is the table of column sets that results share, by their encoding.
// The columns of a one-row result are several times larger than its row, and
// every key of a query has the same ones.
//
// Nothing leaves the table: a set that were dropped would live on in results
// that do not answer for its size. So that texts made up per query do not fill
// it, a set is admitted when it is seen twice with not too many others between;
// when the table is full, results carry, and answer for, columns of their own.
var interned = struct {
	sync.RWMutex
	sets  map[string]*columnSet
	bytes int64
	seen  [1024]uint32 // hashes of the sets seen once
}{sets: map[string]*columnSet{}}

var internSeed = maphash.MakeSeed()

// internedColumns returns the columns that head encodes.
func internedColumns(head []byte) (*columnSet, error) {
	interned.RLock()
	s := interned.sets[string(head)] // does not allocate
	interned.RUnlock()
	if s != nil {
		return s, nil
	}
	s, err := parseHead(head)
	if err != nil {
		return nil, err
	}
	s.size = s.heap()
	if len(head) > internMaxHead {
		return s, nil
	}
	h := maphash.Bytes(internSeed, head)
	interned.Lock()
	defer interned.Unlock()
	if other := interned.sets[s.head]; other != nil {
		return other, nil // another goroutine was first
	}
	slot := &interned.seen[h%uint64(len(interned.seen))]
	if mark := uint32(h>>32) | 1; *slot != mark {
		*slot = mark
		return s, nil
	}
	if interned.bytes+s.size <= internMaxBytes {
		interned.bytes += s.size
		interned.sets[s.head] = s
		s.size = 0
	}
	return s, nil
}
