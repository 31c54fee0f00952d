"""The pieces of the study of strict owners work together, on embedded data and for a few steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from examples.strict_study import page
from examples.strict_study import runs as runs_of_study
from examples.strict_study.earlier import chosen_points
from examples.strict_study.extras import extras
from examples.strict_study.learnt import learnt_strength, release_plan
from examples.strict_study.points import Method, Point, level, methods
from examples.strict_study.runs import Runs
from examples.strict_study.summary import measures, outcomes
from examples.strict_study.tables import CSV_HEAD, csv_rows
from examples.strict_study.tasks import TASKS, Grid
from examples.strict_study.together import Together
from examples.strict_study.tradeoffs import paths
from examples.strict_study.training import Runner
from examples.strict_study.tuning import belongs, choose, tune
from examples.strict_study.views import SHIFTS, Views, views_loss
from inosgm import PLD, LinearTail, LogitAdjustment, Owners, Trainer

GRID = Grid(rates=(0.3, 1.0), tails=(0.5,), strengths=(0.0, 1.0))
TASK = replace(TASKS["mnist5k"], steps=3, expected_batch=64, options={"widths": (4,), "activation": "tanh"}, grid=GRID)
SMALL = replace(TASK, plans=("scale",), seeds=(1, 2), tuning_seeds=(101,))
SOME = [method for method in methods(SMALL) if method.plan != "asc"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.mark.parametrize("model", ["mlp", "logistic_regression"])
def test_models_that_share_batches_are_those_of_a_trainer(kept, model):
    task = replace(TASK, model=model, options=TASK.options if model == "mlp" else {}, momentum=0.9)
    runner = Runner(task, 7, None, kept)
    points = [Point("uniform", 1.0), Point("scale", 3.0), Point("scale", 1.0, 0.7), Point("scale", 0.3, 0.5, 1.5)]
    plans = [runner.plan(point.plan) for point in points]
    priors = [LogitAdjustment(plan).offsets for plan in plans]
    records, owners = runner.records, runner.owners.of_record
    many = Together([runner._model() for _ in points], points, plans, priors, records, owners, 0.9, 7)
    many.train(task.steps)
    for index, (point, plan) in enumerate(zip(points, plans, strict=True)):
        alone = runner._model()
        loss = LogitAdjustment(plan, strength=point.inside).loss(nn.CrossEntropyLoss())
        optimizer = torch.optim.SGD(alone.parameters(), lr=point.rate, momentum=0.9)
        trainer = Trainer(plan, alone, loss, optimizer, tail=LinearTail(plan.tail_length(point.tail)), key=7)
        trainer.fit(records.x, records.y, progress=False)
        for mine, theirs in zip(many.parameters, alone.parameters(), strict=True):
            torch.testing.assert_close(mine[index], theirs.detach(), rtol=1e-4, atol=1e-5)


def test_models_with_other_sample_rates_do_not_share_batches(kept):
    runner = Runner(TASK, 7, None, kept)
    plans = [runner.plan("scale"), runner.plan("sample")]
    points = [Point("scale", 1.0), Point("sample", 1.0)]
    with pytest.raises(ValueError, match="same sample rates"):
        Together([runner._model()] * 2, points, plans, [np.zeros(10)] * 2, runner.records, np.zeros(4000, int), 0.0, 7)


@pytest.fixture(scope="module")
def tuned(kept, tmp_path_factory):
    """The file of a small study that has tuned every method but ASC and run the reported seeds, and its choices."""
    file = tmp_path_factory.mktemp("study") / "mnist5k.jsonl"
    runs = Runs(SMALL, file, None, kept)
    choices = tune(runs, SOME)
    runs.finish([choice.point for choice in choices.values()], SMALL.seeds)
    return file, choices


def test_a_study_resumes_and_ends_at_no_edge(kept, tuned, tmp_path):
    file, choices = tmp_path / "runs.jsonl", tuned[1]
    file.write_text(tuned[0].read_text() + '\n{"point": {"plan"')  # killed while it wrote a line
    runs = Runs(SMALL, file, None, kept)
    assert {method.name: choose(runs, method) for method in SOME} == choices
    for method in SOME:
        chosen = choices[method.name]
        assert belongs(method, chosen.point)
        assert all(runs.get(point, SMALL.tuning_seeds[0]) for point in method.neighbours(chosen.point))
    before = file.read_bytes()
    runs.finish([choice.point for choice in choices.values()], SMALL.seeds)
    assert file.read_bytes() == before


@pytest.mark.long  # runs the paths and extras of a page
def test_a_page_is_made_of_what_there_is(kept, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "TASKS", {"mnist5k": SMALL, "cm": TASKS["cm"]})
    monkeypatch.setattr(page, "PICTURED", ("mnist5k",))
    (tmp_path / "mnist5k.jsonl").write_text(tuned[0].read_text())
    runs = Runs(SMALL, tmp_path / "mnist5k.jsonl", None, kept)
    runs.finish(paths(tuned[1]), SMALL.seeds[:1])
    extras(runs, tuned[1])
    text = "words\n<!-- mnist5k -->old<!-- end -->\n<!-- mnist5k-extras --><!-- end -->\n<!-- cm -->kept<!-- end -->"
    (tmp_path / "strict_owners.md").write_text(text)
    page.write(tmp_path, tmp_path)
    filled = (tmp_path / "strict_owners.md").read_text()
    assert "old" not in filled
    assert "words" in filled
    assert "kept" in filled
    assert "\n| INO-SGD (SCALE) + c |" in filled
    assert "INO-SGD (SCALE) + c minus DP-SGD" in filled
    assert "| random order |" in filled
    assert len((tmp_path / "strict_owners.csv").read_text().splitlines()) == 1 + 5 * len(SMALL.seeds)
    for picture in ("balance", "owners"):
        assert (tmp_path / f"strict_owners-{picture}.svg").read_text().startswith("<?xml")


def test_a_page_keeps_what_an_earlier_study_has_reported(kept, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "TASKS", {"mnist5k": SMALL, "cm": TASKS["cm"]})
    (tmp_path / "mnist5k.jsonl").write_text(tuned[0].read_text())
    text, csv = tmp_path / "strict_owners.md", tmp_path / "strict_owners.csv"
    text.write_text("<!-- mnist5k -->old<!-- end --><!-- mnist5k-extras -->extras<!-- end --><!-- cm -->cm<!-- end -->")
    csv.write_text(f"{','.join(CSV_HEAD)}\nmnist5k,ASC,1,1,0,0,0,0.1\ncm,DP-SGD,1,0.3\n")
    page.write(tmp_path, tmp_path)  # the runs of ASC are missing: its rows must not be lost
    assert "old" in text.read_text()
    assert "mnist5k,ASC,1" in csv.read_text()
    csv.write_text(f"{','.join(CSV_HEAD)}\nmnist5k,DP-SGD,1,0.3\ncm,DP-SGD,1,0.3\n")
    page.write(tmp_path, tmp_path)
    assert "old" not in text.read_text()
    assert "<!-- mnist5k-extras -->extras<!-- end -->" in text.read_text()
    assert csv.read_text().splitlines()[-1] == "cm,DP-SGD,1,0.3"


def test_the_csv_states_the_points_that_were_chosen(kept, tuned, tmp_path):
    runs = Runs(SMALL, tuned[0], None, kept)
    csv = tmp_path / "strict_owners.csv"
    lines = [CSV_HEAD, *csv_rows("mnist5k", outcomes(runs))]
    csv.write_text("".join(",".join(line) + "\n" for line in lines))
    assert chosen_points(csv, "mnist5k", SOME) == {name: choice.point for name, choice in tuned[1].items()}
    assert chosen_points(csv, "cm", SOME) == {}


def test_a_task_may_use_the_points_that_another_has_chosen(kept, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(runs_of_study, "TASKS", {"mnist5k": SMALL})
    (tmp_path / "mnist5k.jsonl").write_text(tuned[0].read_text())
    runs = Runs(replace(SMALL, tuned_as="mnist5k"), tmp_path / "other.jsonl", None, kept)
    assert outcomes(runs) == {}
    runs.finish([tuned[1]["DP-SGD"].point], SMALL.seeds)
    assert outcomes(runs)["DP-SGD"].choice == tuned[1]["DP-SGD"]


def test_recalls_are_those_of_owners_from_the_strictest_on():
    row = {
        "owner_of_class": ["b", "a", "b"],
        "epsilon_of_class": [5.0, 1.0, 5.0],
        "held_out": [[1, 1, 1], [10, 20, 10]],
        "right": {"0.0": [[0, 0, 0], [9, 4, 7]]},
    }
    found = measures(row, 0.0)
    assert found.recalls == pytest.approx((0.2, 0.8))
    assert found.accuracy == pytest.approx(0.5)
    assert found.balanced == pytest.approx((0.9 + 0.2 + 0.7) / 3)
    assert (found.strictest, found.worst, found.spread) == pytest.approx((0.2, 0.2, 0.3))


def test_seeds_and_records_that_choose_are_not_reported(kept):
    records = Runner(TASK, 1, None, kept).records
    sizes = np.array(records.counts(np.ones(len(records.y_test), dtype=bool)))
    assert sizes.sum() == len(records.y_test)
    assert (abs(sizes[0] - sizes[1]) <= 1).all()
    for task in TASKS.values():
        assert not set(task.tuning_seeds) & set(task.seeds)


def test_every_method_has_the_same_learning_rates_and_strengths():
    some = methods(TASKS["cm"])
    assert [method.name for method in some] == [
        "DP-SGD",
        "IDP-SGD (SCALE)",
        "IDP-SGD (SCALE) + c",
        "INO-SGD (SCALE)",
        "INO-SGD (SCALE) + c",
        "ASC",
        "ASC + c",
    ]
    grids = [method.start(TASKS["cm"].grid) for method in some]
    assert len({frozenset(point.rate for point in grid) for grid in grids}) == 1
    corrected = [grid for grid, method in zip(grids, some, strict=True) if method.corrected and method.plan != "asc"]
    assert len({frozenset(point.inside for point in grid) for grid in corrected}) == 1
    assert Point("scale", 1.0, 0.5, 0.5) in Method("", "scale", tailed=True, corrected=True).neighbours(
        Point("scale", 1.0, 0.3, 0.5)
    )


def test_a_strength_that_is_learnt_costs_no_more_than_is_granted(kept):
    runner = Runner(TASK, 1, None, kept)
    release, rest = release_plan(runner.owners, 0.2), runner.plan("learnt 0.2")
    accountant = PLD()
    spent = accountant.epsilon([release.segment(), rest.segment()], runner.owners.delta)
    assert (spent <= runner.owners.epsilon).all()
    assert (accountant.epsilon([release.segment()], runner.owners.delta) <= 0.2 * runner.owners.epsilon).all()


def test_a_strength_is_learnt_if_budgets_are_large():
    """The logits are those of a balanced model, moved by twice the logarithm of the prior."""
    prior, classes = np.log([0.8, 0.2]), torch.tensor([0, 1] * 500)
    owners = Owners(of_record=classes.numpy(), epsilon=1000.0, delta=1e-5)
    logits = torch.from_numpy(2 * prior).float() + 4 * nn.functional.one_hot(classes, 2).float()
    assert learnt_strength(logits, classes, owners, prior, 0.2, np.random.default_rng(0)) == 2.0


def test_clip_norms_keep_sensitivities(kept):
    """Whatever gradients are clipped to, no contribution is longer than the sensitivity of its owner."""
    runner = Runner(TASK, 1, None, kept)
    points = [Point("scale", 1.0, clip=clip) for clip in ("own 1", "own 0.1", "common 0.3", "common 3")]
    plans = [runner.plan("scale")] * 4
    records, owners = runner.records, runner.owners.of_record
    many = Together([runner._model() for _ in points], points, plans, [np.zeros(10)] * 4, records, owners, 0.0, 7)
    batch = np.arange(0, 4000, 100)
    norms = np.geomspace(1e-3, 1e3, batch.size) * np.ones((4, 1))
    lengths = many._factors(norms, np.zeros_like(norms), batch, 0) * norms
    bounds = plans[0].sensitivities[owners[batch]]
    assert (lengths <= bounds * (1 + 1e-12)).all()
    np.testing.assert_allclose(lengths[0], np.minimum(norms[0], bounds))
    assert (lengths[1] >= lengths[0] * (1 - 1e-12)).all()


def test_views_are_averaged_before_clipping():
    torch.manual_seed(0)
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(9, 2)), torch.rand(4, 9)
    logits = Views(model, 3)(images)
    assert logits.shape == (4, 2, len(SHIFTS))
    torch.testing.assert_close(logits[:, :, 0], model(images))
    moved = images.view(4, 3, 3).roll(SHIFTS[1], (1, 2)).flatten(1)
    torch.testing.assert_close(logits[:, :, 1], model(moved))
    classes = torch.tensor([0, 1, 0, 1])
    each = [nn.functional.cross_entropy(logits[:, :, view], classes, reduction="none") for view in range(len(SHIFTS))]
    torch.testing.assert_close(views_loss(logits, classes), torch.stack(each).mean(0))


def test_asc_runs_with_the_trainer(kept):
    (rows,) = Runner(TASK, 1, None, kept).run([Point("asc", 1.0, temperature=1.0, inside=1.0)], curve=True)
    assert [step for step, _ in rows[0]["curve"]][-1] == TASK.steps
    assert len(rows[0]["right"]["0.0"][1]) == 10


def test_a_level_takes_from_the_largest():
    assert level(np.array([1.0, 4.0]), 0.0).tolist() == [1.0, 4.0]
    assert level(np.array([1.0, 4.0]), 4.0) == pytest.approx([0.5, 0.5])
