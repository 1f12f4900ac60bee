"""The recommended recipes: how they were chosen, and whether their learning rates are near the best ones.

    python -m benchmarks.recipes rank runs/recipes_cifar10_10000 runs/recipes_cifar10_1000 runs/recipes_synthetic
    python -m benchmarks.recipes scan --data data --seeds 3

``rank`` reads the trials of several searches in which every model had the same recipes (configs/recipes.yaml). For each
model it prints the validation accuracy of each recipe on each task, the one with the best mean first.

``scan`` trains models by name alone, with the recommended learning rate times 1/9, 1/3, 1, 3 and 9, and with the plain
defaults (``recipe: none``). Accuracies are of validation images; test images are not used.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.runs.result import by_network
from vit_vs_cnn.runs.trials import TRIALS_FILE, Trial, read_trials

FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
#: Models of the scan, at 32 pixels.
MODELS = ("resnet8", "vit_nano", "resnet20", "vit_tiny")


def rank_table(tasks: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Lines of a table for each model: its recipes, the best mean accuracy over all tasks first.

    Raises:
        InputError: the tasks have no recipe in common.
    """
    accuracies = {
        (trial.contender, trial.trial, task): trial.validation_accuracy or 0.0
        for task, trials in tasks.items()
        for trial in trials
    }
    texts = {(trial.contender, trial.trial): trial.values_text for trials in tasks.values() for trial in trials}
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


def scan_experiment(models: Sequence[str], *, root: str, steps: int, size: int, seeds: int, output: str) -> Experiment:
    """Every model with the recommended learning rate times each factor, and with the plain defaults."""
    base = {
        "name": f"recipes_scan_{size}_{steps}",
        "output": output,
        "data": {"source": "cifar10", "root": root, "validation_fraction": 0.25, "augmentation": {"crop_padding": 4}},
        "protocol": {
            "train_sizes": [size],
            "seeds": list(range(seeds)),
            "budget": {"steps": steps},
            "batch_size": 64,
            "scored_on": "validation",
        },
    }
    by_name = experiment_from_dict(base | {"contenders": {model: {"model": {"name": model}} for model in models}})
    contenders = {}
    for model in models:
        rate = by_name.contenders[model].optimizer.lr
        contenders[f"{model}_plain"] = {"model": {"name": model}, "recipe": "none"}
        for factor in FACTORS:
            contenders[f"{model}_x{factor:.2f}".replace(".", "p")] = {
                "model": {"name": model},
                "optimizer": {"lr": float(f"{rate * factor:.2g}")},
            }
    return experiment_from_dict(base | {"contenders": contenders})


def scan_table(experiment: Experiment, console: Console) -> list[str]:
    """Mean validation accuracy of each contender over its seeds, with the standard deviation."""
    lines = []
    for (name, _), results in by_network(run_experiment(experiment, console=console)).items():
        accuracies = [100 * result.accuracy for result in results]
        spread = f" (sd {stdev(accuracies):.1f})" if len(accuracies) > 1 else ""
        rate = experiment.contenders[name].optimizer
        lines.append(
            f"{name:<20} {rate.name:<6} lr {rate.lr:<8.2g} {fmean(accuracies):5.1f} %{spread}, n = {len(results)}"
        )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Run the command. The exit code is 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recipes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    rank = commands.add_parser("rank", help="rank the recipes of several searches")
    rank.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders with tuning.csv")
    scan = commands.add_parser("scan", help="vary the learning rate of the recommended recipes")
    scan.add_argument("--models", nargs="+", default=MODELS, help="names of models")
    scan.add_argument("--data", default="data", help="folder of CIFAR-10")
    scan.add_argument("--steps", type=int, default=300, help="optimizer steps (default: 300)")
    scan.add_argument(
        "--size", type=int, default=8000, help="labelled images, a quarter of them validates (default: 8000)"
    )
    scan.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    scan.add_argument("--output", default="runs", help="folder of the experiment (default: runs)")
    given = parser.parse_args(words)
    try:
        if given.command == "rank":
            lines = rank_table({path.name: read_trials(path / TRIALS_FILE) for path in given.folders})
        else:
            options = {"steps": given.steps, "size": given.size, "seeds": given.seeds, "output": given.output}
            experiment = scan_experiment(given.models, root=given.data, **options)
            lines = scan_table(experiment, Console(stderr=True))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
