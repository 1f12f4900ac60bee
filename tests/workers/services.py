"""A tracking service that, like W&B, reuses the active run when a logger is created."""

from dataclasses import dataclass, field
from typing import Any

from lightning.pytorch.loggers import Logger

RUNS: list["Run"] = []
ACTIVE: list["Run"] = []


@dataclass
class Run:
    """The service's record of a run."""

    id: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    is_over: bool = False

    def finish(self) -> None:
        self.is_over = True
        ACTIVE.clear()


class WandbLogger(Logger):
    """Begins a run when it is first used, unless one is active."""

    def __init__(self, name: str = "", id: str = "", group: str = "", save_dir: str = ".") -> None:
        super().__init__()
        self._about = (id, name)

    @property
    def experiment(self) -> Run:
        if not ACTIVE:
            ACTIVE.append(Run(*self._about))
            RUNS.append(ACTIVE[0])
        return ACTIVE[0]

    @property
    def name(self) -> str:
        return self._about[1]

    @property
    def version(self) -> str:
        return self._about[0]

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.experiment.config.update(params["run"])

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.experiment.metrics.update(metrics)


class Service(Logger):
    """A logger without state."""

    name = version = ""

    def log_hyperparams(self, params: dict[str, Any]) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None: ...
