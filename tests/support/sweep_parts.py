"""What configurations in tests of sweeps name: optimizers that go wrong, and a searcher."""

import os
import signal
from pathlib import Path

import torch
from ray.tune.search import Searcher


class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("this one never works")


class Dying(torch.optim.SGD):
    """Kills its process once."""

    def __init__(self, parameters, lr, marker):
        super().__init__(parameters, lr)
        self.marker = Path(marker)

    def step(self, closure=None):
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(closure)


class Halving(Searcher):
    """Tries the middle of a range, then the middle of what lies below; it is told what came of points."""

    told: list = []  # noqa: RUF012

    def __init__(self, metric, mode, seed):
        super().__init__(metric=metric, mode=mode)
        assert seed == 0
        self.high = None

    def set_search_properties(self, metric, mode, config, **spec):
        (self.path, domain), *_ = config.items()
        self.low, self.high = domain.lower, domain.upper
        return True

    def suggest(self, trial_id):
        self.high = (self.low + self.high) / 2
        return {self.path: self.high}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((None if result is None else result[self.metric], error))

    def add_evaluated_point(self, parameters, value, error=False, pruned=False, intermediate_values=None):
        self.told.append((parameters, value))
