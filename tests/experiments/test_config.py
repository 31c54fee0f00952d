"""Configurations: what they refuse, in which words, and what they give back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inosgm import BetaTail, HardTail, LinearTail, NoTail, Plan, StepTail
from inosgm._internal import yaml as _yaml
from inosgm.datasets.settings import SETTINGS
from inosgm.experiments.config import SettingOwners, TrainingConfig, differences
from inosgm.mechanism.clipping import AutomaticClipping, ClipToShare, PerSampleAdaptive, ScaleClipped
from inosgm.mechanism.orders import RandomOrder

CONFIGS = sorted((Path(__file__).parents[2] / "examples" / "configs").glob("*.yaml"))

TEXT = """
data: {name: digits}
owners: {by: class, epsilon: 2, delta: 1e-5}
model: {name: logistic_regression}
plan: {method: sample, steps: 10, expected_batch: 64, clip_norm: 1}
tail: {kind: linear, fraction: 0.5}
optimizer: {name: SGD, lr: 0.5}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(TEXT)
    return path


def refusal(file, *changes):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is the result
        TrainingConfig.from_yaml(file, changes)
    return str(caught.value).removeprefix(f"{file}: ").removeprefix(f"{file} ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("plan.steps='3'", "plan.steps: must be a whole number, got '3'"),
        ("plan.steps=1e3", "plan.steps: must be a whole number, got 1000.0"),
        ("plan.steps=0", "plan.steps: must be >= 1, got 0"),
        ("plan.steps=true", "plan.steps: must be a whole number, got True"),
        ("plan.clip_norm=.inf", "plan.clip_norm: must be finite, got inf"),
        ("plan.method=smaple", "plan.method: must be sample, scale, blend, uniform, asc,"),
        ("plan.method=blend", "plan.weight: must be given for the method blend, and only for that"),
        ("plan.weight=0.5", "plan.weight: must be given for the method blend, and only for that"),
        (
            "plan.past=1",
            "plan.past: unknown key; there are method, steps, expected_batch, clip_norm, weight, accountant",
        ),
        ("plan=3", "plan: must be a mapping of keys to values, got 3"),
        ("lr=1", "lr: unknown key; did you mean optimizer.lr?"),
        ("oder=ascending", "oder: unknown key; did you mean order?"),
        ("order=up", "order: must be descending, ascending, random or owner_first, got 'up'"),
        ("tail.alpha=1", "tail.alpha: unknown key; there are kind, fraction"),
        ("tail.fraction=2", "tail.fraction: must be <= 1, got 2"),
        ("tail.kind=bet", "tail.kind: must be one of none, beta, linear, hard, step, got 'bet'"),
        ("tail={fraction: 1}", "tail.kind: missing"),
        ("tail=linear", "tail: must be a mapping of keys to values, got 'linear'"),
        ("clipping={kind: automatic, stability: low}", "clipping.stability: must be a number, got 'low'"),
        ("data.name=minst", "got 'minst'"),
        ("data.subset=0", "data.subset: must be >= 1, got 0"),
        ("owners=MN", "owners: must be a mapping with exactly one of the keys setting, by, csv, fractions, got 'MN'"),
        (
            "owners.setting=MN",
            "owners: must be a mapping with exactly one of the keys setting, by, csv, fractions, got by, epsilon, "
            "delta, setting",
        ),
        ("owners={setting: MX}", "owners.setting: must be one of MN, "),
        ("owners={setting: MN, delta: 0.1}", "owners.delta: unknown key; there are setting"),
        ("owners.epsilon={a: -1}", "owners.epsilon: must be finite and > 0, got -1 for 'a'"),
        ("owners.epsilon=[1, '2']", "owners.epsilon: must be a number, a list of numbers, or a mapping from owner to "),
        ("owners.delta=1", "owners.delta: must be < 1, got 1"),
        ("owners={fractions: [0.5, 0.4], epsilon: [1, 2], delta: 0.1}", "owners: fractions must sum to 1"),
        ("model.options=[1]", "model.options: must be a mapping of keys to values, got [1]"),
        ("optimizer.lr=0", "optimizer.lr: must be > 0, got 0"),
        ("training.diagnostics=yes", "training.diagnostics: must be true or false, got 'yes'"),
        ("training.autocast=float64", "training.autocast: must be bfloat16 or float16, got 'float64'"),
        ("key=-1", "key: must be >= 0, got -1"),
        ("plan.steps.more=1", "--set plan.steps.more=1: steps holds a value, not keys"),
        ("plan.steps", "--set takes key=value, such as plan.steps=100, got 'plan.steps'"),
        ("plan.steps=[1", "--set plan.steps=[1: line 1, column 3: "),
    ],
)
def test_a_problem_is_named_by_the_path_of_its_key(change, message, file):
    assert message in refusal(file, change)


