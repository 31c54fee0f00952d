"""What an audit says: tables, Parquet and figures from scores whose answers are known."""

import io
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.audit import mechanism_store
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.claims import Claim
from inosgm.audit.mechanism_audit import MechanismAudit
from inosgm.audit.pool import Shadows
from inosgm.audit.report import FILES, Audit, mechanism_confidence
from inosgm.jobs import Store
from inosgm.reports.roc import allowed, draw

SHIFTS = {"strict": 0.0, 7: 1.0}
"""How much higher the scores of an owner's members are, in standard deviations."""


def shadows(shifts=SHIFTS, count=40, records=60, asked=64, seed=0):
    """Gaussian scores: the best attack on an owner with shift d has AUC Phi(d / sqrt 2)."""
    draw_from = np.random.default_rng(seed)
    owners = np.arange(records * len(shifts)) % len(shifts)
    members = draw_from.integers(0, 2, (count, owners.size), dtype=bool)
    shift = np.array(list(shifts.values()))[owners]
    scores = draw_from.normal(size=members.shape) + members * shift + draw_from.normal(size=owners.size) * 3
    return Shadows(scores=scores.astype(np.float32), members=members, owners=owners, labels=tuple(shifts), asked=asked)


def claims(*owners, mu=2.0):
    """Promise that each owner's record is as hidden as a Gaussian of variance 1 is that moves by mu."""
    spent = float(gaussian_epsilon(mu, 1e-5))
    plan = {"delta": 1e-5, "sample_rate": 1.0, "noise_multiplier": 1 / mu, "steps": 1}
    return tuple(Claim(owner=owner, granted=spent, spent=spent, **plan) for owner in owners)


@pytest.fixture(scope="module")
def audit():
    return Audit(shadows=shadows(), claims=claims(*SHIFTS))


def test_successes_are_those_of_the_scores(audit):
    found = dict(audit.successes("online-global"))
    assert list(found) == ["strict", 7, None]
    for owner, shift in SHIFTS.items():
        assert found[owner].auc == pytest.approx(norm.cdf(shift / math.sqrt(2)), abs=0.04)
    assert audit.successes() is audit.successes(audit.attacks[0])


def test_the_table_says_how_many_there_were_and_who_is_promised_what(audit):
    told = audit.table()
    lines = told.splitlines()
    assert lines[0].startswith("40 of 64 shadow models: the true class gets p > 1/2 in ")
    assert max(map(len, lines)) <= 120
    rows = [line.split() for line in lines if line]
    assert [row[0] for row in rows if row[-1] == "contradicted"] == ["strict", "7"]
    area = dict(audit.successes())[7]
    assert f"{area.auc:.3f} ({area.auc_low:.3f} to {area.auc_high:.3f})" in told
    assert [row[0] for row in rows if row[0] in ATTACKS] == list(ATTACKS)
    assert next(row for row in rows if row[0] == "strict,")[:2] == ["strict,", "7"]
    assert (
        "at least so much at delta 1e-05, all at once with 95 % confidence)\n(the mechanism was not looked at" in told
    )
    assert lines[-1] == "NOT PRIVATE: this and the store are as secret as the records"
    alone = Audit(shadows=audit.shadows, claims=audit.claims, attacks=("loss",), targets=(3,))
    assert "(loss, on shadow model 3; each interval with 95 % confidence)" in alone.table()
    assert "AUC by attack" not in alone.table()


def test_a_leak_that_was_not_promised_is_contradicted():
    """A correct method fails with a probability of 5 % at most; the seed is fixed."""
    leaky = shadows({"safe": 0.0, "leaky": 4.0}, count=300, records=40, seed=1)
    found = Audit(shadows=leaky, claims=claims("safe", "leaky", mu=0.2))
    safe, bad = found.verdicts
    assert safe.contradicted == ()
    assert "many runs" in bad.contradicted
    assert all(line.startswith("owner leaky: epsilon is at least ") for line in found.contradictions)
    assert all(line.endswith(f", and {bad.claim.spent:.4g} was promised") for line in found.contradictions)
    assert "CONTRADICTED" in found.table()
    assert found.to_dict()["owners"][1]["contradicted"] == list(bad.contradicted)


