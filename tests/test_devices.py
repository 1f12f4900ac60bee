"""Timing waits for the work on a device."""

from types import SimpleNamespace

import lightning
import pytest
import torch

from vit_vs_cnn.devices import synchronize, usable_device
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import cost
from vit_vs_cnn.training import callbacks
from vit_vs_cnn.training.callbacks import TrainingMeter


class Queue:
    """A simulated device with asynchronous work and a separate clock."""

    def __init__(self) -> None:
        self.now, self.asked, self.waited_for = 0.0, 0.0, []

    def perf_counter(self) -> float:
        return self.now

    def synchronize(self, device) -> None:
        self.waited_for.append(torch.device(device).type)
        self.now, self.asked = self.now + self.asked, 0.0

    def work(self, seconds: float) -> None:
        self.asked += seconds


@pytest.fixture(params=["mps", "cuda", "xpu"])
def queue(request, monkeypatch):
    queue = Queue()
    queue.device = torch.device(request.param)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: queue.device)
    monkeypatch.setattr(torch.accelerator, "synchronize", queue.synchronize)
    for module in (cost, callbacks):
        monkeypatch.setattr(module, "time", queue)
    return queue


def test_only_accelerators_are_synchronized_and_latency_includes_unfinished_work(queue):
    synchronize("cpu")
    assert queue.waited_for == []
    synchronize(torch.device(queue.device.type, 0))
    synchronize(queue.device.type)
    assert queue.waited_for == [queue.device.type] * 2
    tasks = {"quick": lambda: queue.work(2), "slow": lambda: queue.work(5)}
    seconds = cost.time_in_turns(tasks, rounds=3, warmup=1, device=queue.device.type)
    assert seconds == {"quick": [2, 2, 2], "slow": [5, 5, 5]}


def test_the_meter_counts_seconds_of_training_and_not_of_validation(queue):
    trainer, meter = lightning.Trainer.__new__(lightning.Trainer), TrainingMeter()
    trainer._accelerator_connector = SimpleNamespace(strategy=SimpleNamespace(root_device=queue.device))
    queue.work(100)  # before the training
    meter.on_train_start(trainer)
    queue.work(3)
    meter.on_validation_start(trainer)
    queue.work(50)
    meter.on_validation_end(trainer)
    queue.work(4)
    meter.on_train_end(trainer)
    assert meter.seconds == 7


def test_the_meter_counts_the_images_of_all_devices():
    trainer, meter = lightning.Trainer.__new__(lightning.Trainer), TrainingMeter()
    trainer._accelerator_connector = SimpleNamespace(strategy=SimpleNamespace(world_size=3))
    for batch_size in (7, 5):
        meter.on_train_batch_end(trainer, None, None, (torch.zeros(batch_size),))
    assert meter.images == 3 * (7 + 5)


@pytest.mark.parametrize("name", ["Auto", "gpu", "meta", ""])
def test_an_unknown_device_is_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match=f"^device: expected auto, cpu, cuda, mps, xpu, .*, got {name}$"):
        usable_device(name)
