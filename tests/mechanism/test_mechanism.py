import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from inosgm import (
    INOSGM,
    AutomaticClipping,
    BetaTail,
    ClipToShare,
    Concatenated,
    Dense,
    Descending,
    HardTail,
    LinearTail,
    OwnerFirst,
    Owners,
    PerSampleAdaptive,
    Plan,
    RandomOrder,
    ScaleClipped,
    certify,
    ordered_sum,
    plan_individual,
)
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.mechanism import clipped_ordered_sum
from inosgm.planning.variants import GroupSampling


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


class Book:
    """A ledger that remembers what it was told, and can refuse."""

    def __init__(self, refuses=False):
        self.costs, self.refuses = [], refuses

    def charge(self, cost):
        if self.refuses:
            raise PermissionError("no budget left")
        self.costs.append(cost)


def plan(**changes):
    numbers = dict(sample_rates=[1.0, 1.0], sensitivities=[1.0, 2.0], sizes=[3, 3], noise_scale=1e-9, steps=3)
    return Plan(**{**numbers, **changes})


DATA = np.array([[0.5, 0.1], [-0.9, 0.2], [0.3, 0.0], [1.5, 0.0], [0.2, -1.0], [-0.1, 0.4]])
OWNERS = np.array([0, 0, 0, 1, 1, 1])


def test_release_is_the_ordered_sum_plus_noise():
    release = Rows(plan(), OWNERS, tail=BetaTail(2, 3, 4.0)).release(DATA)
    expected = ordered_sum(DATA, DATA[:, 0], np.array([1.0, 2.0])[OWNERS], BetaTail(2, 3, 4.0))
    np.testing.assert_allclose(release.value, expected, atol=1e-7)
    assert release.step == 0
    assert release.cost.labels == (0, 1)
    assert release.cost.sample_rates.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(release.cost.noise_multipliers, [1e-9, 5e-10])


@pytest.mark.parametrize("data", [torch.from_numpy(DATA), torch.from_numpy(DATA).float()])
def test_torch_gives_the_same(data):
    value = Rows(plan(), OWNERS, tail=LinearTail(4.0), key=1).release(data).value
    assert isinstance(value, torch.Tensor)
    np.testing.assert_allclose(value, Rows(plan(), OWNERS, tail=LinearTail(4.0)).release(DATA).value, atol=1e-6)


def test_a_release_carries_no_gradient():
    data = torch.from_numpy(DATA).requires_grad_()
    assert not Rows(plan(), OWNERS).release(data).value.requires_grad


def test_other_kinds_of_data():
    class Columns(INOSGM):
        def contributions(self, batch):
            return np.stack([batch["x"], batch["y"]], axis=1)

        def scores(self, batch):
            return batch["x"].to_numpy() if hasattr(batch, "iloc") else batch["x"]

    table = pd.DataFrame(DATA, columns=["x", "y"])
    expected = Rows(plan(), OWNERS, tail=LinearTail(4.0)).release(DATA).value
    for data in (table, {"x": DATA[:, 0], "y": DATA[:, 1]}):
        np.testing.assert_allclose(
            Columns(plan(), OWNERS, tail=LinearTail(4.0)).release(data).value, expected, atol=1e-7
        )


def test_micro_batches_give_the_same():
    class Split(Rows):
        def contributions(self, batch):
            return Concatenated([Dense(part) for part in np.array_split(batch, 4)])

    whole, split = (kind(plan(), OWNERS, tail=LinearTail(5.0)).release(DATA).value for kind in (Rows, Split))
    np.testing.assert_allclose(split, whole, atol=1e-7)


@pytest.mark.parametrize(
    "clipping", [ScaleClipped(), ClipToShare(), AutomaticClipping(), PerSampleAdaptive(), AutomaticClipping(1e-12)]
)
def test_long_and_broken_contributions_stay_within_their_share(clipping):
    long = np.array([[1e30], [-3e4], [np.inf], [np.nan], [0.5], [1e308]])
    sensitivities = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 7e-16])
    for k in range(6):
        value = clipped_ordered_sum(
            Dense(long[[k]]), np.zeros(1), sensitivities[[k]], np.array([0]),
            owners=np.zeros(1), tail=LinearTail(4.0), order=Descending(), clipping=clipping,
        )  # fmt: skip
        assert abs(value[0]) <= LinearTail(4.0).W(sensitivities[k]) * (1 + 1e-12)
    assert Rows(plan(), OWNERS).release(np.where(DATA > 1, np.nan, DATA)).value.shape == (2,)


