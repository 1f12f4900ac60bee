"""What the trials of a contender may vary: its own search, or the space that all contenders share."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vit_vs_cnn.config.experiment import Contender, Experiment
from vit_vs_cnn.config.recipes import with_values
from vit_vs_cnn.data.options import decisive_augmentation
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.networks import build_network

#: By optimizer: peak learning rate and weight decay, each factor as likely as any other. Those of adamw contain what
#: Dosovitskiy et al. (ICLR 2021) and Touvron et al. (ICML 2021) train with, those of sgd He et al. (CVPR 2016), and the
#: rates of muon the 0.02 of Jordan et al. (2024).
RANGES = {
    "sgd": ((1e-2, 0.5), (1e-5, 1e-2)),
    "adamw": ((1e-4, 1e-2), (1e-3, 0.5)),
    "muon": ((1e-3, 1e-1), (1e-3, 0.5)),
}
#: Of RandAugment with two operations, besides the augmentation that is shared.
MAGNITUDES = (5.0, 10.0)
MOST_DROP_PATH = 0.3


@dataclass(frozen=True)
class SearchSpace:
    """What the trials of one contender vary.

    Arguments:
        search: lists and ranges by dotted names.
        lacks: settings of the shared space that its model does not have.
    """

    search: Mapping[str, Any]
    lacks: tuple[str, ...] = ()


def space_of(experiment: Experiment, name: str, pool: Pool) -> SearchSpace:
    """The space of a contender: its own search, or of ``tuning.space`` what its model has.

    Raises:
        InputError: its network cannot be built, or there is no space for its optimizer.
    """
    contender = experiment.contenders[name]
    if contender.search:
        return SearchSpace(contender.search)
    shared = experiment.tuning.space or _built_in(experiment, name)
    lacks = tuple(key for key in shared if key.startswith("model.") and not _has(experiment, name, key, shared, pool))
    return SearchSpace({key: given for key, given in shared.items() if key not in lacks}, lacks)


def _built_in(experiment: Experiment, name: str) -> dict[str, Any]:
    contender = experiment.contenders[name]
    optimizer = contender.optimizer.name
    if optimizer not in RANGES:
        raise InputError(
            f"contenders.{name}.optimizer: {optimizer} has no search space of its own ({', '.join(RANGES)} have); "
            f"set tuning.space, or contenders.{name}.search"
        )
    rates, decays = ({"low": low, "high": high, "log": True} for low, high in RANGES[optimizer])
    plain = decisive_augmentation(dataclasses.asdict(experiment.augmentation(contender)))
    stronger = [{**plain, "policy": "randaugment", "num_ops": 2, "magnitude": one} for one in MAGNITUDES]
    return {
        "optimizer.lr": rates,
        "optimizer.weight_decay": decays,
        "augmentation": [plain, *stronger],
        _drop_path(contender): {"low": 0.0, "high": MOST_DROP_PATH},
    }


def _drop_path(contender: Contender) -> str:
    """What drop path is called, where the model has it."""
    if "class_path" in contender.model:
        return "model.init_args.drop_path"
    return "model.drop_path_rate" if str(contender.model["name"]).startswith("timm/") else "model.drop_path"


def _has(experiment: Experiment, name: str, key: str, space: Mapping[str, Any], pool: Pool) -> bool:
    """Whether the model of a contender can be built with a setting of a space; without it, it must."""
    contender, where = experiment.contenders[name], f"contenders.{name}.model"
    given = space[key]
    value = given[0] if isinstance(given, list) else given["high"]
    shape = {"num_classes": pool.images.num_classes, "image_shape": pool.images.image_shape}
    build_network(contender.model, **shape, where=where, trust=experiment.trusted)
    try:
        changed = with_values(contender, {key: value}, where=where)
        build_network(changed.model, **shape, where=where, trust=experiment.trusted)
    except InputError:
        return False
    return True
