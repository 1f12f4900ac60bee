"""Benchmarks: the table of speed, spread of reruns, cues and scores of maps."""

import argparse
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data.dataset_factory import create_dataset

from benchmarks import averaged_weights, cues, fine_tuning, maps, reruns, rollout, scale
from benchmarks.__main__ import table
from benchmarks.local_attention import BOTH, FORWARD, make_passes
from benchmarks.separated_blocks import BlockResNet, PointwiseResNet
from benchmarks.timing import Row
from tests.results import changed, make_result
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import create_model
from vit_vs_cnn.runs.record import table_text


def test_the_speed_table_marks_missed_goals():
    rows = [asdict(Row("quick", 2.0, goal=1.5)), asdict(Row("slow", 9.0, unit="s", goal=6, at_most=True))]
    part = {"command": "python -m benchmarks.start", "commit": "abc", "date": "today", "load": "0.1", "rows": rows}
    quick, slow = table({"a machine": {"start": part}}).splitlines()[-2:]
    assert "| quick | 2 x |  | at least 1.5 |" in quick
    assert "| slow | 9 s |  | at most 6, **missed** |" in slow


def test_costs_of_a_run_are_scaled_to_many_runs():
    assert scale.ray_table(0.018).splitlines()[-1] == "| 64 | 1024 | 10 min | 30.7 % |"
    assert scale.ray_table(0.18).splitlines()[-1] == "| 64 | 1024 | 30 min | 100.0 % |"
    assert scale.array_table(80, 3).splitlines()[-1] == "| 1024 | 10 min | 31.5 million | 53,794 |"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the file operations")
def test_a_task_makes_at_most_four_file_operations_for_a_finished_run(tmp_path):
    *_, few, many = [scale.file_operations(tmp_path, runs) for runs in (4, 8, 4, 8)]
    assert 0 < many - few <= 4 * 4


def test_reruns_are_paired_and_their_spread_is_that_of_a_single_run(tmp_path):
    """Differences of two runs have twice the variance of one."""
    differences = np.random.default_rng(0).normal(scale=0.02 * 2**0.5, size=4001)
    sd, low, high = reruns.spread(differences.tolist())
    assert low < sd < high and sd == pytest.approx(0.02, rel=0.05)
    assert reruns.spread([0.02, -0.02])[0] == pytest.approx(0.02 / 2**0.5)
    results = [make_result(model=name, train_size=n, seed=seed) for name in "ab" for n in (11, 23) for seed in (0, 1)]
    tables = tmp_path / "first.csv", tmp_path / "second.csv"
    tables[0].write_text(table_text([result.to_row() for result in results]))
    tables[1].write_text(table_text([changed(one, accuracy=one.accuracy - 0.01).to_row() for one in results]))
    differences = reruns.paired_differences(*tables)
    assert len(differences) == 8 and differences.tolist() == pytest.approx([0.01] * 8)
    with pytest.raises(InputError, match="same experiment"):
        reruns.paired_differences(tables[0], tables[0])
    for name in ("regimes_cpu", "regimes_cifar100_cpu"):
        record = Path(__file__).parents[1] / "results" / name
        assert len(reruns.paired_differences(record, record / "single_precision.csv")) == 30


def test_the_interval_of_a_ratio_of_variances_is_that_of_pitmans_test():
    """Equal variances, which the test rejects at 5 % if sum and difference are correlated, are at its limits."""
    values, noise = np.random.default_rng(0).normal(size=(2, 23))
    others = 1.7 * values + noise
    ratio, *limits = averaged_weights.variance_ratio(values, others)
    assert limits[0] < ratio < limits[1] and ratio == pytest.approx(others.var(ddof=1) / values.var(ddof=1))
    for limit in limits:
        scaled = others / limit**0.5
        assert stats.pearsonr(scaled + values, scaled - values)[1] == pytest.approx(0.05)


def test_predictions_are_counted_by_the_cue_that_they_follow(tmp_path):
    """Predictions of the record, with those of the ViT replaced by the textures."""
    recorded = Path(__file__).parents[1] / "results" / "cues" / "agreement_0.8"
    shutil.copytree(recorded, tmp_path / "run")
    scenes = render_objects(2000, split="test", shape_agreement=0.8, texture_agreement=0.0)
    path = tmp_path / "run" / "predictions.npz"
    with np.load(path) as file:
        packed = dict(file)
    packed["classes"][[run.startswith("vit-") for run in packed["runs"]]] = scenes.textures.numpy()
    np.savez(path, **packed)
    shares = cues.cue_shares(tmp_path / "run").set_index("model")
    assert (shares.loc["vit", "shape"] == 0).all() and (shares.loc["vit", "texture"] == 1).all()
    assert (shares.loc["resnet", "shape"] > shares.loc["resnet", "texture"]).all()
    assert (shares["texture"] > 0).all()
    assert {*shares["images"]} == {int((scenes.shapes != scenes.textures).sum())} != {2000}
    with pytest.raises(InputError, match="not an experiment with"):
        cues.cue_shares(recorded.parents[1] / "reach" / "distance_0.6")


