import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_statistics import KEY, QUESTIONS, ROWS, Centre, Killed, UpperTail, columns, owners, plan

from inosgm import BudgetExceeded, JobMismatch, Ledger, Plan
from inosgm._internal.keys import SecretKey
from inosgm.jobs import JobSpec, ProcessExecutor, Result, SerialExecutor, Store
from inosgm.jobs.purpose import STUDY
from inosgm.mechanism import rank_window
from inosgm.statistics import PROCEDURES, durable, task
from inosgm.statistics.answering import ask, keys_for
from inosgm.statistics.durable import run_statistic
from inosgm.statistics.queries import single
from inosgm.statistics.tables import BadTable, Table
from inosgm.statistics.task import RoundTask

SCRIPT = Path(__file__).parents[1] / "support" / "table_statistics.py"


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns()), path, row_group_size=100)
    return path


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger", owners=owners())


def table_of(place, megabytes=0.01):
    return Table.of(place, "wage", "clinic", megabytes=megabytes)


def run(question, data, store, **more):
    steps, parameters = QUESTIONS[question]
    made = {"plan": plan(steps), "key": KEY, "progress": False, **parameters, **more}
    return run_statistic(question, data, owners(), store=store, **made)


def in_memory(tmp_path, name=""):
    """A store that takes no time."""
    return Store(f"memory://{tmp_path.name}-{name}")


def at_once(question, **more):
    """What comes out in memory, with the same key."""
    steps, parameters = QUESTIONS[question]
    made = {"plan": plan(steps), "key": KEY, **parameters, **more}
    return ask(single(question), columns()["wage"], owners(), **made)


def same(one, other):
    return one.to_dict() == other.to_dict()


def paid(ledger):
    return [span for charge in ledger.history() for span in charge.spans]


def partials(store):
    store = store if isinstance(store, Store) else Store(store)
    return [job for job, state in store.states().items() if state.arrays]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("rates", [(1, 1, 1), (0.6, 0.9, 1.0)])
def test_in_memory_in_batches_and_as_jobs_the_same_bits_come_out(tmp_path, place, question, rates):
    steps, parameters = QUESTIONS[question]
    followed = plan(steps, rates)
    expected = at_once(question, plan=followed)
    csv = tmp_path / "x.csv"
    pd.DataFrame(columns()).to_csv(csv, index=False)
    tables = [table_of(place, 0.002), table_of(csv), table_of(columns(), 0.02), Table.of(columns()["wage"])]
    assert [len(table.fragments) for table in tables] == [15, 5, 2, 1]
    for number, table in enumerate(tables):
        asked = ask(single(question), table, owners(), plan=followed, key=KEY, **parameters)
        assert same(asked, expected)
        store = in_memory(tmp_path, number)
        assert same(run(question, table, store, plan=followed), expected)
        assert not partials(store)


def test_many_fragments_are_merged_in_a_tree(tmp_path, place, monkeypatch):
    for room in (durable, task):
        monkeypatch.setattr(room, "MERGED_SUMS", 16)
    table = table_of(place, 0.001)
    assert len(table.fragments) == 30
    store = in_memory(tmp_path)
    assert same(run(UpperTail, table, store), at_once(UpperTail))
    kinds = [spec.kind for spec in store.specs().values()]
    assert kinds.count("merge") == 2
    assert not partials(store)


@pytest.mark.parametrize("question", ["upper-tail-mean", "trimmed-mean", "top-heavy-sum"])
def test_a_long_hard_tail_is_summed_in_passes_by_jobs_with_the_same_bits(tmp_path, place, question, monkeypatch):
    level = {"upper-tail-mean": {"level": 0.8}, "trimmed-mean": {"fraction": 0.6, "rounds": 2}}.get(question, {})
    asked = {"bounds": (0.0, 20.0), **level, "key": KEY}
    expected = ask(PROCEDURES[question], columns()["wage"], owners(), **asked)
    for room in (durable, task):
        monkeypatch.setattr(room, "MERGED_SUMS", 4)
    monkeypatch.setattr(rank_window, "HELD", 16)
    store, table = in_memory(tmp_path), table_of(place, 0.002)
    assert same(ask(PROCEDURES[question], table, owners(), **asked), expected)
    assert same(ask(PROCEDURES[question], columns()["wage"], owners(), **asked), expected)
    assert same(run_statistic(question, table, owners(), store=store, progress=False, **asked), expected)
    passes = {spec.configuration["pass"] for spec in store.specs().values() if "pass" in spec.configuration}
    assert len(passes) >= 2 or question == "top-heavy-sum"
    assert not any("window" in str(spec.configuration) for spec in store.specs().values())  # it is not public
    assert not partials(store)


