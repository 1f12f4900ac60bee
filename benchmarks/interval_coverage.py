"""How often the 95 % interval of a difference holds the truth where two contenders are equal, over simulated seeds.

    python -m benchmarks.interval_coverage --simulations 4000

A network is right on image i where ease_i + noise exceeds a threshold. Of the variance behind the threshold .6 is ease,
which all networks share, .1 is common to the networks of one seed (they saw one subset), and .3 each network's own. Of
the seeds' effects on accuracy one part is common to both contenders and one is each one's own.

Differences are judged as ``report`` and ``compare`` judge them (``statistics.verdict.compare_scores``): with equal
contenders the interval should leave zero out in 5 % of simulations. Beside it, what drawing seeds and then images with
replacement gives (the percentile bootstrap that is not used).
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from scipy import stats

from vit_vs_cnn.statistics.verdict import compare_scores


@dataclass(frozen=True)
class World:
    """Two equal contenders.

    Arguments:
        seeds: of each.
        images: of the test set.
        accuracy: of both.
        subset_effect: standard deviation over seeds of accuracy, common to both.
        own_effect: the same, of each contender by itself.
        paired: whether both have the same seeds; else each its own subsets.
    """

    seeds: int
    images: int = 1000
    accuracy: float = 0.7
    subset_effect: float = 0.01
    own_effect: float = 0.01
    paired: bool = True

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Whether each network is right on each image, ``(seeds, images)`` of both."""
        shape = (2, self.seeds, self.images)
        common = (1 if self.paired else 2, *shape[1:])
        z = np.sqrt(0.6) * rng.standard_normal(self.images) + np.sqrt(0.3) * rng.standard_normal(shape)
        z += np.sqrt(0.1) * rng.standard_normal(common)
        level = self.accuracy + self.subset_effect * rng.standard_normal((*common[:2], 1))
        level = np.clip(level + self.own_effect * rng.standard_normal((2, self.seeds, 1)), 1e-6, 1 - 1e-6)
        right = z > stats.norm.ppf(1 - level)
        return right[0], right[1]


WORLDS = (
    World(3),
    World(5),
    World(10),
    World(3, own_effect=0.0, subset_effect=0.0),
    World(3, own_effect=0.04),
    World(5, own_effect=0.04),
    World(3, images=100),
    World(5, images=10_000),
    World(3, accuracy=0.97),
    World(3, paired=False),
    World(5, paired=False),
)


def coverage(world: World, simulations: int, *, seed: int = 0) -> dict[str, float]:
    """Shares of simulations: the interval holds zero; a verdict is "ahead"; the percentile bootstrap holds zero."""
    rng = np.random.default_rng(seed)
    held, ahead, naive = 0, 0, 0
    for _ in range(simulations):
        first, second = world.draw(rng)
        found = compare_scores(("a", "b"), first, second, paired=world.paired)
        held += found.difference.low <= 0 <= found.difference.high
        ahead += found.verdict == "ahead"
        low, high = _percentile(rng, first, second, world.paired)
        naive += low <= 0 <= high
    return {"interval": held / simulations, "ahead": ahead / simulations, "bootstrap": naive / simulations}


def _percentile(
    rng: np.random.Generator, first: np.ndarray, second: np.ndarray, paired: bool, resamples: int = 300
) -> np.ndarray:
    """Seeds drawn with replacement, and images by themselves: images of one pattern are drawn at once."""
    seeds, count = first.shape
    patterns, times = np.unique(np.concatenate([first, second]), axis=1, return_counts=True)
    images = rng.multinomial(count, times / count, size=resamples) / count
    accuracy = images @ patterns.T.astype(float)
    ours = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    theirs = ours if paired else rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    drawn = (accuracy[:, :seeds] * ours).sum(1) - (accuracy[:, seeds:] * theirs).sum(1)
    return np.quantile(drawn, [0.025, 0.975])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=2000)
    simulations = parser.parse_args().simulations
    print(f"two equal contenders, {simulations} simulations of each world")
    for world in WORLDS:
        began = time.perf_counter()
        found = {name: f"{100 * share:.1f} %" for name, share in coverage(world, simulations).items()}
        told = ", ".join(f"{name} {value}" for name, value in vars(world).items())
        print(
            f"{told}: holds zero {found['interval']}, ahead {found['ahead']}; percentile bootstrap {found['bootstrap']}"
            f" ({time.perf_counter() - began:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
