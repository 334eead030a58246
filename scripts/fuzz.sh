#!/usr/bin/env bash
# Runs every fuzz target of every module for FUZZTIME (20s), one after the other.
# What one finds is kept under testdata/fuzz of its package: commit it.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

fuzz_module() {
	local package listed target status=0
	for package in $(go list ./...); do
		if ! listed=$(go test -list '^Fuzz' "$package"); then
			printf '%s\n' "$listed"
			status=1
			continue
		fi
		for target in $(grep '^Fuzz' <<<"$listed" || true); do
			printf '%s%s %s%s\n' "$bold" "${package##*/}" "$target" "$plain"
			go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-20s}" "$package" || status=1
		done
	done
	return $status
}
in_modules fuzz_module
