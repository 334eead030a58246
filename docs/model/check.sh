#!/usr/bin/env bash
# Checks sqlherd.pml: every configuration exhaustively, and every mutation until
# a violation is found. Prints one table; fails on any result that is not the
# expected one, also on a search that did not reach its end. `make model` is this.
#
#   check.sh            everything
#   check.sh NAME       one line of the table, and the trail of its counterexample
set -euo pipefail
cd "$(dirname "$0")"
MODEL=$PWD/sqlherd.pml

# name | expected | options of spin. "holds": no violation in the whole state
# space. "fails": a mutation, in the smallest configuration that shows it.
table() {
	cat <<'END'
one load|holds|-DR0=2 -DR1=1 -DW0=0 -DNO_REFRESH -DONE_LOAD
no lost wake-up|holds|-DR0=1 -DR1=2 -DW0=0 -DNO_POLL -DNO_REFRESH
no lost wake-up, a write|holds|-DR0=1 -DR1=1 -DW0=1 -DNO_POLL
own write|holds|-DR0=2 -DR1=0 -DREADS=2 -DW0=1 -DNO_REFRESH
refresh|holds|-DR0=1 -DR1=1 -DW0=1
two writers|holds|-DR0=1 -DR1=0 -DREADS=2 -DW0=1 -DW1=1 -DNO_REFRESH
evictions|holds|-DR0=1 -DR1=1 -DW0=1 -DEVICTIONS=2 -DNO_REFRESH
Redis loses all|holds|-DR0=1 -DR1=1 -DW0=1 -DFLUSHES=1 -DEVICTIONS=1 -DNO_REFRESH
lost messages|holds|-DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DLOSSY -DNO_REFRESH
no subscription|holds|-DR0=2 -DR1=0 -DREADS=1 -DW0=0 -DW1=1 -DDEAF
no subscription, a second read|holds|-DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DDEAF
failing calls|holds|-DR0=1 -DR1=1 -DW0=1 -DFAILURES=1 -DNO_REFRESH
stopped holder, unseen write|holds|-DR0=1 -DR1=1 -DREADS=2 -DW0=0 -DUNSEEN=1 -DEXPIRIES=1 -DNO_REFRESH
a process dies|holds|-DR0=1 -DR1=1 -DW0=0 -DW1=1 -DCRASH -DNO_REFRESH
strict, own process|holds|-DSTRICT -DR0=0 -DR1=1 -DREADS=2 -DW0=0 -DW1=1 -DREFUSED -DNO_REFRESH
strict, two writers|holds|-DSTRICT -DDEAF -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=2 -DNO_REFRESH
strict, the writer dies|holds|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DCRASH -DREFUSED -DUNSURE -DNO_REFRESH
soft, a strict reader|holds|-DSOFT=1 -DSWR=2 -DR0=1 -DR1=1 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH
soft, readers with swr|holds|-DSOFT=1 -DSWR=3 -DR0=1 -DR1=1 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH
soft and hard, a reader with swr|holds|-DSOFT=2 -DSWR=1 -DR0=1 -DR1=0 -DREADS=2 -DW0=1 -DW1=1 -DNO_REFRESH
pending left out|fails|-DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DNO_REFRESH -DMUT_NO_PENDING
stamps not compared|fails|-DR0=1 -DR1=1 -DW0=1 -DNO_REFRESH -DMUT_NO_STAMP_COMPARE
missing stamp is valid|fails|-DR0=1 -DR1=1 -DW0=1 -DNO_REFRESH -DMUT_MISSING_IS_VALID
counter instead of random|fails|-DR0=1 -DR1=1 -DW0=1 -DEVICTIONS=1 -DNO_REFRESH -DMUT_COUNTER
bump before commit|fails|-DR0=1 -DR1=1 -DW0=1 -DNO_REFRESH -DMUT_BUMP_BEFORE_COMMIT
token per process|fails|-DR0=2 -DR1=0 -DW0=1 -DNO_REFRESH -DMUT_TOKEN_PER_PROCESS
no second look with the lease|fails|-DR0=1 -DR1=1 -DW0=0 -DNO_REFRESH -DONE_LOAD -DMUT_NO_SECOND_LOOK
memory under the epoch of the end|fails|-DR0=2 -DR1=0 -DW0=1 -DNO_REFRESH -DMUT_MARK_AFTER_READING
flights of any epoch|fails|-DR0=2 -DR1=0 -DW0=1 -DNO_REFRESH -DMUT_FLIGHT_OF_ANY_EPOCH
stamps read after the load|fails|-DR0=1 -DR1=1 -DW0=1 -DNO_REFRESH -DMUT_STAMPS_AFTER_LOAD
store without fence|fails|-DR0=1 -DR1=1 -DREADS=2 -DW0=0 -DUNSEEN=1 -DEXPIRIES=1 -DNO_REFRESH -DMUT_NO_FENCE
release another's lease|fails|-DR0=1 -DR1=1 -DW0=1 -DEXPIRIES=1 -DNO_REFRESH -DMUT_RELEASE_ANOTHERS
message ignored|fails|-DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DNO_REFRESH -DMUT_MESSAGE_IGNORED
message before the stamp|fails|-DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DNO_REFRESH -DMUT_MESSAGE_BEFORE_STAMP
trust without subscription|fails|-DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DDEAF -DNO_REFRESH -DMUT_TRUST_WITHOUT_SUBSCRIPTION
compared as of the load's end|fails|-DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DLOSSY -DNO_REFRESH -DMUT_CHECKED_AT_THE_END
failed invalidation forgotten|fails|-DR0=1 -DR1=1 -DW0=1 -DFAILURES=1 -DNO_REFRESH -DMUT_FORGET_FAILED
a joined load is always believed|fails|-DR0=2 -DR1=0 -DW0=0 -DW1=1 -DDEAF -DNO_REFRESH -DMUT_BELIEVE_ALWAYS
watch after asking|fails|-DR0=1 -DR1=1 -DW0=1 -DNO_REFRESH -DNO_POLL -DMUT_WATCH_AFTER_ASKING
lease without end|fails|-DR0=1 -DR1=1 -DW0=0 -DW1=0 -DCRASH -DNO_REFRESH -DMUT_LEASE_WITHOUT_END
strict: no fence|fails|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH -DMUT_NO_WRITE_FENCE
strict: fence after the commit|fails|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH -DMUT_FENCE_AFTER_COMMIT
strict: lift another's fence|fails|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=1 -DW1=1 -DNO_REFRESH -DMUT_LIFT_ANOTHERS
strict: lift at unknown outcome|fails|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DUNSURE -DNO_REFRESH -DMUT_LIFT_WHEN_UNSURE
strict: old stamp after a dead fence|fails|-DSTRICT -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DCRASH -DNO_REFRESH -DMUT_FENCE_ENDS_WITHOUT_STAMP
strict: fence without end|fails|-DSTRICT -DR0=1 -DR1=0 -DW0=0 -DW1=1 -DCRASH -DNO_REFRESH -DMUT_FENCE_WITHOUT_END
soft: told nowhere|fails|-DSOFT=1 -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH -DMUT_SOFT_TOLD_NOWHERE
soft: message ignored|fails|-DSOFT=1 -DR0=1 -DR1=1 -DREADS=2 -DW0=1 -DNO_REFRESH -DMUT_SOFT_MESSAGE_IGNORED
soft: fresh in memory|fails|-DSOFT=1 -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH -DMUT_SOFT_FRESH_IN_MEMORY
soft: fresh in Redis|fails|-DSOFT=1 -DR0=1 -DR1=0 -DREADS=2 -DW0=0 -DW1=1 -DNO_REFRESH -DMUT_SOFT_FRESH_IN_REDIS
soft: revives after a hard one|fails|-DSOFT=2 -DSWR=1 -DR0=1 -DR1=0 -DREADS=2 -DW0=1 -DW1=1 -DNO_REFRESH -DMUT_SOFT_REVIVES
lost messages, no polls|fails|-DR0=1 -DR1=1 -DW0=0 -DLOSSY -DNO_REFRESH -DNO_POLL
END
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# check DIR NAME EXPECTED OPTION… prints one line of the table, and fails when the result is another. What spin
# leaves is in DIR.
check() {
	local dir=$1 name=$2 want=$3 got states began ended
	shift 3
	mkdir "$dir"
	began=$(date +%s%N)
	(
		cd "$dir"
		spin "$@" -a "$MODEL" >spin.out
		gcc "$([[ $want == holds ]] && echo -O1 || echo -O0)" -w -DSAFETY -DCOLLAPSE -DNOCLAIM -DVECTORSZ=2048 -DMEMLIM=2048 -o pan pan.c
		./pan -m100000 >pan.out 2>&1
	) || true # what is not there, or says so, is no result that anybody wants
	ended=$(date +%s%N)
	states=$(awk '/states, stored/ { print $1 }' "$dir/pan.out" || true)
	if [[ -n $(compgen -G "$dir/*.trail") ]]; then
		got=$(sed -n 's/^pan:1: //p' "$dir/pan.out" | sed 's/ (at depth.*//')
		got="fails: $got"
	elif grep -q 'errors: 0' "$dir/pan.out" && ! grep -qE 'Search not completed|max search depth' "$dir/pan.out"; then
		got=holds
	else
		got="unfinished: $(grep -m1 -iE 'error|out of memory|not completed|depth' "$dir/pan.out" || true)"
	fi
	local mark=""
	if [[ ${got%%:*} != "$want" ]]; then
		mark="  UNEXPECTED, wanted: $want"
	fi
	printf '%-34s %11s %6s  %s%s\n' "$name" "${states:-?}" "$(awk "BEGIN { printf \"%.1f\", ($ended - $began) / 1e9 }")" "$got" "$mark"
	[[ -z $mark ]]
}

printf '%-34s %11s %6s  %s\n' "configuration or mutation" states s result
if (($#)); then
	line=$(table | awk -F'|' -v name="$1" '$1 == name')
	if [[ -z $line ]]; then
		echo "no line of the table is called $1" >&2
		exit 1
	fi
	IFS='|' read -r name want options <<<"$line"
	read -ra options <<<"$options"
	status=0
	check "$tmp/one" "$name" "$want" "${options[@]}" || status=1
	if [[ -n $(compgen -G "$tmp/one/*.trail") ]]; then
		cp "$MODEL" "$tmp/one/"
		(cd "$tmp/one" && spin "${options[@]}" -t -p -g -l sqlherd.pml)
	fi
	exit $status
fi

# As many at a time as there are processors. Each line is printed as soon as those above it are.
mapfile -t lines < <(table)
jobs=$(nproc) started=0 status=0 pids=()
start() {
	local name want options
	IFS='|' read -r name want options <<<"${lines[started]}"
	read -ra options <<<"$options"
	check "$tmp/$started" "$name" "$want" "${options[@]}" >"$tmp/$started.line" 2>&1 &
	pids[started]=$!
	started=$((started + 1))
}
while ((started < jobs && started < ${#lines[@]})); do start; done
for ((printed = 0; printed < ${#lines[@]}; printed++)); do
	while kill -0 "${pids[printed]}" 2>/dev/null; do
		wait -n || true # its status is asked for below
		while ((started < ${#lines[@]} && $(jobs -pr | wc -l) < jobs)); do start; done
	done
	wait "${pids[printed]}" || status=1
	cat "$tmp/$printed.line"
	rm -rf "${tmp:?}/$printed"
	while ((started < ${#lines[@]} && $(jobs -pr | wc -l) < jobs)); do start; done
done
exit $status