def test_adaptive_clipping_follows_the_rule_of_its_paper():
    norms, bounds, rho = np.array([0.0, 0.01, 3.0, np.nan]), np.full(4, 2.0), np.array([1.0, 1.0, 0.5, 1.0])
    automatic = AutomaticClipping(0.5).factors(norms, bounds, rho)
    np.testing.assert_allclose(automatic, [4.0, 2 / 0.51, 0.5 * 2 / 3.5, 0.0])
    adaptive = PerSampleAdaptive(0.5).factors(norms, bounds, rho)
    np.testing.assert_allclose(adaptive, [2.0, 2 / (0.01 + 0.5 / 0.51), 0.5 * 2 / (3 + 0.5 / 3.5), 0.0])
    for kind in (AutomaticClipping, PerSampleAdaptive):
        with pytest.raises(ValueError, match="stability must be"):
            kind(0.0)


def test_clip_to_share_keeps_short_contributions_whole():
    short, both = np.array([[0.1], [0.1]]), dict(owners=np.zeros(2), tail=LinearTail(2.0), order=Descending())
    arguments = (Dense(short), np.array([2.0, 1.0]), np.ones(2), np.arange(2))
    scaled = clipped_ordered_sum(*arguments, clipping=ScaleClipped(), **both)
    shared = clipped_ordered_sum(*arguments, clipping=ClipToShare(), **both)
    np.testing.assert_allclose([scaled[0], shared[0]], [0.1 * 0.75 + 0.1 * 0.25, 0.2])


def test_released_noise_has_the_scale_of_the_plan():
    """Kolmogorov-Smirnov of 2,000 releases of two coordinates against N(0, 7^2); false-alarm rate 1e-6."""
    mechanism = Rows(plan(noise_scale=7.0, steps=2000), OWNERS, key=3)
    noise = np.concatenate([mechanism.release(np.zeros((6, 2))).value for _ in range(2000)])
    assert stats.kstest(noise, stats.norm(scale=7.0).cdf).pvalue > 1e-6


def test_batches_follow_the_rates():
    """Sums of ones count the batch of each owner: exact binomial tests over 3,000 releases, false-alarm rate 1e-6."""
    sizes, rates = [200, 300], [0.02, 0.6]
    owners = np.repeat([0, 1], sizes)
    mechanism = Rows(plan(sample_rates=rates, sizes=sizes, sensitivities=[1.0, 1.0], steps=3000), owners, key=4)
    data = np.eye(2)[owners]
    totals = np.sum([np.round(mechanism.release(data).value) for _ in range(3000)], axis=0)
    for total, size, rate in zip(totals, sizes, rates, strict=True):
        assert stats.binomtest(int(total), 3000 * size, rate).pvalue > 5e-7


def test_empty_batches_release_noise_and_count():
    book = Book()
    mechanism = Rows(plan(sample_rates=[1e-12, 1e-12], noise_scale=1.0), OWNERS, tail=HardTail(1.0), ledger=book, key=0)
    values = [mechanism.release(DATA).value for _ in range(3)]
    assert len({float(v[0]) for v in values}) == 3
    assert [cost.step for cost in book.costs] == [0, 1, 2]


def test_a_retried_step_repeats_coins_and_noise():
    half = plan(sample_rates=[0.5, 0.5], noise_scale=1.0)
    first, second = (Rows(half, OWNERS, key=9) for _ in range(2))
    for _ in range(3):
        np.testing.assert_array_equal(first.release(DATA).value, second.release(DATA).value)
    unkeyed = [Rows(half, OWNERS).release(DATA).value[0] for _ in range(2)]
    assert unkeyed[0] != unkeyed[1]


