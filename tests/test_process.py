"""Calls from Python leave the process as they found it."""

import logging
import os
import random
import signal
import threading
import warnings

import jsonargparse._common
import numpy as np
import pytest
import torch

import vit_vs_cnn as vc
from tests.children import run_python
from tests.experiments.tiny import tiny_config
from vit_vs_cnn import process
from vit_vs_cnn.workers import supervisor


def _state() -> dict[str, object]:
    """The state of the process that other code depends on."""
    return {
        "random": random.getstate(),
        "numpy": [str(part) for part in np.random.get_state()],
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "deterministic": (torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark),
        "warnings": list(warnings.filters),
        "levels": {name: logging.getLogger(name).level for name in ("lightning.pytorch", "lightning.fabric")},
        "environment": dict(os.environ),
        "jsonargparse": dict(jsonargparse._common.parsing_settings),
    }


@pytest.mark.parametrize("others", [True, False])
def test_a_call_from_python_does_not_change_the_process(tmp_path, trained_once, monkeypatch, others):
    monkeypatch.setattr(supervisor, "keep_freed_memory", lambda: pytest.fail("the allocator was changed"))
    if others:
        calls = [lambda: vc.load(trained_once, "vit"), lambda: vc.status(trained_once), lambda: vc.report(trained_once)]
    else:
        config = tiny_config(tmp_path, only="resnet", train_sizes=[60], budget={"steps": 2}, threads=2)
        calls = [lambda: vc.train(config, quiet=True)]
    for name in ("lightning.pytorch", "lightning.fabric"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)
    for key, value in {"import_paths_enforced": False, "instantiate_subclass_spec_in_any": None}.items():
        monkeypatch.setitem(jsonargparse._common.parsing_settings, key, value)
    before = _state()
    for call in calls:
        call()
        assert {name for name, value in _state().items() if before[name] != value} == set()


def test_a_call_that_raises_restores_the_state_too():
    @process.preserve_process_state()
    def fail() -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        os.environ["SET_WITHIN_A_CALL"] = "1"
        raise KeyError

    before = _state()
    with pytest.raises(KeyError):
        fail()
    assert _state() == before


def test_a_call_that_imports_torch_leaves_it_unseeded():
    code = """
from vit_vs_cnn.process import preserve_process_state

@preserve_process_state()
def seed():
    import numpy, torch
    torch.manual_seed(7)
    numpy.random.seed(7)
    torch.use_deterministic_algorithms(True)

seed()
import numpy, torch
print(torch.initial_seed() == 7, torch.are_deterministic_algorithms_enabled(), numpy.random.get_state()[1][0] == 7)
"""
    assert run_python("-c", code).stdout.split() == ["False", "False", "False"]


def test_an_ignored_interrupt_stays_ignored():
    interrupted, previous = threading.Event(), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with process.record_interrupt(interrupted):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert not interrupted.is_set()
