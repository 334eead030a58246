//go:build !cgo

package integration_test

func addAsCgo(*sight, string, error) {}

func (*sight) assertedCgo(string, error) bool { return false }
