"""The cost and scale model: its page, its laws, and that it models what the code does."""

import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from infra.scale import capacity, page, simulation
from infra.scale.__main__ import main
from infra.scale.capacity import (
    bounds,
    database_ceiling,
    drains_needed,
    drains_to_set,
    statements_per_second,
    stored,
    throughput,
)
from infra.scale.costs import Database, bill, choose_instance, polling_gigabyte_seconds
from infra.scale.measured import MEASURED
from infra.scale.prices import INSTANCES, LIST
from infra.scale.simulation import Result, backlog, burst, diurnal, simulate
from infra.scale.workload import DAY_SECONDS, Deployment, Receivers, Workload
from shared import dispatch
from shared.config import Settings
from shared.domain.retry import Schedule

TEMPLATE = (Path(__file__).parents[2] / "template.yaml").read_text(encoding="utf-8")

receivers = st.builds(
    lambda median, tail, **more: Receivers(
        median_seconds=median, p99_seconds=median * tail, **more
    ),
    median=st.floats(0.005, 3.0),
    tail=st.floats(1.0, 8.0),
    count=st.integers(10, 60),
    timeout_share=st.floats(0.0, 0.3),
    new_connection_share=st.floats(0.0, 1.0),
    never_answer=st.integers(0, 5),
    hot_share=st.floats(0.0, 0.9),
)
workloads = st.builds(
    Workload,
    deliveries_per_day=st.floats(1_000.0, 2e8),
    peak_factor=st.floats(1.0, 20.0),
    fan_out=st.integers(1, 10),
    http_share=st.floats(0.0, 1.0),
    payload_bytes=st.integers(1, 100_000),
    receivers=receivers,
)
deployments = st.builds(
    Deployment,
    drains_per_tick=st.sampled_from(capacity.DRAINS_OFFERED),
    drain_megabytes=st.integers(256, 4096),
    core_speed=st.floats(0.3, 2.0),
    in_vpc=st.booleans(),
    polls=st.booleans(),
)
databases = st.sampled_from(Database)


def chance(seed: int = 1) -> Random:
    return Random(seed)


def crowd(deployment: Deployment, events: int, receivers: Receivers) -> tuple[Workload, Result]:
    """A backlog, and what became of it when all of it was sent."""
    workload = Workload(receivers=receivers)
    result = simulate(
        workload,
        deployment,
        backlog(events),
        chance().random,
        seconds=3600,
        ends_when_empty=True,
    )
    return workload, result


class TestThePage:
    def test_its_tables_are_the_models(self) -> None:
        written = page.PAGE.read_text(encoding="utf-8")
        assert page.render(written) == written, "run: python -m infra.scale --write"

    def test_its_sentences_have_the_models_figures(self) -> None:
        text = " ".join(page.PAGE.read_text(encoding="utf-8").split())
        workload, deployment = Workload(), Deployment()
        found = bounds(workload, deployment)
        kept = stored(workload, deployment)
        full = MEASURED.claim_ms(200) + MEASURED.settle_ms(200)
        floor = bill(Workload(deliveries_per_day=10_000), deployment).usd
        for sentence in (
            f"over {MEASURED.attempt_cpu_ms(workload.receivers):.3f} ms per attempt",
            f"one after the other: {round(found.statements, -2):,.0f} a second",
            f"above {round(found.cpu * capacity.COMFORT, -1):.0f} attempts a second ({found.cpu:.0f} \N{MULTIPLICATION SIGN} 0.7)",
            f"claim and settle {full / 200:.2f})",
            f"so a vCPU ends at {round(database_ceiling(replace(workload, receivers=replace(workload.receivers, timeout_share=0)), deployment, 1), -2):,.0f} a second",
            f"{kept.wal_bytes_per_delivery / 1e3:.1f} kB of WAL per delivery",
            f"{kept.gigabytes:.0f} GB at 1x",
            f"{MEASURED.prune_database_cpu_ms:g} ms of CPU and {MEASURED.prune_wal_bytes:.0f} bytes of WAL",
            f"about {floor:.0f} USD a month per stack",
            f"{LIST['rds_proxy']:g} USD \N{MULTIPLICATION SIGN} 730 h \N{MULTIPLICATION SIGN} vCPUs",
            f"it takes {capacity.database_vcpus(workload.peak_per_second, workload, deployment) / workload.peak_per_second * 1e3:.0f} vCPU-ms",
        ):
            assert sentence in text, sentence

    def test_a_page_without_a_place_for_a_table_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has places for"):
            page.render("<!-- table: bill -->\n<!-- end -->\n")


