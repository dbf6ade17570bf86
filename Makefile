# make demo: train a real trial. make test: test each behaviour; make test-more: the slow tests and random campaigns.
# Each sets up what it needs, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MLFLOW := .cache/mlflow
AZURITE := .cache/azurite
JAX := .cache/jax
AXE := .cache/axe/axe.min.js
AXE_SHA256 := 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
PACKAGING := .cache/packaging
DIST := dist
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles the modules that it imports. To compile all others takes longer than the rest of an installation.
INSTALL := pip install -q --no-compile
# Distributions are built without an environment for each of them.
BUILD_TOOLS := setuptools wheel 'hatchling>=1.26' editables
INSTALL_HERE := $(INSTALL) --no-build-isolation
# Tests start thousands of processes, and each would compile det's modules again.
unexport PYTHONDONTWRITEBYTECODE

# TensorFlow 2.15 is for Python 3.10 and 3.11, and JAX for 3.11 and later. pip takes the paths in this order: what others need
# comes first.
TENSORFLOW := $(shell $(PYTHON) -c 'import sys; print("tensorflow estimator keras" * (sys.version_info < (3, 12)))')
JAX_SUITE := $(shell $(PYTHON) -c 'import sys; print("jax" * (sys.version_info >= (3, 11)))')
PLUGINS := testing cluster torch torch_distributed $(TENSORFLOW) horovod deepspeed slurm storage_s3 storage_gcs storage_azure \
	storage_fsspec mlflow trackio wandb optuna $(JAX_SUITE) ray kubernetes server transformers compat
PACKAGES := pyproject.toml $(PLUGINS:%=plugins/%/pyproject.toml)
SOURCES := conftest.py det_core $(PLUGINS:%=plugins/%) tests benchmarks examples tools docs/conf.py docs/_ext
# Parts of the core that take as long as a distribution. packaging, which waits for pip, is in test-more only.
PARTS := cli comm runner tracking packaging
# One pytest process per distribution or part: test-core, more-core, unit-core, test-cli, test-torch, ...
SUITES := $(filter core $(PARTS) $(PLUGINS),\
	ray horovod core jax cli runner testing tracking comm torch_distributed torch compat cluster server keras deepspeed transformers \
	estimator storage_gcs slurm kubernetes storage_s3 storage_fsspec storage_azure mlflow trackio wandb optuna tensorflow)
tests_of = $(if $(filter core,$(1)),tests,$(if $(filter $(PARTS),$(1)),tests/$(1),plugins/$(1)/tests))
tests_in = $(call tests_of,$(1)) $(if $(filter core,$(1)),$(PARTS:%=--ignore=tests/%))

# The models are small, and suites and workers share the cores: more threads only wait for each other.
test-% more-% unit-% versions-% soak-%: export OMP_NUM_THREADS := 1

MORE := slow or campaign
# More suites at a time than there usually are cores, because tests also wait.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target
PYTEST := $(BIN)/pytest --durations=8

.PHONY: demo test test-more set-up unit check gpu soak versions mutants lint docs docs-serve bench dist release check-release audit debian clean

demo: $(VENV)/.demo
	$(BIN)/det run examples/digits_pytorch/const.yaml
	@echo 'To see the experiment in a browser: $(BIN)/det server'

test: set-up
	$(SIDE_BY_SIDE) $(SUITES:%=test-%)

test-more: set-up
	$(SIDE_BY_SIDE) more-packaging $(SUITES:%=more-%)

# pip and apt wait for different things.
set-up:
	$(MAKE) --no-print-directory --jobs=2 $(VENV)/.dev debian

# Builds in its recipe, so that the other suites do not wait for it; the first suite that starts.
more-horovod: build = +$(MAKE) --no-print-directory $(VENV)/.horovod
test-mlflow more-mlflow soak-mlflow: build = +$(MAKE) --no-print-directory $(MLFLOW)/.installed
test-storage_azure more-storage_azure soak-storage_azure: build = +$(MAKE) --no-print-directory $(AZURITE)/.installed
test-jax more-jax soak-jax: build = +$(MAKE) --no-print-directory $(JAX)/.installed
test-jax more-jax soak-jax: PYTEST = $$([ -e $(JAX)/.installed ] && echo $(JAX) || echo $(VENV))/bin/pytest --durations=8
test-server more-server soak-server: build = +$(MAKE) --no-print-directory $(AXE)

