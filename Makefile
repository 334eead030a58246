# make help lists the targets. Each works from a fresh clone.

FUZZTIME  ?= 20s
BENCHTIME ?= 1s
BENCH     ?= .
SEEDS     ?= 10000
SOAK      ?= 2m

SERVERS_STATE := .cache/servers.json

.DEFAULT_GOAL := help
.PHONY: help test race integration soak lint vet fuzz bench tidy fmt servers servers-stop clean

help: ## this list
	@awk -v tty="$$(test -t 1 && test -z "$$NO_COLOR" && echo 1)" ' \
		BEGIN { FS = ":.*## "; if (tty) { b = "\033[1m"; c = "\033[36m"; z = "\033[0m" } \
			printf "%ssqlherd%s: stampede-proof query caching beneath database/sql\n\n", b, z } \
		/^[a-z-]+:.*## / { printf "  %smake %-13s%s %s\n", c, $$1, z, $$2 } \
		END { print "" }' $(MAKEFILE_LIST)

test: ## everything that must hold: checks, and all tests against servers it starts itself
	@bash scripts/test.sh

race: ## the root module's tests with the race detector; needs no server
	go test -race -shuffle=on ./...

integration: ## the tests on real servers in full and without the race detector (8 min); needs make servers
	cd integration && go test -count=1 -timeout=30m ./...

soak: ## a fleet under faults for SOAK (2m), and 10^6 reads of a hot key, each read checked; needs make servers
	cd integration && SQLHERD_TEST_SOAK=$(SOAK) go test -count=1 -v -timeout=0 -run='^(TestNoReadIsOlderThanPromisedWhateverBreaks|TestReadersOfAHotKeyThatIsWrittenAllTheTimeGetNewRowsForOneLoadAWrite)$$' .

lint: ## golangci-lint in every module
	@bash scripts/lint.sh

vet: ## every module for macOS, Windows and 32 bits, without cgo (minutes, the first time)
	@for system in GOOS=darwin GOOS=windows GOARCH=386; do \
		echo $$system; bash scripts/each.sh env CGO_ENABLED=0 $$system go vet ./... || exit 1; done

model: ## check the Promela model of the protocol, and that it can fail
	@bash scripts/install-spin.sh
	@bash docs/model/check.sh

simulate: ## random fleets under the promises: SEEDS (10000), a number or from-to
	SQLHERD_SEEDS=$(SEEDS) go test -run '^TestSimulation$$' -count=1 -timeout=60m .

mutate: ## break the protocol rule by rule in a copy: the tests must notice (20 min)
	@bash scripts/mutate.sh

fuzz: ## every fuzz target for FUZZTIME (20s)
	@FUZZTIME=$(FUZZTIME) bash scripts/fuzz.sh

bench: ## benchmarks that match BENCH (all), each for BENCHTIME (1s)
	@bash scripts/each.sh go test -run='^$$' -bench='$(BENCH)' -benchtime=$(BENCHTIME) -benchmem ./...

tidy: ## go mod tidy in every module
	@bash scripts/each.sh env GOWORK=off go mod tidy

fmt: ## gofmt
	gofmt -w .

servers: ## start PostgreSQL, MariaDB and Redis for go test: eval "$(make servers)"
	@bash scripts/servers.sh start $(SERVERS_STATE)

servers-stop: ## stop them
	@bash scripts/servers.sh stop $(SERVERS_STATE)

clean: ## stop servers, remove built tools and caches
	@test ! -f $(SERVERS_STATE) || bash scripts/servers.sh stop $(SERVERS_STATE)
	rm -rf .cache bin
