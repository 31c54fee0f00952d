import gzip
import os
import pickle
import sys

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from inosgm import Owners
from inosgm.statistics import private_mean
from inosgm.statistics.files.columns import LEAVE_OUT
from inosgm.statistics.tables import LABELS, NUMBERS, BadTable, Table

ROWS = 300
CLINICS = np.array(["a", "b", "c"])


def frame(rows=ROWS):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "wage": np.round(rng.lognormal(size=rows), 4),
            "age": rng.integers(18, 90, size=rows),
            "smokes": rng.random(rows) < 0.3,
            "town": rng.choice(["Ulm", "New York", "São Paulo"], size=rows),
            "clinic": rng.choice(CLINICS, size=rows),
        }
    )


def owners_of(table):
    return Owners(of_record=table["clinic"].tolist(), epsilon=1.0, delta=1e-5)


def joined(table, owners, form=NUMBERS):
    """All values, owners and numbers, in the order in which they are read."""
    batches = list(table.batches(owners, form))
    ids = [batch.first_id + np.arange(len(batch.values)) for batch in batches]
    return tuple(map(np.concatenate, ([b.values for b in batches], [b.owners for b in batches], ids)))


def as_csv(path, table=None, **more):
    (frame() if table is None else table).to_csv(path, index=False, **more)
    return path


def as_parquet(path, table=None, row_group_size=40):
    pq.write_table(pa.Table.from_pandas(frame() if table is None else table), path, row_group_size=row_group_size)
    return path


def as_packed(path):
    path = path.with_name(path.name + ".csv.gz")
    path.write_bytes(gzip.compress(frame().to_csv(index=False).encode()))
    return path


def as_directory(path):
    path.mkdir()
    as_parquet(path / "1.parquet", frame().iloc[:90])
    as_csv(path / "2.csv", frame().iloc[90:200])
    (path / "deeper").mkdir()
    as_parquet(path / "deeper" / "3.pq", frame().iloc[200:])
    (path / "_SUCCESS").touch()
    (path / ".hidden.csv").write_text("nothing")
    return path


def as_pattern(path):
    path.mkdir()
    for part in range(3):
        as_csv(path / f"part-{part}.csv", frame().iloc[100 * part : 100 * part + 100])
    (path / "readme.txt").write_text("not a table")
    return str(path / "part-*.csv")


def in_memory_of_fsspec(path):
    place = f"memory://{path.name}/x.parquet"
    with fsspec.open(place, "wb") as file:
        as_parquet(file)
    return place


FORMS = {
    "pandas": lambda path: frame(),
    "arrow": lambda path: pa.Table.from_pandas(frame()),
    "batch": lambda path: pa.RecordBatch.from_pandas(frame()),
    "mapping": lambda path: {name: frame()[name].tolist() for name in frame()},
    "categories": lambda path: frame().astype({"clinic": "category", "town": "category"}),
    "chunks": lambda path: pa.concat_tables([pa.Table.from_pandas(frame().iloc[:7]), pa.table(frame().iloc[7:])]),
    "csv": lambda path: as_csv(path.with_suffix(".csv")),
    "windows": lambda path: as_csv(path.with_suffix(".csv"), lineterminator="\r\n", encoding="utf-8-sig"),
    "quotes": lambda path: as_csv(path.with_suffix(".csv"), quoting=1),
    "packed": as_packed,
    "parquet": lambda path: as_parquet(path.with_suffix(".parquet")),
    "directory": as_directory,
    "pattern": as_pattern,
    "uri": in_memory_of_fsspec,
}


@pytest.fixture(params=FORMS)
def data(request, tmp_path):
    return FORMS[request.param](tmp_path / "table")


