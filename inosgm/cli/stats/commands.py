"""The commands of `inosgm stats`, made from a table of questions and their options."""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from inosgm.cli.options import (
    ANY_RAY,
    ATTEMPTS,
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DeltaOption,
    JsonOption,
    ProcessesOption,
    QuietOption,
    executor_of,
    refuse,
    store_of,
)
from inosgm.cli.output import Output
from inosgm.cli.stats.run import Request, answer


class Missing(StrEnum):
    """What happens to missing values: the names of `statistics.selection.Missing`, which help texts do not import."""

    refuse = "refuse"
    drop = "drop"
    count = "count"  # type: ignore[assignment]  # text has a method of this name


class PlannerName(StrEnum):
    """Whether sensitivities differ between owners."""

    scale = "scale"
    uniform = "uniform"


TABLE = Annotated[str, typer.Argument(help="CSV or Parquet: a file, a directory, a pattern or a URI.")]
COMMON: dict[str, Any] = {
    "budgets": Annotated[
        Path,
        typer.Option(
            help="CSV with the columns owner, epsilon, delta: with --owner-column, a row per owner, if need be with a "
            "column records; with --rows-in-order, a row per record, or per owner with a column records."
        ),
    ],
    "owner_column": Annotated[
        str | None, typer.Option(help="The column of the table that names the owner of every row.")
    ],
    "rows_in_order": Annotated[
        bool,
        typer.Option(
            "--rows-in-order", help="State that rows of the table belong to owners in the order of --budgets."
        ),
    ],
    "where": Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Ask about the records that satisfy a condition on columns, such as \"sex == 'F' and age >= 18\".",
        ),
    ],
    "by": Annotated[
        str | None,
        typer.Option(help="The column that names the group of every row: a value for each group."),
    ],
    "keys": Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME ...",
            help="The names of the groups, if public; else names that many rows have are released first.",
        ),
    ],
    "missing": Annotated[
        Missing,
        typer.Option(help="Refuse a table with missing values, drop such records, or drop them and release how many."),
    ],
    "delta": DeltaOption,
    "ledger": Annotated[Path | None, typer.Option(help="The ledger that is charged; it is created if there is none.")],
    "share": Annotated[float, typer.Option(help="The fraction of every owner's epsilon that this may cost.")],
    "method": Annotated[
        PlannerName, typer.Option(help="A sensitivity for each owner (scale), or the strictest for all.")
    ],
    "confidence": Annotated[
        float,
        typer.Option(help="The probability with which the printed interval covers the answer, over the noise."),
    ],
    "key": Annotated[int | None, typer.Option(help="Make the answer reproducible (and not private).")],
    "dry_run": Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost and how exact it would be; read no value.")
    ],
    "as_json": JsonOption,
    "quiet": QuietOption,
    "output": Annotated[Path | None, typer.Option(help="Also write the result to this file, as JSON.")],
    "store": Annotated[
        str | None, typer.Option(help="For large tables: keep partial sums here, a path or a URI such as s3://...")
    ],
    "processes": ProcessesOption,
    "address": AddressOption,
    "num_cpus": CpusOption,
    "max_concurrent": ConcurrentOption,
    "attempts": AttemptsOption,
}
FLAGS = ("as_json", "quiet", "dry_run", "stratified", "assume_alike", "rows_in_order")
DEFAULTS = {
    "share": 1.0,
    "method": PlannerName.scale,
    "missing": Missing.refuse,
    "confidence": 0.95,
    **dict.fromkeys(FLAGS, False),
}

_COLUMN = typer.Option("--column", "--columns", metavar="NAME ...", help="The columns of the question.")
COLUMN = Annotated[list[str], _COLUMN]
COLUMN_OR_NONE = Annotated[list[str] | None, _COLUMN]
OF = Annotated[
    str | None,
    typer.Option("--of", metavar="CONDITION", help="The condition that is asked about, instead of --column."),
]
OPTIONS: dict[str, Any] = {
    "bounds": Annotated[
        list[float],
        typer.Option(
            metavar="LOW HIGH ...",
            help="The smallest and the largest value that counts, column by column. They must not come from the data; "
            "if nobody knows any, ask `inosgm stats bounds` first.",
        ),
    ],
    "target": Annotated[str, typer.Option(help="The column that the others explain.")],
    "target_bounds": Annotated[list[float], typer.Option(metavar="LOW HIGH", help="The bounds of the target.")],
    "edges": Annotated[list[float], typer.Option(metavar="NUMBER ...", help="The edges of the bins, ascending.")],
    "categories": Annotated[list[str], typer.Option(metavar="NAME ...", help="The names of the groups: public ones.")],
    "other": Annotated[str | None, typer.Option(help="The name of all other groups together; else other.")],
    "stratified": Annotated[bool, typer.Option("--stratified", help="A value for each owner, put together by size.")],
    "assume_alike": Annotated[
        bool,
        typer.Option(
            "--assume-alike",
            help="Assume that records are alike across owners, and weigh them by budgets: less noise, biased if not.",
        ),
    ],
    "level": Annotated[float, typer.Option(help="Between 0 and 1: 0.9 is where the largest tenth begins.")],
    "fraction": Annotated[
        float | None, typer.Option(help="The fraction of the weight in the tail, which is down-weighted.")
    ],
    "reach": Annotated[
        float | None, typer.Option(help="How many interquartile ranges from the median a value counts.")
    ],
    "rounds": Annotated[int | None, typer.Option(min=1, help="How many releases share the budget.")],
    "outside": Annotated[
        float | None, typer.Option(help="The fraction of records that may lie beyond the bounds; else 0.01.")
    ],
    "smallest": Annotated[float | None, typer.Option(help="The smallest size that is told from 0; else 2^-20.")],
    "largest": Annotated[float | None, typer.Option(help="The largest size that is told from larger ones; else 2^40.")],
    "components": Annotated[int | None, typer.Option(min=1, help="How many components; else all.")],
}
ALIKE = "assume_alike"  # the option that every question takes
NUMBERS = {"--bounds", "--target-bounds", "--edges"}
WORDS = {"--column", "--columns", "--categories", "--keys"}


