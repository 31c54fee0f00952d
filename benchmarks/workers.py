"""One model on two workers of this machine against one process: seconds, time of the processor, bytes exchanged.

Both train the same plan, one thread per process, and take turns: a few steps alone, a few on two workers, and so on,
so that other programs disturb both alike. Shown are the median ratio of seconds, which a busy machine makes
meaningless, and that of the time of the processor: of the process alone over that of the busier worker. The latter
leaves out the time in which one worker waits for the other. A ratio above 2 is a disturbance, because shards do not
make a step cheaper.

`python -m benchmarks.workers --rounds 20 transformer` makes more rounds of one model.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.timing import report
from benchmarks.training import cifar_cnn
from inosgm import LinearTail, Plan
from inosgm.training import Trainer, Workers

RECORDS, BATCH, STEPS, SIZES = 1024, 128, 4, (1, 2)


class Block(nn.Module):
    """Causal attention with one head, and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return sequences of the same width."""
        normed = self.first(x)
        seen = nn.functional.scaled_dot_product_attention(
            self.queries(normed), self.keys(normed), self.values(normed), is_causal=True
        )
        x = x + self.out(seen)
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Two blocks of width 128 over 32 tokens, and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(1000, 128), nn.ModuleList(Block(128) for _ in range(2))
        self.head = nn.Linear(128, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return two logits for each sequence of tokens."""
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def cnn_case() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """A convolutional network on images of 3 x 32 x 32."""
    drawn = np.random.default_rng(0)
    return cifar_cnn(), drawn.random((RECORDS, 3, 32, 32), dtype=np.float32), drawn.integers(0, 10, RECORDS)


def transformer_case() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """A transformer on sequences of 32 tokens."""
    drawn = np.random.default_rng(0)
    return Transformer(), drawn.integers(0, 1000, (RECORDS, 32)), drawn.integers(0, 2, RECORDS)


CASES: dict[str, Callable[[], tuple[nn.Module, np.ndarray, np.ndarray]]] = {
    "CNN": cnn_case,
    "transformer": transformer_case,
}


def rank_of_case(name: str, rank: int, size: int, meeting: str, rounds: int, line: Any) -> None:
    """Train as one rank, a few steps whenever told to; send how long they took, and at last some facts."""
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model, x, y = CASES[name]()
    plan = Plan(
        sample_rates=[BATCH / RECORDS], sensitivities=[1.0], sizes=[RECORDS], noise_scale=1.0, steps=STEPS * rounds
    )
    optimizer, tail = torch.optim.SGD(model.parameters(), lr=0.1), LinearTail(plan.tail_length(0.4))
    workers = Workers()
    trainer = Trainer(plan, model, nn.CrossEntropyLoss(), optimizer, tail=tail, owners=[0] * RECORDS, workers=workers)
    for _ in range(rounds):
        line.recv()
        begin = time.perf_counter(), time.process_time()
        trainer.fit(x, y, steps=STEPS, progress=False)
        line.send((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    line.send((workers.bytes_exchanged / trainer.plan.steps, parameters, type(trainer.engine).__name__))


def measured(name: str, rounds: int) -> tuple[dict[int, np.ndarray], list[Any]]:
    """Return seconds and time of the processor by round, of the slowest rank, for each size of a group; and facts."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        groups: dict[int, list[Any]] = {}
        for size in SIZES:
            groups[size] = [context.Pipe() for _ in range(size)]
            for rank, (_, line) in enumerate(groups[size]):
                meeting = str(Path(folder, f"meeting-{size}"))
                context.Process(
                    target=rank_of_case, args=(name, rank, size, meeting, rounds + 1, line), daemon=True
                ).start()
        times: dict[int, list[tuple[float, ...]]] = {size: [] for size in SIZES}
        for _ in range(rounds + 1):
            for size, lines in groups.items():
                for line, _ in lines:
                    line.send("go")
                ranks = [line.recv() for line, _ in lines]
                times[size].append(tuple(max(column) for column in zip(*ranks, strict=True)))
        facts = [line.recv() for line, _ in groups[SIZES[-1]]]
    return {size: np.array(rows[1:]) for size, rows in times.items()}, facts  # the first round warms up


def main(names: Sequence[str] = tuple(CASES), rounds: int = 7) -> None:
    """Print ratios and bytes for some models."""
    print(f"{STEPS} steps of {BATCH} records a round, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in names:
        times, facts = measured(name, rounds)
        ratios = times[SIZES[0]] / times[SIZES[-1]]
        for what, column in zip(("seconds", "processor time"), ratios.T, strict=True):
            report(f"{name}: {what}, alone / with two workers", float(np.median(column)), at_least=1.7)
            print(f"    rounds: {', '.join(f'{ratio:.2f}' for ratio in sorted(column.tolist()))}")
        each = " and ".join(f"{exchanged / 1e6:.2f} MB" for exchanged, *_ in facts)
        print(f"    {facts[0][2]}, {facts[0][1]:,} parameters; per step, ranks hand {each} to collectives")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(CASES), help="which models; else all")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    main(given.models, given.rounds)