@pytest.mark.parametrize("megabytes", [64, 0.001])
def test_whatever_holds_it_a_table_is_the_same(data, megabytes):
    whole = frame()
    owners = owners_of(whole)
    table = Table.of(data, "wage", "clinic", megabytes=megabytes)
    assert table.rows == ROWS
    assert [piece.first_id for piece in table.fragments] == list(
        np.cumsum([0, *[piece.rows for piece in table.fragments]])[:-1]
    )
    values, holders, ids = joined(table, owners)
    assert values.dtype == np.float64
    assert np.array_equal(values, whole["wage"])
    assert np.array_equal(holders, owners.of_record)
    assert np.array_equal(ids, np.arange(ROWS))


def test_several_columns_are_rows_and_booleans_are_numbers(data):
    whole = frame()
    values, holders, _ = joined(Table.of(data, ["age", "smokes", "wage"]), owners_of(whole))
    assert np.array_equal(values, whole[["age", "smokes", "wage"]].to_numpy(np.float64))
    assert np.array_equal(holders, owners_of(whole).of_record)  # record by record


def test_labels_are_text(data):
    whole = frame()
    values, _, _ = joined(Table.of(data, "town", "clinic"), owners_of(whole), LABELS)
    assert values.tolist() == whole["town"].tolist()


@pytest.mark.parametrize("values", [np.arange(6.0), list(range(6)), torch.arange(6), np.arange(6) > 2])
def test_arrays_have_no_columns(values):
    owners = Owners(of_record=list("abcabc"), epsilon=1.0, delta=1e-5)
    found, holders, ids = joined(Table.of(values), owners)
    assert found.tolist() == [float(value) for value in values]
    assert holders.tolist() == [0, 1, 2, 0, 1, 2]
    assert ids.tolist() == list(range(6))
    assert joined(Table.of(np.arange(12.0).reshape(6, 2)), owners)[0].shape == (6, 2)
    assert joined(Table.of(list("xyzxyz")), owners, LABELS)[0].tolist() == list("xyzxyz")


def test_labels_of_owners_are_whole_numbers_in_files_too(tmp_path):
    whole = frame().assign(clinic=np.arange(ROWS) % 7)
    owners = owners_of(whole)
    for place in (as_csv(tmp_path / "x.csv", whole), as_parquet(tmp_path / "x.parquet", whole)):
        assert np.array_equal(joined(Table.of(place, "wage", "clinic"), owners)[1], owners.of_record)


def test_a_table_of_files_can_be_sent(tmp_path):
    table = Table.of(as_directory(tmp_path / "table"), "wage", "clinic", megabytes=0.001)
    other = pickle.loads(pickle.dumps(table))
    assert other.fragments == table.fragments
    assert list(other.parts()) == list(table.parts())
    assert np.array_equal(joined(other, owners_of(frame()))[0], frame()["wage"])


def test_what_stands_for_data_changes_with_it(tmp_path):
    def parts(data, columns="wage"):
        return [bytes(memoryview(part)) for part in Table.of(data, columns).parts()]

    changed = frame()
    changed.loc[5, "wage"] += 1
    assert parts(frame()) == parts(frame())
    assert parts(frame()) != parts(changed)
    assert parts(frame()) != parts(frame(), "age")
    assert next(Table.of(np.arange(4)).parts()) != next(Table.of(np.arange(4.0)).parts())
    place = as_csv(tmp_path / "x.csv")
    before = parts(place)
    os.utime(place, ns=(1, 1))
    assert parts(place) != before


