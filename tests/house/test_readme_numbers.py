"""The table that the README opens with is made of the numbers of a demonstration, which its picture shows."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURES = ("everyone", "strictest", "worst")


def test_the_table_of_the_readme_has_the_numbers_of_the_picture():
    found = json.loads((ROOT / "docs/pictures/demo.json").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, numbers in found["methods"].items():
        cells = [f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in map(numbers.__getitem__, MEASURES)]
        assert f"| {name} | {' | '.join(cells)} |" in readme
    assert f"standard deviation of {found['seeds']} seeds" in readme
