"""The demonstration: four methods on ten owners of real data, an audit, a private statistic; a table and a page."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inosgm._internal.files import write_durably
from inosgm.audit.auditing import attack_study
from inosgm.audit.report import FILES
from inosgm.audit.shadow_study import ShadowStudy
from inosgm.cli.demonstration.tumours import answers
from inosgm.experiments import Comparison, ComparisonStudy
from inosgm.experiments.code_version import code_version
from inosgm.experiments.comparison_results import holds_comparison
from inosgm.experiments.config import TrainingConfig
from inosgm.jobs import Executor, Store

if TYPE_CHECKING:
    from inosgm.reports import Contents

Tell = Callable[[str], None]

PAGE = "report.html"

METHODS = ("dp-sgd", "idp-sgd", "ino-sgd", "ino-sgd-adjusted")

METHOD = {
    "data": {"name": "mnist5k"},
    "owners": {"by": "class", "epsilon": [0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.75, 2.0], "delta": 1e-5},
    "model": {"name": "mlp", "options": {"widths": [32], "activation": "tanh"}},
    "plan": {"method": "scale", "steps": 150, "expected_batch": 500, "clip_norm": 1.0},
    "tail": {"kind": "linear", "fraction": 0.7},
    "adjustment": {"loss": 1.0, "after": 0.5},
    "optimizer": {"name": "SGD", "lr": 1.0},
}
"""INO-SGD with adjusted logits on 4,000 images of MNIST. Ten owners hold one digit each. The plan gives the owner of
digit 0, who grants least, about 1 % of a batch. Learning rate, tail and strength after training are tuned."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of the demonstration.

    Attributes:
        steps: Steps of each run.
        rates: The learning rates among which each method is tuned.
        fractions: The tails among which each method with a tail is tuned.
        strengths: The strengths after training among which each adjusted method is tuned.
        seeds: Runs of each tuned method.
        shadows: Shadow models of the audit.
        runs: Runs of the mechanism for each owner's bound.
    """

    steps: int = 150
    rates: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    fractions: tuple[float, ...] = (0.5, 0.7, 0.9)
    strengths: tuple[float, ...] = (0.0, 0.5, 1.0)
    seeds: int = 5
    shadows: int = 64
    runs: int = 1000

    @property
    def grid(self) -> dict[str, tuple[float, ...]]:
        """The values that are tried for every method that has the key."""
        return {"optimizer.lr": self.rates, "tail.fraction": self.fractions, "adjustment.after": self.strengths}


FULL = Size()


def run(
    folder: str | os.PathLike[str], executor: Executor, *, size: Size = FULL, progress: bool, tell: Tell
) -> "Contents":
    """Run what is missing of the demonstration, and write its page.

    Args:
        folder: The directory of all results; the demonstration in it is resumed.
        executor: Trains the models.
        size: The size of the demonstration.
        progress: Show the progress.
        tell: Takes lines about what happens.

    Returns:
        The content of the page.
    """
    from inosgm.reports import read, write

    place = Path(folder)
    config = TrainingConfig.from_dict(METHOD).changed({"plan.steps": size.steps})
    _make_room(place, code_version(config), tell)
    tell("1 of 4: a private statistic with a heavy tail, of 569 tumours")
    for line in answers(place / "statistics"):
        tell(f"  {line}")
    with executor:
        tell("2 of 4: DP-SGD, IDP-SGD and INO-SGD without and with adjusted logits, 4,000 images, ten owners, one grid")
        found = _comparison(config, Store(place / "comparison"), executor, size, progress, tell)
        tell("3 of 4: attacks on the last of them: membership inference, and its mechanism")
        _audit(found.methods[METHODS[-1]].config, Store(place / "audit"), executor, size, progress)
    tell("4 of 4: the page")
    contents = read(place)
    write(contents, output=place / PAGE, title="What inosgm does, on ten owners of MNIST")
    return contents


def _make_room(place: Path, code: str, tell: Tell) -> None:
    """Rename the directory of a demonstration by other code, which cannot be resumed."""
    mark = place / "demo.json"
    if mark.exists() and (made := json.loads(mark.read_text())["code"]) != code:
        aside = place.with_name(f"{place.name}-{made}")
        while aside.exists():
            aside = aside.with_name(f"{aside.name}-again")
        place.rename(aside)
        tell(f"{place} was made by other code: it is {aside} now; this one starts again, and owners pay again")
    elif place.exists() and not mark.exists() and any(place.iterdir()):
        raise ValueError(f"--output {place} must be a new directory, or that of a demonstration: it holds other things")
    place.mkdir(parents=True, exist_ok=True)
    write_durably(mark, json.dumps({"code": code}).encode() + b"\n")


def _comparison(
    config: TrainingConfig, store: Store, executor: Executor, size: Size, progress: bool, tell: Tell
) -> Comparison:
    """Compare the methods, unless that is done."""
    if holds_comparison(store) and _complete(found := Comparison.of(store), size):
        return found
    study = ComparisonStudy(config, METHODS, seeds=size.seeds, tune=size.grid, store=store)
    found = study.run(executor, progress=progress, tell=lambda line: tell(f"  {line}"))
    if not _complete(found, size):
        raise RuntimeError(f"runs failed permanently: `inosgm jobs status {store.uri} --tracebacks` says why")
    return found


def _complete(found: Comparison, size: Size) -> bool:
    """Return whether all runs of the tuned methods are done."""
    return all(len(method.curves) >= size.seeds for method in found.methods.values())


def _audit(config: TrainingConfig, store: Store, executor: Executor, size: Size, progress: bool) -> None:
    """Attack a method as it was tuned, unless that is done."""
    with suppress(FileNotFoundError):
        store.get(FILES[-1])
        return
    study = ShadowStudy(config, size.shadows, store=store)
    if study.run(executor, progress=progress).failed:
        raise RuntimeError(f"shadow models failed permanently: `inosgm jobs status {store.uri} --tracebacks` says why")
    attack_study(study, runs=size.runs, progress=progress).write(store)