def test_all_problems_are_listed_without_jargon_and_a_typo_counts_once(file):
    file.write_text(TEXT.replace("expected_batch", "expected_btach").replace("steps: 10", "steps: many"))
    with pytest.raises(ValueError, match="problems") as caught:
        TrainingConfig.from_yaml(file, ["data.nmae=digits"])
    assert str(caught.value).splitlines() == [
        f"{file} has 3 problems:",
        "  data.nmae: unknown key; did you mean name?",
        "  plan.steps: must be a whole number, got 'many'",
        "  plan.expected_btach: unknown key; did you mean expected_batch?",
    ]


def test_missing_keys_are_named(file):
    file.write_text("seed: 1\n")
    lines = refusal(file).splitlines()[1:]
    assert [line.strip() for line in lines] == [
        f"{key}: missing" for key in ("data", "owners", "model", "plan", "optimizer")
    ]


def test_subsets_do_not_go_with_a_row_per_record(file):
    assert refusal(file, "owners={csv: a.csv}", "data.subset=10").startswith("data.subset does not go with owners.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plan:\n  steps: 1\n  steps: 2\n", "line 3, column 3: key 'steps' is there twice"),
        ("plan: {steps: 1\nseed: 0\n", "line 2, column "),
        ("seed: !!python/object/apply:os.system ['true']\n", "line 1, column 7: could not determine a constructor"),
        ("seed: &a 1\nkey: *a\n", "line 2, column 6: aliases are not read: write it out"),
        ("? [a]\n: 1\n", "a key must be a word"),
        ("a: \x00", "unacceptable character"),
        ("", "must be a mapping with the keys data, owners"),
        ("- 1\n", "must be a mapping with the keys data, owners"),
    ],
)
def test_files_that_are_no_configuration(text, message, file):
    file.write_text(text)
    assert message in refusal(file)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.yaml"):
        TrainingConfig.from_yaml(tmp_path / "none.yaml")
    (tmp_path / "odd.yaml").write_bytes(b"seed: \xff")
    assert "text in UTF-8" in refusal(tmp_path / "odd.yaml")


def test_plain_words_mean_what_they_say():
    values = "{a: 1e-5, b: no, c: 010, d: 1:30, e: 2020-01-01, f: .5, g: -3, h: true, i: null, j: '1e-5', k: 1_0}"
    found = _yaml.read(values)
    assert list(found.values()) == [1e-5, "no", "010", "1:30", "2020-01-01", 0.5, -3, True, None, "1e-5", "1_0"]
    assert _yaml.read(_yaml.write(found)) == found


def test_changes_go_through_the_same_checks(file):
    config = TrainingConfig.from_yaml(
        file, ["plan.steps=7", "schedule.name=CosineAnnealingLR", "seed=3", "plan.steps=8"]
    )
    assert (config.plan.steps, config.schedule.name, config.seed) == (8, "CosineAnnealingLR", 3)


def test_a_configuration_survives_its_file_and_cannot_be_changed(file, tmp_path):
    changes = ["owners.epsilon={0: 1, '1e-5': 2}", "schedule={name: StepLR, options: {step_size: 5, last_epoch: null}}"]
    config = TrainingConfig.from_yaml(file, [*changes, "tail={kind: step, levels: [0.5, 0], fraction: 0.5}"])
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert TrainingConfig.from_yaml(tmp_path / "again.yaml") == config
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1


