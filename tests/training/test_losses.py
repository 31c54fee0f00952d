from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from inosgm.training.losses import per_record

LOGITS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 2, 1, 1])
EXPECTED = F.cross_entropy(LOGITS, CLASSES, reduction="none")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_any_reduction_of_a_module(reduction):
    loss = nn.CrossEntropyLoss(reduction=reduction)
    torch.testing.assert_close(per_record(loss)(LOGITS, CLASSES), EXPECTED)
    assert loss.reduction == reduction


@pytest.mark.parametrize("loss", [F.cross_entropy, partial(F.cross_entropy, reduction="sum")])
def test_functions_with_a_reduction(loss):
    torch.testing.assert_close(per_record(loss)(LOGITS, CLASSES), EXPECTED)


def test_functions_of_ones_own():
    def entropy(outputs, targets):
        return F.cross_entropy(outputs, targets, reduction="none")

    torch.testing.assert_close(per_record(entropy)(LOGITS, CLASSES), EXPECTED)
    torch.testing.assert_close(per_record(per_record(entropy))(LOGITS, CLASSES), EXPECTED)


def test_class_weights_stay_with_the_record():
    """The mean of torch divides by the weights of the whole batch."""
    weight = torch.tensor([1.0, 5.0, 0.5])
    losses = per_record(nn.CrossEntropyLoss(weight=weight))(LOGITS, CLASSES)
    torch.testing.assert_close(losses, weight[CLASSES] * EXPECTED)


def test_options_of_the_loss_are_kept():
    losses = per_record(nn.CrossEntropyLoss(label_smoothing=0.1))(LOGITS, CLASSES)
    torch.testing.assert_close(losses, F.cross_entropy(LOGITS, CLASSES, label_smoothing=0.1, reduction="none"))
    losses = per_record(partial(F.cross_entropy, label_smoothing=0.1))(LOGITS, CLASSES)
    torch.testing.assert_close(losses, F.cross_entropy(LOGITS, CLASSES, label_smoothing=0.1, reduction="none"))


def test_further_axes():
    outputs, targets = torch.rand(4, 3, 5), torch.randint(0, 3, (4, 5))
    losses = per_record(nn.CrossEntropyLoss())(outputs, targets)
    torch.testing.assert_close(losses, F.cross_entropy(outputs, targets, reduction="none").mean(1))
    y = torch.rand(4, 3, 5)
    torch.testing.assert_close(per_record(nn.MSELoss())(outputs, y), (outputs - y).square().mean((1, 2)))
    torch.testing.assert_close(per_record(nn.MSELoss(reduction="sum"))(outputs, y), (outputs - y).square().sum((1, 2)))
    logs, chances = LOGITS.log_softmax(1), torch.full((4, 3), 1 / 3)
    losses = per_record(nn.KLDivLoss(reduction="batchmean"))(logs, chances)
    torch.testing.assert_close(losses.mean(), nn.KLDivLoss(reduction="batchmean")(logs, chances))


def test_binary_and_regression_losses():
    x, y = torch.randn(4, 1), torch.rand(4, 1)
    for loss in (nn.BCEWithLogitsLoss(), nn.MSELoss(), nn.L1Loss(), nn.HuberLoss(), nn.SmoothL1Loss()):
        assert per_record(loss)(x, y).shape == (4,)
        assert per_record(loss)(x[:, 0], y[:, 0]).shape == (4,)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy])
def test_no_records(loss):
    assert per_record(loss)(LOGITS[:0], CLASSES[:0]).shape == (0,)
    assert per_record(nn.MSELoss())(torch.zeros(0, 3, 2), torch.zeros(0, 3, 2)).shape == (0,)


@pytest.mark.parametrize("records", [0, 1, 4])
def test_losses_of_batches_are_refused(records):
    x, y = LOGITS[:records], CLASSES[:records]
    for loss in (lambda outputs, targets: F.cross_entropy(outputs, targets), lambda outputs, targets: outputs.sum()):
        with pytest.raises(ValueError, match="one for the whole batch: do not average"):
            per_record(loss)(x, y)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.CrossEntropyLoss()

        def forward(self, outputs, targets):
            return self.inner(outputs, targets)

    with pytest.raises(ValueError, match="Own gives one for the whole batch"):
        per_record(Own())(x, y)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"gives more or fewer: keep the records as the first axis"):
        per_record(lambda outputs, targets: outputs.mean(0))(LOGITS, CLASSES)
    with pytest.raises(ValueError, match=r"gives more or fewer"):
        per_record(lambda outputs, targets: outputs.flatten())(LOGITS, CLASSES)
    with pytest.raises(ValueError, match="gives float"):
        per_record(lambda outputs, targets: 1.0)(LOGITS, CLASSES)
    with pytest.raises(ValueError, match=r"gives torch\.int64"):
        per_record(lambda outputs, targets: targets)(LOGITS, CLASSES)


@pytest.mark.parametrize("loss", [nn.CTCLoss(), F.ctc_loss, nn.TripletMarginLoss(), nn.CosineEmbeddingLoss()])
def test_losses_of_other_arguments_are_refused(loss):
    with pytest.raises(TypeError, match=r"must be a function of \(outputs, targets\).*write a function of two"):
        per_record(loss)


def test_other_errors():
    with pytest.raises(TypeError, match="got 'mse'"):
        per_record("mse")

    class Learnt(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, outputs, targets):
            return F.cross_entropy(outputs / self.temperature, targets, reduction="none")

    with pytest.raises(ValueError, match="make them parameters of the model"):
        per_record(Learnt())
