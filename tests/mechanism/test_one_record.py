"""One record prints nothing: whatever number or text it holds, no statistic warns, and no error shows its size."""

import gzip
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inosgm import (
    INOSGM,
    Ascending,
    AutomaticClipping,
    ClipToShare,
    LinearTail,
    Owners,
    PerSampleAdaptive,
    Plan,
    ScaleClipped,
    Streaming,
    importance_weights,
    ordered_sum,
    statistics,
)
from inosgm.cli.program import main
from inosgm.datasets.tables import within
from inosgm.mechanism.contributions import Cells, Dense
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import labels_at
from inosgm.statistics import PROCEDURES, FederatedAverage, RobustMean, Table, TrimmedMean
from inosgm.statistics.answering import ask
from inosgm.statistics.queries import single
from inosgm.statistics.tables import BadTable
from inosgm.training.batches import as_data

N = 8
HUGE = 1.7976931348623157e308
EXTREMES = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.3e-308, 1e154, 1.4e154, 1e300, HUGE, -HUGE]
NUMBERS = st.one_of(st.sampled_from(EXTREMES), st.floats(allow_nan=False, allow_infinity=False))
ANYTHING = st.one_of(st.sampled_from([*EXTREMES, np.inf, -np.inf, np.nan]), st.floats())
BOUNDS = [(0.0, 1.0), (-1e-300, 1e-300), (1e300, HUGE), (-HUGE, HUGE), (-HUGE, 1e307), (0.0, 1e-323)]
OWNERS = Owners(of_record=["a", "b"] * (N // 2), epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
MANY = 40_000
LONG = "x" * 7_000_000
"""The label of one record. In an array of fixed width, the labels of MANY records take 1.1 TB."""

examples = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def plan(steps=1):
    return Plan(
        sample_rates=[1, 1], sensitivities=[1, 3], sizes=[N // 2] * 2, noise_scale=0.5, steps=steps, labels=["a", "b"]
    )


def columns(low, high, count):
    return {"bounds": [(low, high)] * count}


NUMERIC = {
    "sum": (1, lambda b: {"bounds": b}),
    "mean": (1, lambda b: {"bounds": b}),
    "variance": (1, lambda b: {"bounds": b}),
    "upper-tail-mean": (1, lambda b: {"bounds": b, "level": 0.5}),
    "top-heavy-sum": (1, lambda b: {"bounds": b, "fraction": 0.5}),
    "quantile": (2, lambda b: {"bounds": b, "level": 0.5, "rounds": 2}),
    "histogram": (1, lambda b: {"edges": [b[0], b[1]]}),
    TrimmedMean: (1, lambda b: {"bounds": b, "centre": b[1], "fraction": 0.5}),
    RobustMean: (1, lambda b: {"centre": b[0], "radius": 1e-3, "fraction": 0.5}),
}
SEVERAL = {
    "covariance": (1, lambda b: {"bounds": [b, b]}),
    "pca": (1, lambda b: {"bounds": [b, b]}),
    "regression": (1, lambda b: {"bounds": [b], "target_bounds": b}),
    "trimmed-regression": (2, lambda b: {"bounds": [b], "target_bounds": b, "rounds": 2}),
}


def asked(question, data, parameters, steps, **more):
    procedure = PROCEDURES[question] if isinstance(question, str) else single(question)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ask(procedure, data, OWNERS, plan=plan(steps), key=3, **parameters, **more)


def released(question, parameters, steps, data, *, floats="warn"):
    """Return the sums that a statistic releases, summed with all floating-point warnings as errors."""
    kind = PROCEDURES[question].statistic if isinstance(question, str) else question
    found = kind(plan(steps), OWNERS, key=3, **parameters)
    with warnings.catch_warnings(), np.errstate(all=floats):
        warnings.simplefilter("error")
        found.check(data)
        return [found.release(data).value.tolist() for _ in range(steps)]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("question", NUMERIC)
@examples
@given(values=st.lists(NUMBERS, min_size=N, max_size=N))
def test_a_number_of_any_size_is_clipped_in_silence(question, bounds, values):
    steps, parameters = NUMERIC[question]
    expected = released(question, parameters(bounds), steps, np.array(values))
    assert released(question, parameters(bounds), steps, values) == expected
    assert np.isfinite(expected).all()


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("question", SEVERAL)
@examples
@given(values=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=N, max_size=N))
def test_several_numbers_of_any_size_are_clipped_in_silence(question, bounds, values):
    steps, parameters = SEVERAL[question]
    assert np.isfinite(released(question, parameters(bounds), steps, np.array(values))).all()


@pytest.mark.parametrize("name", [name for name in PROCEDURES if name not in ("count", "share", "group-counts")])
def test_the_attack(name):
    """A common no-data marker among shares: mean, variance, CVaR and others printed an overflow warning."""
    values = np.linspace(0, 1, N)
    values[3] = HUGE
    given = {"upper-tail-mean": {"level": 0.5}, "quantile": {"level": 0.5}}.get(name, {})
    if name in SEVERAL:
        values = np.stack([values, values], axis=1)
        given = {"bounds": [(0, 1)] * (1 if "regression" in name else 2)}
        given |= {"target_bounds": (0, 1)} if "regression" in name else {}
    else:
        given |= {"histogram": {"edges": [0, 0.5, 1]}, "bounds": {}}.get(name, {"bounds": (0, 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(ask(PROCEDURES[name], values, OWNERS, key=3, **given).value).all()


@pytest.mark.parametrize("form", ["list", "float32", "float16", "longdouble", "chunks", "csv", "parquet", "pandas"])
def test_whatever_holds_the_number(tmp_path, form):
    values = [0.25, 0.5, HUGE, -HUGE, 5e-324, -0.0, 1.0, 0.75]
    frame = pd.DataFrame({"x": values})
    more = {"column": "x"} if form in ("csv", "parquet", "pandas") else {}
    if form == "csv":
        frame.to_csv(tmp_path / "x.csv", index=False)
    if form == "parquet":
        pq.write_table(pa.table(frame), tmp_path / "x.parquet", row_group_size=3)
    if form == "longdouble":
        values = np.array(values, dtype=np.longdouble)
        values[2] *= 1000  # which float64 cannot hold
    with warnings.catch_warnings():  # which numpy gives as the array is made here
        warnings.simplefilter("ignore")
        data = {
            "list": values,
            "float32": np.clip(values, -3.4e38, 3.4e38).astype(np.float32),
            "float16": np.clip(values, -65504, 65504).astype(np.float16),
            "longdouble": values,
            "chunks": Table.of(np.array(values, dtype=np.float64), megabytes=1e-9),
            "csv": tmp_path / "x.csv",
            "parquet": Table.of(tmp_path / "x.parquet", "x", megabytes=1e-9) if form == "parquet" else None,
            "pandas": frame,
        }[form]
    if form == "parquet":
        more = {}
    expected = asked("mean", np.clip([0.25, 0.5, 1, 0, 0, 0, 1, 0.75], 0, 1), {"bounds": (0, 1)}, 1)
    assert asked("mean", data, {"bounds": (0, 1)}, 1, **more).value == expected.value


def test_whole_numbers_of_any_size_are_numbers():
    """In a list, one that int64 cannot hold makes numpy take all for something else."""
    expected = asked("mean", [0, 1, 1, 0, 0, 1, 0, 1], {"bounds": (0, 1)}, 1).value
    for large in (2**63, 2**64, 10**30, 10**400):
        assert asked("mean", [0, 1, large, 0, -large, 1, 0, 1], {"bounds": (0, 1)}, 1).value == expected


class Anything(INOSGM):
    """A mechanism whose records are what they contribute, and how important they are."""

    def contributions(self, batch):
        return batch[:, :-1] * 2.0

    def scores(self, batch):
        return batch[:, -1] - 1e308


class AnyStream(Streaming):
    contributions, scores = Anything.contributions, Anything.scores


class AnyStatistic(statistics.Statistic):
    name = "anything"

    def contributions(self, batch):
        return batch[:, :-1] * 2.0

    scores = Anything.scores

    def estimate(self):
        raise NotImplementedError


@pytest.mark.parametrize("kind", [Anything, AnyStream, AnyStatistic])
@pytest.mark.parametrize("width", [1, 2])
@examples
@given(values=st.data())
def test_a_contribution_or_a_score_of_any_size_is_clipped_in_silence(kind, width, values):
    batch = np.array(values.draw(st.lists(st.tuples(*[ANYTHING] * (width + 1)), min_size=N, max_size=N)))
    clippings = (
        [{}]
        if kind is not Anything
        else [
            {"clipping": clipping}
            for clipping in (ScaleClipped(), ClipToShare(), AutomaticClipping(), PerSampleAdaptive())
        ]
    )
    for more in clippings:
        with warnings.catch_warnings(), np.errstate(all="warn"):
            warnings.simplefilter("error")
            made = kind(plan(), OWNERS, tail=LinearTail(5.0), order=Ascending(), key=1, **more)
            assert np.isfinite(made.release(batch).value).all()


@examples
@given(st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), min_size=N, max_size=N))
def test_sums_and_weights_of_anything_are_made_in_silence(values):
    rows, scores = np.array(values)[:, :2], np.array(values)[:, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for some in (rows, rows[:, 0]):
            total = OrderedSum([1.0, 3.0], LinearTail(5.0))
            total.update(some, scores, np.arange(N) % 2, np.arange(N))
            assert np.isfinite(total.exact()).all()
            norms = Dense(some).norms()
            assert norms.shape == (N,)
            Cells(some, np.arange(N) % 3, 3).weighted_sum(np.where(norms < 1e150, 1.0, 0.0))
        importance_weights(scores, 1.0, LinearTail(5.0))
        ordered_sum(np.where(np.abs(rows) < 1e150, rows, 0.0), scores, 1.0, LinearTail(5.0))


@examples
@given(st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), min_size=N, max_size=N), st.sampled_from([1e-50, 1.0, 1e50]))
def test_clients_may_report_anything(values, clip_norm):
    values = np.array(values)
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        server = FederatedAverage(plan(), OWNERS, clip_norm=clip_norm, key=1)
        assert np.isfinite(server.round(values[:, :2], values[:, 2])).all()


def in_form(form, labels, folder):
    """Return labels in some form, and what `ask` has to be told about it."""
    kind = pa.string() if isinstance(labels[0], str) else pa.uint64()
    if form == "csv":
        pd.DataFrame({"x": labels}).to_csv(folder / "x.csv", index=False)
        return folder / "x.csv", {"column": "x"}
    if form == "quoted":
        pd.DataFrame({"x": labels}).to_csv(folder / "x.csv", index=False, quoting=1)
        return Table.of(folder / "x.csv", "x", megabytes=0.05), {}
    if form == "packed":
        pd.DataFrame({"x": labels}).to_csv(folder / "x.csv.gz", index=False)
        return folder / "x.csv.gz", {"column": "x"}
    if form in ("parquet", "dictionary"):
        column = pa.array(labels, type=kind)
        column = column.dictionary_encode() if form == "dictionary" else column
        pq.write_table(pa.table({"x": column}), folder / "x.parquet", row_group_size=max(1, len(labels) // 3))
        return Table.of(folder / "x.parquet", "x", megabytes=1e-9), {}
    return {
        "list": (labels, {}),
        "objects": (np.array(labels, dtype=object), {}),
        "chunks": (Table.of(labels, megabytes=0.01), {}),
        "series": (pd.Series(labels), {}),
        "frame": (pd.DataFrame({"x": labels}), {"column": "x"}),
        "mapping": ({"x": labels}, {"column": "x"}),
        "arrow": (pa.table({"x": pa.array(labels, type=kind)}) if form == "arrow" else None, {"column": "x"}),
    }[form]


FORMS = ["list", "objects", "chunks", "series", "frame", "mapping", "arrow", "csv", "quoted", "packed", "parquet"]


def counted(data, categories, rows, **more):
    """Return counts of groups with hardly any noise."""
    owners = Owners(of_record=["a"] * rows, epsilon=1.0, delta=1e-5)
    quiet = Plan(sample_rates=[1], sensitivities=[1], sizes=[rows], noise_scale=1e-4, steps=1, labels=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ask(PROCEDURES["group-counts"], data, owners, plan=quiet, key=1, categories=categories, **more)
    return found.value.round().astype(int).tolist()


@pytest.mark.parametrize("form", [*FORMS, "dictionary"])
def test_a_label_of_any_length_is_counted_with_the_others(tmp_path, form):
    labels = ["rent", "own", "rent", "free"] * (MANY // 4)
    labels[5] = LONG
    data, more = in_form(form, labels, tmp_path)
    assert counted(data, ["rent", "own"], MANY, **more) == [MANY // 2, MANY // 4 - 1, MANY // 4 + 1]


def test_a_text_among_numbers_does_not_show_its_length(tmp_path):
    values = [0.5] * (MANY - 1) + [LONG]
    owners = Owners(of_record=["a"] * MANY, epsilon=1.0, delta=1e-5)
    pd.DataFrame({"x": values}).to_csv(tmp_path / "x.csv", index=False)
    for data, more in (
        (values, {}),
        (np.array(values, dtype=object), {}),
        (np.array(["1", "text"] * (MANY // 2)), {}),
        ({"x": values}, {"column": "x"}),
        (pd.DataFrame({"x": values}), {"column": "x"}),
        (tmp_path / "x.csv", {"column": "x"}),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            ask(PROCEDURES["mean"], data, owners, bounds=(0, 1), **more)
        assert len(str(error.value)) < 300
        assert "7000000" not in str(error.value)
        assert "<U" not in str(error.value)
    with pytest.raises(TypeError, match=r"values must be whole numbers, as the categories are, got text$"):
        counted(np.array(["1", "text"]), [1, 2], 2)


def test_a_tuple_of_texts_does_not_show_their_lengths():
    """A tuple holds columns; one that was meant as a list of labels is refused."""
    with pytest.raises(TypeError, match=r"columns, got str$"):
        counted(("rent", "own", "rent", LONG), ["rent", "own"], 4)


@examples
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=N, max_size=N))
def test_any_text_is_counted_as_it_is(labels):
    others = [f"{label}\0" for label in labels]  # which an array of fixed width cuts off
    expected = [labels.count(name) for name in dict.fromkeys(labels)] + [0]
    assert counted(labels, list(dict.fromkeys(labels)), N) == expected
    assert counted(pa.table({"x": labels}), list(dict.fromkeys(labels)), N, column="x") == expected
    unknown = [name for name in others if name not in labels]
    if unknown:
        assert counted(labels, [unknown[0]], N) == [0, N]


WHOLE = [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 0]


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(
    "form", ["list", "array", "objects", "scalars", "chunks", "series", "arrow", "parquet", "mapping"]
)
def test_whole_numbers_are_compared_exactly(tmp_path, form, negative):
    """float64, in which int64 and uint64 meet, holds whole numbers up to 2^53."""
    labels = [-1 if negative and form not in ("array", "arrow", "parquet", "mapping") else 1, *WHOLE]
    if form == "array":
        data, more = np.array(labels, dtype=np.uint64), {}
    elif form == "scalars":
        data, more = [np.int64(label) if label < 2**63 else np.uint64(label) for label in labels], {}
    else:
        data, more = in_form(form, labels, tmp_path)
    for name in WHOLE:
        categories = [name, -1] if negative else [name]
        expected = [1, *([labels.count(-1)] if negative else [])]
        assert counted(data, categories, N, **more) == [*expected, N - sum(expected)]


@pytest.mark.parametrize("labels", [[True, 2, 3, 4], [1.0, 2, 3, 4], [1, 2, 3, None], np.array([True, False] * 2)])
def test_what_is_no_whole_number_is_no_label(labels):
    with pytest.raises((TypeError, ValueError), match=r"values must be (whole numbers|labels of the kind)"):
        counted(labels, [1, 2], 4)


@pytest.mark.parametrize("labels", [[2**63, 2**63 + 1, 2**64 - 1], [-1, 2**63, 2**63 + 1], [2**53, 2**53 + 1, 2]])
def test_owners_whose_labels_are_large_are_not_taken_for_others(labels):
    of_record = [labels[0]] * 2 + [labels[1]] * 3 + [labels[2]] * 3
    owners = Owners(of_record=of_record, epsilon=dict(zip(labels, (1.0, 2.0, 3.0), strict=True)), delta=1e-5)
    table = {"owner": of_record, "epsilon": owners.epsilon[owners.of_record], "delta": [1e-5] * 8}
    assert Owners.from_table(table) == owners
    made = Plan(
        sample_rates=[1] * 3,
        sensitivities=[1, 2, 4],
        sizes=owners.sizes,
        noise_scale=1e-4,
        steps=1,
        labels=owners.labels,
    )
    expected = sum({**dict(zip(owners.labels, (1, 2, 4), strict=True))}[label] for label in of_record)
    for form in (owners, of_record, np.array(of_record, dtype=object)):
        mechanism = Total(made, form, key=1)
        assert round(float(mechanism.release(np.full((8, 1), 9.0)).value[0])) == expected
    found = statistics.private_mean(
        {"x": [0.0, 0.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5], "who": [str(label) for label in of_record]},
        owners,
        bounds=(0, 1),
        column="x",
        owner="who",
        plan=made,
        stratified=True,
        key=1,
    )
    assert {label: round(row.value, 1) for label, row in found.by_owner.items()} == dict(
        zip(labels, (0.0, 1.0, 0.5), strict=True)
    )


@pytest.mark.parametrize("labels", [("a", "a\0"), ("a", LONG), (1, 2), (-1, 2**63), (2**63, 2**63 + 1)])
def test_labels_at_places_are_those_labels(labels):
    """An array of text cuts zero bytes off, and has room for the longest label at every place."""
    places = np.arange(MANY) % 2
    found = labels_at(labels, places)
    assert [found[0], found[1], found[MANY - 1]] == [labels[0], labels[1], labels[1]]
    owners = Owners(of_record=found, epsilon=1.0, delta=1e-5)
    assert owners.labels == labels
    assert owners.sizes.tolist() == [MANY // 2] * 2


class Total(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def test_bounds_that_are_one_number_are_refused():
    with pytest.raises(ValueError, match="further apart"):
        statistics.private_mean([0.0] * N, OWNERS, bounds=(0, 5e-324))


def refusal(place, column):
    with pytest.raises(BadTable) as error:
        ask(PROCEDURES["mean"], place, OWNERS, bounds=(0, 1), column=column)
    return str(error.value)


def test_a_first_line_that_is_a_record_is_not_shown(tmp_path):
    place = tmp_path / "x.csv"
    place.write_text("1234.5,rent\n" * N)
    assert "1234.5" not in refusal(place, "wage")
    assert "rent" not in refusal(place, "wage")
    place.write_text("1234.5,1234.5\n" * N)
    assert "1234.5" not in refusal(place, "wage")


@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_a_damaged_file_does_not_show_a_checksum(tmp_path, harm):
    place = tmp_path / "x.csv.gz"
    content = bytearray(gzip.compress(b"x\n" + b"0.5\n" * N))
    content = content[:-6] if harm == "cut" else content[:-8] + b"\0\0\0\0" + content[-4:]
    place.write_bytes(content)
    assert refusal(place, "x") == f"{place} must be a whole gzip file, and is not: copy it again"


def test_a_command_that_runs_out_of_memory_does_not_say_how_much_it_wanted(capsys):
    def fails():
        np.empty(1 << 55)

    with pytest.raises(SystemExit):
        main(fails)
    assert capsys.readouterr().err == "error: there was not enough memory; --debug shows where\n"


def test_what_is_loaded_is_bounded_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert within(np.array([[HUGE], [-HUGE]]), np.array([(0, 1e-3)])).tolist() == [[3], [-3]]


def test_a_text_among_targets_does_not_show_its_length():
    with pytest.raises(TypeError, match="targets must be numbers"):
        as_data((np.zeros((MANY, 1)), [*[0] * (MANY - 1), LONG]))
