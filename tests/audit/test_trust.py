"""Attacks find what there is to be found: over-fitted models, wide budgets; and nothing where epsilon is small."""

import pytest

from inosgm.audit.attacks import ATTACKS
from inosgm.audit.auditing import lira
from inosgm.experiments.config import TrainingConfig

SHADOWS = 32


def overfitted(epsilon):
    """Return a network with more parameters than 100 records can tell, trained until it knows them by heart."""
    return TrainingConfig.from_dict(
        {
            "data": {"name": "digits", "subset": 200},
            "owners": {"fractions": [0.5, 0.5], "epsilon": epsilon, "delta": 1e-5},
            "model": {"name": "mlp", "options": {"widths": [64]}},
            "plan": {"method": "sample", "steps": 150, "expected_batch": 50.0, "clip_norm": 1.0},
            "tail": {"kind": "linear", "fraction": 0.4},
            "optimizer": {"name": "SGD", "lr": 0.5},
        }
    )


def audited(epsilon, **options):
    audit = lira(overfitted(epsilon), SHADOWS, runs=0, progress=False, **options)
    assert not audit.contradictions
    return audit


@pytest.fixture(scope="module")
def without_privacy():
    return audited([1.0, 1.0], private=False)


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_an_overfitted_model_without_privacy_is_attacked_well(attack, without_privacy):
    *_, (_, everyone) = without_privacy.successes(attack)
    assert everyone.auc > 0.6
    assert everyone.auc_low > 0.55


def test_the_same_model_with_epsilon_one_is_not():
    *_, (_, everyone) = audited([1.0, 1.0]).successes("online-global")
    assert everyone.auc_low < 0.53
    assert everyone.auc_high > 0.47


def test_owners_who_grant_much_are_attacked_better():
    (_, careful), (_, generous), _ = audited([0.5, 100.0]).successes("online-global")
    assert generous.auc_low > careful.auc_high
    assert careful.auc_low < 0.53
