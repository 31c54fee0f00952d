"""Files that the code of 76c85f1 has written are read, and runs of it are resumed, or refused with a sentence.

`old_files.tar.gz` holds plans, a ledger, run directories, stores and ordered sums; `old_files.json` what that code said
about them. Nothing in them is secret: records are those of `workloads.py`, and the breast cancer data of scikit-learn.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from nets import workloads
from nets.workloads import KEY, ORDERS, OWNERS, SIZES, Rows, command, configurations, plan_of, spelled, tails

import inosgm
from inosgm import RDP, JobSpec, Ledger, LinearTail, OrderedSum, Plan, Store, Table
from inosgm.statistics import Estimate

FACTS = json.loads(Path(__file__).with_name("old_files.json").read_bytes())
EVERY_FOURTH = np.arange(0, sum(SIZES), 4)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The files, unpacked once; a test that changes some is the only one that looks at them."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(Path(__file__).with_name("old_files.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


def config(name, **changes):
    return configurations()[name].changed({"training.checkpoint_every": 2, "training.evaluate_every": 4, **changes})


def parameters(result):
    return torch.cat([value.flatten() for value in result.training.trainer.model.state_dict().values()])


def close(one, other):
    """Compare to the digits that float32 has on every processor."""
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def refusal(function):
    """Return the sentence with which something is refused."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is the result
        function()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", FACTS["plans"])
def test_a_plan_is_read_and_written_alike(old, name):
    text = (old / "plans" / f"{name}.json").read_text()
    plan = Plan.from_json(text)
    assert plan.to_json() + "\n" == text
    assert plan.digest == FACTS["plans"][name]["digest"]
    assert plan.spent() == pytest.approx(FACTS["plans"][name]["spent"], rel=1e-9)


def test_a_ledger_goes_on_and_a_retry_of_what_it_paid_for_is_free(old):
    ledger = Ledger(old / "ledger.jsonl", accountant=RDP())
    spent, known = FACTS["ledger"]["spent"], len(ledger.history())
    assert ledger.spent() == pytest.approx(spent)
    assert [charge.job for charge in ledger.history()] == FACTS["ledger"]["jobs"]
    mechanism = Rows(plan_of((0.3, 0.5, 0.9)), OWNERS, key=KEY, ledger=ledger)
    for value in FACTS["ledger"]["values"]:
        assert mechanism.release(workloads.halves()).value.tolist() == value
    assert len(ledger.history()) == known
    mechanism.release(workloads.halves())
    assert len(ledger.history()) == known + 1
    assert ledger.spent()["first"] > spent["first"]


def test_a_finished_run_is_evaluated_and_left_as_it_is(old):
    folder = old / "run_finished"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = inosgm.evaluate(folder)
    assert found.steps_done == 4
    assert found.evaluation.loss == pytest.approx(FACTS["run_finished"]["evaluation"]["loss"], rel=1e-3)
    assert found.plan.spent().tolist() == pytest.approx(list(FACTS["run_finished"]["spent"].values()))
    again = inosgm.train(config("plain", run=str(folder)))
    stored = torch.load(folder / "model.pt", weights_only=True)
    assert torch.equal(parameters(again), torch.cat([value.flatten() for value in stored.values()]))
    assert {path: path.read_bytes() for path in before} == before
    told = json.loads(command("evaluate", folder, "--json"))
    assert told["steps"] == 4