def test_where_nothing_is_promised_nothing_is_contradicted():
    none = tuple(
        replace(claim, granted=None, spent=math.inf, noise_multiplier=1e-60) for claim in claims("safe", "leaky")
    )
    found = Audit(shadows=shadows({"safe": 0.0, "leaky": 4.0}, count=100), claims=none)
    assert found.contradictions == []
    assert found.table().count("nothing promised") == 2
    assert found.to_dict()["owners"][0]["spent"] is None
    stream = io.BytesIO()
    found.figure(stream)
    assert b"most that" not in stream.getvalue()


def test_an_owner_without_records_has_no_numbers():
    scores = shadows({"all": 0.5, "everyone": 0.5})
    some = Shadows(
        scores=scores.scores,
        members=scores.members,
        owners=np.zeros_like(scores.owners),
        labels=scores.labels,
        asked=64,
    )
    found = Audit(shadows=some, claims=claims("all", "everyone"))
    rows = [line.split() for line in found.table().splitlines()]
    assert ["everyone", "0", "-", "-", "-", "-"] in rows
    assert found.to_dict()["owners"][1]["attacks"] == {}
    found.figure(io.BytesIO())


@pytest.mark.parametrize(("count", "asked"), [(1, 1), (2, 512)])
def test_few_shadow_models_are_enough_to_say_something(count, asked, tmp_path):
    found = Audit(shadows=shadows(count=count, asked=asked), claims=claims(*SHIFTS))
    assert f"{count} of {asked} shadow models" in found.table()
    found.write(Store(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} >= set(FILES)


def test_an_attack_that_cannot_be_made_shows_nothing():
    told = Audit(shadows=shadows(count=1, asked=1), claims=claims(*SHIFTS)).table()
    rows = [line.split() for line in told.splitlines()]
    assert ["everyone", "120", "-", "-", "-", "-"] in rows
    assert ["online", "-", "-", "-"] in rows
    assert "(online needs more shadow models: loss does without)" in told
    stream = io.BytesIO()
    Audit(shadows=shadows(count=1, asked=1), claims=claims(*SHIFTS)).figure(stream)
    assert stream.getvalue().count(b">no statistic</text>") == 3


def test_models_that_diverged_are_mentioned(audit):
    scores = audit.shadows.scores.copy()
    scores[:10] = np.nan
    diverged = Audit(shadows=replace(audit.shadows, scores=scores), claims=audit.claims, attacks=("loss",))
    assert "\n(25 % of points have no statistic: models that diverged, or too few shadow models)\n" in diverged.table()
    none = Audit(
        shadows=replace(audit.shadows, scores=np.full_like(scores, np.nan)), claims=audit.claims, attacks=("online",)
    )
    assert "\n(100 % of points have no statistic: " in none.table()


def test_canaries_are_mentioned(audit):
    about = Audit(shadows=audit.shadows, claims=audit.claims, canaries=20)
    assert about.table().splitlines()[0] == "40 of 64 shadow models, the 20 canaries of every owner"
    assert about.to_dict()["canaries"] == 20
    one = Audit(shadows=audit.shadows, claims=audit.claims, canaries=1, attacks=("loss",), targets=(3, 5))
    assert one.about == "40 of 64 shadow models, the canary of every owner"
    assert "(loss, on shadow models 3, 5; " in one.table()


def test_what_is_written_is_what_was_found(audit, tmp_path):
    store = Store(tmp_path)
    audit.write(store)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in FILES} == {0o600}
    first = {name: store.get(name) for name in FILES}
    Audit(shadows=audit.shadows, claims=audit.claims).write(store)
    assert {name: store.get(name) for name in FILES} == first
    rows = pq.read_table(io.BytesIO(first["audit.parquet"])).to_pylist()
    assert [row["owner"] for row in rows] == ["strict", "7", None] * len(ATTACKS)
    for row in rows:
        owner = {"strict": "strict", "7": 7, None: None}[row["owner"]]
        one = dict(audit.successes(row["attack"]))[owner]
        assert (row["auc"], row["auc_low"], row["auc_high"]) == (one.auc, one.auc_low, one.auc_high)
        assert (row["tpr_0.01"], row["tpr_0.01_low"], row["tpr_0.01_high"]) == tuple(one.at[0.01])
        assert row["spent"] == (None if owner is None else audit.claims[0].spent)
    curves = pq.read_table(io.BytesIO(first["roc.parquet"]))
    assert curves.schema.metadata == {
        b"inosgm.shadows": b"40",
        b"inosgm.asked": b"64",
        b"inosgm.canaries": b"0",
        b"inosgm.confidence": b"0.95",
        b"inosgm.private": b"false: as secret as the records",
    }
    assert curves.num_rows == len(rows) * audit.successes()[0][1].fpr.size
    bounds = pq.read_table(io.BytesIO(first["bounds.parquet"])).to_pylist()
    assert [(row["owner"], row["bound"]) for row in bounds] == [
        (owner, bound) for owner in ("strict", "7") for bound in ("one run", "many runs")
    ]
    assert b"40 of 64 shadow models" in first["roc.svg"]
    assert b"NOT PRIVATE: this and the store are as secret as the records" in first["roc.svg"]
    audit.figure(tmp_path / "own.png")
    audit.to_parquet(str(tmp_path / "own.parquet"))
    assert {(tmp_path / f"own.{kind}").stat().st_mode & 0o777 for kind in ("png", "parquet")} == {0o600}


