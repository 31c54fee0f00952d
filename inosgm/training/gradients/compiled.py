"""Running compiled models as the modules that they were made from: engines must see the calls of layers."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def is_compiled(model: nn.Module) -> bool:
    """Return whether `torch.compile` or `Module.compile` was applied to a model or a part of it."""
    if "torch._dynamo" not in sys.modules:  # which nobody can compile without, and which is slow to import
        return False
    from torch._dynamo import OptimizedModule

    return any(
        isinstance(module, OptimizedModule) or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def uncompiled(compiled: bool) -> AbstractContextManager[Any]:
    """Return a context in which compiled code is not used."""
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