def test_charged_before_the_value_exists():
    seen = []

    class Watching(Rows):
        def contributions(self, batch):
            if len(batch):
                seen.append(len(book.costs))
            return super().contributions(batch)

    book = Book()
    Watching(plan(), OWNERS, ledger=book).release(DATA)
    assert seen == [1]


def test_a_refused_charge_releases_nothing():
    class Touchy(Rows):
        def contributions(self, batch):
            assert len(batch) == 0, "no record may be touched before the charge"
            return super().contributions(batch)

    mechanism = Touchy(plan(), OWNERS, ledger=Book(refuses=True))
    with pytest.raises(PermissionError, match="no budget left"):
        mechanism.release(DATA)
    assert mechanism.released == 0


def test_a_crash_after_the_charge_stays_charged():
    class Crashing(Rows):
        def scores(self, batch):
            if len(batch):
                raise OSError("disk gone")
            return super().scores(batch)

    book = Book()
    mechanism = Crashing(plan(), OWNERS, ledger=book)
    with pytest.raises(OSError, match="disk gone"):
        mechanism.release(DATA)
    assert (len(book.costs), mechanism.released) == (1, 1)


def test_the_plan_ends():
    book = Book()
    mechanism = Rows(plan(steps=2), OWNERS, ledger=book)
    mechanism.release(DATA)
    mechanism.release(DATA)
    with pytest.raises(RuntimeError, match="all 2 steps of the plan are released"):
        mechanism.release(DATA)
    assert len(book.costs) == 2


def test_threads_share_the_steps():
    book = Book()
    mechanism = Rows(plan(steps=50), OWNERS, ledger=book)
    with ThreadPoolExecutor(8) as pool:
        steps = list(pool.map(lambda _: mechanism.release(DATA).step, range(50)))
    assert sorted(steps) == list(range(50))


def test_no_copies_and_no_other_release():
    mechanism = Rows(plan(), OWNERS)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(mechanism)
    with pytest.raises(TypeError, match="must not override release"):
        type("Shortcut", (Rows,), {"release": lambda self, data: data.sum()})
    mixin = type("Mixin", (), {"release": lambda self, data: data.sum()})
    with pytest.raises(TypeError, match="must not override release"):
        type("Shortcut", (mixin, Rows), {})
    with pytest.raises(AttributeError):
        mechanism.plan = plan(noise_scale=1e-12)
    with pytest.raises(TypeError, match="abstract"):
        INOSGM(plan(), OWNERS)


class Summed(Dense):
    """Contributions whose sum comes in a form of the test's choice."""

    def __init__(self, array, form):
        super().__init__(array)
        object.__setattr__(self, "form", form)

    def weighted_sum(self, weights):
        return self.form(super().weighted_sum(weights))


class Misshapen(Rows):
    """Gives whatever shape a test asks for."""

    def __init__(self, *arguments, g=None, s=None, **keywords):
        super().__init__(*arguments, **keywords)
        self.g, self.s = g or (lambda batch: batch), s or (lambda batch: batch[:, 0])

    def contributions(self, batch):
        return self.g(batch)

    def scores(self, batch):
        return self.s(batch)


