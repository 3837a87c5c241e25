# Everything that a newcomer or CI runs, by name. `make help` lists it.

CARGO ?= cargo
TESTBED := tests/testbed
# The tests that start no server.
FAST_TESTS := configuration docs_match_config http metrics_page module_boundaries no_planted_bug_ships publication readme reading_status
export RUSTDOCFLAGS := -D warnings

.DEFAULT_GOAL := help
.PHONY: help run stop build check test soak replay model mutants miri bench lint doc clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## three daemons contend for one lease on a private replica set; KEEP=1 leaves them up
	@$(CARGO) build --package leasehold --package leasehold-testbed --bins
	@KEEP=$(KEEP) target/debug/demo

stop: ## end what `make run KEEP=1` left up
	@target/debug/demo stop

build: ## the release binary: target/release/leasehold
	LEASEHOLD_REVISION=$$(git rev-parse --short HEAD 2>/dev/null) $(CARGO) build --release --bin leasehold

check: lint ## formatting, lints, docs and the tests that need no server (under 3 minutes)
	$(CARGO) test --lib --bins $(addprefix --test ,$(FAST_TESTS))
	$(CARGO) test --doc

lint: doc ## rustfmt, clippy and rustdoc, warnings are errors
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

doc: ## the API documentation, every public item and every link checked
	$(CARGO) doc --workspace --no-deps --quiet

test: lint ## everything, on real mongod replica sets
	@$(TESTBED)/ensure-tools
	@$(TESTBED)/fetch-mongod >/dev/null
	$(CARGO) test --workspace

soak: ## SEEDS=N more simulated runs of ten minutes, and what they hit (FIRST=N: from that seed)
	SOAK_SEEDS=$(or $(SEEDS),100000) $(if $(FIRST),SOAK_FIRST=$(FIRST)) \
		$(CARGO) test --lib sim::run::soak -- --exact --nocapture

replay: ## one simulated run, SEED=N, line by line (MUTATION=Name plants a bug)
	REPLAY_SEED=$(SEED) $(if $(MUTATION),REPLAY_MUTATION=$(MUTATION)) \
		$(CARGO) test --lib sim::run::replay -- --exact --nocapture

model: ## the larger explorations of the model, with their figures (about 10 minutes)
	$(CARGO) run --quiet -p leasehold-model --bin explore

# The election needs nothing but std, so it is mutated as a package of its own:
# seconds a mutant instead of a minute. The simulation is
# left out: what only it catches deserves a test that names the rule.
MUTANTS := target/mutants
mutants: ## what the election's unit tests do not notice (needs cargo-mutants; about 40 minutes)
	rm -rf $(MUTANTS) && mkdir -p $(MUTANTS)/src
	cp -r src/election src/election.rs $(MUTANTS)/src/
	echo 'pub mod election;' > $(MUTANTS)/src/lib.rs
	printf '[package]\nname = "election-alone"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' > $(MUTANTS)/Cargo.toml
	cd $(MUTANTS) && $(CARGO) mutants --baseline skip --timeout 20 --jobs 1 -- -- --skip sim

# The simulation would take hours there; nothing in the election is unsafe, and
# none of these tests touches a file but the table's.
miri: ## the election's unit tests under Miri (needs a nightly toolchain with the component miri)
	$(CARGO) +nightly miri test --lib -- election:: --skip sim --skip table

bench: ## the tables of docs/benchmarks.md (about 30 minutes; FIGURES="handoff memory" for some)
	@$(TESTBED)/fetch-mongod >/dev/null
	$(CARGO) bench --bench figures -- $(FIGURES)

clean: ## remove what was built
	$(CARGO) clean
