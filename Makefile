# All commands for developers and CI. `make help` lists them.

export CARGO ?= cargo
TESTBED := tests/testbed
# Tests that start no server.
FAST_TESTS := benchmarks_page configuration dockerfile docs_match_config http install metrics_page module_boundaries no_planted_bug_ships plain_words proof publication readme reading_status release_check revision
export RUSTDOCFLAGS := -D warnings

.DEFAULT_GOAL := help
.PHONY: help run mongodb stop build check test test-store flakes nemesis kills trace-check linearizability proofs soak replay soak-locks replay-locks model mutants miri measure-code bench policy-cost recipes-third-party screenshots lint lints deny advisories workflows msrv publish-check doc site clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(MAKEFILE_LIST) | expand -t 22

# The demonstration needs no Kubernetes client.
DEMO := --package leasehold --package leasehold-testbed --bins --no-default-features

run: ## run three daemons that contend for one lease on a private replica set; KEEP=1 leaves them running
	@$(TESTBED)/fetch-mongod >/dev/null & $(CARGO) build $(DEMO); built=$$?; wait $$! && exit $$built
	@KEEP=$(KEEP) target/debug/demo

mongodb: ## start a private replica set for the tutorial and leave it running; prints its connection string for a shell
	@$(CARGO) build --package leasehold-testbed --bin demo --no-default-features >&2
	@target/debug/demo mongodb

stop: ## stop the processes that `make run KEEP=1` or `make mongodb` left running
	@target/debug/demo stop

build: ## build the release binary for this host: target/release/leasehold
	$(CARGO) build --release --bin leasehold

check: lint ## formatting, lints, docs and the tests that need no server, without the simulations (under 3 minutes)
	$(CARGO) test --workspace --lib --bins $(addprefix --test ,$(FAST_TESTS)) -- --skip sim::election::run --skip sim::lock::run --skip model::
	$(CARGO) test --doc

lint: lints ## rustfmt, clippy, rustdoc and the words of the texts, warnings are errors
	$(CARGO) test --workspace --quiet --test plain_words

# Without the test plain_words, which the whole suite runs among its tests.
lints: doc
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package leasehold --lib --bins --no-default-features -- -D warnings

DENY_VERSION := 0.20.2

measure-code: ## the code of each room: lines, types, large files and duplicates
	tests/measure-code

deny: ## licences, bans and sources of the shipped crates (needs cargo-deny)
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
	  echo "make deny needs cargo-deny: $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked" >&2; exit 1; }
	$(CARGO) deny check licenses bans sources

advisories: ## known vulnerabilities in the shipped crates (needs cargo-deny and the advisory database)
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
	  echo "make advisories needs cargo-deny: $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked" >&2; exit 1; }
	$(CARGO) deny check advisories

