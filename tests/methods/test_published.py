"""Theorem 4.5 of PDP-SGD is false: exact counterexamples, and an audit that finds it out without knowing them."""

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from inosgm import Ledger, Owners
from inosgm.accounting import Segment, composed_epsilon
from inosgm.accounting.tradeoff import plain_power
from inosgm.audit.bounds import Counts, Refutation
from inosgm.methods.pdp_published import published_accounting
from inosgm.methods.pdp_sgd import sampling_probabilities, threshold


def ratio(outcome, growth, left):
    """How much likelier an outcome of the rounds is with the record than without it, exactly.

    A round tells a bit by randomized response: 1 with probability g / (1 + g) if the record is drawn, and 1 / (1 + g)
    if not, where g = e^tau; so a 1 is g times as likely, and a 0 1/g times. Budgets are e^epsilon; what is left is
    divided by min(left, g) in a round in which the record is drawn (Algorithm 1, line 11).
    """
    if not outcome:
        return 1
    drawn = min(1, (left - 1) / (growth - 1))
    seen = growth if outcome[0] else 1 / growth
    passed_over = (1 - drawn) * ratio(outcome[1:], growth, left)
    return passed_over + (drawn * seen * ratio(outcome[1:], growth, left / min(left, growth)) if drawn else 0)


def ratios(rounds, growth, granted):
    return {outcome: ratio(outcome, growth, granted) for outcome in product((0, 1), repeat=rounds)}


class TestRandomizedResponse:
    def test_one_round_keeps_the_budget_and_two_do_not(self):
        # e^tau = 4 and e^epsilon = 2, so that everything is rational
        one, two = (ratios(rounds, Fraction(4), Fraction(2)) for rounds in (1, 2))
        assert max(one.values()) == 2
        assert max(two.values()) == two[1, 1] == Fraction(8, 3)
        assert min(two.values()) > Fraction(1, 2)

    def test_the_true_epsilon_of_the_half_is_0_719(self):
        mpmath.mp.dps = 30
        one, two = (ratios(rounds, +mpmath.e, mpmath.exp(0.5)) for rounds in (1, 2))
        assert mpmath.log(max(one.values())) == pytest.approx(0.5, abs=1e-12)
        true = mpmath.log(max(two.values()))
        assert true == pytest.approx(float(1 + mpmath.log(2) - mpmath.log(1 + mpmath.exp(0.5))), abs=1e-12)
        assert round(float(true), 3) == 0.719
        # outcomes are probabilities with the record as well
        without = {True: 1 / (1 + mpmath.e), False: mpmath.e / (1 + mpmath.e)}
        total = sum(ratio * without[a == 1] * without[b == 1] for (a, b), ratio in two.items())
        assert float(total) == pytest.approx(1, abs=1e-12)

    def test_with_more_rounds_nothing_of_the_amplification_is_left(self):
        worst = [np.log(ratio((1,) * rounds, np.e, np.exp(0.5))) for rounds in (1, 2, 5, 12)]
        assert worst == sorted(worst)
        assert 0.99 < worst[-1] < 1

    def test_an_audit_finds_it_out(self):
        runs, generator = 40_000, np.random.default_rng(1)
        tau, granted = 1.0, 0.5
        chance = sampling_probabilities([granted], tau)[0]

        def ones(there):
            left, told = np.full(runs, there), []
            for _ in range(2):
                drawn = left & (generator.random(runs) < chance)
                left = left & ~drawn  # it has paid with all it had
                told.append(generator.random(runs) < np.where(drawn, np.e, 1) / (1 + np.e))
            return int((told[0] & told[1]).sum())

        counts = Counts(true_positives=ones(True), members=runs, false_positives=ones(False), others=runs)
        error = 1e-9  # of refuting a claim that is true
        assert Refutation(counts).refutes(plain_power(granted, 0.0), error)
        assert not Refutation(counts).refutes(plain_power(0.719, 0.0), 0.01)


