PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: env
env: $(STAMP)

# The system's Python is only asked for `venv` and `pip`; uv then installs exactly what the lock file says.
$(STAMP): pyproject.toml uv.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv sync --quiet --frozen --active --all-extras --all-groups --inexact
	touch $@