test-%:
	$(build)
	$(PYTEST) -m "not ($(MORE))" $(call tests_in,$*)

# pytest exits with 5 where a suite has no such test.
more-%:
	$(build)
	$(PYTEST) -m "$(MORE)" $(call tests_in,$*) || [ $$? = 5 ]

# The suite of the core would end long after the others, so it has two processes, each of which tests half of it. Small suites
# share a process, and so do those of the runner and the commands, which use the same modules and statements. Those of Ray and
# Slurm cannot, because they have modules of the same name. Those that wait most come first, then those that compute most. The
# suites that start TensorFlow, which takes longer than their tests, are left out.
UNITS := testing cluster+comm cli+runner tracking server core half torch+torch_distributed+deepspeed \
	storage_gcs+storage_s3+storage_azure+storage_fsspec+kubernetes+ray mlflow+trackio+wandb+optuna+slurm
HALF := $(addprefix tests/,core documents experimental test_nasty_values.py test_public_api.py)
unit_tests_in = $(if $(filter half,$(1)),$(HALF),$(call tests_in,$(1)) $(if $(filter core,$(1)),$(HALF:%=--ignore=%)))
unit: $(VENV)/.dev
	$(SIDE_BY_SIDE) --jobs=8 $(UNITS:%=unit-%)

# A suite that passes prints two lines, so that the failures of others stand out.
unit-%:
	@output=$$($(BIN)/pytest -q --tb=short --timeout=100 -m "not integration and not ($(MORE))" \
		$(foreach suite,$(subst +, ,$*),$(call unit_tests_in,$(suite))) 2>&1) && \
		echo "$$output" | sed -n '/CPU seconds/p;$$p' || { echo "$$output"; exit 1; }

# What a change may break: lint, and the suites of the distributions that changed since a revision and of those that import
# them, until one fails. make check SINCE=HEAD~3
SINCE ?= @{upstream}
check: $(VENV)/.dev
	@suites=$$($(BIN)/python tools/changed_suites.py --since '$(SINCE)') && echo "suites: $${suites:-none}" && \
		$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint $$(for suite in $$suites; do echo test-$$suite; done)

gpu: $(VENV)/.dev
	$(PYTEST) -m gpu tests/core $(foreach suite,torch torch_distributed deepspeed,$(call tests_of,$(suite)))
	$(BIN)/python benchmarks/gpu_loop.py

# The share of small changes of the code that tests notice, and what each test costs: hours. ARGS=run resumes after a kill.
mutants: export OMP_NUM_THREADS := 1
mutants: set-up $(VENV)/.horovod $(MLFLOW)/.installed $(AZURITE)/.installed $(AXE)
	set -e; for command in $(or $(ARGS),trace run); do $(BIN)/python tools/mutants $$command $(foreach suite,$(filter-out packaging,$(SUITES)),"$(call tests_in,$(suite))"); done

# The same campaigns as in the tests, with their full count of seeds.
soak: set-up $(VENV)/.horovod versions
	$(MAKE) --no-print-directory --keep-going soak-packaging $(SUITES:%=soak-%)

soak-%: export DET_SOAK ?= 1
soak-%:
	$(build)
	$(PYTEST) -m "campaign or soak" $(call tests_in,$*) || [ $$? = 5 ]

# det-torch and torchrun with the oldest and the newest torch that can be installed here, and det-core with each Python, in
# environments of their own. A torch other than the one above is a download of gigabytes.
TORCHS := 2.10.0 2.14.1
PYTHONS := 3.10 3.12 3.13
VERSIONS := .cache/versions
.PRECIOUS: $(VERSIONS)/torch-%/.installed $(VERSIONS)/python-%/.installed
versions: $(TORCHS:%=versions-torch-%) $(PYTHONS:%=versions-python-%)

versions-torch-%: $(VERSIONS)/torch-%/.installed
	$(<D)/bin/pytest -m "not ($(MORE))" plugins/torch/tests
	$(<D)/bin/pytest -m "not ($(MORE))" plugins/torch_distributed/tests

