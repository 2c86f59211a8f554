import base64
from contextlib import suppress
from dataclasses import fields
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config import CLAIM_SECONDS, MAX_TIMEOUT_SECONDS, Settings, describe
from shared.domain.circuit import CircuitPolicy
from shared.domain.retry import DEFAULT_SCHEDULE, Schedule
from shared.errors import ConfigurationError
from shared.secret_values import SecretReference, SecretStore
from shared.store.credentials import Credentials, FromSecret, IamToken, InUrl

KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(b"o" * 32).decode()

# The field of each number, with its least and greatest value.
RANGES = {
    "LEASEHOOK_TIMEOUT_SECONDS": ("timeout_seconds", "1", "30"),
    "LEASEHOOK_LEASE_SECONDS": ("lease_seconds", "2.1", "3600"),
    "LEASEHOOK_SETTLE_MARGIN_SECONDS": ("settle_margin_seconds", "0.1", "60"),
    "LEASEHOOK_CIRCUIT_FAILURES": ("circuit_failures", "1", "1000000"),
    "LEASEHOOK_DRAIN_BUDGET_SECONDS": ("drain_budget_seconds", "1", "900"),
    "LEASEHOOK_DRAIN_LINGER_SECONDS": ("drain_linger_seconds", "0", "900"),
    "LEASEHOOK_DRAIN_POLL_SECONDS": ("drain_poll_seconds", "0.01", "60"),
    "LEASEHOOK_DRAIN_CONCURRENCY": ("drain_concurrency", "1", "2000"),
    "LEASEHOOK_DRAIN_ENDPOINT_CONCURRENCY": ("drain_endpoint_concurrency", "1", "2000"),
    "LEASEHOOK_DRAIN_MAX_DELIVERIES": ("drain_max_deliveries", "1", "10000000"),
    "LEASEHOOK_RESPONSE_BYTES": ("response_bytes", "0", "65536"),
    "LEASEHOOK_API_REQUESTS_PER_MINUTE": ("api_requests_per_minute", "0", "1000000"),
    "LEASEHOOK_MAX_PAYLOAD_BYTES": ("max_payload_bytes", "1", "4000000"),
    "LEASEHOOK_RETENTION_DAYS": ("retention_days", "1", "3650"),
    "LEASEHOOK_DEAD_RETENTION_DAYS": ("dead_retention_days", "1", "3650"),
    "LEASEHOOK_PARKED_DAYS": ("parked_days", "1", "3650"),
    "LEASEHOOK_IDEMPOTENCY_DAYS": ("idempotency_days", "1", "3650"),
    "LEASEHOOK_DISABLE_AFTER_DAYS": ("disable_after_days", "1", "3650"),
    "LEASEHOOK_MAINTAIN_BUDGET_SECONDS": ("maintain_budget_seconds", "1", "900"),
    "LEASEHOOK_STATEMENT_TIMEOUT_SECONDS": ("statement_timeout_seconds", "0.1", "900"),
}
OTHER_KEYS = {
    "DATABASE_URL",
    "LEASEHOOK_DATABASE_CREDENTIALS",
    "LEASEHOOK_SECRET_KEY",
    "LEASEHOOK_ALLOW_TARGETS",
    "LEASEHOOK_RETRY_DELAYS_SECONDS",
    "LEASEHOOK_CIRCUIT_COOLDOWNS_SECONDS",
    "POWERTOOLS_METRICS_NAMESPACE",
}
# Short attempts under a long lease, so that the lease does not limit what else is tried.
ROOMY = {
    "LEASEHOOK_TIMEOUT_SECONDS": "1",
    "LEASEHOOK_LEASE_SECONDS": "3600",
    "LEASEHOOK_SETTLE_MARGIN_SECONDS": "0.1",
}


def credentials_in(store: SecretStore, name: str) -> SecretReference:
    return SecretReference("LEASEHOOK_DATABASE_CREDENTIALS", store, name)


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        Settings.read(environment)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return str(refused.value)


def test_without_an_environment_the_defaults_hold() -> None:
    settings = Settings.read({})
    assert settings == Settings()
    assert settings.schedule == DEFAULT_SCHEDULE
    assert settings.circuit == CircuitPolicy()


def test_every_default_is_valid_when_it_is_written_out() -> None:
    assert Settings.read({key: default for key, default, _ in describe()}) == Settings()


def test_every_setting_is_described_once() -> None:
    described = describe()
    keys = [key for key, _, _ in described]
    assert len(keys) == len(set(keys)) == len(fields(Settings))
    assert set(keys) == RANGES.keys() | OTHER_KEYS
    assert all(meaning.endswith(".") for _, _, meaning in described)
    assert ("LEASEHOOK_TIMEOUT_SECONDS", "15") in [(key, default) for key, default, _ in described]


@pytest.mark.parametrize("key", RANGES)
def test_a_number_may_be_anything_from_its_least_to_its_greatest_value(key: str) -> None:
    name, low, high = RANGES[key]
    for text in (low, high):
        assert getattr(Settings.read(ROOMY | {key: text}), name) == float(text)


