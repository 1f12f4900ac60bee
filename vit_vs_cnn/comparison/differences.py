"""What differs between networks besides their answers: settings side by side, and what makes a comparison unfair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.comparison.entries import Entry, grouped
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.runs.tuning_record import BY_HAND, tuning_obstacle

#: Places of a config by their first words: a difference there makes another comparison than that of two models.
UNFAIR = {
    "train_size": "they were trained on different numbers of images",
    "data": "they were trained on different images",
    "budget": "they had different budgets",
    "batch_size": "they were trained with different batch sizes",
    "contender.augmentation": "their augmentations differ",
    "contender.ema_half_life": "one is an average of weights and the other is not, or over another time",
    "trainer": "they were trained with different precision, clipping or accumulation",
    "scored_on": "one was chosen with its eyes on the test set and one was not",
}
#: A setting that one side lacks.
ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same for all: its place in the config, and the value of each group."""

    setting: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Differences:
    """What a reader must know before the numbers.

    Arguments:
        training: what each group's training took: steps, images, epochs, FLOPs, seconds; always all of them together.
        trials: recipes tried before each group's was settled on; None where there is no record of it.
        test_evaluations: how often each network's weights have been tested by now.
        warnings: what makes the comparison unfair, one sentence for each reason.
    """

    settings: list[Difference]
    training: dict[str, dict[str, Any]]
    trials: dict[str, int | None]
    test_evaluations: dict[str, int]
    warnings: list[str]


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; what is empty stays under its own."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing_settings(configs: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """The settings that are not the same in all configs, in the order in which they appear."""
    flat = {name: flattened(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flat.values() for key in config)
    return [
        Difference(key, {name: config.get(key, ABSENT) for name, config in flat.items()})
        for key in keys
        if any(config.get(key, ABSENT) != next(iter(flat.values())).get(key, ABSENT) for config in flat.values())
    ]


def judge_differences(entries: Sequence[Entry], test_evaluations: Mapping[str, int]) -> Differences:
    """Compare settings of groups; within a group only the seed differs."""
    groups = grouped(entries)
    first = {name: members[0] for name, members in groups.items()}
    known = {name: {k: v for k, v in one.config.items() if k != "seed"} for name, one in first.items() if one.config}
    settings = differing_settings(known)
    trials = {name: one.tuning and one.tuning.trials for name, one in first.items()}
    warnings = [warning for one in entries for warning in one.warnings]
    warnings += [f"it is not known how {name} was trained" for name in groups if name not in known]
    if unseen := dict.fromkeys(one.group for one in entries if one.group in known and not one.seen.is_whole):
        warnings.append(
            f"it is not known on which images {', '.join(unseen)} was trained: test images may be among them"
        )
    warnings += _unfair(settings) + _about_seeds(groups) + _about_trials(groups)
    if repeated := [f"{name} {times} times" for name, times in test_evaluations.items() if times > 1]:
        warnings.append(
            f"weights that have been tested more than once, this comparison included: {', '.join(repeated)}"
        )
    training = {name: _training_of(one.result) for name, one in first.items() if one.result is not None}
    return Differences(settings, training, trials, dict(test_evaluations), list(dict.fromkeys(warnings)))


def _training_of(result: RunResult) -> dict[str, Any]:
    cost = result.cost
    return {
        "training_images": result.data.training_images,
        "steps": cost.steps,
        "ended_early": cost.ended_early,
        "images": cost.images_processed,
        "epochs": result.epochs,
        "flops": cost.flops,
        "train_seconds": cost.train_seconds,
        "devices": cost.devices,
        "precision": cost.precision,
    }


def _unfair(settings: Sequence[Difference]) -> list[str]:
    there = {start: [d for d in settings if f"{d.setting}.".startswith(f"{start}.")] for start in UNFAIR}
    return [f"{UNFAIR[start]}: {'; '.join(map(_side_by_side, found))}" for start, found in there.items() if found]


def _side_by_side(difference: Difference) -> str:
    values = ", ".join(f"{name} {value}" for name, value in difference.values.items())
    return f"{difference.setting} ({values})"


def _about_seeds(groups: Mapping[str, Sequence[Entry]]) -> list[str]:
    seeds = {name: {c.seed for c in members} for name, members in groups.items()}
    if len({frozenset(s) for s in seeds.values()}) > 1:
        listed = "; ".join(f"{name} {', '.join(map(_seed, sorted(v, key=_seed)))}" for name, v in seeds.items())
        return [f"they were trained with different seeds, so they are not paired: {listed}"]
    subsets = {(one.seed, one.subset) for members in groups.values() for one in members if one.subset is not None}
    differing = sorted(str(seed) for seed, times in Counter(seed for seed, _ in subsets).items() if times > 1)
    return [f"with seed {', '.join(differing)} they were trained on different subsets"] if differing else []


def _seed(seed: int | None) -> str:
    return "unknown" if seed is None else str(seed)


def _about_trials(groups: Mapping[str, Sequence[Entry]]) -> list[str]:
    tunings = {name: [one.tuning for one in members] for name, members in groups.items()}
    if not any(tuning for found in tunings.values() for tuning in found):
        return [BY_HAND[0].lower() + BY_HAND[1:]]
    obstacle = tuning_obstacle(tunings)
    return [] if obstacle is None else [f"{obstacle.text}, so no verdict on the kinds"]
