"""Results for the tests: made of numbers, with nothing trained."""

import numpy as np

from tests.results import changed, make_result
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.resampling import Draws, Resamples

SIZES = (5000, 12500, 25000, 37500, 50000)
#: github.com/trozki213/cnn-vit-cct-comparison: CIFAR-10, one seed, 150 epochs, percent.
PUBLISHED_PERCENT = {
    "CNN 4.9M": (79.80, 88.57, 92.18, 93.94, 94.91),
    "ViT 5.0M": (54.40, 68.28, 77.53, 82.43, 85.80),
    "CCT 5.3M": (70.47, 81.13, 86.55, 89.36, 90.84),
    "CNN .76M": (77.40, 83.41, 87.07, 88.28, 89.27),
    "ViT .76M": (53.73, 65.52, 74.08, 79.58, 82.60),
    "CCT .73M": (68.11, 79.19, 84.90, 87.62, 89.65),
}


def published(*contenders: str) -> list[RunResult]:
    """Results of the published table, of some contenders."""
    return [
        make_result(contender=name, train_size=size, accuracy=percent / 100, scored_images=10_000)
        for name in contenders
        for size, percent in zip(SIZES, PUBLISHED_PERCENT[name], strict=True)
    ]


def seeded(accuracies: dict[str, dict[int, float]], *, seeds=3, images=1009, spread=0.002, **values) -> list[RunResult]:
    """Results of several seeds around given accuracies, without predictions."""
    rng = np.random.default_rng(7)
    return [
        make_result(
            contender=contender,
            train_size=size,
            seed=seed,
            accuracy=float(np.clip(value + spread * rng.standard_normal(), 0, 1)),
            scored_images=images,
            **values,
        )
        for contender, row in accuracies.items()
        for size, value in row.items()
        for seed in range(seeds)
    ]


def law_table(sizes, **laws) -> dict[str, dict[int, float]]:
    """Accuracies of contenders that follow err = e^a n^-b + c, given as (a, b, c)."""
    return {name: {n: float(1 - np.exp(a) * float(n) ** -b - c) for n in sizes} for name, (a, b, c) in laws.items()}


def draws_of(results, *contenders, count=1000, correct=None) -> Draws:
    measured = measurements_of(in_order(results), correct)
    return Resamples(measured, count=count, seed=0).of(contenders or measured.contenders)


#: Validations of a run that is at its end long before that, and of one that is not.
SETTLED, RISING = (0.3, 0.5, 0.5, 0.5, 0.5), (0.1, 0.2, 0.3, 0.4, 0.5)


def validated(results, accuracies=SETTLED, *, images=50_000, steps=400) -> list[RunResult]:
    """The same results with a validation curve."""
    curve = [(steps * (i + 1) // 5, accuracy) for i, accuracy in enumerate(accuracies)]
    return [changed(r, validation_curve=curve, validation_images=images, steps=steps) for r in results]
