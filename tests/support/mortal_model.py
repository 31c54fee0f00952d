"""A model for configurations of runs on workers, whose process kills itself where a file says so."""

import os
import signal
from pathlib import Path

import torch.distributed as dist
from torch import nn

FATAL = "fatal-{rank}"
"""A file of the working directory: after how many passes over records a rank is killed, once."""

PAUSED, REACHED = "paused-{rank}", "reached"
"""Files: after how many passes a rank waits until it is killed; and the mark that it waits."""

TRIED = 8
"""Most records of a pass in which the model is tried: such passes do not count."""

_passes = [0]


class Mortal(nn.Module):
    """Logistic regression that may kill its process in a pass over records in training mode."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        if self.training and len(x) > TRIED and dist.is_initialized():
            fatal = Path(FATAL.format(rank=dist.get_rank()))
            _passes[0] += 1
            paused = Path(PAUSED.format(rank=dist.get_rank()))
            if paused.exists() and _passes[0] >= int(paused.read_text()):
                Path(REACHED).touch()
                signal.pause()
            if fatal.exists() and _passes[0] >= int(fatal.read_text()):
                fatal.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)
