//go:build sqlherd_purego

package rowcodec_test

const pureGo = true
