"""``inspect`` from the command line."""

import contextlib
import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

from tests.experiments.tiny import find_run, run_quietly, tiny_config, tiny_experiment
from tests.pictures import write_images
from tests.reporting.inspected import run as inspected_run
from tests.reporting.inspected import shown
from vit_vs_cnn.attention.convolution import head_fit
from vit_vs_cnn.cli import main
from vit_vs_cnn.conversion.to_attention import convert_to_attention
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.deletion import DeletionTest, area_under_curve, deletion_grid
from vit_vs_cnn.inspection.inspect import (
    default_folder,
    find_error,
    images_for,
    inspect_network,
    inspect_networks,
    open_networks,
    select_images,
    select_methods,
)
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.reporting.inspection_page import describe_prediction, with_display_names
from vit_vs_cnn.training.checkpoints import CheckpointInfo


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    """An experiment with a ViT and a CNN."""
    root = tmp_path_factory.mktemp("trained")
    trainer = {"accelerator": "cpu", "devices": 1}
    run_quietly(tiny_experiment(root, train_sizes=[60, 120], budget={"steps": 5}, trainer=trainer, execution={}))
    return root / "tiny"


@pytest.fixture(scope="module")
def inspected(experiment, tmp_path_factory):
    """The output folder and printed text of the command for an experiment. The test-set log does not change."""
    folder = tmp_path_factory.mktemp("inspected")
    (path,) = (experiment.parent / "test-sets").glob("*.jsonl")
    log, printed = path.read_text(), io.StringIO()
    words = "--count 2 --score --score-images 5 --methods rollout grad_cam --output".split()
    with contextlib.redirect_stdout(printed):
        assert main(["inspect", str(experiment), *words, str(folder)]) == 0
    assert path.read_text() == log
    return folder, " ".join(printed.getvalue().split())


def test_an_experiment_gives_an_interactive_page_figures_and_tables(inspected):
    folder, printed = inspected
    known = "ViT is the run vit-n120-s3. ViT is right on", "ResNet is the run resnet-n120-s3."
    for text in (*known, "(deletion): rollout (class-agnostic) on", "index.html"):
        assert text in printed, text
    assert [path.name for path in (folder / "figures").iterdir()] == ["sheet_0.png"]
    page = (folder / "index.html").read_text()
    assert 'id="explorer"' in page and "<h1>ViT and ResNet: " in page
    assert "first those whose class has a mean probability near 50 %" in page
    assert "Maps and scores do not use labels" in page and "smallest value to its largest, the same for all" in page


def test_maps_are_for_one_class_and_images_of_moderate_difficulty_come_first(experiment):
    networks = open_networks([experiment])
    images = select_images(networks, count=9)
    inspection = inspect_networks(networks, images, ["random"], by_difficulty=True)
    found, labels = inspection.networks, inspection.images.data.labels
    mean = torch.stack([network.probabilities for network in found]).mean(dim=0)
    distance = (mean.gather(1, labels[:, None]).squeeze(1) - 0.5).abs()
    assert (distance.diff() >= -1e-5).all()
    assert sorted(inspection.images.data.sample_ids) == sorted(images[0].data.sample_ids)
    assert torch.equal(found[0].target_classes, found[1].target_classes)
    most_probable = mean.gather(1, found[0].target_classes[:, None]).squeeze(1)
    assert (most_probable >= mean.amax(dim=1) - 1e-5).all()
    assert inspect_networks(networks, images, ["random"]).images.data.sample_ids == images[0].data.sample_ids


