#!/usr/bin/env bash
# each.sh COMMAND… runs a command in the folder of every module of go.work.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
in_modules "$@"
