//go:build go1.27

package sqlherd

var IsPlainType = isPlainType