@pytest.mark.parametrize("key", sorted(RANGES.keys() - {"LEASEHOOK_LEASE_SECONDS"}))
def test_a_number_out_of_its_range_is_refused_with_key_range_and_value(key: str) -> None:
    _, low, high = RANGES[key]
    above = str(float(high) + 0.1) if "." in low else str(int(high) + 1)
    for text in (above, "-1"):
        message = refusal(ROOMY | {key: text})
        assert message.startswith(f"{key}: expected a ")
        assert f"number from {low} to " in message
        assert message.endswith(f", got '{text}'")
    if low != "0":
        assert refusal(ROOMY | {key: "0"}).startswith(f"{key}: expected a ")


@pytest.mark.parametrize("key", RANGES)
@pytest.mark.parametrize(
    "text", ["many", "nan", "inf", "1_0", "+5", "0x10", "5s", "1e1", "\u0661\u0662", "9" * 5000]
)
def test_what_is_no_plain_number_is_refused(key: str, text: str) -> None:
    assert refusal({key: text}).startswith(f"{key}: expected a ")


@pytest.mark.parametrize(
    "key",
    [key for key, (name, _, _) in RANGES.items() if isinstance(getattr(Settings(), name), int)],
)
def test_a_whole_number_has_no_fraction(key: str) -> None:
    assert "expected a whole number from" in refusal({key: "1.5"})


@pytest.mark.parametrize("key", sorted(RANGES.keys() | OTHER_KEYS))
def test_an_empty_variable_counts_as_absent(key: str) -> None:
    assert Settings.read({key: ""}) == Settings.read({key: " \n"}) == Settings()


def test_white_space_around_a_value_is_ignored() -> None:
    assert Settings.read({"LEASEHOOK_TIMEOUT_SECONDS": " 7\n"}).timeout_seconds == 7


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("LEASEHOOK_RETRY_DELAYS_SECONDS", "schedule"),
        ("LEASEHOOK_CIRCUIT_COOLDOWNS_SECONDS", "circuit_cooldowns_seconds"),
    ],
)
def test_delays_are_whole_seconds_up_to_a_day_separated_by_commas(key: str, name: str) -> None:
    value = getattr(Settings.read({key: "1, 60,86400"}), name)
    assert value in (Schedule((1, 60, 86400)), (1, 60, 86400))
    for text in ("0", "86401", "1,,2", "1,", "1;2", "1.5", "-1", "soon"):
        expected = (
            f"{key}: expected whole seconds from 1 to 86400, separated by commas, got '{text}'"
        )
        assert refusal({key: text}) == expected


def test_the_circuit_takes_its_policy_from_both_of_its_settings() -> None:
    environment = {
        "LEASEHOOK_CIRCUIT_FAILURES": "3",
        "LEASEHOOK_CIRCUIT_COOLDOWNS_SECONDS": "5,6",
    }
    assert Settings.read(environment).circuit == CircuitPolicy(3, (5, 6))


def test_allowed_targets_are_networks() -> None:
    settings = Settings.read({"LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8, ::1"})
    assert settings.targets.allowed_networks == (ip_network("127.0.0.0/8"), ip_network("::1"))
    message = refusal({"LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8,localhost"})
    assert message.startswith("LEASEHOOK_ALLOW_TARGETS: expected networks separated by commas (")
    assert message.endswith(", got '127.0.0.0/8,localhost'")


@pytest.mark.parametrize(
    ("environment", "shortest"),
    [
        ({}, 15 + 5 + 1),
        ({"LEASEHOOK_TIMEOUT_SECONDS": "30"}, 30 + 5 + 1),
        ({"LEASEHOOK_SETTLE_MARGIN_SECONDS": "20"}, 15 + 20 + 1),
    ],
)
def test_a_lease_outlives_the_longest_attempt_and_the_writing_of_its_result(
    environment: dict[str, str], shortest: int
) -> None:
    assert CLAIM_SECONDS == 1
    lasting = Settings.read(environment | {"LEASEHOOK_LEASE_SECONDS": str(shortest)})
    assert lasting.lease_seconds == shortest
    message = refusal(environment | {"LEASEHOOK_LEASE_SECONDS": f"{shortest - 0.5}"})
    assert message.startswith(f"LEASEHOOK_LEASE_SECONDS: expected at least {shortest} (")
    assert message.endswith(f", got {shortest - 0.5}")


def test_a_lease_is_a_number_of_seconds_up_to_an_hour() -> None:
    for text in ("0.5", "3600.1"):
        message = refusal(ROOMY | {"LEASEHOOK_LEASE_SECONDS": text})
        expected = f"LEASEHOOK_LEASE_SECONDS: expected a number from 1 to 3600, got '{text}'"
        assert message == expected


def test_the_default_lease_is_long_enough_for_the_slowest_endpoint() -> None:
    slowest = MAX_TIMEOUT_SECONDS + Settings().settle_margin_seconds + CLAIM_SECONDS
    assert Settings().lease_seconds >= slowest