class TestItModelsTheCode:
    def test_the_drains_loop_has_the_same_constants(self) -> None:
        assert (simulation._GAP_SECONDS, simulation._REFILL_SHARE, simulation._MIN_LANES) == (
            dispatch._CLAIM_GAP_SECONDS,
            dispatch._REFILL_SHARE,
            dispatch._MIN_LANES,
        )
        assert capacity._GAP_SECONDS == dispatch._CLAIM_GAP_SECONDS

    def test_the_deployment_is_the_templates(self) -> None:
        def found(pattern: str) -> str:
            match = re.search(pattern, TEMPLATE, re.DOTALL)
            assert match is not None, pattern
            return match[1]

        deployment = Deployment()
        budget = found(r"LEASEHOOK_DRAIN_BUDGET_SECONDS: '(\d+)'")
        assert deployment.settings.drain_budget_seconds == float(budget)
        memory = found(r"\n  DrainMemoryMegabytes:.*?Default: (\d+)")
        assert deployment.drain_megabytes == int(memory)
        offered = found(r"\n  DrainsPerTick:.*?AllowedValues: (\[.*?\])")
        assert tuple(map(int, json.loads(offered.replace("'", '"')))) == capacity.DRAINS_OFFERED
        timeout = found(r"\n  IngestFunction:.*?\n      Timeout: (\d+)")
        assert int(timeout) == capacity._INGEST_TIMEOUT_SECONDS
        assert found(r"\n  PublishRatePerSecond:.*?Default: (\d+)") == "500"  # as the page says

    def test_polling_costs_sixty_four_of_sixty_seconds(self) -> None:
        assert Deployment().claiming_seconds == 64
        minutes = 60 * 24 * 365 / 12
        assert polling_gigabyte_seconds(Deployment()) == pytest.approx(64 * minutes * 0.5)


class TestTheBounds:
    @given(workloads, deployments, st.floats(0.1, 64))
    def test_more_drains_send_more_until_the_database_is_full(
        self, workload: Workload, deployment: Deployment, vcpus: float
    ) -> None:
        rates = [
            throughput(workload, replace(deployment, drains_per_tick=drains), vcpus)
            for drains in range(1, 12)
        ]
        ceiling = database_ceiling(workload, deployment, vcpus)
        assert rates == sorted(rates)
        assert all(
            rate == pytest.approx(min(rates[0] * drains, ceiling)) or rates[0] == ceiling
            for drains, rate in enumerate(rates, 1)
        )

    @given(workloads, deployments)
    def test_the_drains_that_are_needed_carry_the_peak_and_one_less_does_not(
        self, workload: Workload, deployment: Deployment
    ) -> None:
        needed = drains_needed(workload, deployment)
        enough = throughput(workload, replace(deployment, drains_per_tick=needed))
        assert enough * capacity.COMFORT >= workload.peak_per_second * (1 - 1e-9)
        if needed > 1:
            fewer = throughput(workload, replace(deployment, drains_per_tick=needed - 1))
            assert fewer * capacity.COMFORT < workload.peak_per_second
        offered = drains_to_set(workload, deployment)
        assert (offered is None) == (needed > 8)
        assert offered is None or offered >= needed

    @given(deployments, st.floats(0.01, 3000), st.floats(1.0, 10.0))
    def test_a_database_works_more_for_more(
        self, deployment: Deployment, rate: float, times: float
    ) -> None:
        workload = Workload()
        few = capacity.database_vcpus(rate, workload, deployment)
        assert capacity.database_vcpus(rate * times, workload, deployment) >= few * (1 - 1e-9)
        claims, settles = statements_per_second(rate, deployment)
        assert claims > 0
        assert 0 < settles <= rate

    def test_memory_over_one_core_adds_no_speed(self) -> None:
        workload = Workload()
        one, two = (
            bounds(workload, Deployment(drain_megabytes=megabytes)).cpu
            for megabytes in (1769, 3538)
        )
        assert one == two


