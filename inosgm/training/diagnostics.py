"""Why an owner may be served badly: how the owners' gradients pull against each other, and whom clipping binds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._internal import validate as _validate
from inosgm._internal.records import records_in
from inosgm.mechanism.clipping import ScaleClipped
from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.training.batches import batch_of
from inosgm.training.gradients.base import Engine
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.metrics import index_owners, predicted
from inosgm.training.predictions import as_numpy

MOST_OWNERS = 200
"""How many owners are compared: there is a gradient to keep for each, and a number for each pair."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Diagnostics:
    """How the gradients of the owners stand to each other. Row and column i belong to labels[i].

    Attributes:
        private: Whether it was computed on training records. Such numbers are unreleased: they may steer nothing, and
            appear in no log and no report that leaves the run.
        labels: The owners whose records were looked at.
        records: How many records of each.
        lengths: The norm of each owner's sum of clipped gradients.
        cosines: The cosine of the angle between the sums of two owners; 0 where a sum is 0.
        condition: The left side of Cond. (2) of the INO-SGD paper: entry (i, j) is
            1 + cosine * (q_j |D_j| C_j) / (q_i |D_i| C_i). Where it is <= 0, the loss of owner i may rise while that
            of owner j falls. The theorem takes the angle of whole gradients; here it is that of clipped ones, which
            are what an update is made of.
        clipped: The share of each owner's records whose gradient is longer than the owner's clip norm.
        learnt_and_clipped: The share that is, besides, predicted right: on these records INO-SGD can act. None where
            nothing is predicted.
    """

    private: bool
    labels: tuple[Label, ...]
    records: np.ndarray
    lengths: np.ndarray
    cosines: np.ndarray
    condition: np.ndarray
    clipped: np.ndarray
    learnt_and_clipped: np.ndarray | None

    @property
    def angles(self) -> np.ndarray:
        """The angles between the sums of two owners, in degrees."""
        return np.asarray(np.degrees(np.arccos(self.cosines)))

    @property
    def at_risk(self) -> tuple[tuple[Label, Label], ...]:
        """The pairs (who may lose, to whom) for which the left side of Cond. (2) is <= 0, the worst first."""
        rows, columns = np.nonzero(self.condition <= 0)
        order = np.argsort(self.condition[rows, columns], kind="stable")
        return tuple((self.labels[i], self.labels[j]) for i, j in zip(rows[order], columns[order], strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON, with the mark that keeps private numbers out of logs that leave the run."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()} | {
            "labels": list(self.labels)
        }

    def report(self, *, show_private: bool = False) -> str:
        """Return it as text for people; what is private only if asked for."""
        if self.private and not show_private:
            return f"diagnostics of {len(self.labels)} owners on training records: private, not shown"
        header = (
            f"{'owner':<24} {'records':>8} {'length':>10} {'clipped':>8} {'and learnt':>11} {'condition':>10}  against"
        )
        lines = [header, *(self._line(place) for place in range(len(self.labels)))]
        return "\n".join(["PRIVATE: computed on training records"] * self.private + lines)

    def _line(self, place: int) -> str:
        """Show one owner, with the other that it may lose most to."""
        learnt = "" if self.learnt_and_clipped is None else f"{self.learnt_and_clipped[place]:.1%}"
        others = np.where(np.arange(len(self.labels)) == place, np.inf, self.condition[place])
        against = int(others.argmin())
        worst = f"{others[against]:>10.3g}  {self.labels[against]}" if len(self.labels) > 1 else ""
        return (
            f"{self.labels[place]!s:<24.24} {self.records[place]:>8} {self.lengths[place]:>10.4g} "
            f"{self.clipped[place]:>8.1%} {learnt:>11} {worst}"
        ).rstrip()

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return f"<Diagnostics of {len(self.labels)} owners, {'private' if self.private else 'held-out'}>"


def diagnose(
    engine: Engine,
    data: Any,
    owners: Owners | Sequence[Label] | np.ndarray,
    plan: Plan,
    *,
    private: bool,
    max_physical_batch: int = 256,
    check: Callable[[Any], None] | None = None,
) -> Diagnostics:
    """Compare the owners' sums of clipped gradients on some records.

    It costs a pass over the records, a few at a time, and the memory of one gradient per owner.

    Args:
        engine: Gives the gradients of the model as it is now.
        data: A tuple of inputs and targets, or a map-style data set.
        owners: Owners, or the label of each record's owner as the plan names it. The records of some owners will do.
        plan: Its clip norms, sample rates and sizes are those of the condition.
        private: True for training records, False for held-out ones.
        max_physical_batch: How many records are looked at at once.
        check: Called with the targets of some records before model and loss are.

    Raises:
        ValueError: for owners that the plan does not know, for more than 200 of them, and for a model that writes to
            itself meanwhile, which is put back as it was.
    """
    _validate.instance("private", private, bool, "say True for training records, False for held-out ones")
    size = _validate.count("max_physical_batch", max_physical_batch, least=1)
    labels, index = _known_owners(owners, plan, records_in(data))
    places = np.array([plan.labels.index(label) for label in labels])
    sums, shares = [], []

    def fetch(positions: np.ndarray) -> tuple[Any, Any]:
        inputs, targets = batch_of(data, positions, engine.parameters[0])
        if check is not None:
            check(targets)
        return inputs, targets

    with Snapshot(model=engine.model):
        for owner, place in enumerate(places):
            looked_at = _look(engine, fetch, np.flatnonzero(index == owner), plan.sensitivities[place], size)
            sums.append(looked_at[0])
            shares.append(looked_at[1:])
    records = np.bincount(index, minlength=len(labels))
    cosines, lengths = _compare(sums)
    pull = (plan.sample_rates * plan.sizes * plan.sensitivities)[places]
    learnt = [both for _, both in shares if both is not None]
    return Diagnostics(
        private=private,
        labels=labels,
        records=records,
        lengths=lengths,
        cosines=cosines,
        condition=1 + cosines * pull[None, :] / pull[:, None],
        clipped=np.array([clipped for clipped, _ in shares]) / records,
        learnt_and_clipped=np.array(learnt) / records if len(learnt) == len(labels) else None,
    )


def _known_owners(owners: Any, plan: Plan, records: int) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return the owners that have a record, and the position of each record's owner among them."""
    if not records:
        raise ValueError("data must hold at least one record")
    labels, index = index_owners(owners, records)
    known = dict(zip(plan.labels, plan.sizes, strict=True))
    unknown = [label for label in labels if not known.get(label)]
    if unknown:
        raise ValueError(
            f"owners must be those that have records in the plan ({_validate.some(plan.labels)}), "
            f"got {_validate.some(unknown)}"
        )
    if len(labels) > MOST_OWNERS:
        raise ValueError(
            f"owners must be at most {MOST_OWNERS} to be compared in pairs, got {len(labels)}: "
            "pass the records of those that matter"
        )
    return labels, index


def _look(
    engine: Engine,
    fetch: Callable[[np.ndarray], tuple[Any, Any]],
    positions: np.ndarray,
    clip_norm: float,
    size: int,
) -> tuple[list[Tensor], int, int | None]:
    """Return the clipped sum of some records, how many were clipped, and how many of these are predicted right."""
    total, clipped, learnt = [torch.zeros_like(parameter) for parameter in engine.parameters], 0, 0
    knows = True
    for start in range(0, positions.size, size):
        inputs, true = fetch(positions[start : start + size])
        gradients = engine.gradients(inputs, true)
        norms = gradients.norms()
        bound = torch.full_like(norms, clip_norm)
        shares = gradients.weighted_sum(ScaleClipped().factors(norms, bound, torch.ones_like(norms)))
        total = [part + share.detach() for part, share in zip(total, shares, strict=True)]
        long = (norms > bound).cpu().numpy()
        answers = predicted(*(as_numpy(value) for value in (gradients.outputs, true)))
        clipped += int(long.sum())
        knows = knows and answers is not None
        if answers is not None:
            learnt += int((long & (answers == as_numpy(true).reshape(-1))).sum())
    return total, clipped, learnt if knows else None


def _compare(sums: list[list[Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines between sums and their lengths, in float64, one parameter at a time."""
    gram = np.zeros((len(sums), len(sums)))
    for parts in zip(*sums, strict=True):
        rows = torch.stack([part.flatten() for part in parts]).double()
        gram += (rows @ rows.T).cpu().numpy()
    lengths = np.sqrt(np.diag(gram))
    scale = np.outer(lengths, lengths)
    cosines = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    return np.clip(cosines, -1, 1), lengths
