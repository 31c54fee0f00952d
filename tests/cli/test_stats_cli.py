"""The commands that answer questions about tables, as users call them."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from inosgm.cli.program import app
from inosgm.cli.stats import OTHER_NAMES, QUESTIONS
from inosgm.jobs import StoreUnwritable
from inosgm.ledger.ledger import Ledger
from inosgm.ledger.refusals import BudgetExceeded
from inosgm.owners import Owners
from inosgm.statistics import PROCEDURES, Estimate, Question, Questions, summing
from inosgm.statistics.answering import ask
from inosgm.statistics.conditions import Condition
from inosgm.statistics.task import RoundTask

RECORDS = 300
OWNERS = ["--budgets", "owners.csv", "--owner-column", "firm"]
MEAN = ["mean", "t.parquet", "--column", "wage", "--bounds", 0, 5000, *OWNERS]


@pytest.fixture
def here(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "wage": rng.gamma(2.0, 800.0, RECORDS),
            "age": rng.integers(18, 65, RECORDS),
            "young": rng.integers(0, 2, RECORDS).astype(bool),
            "region": rng.choice(["north", "south", "east"], RECORDS),
            "firm": rng.choice(["acme", "bolt"], RECORDS),
            "gap": [None, *rng.normal(size=RECORDS - 1)],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\nacme,1,1e-5\nbolt,8,1e-5\n")
    monkeypatch.chdir(tmp_path)
    return table


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, ["stats", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def refused(*arguments):
    result = CliRunner().invoke(app, ["stats", *map(str, arguments)])
    assert result.exit_code, result.output
    return result.exception


def owners_of(table):
    return Owners(of_record=table["firm"].to_pylist(), epsilon={"acme": 1.0, "bolt": 8.0}, delta=1e-5)


BOUNDS = {"bounds": (0.0, 5000.0)}
BOX = {"bounds": [(0.0, 5000.0), (18.0, 65.0)]}
LINE = {"bounds": [(18.0, 65.0)], "target_bounds": (0.0, 5000.0)}
ASKED = {
    "sum": ("--column wage --bounds 0 5000", "wage", BOUNDS),
    "count": ("--column young --stratified", "young", {"stratified": True}),
    "share": ("--column young", "young", {}),
    "mean": ("--column wage --bounds 0 5000", "wage", BOUNDS),
    "variance": ("--column wage --bounds 0 5000 --stratified", "wage", {**BOUNDS, "stratified": True}),
    "trimmed-mean": ("--column wage --bounds 0 5000 --fraction .2", "wage", {**BOUNDS, "fraction": 0.2}),
    "robust-mean": (
        "--column wage --bounds 0 5000 --reach 3 --fraction 0 --rounds 5",
        "wage",
        {**BOUNDS, "reach": 3.0, "fraction": 0.0, "rounds": 5},
    ),
    "upper-tail-mean": ("--column wage --bounds 0 5000 --level 0.9", "wage", {**BOUNDS, "level": 0.9}),
    "top-heavy-sum": ("--column wage --bounds -5 5000 --fraction 1", "wage", {"bounds": (-5.0, 5000.0), "fraction": 1}),
    "quantile": ("--column wage --bounds 0 5000 --level .5 --rounds 4", "wage", {**BOUNDS, "level": 0.5, "rounds": 4}),
    "histogram": ("--column wage --edges 0 1000 1e4", "wage", {"edges": [0.0, 1000.0, 1e4]}),
    "group-counts": (
        "--column region --categories north south --other rest",
        "region",
        {"categories": ["north", "south"], "other": "rest"},
    ),
    "bounds": ("--column wage --outside .05", "wage", {"outside": 0.05}),
    "covariance": ("--columns wage age --bounds 0 5000 18 65", ["wage", "age"], BOX),
    "pca": (
        "--column wage --column age --bounds 0 5000 --bounds 18 65 --components 1",
        ["wage", "age"],
        {**BOX, "components": 1},
    ),
    "regression": ("--column age --bounds 18 65 --target wage --target-bounds 0 5000", ["age", "wage"], LINE),
    "trimmed-regression": (
        "--column age --bounds 18 65 --target wage --target-bounds 0 5000 --fraction 0.1 --rounds 2",
        ["age", "wage"],
        {**LINE, "fraction": 0.1, "rounds": 2},
    ),
}


def test_every_question_has_a_command():
    assert set(ASKED) == set(QUESTIONS) == set(PROCEDURES)


def test_a_question_has_other_names():
    for name, here in OTHER_NAMES.items():
        assert here.split()[0] in QUESTIONS
        told = CliRunner().invoke(app, ["stats", name], env={"COLUMNS": "200"}).output
        assert f"ask for it with '{here}'" in told


@pytest.mark.parametrize("name", ASKED)
def test_a_command_answers_as_the_function_does(name, here):
    words, column, parameters = ASKED[name]
    told = invoke(name, "t.parquet", *words.split(), *OWNERS, "--key", 7, "--share", 0.5, "--json", "--quiet")
    found = json.loads(told.stdout)
    options = {"column": column, "owner": "firm", "share": 0.5, "key": 7}
    expected = ask(PROCEDURES[name], here, owners_of(here), **options, **parameters)
    np.testing.assert_array_equal(Estimate.from_dict(found).value, expected.value)
    assert found["estimand"] == expected.estimand
    assert (found["question"], found["share"], found["table"]) == (name, 0.5, "t.parquet")
    assert [row["owner"] for row in found["cost"]] == ["acme", "bolt"]
    assert [row["epsilon"] <= limit for row, limit in zip(found["cost"], (0.5, 4.0), strict=True)] == [True, True]


def test_numbers_have_names(here):
    told = invoke("histogram", "t.parquet", "--column", "wage", "--edges", 0, 1000, 1e4, *OWNERS, "--stratified").stdout
    lines = [line.split()[:3] for line in told.splitlines()]
    assert [line[:2] for line in lines if "1000" in line[:2]] == [["below", "1000"], ["1000", "and"]]
    assert "(the values of each owner: --json, --output)" in told
    words, *_ = ASKED["regression"]
    told = invoke("regression", "t.csv", *words.split(), *OWNERS, "--quiet").stdout
    assert [line.split()[0] for line in told.splitlines()[1:3]] == ["intercept", "age"]
    words, *_ = ASKED["covariance"]
    told = invoke("covariance", "t.csv", *words.split(), *OWNERS, "--quiet").stdout
    assert told.splitlines()[0].split() == ["wage", "age"]
    words, *_ = ASKED["quantile"]
    assert "\n95 % interval: " in invoke("quantile", "t.csv", *words.split(), *OWNERS, "--quiet").stdout
    ages = ["--column", "age", "--categories", 20, 30, *OWNERS, "--key", 1, "--quiet"]
    told = [invoke("group-counts", table, *ages).stdout.splitlines() for table in ("t.csv", "t.parquet")]
    names = [[line.split()[0] for line in lines if line] for lines in told]
    assert names[0] == names[1]
    assert names[0][1:3] == ["20", "30"]


def test_a_ledger_is_made_used_and_refuses(here, tmp_path):
    told = invoke(*MEAN, "--ledger", "ledger", "--share", 0.5).stdout
    assert (
        "there is no ledger ledger: it is created, for these owners\nthis may cost 50 % of every owner's epsilon:"
        in told
    )
    told = invoke(*MEAN, "--ledger", "ledger", "--share", 0.2).stdout
    assert "is created" not in told
    [row] = [line.split() for line in told.splitlines() if line.startswith("acme") and len(line.split()) == 5]
    records = here["firm"].to_pylist().count("acme")
    assert (row[1], row[2]) == (str(records), "1")
    [bolt] = [line.split() for line in told.splitlines() if line.startswith("bolt") and len(line.split()) == 5]
    answer = [line.split() for line in told.splitlines() if len(line.split()) == 2]
    assert [row[4], bolt[4]] == [dict(answer)["acme"], dict(answer)["bolt"]]  # at most: what it then spends
    assert 0.19 < float(bolt[4]) <= 0.2  # an estimate over all records needs no more than the strictest budget
    assert 0.5 <= float(row[3]) < 0.52
    head = Ledger("ledger").head()
    refusal = refused(*MEAN, "--ledger", "ledger")
    assert isinstance(refusal, BudgetExceeded)
    fits = float(re.search(r"; --share ([0-9.]+) still fits$", str(refusal))[1])
    assert "a share of 1 may cost" in refusal.__notes__[0]
    assert "still fits" in str(refused(*MEAN, "--ledger", "ledger", "--share", fits + 0.01))
    assert Ledger("ledger").head() == head
    assert len(Ledger("ledger").history()) == 2
    invoke(*MEAN, "--ledger", "ledger", "--share", fits)
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\nacme,0.9,1e-5\nbolt,8,1e-5\n")
    assert "`inosgm ledger grant LEDGER OWNERS.csv`" in str(refused(*MEAN, "--ledger", "ledger"))
    assert CliRunner().invoke(app, ["ledger", "grant", "ledger", "owners.csv"]).exit_code == 0
    assert "not even --share 0.01 fits" in str(refused(*MEAN, "--ledger", "ledger"))
    head = Ledger("ledger").head()
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\nacme,1,1e-5\nbolt,8,1e-5\ncork,2,1e-5\n")
    assert "the ledger does not know 'cork'" in str(refused(*MEAN, "--ledger", "ledger"))
    assert Ledger("ledger").head() == head


def test_a_question_of_many_rounds_is_refused_before_its_first(here):
    invoke(*MEAN, "--ledger", "ledger", "--share", 0.5)
    quantile = ["quantile", *MEAN[1:], "--level", 0.5, "--ledger", "ledger"]
    assert isinstance(refused(*quantile), BudgetExceeded)
    assert len(Ledger("ledger").history()) == 1


def test_owners_in_every_form_are_the_same_owners(here, tmp_path):
    labels = here["firm"].to_pylist()
    sizes = {name: labels.count(name) for name in ("acme", "bolt")}
    (tmp_path / "rows.csv").write_text(
        "owner,epsilon\n" + "".join(f"{name},{1 if name == 'acme' else 8}\n" for name in labels)
    )
    (tmp_path / "sizes.csv").write_text(f"owner,epsilon,records\nbolt,8,{sizes['bolt']}\nacme,1,{sizes['acme']}\n")
    (tmp_path / "more.csv").write_text("owner,epsilon\nacme,1\nbolt,8\nnobody,3\n")
    asked = [*MEAN[:7], "--delta", 1e-5, "--key", 3]
    found = [
        invoke(*asked, "--budgets", *words)
        for words in (
            ["rows.csv", "--rows-in-order"],
            ["sizes.csv", "--owner-column", "firm"],
            ["more.csv", "--owner-column", "firm"],
        )
    ]
    assert len({result.stdout.split("\n\n")[1] for result in found}) == 1
    assert (
        "more.csv has no column records: counting the rows of every owner, which are taken as public" in found[2].stdout
    )
    assert "1 of 3 owners have no row in the table, and pay nothing" in found[2].stdout
    uniform = invoke(*asked, "--budgets", "rows.csv", "--rows-in-order", "--method", "uniform", "--json")
    assert {row["epsilon"] < 1.001 for row in json.loads(uniform.stdout)["cost"]} == {True}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mean t.parquet --column wage --bounds 5000 0", "bounds must be the smaller number first"),
        ("mean t.parquet --column wage --bounds 0", "--bounds must be two numbers for every column, 2 in all, got 1"),
        ("mean t.parquet --columns wage age --bounds 0 1", "--column must name one column, got 2"),
        ("pca t.parquet --column wage --bounds 0 1", "--column must name several columns, got 1"),
        ("pca t.parquet --column wage wage --bounds 0 1 0 1", "--column must name every column once"),
        ("mean t.csv --column wage --bounds 0 1 --attempts 2", "--attempts goes with --store"),
        ("mean t.parquet --column salary --bounds 0 1", "has no column 'salary'"),
        ("mean t.parquet --column region --bounds 0 1", "column 'region' must hold numbers"),
        ("mean t.csv --column region --bounds 0 1", "column 'region'"),
        ("mean t.parquet --column gap --bounds 0 1", "column 'gap' has a missing value at row 1"),
        ("mean t.csv --column gap --bounds 0 1", "column 'gap' has a missing value at row 1"),
        ("mean none.csv --column gap --bounds 0 1", "none.csv"),
        ("mean t.csv --column wage --bounds 0 1 --share 2", "share must"),
        ("mean t.csv --column wage --bounds 0 1 --owner-column region", "names an owner that"),
        ("mean t.csv --column wage --bounds 0 1 --output t.csv", "would overwrite the table"),
        ("mean t.csv --column wage --bounds 0 1 --output no/answer.json", "there is no directory no"),
        ("mean t.csv --column wage --bounds 0 1 --max-concurrent 2", "--max-concurrent goes with --store"),
        ("mean t.csv --column wage --bounds 0 1 --store s --num-cpus 2", "--num-cpus goes with --address"),
        ("count t.csv --column age", "values must be 0 or 1"),
        ("quantile t.csv --column wage --bounds 0 1 --level 50", "level must be below 1"),
        ("histogram t.csv --column wage --edges 3 2 1", "edges must be two or more numbers that ascend"),
        ("group-counts t.parquet --column age --categories north", "values must be text"),
        ("pca t.csv --columns wage age --bounds 0 1 0 1 --components 3", "components must be at most"),
    ],
)
def test_mistakes_charge_nothing(words, said, here):
    owners = OWNERS[:2] if "--owner-column " in words else OWNERS
    error = refused(*words.split(), *owners, "--ledger", "ledger")
    assert said in str(error)
    asked = words.startswith(("count", "group-counts"))  # what only the question itself can tell
    assert not Ledger("ledger").history() if asked else not os.path.exists("ledger")
    for value in here["wage"].to_pylist()[:5]:
        assert str(value)[:6] not in str(error)


def test_rows_without_owners_and_other_sizes_charge_nothing(here, tmp_path):
    (tmp_path / "few.csv").write_text("owner,epsilon,delta,records\nacme,1,1e-5,5\n")
    few = ["--budgets", "few.csv", "--rows-in-order", "--ledger", "ledger"]
    assert "must have a row per record" in str(refused(*MEAN[:7], *few))
    (tmp_path / "off.csv").write_text(f"owner,epsilon,delta,records\nacme,1,1e-5,1\nbolt,1,1e-5,{RECORDS - 1}\n")
    off = ["--budgets", "off.csv", "--owner-column", "firm", "--ledger", "ledger"]
    assert "records" in str(refused(*MEAN[:7], *off))
    assert "has a missing value" in str(refused(*MEAN[:3], "gap", *MEAN[4:7], *off))
    assert not Ledger("ledger").history()


def test_a_mistake_of_the_command_ends_in_one_line(here, program):
    told = "error: bounds must be the smaller number first, then the larger one, got 9 and 1\n"
    assert program("stats", *MEAN[:4], "--bounds", 9, 1, *OWNERS, "--quiet") == (2, "", told)


@pytest.mark.parametrize("form", ["a row per owner", "a row per record"])
@pytest.mark.parametrize("quiet", [[], ["--quiet"], ["--json"]])
def test_rows_are_not_taken_in_order_unless_that_is_stated(here, tmp_path, form, quiet):
    """Fails on 76c85f1, which took the first 200 rows for those of bolt, and said so unless --quiet was given."""
    text = "owner,epsilon,delta,records\nbolt,8,1e-5,200\nacme,1,1e-5,100\n"
    if form == "a row per record":
        text = "owner,epsilon,delta\n" + "bolt,8,1e-5\n" * 200 + "acme,1,1e-5\n" * 100
    (tmp_path / "sizes.csv").write_text(text)
    asked = [*MEAN[:7], "--budgets", "sizes.csv", "--ledger", "ledger", *quiet]
    first = "the first 200 rows belong to 'bolt', those after them to 'acme', and so on"
    each = "the first row belongs to 'bolt', the second to 'bolt', and so on"
    told = str(refused(*asked))
    assert "name the column that does (owner=, --owner-column)" in told
    assert told.endswith(f"--rows-in-order): {first if form == 'a row per owner' else each}")
    assert not os.path.exists("ledger")
    assert "--rows-in-order does not go with --owner-column" in str(
        refused(*asked, "--owner-column", "firm", "--rows-in-order")
    )
    invoke(*asked, "--rows-in-order")
    assert len(Ledger("ledger").history()) == 1


def test_an_answer_is_printed_and_written(here, tmp_path):
    result = invoke(
        "mean", "--bounds", 0, 5000, "t.parquet", "--column", "wage", *OWNERS, "--output", "a.json", "--json"
    )
    assert (tmp_path / "a.json").read_text() == result.stdout
    assert "no --ledger: the cost of this question is recorded nowhere" in result.stderr
    assert result.stderr.endswith("written to a.json\n")
    only = invoke(*MEAN, "--quiet").output
    assert only.splitlines()[1].startswith("95 % interval: ")
    assert only.splitlines()[2] == "mean over all 300 records, each counting once"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ArithmeticError("no luck"), "error: 1 of 1 jobs were given up (ArithmeticError in attempt 1), and nothing"),
        (OSError(28, os.strerror(28)), "error: 1 of 1 jobs were given up (OSError in attempt 1), and nothing"),
    ],
)
def test_a_job_that_fails_is_no_mistake_in_what_was_asked(here, program, monkeypatch, error, told):
    """Fails on 09c50e1: exit code 2."""

    def failing(self, spec, attempt):
        raise error

    monkeypatch.setattr(RoundTask, "run", failing)
    code, _, err = program("stats", *MEAN, "--store", "store", "--attempts", 1, "--quiet")
    assert (code, err.startswith(told)) == (1, True), err


@pytest.mark.parametrize("error", [OSError(28, os.strerror(28), "ledger"), MemoryError("7 GB"), StoreUnwritable("x")])
def test_nor_is_a_lack_of_memory_or_space(here, program, monkeypatch, error):
    """Fails on 09c50e1: exit code 2."""

    def failing(*_, **__):
        raise error

    monkeypatch.setattr(Ledger, "charge", failing)
    code, out, err = program("stats", *MEAN, "--ledger", "ledger", "--quiet")
    assert (code, out, err.startswith("error: ")) == (1, "", True), err


def test_a_question_with_a_store_goes_on_after_an_interruption(here, monkeypatch):
    asked = [*MEAN, "--ledger", "ledger", "--store", "store", "--key", 5, "--share", 0.5]
    with monkeypatch.context() as patched:
        patched.setattr("inosgm.statistics.task.read_table", _interrupted)
        result = invoke(*asked, code=130)
    assert "interrupted: finished work is kept in store, and the same command resumes" in result.stderr
    assert not Ledger("ledger").history()
    done = invoke(*asked).stdout
    again = invoke(*asked, "--processes", 2).stdout
    in_process = invoke(*MEAN, "--key", 5, "--share", 0.5).stdout
    assert len({told.split("\n\n")[1] for told in (done, again, in_process)}) == 1
    assert len(Ledger("ledger").history()) == 1
    other = [*MEAN[:4], "--bounds", 0, 4000, *OWNERS, "--store", "store", "--share", 0.5]
    assert "holds another statistic, which differs in parameters" in str(refused(*other))


def test_a_question_without_a_store_says_what_an_interruption_cost(here, monkeypatch):
    monkeypatch.setattr(summing, "sum_table", _interrupted)
    result = invoke(*MEAN, "--ledger", "ledger", code=130)
    assert "nothing is kept; what ledger was charged stays charged. With --store" in result.stderr


def _interrupted(*_, **__):
    raise KeyboardInterrupt


def test_a_condition_and_missing_values_on_the_command_line(here):
    asked = ["--budgets", "owners.csv", "--owner-column", "firm", "--key", "1", "--json"]
    owners = owners_of(here)
    for name, words, column, how in (
        ("mean", ["--column", "wage", "--bounds", "0", "5000"], "wage", BOUNDS),
        ("share", ["--of", "wage > 1000"], Condition("wage > 1000"), {}),
        ("count", ["--of", "wage > 1000"], Condition("wage > 1000"), {}),
    ):
        where = "region == 'north' and age >= 30"
        for place in ("t.csv", "t.parquet"):
            found = json.loads(invoke(name, place, *words, "--where", where, *asked).stdout)
            expected = ask(PROCEDURES[name], here, owners, column=column, owner="firm", where=where, key=1, **how)
            assert (found["value"], found["where"]) == (expected.value, where)
    gap = ["--column", "gap", "--bounds", "-5", "5"]
    assert "missing value at row 1" in str(refused("mean", "t.csv", *gap, *asked))
    counted = json.loads(invoke("mean", "t.csv", *gap, "--missing", "count", *asked).stdout)
    assert abs(counted["details"]["missing"] - 1) < 6 * counted["details"]["missing_error"]
    for words in (["--of", "wage >"], ["--of", "wage > 1", "--column", "wage"], [], ["--of", "wages > 1"]):
        refused("count", "t.csv", *words, *asked, "--ledger", "l")
    assert not Path("l").exists()


def test_old_names_of_options_work_with_a_note(here):
    words = ["mean", "t.csv", "--column", "wage", "--bounds", "0", "5000", "--key", "1", "--json"]
    old = invoke(*words, "--owners", "owners.csv", "--owner=firm")
    new = invoke(*words, "--budgets", "owners.csv", "--owner-column", "firm")
    assert old.stdout == new.stdout
    assert "--owners is --budgets now" in old.stderr
    assert "--owner is --owner-column now" in old.stderr
    assert "now, and" not in new.stderr


def test_a_label_that_resembles_an_owner_is_named_and_large_budgets_are_noticed(here):
    words = ["mean", "t.csv", "--column", "wage", "--bounds", "0", "5000", "--owner-column", "firm"]
    Path("owners.csv").write_text("owner,epsilon,delta\nACME,1,1e-5\nbolt,800,1e-5\n")
    told = str(refused(*words, "--budgets", "owners.csv"))
    assert "it says 'acme', did you mean 'ACME'?" in told
    Path("owners.csv").write_text("owner,epsilon,delta\nacme,1,1e-5\nbolt,800,1e-5\n")
    assert "owner 'bolt' grants epsilon 800" in invoke(*words, "--budgets", "owners.csv").output


def test_groups_and_bounds_on_the_command_line(here):
    asked = ["--budgets", "owners.csv", "--owner-column", "firm", "--key", "1"]
    wage = ["--column", "wage", "--bounds", "0", "5000", "--by", "region"]
    owners = owners_of(here)
    for keys in (["north", "south"], None):
        named = [] if keys is None else ["--keys", *keys]
        found = json.loads(invoke("mean", "t.csv", *wage, *named, *asked, "--json").stdout)
        expected = ask(
            PROCEDURES["mean"], here, owners, column="wage", owner="firm", by="region", keys=keys, key=1, **BOUNDS
        )
        assert found["value"] == expected.value.tolist()
        assert found["by"] == "region"
        assert "north" in invoke("mean", "t.csv", *wage, *named, *asked).output
    assert "upper bound" in invoke("bounds", "t.csv", "--column", "wage", *asked).output
    refusal = CliRunner().invoke(app, ["stats", "mean", "t.csv", "--column", "wage", "--bounds", "auto", *asked])
    assert refusal.exit_code == 2
    assert "private_bounds" in refusal.output


def test_an_answer_says_what_was_counted_and_has_one_interval_of_each_kind(here):
    asked = ["--budgets", "owners.csv", "--owner-column", "firm", "--quiet"]
    rich, groups = ["--of", "wage > 1000"], ["--by", "region", "--keys", "north", "south"]
    older = ["--where", "age > 30"]
    assert "\nnumber of records with wage > 1000 over all " in invoke("count", "t.csv", *rich, *asked).stdout
    counts = invoke("count", "t.csv", *rich, *groups, *asked, "--confidence", "0.9").stdout
    assert "\nnumber of records with wage > 1000 in every group over all records" in counts
    assert "standard error  90 % from" in counts
    share = invoke("share", "t.csv", *rich, *older, *asked).stdout
    assert "\nshare of records with wage > 1000 over all records with age > 30, " in share
    assert "\n95 % interval by Fieller" in share
    assert "\ninterval:" not in share
    wage = ["--column", "wage", "--bounds", "0", "5000"]
    assert "standard error  95 % from" in invoke("mean", "t.csv", *wage, *groups, *asked).stdout
    found = json.loads(invoke("mean", "t.csv", *wage, *groups, *asked, "--confidence", "0.9", "--json").stdout)
    assert found["confidence"] == 0.95  # that of the printed columns, for ratios of groups
    fieller = np.array(found["details"]["interval"]).T
    np.testing.assert_allclose(found["interval"], fieller + np.outer([-1, 1], found["bias_bound"]))
    assert "--where only chooses" in str(refused("count", "t.csv", *older, *asked))


def test_a_dry_run_reads_no_value_and_charges_nothing(here, monkeypatch):
    asked = ["--budgets", "owners.csv", "--owner-column", "firm", "--ledger", "l", "--dry-run"]
    wage = ["--column", "wage", "--bounds", "0", "5000"]
    told = json.loads(invoke("mean", "t.csv", *wage, "--share", ".5", *asked, "--json").stdout)
    assert not Path("l").exists()
    answered = json.loads(invoke("mean", "t.csv", *wage, "--share", ".5", *asked[:4], "--json").stdout)
    assert told["cost"] == answered["cost"]
    assert told["standard_error"] == answered["standard_error"]
    assert told["bias_bound"] == answered["bias_bound"]
    gap = ["--column", "gap", "--bounds", "0", "1"]  # it lacks a value, which a dry run does not see
    assert "nothing was charged" in invoke("mean", "t.csv", *gap, *asked).output
    groups = ["--by", "region", "--keys", "north", "south", "--where", "age > 30"]
    assert "standard error about" in invoke("mean", "t.csv", *wage, *groups, *asked).output
    for words in ([*wage, "--by", "region"], [*wage, "--level", ".5"]):
        name = "quantile" if "--level" in words else "mean"
        assert "standard error depends on wh" in invoke(name, "t.csv", *words, *asked).output


def test_processes_without_a_store_make_a_temporary_one_or_none(here, monkeypatch):
    words = [
        "mean",
        "t.parquet",
        "--column",
        "wage",
        "--bounds",
        "0",
        "5000",
        "--budgets",
        "owners.csv",
        "--owner-column",
        "firm",
        "--key",
        "1",
    ]
    alone = json.loads(invoke(*words, "--json").stdout)
    serial = invoke(*words, "--processes", "2", "--json")
    assert json.loads(serial.stdout)["value"] == alone["value"]
    assert f"this process reads {RECORDS} rows faster alone" in serial.stderr
    monkeypatch.setattr("inosgm.cli.stats.run.SERIAL_ROWS", 0)
    several = json.loads(invoke(*words, "--processes", "2", "--json", "--quiet").stdout)
    assert several["value"] == alone["value"]
    assert not Path("runs").exists()


SEVERAL = """
- question: mean
  column: wage
  bounds: [0, 5000]
  importance: 4
