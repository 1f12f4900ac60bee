"""Recommended recipes: how they were chosen, and how they compare with other recipes and learning rates.

    python -m benchmarks.recipes rank runs/recipes_cifar10_10000 runs/recipes_cifar10_1000 runs/recipes_synthetic
    python -m benchmarks.recipes scan --seeds 3
    python -m benchmarks.recipes names --source cifar100 --size 2000 --steps 200

``rank`` reads the trials of searches in which every model had the same recipes (configs/recipes.yaml). For each model
it prints the validation accuracy of each recipe on each task (folder and number of images), the best mean first.

``scan`` trains models by name alone, with the recommended learning rate times 1/9, 1/3, 1, 3 and 9, and with the plain
defaults (``recipe: none``). ``names`` trains models by name alone, with the Muon of configs/quickstart.yaml, and with
the plain defaults. Accuracies are of validation images; test images are not used.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas
from rich.console import Console

from benchmarks import command_line, markdown_table, run_command
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.runs.result import group_results
from vit_vs_cnn.runs.trials import TRIALS_FILE, read_trials

FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)


def rank_table(folders: Iterable[Path]) -> str:
    """Markdown table of the recipes that were tried on every task, those of each model in the order of their means.

    Raises:
        InputError: a model has no trial on all tasks.
    """
    trials = [
        (trial, f"{path.name}:{trial.train_size}") for path in folders for trial in read_trials(path / TRIALS_FILE)
    ]
    cells = [(t.model, f"{t.trial}: {t.values_text}", task, 100 * (t.validation_accuracy or 0.0)) for t, task in trials]
    tried = pandas.DataFrame(cells, columns=["model", "trial: recipe", "task", "accuracy"])
    accuracies = tried.pivot(index=["model", "trial: recipe"], columns="task", values="accuracy").dropna()
    if missing := {*tried["model"]} - {*accuracies.index.get_level_values("model")}:
        raise InputError(f"{min(missing)}: the searches have no trial in common")
    accuracies.insert(0, "mean", accuracies.mean(axis=1))
    ranked = accuracies.sort_values(["model", "mean"], ascending=[True, False])
    texts = ranked.map("{:.1f}".format).reset_index()
    return markdown_table([*texts.columns], texts.to_numpy())


def make_experiment(models: Mapping[str, Any], options: argparse.Namespace) -> Experiment:
    """An experiment of one size that is scored on a quarter of its labelled images."""
    name = f"recipes_{options.command}_{options.source}_{options.size}_{options.steps}"
    settings = {
        "data.source": options.source,
        "data.root": options.data,
        "data.validation_fraction": 0.25,
        "data.augmentation": {"crop_padding": 4, "flip": True},
        "protocol.train_sizes": [options.size],
        "protocol.seeds": [*range(options.seeds)],
        "protocol.budget": {"steps": options.steps},
        "protocol.batch_size": 64,
        "protocol.scored_on": "validation",
    }
    size = {"data.folder.image_size": 64} if options.source == "folder" else {}
    return load_experiment({"name": name, "models": models}, settings | size)


def scanned_models(options: argparse.Namespace) -> dict[str, Any]:
    """Every model with the recommended learning rate times each factor, and with the plain defaults."""
    by_name = make_experiment({label(model): {"name": model} for model in options.models}, options)
    models: dict[str, Any] = {}
    for model in options.models:
        rate = by_name.models[label(model)].optimizer.lr
        models[f"{label(model)}_plain"] = {"name": model, "recipe": "none"}
        for factor in FACTORS:
            name = f"{label(model)}_x{factor:.2f}".replace(".", "p")
            models[name] = {"name": model, "optimizer": {"lr": float(f"{rate * factor:.2g}")}}
    return models


def named_models(options: argparse.Namespace) -> dict[str, Any]:
    """Every model by name alone, with Muon as in the quickstart, and with the plain defaults."""
    models: dict[str, Any] = {}
    for model in options.models:
        models[f"{label(model)}_by_name"] = {"name": model}
        models[f"{label(model)}_muon"] = {
            "name": model,
            "options": {"zero_init_residual": False} if model.startswith("resnet") else {},
            "optimizer": {"name": "muon", "lr": 0.01 if "vit" in model else 0.03, "weight_decay": 0.05},
            "schedule": {"name": "cosine", "warmup": 0.1},
        }
        models[f"{label(model)}_plain"] = {"name": model, "recipe": "none"}
    return models


def label(model: str) -> str:
    """Name of a model in a config, such as ``timm_resnet10t``."""
    return model.replace("/", "_")


def accuracy_table(experiment: Experiment) -> str:
    """Markdown table of the mean validation accuracy of each model, with the standard deviation over its seeds."""
    rows = []
    for (name, _), results in group_results(run_experiment(experiment, console=Console(stderr=True))).items():
        accuracies = [100 * result.accuracy for result in results]
        spread = f"{stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
        recipe = experiment.models[name].optimizer
        rows.append([name, recipe.name, f"{recipe.lr:.2g}", f"{fmean(accuracies):.1f}", spread, len(results)])
    return markdown_table(["model", "optimizer", "learning rate", "accuracy, %", "sd over seeds", "seeds"], rows)


def make_table(**arguments: Any) -> str:
    """Table of a command with its arguments."""
    options = argparse.Namespace(**arguments)
    if options.command == "rank":
        return rank_table(options.folders)
    models_of = scanned_models if options.command == "scan" else named_models
    return accuracy_table(make_experiment(models_of(options), options))


if __name__ == "__main__":
    parser = command_line(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    rank = commands.add_parser("rank", help="rank the recipes of several searches")
    rank.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders with tuning.csv")
    for name, text in (("scan", "vary the recommended learning rates"), ("names", "compare recipes of models")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--models", nargs="+", default=["resnet8", "vit_nano", "resnet20", "vit_tiny"])
        command.add_argument("--source", choices=("cifar10", "cifar100", "folder"), default="cifar10", help="images")
        command.add_argument("--data", default="data", help="folder of the images (default: data)")
        command.add_argument("--steps", type=int, default=300, help="optimizer steps (default: 300)")
        command.add_argument("--size", type=int, default=8000, help="labelled images, a quarter of them for validation")
        command.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    run_command(parser, make_table)