@pytest.mark.parametrize(
    ("mechanism", "data", "message"),
    [
        ({}, DATA[:5], "one record per owner entry: got 5 for 6"),
        ({}, np.vstack([DATA, DATA]), "got 12 for 6"),
        ({}, (DATA, DATA[:2]), "equally long"),
        ({"s": lambda b: b}, DATA, "scores must be one number per record"),
        ({"s": lambda b: np.zeros(6)}, DATA, "must hold|must be one|pair up"),
        ({"g": lambda b: np.zeros((6, 2))}, DATA, "contributions and scores must pair up"),
        ({"g": lambda b: np.float64(1)}, DATA, "one row per record"),
        ({"g": lambda b: b.max(axis=0)}, DATA, "which contributions and scores must take"),
        ({"g": lambda b: None}, DATA, "contributions must be numbers, got None: is a `return` missing"),
        ({"s": lambda b: None}, DATA, "scores must be numbers, got None: is a `return` missing"),
        ({"g": lambda b: [list(row) for row in b]}, DATA, "a list has no width"),
        ({"g": lambda b: b.astype(str)}, DATA, "contributions must be numbers, got text"),
        ({"s": lambda b: b[:, 0].astype(object)}, DATA, "scores must be numbers, got values of type object"),
        ({"g": lambda b: b.astype(complex)}, DATA, "contributions must be numbers, got values of type complex"),
        ({"g": lambda b: Summed(b, lambda total: float(total[0]))}, DATA, "floating-point numbers, got float"),
        (
            {"g": lambda b: Summed(b, lambda total: np.ma.masked_array(total))},
            DATA,
            "floating-point numbers, got Masked",
        ),
        ({"g": lambda b: Summed(b, lambda total: total.astype(int))}, DATA, "floating-point numbers, got ndarray"),
        ({"g": lambda b: Summed(b, lambda total: total.astype(np.float16))}, DATA, "float32 or float64, got float16"),
        (
            {"g": lambda b: Summed(b, lambda total: torch.from_numpy(total).bfloat16())},
            DATA,
            "float32 or float64, got torch.bfloat16",
        ),
        ({}, None, "data must be an array, a table"),
    ],
)
def test_bad_input_before_any_coin_or_cost(mechanism, data, message, monkeypatch):
    book = Book()
    made = Misshapen(plan(), OWNERS, ledger=book, **mechanism)
    monkeypatch.setattr("inosgm.mechanism.mechanism.streams", lambda *_: pytest.fail("randomness was drawn"))
    with pytest.raises((ValueError, TypeError), match=message):
        made.release(data)
    assert (len(book.costs), made.released) == (0, 0)


def test_other_data_is_probed_again():
    book = Book()
    mechanism = Misshapen(plan(), OWNERS, ledger=book, g=lambda batch: batch[:, :2] @ np.ones((2, 1)))
    mechanism.release(DATA)
    with pytest.raises(ValueError, match="matmul"):
        mechanism.release(DATA[:, :1])
    assert len(book.costs) == 1


