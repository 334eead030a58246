package sqlherd

import (
	"database/sql/driver"
	"testing"
)

// database/sql asks IsValid twice of a connection whose next user gave up at the last
// moment, without a ResetSession in between.
func TestAConnThatIsPutBackTwiceIsNotTakenFromItsNextUser(t *testing.T) {
	b := &budget{max: 1, open: 1}
	src := &source{budget: b}
	c := &conn{src: src, real: deadConn{}}
	for range 2 {
		if !c.IsValid() {
			t.Fatal("not valid")
		}
	}
	if err := c.ResetSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.takeLocked(false); d != nil {
		t.Error("the connection was taken while its conn was in use")
	}
}

type deadConn struct{ driver.Conn }
