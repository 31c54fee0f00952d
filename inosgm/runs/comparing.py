"""Several configurations on the same data with the same seeds: one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from inosgm import _validate
from inosgm._text import columns
from inosgm.config import TrainingConfig, differences
from inosgm.owners import Label
from inosgm.runs.building import build
from inosgm.runs.source import read
from inosgm.runs.training import Result, train
from inosgm.sgd.metrics import Evaluation

MOST_OWNERS = 12
"""Up to how many owners a table has a column for each."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What configurations are worth, run for run.

    Attributes:
        configs: The configurations by name.
        evaluations: The evaluations of each at the end of training, one per seed.
        seeds: The seeds.
    """

    configs: Mapping[str, TrainingConfig]
    evaluations: Mapping[str, tuple[Evaluation, ...]]
    seeds: tuple[int, ...]

    def table(self) -> str:
        """Return one row per configuration, for people: mean and standard deviation over the seeds."""
        owners = self._owners()
        shown = owners if len(owners) <= MOST_OWNERS else []
        header = ["configuration", "plan", "tail", "accuracy", "balanced", "worst owner", "spread", *map(str, shown)]
        rows = []
        for name, found in self.evaluations.items():
            plan, tail = self.configs[name].plan, self.configs[name].tail
            values: list[list[float | None]] = [
                [one.accuracy for one in found],
                [one.balanced_accuracy for one in found],
                [min(owner.accuracy or 0.0 for owner in one.by_owner.values()) for one in found],
                [one.spread for one in found],
                *([one.by_owner[label].accuracy for one in found] for label in shown),
            ]
            share = f" {getattr(tail, 'fraction', ''):g}" if hasattr(tail, "fraction") else ""
            rows.append([name, f"{plan.method}, {plan.accountant}", f"{tail.kind}{share}", *map(_mean, values)])
        lines = columns(header, rows)
        lines += [f"({len(owners)} owners: more than a table has room for)"] * (len(owners) > MOST_OWNERS)
        many = len(self.seeds) > 1
        about = f"mean ± standard deviation over the seeds {_validate.some(self.seeds)}" if many else "one seed"
        return "\n".join([*lines, f"accuracy on {self._records()} held-out records; {about}"])

    def _owners(self) -> list[Label]:
        return list(next(iter(self.evaluations.values()))[0].by_owner)

    def _records(self) -> int:
        return next(iter(self.evaluations.values()))[0].records


def compare(
    configs: Mapping[str, TrainingConfig], seeds: int = 1, *, tell: Callable[[str, Result], None] | None = None
) -> Comparison:
    """Train several configurations on the same data, with the same owners, budgets and seeds.

    Every run keeps the budgets by itself, and all runs together spend them as many times as there are runs: compare on
    data that need no protection. Run directories are not used.

    Args:
        configs: The configurations by name; they may differ in all but data, owners and seed.
        seeds: How many runs of each, with the seed of the configuration and those that follow it.
        tell: Is given name and result of every run.

    Raises:
        ValueError: for configurations that cannot be compared, naming the keys.
    """
    seeds = _validate.count("seeds", seeds, least=1)
    if len(configs) < 2:
        raise ValueError(f"configs must be two at least, got {len(configs)}")
    (first, base), *others = configs.items()
    for name, config in others:
        found = differences(base, config, (f"in {first}", f"in {name}"), within=("data", "owners", "seed"))
        if found:
            raise ValueError(f"configurations must agree on data, owners and seed; these differ in {found}")
    source = read(*configs.values())
    evaluations: dict[str, list[Evaluation]] = {name: [] for name in configs}
    numbers = tuple(range(base.seed, base.seed + seeds))
    for seed in numbers:
        for name, config in configs.items():
            result = train(build(config.model_copy(update={"seed": seed, "run": None}), source=source))
            evaluations[name].append(result.evaluation)
            if tell is not None:
                tell(name, result)
    return Comparison(
        configs=dict(configs), evaluations={name: tuple(found) for name, found in evaluations.items()}, seeds=numbers
    )


def _mean(values: list[float | None]) -> str:
    """Show a mean, with the standard deviation where there is one."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{fmean(known):.3f}" + (f" ± {stdev(known):.3f}" if len(known) > 1 else "")
