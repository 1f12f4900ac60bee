"""Made-up results of experiments, without training."""

import numpy as np

from tests.results import changed, make_result
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.runs.result import RunResult

PLAN = AnalysisPlan(
    seeds=(0, 1, 2), models=("a", "b"), train_sizes=(7, 11), size=11, pair=("b", "a"), equivalence_margin=1.0
)


def seeded(accuracies: dict[str, dict[int, float]], *, seeds=3, images=1009, spread=0.002, **values) -> list[RunResult]:
    """Results of several seeds around given accuracies, without predictions."""
    rng = np.random.default_rng(7)

    def result(model, size, seed, mean):
        accuracy = float(np.clip(mean + spread * rng.standard_normal(), 0, 1))
        return make_result(model=model, train_size=size, seed=seed, accuracy=accuracy, scored_images=images, **values)

    places = [(model, size, mean) for model, row in accuracies.items() for size, mean in row.items()]
    return [result(model, size, seed, mean) for model, size, mean in places for seed in range(seeds)]


def with_predictions(results: list[RunResult]) -> tuple[list[RunResult], dict[str, np.ndarray]]:
    """Results with accuracies rounded to whole images, and the correctness of predictions with these accuracies."""
    ease = np.random.default_rng(5).random(results[0].scores.scored_images)
    correct = {
        r.run: (score := ease + np.random.default_rng([i]).normal(0, 0.1, len(ease))) < np.quantile(score, r.accuracy)
        for i, r in enumerate(results)
    }
    return [changed(r, accuracy=float(correct[r.run].mean())) for r in results], correct


def budget_grid(accuracies: dict[tuple[str, int], float], *, macs=None, seeds=5, **values) -> list[RunResult]:
    """Results of models with numbers of steps as budgets, with one image in a step."""
    found = []
    for (model, steps), accuracy in accuracies.items():
        costs = {"steps": steps, "images_processed": steps, "macs": (macs or {}).get(model, 100)}
        costs["budget"] = f"{steps} steps"
        runs = seeded({model: {1009: accuracy}}, seeds=seeds, images=5003, spread=0.001, **costs | values)
        found += [changed(r, run=f"{model}-{steps}-{r.seed}") for r in runs]
    return found


def law_table(sizes, **laws) -> dict[str, dict[int, float]]:
    """Accuracies of models that follow err = e^a n^-b + c, given as (a, b, c)."""
    return {name: {n: float(1 - np.exp(a) * float(n) ** -b - c) for n in sizes} for name, (a, b, c) in laws.items()}
