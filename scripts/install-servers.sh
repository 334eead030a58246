#!/usr/bin/env bash
# Installs the servers that the tests need and this machine lacks: PostgreSQL,
# MariaDB and Redis, from Debian's (or Ubuntu's) packages, when run as root or
# with a sudo that asks no password. Otherwise says what to install, and fails.
#
# The packages would start each server as a system service, now and at every
# boot; both are prevented. SQLHERD_NO_INSTALL=1: never install, only say.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh
missing=$("$SERVERS" missing | xargs)
if [[ -z $missing ]]; then
	exit 0
fi

say_and_fail() {
	cat >&2 <<END

The tests need servers that are not installed: $missing.
$1

  Debian, Ubuntu:  sudo apt-get install $missing
  Fedora:          sudo dnf install postgresql-server mariadb-server redis   (or valkey)
  macOS:           brew install postgresql mariadb redis

They need not be running: the tests start their own, on free ports, with
temporary data.
END
	exit 1
}

if [[ -n ${SQLHERD_NO_INSTALL-} ]]; then
	say_and_fail "SQLHERD_NO_INSTALL is set, so nothing was installed."
fi
if ! command -v apt-get >/dev/null; then
	say_and_fail "This machine has no apt-get to install them with."
fi
as_root=(env)
if ((EUID != 0)); then
	if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
		say_and_fail "Neither root nor a sudo without password is at hand to install them."
	fi
	as_root=(sudo -n)
fi

# Debian's maintainer scripts ask this program whether they may start a service.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
	trap 'exit 130' INT TERM HUP
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod 0755 "$policy"
fi

echo "installing $missing"
log=$(mktemp)
apt() {
	if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; then
		tail -n 40 "$log" >&2
		rm -f "$log"
		say_and_fail "apt-get $1 failed; the end of what it said is above."
	fi
}
apt update
# shellcheck disable=SC2086 # a word for each package
apt install -y --no-install-recommends $missing
rm -f "$log"

# Not at the next boot either.
for package in $missing; do
	service=${package/mariadb-server/mariadb}
	"${as_root[@]}" update-rc.d "$service" disable >/dev/null 2>&1 || true
	if command -v systemctl >/dev/null; then
		"${as_root[@]}" systemctl disable "$service" >/dev/null 2>&1 || true
	fi
done

missing=$("$SERVERS" missing | xargs)
if [[ -n $missing ]]; then
	say_and_fail "apt-get reported success, and yet they are not there."
fi
