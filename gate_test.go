package sqlherd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAGateShutsAfterThreeFailuresAndLetsOneCallASecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		failed := errors.New("READONLY")
		passed := func(calls int, result error) (n int) {
			for range calls {
				if g.allow() == nil {
					n++
					g.report(result)
				}
			}
			return n
		}
		if n := passed(2, failed) + passed(1, nil) + passed(2, failed); n != 5 {
			t.Errorf("%d of 5 calls passed though never three in a row failed", n)
		}
		if n := passed(10, failed); n != 1 {
			t.Errorf("%d calls passed after two failures, want the third one alone", n)
		}
		for range 3 {
			time.Sleep(breakerPause)
			if n := passed(10, failed); n != 1 {
				t.Errorf("%d calls passed in a second, want 1", n)
			}
		}
		time.Sleep(breakerPause)
		if n := passed(10, nil); n != 10 {
			t.Errorf("%d of 10 calls passed after Redis was well again", n)
		}
		if n := passed(10, callerLeft{context.Canceled}); n != 10 {
			t.Errorf("%d of 10 calls passed: callers who leave say nothing of Redis", n)
		}
	})
}