def test_a_pass_that_dies_goes_on(tmp_path, place, ledger, monkeypatch):
    monkeypatch.setattr(rank_window, "HELD", 16)
    asked = {"bounds": (0.0, 20.0), "level": 0.8, "key": KEY, "ledger": ledger, "progress": False}
    store, merged, calls = tmp_path / "s", RoundTask.merged, []

    def dies(task, jobs):
        calls.append(jobs)
        if len(calls) == 2:
            raise RuntimeError("died")
        return merged(task, jobs)

    with monkeypatch.context() as patch:
        patch.setattr(RoundTask, "merged", dies)
        with pytest.raises(RuntimeError, match="died"):
            run_statistic("upper-tail-mean", table_of(place), owners(), store=store, **asked)
    assert not ledger.history()
    found = run_statistic("upper-tail-mean", table_of(place), owners(), store=store, **asked)
    expected = ask(PROCEDURES["upper-tail-mean"], columns()["wage"], owners(), bounds=(0, 20), level=0.8, key=KEY)
    assert same(found, expected)
    assert len(ledger.history()) == 1
    assert not partials(store)


def test_processes_come_to_the_same_bits_though_one_is_killed(tmp_path, place):
    parameters = {"most": 5.0, "flag": str(tmp_path / "flag")}
    more = {"plan": plan(1), "key": KEY, **parameters}
    store, executor = tmp_path / "s", ProcessExecutor(2)
    found = run_statistic(Killed, table_of(place), owners(), store=store, executor=executor, progress=False, **more)
    assert same(found, ask(single(Killed), columns()["wage"], owners(), **more))
    states = Store(tmp_path / "s").states().values()
    assert sum("died" in state.attempts.values() for state in states) == 1
    assert not partials(tmp_path / "s")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_that_dies_with_a_value_in_its_hands_repeats_it(tmp_path, place, ledger, when):
    """The second of three rounds is charged and computed, and then is written down, or is not."""
    store, path = tmp_path / "store", tmp_path / "ledger"
    done = subprocess.run([sys.executable, SCRIPT, place, store, path, when], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    assert paid(ledger) == [(0, 1), (1, 2)]
    (stage,) = [job for job, spec in Store(store).specs().items() if spec.kind == "stage"]
    key = Store(store).key(stage)
    more = {"plan": plan(3), "progress": False, "rounds": 3, "start": 0.5}
    found = run_statistic(Centre, table_of(place), owners(), store=store, ledger=ledger, **more)
    assert same(found, Centre(plan(3), owners(), key=key, rounds=3, start=0.5).run(columns()["wage"]))
    assert paid(ledger) == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(FileNotFoundError):
        Store(store).key(stage)
    assert not partials(store)


def test_the_same_call_returns_what_came_out_and_charges_nothing(tmp_path, place, ledger):
    found = run(Centre, table_of(place), tmp_path / "s", ledger=ledger, key=None)
    assert paid(ledger) == [(0, 1), (1, 2), (2, 3)]
    again = run(Centre, table_of(place), tmp_path / "s", ledger=ledger, key=None)
    assert same(found, again)
    assert paid(ledger) == [(0, 1), (1, 2), (2, 3)]
    assert json.loads((tmp_path / "s" / "estimate.json").read_text()) == found.to_dict()
    ((charged,),) = Store(tmp_path / "s").charges().values()
    assert charged.steps == 3
    other = run(Centre, table_of(place), tmp_path / "t", ledger=ledger, key=None)
    assert not same(found, other)  # another store, another key, paid once more
    assert len(paid(ledger)) == 6


def test_two_questions_never_share_noise(tmp_path, place, ledger):
    """With one key the ledger sees that the noise of a step is added to another sum, or to the same once more."""
    run(UpperTail, table_of(place), tmp_path / "s", ledger=ledger)
    run(UpperTail, table_of(place, 0.02), tmp_path / "t", ledger=ledger)
    assert paid(ledger) == [(0, 1)]
    with pytest.raises(JobMismatch, match="noise"):
        run(UpperTail, Table.of(columns()["wage"] + 1), tmp_path / "u", ledger=ledger)
    run(UpperTail, table_of(place), tmp_path / "v", ledger=ledger, most=2.0)  # has noise of its own
    assert paid(ledger) == [(0, 1), (0, 1)]


def test_a_fragment_that_comes_late_leaves_nothing(tmp_path, place):
    """An attempt that was given up, and whose worker lives, commits after the release."""
    run(UpperTail, table_of(place), tmp_path / "s")
    store = Store(tmp_path / "s")
    (job, *_) = [job for job, spec in store.specs().items() if spec.kind == "fragment"]
    store.begin(job, 2)
    assert not store.commit(job, 2, Result(arrays={"sum": np.zeros(3, dtype=np.uint8)}))
    assert not partials(store)
    assert same(run(UpperTail, table_of(place), store), at_once(UpperTail))


def test_partial_sums_that_were_left_go_with_the_next_call(tmp_path, place, monkeypatch):
    monkeypatch.setattr(Store, "discard", lambda store, job: None)
    run(UpperTail, table_of(place), tmp_path / "s")
    assert partials(tmp_path / "s")
    monkeypatch.undo()
    run(UpperTail, table_of(place), tmp_path / "s")
    assert not partials(tmp_path / "s")


def test_partial_sums_of_fragments_that_were_cut_otherwise_go_with_the_release(tmp_path, place, monkeypatch):
    """A worker dies between arrays and result of its job; the same call, with larger fragments, needs neither."""

    def dies(store, job, attempt, result):
        store._records.replace(f"jobs/{job}/attempts/{attempt}/arrays.npz", b"records")
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", dies)
        with pytest.raises(SystemExit):
            run(UpperTail, table_of(place), tmp_path / "s")
    assert list((tmp_path / "s").rglob("arrays.npz"))
    assert same(run(UpperTail, table_of(place, megabytes=1), tmp_path / "s"), at_once(UpperTail))
    assert not list((tmp_path / "s").rglob("arrays.npz"))


def test_somebody_else_may_have_released_meanwhile(tmp_path, place):
    """A second driver on the same store finds partial sums forgotten, and takes what was released."""
    table = table_of(place)

    class Late(SerialExecutor):
        begun = False

        def run(self, task, specs, store, **more):
            outcome = super().run(task, specs, store, **more)
            if not Late.begun:
                Late.begun = True
                run(Centre, table, tmp_path / "s")
            return outcome

    assert same(run(Centre, table, tmp_path / "s", executor=Late()), at_once(Centre))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wage": np.nan}, "column 'wage' has a missing value at row 1235"),
        ({"wage": np.inf}, "column 'wage' has an infinite value at row 1235"),
        ({"wage": -1.0}, r"values must be at least 0, .*positions count from row 1001"),
        ({"clinic": None}, "column 'clinic' has a missing value at row 1235"),
        ({"clinic": "d"}, "column 'clinic' names an owner that `owners` do not have at row 1235"),
    ],
)
def test_bad_tables_are_refused_and_nothing_is_charged(tmp_path, ledger, change, message):
    bad = pd.DataFrame(columns())
    for name, value in change.items():
        bad.loc[1234, name] = value
    pq.write_table(pa.Table.from_pandas(bad), tmp_path / "x.parquet", row_group_size=100)
    table = Table.of(tmp_path / "x.parquet", "wage", "clinic", megabytes=0.01)
    with pytest.raises(BadTable, match=message):
        run(UpperTail, table, tmp_path / "s", ledger=ledger)
    with pytest.raises(BadTable, match=message):
        ask(single(UpperTail), table, owners(), plan=plan(1), ledger=ledger, most=5.0)
    assert not ledger.history()


