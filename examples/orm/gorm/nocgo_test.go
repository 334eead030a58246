//go:build !cgo

package main

func isSQLiteError(error) bool { return false }