- {question: count, of: wage > 1000, where: age > 30}
- {question: group-counts, column: region, categories: [north, south]}
- {question: regression, columns: [age], bounds: [18, 65], target: wage, target-bounds: [0, 5000]}
- {question: mean, column: wage, bounds: [0, 5000], by: region, keys: [north, south]}
"""


def test_several_questions_of_a_file_share_one_budget(here):
    Path("q.yaml").write_text(SEVERAL)
    asked = ["questions", "q.yaml", "t.parquet", *OWNERS, "--share", 0.5, "--ledger", "l", "--key", 3]
    dry = json.loads(invoke(*asked, "--dry-run", "--json").stdout)
    assert not Path("l").exists()
    text = invoke(*asked, "--dry-run").stdout
    assert "1. mean of wage: standard error about " in text
    found = json.loads(invoke(*asked, "--json", "--quiet", "--output", "out.json").stdout)
    ledger = Ledger("l")
    spent = {row["owner"]: row["epsilon"] for row in found["cost"]}
    assert ledger.spent() == pytest.approx(spent, rel=1e-3)
    assert 0.49 < spent["acme"] <= 0.5
    assert {row["owner"]: row["epsilon"] for row in found["left"]} == ledger.remaining()
    assert dry["cost"] == found["cost"]
    assert dry["questions"][0]["standard_error"] == found["answers"][0]["standard_error"]
    questions = Questions(
        [
            Question("mean", "wage", importance=4, **BOUNDS),
            Question("count", Condition("wage > 1000"), where="age > 30"),
            Question("group-counts", "region", categories=["north", "south"]),
            Question("regression", ["age", "wage"], **LINE),
            Question("mean", "wage", by="region", keys=["north", "south"], **BOUNDS),
        ]
    )
    expected = questions.ask(here, owners_of(here), owner="firm", share=0.5, key=3).estimates
    for one, other in zip(found["answers"], expected, strict=True):
        np.testing.assert_array_equal(Estimate.from_dict(one).value, other.value)
    assert found["answers"][1]["estimand"].startswith("number of records with wage > 1000")
    assert json.loads(Path("out.json").read_text())["answers"] == found["answers"]
    printed = invoke(*asked[:7], "--share", 0.1, "--ledger", "l").stdout
    assert "\n2. count of wage > 1000 where age > 30\n" in printed
    assert re.search(r"all questions together:\nowner  epsilon spent +left\nacme", printed)
    assert "still fits" in str(refused(*asked[:7], "--ledger", "l"))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("{question: means, column: wage}", "question must be one of"),
        ("{question: mean, column: wage}", "mean needs bounds"),
        ("{question: mean, bounds: [0, 1]}", "mean needs column"),
        ("{question: mean, column: wage, bounds: [0]}", "two numbers"),
        ("{question: mean, column: wage, bounds: [0, x]}", "bounds must be"),
        ("{question: mean, column: wage, bounds: [0, 1], level: 0.5}", "no option 'level'"),
        ("{question: mean, column: wage, bounds: [0, 1], share: 0.5}", "no option 'share'"),
        ("{question: mean, column: pay, bounds: [0, 1]}", "pay"),
        ("{question: mean, column: wage, bounds: [0, 1], importance: 0}", "importance"),
        ("{question: mean, column: region, bounds: [0, 1]}", "region"),
        ("{question: count, column: wage}", "0 or 1"),
        ("{question: quantile, column: wage, bounds: [0, 1], level: 2}", "level"),
    ],
)
def test_a_mistake_in_any_question_of_a_file_charges_nothing(here, second, said):
    Path("q.yaml").write_text(f"- {{question: mean, column: wage, bounds: [0, 5000]}}\n- {second}\n")
    error = refused("questions", "q.yaml", "t.parquet", *OWNERS, "--ledger", "l")
    assert said in str(error)
    assert not Path("l").exists() or not Ledger("l").history()
