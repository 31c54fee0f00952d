"""Runs cases, each once: what is on disk is not run again."""

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from examples.study.cases import Case
from examples.study.training import train


def run(cases: Iterable[Case], out: Path, root: str | None = None, processes: int = 2) -> None:
    """Run those cases that have no result yet. It may be killed and started again.

    Args:
        cases: What to run, in this order.
        out: Where results go, a file for each.
        root: The data directory.
        processes: How many at once, of one thread each.
    """
    missing = [case for case in dict.fromkeys(cases) if not place(case, out).exists()]
    if not missing:
        return
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        futures = {pool.submit(run_one, case, out, root): case for case in missing}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                gone = time.monotonic() - begun
                left = gone / done * (len(missing) - done)
                print(f"{done}/{len(missing)}, {gone:.0f} s, {left:.0f} s left: {futures[future].id}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_one(case: Case, out: Path, root: str | None = None) -> None:
    """Run a case and write its result, all of it or nothing."""
    text = json.dumps(train(case, root), allow_nan=False)
    part = place(case, out).with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(place(case, out))


def place(case: Case, out: Path) -> Path:
    """Return the file of a case's result."""
    return out / f"{case.id}.json"


def result(case: Case, out: Path) -> dict[str, Any]:
    """Read the result of a case."""
    found: dict[str, Any] = json.loads(place(case, out).read_text(encoding="utf-8"))
    return found
