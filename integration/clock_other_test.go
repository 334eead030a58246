//go:build !linux

package integration_test

import "time"

// monotonic reads the wall clock, where the other one is not at hand.
func monotonic() time.Duration { return time.Duration(time.Now().UnixNano()) }
