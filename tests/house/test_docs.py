"""The README and the docs: every Python block runs, commands and configurations exist, links lead somewhere."""

import importlib
import importlib.util
import re
import shlex
import sys
import unicodedata
import warnings
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import typer
import yaml
from typer.testing import CliRunner

import inosgm
import ray_jobs
from inosgm._internal import yaml as _yaml
from inosgm.cli.program import app
from inosgm.experiments.config import TrainingConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
OTHERS = [ROOT / name for name in ("LIMITATIONS.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*?) -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    mark: str  # of a comment above it: `needs NAME` (a package that may be missing), or `run` (of commands)
    language: str
    title: str  # the name of a file that a reader is to make of it
    text: str


def blocks_of(page, *languages):
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    blocks = [Block(*(group or "" for group in match.groups())) for match in found]
    return [block for block in blocks if not languages or block.language in languages]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A directory to work in, where a reader of the docs would stand: beside `examples`."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def is_run(block):
    return block.language == "python" or block.mark == "run"


LONG = {
    f"docs/guides/{name}.md" for name in ("audit", "changing_budgets", "compare", "methods", "own_mechanism", "report")
}
"""Pages whose blocks train several models, or audit one."""


def pages_with_code():
    assert {name_of(page) for page in PAGES} >= LONG
    for page in PAGES:
        if any(map(is_run, blocks_of(page))):
            yield pytest.param(page, id=name_of(page), marks=pytest.mark.long if name_of(page) in LONG else ())


@pytest.mark.parametrize("page", list(pages_with_code()))
def test_code_blocks_run(page, desk, monkeypatch):
    names, missing = {}, set()
    for block in blocks_of(page):
        if block.title:
            (desk / block.title).write_text(block.text, encoding="utf-8")
            monkeypatch.delitem(sys.modules, Path(block.title).stem, raising=False)  # of another page or test
        package = block.mark.removeprefix("needs ") if block.mark.startswith("needs ") else None
        if package and importlib.util.find_spec(package) is None:
            missing.add(package)
        elif block.language == "python":
            with warnings.catch_warnings():
                if package:
                    warnings.simplefilter("ignore")  # what other libraries warn of is theirs
                exec(compile(block.text, str(page), "exec"), names)
        elif block.language == "console" and block.mark == "run":
            for words in commands_of(block):
                program, arguments = program_of(words)
                result = CliRunner().invoke(program, arguments, catch_exceptions=False)
                assert result.exit_code == 0, f"{' '.join(words)}: {result.output}"
    if missing:
        pytest.skip(f"not installed, so that its block did not run: {', '.join(sorted(missing))}")


def commands_of(block):
    """Yield the words of every command of a block, without `$`, comments and what comes after a pipe."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("$ "):
            yield shlex.split(line[2:], comments=True)


def program_of(words):
    """Return the typer app that a command line starts and its arguments, or None if it starts something else."""
    if "--" in words and words[:3] == ["ray", "job", "submit"]:
        words = words[words.index("--") + 1 :]
    if Path(words[0]).name == "inosgm":
        return app, words[1:]
    if words[0].endswith("python") and words[1] == "-m" and words[2].startswith("ray_jobs."):
        entry = importlib.import_module(words[2])
        return (entry.app, words[3:]) if hasattr(entry, "app") else None  # `verify_gpus` is a plain script
    return None


CONSOLE = [page for page in [*PAGES, *OTHERS] if blocks_of(page, "console")]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("page", CONSOLE, ids=name_of)
def test_commands_exist_with_their_options(page):
    for block in blocks_of(page, "console"):
        for words in commands_of(block):
            if words[0] == "make":
                assert set(words[1:]) <= TARGETS, f"no such target: {' '.join(words)}"
            elif program := program_of(words):
                check(typer.main.get_command(program[0]), program[1], " ".join(words))


def check(command, arguments, line):
    """Parse a command line as the program would, without running it; `...` stands for more options."""
    group = hasattr(command, "commands")
    if group and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, f"no such command: {line}"
        check(command.commands[arguments[0]], arguments[1:], line)
    elif "..." in arguments:
        known = {name for parameter in command.params for name in parameter.opts}
        asked = {word.split("=")[0] for word in arguments if word.startswith("--")}
        assert asked <= known, f"no such options as {asked - known}: {line}"
    elif group and arguments and arguments[0] not in ("--help", "--version"):  # options of the group, then a command
        check(command, arguments[1:], line)
    elif not {"--help", "--version"} & set(arguments):
        try:
            command.make_context(command.name, list(arguments))
        except Exception as error:
            raise AssertionError(f"{line}: {getattr(error, 'message', error)}") from error


def test_yaml_in_the_docs_is_a_configuration_or_commands(tmp_path):
    commands = typer.main.get_command(app).commands
    for page, block in [(one, block) for one in PAGES for block in blocks_of(one, "yaml")]:
        written = yaml.safe_load(block.text)
        if isinstance(written, list):  # questions of `inosgm stats questions`, which tests of it ask
            continue
        if written.keys() <= commands.keys() - {"plan"}:
            for name, options in written.items():
                known = {option.lstrip("-") for parameter in commands[name].params for option in parameter.opts}
                assert options.keys() <= known, f"{name} has no {options.keys() - known}"
        elif "optimizer" not in written:  # sections that take the place of those of the page's first file
            whole = next(other for other in blocks_of(page, "yaml") if other.title)
            TrainingConfig.from_dict({**_yaml.read(whole.text), **_yaml.read(block.text)})
        else:
            (tmp_path / "run.yaml").write_text(block.text, encoding="utf-8")
            TrainingConfig.from_yaml(tmp_path / "run.yaml")


def text_of(page):
    """Return a page without its code, and with the files that it includes."""
    text = page.read_text(encoding="utf-8")
    for included in re.findall(r'^--8<-- "(.+)"$', text, flags=re.MULTILINE):
        text += (ROOT / included).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(page):
    """Return the anchors of a page, made of its headings as mkdocs does."""
    text = text_of(page)
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    plain = [unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode() for heading in headings]
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}
    return slugs | set(re.findall(r'id="([^"]+)"', text))


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{name_of(page)} links to {target}, and there is nothing"
        if anchor:
            assert anchor in anchors_of(place), f"{name_of(page)} links to {target}: no such heading"


def test_every_page_is_in_the_navigation():
    def pages_in(entry):
        if isinstance(entry, str):
            return {entry}
        return set().union(*(pages_in(child) for child in (entry.values() if isinstance(entry, dict) else entry)))

    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert pages_in(navigation) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def shown_in_the_reference():
    """Return the objects and the modules that the reference is made of."""
    for page in sorted((DOCS / "reference").glob("*.md")):
        for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            try:
                yield importlib.import_module(path)
            except ModuleNotFoundError:
                place, _, name = path.rpartition(".")
                try:
                    yield getattr(importlib.import_module(place), name)
                except ModuleNotFoundError:  # a method of a class
                    place, _, outer = place.rpartition(".")
                    yield getattr(getattr(importlib.import_module(place), outer), name)


def test_the_reference_has_every_public_name():
    shown = list(shown_in_the_reference())
    modules = {thing.__name__ for thing in shown if isinstance(thing, ModuleType)}
    names = [(inosgm, name) for name in dir(inosgm)] + [(ray_jobs, name) for name in ray_jobs.__all__]
    for package, name in names:
        thing = getattr(package, name)
        if not name.startswith("_") and not isinstance(thing, ModuleType):
            assert thing in shown or thing.__module__ in modules, f"{package.__name__}.{name} is not in the reference"
