"""Snapshots of the state of a model, by which a pass over records that writes to it is detected and undone.

A forward or backward pass may write: an average that is kept as a frozen parameter, a codebook, rows of an embedding
that torch rescales, an observer that calibrates. Records would then reach the model without noise, and the gradients of
later records would depend on earlier ones. Gradients, losses and predictions need no writes, so a pass that writes is
an error, and its writes are undone.
"""

import copy
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, is_
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from inosgm.training.gradients.tensor_values import TensorValues, readable, same_bits

LARGEST_CONTAINER = 1000
"""Largest container that is searched for tensors: longer ones are vocabularies, which hold none."""

DEEPEST_CONTAINER = 4
"""Deepest nesting of containers that is searched for tensors."""

REGISTERED = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}
"""The kinds of things that a module registers, by the attribute in which torch keeps them."""

_OF_TORCH = frozenset(vars(nn.Module()))

_gradient = attrgetter("grad")

_NOT_HOLDERS = (Tensor, type, FunctionType, ModuleType)

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


class Snapshot:
    """The state of modules at one moment: their tensors, values, containers, and extra state.

    Tensors are parameters, frozen ones included, buffers, and those in plain attributes of modules, also inside of
    lists, tuples, sets and dicts. Modules in such containers are included. Memory for the values is allocated once
    and reused by the next `take`.

    Args:
        holders: Modules, or other objects with attributes, such as a loss, by the name for error messages.

    >>> model = nn.Linear(2, 1)
    >>> with Snapshot(model=model):
    ...     _ = model.bias.data.add_(1)
    Traceback (most recent call last):
    ...
    ValueError: a pass over records must leave the model as it was, but the model changes its parameter 'bias'...
    """

    def __init__(self, **holders: Any) -> None:
        self._holders = holders
        self._containers: list[_Container] = []
        self._attributes: list[tuple[dict[str, Any], list[Any]]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._lists: list[Any] = []
        self._entries: list[Any] = []
        self._sizes: list[int] = []
        self._values, self._labels = TensorValues([]), dict[int, str]()
        self._leaves: list[Tensor] = []
        self._gradients: list[Tensor | None] = []
        self._extra: list[tuple[str, nn.Module, Any]] = []

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that were held at the last `take`."""
        return self._values.tensors

    def __enter__(self) -> None:
        """Take a snapshot."""
        self.take()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raise if something has changed, and restore everything, whatever was raised.

        Raises:
            ValueError: naming what was changed.
        """
        change = None
        if kind is None:
            same_containers = self._same_containers()
            change = self._change(same_containers)
            if change is None:
                if not same_containers:
                    self._restore_containers(everything=False)
                self._put_gradients(self._gradients)
                return
        self.restore()
        if change is not None:
            raise write_error("a pass over records", change)

    def take(self) -> None:
        """Record the present state. Gradients on parameters are removed until `__exit__` or `restore`."""
        if not self._containers or not self._same_containers():
            self._walk()
        self._values.take()
        if self._extra:
            self._extra = [(whose, each, copy.deepcopy(each.get_extra_state())) for whose, each, _ in self._extra]
        self._gradients = list(map(_gradient, self._leaves))
        self._put_gradients([None] * len(self._leaves))

    def unwritten(self) -> bool:
        """Return whether torch has counted no write since `take`: a quick check."""
        return self._values.unwritten()

    def require_unwritten(self) -> None:
        """Raise if torch has counted a write since `take`.

        Raises:
            ValueError: naming what was changed.
        """
        if not self.unwritten():
            change = self.change()
            if change is not None:
                raise write_error("a pass over records", change)

    def change(self) -> str | None:
        """Return what has changed since `take`, or None.

        New tensors in plain attributes and lists are no change: `restore` removes them.
        """
        return self._change(self._same_containers())

    def restore(self, *, everything: bool = False) -> None:
        """Restore the state of the last `take`: the same objects in the same memory, with their values.

        Args:
            everything: Also restore attributes, and entries of lists and dicts, that hold no tensors.
        """
        self._restore_containers(everything=everything)
        self._values.restore()
        for _, module, before in self._extra:
            if not _equal(before, module.get_extra_state()):
                module.set_extra_state(copy.deepcopy(before))
        self._put_gradients(self._gradients)

    def _change(self, same_containers: bool) -> str | None:
        for change in () if same_containers else map(_Container.change, self._containers):
            if change is not None:
                return change
        changed = self._values.changed()
        if changed is not None:
            return self._labels[id(changed)]
        for whose, module, before in self._extra:
            if not _equal(before, module.get_extra_state()):
                return f"{whose} changes the extra state of its {type(module).__name__}"
        return None

    def _restore_containers(self, *, everything: bool) -> None:
        for container in self._containers:
            container.restore(everything=everything)

    def _put_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Set the gradients of all leaves: an optimizer would use one that a pass left on a frozen parameter."""
        if all(map(is_, map(_gradient, self._leaves), gradients)):
            return
        for leaf, gradient in zip(self._leaves, gradients, strict=True):
            leaf.grad = gradient

    def _same_containers(self) -> bool:
        """Return whether every dict and list holds the objects that it held."""
        try:
            for attributes, values in self._attributes:
                if list(attributes.values()) != values:  # compares identities first, so it is fast
                    return False
        except Exception:  # tensors have no truth value
            return False
        now = chain(chain.from_iterable(map(dict.values, self._dicts)), chain.from_iterable(self._lists))
        return list(map(len, chain(self._dicts, self._lists))) == self._sizes and all(map(is_, now, self._entries))

    def _walk(self) -> None:
        """Find all containers and tensors again."""
        walk = _Walk()
        for name, holder in self._holders.items():
            for root in _roots(holder):
                walk.visit(root, f"the {name}", "", 0)
        self._containers, self._labels, self._extra = walk.containers, walk.labels, walk.extra
        attributes = [
            container for container in self._containers if container.module is not None and container.kind is None
        ]
        others = [container for container in self._containers if container.module is None or container.kind is not None]
        dicts = [container for container in others if isinstance(container.held, dict)]
        lists = [container for container in others if not isinstance(container.held, dict)]
        self._attributes = [(container.held, container.values) for container in attributes]
        self._dicts, self._lists = [container.held for container in dicts], [container.held for container in lists]
        self._entries = [value for container in (*dicts, *lists) for value in container.values]
        self._sizes = [len(container.values) for container in (*dicts, *lists)]
        self._leaves = [tensor for tensor in walk.tensors if tensor.is_leaf]
        if not self._values.of(walk.tensors):
            self._values = TensorValues(walk.tensors)


class _Walk:
    """Collects the containers and tensors of modules, each once."""

    def __init__(self) -> None:
        self.containers: list[_Container] = []
        self.tensors: list[Tensor] = []
        self.labels: dict[int, str] = {}
        self.extra: list[tuple[str, nn.Module, Any]] = []
        self._seen: set[int] = set()

    def visit(self, held: Any, whose: str, path: str, depth: int, kind: str = "tensor", remedy: str = "") -> None:
        """Collect an object and its contents, given its path."""
        if not isinstance(held, (Tensor, nn.Module, *_CONTAINERS)) or id(held) in self._seen:
            return
        self._seen.add(id(held))
        if isinstance(held, nn.Module):
            self._visit_module(held, whose, path)
        elif isinstance(held, Tensor):
            if not is_lazy(held):  # a lazy parameter has no values yet
                self.tensors.append(held)
                self.labels[id(held)] = f"{whose} changes its {kind} {path!r}{remedy}"
        elif len(held) <= LARGEST_CONTAINER and depth < DEEPEST_CONTAINER:
            self.containers.append(_Container.of(held))
            for name, entry in held.items() if isinstance(held, dict) else enumerate(held):
                self.visit(entry, whose, f"{path}[{name!r}]" if path else str(name), depth + 1)

    def _visit_module(self, module: nn.Module, whose: str, path: str) -> None:
        prefix = f"{path}." if path else ""
        self.containers.append(_Container.of(vars(module), whose=whose, prefix=prefix, module=module))
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            self.extra.append((whose, module, None))
        for attribute, kind in REGISTERED.items():
            registered = vars(module)[attribute]
            self.containers.append(_Container.of(registered, whose=whose, prefix=prefix, module=module, kind=kind))
            for name, entry in registered.items():
                self.visit(entry, whose, prefix + name, 0, kind, _remedy(module))
        for name, entry in vars(module).items():
            if name not in _OF_TORCH:
                self.visit(entry, whose, prefix + name, 0)


@dataclass(frozen=True, eq=False, slots=True)
class _Container:
    """A dict or a list and its contents at one moment; for a module also whose it is and the kind it registers."""

    held: Any
    keys: list[Any]
    values: list[Any]
    whose: str = ""
    prefix: str = ""
    module: nn.Module | None = None
    kind: str | None = None

    @classmethod
    def of(cls, held: Any, **about: Any) -> "_Container":
        """Return a record of the contents of a dict or list."""
        named = isinstance(held, dict)
        return cls(held, list(held) if named else [], list(held.values() if named else held), **about)

    def change(self) -> str | None:
        """Return what a module has registered, replaced or dropped since, or None."""
        if self.module is None or self._same():
            return None
        before = dict(zip(self.keys, self.values, strict=True))
        changed = [name for name in {**before, **self.held} if not self._alike(before.get(name), self.held.get(name))]
        if self.kind is None:
            lost = [REGISTERED[name] for name in changed if name in REGISTERED]
            return f"{self.whose} changes all {lost[0]}s of its {type(self.module).__name__}" if lost else None
        if not changed:
            return None
        path = self.prefix + changed[0]
        if before.get(changed[0]) is not None:
            return f"{self.whose} changes its {self.kind} {path!r}{_remedy(self.module)}"
        return (
            f"{self.whose} adds the {self.kind} {path!r} (if it does so in its first pass only, run it once on a "
            "synthetic batch before training)"
        )

    def restore(self, *, everything: bool) -> None:
        """Restore what was registered, and tensors in attributes and lists, or everything."""
        if self._same():
            return
        if not isinstance(self.held, dict):
            if everything or _has_tensors([*self.values, *self.held]):
                self.held.clear()
                getattr(self.held, "update" if isinstance(self.held, set) else "extend")(self.values)
            return
        before = dict(zip(self.keys, self.values, strict=True))
        if everything or self.kind is not None:
            self.held.clear()
            self.held.update(before)
        else:
            for name in [name for name in self.held if name not in before and _has_tensors(self.held[name])]:
                del self.held[name]
            for name, value in before.items():
                if self.held.get(name) is not value and _has_tensors([value, self.held.get(name)]):
                    self.held[name] = value

    def _alike(self, before: Any, now: Any) -> bool:
        """Return whether two entries are the same object, or buffers with the same values."""
        if self.kind == "buffer" and isinstance(before, Tensor) and isinstance(now, Tensor):
            return same_bits(before.detach(), now.detach())
        return before is now

    def _same(self) -> bool:
        now = self.held.values() if isinstance(self.held, dict) else self.held
        return len(self.held) == len(self.values) and all(map(is_, now, self.values))


def write_error(what: str, change: str) -> ValueError:
    """Return the error about a change, which the caller has undone."""
    return ValueError(
        f"{what} must leave the model as it was, but {change}: records would reach the model without noise. Nothing "
        "was released, and everything is as it was before the pass. Compute it between steps from released values, or "
        "on public records before training"
    )


def _roots(holder: Any, depth: int = 0) -> Iterator[Any]:
    """Yield a module, or the attributes of another object, such as a loss, after the modules that they hold."""
    holder = holder.__self__ if isinstance(holder, MethodType) else holder
    if isinstance(holder, nn.Module):
        yield holder
    elif depth < 2 and hasattr(holder, "__dict__") and not isinstance(holder, _NOT_HOLDERS):
        for held in vars(holder).values():
            yield from _roots(held, depth + 1)
        yield vars(holder)


def _has_tensors(held: Any, depth: int = 0) -> bool:
    """Return whether an object is, or contains, a tensor or a module."""
    if isinstance(held, Tensor | nn.Module):
        return True
    if not isinstance(held, _CONTAINERS) or len(held) > LARGEST_CONTAINER or depth > DEEPEST_CONTAINER:
        return False
    return any(_has_tensors(entry, depth + 1) for entry in (held.values() if isinstance(held, dict) else held))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two extra states are equal: tensors bit by bit, other objects by their pickles."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor) and readable(one) and readable(other):
        return same_bits(one.detach(), other.detach())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return pickle.dumps(one) == pickle.dumps(other)


def _remedy(module: nn.Module) -> str:
    """Return the remedy for a torch layer that is known to write."""
    kind = type(module)
    hooks = (type(hook).__name__ for hook in module._forward_pre_hooks.values())
    if kind.__name__ == "_SpectralNorm" or "SpectralNorm" in hooks:
        return " (spectral_norm writes its vectors in every pass in training mode: take weight_norm, or remove it)"
    if kind.__module__.startswith("torch.ao.quantization"):
        return " (calibrate on public records, then model.apply(torch.ao.quantization.disable_observer))"
    return ""
