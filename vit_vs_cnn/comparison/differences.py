"""Differences between the training of networks: settings side by side, and what makes a comparison unfair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vit_vs_cnn.comparison.entries import ComparisonEntry, group_entries
from vit_vs_cnn.runs.recipe_care import describe_recipe_source, recipe_obstacle

#: Value of a setting that a network does not have.
ABSENT = "-"
#: Sentence for a difference in a part of the config that must be equal in a comparison of two models.
UNFAIR_DIFFERENCES = {
    "train_size": "they were trained on different numbers of images",
    "data": "they were trained on different images",
    "budget": "they had different budgets",
    "batch_size": "they were trained with different batch sizes",
    "contender.augmentation": "their augmentations differ",
    "contender.ema_half_life": "they differ in the averaging of weights",
    "trainer": "they were trained with different precision, clipping or accumulation",
    "scored_on": "one was chosen on test images and the other was not",
}


def list_differences(entries: Sequence[ComparisonEntry]) -> dict[str, dict[str, Any]]:
    """Settings that differ between groups, by dotted name, and the source of their recipes. Within a group only the
    seed differs.
    """
    members = {name: group[0] for name, group in group_entries(entries).items()}
    recipes = {
        name: "not recorded" if m.result is None else describe_recipe_source(m.result.recipe_source, m.result.tuning)
        for name, m in members.items()
    }
    return {**differing_settings(_configs(members)), "recipe": recipes}


def unfair_differences(entries: Sequence[ComparisonEntry], test_evaluations: Mapping[str, int]) -> list[str]:
    """Reasons why a comparison is unfair, one sentence each.

    Arguments:
        test_evaluations: number of times that the weights of each network were tested.
    """
    groups = group_entries(entries)
    configs = _configs({name: group[0] for name, group in groups.items()})
    warnings = [warning for entry in entries for warning in entry.trained.warnings]
    warnings += [f"it is not known how {name} was trained" for name in groups if name not in configs]
    if unrecorded := dict.fromkeys(
        entry.group for entry in entries if entry.group in configs and not entry.trained.training_hashes.is_whole
    ):
        warnings.append(
            f"it is not known on which images {', '.join(unrecorded)} was trained: test images may be among them"
        )
    warnings += _unfair_settings(differing_settings(configs)) + _seed_warnings(groups)
    if obstacle := recipe_obstacle({name: [member.result for member in group] for name, group in groups.items()}):
        warnings.append(f"{obstacle.text}, so the models allow no conclusion")
    if repeated := [f"{name} {times} times" for name, times in test_evaluations.items() if times > 1]:
        warnings.append(
            f"weights that have been tested more than once, this comparison included: {', '.join(repeated)}"
        )
    return list(dict.fromkeys(warnings))


def _configs(members: Mapping[str, ComparisonEntry]) -> dict[str, dict[str, Any]]:
    """Settings of each group except the seed; none of a group whose settings are unknown."""
    return {name: {k: v for k, v in m.config.items() if k != "seed"} for name, m in members.items() if m.config}


def differing_settings(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings that are not the same in all configs: by dotted name, the value of each config."""
    flat = {name: flatten_settings(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flat.values() for key in config)
    values = {key: {name: config.get(key, ABSENT) for name, config in flat.items()} for key in keys}
    return {key: row for key, row in values.items() if any(value != next(iter(row.values())) for value in row.values())}


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _unfair_settings(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    sentences = []
    for start, sentence in UNFAIR_DIFFERENCES.items():
        results = [
            f"{setting} ({', '.join(f'{name} {value}' for name, value in values.items())})"
            for setting, values in settings.items()
            if f"{setting}.".startswith(f"{start}.")
        ]
        sentences += [f"{sentence}: {'; '.join(results)}"] if results else []
    return sentences


def _seed_warnings(groups: Mapping[str, Sequence[ComparisonEntry]]) -> list[str]:
    seeds = {
        name: sorted("unknown" if member.seed is None else str(member.seed) for member in members)
        for name, members in groups.items()
    }
    if len({*map(tuple, seeds.values())}) > 1:
        by_group = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in seeds.items())
        return [f"they were trained with different seeds, so they are not paired: {by_group}"]
    subsets = {
        (member.seed, member.subset) for members in groups.values() for member in members if member.subset is not None
    }
    differing = sorted(str(seed) for seed, times in Counter(seed for seed, _ in subsets).items() if times > 1)
    return [f"with seed {', '.join(differing)} they were trained on different subsets"] if differing else []
