"""The command line as a whole: its contents, its options, and how it ends."""

import json
import os
import re
import subprocess
import sys

import pytest
import typer.main
from training_config import TEXT
from typer.testing import CliRunner

from inosgm._internal.imports import imported
from inosgm.cli import doctor
from inosgm.cli import options as _cli_options
from inosgm.cli.doctor import State, examine
from inosgm.cli.help_panels import PANELS
from inosgm.cli.output import Output
from inosgm.cli.program import CONTENTS, DEBUG, app, main
from inosgm.experiments.sweep_results import Metric

OWNERS = "owner,epsilon,delta,records\nclinic,2,1e-5,900\npatient,0.5,1e-5,100\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DEBUG, "")
    (tmp_path / "run.yaml").write_text(TEXT)
    (tmp_path / "owners.csv").write_text(OWNERS)
    return tmp_path


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def commands(group=None, path=()):
    """Yield every command with the words that call it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_the_help_is_a_table_of_contents():
    told = invoke("--help").stdout
    names = [name for panel in CONTENTS.values() for name in panel]
    assert re.findall(rf"│ ({'|'.join(names)}) ", told) == names
    assert re.findall(r"─ (\w+) ─+╮", told)[1:] == list(CONTENTS)
    assert re.findall(r"^ +(\d+)  \w", told, re.MULTILINE) == ["0", "1", "2", "3", "4", "130"]


@pytest.mark.parametrize("words", [[], ["train"], ["stats", "mean"], ["ledger", "grant"]])
def test_help_has_panels_by_purpose_and_no_type_behind_a_flag(words):
    told = invoke(*words, "-h").stdout
    assert "<bool>" not in told
    if words:
        panels = re.findall(r"─ (\w+) ─+╮", told)
        assert panels[:2] == ["Arguments", "Options"]
        assert panels[2:] == [name for name in PANELS if name in panels]
        assert "Output" in panels


def test_the_same_option_has_the_same_words_everywhere():
    shared = {"--json", "--quiet", "--set", "--data-dir", "--delta", "--processes", "--address", "--num-cpus"}
    shared |= {"--num-gpus", "--max-concurrent", "--attempts", "--run"}
    said = {}
    for path, command in commands():
        for parameter in command.params:
            for name in shared.intersection(parameter.opts):
                said.setdefault(name, {}).setdefault(parameter.help, []).append(path)
    assert set(said) == shared
    assert {name: list(texts) for name, texts in said.items() if len(texts) > 1} == {}
    silent = {("demo",)}
    for path, command in commands():
        assert path in silent or {"--json", "--quiet"} <= {name for one in command.params for name in one.opts}, path


def test_help_imports_nothing_heavy_and_a_serial_sweep_no_ray(here):
    code = (
        "import sys; from typer.testing import CliRunner; from inosgm.cli.program import app; run = CliRunner().invoke;"
        "assert run(app, ['--help']).exit_code == 0 and run(app, ['sweep', '--help']).exit_code == 0;"
        "assert not {'torch', 'ray', 'numpy'} & set(sys.modules);"
        "told = run(app, ['sweep', 'run.yaml', '--grid', 'optimizer.lr=1,2', '--json']);"
        "assert told.exit_code == 0, told.exception; assert 'ray' not in sys.modules; print(told.stdout)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    points = json.loads(told.stdout)["points"]
    assert sorted(point["values"]["optimizer.lr"] for point in points) == [1.0, 2.0]
    assert all(point["seeds"] == 1 for point in points)


def test_a_sweep_that_needs_ray_says_so(here):
    assert [one.value for one in _cli_options.Measure] == [one.value for one in Metric]
    result = invoke("sweep", "run.yaml", "--grid", "optimizer.lr=1", "--scheduler", "asha", code=1)
    assert "--scheduler needs Ray" in str(result.exception)
    assert not (here / "runs").exists()


def test_json_is_one_document_and_everything_else_is_on_stderr(here):
    words = ("plan", "owners.csv", "--steps", 10, "--expected-batch", 50, "--json")
    plan, made = invoke(*words), here / "plan.json"
    assert (plan.stderr, made.exists()) == ("", False)
    assert invoke(*words, "--output", "plan.json").stderr == "written to plan.json\n"
    assert json.loads(plan.stdout) == json.loads(made.read_text())
    trained = invoke("train", "run.yaml", "--steps", 4, "--json")
    assert json.loads(trained.stdout)["steps"] == 4
    assert "8 steps, expected batch 64" in trained.stderr
    (here / "budgets.csv").write_text("owner,epsilon\nmalignant,1.5\n")
    revised = invoke("revise", "run.yaml", "--budgets", "budgets.csv", "--json")
    assert json.loads(revised.stdout)["plan"]["epsilon"] == [5.0, 1.5]
    again = invoke("train", "run.yaml", "--json", "--quiet")
    assert again.stderr == ""
    evaluated = json.loads(invoke("evaluate", "runs/run", "--json").stdout)
    assert evaluated == json.loads(again.stdout)
    seeds = invoke("train", "run.yaml", "--seeds", 2, "--json")
    told = json.loads(seeds.stdout)
    assert (told["seeds"], [one["owner"] for one in told["owners"]]) == (2, ["benign", "malignant"])
    assert [one["spent"] <= one["epsilon"] and "accuracy" in one for one in told["owners"]] == [True, True]
    assert told == {**json.loads(invoke("jobs", "summary", "runs/run-seeds", "--json").stdout), "store": told["store"]}
    certified = json.loads(invoke("certify", "--evaluations", 2, "--json", "--quiet").stdout)
    assert not any(one["exceeds"] for one in certified["mechanisms"])


def test_a_number_that_json_does_not_have_is_null(capsys):
    Output(as_json=True).result(lambda: "", lambda: {"value": [float("inf"), 1.5]})
    assert capsys.readouterr().out == '{"value": [null, 1.5]}\n'


def test_mistakes_end_in_a_line_and_debug_shows_where(here, monkeypatch, program):
    assert program("train", "none.yaml") == (2, "", "error: none.yaml: no such file or directory\n")
    said = "error: . is a directory without a ledger of its own: name the file\n"
    assert program("ledger", "show", ".") == (2, "", said)
    (here / "picture.yaml").write_bytes(b"\x89PNG\xff")
    assert program("train", "picture.yaml") == (2, "", "error: picture.yaml: must be YAML, text in UTF-8\n")
    monkeypatch.setattr(sys, "argv", ["inosgm", "--debug", "train", "none.yaml"])
    with pytest.raises(FileNotFoundError):
        main()


def test_an_interrupted_run_says_how_to_go_on(here, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("inosgm.experiments.train", interrupted)
    told = invoke("train", "run.yaml", "--quiet", code=130).stderr
    assert told == "interrupted: finished steps are kept in runs/run, and the same command resumes\n"


def test_runs_and_stores_are_kept_apart(here):
    for folder, file in (("run", "plan-0.json"), ("seeds", "store.json")):
        (here / folder).mkdir()
        (here / folder / file).write_text("{}")
    result = invoke("train", "run.yaml", "--seeds", 1, "--store", "run", code=1)
    assert "is the directory of a run: take another store" in str(result.exception)
    result = invoke("train", "run.yaml", "--run", "seeds", code=1)
    assert "holds a store of jobs: take another directory" in str(result.exception)
    assert sorted(path.name for path in here.glob("*/*")) == ["plan-0.json", "store.json"]


@pytest.mark.parametrize(("typed", "proposed"), [("inosgm s", "sweep\nstats"), ("inosgm stats rob", "robust-mean")])
def test_shells_complete_commands(typed, proposed, monkeypatch):
    environment = {"_INOSGM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    assert CliRunner().invoke(app, [], prog_name="inosgm", env=environment).stdout == f"{proposed}\n"


def test_shells_complete_keys_and_are_told_how(monkeypatch):
    environment = {"_INOSGM_COMPLETE": "complete_bash", "COMP_WORDS": "inosgm train --set plan.step", "COMP_CWORD": "3"}
    assert CliRunner().invoke(app, [], prog_name="inosgm", env=environment).stdout == "plan.steps=\n"
    for shell in ("bash", "zsh", "fish"):
        result = CliRunner().invoke(app, [], prog_name="inosgm", env={"_INOSGM_COMPLETE": f"source_{shell}"})
        assert "_INOSGM_COMPLETE=complete_" + shell in result.stdout


def test_the_doctor_names_what_is_missing(here, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    (here / "data/cardiotocography").mkdir(parents=True)
    (here / "data/cardiotocography/ctg.csv").write_text("")
    found = {(one.part, one.name): one for one in examine("data")}
    assert found["packages", "numpy"].state is State.good
    assert found["data", "digits"].state is State.good
    assert found["data", "cardiotocography"].state is State.good
    assert found["data", "pneumoniamnist"].state is State.absent
    assert found["data", "pneumoniamnist"].about == "put pneumoniamnist.npz into data/pneumoniamnist"
    assert found["ray", "cluster"].state is State.bad
    assert {one.state for one in found.values() if one.part == "keeping"} == {State.good}
    assert sorted(path.name for path in here.iterdir()) == ["data", "owners.csv", "run.yaml"]
    told = json.loads(invoke("doctor", "--data-dir", "none", "--json", "--quiet", code=1).stdout)
    assert told["missing"] == ["cluster", "files"]
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(doctor, "_required", lambda extra: [("numpy", "99"), ("none-such", "1")] * (extra is None))
    told = invoke("doctor", code=1).stdout
    assert "numpy" in told
    assert "99 or newer is needed" in told
    assert told.endswith("2 to be fixed: numpy, none-such\n")


def test_code_of_the_current_directory_is_run_only_where_a_configuration_names_it(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.py").write_text("raise SystemExit('this was not asked for')")
    (tmp_path / "named_by_me.py").write_text("def network():\n    return 7\n")
    assert program("doctor")[0] == 0
    assert os.getcwd() not in sys.path
    assert imported("named_by_me:network")() == 7
    assert sys.path[-1] == os.getcwd()  # after everything that is installed
    sys.modules.pop("named_by_me")
