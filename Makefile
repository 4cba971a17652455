# The things one does with this repository. `make help` lists them.

CARGO ?= cargo
BIN := bin/hyperfleet-credentials
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What the tests and the demo start: a real registry, a client that pulls from it, a database server.
PACKAGES := docker-registry skopeo curl jq postgresql

.DEFAULT_GOAL := help
.PHONY: help build test chaos bench lint demo clean packages deny

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the release binary into bin/
	@./scripts/packages.sh gcc
	$(CARGO) build --locked --release
	@mkdir -p bin && cp $(TARGET)/release/hyperfleet-credentials $(BIN) && echo "built $(BIN)"

test: packages ## Run every test, starting the registries they need
	$(CARGO) test --locked

chaos: packages ## Hurt the service for half an hour, at every point on both databases
	HYPERFLEET_TEST_CHAOS=$(or $(ROUNDS),30) $(CARGO) test --locked --test integration chaos:: -- --nocapture --test-threads 2

bench: ## Measure campaigns and standstills, in release, one after the other
	@./scripts/packages.sh gcc
	$(CARGO) test --locked --release --test integration bench:: -- --ignored --nocapture --test-threads 1

lint: deny ## Check formatting, lints, licenses and documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items --quiet
	@./scripts/tls-guard.sh

deny:
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny@0.20.2
	$(CARGO) deny --locked check bans licenses sources

demo: packages ## Tell the whole story of a pull secret against a real registry
	$(CARGO) build --locked
	./scripts/demo.sh $(TARGET)/debug/hyperfleet-credentials

packages:
	@./scripts/packages.sh gcc $(PACKAGES)

clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf bin
