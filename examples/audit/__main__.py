"""Audit INO-SGD and IDP-SGD on the same records, and draw both: python -m examples.audit"""

import argparse
import sys
from pathlib import Path

from inosgm.audit import lira
from inosgm.experiments.config import TrainingConfig
from inosgm.jobs import Store
from inosgm.reports.roc import draw

METHODS: dict[str, dict[str, object]] = {"INO-SGD": {}, "IDP-SGD": {"tail": {"kind": "none"}}}


def main() -> None:
    """Train what is missing, attack, print tables, draw; the same command goes on with what was stopped."""
    parser = argparse.ArgumentParser(prog="python -m examples.audit", description="What are promises worth?")
    parser.add_argument("--file", type=Path, default=Path("examples/configs/audit_digits.yaml"), help="what to audit")
    parser.add_argument("--shadows", type=int, default=512, help="how many shadow models of each method")
    parser.add_argument("--out", type=Path, default=Path("runs/audit"), help="where scores, tables and figures go")
    options = parser.parse_args()
    config = TrainingConfig.from_yaml(options.file)
    audits = {}
    for name, changes in METHODS.items():
        store = Store(options.out / f"{options.file.stem}-{name.lower()}")
        audits[name] = lira(config.changed(changes), options.shadows, store=store)
        audits[name].write(store)
        print(f"{name}: {audits[name].table()}\n")
    draw(audits, options.out / f"{options.file.stem}.svg", "online")
    print(f"written to {options.out}: {options.file.stem}.svg, and Parquet files for each method")
    contradictions = [f"{name}: {line}" for name, audit in audits.items() for line in audit.contradictions]
    if contradictions:
        print("\n".join(f"contradicted: {line}" for line in contradictions), file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
