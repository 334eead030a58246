package pgnotify

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sqlherd/sqlherd"
)

// Defaults and bounds of Config.
const (
	ChannelDefault      = "sqlherd"
	SchemaDefault       = "sqlherd"
	TagsMaxDefault      = 1000
	TagsMaxMax          = 100_000
	PingDefault         = 10 * time.Second
	PingMin             = 10 * time.Millisecond
	ReconnectMaxDefault = 5 * time.Second
	ReconnectMaxMin     = 10 * time.Millisecond

	identBytesMax = 63 // PostgreSQL cuts longer ones
)

// A Config says which tables are watched, and how. The triggers and the listener
// must be given the same Tables, Channel and Schema. It is copied by whom it is given to.
type Config struct {
	// Tables are those that cached queries read. At least one.
	Tables []Table

	// Channel is the channel of NOTIFY. Whoever may connect to the database may send to it; the worst that
	// does is to forget results. Defaults to ChannelDefault ("sqlherd").
	Channel string

	// Schema is where the trigger functions live; Install makes it if it is missing. It should belong to
	// them alone. Defaults to SchemaDefault ("sqlherd").
	Schema string

	// TagsMax bounds how many rows' tags are told one by one for one statement; see Table.GroupTag for what happens
	// above it. At most TagsMaxMax. Defaults to TagsMaxDefault (1000), some three notifications.
	TagsMax int

	// Ping is how often the listener asks the server whether the connection still lives, and how long it waits for
	// the answer: a connection that died silently is noticed after at most twice as long. At least PingMin. Defaults to PingDefault (10s).
	Ping time.Duration

	// ReconnectMax bounds the pause between attempts to connect, which begins at 100 ms and doubles. At least ReconnectMaxMin.
	// Defaults to ReconnectMaxDefault (5s).
	ReconnectMax time.Duration

	// Logger is told of lost connections and their return, and of what is wrong with notifications. Defaults to slog.Default().
	Logger *slog.Logger

	// OnEvent, if set, is called for everything that the listener does, by one goroutine at a time, in order for each kind of
	// event. It must return soon, for invalidations wait for it, and must not call Close.
	OnEvent func(Event)
}

// A Table is a table of which writes are told. A write is told whichever table of
// its family the statement names: the table itself, a partition or child of it, or one that it
// is itself a partition or child of.
type Table struct {
	// Name is the table as SQL has it: products, shop.products, "Odd.Name", shop."Odd Name". Without quotes upper case is
	// folded to lower, without a schema it is in public. To a Herd a table is its last component.
	Name string

	// Tags are what to invalidate for each row that was inserted, updated (with its old values and its new ones) or
	// deleted: product/{id}, where {id} is the value of the column id, written as the database has its name. It comes to the same tag as
	// product/{1} in the hint of a query, when argument 1 is that value. Columns may be integers, text, uuid, boolean and enums, and
	// domains over these. A tag without a column is invalidated by every write. Defaults to none: a write invalidates the table.
	Tags []string

	// TagsOnly leaves out the table itself, so that a write to one row leaves results of other rows alone. Results that should go with
	// their row then say so: @cache tables=none tags=product/{1}; others that read the table are as old as their ttl and swr allow.
	TagsOnly bool

	// GroupTag is a tag that every query has which has one of Tags: @cache tables=none tags=product/{1},products. It is
	// invalidated, beside the table, when rows cannot be told one by one: after TRUNCATE, for more than Config.TagsMax
	// tags in a statement, and after a lost connection. A table's tag would not do, since such results do not depend on it. Defaults to
	// none: then everything in the Herd's namespace is invalidated.
	GroupTag string
}

// tagged says whether tags are made of rows.
func (t *table) tagged() bool { return len(t.columns) > 0 }

// A table is a Table, understood.
type table struct {
	schema, name string
	fixed        []string // tags without a column
	tags         [][]part
	columns      []string // that tags are made of
	tagsOnly     bool
	groupTag     string
}

// A part of a tag is text or a column.
type part struct {
	Text     string
	Column   int // index of table.columns
	IsColumn bool
}

// withDefaults returns the configuration that holds and its tables, or everything that is wrong with it.
func (c Config) withDefaults() (Config, []table, error) {
	c.Channel = cmp.Or(c.Channel, ChannelDefault)
	c.Schema = cmp.Or(c.Schema, SchemaDefault)
	c.TagsMax = cmp.Or(c.TagsMax, TagsMaxDefault)
	c.Ping = cmp.Or(c.Ping, PingDefault)
	c.ReconnectMax = cmp.Or(c.ReconnectMax, ReconnectMaxDefault)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}

	var problems []error
	bad := func(field string, value any, problem string) {
		problems = append(problems, fmt.Errorf("sqlherd/pgnotify: Config.%s: %v %s", field, value, problem))
	}
	for _, f := range []struct{ name, value string }{{"Channel", c.Channel}, {"Schema", c.Schema}} {
		if err := checkIdent(f.value); err != nil {
			bad(f.name, fmt.Sprintf("%q", f.value), err.Error())
		}
	}
	if strings.HasPrefix(c.Schema, "pg_") {
		bad("Schema", fmt.Sprintf("%q", c.Schema), "must not begin with pg_, which PostgreSQL keeps for itself")
	}
	if c.TagsMax < 1 || c.TagsMax > TagsMaxMax {
		bad("TagsMax", c.TagsMax, fmt.Sprintf("must be between 1 and %d", TagsMaxMax))
	}
	if c.Ping < PingMin {
		bad("Ping", c.Ping, fmt.Sprintf("must be at least %v", PingMin))
	}
	if c.ReconnectMax < ReconnectMaxMin {
		bad("ReconnectMax", c.ReconnectMax, fmt.Sprintf("must be at least %v", ReconnectMaxMin))
	}
	if len(c.Tables) == 0 {
		problems = append(problems, errors.New("sqlherd/pgnotify: Config.Tables: must name at least one table"))
	}
	tables := make([]table, 0, len(c.Tables))
	seen := map[[2]string]bool{}
	for i, t := range c.Tables {
		parsed, field, err := t.parse()
		if err != nil {
			problems = append(problems, fmt.Errorf("sqlherd/pgnotify: Config.Tables[%d].%s: %w", i, field, err))
			continue
		}
		if key := [2]string{parsed.schema, parsed.name}; seen[key] {
			bad(fmt.Sprintf("Tables[%d].Name", i), fmt.Sprintf("%q", t.Name), "is there twice")
		} else {
			seen[key] = true
		}
		tables = append(tables, parsed)
	}
	return c, tables, errors.Join(problems...)
}

