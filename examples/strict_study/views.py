"""Augmentation multiplicity: the gradient of a record is the mean over several views of it (De et al., 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
"""The views of an image: it, and it moved by one pixel. They are the same for every record, hence public."""


class Views(nn.Module):
    """The logits of all views of each image: (record, class, view).

    Args:
        model: Layers that take the pixels of an image on the last axis, after a layer that flattens.
        side: The number of pixels of a side.
    """

    def __init__(self, model: nn.Module, side: int) -> None:
        super().__init__()
        self.layers, self._side = nn.Sequential(*list(model.children())[1:]), side

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit for each class and view."""
        images = x.unflatten(-1, (self._side, self._side))
        views = torch.stack([images.roll(shift, dims=(-2, -1)) for shift in SHIFTS], dim=1).flatten(2)
        logits: Tensor = self.layers(views)
        return logits.transpose(1, 2)


def views_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of the views of each record."""
    repeated = targets[:, None].expand(-1, logits.shape[2])
    return functional.cross_entropy(logits, repeated, reduction="none").mean(1)
