"""What the README says is so."""

import re
from pathlib import Path

from shared.config import describe
from shared.domain.states import TRANSITIONS, Status

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_configuration_table_is_the_codes() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$", README, re.MULTILINE)
    expected = [
        (key, f"`{default}`" if default else "—", meaning) for key, default, meaning in describe()
    ]
    assert rows == expected


def test_its_diagram_has_every_transition_and_no_other() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+):", README, re.MULTILINE))
    allowed = {
        (before.value, after.value)
        for (before, _), afters in TRANSITIONS.items()
        for after in afters
    }
    assert drawn == allowed
    assert {state for pair in drawn for state in pair} == {status.value for status in Status}


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"(?:\$ |`)make ([\w-]+)", README))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets <= set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def test_the_folders_it_names_exist() -> None:
    layout = README.split("## How it is laid out")[1].split("```")[1]
    for name in re.findall(r"^  ?(\w+/)", layout, re.MULTILINE):
        assert any((ROOT / parent / name).is_dir() for parent in (".", "shared", "infra")), name
