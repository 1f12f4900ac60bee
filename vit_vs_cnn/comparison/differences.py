"""Differences between the training of networks: settings side by side, and what makes a comparison unfair."""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_vs_cnn.comparison.entries import ComparisonEntry, group_entries
from vit_vs_cnn.experiments.recipe_care import describe_recipe_source, recipe_caveat
from vit_vs_cnn.mappings import flatten

#: Value of a setting that a network does not have.
ABSENT = "-"
#: Beginnings of the names of settings that must be equal in a comparison of two models.
FAIR_SETTINGS = ("train_size", "data", "budget", "batch_size", "model.augmentation", "model.ema_half_life")
FAIR_SETTINGS += ("trainer", "scored_on")


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


def unfair_differences(entries: Sequence[ComparisonEntry]) -> list[str]:
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
    warnings += [
        f"their training differs in {setting} ({', '.join(f'{name} {value}' for name, value in values.items())})"
        for setting, values in differing_settings(configs).items()
        if any(f"{setting}.".startswith(f"{start}.") for start in FAIR_SETTINGS)
    ]
    pairs = {name: {(m.seed, m.subset) for m in group} for name, group in groups.items() if name in configs}
    if any(of_group != next(iter(pairs.values())) for of_group in pairs.values()):
        warnings.append("their seeds or training images differ, so that only equal ones are paired")
    if caveat := recipe_caveat({name: [member.result for member in group] for name, group in groups.items()}):
        warnings.append(f"{caveat.text}, so the models allow no conclusion")
    return list(dict.fromkeys(warnings))


def _configs(members: Mapping[str, ComparisonEntry]) -> dict[str, dict[str, Any]]:
    """Settings of each group except the seed; none of a group whose settings are unknown."""
    return {name: {k: v for k, v in m.config.items() if k != "seed"} for name, m in members.items() if m.config}


def differing_settings(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings that are not the same in all configs: by dotted name, the value of each config."""
    flat = {name: flatten(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flat.values() for key in config)
    values = {key: {name: config.get(key, ABSENT) for name, config in flat.items()} for key in keys}
    return {key: row for key, row in values.items() if any(value != next(iter(row.values())) for value in row.values())}
