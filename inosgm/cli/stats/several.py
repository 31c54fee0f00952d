"""`inosgm stats questions`: several questions from a YAML file, which share one budget."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.output import Output, interruptible
from inosgm.cli.stats.commands import (
    ALIKE,
    COMMON,
    OPTIONS,
    QUESTIONS,
    TABLE,
    columns_of,
    parameters_of,
    signature_of,
    stats,
)
from inosgm.cli.stats.run import (
    Request,
    advise,
    column_names,
    cost_lines,
    large_budgets,
    open_ledger,
    owners_of,
    planner_of,
    print_result,
    query_of,
    require_options,
    require_parameters,
    table_of,
    values_of,
    with_condition,
    with_typed_categories,
)

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger
    from inosgm.planning.plan import Plan
    from inosgm.statistics.queries import Query
    from inosgm.statistics.questions import Answers

ABOUT_ALL = (
    "budgets",
    "owner_column",
    "rows_in_order",
    "delta",
    "ledger",
    "share",
    "method",
    "confidence",
    "key",
    "dry_run",
    "output",
    "as_json",
    "quiet",
)
"""Options of all questions together, which the command has; a file cannot set them."""

OF_EACH: dict[str, Any] = {
    "column": str | list[str],
    "of": str,
    "where": str,
    "by": str,
    "keys": list[str | int],
    "missing": str,
    "importance": float,
    "categories": list[str | int],
}
"""What a question in a file has besides its own options, and the kinds of values; text may be whole numbers."""

FILE = Annotated[
    Path,
    typer.Argument(
        metavar="FILE.yaml",
        help="A list of questions. Each has `question`, the options of that command (column, of, bounds, where, by, "
        "...), and if need be `importance`, by which the share is divided.",
    ),
]


def read_questions(path: Path, common: Mapping[str, Any]) -> list[tuple[Request, float]]:
    """Return the questions of a file, each with its importance.

    Args:
        path: The YAML file.
        common: The options of all questions together.

    Raises:
        ValueError: for a file that is no list of questions, and a question that its command would refuse.
    """
    from inosgm._internal import yaml

    try:
        listed = yaml.read(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{path} must be a list of questions, such as `- {{question: mean, column: wage, ...}}`")
    questions = []
    for number, entry in enumerate(listed, start=1):
        with _naming(path, number):
            questions.append(_read(entry, common))
    return questions


@contextmanager
def _naming(path: Path, number: int) -> Iterator[None]:
    """Add to an error which question of the file it is about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        error.add_note(f"(question {number} of {path})")
        raise


def _read(entry: Any, common: Mapping[str, Any]) -> tuple[Request, float]:
    """Return one question, and its importance."""
    if not isinstance(entry, Mapping) or entry.get("question") not in QUESTIONS:
        got = entry.get("question") if isinstance(entry, Mapping) else entry
        raise ValueError(f"question must be one of {', '.join(QUESTIONS)}, got {got!r}")
    name = entry["question"]
    question = QUESTIONS[name]
    own = (*question.needs, *question.takes, ALIKE)
    not_its = {"of", "categories"} - {"of" if question.of_condition else "", *own}
    kinds = {option: OPTIONS[option] for option in own} | {
        option: kind for option, kind in OF_EACH.items() if option not in not_its
    }
    given: dict[str, Any] = {}
    for word, value in entry.items():
        option = {"columns": "column"}.get(word, str(word).replace("-", "_"))
        if option == "question":
            continue
        if option not in kinds:
            raise ValueError(f"{name} has no option {word!r}, only {', '.join(kinds)}")
        if option in given:
            raise ValueError(f"{name}: {option} is there twice")
        given[option] = _checked(option, value, kinds[option])
    missing = [option for option in question.needs if option not in given]
    if missing:
        raise ValueError(f"{name} needs {missing[0]}")
    columns = given.pop("column", None)
    columns = [columns] if isinstance(columns, str) else columns
    if columns is None and not question.of_condition:
        raise ValueError(f"{name} needs column")
    for texts in {"keys", "categories"} & given.keys():  # a command line has only text
        given[texts] = [str(label) for label in given[texts]]
    about = columns_of(question, columns, given.pop("of", None))
    importance = given.pop("importance", 1.0)
    selecting = {option: given.pop(option) for option in ("where", "by", "keys", "missing") if option in given}
    names, parameters = parameters_of(question, about, {option: given.get(option) for option in own})
    how: dict[str, Any] = {"columns": names, "labels": question.labels, "parameters": parameters}
    return Request(question=name, **how, **selecting, **common), importance


