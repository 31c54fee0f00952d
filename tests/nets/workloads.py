"""Keyed computations whose results must stay the same, through public names and commands alone.

`EXACT` needs numpy only; `CLOSE` trains torch models. Each entry is a function without arguments that returns things
that `spelled` can write as JSON. None of them looks at a clock, at the operating system's randomness or at a path.
"""

import contextlib
import inspect
import io
import json
import runpy
import sys
import tempfile
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from inspect import signature
from pathlib import Path

import numpy as np

import inosgm
import inosgm.statistics.conditional  # which defines the statistics of groups
from inosgm import (
    INOSGM,
    PLD,
    RDP,
    Ascending,
    AutomaticClipping,
    BetaTail,
    ClipToShare,
    Cost,
    Descending,
    HardTail,
    JobSpec,
    Ledger,
    LinearTail,
    Menu,
    NoTail,
    OrderedSum,
    OwnerFirst,
    Owners,
    PerSampleAdaptive,
    Plan,
    RandomOrder,
    ScaleClipped,
    Statistic,
    StepTail,
    Store,
    Streaming,
    Table,
    TableTail,
    TrainingConfig,
    accounting,
)
from inosgm.datasets import Dataset, load
from inosgm.statistics import PROCEDURES, FederatedAverage

SHOWN = 24
"""Arrays of more numbers are written as a digest."""

KEY = 20_260_317
SIZES = (60, 90, 30)
OWNERS = Owners(
    of_record=np.repeat(["first", "second", "third"], SIZES),
    epsilon={"first": 0.8, "second": 2.0, "third": 6.0},
    delta=1e-5,
)
WHOLE = {"sampling": "without_replacement", "accountant": "rdp-replace-one"}
PLANS = {"steps": 12, "expected_batch": 40.0, "clip_norm": 1.5}


def records(columns=3):
    """Return a score and a row per record; some scores are equal, one is no number, some rows are long."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(sum(SIZES), columns + 1)) * generator.choice([0.1, 1.0, 9.0], size=(sum(SIZES), 1))
    rows[:, 0] = rows[:, 0].round(1)
    rows[7, 0], rows[11, 2] = np.nan, np.inf
    return rows


def halves():
    """Return records that add up without any rounding, on every processor: each has one half, and no score."""
    return np.column_stack([np.zeros(sum(SIZES)), 0.5 * np.eye(3)[np.arange(sum(SIZES)) % 3]])


class Rows(INOSGM):
    """The sum of rows, ordered by the first column."""

    def contributions(self, batch):
        return batch[:, 1:]

    def scores(self, batch):
        return batch[:, 0]


class StreamedRows(Streaming):
    """The same as an exact sum of a stream."""

    contributions, scores = Rows.contributions, Rows.scores


class Spread(Statistic):
    """A statistic of a user's own, in two rounds; it says that it is made in a script, as most are."""

    __module__ = "__main__"
    __qualname__ = "Spread"
    name = "spread"

    def __init__(self, plan, owners=None, *, reach, **options):
        self.reach = float(reach)
        super().__init__(plan, owners, tail=LinearTail(plan.tail_length(0.3)), **options)

    @classmethod
    def rounds_of(cls, **parameters):
        return 2

    def contributions(self, batch):
        return np.clip(np.asarray(batch) / self.reach, -1, 1)

    def scores(self, batch):
        return np.abs(np.asarray(batch))

    def estimate(self):
        return self.estimated(float(self.observed[0]), float(self.observed[1]), "two sums")


NEWER = "variant" in signature(Plan).parameters
"""Whether plans have variants: `bits.py` also runs with revisions in which they had one argument for each method."""


def plan_of(sample_rates=(1.0, 1.0, 1.0), steps=3, **more):
    """Return a plan made by hand."""
    if NEWER and not more.keys().isdisjoint({"menu", "sampling"}):
        from inosgm.planning.variants import GroupSampling

        sampling = more.pop("sampling", "poisson")
        more["variant"] = GroupSampling(choices=more.pop("menu", None), sampling=sampling)
    return Plan(
        sample_rates=sample_rates,
        sensitivities=(0.5, 1.0, 2.5),
        sizes=SIZES,
        noise_scale=4.0,
        steps=steps,
        labels=OWNERS.labels,
        epsilon=(0.8, 2.0, 6.0),
        delta=[1e-5] * 3,
        **{"accountant": "rdp", **more},
    )


def individual(fraction, **asked):
    """Return a plan of individual accounting, in which records with full norms last for a fraction of the steps."""
    name = "full_norm_fraction" if NEWER else "lasting"
    return inosgm.plan_individual(OWNERS, accountant=RDP(), **{name: fraction}, **asked)


def tails(length=40.0):
    """Return a tail of every kind."""
    return {
        "none": NoTail(),
        "linear": LinearTail(length),
        "hard": HardTail(length),
        "step": StepTail([0.8, 0.5, 0.1], step=length / 3),
        "beta": BetaTail(2.0, 1.5, length),
        "table": TableTail([0.0, length / 4, length / 4, length], [1.0, 0.9, 0.6, 0.05]),
        "tabulated": TableTail.of(lambda c: 1 - (c / length) ** 2, length, pieces=16),
    }


ORDERS = {"descending": Descending(), "ascending": Ascending(), "random": RandomOrder(3), "owners": OwnerFirst()}
CLIPPINGS = {
    "scale": ScaleClipped(),
    "share": ClipToShare(),
    "automatic": AutomaticClipping(0.02),
    "adaptive": PerSampleAdaptive(0.2),
}


def released(mechanism, data):
    """Return the releases of a mechanism: values, and what the last one was charged."""
    found = [mechanism.release(data) for _ in range(mechanism.plan.steps)]
    return {"values": [one.value for one in found], "last": found[-1].step, "cost": cost_of(found[-1].cost)}


def cost_of(cost):
    """Return a cost; a job that is named after a key has the same name always."""
    names = ("labels", "sample_rates", "noise_multipliers", "step", "steps", "job", "fingerprint", "note", "unit")
    return {name: getattr(cost, name) for name in names}


