// Package webhook lets other systems invalidate what sqlherd has cached, by an
// HTTP request: a change-data-capture pipeline, a batch job, a person with curl.
//
// It is a [http.Handler] and serves nothing by itself: nothing is open until the application mounts it.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sqlherd/sqlherd"
)

// Defaults and bounds of Config.
const (
	BodyBytesDefault = 1 << 20
	BodyBytesMax     = 64 << 20
	NamesMaxDefault  = 10_000

	// TokenBytesMin is the least length of a token; one made by openssl rand -hex 32 has 64.
	TokenBytesMin = 16
)

// An Invalidator is who is told: a *sqlherd.Herd. When it returns an error it must go on trying by itself, as a Herd does
// while Redis is away.
type Invalidator interface {
	Invalidate(ctx context.Context, tags ...string) error
	InvalidateSoft(ctx context.Context, tags ...string) error
	InvalidateTables(ctx context.Context, tables ...string) error
	InvalidateAll(ctx context.Context) error
}

// A Config says who may invalidate, and how much at once. It is copied by New.
type Config struct {
	// Tokens are what a caller may authenticate with, as Authorization: Bearer <token>. At least one; to rotate, have the new and the old one
	// here for a while. Each has at least TokenBytesMin bytes, of letters, digits and -._~+/= .
	Tokens []string

	// BodyBytes bounds the body of a request. At most BodyBytesMax. Defaults to BodyBytesDefault (1 MiB).
	BodyBytes int64

	// NamesMax bounds the tags and tables of a request together. Defaults to NamesMaxDefault (10,000).
	NamesMax int

	// Logger is told of refused tokens, at level Warn with the caller's address, and of every invalidation, at level Info with numbers. It is never given a token
	// or a tag. Defaults to slog.Default().
	Logger *slog.Logger
}

// A Handler answers POST requests whose body is a JSON object:
//
//	{"tags": ["product/7"], "tables": ["products"], "all": false, "soft": false}
//
// Each member may be left out, but something must be named, and each may be there once. soft is for tags alone: results become stale
// rather than dead, as by [sqlherd.Herd.InvalidateSoft]. Its answers are JSON objects too:
//
//	200 {"status":"done", …}         it is forgotten here and in Redis, hence in the fleet as after any write
//	202 {"status":"retrying", …}     it is forgotten in this process; Redis cannot be told now, and the Herd goes on trying. Do not repeat the request.
//	400, 413, 415, 405, 401 {"error":{"field":"tags[3]","message":"…"}}   nothing was done; field only where one is to blame
//
// It is safe for concurrent use. A request may be repeated: to forget twice does no harm.
type Handler struct {
	to     Invalidator
	tokens [][sha256.Size]byte
	cfg    Config
}

// New makes a Handler. It reports every invalid field of cfg by its name. There is no default token, and none may be empty.
func New(to Invalidator, cfg Config) (*Handler, error) {
	cfg.BodyBytes = cmp.Or(cfg.BodyBytes, BodyBytesDefault)
	cfg.NamesMax = cmp.Or(cfg.NamesMax, NamesMaxDefault)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Handler{to: to, cfg: cfg}
	var problems []error
	bad := func(field, problem string) {
		problems = append(problems, fmt.Errorf("sqlherd/webhook: Config.%s: %s", field, problem))
	}
	if to == nil {
		problems = append(problems, errors.New("sqlherd/webhook: New: there is nobody to tell: the Invalidator is nil"))
	}
	if len(cfg.Tokens) == 0 {
		bad("Tokens", "must have at least one token; without, anybody could empty the cache")
	}
	for i, token := range cfg.Tokens {
		// The token itself is in no message.
		field := fmt.Sprintf("Tokens[%d]", i)
		switch {
		case token == "":
			bad(field, "must not be empty")
		case len(token) < TokenBytesMin:
			bad(field, fmt.Sprintf("has %d bytes; must have at least %d", len(token), TokenBytesMin))
		case strings.ContainsFunc(token, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._~+/=", r))
		}):
			bad(field, "must be of letters, digits and -._~+/= alone, as RFC 6750 has it; is there a line break at its end?")
		}
		h.tokens = append(h.tokens, sha256.Sum256([]byte(token)))
	}
	if cfg.BodyBytes < 1 || cfg.BodyBytes > BodyBytesMax {
		bad("BodyBytes", fmt.Sprintf("%d must be between 1 and %d", cfg.BodyBytes, BodyBytesMax))
	}
	if cfg.NamesMax < 1 {
		bad("NamesMax", fmt.Sprintf("%d must be at least 1", cfg.NamesMax))
	}
	h.cfg.Tokens = nil
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return h, nil
}