def test_networks_of_an_experiment_are_those_of_its_primary_comparison(tmp_path):
    resnet, vit = (tiny_config(tmp_path)["models"][name] for name in ("resnet", "vit"))
    models = {"resnet": resnet, "vit": vit, "resnet_wide": {**resnet, "options": {"width": 5}}}
    pairs = [["resnet_wide", "vit"]]
    tiny = tiny_experiment(tmp_path, models=models, train_sizes=[60, 120], budget={"steps": 1}, pairs=pairs)
    run_quietly(tiny)
    networks = open_networks([tiny.folder])
    assert [network.name for network in networks] == ["vit-n120-s3", "resnet_wide-n120-s3"]
    assert [network.name for network in with_display_names(networks)] == ["ViT", "ResNet-wide"]
    sizes = open_networks([find_run(tiny.folder, f"vit-n{size}-s3") for size in (60, 120)])
    assert [network.name for network in with_display_names(sizes)] == ["vit-n60-s3", "vit-n120-s3"]


def test_scores_have_intervals_and_caveats(inspected):
    folder, printed = inspected
    assert "integrated" not in printed and "…" not in printed
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    methods = {"ViT": ("rollout", "random", "centre"), "Res": ("grad_cam", "random", "centre")}
    expected = [(network, method) for network, names in methods.items() for method in names]
    assert [(row["network"][:3], row["method"]) for row in rows] == expected
    assert {row["images"] for row in rows} == {"5"}
    for row in rows:
        for name in ("pointing", "rank", "deletion_mean"):
            low, value, high = (float(row[f"{name}{limit}"]) for limit in ("_low", "", "_high"))
            assert low <= value <= high
    assert {row["sanity_head"] for row in rows if row["method"] == "centre"} == {"1.0"}
    assert "Holm's correction for all 18 tests" in printed  # 2 methods x (3 fills x 2 + 3)
    assert "over 5 shuffles of the weights, on 5 images" in printed
    row = printed.partition("shuffled weights")[2].partition("rollout ")[2].split()
    assert row[0] == "class-agnostic" and row[2] == "±"
    assert "Tests of the maps" in (folder / "index.html").read_text()


def test_inspected_predictions_and_deletion_scores_equal_those_of_the_network(experiment):
    (run,) = open_networks([find_run(experiment, "vit-n120-s3")])
    shown = select_images([run], ["5", "17", "2"])[0]
    test = run.pool().test(run.run.seed).subset(torch.tensor([5, 17, 2]))
    assert torch.equal(shown.data.images, test.images)
    pixels = run.normalize(test.images)
    found = inspect_network(run, shown, ["rollout", "relevance"], grid_size=(4, 4), target_class=1)
    with torch.no_grad():
        shares = run.network(pixels).softmax(dim=1)
        torch.testing.assert_close(found.probabilities, shares)
        emptied = pixels.mean(dim=(2, 3), keepdim=True).expand_as(pixels)
        ends = [run.network(images).softmax(dim=1)[:, 1] for images in (pixels, emptied)]
    curves = DeletionTest(run.network, pixels, found.target_classes, grid_size=(4, 4)).curves(found.methods[1].maps)
    torch.testing.assert_close(curves[:, 0], ends[0])
    torch.testing.assert_close(curves[:, -1], ends[1])
    torch.testing.assert_close(found.methods[1].deletion, area_under_curve(curves, 16))
    share = found.methods[0].deletion[0] / found.methods[0].random_deletion[0]
    assert found.methods[0].relative_deletion(0) == pytest.approx(float(1 - share))
    right = "right" if test.labels[0] == shares[0].argmax() else "wrong"
    expected = f"{test.class_names[int(shares[0].argmax())]} {100 * float(shares[0].max()):.0f} % ({right})"
    assert describe_prediction(shown, found, 0) == expected


def test_a_converted_network_and_its_original_have_different_names_and_folders(experiment, tmp_path):
    trained = TrainedNetwork.open(find_run(experiment, "resnet-n60-s3"))
    path = tmp_path / "attention.ckpt"
    convert_to_attention(trained, {}, path, trained.pool().test(trained.run.seed).subset(torch.arange(1)))
    runs = open_networks([trained.path, path])
    assert [run.name for run in runs] == ["resnet-n60-s3", "resnet-n60-s3 (attention)"]
    assert select_methods(runs[1]) == ["grad_cam"]
    folders = [default_folder(path, run) for run in runs]
    assert folders == [trained.path.parents[1] / "inspection", tmp_path / "inspection"]
    assert default_folder(experiment, trained) == experiment / "report" / "inspection"


