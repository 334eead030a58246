package sqlherd_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// many answers n rows of size bytes each, made when they are read.
func many(n, size int) func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
	return func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		return &fakeResult{cols: []string{"i", "v"}, count: n, make: func(i int) []driver.Value {
			return []driver.Value{int64(i), bytes.Repeat([]byte{byte(i)}, size)}
		}}, nil
	}
}

// readMany reads what many answers and checks every row.
func readMany(rows *sql.Rows, n, size int) error {
	defer rows.Close()
	for i := range n {
		if !rows.Next() {
			return fmt.Errorf("%d rows, want %d, %v", i, n, rows.Err())
		}
		var num int
		var raw sql.RawBytes
		if err := rows.Scan(&num, &raw); err != nil {
			return err
		}
		if num != i || len(raw) != size || raw[0] != byte(i) || raw[size-1] != byte(i) {
			return fmt.Errorf("row %d holds number %d and %d bytes of %d", i, num, len(raw), raw[0])
		}
	}
	if rows.Next() {
		return errors.New("a row too many")
	}
	return rows.Err()
}

func TestAResultOverItsCapsComesWholeAndIsNotStoredAndNobodyQueuesBehindIt(t *testing.T) {
	for name, c := range map[string]struct {
		n, size int
		hint    string
	}{
		"10001 rows":  {10_001, 8, "max-rows=10000 max-bytes=8388608"},
		"2 MiB":       {2048, 1024, "max-bytes=1048576"},
		"one big row": {3, 1 << 20, "max-bytes=1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFakeDB(t, nil)
				db.handle = func(ctx context.Context, q string, args []driver.NamedValue) (*fakeResult, error) {
					if err := sleep(ctx, 100*time.Millisecond); err != nil {
						return nil, err
					}
					return many(c.n, c.size)(ctx, q, args)
				}
				p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
				query := `SELECT /* @cache ttl=1h ` + c.hint + ` */ i, v FROM t`
				read := func() sqlherd.Info {
					var info sqlherd.Info
					rows, err := p.QueryContext(sqlherd.WithInfo(t.Context(), &info), query)
					if err == nil {
						err = readMany(rows, c.n, c.size)
					}
					if err != nil {
						t.Error(err)
					}
					return info
				}
				// Five at once: one of them gets the load's rows, the others run their own, at once.
				began := time.Now()
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						if i := read(); i.Outcome != sqlherd.Bypassed || i.Reason != sqlherd.ReasonSize {
							t.Errorf("%v, %v; want a bypass because of the size", i.Outcome, i.Reason)
						}
					})
				}
				wg.Wait()
				if d := time.Since(began); d != 200*time.Millisecond {
					t.Errorf("the last had its rows after %v, want 200ms", d)
				}
				if n := db.queries.Load(); n != 5 {
					t.Errorf("%d queries, want 5", n)
				}
				// Those who come later do not queue at all.
				began = time.Now()
				for range 5 {
					wg.Go(func() { read() })
				}
				wg.Wait()
				if d := time.Since(began); d != 100*time.Millisecond {
					t.Errorf("later callers waited %v, want 100ms", d)
				}
				st := h.Stats()
				if st.Reasons[sqlherd.ReasonSize] != 10 || st.MemoryEntries != 0 || st.Loads != 1 {
					t.Errorf("reasons %v, %d entries, %d loads; want size ten times, none, one", st.Reasons, st.MemoryEntries, st.Loads)
				}
			})
		})
	}
}

func TestAResultOverOneCallersCapsIsCachedForAnotherWithLargerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB(t, many(100, 10))
		p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
		for i, c := range []struct {
			caps string
			want sqlherd.Outcome
		}{
			{"max-rows=50", sqlherd.Bypassed}, {"max-rows=50", sqlherd.Bypassed}, {"max-rows=40", sqlherd.Bypassed},
			{"max-rows=200", sqlherd.Miss}, {"max-rows=200", sqlherd.Hit},
		} {
			var info sqlherd.Info
			rows, err := p.QueryContext(sqlherd.WithInfo(t.Context(), &info), `SELECT /* @cache ttl=1h `+c.caps+` */ i, v FROM t`)
			if err == nil {
				err = readMany(rows, 100, 10)
			}
			if err != nil || info.Outcome != c.want {
				t.Errorf("%d, %s: %v, %v; want %v", i, c.caps, info.Outcome, err, c.want)
			}
		}
		if n := h.Stats().Loads; n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
	})
}

