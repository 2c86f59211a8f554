import re
from importlib.resources import files

import pytest

from shared.store import queries
from shared.store.queries import names, query

SQL_FILES = {
    file.name: file.read_text(encoding="utf-8")
    for file in files(queries).iterdir()
    if file.name.endswith(".sql")
}


def test_every_query_of_every_file_is_found_by_its_name() -> None:
    written = [name for text in SQL_FILES.values() for name in re.findall(r"-- name: *(\S*)", text)]
    assert sorted(written) == names()


def test_each_file_begins_with_the_name_of_its_first_query() -> None:
    """What stands before it would be part of no query."""
    assert all(text.startswith("-- name: ") for text in SQL_FILES.values())


@pytest.mark.parametrize("name", names())
def test_a_query_is_one_statement_without_its_name_line(name: str) -> None:
    text = query(name).decode()
    assert "-- name" not in text
    assert text == text.strip()
    code = re.sub(r"--.*", "", text).strip().removesuffix(";")
    assert code
    assert ";" not in code


def test_all_text_between_two_names_belongs_to_the_first() -> None:
    text = "-- name: a\n\nselect 1\n-- name it\n  as b\n\n-- name: b_2\nselect 2\n"
    assert list(queries._split(text)) == [
        ("a", "select 1\n-- name it\n  as b"),
        ("b_2", "select 2"),
    ]


def test_a_query_that_does_not_exist_is_named() -> None:
    with pytest.raises(LookupError, match="no query is named 'claim_all'"):
        query("claim_all")