@dataclass(frozen=True)
class Question:
    """A question that has a command.

    Attributes:
        about: The help text.
        needs: Required options.
        takes: Other options.
        several: Whether it is about any number of columns, not about one.
        labels: Whether columns hold labels, not numbers.
        of_condition: Whether it may be about a condition (--of) instead of a column.
    """

    about: str
    needs: Sequence[str] = ("bounds",)
    takes: Sequence[str] = ()
    several: bool = False
    labels: bool = False
    of_condition: bool = False


QUESTIONS = {
    "sum": Question("The sum of a column.", takes=["stratified"]),
    "count": Question(
        "How many records satisfy a condition, or have 1 (or true) in a column.",
        needs=[],
        takes=["stratified"],
        of_condition=True,
    ),
    "share": Question(
        "The share of records that satisfy a condition, among all or among those of --where.",
        needs=[],
        takes=["stratified"],
        of_condition=True,
    ),
    "mean": Question("The mean of a column.", takes=["stratified"]),
    "variance": Question("The variance of a column.", takes=["stratified"]),
    "trimmed-mean": Question("The mean without values far from the median.", takes=["fraction", "rounds"]),
    "robust-mean": Question(
        "The mean as outliers do not move it, however wide bounds are.", takes=["reach", "fraction", "rounds"]
    ),
    "upper-tail-mean": Question("The mean of the largest values: CVaR at a level.", needs=["bounds", "level"]),
    "top-heavy-sum": Question("The sum in which large values count in full, others less.", takes=["fraction"]),
    "quantile": Question("A quantile; 0.5 is the median.", needs=["bounds", "level"], takes=["rounds"]),
    "histogram": Question("How many values lie in each bin.", needs=["edges"], takes=["stratified"]),
    "group-counts": Question(
        "How many records belong to each group.", needs=["categories"], takes=["other", "stratified"], labels=True
    ),
    "bounds": Question(
        "Bounds of a column that nobody knows: powers of two beyond which few records lie.",
        needs=[],
        takes=["outside", "smallest", "largest"],
    ),
    "covariance": Question("The covariance matrix of columns.", several=True),
    "pca": Question("The principal components of columns.", takes=["components"], several=True),
    "regression": Question(
        "Least squares of a target on columns.", needs=["bounds", "target", "target_bounds"], several=True
    ),
    "trimmed-regression": Question(
        "Least squares of the records that fit best.",
        needs=["bounds", "target", "target_bounds"],
        takes=["fraction", "rounds"],
        several=True,
    ),
}


OTHER_NAMES = {
    "median": "quantile --level 0.5",
    "percentile": "quantile --level",
    "cvar": "upper-tail-mean --level 0.9",
    "expected-shortfall": "upper-tail-mean --level 0.9",
}
"""Other names of questions, and the command for each."""


class Questions(TyperGroup):
    """The group of all questions, which knows other names for some."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; for another name, raise with the command to use."""
        if args and (here := OTHER_NAMES.get(args[0].lower())):
            ctx.fail(f"No such command '{args[0]}': ask for it with '{here}'.")
        return super().resolve_command(ctx, args)


class Lists(TyperCommand):
    """A command with options that several values follow, as in `--bounds 0 5000`; text must come after the table."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat an option before each of its values; numbers end at the first other word, text at the next option."""
        args = [_renamed(word, quiet="--quiet" in args) for word in args]
        _refuse_bounds_of_the_data(ctx, args)
        spread: list[str] = []
        name, values = "", 0
        for word in args:
            if name and not word.startswith("--") and (name in WORDS or _is_number(word)):
                spread += [word] if values == 0 else [name, word]
                values += 1
                continue
            name, values = word if word in NUMBERS | WORDS else "", 0
            spread.append(word)
        return super().parse_args(ctx, spread)


OLD_NAMES = {"--owners": "--budgets", "--owner": "--owner-column"}
"""Names of options until version 0.2: one letter was all that told them apart."""