class TestTheBill:
    @given(workloads, deployments, databases, st.floats(1.0, 100.0))
    def test_more_deliveries_never_cost_less(
        self, workload: Workload, deployment: Deployment, database: Database, times: float
    ) -> None:
        more = replace(workload, deliveries_per_day=workload.deliveries_per_day * times)
        assert bill(more, deployment, database).usd >= bill(workload, deployment, database).usd * (
            1 - 1e-9
        )

    @given(workloads, deployments, databases)
    def test_it_is_the_sum_of_its_lines_and_none_is_negative(
        self, workload: Workload, deployment: Deployment, database: Database
    ) -> None:
        month = bill(workload, deployment, database)
        assert all(line.quantity >= 0 and line.price >= 0 for line in month.lines)
        assert month.usd == pytest.approx(sum(line.quantity * line.price for line in month.lines))
        without = bill(workload, deployment, Database.EXISTING)
        assert month.usd >= without.usd

    @given(workloads, deployments)
    def test_every_price_in_the_list_is_in_proportion(
        self, workload: Workload, deployment: Deployment
    ) -> None:
        doubled = {name: 2 * price for name, price in LIST.items()}
        month = bill(workload, deployment, Database.AURORA)
        assert bill(workload, deployment, Database.AURORA, prices=doubled).usd == pytest.approx(
            2 * month.usd
        )

    def test_the_chosen_instance_has_the_cpu_and_the_one_below_has_not(self) -> None:
        for per_day in (1e6, 1e7, 1e8):
            workload, deployment = page._sized(per_day)
            chosen = choose_instance(workload, deployment)
            peak = capacity.database_vcpus(workload.peak_per_second, workload, deployment)
            assert chosen.vcpus * capacity.COMFORT >= peak
            for smaller in INSTANCES[: INSTANCES.index(chosen)]:
                mean = capacity.database_vcpus(workload.mean_per_second, workload, deployment)
                assert smaller.vcpus * capacity.COMFORT < peak or smaller.sustained_vcpus < mean


class TestTheSimulation:
    @examples(max_examples=15)
    @given(
        st.builds(
            Workload,
            deliveries_per_day=st.floats(20_000, 2_000_000),
            fan_out=st.integers(1, 3),
            receivers=receivers,
        ),
        st.sampled_from([1, 2]),
        st.booleans(),
        st.integers(0, 2**32),
    )
    def test_deliveries_are_conserved_and_littles_law_holds(
        self, workload: Workload, drains: int, polls: bool, seed: int
    ) -> None:
        # Two quick attempts, so that some die.
        deployment = Deployment(
            drains_per_tick=drains,
            polls=polls,
            settings=replace(Settings(), schedule=Schedule((2.0,))),
        )
        traffic, answers = chance(seed), chance(seed + 1)
        arrivals = burst(workload, 200, 40, traffic.random)
        result = simulate(workload, deployment, arrivals, answers.random, seconds=61)
        assert result.arrived == result.delivered + result.dead + result.waiting
        assert result.arrived >= 200 * workload.fan_out
        assert result.waiting >= 0
        assert result.delivered <= result.attempts <= result.claimed <= 2 * result.arrived
        # Little: the mean number that is due = the rate of becoming due * the mean wait.
        assert result.due_mean * result.seconds == pytest.approx(
            result.waits_seconds, rel=1e-6, abs=1e-6
        )
        assert 0 <= result.slots_used <= 1
        assert result.wait_p50_seconds <= result.wait_p99_seconds <= result.wait_max_seconds

    def test_littles_law_holds_for_what_is_in_flight(self) -> None:
        _, result = crowd(Deployment(), 3000, Receivers(timeout_share=0.0))
        assert result.delivered == 3000
        assert result.in_flight_mean * result.seconds == pytest.approx(
            result.attempts * result.attempt_mean_seconds, rel=1e-9
        )

    def test_the_same_seed_gives_the_same_day(self) -> None:
        workload = Workload(deliveries_per_day=2e6)
        first, again, other = (
            page.run(workload, Deployment(), 20, seed=seed) for seed in (7, 7, 8)
        )
        assert first == again
        assert first != other

    def test_an_attempt_that_is_out_of_retries_is_dead(self) -> None:
        settings = replace(Settings(), schedule=Schedule((1.0, 1.0)))
        _, result = crowd(
            Deployment(settings=settings, drains_per_tick=8), 300, Receivers(timeout_share=0.5)
        )
        assert result.dead > 0
        assert result.delivered + result.dead == result.arrived == 300
        assert result.attempts <= 3 * 300

    @pytest.mark.parametrize(
        ("deployment", "median", "endpoints"),
        [
            (Deployment(), 0.01, 50),
            (Deployment(drain_megabytes=1769), 0.5, 50),
            (Deployment(drain_megabytes=1769), 0.5, 1),
            (Deployment(drains_per_tick=4), 1.0, 50),
        ],
    )
    def test_a_backlog_is_sent_at_the_bound_and_never_over_it(
        self, deployment: Deployment, median: float, endpoints: int
    ) -> None:
        alike = Receivers(
            median_seconds=median, p99_seconds=median, count=endpoints, timeout_share=0.0
        )
        workload, result = crowd(deployment, 6000, alike)
        found = bounds(workload, deployment)
        bound = min(found.drain, found.endpoint * endpoints) * deployment.drains_per_tick
        assert 0.8 * bound < result.per_second < bound * 1.001

    def test_an_overload_waits_longer_and_longer(self) -> None:
        workload = Workload(deliveries_per_day=1.5e7, receivers=page.SLOW)
        short, long = (page.run(workload, Deployment(), seconds) for seconds in (10, 30))
        assert long.wait_p99_seconds > 2 * short.wait_p99_seconds
        assert long.slots_used > 0.9

    def test_endpoints_that_are_down_open_their_circuits_and_delay_nobody_else(self) -> None:
        workload = Workload(receivers=replace(Receivers(), never_answer=5))
        result = page.run(workload, Deployment(), 120)
        assert result.circuits_opened >= 5
        assert result.answering_wait_p99_seconds < 0.5 < result.wait_p99_seconds

    def test_a_drain_that_does_not_linger_runs_for_less(self) -> None:
        workload = Workload(deliveries_per_day=10_000)
        lingering, ending = (
            page.run(workload, Deployment(polls=polls), 300) for polls in (True, False)
        )
        assert ending.drain_seconds < lingering.drain_seconds / 10
        assert ending.wait_max_seconds > 10 > lingering.wait_max_seconds

    def test_a_day_has_its_mean_and_its_peak(self) -> None:
        workload = Workload(deliveries_per_day=50_000, peak_factor=5)
        at = [instant for instant, _ in diurnal(workload, DAY_SECONDS, chance().random)]
        assert at == sorted(at)
        assert len(at) == pytest.approx(50_000, rel=0.03)
        noon = [instant for instant in at if abs(instant - DAY_SECONDS / 2) < 900]
        assert len(noon) / 1800 == pytest.approx(workload.peak_per_second, rel=0.1)


