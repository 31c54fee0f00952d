"""The command that audits, as users call it."""

import io
import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from inosgm.audit import Audit, auditing, shadow_study
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.report import FILES
from inosgm.audit.shadows import ShadowTask
from inosgm.cli.program import app
from inosgm.jobs import Store
from inosgm.mechanism.mechanism import INOSGM

TEXT = """
data: {name: breast_cancer}
owners: {by: class, epsilon: {benign: 5, malignant: 1}, delta: 1e-4}
model: {name: logistic_regression}
plan: {method: sample, steps: 6, expected_batch: 64, clip_norm: 1, accountant: rdp}
tail: {kind: linear, fraction: 0.4}
optimizer: {name: SGD, lr: 1.0}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(TEXT)
    return tmp_path


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, ["audit", "run.yaml", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def refused(*arguments):
    result = CliRunner().invoke(app, ["audit", "run.yaml", *map(str, arguments)])
    assert isinstance(result.exception, ValueError), (result.output, result.exception)
    return str(result.exception)


def test_an_audit_goes_on_and_attacks_again_without_training(here):
    told = invoke("--shadows", 32, "--runs", 300).stdout
    assert told.startswith("32 of 32 shadow models are to be trained\n32 of 32 shadow models: ")
    assert told.endswith(f"written to runs/run-audit: {', '.join(FILES)}\n")
    rows = [line.split() for line in told.splitlines() if line]
    assert set(ATTACKS) < {row[0] for row in rows}
    assert [row[:2] for row in rows if row[-2:] == ["not", "contradicted"]] == [["benign", "5"], ["malignant", "1"]]
    assert [row[:2] for row in rows if row[0] in ("benign", "malignant", "everyone")][2:] == [
        ["benign", "286"],
        ["malignant", "170"],
        ["everyone", "456"],
    ]
    store = Store("runs/run-audit")
    states = store.states()
    again = invoke("--shadows", 32, "--runs", 300, "--quiet").stdout
    assert again.strip() in told
    assert store.states() == states
    summed = CliRunner().invoke(app, ["jobs", "summary", "runs/run-audit", "--parquet", "a", "--figure", "b.png"])
    assert summed.stdout.startswith("32 of 32 shadow models")
    assert summed.stdout == again
    assert {(here / name).stat().st_mode & 0o777 for name in ("a", "b.png")} == {0o600}
    assert pq.read_table("a").equals(pq.read_table("runs/run-audit/audit.parquet"))
    more = invoke("--shadows", 34, "--runs", 0, "--attack", "loss", "--target", 33).stdout
    assert more.startswith("2 of 34 shadow models are to be trained\n34 of 34 shadow models: ")
    assert "(loss, on shadow model 33; " in more
    assert not set(ATTACKS) & {line.split()[0] for line in more.splitlines() if line}
    (jobs,) = {spec.kind for spec in store.specs().values()}
    assert jobs == "shadows"
    assert store.charges() == {}


def test_files_and_json_say_what_the_table_says(here):
    found = json.loads(invoke("--shadows", 32, "--runs", 300, "--json").stdout)
    store = Store("runs/run-audit")
    tables = {name: pq.read_table(io.BytesIO(store.get(name))) for name in FILES if name.endswith(".parquet")}
    rows = tables["audit.parquet"].to_pylist()
    assert [(row["attack"], row["owner"]) for row in rows] == [
        (attack, owner) for attack in ATTACKS for owner in ("benign", "malignant", None)
    ]
    for row in rows:
        one = next((one for one in found["owners"] if one["owner"] == row["owner"]), found["everyone"])
        numbers = one["attacks"][row["attack"]]
        assert [row["auc"], row["auc_low"], row["auc_high"]] == numbers["auc"]
        for rate in ("0.001", "0.01", "0.1"):
            assert [row[f"tpr_{rate}{end}"] for end in ("", "_low", "_high")] == numbers["tpr"][rate]
        assert row["spent"] == one.get("spent")
        assert (row["members"] + row["others"]) == 32 * row["records"]
    bounds = [(row["owner"], row["bound"], row["epsilon"]) for row in tables["bounds.parquet"].to_pylist()]
    assert bounds == [
        (one["owner"], name, bound["epsilon"]) for one in found["owners"] for name, bound in one["bounds"].items()
    ]
    assert {name for _, name, _ in bounds} == {"mechanism", "one run", "many runs"}
    curves = tables["roc.parquet"]
    assert curves.schema.metadata[b"inosgm.shadows"] == b"32"
    audit = Audit.of(store, confidence=found["confidence"])
    for attack in ATTACKS:
        for owner, success in audit.successes(attack):
            chosen = [row for row in curves.to_pylist() if (row["attack"], row["owner"]) == (attack, owner)]
            np.testing.assert_array_equal([row["tpr"] for row in chosen], success.tpr)
    assert b"32 of 32 shadow models" in store.get("roc.svg")


def test_without_privacy_nothing_is_promised(here):
    told = invoke("--shadows", 4, "--no-privacy", "--quiet").stdout
    assert told.count("nothing promised") == 2
    assert (here / "runs/run-audit-no-privacy/roc.svg").exists()


def test_one_run_with_canaries(here):
    found = json.loads(invoke("--shadows", 1, "--canaries", 40, "--runs", 0, "--attack", "loss", "--json").stdout)
    assert [one["attacks"]["loss"]["members"] + one["attacks"]["loss"]["others"] for one in found["owners"]] == [40, 40]
    assert "holds another audit" in refused("--canaries", 41, "--store", "runs/run-audit-canaries40")


def test_a_mechanism_without_noise_is_contradicted(here, monkeypatch):
    monkeypatch.setattr(INOSGM, "_noisy", lambda self, total, noise: total)
    result = invoke("--shadows", 32, "--runs", 300, "--quiet", code=3)
    assert result.stdout.count("CONTRADICTED") == 2
    for owner in ("benign", "malignant"):
        assert f"contradicted: owner {owner}: epsilon is at least " in result.stderr
        assert "(bound: mechanism)" in result.stderr
    assert pq.read_table("runs/run-audit/bounds.parquet")["contradicts"].to_pylist().count(True) == 2
    summed = CliRunner().invoke(app, ["jobs", "summary", "runs/run-audit"])
    assert (summed.exit_code, summed.stdout, summed.stderr) == (3, result.stdout, result.stderr)
    monkeypatch.setattr(auditing, "audit_mechanism", lambda *_, **__: pytest.fail("it is known"))
    for runs in (300, 0):
        assert invoke("--shadows", 32, "--runs", runs, "--quiet", code=3).stderr == result.stderr
    assert len(Audit.of("runs/run-audit").mechanisms) == len(Audit.of("runs/run-audit", confidence=0.9).mechanisms) == 2
    unsure = Audit.of("runs/run-audit", confidence=0.99)
    assert unsure.mechanisms == ()
    assert "(the mechanism was not looked at, or not with this confidence: --runs)" in unsure.table()


def test_a_summary_has_the_confidence_of_the_audit(here):
    told = invoke("--shadows", 32, "--runs", 100, "--confidence", 0.8, "--quiet").stdout
    assert "all at once with 80 % confidence" in told
    assert CliRunner().invoke(app, ["jobs", "summary", "runs/run-audit"]).stdout == told


def test_a_run_directory_is_audited_and_stores_have_their_names(here):
    assert CliRunner().invoke(app, ["train", "run.yaml", "--run", "run.1", "--quiet"]).exit_code == 0
    command = ["--shadows", "1", "--runs", "0", "--seed", "7", "--canaries", "3", "--attack", "loss"]
    told = CliRunner().invoke(app, ["audit", "run.1", *command, "--set", "plan.steps=2"]).stdout
    assert "\n1 of 1 shadow models, the 3 canaries of every owner\n" in told
    assert (here / "runs/run.1-audit-seed7-canaries3/roc.svg").exists()
    (here / "empty").mkdir()
    refusal = CliRunner().invoke(app, ["audit", "empty"]).exception
    assert str(refusal).startswith("empty must be the directory of a run")


def test_an_interrupted_attack_and_a_store_that_cannot_be_written_to(here, monkeypatch):
    command = ["--shadows", 2, "--runs", 0, "--attack", "loss", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(Audit, "table", lambda self: signal.raise_signal(signal.SIGINT))
        told = invoke(*command, code=130).stderr
    assert told == "interrupted: finished shadow models are kept; the same command attacks again\n"
    expected = invoke(*command).stdout

    def read_only(self, name, content, *, secret=False):
        raise PermissionError(13, "Permission denied", name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", read_only)
        result = invoke(*command)
    assert result.stdout == expected
    assert result.stderr.startswith("not written to runs/run-audit: [Errno 13] Permission denied")


def test_a_contradicted_promise_is_said_and_kept_if_nobody_reads_the_table(here, monkeypatch):
    """Fails on 09c50e1: exit code 1, nothing said and nothing written."""
    monkeypatch.setattr(Audit, "contradictions", ("benign",))

    def broken(self):
        raise typer.Exit(1)  # as where stdout is a pipe that nobody reads

    monkeypatch.setattr(Audit, "table", broken)
    told = invoke("--shadows", 2, "--runs", 0, "--attack", "loss", "--quiet", code=3)
    assert told.stderr == "contradicted: benign\n"
    assert all((here / "runs/run-audit" / name).exists() for name in FILES)
    again = CliRunner().invoke(app, ["jobs", "summary", "runs/run-audit", "--parquet", "kept.parquet"])
    assert (again.exit_code, again.stderr, (here / "kept.parquet").exists()) == (3, "contradicted: benign\n", True)


def test_failed_and_interrupted_audits_have_their_exit_codes(here, monkeypatch):
    run = ShadowTask.run
    monkeypatch.setattr(shadow_study, "BLOCK", 1)
    command = ["--runs", 0, "--attack", "loss", "--quiet"]

    def failing(self, spec, attempt):
        if spec.index == 0:
            raise ArithmeticError("no luck")
        return run(self, spec, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(ShadowTask, "run", failing)
        result = invoke(*command, "--shadows", 3, "--attempts", 2, code=1)
    assert "2 of 3 shadow models" in result.stdout
    assert result.stderr.splitlines()[-1] == "why, in full: inosgm jobs status runs/run-audit --tracebacks"

    def interrupted(self, spec, attempt):
        signal.raise_signal(signal.SIGINT)
        return run(self, spec, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(ShadowTask, "run", interrupted)
        result = invoke(*command, "--shadows", 5, code=130)
    left = "3 of 5 shadow models remain in runs/run-audit"
    assert result.stderr.endswith(f"{left}; the same command resumes them\n")
    assert "5 of 5 shadow models" in invoke(*command, "--shadows", 5).stdout

    with monkeypatch.context() as patch:
        patch.setattr(ShadowTask, "run", lambda self, spec, attempt: 1 / 0)
        result = invoke(*command, "--shadows", 1, "--store", "none", "--attempts", 1, code=1)
    assert result.stdout == ""


def test_mistakes_are_said_before_anything_is_trained(here):
    assert refused("--attack", "clever").startswith("--attack must be one of online, online-global,")
    assert refused("--num-gpus", 1) == "--num-gpus goes with --address"
    assert "unknown key; did you mean steps?" in refused("--set", "plan.stpes=3")
    assert refused("--shadows", 2, "--target", 2).startswith("--target must be below the 2 shadow models")
    assert refused("--runs", 99) == "runs must be 0, for none, or at least 100, got 99"
    assert not (here / "runs").exists()


def test_help_needs_neither_torch_nor_ray():
    code = (
        "import sys; from typer.testing import CliRunner; from inosgm.cli.program import app;"
        "print(CliRunner().invoke(app, ['audit', '--help']).exit_code, {'torch', 'ray', 'matplotlib'} & {*sys.modules})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["0", "set()"]