@pytest.mark.parametrize("options", [{"num_heads": 4}, {"num_heads": 9, "head_dim": 2}])
def test_errors_of_fitted_heads_equal_those_measured_on_layer_outputs(experiment, tmp_path, options, monkeypatch):
    monkeypatch.setattr(head_fit, "NUM_STEPS", 60)
    monkeypatch.setattr(head_fit, "NUM_REFINING_STEPS", 3)
    trained = TrainedNetwork.open(find_run(experiment, "resnet-n60-s3"))
    training = trained.pool().draw(60, 3).training
    one, path = training.subset(torch.arange(1)), tmp_path / "attention.ckpt"
    found = convert_to_attention(trained, options, path, one, training)
    converted = dict(TrainedNetwork.open(found.path).network.named_modules())
    errors = []

    def compare(name, conv, inputs):
        layer = converted[f"network.{name}"]
        expected = conv._conv_forward(inputs, conv.weight, None)
        bias = 0 if layer.output_bias is None else layer.output_bias[:, None, None]
        errors.append(((layer(inputs) - bias - expected).square().sum() / expected.square().sum()).item())

    for name, module in trained.network.named_modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
            module.register_forward_pre_hook(lambda conv, inputs, name=name: compare(name, conv, *inputs))
    with torch.no_grad():
        trained.network(trained.normalize(training.images))
    assert found.heads.outputs == pytest.approx(np.mean(errors), rel=1e-3)
    assert (found.heads.kernel > found.heads.bound + 0.2) == ("head_dim" in options)


class Mixing(nn.Module):
    """A network like a Vision Transformer that does not use torch's attention."""

    def __init__(self):
        super().__init__()
        self.num_prefix_tokens, self.patch_embed, self.global_pool = 0, nn.Conv2d(3, 3, 4, stride=4), "avg"

    def forward(self, images):
        return self.patch_embed(images).mean(dim=(2, 3))


def test_unavailable_attention_is_an_error_only_if_a_method_needs_it(tmp_path):
    one, images = inspected_run(Mixing(), "vit", tmp_path), shown()
    found = inspect_network(one, images, ["centre"], grid_size=deletion_grid(one.network, (12, 20)), target_class=1)
    assert found.target_classes.tolist() == [1] * len(images.data) != found.predicted.tolist()
    assert found.attention is None and "Mixing has no attention weights" in found.why_no_attention
    with pytest.raises(InputError, match="Mixing has no attention weights"):
        inspect_network(one, images, ["rollout"], grid_size=(3, 5))
    assert find_error(one, "centre") is None and "Mixing has no attention weights" in find_error(one, "rollout")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cait_xxs24_224", {"depth": 1, "embed_dim": 24, "num_heads": 2}),
        ("xcit_nano_12_p16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2, "cls_attn_layers": 1}),
    ],
)
def test_networks_without_attention_weights_default_to_integrated_gradients(tmp_path, name, options):
    one = inspected_run(timm.create_model(name, img_size=(32, 32), num_classes=3, **options).eval(), "vit", tmp_path)
    one = replace(one, about=CheckpointInfo({"name": name}, one.class_names, (3, 32, 32), [0.5] * 3, [0.25] * 3))
    (method,) = select_methods(one)
    assert method == "integrated_gradients"


def test_validation_images_are_those_of_the_first_network_for_all(tmp_path):
    tiny = tiny_experiment(tmp_path, train_sizes=[60, 120], budget={"steps": 1}, scored_on="validation")
    run_quietly(tiny)
    first, other = (TrainedNetwork.open(find_run(tiny.folder, name)) for name in ("vit-n120-s3", "resnet-n60-s3"))
    shown_ids = [images.data.sample_ids for images in select_images([first, other], count=9)]
    assert shown_ids[0] == shown_ids[1] != select_images([other], count=9)[0].data.sample_ids


