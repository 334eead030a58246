package sqlherd_test

import "database/sql/driver"

// subset returns r with one of the 64 subsets of the optional interfaces of driver.Rows: the bits are type name, scan type, length,
// nullable, precision and scale, next result set. Methods cannot be had at run time, so each subset is spelled out.
func (r *shapeRows) subset(n int) driver.Rows {
	p, t, k, l, u, s, x := plainRows{r}, typeName{r}, scanKind{r}, lengths{r}, nullables{r}, precision{r}, nextSet{r}
	switch n & 63 {
	case 1:
		return struct {
			plainRows
			typeName
		}{p, t}
	case 2:
		return struct {
			plainRows
			scanKind
		}{p, k}
	case 3:
		return struct {
			plainRows
			typeName
			scanKind
		}{p, t, k}
	case 4:
		return struct {
			plainRows
			lengths
		}{p, l}
	case 5:
		return struct {
			plainRows
			typeName
			lengths
		}{p, t, l}
	case 6:
		return struct {
			plainRows
			scanKind
			lengths
		}{p, k, l}
	case 7:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
		}{p, t, k, l}
	case 8:
		return struct {
			plainRows
			nullables
		}{p, u}
	case 9:
		return struct {
			plainRows
			typeName
			nullables
		}{p, t, u}
	case 10:
		return struct {
			plainRows
			scanKind
			nullables
		}{p, k, u}
	case 11:
		return struct {
			plainRows
			typeName
			scanKind
			nullables
		}{p, t, k, u}
	case 12:
		return struct {
			plainRows
			lengths
			nullables
		}{p, l, u}
	case 13:
		return struct {
			plainRows
			typeName
			lengths
			nullables
		}{p, t, l, u}
	case 14:
		return struct {
			plainRows
			scanKind
			lengths
			nullables
		}{p, k, l, u}
	case 15:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			nullables
		}{p, t, k, l, u}
	case 16:
		return struct {
			plainRows
			precision
		}{p, s}
	case 17:
		return struct {
			plainRows
			typeName
			precision
		}{p, t, s}
	case 18:
		return struct {
			plainRows
			scanKind
			precision
		}{p, k, s}
	case 19:
		return struct {
			plainRows
			typeName
			scanKind
			precision
		}{p, t, k, s}
	case 20:
		return struct {
			plainRows
			lengths
			precision
		}{p, l, s}
	case 21:
		return struct {
			plainRows
			typeName
			lengths
			precision
		}{p, t, l, s}
	case 22:
		return struct {
			plainRows
			scanKind
			lengths
			precision
		}{p, k, l, s}
	case 23:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			precision
		}{p, t, k, l, s}
	case 24:
		return struct {
			plainRows
			nullables
			precision
		}{p, u, s}
	case 25:
		return struct {
			plainRows
			typeName
			nullables
			precision
		}{p, t, u, s}
	case 26:
		return struct {
			plainRows
			scanKind
			nullables
			precision
		}{p, k, u, s}
	case 27:
		return struct {
			plainRows
			typeName
			scanKind
			nullables
			precision
		}{p, t, k, u, s}
	case 28:
		return struct {
			plainRows
			lengths
			nullables
			precision
		}{p, l, u, s}
	case 29:
		return struct {
			plainRows
			typeName
			lengths
			nullables
			precision
		}{p, t, l, u, s}
	case 30:
		return struct {
			plainRows
			scanKind
			lengths
			nullables
			precision
		}{p, k, l, u, s}
	case 31:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			nullables
			precision
		}{p, t, k, l, u, s}
	case 32:
		return struct {
			plainRows
			nextSet
		}{p, x}
	case 33:
		return struct {
			plainRows
			typeName
			nextSet
		}{p, t, x}
	case 34:
		return struct {
			plainRows
			scanKind
			nextSet
		}{p, k, x}
	case 35:
		return struct {
			plainRows
			typeName
			scanKind
			nextSet
		}{p, t, k, x}
	case 36:
		return struct {
			plainRows
			lengths
			nextSet
		}{p, l, x}
	case 37:
		return struct {
			plainRows
			typeName
			lengths
			nextSet
		}{p, t, l, x}
	case 38:
		return struct {
			plainRows
			scanKind
			lengths
			nextSet
		}{p, k, l, x}
	case 39:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			nextSet
		}{p, t, k, l, x}
	case 40:
		return struct {
			plainRows
			nullables
			nextSet
		}{p, u, x}
	case 41:
		return struct {
			plainRows
			typeName
			nullables
			nextSet
		}{p, t, u, x}
	case 42:
		return struct {
			plainRows
			scanKind
			nullables
			nextSet
		}{p, k, u, x}
	case 43:
		return struct {
			plainRows
			typeName
			scanKind
			nullables
			nextSet
		}{p, t, k, u, x}
	case 44:
		return struct {
			plainRows
			lengths
			nullables
			nextSet
		}{p, l, u, x}
	case 45:
		return struct {
			plainRows
			typeName
			lengths
			nullables
			nextSet
		}{p, t, l, u, x}
	case 46:
		return struct {
			plainRows
			scanKind
			lengths
			nullables
			nextSet
		}{p, k, l, u, x}
	case 47:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			nullables
			nextSet
		}{p, t, k, l, u, x}
	case 48:
		return struct {
			plainRows
			precision
			nextSet
		}{p, s, x}
	case 49:
		return struct {
			plainRows
			typeName
			precision
			nextSet
		}{p, t, s, x}
	case 50:
		return struct {
			plainRows
			scanKind
			precision
			nextSet
		}{p, k, s, x}
	case 51:
		return struct {
			plainRows
			typeName
			scanKind
			precision
			nextSet
		}{p, t, k, s, x}
	case 52:
		return struct {
			plainRows
			lengths
			precision
			nextSet
		}{p, l, s, x}
	case 53:
		return struct {
			plainRows
			typeName
			lengths
			precision
			nextSet
		}{p, t, l, s, x}
	case 54:
		return struct {
			plainRows
			scanKind
			lengths
			precision
			nextSet
		}{p, k, l, s, x}
	case 55:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			precision
			nextSet
		}{p, t, k, l, s, x}
	case 56:
		return struct {
			plainRows
			nullables
			precision
			nextSet
		}{p, u, s, x}
	case 57:
		return struct {
			plainRows
			typeName
			nullables
			precision
			nextSet
		}{p, t, u, s, x}
	case 58:
		return struct {
			plainRows
			scanKind
			nullables
			precision
			nextSet
		}{p, k, u, s, x}
	case 59:
		return struct {
			plainRows
			typeName
			scanKind
			nullables
			precision
			nextSet
		}{p, t, k, u, s, x}
	case 60:
		return struct {
			plainRows
			lengths
			nullables
			precision
			nextSet
		}{p, l, u, s, x}
	case 61:
		return struct {
			plainRows
			typeName
			lengths
			nullables
			precision
			nextSet
		}{p, t, l, u, s, x}
	case 62:
		return struct {
			plainRows
			scanKind
			lengths
			nullables
			precision
			nextSet
		}{p, k, l, u, s, x}
	case 63:
		return struct {
			plainRows
			typeName
			scanKind
			lengths
			nullables
			precision
			nextSet
		}{p, t, k, l, u, s, x}
	}
	return p
}
