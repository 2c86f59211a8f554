import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.matching import filters_matching, is_event_type, is_filter

# Few letters, so that a filter often matches a type.
segments = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=4)
event_types = segments.map(".".join)
filters = event_types | event_types.map(lambda prefix: f"{prefix}.*") | st.just("*")


def lets_through(pattern: str, event_type: str) -> bool:
    """What a filter means, one filter at a time."""
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return event_type.startswith(pattern.removesuffix("*"))
    return event_type == pattern


@given(event_types, filters)
def test_the_matching_filters_are_exactly_those_that_let_the_type_through(
    event_type: str, pattern: str
) -> None:
    assert (pattern in filters_matching(event_type)) == lets_through(pattern, event_type)


@given(event_types)
def test_each_matching_filter_is_one_an_endpoint_may_have_and_comes_once(event_type: str) -> None:
    matching = filters_matching(event_type)
    assert all(map(is_filter, matching))
    assert len(set(matching)) == len(matching)


def test_a_prefix_lets_through_what_is_below_it_and_not_itself() -> None:
    assert filters_matching("payment") == ("*", "payment")
    assert set(filters_matching("payment.card.paid")) == {
        "*",
        "payment.*",
        "payment.card.*",
        "payment.card.paid",
    }


@pytest.mark.parametrize("text", ["a", "order.paid", "A-1_b.c", "0", "-", "_", "a" * 128])
def test_an_event_type_is_segments_between_full_stops(text: str) -> None:
    assert is_event_type(text)
    assert is_filter(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a ",
        "a\n",
        "a\0",
        "a/b",
        "a:b",
        "é",
        "\u0661",
        "a" * 129,
    ],
)
def test_other_texts_are_neither_event_type_nor_filter(text: str) -> None:
    """WH-041, WH-042."""
    assert not is_event_type(text)
    assert not is_filter(text)


@pytest.mark.parametrize("text", ["*", "a.*", "order.paid.*", "a" * 128 + ".*"])
def test_only_a_filter_may_end_in_a_star(text: str) -> None:
    assert is_filter(text)
    assert not is_event_type(text)


@pytest.mark.parametrize(
    "text", ["**", "*.a", "*.*", ".*", "a*", "a.*.b", "a.*\n", "a" * 129 + ".*"]
)
def test_a_star_stands_alone_or_for_all_that_follows_a_prefix(text: str) -> None:
    assert not is_filter(text)
