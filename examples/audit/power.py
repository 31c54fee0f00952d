"""Attack stored shadow models with few and with many of them: python -m examples.audit.power runs/audit_digits-audit"""

import argparse
from pathlib import Path

import numpy as np

from inosgm._internal.text import columns
from inosgm.audit.attack_names import ATTACK_NAMES
from inosgm.audit.attack_power import power
from inosgm.audit.shadow_study import stored
from inosgm.jobs import Store
from inosgm.reports.attack_power import draw_power


def main() -> None:
    """Print the AUC of every attack, owner and number of shadow models, and the best attack of each; draw them."""
    parser = argparse.ArgumentParser(prog="python -m examples.audit.power", description="Which attack is best?")
    parser.add_argument("store", help="the store of an audit")
    parser.add_argument("--targets", type=int, default=64, help="how many models are attacked")
    parser.add_argument("--out", type=Path, default=Path("runs/power.svg"), help="the figure")
    options = parser.parse_args()
    rows = power(stored(Store(options.store)).shadows, targets=options.targets)
    cells = {(row.attack, row.owner, row.references): row.success for row in rows}
    sizes = sorted({row.references for row in rows})
    for owner in dict.fromkeys(row.owner for row in rows):
        table = []
        for name in ATTACK_NAMES:
            found = [cells[name, owner, size] for size in sizes]
            table.append([name, *(f"{one.auc:.3f}" if one.auc == one.auc else "-" for one in found)])
        best = [max(ATTACK_NAMES, key=lambda name: np.nan_to_num(cells[name, owner, size].auc)) for size in sizes]
        print(f"AUC, {'everyone' if owner is None else f'owner {owner}'}")
        print("\n".join(columns(["shadow models", *map(str, sizes)], [*table, ["best", *best]])), end="\n\n")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw_power(rows, options.out)
    print(f"written: {options.out}. NOT PRIVATE")


if __name__ == "__main__":
    main()
