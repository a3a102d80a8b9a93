# Every command of the project. `make help` lists them; CI runs the same ones.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python
# CLUSTER=local: a Kubernetes of our own, built once. CLUSTER=current: your kubeconfig's context.
CLUSTER ?= local
REGISTRY ?=
BENCH ?=
ARGS ?=

export CLUSTER REGISTRY

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Make .venv with everything the project needs
	@$(PYTHON) tools/setup.py

.PHONY: demo
demo: setup ## Kubernetes, chart, model and three answered questions about pictures
	@$(PY) -m chiasm_tour demo

.PHONY: ask
ask: setup ## Ask the running demo: make ask IMAGE=photo.jpg Q="How many circles?"
	@$(PY) -m chiasm_tour ask --image "$$IMAGE" --question "$$Q"

.PHONY: down
down: ## Remove everything that make demo started
	@if [ -x $(PY) ]; then $(PY) -m chiasm_tour down; else echo "down: nothing to remove (.venv does not exist)"; fi

.PHONY: test
test: setup ## Everything that needs no GPU: lint, types, unit, property, real Kubernetes
	@$(MAKE) --no-print-directory lint
	@$(PY) -m pytest $(ARGS)

.PHONY: test-gpu
test-gpu: setup ## The Triton kernels on a GPU
	@$(PY) -m pytest -m gpu tests/proofs/test_gpu.py $(ARGS)

.PHONY: e2e-gateway
e2e-gateway: setup ## A canary behind a real Envoy; builds Envoy Gateway once (8 minutes on 2 cores)
	@$(PY) -m pytest tests/gateway -m gateway $(ARGS)

.PHONY: e2e-metrics
e2e-metrics: setup ## An autoscaler that sees real load; builds metrics-server once (4 minutes on 2 cores)
	@$(PY) -m pytest tests/metrics -m metrics $(ARGS)

.PHONY: e2e-prometheus
e2e-prometheus: setup ## Alerts, dashboards, scrapes in a real Prometheus; builds it once (11 minutes of one core)
	@$(PY) -m pytest tests/prometheus -m prometheus $(ARGS)

.PHONY: e2e-vault
e2e-vault: setup ## Secrets from a real OpenBao, on the demo's cluster (8 minutes on 2 cores)
	@$(PY) -m pytest tests/e2e -m vault $(ARGS)

.PHONY: e2e-external-secrets
e2e-external-secrets: setup ## Secrets by External Secrets; builds its controller once (12 minutes on 2 cores)
	@$(PY) -m pytest tests/external_secrets -m external_secrets $(ARGS)

.PHONY: fmt
fmt: setup ## Format the sources
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

.PHONY: lint
lint: setup ## Style, types and import rules
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/mypy bench
	@.venv/bin/lint-imports

.PHONY: generate
generate: setup ## Write everything that is derived: CRD, chart copies, reference, golden files
	@$(PY) tools/generate.py

.PHONY: verify
verify: lint ## Lint, and check that generated files are current
	@$(PY) tools/generate.py --check

.PHONY: bench
bench: setup ## Measure one figure: make bench BENCH=engine_equality
	@test -n "$(BENCH)" || { echo "bench: say which: make bench BENCH=$$(ls bench/*.py | xargs -n1 basename -s .py | paste -sd'|')"; exit 2; }
	@test -f "bench/$(BENCH).py" || { echo "bench: no bench/$(BENCH).py; there are: $$(ls bench/*.py | xargs -n1 basename -s .py | paste -sd' ')"; exit 2; }
	@$(PY) bench/$(BENCH).py $(ARGS)

.PHONY: train-demo
train-demo: setup ## Train the demo model anew (hours on 2 cores; resumable)
	@$(PY) -m chiasm_demo train $(ARGS)

.PHONY: constraints
constraints: setup ## Resolve constraints.txt anew
	@$(PYTHON) tools/setup.py constraints
	@$(PY) -m chiasm_cluster requirements