def test_images_are_sent_to_the_device_of_the_network_and_sampled_by_the_seed_alone(experiment, tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert images_for(inspected_run(network.to("meta"), "resnet", tmp_path), shown().data.images).device.type == "meta"
    one, other = (TrainedNetwork.open(find_run(experiment, name)) for name in ("vit-n120-s3", "resnet-n60-s3"))
    sampled_ids = [select_images([trained], count=7)[0].data.sample_ids for trained in (one, other)]
    assert sampled_ids[0] == sampled_ids[1] != select_images([one], count=7, seed=1)[0].data.sample_ids


def test_image_files_have_the_class_of_their_folder_and_are_sampled_by_seed(experiment, tmp_path):
    trained = TrainedNetwork.open(find_run(experiment, "vit-n120-s3"))
    name = trained.class_names[1]
    for place in (name, "elsewhere"):
        (tmp_path / place).mkdir()
        Image.new("RGB", (50, 41), (200, 30, 90)).save(tmp_path / place / "photo.png")
    (tmp_path / "elsewhere" / "notes.jpg").write_text("no image")
    with pytest.warns(UserWarning, match=r"1 of 3 images could not be read, the first .*notes\.jpg: no image"):
        shown = select_images([trained], [str(tmp_path / name), str(tmp_path / "elsewhere")])[0]
    assert [shown.label(0), shown.label(1)] == [name, None]
    assert (len(shown.data.labels), shown.data.images.shape) == (2, (2, 3, 32, 32))
    assert shown.data.images[1, :, 3, 4].tolist() == [200, 30, 90]
    assert shown.source == "from the named files (1 of 3 could not be read)"
    link = tmp_path / trained.class_names[2] / "link.png"
    link.parent.mkdir()
    link.symlink_to(tmp_path / name / "photo.png")
    assert select_images([trained], [str(link)])[0].label(0) == trained.class_names[2]
    write_images(tmp_path / name, (f"{number}.png" for number in range(9)))
    sampled = select_images([trained], [str(tmp_path / name)], count=5)[0]
    assert sampled.source == "chosen from the named files and folders by seed 0"
    names = sampled.data.sample_ids
    assert names == sorted(names) and len(names) == 5 and names != [f"{number}.png" for number in range(5)]
    assert names == select_images([trained], [str(tmp_path / name)], count=5)[0].data.sample_ids
    assert names != select_images([trained], [str(tmp_path / name)], count=5, seed=1)[0].data.sample_ids


def test_inspected_images_that_are_training_images_are_counted(experiment, tmp_path):
    (run,) = open_networks([find_run(experiment, "vit-n120-s3")])
    pixels = [*run.pool().draw(120, 3).training.images[:2], torch.zeros(3, 32, 32, dtype=torch.uint8)]
    for number, image in enumerate(pixels):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    for words, count in (([str(tmp_path)], 1), (["0", "1"], 0)):
        found = inspect_networks([run], select_images([run], words), ["random"])
        assert found.lines[1].count("2 of the 3 images are from its training set. ") == count


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "rollout"], "does not support rollout; its methods are grad_cam"),
        (["--methods", "rolout"], 'there is no method "rolout"'),
        (["--class-name", "dragon"], "class dragon: no such class; there are"),
        (["--images", "60"], "60 is not a number of the 60 test images; allowed: 0 to 59"),
        (["--images", "1", "no.png"], "name either files or numbers"),
        (["--images", "no.png"], "no.png: no such file or folder"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(experiment, tmp_path, error_line, words, message):
    run = find_run(experiment, "resnet-n120-s3")
    assert message in error_line("inspect", run, *words, "--output", tmp_path / "out")
    assert not [*(tmp_path / "out").iterdir()]
