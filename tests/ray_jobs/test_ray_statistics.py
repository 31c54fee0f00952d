"""Tables on Ray: the same bits as in memory, whatever dies; paid once."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from job_tasks import Walk, added, outcome_of, specs
from table_statistics import KEY, QUESTIONS, Centre, Killed, UpperTail, columns, owners, plan
from typer.testing import CliRunner

from inosgm import Ledger
from inosgm.cli.options import IN_SUBMITTED_JOB
from inosgm.cli.stats import stats
from inosgm.jobs import SerialExecutor, Store
from inosgm.mechanism.streaming import OrderedSum
from inosgm.statistics.answering import ask
from inosgm.statistics.durable import run_statistic
from inosgm.statistics.queries import single
from inosgm.statistics.tables import BadTable, Table
from ray_jobs import RayDataExecutor, RayExecutor, statistics
from ray_jobs.aggregate import OrderedAggregate

pytestmark = [
    pytest.mark.usefixtures("embedded_ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray Data, by itself
]
DATASETS, ACTORS = RayDataExecutor(max_concurrent=2), RayExecutor(max_concurrent=2)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns()), path, row_group_size=600)
    return Table.of(path, "wage", "clinic", megabytes=0.001)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger", owners=owners())


def run(question, table, store, executor, **more):
    steps, parameters = QUESTIONS.get(question, QUESTIONS[UpperTail])
    made = {"plan": plan(steps), "key": KEY, "progress": False, **parameters, **more}
    return run_statistic(question, table, owners(), store=store, executor=executor, **made)


def at_once(question, **more):
    steps, parameters = QUESTIONS[UpperTail if question is Killed else question]
    made = {**parameters, **more}
    return ask(single(question), columns()["wage"], owners(), plan=plan(steps), key=KEY, **made).to_dict()


@pytest.mark.parametrize(
    ("question", "executor"),
    [
        pytest.param(UpperTail, DATASETS, id="tail in tasks of a dataset"),
        pytest.param(Centre, DATASETS, id="centre in tasks of a dataset"),
        pytest.param(UpperTail, ACTORS, id="tail in actors", marks=pytest.mark.long),
    ],
)
def test_on_ray_the_same_bits_come_out(tmp_path, table, ledger, question, executor):
    found = run(question, table, tmp_path / "s", executor, ledger=ledger)
    assert found.to_dict() == at_once(question)
    assert len(ledger.history()) == QUESTIONS[question][0]
    assert len(table.fragments) == 5
    assert not list((tmp_path / "s").rglob("arrays.npz"))


def test_a_worker_is_killed_and_the_same_bits_come_out(tmp_path, table, ledger):
    flag = str(tmp_path / "flag")
    found = run(Killed, table, tmp_path / "s", DATASETS, ledger=ledger, flag=flag)
    assert found.to_dict() == at_once(Killed, flag=flag)
    states = Store(tmp_path / "s").states().values()
    assert sum("died" in state.attempts.values() for state in states) >= 1
    assert len(ledger.history()) == 1


def test_a_bad_fragment_is_told_with_its_place_and_nothing_is_charged(tmp_path, ledger):
    bad = pd.DataFrame(columns())
    bad.loc[1234, "wage"] = np.nan
    bad.to_csv(tmp_path / "x.csv", index=False)
    table = Table.of(tmp_path / "x.csv", "wage", "clinic", megabytes=0.02)
    with pytest.raises(BadTable, match=r"column 'wage' has a missing value at row 1235 of .*x\.csv"):
        run(UpperTail, table, tmp_path / "s", DATASETS, ledger=ledger)
    assert not ledger.history()


def test_the_command_answers_as_the_one_without_ray(tmp_path, table, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owners.csv").write_text("owner,epsilon,delta\na,20,1e-5\nb,40,1e-5\nc,60,1e-5\n")
    asked = [
        "mean",
        "x.parquet",
        "--column",
        "wage",
        "--bounds",
        "0",
        "20",
        "--budgets",
        "owners.csv",
        "--owner-column",
    ]
    asked += ["clinic", "--key", "7", "--json", "--quiet"]
    here = CliRunner().invoke(stats, asked)
    on_ray = CliRunner().invoke(statistics.app, [*asked, "--ledger", "ledger", "--max-concurrent", "2"])
    assert (here.exit_code, on_ray.exit_code) == (0, 0), (here.exception, on_ray.exception)
    assert here.stdout == on_ray.stdout
    assert len(Ledger("ledger").history()) == 1
    assert Store("runs/mean-x-wage").exists()
    refused = CliRunner().invoke(statistics.app, [*asked, "--processes", "2"])
    assert (refused.exit_code, "No such option: --processes" in refused.stderr) == (2, True)
    monkeypatch.setenv(IN_SUBMITTED_JOB, "{}")
    refused = CliRunner().invoke(statistics.app, asked)
    assert "--store must be a whole path or a URI in a submitted job" in str(refused.exception)


class TestDatasets:
    def test_jobs_agree_with_those_done_one_after_the_other(self, tmp_path):
        found = []
        for executor in (SerialExecutor(), DATASETS):
            store = Store(tmp_path / type(executor).__name__)
            assert len(executor.run(Walk(), added(store, specs(8)), store, progress=False).done) == 8
            found.append(outcome_of(store))
        assert found[0] == found[1]

    @pytest.mark.long  # workers die and are started again
    def test_a_poisoned_job_does_not_keep_others(self, tmp_path):
        jobs, store = specs(5, bad={"1": "raise", "2": "once", "3": "die"}), Store(tmp_path / "s")
        outcome = RayDataExecutor(max_concurrent=2).run(Walk(), jobs, store, attempts=2, progress=False)
        assert set(outcome.failed) == {jobs[1].id, jobs[3].id}
        assert store.states()[jobs[3].id].attempts == {1: "died", 2: "died"}
        assert len(outcome.done) == 3
        assert len(store.charges()) == 5

    def test_what_can_never_be_placed_is_refused(self, tmp_path):
        store = Store(tmp_path / "s")
        with pytest.raises(ValueError, match="no node of the cluster can ever hold"):
            RayDataExecutor(num_cpus=99).run(Walk(), specs(1), store, progress=False)
        assert not store.exists()


class TestAggregate:
    def dataset(self, blocks=7):
        data = columns()
        shuffled = np.random.default_rng(0).permutation(len(data["wage"]))
        table = {name: values[shuffled] for name, values in data.items()} | {"id": shuffled}
        return ray.data.from_arrow(pa.table(table)).repartition(blocks)

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_a_dataset_gives_the_same_bits(self, question, ledger):
        steps, parameters = QUESTIONS[question]
        statistic = question(plan(steps), key=KEY, ledger=ledger, **parameters)
        dataset = self.dataset()
        for _ in range(steps):
            wanted = OrderedAggregate(statistic, columns="wage", owner="clinic", ids="id", key=KEY)
            found = dataset.aggregate(wanted)["ordered_sum"]
            statistic.observe(statistic.release(OrderedSum.from_bytes(found)).value)
        expected = question(plan(steps), owners(), key=KEY, **parameters).run(columns()["wage"])
        assert statistic.estimate().to_dict() == expected.to_dict()
        assert len(ledger.history()) == steps

    def test_the_key_must_be_the_same(self):
        statistic = UpperTail(plan(1), key=KEY, most=5.0)
        with pytest.raises(ValueError, match="key must be that of the statistic"):
            OrderedAggregate(statistic, columns="wage", owner="clinic", ids="id", key=KEY + 1)
        unsampled = UpperTail(plan(1, (1, 1, 1)), most=5.0)
        OrderedAggregate(unsampled, columns="wage", owner="clinic", ids="id")

    def test_sums_are_not_changed_by_combining(self):
        statistic = UpperTail(plan(1), key=KEY, most=5.0)
        wanted = OrderedAggregate(statistic, columns="wage", owner="clinic", ids="id", key=KEY)
        blocks = [pa.table({name: values[part] for name, values in self.arrays().items()}) for part in self.parts()]
        one, other = (wanted.aggregate_block(block) for block in blocks)
        assert wanted.combine(one, other) == wanted.combine(other, one)
        assert wanted.combine(b"", one) == wanted.combine(one, b"") == one
        with pytest.raises(BadTable, match="names an owner"):
            wanted.aggregate_block(pa.table({"wage": [1.0], "clinic": ["d"], "id": [0]}))
        with pytest.raises(BadTable, match="has no column 'clinic'"):
            wanted.aggregate_block(pa.table({"wage": [1.0], "id": [0]}))

    def arrays(self):
        return columns() | {"id": np.arange(3000)}

    def parts(self):
        return slice(0, 1000), slice(1000, 3000)