// A request is the body.
type request struct {
	Tags, Tables []string
	All, Soft    bool
}

type reply struct {
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	Tags   int    `json:"tags"`
	Tables int    `json:"tables"`
	All    bool   `json:"all"`
	Soft   bool   `json:"soft"`
}

// A problem is why a request is refused.
type problem struct {
	status  int
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// ServeHTTP answers one request. It blocks for at most three round trips to Redis, each bounded by Config.RedisTimeout of the Herd.
// What it has begun it ends, also when the caller has gone.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// First of all, so that a stranger learns nothing else.
	if !h.authorized(r.Header.Values("Authorization")) {
		h.cfg.Logger.Warn("sqlherd/webhook: a request without a valid token was refused", "remote", r.RemoteAddr)
		w.Header().Set("WWW-Authenticate", `Bearer realm="sqlherd"`)
		refuse(w, problem{status: http.StatusUnauthorized, Message: "needs a valid token: Authorization: Bearer <token>"})
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, problem{status: http.StatusMethodNotAllowed, Message: "the method must be POST"})
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		refuse(w, problem{status: http.StatusUnsupportedMediaType, Message: "Content-Type must be application/json"})
		return
	}
	if r.Header.Get("Content-Encoding") != "" {
		refuse(w, problem{status: http.StatusUnsupportedMediaType, Message: "Content-Encoding must not be set"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.BodyBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, problem{status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body must have at most %d bytes", h.cfg.BodyBytes)})
		return
	} else if err != nil {
		refuse(w, problem{status: http.StatusBadRequest, Message: "the body could not be read to its end"})
		return
	}
	req, bad := h.parse(body)
	if bad != nil {
		refuse(w, *bad)
		return
	}

	out := reply{Status: "done", Tags: len(req.Tags), Tables: len(req.Tables), All: req.All, Soft: req.Soft}
	status := http.StatusOK
	if err := h.invalidate(context.WithoutCancel(r.Context()), req); err != nil {
		out.Status, status = "retrying", http.StatusAccepted
		out.Detail = "forgotten in this process; Redis could not be told, and is told in the background as soon as it answers"
		h.cfg.Logger.Warn("sqlherd/webhook: invalidated here; Redis is told later", "error", err, "tags", out.Tags, "tables", out.Tables, "all", out.All, "soft", out.Soft)
	} else {
		h.cfg.Logger.Info("sqlherd/webhook: invalidated", "tags", out.Tags, "tables", out.Tables, "all", out.All, "soft", out.Soft)
	}
	write(w, status, out)
}

// authorized compares with every token in full, so that the time tells neither which one was near nor how far.
func (h *Handler) authorized(headers []string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	found := 0
	for _, t := range h.tokens {
		found |= subtle.ConstantTimeCompare(sum[:], t[:])
	}
	return found == 1
}

func (h *Handler) parse(body []byte) (request, *problem) {
	refused := func(field, message string) (request, *problem) {
		return request{}, &problem{status: http.StatusBadRequest, Field: field, Message: message}
	}
	if !utf8.Valid(body) { // encoding/json would replace it, and so name another tag
		return refused("", "the body must be UTF-8")
	}
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return refused("", `the body must be a JSON object: {"tags":[…],"tables":[…],"all":true,"soft":true}`)
	}
	if !json.Valid(body) {
		return refused("", invalidJSON(body))
	}
	var req request
	members := map[string]struct {
		into any
		must string
	}{
		"tags":   {&req.Tags, "a list of strings"},
		"tables": {&req.Tables, "a list of strings"},
		"all":    {&req.All, "true or false"},
		"soft":   {&req.Soft, "true or false"},
	}
	// Member by member: of two with one name encoding/json would take the last, and what the first one names
	// would go on being served. What is read is valid, so that only types can be wrong.
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(body))
	_, _ = dec.Token()
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		member, known := members[name]
		if !known {
			return refused(name, "is not known; known are tags, tables, all and soft")
		}
		if seen[name] {
			return refused(name, "is there more than once")
		}
		seen[name] = true
		if err := dec.Decode(member.into); err != nil {
			if wrongType := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrongType) {
				return refused(name, fmt.Sprintf("must be %s; there is a JSON %s", member.must, wrongType.Value))
			}
			return refused(name, "must be "+member.must)
		}
	}
	if n := len(req.Tags) + len(req.Tables); n > h.cfg.NamesMax {
		return request{}, &problem{status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("%d tags and tables; must be at most %d in a request", n, h.cfg.NamesMax)}
	}
	// As the Herd would, which at the first wrong one leaves all out.
	for i, tag := range req.Tags {
		if message := wrong(tag, sqlherd.TagBytesMax); message != "" {
			return refused(fmt.Sprintf("tags[%d]", i), message)
		}
	}
	for i, table := range req.Tables {
		message := wrong(table, sqlherd.TableBytesMax)
		if message == "" && !endsWithName(table) {
			message = "must end with the name of a table"
		}
		if message != "" {
			return refused(fmt.Sprintf("tables[%d]", i), message)
		}
	}
	if len(req.Tags) == 0 && len(req.Tables) == 0 && !req.All {
		return refused("", "names nothing: give tags, tables, or all as true")
	}
	if req.Soft && (len(req.Tables) > 0 || req.All) {
		return refused("soft", "is for tags alone; send tables or all in a request of their own, without it")
	}
	return req, nil
}

