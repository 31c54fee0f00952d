"""Shadow models trained as one stack are those that trainers make one by one."""

import io
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inosgm import BetaTail, HardTail, LinearTail, importance_weights
from inosgm.audit.design import Design
from inosgm.audit.ensemble import Ensemble, ensemble, unstackable
from inosgm.audit.ensemble.seeding import Streams
from inosgm.datasets import Dataset
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.input_files import Source
from inosgm.mechanism.noise import streams
from inosgm.mechanism.orders import Ascending, Descending, OwnerFirst, RandomOrder
from inosgm.mechanism.sampling import PoissonSampler, PoissonSamplers
from inosgm.mechanism.tails import tail_weights
from inosgm.training.logit_adjustment import AdjustedModel

DOUBLE = "ensemble_parts:in_double"
CLASSES = ("a", "b", "c")
SHARES = {"class_shares": {0: [0.8, 0.1, 0.1], 1: [0.1, 0.8, 0.1], 2: [0.0, 0.1, 0.9]}}
LINEAR = {"kind": "linear", "fraction": 0.5}


def records(n=90, shape=(5,)):
    generator = np.random.default_rng(3)
    x = generator.normal(size=(n, *shape)).astype(np.float32)
    y = generator.integers(3, size=n)
    return Dataset(name="digits", x=x, y=y, x_test=x[:3].copy(), y_test=y[:3].copy(), classes=CLASSES)


def configured(**changes):
    values = {
        "data": {"name": "digits"},
        "owners": {"fractions": [0.4, 0.3, 0.3], "epsilon": [1, 2, 4], "delta": 1e-3},
        "model": {"name": DOUBLE, "options": {"widths": []}},
        "plan": {"method": "sample", "steps": 6, "expected_batch": 15, "clip_norm": 0.5, "accountant": "rdp"},
        "optimizer": {"name": "SGD", "lr": 1.0},
    }
    for name, section in changes.items():
        values[name] = {**values[name], **section} if name in values else section
    return TrainingConfig.from_dict(values)


def designed(dataset=None, private=True, **changes):
    source = Source(datasets={"digits": records() if dataset is None else dataset}, tables={})
    return Design.of(configured(**changes), source, seed=5, private=private)


def trained(design, shadows=range(3)):
    stack = design.ensemble(shadows)
    for _ in range(design.plan.steps):
        stack.step()
    return stack


def assert_same(design, shadows=(0, 1), rtol=1e-9):
    """Compare with trainers of the same shadow models."""
    stack = trained(design, shadows)
    scores = stack.scores()
    for place, shadow in enumerate(shadows):
        learner = design.learner(shadow)
        design.trainer(shadow, learner).fit(*design.records(shadow), progress=False)
        found = stack._stack.state_of(place)
        plain = learner.model.model if isinstance(learner.model, AdjustedModel) else learner.model
        assert list(found) == list(plain.state_dict())
        for name, expected in plain.state_dict().items():
            scale = max(float(expected.abs().max()), 1e-3)
            torch.testing.assert_close(found[name], expected, rtol=0, atol=rtol * scale)
        np.testing.assert_allclose(scores[place], design.scores(learner), rtol=1e4 * rtol, atol=1e4 * rtol)
    return stack


MLP = {"name": DOUBLE, "options": {"widths": [7, 4], "activation": "tanh"}}
RELU = {"name": DOUBLE, "options": {"widths": [8]}}
CASES = {
    "no tail": {},
    "linear tail": {"tail": LINEAR, "model": RELU},
    "hard tail, shares": {
        "tail": {"kind": "hard", "fraction": 0.3},
        "clipping": {"kind": "clip_to_share"},
        "model": MLP,
    },
    "beta tail, automatic": {
        "tail": {"kind": "beta", "alpha": 2, "beta": 0.7, "fraction": 0.6},
        "clipping": {"kind": "automatic"},
    },
    "steps, adaptive": {
        "tail": {"kind": "step", "levels": [0.9, 0.3], "fraction": 0.6},
        "clipping": {"kind": "per_sample_adaptive"},
        "model": MLP,
    },
    "ascending": {"tail": LINEAR, "order": "ascending"},
    "random": {"tail": LINEAR, "order": "random", "model": RELU},
    "owners first": {"tail": LINEAR, "order": "owner_first"},
    "ties": {"tail": LINEAR, "model": {"name": "ensemble_parts:of_zeros", "options": {}}},
    "momentum, schedule": {
        "optimizer": {"options": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}},
        "schedule": {"name": "OneCycleLR", "options": {"max_lr": 2.0, "total_steps": 6}},
        "model": MLP,
        "tail": LINEAR,
    },
    "Adam": {"optimizer": {"name": "Adam", "lr": 0.1}, "model": MLP, "tail": LINEAR},
    "AdamW": {"optimizer": {"name": "AdamW", "lr": 0.1, "options": {"amsgrad": True}}},
    "RMSprop": {"optimizer": {"name": "RMSprop", "lr": 0.1, "options": {"momentum": 0.5, "centered": True}}},
    "Adagrad": {"optimizer": {"name": "Adagrad", "lr": 0.1}},
    "sensitivities": {"plan": {"method": "scale"}, "tail": LINEAR, "model": MLP},
    "sensitivities, shares": {"plan": {"method": "blend", "weight": 0.5}, "tail": LINEAR},
    "empty batches": {"plan": {"expected_batch": 0.3}, "tail": LINEAR, "model": RELU},
    "everybody": {"owners": {"epsilon": [5, 5, 5]}, "plan": {"expected_batch": 46}, "tail": LINEAR},
    "in parts": {"training": {"max_physical_batch": 4}, "tail": LINEAR, "model": MLP},
    "adjusted in the loss": {"adjustment": {"loss": 1.5, "after": 0.0, **SHARES}, "tail": LINEAR, "model": MLP},
    "adjusted": {"adjustment": {"loss": 0.5, "after": 1.0, **SHARES}, "tail": LINEAR},
    "smooth labels": {"loss": {"options": {"label_smoothing": 0.2, "reduction": "sum"}}, "tail": LINEAR},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=list(CASES))
