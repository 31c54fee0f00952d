"""Trains a run on two nodes of a cluster, one of which is lost; as a script: the file of the configuration.

Run in the directory of the file `paused-1`, which makes rank 1 wait in a step: there, the node is removed.
"""

import sys
from pathlib import Path
from threading import Thread

import patience
import ray
from mortal_model import PAUSED, REACHED
from ray.cluster_utils import Cluster

from inosgm.experiments.config import TrainingConfig
from ray_jobs.training import train_on_ray


def main(file):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    lost = cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")

    def lose():
        patience.wait_until(Path(REACHED).exists)
        Path(PAUSED.format(rank=1)).unlink()
        cluster.remove_node(lost, allow_graceful=False)

    Thread(target=lose, daemon=True).start()
    train_on_ray(TrainingConfig.from_yaml(file), 2)
    print(len([node for node in ray.nodes() if node["Alive"]]))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
