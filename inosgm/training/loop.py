"""The stepping loop of everything that learns: steps, evaluations, checkpoints, and the request to stop."""

from collections.abc import Callable


def make_steps(
    done: Callable[[], int],
    end: int,
    step: Callable[[], None],
    *,
    evaluate: Callable[[bool], bool] = lambda last: False,
    save: Callable[[bool, bool], None] = lambda needed, ending: None,
    watch: Callable[[], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Make steps up to a number of them; return whether it was stopped before.

    Args:
        done: Returns how many steps are done.
        end: How many there will be.
        step: Makes the next one.
        evaluate: Is told after every step whether it was the last; evaluates if it is time, and returns whether it did.
        save: Is called after every step with two truths: whether a checkpoint is needed now, because an evaluation is
            about to be shown that must never be computed again; and whether steps end here. Writes one if it is time.
        watch: Is called after an evaluation.
        stop: Is asked after every step; when it returns True, steps end there.
    """
    while done() < end:
        step()
        last = done() == end
        seen = evaluate(last) and watch is not None
        if seen and watch is not None:
            save(True, last)
            watch()
        stopping = stop()
        if not seen:
            save(False, last or stopping)
        if stopping:
            return not last
    return False
