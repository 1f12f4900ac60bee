"""Two nodes of a Ray cluster on this machine, and a config's experiment on them: ``python -m ... CONFIG``."""

import sys
from pathlib import Path
from typing import Any

import lightning
import ray
import yaml
from lightning.pytorch.callbacks import Callback
from ray.cluster_utils import Cluster

import vit_vs_cnn


class NoteNode(Callback):
    """Creates a file named after the Ray node of a run."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        (self.folder / f"{ray.get_runtime_context().get_node_id()}.node").touch()


def main(config: Path) -> None:
    """Run the config with the cluster's address in place of CLUSTER."""
    # The memory of other programs must not kill a worker.
    settings = {"memory_monitor_refresh_ms": 0}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": settings})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    values = yaml.safe_load(config.read_text())
    values["executor"]["address"] = cluster.address
    config.write_text(yaml.safe_dump(values))
    try:
        vit_vs_cnn.train(config)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
