# Sourced by the other scripts, from the root of the repository.

# Version stamps need git to trust the folder, and nothing here reads them.
export GOFLAGS="${GOFLAGS-} -buildvcs=false"
export SERVERS=.cache/bin/servers

if [[ -t 1 && -z ${NO_COLOR-} ]]; then
	bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
	bold='' red='' green='' plain=''
fi

# modules are the folders of the modules of go.work, relative to the root.
modules=()
while read -r dir; do
	[[ $dir == "$PWD" ]] && modules+=(.) || modules+=("${dir#"$PWD"/}")
done < <(go list -m -f '{{.Dir}}')

# in_modules COMMAND… runs a command in every module, and fails if it failed in one.
in_modules() {
	local module status=0
	for module in "${modules[@]}"; do
		(cd "$module" && "$@") || status=1
	done
	return $status
}

# quietly COMMAND… shows what a command printed only when it fails.
quietly() {
	local out
	if ! out=$("$@" 2>&1); then
		printf '%s\n' "in ${PWD##*/}: $*" "$out"
		return 1
	fi
}

# build_tools builds the programs of scripts/.
build_tools() {
	mkdir -p .cache/bin
	GOWORK=off go build -o .cache/bin/ ./scripts/servers ./scripts/testreport
}
