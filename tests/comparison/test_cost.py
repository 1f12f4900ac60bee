"""Cost: counts are exact, and networks are timed in turns."""

import torch
from torch import nn

from tests.comparison.entries import entry
from vit_vs_cnn.comparison import cost
from vit_vs_cnn.comparison.cost import measure_cost, peak_bytes, time_in_turns


def test_every_round_runs_each_network_once_in_rotating_order():
    calls = []
    tasks = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    seconds = time_in_turns(tasks, rounds=6, warmup=1)
    rounds = [calls[i : i + 3] for i in range(0, 21, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert [one[0] for one in rounds[1:]] == ["a", "b", "c", "a", "b", "c"]
    assert all(len(values) == 6 for values in seconds.values())


def test_peak_memory_is_measured_on_a_gpu_and_unknown_on_a_cpu():
    network = nn.Sequential(nn.Linear(11, 1009), nn.Linear(1009, 23))
    assert peak_bytes(network, torch.zeros(7, 11)) is None
    if torch.cuda.is_available():
        assert peak_bytes(network.cuda(), torch.zeros(7, 11, device="cuda")) >= 4 * 7 * (1009 + 23)


def test_cost_has_parameters_macs_latency_and_throughput_of_every_network(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "peak_bytes", lambda network, images: images.shape)
    entries = {name: entry(tmp_path, seed=n, path=tmp_path / f"{name}.ckpt") for n, name in enumerate("ab")}
    networks = {name: one.trained for name, one in entries.items()}
    messages = []
    costs = measure_cost(networks, rounds=5, batch_sizes=(1, 4), batch_rounds=2, report_progress=messages.append)
    one = costs.loc["a"]
    assert one.parameters == 5 * 27 + 5 + 11 * 45 + 11 + 22 + 77 + 7
    assert one.macs == 16 * 24 * 5 * 27 + 8 * 12 * 11 * 45 + 77
    assert 0 < one.latency_p50 <= one.latency_p95
    assert list(one.throughput) == [1, 4]
    assert one.peak_bytes == (32, 3, 16, 24)
    assert one.throughput[one.best_batch] == max(one.throughput.values())
    assert messages[0] == "latency of one image"
