"""Ask every question of every table, in every way, at every budget."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

import numpy as np

from examples.statistics_study.answering import WAYS, answerable, answers, by_peer
from examples.statistics_study.measuring import Row, measured
from examples.statistics_study.questions import QUESTIONS, Question
from examples.statistics_study.tables import Table, load

FACTORS = (0.25, 1.0, 4.0)
"""What all budgets are multiplied with."""

DEALT = "dealt out"
DEALS = 10
"""How often labels are dealt out where owners have nothing to do with the values; releases are spread over them."""


def run(
    questions: Sequence[Question], tables: Mapping[str, Table], *, releases: int, factors: Sequence[float] = FACTORS
) -> Iterator[Row]:
    """Yield the error of every way of answering, for owners by groups and for owners dealt out.

    Those that are dealt out have the budgets as they are, except where means are asked for: these see all factors.
    """
    for question in questions:
        for factor in factors if question.quick else (1.0,):
            yield from _rows(question, tables[question.table], factor, releases)


def run_all(names: Sequence[str], root: str | None, *, releases: int, processes: int) -> tuple[list[Row], float]:
    """Ask all questions about some tables, some at a time; return the rows in order, and the processor time taken."""
    places = [place for place, question in enumerate(QUESTIONS) if question.table in names]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(_asked, places, repeat(root), repeat(releases)))
    return [row for rows, _ in done for row in rows], sum(seconds for _, seconds in done)


def _asked(place: int, root: str | None, releases: int) -> tuple[list[Row], float]:
    """Ask one question, in a process of its own."""
    begin = time.process_time()
    question = QUESTIONS[place]
    rows = list(run([question], load([question.table], root), releases=releases))
    return rows, time.process_time() - begin


def _rows(question: Question, table: Table, factor: float, releases: int) -> Iterator[Row]:
    """Yield what was found with one factor."""
    data = table.data(question.columns)
    clean = table.data(question.true_columns or question.columns)
    truth = question.read(clean, question.truth(clean))
    scale = question.scale(clean, truth)
    deals = range(min(DEALS, releases) if factor == 1 or question.statistic == "mean" else 0)
    by_groups, *dealt = (table.owners(factor, deal) for deal in (None, *deals))
    for way in WAYS:
        same = by_peer(question, data, by_groups, way, releases)  # a peer does not look at owners
        for kind, dealings in ((table.by, [by_groups]), (DEALT, dealt)):
            found = same if dealings else None
            if found is None and dealings and answerable(question, way):
                parts = [answers(question, data, owners, way, releases // len(dealings)) for owners in dealings]
                found = np.concatenate(parts)
            if found is not None:
                yield measured(
                    found,
                    truth,
                    scale,
                    table=table.name,
                    owners=kind,
                    factor=factor,
                    statistic=question.statistic,
                    of=question.of,
                    way=way,
                )