def test_many_owners_are_drawn_by_panels_and_the_worst_is_first():
    many = {f"owner-{place:02d}": place / 8 for place in range(15)}
    found = Audit(shadows=shadows(many, records=30), claims=claims(*many))
    stream = io.BytesIO()
    draw({"one": found}, stream, "online-global")
    text = stream.getvalue().decode()
    assert "owners on whom it does worse are not shown: 3" in text
    best = max(many, key=lambda owner: dict(found.successes("online-global"))[owner].auc)
    drawn = [text.index(f">{owner}</text>") for owner in many if f">{owner}</text>" in text]
    assert len(drawn) == 12
    assert text.index(f">{best}</text>") == min(drawn)


def test_two_methods_are_drawn_side_by_side(audit, tmp_path):
    draw({"INO-SGD": audit, "IDP-SGD": audit}, tmp_path / "two.png", "loss")
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")
    stream = io.BytesIO()
    draw({"INO-SGD": audit, "IDP-SGD": audit}, stream, "online")
    text = stream.getvalue().decode()
    for told in (
        "INO-SGD",
        "IDP-SGD",
        "attack: online, 95 % confidence bands",
        f"owner 7, ε = {audit.claims[1].spent:.3g}",
        "most that ε allows",
    ):
        assert f">{told}</text>" in text


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_what_epsilon_allows_is_what_a_gaussian_mechanism_reaches(mu, delta):
    rates = np.geomspace(1e-12, 1, 4000)
    most = allowed(float(gaussian_epsilon(mu, delta)), delta, rates)
    reached = norm.sf(norm.isf(rates) - mu)
    assert (reached <= most * (1 + 1e-6)).all()
    assert (most / reached).min() < 1.001  # it is tight at two rates


def test_nothing_is_allowed_beyond_certainty():
    rates = np.array([1e-6, 0.5, 1.0])
    assert allowed(math.inf, 1e-5, rates).tolist() == allowed(900.0, 1e-5, rates).tolist() == [1.0, 1.0, 1.0]
    assert allowed(0.0, 0.0, rates).tolist() == pytest.approx(rates.tolist())


def test_what_cannot_be_is_refused(audit):
    with pytest.raises(ValueError, match="attacks must be some of online, "):
        Audit(shadows=audit.shadows, claims=audit.claims, attacks=("clever",))
    with pytest.raises(ValueError, match=r"attacks must be some of online, .*, got foo"):
        audit.successes("foo")
    with pytest.raises(ValueError, match="targets must be different numbers of shadow models, got"):
        Audit(shadows=audit.shadows, claims=audit.claims, targets=(40,))
    with pytest.raises(ValueError, match="claims must be about the owners 'strict', 7"):
        Audit(shadows=audit.shadows, claims=audit.claims[:1])


def test_errors_of_all_bounds_add_up_to_one_minus_the_confidence():
    owners = 8
    mechanisms = owners * (1 - mechanism_confidence(0.9, owners))
    assert mechanisms == pytest.approx(0.05)


def test_stored_audits_of_a_mechanism_survive_the_last_bits_of_another_processor(tmp_path):
    store, (claim,) = Store(tmp_path / "store"), claims("strict")
    audit = MechanismAudit(claim=claim, promised=1.0, runs=100, confidence=0.95, rows=())
    mechanism_store.keep(store, [audit], 0.95)
    assert mechanism_store.kept(store, [replace(claim, spent=claim.spent * (1 + 1e-12))]) == ((audit,), 0.95)
    for change in ({"spent": claim.spent * 1.001}, {"steps": 2}, {"owner": 7}, {"unit": "replace-one"}):
        assert mechanism_store.kept(store, [replace(claim, **change)]) == ((), None)
