"""Models on disk under their own names: in Hugging Face's format where a model knows it."""

import io
import os
from pathlib import Path

import torch
from torch import nn

from inosgm._internal.files import write_durably

WEIGHTS = "model.pt"
"""The file of the weights of a model that cannot save itself."""


def save_model(model: nn.Module, directory: str | os.PathLike[str]) -> Path:
    """Save a model: by its own `save_pretrained`, or its state dict as `model.pt`.

    Args:
        model: The model. One of peft saves its adapters, as it always does.
        directory: Made if it does not exist.

    Returns:
        The directory.
    """
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    save_pretrained = getattr(model, "save_pretrained", None)
    if callable(save_pretrained):
        save_pretrained(str(path))
    else:
        stream = io.BytesIO()
        torch.save(model.state_dict(), stream)
        write_durably(path / WEIGHTS, stream.getvalue())
    return path
