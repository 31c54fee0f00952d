"""One run on workers of Ray Train: what Ray is told, and what comes of a group whose workers are killed."""

from pathlib import Path

import pytest
import torch
from mortal_model import FATAL, PAUSED
from training_config import TEXT

import ray_jobs.training
from inosgm.experiments import build, train
from inosgm.experiments.config import TrainingConfig
from inosgm.ledger.ledger import Ledger
from inosgm.training import Workers
from ray_jobs.training import STATE, train_on_ray

KEY = 5
CHANGES = {"model.name": "mortal_model:Mortal", "training.checkpoint_every": 3, "plan.steps": 12}
SCRIPT = Path(__file__).parents[1] / "support" / "training_cluster.py"


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Returns a configuration without a key, in a directory of its own, whose run has a known secret."""
    monkeypatch.chdir(tmp_path)

    def make(name, **changes):
        run = tmp_path / name
        run.mkdir()
        (run / "key").write_text(str(KEY))
        (tmp_path / "run.yaml").write_text(TEXT.replace("key: 5", f"run: {run}"))
        return TrainingConfig.from_yaml(tmp_path / "run.yaml", [f"{key}={value}" for key, value in changes.items()])

    return make


def alone(config):
    """Train a run in this process, with the shards and the threads of two workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(build(config, workers=Workers(shards=2)))
    finally:
        torch.set_num_threads(threads)


def outcome(config):
    """Return the bits of the last parameters, and what every owner has spent."""
    model = torch.load(f"{config.run}/model.pt")
    return {name: value.numpy().tobytes() for name, value in model.items()}, Ledger(f"{config.run}/ledger").spent()


def test_ray_is_told_neither_owners_nor_keys_and_trains_elastically(configured, monkeypatch):
    told = {}

    class Told:
        def __init__(self, loop, **options):
            told.update(options)

        def fit(self):
            (told["run"] / STATE).mkdir()

    config = configured("run")
    told["run"] = Path(config.run)
    monkeypatch.setattr(ray_jobs.training, "TorchTrainer", Told)
    monkeypatch.setattr(ray_jobs.training, "connect", lambda address: lambda: None)
    monkeypatch.setattr(ray_jobs.training, "living", lambda: [{"CPU": 4.0, "GPU": 2.0}])
    train_on_ray(config, 3, num_gpus=1, attempts=4, steps=2)
    assert told["scaling_config"].num_workers == (1, 3)
    assert told["scaling_config"].resources_per_worker == {"CPU": 1, "GPU": 1}
    assert told["torch_config"].backend == "nccl"
    assert told["run_config"].failure_config.max_failures == 3
    given = told["train_loop_config"]
    assert (given["shards"], given["target"]) == (3, 2)
    assert not any(secret in str(given) for secret in ("benign", "malignant", "epsilon", "key"))
    assert not (told["run"] / STATE).exists()
    with pytest.raises(ValueError, match="key: would pass through Ray"):
        train_on_ray(config.model_copy(update={"key": 7}), 2)
    with pytest.raises(ValueError, match="run: must be a directory"):
        train_on_ray(config.model_copy(update={"run": None}), 2)


@pytest.mark.long  # starts groups of workers, each of which imports torch, three times
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, which sets its own options
@pytest.mark.usefixtures("embedded_ray")
def test_killed_workers_and_a_killed_leader_change_nothing_and_are_charged_once(configured, tmp_path):
    undisturbed = configured("undisturbed", **CHANGES)
    alone(undisturbed)
    config = configured("killed", **CHANGES)
    (tmp_path / FATAL.format(rank=1)).write_text("5")  # of a group that began at step 0
    (tmp_path / FATAL.format(rank=0)).write_text("8")  # then of a group that began at a checkpoint
    train_on_ray(config, 2)
    assert not list(tmp_path.glob("fatal-*"))
    assert outcome(config) == outcome(undisturbed)
    assert not (tmp_path / "killed" / "key").exists()


@pytest.mark.long  # starts a cluster of two nodes
def test_a_lost_node_leaves_a_smaller_group_that_repeats_the_same_steps(configured, tmp_path, start):
    undisturbed = configured("undisturbed", **CHANGES)
    alone(undisturbed)
    config = configured("lost", **CHANGES)
    (tmp_path / "lost.yaml").write_text(config.to_yaml())
    (tmp_path / PAUSED.format(rank=1)).write_text("5")
    code, told, errors = start(SCRIPT, tmp_path / "lost.yaml").ended()
    assert (code, told.split()[-1:]) == (0, ["1"]), errors
    assert outcome(config) == outcome(undisturbed)
