"""Features by a frozen module: scattering, or a network of the user's that was trained on public records."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal.imports import imported
from inosgm.training.features.scattering import Scattering
from inosgm.training.gradients.mixing import mixes_records
from inosgm.training.gradients.sandbox import device_of, draws
from inosgm.training.gradients.snapshot import Snapshot, write_error
from inosgm.training.models import made
from inosgm.training.predictions import as_numpy, evaluating


def scattering(*, input_shape: tuple[int, ...], groups: int | None = 27) -> nn.Module:
    """Return the scattering transform of images."""
    if len(input_shape) != 3:
        raise ValueError(f"scattering needs images (channels, rows, columns), got records of shape {input_shape}")
    return Scattering(*input_shape[1:], groups)


MODULES: dict[str, Callable[..., nn.Module]] = {"scattering": scattering}
"""Feature modules by name."""


def make(name: str, *, input_shape: Sequence[int], **options: Any) -> nn.Module:
    """Make a module that computes features of records of some shape.

    Args:
        name: "scattering"; or "package.module:function", which is called with `input_shape` and the options, and
            returns a module. Random parameters of it are the same every time.
        input_shape: The shape of one record, without the batch.
        options: What else it takes, such as `groups` of scattering.

    Raises:
        ValueError: for a name or an option that there is not, or records of a shape that the module cannot take.
        TypeError: if a function of the user's does not return a module.
    """
    function = imported(name) if ":" in name else MODULES.get(name)
    if function is None:
        raise ValueError(f"features must be {', '.join(MODULES)}, or package.module:function, got {name!r}")
    return made("features", name, function, {"input_shape": tuple(input_shape), **options}, seed=0)


def require_frozen(module: nn.Module, records: np.ndarray) -> None:
    """Raise for a module whose features are no function of one record, as far as synthetic records show it.

    Args:
        module: The module, which is tried in evaluation mode and left as it was.
        records: Records whose form it is tried with.

    Raises:
        ValueError: for a module that mixes the records of a batch, changes its state, or draws random numbers.
    """
    like = torch.from_numpy(records[:1]).to(device_of(module))
    with torch.no_grad():
        how = mixes_records(module, _per_record, like, torch.zeros(1), training=False)
        if how is not None:
            raise ValueError(
                f"features must be computed of each record independently, but in evaluation mode {how}: take "
                "GroupNorm, or BatchNorm with running statistics, and no batch statistics"
            )
        with Snapshot(model=module), evaluating(module), torch.random.fork_rng(devices=[]):
            if draws(module, lambda: module(torch.zeros_like(like))):
                raise ValueError("features must be a function of the record, but the module draws random numbers")


def transform(module: nn.Module, records: np.ndarray) -> np.ndarray:
    """Return the features of records by a frozen module.

    **Guarantee.** The module gets one record at a time, in evaluation mode. A module that changes its state is refused,
    and anything else that it stores in itself is removed before the next record. So the features of a record are a
    function of this record, whatever else is in the data, and training on them has the guarantee of training on the
    records. State outside of modules (globals, closures, files) is not watched.

    Args:
        module: Takes a batch of records, and returns a tensor with a row for each.
        records: One record per row.

    Returns:
        One row of float32 for each record.

    Raises:
        ValueError: for a module that writes to itself, features of different shapes, or not finite ones.
    """
    device, features, snapshot = device_of(module), None, Snapshot(model=module)
    with evaluating(module), torch.no_grad():
        snapshot.take()
        for position, record in enumerate(records):
            try:
                row = module(torch.from_numpy(np.array(record))[None].to(device))
                change = snapshot.change()
            finally:
                snapshot.restore(everything=True)  # whatever it has stored of this record is gone before the next
            if change is not None:
                raise write_error("a pass over records", change)
            if not isinstance(row, Tensor) or row.shape[:1] != (1,):
                got = f"shape {tuple(row.shape)}" if isinstance(row, Tensor) else f"a {type(row).__name__}"
                raise ValueError(f"features must be a tensor with a row for each record, got {got} for one record")
            if features is None:
                features = np.empty((len(records), *row.shape[1:]), dtype=np.float32)
            if row.shape[1:] != features.shape[1:]:
                raise ValueError("features must have the same shape for all records")
            features[position] = as_numpy(row[0])
    if features is None:
        raise ValueError("records must be at least one")
    require_finite(features)
    return features


def require_finite(features: np.ndarray) -> None:
    """Raise for features that are not finite."""
    if not all(np.isfinite(row).all() for row in features):
        raise ValueError("features must be finite numbers, and some are not")


def _per_record(outputs: Any, _: Any) -> Tensor:
    """Return a number for each record, where a test asks for a loss."""
    if not isinstance(outputs, Tensor):
        raise ValueError(f"features must be a tensor with a row for each record, got a {type(outputs).__name__}")
    return outputs.flatten(1).sum(1)
