package sqlherd

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// ctxOptions is all that a context can say, under one key: a query looks a context up once.
type ctxOptions struct {
	policy  *Policy
	tags    []string
	badTag  error // that one of tags is no tag
	scope   string
	bypass  bool
	refresh bool
	info    *Info
}

type ctxKey struct{}

func optionsOf(ctx context.Context) *ctxOptions {
	o, _ := ctx.Value(ctxKey{}).(*ctxOptions)
	return o
}

func withOptions(ctx context.Context, set func(*ctxOptions)) context.Context {
	var o ctxOptions
	if old := optionsOf(ctx); old != nil {
		o = *old
	}
	set(&o)
	return context.WithValue(ctx, ctxKey{}, &o)
}

// WithPolicy returns a context under which queries are cached by p, whatever their
// hint or a rule says. Zero fields are filled from Config.Default. It does not make cacheable
// what is not: writes, locking reads and the rest of the guards stand. An invalid
// policy is treated as a malformed hint is: see Config.StrictHints.
func WithPolicy(ctx context.Context, p Policy) context.Context {
	p.Tags, p.Tables = slices.Clone(p.Tags), slices.Clone(p.Tables)
	return withOptions(ctx, func(o *ctxOptions) { o.policy = &p })
}

// WithTags returns a context under which cached queries depend on tags, besides what
// their hint says, and writes invalidate tags, besides what they write. It adds to the
// tags of an outer WithTags. A tag is 1 to TagBytesMax bytes of UTF-8 without control characters, as for
// Herd.Invalidate; any other is treated as a malformed hint is: queries are not cached, writes
// forget everything, and see Config.StrictHints. It is taken as it is, without a place for an argument; see Tag.
func WithTags(ctx context.Context, tags ...string) context.Context {
	return withOptions(ctx, func(o *ctxOptions) {
		o.tags = append(slices.Clip(o.tags), tags...)
		for _, t := range tags {
			if err := checkTag(t); err != nil && o.badTag == nil {
				o.badTag = fmt.Errorf("sqlherd: WithTags: tag %q %w", shorten(t), err)
			}
		}
	})
}

// WithScope returns a context under which queries see only rows that were cached under
// the same scope, such as a tenant or a user that the database knows
// from elsewhere than the text, the arguments and the login.
func WithScope(ctx context.Context, scope string) context.Context {
	return withOptions(ctx, func(o *ctxOptions) { o.scope = scope })
}

// Bypass returns a context under which no query is answered from the cache, or stored.
// Writes still invalidate.
func Bypass(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *ctxOptions) { o.bypass = true })
}

// Refresh returns a context under which queries that have a policy are loaded now, and
// replace what is cached. Concurrent callers under Refresh share one load.
func Refresh(ctx context.Context) context.Context {
	return withOptions(ctx, func(o *ctxOptions) { o.refresh = true })
}

// WithInfo returns a context under which every query writes into info how it was answered,
// before it returns its rows. One whose rows could not be had counts as a Miss. One
// info must not be used by two queries at the same time; the last one stays.
func WithInfo(ctx context.Context, info *Info) context.Context {
	return withOptions(ctx, func(o *ctxOptions) { o.info = info })
}

// Info says how one query was answered.
type Info struct {
	Outcome Outcome
	// Reason says why the query was not cached; ReasonNone otherwise.
	Reason Reason
	// Detail names what decided Reason: the word, the function, the
	// argument's type. It holds no argument's value.
	Detail string
	// Key identifies the result, as a short hexadecimal digest. Empty when there is no key.
	Key string
	// Age is how long ago the rows were read from the database, within the
	// accuracy of the store's clock. Zero for rows just loaded.
	Age time.Duration
	// Policy is what the query was cached by. Nil when none applies.
	Policy *Policy
	// Name is the label of the query family.
	Name string
}
