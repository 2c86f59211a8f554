"""Every known failure case has a test, and the table that says so is current."""

import pytest

from tests.cases import CASES, TABLE, claims, table


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_case_has_a_test(case: str) -> None:
    assert claims()[case], f"no test names {case} in its docstring: {CASES[case]}"


def test_no_test_claims_a_case_that_does_not_exist() -> None:
    assert set(claims()) == set(CASES)


def test_the_table_is_current() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "run: python -m tests.cases"
