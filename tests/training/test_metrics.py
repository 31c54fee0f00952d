import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

from inosgm import Owners
from inosgm.training.metrics import Evaluation, evaluation, predicted


@st.composite
def answers(draw):
    """Losses, predictions, targets and owners of a few records; a prediction may be a class that has no record."""
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    targets = rng.integers(0, draw(st.integers(1, 5)), n)
    owners = rng.choice(draw(st.sampled_from([["a", "b", "c"], [7, -1, 3]])), n)
    return rng.exponential(size=n), rng.choice(targets, n), targets, owners


@given(answers())
def test_agrees_with_scikit_learn(case):
    losses, predictions, targets, owners = case
    found = evaluation(losses, predictions, targets, owners)
    present = np.unique(targets)
    assert found.records == losses.size
    assert found.loss == pytest.approx(losses.mean())
    assert found.accuracy == pytest.approx(accuracy_score(targets, predictions))
    if present.size > 1:  # scikit-learn warns of a single class
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(targets, predictions))
    assert list(found.recall_by_class) == present.tolist()
    recalls = recall_score(targets, predictions, labels=present, average=None)
    np.testing.assert_allclose(list(found.recall_by_class.values()), recalls)
    assert list(found.by_owner) == sorted(set(owners.tolist()))
    for label, owner in found.by_owner.items():
        mine = owners == label
        among = np.unique(targets[mine])
        recall = recall_score(targets[mine], predictions[mine], labels=among, average="macro")
        assert owner.records == mine.sum()
        assert owner.loss == pytest.approx(losses[mine].mean())
        if owner.records > 1:
            assert owner.loss_error == pytest.approx(losses[mine].std(ddof=1) / np.sqrt(mine.sum()))
        assert owner.accuracy == pytest.approx(accuracy_score(targets[mine], predictions[mine]))
        assert owner.recall == pytest.approx(recall)
    accuracies = {label: owner.accuracy for label, owner in found.by_owner.items()}
    assert found.worst_owner == min(accuracies, key=lambda label: (accuracies[label], label))
    assert found.spread == max(accuracies.values()) - min(accuracies.values())


@given(answers())
def test_json_keeps_everything_and_the_kind_of_labels(case):
    found = evaluation(*case)
    again = Evaluation.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    assert list(map(type, again.by_owner)) == list(map(type, found.by_owner))


def test_without_predictions_what_rests_on_them_is_none():
    found = evaluation([1.0, 3.0], None, [0.5, 0.7], owners=["a", "b"])
    assert (found.loss, found.by_owner["b"].loss) == (2.0, 3.0)
    assert found.accuracy is found.balanced_accuracy is found.worst_owner is found.spread is None
    assert found.by_owner["a"].accuracy is found.by_owner["a"].recall is None
    assert found.recall_by_class == {}
    assert Evaluation.from_dict(found.to_dict()) == found


def test_without_owners_nobody_is_worst():
    found = evaluation([1.0, 3.0], [0, 1], [0, 0])
    assert (found.accuracy, found.by_owner, found.worst_owner, found.spread) == (0.5, {}, None, None)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_leaves_no_mean_and_spoils_nothing_else(bad):
    found = evaluation([1.0, bad, 2.0, 4.0], [0, 1, 1, 1], [0, 1, 0, 1], owners=[1, 1, 2, 2])
    assert (found.not_finite, found.loss, found.accuracy) == (1, None, 0.75)
    assert (found.by_owner[1].loss, found.by_owner[1].loss_error, found.by_owner[1].accuracy) == (None, None, 1.0)
    assert found.by_owner[2].loss == 3.0
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_record_has_no_standard_error():
    assert evaluation([1.0, 3.0, 5.0], None, None, owners=[0, 1, 1]).by_owner[0].loss_error is None


def test_class_names_and_classes_without_a_record():
    found = evaluation([0.0] * 3, [2, 1, 2], [2, 2, 0], classes=["cat", "dog", "cow"])
    assert found.recall_by_class == {"cat": 0.0, "cow": 0.5}
    assert found.balanced_accuracy == 0.25


def test_takes_tensors_and_owners():
    owners = Owners(of_record=["x", "y", "x"], epsilon=1.0, delta=1e-5)
    found = evaluation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), owners)
    assert found == evaluation([1.0, 2.0, 3.0], [0, 1, 1], [0, 1, 0], ["x", "y", "x"])
    assert found.worst_owner == "x"


def test_ties_go_to_the_first_label():
    assert evaluation([0.0] * 3, [1, 1, 1], [0, 0, 1], owners=[10, 9, 3]).worst_owner == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), "losses must be one number per record, of at least one record"),
        (([[1.0]], [0], [0]), "losses must be one number per record"),
        (([1.0], [0, 1], [0]), r"predictions must be one class per record: got shape \(2,\) for 1 losses"),
        (([1.0], [0], [[0]]), "targets must be one class per record"),
        (([1.0], [0.5], [0]), "predictions must be whole numbers"),
        (([1.0], [0], [np.nan]), "targets must be whole numbers"),
        (([1.0], [0], [0], ["a", "b"]), "owners must hold one label per record: got 2 for 1 records"),
        (([1.0], [0], [2], None, ["cat", "dog"]), "targets must be positions in the 2 classes, 0 to 1"),
        (([1.0], [0], [-1], None, ["cat", "dog"]), "targets must be positions in the 2 classes, 0 to 1"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluation(*arguments)


def test_what_is_no_evaluation_is_refused():
    good = evaluation([1.0], [0], [0], [1]).to_dict()
    for bad in ({}, {**good, "extra": 1}, {**good, "by_owner": [{"owner": 1}]}, {**good, "by_owner": [{}]}):
        with pytest.raises(ValueError, match=r"not what Evaluation\.to_dict gives"):
            Evaluation.from_dict(bad)


def test_predicted_where_targets_are_classes():
    scores = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    assert predicted(scores, torch.tensor([1, 2])).tolist() == [1, 0]
    logits = torch.tensor([-1.0, 2.0])
    for outputs in (logits, logits[:, None]):
        for targets in (torch.tensor([1, 1]), torch.tensor([0.0, 1.0]), torch.tensor([[0.0], [1.0]])):
            assert predicted(outputs, targets).tolist() == [0, 1]
    assert predicted(scores[:0], torch.tensor([], dtype=torch.int64)).tolist() == []


def test_predicted_is_none_where_targets_are_no_classes():
    scores = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    for outputs, targets in [
        (scores, torch.tensor([0.5, 0.5])),
        (scores[:, :1], torch.tensor([0.5, 0.5])),
        (scores[:, 0], torch.tensor([1, 2])),
        (scores, torch.zeros(2, 3, dtype=torch.int64)),
        (scores[:, :, None], torch.zeros(2, 1, dtype=torch.int64)),
        (torch.tensor(1.0), torch.tensor(1)),
        ((scores, scores), torch.tensor([1, 2])),
        (scores, (torch.tensor([1, 2]),)),
    ]:
        assert predicted(outputs, targets) is None


def test_many_owners():
    n = 200_000
    found = evaluation(np.ones(n), np.zeros(n, int), np.arange(n) % 7, owners=np.arange(n) // 2)
    assert len(found.by_owner) == n // 2
    assert found.by_owner[0].accuracy == 0.5
