"""Sweeps: their points, what they cost, and that all of them end with the same table, however they were run."""

import pytest

from inosgm.config import TrainingConfig
from ray_jobs.domains import Choice, Integers, LogUniform, Uniform, domain_from, values_from
from ray_jobs.grid import grid_of, points_of, samples_of

BASE = {
    "data": {"name": "breast_cancer"},
    "owners": {"by": "class", "epsilon": {"benign": 5, "malignant": 1}, "delta": 1e-4},
    "model": {"name": "logistic_regression"},
    "plan": {"method": "sample", "steps": 6, "expected_batch": 64, "clip_norm": 1.0, "accountant": "rdp"},
    "tail": {"kind": "linear", "fraction": 0.4},
    "optimizer": {"name": "SGD", "lr": 1.0},
    "training": {"evaluate_every": 2},
    "key": 1,
}
CONFIG = TrainingConfig.from_dict(BASE)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("0.1..1", "must be of the form uniform:0.1..0.9, log:0.01..10, integer:16..64 or choice:SGD,Adam"),
        ("log:1", "must be of the form uniform"),
        ("even:1..2", "must be of the form uniform"),
        ("log:0..1", "low must be finite and > 0, got 0"),
        ("uniform:2..1", r"low must be below high, got 2\.0 and 1\.0"),
        ("uniform:1..inf", "high must be a number|high must be finite"),
        ("integer:1..2.5", "high must be a whole number, got 2.5"),
        ("integer:3..3", "low must be below high, got 3 and 3"),
        ("choice:a", r"values must be two at least, got \['a'\]"),
        ("choice:[", "line 1"),
    ],
)
def test_domains_that_cannot_be(text, about):
    with pytest.raises((ValueError, TypeError), match=about):
        domain_from(text)


def test_values_are_yaml():
    assert values_from("1,0.5,true,null,[2, 3],no,'1'") == [1, 0.5, True, None, [2, 3], "no", "1"]
    with pytest.raises(ValueError, match="there must be a value"):
        values_from("")


def test_points_are_a_product_and_each_is_there_once():
    points = points_of(CONFIG, grid_of({"optimizer.lr": [0.5, 1.0, 1], "tail.fraction": [0.3, 0.5]}))
    assert [point.name for point in points] == [
        f"optimizer.lr={rate} tail.fraction={share}" for rate in (0.5, 1.0) for share in (0.3, 0.5)
    ]
    assert [point.config.optimizer.lr for point in points] == [0.5, 0.5, 1.0, 1.0]
    assert all(point.config.changed({"optimizer.lr": 1, "tail.fraction": 0.4}) == CONFIG for point in points)


def test_sections_can_be_values_and_absent_sections_can_be_made():
    points = points_of(CONFIG, grid_of({"tail": [{"kind": "none"}], "schedule.name": ["LinearLR"]}))
    assert (points[0].config.tail.kind, points[0].config.schedule.name) == ("none", "LinearLR")
    assert points[0].name == 'tail={"kind": "none"} schedule.name=LinearLR'


def test_all_that_is_wrong_is_said_at_once():
    grid = {"optimizer.lr": [0.1, -1], "tail.fraction": [0.3, 2], "plan.stpes": [3], "data.name": ["digits"]}
    with pytest.raises(ValueError, match="the sweep has") as caught:
        points_of(CONFIG, grid_of(grid))
    places = [(0.1, 0.3), (0.1, 2), (-1, 0.3)]
    at = [f"(at optimizer.lr={rate} tail.fraction={share} plan.stpes=3 data.name=digits)" for rate, share in places]
    assert str(caught.value).splitlines() == [
        "the sweep has 3 problems:",
        f"  plan.stpes: unknown key; did you mean steps? {at[0]}",
        f"  tail.fraction: must be <= 1, got 2 {at[1]}",
        f"  optimizer.lr: must be > 0, got -1 {at[2]}",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [("data.name", "digits"), ("owners.delta", 1e-5), ("seed", 3), ("key", 4), ("run", "here"), ("ledger", "there")],
)
def test_points_share_data_owners_and_seeds(path, value):
    with pytest.raises(ValueError, match=f"{path.split('.')[0]}: cannot differ within a sweep"):
        points_of(CONFIG, grid_of({path: [value]}))


def test_samples_are_a_function_of_the_seed_and_the_first_ones_stay():
    search = {
        "optimizer.lr": LogUniform(0.01, 10),
        "tail.fraction": Uniform(0.2, 0.8),
        "plan.steps": Integers(3, 5),
        "order": Choice(["random", "descending"]),
    }
    drawn = samples_of(search, 40, seed=0)
    assert drawn[:7] == samples_of(search, 7, seed=0) != samples_of(search, 7, seed=1)[:7]
    assert drawn[:7] == [
        {path: values[path] for path in search} for values in samples_of(dict(reversed(search.items())), 7, seed=0)
    ]
    assert all(0.01 <= one["optimizer.lr"] <= 10 and 0.2 <= one["tail.fraction"] <= 0.8 for one in drawn)
    assert {one["plan.steps"] for one in drawn} == {3, 4, 5}
    assert {one["order"] for one in drawn} == {"random", "descending"}
    assert [point.values for point in points_of(CONFIG, drawn)] == drawn
    assert all(float(f"{one['optimizer.lr']:.4g}") == one["optimizer.lr"] for one in drawn)