func TestAResultOverItsCapsIsStreamedAndNotHeld(t *testing.T) {
	const n, size = 200_000, 1000 // 200 MB
	db := newFakeDB(t, many(n, size))
	p, _ := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	rows, err := p.Query(`SELECT /* @cache ttl=1h max-bytes=1048576 */ i, v FROM t`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	ahead := db.pulled.Load()
	if ahead > 1100 {
		t.Errorf("%d rows were read before the first was asked for, want about 1 MiB of them", ahead)
	}
	var peak uint64
	read := int64(0)
	for rows.Next() {
		read++
		if got := db.pulled.Load() - read; got > ahead {
			t.Fatalf("%d rows were read ahead at row %d", got, read)
		}
		if read%20_000 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}
	if read != n || rows.Err() != nil {
		t.Errorf("%d rows, %v", read, rows.Err())
	}
	if peak > 64<<20 {
		t.Errorf("%d MiB held while 200 MB were streamed", peak>>20)
	}
}

func TestRowsOverTheCapsKeepTheirColumnTypes(t *testing.T) {
	for n := range 64 {
		s := shapeOf("contexts", "contexts")
		s.name = fmt.Sprintf("subset of getters #%d", n)
		db := &shapeDB{shape: s}
		h := newHerd(t, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
		query := `SELECT /* @cache ttl=1m max-rows=1 */ types FROM t`
		got := tellRows(openPool(t, h.Connector(db)).Query(query))
		if bare := tellRows(openPool(t, db).Query(query)); got != bare {
			t.Errorf("%s: got %s, want %s", s.name, got, bare)
		}
		if st := h.Stats(); st.Reasons[sqlherd.ReasonSize] != 1 {
			t.Errorf("reasons %v", st.Reasons)
		}
	}
}

func TestTwoResultSetsBothArriveAndAreNotCached(t *testing.T) {
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		first := rowsOf([]string{"a"}, []driver.Value{"1"}, []driver.Value{"2"})
		first.next = rowsOf([]string{"b", "c"}, []driver.Value{"3", []byte("4")})
		return first, nil
	})
	p, h := openHerd(t, db, sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	for range 2 {
		var info sqlherd.Info
		got := tellRows(p.QueryContext(sqlherd.WithInfo(t.Context(), &info), hinted))
		for _, part := range []string{`["a"]`, `"1"`, `"2"`, `["b" "c"]`, `"3"`, "0x34", "err ok close ok"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s is missing in %s", part, got)
			}
		}
		if info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonMulti {
			t.Errorf("%v, %v; want a bypass because of two result sets", info.Outcome, info.Reason)
		}
	}
	if n := h.Stats().MemoryEntries; n != 0 {
		t.Errorf("%d entries", n)
	}
}

type ownType struct{ n int }

func TestAValueOfAnUnknownTypePassesThroughUnchangedAndIsNotCached(t *testing.T) {
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		return rowsOf([]string{"v", "w"},
			[]driver.Value{"known", []byte("first")},
			[]driver.Value{ownType{7}, []byte("second")},
			[]driver.Value{"known", []byte("third")}), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	for range 2 {
		var info sqlherd.Info
		rows, err := p.QueryContext(sqlherd.WithInfo(t.Context(), &info), hinted)
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		for rows.Next() {
			var v, w any
			if err := rows.Scan(&v, &w); err != nil {
				t.Fatal(err)
			}
			got = append(got, v, string(w.([]byte)))
		}
		if fmt.Sprint(got) != "[known first {7} second known third]" || rows.Err() != nil {
			t.Errorf("got %v, %v", got, rows.Err())
		}
		if _, ok := got[2].(ownType); !ok {
			t.Errorf("the value became a %T", got[2])
		}
		if info.Outcome != sqlherd.Bypassed || info.Reason != sqlherd.ReasonType {
			t.Errorf("%v, %v; want a bypass because of the type", info.Outcome, info.Reason)
		}
	}
}

