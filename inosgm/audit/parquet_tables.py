"""The findings of an audit as Parquet files. NOT PRIVATE."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inosgm.audit.findings import Findings
from inosgm.owners import Label

COUNTS = ("records", "members", "others", "unknown", "targets", "auc", "auc_low", "auc_high")
"""Attributes of a `Success` that become columns."""

BOUND_FIELDS = ("epsilon", "confidence", "route", "plain", "contradicts", "evidence")
"""Attributes of a `Bound` that become columns, and entries of JSON."""

_PROMISE = ("granted", "spent", "delta")


def numbers(audit: Findings) -> bytes:
    """Return a row for each attack and owner (null: everyone): the success of the attack."""
    claims = {claim.owner: claim for claim in audit.claims}
    rows = [
        {
            "attack": attack,
            "owner": _name(label),
            **{name: None if label is None else getattr(claims[label], name) for name in _PROMISE},
            **{name: getattr(success, name) for name in COUNTS},
            **{
                f"tpr_{rate:g}{end}": value
                for rate, values in success.at.items()
                for end, value in zip(("", "_low", "_high"), values, strict=True)
            },
        }
        for attack in audit.attacks
        for label, success in audit.successes(attack)
    ]
    return _parquet({name: [row[name] for row in rows] for name in rows[0]}, audit)


def curves(audit: Findings) -> bytes:
    """Return a row for each attack, owner (null: everyone) and false positive rate."""
    cases = [(attack, label, success) for attack in audit.attacks for label, success in audit.successes(attack)]
    lengths = [len(success.fpr) for _, _, success in cases]

    def repeated(values: Sequence[str | None]) -> list[str | None]:
        return [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]

    return _parquet(
        {
            "attack": repeated([attack for attack, _, _ in cases]),
            "owner": repeated([_name(label) for _, label, _ in cases]),
            **{
                name: np.concatenate([getattr(success, name) for _, _, success in cases])
                for name in ("fpr", "tpr", "tpr_low", "tpr_high")
            },
        },
        audit,
    )


def bounds(audit: Findings) -> bytes:
    """Return a row for each owner and lower bound on its epsilon."""
    pairs = [(verdict.claim, name, bound) for verdict in audit.verdicts for name, bound in verdict.bounds.items()]
    columns: dict[str, list[Any]] = {"owner": [_name(claim.owner) for claim, _, _ in pairs]}
    columns |= {name: [getattr(claim, name) for claim, _, _ in pairs] for name in _PROMISE}
    columns["bound"] = [name for _, name, _ in pairs]
    columns |= {name: [getattr(bound, name) for _, _, bound in pairs] for name in BOUND_FIELDS}
    return _parquet(columns, audit)


def differences(audit: Findings) -> bytes:
    """Return a row for each pair of owners and each target: Student's t-test between statistics of members."""
    cases = [(pair, row) for pair in audit.differences for row in range(pair.targets.size)]
    names = {"target": "targets", "t": "t", "p": "p", "degrees": "degrees"}
    return _parquet(
        {
            "attack": [audit.attacks[0]] * len(cases),
            "first": [str(pair.first) for pair, _ in cases],
            "second": [str(pair.second) for pair, _ in cases],
            **{name: [getattr(pair, source)[row].item() for pair, row in cases] for name, source in names.items()},
        },
        audit,
    )


def _name(label: Label | None) -> str | None:
    return None if label is None else str(label)


def _parquet(data: Mapping[str, Any], audit: Findings) -> bytes:
    """Return columns as a Parquet file whose schema holds the number of shadow models, and that it is secret."""
    import pyarrow as pa
    from pyarrow import parquet

    about = {
        "shadows": audit.shadows.count,
        "asked": audit.shadows.asked,
        "canaries": audit.canaries,
        "confidence": audit.confidence,
        "private": "false: as secret as the records",
    }
    table = pa.table(dict(data)).replace_schema_metadata(
        {f"inosgm.{name}": str(value) for name, value in about.items()}
    )
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()
