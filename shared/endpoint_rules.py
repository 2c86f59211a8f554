"""What may be said about an endpoint: the rules of its fields, one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared.config import MAX_TIMEOUT_SECONDS
from shared.domain import headers as http_headers
from shared.domain.matching import is_filter
from shared.domain.targets import InvalidTarget, TargetPolicy, parse_target
from shared.errors import Invalid
from shared.intake import check_channels
from shared.rules import check_consumer, check_range, is_storable

MAX_DESCRIPTION_LENGTH = 1000
MAX_FILTERS = 100
MAX_HEADERS = 20
MAX_RETRIES = 30
MAX_RETRY_DELAY_SECONDS = 86400
MAX_IN_FLIGHT = 10_000
MAX_RATE_PER_SECOND = 10_000


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse fields that break their rule. Names without a rule here (`url`, `secret`, …) are judged elsewhere.

    Raises:
        Invalid: names the field; never repeats a custom header's value.
    """
    for name, value in fields.items():
        if name in _RULES:
            _RULES[name](value)


def check_url(url: str, targets: TargetPolicy) -> str:
    """The normal form of an endpoint's URL.

    Raises:
        Invalid: it is no URL that deliveries can be sent to.
    """
    try:
        target = parse_target(url)
    except InvalidTarget as fault:
        raise Invalid("url", str(fault)) from None
    refusal = targets.literal_refusal(target)
    if refusal is not None:
        raise Invalid(
            "url",
            f"must lead to a public address: {refusal}; LEASEHOOK_ALLOW_TARGETS opens networks",
        )
    return target.url


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse custom headers that cannot travel, or that the sender sets itself.

    Raises:
        Invalid: names the header and the rule, never the value.
    """
    if len(headers) > MAX_HEADERS:
        raise Invalid("headers", f"must be at most {MAX_HEADERS}")
    seen = set()
    for name, value in headers.items():
        if not http_headers.is_name(name):
            raise Invalid(
                "headers", "names must be 1 to 100 characters of an HTTP token (RFC 9110 §5.6.2)"
            )
        if http_headers.is_reserved(name):
            raise Invalid(f"headers.{name}", "is set by Leasehook and cannot be chosen")
        if name.lower() in seen:
            raise Invalid(f"headers.{name}", "is given twice, in different cases")
        if not http_headers.is_value(value):
            raise Invalid(
                f"headers.{name}",
                f"must be 1 to {http_headers.MAX_VALUE_LENGTH} printable ASCII characters that neither begin nor end with a space",
            )
        seen.add(name.lower())


def _check_event_types(filters: Sequence[str]) -> None:
    if not 1 <= len(filters) <= MAX_FILTERS or not all(map(is_filter, filters)):
        raise Invalid(
            "event_types",
            f"must be 1 to {MAX_FILTERS} filters: an event type, a prefix such as 'order.*', or '*'",
        )


def _check_description(text: str | None) -> None:
    if text is not None and not is_storable(text, MAX_DESCRIPTION_LENGTH):
        raise Invalid(
            "description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters, none of them NUL"
        )


def _check_retry_delays(delays: Sequence[int] | None) -> None:
    for index, delay in enumerate(delays or ()):
        check_range(f"retry_delays_seconds[{index}]", delay, 1, MAX_RETRY_DELAY_SECONDS)
    if len(delays or ()) > MAX_RETRIES:
        raise Invalid("retry_delays_seconds", f"must be at most {MAX_RETRIES} delays")


def _in_range(name: str, high: int) -> Callable[[int | None], None]:
    return lambda value: check_range(name, value, 1, high)


_RULES: Mapping[str, Callable[[Any], None]] = {
    "event_types": _check_event_types,
    "channels": check_channels,
    "consumer": lambda consumer: check_consumer("consumer", consumer),
    "description": _check_description,
    "headers": check_headers,
    "timeout_seconds": _in_range("timeout_seconds", MAX_TIMEOUT_SECONDS),
    "max_in_flight": _in_range("max_in_flight", MAX_IN_FLIGHT),
    "rate_per_second": _in_range("rate_per_second", MAX_RATE_PER_SECOND),
    "retry_delays_seconds": _check_retry_delays,
}
