.DEFAULT_GOAL := help
GO ?= go
GOLANGCI := $(GO) tool -modfile=tools/go.mod golangci-lint
# Runs Go tests, and what has failed once more by itself: the tests are real processes on clocks, and a machine
# that stood still for seconds is not broken. What fails twice is; what failed once is told.
GOTEST := $(GO) tool -modfile=tools/gotest/go.mod gotestsum --format=pkgname --hide-summary=skipped --rerun-fails=1 --rerun-fails-max-failures=5

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: bin/holdfast ## serve on 127.0.0.1:8787 with the demo agent; no key, no service needed
	@bin/holdfast serve --listen 127.0.0.1:8787 --data data

.PHONY: build
build: bin/holdfast ## build bin/holdfast

.PHONY: bin/holdfast
bin/holdfast:
	@echo "building bin/holdfast (the first build takes a minute or two)"
	@$(GO) build -trimpath -o bin/holdfast ./cmd/holdfast

# A real Temporal server for the tests: a module of its own, as it and the SDK need different versions of one library.
bin/temporal: $(wildcard tools/temporal/*.go) tools/temporal/go.mod
	@echo "building bin/temporal (the first build takes about ten minutes)"
	@cd tools/temporal && $(GO) build -trimpath -ldflags '-s -w' -o ../../bin/temporal .

.PHONY: services
services: ## install what the Go tests use of the system: PostgreSQL, Redis
	@tools/need initdb=postgresql redis-server=redis-server

.PHONY: test
test: services vet bin/temporal node_modules ## all tests, with the race detector; CI runs this, and `faults` on the other stacks
	$(GOTEST) --packages=./... -- -race -timeout 20m

.PHONY: check
check: vet lint ## quick checks: format, vet, lint, house rules, short tests
	$(GO) test -short ./...

.PHONY: vet
vet: ## gofmt, go vet, go mod tidy
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt these files:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff

.PHONY: lint
lint: ## golangci-lint; the first build of it takes about ten minutes
	$(GOLANGCI) run

.PHONY: deploy-check
deploy-check: ## check deploy/: the Compose file is one, the Kubernetes manifests are sound and safe
	@$(GO) tool -modfile=tools/deploy/go.mod github.com/compose-spec/compose-go/v2/cmd deploy/compose.yaml >/dev/null
	$(GO) tool -modfile=tools/deploy/go.mod kube-score score deploy/kubernetes/*.yaml

.PHONY: contract
contract: services ## the suites that every store, engine and model provider must pass
	$(GO) test -race ./store/... ./engine/... ./model/...

.PHONY: faults
faults: services bin/temporal ## the field's faults as black-box tests of the real binary, on each stack; STACKS="sqlite temporal" for some
	@for on in $(or $(STACKS),sqlite postgres redis temporal); do \
		echo "faults on $$on"; FAULTS_ON=$$on $(GOTEST) --packages=./faults -- -race -timeout 30m || exit 1; done

.PHONY: sim
sim: ## thousands of random histories with crashes at every write; HISTORIES=n, or SEED=n for one with its story
	$(GO) test -timeout 2h ./internal/simtest/ $(if $(SEED),-run RandomHistories -v -seed=$(SEED),-histories=$(or $(HISTORIES),10000))

.PHONY: bench
bench: bin/holdfast ## load and latency of the real binary beside the floor; prints tables
	$(GO) run ./bench/run

node_modules: package-lock.json
	npm ci --no-audit --no-fund
	@touch node_modules

.PHONY: web
web: node_modules ## build the page into web/dist, which is committed: building the binary needs no Node
	npm run build -w web

.PHONY: web-check
web-check: node_modules ## check all TypeScript: types, format, lint, what is unused, the packages, the page in a browser, the AI SDK's clients (CHROMIUM=path)
	@$(if $(CHROMIUM),,tools/need chromium=chromium)
	npm run types
	npm run typecheck -w web
	npm run typecheck -w examples/react-chat
	npm run typecheck -w examples/ai-sdk-chat
	npm run typecheck -w tests/ai-sdk
	npm run check
	npm run knip
	npm test
	npm run packages
	npm run build -w examples/react-chat
	npm run current -w web
	$(GO) build -o bin/ ./faults/faultsd ./internal/fakellm/cmd/fakellm ./web/test/longsession
	npm test -w web
	npm test -w tests/ai-sdk

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
