"""The circuit in SQL does what a model of it in a dozen lines does, whatever happens in whatever order."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.circuit import CircuitPolicy
from tests.support.world import SHIFTED, World

POLICY = CircuitPolicy(failures_to_open=3, cooldowns_seconds=(30, 60))
VERBS = {"success": "succeed", "rejection": "retry", "failure": "retry", "none": "release"}


@dataclass
class Model:
    """One endpoint's circuit, fed one batch of evidence at a time; `waits` is the cool-down it is in."""

    state: str = "closed"
    failures: int = 0
    opened: int = 0
    waits: float = 0.0

    def claim(self) -> None:
        if self.state != "closed":
            self.state, self.waits = "half_open", 60.0

    def settle(self, evidence: list[str]) -> None:
        telling = [each for each in evidence if each != "none"]
        for each in telling:
            self.failures = self.failures + 1 if each == "failure" else 0
        alive = any(each != "failure" for each in telling)
        if self.state == "half_open":
            if alive:
                self.state, self.opened, self.waits = "closed", 0, 0.0
            else:
                self.state = "open"
                self._cool_down() if telling else self._retry_at_once()
        elif self.failures >= POLICY.failures_to_open:
            self.state = "open"
            self._cool_down()

    def _cool_down(self) -> None:
        self.opened += 1
        self.waits = POLICY.cooldowns_seconds[min(self.opened, len(POLICY.cooldowns_seconds)) - 1]

    def _retry_at_once(self) -> None:
        self.waits = 0.0


batches = st.lists(
    st.lists(
        st.sampled_from(["success", "rejection", "failure", "failure", "none"]),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def circuit_world(world: World) -> World:
    """An endpoint with more due deliveries than any example uses."""
    world.endpoint()
    world.publish_many(2000)
    return world


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches)
def test_the_circuit_follows_its_model(circuit_world: World, history: list[list[str]]) -> None:
    world, model = circuit_world, Model()
    endpoint_id = world.one("select id from leasehook.endpoints")["id"]
    world.sql(
        """
        update leasehook.circuits
        set state = 'closed', claimable_at = null, changed_at = '-infinity', consecutive_failures = 0,
            open_count = 0, failing_since = null, recovered_at = '-infinity'
        """
    )
    for evidence in history:
        world.pass_time(4000, {"circuits": SHIFTED["circuits"]})
        claimed = world.claim(limit=len(evidence)).claimed
        model.claim()
        assert len(claimed) == (len(evidence) if model.state == "closed" else 1)
        told = evidence[: len(claimed)]
        world.settle(
            *[
                world.report(each, VERBS[what], evidence=what, sent=what != "none")
                for each, what in zip(claimed, told, strict=True)
            ],
            policy=POLICY,
        )
        model.settle(told)

        row = world.circuit(endpoint_id)
        assert (row["state"], row["consecutive_failures"], row["open_count"]) == (
            model.state,
            model.failures,
            model.opened,
        )
        if model.state != "closed":
            waits = (row["claimable_at"] - world.now()).total_seconds()
            assert abs(waits - model.waits) < 2
