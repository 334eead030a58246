//go:build cgo

package main

import "github.com/mattn/go-sqlite3"

// isSQLiteError says whether err is mattn/go-sqlite3's own, which has its type only where it has SQLite.
func isSQLiteError(err error) bool {
	_, ok := err.(sqlite3.Error)
	return ok
}
