import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inosgm import Owners
from inosgm.statistics.files.fragments import Fragment
from inosgm.statistics.tables import LABELS, Table

fields = st.text(alphabet='ab,"\n\r x', min_size=1, max_size=6).filter(lambda text: text.strip('" \r\n'))


@given(
    st.lists(st.tuples(fields, st.integers(-99, 99)), min_size=1, max_size=40),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 200),
    st.booleans(),
)
def test_a_csv_file_may_be_cut_anywhere(tmp_path_factory, rows, end, ended, size, blank):
    """Fields with commas, quotation marks and line ends; lines that are empty; any size of fragments."""
    stream = io.StringIO()
    quoting = csv.QUOTE_NONNUMERIC if any("\r" in name for name, _ in rows) else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, lineterminator=end, quoting=quoting)
    writer.writerow(["name", "value"])
    writer.writerows(rows)
    text = stream.getvalue() + end * 2 * blank
    path = tmp_path_factory.mktemp("cut") / "x.csv"
    path.write_bytes((text if ended or blank else text.removesuffix(end)).encode())
    owners = Owners(of_record=[0] * len(rows), epsilon=1.0, delta=1e-5)
    table = Table.of(path, "value", megabytes=size / 2**20)
    assert table.rows == len(rows)
    assert np.concatenate([batch.values for batch in table.batches(owners)]).tolist() == [value for _, value in rows]
    names = Table.of(path, "name", megabytes=size / 2**20).batches(owners, LABELS)
    assert np.concatenate([batch.values for batch in names]).tolist() == [name for name, _ in rows]


def test_fragments_of_csv_hold_whole_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("value\n" + "\n".join(map(str, range(1000))) + "\n")
    fragments = Table.of(path, "value", megabytes=500 / 2**20).fragments
    assert len(fragments) > 5
    assert [piece.start for piece in fragments[1:]] == [piece.stop for piece in fragments[:-1]]
    assert all(500 <= piece.stop - piece.start <= 1000 for piece in fragments[:-1])
    content = path.read_bytes()
    assert all(content[piece.stop - 1 : piece.stop] == b"\n" for piece in fragments)
    assert [int(content[piece.start :].split(b"\n")[0]) for piece in fragments] == [piece.row for piece in fragments]


@pytest.mark.parametrize("group", [1, 10, 33, 1000])
def test_fragments_of_parquet_are_row_groups(tmp_path, group):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"value": np.arange(100.0)}), path, row_group_size=group)
    groups = pq.ParquetFile(path).metadata.num_row_groups
    one = Table.of(path, "value").fragments
    assert [(piece.start, piece.stop, piece.rows) for piece in one] == [(0, groups, 100)]
    many = Table.of(path, "value", megabytes=1e-6).fragments
    assert [(piece.start, piece.stop) for piece in many] == [(number, number + 1) for number in range(groups)]
    assert [piece.first_id for piece in many] == list(range(0, 100, group))


def test_files_follow_each_other_by_name(tmp_path):
    for number in (10, 9, 8):
        (tmp_path / f"{number:02}.csv").write_text(f"value\n{number}\n{number}.5\n")
    table = Table.of(tmp_path, "value")
    assert [(piece.first_id, piece.row, piece.rows) for piece in table.fragments] == [(0, 0, 2), (2, 0, 2), (4, 0, 2)]
    owners = Owners(of_record=[0] * 6, epsilon=1.0, delta=1e-5)
    assert [value for batch in table.batches(owners) for value in batch.values] == [8, 8.5, 9, 9.5, 10, 10.5]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), min_size=1, unique_by=lambda row: row[0]))
def test_owners_by_size_are_found_without_an_entry_per_record(rows):
    labels, sizes = zip(*rows, strict=True)
    grants = {label: 1.0 + label for label in labels}
    table = {"owner": labels, "records": sizes, "epsilon": list(grants.values())}
    lean = Owners.from_table(table, delta=1e-5, rows_in_order=True)
    each = Owners(of_record=np.repeat(labels, sizes), epsilon=grants, delta=1e-5)
    ends = sorted((sum(sizes) // 3, sum(sizes) * 2 // 3))
    found = [lean.of_range(*between) for between in ((0, ends[0]), (ends[0], ends[1]), (ends[1], sum(sizes)))]
    assert "of_record" not in vars(lean)
    assert np.array_equal(np.concatenate(found), each.of_record)
    assert lean.sizes.tolist() == each.sizes.tolist()
    assert lean == each
    assert hash(lean) == hash(each)


def test_a_billion_records_of_three_owners_take_no_memory():
    table = {"owner": ["a", "b", "c"], "records": [10**9, 5, 7], "epsilon": [1, 2, 3]}
    owners = Owners.from_table(table, delta=1e-5, rows_in_order=True)
    assert owners.n_records == 10**9 + 12
    assert owners.of_range(10**9 - 2, 10**9 + 7).tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2]


def test_a_fragment_is_json():
    fragment = Fragment(file="a", start=1, stop=2, row=3, first_id=4, rows=5, token="6", quoted=True)
    assert Fragment.from_dict(fragment.to_dict()) == fragment
    assert fragment.at(2) == "row 6 of a"
