package integration_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A result is all that an application can see of a query's answer.
type result struct {
	Columns []string
	Types   []string
	Rows    [][]string
	Err     string

	values [][]any // as they are, but for NaN, which is not equal to itself
}

// A preparer can prepare; so can a *sql.DB.
type preparer interface {
	querier
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// look runs a query and writes down everything that can be seen of the answer. prepared goes through a
// prepared statement.
func look(t *testing.T, q preparer, info *sqlherd.Info, prepared bool, query string, args ...any) result {
	t.Helper()
	ctx := sqlherd.WithInfo(withDeadline(t), info)
	var rows *sql.Rows
	var err error
	if prepared {
		var stmt *sql.Stmt
		if stmt, err = q.PrepareContext(ctx, query); err == nil {
			defer stmt.Close()
			rows, err = stmt.QueryContext(ctx, args...)
		}
	} else {
		rows, err = q.QueryContext(ctx, query, args...)
	}
	if err != nil {
		return result{Err: describeError(err)}
	}
	defer rows.Close()
	var r result
	if r.Columns, err = rows.Columns(); err != nil {
		t.Fatal(err)
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		t.Fatal(err)
	}
	for _, ct := range types {
		r.Types = append(r.Types, describeType(ct))
	}
	for rows.Next() {
		values := make([]any, len(r.Columns))
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		kept := slices.Clone(values)
		for i, v := range kept {
			if f, ok := v.(float64); ok && math.IsNaN(f) {
				kept[i] = "NaN"
			}
		}
		r.values = append(r.values, kept)
		raw := make([]sql.RawBytes, len(values))
		for i := range raw {
			into[i] = &raw[i]
		}
		rawErr := rows.Scan(into...)
		var row []string
		for i, v := range values {
			row = append(row, describe(v)+" raw "+describe([]byte(raw[i])))
		}
		if rawErr != nil {
			row = append(row, "raw: "+rawErr.Error())
		}
		r.Rows = append(r.Rows, row)
	}
	if err := rows.Err(); err != nil {
		r.Err = describeError(err)
	}
	return r
}

func describeError(err error) string { return fmt.Sprintf("%T %v", err, err) }

func describeType(ct *sql.ColumnType) string {
	length, hasLength := ct.Length()
	nullable, hasNullable := ct.Nullable()
	precision, scale, hasDecimal := ct.DecimalSize()
	return fmt.Sprintf("%q db=%q scan=%v length=%d,%t nullable=%t,%t decimal=%d,%d,%t", ct.Name(), ct.DatabaseTypeName(),
		ct.ScanType(), length, hasLength, nullable, hasNullable, precision, scale, hasDecimal)
}

// describe tells values apart that == or %v would not.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case float64:
		return fmt.Sprintf("float64 %v bits %x", v, math.Float64bits(v))
	case float32:
		return fmt.Sprintf("float32 %v bits %x", v, math.Float32bits(v))
	case time.Time:
		name, offset := v.Zone()
		return fmt.Sprintf("time.Time %s unix %d.%09d location %q zone %q %d == %v", v.Format(time.RFC3339Nano), v.Unix(), v.Nanosecond(),
			v.Location(), name, offset, v.Location() == time.UTC || v.Location() == time.Local)
	case []byte:
		if v == nil {
			return "[]byte nil"
		}
		if len(v) > 200 {
			return fmt.Sprintf("[]byte of %d, %x", len(v), bytesDigest(v))
		}
		return fmt.Sprintf("[]byte %q", v)
	case string:
		if len(v) > 200 {
			return fmt.Sprintf("string of %d, %x", len(v), bytesDigest([]byte(v)))
		}
		return fmt.Sprintf("string %q", v)
	}
	return fmt.Sprintf("%T %#v", v, v)
}

func bytesDigest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

func (r result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "columns %q\n", r.Columns)
	for _, t := range r.Types {
		fmt.Fprintf(&b, "  type %s\n", t)
	}
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "  row  %s\n", strings.Join(row, " | "))
	}
	if r.Err != "" {
		fmt.Fprintf(&b, "  error %s\n", r.Err)
	}
	return b.String()
}

// A probe is a query whose answer must be the same, wherever it comes from.
type probe struct {
	query string
	args  []any

	fails bool // on the bare driver too
}