// Who reads a result that is too large to keep, reads it from a connection of the loader, for as long as it likes.
func TestSlowReadersOfLargeResultsLeaveRoomForLoads(t *testing.T) {
	for _, maxLoads := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("MaxLoads ", maxLoads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFakeDB(t, func(ctx context.Context, query string, args []driver.NamedValue) (*fakeResult, error) {
					if strings.Contains(query, "large") {
						return many(100, 10)(ctx, query, args)
					}
					return one("rows"), nil
				})
				p, h := openHerd(t, db, sqlherd.Config{MaxLoads: maxLoads, LoadTimeout: time.Second})
				for i := range 2 * maxLoads {
					rows, err := p.QueryContext(t.Context(), fmt.Sprintf("SELECT /* @cache max-rows=10 */ large, %d FROM t", i))
					if err != nil {
						t.Fatal(err)
					}
					defer rows.Close()
					n := 0
					for rows.Next() {
						if n++; n == 20 {
							// In the middle of its own rows, as a handler does.
							if v, err := queryOne(t.Context(), p, fmt.Sprintf("SELECT /* @cache */ v, %d FROM t", i)); v != "rows" || err != nil {
								t.Errorf("with %d large results open: %q, %v", i+1, v, err)
							}
							break
						}
					}
					if n != 20 {
						t.Fatalf("%d rows", n)
					}
				}
				if n, most := h.Stats().LoaderPools[0].InUse, maxLoads/2; n != most {
					t.Errorf("%d of the loader's connections are lent, want %d", n, most)
				}
			})
		})
	}
}

func TestAStreamThatIsNotReadToItsEndGivesItsConnectionBack(t *testing.T) {
	for name, leave := range map[string]func(rows *sql.Rows, cancel context.CancelFunc){
		"closed early":   func(rows *sql.Rows, _ context.CancelFunc) { rows.Next(); rows.Close() },
		"closed at once": func(rows *sql.Rows, _ context.CancelFunc) { rows.Close() },
		"cancelled":      func(rows *sql.Rows, cancel context.CancelFunc) { rows.Next(); cancel() },
		"read": func(rows *sql.Rows, _ context.CancelFunc) {
			for rows.Next() {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFakeDB(t, many(100, 10))
				p, h := openHerd(t, db, sqlherd.Config{MaxLoads: 2})
				for i := range 5 {
					ctx, cancel := context.WithCancel(t.Context())
					rows, err := p.QueryContext(ctx, fmt.Sprintf(`SELECT /* @cache ttl=1h max-rows=10 */ i, v, %d FROM t`, i))
					if err != nil {
						t.Fatal(err)
					}
					leave(rows, cancel)
					synctest.Wait()
					if n := h.Stats().LoaderPools[0].InUse; n != 0 {
						t.Fatalf("%d loader connections in use", n)
					}
					cancel()
				}
				if n := db.closes.Load(); n != 5 {
					t.Errorf("%d rows were closed, want 5", n)
				}
			})
		})
	}
	t.Run("its caller has left before it came", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// The driver ignores its context, so that the load goes on when its only caller has left.
			db := newFakeDB(t, func(ctx context.Context, q string, args []driver.NamedValue) (*fakeResult, error) {
				time.Sleep(time.Second)
				return many(100, 10)(ctx, q, args)
			})
			p, h := openHerd(t, db, sqlherd.Config{MaxLoads: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := p.QueryContext(ctx, `SELECT /* @cache ttl=1h max-rows=10 */ i, v FROM t`); !errors.Is(err, context.DeadlineExceeded) { //nolint:rowserrcheck,sqlclosecheck // there are none
				t.Fatalf("got %v", err)
			}
			time.Sleep(10 * time.Second)
			if n := h.Stats().LoaderPools[0].InUse; n != 0 {
				t.Errorf("%d loader connections in use", n)
			}
		})
	})
}

