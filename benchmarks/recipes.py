"""Ranks of the recipes of several searches, from which the recommended recipes were chosen.

    python -m benchmarks.recipes rank runs/recipes_cifar10_10000 runs/recipes_cifar10_1000 runs/recipes_synthetic

Reads the trials of searches in which every model had the same recipes (configs/recipes.yaml). For each model it prints
the validation accuracy of each recipe on each task, the one with the best mean first. Test images are not used.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.trials import TRIALS_FILE, Trial, read_trials


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rank = commands.add_parser("rank", help="rank the recipes of several searches")
    rank.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders with tuning.csv")
    options = parser.parse_args()
    print("\n".join(rank_table({path.name: read_trials(path / TRIALS_FILE) for path in options.folders})))


if __name__ == "__main__":
    main()
