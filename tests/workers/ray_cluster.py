"""Two nodes of a Ray cluster on this machine, and a command beside it: ``python -m ... COMMAND``."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import ray
from lightning.pytorch.callbacks import Callback
from ray.cluster_utils import Cluster


class NoteNode(Callback):
    """Creates a file named after the Ray node of a run."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        (self.folder / f"{ray.get_runtime_context().get_node_id()}.node").touch()


def main(command: list[str]) -> int:
    """Run a command that finds the cluster by itself. Returns its exit code."""
    # The memory of other programs must not kill a worker.
    settings = {"memory_monitor_refresh_ms": 0}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": settings})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    try:
        return subprocess.run(command, check=False, env=os.environ | {"RAY_ADDRESS": cluster.address}).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
