"""The pieces of the study work together, on embedded data and for two steps."""

import json
from dataclasses import replace

import pytest

from examples.study.cases import Arm, Design
from examples.study.choice import all_finals, best, criterion
from examples.study.designs import FULL, STUDY
from examples.study.pages import fill
from examples.study.runner import place, result, run, run_one
from examples.study.summary import summarise

DESIGN = Design(
    setting="M5",
    steps=2,
    expected_batch=50,
    lengths=(0.5, 1.0),
    clip_norms=(0.2,),
    plans=(("scale", "rdp"),),
    tails=(0.5, 0.7),
    tune_every_tail=False,
    held_out=100,
    fixed=((0.2, 3.0),),
    seeds=(1, 2),
)
IDP, INO = (Arm(plan="scale", accountant="rdp", tail=tail) for tail in (0.0, 0.7))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    for case in DESIGN.tuning():
        run_one(case, out)
    for case in all_finals(DESIGN, out):
        run_one(case, out)
    return out


def test_a_case_has_an_id_of_its_own_and_runs_the_same_again(results, tmp_path):
    cases = [*DESIGN.tuning(), *all_finals(DESIGN, results)]
    assert len({case.id for case in cases}) == len(cases) == 6 + 8 + 8
    again = cases[-1]
    run_one(again, tmp_path)
    first, second = result(again, results), result(again, tmp_path)
    times = {"seconds", "cpu_seconds"}
    assert {**first, **dict.fromkeys(times)} == {**second, **dict.fromkeys(times)}
    assert first["curve"]["steps"] == [0, 1, 2]
    assert not any(found["private"] for found in first["diagnostics"])


def test_what_was_run_is_not_run_again(results):
    before = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    run([*DESIGN.tuning(), *all_finals(DESIGN, results)], results, processes=0)  # a pool of 0 would be refused
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == before


def test_every_method_is_tuned_alike_and_the_best_point_is_taken(results):
    grids = {arm: [(case.clip_norm, case.learning_rate) for case in DESIGN.grid(arm)] for arm in DESIGN.arms()}
    assert len({tuple(points) for points in grids.values()}) == 1
    assert DESIGN.tuned_as(IDP) == IDP
    assert DESIGN.tuned_as(INO) == DESIGN.tuned_as(replace(INO, tail=0.5)) == INO
    values = [criterion(result(case, results)) for case in DESIGN.grid(IDP)]
    assert criterion(result(best(DESIGN, IDP, results), results)) == max(values)
    assert DESIGN.tuning_seed not in DESIGN.seeds


def test_the_same_seed_begins_the_same_for_every_arm(results):
    runs = [result(case, results) for case in all_finals(DESIGN, results) if case.seed == 1]
    assert len({json.dumps(found["curve"]["evaluations"][0]) for found in runs}) == 1


def test_tables_and_figures(results, tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "m5.md").write_text("# M5\n<!-- tuned -->old<!-- end -->\nwords\n<!-- time -->\n<!-- end -->\n")
    summarise(DESIGN, results, tmp_path / "out", pages)
    page = (pages / "m5.md").read_text()
    assert "old" not in page
    assert "words" in page
    assert page.count("INO-SGD 0.7") == 1
    assert "6 tuning runs and 16 runs that count" in page
    assert {path.name for path in pages.iterdir()} == {
        "m5.md",
        "m5.csv",
        "m5-owners.svg",
        "m5-scale-tuned.svg",
        "m5-scale-clip0.2-rate3.svg",
    }
    assert len((pages / "m5.csv").read_text().splitlines()) == 1 + 16
    assert fill(page, {}) == page


def test_a_summary_can_be_made_of_what_there_is(results, tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    cases = [*DESIGN.tuning(), *(case for case in all_finals(DESIGN, results) if case.seed == 1)]
    for case in cases:
        place(case, part).write_bytes(place(case, results).read_bytes())
    summarise(DESIGN, part, tmp_path / "out")
    assert "6 tuning runs and 8 runs that count" in (tmp_path / "out" / "tables.md").read_text()


def test_the_designs_keep_what_the_issue_asks_for():
    for design in FULL.values():
        assert len(design.plans) == 4
        assert len(design.seeds) == 5
        assert len(design.grid(IDP)) <= 6
        assert len(design.arms()) == 2 + 4 * 4
    assert STUDY["CA"] == FULL["CA"]
    assert STUDY["M5"] == FULL["M5"]
