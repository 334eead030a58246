# Sourced by the other scripts, from the root of the repository.
# shellcheck shell=bash disable=SC2034

# Version stamps need git to trust the folder, and nothing here reads them.
export GOFLAGS="${GOFLAGS-} -buildvcs=false"
export SERVERS=.cache/bin/servers

if [[ -t 1 && -z ${NO_COLOR-} ]]; then
	bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
	bold='' red='' green='' plain=''
fi

cd -P . || exit # go prints paths without symbolic links
root=$PWD

# modules are the folders of the modules of go.work, relative to the root.
modules=()
while read -r dir; do
	[[ $dir == "$root" ]] && modules+=(.) || modules+=("${dir#"$root"/}")
done < <(go list -m -f '{{.Dir}}')
if ((${#modules[@]} == 0)); then
	echo "go.work names no module" >&2
	exit 1
fi

# in_modules COMMAND… runs a command in every module, and fails if it failed in one.
in_modules() {
	local module status=0
	for module in "${modules[@]}"; do
		(cd "$module" && "$@") || status=1
	done
	return $status
}

# module_name names the module whose folder this is: root, or the folder's path.
module_name() { [[ $PWD == "$root" ]] && echo root || echo "${PWD#"$root"/}"; }

# quietly COMMAND… shows what a command printed only when it fails.
quietly() {
	local out
	if ! out=$("$@" 2>&1); then
		printf '%s\n' "$(module_name): $*" "$out"
		return 1
	fi
}

# build_tools builds the programs of scripts/.
build_tools() {
	mkdir -p .cache/bin
	GOWORK=off go build -o .cache/bin/ ./scripts/servers ./scripts/testreport
}
