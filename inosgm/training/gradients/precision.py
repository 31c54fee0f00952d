"""The precision of norms and sums: float32 or better, whatever the forward pass is computed in."""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

WIDE = (torch.float32, torch.float64)
"""The types in which gradients are measured and summed."""

FINE, COARSE = 2.0**-24, 2.0**-8
"""Half a unit in the last place of float32 (2^-24), and of bfloat16 (2^-8)."""

# half a unit in the last place of a factor, by torch's and oneDNN's names of a precision; TF32 and float16 keep 11 bits
_UNITS = {
    "none": FINE,
    "ieee": FINE,
    "highest": FINE,
    "strict": FINE,
    "tf32": 2.0**-11,
    "high": 2.0**-11,
    "f16": 2.0**-11,
}


def require_wide(values: Tensor) -> None:
    """Raise for gradients in half precision.

    A sum of 4,096 records in bfloat16 is rounded to multiples of 16 sensitivities, so that one record can move it by
    as much. Every rule widens its inputs before it computes; this check stops a rule that does not.

    Raises:
        TypeError: naming the type.
    """
    if values.dtype not in WIDE:
        raise TypeError(
            f"gradients of records must be in float32 or float64, got {values.dtype}: the rule that made them must "
            "widen inputs and output gradients before it computes; another engine can serve the model"
        )


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which products keep the type of their factors, also inside a user's own torch.autocast."""
    # the query takes 0.2 microseconds, entering a context 10
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def product_unit(values: Tensor) -> float:
    """Return half a unit in the last place of the coarsest type that factors of a matrix product may be rounded to.

    torch may round factors in float32 to TF32 or bfloat16 (`torch.set_float32_matmul_precision`); products are added up
    in float32 all the same.
    """
    return _unit(values, "matmul")


def convolution_unit(values: Tensor) -> float:
    """Return the same for convolutions, which use TF32 on CUDA by default."""
    return _unit(values, "conv")


def _unit(values: Tensor, operation: str) -> float:
    if values.dtype == torch.float64:
        return 2.0**-53
    return max(_UNITS.get(name, COARSE) for name in (_setting(values.device, operation), _of_environment()))


def _setting(device: torch.device, operation: str) -> str:
    """Return the name of the precision that torch is set to."""
    if device.type == "cuda":
        backend = torch.backends.cuda if operation == "matmul" else torch.backends.cudnn
    else:
        backend = torch.backends.mkldnn
    name = getattr(getattr(backend, operation, None), "fp32_precision", None)  # torch 2.9 and later
    if name is not None:
        return str(name)
    if operation == "matmul":
        return torch.get_float32_matmul_precision()
    return "tf32" if device.type == "cuda" and torch.backends.cudnn.allow_tf32 else "ieee"


@cache
def _of_environment() -> str:
    """Return the name of the precision that oneDNN (products on CPUs) reads from the environment, once."""
    names = (os.environ.get(f"{prefix}_DEFAULT_FPMATH_MODE") for prefix in ("ONEDNN", "DNNL"))
    return next((name.lower() for name in names if name), "strict")
