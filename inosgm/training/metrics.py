"""What a model is worth on records that were not trained on: for everybody, by class, and by owner."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.owners import Label, Owners, _index_labels


@dataclass(frozen=True, kw_only=True)
class OwnerEvaluation:
    """What a model is worth to one owner.

    Attributes:
        records: How many of its records were looked at; at least one.
        loss: Their mean loss; None if one of them has no finite loss.
        loss_error: The standard error of that mean; None for a single record, and where there is no mean.
        accuracy: The share that was predicted right; None without predictions.
        recall: The mean recall over the classes among its records; None without predictions.
    """

    records: int
    loss: float | None
    loss_error: float | None
    accuracy: float | None
    recall: float | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model is worth on some records. What rests on predictions is None, or empty, where there were none.

    It is not protected: make it from held-out records only, or keep it to yourself.

    Attributes:
        records: How many records were looked at.
        not_finite: How many of them have no finite loss.
        loss: The mean loss; None if one of them has no finite loss.
        accuracy: The share that was predicted right.
        balanced_accuracy: The mean recall over the classes that have a record.
        recall_by_class: The recall of every class that has a record.
        by_owner: What the model is worth to every owner that has a record, by label; empty if nobody owns them.
        worst_owner: Who has the least accuracy; of several the first label.
        spread: The largest accuracy of an owner minus the least.
        private: Whether it is known to be about training records. Such numbers are unreleased: they may steer nothing,
            and appear in no curve, no log and no report that leaves the run.
        metrics: The metrics of one's own, by name; None for one that is not finite.
    """

    records: int
    not_finite: int
    loss: float | None
    accuracy: float | None
    balanced_accuracy: float | None
    recall_by_class: dict[Label, float]
    by_owner: dict[Label, OwnerEvaluation]
    worst_owner: Label | None
    spread: float | None
    private: bool = False
    metrics: dict[str, float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON: what is keyed by a label becomes a list of rows, which keeps numbers apart from text.

        The mark of what is private, which keeps it out of logs, is there only if it is; and metrics only if there are.
        """
        return {
            **{
                name: getattr(self, name)
                for name in self.__dataclass_fields__
                if name not in ("private", "metrics") or getattr(self, name)
            },
            "recall_by_class": [{"class": label, "recall": recall} for label, recall in self.recall_by_class.items()],
            "by_owner": [{"owner": label, **asdict(owner)} for label, owner in self.by_owner.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            ValueError: if it is something else.
        """
        try:
            recalls = {row["class"]: row["recall"] for row in values["recall_by_class"]}
            rows = [dict(row) for row in values["by_owner"]]
            owners = {row.pop("owner"): OwnerEvaluation(**row) for row in rows}
            return cls(**{**values, "recall_by_class": recalls, "by_owner": owners})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what Evaluation.to_dict gives: {error}") from None


def evaluation(
    losses: Any,
    predictions: Any,
    targets: Any,
    owners: Owners | Sequence[Label] | np.ndarray | None = None,
    classes: Sequence[Label] | None = None,
) -> Evaluation:
    """Say what a model is worth on some records.

    Args:
        losses: One per record.
        predictions: The predicted class of each record, a whole number; None where nothing is predicted.
        targets: The true class of each record; not looked at where nothing is predicted.
        owners: Owners, or the label of each record's owner; None if the records are nobody's.
        classes: What class 0, 1, ... is called; its number if not given.

    Returns:
        The evaluation. Owners and classes without a record are not in it.

    Raises:
        ValueError: for no records, for lengths that differ, and for a target that `classes` does not name.

    >>> found = evaluation([0.1, 0.2, 0.9], [0, 1, 1], [0, 1, 0], owners=["a", "b", "b"], classes=["cat", "dog"])
    >>> round(found.accuracy, 2), found.recall_by_class, found.worst_owner, found.spread
    (0.67, {'cat': 0.5, 'dog': 1.0}, 'b', 0.5)
    """
    loss = _losses(losses)
    labels, owner = ((), np.empty(0, np.int64)) if owners is None else index_owners(owners, loss.size)
    named, right, kind = _answers(predictions, targets, classes, loss.size)
    by_owner = dict(zip(labels, _by_owner(owner, len(labels), loss, right, kind), strict=True))
    accuracies = [(found.accuracy, label) for label, found in by_owner.items() if found.accuracy is not None]
    recalls = {}
    if right is not None and kind is not None:
        counts = np.bincount(kind)
        recalls = dict(zip(named, (np.bincount(kind, weights=right) / counts).tolist(), strict=True))
    return Evaluation(
        records=loss.size,
        not_finite=int((~np.isfinite(loss)).sum()),
        loss=_finite(loss.mean()),
        accuracy=None if right is None else float(right.mean()),
        balanced_accuracy=None if right is None else float(np.mean(list(recalls.values()))),
        recall_by_class=recalls,
        by_owner=by_owner,
        worst_owner=min(accuracies)[1] if accuracies else None,
        spread=max(accuracies)[0] - min(accuracies)[0] if accuracies else None,
    )


def predicted(outputs: Any, targets: Any) -> np.ndarray | None:
    """Return the class that each record is held for, or None where the targets are no classes.

    Of several outputs per record the largest says the class, a whole number. A single one is taken for the logit of
    class 1 against class 0, and its sign says the class.

    >>> predicted(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
    array([1, 0])
    >>> predicted(np.array([-2.0, 3.0]), np.array([0.0, 1.0]))
    array([0, 1])
    """
    if not (hasattr(outputs, "shape") and hasattr(targets, "shape")):
        return None
    scores, true = np.asarray(outputs), np.asarray(targets)
    records = scores.shape[0] if scores.ndim in (1, 2) else -1
    if scores.ndim == 2 and scores.shape[1] > 1:
        whole = true.shape == (records,) and true.dtype.kind in "iub"
        return np.asarray(scores.argmax(axis=1)) if whole else None
    paired = true.shape in ((records,), (records, 1))
    return (scores.reshape(-1) > 0).astype(np.int64) if paired and np.isin(true, (0, 1)).all() else None


def index_owners(owners: Any, records: int) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return the sorted labels of owners with a record, and the position of each record's owner among them."""
    if isinstance(owners, Owners):
        labels, index = owners.labels, owners.of_record
    else:
        labels, index = _index_labels("owners", owners)
    if index.size != records:
        raise ValueError(f"owners must hold one label per record: got {index.size} for {records} records")
    return labels, index


def _losses(values: Any) -> np.ndarray:
    """Return the losses in float64, those that are not finite as NaN, so that no mean mixes infinities."""
    array = _validate.numeric("losses", values).astype(np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"losses must be one number per record, of at least one record, got shape {array.shape}")
    return np.where(np.isfinite(array), array, np.nan)


def _answers(
    predictions: Any, targets: Any, classes: Sequence[Label] | None, records: int
) -> tuple[list[Label], np.ndarray | None, np.ndarray | None]:
    """Return the classes that have a record, which predictions are right, and the position of each record's class."""
    if predictions is None:
        return [], None, None
    columns = {}
    for name, values in (("predictions", predictions), ("targets", targets)):
        column = _validate.numeric(name, values)
        if column.shape != (records,):
            raise ValueError(f"{name} must be one class per record: got shape {column.shape} for {records} losses")
        if not np.array_equal(column, np.floor(column)):  # a NaN equals nothing
            raise ValueError(f"{name} must be whole numbers, the classes: pass predictions=None where there are none")
        columns[name] = column.astype(np.int64)
    present, kind = np.unique(columns["targets"], return_inverse=True)
    named: list[Label] = present.tolist()
    if classes is not None:
        if present[0] < 0 or present[-1] >= len(classes):
            raise ValueError(f"targets must be positions in the {len(classes)} classes, 0 to {len(classes) - 1}")
        named = [classes[place] for place in present.tolist()]
    return named, (columns["predictions"] == columns["targets"]).astype(np.float64), kind


def _by_owner(
    owner: np.ndarray, owners: int, loss: np.ndarray, right: np.ndarray | None, kind: np.ndarray | None
) -> list[OwnerEvaluation]:
    """Evaluate all owners at once, in time that hardly depends on how many there are."""
    if not owners:
        return []
    records = np.bincount(owner, minlength=owners)
    mean = np.bincount(owner, weights=loss, minlength=owners) / records
    squares = np.bincount(owner, weights=(loss - mean[owner]) ** 2, minlength=owners)
    error = np.sqrt(squares / np.where(records > 1, records - 1, np.nan) / records)
    accuracy = recall = np.full(owners, np.nan)
    if right is not None and kind is not None:
        accuracy = np.bincount(owner, weights=right, minlength=owners) / records
        pairs, pair = np.unique(owner * (kind.max() + 1) + kind, return_inverse=True)  # (owner, class) that occur
        recalls, whose = np.bincount(pair, weights=right) / np.bincount(pair), pairs // (kind.max() + 1)
        recall = np.bincount(whose, weights=recalls, minlength=owners) / np.bincount(whose, minlength=owners)
    return [
        OwnerEvaluation(
            records=int(records[place]),
            loss=_finite(mean[place]),
            loss_error=_finite(error[place]),
            accuracy=_finite(accuracy[place]),
            recall=_finite(recall[place]),
        )
        for place in range(owners)
    ]


def _finite(value: Any) -> float | None:
    """Return a number, or None for what is none."""
    return float(value) if np.isfinite(value) else None
