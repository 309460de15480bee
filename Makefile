# What people and CI run. Only Rust, Go, make and git are assumed; everything else is built or fetched into a cache outside the
# checkout (${XDG_CACHE_HOME:-~/.cache}/fleetagent-testbed) and kept there.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fleetagent-testbed
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
# End-to-end tests mostly wait for other processes: more of them at once than there are cores.
TEST_THREADS ?= 6

.DEFAULT_GOAL := help
.PHONY: help demo package test bench kills soak simulate mutations record record-signatures kustomize-diff kustomize-public compare check fuzz tools corpus fmt image image-check tools-node test-node

help: ## Show this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do \
		printf '  make %-18s %s\n' "$$name" "$$text"; done

# The Go programs take minutes the first time. They are built in the background and with less right to the processors than the agent, which
# shows what it can do without a cluster meanwhile.
DEMO_LOG := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/demo-tools.log
demo: ## Watch the agent at work on two real clusters (KEEP=1 leaves them running; REAL_NODE=1: as a pod that Fleet installs, as root)
ifeq ($(REAL_NODE),1)
	@tests/tools/node.sh --check || exit 0; \
	echo "demo: waiting for Go programs, the kubelet and Fleet's own among them (15 minutes the first time)"; \
	tests/tools/build.sh --node; \
	echo "demo: waiting for the image and the demo to be built"; \
	cargo build --quiet --package testbed --bin node_demo; \
	$(NODE_PREPARE); \
	tests/tools/node.sh "$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/node_demo"
else
	@mkdir -p "$(dir $(DEMO_LOG))"; nice tests/tools/build.sh --demo >"$(DEMO_LOG)" 2>&1 & tools=$$!; \
	trap 'kill "$$tools" 2>/dev/null || true' EXIT; \
	echo "demo: waiting for the agent to be built (two to three minutes the first time)"; \
	cargo build --quiet --package agent --bin fleetagent; \
	if kill -0 "$$tools" 2>/dev/null; then tests/tools/meanwhile.sh "$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/fleetagent"; fi; \
	echo "demo: waiting for the demo to be built"; \
	cargo build --quiet --package testbed --bin demo; \
	if kill -0 "$$tools" 2>/dev/null; then \
		echo "demo: waiting for etcd, the API server, helm and a registry to be built (eight minutes of two processors in all, once)"; \
		tail --lines=+1 --follow --pid="$$tools" "$(DEMO_LOG)"; \
	fi; \
	wait "$$tools" || { echo "demo: the programs of the clusters could not be built:"; tail -n 30 "$(DEMO_LOG)"; exit 1; }; \
	"$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/demo"
endif

test: tools ## Run every test; the end-to-end ones start their own clusters
	@echo "test: building"
	cargo test --workspace --no-fail-fast --no-run
	FLEETAGENT_BINARY="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/fleetagent" \
		cargo test --workspace --no-fail-fast -- --test-threads=$(TEST_THREADS)

# The image is the one that `make image` builds, unless IMAGE names an archive; the pods start that, not what cargo built last.
NODE_PREPARE = cargo build --quiet --package image; \
	image="$(IMAGE)"; \
	if [ -z "$$image" ]; then \
		image="$$($(MAKE) --no-print-directory image ARGS= | tee /dev/stderr | sed -n 's/^image: archive \(.*\) (.*/\1/p')"; \
	fi; \
	export FLEETAGENT_IMAGE="$$(realpath "$$image")" FLEETAGENT_IMAGE_TOOL="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/image"

test-node: ## Run the agent as a pod on a real node, installed by the unmodified Fleet (root; FLEET=its checkout the first time; ARGS=a test)
	@tests/tools/node.sh --check skopeo || exit 0; \
	tests/tools/build.sh --node; \
	echo "test-node: building"; \
	cargo test --quiet --package testbed --test node --no-run; \
	$(NODE_PREPARE); \
	tests/tools/node.sh cargo test --offline --package testbed --test node -- --ignored --test-threads=1 $(ARGS)

bench: tools ## Measure speed and memory: templates, kustomizations and charts beside Go and helm, then the agent with 50 bundles
	@echo "bench: building with full optimisation, some minutes"
	cargo build --release --package agent --bin fleetagent
	@ENGINE_SPEED="$$(tests/tools/build.sh --list | grep engine-speed-)/engine-speed" cargo bench --quiet --package chart --bench engine
	@cargo bench --quiet --package chart --bench index
	@cargo run --release --quiet --package kustomize --example speed -- "$$(tests/tools/build.sh --list | grep '/kustomize-')/kustomize-reference"
	@cargo run --quiet --package testbed --bin against_helm
	@cargo run --quiet --package testbed --bin bench

kills: tools ## Kill the agent 200 times in the middle of its work and count the harm (ARGS="--kills 50 --seed 7", or --sweep)
	@cargo build --quiet --package agent --bin fleetagent
	@cargo run --quiet --package testbed --bin kills -- $(ARGS)

soak: tools ## Run 100 bundles, some of which give no rest, for an hour and hold what they cost against figures (ARGS="--minutes 10")
	@cargo build --quiet --package agent --bin fleetagent
	@cargo run --quiet --package testbed --bin soak -- $(ARGS)

simulate: ## Run histories of the agent in simulated clusters for a minute, or one of them (ARGS="--seed 7")
	@cargo build --quiet --profile simulation --package simulation
	@"$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/simulation/simulation" $(or $(ARGS),--seconds 60)