def weights():
    data = records()
    costs = np.repeat([0.5, 1.0, 2.5], SIZES)
    return {
        f"{tail} {order}": [
            inosgm.importance_weights(
                data[:, 0], costs, made, order=by, ids=np.arange(len(data)), owners=np.repeat([0.1, 0.7, 3.0], SIZES)
            ),
            inosgm.ordered_sum(data[:, 1:], data[:, 0], costs, made, order=by, ids=np.arange(len(data)), owners=-costs),
        ]
        for tail, made in tails().items()
        for order, by in ORDERS.items()
    }


def tail_integrals():
    grid = np.linspace(0, 60, 13)
    return {name: [tail.length, tail.W(grid), repr(tail)] for name, tail in tails().items()}


def releases():
    """Every tail, order, clipping and sampling, in turn with the defaults of the others."""
    data, some, found = records(), (0.3, 0.5, 0.9), {}
    for name, tail in tails().items():
        found[f"tail {name}"] = released(Rows(plan_of(), OWNERS, tail=tail, key=KEY), data)
        found[f"sampled tail {name}"] = released(Rows(plan_of(some), OWNERS, tail=tail, key=KEY), data)
    for name, order in ORDERS.items():
        found[f"order {name}"] = released(Rows(plan_of(some), OWNERS, tail=LinearTail(40), order=order, key=KEY), data)
    for name, clipping in CLIPPINGS.items():
        options = {"tail": BetaTail(1.0, 2.0, 40.0), "clipping": clipping, "key": KEY}
        found[f"clipping {name}"] = released(Rows(plan_of(some), OWNERS, **options), data)
    whole = plan_of((0.25, 0.5, 1.0), **WHOLE)
    found["without replacement"] = released(Rows(whole, OWNERS, tail=LinearTail(40), key=KEY), data)
    menu = Menu(sample_rates=[[0.1, 0.2, 0.3], [0.2, 0.5, 0.9]], sensitivities=[[0.5, 1.0, 2.5], [0.4, 0.8, 1.5]])
    chosen = plan_of((0.1, 0.2, 0.3), menu=menu)
    found["menu"] = released(Rows(chosen, OWNERS, tail=LinearTail(40), key=KEY), data)
    for name, tail in (("none", NoTail()), ("linear", LinearTail(40))):
        paid = individual(0.5, steps=6, clip_norm=1.0)
        found[f"individual {name}"] = released(Rows(paid, OWNERS, tail=tail, key=KEY), data)
    found["lists of arrays"] = released(_Tree(plan_of(), OWNERS, key=KEY), data)
    return found


class _Tree(Rows):
    """A sum of two arrays of different kinds."""

    def contributions(self, batch):
        return _Pair(batch[:, 1:])


class _Pair:
    """Contributions that come as a dict of arrays."""

    def __init__(self, rows):
        self._rows = np.where(np.isfinite(rows), rows, 0.0)

    def norms(self):
        return np.sqrt((self._rows**2).sum(axis=1))

    def weighted_sum(self, weights):
        total = (np.asarray(weights)[:, None] * self._rows).sum(axis=0)
        return {"first": total[:1], "rest": [total[1:].astype(np.float32)]}


def ordered_sums():
    """Exact sums of streams, as numbers, as bytes and released."""
    data, places, found = records(), np.repeat([0, 1, 2], SIZES), {}
    for name, tail in tails().items():
        for order, by in ORDERS.items():
            total = OrderedSum(plan_of(steps=1), tail, by)
            total.update(data[:100, 1:], data[:100, 0], places[:100], np.arange(100))
            rest = OrderedSum(plan_of(steps=1), tail, by)
            rest.update(data[100:, 1:], data[100:, 0], places[100:], 100)
            total.merge(rest)
            release = total.release(key=KEY)
            found[f"{name} {order}"] = [total.exact(), total.to_bytes(), total.signature, release.value]
            assert OrderedSum.from_bytes(total.to_bytes()) == total
    cells = OrderedSum([0.5, 1.0, 2.5], LinearTail(30.0), cells=3)
    cells.update(data[:, 1], data[:, 2], places, np.arange(len(data)), cells=np.arange(len(data)) % 3)
    found["cells"] = [cells.exact(), cells.to_bytes()]
    sampled = OrderedSum(plan_of((0.3, 0.5, 0.9), steps=1), LinearTail(30.0), secret=bytes(range(16)))
    sampled.update(data[:, 1:], data[:, 0], places, 0)
    with tempfile.TemporaryDirectory() as folder:  # a secret that is given needs a ledger in a file
        release = sampled.release(key=KEY, ledger=Ledger(Path(folder) / "ledger", owners=OWNERS, accountant=RDP()))
    found["coins"] = [sampled.exact(), sampled.to_bytes(), release.value, cost_of(release.cost)]
    return found


def streaming():
    """A streaming mechanism at once, and in parts."""
    data, places, found = records(), np.repeat([0, 1, 2], SIZES), {}
    for order, by in ORDERS.items():
        options = {"tail": BetaTail(2.0, 1.5, 40.0), "order": by, "key": KEY}
        at_once = StreamedRows(plan_of((0.3, 0.5, 0.9)), OWNERS, **options)
        found[order] = released(at_once, data)
        in_parts = StreamedRows(plan_of((0.3, 0.5, 0.9)), **options)
        halves = [in_parts.part(data[some], places[some], some.start or 0) for some in (slice(77), slice(77, None))]
        halves[0].merge(halves[1])
        assert np.array_equal(in_parts.release(halves[0]).value, found[order]["values"][0])
    return found


