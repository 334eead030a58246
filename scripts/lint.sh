#!/usr/bin/env bash
# Runs golangci-lint, at the version below, in every module of go.work. Its
# binary is built once, into .cache/bin; from nothing that takes some two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

version=v2.15.0
linter=$PWD/.cache/bin/golangci-lint-$version

if [[ ! -x $linter ]]; then
	echo "building golangci-lint $version"
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	if ! out=$(GOWORK=off GOBIN=$dir go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version" 2>&1); then
		printf '%s\n' "$out" >&2
		exit 1
	fi
	mkdir -p .cache/bin
	mv "$dir/golangci-lint" "$linter"
fi
in_modules "$linter" run --config "$PWD/.golangci.yml" ./... "$@"
