# Each target is one line that calls one thing; what it needs it sets up itself.
.PHONY: help setup check test integration e2e local demo images cluster-up cluster-down generate lock modern modern-formats bench fuzz faults kills outage preempt coscheduling

PYTHON = .venv/bin/python

help: ## Show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: ## Make .venv and install what the checks need (apt as root on Debian, pip)
	@.ci/setup

check: setup ## Format, lint, types, import contracts, drift, unit tests
	@.ci/check

test: setup ## Everything: check, then integration and end-to-end tests, then 500 cases of fuzz, on a real one-node cluster
	@.ci/test

integration: setup ## Operator process against the real API server, then 500 cases of fuzz; KUBERNETES=1.34: an older control plane, no fuzz
	@$(if $(KUBERNETES),.ci/older $(KUBERNETES),.ci/test integration)

e2e: setup ## Jobs on the real node; MODE=dist-parmetis takes that example alone to its end
	@.ci/test e2e $(if $(findstring command,$(origin MODE)),$(MODE))

fuzz: setup ## Hostile objects against the operator on the real API server; N=10000 cases, SEED=1 repeats a run
	@.ci/fuzz $(or $(N),500) $(SEED)

faults: setup ## Each role x phase x fault on the real API server; writes docs/reference/faults.md
	@.ci/faults

kills: setup ## The operator killed N=1000 times over jobs under way; SEED=1 draws as before
	@.ci/kills $(or $(N),100) $(SEED)

local: ## From nothing to a trained model without Kubernetes: torch, DGL, DGL-API example by dglrun local
	@.ci/local

outage: setup ## The API server away for MINUTES=10 under jobs in every phase, on the one-node cluster
	@.ci/outage $(or $(MINUTES),10)

preempt: setup ## A worker evicted in the training of each example: accuracy, bytes moved, time; MODE=parmetis: of one
	@.ci/preempt $(MODE)

coscheduling: setup ## Gangs by coscheduling's own scheduler on the real API server
	@.ci/coscheduling

demo: setup ## From nothing to a trained model: cluster, images, chart, DGL-API example
	@$(PYTHON) -m tests.e2e.demo

images: setup ## Build the images and load them into the cluster
	@$(PYTHON) -m tests.cluster images

cluster-up: setup ## Bring the one-node Kubernetes up (or check the one KUBECONFIG names)
	@$(PYTHON) -m tests.cluster up

cluster-down: setup ## Take it down without a trace
	@$(PYTHON) -m tests.cluster down

lock: ## Write the versions and hashes of the Python packages in the images: the newest that fit
	@.ci/lock

generate: setup ## Write CRD, chart copy, RBAC rules, install.yaml and the API reference
	@$(PYTHON) -m dgl_operator.api.generate

modern: setup ## Build torch 2.2.1 + dgl 2.1.0 and take it through the examples
	@$(PYTHON) -m tests.e2e.modern

modern-formats: setup ## What DGL 2 reads of ours: its loader, GraphBolt, training (torch 2.2.1 + dgl 2.1.0)
	@$(PYTHON) -m tests.modern

bench: setup ## Performance against the peers; ONLY=agents|assign|chunk|dgl-api|dispatch|operator|training|transfer|verify: one of them, with BENCH_ARGS="--jobs 300"
	@$(PYTHON) -m tests.benchmarks
