#!/usr/bin/env bash
# servers.sh start|stop STATEFILE: the test servers, for development. start
# installs what is missing, leaves them running, and prints export lines alone
# on stdout.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

build_tools >&2
if [[ $1 == start ]]; then
	scripts/install-servers.sh >&2
fi
exec "$SERVERS" "$@"
