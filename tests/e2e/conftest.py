"""What tests in containers share."""

import os

import pytest

from tests.e2e.with_engine import RUN_VARIABLE


@pytest.fixture(scope="session")
def run() -> str:
    """The label of this run's containers, from whoever made sure that there is an engine."""
    run = os.environ.get(RUN_VARIABLE)
    if not run:
        pytest.skip("runs containers: make e2e-sam")
    return run
