import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inosgm import Plan, plan_sample
from inosgm.datasets import Dataset, load, settings
from inosgm.datasets.settings import SETTINGS, split
from inosgm.training.models import MODELS

TEN = np.repeat(np.arange(10), 500)
"""500 records of each of ten classes."""


def by_owner(owners):
    return dict(zip(owners.labels, zip(owners.sizes.tolist(), owners.epsilon.tolist(), strict=True), strict=True))


def hundred():
    """A CIFAR-100 in small: 20 categories of 5 classes, fish and vehicles_1 scattered among them."""
    categories = [f"group{i % 20}" for i in range(100)]
    for place in (1, 32, 67, 73, 91):
        categories[place] = "fish"
    for place in (8, 13, 48, 58, 90):
        categories[place] = "vehicles_1"
    y = np.tile(np.arange(100), 20)
    x = y[:, None].astype(np.float32)
    names = tuple(f"class{i}" for i in range(100))
    return Dataset(
        name="cifar100",
        x=x,
        y=y,
        x_test=x[:300].copy(),
        y_test=y[:300].copy(),
        classes=names,
        categories=tuple(categories),
    )


class TestRegistry:
    @pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
    def test_is_complete_and_paired_with_what_there_is(self, setting):
        assert getattr(settings, setting.name) is setting
        assert setting.dataset in load.__globals__["NAMES"]
        assert setting.model in MODELS
        assert setting.about.endswith(".")
        owners = setting(np.arange(setting.classes), seed=1)
        assert set(owners.delta) == {1e-5}
        assert owners.n_records == setting.classes

    def test_methods_are_those_of_the_paper(self):
        scaled = {name for name, setting in SETTINGS.items() if setting.method == "scale"}
        assert scaled == {"M5", "CM", "CL", "CR", "CS", "COL", "COM", "PN"}


class TestBudgets:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("MN", {"digits 0-4": (2500, 0.1), "digits 5-9": (2500, 1.0)}),
            ("CM", {n: (500, 0.5 + 0.5 * n) for n in range(10)}),
            ("M5", {n: (500, 0.5 + 0.5 * n) for n in range(10)}),
            ("CL", {n: (500, 6.0 + n) for n in range(10)}),
            ("CF", {"fish": (2500, 1.0), "vehicles_1": (2500, 5.0)}),
            ("CFN", {"fish": (2500, 1.0), "vehicles_1": (2500, 5.0)}),
        ],
    )
    def test_follow_the_class(self, name, expected):
        assert by_owner(SETTINGS[name](TEN)) == expected

    def test_of_the_other_data(self):
        assert by_owner(settings.CA([0, 0, 0, 1, 1, 2])) == {
            "normal": (3, 5.0),
            "pathological": (1, 3.0),
            "suspicious": (2, 4.0),
        }
        assert by_owner(settings.PN([0, 1, 1])) == {"normal": (1, 5.0), "pneumonia": (2, 0.5)}
        assert by_owner(settings.SU(np.arange(18))) == {"Russian": (1, 3.0), "others": (17, 2.0)}
        hundred_owners = settings.CH(np.arange(100))
        np.testing.assert_allclose(hundred_owners.epsilon, np.linspace(1, 10, 100), rtol=1e-12)
        assert hundred_owners.labels == tuple(range(100))

    def test_a_class_without_records_has_no_owner(self):
        assert by_owner(settings.CM([2, 2, 7])) == {2: (2, 1.5), 7: (1, 4.0)}


