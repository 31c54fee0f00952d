"""Signals to commands that get jobs done: once to finish, Ctrl-C after that to stop at once."""

import signal

import pytest

from inosgm.jobs import interrupts


def test_a_process_that_is_told_twice_to_finish_finishes():
    """Fails on 09c50e1: `timeout` sends SIGTERM to a process and to its group, and the second one stopped it."""
    with interrupts.deferred():
        try:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pytest.fail("it stopped at once")
        assert interrupts.asked()
    assert not interrupts.asked()


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_that_stops_at_once(first):
    with interrupts.deferred():
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
