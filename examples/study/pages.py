"""Pages of results: tables in Markdown, put between markers."""

import re


def markdown(rows: list[list[str]]) -> str:
    """Lay out a table, the first row as its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def fill(text: str, texts: dict[str, str]) -> str:
    r"""Put texts between their markers, <!-- NAME --> and <!-- end -->.

    >>> fill("<!-- a --> old <!-- end -->", {"a": "new"})
    '<!-- a -->\n\nnew\n\n<!-- end -->'
    """
    for name, table in texts.items():
        new = f"<!-- {name} -->\n\n{table}\n\n<!-- end -->"
        text = re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _, new=new: new, text, flags=re.DOTALL)
    return text