def plan_values(plan):
    """Return everything about a plan."""
    plans = plan if isinstance(plan, tuple) else (plan,)
    for one in plans:
        assert Plan.from_json(one.to_json()) == one
    return [
        {
            "json": json.loads(one.to_json()),
            "digest": one.digest,
            "unit": one.unit,
            "multipliers": one.noise_multipliers,
            "step_cost": one.step_cost,
            "tail": one.tail_length(0.4),
            "spent": one.spent(),
            "spent half-way": one.spent(one.steps // 2),
            "cost": cost_of(one.cost(job="job", note="note")),
        }
        for one in plans
    ]


def plans():
    """Every planner."""
    batch = {"expected_batch": 40, "steps": 12, "clip_norm": 1.5}
    whole = {"sampling": "without_replacement"}
    made = {
        "uniform": inosgm.plan_uniform(OWNERS, **PLANS),
        "sample": inosgm.plan_sample(OWNERS, **PLANS),
        "scale": inosgm.plan_scale(OWNERS, **PLANS),
        "blend": inosgm.plan_blend(OWNERS, weight=0.3, **PLANS),
        "asc": inosgm.plan_asc(OWNERS, every=3, accountant=RDP(), **PLANS),
        "asc pld": inosgm.plan_asc(OWNERS, every=4, loss_bound=2.0, noise_ratio=9.0, **PLANS),
        "asc published": inosgm.plan_asc(OWNERS, every=3, **batch, **whole),
        "azb": inosgm.plan_chosen_group(OWNERS, every=3, accountant=RDP(), **PLANS),
        "azb proportional": inosgm.plan_chosen_group(OWNERS, every=3, proportional=True, accountant=RDP(), **PLANS),
        "azb weak": inosgm.plan_chosen_group(OWNERS, every=3, weak=True, accountant=RDP(), **PLANS),
        "azb published": inosgm.plan_chosen_group(OWNERS, every=3, **batch, **whole),
        "thresholds": inosgm.plan_thresholds(OWNERS, rounds=2, accountant=RDP(), **PLANS),
        "thresholds adaptive": inosgm.plan_thresholds(OWNERS, rounds=3, waste="adaptive", accountant=RDP(), **PLANS),
        "individual": inosgm.plan_individual(OWNERS, steps=12, clip_norm=1.5),
        "individual rdp": individual(1.0, steps=12, clip_norm=1.5),
        "in turn": inosgm.plan_in_turn(OWNERS, accountant=RDP(), **PLANS),
        "left out": inosgm.plan_left_out(OWNERS, strictest=1, accountant=RDP(), **PLANS),
        "lowered": inosgm.plan_lowered(OWNERS, share=0.5, accountant=RDP(), **PLANS),
        "undersampled": inosgm.plan_undersampled(OWNERS, share=0.4, accountant=RDP(), **PLANS),
    }
    for name in ("uniform", "sample", "scale"):
        made[f"{name} rdp"] = getattr(inosgm, f"plan_{name}")(OWNERS, accountant=RDP(), **PLANS)
    past = [accounting.Segment([0.1, 0.2, 0.3], [4.0, 3.0, 2.0], [3.0, 3.0, 3.0])]
    made["sample with a past"] = inosgm.plan_sample(OWNERS, accountant=RDP(), past=past, **PLANS)
    more = Owners(
        of_record=np.repeat(["first", "second", "third"], SIZES),
        epsilon={"first": 1.0, "second": 2.0, "third": 5.0},
        delta=1e-5,
    )
    made["revised"] = made["scale rdp"].revise(4, more)
    return {name: plan_values(plan) for name, plan in made.items()}


def accountants():
    """What steps cost, and what a budget buys."""
    rates, multipliers = np.array([0.01, 0.2, 1.0]), np.array([0.8, 3.0, 20.0])
    found = {}
    for name, accountant in accounting.ACCOUNTANTS.items():
        found[name] = {
            "epsilon": accounting.epsilon(rates, multipliers, 30, 1e-5, accountant=accountant),
            "multiplier": accounting.noise_multiplier([1.0, 3.0], 1e-5, 0.2, 30, accountant=accountant),
            "rate": accounting.sample_rate([1.0, 3.0], 1e-5, 3.0, 30, accountant=accountant),
            "steps": accounting.steps([1.0, 3.0], 1e-5, 0.2, 3.0, accountant=accountant),
        }
    segments = [
        accounting.Segment(rates, multipliers, np.array([3.0, 4.0, 5.0])),
        accounting.Segment(rates / 2, multipliers, np.array([9.0, 9.0, 9.0])),
    ]
    found["composed"] = {
        name: accounting.composed_epsilon(segments, 1e-5, accountant=accounting.ACCOUNTANTS[name])
        for name in ("pld", "rdp")
    }
    found["names"] = sorted(accounting.ACCOUNTANTS)
    return found


def ledger_rows(path):
    """Return the rows of a ledger file, without its random id, the times, and what chains rows that have times."""
    rows = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
    return [{name: row[name] for name in row if name not in ("time", "ledger", "previous", "checksum")} for row in rows]


def ledgers():
    """A ledger that was charged, bound, granted and undone; on disk and in memory."""
    data, found = records(), {}
    for name, accountant in (("pld", PLD()), ("rdp", RDP())):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger"
            ledger = Ledger(path, owners=OWNERS, accountant=accountant)
            mechanism = Rows(plan_of((0.02, 0.02, 0.03)), OWNERS, tail=LinearTail(4), key=KEY, ledger=ledger, note="a")
            first = mechanism.release(data)
            retried = Rows(plan_of((0.02, 0.02, 0.03)), OWNERS, tail=LinearTail(4), key=KEY, ledger=ledger)
            assert np.array_equal(retried.release(data).value, first.value)
            mechanism.release(data)
            cost = Cost(labels=("third",), sample_rates=[0.5], noise_multipliers=[9.0], steps=4, job="b", step=2)
            ledger.charge(cost, replace(cost, job="c", fingerprint="d", labels=("second",)))
            ledger.undo("b", 3)
            ledger.grant(Owners(of_record=["third"] * 30, epsilon=7.0, delta=1e-5))
            again = Ledger(path, accountant=accountant)
            found[name] = {
                "rows": ledger_rows(path),
                "spent": again.spent(),
                "history": [(one.job, one.fingerprint, one.note, one.spans, one.cost) for one in again.history()],
                "costs": [{**cost_of(one), "job": ""} for one in again.costs()],
                "past": [[one.sample_rate, one.noise_multiplier, one.steps] for one in again.past(OWNERS)],
                "bound": again.bound(f"{again.history()[0].job}"),
            }
    return found


TABLE = {
    "wage": np.random.default_rng(1).gamma(2.0, 300.0, sum(SIZES)).round(2),
    "age": np.random.default_rng(2).integers(18, 70, sum(SIZES)).astype(float),
    "trade": np.random.default_rng(3).choice(["baker", "smith", "tailor", "wright"], sum(SIZES)).tolist(),
    "code": np.random.default_rng(4).integers(0, 5, sum(SIZES)),
    "member": np.random.default_rng(7).integers(0, 2, sum(SIZES)),
    "who": np.random.default_rng(6).permutation(np.repeat(["first", "second", "third"], SIZES)).tolist(),
}
BOUNDS = (0.0, 2000.0)
PAIR = {"bounds": [(18, 70)], "target_bounds": BOUNDS}
QUESTIONS = {
    "sum": ("wage", {"bounds": BOUNDS}),
    "count": ("member", {}),
    "mean": ("wage", {"bounds": BOUNDS}),
    "variance": ("wage", {"bounds": BOUNDS}),
    "upper_tail_mean": ("wage", {"bounds": BOUNDS, "level": 0.8}),
    "top_heavy_sum": ("wage", {"bounds": BOUNDS, "fraction": 0.4}),
    "quantile": ("wage", {"bounds": BOUNDS, "level": 0.5, "rounds": 6}),
    "histogram": ("wage", {"edges": [0.0, 300.0, 900.0, 2000.0]}),
    "group_counts": ("trade", {"categories": ["baker", "smith", "tailor"]}),
    "trimmed_mean": ("wage", {"bounds": BOUNDS, "fraction": 0.2, "rounds": 5}),
    "robust_mean": ("wage", {"bounds": BOUNDS, "rounds": 5}),
    "covariance": (["wage", "age"], {"bounds": [BOUNDS, (18, 70)]}),
    "pca": (["wage", "age"], {"bounds": [BOUNDS, (18, 70)], "components": 1}),
    "regression": (["age", "wage"], PAIR),
    "trimmed_regression": (["age", "wage"], {**PAIR, "rounds": 2}),
}
STRATIFIED = ("sum", "count", "mean", "variance", "histogram", "group_counts")


def columns_of(names):
    """Return columns of the table as an array."""
    return TABLE[names] if isinstance(names, str) else np.stack([TABLE[name] for name in names], axis=1)


def numbers_of(estimate):
    """Return an estimate without what it says in words."""
    return {name: value for name, value in estimate.to_dict().items() if name != "estimand"}


EACH_ONCE = hasattr(Statistic, "each_once")
"""Whether estimates are over all records by default: in earlier revisions they were weighted by budgets."""

ALIKE = {"assume_alike": True} if EACH_ONCE else {}


def estimates():
    """Every question about all records, each counting once; also where budgets differ so much that some are shrunk."""
    found = {}
    unlike = Owners(of_record=TABLE["who"], epsilon={"first": 0.005, "second": 2.0, "third": 6.0}, delta=1e-5)
    for name, (columns, parameters) in QUESTIONS.items():
        asked, of = getattr(inosgm, f"private_{name}"), columns_of(columns)
        found[name] = asked(of, OWNERS, key=KEY, **parameters)
        found[f"{name}, unlike budgets"] = asked(of, unlike, key=KEY, **parameters)
    sampled = inosgm.plan_sample(OWNERS, steps=1, expected_batch=30, clip_norm=1.0)
    found["planned and sampled"] = inosgm.private_mean(TABLE["wage"], OWNERS, plan=sampled, bounds=BOUNDS, key=KEY)
    found["planned uniformly"] = inosgm.private_mean(
        TABLE["wage"], OWNERS, planner=inosgm.plan_uniform, bounds=BOUNDS, key=KEY
    )
    return {name: numbers_of(estimate) for name, estimate in found.items()}


def statistics():
    """Every question with weights by budgets, or by owner, with one key for all: their noise differs all the same."""
    found, always = {}, {"key": KEY}
    for name, (columns, parameters) in QUESTIONS.items():
        asked, of = getattr(inosgm, f"private_{name}"), columns_of(columns)
        table = {"column": columns, "owner": "who", "share": 0.5}
        found[name] = asked(of, OWNERS, **always, **parameters, **ALIKE)
        found[f"{name} of a table"] = asked(TABLE, OWNERS, **table, **always, **parameters, **ALIKE)
        if name in STRATIFIED:
            found[f"{name} stratified"] = asked(of, OWNERS, stratified=True, **always, **parameters)
    codes = {"categories": [0, 1, 2, 3, 4], "other": None}
    found["group counts of numbers"] = inosgm.private_group_counts(TABLE["code"], OWNERS, **always, **codes, **ALIKE)
    always |= {"bounds": BOUNDS, **ALIKE}
    ledger = Ledger(owners=OWNERS)
    found["with a ledger"] = inosgm.private_mean(TABLE["wage"], OWNERS, ledger=ledger, share=0.25, **always)
    found["planned uniformly"] = inosgm.private_mean(TABLE["wage"], OWNERS, planner=inosgm.plan_uniform, **always)
    sampled = inosgm.plan_sample(OWNERS, steps=1, expected_batch=30, clip_norm=1.0)
    found["planned and sampled"] = inosgm.private_mean(TABLE["wage"], OWNERS, plan=sampled, **always)
    found = {name: numbers_of(estimate) for name, estimate in found.items()}
    found["the ledger"] = [ledger.spent(), [one.job for one in ledger.history()]]
    server = FederatedAverage(plan_of(steps=2), OWNERS, clip_norm=2.0, shape=(2.0, 1.0), rounds=2, key=KEY)
    updates = np.nan_to_num(records()[:, 1:], posinf=0.0)
    found["federated"] = [server.round(updates, records()[:, 0]) for _ in range(2)]
    found["names"] = sorted(PROCEDURES)
    return found


def statistic_files():
    """Questions about files, as jobs of a store, which give the bits of memory."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    found = {}
    table = pa.table({name: pa.array(column) for name, column in TABLE.items()})
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "table.csv", Path(folder) / "table.parquet"
        pyarrow.csv.write_csv(table, csv)
        pyarrow.parquet.write_table(table, parquet, row_group_size=50)
        asked = {"mean": csv, "group_counts": csv, "quantile": parquet, "trimmed_mean": parquet, "regression": csv}
        for name, file in asked.items():
            columns, parameters = QUESTIONS[name]
            parameters = {**parameters, **ALIKE}
            at = Table.of(file, columns, "who", megabytes=0.002)
            store = Store(f"memory:/{folder}/{name}")  # which has no disk to wait for
            estimate = inosgm.run_statistic(
                name.replace("_", "-"), at, OWNERS, store=store, key=KEY, share=0.5, progress=False, **parameters
            )
            found[name] = {
                "estimate": numbers_of(estimate),
                "fragments": [fragment.to_dict() for fragment in _placeless(at)],
                "jobs": sorted(spec.kind for spec in store.specs().values()),
                "stages": [_described(spec) for spec in store.specs().values() if spec.kind == "stage"],
                "asked": {
                    name: value
                    for name, value in store.claimed("statistic.json")["asked"].items()
                    if name not in ("code", "data", "key")
                },
            }
        at = Table.of(parquet, "age", "who", megabytes=0.001)
        ledger = Ledger(owners=OWNERS)
        own = inosgm.run_statistic(
            Spread, at, OWNERS, store=Path(folder) / "own", key=KEY, ledger=ledger, progress=False, reach=70, **ALIKE
        )
        found["own"] = [numbers_of(own), ledger.spent(), [one.job for one in ledger.history()]]
    return found


def _placeless(table):
    """Return the fragments of a table with the names of their files only."""
    return [replace(one, file=Path(one.file).name, token="") for one in table.fragments]


def _described(spec):
    """Return a job without what stands for code and data."""
    known = replace(spec, code_version="", data_fingerprint="")
    return {"id": known.id, "seed": known.seed, "json": known.to_json()}


def jobs():
    """What names jobs, and what their seeds are."""
    found = {}
    for index, configuration in enumerate(
        ({}, {"seed": 3, "lr": 0.1}, {"epsilon": {1: 2.0, "1": 3.0}, "list": [1, None, True, "x"]})
    ):
        spec = JobSpec(
            kind="train", configuration=configuration, data_fingerprint="d", code_version="c", index=7 * index
        )
        state = spec.seed_sequence.generate_state(4)
        found[str(index)] = {"id": spec.id, "seed": spec.seed, "state": state, "json": spec.to_json()}
    for name, config in configurations().items():
        found[name] = {
            "key": str(config.noise_key()),
            "identity": config.identity(),
            "yaml": config.to_yaml(),
            "order": repr(config.of_order()),
        }
    return found


LEARNING = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 2}, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 4, "expected_batch": 32, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "seed": 3,
    "key": 1,
}


def configurations():
    """Return configurations that name most keys."""
    changes = {
        "plain": {},
        "mlp": {"model.name": "mlp", "model.options": {"widths": [5]}, "tail": {"kind": "none"}, "order": "random"},
        "asc": {"plan.method": "asc", "plan.steering": {"every": 2, "temperature": 0.5}, "plan.clip_norm": 2.0},
        "blend": {"plan.method": "blend", "plan.weight": 0.5, "clipping": {"kind": "automatic"}},
        "split": {"owners": {"fractions": [0.25, 0.75], "epsilon": [1, 2], "delta": 1e-4}, "data.subset": 200},
        "rounds": {"plan.method": "thresholds", "plan.rounds": {"count": 2, "waste": "adaptive"}},
        "restart": {"plan.method": "thresholds", "plan.rounds": {"count": 2, "restart": True, "weight": 0.2}},
        "step": {"tail": {"kind": "step", "levels": [0.7, 0.2], "fraction": 0.3}, "schedule": {"name": "StepLR"}},
        "beta": {"tail": {"kind": "beta", "alpha": 2, "beta": 1, "fraction": 0.3}, "training.max_physical_batch": 8},
        "setting": {"data.name": "mnist5k", "owners": {"setting": "M5"}, "model.name": "mnist_cnn"},
        "votes": {
            "data.public": 40,
            "plan.method": "ipate_weight",
            "plan.teachers": {"count": 3, "queries": 20},
            "tail": {"kind": "none"},
        },
    }
    return {name: TrainingConfig.from_dict(LEARNING).changed(values) for name, values in changes.items()}


def certificates():
    """Whether mechanisms keep their sensitivity, and what audits of them find."""
    found = {}
    for name, tail in (("linear", LinearTail(6.0)), ("hard", HardTail(6.0))):
        certificate = inosgm.certify(Rows(plan_of(), OWNERS, tail=tail, key=KEY), evaluations=150, seed=1)
        found[name] = _evidence(certificate)
    data = np.nan_to_num(records(), nan=0.0, posinf=9.0)
    on_data = inosgm.certify(Rows(plan_of(), OWNERS, tail=LinearTail(6.0), key=KEY), data, evaluations=60, seed=2)
    found["on data"] = _evidence(on_data)

    def broken(contributions, scores, sensitivities):
        return contributions[np.argsort(-scores, kind="stable")[:2]].sum(axis=0)

    violated = inosgm.certify(broken, evaluations=100, seed=3)
    found["broken"] = _evidence(violated)
    sampled = plan_of((0.3, 0.5, 0.9))
    for name, mechanism in {
        "rows": Rows(sampled, OWNERS, tail=LinearTail(40.0), key=KEY),
        "streamed": StreamedRows(sampled, OWNERS, tail=LinearTail(40.0), key=KEY),
        "without replacement": Rows(plan_of((0.25, 0.5, 1.0), **WHOLE), OWNERS, key=KEY),
    }.items():
        audit = inosgm.audit_mechanism(mechanism, "second", 200, seed=4)
        found[f"audit of {name}"] = [
            audit.epsilon,
            audit.sensitivity,
            audit.contradicts,
            [row.moves for row in audit.rows],
        ]
    return found


def _evidence(certificate):
    """Return a certificate without what it says in words."""
    return {entry.name: getattr(certificate, entry.name) for entry in fields(certificate) if entry.name != "case"}


def datasets():
    """Records that ship with libraries."""
    found = {}
    for name in ("digits", "breast_cancer"):
        data = load(name)
        found[name] = [data.classes, data.categories, data.x, data.y, data.x_test, data.y_test]
    return found


def owners_of_tables():
    """Whose records are whose, read from tables that state that they are in the order of the data."""
    rows = list(zip(TABLE["who"], TABLE["code"].tolist(), strict=True))
    by_record = Owners.from_table({"owner": [who for who, _ in rows], "epsilon": [1.0] * len(rows)}, delta=1e-6)
    sizes = {"owner": ["b", "a"], "epsilon": [2.0, 3.0], "delta": [1e-5, 1e-6], "records": [2, 3]}
    found = {"by record": by_record, "by number": Owners.from_table(sizes, rows_in_order=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "owners.csv"
        path.write_text("owner,epsilon,delta\n" + "".join(f"{who},1.5,1e-5\n" for who, _ in rows))
        found["file"] = Owners.from_csv(path, rows_in_order=True)
    found["share"] = found["by number"].granting(0.5)
    return {name: [one.labels, one.epsilon, one.delta, one.sizes, one.of_record] for name, one in found.items()}


def _synthetic(name, classes, categories=(), shape=(2,)):
    generator = np.random.default_rng(classes)
    y = np.arange(4 * classes) % classes
    return Dataset(
        name=name,
        x=generator.normal(size=(y.size, *shape)).astype(np.float32),
        y=y,
        x_test=generator.normal(size=(classes, *shape)).astype(np.float32),
        y_test=np.arange(classes),
        classes=tuple(f"class {i}" for i in range(classes)),
        categories=categories,
    )


def two_classes(root):
    """Return synthetic records of two classes; the root is not looked at, here and below."""
    return _synthetic("two", 2)


def three_classes(root):
    return _synthetic("three", 3)


def ten_classes(root):
    return _synthetic("ten", 10)


def eighteen_classes(root):
    return _synthetic("eighteen", 18)


def fish_and_vehicles(root):
    return _synthetic("fish", 12, ("fish",) * 5 + ("insects",) * 2 + ("vehicles_1",) * 5)


def hundred_classes(root):
    return _synthetic("hundred", 100)


def digits(root):
    return _synthetic("digits", 3, shape=(1, 28, 28))


def pictures(root):
    return _synthetic("pictures", 3, shape=(3, 32, 32))


def words(root):
    data = _synthetic("words", 3, shape=(6,))
    return replace(data, x=np.abs(data.x * 9).astype(np.int64), x_test=np.abs(data.x_test * 9).astype(np.int64))


MODELS = {
    "logistic_regression": ("three_classes", {}),
    "mlp": ("three_classes", {}),
    "mnist_cnn": ("digits", {}),
    "cifar_cnn": ("pictures", {}),
    "char_lstm": ("words", {"vocabulary": 60}),
}


def models():
    """The parameters that models begin with, by the names that checkpoints and results have for them."""
    return {name: begun_with(name, *about) for name, about in MODELS.items()}


def large_model():
    """The same for a model that takes seconds to look at."""
    return begun_with("resnet18", "pictures", {})


def begun_with(name, data, options):
    """Return shapes and norms of the parameters that a model begins with."""
    config = TrainingConfig.from_dict(
        {
            **LEARNING,
            "data": {"name": f"nets.workloads:{data}"},
            "owners": {"by": "class", "epsilon": 2, "delta": 1e-4},
            "model": {"name": name, "options": options},
            "plan": {**LEARNING["plan"], "steps": 1, "expected_batch": 2},
        }
    )
    state = inosgm.train(config, steps=0).training.trainer.model.state_dict()
    return {name: [list(value.shape), value.double().abs().sum()] for name, value in state.items()}


SETTINGS = {
    "ten_classes": "MN M5 CM CL CR CS COL COM IDP_34_43_23 IDP_54_37_9 UM PDP_K_MINUS PDP_K_0 PDP_K_PLUS",
    "hundred_classes": "CH",
    "fish_and_vehicles": "CF CFS CFN",
    "three_classes": "CA",
    "two_classes": "PN",
    "eighteen_classes": "SU",
}
"""Which settings go with which classes."""


def settings():
    """The owners of every setting of the papers, and the classes that it trains with."""
    found = {}
    for data, names in SETTINGS.items():
        for name in names.split():
            config = TrainingConfig.from_dict(
                {
                    **LEARNING,
                    "data": {"name": f"nets.workloads:{data}"},
                    "owners": {"setting": name},
                    "plan": {**LEARNING["plan"], "method": "uniform", "steps": 1, "expected_batch": 2},
                }
            )
            owners = inosgm.train(config, steps=0).plan.owners
            found[name] = [owners.labels, owners.epsilon, owners.delta, owners.sizes, owners.of_record]
    return found


def command(*words):
    """Run a command as `python -m inosgm` does, and return what it prints."""
    before, out = sys.argv, io.StringIO()
    sys.argv = ["inosgm", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as told:
            runpy.run_module("inosgm", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"inosgm {' '.join(map(str, words))} ended with {end.code}: {told.getvalue()}") from None
    finally:
        sys.argv = before
    return out.getvalue()


def commands():
    """What commands print as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        names = ("wage", "member", "who")
        lines = [",".join(map(str, row)) for row in zip(*(TABLE[name] for name in names), strict=True)]
        (place / "wages.csv").write_text("\n".join([",".join(names), *lines, ""]))
        granted = zip(OWNERS.labels, OWNERS.epsilon.tolist(), OWNERS.sizes.tolist(), strict=True)
        lines = [f"{label},{epsilon},1e-5,{size}" for label, epsilon, size in granted]
        (place / "owners.csv").write_text("\n".join(["owner,epsilon,delta,records", *lines, ""]))
        budget = ("--steps", "8", "--expected-batch", "30", "--accountant", "rdp")
        whose = ("--owner-column", "who", "--budgets", place / "owners.csv", "--key", KEY, "--json")
        about, alike = (place / "wages.csv",), ("--assume-alike",) if EACH_ONCE else ()
        mean = ("--column", "wage", "--bounds", "0", "2000", "--share", "0.5")
        command("plan", place / "owners.csv", *budget, "--output", place / "plan.json")
        known = {
            "plan": json.loads(command("plan", place / "owners.csv", *budget, "--json", "--method", "scale")),
            "plan file": json.loads((place / "plan.json").read_text()),
            "mean": json.loads(command("stats", "mean", place / "wages.csv", *mean, *whose, *alike)),
            **({"overall mean": json.loads(command("stats", "mean", *about, *mean, *whose))} if EACH_ONCE else {}),
        }
        count = command("stats", "count", *about, "--column", "member", "--ledger", place / "l", *whose, *alike)
        known["count"] = json.loads(count)
        shown = json.loads(command("ledger", "show", place / "l", "--json"))
        known["ledger"] = [shown["unit"], [[row["owner"], row["spent"]] for row in shown["owners"]]]
        for answer in {"mean", "overall mean", "count"} & set(known):
            known[answer] = {
                name: value for name, value in known[answer].items() if name not in ("estimand", "table", "store")
            }
        return known


def names_in_files():
    """The words that files and digests have for what a run is made with."""
    asc = inosgm.plan_asc(OWNERS, every=3, accountant=RDP(), **PLANS)
    group = inosgm.plan_chosen_group(OWNERS, every=3, accountant=RDP(), **PLANS)
    return {
        "tails": [repr(tail) for tail in tails().values()],
        "orders": [repr(order) for order in ORDERS.values()],
        "clippings": [repr(clipping) for clipping in CLIPPINGS.values()],
        "steering": [
            repr(inosgm.AdaptiveShares(asc, every=3, temperature=0.5)),
            repr(inosgm.ChosenGroup(group, every=3, temperature=0.5)),
        ],
        "questions": {name: sorted(procedure.parameters) for name, procedure in PROCEDURES.items()},
        "keys of statistics": sorted(_key_names(Statistic)),
    }


def _key_names(kind):
    """Yield what stands for the statistics of the package in their keys; before there were names, that was the path."""
    for one in kind.__subclasses__():
        if one.__module__.startswith("inosgm.") and not inspect.isabstract(one):
            yield getattr(one, "key_name", f"{one.__module__}.{one.__qualname__}")
        yield from _key_names(one)


EXACT = {
    "weights": weights,
    "tail integrals": tail_integrals,
    "releases": releases,
    "ordered sums": ordered_sums,
    "streaming": streaming,
    "plans": plans,
    "accountants": accountants,
    "ledgers": ledgers,
    "statistics": statistics,
    **({"estimates": estimates} if EACH_ONCE else {}),
    "statistics of files": statistic_files,
    "jobs": jobs,
    "certificates and audits": certificates,
    "data sets": datasets,
    "owners of tables": owners_of_tables,
    "settings": settings,
    "commands": commands,
    "names in files": names_in_files,
}


def classified(count, seed):
    """Return records of three classes."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = generator.normal(size=(count, 4)) + 0.8 * np.eye(3, 4)[y]
    return x.astype(np.float32), y


def begun(model, seed=9):
    """Give a model the parameters that numpy draws."""
    import torch

    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(generator.normal(scale=0.4, size=tuple(parameter.shape))))
    return model


def trained(plan, *, hidden=0, dropout=0.0, optimizer="SGD", lr=0.5, decay=None, run=None, **options):
    """Train a small model with a key, and return what it has come to."""
    import torch
    from torch import nn

    x, y = classified(sum(SIZES), seed=8)
    layers = [nn.Linear(4, 3)]
    if hidden:
        chance = [nn.Dropout(dropout)] if dropout else []
        layers = [nn.Linear(4, hidden), nn.Tanh(), *chance, nn.LayerNorm(hidden), nn.Linear(hidden, 3)]
    model = begun(nn.Sequential(*layers))
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=lr)
    if decay is not None:
        options["schedule"] = torch.optim.lr_scheduler.StepLR(steps, decay, 0.5)
    trainer = inosgm.Trainer(plan, model, nn.CrossEntropyLoss(), steps, owners=OWNERS, key=KEY, **options)
    held_out = (*classified(36, seed=10), np.repeat(OWNERS.labels, 12))
    curve = trainer.fit(x, y, held_out=held_out, evaluate_every=99, progress=False, run=run)
    return {
        "parameters": list(model.state_dict().values()),
        "curve": json.loads(curve.to_json()),
        "spent": trainer.spent(),
        "steps": trainer.steps_done,
    }


def trainers():
    """Models that are trained with every kind of plan, order, clipping and micro-batches."""
    sample = inosgm.plan_sample(OWNERS, accountant=RDP(), **{**PLANS, "steps": 5})
    tail = {"tail": LinearTail(sample.tail_length(0.4))}
    found = {
        "logistic": trained(sample),
        "logistic with a tail": trained(sample, **tail),
        "mlp": trained(sample, hidden=5, **tail, decay=2),
        "mlp in micro-batches": trained(sample, hidden=5, **tail, decay=2, max_physical_batch=7),
        "mlp with dropout": trained(sample, hidden=5, dropout=0.3, **tail),
        "mlp with dropout in micro-batches": trained(sample, hidden=5, dropout=0.3, **tail, max_physical_batch=7),
        "adam": trained(sample, hidden=4, optimizer="Adam", lr=0.1, **tail),
        "scored": trained(sample, **tail, score=lambda outputs, targets, losses: -losses),
        "beta tail for each plan": trained(sample, tail=lambda plan: BetaTail(2, 1, plan.tail_length(0.3))),
    }
    for name, order in ORDERS.items():
        found[f"order {name}"] = trained(sample, **tail, order=order)
    for name, clipping in CLIPPINGS.items():
        found[f"clipping {name}"] = trained(sample, **tail, clipping=clipping)
    how = {**PLANS, "steps": 6, "accountant": RDP()}
    asc, group = inosgm.plan_asc(OWNERS, every=2, **how), inosgm.plan_chosen_group(OWNERS, every=2, **how)
    published = inosgm.plan_asc(
        OWNERS, every=3, steps=6, expected_batch=40, clip_norm=1.5, sampling="without_replacement"
    )
    steered = {"every": 2, "temperature": 0.7}
    for name, plan, steering in (
        ("asc", asc, inosgm.AdaptiveShares(asc, **steered)),
        ("azb", group, inosgm.ChosenGroup(group, **steered)),
        ("asc published", published, inosgm.AdaptiveShares(published, **{**steered, "every": 3})),
    ):
        found[name] = trained(plan, **tail, steering=steering)
        found[name]["state"] = steering.state()
    rounds = inosgm.Course(inosgm.plan_thresholds(OWNERS, rounds=2, **how))
    found["thresholds"] = trained(rounds, **tail)
    found["in turn"] = trained(inosgm.Course(inosgm.plan_in_turn(OWNERS, **how)))
    found["individual"] = trained(inosgm.plan_individual(OWNERS, steps=5, clip_norm=1.0, accountant=RDP()), **tail)
    with tempfile.TemporaryDirectory() as folder:
        found["in a run"] = trained(sample, **tail, run=Path(folder) / "run")
        rows = [json.loads(line) for line in (Path(folder) / "run" / "log.jsonl").read_bytes().splitlines()]
        found["in a run"]["log"] = [{name: row[name] for name in row if name != "time"} for row in rows]
        found["in a run"]["bits of its ledger"] = ledger_rows(Path(folder) / "run" / "ledger")
    return found


def runs():
    """Runs from configurations: one, many seeds, several methods, teachers and their student."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("plain", "mlp", "asc", "split", "rounds", "restart", "beta"):
            result = inosgm.train(configurations()[name])
            state = result.training.trainer.model.state_dict()
            found[name] = [result.to_dict(), {name: value.double().sum() for name, value in state.items()}]
        config = TrainingConfig.from_dict({**LEARNING, "run": str(Path(folder) / "run")})
        inosgm.train(config, steps=2)
        inosgm.revise(config, {"benign": 6.0, "malignant": 2.5})
        revised = inosgm.train(config)
        found["revised"] = [revised.to_dict(), revised.plan.noise_scale]
        for name in ("plain", "votes"):
            store = Store(f"memory:/{folder}/{name}")
            inosgm.train_seeds(configurations()[name], 2, store=store, progress=False)
            specs = store.specs()
            states = store.states()
            jobs = sorted(map(_described, specs.values()), key=lambda job: job["id"])
            done = [store.result(job) for job, spec in specs.items() if spec.kind == "train"]
            found[f"seeds of {name}"] = {
                "jobs": [(job["id"], job["seed"]) for job in jobs],
                "first": jobs[0],
                "results": [
                    [one.values["evaluation"], one.values["log"][-1], list(one.arrays.values())] for one in done
                ],
                "charged": [
                    {**cost_of(cost), "job": "", "note": ""}
                    for job in specs
                    if states[job].charged
                    for cost in store.charged(job)
                ],
            }
        methods = ["dp-sgd", "idp-sgd", "ino-sgd"]
        compared = inosgm.compare(configurations()["plain"], methods, seeds=2, progress=False)
        found["compared"] = compared.to_dict()
    return found


def shadows():
    """Scores of shadow models that are trained as one, and one by one."""
    found = {}
    for name, runs, changes in (("stacked", 100, {}), ("one by one", 0, {"optimizer.name": "ASGD"})):
        changed = {"data.subset": 60, "plan.expected_batch": 12, **changes}
        audit = inosgm.lira(configurations()["plain"].changed(changed), 3, seed=5, runs=runs, progress=False)
        found[name] = {
            "scores": audit.shadows.scores[:, ::4],
            "members": audit.shadows.members.astype(int).sum(axis=1),
            "owners": audit.shadows.owners,
            "mechanisms": [[one.owner, one.epsilon, one.sensitivity] for one in audit.mechanisms],
        }
    return found


def shared_randomness():
    """A model with a mask that records share, in micro-batches: one mask for the whole batch."""
    import torch
    from torch import nn

    class Masked(nn.Module):
        """A linear model whose inputs are masked, all alike."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            mask = torch.bernoulli(torch.full((1, 4), 0.6)) if self.training else torch.full((1, 4), 0.6)
            return self.linear(x * mask)

    x, y = classified(sum(SIZES), seed=8)
    plan = inosgm.plan_sample(OWNERS, accountant=RDP(), **{**PLANS, "steps": 4})
    found = []
    for most in (None, 7):
        model = begun(Masked())
        steps = torch.optim.SGD(model.parameters(), lr=0.5)
        options = {"owners": OWNERS, "key": KEY, "max_physical_batch": most, "tail": LinearTail(9.0)}
        inosgm.Trainer(plan, model, nn.CrossEntropyLoss(), steps, **options).fit(x, y, progress=False)
        found.append(list(model.state_dict().values()))
    return found


CLOSE = {
    "trainers": trainers,
    "runs": runs,
    "models": models,
    "shadow models": shadows,
    "shared randomness": shared_randomness,
}

SLOW = {"large model": large_model}
"""What only `bits.py` looks at."""

SINCE = {
    "shared randomness": "a mask that records share is drawn once for a logical batch since d5254b2",
    "owners of tables": "files must state that they are in the order of the data since 45f1e00",
}
"""What the code of 76c85f1 cannot give: issue 18 has changed the result, or how it is asked for. Main has made them."""


def arithmetic():
    """Return what stands for the floating-point arithmetic of this machine: its libraries differ in the last bit.

    numpy and OpenBLAS choose kernels by the processor. Plans are made of such numbers, and keys of statistics are made
    of plans, so a last bit decides all noise of a statistic.
    """
    from scipy import fft, special

    x = np.random.default_rng(0).uniform(0.01, 3.0, 997)
    matrix = x[:900].reshape(30, 30)
    results = [
        *(function(x) for function in (np.exp, np.expm1, np.log, np.log1p, np.tanh, np.sqrt, np.cosh, np.log2)),
        x**1.7,
        np.array([x.sum(), np.linalg.norm(x), x @ x, np.logaddexp.reduce(x)]),
        *(matrix @ matrix, matrix.T @ x[:30], x[:30] @ matrix[:, :3], np.einsum("ij,ij->i", matrix, matrix)),
        *(function(x) for function in (special.ndtr, special.log_ndtr, special.gammaln, special.erfcx)),
        *(special.betainc(2.0, 1.5, x / 3.0), special.ndtri(x / 3.01), special.xlogy(x, x)),
        fft.irfft(fft.rfft(x) ** 5),
        np.linalg.solve(matrix, x[:30]),
        np.linalg.eigvalsh(matrix + matrix.T),
    ]
    return sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in results)).hexdigest()


def spelled(value, shown=SHOWN):
    """Return a value as JSON has it, exactly: floats by their shortest text, long arrays and bytes by a digest."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: spelled(getattr(value, entry.name), shown) for entry in fields(value)}
    if isinstance(value, dict):
        return {str(name): spelled(part, shown) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(part, shown) for part in value]
    if isinstance(value, bytes):
        return f"sha256 {sha256(value).hexdigest()} of {len(value)} bytes"
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.size > shown and value.dtype.kind != "O":
            content = np.ascontiguousarray(value).tobytes()
            return f"sha256 {sha256(content).hexdigest()} of {value.dtype.str} {list(value.shape)}"
        return [value.dtype.str, list(value.shape), value.ravel().tolist()]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"there is no way to write {value!r}")
