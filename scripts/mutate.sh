#!/usr/bin/env bash
# Breaks one rule of the protocol after the other in a copy of the code, and runs
# the root module's tests against each: what no test notices is a gap in them.
#
#   mutate.sh           all of them, and a table
#   mutate.sh PATTERN   those whose name matches, such as 'strict.*'
#
# It begins with no mutation at all, which must pass, or whatever fails anyway would seem to notice everything.
#
# A mutation is a name, a file, the text to replace (which must be there exactly once, so that
# the list cannot rot unseen), and what takes its place.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
status=0 found=0
printf '%-44s %5s  %s\n' mutation s result

# mutate NAME FILE OLD NEW
mutate() {
	local name=$1 file=$2 old=$3 new=$4 began=$SECONDS result
	[[ -z $only || $name =~ ^($only)$ || $name == nothing ]] || return 0
	[[ $name == nothing ]] || found=1
	rm -rf "$dir/copy"
	mkdir "$dir/copy"
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$dir/copy" 2>/dev/null || true # deleted files
	if ! OLD=$old NEW=$new perl -0pi -e '$n = s/\Q$ENV{OLD}\E/$ENV{NEW}/g; END { exit($n == 1 ? 0 : 1) }' "$dir/copy/$file"; then
		printf '%-44s %5s  NOT APPLIED: the text is not there exactly once\n' "$name" -
		status=1
		return
	fi
	if ! (cd "$dir/copy" && GOWORK=off go vet . >"$dir/out" 2>&1); then
		printf '%-44s %5s  NOT COMPILED\n' "$name" -
		cat "$dir/out"
		status=1
		return
	fi
	# shellcheck disable=SC2086 # flags
	if (cd "$dir/copy" && GOWORK=off go test -count=1 -timeout=5m -failfast ${MUTATE_FLAGS-} . >"$dir/out" 2>&1); then
		result="SURVIVED"
		[[ $name == nothing ]] && result="passes" || status=1
	elif [[ $name == nothing ]]; then
		cat "$dir/out"
		echo "The tests fail without any mutation." >&2
		exit 1
	else
		result="killed by $(grep -aoE -m1 -- '--- FAIL: [^ ]+|panic: .*' "$dir/out" | sed 's/--- FAIL: //' || echo "?")"
	fi
	printf '%-44s %4ds  %s\n' "$name" $((SECONDS - began)) "$result"
}

only=${1-}

mutate nothing doc.go 'package sqlherd' 'package sqlherd'
mutate "stamps not compared" entry.go \
	'if current[i] == (stamp{}) || of.hard() != current[i].hard() {' \
	'if current[i] == (stamp{}) {'
mutate "missing stamp is valid" entry.go \
	'if current[i] == (stamp{}) || of.hard() != current[i].hard() {' \
	'if current[i] != (stamp{}) && of.hard() != current[i].hard() {'
mutate "counter instead of random stamps" redisstore.go \
	'rand.Read(fresh[:])' \
	'fresh[15] = 1'
mutate "token per process" redisstore.go \
	'l := lease{key: key, tags: tags, token: rand.Text()}' \
	'l := lease{key: key, tags: tags, token: hex.EncodeToString(s.self[:])}'
mutate "store over another's lease" lua/put.lua \
	"if type(held) == 'string' and not ours then" \
	'if false then'
mutate "store without fence" lua/put.lua \
	'if stored > fence and stored < 9007199254740991 then' \
	'if false then'
mutate "release another's lease" lua/release.lua \
	"if redis.pcall('GET', KEYS[1]) == ARGV[1] then" \
	'if true then'
mutate "lease without end" lua/obtain.lua \
	"redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])" \
	"redis.call('SET', KEYS[2], ARGV[1])"
mutate "bump before commit" conn.go \
	'	err := t.real.Commit()
	returned = true
	t.c.h.settle(t.ctx, t.end(), f, err)' \
	'	returned = true
	t.c.h.settle(t.ctx, t.end(), f, nil)
	err := t.real.Commit()'
mutate "lost answer of a write is no write" conn.go \
	'p.mayHaveWritten(err)' \
	'err == nil'
mutate "pending left out" tags.go \
	'if e.waits[s].Load() > 0 {' \
	'if e.waits[s].Load() < 0 {'
