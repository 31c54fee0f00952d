"""Ask every question of every table, in every way, at every budget."""

from collections.abc import Iterator, Mapping, Sequence

from examples.statistics_study.answering import WAYS, answers
from examples.statistics_study.measuring import Row, measured
from examples.statistics_study.questions import Question
from examples.statistics_study.tables import Table

FACTORS = (0.25, 1.0, 4.0)
"""What all budgets are multiplied with."""

DEALT = "dealt out"


def run(
    questions: Sequence[Question], tables: Mapping[str, Table], *, releases: int, factors: Sequence[float] = FACTORS
) -> Iterator[Row]:
    """Yield the error of every way of answering, for owners by groups and for owners dealt out."""
    for question in questions:
        table = tables[question.table]
        data = table.data(question.columns)
        truth = question.read(data, question.truth(data))
        for related in (True, False):
            for factor in factors:
                owners = table.owners(factor, related=related)
                for way in WAYS:
                    found = answers(question, data, owners, way, releases)
                    if found is not None:
                        yield measured(
                            found,
                            truth,
                            question.scale(data, truth),
                            table=table.name,
                            owners=table.by if related else DEALT,
                            factor=factor,
                            statistic=question.statistic,
                            of=question.of,
                            way=way,
                        )