def test_sections_make_the_objects_of_the_library(file):
    plan = Plan(sample_rates=[0.5], sensitivities=[2], sizes=[100], noise_scale=1, steps=1)
    tails = {
        "{kind: none}": NoTail(),
        "{kind: linear, fraction: 0.4}": LinearTail(40.0),
        "{kind: hard, fraction: 0.4}": HardTail(40.0),
        "{kind: beta, alpha: 2, beta: 3, fraction: 0.4}": BetaTail(2, 3, 40.0),
        "{kind: step, levels: [0.5, 0.25], fraction: 0.4}": StepTail([0.5, 0.25], step=20.0),
    }
    for text, tail in tails.items():
        assert TrainingConfig.from_yaml(file, [f"tail={text}"]).tail.tail(plan) == tail
    clippings = {
        "{kind: scale_clipped}": ScaleClipped(),
        "{kind: clip_to_share}": ClipToShare(),
        "{kind: automatic}": AutomaticClipping(),
        "{kind: per_sample_adaptive, stability: 0.2}": PerSampleAdaptive(0.2),
    }
    for text, clipping in clippings.items():
        assert TrainingConfig.from_yaml(file, [f"clipping={text}"]).clipping.clipping() == clipping
    assert TrainingConfig.from_yaml(file, ["order=random", "seed=4"]).of_order() == RandomOrder(4)


def test_two_configurations_never_share_their_noise(file):
    keys = {
        TrainingConfig.from_yaml(file, ["key=1", *changes]).noise_key()
        for changes in ([], ["seed=1"], ["plan.steps=11"], ["data.subset=50"], ["key=2"])
    }
    assert len(keys) == 5
    same = [TrainingConfig.from_yaml(file, ["key=1", change]) for change in ("run=here", "run=there", "data.root=x")]
    assert len({config.noise_key() for config in same}) == 1
    assert TrainingConfig.from_yaml(file).noise_key() is None


def test_options_that_differ_in_any_way_do_not_share_their_noise(file):
    options = [
        "{}",
        "{a: null}",
        "{a.b: 1}",
        "{a: {b: 1}}",
        "{1: 2}",
        "{'1': 2}",
        "{true: 2}",
        "{'True': 2}",
        "{a: 1.0}",
    ]
    changes = [f"model.options={{inner: {text}}}" for text in options]
    configs = [TrainingConfig.from_yaml(file, ["key=1", change]) for change in changes]
    assert len({config.noise_key() for config in configs}) == len(options)
    assert all(differences(configs[0], config, ("here", "there")) for config in configs[1:])


def test_differences_name_the_keys(file):
    one, other = (
        TrainingConfig.from_yaml(file),
        TrainingConfig.from_yaml(file, ["plan.steps=11", "data.subset=5", "run=a"]),
    )
    assert (
        differences(one, other, ("there", "here"))
        == "plan.steps (10 there, 11 here), data.subset (nothing there, 5 here)"
    )
    assert differences(one, other, ("there", "here"), within=("owners",)) == ""


def test_every_setting_has_a_configuration():
    configs = {path.stem: TrainingConfig.from_yaml(path) for path in CONFIGS}
    settings = {
        config.owners.setting: config for config in configs.values() if isinstance(config.owners, SettingOwners)
    }
    assert settings.keys() == SETTINGS.keys()
    for name, config in settings.items():
        setting = SETTINGS[name]
        assert (config.data.name, config.plan.method) == (setting.dataset, setting.method)
        assert config.model.name == setting.model
        assert {
            key: list(value) if isinstance(value, tuple) else value for key, value in setting.model_options.items()
        } == (config.model.options)
    assert {"digits", "breast_cancer", "mnist5k"} <= configs.keys()
    assert all(config.run is None and config.key is None and config.data.root is None for config in configs.values())


def test_reading_a_configuration_needs_no_torch():
    code = (
        f"import sys; from inosgm.experiments.config import TrainingConfig as T; T.from_yaml({os.fspath(CONFIGS[0])!r})"
    )
    code += "; print([m for m in ('torch', 'sklearn', 'opacus') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