workflows: ## check the workflows with actionlint and zizmor
	@tools=$$($(TESTBED)/fetch-workflow-tools) && eval "$$tools" && "$$actionlint" .github/workflows/*.yml && "$$zizmor" --offline --quiet .github

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

msrv: ## the workspace with the oldest supported toolchain, which rustup installs
	@if rustup toolchain install $(MSRV) --profile minimal --no-self-update >/dev/null 2>&1; then \
	  echo "$(CARGO) +$(MSRV) check --workspace" && CARGO_TARGET_DIR=target/msrv $(CARGO) +$(MSRV) check --workspace; \
	else echo "skipped: rustup cannot install the toolchain $(MSRV)"; [ -z "$${CI+set}" ]; fi

PUBLISHED := core clock guard mongodb

publish-check: ## package the crates for embedders as `cargo publish` would, without uploading them
	for crate in $(PUBLISHED); do for licence in LICENSE-APACHE LICENSE-MIT; do cmp $$licence crates/$$crate/$$licence || exit 1; done; done
	$(CARGO) publish --dry-run --allow-dirty $(addprefix -p leasehold-,$(PUBLISHED))

MDBOOK_VERSION := 0.5.4

site: ## the documentation as a site with search: target/site/index.html (needs mdbook)
	@mdbook --version >/dev/null 2>&1 || { \
	  echo "make site needs mdbook: $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked" >&2; exit 1; }
	mdbook build docs

doc: ## the API documentation; checks every public item and every link
	$(CARGO) doc --workspace --no-deps

test: ## everything, on real mongod replica sets and a real Kubernetes control plane
	@$(TESTBED)/ensure-tools
	$(TESTBED)/leaves-nothing $(TESTBED)/whole-suite

# Tests whose results depend on the version of MongoDB.
STORE_TESTS := check daemon fencing lock_command locks mongo_access operators routers store_faults

test-store: ## the tests of MongoDB only, on the mongod of MONGOD or MONGODB_VERSION (6.0.5, 7.0.28), and the mongos of MONGOS
	@$(TESTBED)/ensure-tools
	@$(TESTBED)/fetch-mongod --version
	$(TESTBED)/leaves-nothing env RUST_TEST_THREADS=6 $(CARGO) test --workspace --no-fail-fast $(addprefix --test ,$(STORE_TESTS))

flakes: ## each test binary N=20 times next to two busy loops; continues an earlier run (hours; BINARIES="daemon locks" for some)
	@$(TESTBED)/fetch-mongod >/dev/null
	@$(TESTBED)/fetch-kubernetes >/dev/null
	@$(TESTBED)/fetch-chart-tools >/dev/null
	$(TESTBED)/flakes --rounds $(or $(N),20) $(BINARIES)

trace-check: ## check traces of daemons and jobs (LEASEHOLD_TRACE): make trace-check FILES="a b", or FILES="--changes c a b"
	$(CARGO) run --quiet --package leasehold-trace-check -- $(FILES)

linearizability: ## check histories of locks with porcupine: make linearizability FILES="a b" (TIMEOUT=60s for each lock; VISUALIZE=DIR for pages)
	@checker=$$($(TESTBED)/fetch-go-program linearizability) && \
	  $$checker $(if $(TIMEOUT),--timeout $(TIMEOUT)) $(if $(VISUALIZE),--visualize $(VISUALIZE)) $(FILES)

nemesis: ## MINUTES=10 of faults for daemons and jobs on a real set (root; SEED=N, PROFILE=default, FAULTS=isolated, RIVALS=1, KUBERNETES=1, TLS=1, SOAK=1, OTHER=BINARY, KEEP=DIRECTORY)
	@$(TESTBED)/ensure-tools
	@$(TESTBED)/fetch-mongod >/dev/null
	$(CARGO) build --workspace --bins
	target/debug/nemesis --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(PROFILE),--profile $(PROFILE)) \
	  $(if $(FAULTS),--faults "$(FAULTS)") $(if $(RIVALS),--rivals --etcdctl $$($(TESTBED)/fetch-etcdctl) --elector $$($(TESTBED)/fetch-go-program elector)) $(if $(KUBERNETES),--kubernetes) $(if $(TLS),--tls) $(if $(SOAK),--soak) $(if $(OTHER),--other $(OTHER)) $(if $(KEEP),--keep $(KEEP)) --linearizability "$$($(TESTBED)/fetch-go-program linearizability)"

kills: ## SIGKILL daemon, guard, command, witness and container: KILLS=500 times at a CPU quota in each form, and each subset KILLS/5 times (root; 30 minutes)
	@$(TESTBED)/fetch-mongod >/dev/null
	KILLS=$(or $(KILLS),500) $(CARGO) test --workspace --test supervision -- kills:: --nocapture

proofs: ## prove the arithmetic of the timing rules with z3 (a second; the first run downloads z3)
	@modules=$$($(TESTBED)/fetch-z3) && PYTHONPATH=$$modules PYTHONDONTWRITEBYTECODE=1 python3 tests/proofs/timings.py

# Releases pin base images by digest, because tags can move.
BUILDER ?= docker
.PHONY: image test-image

include packaging/bases.env

image: ## build the image on the bases of packaging/bases.env (other bases: RUST_IMAGE=NAME@sha256:… BASE_IMAGE=NAME@sha256:…)
	@for base in "$(RUST_IMAGE)" "$(BASE_IMAGE)"; do case "$$base" in *@sha256:*) ;; *) \
	  echo "make image needs RUST_IMAGE=NAME@sha256:DIGEST and BASE_IMAGE=NAME@sha256:DIGEST (docs/image.md), not \"$$base\"" >&2; exit 1;; \
	esac; done
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml) && $(BUILDER) build \
	  --build-arg RUST_IMAGE=$(RUST_IMAGE) --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg LEASEHOLD_VERSION=$$version \
	  --build-arg LEASEHOLD_REVISION=$$(git describe --always --dirty --exclude '*') --tag leasehold:$$version .

test-image: ## build the Dockerfile with buildah on locally made bases, and run it (root, Debian 12; about 20 minutes on busy cores)
	tests/image/run

# `make dist-tools` installs these into target/tools, each with its own version.
DIST_TOOLS := cargo-auditable@0.7.7 cargo-deb@3.8.0 cargo-generate-rpm@0.21.1
ARCHITECTURES ?= x86_64
.PHONY: dist dist-tools test-dist reproduce release-check

dist: ## build tarball, .deb, .rpm, bill of materials and checksums in target/dist (ARCHITECTURES="x86_64 aarch64"; docs/packages.md)
	packaging/build $(ARCHITECTURES)

dist-tools: ## install the cargo tools that `make dist` needs into target/tools
	for tool in $(DIST_TOOLS); do $(CARGO) install --locked --root target/tools $$tool || exit 1; done

test-dist: ## check the files that `make dist` built, in the roots of other systems (root, Debian 12; PARTS="any-image deb" for some)
	tests/packages/run $(PARTS)

reproduce: ## build the packages a second time in another directory, and compare with target/dist (as long as a release build)
	packaging/reproduce $(ARCHITECTURES)

release-check: ## refuse a release with two versions in its files: VERSION=x.y.z
	packaging/release-check $(VERSION)

soak: ## SEEDS=N more simulated runs of ten minutes, and the reached cases (FIRST=N: first seed)
	SOAK_SEEDS=$(or $(SEEDS),100000) $(if $(FIRST),SOAK_FIRST=$(FIRST)) \
		$(CARGO) test --workspace --test proof proof::sim::election::run::soak -- --exact --nocapture

replay: ## one simulated run, SEED=N, line by line (MUTATION=Name plants a bug)
	RUST_BACKTRACE=0 REPLAY_SEED=$(SEED) $(if $(MUTATION),REPLAY_MUTATION=$(MUTATION)) \
		$(CARGO) test --workspace --test proof proof::sim::election::run::replay -- --exact --nocapture

soak-locks: ## SEEDS=N more simulated runs of contenders for a lock, and the reached cases (FIRST=N: first seed)
	SOAK_SEEDS=$(or $(SEEDS),100000) $(if $(FIRST),SOAK_FIRST=$(FIRST)) \
		$(CARGO) test --workspace --test proof proof::sim::lock::run::soak -- --exact --nocapture

replay-locks: ## one simulated run of a lock, SEED=N, line by line (MUTATION=Name plants a bug)
	RUST_BACKTRACE=0 REPLAY_SEED=$(SEED) $(if $(MUTATION),REPLAY_MUTATION=$(MUTATION)) \
		$(CARGO) test --workspace --test proof proof::sim::lock::run::replay -- --exact --nocapture

model: ## all explorations of the model, with their figures (about 15 minutes; ONLY=TEXT for some)
	MODEL_ONLY="$(ONLY)" $(CARGO) test --workspace --test proof proof::model::explore::every_exploration -- --exact --ignored --nocapture

# Mutants run without the simulations (crates/proof). If only a simulation catches a mutant, add a
# unit test that names the rule.
MUTANTS := target/mutants
MUTANTS_VERSION := 27.1.0

# cargo-mutants exits with 2 if a mutant survived and with 3 after a timeout. A human must judge
# these mutants, so only other exit codes are failures.
mutants: ## mutants that the election's unit tests do not catch (about 40 minutes; FILE=tenure.rs for one file)
	@$(CARGO) mutants --version >/dev/null 2>&1 || { \
	  echo "make mutants needs cargo-mutants: $(CARGO) install cargo-mutants --version $(MUTANTS_VERSION) --locked" >&2; exit 1; }
	@rm -rf $(MUTANTS) && mkdir -p $(MUTANTS)
	@$(CARGO) mutants --package leasehold-core --output $(MUTANTS) --timeout 20 --jobs 1 \
	  --file 'crates/core/src/election/$(or $(FILE),**)' $(if $(FILE),,--file crates/core/src/election.rs) \
	  -- --lib -- election::; \
	  code=$$?; case $$code in 0|2|3) ;; *) exit $$code;; esac
	@$(TESTBED)/mutants-summary $(MUTANTS)/mutants.out

# The election has no unsafe code. Skips the tests of the table, which read a file.
miri: ## the election's unit tests under Miri (needs a nightly toolchain with the component miri)
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || { \
	  echo "make miri needs a nightly toolchain with Miri: rustup toolchain install nightly --component miri" >&2; exit 1; }
	$(CARGO) +nightly miri test --package leasehold-core --lib -- election:: --skip table

screenshots: ## the images of the page in docs/images (needs chromium)
	@$(TESTBED)/ensure-tools
	@$(TESTBED)/fetch-mongod >/dev/null
	$(CARGO) test --workspace --test web -- --exact screenshots::of_the_page --ignored

bench: ## the tables of docs/benchmarks.md (about 30 minutes; FIGURES="handoff memory" for some, FIGURES=peers for the comparison)
	@$(TESTBED)/fetch-mongod >/dev/null
	$(CARGO) bench --bench figures -- $(FIGURES)

policy-cost: ## the cost of admission policies with 200 releases, a table of docs/kubernetes.md (3 minutes)
	@$(TESTBED)/fetch-kubernetes >/dev/null
	@$(TESTBED)/fetch-chart-tools >/dev/null
	$(CARGO) test --workspace --test chart -- policy_cost --ignored --nocapture

recipes-third-party: ## the recipes of external-dns and the OpenTelemetry Collector, which Go builds (the first time 15 minutes)
	@$(TESTBED)/ensure-tools
	@$(TESTBED)/fetch-mongod >/dev/null
	@$(TESTBED)/fetch-kubernetes >/dev/null
	$(CARGO) build --workspace --bins
	$(CARGO) test --workspace --test site -- --ignored opentelemetry external_dns

clean: ## remove the build output
	$(CARGO) clean