def test_a_stack_is_what_trainers_make_one_by_one(changes):
    assert_same(designed(**changes))


def test_the_score_of_an_adjusted_model_is_its_own_confidence():
    """Not that of the loss it is trained with, which shifts its logits again."""
    design = designed(adjustment={"loss": 0.5, "after": 1.0, **SHARES})
    learner = design.learner(0)
    outputs = learner.model(torch.from_numpy(design.pool.dataset.x).double()).detach()
    share = outputs.softmax(1).gather(1, torch.from_numpy(design.pool.dataset.y)[:, None])[:, 0]
    np.testing.assert_allclose(design.scores(learner), torch.logit(share), rtol=1e-5, atol=1e-5)


def test_in_single_precision_and_with_images():
    """Here an order might change by a rounding; with these seeds it does not."""
    for model in ({"name": "logistic_regression", "options": {}}, {"name": "mlp", "options": {"widths": [6]}}):
        assert_same(designed(records(shape=(1, 2, 3)), model=model, tail=LINEAR), rtol=1e-5)


def test_autocast_of_the_users_own_does_not_reach_a_stack():
    design = designed(model={"name": "mlp", "options": {"widths": [6]}}, tail=LINEAR)
    expected = trained(design).scores()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stack = trained(design)
    np.testing.assert_array_equal(stack.scores(), expected)


def test_without_privacy():
    assert_same(designed(private=False, model=MLP, tail=LINEAR, plan={"clip_norm": 1.0}))


@pytest.mark.parametrize("model", [MLP, RELU, {"name": "logistic_regression", "options": {}}])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e15, 1e25])
def test_records_without_a_finite_gradient_count_for_nothing(model, value):
    """Record 0 of the pool, which empty places stand for, is one of them."""
    dataset = records()
    dataset.x[[0, 7, 8, 30, 31, 60], 2] = value
    rtol = 1e-7 if model["name"] == DOUBLE else 1e-4  # one of so many digits is left beside 1e15
    stack = assert_same(designed(dataset, model=model, tail=LINEAR, optimizer={"lr": 0.1}), rtol=rtol)
    assert all(bool(parameter.isfinite().all()) for parameter in stack._stack.state_of(0).values())


def test_how_many_run_at_once_does_not_matter(monkeypatch):
    design = designed(tail=LINEAR, model=MLP)
    together = trained(design, range(5))
    monkeypatch.setattr(ensemble, "MOST_ACTIVATIONS", 1)
    alone = trained(design, range(5))
    for place in range(5):
        for name, expected in together._stack.state_of(place).items():
            torch.testing.assert_close(alone._stack.state_of(place)[name], expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(alone.scores(), together.scores(), rtol=1e-5, atol=1e-6)


def test_it_goes_on_from_where_it_was():
    changes = {"optimizer": {"name": "Adam", "lr": 0.1}, "schedule": {"name": "StepLR", "options": {"step_size": 2}}}
    design = designed(tail=LINEAR, model=RELU, **changes)
    whole = trained(design)
    begun = design.ensemble(range(3))
    for _ in range(3):
        begun.step()
    stream = io.BytesIO()
    torch.save(begun.state_dict(), stream)
    stream.seek(0)
    resumed = design.ensemble(range(3))
    resumed.load_state_dict(torch.load(stream, weights_only=True))
    assert resumed.steps_done == 3
    while resumed.steps_done < design.plan.steps:
        resumed.step()
    np.testing.assert_array_equal(resumed.scores(), whole.scores())
    with pytest.raises(RuntimeError, match="all 6 steps"):
        resumed.step()


def test_scores_are_float32_and_one_per_model_and_record():
    design = designed()
    found = Ensemble(design.config, design.pool, design.plan, members=[np.arange(4)] * 2, keys=[1, 2], seeds=[3, 4])
    assert (found.scores().dtype, found.scores().shape, found.steps_done) == (np.float32, (2, 90), 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": {"name": "mnist_cnn", "options": {}}}, "Conv2d"),
        ({"optimizer": {"name": "LBFGS"}}, "LBFGS"),
        ({"loss": {"name": "MultiMarginLoss"}}, "MultiMarginLoss"),
        ({"training": {"autocast": "bfloat16"}}, "bfloat16"),
        ({"training": {"device": "cuda"}}, "cuda"),
    ],
)
def test_what_cannot_be_stacked_is_named(changes, reason):
    assert reason in unstackable(configured(**changes), records(shape=(1, 28, 28)))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("dropout", "Dropout"),
        ("in place", "overwrites"),
        ("twice", "used twice"),
        ("frozen", "frozen"),
        ("two precisions", "neither all in float32"),
        ("hook", "hook"),
    ],
)
def test_models_that_cannot_be_stacked(kind, reason):
    config = configured(model={"name": "ensemble_parts:unusual", "options": {"kind": kind}})
    assert reason in unstackable(config, records())