func TestRowsThatFailLateAreReadUpToTheirErrorAsOnTheBareDriver(t *testing.T) {
	late := errors.New("disk on fire")
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		r := rowsOf([]string{"v"}, []driver.Value{"1"}, []driver.Value{[]byte("2")})
		r.failAt, r.fail = 2, late
		return r, nil
	})
	p, h := openHerd(t, db, sqlherd.Config{})
	bare := openPool(t, fakeConnector{db})
	for _, pool := range []*sql.DB{bare, p} {
		for range 3 {
			if got, wantRows := tellRows(pool.Query(hinted)), tellRows(bare.Query(hinted)); got != wantRows {
				t.Errorf("got %s, want %s", got, wantRows)
			}
			if v, err := queryOne(t.Context(), pool, hinted); v != "1" || err != nil {
				t.Errorf("QueryRow gave %q, %v", v, err)
			}
		}
	}
	if n := h.Stats().MemoryEntries; n != 0 {
		t.Errorf("%d entries", n)
	}
}

func TestWhatOneReaderWritesIntoItsRowsNobodyElseSees(t *testing.T) {
	const size = 100
	db := newFakeDB(t, many(50, size))
	p, _ := openHerd(t, db, sqlherd.Config{})
	query := `SELECT /* @cache ttl=1h */ i, v FROM t`
	var wg sync.WaitGroup
	var read atomic.Int64
	for range 10 {
		wg.Go(func() {
			for range 20 {
				rows, err := p.Query(query)
				if err != nil {
					t.Error(err)
					return
				}
				for rows.Next() {
					var i int
					var raw sql.RawBytes
					if err := rows.Scan(&i, &raw); err != nil {
						t.Error(err)
					}
					if len(raw) != size || bytes.Count(raw, []byte{byte(i)}) != size {
						t.Errorf("row %d was spoiled: %q", i, raw)
					}
					for j := range raw {
						raw[j] = 'X' // a reader must not; one does
					}
					_ = append(raw, "beyond the end"...)
					read.Add(1)
				}
				rows.Close()
			}
		})
	}
	wg.Wait()
	if read.Load() != 10*20*50 {
		t.Errorf("%d rows read", read.Load())
	}
	if n := db.queries.Load(); n != 1 {
		t.Errorf("%d queries", n)
	}
}

func TestEmptyBytesNilBytesAndNULLStayApart(t *testing.T) {
	values := []driver.Value{[]byte{}, []byte(nil), nil, "", []byte("x"), time.Time{}, false, int64(0)}
	db := newFakeDB(t, func(context.Context, string, []driver.NamedValue) (*fakeResult, error) {
		return rowsOf([]string{"a", "b", "c", "d", "e", "f", "g", "h"}, values), nil
	})
	p, _ := openHerd(t, db, sqlherd.Config{})
	bare := openPool(t, fakeConnector{db})
	scan := func(pool *sql.DB) (out string) {
		dest := make([]any, len(values))
		ptrs := make([]any, len(values))
		raws := make([]sql.RawBytes, len(values))
		rawPtrs := make([]any, len(values))
		for i := range dest {
			ptrs[i], rawPtrs[i] = &dest[i], &raws[i]
		}
		rows, err := pool.Query(hinted)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		rows.Next()
		if err := rows.Scan(ptrs...); err != nil {
			t.Fatal(err)
		}
		for _, v := range dest {
			out += fmt.Sprintf("%T %#v; ", v, v)
		}
		if err := rows.Scan(rawPtrs...); err != nil {
			t.Fatal(err)
		}
		for _, r := range raws {
			out += fmt.Sprintf("%v %q; ", r == nil, r)
		}
		return out
	}
	wantScan := scan(bare)
	for range 2 {
		if got := scan(p); got != wantScan {
			t.Errorf("\n got %s\nwant %s", got, wantScan)
		}
	}
}
