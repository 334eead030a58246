package sqlherd_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlherd/sqlherd"
)

// Memory looks a hit up with a key that is still in a buffer, which the next query writes over. A refresh that
// began at such a hit goes on for long after it, and must store under the key it began with.
func TestARefreshStoresUnderItsOwnKeyWhateverWasAskedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		generation := 1
		db := newFakeDB(t, func(ctx context.Context, _ string, args []driver.NamedValue) (*fakeResult, error) {
			if err := sleep(ctx, 300*time.Millisecond); err != nil {
				return nil, err
			}
			return one(fmt.Sprintf("%v of %d", args[0].Value, generation)), nil
		})
		app, _ := openHerd(t, db, sqlherd.Config{})
		ask := func(arg int) (v string) {
			t.Helper()
			// The rows are scanned after the key's buffer has gone back.
			if err := app.QueryRowContext(t.Context(), `SELECT /* @cache ttl=10s swr=1h jitter=0 early=off */ v FROM t WHERE id = $1`, arg).Scan(&v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		const keys = 50
		for arg := range keys {
			ask(arg)
		}
		generation = 2
		time.Sleep(30 * time.Second)
		for range 20 { // more than may refresh at once
			for arg := range keys {
				ask(arg)
			}
			time.Sleep(time.Second)
		}
		for arg := range keys {
			if got, want := ask(arg), fmt.Sprintf("%d of 2", arg); got != want {
				t.Errorf("after the refresh, %d reads %q; want %q", arg, got, want)
			}
		}
	})
}
