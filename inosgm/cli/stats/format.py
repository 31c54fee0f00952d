"""An answer as text: numbers with the names of what they belong to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from inosgm._internal.text import columns as laid_out
from inosgm.statistics import Estimate
from inosgm.statistics.estimate import shown_number
from inosgm.statistics.ratios import CONFIDENCE as RATIO_CONFIDENCE

IN_TABLES = ("edges", "categories", "components", "keys", "beyond_at_most", "interval")
"""Details that are shown in another place than the list of details."""

DETAILS = {
    "records": "released number of records",
    "records_error": "standard error of this number",
    "missing": "released number of records with a missing value",
    "missing_error": "standard error of this number",
}
"""Details whose names alone do not say what they are."""

MAX_DETAILS = 4
"""The largest number of details that a line shows: more would wrap on a terminal. JSON has all of them."""


def shown(estimate: Estimate, columns: Sequence[str], confidence: float) -> str:
    """Return an answer as text, given the names of its columns and the confidence of its interval."""
    if np.ndim(estimate.value) == 0:
        low, high = (shown_number(end, estimate.standard_error) for end in estimate.interval(confidence))
        first, _, rest = str(estimate).partition("\n")
        interval = f"{100 * confidence:g} % interval: {low} to {high}"
        return "\n".join([first, interval, *_fieller(estimate), rest, *_details(estimate)])
    about = str(replace(estimate, value=0.0, standard_error=0.0, bias_bound=0.0)).partition("\n")[2]
    return "\n".join([*_table(estimate, columns, confidence), about, *_details(estimate)])


def interval_of(estimate: Estimate, confidence: float) -> tuple[tuple[np.ndarray, np.ndarray], float]:
    """Return the ends of the interval of an answer, and its confidence.

    The means, shares and quantiles of groups have an interval of their own, which is not symmetric, at confidence 0.95.
    """
    if "keys" in estimate.details and "interval" in estimate.details:
        low, high = np.reshape(estimate.details["interval"], (-1, 2)).T
        return (low - estimate.bias_bound, high + estimate.bias_bound), RATIO_CONFIDENCE
    low, high = map(np.asarray, estimate.interval(confidence))
    return (low, high), confidence


def _table(estimate: Estimate, columns: Sequence[str], confidence: float) -> list[str]:
    """Return a line for each number, or for each row of a matrix."""
    values, errors, details = np.asarray(estimate.value), np.asarray(estimate.standard_error), estimate.details
    if "keys" in details:
        return _groups(estimate, confidence)
    if "beyond_at_most" in details:
        beyond = np.asarray(details["beyond_at_most"]).tolist()
        ends = zip(("lower bound", "upper bound"), values.tolist(), beyond, strict=True)
        return laid_out(["", "value", "records beyond"], [[name, _short(v), f"at most {b:.0f}"] for name, v, b in ends])
    if values.ndim > 1:
        return laid_out(
            ["", *columns], [[name, *map(_short, row)] for name, row in zip(columns, values.tolist(), strict=True)]
        )
    percent = f"{100 * confidence:g} %"
    header = ["", "value", "standard error", f"{percent} from", "to"]
    directions, intervals = np.empty((values.size, 0)), np.array(estimate.interval(confidence)).T
    if "edges" in details:
        names = [f"{low:g} to {high:g}" for low, high in pairwise(np.asarray(details["edges"]).tolist())]
        if len(names) > 1:  # values beyond the edges are in there
            names[0], names[-1] = "below " + names[0].split()[-1], names[-1].split()[0] + " and more"
    elif "categories" in details:
        names = [str(name) for name in np.asarray(details["categories"]).tolist()]
    elif "components" in details:
        names = [f"component {number + 1}" for number in range(values.size)]
        header, directions = [*header, *columns], np.asarray(details["components"])
    else:
        names = ["intercept", *columns[:-1]]
    rows = zip(names, values.tolist(), errors.tolist(), intervals.tolist(), directions.tolist(), strict=True)
    return laid_out(
        header,
        [
            [name, *(shown_number(number, error) for number in (value, error, *ends)), *map(_short, rest)]
            for name, value, error, ends, rest in rows
        ],
    )


def _groups(estimate: Estimate, confidence: float) -> list[str]:
    """Return a line for each group; of histograms, with a column for each bin."""
    values, errors, details = np.asarray(estimate.value), np.asarray(estimate.standard_error), estimate.details
    names = [str(name) for name in np.asarray(details["keys"]).tolist()]
    if values.ndim == 1:
        ends, confidence = interval_of(estimate, confidence)
        rows = zip(names, values.tolist(), errors.tolist(), np.stack(ends, axis=1).tolist(), strict=True)
        return laid_out(
            ["", "value", "standard error", f"{100 * confidence:g} % from", "to"],
            [[name, *(shown_number(number, error) for number in (v, error, *own))] for name, v, error, own in rows],
        )
    bins = [f"{low:g} to {high:g}" for low, high in pairwise(np.asarray(details["edges"]).tolist())]
    return laid_out(["", *bins], [[name, *map(_short, row)] for name, row in zip(names, values.tolist(), strict=True)])


def _fieller(estimate: Estimate) -> Iterator[str]:
    """Yield the interval of a ratio of two private numbers, if the answer is one."""
    if "interval" in estimate.details:
        low, high = (shown_number(end, estimate.standard_error) for end in estimate.details["interval"])
        yield (
            f"{100 * RATIO_CONFIDENCE:g} % interval by Fieller, over the noise, which also holds for few records: "
            f"{low} to {high}"
        )


def _details(estimate: Estimate) -> Iterator[str]:
    """Yield a line for every detail of a few numbers, and where the rest is."""
    for name, value in estimate.details.items():
        numbers = np.asarray(value)
        if name not in IN_TABLES and numbers.ndim < 2 and numbers.size <= MAX_DETAILS:
            words = DETAILS.get(name, name.replace("_", " "))
            yield f"{words}: {', '.join(_short(number) for number in numbers.ravel().tolist())}"
    if estimate.by_owner and any(np.ndim(row.value) for row in estimate.by_owner.values()):
        yield "(the values of each owner: --json, --output)"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