def test_tables_of_other_sizes_are_refused_and_nothing_is_charged(tmp_path, ledger):
    table = Table.of(pd.DataFrame(columns()).iloc[:-5], "wage", "clinic")
    moved = columns()
    moved["clinic"][:20] = "a"
    for data, message in ((table, "a row per record"), (Table.of(moved, "wage", "clinic"), "records of")):
        with pytest.raises(ValueError, match=message):
            run(UpperTail, data, tmp_path / "s", ledger=ledger)
        with pytest.raises(ValueError, match=message):
            ask(single(UpperTail), data, owners(), plan=plan(1), ledger=ledger, most=5.0)
    assert not ledger.history()


def test_a_file_that_changes_after_the_first_round_is_an_error(tmp_path, place, ledger):
    class Changing(SerialExecutor):
        def run(self, task, specs, store, **more):
            if specs[0].configuration["round"] == 1:
                os.utime(place, ns=(1, 1))
            return super().run(task, specs, store, **more)

    with pytest.raises(BadTable, match=r"x.parquet has changed since the table was looked at"):
        run(Centre, table_of(place), tmp_path / "s", ledger=ledger, executor=Changing())
    assert paid(ledger) == [(0, 1)]
    with pytest.raises(ValueError, match=r"differs in its data"):
        run(Centre, table_of(place), tmp_path / "s", ledger=ledger)


