"""Conditions on the columns of a record, such as `sex == 'F' and age >= 18`, read without evaluating any code."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inosgm.statistics.files.columns import decoded
from inosgm.statistics.files.fragments import BadTable

LONGEST = 10_000
"""Largest number of characters of a condition: Python's parser recurses, and nobody types more."""

COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
GRAMMAR = (
    "write comparisons (==, not =; !=, <, <=, >, >=, in, not in) of columns with numbers, 'text' or True, joined by "
    "and, or, not; a column whose name is not a word goes between backticks"
)
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`([^`]+)`")

Literal = str | int | float | bool


@dataclass(frozen=True)
class Condition:
    """A condition that a record satisfies or not, by the values of its own columns.

    The text is parsed with Python's grammar and evaluated by this class: names are columns, nothing is called, and no
    code is run. A comparison with a missing value is unknown, as in SQL, and a record counts only if the whole
    condition is known to be true.

    Args:
        text: The condition.

    Raises:
        ValueError: for anything but comparisons of columns, joined by `and`, `or` and `not`.

    >>> condition = Condition("sex == 'F' and not age < 18")
    >>> condition.columns
    ('sex', 'age')
    >>> table = pa.table({"sex": ["F", "M", "F"], "age": [30, 40, 12]})
    >>> condition.satisfied(table.to_batches()[0]).tolist()
    [True, False, False]
    """

    text: str
    types: Mapping[str, pa.DataType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise ValueError(f"a condition must be text such as \"sex == 'F'\", got {self.text!r}")
        tree, names = _parsed(self.text)
        types: dict[str, pa.DataType] = {}
        _Reader(self.text, names, types).check(tree)
        if not types:
            raise ValueError(
                f"a condition must name a column of the table, got {self.text!r}: text goes between quotes"
            )
        object.__setattr__(self, "types", types)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, each once."""
        return tuple(self.types)

    def satisfied(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return whether each record satisfies the condition.

        Raises:
            BadTable: for a column of another kind than what it is compared with.
        """
        tree, names = _parsed(self.text)
        result = _Reader(self.text, names, {}).evaluate(tree, batch)
        known: np.ndarray = pc.fill_null(result, False).to_numpy(zero_copy_only=False)
        return known


class _Reader:
    """Checks and evaluates the tree of a condition.

    Args:
        text: The condition, for messages.
        names: The column of each placeholder that stands for a name between backticks.
        types: Receives the columns and the type that a CSV column is read as.
    """

    def __init__(self, text: str, names: Mapping[str, str], types: dict[str, pa.DataType]) -> None:
        self._text, self._names, self._types = text, names, types

    def check(self, node: ast.expr) -> None:
        """Raise for anything that is not part of the grammar."""
        match node:
            case ast.BoolOp(values=parts):
                for part in parts:
                    self.check(part)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                self.check(part)
            case ast.Name():
                self._note(self._column(node), pa.bool_())
            case ast.Compare(left=left, ops=ops, comparators=rights):
                for one, op, other in zip([left, *rights], ops, rights, strict=False):
                    self._check_pair(one, op, other)
            case _:
                raise self._refusal()

    def _check_pair(self, one: ast.expr, op: ast.cmpop, other: ast.expr) -> None:
        if isinstance(op, ast.In | ast.NotIn):
            values = self._list(other)
            if not isinstance(one, ast.Name) or not values or len({_kind(value) for value in values}) > 1:
                raise self._refusal()
            self._note(self._column(one), _kind(values[0]))
            return
        if type(op) not in COMPARISONS:
            raise self._refusal()
        sides = [self._column(side) if isinstance(side, ast.Name) else None for side in (one, other)]
        if not any(sides):
            raise self._refusal()
        kinds = [
            None if column else _kind(self._literal(side)) for side, column in zip((one, other), sides, strict=True)
        ]
        for column in filter(None, sides):
            self._note(column, next(filter(None, kinds), pa.float64()))  # two columns are compared as numbers

    def evaluate(self, node: ast.expr, batch: pa.RecordBatch) -> Any:
        """Return the truth of each record, null where it is unknown."""
        match node:
            case ast.BoolOp(op=joined, values=parts):
                join = pc.and_kleene if isinstance(joined, ast.And) else pc.or_kleene
                found = self.evaluate(parts[0], batch)
                for part in parts[1:]:
                    found = join(found, self.evaluate(part, batch))
                return found
            case ast.UnaryOp(operand=part):
                return pc.invert(self.evaluate(part, batch))
            case ast.Name():
                values = self._values(node, batch)
                if not pa.types.is_boolean(values.type):
                    raise self._mismatch(self._column(node)) from None
                return values
            case ast.Compare(left=left, ops=ops, comparators=rights):
                found = None
                for one, op, other in zip([left, *rights], ops, rights, strict=False):
                    pair = self._compare(one, op, other, batch)
                    found = pair if found is None else pc.and_kleene(found, pair)
                return found
        raise AssertionError("check refuses everything else")

    def _compare(self, one: ast.expr, op: ast.cmpop, other: ast.expr, batch: pa.RecordBatch) -> Any:
        columns = [self._column(side) for side in (one, other) if isinstance(side, ast.Name)]
        try:
            if isinstance(op, ast.In | ast.NotIn):
                values, wanted = self._values(one, batch), self._list(other)
                found = pc.equal(values, wanted[0])
                for literal in wanted[1:]:
                    found = pc.or_kleene(found, pc.equal(values, literal))
                return pc.invert(found) if isinstance(op, ast.NotIn) else found
            return COMPARISONS[type(op)](self._values(one, batch), self._values(other, batch))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):  # their messages may show values
            raise self._mismatch(columns[0]) from None

    def _values(self, node: ast.expr, batch: pa.RecordBatch) -> Any:
        if not isinstance(node, ast.Name):
            return self._literal(node)
        values = decoded(batch.column(self._column(node)))
        return pc.if_else(pc.is_nan(values), None, values) if pa.types.is_floating(values.type) else values

    def _literal(self, node: ast.expr) -> Literal:
        match node:
            case ast.Constant(value=str() | bool() | int() | float() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if value is not True:
                return -value
        raise self._refusal()

    def _list(self, node: ast.expr) -> list[Literal]:
        if not isinstance(node, ast.List | ast.Tuple | ast.Set):
            raise self._refusal()
        return [self._literal(entry) for entry in node.elts]

    def _column(self, node: ast.Name) -> str:
        return self._names.get(node.id, node.id)

    def _note(self, column: str, kind: pa.DataType) -> None:
        if self._types.setdefault(column, kind) != kind:
            raise ValueError(
                f"a condition compares the column {column!r} with things of two kinds in {self._text!r}: text, numbers "
                "or True and False"
            )

    def _mismatch(self, column: str) -> BadTable:
        return BadTable(
            f"the column {column!r} holds values of another kind than the condition {self._text!r} compares it with: "
            "quote text, and nothing else"
        )

    def _refusal(self) -> ValueError:
        return ValueError(f"a condition must compare columns, got {self._text!r}: {GRAMMAR}")


def _parsed(text: str) -> tuple[ast.expr, dict[str, str]]:
    """Return the tree of a condition, and the names between backticks by the placeholder of each."""
    names: dict[str, str] = {}

    def placeholder(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name = f"column_{len(names)}_between_backticks"
        names[name] = found[1]
        return name

    if len(text) > LONGEST:
        raise ValueError(f"a condition must have at most {LONGEST} characters, got {len(text)}")
    try:
        return ast.parse(_QUOTED.sub(placeholder, text).strip(), mode="eval").body, names
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"a condition must compare columns, got {text!r}: {GRAMMAR}") from None


def _kind(value: Literal) -> pa.DataType:
    """Return the type that a CSV column is read as if it is compared with this."""
    return pa.string() if isinstance(value, str) else pa.bool_() if isinstance(value, bool) else pa.float64()
