"""Cost: what is counted is exact, what is timed is in turns."""

import torch
from torch import nn

from tests.comparison.entries import TinyCnn, entry
from vit_vs_cnn.comparison.latency import in_turns, measure_cost, peak_bytes


def test_every_round_runs_each_once_and_another_one_begins():
    calls = []
    tasks = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    seconds = in_turns(tasks, rounds=6, warmup=1)
    rounds = [calls[i : i + 3] for i in range(0, 21, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert [one[0] for one in rounds[1:]] == ["a", "b", "c", "a", "b", "c"]
    assert all(len(values) == 6 for values in seconds.values())


def test_peak_memory_is_the_sum_of_what_is_alive_together():
    network = nn.Sequential(nn.Linear(11, 1009), nn.Linear(1009, 23), nn.Linear(23, 5))
    assert peak_bytes(network, torch.zeros(7, 11)) == 4 * 7 * (1009 + 23)


def test_what_is_kept_for_later_counts_and_what_is_in_place_does_not():
    class Skip(nn.Module):
        def forward(self, values):
            wide = torch.cat([values] * 10, dim=1)  # kept
            return (wide * 2).mul_(3) + wide

    images = torch.zeros(3, 7)
    assert peak_bytes(Skip(), images) == 4 * 3 * 7 * 30


def test_cost_counts_and_times_every_network(tmp_path):
    (tmp_path / "a.ckpt").write_bytes(bytes(1234))
    networks = {name: entry(tmp_path, seed=seed, path=tmp_path / f"{name}.ckpt") for seed, name in enumerate("ab")}
    said = []
    costs = measure_cost(networks, rounds=5, batch_sizes=(1, 4), batch_rounds=2, tell=said.append)
    one = costs["a"]
    assert one.parameters == 5 * 27 + 5 + 11 * 45 + 11 + 22 + 77 + 7
    assert one.macs == 16 * 24 * 5 * 27 + 8 * 12 * 11 * 45 + 77
    assert one.weight_bytes == 4 * (one.parameters + 22) + 8
    assert (one.file_bytes, costs["b"].file_bytes) == (1234, None)
    assert 0 < one.latency_p50 <= one.latency_p95
    assert list(one.throughput) == [1, 4]
    assert one.throughput[one.best_batch] == max(one.throughput.values())
    assert costs["a"].peak_bytes == costs["b"].peak_bytes > 0
    assert said[0] == "latency of one image"


def test_a_network_that_cannot_be_looked_into_has_neither_macs_nor_memory(tmp_path):
    class Fixed(TinyCnn):
        def __deepcopy__(self, memo):
            raise NotImplementedError

    (cost,) = measure_cost({"f": entry(tmp_path, network=Fixed().eval())}, rounds=2, batch_sizes=(1,)).values()
    assert cost.macs is None
    assert cost.peak_bytes is None
    assert cost.parameters == 752