class TestRefusals:
    """Whatever is wrong is said with its place, and no value of a record is shown."""

    def refusal(self, data, columns="wage", owner="clinic", form=NUMBERS, owners=None):
        def read():
            table = Table.of(data, columns, owner, megabytes=0.001)
            table.check(owners or owners_of(frame()))
            joined(table, owners or owners_of(frame()), form)

        with pytest.raises((BadTable, TypeError)) as caught:
            read()
        assert "777" not in str(caught.value).replace(str(data), "")
        around = sys.exc_info()[1]  # pytest may run a test while it handles a StopIteration of its own
        assert caught.value.__suppress_context__ or caught.value.__context__ is around
        return str(caught.value)

    @pytest.mark.parametrize("kind", ["pandas", "csv", "parquet"])
    @pytest.mark.parametrize(
        ("column", "value", "what"),
        [
            ("wage", np.nan, "column 'wage' has a missing value"),
            ("wage", None, "column 'wage' has a missing value"),
            ("wage", np.inf, "column 'wage' has an infinite value"),
            ("wage", -np.inf, "column 'wage' has an infinite value"),
            ("clinic", None, "column 'clinic' has a missing value"),
            ("clinic", "d777", "column 'clinic' names an owner that `owners` do not have"),
        ],
    )
    def test_values(self, tmp_path, kind, column, value, what):
        bad = frame()
        bad.loc[123, column] = value
        place = {"pandas": lambda: bad, "csv": lambda: as_csv(tmp_path / "x.csv", bad)}.get(
            kind, lambda: as_parquet(tmp_path / "x.parquet", bad)
        )()
        where = "position 123" if kind == "pandas" else f"row 124 of {place}"
        remedy = LEAVE_OUT if what == "column 'wage' has a missing value" else ""  # an owner cannot be missing
        assert self.refusal(place) == f"{what} at {where}{remedy}"

    @pytest.mark.parametrize("text", ["x777", "7 777", "NA", "1,777", "2024-01-01", "0x777", "7_77"])
    def test_text_among_numbers(self, tmp_path, text):
        bad = frame().astype({"wage": object})
        bad.loc[123, "wage"] = text
        place = as_csv(tmp_path / "x.csv", bad)
        assert self.refusal(place) == f"column 'wage' must hold numbers, got something else at row 124 of {place}"
        assert "column 'wage' must hold values of one kind" in self.refusal(bad)

    def test_kinds(self, tmp_path):
        place = as_parquet(tmp_path / "x.parquet")
        assert self.refusal(place, "town").startswith("column 'town' must hold numbers, got large_string")
        assert self.refusal(frame(), "town").startswith("column 'town' must hold numbers, got")
        assert "must hold labels" in self.refusal(frame(), "wage", form=LABELS)
        days = frame().assign(wage=pd.Timestamp("2024-01-01"))
        assert "must hold numbers, got timestamp" in self.refusal(days)
        assert self.refusal(np.array(["x"] * ROWS), None, None) == "data must be numbers, got text at position 0"
        assert "position 1" in self.refusal(np.array([1.0, np.nan] * (ROWS // 2)), None, None)
        assert "type object" in self.refusal([object()], None, None)

    def test_empty_labels(self, tmp_path):
        bad = frame()
        bad.loc[9, "town"] = ""
        assert self.refusal(bad, "town", form=LABELS) == f"column 'town' has a missing value at position 9{LEAVE_OUT}"
        place = as_csv(tmp_path / "x.csv", bad)
        assert "missing value at row 10" in self.refusal(place, "town", form=LABELS)

    def test_columns(self, tmp_path):
        for place in (frame(), as_csv(tmp_path / "x.csv"), as_parquet(tmp_path / "x.parquet")):
            words = self.refusal(place, "wages")
            assert (
                "has no column 'wages', its columns are 'wage', 'age', 'smokes', 'town', 'clinic': did you mean 'wage'?"
                in words
            )
            assert "has no column 'owner'" in self.refusal(place, owner="owner")
        folder = as_directory(tmp_path / "folder")
        as_csv(folder / "2.csv", frame().iloc[90:200].drop(columns="wage"))
        assert "2.csv has no column 'wage'" in self.refusal(folder)
        assert "columns must name" in self.refusal(frame(), None)
        assert "an array has none" in self.refusal(np.arange(3.0), "wage")

    def test_numbers_of_rows(self):
        words = self.refusal(frame().iloc[:299])
        assert words.startswith("the table must have a row per record of its owners, got 299 rows for 300 records: ")
        assert "entry per record" in self.refusal({"wage": [1.0], "clinic": ["a", "b"]})

    def test_empty_tables(self, tmp_path):
        assert "at least one row" in self.refusal(frame().iloc[:0])
        assert "at least one row" in self.refusal(as_csv(tmp_path / "x.csv", frame().iloc[:0]))
        assert "at least one row" in self.refusal(as_parquet(tmp_path / "x.parquet", frame().iloc[:0]))
        (tmp_path / "y.csv").touch()
        assert "y.csv is empty" in self.refusal(tmp_path / "y.csv")

    def test_places(self, tmp_path):
        assert "there is no table at" in self.refusal(tmp_path / "nothing.csv")
        (tmp_path / "notes.txt").write_text("x")
        assert "there is no table at" in self.refusal(tmp_path)
        assert "notes.txt must be named .parquet" in self.refusal(tmp_path / "notes.txt")
        (tmp_path / "x.parquet").write_text("x777")
        assert "x.parquet is not a Parquet file" in self.refusal(tmp_path / "x.parquet")

    def test_lines(self, tmp_path):
        place = tmp_path / "x.csv"
        place.write_text("wage,clinic\n1,a\n777\n2,b\n")
        owners = Owners(of_record=list("aab"), epsilon=1.0, delta=1e-5)
        assert self.refusal(place, owners=owners) == (
            f"row 2 of {place} must have as many fields as the first line names columns, 2, got another number"
        )
        place.write_text("wage,wage,clinic\n1,2,a\n")
        assert "names the column 'wage' twice" in self.refusal(place)
        place.write_text('wage,note\n1,a\n2,b"777\n3,a\n4,b\n')
        two = Owners(of_record=list("ab"), epsilon=1.0, delta=1e-5)
        assert "are its quotation marks in pairs" in self.refusal(place, owner=None, owners=two)

    def test_a_file_that_changes(self, tmp_path):
        place = as_csv(tmp_path / "x.csv")
        table, owners = Table.of(place, "wage", "clinic", megabytes=0.001), owners_of(frame())
        reading = table.batches(owners)
        next(reading)
        as_csv(place, frame().assign(wage=777.0))
        with pytest.raises(BadTable, match=r"x.csv has changed since the table was looked at"):
            list(reading)
        with pytest.raises(BadTable, match=r"x.csv has changed"):
            next(table.read(table.fragments[0], owners))
        place.unlink()
        with pytest.raises(BadTable, match=r"x.csv cannot be read here: No such file"):
            next(table.read(table.fragments[0], owners))


class ArrowStream:
    """A table of a library that nobody has heard of: columns, and Arrow's stream."""

    def __init__(self, table):
        self._table, self.columns = table, table.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("library", ["polars", "polars lazy columns", "duckdb", "any"])
def test_tables_of_other_libraries_give_the_same_bits(library):
    whole, owners = frame(), owners_of(frame())
    arrow = pa.Table.from_pandas(whole)
    if library == "any":
        data = ArrowStream(arrow)
    elif library == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            data = connection.sql("SELECT * FROM arrow WHERE age >= 0").to_arrow_table()
            relation = Table.of(connection.sql("SELECT * FROM arrow"), "wage", "clinic")
            assert np.array_equal(joined(relation, owners)[0], whole["wage"])
    else:
        polars = pytest.importorskip("polars")
        data = polars.from_pandas(whole)
        if "lazy" in library:  # a categorical column of owners, as Polars often reads it
            data = data.with_columns(polars.col("clinic").cast(polars.Categorical))
    values, holders, _ = joined(Table.of(data, "wage", "clinic"), owners)
    assert np.array_equal(values, whole["wage"])
    assert np.array_equal(holders, owners.of_record)
    how = {"owner": "clinic", "bounds": (0, 10), "key": 1, "where": "town == 'Ulm'"}
    assert (
        private_mean(data, owners, column="wage", **how).value
        == private_mean(whole, owners, column="wage", **how).value
    )
    with pytest.raises(TypeError, match="column must name"):
        private_mean(data, owners, bounds=(0, 10))
