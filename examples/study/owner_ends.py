"""Figures of all methods at the end of training, from CSV files: python -m examples.study.owner_ends docs/results"""

import csv
import sys
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

LOOKS = {"DP-SGD": ("#b4541a", "s"), "IDP-SGD": ("#8a8a8a", "o"), "INO-SGD 0.7": ("#0b6e99", "^")}
"""Colour and marker of each method; INO-SGD with the longest tail."""

RECALL = "recall of "


def draw(file: Path, accountant: str = "PLD") -> Path:
    """Draw the recall of every owner at the end, each method tuned for itself, beside the file; return the figure.

    Points are means over seeds. DP-SGD has one plan, so it is the same in both panels.

    Args:
        file: A CSV file of the study.
        accountant: Whose plans are shown.
    """
    with file.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["point"] == "tuned" and row["accountant"] == accountant]
    labels = [name.removeprefix(RECALL) for name in rows[0] if name.startswith(RECALL)]
    plans = list(dict.fromkeys(row["plan"] for row in rows if row["plan"]))
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "study", "svg.fonttype": "none"}):
        figure = Figure(figsize=(3.6 * len(plans), 2.8), layout="constrained")
        for axis, plan in zip(figure.subplots(1, len(plans), sharey=True, squeeze=False)[0], plans, strict=True):
            for method, (colour, marker) in LOOKS.items():
                some = [row for row in rows if row["method"] == method and row["plan"] in ("", plan)]
                if not some:  # not run yet
                    continue
                means = [fmean(float(row[RECALL + label]) for row in some) for label in labels]
                axis.plot(range(len(labels)), means, marker, color=colour, label=method, markersize=5, alpha=0.85)
            axis.set_xticks(range(len(labels)), labels)
            axis.set(title=f"{plan}, {accountant}", xlabel="owner", ylim=(-0.02, 1.02))
            axis.grid(alpha=0.3)
        figure.axes[0].set_ylabel("recall at the end")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(LOOKS), frameon=False)
        written = file.with_name(f"{file.stem}-owners.svg")
        FigureCanvasSVG(figure).print_svg(str(written), metadata={"Date": None})
    return written


if __name__ == "__main__":
    for name in ("ca", "m5", "mn"):
        print(draw(Path(sys.argv[1]) / f"{name}.csv"))
