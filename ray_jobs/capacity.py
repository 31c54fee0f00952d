"""The resources of a worker, and the number of workers that nodes hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inosgm._internal import validate as _validate

UNIT = 10_000
"""Ray counts resources in ten-thousandths; smaller amounts would be rounded to nothing."""

OWN_NAMES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "", "object_store_memory": ""}
"""Resources that Ray itself knows, and the argument for each."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The resources of a worker.

    Args:
        num_cpus: CPUs, more than 0. A worker computes with as many threads as it has whole CPUs, at least one; with a
            fraction several workers share a CPU, which is of use where they wait for a GPU most of the time.
        num_gpus: GPUs: none, a part of one, or a whole number.
        resources: Resources that the cluster's nodes were started with, by name.

    Raises:
        ValueError: for numbers that no cluster could grant.

    >>> Request(num_cpus=0.5, num_gpus=0.4).held_by({"CPU": 8, "GPU": 3})
    6
    """

    num_cpus: float = 1
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        least = 1 / UNIT
        _validate.number("num_cpus", self.num_cpus, least=least)
        gpus = _validate.number("num_gpus", self.num_gpus, least=0)
        if 0 < gpus < least or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(
                f"num_gpus must be 0, a part of one GPU or a whole number, got {self.num_gpus!r}: Ray gives a worker "
                "parts of a single GPU only"
            )
        for name, amount in self.resources.items():
            if name in OWN_NAMES:
                advice = f"use {OWN_NAMES[name]}" if OWN_NAMES[name] else "memory is not asked for"
                raise ValueError(f"resources must be those that nodes were started with, got {name!r}: {advice}")
            _validate.number(f"resources[{name!r}]", amount, least=least)

    @property
    def threads(self) -> int:
        """With how many threads a worker computes."""
        return max(1, int(self.num_cpus))

    @property
    def amounts(self) -> dict[str, float]:
        """The requested resources, by the names that Ray uses."""
        gpus = {"GPU": self.num_gpus} if self.num_gpus else {}
        return {"CPU": self.num_cpus, **gpus, **self.resources}

    def held_by(self, node: Mapping[str, float]) -> int:
        """Return how many workers a node holds that has so much of everything."""
        return min(_held(name, amount, node.get(name, 0)) for name, amount in self.amounts.items())

    def check(self, nodes: Sequence[Mapping[str, float]]) -> None:
        """Raise unless one of the nodes can hold a worker when nothing else uses it.

        Raises:
            ValueError: if none can.
        """
        if any(self.held_by(node) for node in nodes):
            return
        kinds = Counter(self._told(node) for node in nodes)
        has = "; ".join(f"{count} x ({kind})" if count > 1 else kind for kind, count in kinds.items())
        raise ValueError(
            f"no node of the cluster can ever hold a worker with {_listed(self.amounts)}: its nodes have {has}. Ask "
            "for less (num_cpus, num_gpus, resources), or start a node that has it; a cluster that grows on demand "
            "needs one such node from the beginning"
        )

    def _told(self, node: Mapping[str, float]) -> str:
        """Return the resources of a node that a worker may request."""
        names = [name for name in node if not name.startswith("node:") and not name.endswith("memory")]
        return _listed(dict.fromkeys(self.amounts, 0.0) | {name: node[name] for name in sorted(names)})


def _held(name: str, amount: float, there: float) -> int:
    """Return how often an amount of one resource is there. A part of a GPU lies on one device."""
    asked, has = round(amount * UNIT), round(there * UNIT)
    return has // UNIT * (UNIT // asked) if name == "GPU" and asked < UNIT else has // asked


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items())