class TestRandom:
    @pytest.mark.parametrize("name", ["CR", "CS", "COL", "COM", "CFS", "IDP_34_43_23", "PDP_K_PLUS"])
    def test_a_seed_decides(self, name):
        setting = SETTINGS[name]
        assert setting(TEN, seed=3) == setting(TEN, seed=3)
        assert setting(TEN, seed=3) != setting(TEN, seed=4)
        with pytest.raises(ValueError, match="seed must be given"):
            setting(TEN)
        with pytest.raises(ValueError, match="seed must be a whole number >= 0, got -1"):
            setting(TEN, seed=-1)

    def test_cr_deals_the_classes_out(self):
        seen = set()
        for seed in range(20):
            owners = settings.CR(TEN, seed)
            assert owners.epsilon.tolist() == settings.CM(TEN).epsilon.tolist()
            holder = owners.of_record[::500]
            assert sorted(holder) == list(range(10))
            np.testing.assert_array_equal(owners.of_record, holder[TEN])
            np.testing.assert_array_equal(settings.CR.groups([4, 0], seed), holder[[4, 0]])
            seen.add(tuple(holder))
        assert len(seen) == 20

    def test_cs_stays_near_the_mean_of_the_class(self):
        owners = settings.CS(TEN, seed=0)
        assert (owners.n_records, len(owners.labels)) == (5000, 5000)
        off = owners.epsilon[owners.of_record] - (0.5 + 0.5 * TEN)
        assert np.abs(off).max() <= 0.25
        # Kolmogorov-Smirnov at 5,000 uniform draws: above 0.04 once in 10^6 seeds
        assert np.abs(np.sort(off) * 2 + 0.5 - np.linspace(0, 1, 5000)).max() < 0.04

    def test_cfs_is_normal_and_grants_something(self):
        epsilon = settings.CFS(TEN, seed=0).epsilon
        private, other = epsilon[TEN < 5], epsilon[TEN >= 5]
        assert epsilon.min() >= 0.1
        assert private.min() < 0.2  # there are such draws, and they are not piled up at the least
        assert np.unique(epsilon).size == 5000
        # five standard errors, 6e-7 false alarms each; truncation at -1.8 deviations adds 0.041 to the private mean
        assert abs(private.mean() - 1.041) < 0.05
        assert abs(other.mean() - 5) < 0.05
        assert abs(other.std() - 0.5) < 0.036

    @pytest.mark.parametrize(("name", "kept"), [("COL", 450), ("COM", 350)])
    def test_overlaps_are_exact_where_classes_are_equal(self, name, kept):
        owners = SETTINGS[name](TEN, seed=0)
        table = np.zeros((10, 10), dtype=int)
        np.add.at(table, (owners.of_record, TEN), 1)
        assert np.diag(table).tolist() == [kept] * 10
        assert table.sum(axis=1).tolist() == [500] * 10
        away = table[~np.eye(10, dtype=bool)]
        assert away.max() - away.min() <= 1
        assert SETTINGS[name].groups([3, 9]).tolist() == [3, 9]

    @pytest.mark.parametrize(("name", "sizes"), [("IDP_34_43_23", [34, 43, 23]), ("IDP_54_37_9", [54, 37, 9])])
    def test_splits(self, name, sizes):
        owners = SETTINGS[name](TEN, seed=0)
        assert owners.sizes.tolist() == [50 * size for size in sizes]
        assert owners.epsilon.tolist() == [1, 2, 3]
        assert owners == split([size / 100 for size in sizes], [1.0, 2.0, 3.0], 5000, seed=0)
        assert SETTINGS[name].groups([3, 9]).tolist() == ["class 3", "class 9"]

    @pytest.mark.parametrize(("name", "k"), [("PDP_K_MINUS", -0.2), ("PDP_K_0", 0.0), ("PDP_K_PLUS", 0.2)])
    def test_exponential_groups(self, name, k):
        owners = SETTINGS[name](np.zeros(100_000, dtype=int), seed=0)
        assert owners.labels == tuple(range(20))
        np.testing.assert_allclose(owners.epsilon, np.linspace(0.5, 1, 20))
        assert owners.sizes.min() > 100  # as in the paper, even the rarest budget is somebody's
        # an affine function of e^(k epsilon), up to the rounding of sizes
        curve = np.exp(k * owners.epsilon)
        fitted = np.polyval(np.polyfit(curve, owners.sizes, 1), curve) if k else np.full(20, 5000)
        assert np.abs(owners.sizes - fitted).max() <= 1
        assert np.sign(np.diff(owners.sizes)).tolist() == [np.sign(k)] * 19

    @pytest.mark.parametrize(("k", "scale"), [(-0.2, 2.098), (0.2, 1.554)])
    def test_the_constants_of_the_paper_belong_to_eleven_groups(self, k, scale):
        def total(groups):
            return (scale * np.exp(k * np.linspace(0.5, 1, groups)) - 1.715).sum()

        assert abs(total(11) - 1) < 0.01
        assert 1.82 < total(20) < 1.84

    @pytest.mark.parametrize("n", [1, 7, 999])
    def test_sizes_of_a_split_add_up(self, n):
        sizes = split([1 / 3] * 3, [1, 2, 3], n, seed=0).sizes
        assert sizes.sum() == n
        assert np.abs(sizes - n / 3).max() < 1

    @pytest.mark.parametrize(
        ("fractions", "epsilons", "message"),
        [
            ([0.5, 0.4], [1, 2], "must sum to 1"),
            ([0.5, 0.5], [1], "one epsilon each"),
            ([1.5, -0.5], [1, 2], "fractions must be > 0, got -0.5 at position 1"),
        ],
    )
    def test_impossible_splits(self, fractions, epsilons, message):
        with pytest.raises(ValueError, match=message):
            split(fractions, epsilons, 10, seed=0)


