"""Caveats: what a reader of a comparison must know, from remarks to reasons that allow no conclusion."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class CaveatSeverity(IntEnum):
    """Effect of a caveat on conclusions; larger is worse."""

    INFORMS = 0  # no effect
    WEAKENS = 1  # the conclusion holds with less certainty
    BLOCKS = 2  # no conclusion is drawn
    INVALIDATES = 3  # accuracies themselves are wrong


class CaveatKind(StrEnum):
    """Subject of a caveat."""

    TOO_FEW_TEST_IMAGES = "too few test images"
    TOO_FEW_SEEDS = "too few seeds"
    UNPAIRED = "different seeds or subsets"
    UNFINISHED = "planned seeds are missing"
    UNPLANNED_SEEDS = "none of the planned seeds"
    UNPLANNED_BUDGET = "budget differs from the plan"
    PLAN_CHANGED = "analysis plan changed"
    TEST_SET_LOG = "test-set log"
    EARLIER_ANALYSES = "earlier analyses of the same question"
    VALIDATION_SCORES = "scored on validation images"
    TRAINED_ON_TEST_IMAGES = "test images were trained on"
    START_TRAINED_ON_TEST_IMAGES = "start weights were trained on test images"
    START_IMAGES_UNKNOWN = "training images of start weights unknown"
    PRETRAINING = "data and method of pretraining"
    WEIGHTS_MISSING = "pretrained weights missing"
    UNEQUAL_RECIPE_CARE = "recipes chosen with unequal care"
    DIFFERENT_RECIPE_SOURCES = "recipes from different sources"
    HAND_SET_RECIPES = "recipes set by hand"
    RECIPE_SENSITIVITY = "sensitivity to the recipe"
    STOPPED_EARLY = "stopped before the budget"
    UNSTABLE_TRAINING = "failed runs"
    NOTHING_LEARNED = "neither model has learned anything"
    FEW_CLASSES_PREDICTED = "few classes predicted"
    UNEQUAL_COMPUTE = "unequal compute"
    DIFFERENT_AUGMENTATION = "different augmentation"
    FEW_EPOCHS = "few epochs"
    MANY_EPOCHS_WEAK_AUGMENTATION = "many epochs with weak augmentation"
    SAME_STEPS_AT_ALL_SIZES = "same steps at all sizes"
    PREDICTIONS_UNREADABLE = "predictions unreadable"


@dataclass(frozen=True)
class Caveat:
    """Reason to doubt a comparison or an experiment.

    Arguments:
        text: a clause about a comparison ("their seeds differ"), or a sentence about an experiment.
    """

    kind: CaveatKind
    text: str
    severity: CaveatSeverity = CaveatSeverity.BLOCKS

    def __str__(self) -> str:
        return self.text