RUNS = {
    "run_unfinished": ("plain", {}),
    "run_steered": ("asc", {}),
    "run_individual": (
        "plain",
        {"plan.method": "individual", "plan.steps": 6, "tail": {"kind": "linear", "fraction": 0.3}},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_an_unfinished_run_ends_as_if_nothing_had_happened(old, name):
    kind, changes = RUNS[name]
    wish = config(kind, run=str(old / name), **changes)
    assert "key must be the one that the run in" in refusal(lambda: inosgm.train(wish.changed({"key": 2})))
    resumed = inosgm.train(wish)
    assert 0 < resumed.training.begun_at < resumed.steps_done
    close(parameters(resumed), parameters(inosgm.train(config(kind, **changes))))


def test_a_copy_of_a_run_with_its_own_key_is_refused_until_it_is_made_the_run(old):
    folder = old / "run_without_key"
    wish = config("plain", run=str(folder), key=None)
    assert "is a copy of a run, with the same key" in refusal(lambda: inosgm.train(wish))
    (folder / "place").unlink()
    assert inosgm.train(wish).steps_done == 4
    assert not (folder / "key").exists()


@pytest.mark.parametrize("name", ["store_finished", "store_unfinished", "store_votes", "store_compared"])
def test_jobs_of_a_store_have_the_ids_that_they_had(old, name):
    store = Store(old / name)
    specs = store.specs()
    assert {path.name for path in (old / name / "jobs").iterdir()} == specs.keys()
    for job, spec in specs.items():
        assert spec.id == job
        assert JobSpec.from_json(spec.to_json()) == spec
    assert store.charges().keys() == {job for job, spec in specs.items() if spec.kind == "train"}


def test_a_finished_store_is_read_and_only_the_code_that_made_it_adds_to_it(old):
    place = old / "store_finished"
    results = Store(place).results()
    undisturbed = inosgm.train(config("plain", seed=Store(place).spec(next(iter(results))).seed))
    arrays = next(iter(results.values())).arrays.values()
    close(torch.cat([torch.from_numpy(value).flatten() for value in arrays]), parameters(undisturbed))
    assert json.loads(command("jobs", "status", place, "--json"))["done"] == 2
    assert json.loads(command("jobs", "summary", place, "--json"))["seeds"] == 2
    text = refusal(lambda: inosgm.train_seeds(config("plain"), 3, store=place, progress=False))
    assert "was made by other code (0.1.0+" in text
    assert text.endswith("go on with that, or take another store (--store)")


def test_a_half_finished_store_is_refused_because_the_code_is_another(old):
    place = old / "store_unfinished"
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    text = refusal(lambda: inosgm.train_seeds(config("plain"), 2, store=place, progress=False))
    assert "was made by other code (0.1.0+" in text
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    status = json.loads(command("jobs", "status", place, "--json"))
    assert status["done"] == 1


@pytest.mark.parametrize("name", ["statistic_finished", "statistic_unfinished"])
def test_a_store_of_a_statistic_is_refused_because_the_code_is_another(old, name):
    table = Table.of(old / "wages.csv", "wage", "who", megabytes=0.002)
    asked = {"bounds": workloads.BOUNDS, "level": 0.5, "rounds": 3, "key": KEY, "progress": False}
    text = refusal(lambda: inosgm.run_statistic("quantile", table, OWNERS, store=old / name, **asked))
    assert "holds another statistic, which differs in" in text
    assert "the code that it was begun with: take another store (--store)" in text


def test_the_answer_of_a_finished_statistic_is_read(old):
    found = json.loads(Store(old / "statistic_finished").get("estimate.json"))
    since = {"bias_bound": 0.0, "notes": [], "tested": None}  # what estimates had not then
    assert Estimate.from_dict(found).to_dict() == {**FACTS["statistic"], **since}


@pytest.mark.parametrize("name", FACTS["sums"])
def test_an_ordered_sum_is_read_and_merged(old, name):
    content = (old / "sums" / name).read_bytes()
    part = OrderedSum.from_bytes(content)
    assert part.to_bytes() == content
    assert spelled(part.exact()) == FACTS["sums"][name]
    data, places = workloads.records(), np.repeat([0, 1, 2], SIZES)
    tail, _, order = name.removesuffix(".zip").partition("-")

    def empty():
        if tail == "coins":
            return OrderedSum(plan_of((0.3, 0.5, 0.9), steps=1), LinearTail(20.0), secret=bytes(range(16)))
        return OrderedSum(plan_of(steps=1), tails(20.0)[tail], ORDERS[order])

    whole, rest = empty(), empty()
    others = np.setdiff1d(np.arange(len(data)), EVERY_FOURTH)
    for total, some in ((whole, np.arange(len(data))), (rest, others)):
        total.update(data[some, 1:], data[some, 0], places[some], some)
    if tail == "coins":  # that revision drew them in another way
        with pytest.raises(ValueError, match="a part that an earlier version of inosgm has written must be made again"):
            rest.merge(part)
        return
    rest.merge(part)
    assert np.array_equal(rest.exact(), whole.exact())


def test_a_store_of_an_audit_is_read(old):
    audit = inosgm.Audit.of(old / "store_audit", 4)
    assert spelled(audit.shadows.scores) == FACTS["store_audit"]["scores"]
    if workloads.arithmetic() == FACTS["arithmetic"]:  # else promises differ in a last bit, and are taken for others
        assert [one.epsilon for one in audit.mechanisms] == FACTS["store_audit"]["epsilons"]


def test_a_report_shows_all_of_them(old, tmp_path):
    shown = ["run_finished", "store_finished", "store_compared", "store_audit", "answer.json"]
    page = inosgm.report(*(old / name for name in shown), output=tmp_path / "report.html").read_text()
    assert all(word in page for word in ("breast_cancer", "malignant", "INO-SGD", "DP-SGD", "wage"))
