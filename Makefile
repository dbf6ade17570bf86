# make demo: train a real trial. make test: everything is tested. Both set up what they need, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

CORE_TESTS := tests
TORCH_TESTS := plugins/torch/tests
DISTRIBUTED_TESTS := plugins/torch_distributed/tests
S3_TESTS := plugins/storage_s3/tests
GCS_TESTS := plugins/storage_gcs/tests
PACKAGES := pyproject.toml plugins/torch/pyproject.toml plugins/torch_distributed/pyproject.toml plugins/storage_s3/pyproject.toml plugins/storage_gcs/pyproject.toml
SOURCES := det_core plugins/torch plugins/torch_distributed plugins/storage_s3 plugins/storage_gcs tests benchmarks examples

.PHONY: demo test unit soak lint bench debian clean

demo: $(VENV)/.demo
	$(BIN)/det run examples/digits_pytorch/const.yaml

test: $(VENV)/.dev debian
	$(BIN)/pytest $(CORE_TESTS)
	$(BIN)/pytest $(TORCH_TESTS)
	$(BIN)/pytest $(DISTRIBUTED_TESTS)
	$(BIN)/pytest $(S3_TESTS)
	$(BIN)/pytest $(GCS_TESTS)

unit: $(VENV)/.dev
	$(BIN)/pytest -q -m "not integration and not slow" $(CORE_TESTS)
	$(BIN)/pytest -q -m "not integration and not slow" $(TORCH_TESTS)
	$(BIN)/pytest -q -m "not integration and not slow" $(DISTRIBUTED_TESTS)
	$(BIN)/pytest -q -m "not integration and not slow" $(S3_TESTS)
	$(BIN)/pytest -q -m "not integration and not slow" $(GCS_TESTS)

# The same campaigns as in the tests, with their full count of seeds.
soak: $(VENV)/.dev
	DET_SOAK=1 $(BIN)/pytest -m campaign $(CORE_TESTS)
	DET_SOAK=1 $(BIN)/pytest -m campaign $(TORCH_TESTS)
	DET_SOAK=1 $(BIN)/pytest -m campaign $(S3_TESTS)
	DET_SOAK=1 $(BIN)/pytest -m campaign $(GCS_TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy det_core plugins/torch/det_torch plugins/torch_distributed/det_torch_distributed plugins/storage_s3/det_storage_s3 plugins/storage_gcs/det_storage_gcs
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/tracking.py
	$(BIN)/python benchmarks/reports.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/collectives.py
	$(BIN)/python benchmarks/object_store.py
	$(BIN)/python benchmarks/trainers.py
	$(BIN)/python benchmarks/checkpoint_stall.py
	$(BIN)/python benchmarks/first_call.py

# Debian packages for the tests' servers and namespaces; the tests start their own, so the package shall not start one.
# Without apt or root those tests skip and say so; never in CI.
debian:
	@if ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && command -v ip >/dev/null && \
		command -v radosgw >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		mkdir -p /etc/postgresql-common && \
		{ [ -e /etc/postgresql-common/createcluster.conf ] || \
			echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf; } && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			-o Dpkg::Options::=--force-confold postgresql iproute2 \
			ceph-common ceph-mgr ceph-mon ceph-osd radosgw >/dev/null; \
	else echo "postgresql, iproute2 and ceph are not all installed and cannot be here: their tests will skip"; fi

# torch first and alone: a range would let pip choose a build of several GB.
$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	touch $@

$(VENV)/.demo: $(VENV)/.torch $(PACKAGES)
	$(BIN)/pip install -q -e . -e plugins/torch -r examples/requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/pip install -q -e '.[dev,postgresql]' -e 'plugins/torch[dev]' -e plugins/torch_distributed -e 'plugins/storage_s3[dev]' -e 'plugins/storage_gcs[dev]'
	touch $@

clean:
	rm -rf $(VENV) .cache