versions-python-%: $(VERSIONS)/python-%/.installed
	$(<D)/bin/pytest -m "not (integration or $(MORE))" $(addprefix tests/,comm core launch plugins runner search storage tracking trial)

$(VERSIONS)/torch-%/.installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/$(INSTALL) $(BUILD_TOOLS) torch==$*
	$(@D)/bin/$(INSTALL_HERE) torch==$* -e '.[dev]' -e plugins/testing -e 'plugins/torch[dev]' -e plugins/torch_distributed -r examples/requirements.txt onnx onnxscript
	touch $@

# An interpreter of pyenv, or the one on the PATH.
$(VERSIONS)/python-%/.installed:
	$(firstword $(wildcard $(HOME)/.pyenv/versions/$*.*/bin/python) python$*) -m venv $(@D)
	$(@D)/bin/$(INSTALL) $(BUILD_TOOLS)
	$(@D)/bin/$(INSTALL_HERE) -e '.[dev,docs,postgresql]' -e plugins/testing -e plugins/cluster
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/python tools/prose.py det_core $(wildcard plugins/*/det*/) tools
	$(BIN)/python tools/docstring_names.py det_core $(wildcard plugins/*/det*/)
	$(BIN)/python tools/cycles.py det_core $(wildcard plugins/*/det*/)
	$(BIN)/python tools/private_names.py
	$(BIN)/python tools/text_encodings.py det_core tools $(wildcard plugins/*/det*/)
	$(BIN)/python tools/release.py check
	$(BIN)/mypy det_core $(dir $(wildcard $(PLUGINS:%=plugins/%/det*/__init__.py)))
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs .cache/docs
	@echo "the site is in .cache/docs/index.html; make docs-serve shows it in a browser"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory .cache/docs 8000

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/worker_start.py
	$(BIN)/python benchmarks/short_trials.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/slurm_start.py
	$(BIN)/python benchmarks/tracking.py
	$(BIN)/python benchmarks/reports.py
	$(BIN)/python benchmarks/observers.py
	$(BIN)/python benchmarks/remote_store.py
	$(BIN)/python benchmarks/many_reporters.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/collectives.py
	$(BIN)/python benchmarks/large_payloads.py
	$(BIN)/python benchmarks/object_store.py
	$(BIN)/python benchmarks/trainers.py
	$(BIN)/python benchmarks/worker_loop.py
	$(BIN)/python benchmarks/hugging_face.py
	$(BIN)/python benchmarks/checkpoint_stall.py
	$(BIN)/python benchmarks/slots.py
	$(BIN)/python benchmarks/goodput.py
	$(BIN)/python benchmarks/tensorflow_trials.py
	$(BIN)/python benchmarks/first_call.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/runner.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/listings.py

# A wheel and an sdist of each distribution, also of those that this Python cannot install.
dist: $(PACKAGING)/.installed
	rm -rf $(DIST)
	$(PACKAGING)/bin/python tools/release.py build $(DIST)
	$(PACKAGING)/bin/twine check --strict $(DIST)/*

# make release VERSION=1.2.3, then make check-release TAG=v1.2.3 (RELEASING.md).
release:
	$(PYTHON) tools/release.py set $(VERSION)

check-release:
	$(PYTHON) tools/release.py check $(TAG)

# Known vulnerabilities of everything that the distributions and their extras install.
audit: $(VENV)/.dev $(PACKAGING)/.installed
	$(PACKAGING)/bin/pip-audit --skip-editable --path $(VENV)/lib/python*/site-packages

# Debian packages for the tests' servers, browser, namespaces and compilers; the tests start their own, so the package shall not start one.
# Without apt or root those tests skip and say so; never in CI.
debian:
	@if ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && command -v ip >/dev/null && \
		command -v radosgw >/dev/null && command -v slurmctld >/dev/null && command -v munged >/dev/null && command -v chromium >/dev/null && command -v cmake >/dev/null && command -v g++ >/dev/null && \
		[ -x /usr/sbin/sshd ]; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		mkdir -p /etc/postgresql-common && \
		{ [ -e /etc/postgresql-common/createcluster.conf ] || \
			echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf; } && \
		{ [ -x /usr/sbin/sshd ] || { mkdir -p /etc/ssh && touch /etc/ssh/sshd_not_to_be_run; }; } && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			-o Dpkg::Options::=--force-confold postgresql iproute2 cmake g++ make \
			ceph-common ceph-mgr ceph-mon ceph-osd radosgw slurm-wlm munge \
			openssh-server openssh-client chromium >/dev/null; \
	else echo "postgresql, iproute2, ceph, slurm, sshd, chromium, cmake and g++ are not all installed and cannot be here: their tests will skip"; fi