// invalidJSON says what is wrong with a body that is no JSON, or has more than one value.
func invalidJSON(body []byte) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(new(json.RawMessage)); err != nil {
		return "the body is not valid JSON: " + err.Error()
	}
	return "there is something behind the JSON object"
}

// endsWithName says whether the last component of a table's name, without its quotes, is there.
func endsWithName(table string) bool {
	last, closing := 0, byte(0)
	for i := range len(table) {
		switch c := table[i]; {
		case closing != 0:
			if c == closing {
				closing = 0
			}
		case c == '"' || c == '`':
			closing = c
		case c == '[':
			closing = ']'
		case c == '.':
			last = i + 1
		}
	}
	switch table[last:] {
	case "", `""`, "``", "[]":
		return false
	}
	return true
}

func wrong(s string, most int) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > most:
		return fmt.Sprintf("must be at most %d bytes long", most)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "must not contain control characters"
	}
	return ""
}

func (h *Handler) invalidate(ctx context.Context, req request) error {
	if req.All {
		return h.to.InvalidateAll(ctx) // which is the others too
	}
	var problems [2]error
	switch {
	case len(req.Tags) == 0:
	case req.Soft:
		problems[0] = h.to.InvalidateSoft(ctx, req.Tags...)
	default:
		problems[0] = h.to.Invalidate(ctx, req.Tags...)
	}
	if len(req.Tables) > 0 {
		problems[1] = h.to.InvalidateTables(ctx, req.Tables...)
	}
	return errors.Join(problems[:]...)
}

func refuse(w http.ResponseWriter, p problem) {
	write(w, p.status, struct {
		Error problem `json:"error"`
	}{p})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller who has gone needs no answer
}
