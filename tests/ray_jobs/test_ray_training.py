"""One run on workers of Ray Train: what Ray is told, and what comes of a group whose workers are killed."""

import pytest
import torch
from mortal_model import FATAL
from training_config import TEXT

import ray_jobs.training
from inosgm.experiments import build, train
from inosgm.experiments.config import TrainingConfig
from inosgm.ledger.ledger import Ledger
from inosgm.training import Workers
from ray_jobs.training import STATE, train_on_ray

KEY = 5


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
    told["run"] = ray_jobs.training.Path(config.run)
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
    changes = {"model.name": "mortal_model:Mortal", "training.checkpoint_every": 3, "plan.steps": 12}
    undisturbed = configured("undisturbed", **changes)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(build(undisturbed, workers=Workers(shards=2)))
    finally:
        torch.set_num_threads(threads)
    config = configured("killed", **changes)
    (tmp_path / FATAL.format(rank=1)).write_text("5")  # of a group that began at step 0
    (tmp_path / FATAL.format(rank=0)).write_text("8")  # then of a group that began at a checkpoint
    train_on_ray(config, 2)
    assert not list(tmp_path.glob("fatal-*"))
    assert outcome(config) == outcome(undisturbed)
    assert not (tmp_path / "killed" / "key").exists()