class TestPrepare:
    def test_cf_uses_two_categories(self):
        prepared = settings.CF.prepare(hundred())
        assert len(prepared.dataset.y) == 200
        assert prepared.dataset.classes[:6] == ("class1", "class32", "class67", "class73", "class91", "class8")
        np.testing.assert_array_equal(
            prepared.dataset.x[:, 0] % 100, np.array([1, 32, 67, 73, 91, 8, 13, 48, 58, 90])[prepared.dataset.y]
        )
        assert by_owner(prepared.owners) == {"fish": (100, 1.0), "vehicles_1": (100, 5.0)}
        assert prepared.groups.tolist() == ["fish" if y < 5 else "vehicles_1" for y in prepared.dataset.y_test]
        with pytest.raises(ValueError, match="CF needs a data set with the categories fish, vehicles_1"):
            settings.CF.prepare(load("digits"))

    def test_cfn_flips_classes_and_no_owners(self):
        plain, noisy = settings.CF.prepare(hundred()), settings.CFN.prepare(hundred(), seed=5)
        assert noisy.owners == plain.owners
        assert (noisy.dataset.y != plain.dataset.y).sum() == 20
        np.testing.assert_array_equal(noisy.dataset.y_test, plain.dataset.y_test)
        assert set(noisy.dataset.y) == set(range(10))
        flips = settings.CFN.relabel(TEN, seed=0)
        changed = flips != TEN
        assert changed.sum() == 500
        assert np.bincount((flips - TEN)[changed] % 10, minlength=10)[0] == 0
        with pytest.raises(ValueError, match="seed must be given"):
            settings.CFN.prepare(hundred())

    def test_cfs_counts_held_out_records_by_category(self):
        prepared = settings.CFS.prepare(hundred(), seed=0)
        assert len(prepared.owners.labels) == 200
        assert set(prepared.groups) == {"fish", "vehicles_1"}

    def test_ten_digits(self):
        data = load("digits")
        prepared = settings.M5.prepare(data)
        assert prepared.owners.n_records == len(prepared.dataset.y)
        np.testing.assert_array_equal(prepared.groups, data.y_test)
        np.testing.assert_array_equal(prepared.dataset.y, data.y)

    def test_um_thins_the_eights(self):
        data = load("digits")
        prepared = settings.UM.prepare(data, seed=2)
        sizes, before = (np.bincount(y, minlength=10) for y in (prepared.dataset.y, data.y))
        assert np.delete(sizes, 8).tolist() == np.delete(before, 8).tolist()
        assert 2 <= sizes[8] <= 32  # of 140 coins of 1/10: outside once in 10^4 seeds
        np.testing.assert_array_equal(prepared.dataset.y_test, data.y_test)
        np.testing.assert_array_equal(prepared.groups, data.y_test)
        assert by_owner(prepared.owners) == {n: (size, 1.0) for n, size in enumerate(sizes.tolist())}
        with pytest.raises(ValueError, match="seed must be given"):
            settings.UM.prepare(data)

    @hypothesis.settings(max_examples=20)
    @given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.data(), st.integers(0, 5))
    def test_thinning_a_record_is_its_own_business(self, classes, data, seed):
        """Whatever the others are, and however many come after it, a record is kept or is not."""
        place = data.draw(st.integers(0, len(classes) - 1))
        others = data.draw(st.lists(st.integers(0, 9), min_size=place, max_size=40))
        changed = [*others[:place], classes[place], *others[place:]]

        def kept(labels):
            y, x = np.array(labels), np.arange(len(labels))[:, None]
            whole = Dataset(name="d", x=x, y=y, x_test=x.copy(), y_test=y.copy(), classes=tuple("0123456789"))
            return set(settings.UM.thin(whole, seed).x[:, 0].tolist())

        assert (place in kept(classes)) == (place in kept(changed))
        assert {i for i, label in enumerate(classes) if label != 8} <= kept(classes)

    def test_thinning_takes_a_tenth(self):
        eights = np.full(20_000, 8)
        few = eights[:9].copy()
        data = Dataset(name="d", x=eights[:, None], y=eights, x_test=few[:, None], y_test=few, classes=("x",) * 10)
        # six standard deviations: 2e-9 false alarms
        assert abs(len(settings.UM.thin(data, seed=0).y) - 2000) < 6 * np.sqrt(1800)

    def test_refuses_what_it_does_not_know(self):
        with pytest.raises(
            ValueError, match="CA needs a data set of 3 classes such as cardiotocography, digits has 10"
        ):
            settings.CA.prepare(load("digits"))
        with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\), the classes of CA"):
            settings.CA([0, 3])
        with pytest.raises(ValueError, match="one whole number per record, got float64"):
            settings.CA([0.0, 1.0])

    def test_its_owners_can_be_planned_for(self):
        plan = plan_sample(settings.CA([0] * 30 + [1] * 20 + [2] * 10), steps=5, expected_batch=10, clip_norm=1.0)
        assert isinstance(plan, Plan)
        assert plan.sample_rates[0] > plan.sample_rates[1]


