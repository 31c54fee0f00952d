"""An extension of griffe: examples in docstrings are shown as code."""

import re

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", flags=re.DOTALL | re.MULTILINE)


class Doctests(Extension):
    """Puts fences around the examples of every docstring, which have no heading of their own."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Rewrite a docstring before it is parsed."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
