from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto import Sealer
from shared.domain.targets import TargetPolicy, parse_networks
from shared.endpoint_rules import check_headers, check_url
from shared.endpoints import NewEndpoint, create_endpoint
from shared.errors import DatabaseUnavailable, Invalid
from shared.keys import create_key
from shared.store.connection import Database

PUBLIC_ONLY = TargetPolicy()
LOOPBACK_TOO = TargetPolicy(parse_networks("127.0.0.0/8"))
TENANT = UUID(int=1)
CANARY = "canary"

# Nobody listens there: what gets past the rules ends at the database, and what does not never comes this far.
NOWHERE = Database("postgresql:///leasehook?host=/nonexistent")


def create(**fields: Any) -> None:
    new = NewEndpoint(**{"url": "https://example.com/"} | fields)
    create_endpoint(NOWHERE, Sealer([b"k" * 32]), PUBLIC_ONLY, TENANT, new)


def refusal(**fields: Any) -> Invalid:
    with pytest.raises(Invalid) as refused:
        create(**fields)
    return refused.value


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"event_types": ("order.paid", "order.*", "*")},
        {"event_types": ("a",) * 100},
        {"consumer": "AZaz09_.:-"},
        {"consumer": "c" * 128},
        {"description": ""},
        {"description": "é✅\n" * 250},
        {"headers": {"Authorization": "Bearer abc"}},
        {"timeout_seconds": 1},
        {"timeout_seconds": 30},
        {"max_in_flight": 1},
        {"max_in_flight": 10_000},
        {"rate_per_second": 1},
        {"rate_per_second": 10_000},
        {"retry_delays_seconds": ()},
        {"retry_delays_seconds": (1, 86_400)},
        {"retry_delays_seconds": (60,) * 30},
        {"secret": "whsec_" + "A" * 32},
        {"secret": "A" * 32},
        {"secret": "whsk_" + "A" * 43},
    ],
)
def test_an_endpoint_that_keeps_the_rules_goes_on_to_the_database(fields: dict[str, Any]) -> None:
    with pytest.raises(DatabaseUnavailable):
        create(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": ""}, "url"),
        ({"url": f"ftp://{CANARY}/"}, "url"),
        ({"url": f"https://u:{CANARY}@example.com/"}, "url"),
        ({"url": f"http://127.0.0.1/{CANARY}"}, "url"),
        ({"secret": ""}, "secret"),
        ({"secret": "whsec_"}, "secret"),
        ({"secret": f"v1,whsec_{CANARY}"}, "secret"),
        ({"secret": "whsec_" + "A" * 28}, "secret"),
        ({"event_types": ()}, "event_types"),
        ({"event_types": ("a",) * 101}, "event_types"),
        ({"event_types": ("a", f"{CANARY} b")}, "event_types"),
        ({"event_types": ("*.a",)}, "event_types"),
        ({"consumer": ""}, "consumer"),
        ({"consumer": f"{CANARY}/"}, "consumer"),
        ({"consumer": "a\n"}, "consumer"),
        ({"consumer": "c" * 129}, "consumer"),
        ({"description": "d" * 1001}, "description"),
        ({"description": f"{CANARY}\0"}, "description"),
        ({"description": f"{CANARY}\ud83d"}, "description"),
        ({"description": f"\udfff{CANARY}"}, "description"),
        ({"headers": {"Host": CANARY}}, "headers.Host"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 31}, "timeout_seconds"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": 10_001}, "max_in_flight"),
        ({"rate_per_second": 0}, "rate_per_second"),
        ({"rate_per_second": 10_001}, "rate_per_second"),
        ({"retry_delays_seconds": (1, 0)}, "retry_delays_seconds[1]"),
        ({"retry_delays_seconds": (86_401,)}, "retry_delays_seconds[0]"),
        ({"retry_delays_seconds": (60,) * 31}, "retry_delays_seconds"),
    ],
)
def test_an_endpoint_that_breaks_a_rule_is_refused_before_anything_is_stored(
    fields: dict[str, Any], field: str
) -> None:
    """WH-006, WH-007, WH-041, WH-081, WH-122."""
    refused = refusal(**fields)
    assert refused.field == field
    assert refused.rule
    assert CANARY not in str(refused)


def test_what_is_said_about_a_new_endpoint_does_not_show_its_secrets() -> None:
    """WH-122."""
    new = NewEndpoint(url="https://example.com/", secret=CANARY, headers={"X-Key": CANARY})
    assert CANARY not in repr(new)