def test_scores_over_seeds_are_means_with_range_and_stars(tmp_path):
    table = tmp_path / "scores.csv"
    columns = [*maps.SHOWN, "deletion_mean_p_holm", "insertion_mean_p_holm", *maps.SANITY_COLUMNS]
    rows = [
        "vit-s-n7-s0,rollout,False,0.1,0.2,0.3,0.4,0.04,0.2,0.3,0.5",
        "vit-s-n7-s0,random,False,0.0,0.0,0.0,0.0,,,1.0,1.0",
        "vit-s-n7-s11,rollout,False,0.4,0.2,0.3,0.4,0.04,0.01,0.3,",
        "outside,relevance,True,0.7,0.2,0.3,0.4,0.04,0.01,0.6,0.0",
    ]
    table.write_text("\n".join([",".join(["network", "method", "class_specific", *columns]), *rows]))
    lines = maps.table_of(table).splitlines()[2:]
    assert lines[0].startswith("| vit-s-n7 | rollout | 0.25 (0.10 to 0.40) | 0.20 (0.20 to 0.20) |")
    assert lines[0].endswith("| 0, 1 of 1 | class-agnostic | 0.50 (0.50 to 0.50) |")
    assert lines[1].endswith("| 0.00 (0.00 to 0.00) | - | - | - |")
    assert lines[2].startswith("| outside | relevance | ")  # below: unchanged by a shuffled head
    assert lines[2].endswith("| 0 of 1 | 0.60 (0.60 to 0.60) | 0.00 (0.00 to 0.00) |")
    table.write_text("network,method\nvit,rollout\n")
    with pytest.raises(InputError, match="lacks the column 'deletion_mean'"):
        maps.read_scores(table)
    with pytest.raises(InputError, match="cannot be read"):
        maps.read_scores(tmp_path / "none.csv")


@pytest.mark.parametrize("is_biased", [False, True])
def test_windows_are_timed_beside_dense_attention_with_the_same_outputs_and_gradients(is_biased):
    local, dense = (make_passes(way, 8, 2, "fp32", is_biased=is_biased) for way in ("local", "dense"))
    torch.testing.assert_close(local[FORWARD](), dense[FORWARD](), rtol=0, atol=1e-5)
    torch.testing.assert_close(local[BOTH](), dense[BOTH](), rtol=0, atol=1e-4)


def test_maps_are_timed_beside_the_passes_of_their_network():
    methods = {"vit_nano": ["raw_attention", "rollout", "gradient_rollout", "relevance"], "resnet8": ["grad_cam"]}
    for name, expected in methods.items():
        batches = rollout.make_batches(3, image_size=32, batch_size=2)
        rows = rollout.compare(create_model(name, image_size=32).eval(), name, batches)
        passes = ["forward" if method == "rollout" else "forward + backward" for method in expected]
        pairs = zip(expected, passes, strict=True)
        assert [row.name for row in rows] == [f"{method} of {name} over its {base} pass" for method, base in pairs]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # timm leaves files open
def test_both_ways_of_fine_tuning_get_the_same_photographs(tmp_path):
    fine_tuning.write_photographs(tmp_path, 30)
    images = fine_tuning.decode(str(tmp_path))
    assert images.image_shape == (3, fine_tuning.SIZE, fine_tuning.SIZE)
    photographs = create_dataset("", str(tmp_path))
    decoded = fine_tuning.DecodedImages(photographs[number] for number in range(30))
    (batch,) = fine_tuning.make_loader(decoded, argparse.Namespace(batch_size=30, threads=0))
    assert batch[0].shape == images.images.shape
    assert batch[1].sort().values.tolist() == images.labels.sort().values.tolist() == sorted([*range(10)] * 3)


def test_block_networks_see_the_neighbours_that_their_names_say():
    """The gradient at the first block of what a network computes from the second block alone."""
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    torch.manual_seed(7)
    network = BlockResNet(5, (8, 12), is_permuted=True)
    torch.manual_seed(7)
    assert network.order.tolist() == BlockResNet(5, (8, 12), is_permuted=True).order.tolist() != [*range(6)]
    swapped = torch.cat([images[..., 4:], images[..., :4]], dim=-1)
    for network in (BlockResNet(5, (8, 12), blocks="isolated"), PointwiseResNet(5, (8, 12), width=4)):
        isolated = network.double().eval()
        torch.testing.assert_close(isolated(images), isolated(swapped))
    separated = BlockResNet(5, (8, 12), blocks="separated").double().eval()
    assert not torch.allclose(separated(images), separated(swapped))
    seen = []
    separated.network.stem[0].register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    separated(images.requires_grad_())
    ((inputs, outputs),) = seen
    assert inputs.shape[2:] == (12, 18)
    (gradient,) = torch.autograd.grad(outputs[..., :6, 6:12].sum(), images)
    assert gradient[..., :4, 4:8].abs().min() > 0 and gradient.abs().sum() == gradient[..., :4, 4:8].abs().sum()
