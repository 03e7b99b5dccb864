# Every target does all of its own set-up: packages, bpffs, tool builds, caches. Needs Go and root.

SHELL := /bin/bash
CLANG_VERSION := $(shell cat hack/clang-version)
CLANG_FORMAT := clang-format-$(CLANG_VERSION)
BPF_SOURCES := $(wildcard bpf/*.c bpf/*.h)
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
GOBUILD := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
SCENARIOS ?= integration/testdata/scenarios
SUITE_TIMEOUT ?= 30m

.PHONY: demo test build image generate verify lint unit race kernel integration conformance bench kernels soak setup setup-run clean

# The main job, end to end, on this machine and in network namespaces of its own.
demo: setup-run build
	go run ./integration/demo -bin bin

# Everything that CI runs.
test: verify lint unit race kernel integration

build:
	mkdir -p bin
	$(GOBUILD) -o bin/ ./cmd/...

# The image of the Dockerfile for both architectures, as bin/latch-image.tar, without Docker and without a registry.
image:
	mkdir -p bin
	hack/image bin/latch-image.tar latch:$(VERSION) $(VERSION)

# Compile the BPF programs. The objects are committed; this is needed only after a change of bpf/*.c.
generate: setup
	go generate ./bpf

# What is generated or formatted must be what its sources give.
verify: setup
	hack/verify

lint: setup
	go vet ./...
	go vet -tags latchtest,latchnext,latchother ./...
	go tool staticcheck ./...
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	$(CLANG_FORMAT) --dry-run -Werror $(BPF_SOURCES)

# Packages that need neither root nor the kernel.
PURE := ./shared/policy/... ./shared/identity/... ./cmd/latchd/manifest/... ./cmd/latchd/world/... ./cmd/latchd/policydir/...

unit: setup
	go test $(PURE) ./hack/...

race: setup
	go test -race -short $(PURE) ./shared/lock/... ./shared/state/...

# Packages that are tested on the kernel, one suite after the other, each with its leak check. The tag
# latchtest lets a writer be killed after any of its steps.
kernel: setup
	CI=$(CI) hack/go-test -tags latchtest -timeout $(SUITE_TIMEOUT) -p 1 -- ./bpf/... ./shared/...

# The built binaries in a real chain.
integration: setup build
	CI=$(CI) hack/go-test -count=1 -timeout $(SUITE_TIMEOUT) -p 1 -- ./plugin/... ./cmd/... ./integration/...

# The conformance cases of a folder: make conformance SCENARIOS=dir
conformance: setup-run build
	go run ./integration/conformance $(SCENARIOS)

bench: setup-run build
	go run ./integration/bench

# The kernel tests on 5.10, 6.1 and 6.12, in virtual machines: make kernels KERNELS=5.10
kernels: setup
	hack/kernels

# Races, crashes and load for a while, with a report: make soak LENGTH=1h SEED=1
LENGTH ?= 10m
SEED ?= 1
soak: setup build
	go run ./integration/soak -length $(LENGTH) -seed $(SEED)

setup:
	@hack/setup

setup-run:
	@hack/setup run

clean:
	rm -rf bin .cache