def test_a_url_is_stored_in_its_normal_form() -> None:
    """WH-084."""
    assert check_url("HTTPS://EXAMPLE.com:443/a/../b", PUBLIC_ONLY) == "https://example.com/b"


def test_a_url_that_leads_inside_is_refused_with_the_way_to_open_it() -> None:
    """WH-071."""
    assert check_url("http://127.0.0.1:8080/", LOOPBACK_TOO) == "http://127.0.0.1:8080/"
    assert check_url("http://localhost:8080/", LOOPBACK_TOO) == "http://localhost:8080/"
    with pytest.raises(Invalid) as refused:
        check_url("http://localhost:8080/", PUBLIC_ONLY)
    assert refused.value.field == "url"
    assert refused.value.rule == (
        "must lead to a public address: a loopback address; LEASEHOOK_ALLOW_TARGETS opens networks"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer abc", "X-Key": "a\tb"},
        {f"X-{number}": "v" for number in range(20)},
        {"a" * 100: "v" * 4096},
    ],
)
def test_headers_that_can_travel_are_accepted(headers: dict[str, str]) -> None:
    check_headers(headers)


@pytest.mark.parametrize(
    ("headers", "field", "rule"),
    [
        ({f"X-{number}": "v" for number in range(21)}, "headers", "must be at most 20"),
        ({" webhook-id": CANARY}, "headers", "names must be 1 to 100 characters of an HTTP token"),
        ({f"X {CANARY}": "v"}, "headers", "names must be 1 to 100 characters of an HTTP token"),
        ({"": "v"}, "headers", "names must be 1 to 100 characters of an HTTP token"),
        ({"a" * 101: "v"}, "headers", "names must be 1 to 100 characters of an HTTP token"),
        ({"Webhook-Signature": CANARY}, "headers.Webhook-Signature", "is set by Leasehook"),
        ({"WEBHOOK-TIMESTAMP": CANARY}, "headers.WEBHOOK-TIMESTAMP", "is set by Leasehook"),
        ({"Content-Length": "1"}, "headers.Content-Length", "is set by Leasehook"),
        ({"X-A": "v", "x-a": CANARY}, "headers.x-a", "is given twice"),
        ({"X-A": f"{CANARY}\r\nX-B: 1"}, "headers.X-A", "must be 1 to 4096 printable ASCII"),
        ({"X-A": f"{CANARY}é"}, "headers.X-A", "must be 1 to 4096 printable ASCII"),
        ({"X-A": f" {CANARY}"}, "headers.X-A", "must be 1 to 4096 printable ASCII"),
        ({"X-A": ""}, "headers.X-A", "must be 1 to 4096 printable ASCII"),
        ({"X-A": "v" * 4097}, "headers.X-A", "must be 1 to 4096 printable ASCII"),
    ],
)
def test_a_header_that_cannot_travel_is_named_without_its_value(
    headers: dict[str, str], field: str, rule: str
) -> None:
    """WH-081, WH-082."""
    with pytest.raises(Invalid) as refused:
        check_headers(headers)
    assert refused.value.field == field
    assert refused.value.rule.startswith(rule)
    assert CANARY not in str(refused.value)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_value_is_never_repeated_whatever_is_wrong_with_its_header(name: str, end: str) -> None:
    """WH-122."""
    try:
        check_headers({name: f"{CANARY}{end}"})
    except Invalid as fault:
        message = str(fault)
    else:
        message = ""
    assert CANARY not in message


@pytest.mark.parametrize(
    ("name", "scopes"),
    [("n", ["read"]), ("n" * 200, ["publish", "read", "manage"]), ("n", ["read", "read"])],
)
def test_a_key_that_keeps_the_rules_goes_on_to_the_database(name: str, scopes: list[str]) -> None:
    with pytest.raises(DatabaseUnavailable):
        create_key(NOWHERE, TENANT, name, scopes)


@pytest.mark.parametrize(
    ("name", "scopes", "field"),
    [
        ("", ["read"], "name"),
        ("n" * 201, ["read"], "name"),
        ("a\0", ["read"], "name"),
        ("a\udcff", ["read"], "name"),
        ("a", [], "scopes"),
        ("a", ["read", "admin"], "scopes"),
        ("a", ["Read"], "scopes"),
    ],
)
def test_a_key_without_a_storable_name_or_a_known_scope_is_refused(
    name: str, scopes: list[str], field: str
) -> None:
    """WH-041."""
    with pytest.raises(Invalid) as refused:
        create_key(NOWHERE, TENANT, name, scopes)
    assert refused.value.field == field