def test_what_can_be_stacked():
    for changes in CASES.values():
        assert unstackable(configured(**changes), records()) is None
    plain = {"name": "ensemble_parts:unusual", "options": {"kind": "plain"}}
    assert unstackable(configured(model=plain), records()) is None
    assert "several axes" in unstackable(configured(model=plain), records(shape=(1, 5)))


@given(st.lists(st.integers(0, 2**300), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_streams_are_those_of_each_key(keys, step):
    for key, *made in zip(keys, *Streams(keys).at(step), strict=True):
        for one, other in zip(made, streams(key, step), strict=True):
            assert one.bit_generator.state == other.bit_generator.state


RATES = st.one_of(st.sampled_from([1.0, 0.5, 0.25, 1e-9, 5e-324]), st.floats(1e-3, 1))


@given(st.lists(RATES, min_size=1, max_size=4), st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(0, 9))
def test_many_batches_are_those_of_each_sampler(rates, sizes, seed):
    generator, rates = np.random.default_rng(seed), np.array(rates)
    owners = [generator.integers(rates.size, size=size) for size in sizes]
    mine, theirs = ([np.random.default_rng([seed, place]) for place in range(len(sizes))] for _ in range(2))
    samplers = PoissonSamplers(rates, owners)
    for _ in range(2):
        drawn, there = samplers.draw(mine)
        for place, some in enumerate(owners):
            expected = PoissonSampler(rates, some).draw(theirs[place])
            np.testing.assert_array_equal(drawn[place, there[place]], expected)
            assert not there[place, expected.size :].any()
            assert mine[place].bit_generator.state == theirs[place].bit_generator.state


class Short:
    """A generator whose first gaps are improbably short, so that some more must be drawn."""

    def __init__(self, seed):
        self._generator, self._calls = np.random.default_rng(seed), itertools.count()
        self.random = self._generator.random

    def geometric(self, rate, size):
        return self._generator.geometric(rate if next(self._calls) % 3 else 0.9999, size)


def test_batches_whose_first_gaps_are_too_short():
    rates, owners = np.array([0.3, 0.02]), [np.arange(size) % 2 for size in (300, 170, 260)]
    drawn, there = PoissonSamplers(rates, owners).draw([Short(place) for place in range(3)])
    for place, some in enumerate(owners):
        np.testing.assert_array_equal(drawn[place, there[place]], PoissonSampler(rates, some).draw(Short(place)))


TABLES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=9).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, np.nan, np.inf, -np.inf])),
        hnp.arrays(np.int64, shape[:1], elements=st.integers(0, shape[1])),
        hnp.arrays(np.float64, shape, elements=st.sampled_from([0.5, 1.0, 3.7])),
    )
)


@given(TABLES, st.sampled_from([Descending(), Ascending(), RandomOrder(3), OwnerFirst()]), st.integers(0, 5))
def test_rows_are_ranked_and_weighed_like_batches(table, order, seed):
    scores, sizes, spans = table
    there = np.arange(scores.shape[1]) < sizes[:, None]
    ids = np.cumsum(np.random.default_rng(seed).integers(1, 9, scores.shape), axis=1)
    ranking = order.rankings(scores, ids, spans, there)
    lowest_first = ranking[:, ::-1]
    for tail in (LinearTail(4.2), HardTail(2.0), BetaTail(2, 3, 7.0)):
        rho = np.ones_like(scores)
        spent = tail_weights(np, np.take_along_axis(np.where(there, spans, 0), lowest_first, 1), tail)
        np.put_along_axis(rho, lowest_first[:, : spent.shape[1]], spent, 1)
        for row, size in enumerate(sizes):
            one = slice(0, size)
            assert [place for place in ranking[row] if place < size] == order.ranking(
                scores[row, one], ids[row, one], spans[row, one]
            ).tolist()
            expected = importance_weights(
                scores[row, one], spans[row, one], tail, order=order, ids=ids[row, one], owners=spans[row, one]
            )
            np.testing.assert_array_equal(rho[row, one], expected)
