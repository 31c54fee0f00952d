"""A learning curve: what a model was worth to every owner as training went on."""

import json
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from inosgm._internal import validate as _validate
from inosgm.owners import Label
from inosgm.training.metrics import Evaluation

FALSE_ALARMS = 0.05
"""How likely `initial_drops` names anybody on a curve on which nobody's loss truly rises."""

MOST_ROWS = 40
"""How many owners a table shows."""


class LearningCurve:
    """Evaluations of one model on the same held-out records, by step. It says nothing about training records.

    >>> from inosgm.training.metrics import evaluation
    >>> curve = LearningCurve()
    >>> curve.append(0, evaluation([0.7, 0.7], [0, 0], [0, 1], owners=["a", "b"]))
    >>> curve.append(10, evaluation([0.2, 0.1], [0, 1], [0, 1], owners=["a", "b"]))
    >>> curve.of_owner("b")
    array([0., 1.])
    >>> print(curve)
    accuracy on 2 held-out records at 2 steps from 0 to 10
    <BLANKLINE>
    | owner    | records | first |  last | worst |
    |:---------|--------:|------:|------:|------:|
    | a        |       1 | 1.000 | 1.000 | 1.000 |
    | b        |       1 | 0.000 | 1.000 | 0.000 |
    | everyone |       2 | 0.500 | 1.000 | 0.500 |
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._evaluations: list[Evaluation] = []

    def append(self, step: int, evaluation: Evaluation) -> None:
        """Add what the model was worth after a number of steps.

        Raises:
            ValueError: if the curve has got there already, or the evaluation is private or about other records.
        """
        step = _validate.count("step", step)
        _validate.instance("evaluation", evaluation, Evaluation, "make one with evaluation(losses, ...)")
        if evaluation.private:
            raise ValueError("evaluation is private, computed on training records: a curve is about held-out ones")
        if self._steps:
            if step <= self._steps[-1]:
                raise ValueError(f"step must be beyond {self._steps[-1]}, the last of the curve, got {step}")
            if _subject(evaluation) != _subject(self._evaluations[0]):
                raise ValueError("evaluation must be of the same held-out records and owners as those before it")
        self._steps.append(step)
        self._evaluations.append(evaluation)

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps, in order."""
        return tuple(self._steps)

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """What the model was worth after each of the steps."""
        return tuple(self._evaluations)

    @property
    def last(self) -> Evaluation:
        """The latest evaluation.

        Raises:
            ValueError: if there is none.
        """
        if not self._evaluations:
            raise ValueError("the curve is empty: append an evaluation, or give fit some held_out records")
        return self._evaluations[-1]

    @property
    def owners(self) -> tuple[Label, ...]:
        """The labels of the owners that have held-out records."""
        return tuple(self._evaluations[0].by_owner) if self._evaluations else ()

    def of_owner(self, label: Label) -> np.ndarray:
        """Return the accuracy for one owner after each of the steps.

        Raises:
            ValueError: for an owner without held-out records, and where nothing was predicted.
        """
        if label not in self.owners:
            raise ValueError(f"label must be one of {_validate.some(self.owners) or 'no owners'}, got {label!r}")
        if self.last.accuracy is None:
            raise ValueError(
                "nothing was predicted, so there are no accuracies: look at evaluations[i].by_owner[label].loss"
            )
        return self._by_owner("accuracy")[:, self.owners.index(label)]

    def initial_drops(self) -> dict[Label, int]:
        """Return the owners with a minority initial drop, and the step at which each was worst off.

        An owner has one (INO-SGD, Sec. 2.2) if, in the first half of the steps, the model gets worse for it than it
        was at the beginning while it gets better for another owner. Worse and better are about the mean held-out
        LOSS: the accuracy of an untrained model is an accident, as high as 1 for the owner of whatever class it
        happens to prefer, and so no point to drop from. A change counts if it is larger than z times the sum of the
        two standard errors, a bound that holds however the losses at two steps hang together; z is such that, over
        all owners and steps and for means that are about normal, a curve on which nothing changes is blamed with a
        probability of at most 5 %. An owner with one held-out record has no standard error, and is never named.

        The first evaluation of the curve is the beginning: evaluate at step 0.
        """
        if len(self._steps) < 2 or len(self.owners) < 2:
            return {}
        halfway = (self._steps[0] + self._steps[-1]) / 2
        early = max(2, sum(step <= halfway for step in self._steps))
        loss, error = (self._by_owner(name)[:early] for name in ("loss", "loss_error"))
        missing = np.isnan(loss)  # as bad as can be, whatever the error
        with np.errstate(invalid="ignore"):
            change = np.where(missing, np.inf, loss)[1:] - loss[0]
        margin = -ndtri(FALSE_ALARMS / change.size) * (np.where(missing, 0, error)[1:] + error[0])
        dropped = (change > margin) & (change < -margin).any(axis=1, keepdims=True)
        worst = np.where(dropped, change, -np.inf).argmax(axis=0) + 1
        return {self.owners[place]: self._steps[worst[place]] for place in np.flatnonzero(dropped.any(axis=0))}

    def table(self) -> str:
        """Return a Markdown table: for every owner its first, last and worst accuracy (loss, if nothing was predicted).

        An owner with an initial drop of the loss (`initial_drops`) is marked; its accuracy need not have dropped. Of
        more than 40 owners those that ended worst are shown.
        """
        if not self._evaluations:
            return "no evaluations: `fit` makes them where it is given held_out"
        first, owners, drops = self._evaluations[0], self.owners, self.initial_drops()
        name, sign = ("loss", -1.0) if first.accuracy is None else ("accuracy", 1.0)
        everyone = np.array([[getattr(found, name)] for found in self._evaluations], dtype=np.float64)
        values = np.concatenate([self._by_owner(name), everyone], axis=1)
        values = np.where(np.isnan(values), np.inf, values)  # only a loss can be missing
        worst = sign * (sign * values).min(axis=0)
        shown = np.sort(np.argsort(sign * values[-1, :-1], kind="stable")[:MOST_ROWS]).tolist()
        names = [f"{label}{' (initial drop)' * (label in drops)}" for label in owners] + ["everyone"]
        records = [found.records for found in first.by_owner.values()] + [first.records]
        rows = [
            [
                names[row],
                str(records[row]),
                *(f"{value:.3f}" for value in (values[0, row], values[-1, row], worst[row])),
            ]
            for row in [*shown, len(owners)]
        ]
        title = (
            f"{name} on {first.records} held-out records at {len(self)} steps from {self.steps[0]} to {self.steps[-1]}"
        )
        hidden = len(owners) - len(shown)
        notes = ["", f"({hidden} owners that ended better are not shown)"] * (hidden > 0)
        return "\n".join([title, "", *_markdown(["owner", "records", "first", "last", "worst"], rows), *notes])

    def to_json(self) -> str:
        """Return the curve as JSON text."""
        found = [evaluation.to_dict() for evaluation in self._evaluations]
        return json.dumps({"steps": self._steps, "evaluations": found}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a curve from JSON text.

        Raises:
            ValueError: if it is something else.
        """
        try:
            values = json.loads(text)
            curve, pairs = cls(), list(zip(values["steps"], values["evaluations"], strict=True))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not the JSON text of a learning curve: {error!r}") from None
        for step, found in pairs:
            curve.append(step, Evaluation.from_dict(found))
        return curve

    def _by_owner(self, name: str) -> np.ndarray:
        """Return one number per step and owner, NaN where there is none."""
        rows = [[getattr(owner, name) for owner in found.by_owner.values()] for found in self._evaluations]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.owners))

    def __len__(self) -> int:
        return len(self._steps)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LearningCurve) and self._steps == other._steps and self._evaluations == other._evaluations
        )

    def __str__(self) -> str:
        return self.table()


def _subject(found: Evaluation) -> Any:
    """Describe what an evaluation is about."""
    return found.records, found.accuracy is None, [(label, owner.records) for label, owner in found.by_owner.items()]


def _markdown(names: list[str], rows: list[list[str]]) -> list[str]:
    """Lay out a table that reads well as it is: the first column to the left, the others to the right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    rule = [":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])]
    lines = [
        f"| {' | '.join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])} |" for row in [names, *rows]
    ]
    return [lines[0], f"|{'|'.join(rule)}|", *lines[1:]]