def test_a_file_that_cannot_be_read_is_tried_again(tmp_path, place, ledger):
    table = table_of(place)
    place.rename(tmp_path / "away")
    with pytest.raises(RuntimeError, match=r"jobs were given up \(Unreadable in attempt 2\), and nothing was released"):
        run(UpperTail, table, tmp_path / "s", ledger=ledger, attempts=2)
    assert not ledger.history()
    (tmp_path / "away").rename(place)
    assert same(run(UpperTail, table, tmp_path / "s", ledger=ledger), at_once(UpperTail))


def test_a_store_is_for_one_question(tmp_path, place, ledger):
    table = table_of(place)
    run(UpperTail, table, tmp_path / "s", ledger=ledger)
    for changes, what in (
        ({"most": 4.0}, "parameters"),
        ({"plan": plan(1, (1, 1, 1))}, "plan"),
        ({"share": 0.5}, "share"),
    ):
        with pytest.raises(ValueError, match=f"holds another statistic, which differs in {what}: take another store"):
            run(UpperTail, table, tmp_path / "s", ledger=ledger, **changes)
    with pytest.raises(ValueError, match="differs in its data"):
        run(UpperTail, Table.of(columns()["wage"] + 1), tmp_path / "s", ledger=ledger)
    with pytest.raises(ValueError, match="differs in statistic, parameters, plan"):
        run(Centre, table, tmp_path / "s", ledger=ledger)
    Store(tmp_path / "t").claim(STUDY, {})
    with pytest.raises(ValueError, match="holds training runs"):
        run(UpperTail, table, tmp_path / "t", ledger=ledger)
    with pytest.raises(ValueError, match="differs in ledger"):
        run(UpperTail, table, tmp_path / "s")
    assert len(ledger.history()) == 1


def test_a_ledger_that_refuses_is_heard_and_the_call_goes_on_later(tmp_path, place):
    poor = owners().granting(0.001)
    ledger = Ledger(tmp_path / "poor", owners=poor)
    with pytest.raises(BudgetExceeded):
        run(UpperTail, table_of(place), tmp_path / "s", ledger=ledger)
    assert not ledger.history()
    assert not Store(tmp_path / "s").charges()
    ledger.grant(owners())
    assert same(run(UpperTail, table_of(place), tmp_path / "s", ledger=ledger), at_once(UpperTail))


WIDE = {"columns": ["wage", "age"], "bounds": [(0, 20), (18, 90)]}
LINE = {"columns": ["wage", "age"], "bounds": [(0, 20)], "target_bounds": (18, 90)}
ASKED = {
    "sum": {"bounds": (0, 20)},
    "count": {"columns": "smokes"},
    "share": {"columns": "smokes"},
    "mean": {"bounds": (0, 20), "stratified": True},
    "variance": {"bounds": (0, 20)},
    "upper-tail-mean": {"bounds": (0, 20), "level": 0.9},
    "top-heavy-sum": {"bounds": (0, 20)},
    "quantile": {"bounds": (0, 20), "level": 0.5, "rounds": 3},
    "histogram": {"edges": [0, 1, 2, 20]},
    "bounds": {},
    "group-counts": {"columns": "town", "categories": ["Bonn", "Ulm"]},
    "trimmed-mean": {"bounds": (0, 20), "rounds": 2},
    "robust-mean": {"bounds": (0, 20), "rounds": 2},
    "covariance": WIDE,
    "pca": WIDE,
    "regression": LINE,
    "trimmed-regression": {**LINE, "rounds": 2},
}


@pytest.mark.parametrize("question", PROCEDURES)
def test_every_question_has_the_same_answer_of_fragments(tmp_path, question):
    rng = np.random.default_rng(2)
    records = pd.DataFrame(columns()).assign(
        age=rng.uniform(18, 90, ROWS), smokes=rng.random(ROWS) < 0.3, town=rng.choice(["Bonn", "Ulm"], ROWS)
    )
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pandas(records), path, row_group_size=1000)
    asked = {"columns": "wage", **ASKED[question]}
    names = asked.pop("columns")
    table = Table.of(path, names, "clinic", megabytes=0.001)
    assert len(table.fragments) == 3
    ledger, store = Ledger(owners=owners()), in_memory(tmp_path)
    found = run_statistic(question, table, owners(), store=store, key=KEY, ledger=ledger, progress=False, **asked)
    assert same(found, ask(PROCEDURES[question], records[names].to_numpy(), owners(), key=KEY, **asked))
    rounds = PROCEDURES[question].rounds(**asked)
    assert sorted(paid(ledger)) == sorted((step, step + 1) for steps in rounds for step in range(steps))
    assert not partials(store)