def _renamed(word: str, *, quiet: bool) -> str:
    """Return the present name of an option, with a note if another one was given."""
    name, sign, rest = word.partition("=")
    if name not in OLD_NAMES:
        return word
    if not quiet:
        typer.echo(f"note: {name} is {OLD_NAMES[name]} now, and will be gone in the next version", err=True)
    return OLD_NAMES[name] + sign + rest


def _refuse_bounds_of_the_data(ctx: Any, args: list[str]) -> None:
    """End the command if bounds are to come from the data."""
    from inosgm.statistics.bounds import HOW_TO_KNOW_BOUNDS

    for option, word in pairwise(args):
        if option == "--bounds" and word.lower() in ("auto", "data", "min", "minmax", "range"):
            ctx.fail(f"--bounds {word}: {HOW_TO_KNOW_BOUNDS}")


def _command(name: str, question: Question) -> Callable[..., None]:
    """Return the function of a command, with the signature that Typer reads options from."""

    def run(table: str, column: list[str] | None = None, of: str | None = None, **given: Any) -> None:
        column = columns_of(question, column, of)
        workers = {option: given.pop(option) for option in ("processes", "address", "num_cpus", "max_concurrent")}
        attempts = given.pop("attempts")
        if given["store"] is not None or workers["address"] == ANY_RAY:
            given["store"] = store_of(given["store"], "-".join([name, Path(table).stem, *map(_file_name, column)]))
        else:
            kept = {option: value for option, value in workers.items() if option != "processes"}
            refuse("goes with --store, which says where partial sums are kept", **kept, attempts=attempts)
            given["processes"] = workers["processes"]
        own = {option: given.pop(option) for option in (*question.needs, *question.takes, ALIKE)}
        columns, parameters = parameters_of(question, column, own)
        request = Request(
            question=name,
            table=table,
            columns=columns,
            labels=question.labels,
            parameters=parameters,
            attempts=attempts or ATTEMPTS,
            out=Output(as_json=given.pop("as_json"), quiet=given.pop("quiet")),
            **given,
        )
        answer(request, executor_of(**workers, of_tables=True))

    about = {"of": OF, "column": COLUMN_OR_NONE} if question.of_condition else {"column": COLUMN}
    needed = {**about, **{option: OPTIONS[option] for option in question.needs}, "budgets": COMMON["budgets"]}
    taken = {**{option: OPTIONS[option] for option in (*question.takes, ALIKE)}, **COMMON}
    kinds = {"table": TABLE, **needed, **taken}
    required = {"table", *needed} - (set(about) if question.of_condition else set())
    run.__signature__ = signature_of(kinds, required)  # type: ignore[attr-defined]
    run.__annotations__ = kinds
    run.__doc__ = question.about
    return run


def signature_of(kinds: Mapping[str, Any], required: Set[str]) -> inspect.Signature:
    """Return the signature of a command, given its options; those that are not required have their defaults."""
    return inspect.Signature(
        [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=kind,
                default=inspect.Parameter.empty if option in required else DEFAULTS.get(option),
            )
            for option, kind in kinds.items()
        ]
    )


def columns_of(question: Question, columns: list[str] | None, of: str | None) -> list[Any]:
    """Return the columns that a question is about; a condition is a column of zeros and ones."""
    if not question.of_condition:
        return columns or []
    if (of is None) == (not columns):
        raise ValueError(
            'give either --of CONDITION, such as --of "age >= 65", which is counted, or --column NAME; --where only '
            "chooses the records that are asked about"
        )
    from inosgm.statistics.conditions import Condition

    return list(columns or []) if of is None else [Condition(of)]


def _file_name(column: Any) -> str:
    """Return a column as a part of the name of a store."""
    return "".join(character if character.isalnum() else "_" for character in str(getattr(column, "text", column)))


def parameters_of(
    question: Question, columns: list[Any], own: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the columns of a question, the target last, and the parameters that were given."""
    target = [own["target"]] if "target" in own else []
    names = (*columns, *target)
    if len(names) == 1 if question.several else len(names) > 1:
        raise ValueError(
            f"--column must name {'several columns' if question.several else 'one column'}, got {len(names)}"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"--column must name every column once, got {', '.join(names)}")
    given = {option: value for option, value in own.items() if value is not None and value is not False}
    parameters = {option: value for option, value in given.items() if option != "target"}
    if "bounds" in parameters:
        pairs = _pairs("--bounds", parameters["bounds"], len(columns))
        parameters["bounds"] = pairs if question.several else pairs[0]
    if "target_bounds" in parameters:
        [parameters["target_bounds"]] = _pairs("--target-bounds", parameters["target_bounds"], 1)
    return names, parameters


def _pairs(name: str, numbers: list[float], columns: int) -> list[tuple[float, float]]:
    if len(numbers) != 2 * columns:
        raise ValueError(f"{name} must be two numbers for every column, {2 * columns} in all, got {len(numbers)}")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


ABOUT = "Private statistics of a table, each owner with its own budget."
stats = typer.Typer(cls=Questions, no_args_is_help=True, add_completion=False, help=ABOUT)
for _name, _question in QUESTIONS.items():
    stats.command(_name, cls=Lists)(_command(_name, _question))