def test_several_sealing_keys_keep_their_order() -> None:
    settings = Settings.read({"LEASEHOOK_SECRET_KEY": f"{KEY}, {OTHER_KEY},"})
    assert settings.require_secret_keys() == (b"k" * 32, b"o" * 32)


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        KEY[:-1],
        KEY[:-4],
        KEY + "AAAA",
        KEY.replace("=", "é"),
        f"{KEY},hunter2",
        base64.b64encode(b"k" * 31).decode(),
        base64.b64encode(b"k" * 33).decode(),
        base64.urlsafe_b64encode(b"\xff" * 32).decode(),
    ],
)
def test_a_bad_sealing_key_is_refused_without_showing_it(text: str) -> None:
    """WH-122."""
    expected = (
        "LEASEHOOK_SECRET_KEY: expected the base64 of 32 random bytes (openssl rand -base64 32); "
        "several, separated by commas, to rotate, got a value that is not shown"
    )
    assert refusal({"LEASEHOOK_SECRET_KEY": text}) == expected


def test_secrets_do_not_show_in_the_settings() -> None:
    """WH-122."""
    environment = {
        "DATABASE_URL": "postgresql://app:hunter2@db/leasehook",
        "LEASEHOOK_SECRET_KEY": KEY,
    }
    shown = repr(Settings.read(environment))
    assert "hunter2" not in shown
    assert "kkkk" not in shown
    assert KEY not in shown
    assert "timeout_seconds=15" in shown


def test_what_is_required_is_asked_for_by_its_key_when_it_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="DATABASE_URL: expected postgresql://user:pass"):
        Settings().require_database_url()
    with pytest.raises(ConfigurationError, match="LEASEHOOK_SECRET_KEY: expected the base64 of 32"):
        Settings().require_secret_keys()
    with pytest.raises(ConfigurationError, match="LEASEHOOK_SECRET_KEY"):
        Settings.read({"LEASEHOOK_SECRET_KEY": " , "}).require_secret_keys()
    url = "postgresql://db/leasehook"
    assert Settings.read({"DATABASE_URL": url}).require_database_url() == url


@pytest.mark.parametrize(
    ("text", "credentials"),
    [
        ("", InUrl()),
        ("iam", IamToken()),
        (
            "ssm:/leasehook/db",
            FromSecret(credentials_in(SecretStore.PARAMETER_STORE, "/leasehook/db")),
        ),
        (
            "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:db-AbCdEf",
            FromSecret(
                credentials_in(
                    SecretStore.SECRETS_MANAGER,
                    "arn:aws:secretsmanager:eu-west-1:1:secret:db-AbCdEf",
                )
            ),
        ),
    ],
)
def test_the_databases_credentials_come_from_the_url_a_secret_or_iam(
    text: str, credentials: Credentials
) -> None:
    assert (
        Settings.read({"LEASEHOOK_DATABASE_CREDENTIALS": text}).database_credentials == credentials
    )


@pytest.mark.parametrize(
    "text", ["IAM", "secret:x", "secretsmanager", "secretsmanager:", "ssm: ", "ssm:a b", "vault:x"]
)
def test_other_credentials_are_refused_with_the_forms_there_are(text: str) -> None:
    message = refusal({"LEASEHOOK_DATABASE_CREDENTIALS": text})
    assert message.startswith("LEASEHOOK_DATABASE_CREDENTIALS: expected ")
    assert "secretsmanager:<name or ARN> or ssm:<parameter name>" in message
    assert message.endswith(", got a value that is not shown")


def test_with_a_secret_the_url_may_be_empty() -> None:
    for text in ("secretsmanager:db", "ssm:db"):
        settings = Settings.read({"LEASEHOOK_DATABASE_CREDENTIALS": text})
        assert settings.require_database_url() == ""
    with pytest.raises(ConfigurationError, match="DATABASE_URL"):
        Settings.read({"LEASEHOOK_DATABASE_CREDENTIALS": "iam"}).require_database_url()


def test_the_sealing_key_may_be_where_it_is_kept() -> None:
    settings = Settings.read({"LEASEHOOK_SECRET_KEY": "secretsmanager:leasehook/key"})
    assert settings.require_secret_keys() == SecretReference(
        "LEASEHOOK_SECRET_KEY", SecretStore.SECRETS_MANAGER, "leasehook/key"
    )
    assert refusal({"LEASEHOOK_SECRET_KEY": "secretsmanager:"}) == (
        "LEASEHOOK_SECRET_KEY: expected secretsmanager:<name or ARN> or ssm:<parameter name>, "
        "got a value that is not shown"
    )


@given(st.dictionaries(st.sampled_from([key for key, _, _ in describe()]), st.text(max_size=20)))
def test_any_environment_is_read_or_refused(environment: dict[str, str]) -> None:
    with suppress(ConfigurationError):
        assert isinstance(Settings.read(environment), Settings)
