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
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from benchmarks import command_line
from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.runs.result import group_results
from vit_vs_cnn.runs.trials import TRIALS_FILE, Trial, read_trials

FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
#: Models without --models.
MODELS = ("resnet8", "vit_nano", "resnet20", "vit_tiny")


def rank_table(tasks: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Lines of a table for each model: its recipes, the best mean accuracy first. InputError without common recipes."""
    accuracies = {
        (trial.model, trial.trial, task): trial.validation_accuracy or 0.0
        for task, trials in tasks.items()
        for trial in trials
    }
    texts = {(trial.model, trial.trial): trial.values_text for trials in tasks.values() for trial in trials}
    lines = []
    for model in dict.fromkeys(model for model, _ in texts):
        numbers = [n for m, n in texts if m == model and all((model, n, task) in accuracies for task in tasks)]
        if not numbers:
            raise InputError(f"{model}: the searches have no trial in common")
        means = {n: fmean(accuracies[model, n, task] for task in tasks) for n in numbers}
        lines += [f"{model}", f"  mean  {'  '.join(tasks)}  trial: recipe"]
        for n in sorted(numbers, key=lambda n: -means[n]):
            columns = [f"{100 * accuracies[model, n, task]:>{len(task)}.1f}" for task in tasks]
            lines.append(f"  {100 * means[n]:4.1f}  {'  '.join(columns)}  {n}: {texts[model, n]}")
    return lines


def make_experiment(models: Mapping[str, Any], options: argparse.Namespace) -> Experiment:
    """An experiment of one size that is scored on a quarter of its labelled images."""
    data: dict[str, Any] = {"source": options.source, "root": options.data, "validation_fraction": 0.25}
    data["augmentation"] = {"crop_padding": 4, "flip": True}
    if options.source == "folder":
        data["folder"] = {"image_size": options.pixels}
    elif options.unverified:
        data["cifar"] = {"verify_checksum": False, "download": False}
    return experiment_from_dict(
        {
            "name": f"recipes_{options.command}_{options.source}_{options.size}_{options.steps}",
            "output": options.output,
            "data": data,
            "protocol": {
                "train_sizes": [options.size],
                "seeds": list(range(options.seeds)),
                "budget": {"steps": options.steps},
                "batch_size": 64,
                "scored_on": "validation",
            },
            "models": models,
        }
    )


def scan_experiment(options: argparse.Namespace) -> Experiment:
    """Every model with the recommended learning rate times each factor, and with the plain defaults."""
    by_name = make_experiment({label(model): {"name": model} for model in options.models}, options)
    models: dict[str, Any] = {}
    for model in options.models:
        rate = by_name.models[label(model)].optimizer.lr
        models[f"{label(model)}_plain"] = {"name": model, "recipe": "none"}
        for factor in FACTORS:
            models[f"{label(model)}_x{factor:.2f}".replace(".", "p")] = {
                "name": model,
                "optimizer": {"lr": float(f"{rate * factor:.2g}")},
            }
    return make_experiment(models, options)


def names_experiment(options: argparse.Namespace) -> Experiment:
    """Every model by name alone, with Muon as in the quickstart, and with the plain defaults."""
    models: dict[str, Any] = {}
    for model in options.models:
        models[f"{label(model)}_by_name"] = {"name": model}
        models[f"{label(model)}_muon"] = {
            "name": model | ({"zero_init_residual": False} if model.startswith("resnet") else {}),
            "optimizer": {"name": "muon", "lr": 0.01 if "vit" in model else 0.03, "weight_decay": 0.05},
            "schedule": {"name": "cosine", "warmup": 0.1},
        }
        models[f"{label(model)}_plain"] = {"name": model, "recipe": "none"}
    return make_experiment(models, options)


def label(model: str) -> str:
    """Name of a model for a model, such as ``timm_resnet10t``."""
    return model.replace("/", "_")


def accuracy_table(experiment: Experiment, console: Console) -> list[str]:
    """Mean validation accuracy of each model over its seeds, with the standard deviation."""
    lines = []
    for (name, _), results in group_results(run_experiment(experiment, console=console)).items():
        accuracies = [100 * result.accuracy for result in results]
        spread = f" (sd {stdev(accuracies):.1f})" if len(accuracies) > 1 else ""
        rate = experiment.models[name].optimizer
        lines.append(
            f"{name:<36} {rate.name:<6} lr {rate.lr:<8.2g} {fmean(accuracies):5.1f} %{spread}, n = {len(results)}"
        )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Run the command. The exit code is 2 for bad input."""
    parser = command_line(__doc__, "python -m benchmarks.recipes")
    commands = parser.add_subparsers(dest="command", required=True)
    rank = commands.add_parser("rank", help="rank the recipes of several searches")
    rank.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders with tuning.csv")
    for name, text in (("scan", "vary the recommended learning rates"), ("names", "compare recipes of models")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--models", nargs="+", default=MODELS, help="names of models")
        command.add_argument("--source", choices=("cifar10", "cifar100", "folder"), default="cifar10", help="images")
        command.add_argument("--data", default="data", help="folder of the images (default: data)")
        command.add_argument("--unverified", action="store_true", help="read CIFAR files without their checksums")
        command.add_argument("--pixels", type=int, default=64, help="size of the images of a folder (default: 64)")
        command.add_argument("--steps", type=int, default=300, help="optimizer steps (default: 300)")
        command.add_argument("--size", type=int, default=8000, help="labelled images, a quarter of them for validation")
        command.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
        command.add_argument("--output", default="runs", help="folder of the experiment (default: runs)")
    options = parser.parse_args(words)
    try:
        if options.command == "rank":
            tasks: dict[str, list[Trial]] = {}
            for path in options.folders:
                for trial in read_trials(path / TRIALS_FILE):
                    tasks.setdefault(f"{path.name}:{trial.train_size}", []).append(trial)
            lines = rank_table(tasks)
        else:
            experiment = scan_experiment(options) if options.command == "scan" else names_experiment(options)
            lines = accuracy_table(experiment, Console(stderr=True))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