// parse returns, when something is wrong, the field that is.
func (t Table) parse() (p table, field string, err error) {
	p = table{tagsOnly: t.TagsOnly, groupTag: t.GroupTag}
	if p.schema, p.name, err = parseName(t.Name); err != nil {
		return p, "Name", fmt.Errorf("%q %w", t.Name, err)
	}
	for i, tag := range t.Tags {
		parts, err := p.parseTag(tag)
		if err != nil {
			return p, fmt.Sprintf("Tags[%d]", i), fmt.Errorf("%q %w", tag, err)
		}
		if parts == nil {
			p.fixed = append(p.fixed, tag)
		} else {
			p.tags = append(p.tags, parts)
		}
	}
	if t.TagsOnly && len(t.Tags) == 0 {
		return p, "TagsOnly", errors.New("needs Tags")
	}
	if t.GroupTag != "" {
		if err := checkTag(t.GroupTag); err != nil {
			return p, "GroupTag", fmt.Errorf("%q %w", t.GroupTag, err)
		}
		if strings.ContainsAny(t.GroupTag, "{}") {
			return p, "GroupTag", fmt.Errorf("%q must not depend on a row", t.GroupTag)
		}
		if !p.tagged() {
			return p, "GroupTag", errors.New("needs a tag with a column in Tags")
		}
	}
	return p, "", nil
}

// parseTag answers nil for a tag without a column.
func (t *table) parseTag(tag string) ([]part, error) {
	if err := checkTag(tag); err != nil {
		return nil, err
	}
	var parts []part
	any := false
	for rest := tag; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			parts = append(parts, part{Text: rest})
			break
		}
		size := strings.IndexAny(rest[open+1:], "{}")
		if rest[open] == '}' || size < 0 || rest[open+1+size] == '{' {
			return nil, errors.New("has a brace without its partner; a column is {name}")
		}
		column := rest[open+1 : open+1+size]
		if err := checkIdent(column); err != nil {
			return nil, fmt.Errorf("has the column %q, which %w", column, err)
		}
		if open > 0 {
			parts = append(parts, part{Text: rest[:open]})
		}
		parts = append(parts, part{Column: t.column(column), IsColumn: true})
		rest = rest[open+size+2:]
		any = true
	}
	if !any {
		return nil, nil
	}
	return parts, nil
}

func (t *table) column(name string) int {
	for i, c := range t.columns {
		if c == name {
			return i
		}
	}
	t.columns = append(t.columns, name)
	return len(t.columns) - 1
}

// parseName reads a table's name as PostgreSQL does.
func parseName(s string) (schema, name string, err error) {
	first, rest, err := parseIdent(s)
	if err != nil {
		return "", "", err
	}
	if rest == "" {
		return "public", first, nil
	}
	if rest[0] != '.' {
		return "", "", errors.New("is no name of a table; one with other characters than letters, digits and _ needs double quotes")
	}
	second, rest, err := parseIdent(rest[1:])
	if err != nil {
		return "", "", err
	}
	if rest != "" {
		return "", "", errors.New("must be table or schema.table; other characters than letters, digits and _ need double quotes")
	}
	return first, second, nil
}

// parseIdent reads one component of a name.
func parseIdent(s string) (ident, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		for i := 1; i < len(s); i++ {
			if s[i] != '"' {
				continue
			}
			if i+1 < len(s) && s[i+1] == '"' {
				i++
				continue
			}
			ident = strings.ReplaceAll(s[1:i], `""`, `"`)
			return ident, s[i+1:], checkIdent(ident)
		}
		return "", "", errors.New("has a quote without its partner")
	}
	end := 0
	for end < len(s) {
		c := s[end]
		if c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf || end > 0 && (c == '$' || '0' <= c && c <= '9') {
			end++
			continue
		}
		break
	}
	// PostgreSQL folds ASCII alone in a database in UTF-8.
	ident = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, s[:end])
	return ident, s[end:], checkIdent(ident)
}

func checkIdent(s string) error {
	if len(s) > identBytesMax {
		return fmt.Errorf("must be at most %d bytes long", identBytesMax)
	}
	return checkWord(s)
}

// checkTag holds a tag to what Herd.Invalidate takes.
func checkTag(s string) error {
	if len(s) > sqlherd.TagBytesMax {
		return fmt.Errorf("must be at most %d bytes long", sqlherd.TagBytesMax)
	}
	return checkWord(s)
}

func checkWord(s string) error {
	switch {
	case s == "":
		return errors.New("must not be empty")
	case !utf8.ValidString(s):
		return errors.New("must be UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("must not contain control characters")
	}
	return nil
}
