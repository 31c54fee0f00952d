"""The stepping loop of trainers and of IPATE."""

import pytest

from inosgm.training.loop import make_steps


@pytest.mark.parametrize(
    ("watched", "stop_at", "expected", "stopped"),
    [
        (False, None, ["step", "-", "step", "look", "-", "step", "look", "end"], False),
        (True, None, ["step", "-", "step", "look", "needed", "shown", "step", "look", "needed", "shown"], False),
        (False, 1, ["step", "end"], True),
        (True, 2, ["step", "-", "step", "look", "needed", "shown"], True),
        (False, 3, ["step", "-", "step", "look", "-", "step", "look", "end"], False),
    ],
)
def test_what_was_seen_is_saved_before_and_a_request_to_stop_ends_with_a_checkpoint(
    watched, stop_at, expected, stopped
):
    events = []

    def evaluate(last):
        due = last or events.count("step") == 2
        events.extend(["look"] * due)
        return due

    ended = make_steps(
        lambda: events.count("step"),
        3,
        lambda: events.append("step"),
        evaluate=evaluate,
        save=lambda needed, ending: events.append("needed" if needed else "end" if ending else "-"),
        watch=(lambda: events.append("shown")) if watched else None,
        stop=lambda: events.count("step") == stop_at,
    )
    assert (events, ended) == (expected, stopped)


def test_nothing_is_left_to_do():
    assert not make_steps(lambda: 3, 3, lambda: pytest.fail("a step was made"))
