# SPDX-License-Identifier: Apache-2.0

# The names under which the one executable is installed. tests/harness has the same list, and a test compares them.
BINARIES = nvpair nvpair-ui-broker nvpair-node-scanner nvpair-errors nvpair-node-settings nvpair-node-info nvpair-proxy nvpair-job-scheduler nvpair-manual-nodes

# name=version,name=version,... of everything in versions.json.
VERSIONS := $(shell sed -n 's/^ *"\([a-z-]*\)": *"\([0-9][^"]*\)".*/\1=\2/p' versions.json | tr '\n' ',' | sed 's/,$$//')

# What the names of executables end in: nothing, or .exe.
EXE = $(shell go env GOEXE)

LDFLAGS = -s -w -X main.Versions=$(VERSIONS)

# What `make bench` runs.
BENCH = -timeout 45m -v -run 'Test(Foundation|Inference|Discovery)Figures' ./tests/bench/ -args -bench.figures

# Targets of `make cross`, as GOOS/GOARCH.
PLATFORMS = linux/arm64 windows/amd64 darwin/arm64

# Suites with a target of their own; everything else is part of `make check`.
SLOW = ^nvpair/tests/(tree|clients|lan|bench)(/|$$)

# Versions come from versions.json; a checkout without git, or owned by another user, must build too.
export GOFLAGS += -buildvcs=false

# The headers of NVML mark much of what its Go package wraps as deprecated: a wall of warnings about code that is not ours.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

.PHONY: build run test check bench soak cross help
.DEFAULT_GOAL := build

# Each name is replaced by a rename, so that a rebuild under a running node works: its processes keep the old file.
# The first rm matters: after an interrupted build the temporary file is still linked to names in use.
build: ## build all binaries into bin/, stamped from versions.json
	@mkdir -p bin
	@rm -f bin/.new.*
	@echo "go build bin/*"
	@go build -trimpath -ldflags "$(LDFLAGS)" -o bin/.new.bundle ./cmd/nvpair-bundle
	@set -e; for name in $(BINARIES); do \
		ln bin/.new.bundle "bin/.new.$$name"; \
		mv -f "bin/.new.$$name" "bin/$$name$(EXE)"; \
	done; \
	rm -f bin/.new.bundle

run: build ## build, then start a node on this machine, and a stand-in if it has no engine
	@go build -trimpath -o bin/nvpair-demo-engine$(EXE) ./tests/engine/demo
	@go build -trimpath -o bin/nvpair-demo$(EXE) ./tests/demo
	@exec bin/nvpair-demo

test: check ## everything CI runs: check, then the suites on real processes
	go test -race -shuffle=on -count=1 ./tests/tree/... $(if $(wildcard tests/lan),./tests/lan/...)
	go test -race -shuffle=on -count=1 ./tests/clients/...

check: ## the fast part: format, vet, staticcheck, unit tests with the race detector
	@unformatted=$$(gofmt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	@packages=$$(go list ./...) || exit 1; \
	packages=$$(echo "$$packages" | grep -v -E '$(SLOW)'); \
	echo "go test -race -shuffle=on (all but tree, clients, lan, bench)"; \
	go test -race -shuffle=on $$packages

bench: ## the benchmarks, as figures
	go test -count=1 $(BENCH)

soak: ## the long run that CI leaves out: every test ten times, and the largest and slowest cases
	go test -race -shuffle=on -count=10 -timeout 120m ./...
	go test -race -shuffle=on -count=1 -timeout 60m ./tests/tree/ -args -tree.soak

cross: ## vet and build for the other platforms
	@set -e; export CGO_ENABLED=0; for platform in $(PLATFORMS); do \
		export GOOS="$${platform%/*}" GOARCH="$${platform#*/}"; \
		echo "$$platform"; \
		go vet ./...; \
		go build -o /dev/null ./cmd/nvpair-bundle; \
	done

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1	\2/p' Makefile | while IFS='	' read -r target text; do \
		printf '  make %-6s %s\n' "$$target" "$$text"; \
	done
