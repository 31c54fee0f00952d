"""Comparing the records of ranks: a rank that holds others than rank 0 would answer about the wrong ones."""

import random
import secrets
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._internal.keys import Purpose
from inosgm._internal.records import records_in
from inosgm._internal.trees import tree_leaves
from inosgm.training.batches import batch_of
from inosgm.training.gradients.randomness import keep_foreign_state
from inosgm.training.padding import looked_at


def fresh_salt() -> bytes:
    """Return what makes digests of one comparison useless for any other."""
    return secrets.token_bytes(16)


def digest_of_records(data: Any, like: Tensor, salt: bytes) -> str:
    """Return a digest of the records that are looked at before training, evenly spaced in the data.

    It stands for the records, so it must reach only processes that hold them, and is never stored.

    Args:
        data: All records.
        like: A parameter, whose device and precision records get.
        salt: Enters the digest.
    """
    seed = int.from_bytes(salt[:4])
    state = Purpose.RECORDS_ID.hasher(salt)
    with torch.random.fork_rng(devices=[]), keep_foreign_state():  # a data set may augment
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 the generator that data sets may use
        for position in looked_at(records_in(data)):  # one at a time: records may differ in length
            for leaf in tree_leaves(batch_of(data, np.array([position]), like)):
                if isinstance(leaf, Tensor):
                    values = leaf.detach().cpu().contiguous()
                    state.update(f"{values.dtype} {tuple(values.shape)}".encode())
                    state.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def repeatable_digest(data: Any, like: Tensor, salt: bytes) -> str | None:
    """Return the same, or None for a data set that gives other records when it is asked again."""
    digest = digest_of_records(data, like, salt)
    return digest if digest == digest_of_records(data, like, salt) else None
