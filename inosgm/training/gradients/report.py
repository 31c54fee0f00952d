"""Which engine computes the gradients of a model, why, and what would be faster."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from inosgm.training.gradients.base import Engine
from inosgm.training.gradients.layers import origin_of_rules


@dataclass(frozen=True, kw_only=True)
class ModuleRow:
    """One module that has parameters of its own.

    Attributes:
        name: Its path in the model.
        kind: Its class.
        parameters: How many numbers it trains.
        how: How gradients of its parameters are computed.
    """

    name: str
    kind: str
    parameters: int
    how: str


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """Which engine computes the gradients of a model, why, and what would be faster; `str` gives a table.

    Attributes:
        engine: The name of the engine.
        reason: Why it was chosen.
        faster: What would be faster; empty if nothing is known.
        rows: One for each module that has parameters of its own.
    """

    engine: str
    reason: str
    faster: str
    rows: tuple[ModuleRow, ...]

    @property
    def slow(self) -> bool:
        """Whether a faster engine exists that does not serve the model."""
        return bool(self.faster)

    @property
    def line(self) -> str:
        """The engine, the reason and what would be faster, in one line."""
        faster = f"; faster: {self.faster}" if self.faster else ""
        return f"gradients by {self.engine}: {self.reason}{faster}"

    def __str__(self) -> str:
        rows = [("module", "class", "trained", "gradients by")]
        rows += [(row.name or "(model)", row.kind, f"{row.parameters:,}", row.how) for row in self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        table = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join([self.line, *table])


def report_of(engine: Engine, refused: Mapping[str, str], *, asked: bool = False) -> EngineReport:
    """Return the report about an engine.

    Args:
        engine: The engine.
        refused: Why each faster engine was not chosen, by its name.
        asked: Whether the user has chosen the engine.
    """
    name = type(engine).__name__
    followed = engine.followed()
    rows = tuple(_row(path, module, name, followed) for path, module in engine.model.named_modules() if _owns(module))
    if asked:
        return EngineReport(engine=name, reason="it was asked for", faster="", rows=rows)
    if not refused:
        ways = Counter(row.how for row in rows)
        reason = "; ".join(f"{count} modules {how}" if count > 1 else f"1 module {how}" for how, count in ways.items())
        return EngineReport(engine=name, reason=reason or "no faster one exists", faster="", rows=rows)
    reason = "; ".join(f"{other} does not serve the model, because {why}" for other, why in refused.items())
    first = next(iter(refused.values()))
    return EngineReport(engine=name, reason=reason, faster=_remedy(first), rows=rows)


REMEDIES = {
    "order": "keep records in the order of the batch: no sorting, no indexing by values, no `.item()`",
    "random": "draw random numbers for every record, with dropout of torch",
    "first axis": "keep records as the first axis of every tensor",
}
"""What a user can do, by a word of the reason."""


def _remedy(reason: str) -> str:
    for word, remedy in REMEDIES.items():
        if word in reason:
            return remedy
    return "register_layer_rule for the layer that is named, or a layer of torch in its place"


def _row(path: str, module: nn.Module, engine: str, followed: frozenset[int]) -> ModuleRow:
    own = [parameter for parameter in module._parameters.values() if parameter is not None]
    trained = [parameter for parameter in own if parameter.requires_grad]
    if not trained:
        how = "frozen"
    elif engine != "BookKeeping":
        how = "as the whole model"
    elif any(id(parameter) in followed for parameter in trained):
        how = "followed through torch functions"
    else:
        how = origin_of_rules(module)
    count = sum(parameter.numel() for parameter in trained)
    return ModuleRow(name=path, kind=type(module).__name__, parameters=count, how=how)


def _owns(module: nn.Module) -> bool:
    return any(parameter is not None for parameter in module._parameters.values())
