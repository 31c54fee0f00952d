"""What an audit has found as Parquet files. NOT PRIVATE."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inosgm.audit.findings import Findings
from inosgm.owners import Label


def numbers(audit: Findings) -> bytes:
    """Return a row for each attack and owner (null: everyone): how well the attack does."""
    claims = {claim.owner: claim for claim in audit.claims}
    rows = [
        {
            "attack": attack,
            "owner": _name(label),
            "granted": None if label is None else claims[label].granted,
            "spent": None if label is None else claims[label].spent,
            "delta": None if label is None else claims[label].delta,
            "records": found.records,
            "members": found.members,
            "others": found.others,
            "unknown": found.unknown,
            "targets": found.targets,
            "auc": found.auc,
            "auc_low": found.auc_low,
            "auc_high": found.auc_high,
            **{
                f"tpr_{rate:g}{end}": value
                for rate, values in found.at.items()
                for end, value in zip(("", "_low", "_high"), values, strict=True)
            },
        }
        for attack in audit.attacks
        for label, found in audit.successes(attack)
    ]
    return _written({name: [row[name] for row in rows] for name in rows[0]}, audit)


def curves(audit: Findings) -> bytes:
    """Return a row for each attack, owner (null: everyone) and false positive rate."""
    found = [(attack, label, one) for attack in audit.attacks for label, one in audit.successes(attack)]
    lengths = [len(one.fpr) for _, _, one in found]

    def repeated(values: Sequence[str | None]) -> list[str | None]:
        return [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]

    names = ("fpr", "tpr", "tpr_low", "tpr_high")
    return _written(
        {
            "attack": repeated([attack for attack, _, _ in found]),
            "owner": repeated([_name(label) for _, label, _ in found]),
            **{name: np.concatenate([getattr(one, name) for _, _, one in found]) for name in names},
        },
        audit,
    )


def bounds(audit: Findings) -> bytes:
    """Return a row for each owner and lower bound on its epsilon."""
    rows = [
        {
            "owner": _name(one.claim.owner),
            "granted": one.claim.granted,
            "spent": one.claim.spent,
            "delta": one.claim.delta,
            "bound": name,
            "epsilon": bound.epsilon,
            "confidence": bound.confidence,
            "route": bound.route,
            "plain": bound.plain,
            "contradicts": bound.contradicts,
            "evidence": bound.evidence,
        }
        for one in audit.verdicts
        for name, bound in one.bounds.items()
    ]
    return _written({name: [row[name] for row in rows] for name in rows[0]}, audit)


def differences(audit: Findings) -> bytes:
    """Return a row for each pair of owners and each target: Student's t-test between what is said about members."""
    found = [(one, place) for one in audit.differences for place in range(one.targets.size)]
    numbers = {"target": "targets", "t": "t", "p": "p", "degrees": "degrees"}
    return _written(
        {
            "attack": [audit.attacks[0]] * len(found),
            "first": [str(one.first) for one, _ in found],
            "second": [str(one.second) for one, _ in found],
            **{name: [getattr(one, source)[place].item() for one, place in found] for name, source in numbers.items()},
        },
        audit,
    )


def _name(label: Label | None) -> str | None:
    return None if label is None else str(label)


def _written(data: Mapping[str, Any], audit: Findings) -> bytes:
    """Return columns as a Parquet file whose schema says how many shadow models there were, and that it is secret."""
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