// mistake is a probe of a query that fails.
func mistake(query string, args ...any) probe { return probe{query: query, args: args, fails: true} }

// expr is a probe of one expression, which is named for itself.
func expr(e string) probe { return probe{query: "SELECT " + e + " AS c"} }

func exprs(all ...string) (probes []probe) {
	for _, e := range all {
		probes = append(probes, expr(e))
	}
	return probes
}

// A ladder is the ways by which a result can come, all on one database and one Redis.
type ladder struct {
	d     dbtest.Database
	bare  *sql.DB
	first *sql.DB // misses, then hits from memory
	other *sql.DB // of another Herd: hits from Redis
}

func newLadder(t *testing.T, d dbtest.Database) ladder {
	rdb, ns := dbtest.Redis(t)
	cfg := sqlherd.Config{Redis: rdb, Namespace: ns, RedisTimeout: redisTimeout}
	l := ladder{d: d, bare: d.Open(t)}
	l.first, _ = openHerd(t, d, cfg)
	l.other, _ = openHerd(t, d, cfg)
	return l
}

// climb runs a probe on every rung and compares with the bare driver.
func (l ladder) climb(t *testing.T, p probe) {
	t.Helper()
	hinted := strings.Replace(p.query, "SELECT ", "SELECT /* @cache ttl=10m max-bytes=16MiB */ ", 1)
	for _, prepared := range []bool{false, true} {
		// Also the bare driver gets the hint, since errors quote the text and count columns.
		var none sqlherd.Info
		plain := look(t, l.bare, &none, prepared, p.query, p.args...)
		want := look(t, l.bare, &none, prepared, hinted, p.args...)
		if (want.Err != "") != p.fails {
			t.Errorf("%s, prepared %t: the bare driver says %s", p.query, prepared, want.Err)
		}
		if again := look(t, l.bare, &none, prepared, hinted, p.args...); !reflect.DeepEqual(again, want) {
			t.Errorf("%s: the bare driver answers differently each time:\n%v%v", p.query, want, again)
		}
		for _, rung := range []struct {
			name    string
			db      *sql.DB
			query   string
			outcome sqlherd.Outcome
		}{
			{"without a hint", l.first, p.query, sqlherd.Passthrough},
			{"miss", l.first, hinted, sqlherd.Miss},
			{"hit from memory", l.first, hinted, sqlherd.Hit},
			{"hit from Redis", l.other, hinted, sqlherd.Hit},
			{"hit from memory that came from Redis", l.other, hinted, sqlherd.Hit},
		} {
			var info sqlherd.Info
			got := look(t, rung.db, &info, prepared, rung.query, p.args...)
			outcome, want := rung.outcome, want
			if outcome == sqlherd.Passthrough {
				want = plain
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, prepared %t, %s\ngot  %vwant %v", p.query, prepared, rung.name, got, want)
			}
			if want.Err != "" && outcome != sqlherd.Passthrough {
				outcome = sqlherd.Miss
			}
			if info.Outcome != outcome {
				t.Errorf("%s, prepared %t, %s: outcome %v (%v %s), want %v", p.query, prepared, rung.name, info.Outcome, info.Reason, info.Detail, outcome)
			}
		}
	}
}

// twoBytesTheSame makes sure that describe itself can tell.
func TestTheComparisonOfResultsTellsThemApart(t *testing.T) {
	now := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	different := []any{
		nil, int64(1), int32(1), uint64(1), float64(1), float32(1), true, "1", []byte("1"), []byte{}, []byte(nil), "", math.Copysign(0, -1), 0.0,
		now, now.Local(), now.In(time.FixedZone("", 0)), now.In(time.FixedZone("UTC", 0)), now.In(time.FixedZone("", 5*3600+45*60)), now.Add(1),
		bytes.Repeat([]byte{1}, 300), bytes.Repeat([]byte{2}, 300),
	}
	seen := map[string]int{}
	for i, v := range different {
		if reflect.DeepEqual(v, now.Local()) && time.Local == time.UTC {
			continue
		}
		s := describe(v)
		if j, ok := seen[s]; ok && time.Local.String() != "UTC" {
			t.Errorf("%#v and %#v look the same: %s", different[j], v, s)
		}
		seen[s] = i
	}
}

func describeKind(v any) string { return fmt.Sprintf("%T", v) }
