"""The functions under test, deployed anew for each."""

from collections.abc import Iterator

import pytest

from tests.support.lambdas import Lambdas
from tests.support.world import World


@pytest.fixture
def lambdas(world: World, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lambdas]:
    """Every function, against this test's database."""
    lambdas = Lambdas(world, database_url, monkeypatch)
    yield lambdas
    lambdas.close()