def _checked(option: str, value: Any, kind: Any) -> Any:
    """Return a value of an option if it is of the kind that the command takes."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise ValueError(
            f"{option} must be as for the command, got {value!r}: {problem[0].lower()}{problem[1:]}"
        ) from None


def answer_all(path: Path, asked: Sequence[tuple[Request, float]]) -> None:
    """Print the cost of all questions, answer them, and print the answers and what is left.

    Every mistake is reported before anything is charged.
    """
    from inosgm.ledger.refusals import BudgetExceeded
    from inosgm.statistics.questions import Question, Questions

    first = asked[0][0]
    require_options(first)
    if first.output is not None and first.output.resolve() == path.resolve():
        raise ValueError(f"--output {first.output} would overwrite the questions: choose another file")
    tables = []
    for number, (request, _) in enumerate(asked, start=1):
        with _naming(path, number):
            tables.append(table_of(request))
    granting, owners = owners_of(first, tables[0])
    requests, queries, questions = [], [], []
    for number, ((request, importance), table) in enumerate(zip(asked, tables, strict=True), start=1):
        with _naming(path, number):
            table.check(owners)
            if not request.dry_run:
                request = replace(request, parameters=with_typed_categories(request.parameters, table, owners))
            require_parameters(request, owners)
            queries.append(query_of(request, table))
            how: dict[str, Any] = {"where": request.where, "by": request.by, "keys": request.keys}
            how |= {"missing": request.missing, "importance": importance}
            questions.append(Question(request.question, request.columns, **how, **request.parameters))
        requests.append(request)
    together = Questions(questions)
    planner = planner_of(first.method)

    def planned(share: float) -> list[tuple["Plan", ...]]:
        return together.plans(queries, owners, share=share, planner=planner)

    def in_turn(share: float) -> list["Plan"]:
        return [plan for own in planned(share) for plan in own]

    ledger = open_ledger(first, granting)
    if first.dry_run:
        _rehearse(requests, queries, planned(first.share), ledger)
        return
    first.out.note("\n".join([*large_budgets(owners), *cost_lines(first, owners, in_turn(first.share), ledger)]))
    charged = "" if first.ledger is None else f"; what {first.ledger} was charged stays charged"
    how = {"owner": first.owner_column, "share": first.share, "ledger": ledger, "key": first.key, "planner": planner}
    try:
        with interruptible(lambda _: f"nothing is kept{charged}"):
            answers = together.ask(first.table, owners, **how)
    except BudgetExceeded as refusal:
        advise(refusal, first.share, in_turn, ledger)
        raise
    _show(requests, answers)


def _rehearse(
    requests: Sequence[Request],
    queries: Sequence["Query"],
    plans: Sequence[Sequence["Plan"]],
    ledger: "Ledger | None",
) -> None:
    """Print what the answers would cost together, and how exact each would be."""
    from inosgm.cli.stats.dry_run import costs, error_of, exactness, text_of_costs

    errors = [
        {"question": request.question, "columns": column_names(request)}
        | error_of(query, request.parameters, own, len(request.columns))
        for request, query, own in zip(requests, queries, plans, strict=True)
    ]
    about: dict[str, Any] = {
        "dry_run": True,
        "cost": costs([plan for own in plans for plan in own], ledger),
        "questions": errors,
    }

    def text() -> str:
        each = [f"{number}. {_title(r)}: {exactness(e)}" for number, (r, e) in _numbered(requests, errors)]
        return "\n".join([*text_of_costs(about["cost"]), *each])

    requests[0].out.result(text, lambda: about)


def _show(requests: Sequence[Request], answers: "Answers") -> None:
    """Print all answers, what they cost and what is left, and write them."""
    from inosgm._internal.text import MAX_ROWS, columns
    from inosgm.cli.stats.format import shown

    first, left = requests[0], answers.left
    estimates = [with_condition(request, one) for request, one in zip(requests, answers.estimates, strict=True)]

    def text() -> str:
        each = [
            f"{number}. {_title(request)}\n{shown(estimate, column_names(request), first.confidence)}\n"
            for number, (request, estimate) in _numbered(requests, estimates)
        ]
        rows = [
            [str(owner), f"{epsilon:.4g}", *([] if left is None else [f"{left[owner]:.4g}"])]
            for owner, epsilon in list(answers.cost.items())[:MAX_ROWS]
        ]
        more = len(answers.cost) - len(rows)
        return "\n".join(
            [
                *each,
                "all questions together:",
                *columns(["owner", "epsilon spent", *([] if left is None else ["left"])], rows),
                *([f"({more} more owners)"] if more else []),
            ]
        )

    values = {
        "table": first.table,
        "share": first.share,
        "answers": [values_of(request, estimate) for request, estimate in zip(requests, estimates, strict=True)],
        "cost": [{"owner": owner, "epsilon": epsilon} for owner, epsilon in answers.cost.items()],
        "left": None if left is None else [{"owner": owner, "epsilon": epsilon} for owner, epsilon in left.items()],
    }
    print_result(first, text, values)


def _title(request: Request) -> str:
    where = "" if request.where is None else f" where {request.where}"
    groups = "" if request.by is None else f" by {request.by}"
    return f"{request.question} of {', '.join(column_names(request))}{where}{groups}"


def _numbered(*rows: Sequence[Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    return enumerate(zip(*rows, strict=True), start=1)


def _command() -> Any:
    """Return the function of the command, with the signature that Typer reads options from."""

    def run(file: Path, table: str, **given: Any) -> None:
        out = Output(as_json=given.pop("as_json"), quiet=given.pop("quiet"))
        answer_all(file, read_questions(file, {"table": table, "out": out, **given}))

    kinds = {"file": FILE, "table": TABLE, **{option: COMMON[option] for option in ABOUT_ALL}}
    run.__signature__ = signature_of(kinds, required={"file", "table", "budgets"})  # type: ignore[attr-defined]
    run.__annotations__ = kinds
    run.__doc__ = "Several questions from a YAML file, which share one budget."
    return run


stats.command("questions")(_command())
