#!/usr/bin/env bash
# Installs spin, which checks docs/model/sqlherd.pml, from Debian's (or Ubuntu's)
# package when it is missing, as install-servers.sh does with the servers. Otherwise
# says what to install, and fails. SQLHERD_NO_INSTALL=1: never install, only say.
set -euo pipefail

if command -v spin >/dev/null; then
	exit 0
fi

say_and_fail() {
	cat >&2 <<END

The model needs spin, which is not installed. $1

  Debian, Ubuntu:  sudo apt-get install spin
  macOS:           brew install spin
  elsewhere:       https://github.com/nimble-code/Spin

END
	exit 1
}

if [[ -n ${SQLHERD_NO_INSTALL-} ]]; then
	say_and_fail "SQLHERD_NO_INSTALL is set, so nothing was installed."
fi
if ! command -v apt-get >/dev/null; then
	say_and_fail "This machine has no apt-get to install it with."
fi
as_root=(env)
if ((EUID != 0)); then
	if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
		say_and_fail "Neither root nor a sudo without password is at hand to install it."
	fi
	as_root=(sudo -n)
fi

echo "installing spin"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for step in update "install -y --no-install-recommends spin"; do
	# shellcheck disable=SC2086 # words
	if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 $step >"$log" 2>&1 </dev/null; then
		tail -n 40 "$log" >&2
		say_and_fail "apt-get $step failed; the end of what it said is above."
	fi
done
command -v spin >/dev/null || say_and_fail "apt-get reported success, and yet it is not there."