@pytest.mark.parametrize("kind", ["float64", "Float64", "Int64"])
def test_missing_values_of_a_table_rank_last_and_add_nothing(kind):
    class Column(INOSGM):
        def contributions(self, batch):
            return batch["x"]

        def scores(self, batch):
            return batch["x"]

    table = pd.DataFrame({"x": pd.Series([1, 2, None, 1, 2, 1], dtype=kind)})
    value = Column(plan(sensitivities=[9.0, 9.0]), OWNERS, tail=HardTail(9.0)).release(table).value
    np.testing.assert_allclose(value, 7, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(owners=[0, 1, 2]), r"owners must be labels of the plan \(0, 1\), got 2"),
        (dict(owners=[0, -1]), "got -1"),
        (dict(owners=["a"]), "got 'a'"),
        (dict(owners=np.array([OWNERS])), "one label per record"),
        (dict(owners=[0.5] * 6), "all strings or all whole numbers, got 0.5 at position 0"),
        (dict(owners=[None] * 6), "all strings or all whole numbers, got None at position 0"),
        (dict(owners=np.zeros(60, dtype=int)), "it has 3 records of 0, owners has 60"),
        (dict(clipping="scale"), "clipping must be of type Clipping"),
        (dict(clipping=ScaleClipped), "clipping must be of type Clipping"),
        (dict(key="secret"), "key must be a whole number"),
        (dict(ledger="study.ledger"), "ledger must be a Ledger"),
        (dict(plan={"steps": 1}), "plan must be of type Plan"),
        (dict(tail=lambda u: 1.0), "tail must be of type Tail"),
        (dict(order=max), "order must be of type Order"),
        (dict(key=-1), "key must be a whole number"),
        (dict(key=0.5), "key must be a whole number"),
    ],
)
def test_bad_construction(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Rows(**{"plan": plan(), "owners": OWNERS, **arguments})


def test_owners_by_name():
    named, names = plan(labels=["benign", "malignant"]), np.array(["benign", "malignant"])[OWNERS]
    expected = Rows(plan(), OWNERS, tail=LinearTail(4.0)).release(DATA).value
    for form in (names, names.tolist(), names.astype(object), pd.Series(names)):
        np.testing.assert_allclose(Rows(named, form, tail=LinearTail(4.0)).release(DATA).value, expected, atol=1e-7)


def test_neighbouring_data_follow_the_same_plan():
    assert Rows(plan(), OWNERS[1:]).release(DATA[1:]).value.shape == (2,)
    assert Rows(plan(), np.append(OWNERS, 0)).release(np.vstack([DATA, DATA[:1]])).value.shape == (2,)


def test_owner_first_knows_who_is_more_private():
    """The owner with the smaller sensitivity is more private, so the tail falls on the other one."""
    value = Rows(plan(), OWNERS, tail=HardTail(6.0), order=OwnerFirst()).release(np.eye(2)[OWNERS]).value
    np.testing.assert_allclose(value, [3, 0], atol=1e-7)


def test_random_order_changes_from_step_to_step():
    mechanism = Rows(plan(sensitivities=[1.0, 1.0], steps=40), OWNERS, tail=HardTail(3.0), order=RandomOrder(0))
    values = {int(np.round(mechanism.release(1.0 * np.eye(6)[:, :6]).value @ 2 ** np.arange(6))) for _ in range(40)}
    assert len(values) > 6


def test_random_order_is_a_secret_of_the_mechanism():
    """Ids are positions: with a known order, a record that leaves would rearrange all that come after it."""

    def released(key):
        made = plan(sensitivities=[1.0, 1.0])
        mechanism = Rows(made, OWNERS, tail=HardTail(3.0), order=RandomOrder(0), key=key)
        return int(np.round(mechanism.release(np.eye(6)).value @ 2 ** np.arange(6)))

    assert released(7) == released(7)
    assert len({released(key) for key in range(12)}) > 6
    assert len({released(None) for _ in range(40)}) > 6


def test_what_looks_at_a_mechanism_leaves_its_noise_alone():
    """Certified by four threads while it releases: the key stays what it was, and no noise is that of a known key."""
    mechanism = Rows(plan(steps=40), OWNERS, tail=HardTail(3.0), order=RandomOrder(0))
    looking = [threading.Thread(target=certify, args=(mechanism, DATA), kwargs={"evaluations": 200}) for _ in range(4)]
    for thread in looking:
        thread.start()
    values = [mechanism.release(DATA).value for _ in range(40)]
    for thread in looking:
        thread.join()
    assert mechanism._key is None
    known = Rows(plan(steps=40), OWNERS, tail=HardTail(3.0), order=RandomOrder(0), key=0)
    assert not any(np.array_equal(value, known.release(DATA).value) for value in values)


def test_a_measure_that_changes_its_arguments_changes_neither_bounds_nor_charges():
    """Fails on a65a0bc: a record that gave its full norm in every step was charged to another one."""

    class Reversing(INOSGM):
        def measure(self, data, positions, owners, step):
            rows = data[positions]
            positions[:], owners[:] = positions[::-1].copy(), 0
            return Dense(rows), np.zeros(len(rows))

    owners = Owners(of_record=["a"] * 3 + ["b"] * 3, epsilon={"a": 2.0, "b": 4.0}, delta=1e-5)
    mechanism = Reversing(plan_individual(owners, steps=4, clip_norm=1.0, full_norm_fraction=0.5), owners)
    data = np.zeros((6, 1))
    data[0] = 100.0
    for _ in range(4):
        mechanism.release(data)
    spent = Inspection(mechanism).filter().spent
    assert spent[0] > 1e3 * spent[1:].max()


def test_sizes_that_vary_need_poisson_sampling():
    """A batch of a fixed size would hold all records of an owner that has fewer than its plan says."""

    class Varying(Rows):
        sizes_vary = True

    fixed = plan(sample_rates=[0.1, 0.1], sizes=[100, 100], variant=GroupSampling(sampling="without_replacement"))
    with pytest.raises(ValueError, match="take a plan with Poisson sampling"):
        Varying(fixed, OWNERS)
