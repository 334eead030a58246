#!/usr/bin/env bash
# The test command: everything that must hold before a change lands. It installs
# the servers that are missing, starts them, runs the checks below in every
# module of go.work, stops the servers, and ends with the number of tests.
#
# A check that fails does not keep the next ones from running. Every module is
# tested on its own (GOWORK=off), as its users get it, with the race detector and in
# shuffled order; the root module, which has bounds for what it allocates, without as well.
# On a fresh machine most of the time goes into compiling: what would compile all
# drivers once more is left to make lint, make vet and make integration.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

# First call: prepare, and run the second under the servers' care. They are
# stopped however it ends.
if [[ ${1-} != --with-servers ]]; then
	cc=$(go env CC)
	if [[ $(go env CGO_ENABLED) != 1 ]] || ! command -v "${cc%% *}" >/dev/null; then
		echo "The race detector needs cgo and a C compiler (Debian: apt-get install gcc libc6-dev)." >&2
		exit 1
	fi
	build_tools
	scripts/install-servers.sh
	scripts/install-spin.sh
	exec "$SERVERS" run bash scripts/test.sh --with-servers </dev/null
fi

state=$(mktemp)
trap 'rm -f "$state"' EXIT
failed=()

# check NAME COMMAND… runs one check and notes whether it failed.
check() {
	local name=$1 began=$SECONDS
	shift
	printf '\n%s%s%s\n' "$bold" "$name" "$plain"
	if "$@"; then
		printf '%sok%s    %ds\n' "$green" "$plain" $((SECONDS - began))
	else
		printf '%sFAIL%s  %s, %ds\n' "$red" "$plain" "$name" $((SECONDS - began))
		failed+=("$name")
	fi
}

formatted() {
	local files
	files=$(gofmt -l .) || return 1
	if [[ -n $files ]]; then
		printf '%s\n' "not formatted (make fmt):" "$files"
		return 1
	fi
}

tidied() {
	local diff errors
	errors=$(mktemp)
	if diff=$(GOWORK=off go mod tidy -diff 2>"$errors"); then
		rm -f "$errors"
		return 0
	fi
	if [[ -n $diff ]]; then
		printf '%s\n' "not tidy (make tidy): $(module_name)" "$(head -n 40 <<<"$diff")"
	elif grep -qE 'dial tcp|no such host|i/o timeout|TLS handshake|module lookup disabled' "$errors"; then
		echo "not checked, the module proxy cannot be reached: $(module_name)"
		rm -f "$errors"
		return 0
	else
		cat "$errors"
	fi
	rm -f "$errors"
	return 1
}

# What is compiled for another system and for 32 bits. The rest is for make vet.
elsewhere() { quietly env CGO_ENABLED=0 GOOS=windows GOARCH=386 go vet .; }

# tests NAME FLAG… runs the tests of every module and keeps the counts.
tests() {
	local name=$1
	shift
	in_modules tests_here "$name" "$@"
}

tests_here() {
	local name=$1
	shift
	"$root/.cache/bin/testreport" run -name "$(module_name), $name" -state "$state" -- \
		go test -json -count=1 -timeout=15m "$@" ./...
}

check "formatting" formatted
check "go.mod and go.sum" in_modules tidied
check "vet" quietly go vet ./... ./contrib/pgnotify/... ./contrib/webhook/...
check "vet for Windows with 32 bits" elsewhere
check "the model of the protocol" docs/model/check.sh
check "simulation, 10,000 seeds" quietly env SQLHERD_SEEDS=10000 go test -run '^TestSimulation$' -count=1 -timeout=10m .
# One package at a time: some tests hold the clock against the code.
check "tests of the root module" tests_here "plain" -p=1
GOWORK=off check "tests of every module alone, with the race detector" tests "alone, race" -race -shuffle=on
GOWORK=off check "benchmarks, once" in_modules quietly go test -race -run='^$' -bench=. -benchtime=1x ./...

printf '\n%ssummary%s after %d min %02d s\n' "$bold" "$plain" $((SECONDS / 60)) $((SECONDS % 60))
for name in ${failed[@]+"${failed[@]}"}; do
	printf '%sfailed%s   check: %s\n' "$red" "$plain" "$name"
done
.cache/bin/testreport summary -state "$state" -skips scripts/allowed-skips || failed+=("tests")
((${#failed[@]} == 0))