mutate "failed invalidation forgotten" invalidate.go \
	'h.retry.add(left, soft, g.epochs.slotsOf(left), func() {}, err)' \
	'g.epochs.free(g.epochs.slotsOf(left))'
mutate "memory filled under the new epoch" memstore.go \
	'	if m.epochs.mark(e.slots) != e.mark {
' \
	'	if e.mark = m.epochs.mark(e.slots); false {
'
mutate "flights of any epoch" swr.go \
	'b = binary.BigEndian.AppendUint64(b, mark)' \
	'b = binary.BigEndian.AppendUint64(b, 0*mark)'
mutate "no second look with the lease" swr.go \
	'if l.entryPresent && !r.force {' \
	'if false {'
mutate "compared as of the load's end" swr.go \
	'e.checked.Store(began)' \
	'e.checked.Store(ended)'
mutate "trust without subscription" swr.go \
	'if !g.listening.Load() {' \
	'if false {'
mutate "a joined load is always believed" swr.go \
	'if g.store == nil || land.e == nil {' \
	'if true || g.store == nil {'
mutate "old rows while a write is on its way" swr.go \
	'doubted.e != nil && !a.shared && g.epochs.mark(r.slots) == mark' \
	'doubted.e != nil && !a.shared'
mutate "replica lag ignored" swr.go \
	'began < last+int64(lag)' \
	'began < last-int64(lag)'
mutate "message of a write ignored" swr.go \
	'	g.epochs.move(g.epochs.slotsOf(tags), g.now())
	g.counters.invalidationsHeard' \
	'	g.counters.invalidationsHeard'
mutate "waiter ignores a release" swr.go \
	'func (g *engine) releasedElsewhere(id keyID) { g.watch.tell(id) }' \
	'func (g *engine) releasedElsewhere(id keyID) {}'
mutate "waiter ignores what was stored" swr.go \
	'func (g *engine) storedElsewhere(id keyID)   { g.watch.tell(id) }' \
	'func (g *engine) storedElsewhere(id keyID)   {}'
mutate "strict: no fence" fence.go \
	'if !h.cfg.Strict || g.store == nil' \
	'if true || !h.cfg.Strict || g.store == nil'
mutate "strict: fence after the commit" conn.go \
	'	f, returned := t.c.h.fence(t.ctx, t.c.dirty), false
	defer func() {
		if !returned {
			t.c.h.settle(t.ctx, t.end(), f, errPanicked)
		}
	}()
	err := t.real.Commit()
	returned = true' \
	'	err := t.real.Commit()
	f := t.c.h.fence(t.ctx, t.c.dirty)'
mutate "strict: an unknown outcome lifts the fence" invalidate.go \
	'case unsure(outcome):' \
	'case false && unsure(outcome):'
mutate "strict: a refused write leaves its fence" invalidate.go \
	'			f.lift(ctx)
			f = nil' \
	'			f = nil'
mutate "strict: the commit of a text is not fenced" conn.go \
	'		if ends {
			may.add(c.dirty)' \
	'		if false {
			may.add(c.dirty)'
mutate "strict: message of a fence ignored" swr.go \
	'	g.epochs.move(g.epochs.slotsOf(tags), g.now())
	g.counters.fencesHeard' \
	'	g.counters.fencesHeard'
mutate "soft: message ignored" swr.go \
	'	g.epochs.soften(g.epochs.slotsOf(tags), g.now())' \
	'	_ = tags'
mutate "soft: fresh in this process" invalidate.go \
	'true, g.epochs.soften, func' \
	'true, func([]uint16, int64) {}, func'
mutate "soft: Redis is not told" invalidate.go \
	'return g.store.soften(ctx, soft)' \
	'_ = soft; return nil'
mutate "soft: a lagging replica's rows are fresh" tags.go \
	'		e.movedAt[s].Store(now)
		e.softs[s].Add(1)' \
	'		e.softs[s].Add(1)'
mutate "soft: fresh in Redis" entry.go \
	'softened = softened || of != current[i]' \
	'_ = of'

if ((!found)); then
	echo "no mutation is called $only" >&2
	exit 1
fi
exit $status
