//go:build cgo

package integration_test

import (
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

func TestBackupOfSQLiteWorksThroughRaw(t *testing.T) {
	from, to := newBed(t, dbtest.SQLiteCgo(t)), dbtest.SQLiteCgo(t)
	h := newHerd(t, sqlherd.Config{})
	src, dst := open(t, h, from.Database), open(t, h, to)
	sc, dc := conn(t, src), conn(t, dst)
	err := sqlherd.Raw(sc, func(s any) error {
		return sqlherd.Raw(dc, func(d any) error {
			backup, err := d.(*sqlite3.SQLiteConn).Backup("main", s.(*sqlite3.SQLiteConn), "main")
			if err != nil {
				return err
			}
			if done, err := backup.Step(-1); err != nil || !done {
				t.Errorf("step: %t, %v", done, err)
			}
			return backup.Finish()
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, dst, "3", sqlherd.Passthrough, "SELECT count(*) FROM items")
}