@pytest.mark.shared_data
class TestRealCounts:
    def test_mn(self, shared_data):
        prepared = settings.MN.prepare(load("mnist", shared_data))
        assert by_owner(prepared.owners) == {"digits 0-4": (30596, 0.1), "digits 5-9": (29404, 1.0)}
        assert np.unique(prepared.groups, return_counts=True)[1].tolist() == [5139, 4861]

    def test_um(self, shared_data):
        data = load("mnist", shared_data)
        prepared = settings.UM.prepare(data, seed=0)
        sizes = np.bincount(prepared.dataset.y)
        assert np.delete(sizes, 8).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5949]
        assert abs(sizes[8] - 585.1) < 6 * np.sqrt(5851 * 0.09)
        assert len(prepared.groups) == 10_000

    def test_ca(self, shared_data):
        data = load("cardiotocography", shared_data)
        owners = settings.CA(np.concatenate([data.y, data.y_test]))
        assert by_owner(owners) == {"normal": (1655, 5.0), "pathological": (176, 3.0), "suspicious": (295, 4.0)}

    def test_su(self, shared_data):
        data = load("names", shared_data)
        owners = settings.SU(np.concatenate([data.y, data.y_test]))
        assert by_owner(owners) == {"Russian": (9384, 3.0), "others": (10666, 2.0)}

    def test_pn(self, shared_data):
        owners = settings.PN.prepare(load("pneumoniamnist", shared_data)).owners
        assert by_owner(owners) == {"normal": (1214, 5.0), "pneumonia": (3494, 0.5)}