class TestTheCommand:
    def test_it_answers_in_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        asked = ["--deliveries-per-day", "2e5", "--database", "rds", "--seconds", "20", "--json"]
        assert main(asked) == 0
        answer = json.loads(capsys.readouterr().out)
        month = bill(Workload(deliveries_per_day=2e5), Deployment(), Database.RDS)
        assert answer["month"]["usd"] == pytest.approx(month.usd)
        assert answer["drains_needed"] == 1
        simulated = answer["simulated"]
        assert simulated["arrived"] == simulated["delivered"] + simulated["waiting"]

    def test_it_answers_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--seconds", "5", "--burst", "50"]) == 0
        printed = capsys.readouterr().out
        assert "per million deliveries" in printed
        assert "check them" in printed

    def test_it_takes_prices_of_ones_own(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "prices.json"
        file.write_text(json.dumps({"http_api": 0.0}))
        usd = []
        for more in ([], ["--prices", str(file)]):
            main(["--seconds", "5", "--json", *more])
            usd.append(json.loads(capsys.readouterr().out)["month"]["usd"])
        assert usd[0] - usd[1] == pytest.approx(1e6 * 365 / 12 / 1e6 * LIST["http_api"])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--peak-factor", "0.5"], "the peak factor and the fan-out at least 1"),
            (["--latency-median", "2"], "not over its p99"),
            (["--timeout-share", "1"], "timeout_share must be a share"),
            (["--fan-out", "51"], "cannot have more deliveries than there are endpoints"),
            (["--drains-per-tick", "0"], "at least one drain"),
            (["--never-answer", "50"], "at least one endpoint must answer"),
            (["--prices", "/nowhere.json"], "No such file"),
        ],
    )
    def test_it_says_what_is_wrong(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err

    def test_an_unknown_price_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "prices.json"
        file.write_text(json.dumps({"lambda": 1}))
        with pytest.raises(SystemExit):
            main(["--prices", str(file)])
        assert "unknown prices: lambda" in capsys.readouterr().err
