"""Grids of cells drawn from power laws whose crossing and data multiplier are known.

`python -m tests.regimes.synthetic` measures how often the 95 % intervals hold.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from tests.results import make_result
from vit_vs_cnn.regimes.comparison import comparisons
from vit_vs_cnn.regimes.crossing import crossings
from vit_vs_cnn.regimes.curves import learning_curve
from vit_vs_cnn.regimes.measurements import in_order, measurements_of
from vit_vs_cnn.regimes.multiplier import multipliers
from vit_vs_cnn.regimes.power_laws import fit_draws, models_for
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.measurements import Measurements
from vit_vs_cnn.statistics.resampling import Draws, Resamples


@dataclass(frozen=True)
class World:
    """Two contenders, and what varies between seeds and between images.

    A network is right on image i where z_i + noise exceeds a threshold, so that its expected accuracy is exactly the
    law's, plus the seed's. z_i is how easy the image is, for all networks; of the rest a part is common to the
    networks of one seed (they saw the same subset), and of the seed's effect a part is common to both contenders.

    Arguments:
        laws: (a, b, c) of err(n) = e^a n^-b + c for the CNN and the ViT.
        sizes: training sizes.
        seeds: of each.
        images: of the test set.
        subset_effect: standard deviation over seeds of accuracy, common to both contenders at all sizes.
        own_effect: the same, of each contender and size by itself.
    """

    laws: tuple[tuple[float, float, float], tuple[float, float, float]]
    sizes: tuple[int, ...] = (500, 1000, 2500, 5000, 10000)
    seeds: int = 3
    images: int = 1000
    subset_effect: float = 0.006
    own_effect: float = 0.008

    def error(self, contender: int, size: float) -> float:
        a, b, c = self.laws[contender]
        return float(np.exp(a) * size**-b + c)

    def crossing(self) -> float:
        """Where the two laws meet, by bisection."""
        gap = lambda x: self.error(0, np.exp(x)) - self.error(1, np.exp(x))  # noqa: E731
        return float(np.exp(optimize.brentq(gap, np.log(self.sizes[0]), np.log(self.sizes[-1]))))

    @property
    def meets(self) -> bool:
        """Whether the ViT overtakes the CNN within the range."""
        return self.error(0, self.sizes[0]) < self.error(1, self.sizes[0]) and self.error(
            0, self.sizes[-1]
        ) > self.error(1, self.sizes[-1])

    def size_for(self, contender: int, error: float) -> float:
        a, b, c = self.laws[contender]
        return float(((error - c) / np.exp(a)) ** (-1 / b))

    def draw(self, seed: int) -> tuple[list[RunResult], dict[str, np.ndarray]]:
        """Results and predictions of one grid."""
        rng = np.random.default_rng(seed)
        shape = (2, len(self.sizes), self.seeds)
        truth = np.array([[1 - self.error(c, n) for n in self.sizes] for c in (0, 1)])[:, :, None]
        effects = self.subset_effect * rng.standard_normal((1, 1, self.seeds))
        truth = truth + effects + self.own_effect * rng.standard_normal(shape)
        ease = rng.standard_normal(self.images, dtype=np.float32)
        common = rng.standard_normal((1, 1, self.seeds, self.images), dtype=np.float32)
        noise = rng.standard_normal((*shape, self.images), dtype=np.float32)
        z = np.sqrt(0.6) * ease + np.sqrt(0.1) * common + np.sqrt(0.3) * noise
        correct = z > stats.norm.ppf(1 - truth)[..., None]
        results, predictions = [], {}
        for c, i, s in np.ndindex(shape):
            result = make_result(
                contender=("cnn", "vit")[c],
                train_size=self.sizes[i],
                seed=s,
                accuracy=float(correct[c, i, s].mean()),
                scored_images=self.images,
                subset=f"{i}.{s}",
            )
            results.append(result)
            predictions[result.run] = correct[c, i, s]
        return results, predictions


#: Meet at 3,000 images: err = .63 and .80 at 500, .40 and .34 at 10,000.
PURE = World(laws=((0.4636, 0.15, 0.0), (1.5845, 0.29, 0.0)))
#: The same with floors: they meet at 3,900.
FLOORED = World(laws=((0.55, 0.24, 0.18), (2.6, 0.51, 0.22)))
#: The ViT never catches up.
APART = World(laws=((1.2, 0.28, 0.0), (0.9, 0.17, 0.0)))


def coverage(world: World, simulations: int, *, resamples: int = 1000, with_laws: bool = True) -> dict[str, float]:
    """The share of simulations whose 95 % interval holds what is true of the world."""
    held: dict[str, list[bool]] = {}
    for simulation in range(simulations):
        results, correct = world.draw(simulation)
        measured = measurements_of(in_order(results), correct)
        draws = Resamples(measured, count=resamples, seed=simulation).of(["cnn", "vit"])
        for name, true, low, high in _intervals(world, measured, results, draws, with_laws):
            held.setdefault(name, []).append((low is None or low <= true) and (high is None or true <= high))
    return {name: float(np.mean(values)) for name, values in held.items()}


def _intervals(
    world: World, measured: Measurements, results: list[RunResult], draws: Draws, with_laws: bool
) -> Iterator[tuple[str, float, float | None, float | None]]:
    """What is estimated, what is true, and the ends of the interval."""
    for comparison in comparisons(measured, results):
        true = world.error(1, comparison.size) - world.error(0, comparison.size)
        yield f"difference at {comparison.size}", true, comparison.difference.low, comparison.difference.high
    accuracy = learning_curve(measured, "cnn").points[0].accuracy
    yield "accuracy of the cnn at the least size", 1 - world.error(0, world.sizes[0]), accuracy.low, accuracy.high
    if world.meets:
        models = models_for(draws) if with_laws else []
        laws = {model: [fit_draws(draws, place, model) for place in (0, 1)] for model in models}
        for crossing in crossings(draws, laws):
            true = world.crossing() if crossing.overtaker == "vit" else np.nan
            yield f"crossing by {crossing.method}", true, crossing.low, crossing.high
    else:
        found = multipliers(draws, {})[0]
        true = world.size_for(1, world.error(0, world.sizes[0])) / world.sizes[0]
        yield "data multiplier", true, found.low, found.high


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    count = parser.parse_args().simulations
    for given in (PURE, FLOORED, APART):
        began = time.perf_counter()
        print(given)
        for what, share in coverage(given, count).items():
            print(f"  {what}: {100 * share:.1f} %", flush=True)
        print(f"  {time.perf_counter() - began:.0f} s")
