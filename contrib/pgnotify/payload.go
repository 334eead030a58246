package pgnotify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	payloadVersion = 1

	// chunkBytes is where the tags of a statement are divided among notifications. The last tag of one may stand beyond
	// it, with all its bytes escaped twice as long: 5000 + 2·TagBytesMax and the frame stay below the 8000 that PostgreSQL allows.
	chunkBytes = 5000
)

// A payload is the text of a notification.
type payload struct {
	Version int      `json:"v"`
	All     bool     `json:"all,omitempty"`
	Tables  []string `json:"tables,omitempty"` // bare names
	Tags    []string `json:"tags,omitempty"`
	Probe   string   `json:"probe,omitempty"` // a listener's word to itself
}

func (p payload) String() string {
	p.Version = payloadVersion
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		panic("sqlherd/pgnotify: bug: " + err.Error())
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

func (p payload) empty() bool { return !p.All && len(p.Tables) == 0 && len(p.Tags) == 0 }

// parsePayload reads what anybody may have sent.
func parsePayload(s string) (payload, error) {
	var p payload
	dec := json.NewDecoder(bytes.NewReader([]byte(s)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return payload{}, fmt.Errorf("sqlherd/pgnotify: a notification that is none of ours: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return payload{}, errors.New("sqlherd/pgnotify: a notification with something behind it")
	}
	if p.Version != payloadVersion {
		return payload{}, fmt.Errorf("sqlherd/pgnotify: a notification of version %d; this listener knows %d", p.Version, payloadVersion)
	}
	if p.empty() && p.Probe == "" {
		return payload{}, errors.New("sqlherd/pgnotify: a notification of nothing")
	}
	return p, nil
}

// changed is what a statement tells that changed something; empty if it tells rows' tags alone.
func (t *table) changed() payload {
	p := payload{Tags: t.fixed}
	if !t.tagsOnly {
		p.Tables = []string{t.name}
	}
	return p
}

// many is what a statement tells whose rows cannot be told one by one, and what a
// listener assumes after it was away.
func (t *table) many() payload {
	switch {
	case !t.tagged():
		return t.changed()
	case t.groupTag == "":
		return payload{All: true}
	}
	return payload{Tables: []string{t.name}, Tags: append(append([]string(nil), t.fixed...), t.groupTag)}
}
