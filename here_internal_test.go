package sqlherd

import (
	"context"
	"errors"
	"testing"
)

// The flight's goroutine may begin when the caller whose connection it is to use has left.
func TestALoadThatBeginsAfterItsCallerHasLeftDoesNotTouchTheConnection(t *testing.T) {
	here := &hereLoad{c: &conn{}} // without a source: any use of it would panic
	here.wait()
	if _, err := here.load(context.Background()); !errors.Is(err, errElsewhere) {
		t.Errorf("got %v, want that somebody else leads", err)
	}
}
