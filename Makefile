PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SAM_PYTHON ?= python3.13
SAM_VENV := .venv-sam
SAM := $(SAM_VENV)/.ready

.PHONY: env
env: $(STAMP)

# The system's Python is only asked for `venv` and `pip`; uv then installs exactly what the lock file says.
$(STAMP): pyproject.toml uv.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv sync --quiet --frozen --active --all-extras --all-groups --inexact
	touch $@

.PHONY: run
run: env
	$(BIN)/leasehook dev $(ARGS)

# On an embedded Postgres; DATABASE_URL (of a superuser: tests make databases and roles) overrides it.
.PHONY: test
test: env
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

# What needs a Docker engine. Images are pulled, or, with IMAGES=build, made of files of this machine (Debian's packages
# busybox-static and postgresql-15, the wheel's Postgres 16 and 18, a CPython 3.13), and root gets an engine started.
IMAGES ?= pull
WITH_ENGINE = env -u DATABASE_URL IMAGES=$(IMAGES) $(BIN)/python -m tests.e2e.with_engine

# The store and its crashes, on servers in containers. `make -k` goes on after a version that fails.
.PHONY: test-postgres
test-postgres: test-postgres-15 test-postgres-16 test-postgres-18

test-postgres-%: env
	LEASEHOOK_TEST_POSTGRES_IMAGE=postgres:$* $(WITH_ENGINE) postgres:$* -- \
		$(BIN)/pytest -n 2 --dist loadfile tests/store tests/crash $(ARGS)

# `sam build`, and the functions in containers as `sam local` runs them, with Postgres in another.
.PHONY: e2e-sam
e2e-sam: env $(SAM)
	$(WITH_ENGINE) lambda postgres:16 -- $(BIN)/pytest -m engine tests/e2e $(ARGS)

# SAM runs on the Python of the functions. moto answers in place of AWS.
$(SAM):
	$(SAM_PYTHON) -m venv $(SAM_VENV)
	$(SAM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check aws-sam-cli moto flask-cors
	touch $@

.PHONY: lint
lint: env
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

.PHONY: bench
bench: env
	$(BIN)/python -m tests.bench.bench_sender
	$(BIN)/python -m tests.bench.bench_claim
	$(BIN)/python -m tests.bench.bench_drain
	$(BIN)/python -m tests.bench.bench_replay
	$(BIN)/python -m tests.bench.bench_imports

.PHONY: template
template: env
	$(BIN)/python -m infra.check_template

UV = $(or $(wildcard $(BIN)/uv),uv)
LAMBDA_PYTHON ?= 3.13
LAMBDA_ARCHITECTURE ?= arm64
LAMBDA_PLATFORM ?= $(patsubst arm64,aarch64,$(LAMBDA_ARCHITECTURE))-manylinux_2_28

# `sam build` asks for build-<logical id> of each function, with ARTIFACTS_DIR set. All of them run the same files, byte
# by byte, so that `sam deploy` uploads them once. Wheels are taken for Lambda's platform, whatever this machine is.
build-%Function:
	$(UV) export --quiet --frozen --no-dev --no-emit-project --no-header -o "$(ARTIFACTS_DIR)/requirements.txt"
	$(UV) pip install --quiet --only-binary :all: --python-version $(LAMBDA_PYTHON) --python-platform $(LAMBDA_PLATFORM) \
		--target "$(ARTIFACTS_DIR)" -r "$(ARTIFACTS_DIR)/requirements.txt"
	cp -R shared functions "$(ARTIFACTS_DIR)"
	cd "$(ARTIFACTS_DIR)" && rm -rf bin .lock requirements.txt && find . -name __pycache__ -prune -exec rm -rf {} +
	@# Compiled files make a cold start about four times as fast. Unchecked, since unpacking changes the sources' times.
	@if python=$$($(UV) python find --no-project --no-python-downloads $(LAMBDA_PYTHON) 2>/dev/null); then \
		"$$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash \
			-s "$(ARTIFACTS_DIR)" -p /var/task "$(ARTIFACTS_DIR)"; \
	else \
		echo "Nothing is compiled, so cold starts are slow: run 'uv python install $(LAMBDA_PYTHON)' and build again." >&2; \
	fi
