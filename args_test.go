package sqlherd_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// jsonMap is a driver.Valuer by reference, as ORMs have them.
type jsonMap map[string]any

func (m jsonMap) Value() (driver.Value, error) {
	b, err := json.Marshal(m)
	return string(b), err
}

// listValuer is a struct with a list.
type listValuer struct{ List []string }

func (l listValuer) Value() (driver.Value, error) { return fmt.Sprint(l.List), nil }

func TestArgumentsThatAreChangedAfterACancelledCallDoNotReachTheLoad(t *testing.T) {
	for name, c := range map[string]struct {
		arg    func() (arg any, change func())
		arrive string
	}{
		"[]byte": {func() (any, func()) {
			b := []byte("before")
			return b, func() { copy(b, "AFTER!") }
		}, "before"},
		"json.RawMessage": {func() (any, func()) {
			b := json.RawMessage(`"before"`)
			return b, func() { copy(b, `"AFTER!"`) }
		}, `"before"`},
		"pointer to a string": {func() (any, func()) {
			s := "before"
			return &s, func() { s = "after" }
		}, "before"},
		"pointer to bytes": {func() (any, func()) {
			b := []byte("before")
			return &b, func() { copy(b, "AFTER!") }
		}, "before"},
		"pointer to a Valuer": {func() (any, func()) {
			s := sql.NullString{String: "before", Valid: true}
			return &s, func() { s.String = "after" }
		}, "before"},
		"map": {func() (any, func()) {
			m := jsonMap{"a": "before", "b": map[string]any{"c": "before"}}
			return m, func() { m["a"] = "after"; m["b"].(map[string]any)["c"] = "after" }
		}, `{"a":"before","b":{"c":"before"}}`},
		"struct with a list": {func() (any, func()) {
			l := listValuer{List: []string{"before"}}
			return l, func() { l.List[0] = "after" }
		}, "[before]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var arrived []string
				db := newFakeDB(t, func(ctx context.Context, q string, args []driver.NamedValue) (*fakeResult, error) {
					if err := sleep(ctx, time.Second); err != nil {
						return nil, err
					}
					for _, a := range args {
						mu.Lock()
						arrived = append(arrived, fmt.Sprintf("%s", a.Value))
						mu.Unlock()
					}
					return one("rows"), nil
				})
				// One load at a time: the second one converts its arguments only when the first is over.
				p, _ := openHerd(t, db, sqlherd.Config{MaxLoads: 1})
				query := `SELECT /* @cache ttl=1m swr=1m */ v FROM t WHERE a = ?`
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := queryOne(t.Context(), p, hinted); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				arg, change := c.arg()
				other, _ := c.arg()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				wg.Go(func() {
					if _, err := queryOne(ctx, p, query, arg); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
					change()
				})
				synctest.Wait()
				wg.Go(func() { // keeps the load alive
					if _, err := queryOne(t.Context(), p, query, other); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
				if len(arrived) != 1 || arrived[0] != c.arrive {
					t.Errorf("the load was sent %q, want %q", arrived, c.arrive)
				}
			})
		})
	}
}

func TestArgumentsOfDifferentTypesAreDifferentQueries(t *testing.T) {
	when := time.Date(2024, 7, 1, 12, 0, 0, 1, time.UTC)
	db := newFakeDB(t, func(_ context.Context, _ string, args []driver.NamedValue) (*fakeResult, error) {
		var b bytes.Buffer
		for _, a := range args {
			fmt.Fprintf(&b, "%T %#v|", a.Value, a.Value)
		}
		return one(b.String()), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	lists := [][]any{
		{int64(1)}, {int32(1)}, {uint64(1)}, {1.0}, {float32(1)}, {"1"}, {[]byte("1")}, {true}, {nil}, {""}, {[]byte{}}, {[]byte(nil)},
		{0}, {"0"}, {false}, {math.NaN()}, {math.Copysign(0, -1)}, {0.0}, {sql.NullString{}}, {sql.NullInt64{}},
		{when}, {when.In(time.FixedZone("", 3600))}, {when.Add(1)},
		{"a b", "c"}, {"a", "b c"}, {"a", "b", "c"}, {"a b c"}, {"ab", ""}, {"", "ab"}, {"a\x00", "b"}, {"a", "\x00b"}, {},
	}
	keys := make(map[string]int)
	for round, o := range []sqlherd.Outcome{sqlherd.Miss, sqlherd.Hit} {
		for i, args := range lists {
			var info sqlherd.Info
			if _, err := queryOne(sqlherd.WithInfo(t.Context(), &info), p, hinted, args...); err != nil {
				t.Fatal(err)
			}
			if info.Outcome != o {
				t.Errorf("%#v: %v in round %d, want %v", args, info.Outcome, round, o)
			}
			if other, ok := keys[info.Key]; ok && other != i {
				t.Errorf("%#v and %#v have one key", args, lists[other])
			}
			keys[info.Key] = i
		}
	}
}

func TestNamedArgumentsAreKeyedByTheirNames(t *testing.T) {
	db := newFakeDB(t, func(_ context.Context, _ string, args []driver.NamedValue) (*fakeResult, error) {
		vals := make(map[string]int64)
		for _, a := range args {
			vals[a.Name] = a.Value.(int64)
		}
		return one(fmt.Sprint(vals["a"] - vals["b"])), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	query := `SELECT /* @cache ttl=1m */ :a - :b FROM t`
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{sql.Named("a", 5), sql.Named("b", 3)}, "2"},
		{[]any{sql.Named("a", 3), sql.Named("b", 5)}, "-2"},
		{[]any{sql.Named("b", 3), sql.Named("a", 5)}, "2"},
	} {
		for range 2 {
			if v, err := queryOne(t.Context(), p, query, c.args...); v != c.want || err != nil {
				t.Errorf("%v: %q, %v; want %s", c.args, v, err, c.want)
			}
		}
	}
}

func TestArgumentsThatCannotBeKeyedReachTheDriverAsTheyAre(t *testing.T) {
	db := &shapeDB{shape: shapeOf("everything", "everything")}
	h := newHerd(t, sqlherd.Config{})
	p := openPool(t, h.Connector(db))
	var out string
	for name, arg := range map[string]any{
		"output": sql.Out{Dest: &out},
		"map":    map[string]any{"secret": 1},
		"struct": removed{},
	} {
		var info sqlherd.Info
		rows, err := p.QueryContext(sqlherd.WithInfo(t.Context(), &info), `SELECT /* @cache ttl=1m */ ?, `+name+` FROM t`, arg)
		if err == nil {
			rows.Close()
		}
		if info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonArgs || info.Detail == "" {
			t.Errorf("%s: %v, %v, %q; want a bypass because of the argument", name, info.Outcome, info.Reason, info.Detail)
		}
	}
}
