import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inosgm.owners import Owners

LABELS = ["b", "a", "b", "c"]
GRANTS = {"a": 1.0, "b": 2.0, "c": 3.0}


def facts(owners):
    return (
        owners.labels,
        owners.sizes.tolist(),
        owners.epsilon.tolist(),
        owners.delta.tolist(),
        owners.of_record.tolist(),
        owners.n_records,
    )


EXPECTED = (("a", "b", "c"), [1, 2, 1], [1.0, 2.0, 3.0], [1e-5] * 3, [1, 0, 1, 2], 4)


@pytest.mark.parametrize(
    "of_record",
    [
        LABELS,
        tuple(LABELS),
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        pd.Series(LABELS, index=[9, 9, 3, 1]),
        pd.Series(LABELS, dtype=object),
        pd.Series(LABELS, dtype="category"),
        pd.Index(LABELS),
        pa.array(LABELS),
        pa.chunked_array([LABELS[:1], LABELS[1:]]),
        pa.array(LABELS).dictionary_encode(),
        [np.str_(label) for label in LABELS],
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_come_in_any_column(of_record):
    assert facts(Owners(of_record=of_record, epsilon=GRANTS, delta=1e-5)) == EXPECTED


@pytest.mark.parametrize(
    "of_record",
    [
        [7, 3, 7],
        np.array([7, 3, 7], dtype=np.uint8),
        torch.tensor([7, 3, 7]),
        pd.Series([7, 3, 7]),
        pd.Series([7, 3, 7], dtype="Int64"),
        pa.array([7, 3, 7]),
        [np.int64(7), 3, 7],
    ],
    ids=lambda value: type(value).__name__,
)
def test_whole_numbers_are_labels(of_record):
    owners = Owners(of_record=of_record, epsilon={3: 1.0, 7: 2.0}, delta={3: 1e-6, 7: 1e-5})
    assert facts(owners) == ((3, 7), [1, 2], [1.0, 2.0], [1e-6, 1e-5], [1, 0, 1], 3)
    assert all(type(label) is int for label in owners.labels)


@pytest.mark.parametrize(
    "epsilon",
    [
        GRANTS,
        [1.0, 2.0, 3.0],
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.float32),
        torch.tensor([1.0, 2.0, 3.0]),
        pa.array([1.0, 2.0, 3.0]),
        pd.Series(GRANTS),
        pd.Series(GRANTS)[["c", "a", "b"]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_budgets_come_in_three_forms(epsilon):
    assert facts(Owners(of_record=LABELS, epsilon=epsilon, delta=1e-5)) == EXPECTED
    assert Owners(of_record=LABELS, epsilon=0.5, delta=1e-5).epsilon.tolist() == [0.5] * 3


def test_a_series_is_read_by_its_index_and_never_by_position():
    with pytest.raises(ValueError, match="nothing for 'a'"):
        Owners(of_record=LABELS, epsilon=pd.Series([1.0, 2.0, 3.0]), delta=1e-5)
    with pytest.raises(ValueError, match="several for 'a'"):
        Owners(of_record=LABELS, epsilon=pd.Series([1.0, 2.0, 3.0], index=["a", "a", "b"]), delta=1e-5)


def test_equal_budgets_are_grouped():
    owners = Owners(of_record=list("abcd"), epsilon=[2.0, 1.0, 2.0, 2.0], delta=[1e-5, 1e-5, 1e-6, 1e-5])
    assert owners.budgets.tolist() == [[1.0, 1e-5], [2.0, 1e-6], [2.0, 1e-5]]
    assert owners.budget_of_owner.tolist() == [2, 0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=40))
def test_groups_and_indices_give_back_what_was_said(records):
    grant = {f"owner {label}": epsilon for label, epsilon in reversed(records)}  # the first mention counts
    labels = [f"owner {label}" for label, _ in records]
    owners = Owners(of_record=labels, epsilon=grant, delta=1e-5)
    assert [owners.labels[i] for i in owners.of_record] == labels
    assert owners.sizes.tolist() == [labels.count(label) for label in owners.labels]
    assert owners.budgets[owners.budget_of_owner].tolist() == [[grant[label], 1e-5] for label in owners.labels]
    assert len(owners.budgets) == len(set(grant.values()))


def test_owners_are_frozen_and_compare():
    source = np.array([1.0, 2.0, 3.0])
    owners = Owners(of_record=LABELS, epsilon=source, delta=1e-5)
    source[:] = 99
    assert facts(owners) == EXPECTED
    for name in ("sizes", "epsilon", "delta", "of_record", "budgets", "budget_of_owner"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(owners, name)[0] = 1
    with pytest.raises(AttributeError):
        owners.delta = 1
    same = Owners(of_record=LABELS, epsilon=GRANTS, delta=1e-5)
    assert owners == same
    assert hash(owners) == hash(same)
    assert owners != Owners(of_record=LABELS, epsilon=GRANTS, delta=1e-6)
    assert owners != Owners(of_record=LABELS[::-1], epsilon=GRANTS, delta=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"of_record": []}, "of_record .* at least one record"),
        ({"of_record": np.empty(0, dtype=np.int64)}, "of_record .* at least one record"),
        ({"of_record": "abc"}, "of_record .* got a str"),
        ({"of_record": {"a", "b"}}, "of_record .* got a set"),
        ({"of_record": np.array([["a"]])}, r"of_record .* shape \(1, 1\)"),
        ({"of_record": 3}, r"of_record .* shape \(\)"),
        ({"of_record": ["a", 1]}, "got 1 at position 1 beside 'a'"),
        ({"of_record": [1, "a"]}, "got 'a' at position 1 beside 1"),
        ({"of_record": ["a", None]}, "got None at position 1"),
        ({"of_record": [None, "a"]}, "got None at position 0"),
        ({"of_record": ["a", float("nan")]}, "got nan at position 1"),
        ({"of_record": np.array([1.0, 2.0])}, "got 1.0 at position 0"),
        ({"of_record": [True, False]}, "got True at position 0"),
        ({"of_record": pd.Series(["a", None])}, "no missing values, got one at position 1"),
        ({"of_record": pd.Series([1, None])}, "no missing values, got one at position 1"),
        ({"of_record": pd.Series([1, None], dtype="Int64")}, "no missing values, got one at position 1"),
        ({"of_record": pa.array([1, None])}, "no missing values, got one at position 1"),
        ({"epsilon": {"a": 1.0, "b": 2.0}}, "epsilon must name every owner, got nothing for 'c': add it"),
        ({"epsilon": {**GRANTS, "d": 1.0}}, "epsilon names 'd', who holds no record"),
        ({"of_record": [1, 2], "epsilon": {"1": 1.0, "2": 1.0}}, "nothing for 1, 2 .it has '1'"),
        ({"epsilon": [1.0, 2.0]}, "epsilon .* got 2 for 3 owners"),
        ({"epsilon": []}, "epsilon .* got 0 for 3 owners"),
        ({"epsilon": [[1.0, 2.0, 3.0]]}, r"epsilon .* shape \(1, 3\)"),
        ({"epsilon": [[1.0], [2.0, 3.0]]}, "epsilon must be a row of numbers"),
        ({"epsilon": 0}, "epsilon must be finite and > 0, got 0.0"),
        ({"epsilon": -1.0}, "epsilon must be finite and > 0, got -1.0"),
        ({"epsilon": float("nan")}, "epsilon must be finite and > 0, got nan"),
        ({"epsilon": float("inf")}, "epsilon must be finite and > 0, got inf"),
        ({"epsilon": [1.0, 0.0, 1.0]}, "epsilon .* got 0.0 for owner 'b'"),
        ({"epsilon": {**GRANTS, "b": float("nan")}}, "epsilon .* got nan for owner 'b'"),
        ({"epsilon": "1.0"}, "epsilon must be numbers, got '1.0', a str"),
        ({"epsilon": {**GRANTS, "b": "2"}}, "epsilon must be numbers"),
        ({"epsilon": None}, "epsilon must be numbers, got None"),
        ({"epsilon": True}, "epsilon must be numbers, got True"),
        ({"delta": 0.0}, r"delta must lie in \(0, 1\), got 0.0"),
        ({"delta": 1.0}, r"delta must lie in \(0, 1\), got 1.0"),
        ({"delta": [1e-5, 1e-5, 2.0]}, "delta .* got 2.0 for owner 'c'"),
        ({"delta": {"a": 1e-5}}, "delta must name every owner, got nothing for 'b', 'c'"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Owners(
            **{
                "of_record": LABELS,
                "epsilon": 1.0 if "of_record" in arguments else GRANTS,
                "delta": 1e-5,
                **arguments,
            }
        )


RECORDS = {"owner": LABELS, "epsilon": [2.0, 1.0, 2.0, 3.0], "delta": [1e-5] * 4, "value": [0, 0, 0, 0]}


@pytest.mark.parametrize("table", [RECORDS, pd.DataFrame(RECORDS, index=[5, 5, 1, 0]), pa.table(RECORDS)])
def test_a_table_has_a_row_per_record(table):
    assert facts(Owners.from_table(table)) == EXPECTED
    assert facts(Owners.from_table(table, epsilon=GRANTS, delta=1e-5)) == EXPECTED


@pytest.mark.parametrize("build", [dict, pd.DataFrame, pa.table])
def test_a_table_with_counts_has_a_row_per_owner(build):
    table = build({"who": ["z", "y"], "eps": [2, 1], "records": [2, 3]})
    owners = Owners.from_table(table, owner="who", epsilon="eps", delta=1e-6, rows_in_order=True)
    assert facts(owners) == (("y", "z"), [3, 2], [1.0, 2.0], [1e-6] * 2, [1, 1, 0, 0, 0], 5)
    rows = Owners.from_table(table, owner="who", epsilon="eps", delta=1e-6, records=None)
    assert rows.sizes.tolist() == [1, 1]


@pytest.mark.parametrize("build", [dict, pd.DataFrame, pa.table])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"epsilon": [2.0, 1.0, 2.5, 3.0]}, "owner 'b' has epsilon 2.0 at position 0 and 2.5 at position 2"),
        (
            {"epsilon": [2.0, float("nan"), 2.0, 3.0]},
            "'epsilon' must .* at position 1|'epsilon' must be finite, got nan",
        ),
        ({"epsilon": ["2", "1", "2", "3"]}, "column 'epsilon' must be numbers, got '2'"),
        ({"delta": [1e-5, 1e-5, 1e-6, 1e-5]}, "owner 'b' has delta"),
        ({"records": [1, 1, 1, 1]}, "one row per owner, got several of 'b': add up their records, or leave"),
        (
            {"owner": list("abcd"), "records": [1, 0, 1, 1]},
            "column 'records' must be whole numbers >= 1, got 0.0 at position 1",
        ),
        ({"owner": list("abcd"), "records": [1, 1.5, 1, 1]}, "column 'records' .* got 1.5 at position 1"),
    ],
)
def test_a_bad_table_is_named(build, columns, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Owners.from_table(build({**RECORDS, **columns}))


def test_a_missing_column_is_named():
    with pytest.raises(
        ValueError,
        match="no column 'delta' for delta, only 'owner', 'epsilon': rename the one that holds it, or pass",
    ):
        Owners.from_table(pd.DataFrame({"owner": ["a"], "epsilon": [1.0]}))
    with pytest.raises(ValueError, match="no column 'who' for owner"):
        Owners.from_table(RECORDS, owner="who")
    with pytest.raises(ValueError, match="at least one row"):
        Owners.from_table(pd.DataFrame(RECORDS).iloc[:0])
    with pytest.raises(ValueError, match="an entry per row, got 1 for 2"):
        Owners.from_table({"owner": ["a", "b"], "epsilon": [1.0], "delta": [1e-5, 1e-5]})
    with pytest.raises(TypeError, match="table must be"):
        Owners.from_table([1, 2])


def csv(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "owners.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_csv_files(tmp_path, encoding, end):
    rows = [
        "owner, epsilon,delta,comment",
        "b,2,1e-5,",
        "a,1,1e-5,x",
        'b,2.0,0.00001,"a, b"',
        "c,3,1e-5,y",
        "",
    ]
    assert facts(Owners.from_csv(csv(tmp_path, end.join(rows), encoding), rows_in_order=True)) == EXPECTED
    counts = csv(tmp_path, "owner,epsilon,records\nß,2,3\nA,1,1\n", encoding)
    assert facts(Owners.from_csv(counts, delta=1e-5, rows_in_order=True))[:2] == (("A", "ß"), [1, 3])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("10 9 -1", (-1, 9, 10)),
        ("10 9 07", ("07", "10", "9")),
        ("1 2 99999999999999999999", (1, 2, 99999999999999999999)),
        ("9007199254740993 9007199254740992 -1", (-1, 2**53, 2**53 + 1)),
        ("9223372036854775809 9223372036854775808 1", (1, 2**63, 2**63 + 1)),
        ("1 2 1_0", ("1", "1_0", "2")),
    ],
)
def test_csv_labels_become_numbers_only_without_loss(tmp_path, labels, expected):
    rows = "".join(f"{label},1\n" for label in labels.split())
    owners = Owners.from_csv(csv(tmp_path, "owner,epsilon\n" + rows), delta=1e-5)
    assert owners.labels == expected
    assert owners == Owners(of_record=sorted(expected), epsilon=1.0, delta=1e-5)._without_order()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("owner,epsilon,delta\n", "the file has no rows"),
        ("owner,delta\na,1e-5\n", "no column 'epsilon'"),
        ("owner;epsilon;delta\na;1;1e-5\n", "no column 'owner' .* only 'owner;epsilon;delta'"),
        ("owner,epsilon,epsilon\na,1,1\n", "name every column once"),
        ("owner,epsilon,delta\na,1\n", "line 2 has 2 fields, the first line has 3"),
        ("owner,epsilon,delta\na,one,1e-5\n", "column 'epsilon' must be numbers, got 'one' in row 1"),
        ("owner,epsilon,delta\na,,1e-5\n", "column 'epsilon' must be numbers, got '' in row 1"),
        ("owner,epsilon,delta\na,nan,1e-5\n", "column 'epsilon' must be finite, got nan in row 1"),
        ("owner,epsilon,delta\na,-1,1e-5\n", "epsilon must be finite and > 0, got -1.0 for owner 'a'"),
        ("owner,epsilon,delta\n,1,1e-5\n", "empty label in row 1"),
        (
            "owner,epsilon,delta\na,1,1e-5\na,2,1e-5\n",
            "owner 'a' has epsilon 1.0 in row 1 and 2.0 in row 2",
        ),
        ('owner,epsilon,delta\n"a,1,1e-5\n', "line 2"),
    ],
)
def test_a_bad_csv_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"owners\.csv does not describe owners: .*" + message):
        Owners.from_csv(csv(tmp_path, text))


def test_a_csv_that_is_no_text_is_named(tmp_path):
    with pytest.raises(ValueError, match="does not describe owners: it must be text in UTF-8"):
        Owners.from_csv(csv(tmp_path, "owner,epsilon,delta\nß,1,1e-5\n", "latin-1"))
    with pytest.raises(FileNotFoundError):
        Owners.from_csv(tmp_path / "absent.csv")


def test_hundred_thousand_owners_of_one_record():
    n = 100_000
    shuffled = np.random.default_rng(0).permutation(n)
    epsilon = np.linspace(0.1, 5.0, n)
    owners = Owners(of_record=[f"{i:06}" for i in shuffled], epsilon=epsilon, delta=1e-6)
    assert np.array_equal(owners.of_record, shuffled)
    assert np.array_equal(owners.budgets[:, 0], epsilon)
    assert repr(owners) == "<Owners: 100000 owners, 100000 records, 100000 budgets, epsilon 0.1 to 5>"
