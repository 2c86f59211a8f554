import pytest

from shared.domain.states import TRANSITIONS, UNFINISHED, Status, Verb, sources

EVERY_TRANSITION = """
                 claim        succeed    retry   bury  release         cancel     replay
    pending      in_progress  -          -       dead  -               cancelled  -
    in_progress  in_progress  succeeded  failed  dead  pending,failed  -          -
    failed       in_progress  -          -       dead  -               cancelled  pending
    succeeded    -            -          -       -     -               -          pending
    dead         -            -          -       -     -               -          pending
    cancelled    -            -          -       -     -               -          pending
"""


def _cells() -> list[tuple[Status, Verb, frozenset[Status]]]:
    heading, *rows = [line.split() for line in EVERY_TRANSITION.strip().splitlines()]
    return [
        (Status(state), Verb(verb), frozenset(map(Status, cell.split(",") if cell != "-" else ())))
        for state, *cells in rows
        for verb, cell in zip(heading, cells, strict=True)
    ]


def test_the_table_below_names_every_state_and_verb() -> None:
    cells = _cells()
    assert {state for state, _, _ in cells} == set(Status)
    assert {verb for _, verb, _ in cells} == set(Verb)


@pytest.mark.parametrize(("state", "verb", "leads_to"), _cells())
def test_only_the_transitions_of_the_table_exist(
    state: Status, verb: Verb, leads_to: frozenset[Status]
) -> None:
    assert TRANSITIONS.get((state, verb), frozenset()) == leads_to
    assert (state in sources(verb)) == bool(leads_to)


def test_nobody_adds_a_transition_at_run_time() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[Status.DEAD, Verb.CLAIM] = frozenset()  # type: ignore[index]


def test_every_state_can_be_reached_from_a_new_delivery() -> None:
    reached = {Status.PENDING}
    for _ in Status:
        for (state, _verb), leads_to in TRANSITIONS.items():
            if state in reached:
                reached |= leads_to
    assert reached == set(Status)


def test_the_unfinished_states_are_those_that_can_be_claimed() -> None:
    """WH-094: an unfinished row can always be taken again, so none is stuck."""
    assert sources(Verb.CLAIM) == UNFINISHED


def test_a_finished_delivery_moves_only_when_it_is_replayed() -> None:
    for state in set(Status) - UNFINISHED:
        assert {verb for source, verb in TRANSITIONS if source is state} == {Verb.REPLAY}


def test_a_delivery_that_someone_is_sending_is_nobody_elses_to_reset() -> None:
    """WH-104."""
    assert Status.IN_PROGRESS not in sources(Verb.REPLAY) | sources(Verb.CANCEL)