def test_what_cannot_be_asked_is_refused_before_a_store_is_begun(tmp_path, place):
    store = tmp_path / "s"
    with pytest.raises(ValueError, match="bounds must be the smaller number first"):
        run_statistic("mean", table_of(place), owners(), store=store, bounds=(5, 1))
    with pytest.raises(ValueError, match="plan must have 1 steps"):
        run(UpperTail, table_of(place), store, plan=plan(2))
    other = Plan(sample_rates=[1], sensitivities=[1], sizes=[ROWS], noise_scale=1, steps=1, labels=["a"])
    with pytest.raises(ValueError, match="owners must be those of the plan, got 'b'"):
        run(UpperTail, table_of(place), store, plan=other)
    assert same(run(UpperTail, table_of(place), store), at_once(UpperTail))
    with pytest.raises(ValueError, match=r"question must be one of .*mean"):
        run_statistic("meen", table_of(place), owners(), store=tmp_path / "t")


def test_a_question_that_dies_in_its_second_stage_goes_on(tmp_path, place, ledger, monkeypatch):
    """What the first stage has left is deleted, and nothing that the second one still needs."""
    asked = {"bounds": (0.0, 20.0), "rounds": 2, "key": KEY}
    calls = []

    def dies(task, jobs):
        calls.append(jobs)
        if len(calls) == 3:  # two rounds of the median are released, all fragments of the mean are summed up
            raise RuntimeError("died")
        return merged(task, jobs)

    merged = RoundTask.merged
    with monkeypatch.context() as patch:
        patch.setattr(RoundTask, "merged", dies)
        with pytest.raises(RuntimeError, match="died"):
            run_statistic("trimmed-mean", table_of(place), owners(), store=tmp_path / "s", ledger=ledger, **asked)
    assert len(ledger.history()) == 2
    found = run_statistic("trimmed-mean", table_of(place), owners(), store=tmp_path / "s", ledger=ledger, **asked)
    expected = ask(PROCEDURES["trimmed-mean"], columns()["wage"], owners(), **asked)
    assert same(found, expected)
    assert len(ledger.history()) == 3
    assert not partials(tmp_path / "s")


def test_what_a_killed_writer_leaves_goes_with_the_sum(tmp_path, place):
    run(UpperTail, table_of(place), tmp_path / "s")
    (attempt, *_) = (tmp_path / "s" / "jobs").glob("*/attempts/1")
    draft = attempt / ".draft-0123"
    draft.write_bytes(b"records")
    Store(tmp_path / "s").forget(attempt.parts[-3])
    assert not draft.exists()


def test_one_key_gives_every_question_noise_of_its_own():
    plans = [plan(1), plan(1, (1, 1, 1))]
    names = ("mean", "sum")
    asked = [{"bounds": (0, 1)}, {"bounds": (0, 2)}, {"bounds": (0, 1), "stratified": True}]
    keys = {keys_for(KEY, PROCEDURES[n], p, [made])[0] for n in names for p in asked for made in plans}
    assert len(keys) == 12
    spelled = [{"bounds": [0.0, 1.0], "stratified": False}, {"bounds": np.array([0, 1])}, {"bounds": (0, 1)}]
    assert len({keys_for(KEY, PROCEDURES["mean"], each, plans) for each in spelled}) == 1
    assert len(set(keys_for(KEY, PROCEDURES["robust-mean"], asked[0], [plan(2), plan(2), plan(1)]))) == 3


def test_noise_of_keys_that_follow_from_a_secret_one_is_cryptographic_as_well(tmp_path):
    """A task asks with key=attempt.key, the secret of its job, or keeps a key that follows from it in a store."""
    secret, query, asked = SecretKey.drawn(), PROCEDURES["robust-mean"], {"bounds": (0, 1)}
    plans = [plan(2), plan(2), plan(1)]
    found = keys_for(secret, query, asked, plans)
    assert all(isinstance(key, SecretKey) for key in found)
    assert found == keys_for(int(secret), query, asked, plans)  # only their streams differ
    store = Store(tmp_path / "s")
    job = store.add(JobSpec(kind="k", configuration={}, data_fingerprint="data", code_version="code"), found[0])
    assert isinstance(store.key(job), SecretKey)
    assert store.key(job) == found[0]