class TestGaussian:
    @pytest.mark.parametrize(("delta", "times", "least"), [(1e-6, 12, 0.069), (1e-5, 3, 0.061)])
    def test_ten_rounds_exceed_a_small_budget_even_at_the_delta_of_all_rounds(self, delta, times, least):
        # Rounds are Gaussian mechanisms that are exactly (tau, delta). A record that was drawn leaves, so that it is in
        # round j with probability p_j. Any test bounds epsilon from below; here a weighted sum of what is released.
        tau, granted, rounds = 0.5, 0.05, 10

        def spent(mu, epsilon):
            return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

        mu = brentq(lambda mu: spent(mu, tau) - delta, 0.01, 1)
        chance = sampling_probabilities([granted], tau)[0]
        drawn = chance * (1 - chance) ** np.arange(rounds)
        along = drawn / np.linalg.norm(drawn)
        at = np.linspace(0, 8, 401)

        def excess(epsilon):
            found = norm.sf(at[:, None] - mu * along) @ drawn + (1 - drawn.sum()) * norm.sf(at)
            return (found - np.exp(epsilon) * norm.sf(at)).max()

        claimed = rounds * delta  # Theorem 4.5
        assert excess(granted) > times * claimed
        assert excess(least) > claimed
        # one round keeps what it promises, and what a ledger would charge for all rounds is above what was found
        alone = composed_epsilon([Segment(chance, 1 / mu, 1)], chance * delta)
        assert alone == pytest.approx(granted, rel=1e-3)
        sound = composed_epsilon([Segment(chance, 1 / mu, rounds)], claimed)
        assert least < sound < 2.1 * granted


class TestAccounting:
    owners = Owners(of_record=[0] * 600 + [1] * 400, epsilon=[0.5, 2.0], delta=1e-5)

    def test_it_claims_that_nobody_exceeds_a_budget(self):
        found = published_accounting(self.owners, rounds=3, delta=1e-5, thresholds=[1.0, 0.8, 0.1])
        assert found.claimed_delta == pytest.approx(3e-5)
        assert (found.claimed <= self.owners.epsilon[self.owners.of_record]).all()
        assert (found.claimed[~found.drawn.any(axis=0)] == 0).all()
        assert (found.charged[:, 600:].T == [1.0, 0.8, 0.1]).all()
        # 600 coins of 0.378: beyond 5 standard deviations once in 1.7 million seeds
        assert abs(found.drawn[0, :600].sum() - 226.5) < 5 * np.sqrt(226.5 * 0.6225)
        assert "NOT a guarantee" in found.report()

    def test_thresholds_as_published_give_away_who_was_drawn(self):
        # At a first threshold of 0.6 three owners are drawn for sure, and a record with 0.5 with a probability of 0.79.
        others, first, record = np.array([0.9, 1.0, 1.0]), 0.6, 0.5
        assert (sampling_probabilities(others, first) == 1).all()
        assert sampling_probabilities([record], first)[0] < 0.8
        left = others - first
        without, drawn, passed_over = (
            threshold([*left, *rest], np.ones(3 + len(rest))) for rest in ([], [0], [record])
        )
        assert without == drawn == pytest.approx(0.3)
        assert passed_over == pytest.approx(0.4)  # seen with probability 0.21, and never without the record

    def test_no_ledger_takes_it(self, tmp_path):
        found = published_accounting(self.owners, rounds=2, delta=1e-5, thresholds=[1.0, 1.0])
        ledger = Ledger(tmp_path / "ledger.jsonl", owners=self.owners)
        before = (tmp_path / "ledger.jsonl").read_bytes()
        with pytest.raises(TypeError, match="Cost"):
            ledger.charge(found)
        assert (tmp_path / "ledger.jsonl").read_bytes() == before
        assert set(ledger.spent().values()) == {0.0}

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(ValueError, match="one for each of 2 rounds, got 1"):
            published_accounting(self.owners, rounds=2, delta=1e-5, thresholds=[1.0])
        alike = Owners(of_record=[0, 0], epsilon=[1.0], delta=1e-5)
        with pytest.raises(ValueError, match="at most 1 here, got 2: no record has any budget after that"):
            published_accounting(alike, rounds=2, delta=1e-5, thresholds=[1.0, 1.0])