mutations: ## Break decision points one at a time and show what notices (ARGS="--only lease --histories 1000")
	@cargo run --quiet --package simulation --bin mutations -- --folder "$(CACHE)/mutations" $(ARGS)

# Tests whose requests and answers the simulated API server is held against.
RECORDED := deploy::a_changed_bundle_upgrades_and_a_deleted_one_uninstalls drift::edited_scaled_and_deleted_objects_are_corrected \
	options::objects_of_others_are_taken_only_with_take_ownership options::immutable_fields_are_recreated_only_with_force \
	options::max_history_is_kept_and_a_forced_sync_adds_a_revision claims::a_release_named_by_two_bundles_stays_with_the_first \
	accounts::an_account_deploys_without_the_right_to_read_secrets records::a_deleted_record_is_written_again \
	obstacles::a_removal_waits_for_a_finalizer
record: tools ## Record anew what real API servers answer, for the simulated one to be held against
	@cargo build --quiet --package agent --bin fleetagent --package testbed --bin record
	@for test in $(RECORDED); do \
		folder="$$(mktemp -d)"; name="$${test#*::}"; \
		AUDIT=full KEEP=1 TMPDIR="$$folder" cargo test --quiet --package testbed --test e2e -- --exact "$$test"; \
		for side in upstream downstream; do \
			cargo run --quiet --package testbed --bin record -- "$$folder"/*/$$side/audit.log > "tests/fixtures/recordings/$$name.$$side.jsonl"; \
		done; rm -rf "$$folder"; \
	done

record-signatures: tools ## Sign a chart anew with the real cosign, helm and gpg, for tests to hold our checks against
	@tests/tools/record-signatures.sh

kustomize-diff: tools ## Build kustomizations made up by chance beside the real kustomize (ARGS="COUNT=20000 SEED=7", or CASE=9)
	@env $(or $(ARGS),COUNT=20000) cargo test --quiet --package kustomize --test generated -- --nocapture

kustomize-public: tools ## Build every kustomization below DIR=folder with us and with the real kustomize, byte for byte
	@cargo run --quiet --package kustomize --example compare -- \
		"$$(tests/tools/build.sh --list | grep '/kustomize-')/kustomize-reference" "$(or $(DIR),$(error give DIR=folder))"

compare: tools ## Hold `fleetagent template` against helm over every chart below CHARTS=folder
	@cargo run --quiet --package testbed --bin compare -- $(CHARTS)

check: ## Formatting, lints and faults of the documentation as errors, dependency rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
	cargo clippy --package templating --no-default-features -- -D warnings
	cargo clippy --package chart --no-default-features -- -D warnings
	cargo package --quiet --offline --no-verify --allow-dirty --package golib --package logging --package templating --package chart --package kustomize
	@$(MAKE) --no-print-directory deny

package: ## Pack the crates that others take, and build each from its package with the others' packages (six minutes of a processor)
	cargo package --quiet --allow-dirty --package golib --package logging --package templating --package chart --package kustomize

# A machine without the registry still runs the other checks, and says what it left out.
.PHONY: deny
deny:
	@if [ ! -x $(DENY) ]; then \
		echo "check: building cargo-deny $(DENY_VERSION), about 4 minutes, once"; \
		cargo install --quiet --locked --root $(dir $(patsubst %/,%,$(dir $(DENY)))) cargo-deny@$(DENY_VERSION) || true; \
	fi
	@if [ -x $(DENY) ]; then $(DENY) --workspace check bans licenses sources; \
	else echo "check: SKIPPED: cargo-deny could not be built, dependency rules were NOT checked"; fi

tools: ## Build the Go programs of the test bed (10 minutes the first time)
	@tests/tools/build.sh

tools-node: ## Build what a real node needs as well: kubelet, and Fleet's own programs (FLEET=a checkout of github.com/rancher/fleet)
	@tests/tools/build.sh --node

# libFuzzer needs unstable compiler flags, which the stable compiler takes when told to bootstrap; nothing else is built so.
FUZZ_TARGETS ?= parse execute yaml regexp printf
FUZZ_SECONDS ?= 1200
CARGO_FUZZ := $(CACHE)/cargo-fuzz
fuzz: ## Fuzz the template engine, FUZZ_SECONDS (1200) for each of FUZZ_TARGETS
	@[ -x $(CARGO_FUZZ)/bin/cargo-fuzz ] || cargo install --quiet --locked --root $(CARGO_FUZZ) cargo-fuzz@0.13.2
	@for target in $(FUZZ_TARGETS); do \
		echo "fuzz: $$target for $(FUZZ_SECONDS) s"; mkdir -p $(CARGO_FUZZ)/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$(CARGO_FUZZ)/target PATH="$(CARGO_FUZZ)/bin:$$PATH" \
		cargo fuzz run --fuzz-dir fuzz/libfuzzer --sanitizer none $$target \
			$(CARGO_FUZZ)/corpus/$$target fuzz/cases/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=1024 -timeout=10 -rss_limit_mb=1024; \
	done

corpus: ## Fetch the published charts that tests deploy
	@tests/tools/corpus.sh

fmt: ## Format the code
	cargo fmt --all

image: ## Build the container image and its bill of materials, without an engine (ARCH="amd64 arm64", ARGS=--help)
	@cargo run --quiet --package image -- $(ARCH:%=--arch %) $(ARGS)

image-check: ## Build the committed image twice, in two directories, and compare digest, bill of materials and size (ARCH=, ARGS=)
	@deploy/image-check.sh target/image-check $(ARCH:%=--arch %) $(ARGS)
