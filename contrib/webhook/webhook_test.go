package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/contrib/webhook"
)

const (
	token    = "0123456789abcdef-new"
	oldToken = "0123456789abcdef-old"
)

// notes is an Invalidator that takes down what it is told.
type notes struct {
	tags, tables, soft []string
	all                int
	err                error
	ctx                context.Context
}

func (n *notes) Invalidate(ctx context.Context, tags ...string) error {
	n.tags, n.ctx = append(n.tags, tags...), ctx
	return n.err
}

func (n *notes) InvalidateSoft(_ context.Context, tags ...string) error {
	n.soft = append(n.soft, tags...)
	return n.err
}

func (n *notes) InvalidateTables(_ context.Context, tables ...string) error {
	n.tables = append(n.tables, tables...)
	return n.err
}

func (n *notes) InvalidateAll(context.Context) error {
	n.all++
	return n.err
}

func (n *notes) any() bool { return len(n.tags)+len(n.tables)+len(n.soft)+n.all > 0 }

func newHandler(t testing.TB, to webhook.Invalidator, cfg webhook.Config) *webhook.Handler {
	t.Helper()
	if cfg.Tokens == nil {
		cfg.Tokens = []string{token, oldToken}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := webhook.New(to, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func post(body string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/invalidate", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	return r
}

func header(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

type answer struct {
	Status, Detail string
	Tags, Tables   int
	All, Soft      bool
	Error          struct{ Field, Message string }
}

func serve(t testing.TB, h http.Handler, r *http.Request) (*httptest.ResponseRecorder, answer) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	var a answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Errorf("the answer %q: %v", w.Body, err)
	}
	return w, a
}

func TestAnInvalidationReachesWhomItIsFor(t *testing.T) {
	for _, c := range []struct {
		body               string
		tags, tables, soft []string
		all                int
	}{
		{body: `{"tags":["a","b/1"]}`, tags: []string{"a", "b/1"}},
		{body: `{"tables":["products","shop.\"Odd.Name\""]}`, tables: []string{"products", `shop."Odd.Name"`}},
		{body: ` {"tags":["a"],"tables":["t"],"all":false} ` + "\n", tags: []string{"a"}, tables: []string{"t"}},
		{body: `{"all":true}`, all: 1},
		{body: `{"all":true,"tags":["a"]}`, all: 1}, // one of everything is enough
		{body: `{"tags":["a","b"],"soft":true}`, soft: []string{"a", "b"}},
		{body: `{"soft":false,"tags":["a"],"tables":["t"]}`, tags: []string{"a"}, tables: []string{"t"}},
		{body: `{"soft":null,"all":true}`, all: 1},
		{body: `{"tags":["ünï","a,b","\u00e9"]}`, tags: []string{"ünï", "a,b", "é"}},
	} {
		n := &notes{}
		w, a := serve(t, newHandler(t, n, webhook.Config{}), post(c.body, header("Content-Type", "application/json; charset=utf-8")))
		if w.Code != http.StatusOK || a.Status != "done" || a.All != (c.all > 0) || a.Soft != (c.soft != nil) {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
		if !slices.Equal(n.tags, c.tags) || !slices.Equal(n.tables, c.tables) || !slices.Equal(n.soft, c.soft) || n.all != c.all {
			t.Errorf("%s told %+v", c.body, n)
		}
	}
}

func TestOnlyTheTokensOpen(t *testing.T) {
	n := &notes{}
	var log bytes.Buffer
	h := newHandler(t, n, webhook.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic " + token, token, "Bearer " + token[1:], "Bearer " + token + "x", "Bearer " + strings.ToUpper(token),
		"Bearer " + token + " " + oldToken, "Bearer " + token + oldToken} {
		// The token is looked at first: everything else about the request is wrong too.
		r := httptest.NewRequest(http.MethodGet, "/invalidate", strings.NewReader(`{`))
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		w, a := serve(t, h, r)
		if w.Code != http.StatusUnauthorized || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") || a.Error.Message == "" {
			t.Errorf("%q: %d %s", auth, w.Code, w.Body)
		}
	}
	two := post(`{"all":true}`, func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") })
	if w, _ := serve(t, h, two); w.Code != http.StatusUnauthorized {
		t.Errorf("two headers: %d", w.Code)
	}
	if n.any() {
		t.Errorf("told %+v", n)
	}
	for _, auth := range []string{"Bearer " + token, "bearer  " + oldToken} {
		if w, _ := serve(t, h, post(`{"tags":["secret-tag"]}`, header("Authorization", auth))); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", auth, w.Code, w.Body)
		}
	}
	if s := log.String(); strings.Contains(s, "0123456789abcdef") || strings.Contains(s, "secret-tag") || !strings.Contains(s, "refused") || !strings.Contains(s, "tags=1") {
		t.Errorf("the log:\n%s", s)
	}
}

func TestARequestThatIsWrongSaysWhereAndDoesNothing(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, c := range []struct {
		body, field, message string
		status               int
		change               func(*http.Request)
	}{
		{body: `{"all":true}`, status: 405, message: "POST", change: func(r *http.Request) { r.Method = http.MethodPut }},
		{body: `{"all":true}`, status: 415, message: "application/json", change: header("Content-Type", "text/plain")},
		{body: `{"all":true}`, status: 415, message: "application/json", change: func(r *http.Request) { r.Header.Del("Content-Type") }},
		{body: `{"all":true}`, status: 415, message: "Content-Encoding", change: header("Content-Encoding", "gzip")},
		{body: `{"tags":["` + strings.Repeat("x", 2000) + `"]}`, status: 413, message: "1000 bytes"},
		{body: `{"tags":["a","b","c","d"],"tables":["e","f"]}`, status: 413, message: "6 tags and tables"},
		{body: ``, status: 400, message: "JSON object"},
		{body: `null`, status: 400, message: "JSON object"},
		{body: `["a"]`, status: 400, message: "JSON object"},
		{body: `{`, status: 400, message: "not valid JSON"},
		{body: `{}`, status: 400, message: "names nothing"},
		{body: `{"all":false,"tags":[],"tables":null}`, status: 400, message: "names nothing"},
		{body: `{"all":true}{}`, status: 400, message: "behind"},
		{body: `{"all":true} x`, status: 400, message: "behind"},
		{body: `{"tags":["a"],}`, status: 400, message: "not valid JSON"},
		{body: `{"all":"yes"}`, status: 400, field: "all", message: "must be true or false; there is a JSON string"},
		{body: `{"tags":"a"}`, status: 400, field: "tags", message: "must be a list of strings; there is a JSON string"},
		{body: `{"tags":[1]}`, status: 400, field: "tags", message: "must be a list of strings; there is a JSON number"},
		{body: `{"tags":["a"],"tables":{"t":1}}`, status: 400, field: "tables", message: "must be a list of strings; there is a JSON object"},
		{body: `{"tags":["a"],"soft":"true"}`, status: 400, field: "soft", message: "must be true or false; there is a JSON string"},
		{body: `{"tags":["a"],"soft":1}`, status: 400, field: "soft", message: "must be true or false; there is a JSON number"},
		{body: `{"soft":true}`, status: 400, message: "names nothing"},
		{body: `{"soft":true,"all":true}`, status: 400, field: "soft", message: "for tags alone"},
		{body: `{"soft":true,"tags":["a"],"tables":["t"]}`, status: 400, field: "soft", message: "for tags alone"},
		{body: `{"tag":["a"]}`, status: 400, field: "tag", message: "known are tags, tables, all and soft"},
		{body: `{"Tags":["a"]}`, status: 400, field: "Tags", message: "not known"},
		{body: `{"tags":["a"],"tags":["b"]}`, status: 400, field: "tags", message: "more than once"},
		{body: `{"tags":["a",""]}`, status: 400, field: "tags[1]", message: "empty"},
		{body: `{"tags":[null]}`, status: 400, field: "tags[0]", message: "empty"},
		{body: `{"tags":["a\n"]}`, status: 400, field: "tags[0]", message: "control"},
		{body: `{"tables":["t","` + long[:513] + `"]}`, status: 400, field: "tables[1]", message: "512 bytes"},
		{body: `{"tables":["t."]}`, status: 400, field: "tables[0]", message: "name of a table"},
		{body: `{"tables":["t.\"\""]}`, status: 400, field: "tables[0]", message: "name of a table"},
		{body: "{\"tags\":[\"\xff\"]}", status: 400, message: "UTF-8"},
	} {
		n := &notes{}
		r := post(c.body)
		if c.change != nil {
			c.change(r)
		}
		w, a := serve(t, newHandler(t, n, webhook.Config{BodyBytes: 1000, NamesMax: 5}), r)
		if w.Code != c.status || a.Error.Field != c.field || !strings.Contains(a.Error.Message, c.message) {
			t.Errorf("%.100s: %d %s\nwant %d, field %q, %q", c.body, w.Code, w.Body, c.status, c.field, c.message)
		}
		if n.any() {
			t.Errorf("%.100s told %+v", c.body, n)
		}
	}
	n := &notes{}
	if w, a := serve(t, newHandler(t, n, webhook.Config{}), post(`{"tags":["`+long+`"]}`)); w.Code != 400 || a.Error.Field != "tags[0]" || n.any() {
		t.Errorf("a tag that is too long: %d %s", w.Code, w.Body)
	}
}

// The Herd goes on trying, so a caller who tries again adds nothing.
func TestRedisThatCannotBeToldIsSaidInTheReply(t *testing.T) {
	n := &notes{err: errors.New("dial tcp 10.0.0.7:6379: refused")}
	w, a := serve(t, newHandler(t, n, webhook.Config{}), post(`{"tags":["a"],"tables":["t"]}`))
	if w.Code != http.StatusAccepted || a.Status != "retrying" || !strings.Contains(a.Detail, "background") || strings.Contains(w.Body.String(), "10.0.0.7") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(n.tags) != 1 || len(n.tables) != 1 {
		t.Errorf("told %+v", n)
	}
}

func TestACallerWhoLeavesDoesNotStopIt(t *testing.T) {
	n := &notes{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	serve(t, newHandler(t, n, webhook.Config{}), post(`{"tags":["a"]}`).WithContext(ctx))
	if n.ctx == nil || n.ctx.Err() != nil {
		t.Error("it was told under the caller's context")
	}
}

func TestNewRefusesWhatWouldLeaveTheHookOpen(t *testing.T) {
	_, err := webhook.New(nil, webhook.Config{Tokens: []string{"", "short", "0123456789abcdef\n", "0123456789 abcdef", token}, BodyBytes: -1, NamesMax: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Invalidator is nil", "Tokens[0]: must not be empty", "Tokens[1]: has 5 bytes", "Tokens[2]: must be of", "Tokens[3]: must be of", "BodyBytes", "NamesMax"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "Tokens[4]") || strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), "0123456789") {
		t.Errorf("the error: %v", err)
	}
	if _, err := webhook.New(&notes{}, webhook.Config{}); err == nil || !strings.Contains(err.Error(), "at least one token") {
		t.Errorf("without a token: %v", err)
	}
}

func TestOverARealConnectionABodyThatNeverEndsIsRefused(t *testing.T) {
	n := &notes{}
	srv := httptest.NewServer(newHandler(t, n, webhook.Config{}))
	defer srv.Close()
	endless := io.MultiReader(strings.NewReader(`{"tags":["`), &repeat{n: 8 << 20})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, endless)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := srv.Client().Do(req)
	if err != nil { // the server has closed the connection before its answer was read
		if n.any() {
			t.Errorf("told %+v", n)
		}
		return
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestEntityTooLarge || n.any() {
		t.Errorf("%s", res.Status)
	}
}

type repeat struct{ n int }

func (r *repeat) Read(b []byte) (int, error) {
	if r.n <= 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = 'x'
	}
	r.n -= len(b)
	return len(b), nil
}

// Whatever passes must be taken by a Herd, which without Redis has no other reason to refuse.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"tags":["a"]}`, `{"tables":["a.\"b\"","[x]","a."]}`, `{"all":true}`, `{"tags":[null],"all":1}`, `{"TAGS":["a"]}`, `{"soft":true,"tags":["a","b"]}`, `{"tags":["a"],"tags":["b"]}`, `{"tags":["a"]}{}`, `{"tables":["\"\"\""]}`, "{\"tags\":[\"\xff\"]}"} {
		f.Add(s)
	}
	herd, err := sqlherd.New(sqlherd.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { herd.Close() })
	h := newHandler(f, herd, webhook.Config{})
	f.Fuzz(func(t *testing.T, body string) {
		before := herd.Stats()
		w, a := serve(t, h, post(body))
		after := herd.Stats()
		soft := after.SoftInvalidations - before.SoftInvalidations
		told := after.Invalidations - before.Invalidations + soft
		switch w.Code {
		case http.StatusOK:
			if want := uint64(a.Tags + a.Tables); !a.All && told != want || a.All && told != 1 {
				t.Errorf("%q: told %d times: %s", body, told, w.Body)
			}
			if (soft > 0) != a.Soft {
				t.Errorf("%q: told %d times that it is soft: %s", body, soft, w.Body)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if told != 0 || a.Error.Message == "" {
				t.Errorf("%q: told %d times: %s", body, told, w.Body)
			}
		default:
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	})
}

func ExampleNew() {
	herd, err := sqlherd.New(sqlherd.Config{})
	if err != nil {
		panic(err)
	}
	defer herd.Close()

	// In a program the tokens come from its secrets; to rotate: the new one, the old one.
	hook, err := webhook.New(herd, webhook.Config{Tokens: []string{"jYrb3mX0wq8nVt6Ls1Kd"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/invalidate", hook)
	srv := httptest.NewServer(mux) // http.ListenAndServeTLS in a program: the token must not travel in the clear
	defer srv.Close()

	req, _ := http.NewRequest(http.MethodPost, srv.URL+"/invalidate", strings.NewReader(`{"tags":["product/7"],"tables":["prices"]}`))
	req.Header.Set("Authorization", "Bearer jYrb3mX0wq8nVt6Ls1Kd")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(res.Status, string(body))
	// Output: 200 OK {"status":"done","tags":1,"tables":1,"all":false,"soft":false}
}
