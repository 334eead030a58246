package sqlherd

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlherd/sqlherd/internal/sqllex"
)

// comments finds the comments of a text that has no literals: what the lexer has
// to do about those is tested there.
func comments(text string) []sqllex.Comment {
	var out []sqllex.Comment
	for i := 0; i+1 < len(text); {
		var end int
		switch text[i : i+2] {
		case "--":
			if end = strings.IndexByte(text[i+2:], '\n'); end < 0 {
				end = len(text) - i - 2
			}
			out = append(out, sqllex.Comment{Text: text[i+2 : i+2+end], Pos: i})
			i += 2 + end
		case "/*":
			if end = strings.Index(text[i+2:], "*/"); end < 0 {
				return out
			}
			out = append(out, sqllex.Comment{Text: text[i+2 : i+2+end], Pos: i})
			i += 2 + end + 2
		default:
			i++
		}
	}
	return out
}

func parse(text string) (hint, error) { return parseHint(text, comments(text)) }

var goodHints = []struct {
	name string
	text string
	want hint
}{
	{"a statement without comments has no hint", `SELECT 1`, hint{}},
	{"a comment without a directive is no hint", `SELECT /* from the index */ 1 -- done`, hint{}},
	{"prose that mentions a directive is no hint", `SELECT /* see @cache and @invalidate tags=x */ 1`, hint{}},
	{"an address is no hint", `SELECT 1 -- ask me@cache.example`, hint{}},
	{"another annotation is no hint", "SELECT 1 -- @param id\n-- @refreshing", hint{}},
	{"an optimizer's hint is no hint", `SELECT /*+ @cache */ 1`, hint{}},

	{"a hint alone takes every default", `SELECT /* @cache */ 1`, hint{kind: hintCache}},
	{"a hint without white space around it is one", `SELECT /*@cache*/ 1`, hint{kind: hintCache}},
	{"a hint may stand first", `/* @cache ttl=30s */ SELECT 1`, hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may stand in the middle", `SELECT /* @cache ttl=30s */ 1`, hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may stand last", `SELECT 1 /* @cache ttl=30s */`, hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may end the text as a line", `SELECT 1 -- @cache ttl=30s`, hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may follow another comment", "/* it's a trace */ -- and more\nSELECT /* @cache ttl=30s */ 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may follow the name that sqlc keeps", "-- name: GetUser :one\nSELECT /* @cache ttl=30s */ 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may begin any line of a block", "/* The report.\n   @cache ttl=30s\n   tags=a */ SELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second, Tags: []string{"a"}}}},
	{"a hint may stand in a box", "/**\n * The report.\n * @cache ttl=30s\n *        swr=1m\n **/ SELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second, SWR: time.Minute}}},
	{"another annotation on a line of its own ends a hint", "/* @cache ttl=30s\n @author me=you */ SELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a hint may end its lines as Windows does", "-- @cache ttl=30s\r\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"a remark may follow the line of a hint", "-- @cache ttl=30s\n-- by request of = sales\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},

	{
		"every option is understood",
		`SELECT /* @cache ttl=30s swr=5m sie=1h empty=2s jitter=0.2 lease=1s wait=500ms tags=product/{1},all tables=a,public.b ` +
			`scope=eu name=products max-rows=100 max-bytes=64KiB early=1.5 allow=volatile */ 1`,
		hint{kind: hintCache, policy: Policy{
			TTL: 30 * time.Second, SWR: 5 * time.Minute, SIE: time.Hour, Empty: 2 * time.Second, Jitter: 0.2,
			Lease: time.Second, Wait: 500 * time.Millisecond, Tags: []string{"product/{1}", "all"}, Tables: []string{"a", "public.b"},
			Scope: "eu", Name: "products", MaxRows: 100, MaxBytes: 64 << 10, EarlyBeta: 1.5, AllowVolatile: true,
		}},
	},
	{
		"an explicit zero is off, and not the default",
		`SELECT /* @cache ttl=0 swr=0s sie=0 empty=0 jitter=0 wait=0 early=0 */ 1`,
		hint{kind: hintCache, policy: Policy{TTL: off, SWR: off, SIE: off, Empty: off, Jitter: off, Wait: off, EarlyBeta: off}},
	},
	{
		"off is the same as zero",
		`SELECT /* @cache ttl=off swr=off sie=off empty=off jitter=off wait=off early=off max-rows=off */ 1`,
		hint{kind: hintCache, policy: Policy{TTL: off, SWR: off, SIE: off, Empty: off, Jitter: off, Wait: off, EarlyBeta: off, MaxRows: off}},
	},
	{"jitter may be a percentage", `SELECT /* @cache jitter=25% */ 1`, hint{kind: hintCache, policy: Policy{Jitter: 0.25}}},
	{"a part of a millisecond is rounded up", `SELECT /* @cache ttl=1ms swr=1500us */ 1`, hint{kind: hintCache, policy: Policy{TTL: time.Millisecond, SWR: 2 * time.Millisecond}}},
	{"sizes may be plain, binary or decimal", `SELECT /* @cache max-bytes=1MB */ 1`, hint{kind: hintCache, policy: Policy{MaxBytes: 1_000_000}}},
	{"a list forgets its doubles", `SELECT /* @cache tags=a,b,a */ 1`, hint{kind: hintCache, policy: Policy{Tags: []string{"a", "b"}}}},
	{"tables=none leaves only the tags", `SELECT /* @cache tables=none tags=product/{id} */ 1`, hint{kind: hintCache, policy: Policy{Tables: []string{"none"}, Tags: []string{"product/{id}"}}}},
	{"tables=none may be followed by some", `SELECT /* @cache tables=none,b */ 1`, hint{kind: hintCache, policy: Policy{Tables: []string{"none", "b"}}}},
	{"a tag may have colons", `SELECT /* @cache tags=user:{1}:posts */ 1`, hint{kind: hintCache, policy: Policy{Tags: []string{"user:{1}:posts"}}}},

	{"@nocache is a hint", `SELECT /* @nocache */ 1`, hint{kind: hintNoCache}},
	{"@refresh takes the options of @cache", `SELECT /* @refresh ttl=1m */ 1`, hint{kind: hintRefresh, policy: Policy{TTL: time.Minute}}},
	{"@invalidate takes tags and tables", `UPDATE /* @invalidate tags=product/{1} tables=a,b */ c SET x = 1`, hint{kind: hintInvalidate, policy: Policy{Tags: []string{"product/{1}"}, Tables: []string{"a", "b"}}}},
	{"@invalidate tables=none narrows a write", `UPDATE /* @invalidate tables=none */ c SET x = 1`, hint{kind: hintInvalidate, policy: Policy{Tables: []string{"none"}}}},
	{"@invalidate none is its short form", `UPDATE /* @invalidate none */ c SET x = 1`, hint{kind: hintInvalidate, policy: Policy{Tables: []string{"none"}}}},

	{"the attributes of sqlcache are understood", "\n\t-- @cache-ttl 30\n\t-- @cache-max-rows 10\n\tSELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second, MaxRows: 10}}},
	{"they may stand in one comment", `SELECT /* @cache-max-rows 10, @cache-ttl 30 */ 1`, hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second, MaxRows: 10}}},
	{"they may have remarks after them", "-- @cache-ttl 30 seconds are enough\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second}}},
	{"sqlcache's empty results are understood", "-- @cache-ttl 30\n-- @cache-max-rows 10\n-- @cache-skip-empty-resultset 1\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: 30 * time.Second, MaxRows: 10, Empty: off}}},
	{"the attribute of Slonik may stand last", `SELECT 1 -- @cache-ttl 60`, hint{kind: hintCache, policy: Policy{TTL: time.Minute}}},
	{"Slonik's keys have no effect", "-- @cache-ttl 60\n-- @cache-key user:$valueHash\n-- @cache-discard-empty true\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: time.Minute, Empty: off}}},
	{"Slonik's false discards nothing", "-- @cache-discard-empty false\n-- @cache-ttl 60\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: time.Minute}}},
	{"a legacy TTL of zero is off", "-- @cache-ttl 0\nSELECT 1", hint{kind: hintCache, policy: Policy{TTL: off}}},
}

func TestHints(t *testing.T) {
	for _, tt := range goodHints {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.tags) != len(got.policy.Tags) {
				t.Errorf("%d parsed tags of %d", len(got.tags), len(got.policy.Tags))
			}
			got.tags = nil
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

const cacheOptions = "ttl, swr, sie, empty, jitter, lease, wait, tags, tables, scope, name, max-rows, max-bytes, early, allow"

var badHints = []struct {
	name string
	text string
	kind hintKind
	want string // after "sqlherd: malformed hint at "
}{
	{"an unknown option", `SELECT /* @cache tll=30s */ 1`, hintCache, `line 1, column 18: "tll=30s": unknown option; there are ` + cacheOptions},
	{"an option in capitals", `SELECT /* @cache TTL=30s */ 1`, hintCache, `line 1, column 18: "TTL=30s": unknown option; there are ` + cacheOptions + `, in lower case`},
	{"tags with white space between them", `SELECT /* @cache tags=a b */ 1`, hintCache, `line 1, column 25: "b": unknown option; there are ` + cacheOptions + `; the elements of tags are separated by commas, without white space`},
	{"tables with white space between them", `UPDATE /* @invalidate tables=a b */ a SET b = 1`, hintInvalidate, `line 1, column 32: "b": unknown option; @invalidate has tags, tables and soft; the elements of tables are separated by commas, without white space`},
	{"prose after an option that is no list", `SELECT /* @cache tags=a ttl=30s b */ 1`, hintCache, `line 1, column 33: "b": unknown option; there are ` + cacheOptions},
	{"a slip behind tags", `SELECT /* @cache tags=a tll=30s */ 1`, hintCache, `line 1, column 25: "tll=30s": unknown option; there are ` + cacheOptions},
	{"prose after a hint", "/* @cache ttl=30s\n   for the report */ SELECT 1", hintCache, `line 2, column 4: "for": unknown option; there are ` + cacheOptions},
	{"an option twice", `SELECT /* @cache ttl=30s ttl=30s */ 1`, hintCache, `line 1, column 26: "ttl=30s": given twice`},
	{"an option without its value", `SELECT /* @cache ttl */ 1`, hintCache, `line 1, column 18: "ttl": has no value; write ttl=…`},
	{"an option with an empty value", `SELECT /* @cache ttl= */ 1`, hintCache, `line 1, column 18: "ttl": has no value; write ttl=…`},
	{"a duration that is none", `SELECT /* @cache ttl=abc */ 1`, hintCache, `line 1, column 18: "ttl=abc": must be a duration such as 30s, 5m or 1h30m`},
	{"a duration with an impossible unit", `SELECT /* @cache ttl=1e9h */ 1`, hintCache, `line 1, column 18: "ttl=1e9h": must be a duration such as 30s, 5m or 1h30m`},
	{"a duration without a unit", `SELECT /* @cache ttl=30 */ 1`, hintCache, `line 1, column 18: "ttl=30": has no unit; write 30s for seconds`},
	{"a duration below a millisecond", `SELECT /* @cache ttl=500us */ 1`, hintCache, `line 1, column 18: "ttl=500us": must be at least 1ms; off turns it off`},
	{"a lease below a millisecond", `SELECT /* @cache lease=3us */ 1`, hintCache, `line 1, column 18: "lease=3us": must be from 100ms to 5m0s`},
	{"a negative duration", `SELECT /* @cache ttl=-1s */ 1`, hintCache, `line 1, column 18: "ttl=-1s": must not be negative`},
	{"a duration beyond a year", `SELECT /* @cache swr=8761h */ 1`, hintCache, `line 1, column 18: "swr=8761h": must be at most 8760h0m0s`},
	{"the longest duration of Go", `SELECT /* @cache sie=2562047h47m16.854775807s */ 1`, hintCache, `line 1, column 18: "sie=2562047h47m16.854775807s": must be at most 8760h0m0s`},
	{"a lease that is too short", `SELECT /* @cache lease=0 */ 1`, hintCache, `line 1, column 18: "lease=0": must be from 100ms to 5m0s`},
	{"jitter of all", `SELECT /* @cache jitter=100% */ 1`, hintCache, `line 1, column 18: "jitter=100%": must be below 1 (100%)`},
	{"jitter that is no number", `SELECT /* @cache jitter=NaN */ 1`, hintCache, `line 1, column 18: "jitter=NaN": must be a number, or off`},
	{"negative jitter", `SELECT /* @cache jitter=-0.1 */ 1`, hintCache, `line 1, column 18: "jitter=-0.1": must not be negative`},
	{"too eager a refresh", `SELECT /* @cache early=1e6 */ 1`, hintCache, `line 1, column 18: "early=1e6": must be at most 100`},
	{"no rows", `SELECT /* @cache max-rows=0 */ 1`, hintCache, `line 1, column 18: "max-rows=0": must be a whole number of rows, at least 1, or off for no limit`},
	{"half a row", `SELECT /* @cache max-rows=1.5 */ 1`, hintCache, `line 1, column 18: "max-rows=1.5": must be a whole number of rows, at least 1, or off for no limit`},
	{"no bytes", `SELECT /* @cache max-bytes=0 */ 1`, hintCache, `line 1, column 18: "max-bytes=0": must be from 1 to 536870912 bytes`},
	{"too many bytes", `SELECT /* @cache max-bytes=2147483647GiB */ 1`, hintCache, `line 1, column 18: "max-bytes=2147483647GiB": must be from 1 to 536870912 bytes`},
	{"an unknown size", `SELECT /* @cache max-bytes=1MiBs */ 1`, hintCache, `line 1, column 18: "max-bytes=1MiBs": must be a size such as 65536, 64KiB or 1MB`},
	{"an unknown permission", `SELECT /* @cache allow=now */ 1`, hintCache, `line 1, column 18: "allow=now": there is only allow=volatile`},
	{"an argument in a scope", `SELECT /* @cache scope=t{1} */ 1`, hintCache, `line 1, column 18: "scope=t{1}": must be fixed: an argument cannot be put in, and is in the key anyway`},
	{"a list with a hole", `SELECT /* @cache tags=a,,b */ 1`, hintCache, `line 1, column 18: "tags=a,,b": has an empty element; commas stand between two, without white space`},
	{"a list with white space", `SELECT /* @cache tags=a, b */ 1`, hintCache, `line 1, column 18: "tags=a,": has an empty element; commas stand between two, without white space`},
	{"none and some tags", `SELECT /* @cache tags=none,a */ 1`, hintCache, `line 1, column 18: "tags=none,a": none must stand alone`},
	{"a tag with an open brace", `SELECT /* @cache tags=p/{1 */ 1`, hintCache, `line 1, column 18: "tags=p/{1": tag "p/{1": has a brace without its partner; an argument is {1} or {name}`},
	{"a tag with a closing brace", `SELECT /* @cache tags=p/1} */ 1`, hintCache, `line 1, column 18: "tags=p/1}": tag "p/1}": has a brace without its partner; an argument is {1} or {name}`},
	{"a tag with nothing in braces", `SELECT /* @cache tags=p/{} */ 1`, hintCache, `line 1, column 18: "tags=p/{}": tag "p/{}": {}: an argument is {1} or {name}`},
	{"a tag with the argument before the first", `SELECT /* @cache tags=p/{0} */ 1`, hintCache, `line 1, column 18: "tags=p/{0}": tag "p/{0}": {0}: arguments are numbered from 1`},
	{"a tag with an expression", `SELECT /* @cache tags=p/{a-b} */ 1`, hintCache, `line 1, column 18: "tags=p/{a-b}": tag "p/{a-b}": {a-b}: an argument is {1} or {name}`},
	{"a tag with a placeholder", `SELECT /* @cache tags=p/$1 */ 1`, hintCache, `line 1, column 18: "tags=p/$1": tag "p/$1": must not contain ? or $, which ORMs replace; the first argument is {1}`},
	{"a table with a control character", "SELECT /* @cache tables=a\x01 */ 1", hintCache, `line 1, column 18: "tables=a\x01": table "a\x01": must not contain control characters`},

	{"a slip in the directive", `SELECT /* @cached ttl=30s */ 1`, hintNone, `line 1, column 11: "@cached": unknown directive; there are @cache, @nocache, @refresh and @invalidate`},
	{"a directive in capitals", `SELECT /* @CACHE ttl=30s */ 1`, hintNone, `line 1, column 11: "@CACHE": unknown directive; there are @cache, @nocache, @refresh and @invalidate, in lower case`},
	{"an @invalidate in capitals", `UPDATE /* @Invalidate tags=a */ a SET b = 1`, hintInvalidate, `line 1, column 11: "@Invalidate": unknown directive; there are @cache, @nocache, @refresh and @invalidate, in lower case`},
	{"a directive with a colon", `SELECT /* @cache: ttl=30s */ 1`, hintNone, `line 1, column 11: "@cache:": unknown directive; there are @cache, @nocache, @refresh and @invalidate`},
	{"@nocache with an option", `SELECT /* @nocache ttl=30s */ 1`, hintNoCache, `line 1, column 20: "ttl=30s": @nocache takes no options`},
	{"@invalidate with an option of @cache", `UPDATE /* @invalidate ttl=30s */ a SET b = 1`, hintInvalidate, `line 1, column 23: "ttl=30s": unknown option; @invalidate has tags, tables and soft`},
	{"@invalidate of nothing", `UPDATE /* @invalidate */ a SET b = 1`, hintInvalidate, `line 1, column 11: "@invalidate": names nothing; write tags=… or tables=…, or none`},
	{"none twice", `UPDATE /* @invalidate none tables=a */ a SET b = 1`, hintInvalidate, `line 1, column 28: "tables=a": given twice`},

	{"two hints", "SELECT /* @cache ttl=30s */ 1\n-- @cache ttl=1m", hintCache, `line 2, column 4: "@cache": second hint in one statement; the first, @cache, is at line 1, column 11`},
	{"the same hint twice", `/* @cache ttl=30s */ SELECT /* @cache ttl=30s */ 1`, hintCache, `line 1, column 32: "@cache": second hint in one statement; the first, @cache, is at line 1, column 4`},
	{"a slip in @invalidate", `UPDATE /* @invalidates tags=a */ a SET b = 1`, hintInvalidate, `line 1, column 11: "@invalidates": unknown directive; there are @cache, @nocache, @refresh and @invalidate`},
	{"@cache and @invalidate", `/* @cache */ INSERT /* @invalidate tags=a */ INTO a VALUES (1)`, hintInvalidate, `line 1, column 24: "@invalidate": second hint in one statement; the first, @cache, is at line 1, column 4`},
	{"two hints in one line", `SELECT /* @cache ttl=30s @nocache */ 1`, hintCache, `line 1, column 26: "@nocache": second hint in one statement; the first, @cache, is at line 1, column 11`},
	{"two hints in one comment", "/* @cache ttl=30s\n   @refresh */ SELECT 1", hintCache, `line 2, column 4: "@refresh": second hint in one statement; the first, @cache, is at line 1, column 4`},
	{"a malformed hint before a good one", "/* @cache ttl=x */ SELECT /* @cache ttl=30s */ 1", hintCache, `line 1, column 11: "ttl=x": must be a duration such as 30s, 5m or 1h30m`},
	{"a line hint that goes on in the next line", "-- @cache ttl=30s\n-- tags=a\nSELECT 1", hintCache, `line 2, column 4: "tags=a": stands outside the hint, which ended with its line; use /* … */ for a longer one`},
	{"a column after characters of several bytes", `SELECT "größe" /* @cache ttl=x */`, hintCache, `line 1, column 26: "ttl=x": must be a duration such as 30s, 5m or 1h30m`},

	{"a legacy TTL with a unit", "-- @cache-ttl 30s\nSELECT 1", hintCache, `line 1, column 4: "@cache-ttl": needs a whole number of seconds after it, such as @cache-ttl 30`},
	{"a negative legacy TTL", "-- @cache-ttl -1\nSELECT 1", hintCache, `line 1, column 4: "@cache-ttl": needs a whole number of seconds after it, such as @cache-ttl 30`},
	{"a legacy TTL beyond a year", "-- @cache-ttl 31536001\nSELECT 1", hintCache, `line 1, column 4: "@cache-ttl": must be at most 31536000 seconds`},
	{"a legacy TTL twice", "-- @cache-ttl 30\n-- @cache-ttl 30\nSELECT 1", hintCache, `line 2, column 4: "@cache-ttl": given twice`},
	{"a legacy row limit alone", "-- @cache-max-rows 10\nSELECT 1", hintCache, `line 1, column 4: "@cache-max-rows": needs @cache-ttl <seconds> beside it`},
	{"a legacy row limit of zero", "-- @cache-max-rows 0\nSELECT 1", hintCache, `line 1, column 4: "@cache-max-rows": needs a number of rows, at least 1, after it, such as @cache-max-rows 100`},
	{"an unknown legacy attribute", "-- @cache-tll 30\nSELECT 1", hintCache, `line 1, column 4: "@cache-tll": unknown attribute; there are @cache-ttl and @cache-max-rows, and the options of @cache`},
	{"a legacy yes that is none", "-- @cache-ttl 60\n-- @cache-discard-empty 1\nSELECT 1", hintCache, `line 2, column 4: "@cache-discard-empty": needs true or false after it`},
	{"a hint beside legacy attributes", "-- @cache-ttl 30\nSELECT /* @cache */ 1", hintCache, `line 2, column 11: "@cache": second hint in one statement; the first, @cache-ttl, is at line 1, column 4`},
	{"legacy attributes beside a hint", "SELECT /* @cache */ 1 -- @cache-ttl 30", hintCache, `line 1, column 26: "@cache-ttl": second hint in one statement; the first, @cache, is at line 1, column 11`},
}

func TestMalformedHintsSayWhatAndWhere(t *testing.T) {
	for _, tt := range badHints {
		t.Run(tt.name, func(t *testing.T) {
			h, err := parse(tt.text)
			var he *HintError
			if !errors.As(err, &he) {
				t.Fatalf("no HintError but %v, and %+v", err, h)
			}
			if got, want := err.Error(), "sqlherd: malformed hint at "+tt.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !reflect.DeepEqual(h, hint{kind: tt.kind}) {
				t.Errorf("the hint is %+v; want only the kind %d", h, tt.kind)
			}
			if !strings.HasPrefix(tt.text[he.Pos:], he.Option) {
				t.Errorf("Pos %d is at %q, not at %q", he.Pos, tt.text[he.Pos:], he.Option)
			}
		})
	}
}

func TestTheLexersCommentsGiveTheSameHints(t *testing.T) {
	var texts []string
	for _, tt := range goodHints {
		texts = append(texts, tt.text)
	}
	for _, tt := range badHints {
		texts = append(texts, tt.text)
	}
	for _, text := range texts {
		want, wantErr := parse(text)
		for _, d := range []sqllex.Dialect{sqllex.Unknown, sqllex.PostgreSQL, sqllex.MySQL, sqllex.SQLite} {
			got, err := parseHint(text, sqllex.Analyze(text, d).Comments)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
				t.Errorf("%v: %s\ngot  %+v, %v\nwant %+v, %v", d, text, got, err, want, wantErr)
			}
		}
	}
}

func TestWhatLooksLikeAHintInALiteralIsNone(t *testing.T) {
	for _, tt := range []struct {
		text     string
		dialects []sqllex.Dialect
	}{
		{`SELECT '/* @cache ttl=1h */' AS a`, []sqllex.Dialect{sqllex.Unknown, sqllex.PostgreSQL, sqllex.MySQL, sqllex.SQLite}},
		{`SELECT 'it''s -- @cache ttl=1h'`, []sqllex.Dialect{sqllex.Unknown, sqllex.PostgreSQL, sqllex.MySQL, sqllex.SQLite}},
		{`SELECT 1 AS "/* @cache ttl=1h */"`, []sqllex.Dialect{sqllex.Unknown, sqllex.PostgreSQL, sqllex.MySQL, sqllex.SQLite}},
		{"SELECT 1 AS `/* @cache ttl=1h */`", []sqllex.Dialect{sqllex.MySQL, sqllex.SQLite}},
		{`SELECT 1 AS [/* @cache ttl=1h */]`, []sqllex.Dialect{sqllex.SQLite}},
		{`SELECT $x$/* @cache ttl=1h */$x$`, []sqllex.Dialect{sqllex.PostgreSQL}},
		{`SELECT E'\'/* @cache ttl=1h */'`, []sqllex.Dialect{sqllex.PostgreSQL}},
		{`SELECT '\'/* @cache ttl=1h */'`, []sqllex.Dialect{sqllex.MySQL}},
		{`SELECT 1 /*! @cache ttl=1h */`, []sqllex.Dialect{sqllex.MySQL}},
		{`SELECT 1 /* a /* @cache ttl=1h */ b */`, []sqllex.Dialect{sqllex.PostgreSQL}},
	} {
		for _, d := range tt.dialects {
			if h, err := parseHint(tt.text, sqllex.Analyze(tt.text, d).Comments); h.kind != hintNone || err != nil {
				t.Errorf("%v: %s: %+v, %v", d, tt.text, h, err)
			}
		}
	}
}

func TestAHintMayStandInAnyKindOfComment(t *testing.T) {
	for _, text := range []string{"SELECT 1 # @cache ttl=30s", "# @cache ttl=30s\nSELECT 1"} {
		h, err := parseHint(text, sqllex.Analyze(text, sqllex.MySQL).Comments)
		if err != nil || h.policy.TTL != 30*time.Second {
			t.Errorf("%s: %+v, %v", text, h, err)
		}
	}
	text := "# @cache ttl=30s\n# tags=a\nSELECT 1"
	_, err := parseHint(text, sqllex.Analyze(text, sqllex.MySQL).Comments)
	if err == nil || !strings.Contains(err.Error(), `line 2, column 3: "tags=a": stands outside the hint`) {
		t.Error(err)
	}
}

func TestALongOptionIsShortenedInTheError(t *testing.T) {
	_, err := parse("SELECT /* @cache ttl=" + strings.Repeat("ü", 1000) + " */ 1")
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("error is %v", err)
	}
}

func TestTooManyTagsAreMalformed(t *testing.T) {
	var tags []string
	for i := range TagsMax + 1 {
		tags = append(tags, strconv.Itoa(i))
	}
	if _, err := parse("SELECT /* @cache tags=" + strings.Join(tags[1:], ",") + " */ 1"); err != nil {
		t.Error(err)
	}
	_, err := parse("SELECT /* @cache tags=" + strings.Join(tags, ",") + " */ 1")
	if err == nil || !strings.HasSuffix(err.Error(), ": has 65 tags; must be at most 64") {
		t.Errorf("error is %v", err)
	}
}

func TestThePositionOfACommentMayBeItsTextOrItsDelimiter(t *testing.T) {
	text := "SELECT 1\n-- @cache ttl=x"
	for _, c := range []sqllex.Comment{{Text: " @cache ttl=x", Pos: 9}, {Text: " @cache ttl=x", Pos: 11}} {
		_, err := parseHint(text, []sqllex.Comment{c})
		var he *HintError
		if !errors.As(err, &he) || he.Line != 2 || he.Col != 11 || he.Pos != 19 {
			t.Errorf("Pos %d: %+v", c.Pos, he)
		}
	}
}

func TestHintErrorsDoNotDependOnPositions(t *testing.T) {
	for _, pos := range []int{-5, 0, 1 << 30} {
		if _, err := parseHint("x", []sqllex.Comment{{Text: "@cache ttl=x", Pos: pos}}); err == nil {
			t.Error("no error")
		}
	}
}

func TestSqlcNames(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"-- name: GetUser :one\nSELECT 1", "GetUser"},
		{"/* name: ListUsers :many */ SELECT 1", "ListUsers"},
		{"-- trace\n--name: GetUser :one\nSELECT 1", "GetUser"},
		{"-- name: GetUser\nSELECT 1", ""},
		{"-- name: of the user\nSELECT 1", ""},
		{"-- name: of :\nSELECT 1", ""},
		{"-- the name: GetUser :one\nSELECT 1", ""},
		{"-- name: " + strings.Repeat("x", NameBytesMax+1) + " :one\nSELECT 1", ""},
		{"SELECT 1", ""},
	} {
		if got := sqlcName(comments(tt.text)); got != tt.want {
			t.Errorf("sqlcName(%q) = %q; want %q", tt.text, got, tt.want)
		}
	}
}

type valuer struct{ v any }

func (v valuer) Value() (driver.Value, error) { return v.v, nil }

type failingValuer struct{}

func (failingValuer) Value() (driver.Value, error) { return nil, errors.New("boom") }

type id string

func TestEqualArgumentsGiveEqualTags(t *testing.T) {
	seven := 7
	day := time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("x", 3600))
	for _, tt := range []struct {
		want   string
		values []any
	}{
		{"p/7", []any{int64(7), 7, int8(7), uint64(7), float32(7), 7.0, "7", []byte("7"), id("7"), &seven, valuer{int64(7)}, valuer{"7"}, sql.NullInt64{Int64: 7, Valid: true}, json.Number("7")}},
		{"p/-7", []any{-7, "-7"}},
		{"p/18446744073709551615", []any{uint64(1<<64 - 1)}},
		{"p/0.1", []any{0.1, float32(0.1), "0.1"}},
		{"p/true", []any{true, "true"}},
		{"p/2026-01-02T02:04:05.0000006Z", []any{day, day.UTC(), &day, sql.NullTime{Time: day, Valid: true}}},
		{"p/", []any{"", []byte{}}},
		{"p/grün & weiß", []any{"grün & weiß"}},
		{"p/%null", []any{nil, []byte(nil), (*int)(nil), (*valuer)(nil), sql.NullString{}}},
		{"p/%25null", []any{"%null"}},
		{"p/7%2Fx", []any{"7/x"}},
		{"p/a%2Cb", []any{"a,b"}},
		{"p/a%0Ab%00%C2%80", []any{"a\nb\x00\u0080"}},
		{"p/%xff00", []any{[]byte{0xff, 0}, "\xff\x00"}},
		{"p/%25xff00", []any{"%xff00"}},
		{"p/{1}", []any{"{1}"}},
	} {
		tag, err := parseTag("p/{1}")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range tt.values {
			got, err := tag.expand([]driver.NamedValue{{Ordinal: 1, Value: v}})
			if err != nil || got != tt.want {
				t.Errorf("%T %v: %q, %v; want %q", v, v, got, err, tt.want)
			}
		}
	}
}

func TestTagsTakeArgumentsByNumberAndName(t *testing.T) {
	args := []driver.NamedValue{{Ordinal: 1, Value: "a"}, {Ordinal: 2, Name: "id", Value: "b"}, {Ordinal: 3, Value: "c"}}
	reversed := slices.Clone(args)
	slices.Reverse(reversed)
	for _, args := range [][]driver.NamedValue{args, reversed} {
		for _, tt := range []struct{ tag, want string }{
			{"fixed", "fixed"},
			{"{3}", "c"},
			{"{1}{3}", "ac"},
			{"x/{id}/{1}/y", "x/b/a/y"},
		} {
			tag, err := parseTag(tt.tag)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tag.expand(args); err != nil || got != tt.want {
				t.Errorf("%s: %q, %v; want %q", tt.tag, got, err, tt.want)
			}
		}
	}
}

func TestTagsThatCannotBeFilledInAreErrors(t *testing.T) {
	for _, tt := range []struct {
		tag  string
		arg  any
		want string
	}{
		{"p/{2}", 1, `sqlherd: malformed hint: "tags=p/{2}": the statement has 1 argument(s)`},
		{"p/{Id}", 1, `sqlherd: malformed hint: "tags=p/{Id}": the statement has no argument named Id`},
		{"p/{1}", struct{}{}, `sqlherd: malformed hint: "tags=p/{1}": an argument of type struct {} has no place in a tag`},
		{"p/{1}", []int{1}, `sqlherd: malformed hint: "tags=p/{1}": an argument of type []int has no place in a tag`},
		{"p/{1}", failingValuer{}, `sqlherd: malformed hint: "tags=p/{1}": boom`},
		{"p/{1}", valuer{valuer{7}}, `sqlherd: malformed hint: "tags=p/{1}": sqlherd.valuer gives another Valuer`},
		{"p/{1}", strings.Repeat("x", 1023), `sqlherd: malformed hint: "tags=p/{1}": 1025 bytes long with its arguments; must be at most 1024`},
	} {
		tag, err := parseTag(tt.tag)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tag.expand([]driver.NamedValue{{Ordinal: 1, Name: "id", Value: tt.arg}})
		if err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

// format writes a hint in the one way that parseHint must read back.
func (h hint) format() string {
	var b strings.Builder
	b.WriteString("/* ")
	b.WriteString(map[hintKind]string{hintCache: "@cache", hintNoCache: "@nocache", hintRefresh: "@refresh", hintInvalidate: "@invalidate"}[h.kind])
	p := h.policy
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"ttl", p.TTL}, {"swr", p.SWR}, {"sie", p.SIE}, {"empty", p.Empty}, {"lease", p.Lease}, {"wait", p.Wait}} {
		if d.d < 0 {
			b.WriteString(" " + d.name + "=off")
		} else if d.d > 0 {
			b.WriteString(" " + d.name + "=" + d.d.String())
		}
	}
	for _, f := range []struct {
		name string
		f    float64
	}{{"jitter", p.Jitter}, {"early", p.EarlyBeta}, {"max-rows", float64(p.MaxRows)}, {"max-bytes", float64(p.MaxBytes)}} {
		if f.f < 0 {
			b.WriteString(" " + f.name + "=off")
		} else if f.f > 0 {
			b.WriteString(" " + f.name + "=" + strconv.FormatFloat(f.f, 'f', -1, 64))
		}
	}
	for _, s := range []struct{ name, s string }{
		{"tags", strings.Join(p.Tags, ",")}, {"tables", strings.Join(p.Tables, ",")}, {"scope", p.Scope}, {"name", p.Name},
	} {
		if s.s != "" {
			b.WriteString(" " + s.name + "=" + s.s)
		}
	}
	if p.AllowVolatile {
		b.WriteString(" allow=volatile")
	}
	b.WriteString(" */")
	return b.String()
}

func FuzzParseHint(f *testing.F) {
	for _, tt := range goodHints {
		f.Add(tt.text)
	}
	for _, tt := range badHints {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parse(text)
		if err != nil {
			if he := new(HintError); !errors.As(err, &he) || he.Line < 1 || he.Col < 1 || he.Pos < 0 || he.Pos > len(text) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		if h.kind == hintNone {
			return
		}
		if errs := h.policy.validate("hint"); errs != nil {
			t.Fatalf("%q was taken, but %v", text, errs)
		}
		again, err := parse(h.format())
		if err != nil || !reflect.DeepEqual(h, again) {
			t.Fatalf("%q\n%+v\n%s\n%+v, %v", text, h, h.format(), again, err)
		}
	})
}

// Two values that differ must differ in the tag, whatever stands around them.
func FuzzTagValuesDoNotCollide(f *testing.F) {
	for _, s := range []string{"", "%null", "7/x", "\xff", "%xff", "a,b"} {
		f.Add(s, cmp.Or(s, "x")+"/x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == b || len(a)+len(b) > 200 {
			return
		}
		tag, _ := parseTag("p/{1}/{2}")
		one, err1 := tag.expand([]driver.NamedValue{{Ordinal: 1, Value: a}, {Ordinal: 2, Value: b}})
		two, err2 := tag.expand([]driver.NamedValue{{Ordinal: 1, Value: b}, {Ordinal: 2, Value: a}})
		null, err3 := tag.expand([]driver.NamedValue{{Ordinal: 1}, {Ordinal: 2, Value: b}})
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		if one == two || one == null || two == null {
			t.Errorf("%q and %q: %q, %q, %q", a, b, one, two, null)
		}
		if strings.Count(one, "/") != 2 {
			t.Errorf("%q and %q forge a level: %q", a, b, one)
		}
	})
}

func TestASlipInADirectiveIsTold(t *testing.T) {
	for _, s := range []string{"@cach", "@cahce", "@cachee", "@chache", "@nocahce", "@refesh", "@invaldate", "@Cache", "@cached"} {
		if _, err := parseHint("/* "+s+" ttl=1s */", comments("/* "+s+" ttl=1s */")); err == nil {
			t.Errorf("%s passes for prose", s)
		}
	}
	for _, s := range []string{"@param", "@author", "@case", "@macro", "@catch me", "@see @cache"} {
		if h, err := parseHint("/* "+s+" */", comments("/* "+s+" */")); err != nil || h.kind != hintNone {
			t.Errorf("%s passes for a directive: %v", s, err)
		}
	}
}
