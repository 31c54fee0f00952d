"""Audits of a model that exists: bounds only where coins decided, and plain words where they did not."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from inosgm.audit.model_audit import TITLES, WITH_REFERENCES, audit_model
from inosgm.cli.program import app

RECORDS = 2000


def made(seed=0, shift=(0.0, 3.0), records=RECORDS):
    """Return scores, members and owners "a" and "b", whose members have scores that are higher by a shift."""
    generator = np.random.default_rng(seed)
    members = generator.random(records) < 0.5
    owners = np.where(np.arange(records) % 2, "b", "a")
    hardness = generator.normal(size=records)
    scores = hardness + generator.normal(size=records) + np.where(owners == "a", *shift) * members
    references = hardness + generator.normal(size=(4, records))
    return scores, members, owners, references


def test_the_owner_that_leaks_is_named_and_the_other_is_not():
    scores, members, owners, _ = made()
    found = audit_model(scores, members, owners=owners, randomised=True, epsilon={"a": 1.0, "b": 1.0})
    areas = found.successes["loss"]
    assert areas["b"].auc == pytest.approx(stats.norm.cdf(3 / 2), abs=0.03)  # difference of two variances of 2
    assert areas["a"].auc_low < 0.5 < areas["a"].auc_high
    assert [line[:8] for line in found.contradictions] == ["owner b:"]
    assert found.bounds["a"].epsilon == 0


def test_a_model_that_keeps_its_promise_is_contradicted_as_rarely_as_stated():
    """Randomised response with epsilon 1 on every record, 60 audits at 5 %: more than 9 have probability below 1e-3."""
    alarms = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        members = generator.random(400) < 0.5
        told = generator.random(400) < 1 / (1 + math.exp(-1))
        answers = np.where(told, members, ~members) + 0.01 * generator.random(400)
        alarms += bool(audit_model(answers, members, randomised=True, epsilon={"all": 1.0}).contradictions)
    assert alarms <= 9


def test_without_coins_there_are_no_bounds_and_the_page_says_why():
    scores, members, owners, _ = made()
    found = audit_model(scores, members, owners=owners, epsilon={"b": 1.0})
    assert not found.bounds
    assert not found.contradictions
    page = found.page()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(TITLES)
    assert "No bound on epsilon is given, because members were not chosen by coin" in page
    assert "No bound on epsilon" not in audit_model(scores, members, randomised=True).page()


def test_references_take_the_hardness_of_records_out():
    scores, members, _, references = made(1, (0.7, 0.7))
    found = audit_model(scores, members, references=references)
    assert tuple(found.successes) == WITH_REFERENCES
    assert found.successes["rmia"][None].auc > found.successes["loss"][None].auc + 0.02
    assert found.references == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.zeros((2, 2))}, "members must have the shape of the scores"),
        ({"members": np.ones(4)}, "members and non-members: got 4 of 4"),
        ({"members": np.arange(4)}, "members must be true or false"),
        ({"owners": ["a"]}, "owners must be one label per record, 4"),
        ({"references": np.zeros((2, 3))}, "a row per model and 4 columns"),
        ({"references": np.zeros((2, 4)), "reference_members": np.zeros((1, 4), bool)}, "reference_members must have"),
        ({"epsilon": {"c": 1.0}}, "epsilon must be of owners with records"),
        ({"epsilon": {"all": -1.0}}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"confidence": 1.0}, "confidence must be below 1"),
    ],
)
def test_refusals(changes, message):
    given = {"scores": np.arange(4.0), "members": np.array([True, False, True, False])} | changes
    with pytest.raises(ValueError, match=message):
        audit_model(given.pop("scores"), given.pop("members"), **given)


def test_the_command_reads_tables_of_losses_and_of_probabilities(tmp_path):
    scores, members, owners, references = made()
    table = tmp_path / "model.csv"
    rows = zip(members.astype(int), owners, -scores, 1 / (1 + np.exp(-scores)), -references[0], strict=True)
    lines = [f"{m},{o},{a!r},{p!r},{r!r}" for m, o, a, p, r in ((m, o, *map(float, rest)) for m, o, *rest in rows)]
    table.write_text("\n".join(["member,owner,loss,p,reference", *lines]))
    begin = [
        "audit-model",
        str(table),
        "--member",
        "member",
        "--owner-column",
        "owner",
        "--epsilon",
        "a=1",
        "--epsilon",
        "b=1",
    ]
    page = tmp_path / "page.md"
    told = CliRunner().invoke(app, [*begin, "--loss", "loss", "--randomised", "--output", str(page)])
    assert told.exit_code == 3, told.output
    assert "contradicted: owner b: epsilon is at least" in told.stderr
    assert page.read_text().strip() in told.stdout
    assert page.stat().st_mode & 0o777 == 0o600
    one, other, more = (
        json.loads(CliRunner().invoke(app, [*begin, *options, "--json"]).stdout)
        for options in (["--loss", "loss"], ["--probability", "p"], ["--loss", "loss", "--reference", "reference"])
    )
    assert one["attacks"]["loss"][0]["auc"] == pytest.approx(other["attacks"]["loss"][0]["auc"])
    assert list(more["attacks"]) == list(WITH_REFERENCES)
    for wrong, message in (
        ([], "give either --loss or --probability"),
        (["--loss", "los"], "has no column 'los'"),
        (["--probability", "loss"], "must hold probabilities"),
        (["--loss", "owner"], "must hold numbers"),
        (["--loss", "loss", "--epsilon", "b"], "--epsilon must be OWNER=NUMBER, got 'b'"),
    ):
        assert message in str(CliRunner().invoke(app, [*begin, *wrong]).exception)