# torch first and alone: a range would let pip choose a build of several GB.
$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.build_tools: | $(VENV)/.python
	$(BIN)/$(INSTALL) $(BUILD_TOOLS)
	touch $@

$(VENV)/.docs: $(PACKAGES) | $(VENV)/.build_tools
	$(BIN)/$(INSTALL_HERE) -e '.[docs]'
	touch $@

$(VENV)/.torch: | $(VENV)/.build_tools
	$(BIN)/$(INSTALL) torch==2.13.0
	touch $@

$(VENV)/.demo: $(VENV)/.torch $(PACKAGES)
	$(BIN)/$(INSTALL_HERE) -e '.[cli]' -e plugins/torch -e plugins/server -r examples/requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/$(INSTALL_HERE) -e '.[dev,docs,postgresql]' $(PLUGINS:%=-e 'plugins/%[dev]')
	touch $@

# Compiled in some minutes, once: the wheel is kept. Optimizing it takes minutes, which the tests do not gain.
# Without a compiler its tests skip and say so; never in CI.
$(VENV)/.horovod: $(VENV)/.dev
	CXXFLAGS=-O0 $(BIN)/python -m det_horovod.build --wheels .cache/wheels && touch $@ || \
		{ [ -z "$$CI" ] && echo "Horovod cannot be built here: its tests will skip"; }

$(PACKAGING)/.installed:
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/$(INSTALL) 'build>=1.2' 'hatchling>=1.26' 'pip-audit>=2.7' 'twine>=6.1'
	touch $@

# The server that det-mlflow is tested with. Its requirements contradict those of TensorFlow 2.15. Without network those tests
# skip and say so; never in CI.
$(MLFLOW)/.installed: plugins/mlflow/tests/server.txt
	$(PYTHON) -m venv $(MLFLOW) && $(MLFLOW)/bin/$(INSTALL) -r $< && touch $@ || \
		{ [ -z "$$CI" ] && echo "the MLflow server cannot be installed here: its tests will skip"; }

# The emulator that det-storage-azure is tested with. Without npm those tests skip and say so; never in CI.
$(AZURITE)/.installed:
	mkdir -p $(@D) && npm install --silent --no-save --prefix $(@D) azurite@3 && touch $@ || \
		{ [ -z "$$CI" ] && echo "Azurite cannot be installed here: its tests will skip"; }

# JAX needs NumPy 2, unlike TensorFlow 2.15. Without network its tests skip and say so; never in CI.
$(JAX)/.installed: pyproject.toml plugins/testing/pyproject.toml plugins/jax/pyproject.toml
	$(PYTHON) -m venv $(JAX) && $(JAX)/bin/$(INSTALL) $(BUILD_TOOLS) && $(JAX)/bin/$(INSTALL_HERE) -e . -e plugins/testing -e 'plugins/jax[cpu,testing]' && touch $@ || \
		{ [ -z "$$CI" ] && echo "JAX cannot be installed here: its tests will skip"; }

# The checks of accessibility in the browser tests of det-server. Without npm those tests skip and say so; never in CI.
$(AXE):
	mkdir -p $(@D) && cd $(@D) && npm pack --silent axe-core@4.14.1 >/dev/null && tar xzOf axe-core-4.14.1.tgz package/axe.min.js >axe.tmp && \
		echo "$(AXE_SHA256)  axe.tmp" | sha256sum --check --quiet && mv axe.tmp $(@F) || \
		{ [ -z "$$CI" ] && echo "axe-core cannot be fetched here: its tests will skip"; }

clean:
	rm -rf $(VENV) .cache $(DIST)
