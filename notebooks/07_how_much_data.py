# %% [markdown]
# # 7. How much data?
#
# "CNNs need less data" is a statement about a *curve*, and it depends on how the curve was measured.
#
# **What you will learn**
#
# - How to set up a fair comparison: nested subsets, paired seeds, several sizes and budgets.
# - How to read learning curves, and why a single curve is not enough.
# - How several sizes make up for few seeds, and how often three seeds mislead.
# - What multiple comparisons, optional stopping and power mean for networks.
#
# **You need** notebook 5 (one training), and a little statistics (Student's t).
#
# **From the package:** `train`, `nested_subsets`, `vit_vs_cnn.statistics`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import stats

import vit_vs_cnn as vc
from vit_vs_cnn.analysis.measurements import failed_to_learn
from vit_vs_cnn.data.subsets import nested_subsets
from vit_vs_cnn.reporting.style import SERIES_COLOURS, assign_styles
from vit_vs_cnn.statistics.mean_distribution import SeedScores, difference_over_seeds
from vit_vs_cnn.statistics.significance import fisher_exact
from vit_vs_cnn.statistics.variance import pool_seed_variance

# %% [markdown]
# ## Which images?
#
# A size alone does not define a training set: you must also choose *which* images. Three rules make sizes and
# networks comparable.
#
# - **Stratified:** each class has the same share at every size, so that small sets are not imbalanced as well.
# - **Nested:** a smaller set is a part of the larger one, so that a larger set has *more* images and not just *other*
#   images.
# - **Paired design:** seed $s$ gives both networks the same set (and the same batches), so that a lucky choice of
#   images helps both.
#
# By hand for 4 classes: shuffle each class, then take one image of each class in turn. Every prefix of this order is
# a subset.

# %%
labels = torch.arange(4).repeat_interleave(30)  # 120 images
generator = torch.Generator().manual_seed(0)
by_class = [torch.where(labels == c)[0][torch.randperm(30, generator=generator)] for c in range(4)]
order = torch.stack(by_class, dim=1).flatten()  # one of each class, again and again
print([labels[order[:n]].bincount().tolist() for n in (8, 20, 60)])

# %% [markdown]
# The package does this for classes of any size. The seed determines the order:

# %%
uneven = torch.cat([torch.zeros(80), torch.ones(30), torch.full((10,), 2)]).long()
figure, axes = plt.subplots(1, 2, figsize=(8, 1.8), layout="constrained", sharey=True)
for seed, axis in enumerate(axes):
    subsets = nested_subsets(uneven, [12, 24, 60, 120], seed=seed)
    shown = torch.full((4, 120), float("nan"))
    for row, chosen in enumerate(subsets.values()):
        shown[row, chosen] = uneven[chosen].float()
    axis.imshow(shown, aspect="auto", cmap="viridis", interpolation="nearest")
    axis.set(title=f"seed {seed}", xlabel="image (colour: its class)", yticks=range(4), yticklabels=subsets)

# %% [markdown]
# Rows are sizes. Each row contains the images of the row above, and the shares of the colours stay the same. Another
# seed chooses other images.
#
# ## A tiny experiment
#
# A whole experiment trains each network with each size, each budget and each seed:
#
# ![Nested training sets of several sizes, each for several seeds, train both networks with one budget of steps; both
# are tested once on the same test set](../docs/static/drawings/experiment.svg)
#
# The **budget** is often forgotten: with a fixed number of steps, each image of a larger set is used less often. We
# train two sizes, one budget and two seeds on synthetic images: eight runs, in about 40 seconds.

# %% tags=["parameters"]
SIZES = [100, 1600]
STEPS = [100]
SEEDS = [0, 1]
TEST_IMAGES = 500
SIMULATIONS = 20_000

# %% tags=["numbers-vary"]
settings = {
    "name": "regimes",
    "protocol.train_sizes": SIZES,
    "protocol.seeds": SEEDS,
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 32,
    "models.vit.options.embed_dim": 64,
    "data.synthetic": {"train_images": max(SIZES), "test_images": TEST_IMAGES, "image_size": 32},
    "executor": "local",
    "trainer": {"accelerator": "cpu", "logger": False},
}
print(f"training 2 networks x {len(SIZES)} sizes x {len(SEEDS)} seeds", flush=True)
experiment = vc.train("quickstart", settings, quiet=True)
frame = experiment.frame()
frame.groupby(["train_size", "model"])["accuracy"].mean().unstack().round(3)

# %% [markdown]
# The difference is large, at least with more images. The answer still gives no conclusion:

# %% tags=["words-vary"]
print(experiment.answer)

# %% [markdown]
# **Why is a difference of tens of points no conclusion?** With two seeds the standard deviation of the difference has
# one degree of freedom. The 97.5 % quantile of Student's t is then 12.7, and with three seeds it is 4.3. Two seeds can
# agree by chance, and then their interval is far too narrow. So the package has a *rule of three seeds*: below three,
# it prints the interval and draws no conclusion. The cure is a third seed, not a larger difference. An interval that ends
# beyond 100 points, which no difference can exceed, is printed as "or more".
#
# The answer also advises to train longer: 100 steps of 32 images show each of 1,600 images about twice.

# %%
for seeds in (2, 3, 5, 10):
    print(f"{seeds} seeds: t quantile {stats.t.ppf(0.975, seeds - 1):.1f}")

# %% [markdown]
# ## Was it the data or the steps?
#
# The next curves are recorded: CIFAR-10 with 400 and with 1,600 steps, means of three seeds
# (`results/regimes_surface_cpu` in the repository).

# %%
BUDGET_SIZES = [500, 2000, 10000, 50000]
RECORDED_BUDGETS = {
    ("resnet", 400): [0.446, 0.616, 0.660, 0.663],
    ("resnet", 1600): [0.477, 0.658, 0.779, 0.798],
    ("vit", 400): [0.353, 0.477, 0.544, 0.549],
    ("vit", 1600): [0.346, 0.479, 0.679, 0.709],
}
styles = assign_styles(["resnet", "vit"])  # the colours of every report
titles = {"resnet": "ResNet-8", "vit": "ViT nano"}
figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
axes[0].set_ylabel("test accuracy")
for axis, (model, title) in zip(axes, titles.items(), strict=True):
    for steps, line in ((1600, "-"), (400, "--")):
        accuracies = RECORDED_BUDGETS[model, steps]
        axis.semilogx(BUDGET_SIZES, accuracies, line, marker="o", color=styles[model].colour, label=f"{steps:,} steps")
    axis.set(xlabel="labelled images", title=title, xticks=BUDGET_SIZES, xticklabels=BUDGET_SIZES)
    axis.minorticks_off()
    axis.legend(frameon=False)

# %% [markdown]
# Look at the two curves of each network before you compare the networks. With 400 steps (dashed) both are flat from
# 10,000 images on, with 1,600 steps (solid) they still rise: there the *steps* were the limit, not the data. With 500
# images the two curves are close: there the data are the limit. A single curve over $n$ cannot show this.
#
# ## Real curves
#
# From here on we use a recorded experiment on CIFAR-10: ResNet-8 (0.08M parameters) and the nano ViT (0.14M), both
# from scratch. Each run has 400 steps of 128 images. There are five sizes, three seeds and 10,000 test images
# (`results/regimes_cpu` in the repository; the recipes were chosen at n = 5,000). These are all of its accuracies:

# %%
RECORDED = {
    "resnet": {
        500: [0.4516, 0.469, 0.4528],
        1000: [0.5259, 0.5401, 0.5464],
        2500: [0.6382, 0.637, 0.6366],
        5000: [0.6552, 0.6651, 0.6552],
        10000: [0.6675, 0.6709, 0.6658],
    },
    "vit": {
        500: [0.3564, 0.3541, 0.3372],
        1000: [0.4118, 0.4076, 0.4008],
        2500: [0.5087, 0.5075, 0.4941],
        5000: [0.5399, 0.5412, 0.5218],
        10000: [0.5435, 0.5538, 0.5422],
    },
}
sizes = list(RECORDED["vit"])
accuracy = {name: np.array(list(by_size.values())) for name, by_size in RECORDED.items()}  # (sizes, seeds)


# %%
def interval(values):
    """Mean and half of the 95 % interval over seeds: t s / sqrt(k)."""
    count = values.shape[-1]
    half = stats.t.ppf(0.975, count - 1) * values.std(axis=-1, ddof=1) / np.sqrt(count)
    return values.mean(axis=-1), half


figure, axes = plt.subplots(1, 2, figsize=(8.5, 3), layout="constrained")
for name, values in accuracy.items():
    mean, half = interval(values)
    axes[0].errorbar(sizes, mean, half, fmt="o-", capsize=3, color=styles[name].colour, label=titles[name])
gap, half = interval(accuracy["resnet"] - accuracy["vit"])
axes[1].errorbar(sizes, 100 * gap, 100 * half, fmt="ko-", capsize=3)
for axis, title in zip(axes, ("accuracy", "ResNet minus ViT, points"), strict=True):
    axis.set(xscale="log", xticks=sizes, xticklabels=sizes, xlabel="labelled images", title=title)
    axis.minorticks_off()
axes[1].set_ylim(0, 20)
axes[0].legend(frameon=False)
print({n: f"{g:.1f} +- {h:.1f}" for n, g, h in zip(sizes, 100 * gap, 100 * half, strict=True)})

# %% [markdown]
# Left: accuracies with 95 % intervals over three seeds. Right: their difference. It is about the same at every size,
# and no interval contains zero: the ResNet is better. "Attention catches up with more data" is not visible
# here, up to 10,000 images and with 400 steps.
#
# ## Three seeds at five sizes
#
# With three seeds the standard deviation $s$ of the differences has 2 degrees of freedom, and the interval is
# $\pm 4.3\, s / \sqrt 3$. But there are five sizes, and the seeds' differences vary about equally at all of them. So the
# package *pools* $s^2$ over the sizes: 10 degrees of freedom, $\pm 2.2\, s / \sqrt 3$. A size that varies more than the
# pooled estimate keeps its own variance.

# %%
differences = dict(zip(sizes, accuracy["resnet"] - accuracy["vit"], strict=True))
for n, values in differences.items():
    variance = pool_seed_variance(differences, n)
    own = 100 * interval(values)[1]
    pooled = 100 * stats.t.ppf(0.975, variance.degrees_of_freedom) * np.sqrt(variance.variance / 3)
    print(f"n = {n:6,}: {100 * values.mean():.1f} points, +- {own:.1f} with its own variance, +- {pooled:.1f} pooled")

# %% [markdown]
# ## How often do three seeds mislead?
#
# Let two networks be *equal*: each has an accuracy of 60 % with noise of one point. A 95 % interval should exclude
# zero in 5 % of experiments. Does it?

# %%
rng = np.random.default_rng(0)


def excludes_zero(differences):
    mean, half = interval(differences)
    return np.abs(mean) > half


noise = rng.normal(0, 1, (SIMULATIONS, 5, 3))  # differences in points: experiments, sizes, seeds
false = excludes_zero(noise)
print(f"false claims at one size: {false[:, 0].mean():.1%}; at one or more of five sizes: {false.any(1).mean():.1%}")

# %% [markdown]
# One comparison is fine. The claim "there is a size at which the ViT is better" is false more than four times as
# often, because it rests on five comparisons. This is the problem of **multiple comparisons**. So the package tests one
# *primary* comparison, which is fixed in advance, and adjusts all others for multiple comparisons (Holm).
#
# ## Unstable training
#
# The interval also assumes that accuracies vary over seeds like a normal distribution. This is not always true for
# small transformers: on some tasks a run either learns or stays at chance. Let 80 % of the runs of network B reach 65
# %, and the others 10 %, which is chance. Its mean accuracy is 54 %. Network A always reaches 60 %.

# %%
A = rng.normal(60, 1, (SIMULATIONS, 3))
B = np.where(rng.random((SIMULATIONS, 3)) < 0.8, 65.0, 10.0) + rng.normal(0, 1, (SIMULATIONS, 3))
print(
    f"B is called significantly better in {(excludes_zero(B - A) & ((B - A).mean(1) > 0)).mean():.0%} of experiments with three seeds"
)

# %%
figure, axis = plt.subplots(figsize=(5.5, 2.4), layout="constrained")
axis.set(xlabel="experiment (three seeds of B each)", ylabel="accuracy of B, %", title="filled: B 'better'")
axis.axhline(60, color="grey", linewidth=0.8)
for column, three in enumerate(B[:24]):
    is_better = excludes_zero(three - A[column]) and three.mean() > 60
    face = SERIES_COLOURS[0] if is_better else "none"
    axis.plot([column] * 3, three, "o", color=SERIES_COLOURS[0], markerfacecolor=face, markersize=4)

# %% [markdown]
# Each column is one experiment, and the grey line is the accuracy of A. Columns with a point at 10 % have a failed run.
# In about half of the experiments all three seeds succeed, and B looks better by five points, with a narrow interval.
# This is correct for runs that learn, but it hides that one run in five fails. How large can the failure rate be if
# no seed failed? We print the failure rate at which the probability of no failure is 5 %:

# %%
print({seeds: f"{1 - 0.05 ** (1 / seeds):.0%}" for seeds in (3, 5, 10, 20)})

# %% [markdown]
# If some runs of a network fail and others succeed, the package does not compare means. It counts the failed runs,
# those at chance, and compares the counts with Fisher's exact test. Eight runs are too few for this test as well:

# %%
runs = np.array([0.65, 0.64, 0.66, 0.10, 0.65, 0.11, 0.09, 0.64])
failed = int(failed_to_learn(runs, 0.1, 1000).sum())  # chance is 10 %, with 1,000 test images
print(f"{failed} of 8 runs failed; against 0 of 8, Fisher's exact test: p = {fisher_exact(failed, 8, 0, 8):.2f}")

# %% [markdown]
# ## Paired or not?
#
# Seed $s$ gives both networks the same subset. An easy subset raises both accuracies. This variation cancels in the
# **differences**, so the paired interval does not contain it. The unpaired interval, which treats the two as
# independent, does. In this simulation subsets change both accuracies by 2 points, each network varies by another 0.5
# points, and the true gap is 1 point.

# %%
common = rng.normal(0, 2, (SIMULATIONS, 5))
first, second = (common + gap + rng.normal(0, 0.5, common.shape) for gap in (1.0, 0.0))
paired_mean, paired = interval(first - second)
unpaired = stats.t.ppf(0.975, 8) * np.sqrt((first.var(1, ddof=1) + second.var(1, ddof=1)) / 5)
for name, half in (("paired", paired), ("unpaired", unpaired)):
    power, coverage = (paired_mean > half).mean(), (np.abs(paired_mean - 1) < half).mean()
    print(
        f"{name}: +-{half.mean():.1f} points; detects the gap in {power:.0%}; contains the true gap in {coverage:.0%}"
    )

# %% [markdown]
# Both contain the true gap in 95 % of experiments or more. The unpaired interval is far too wide: it includes noise
# that pairing removes. The share of experiments in which a true gap is detected is the **power** of a test: here the
# paired design has much more of it, with the same networks and the same time.
#
# The package also includes the uncertainty from the test images. Here only accuracies are known, so the uncertainties
# of both networks are added as if they were independent. With the predictions for each image the interval is narrower
# (10.7 to 13.6).

# %%
row = sizes.index(10000)
scores = [SeedScores(accuracy[name][row], np.full(3, 10_000)) for name in ("resnet", "vit")]
estimate = difference_over_seeds(*scores, seed_variance=pool_seed_variance(differences, 10000))
gap = estimate.interval()
print(f"{100 * gap.value:.1f} points ({100 * gap.low:.1f} to {100 * gap.high:.1f}), p = {estimate.p_value:.2g}")

# %% [markdown]
# ## In short
#
# - Compare networks on nested subsets with paired seeds, at several sizes and more than one budget.
# - A flat curve can mean "enough data" or "too few steps": a second budget decides.
# - Fewer than three seeds: no conclusion, however large the difference. Pooling over sizes narrows the interval.
# - Multiple comparisons and optional stopping create false claims: fix the primary comparison and the seeds first.
# - Runs that fail are counted, not averaged.
#
# ## Exercises
#
# **1. Adding seeds until the result is significant.** This is **optional stopping**. Take two equal networks. Start with
# three seeds and add one at a time, up to ten. Stop as soon as the interval excludes zero. How often do you stop falsely?

# %% tags=["solution", "hide-cell"]
noise = rng.normal(0, 1, (SIMULATIONS, 10))
stopped = np.zeros(SIMULATIONS, dtype=bool)
for seeds in range(3, 11):
    stopped |= excludes_zero(noise[:, :seeds])
assert stopped.mean() > 0.05
print(f"{stopped.mean():.0%} instead of 5 %: plan the number of seeds before you see results (protocol.seeds)")

# %% [markdown]
# **2. How many seeds for which gap?** The noise of a difference is 1 point. How often do 3 and 5 seeds detect a gap
# of 1, 2 and 4 points?

# %% tags=["solution", "hide-cell"]
for seeds in (3, 5):
    power = {gap: excludes_zero(gap + rng.normal(0, 1, (SIMULATIONS, seeds))).mean() for gap in (1, 2, 4)}
    print(seeds, "seeds:", {gap: f"{share:.0%}" for gap, share in power.items()})
    assert power[1] < power[2] < power[4]

# %% [markdown]
# **3. Extrapolation.** Fit $\mathrm{err} = a\, n^{-b}$ to the ResNet's first three sizes and predict the last two.
# Why is the prediction wrong?

# %% tags=["solution", "hide-cell"]
errors = 1 - accuracy["resnet"].mean(1)
slope, start = np.polyfit(np.log(sizes[:3]), np.log(errors[:3]), 1)
for n, error in zip(sizes[3:], errors[3:], strict=True):
    print(f"n = {n:,}: predicted {1 - np.exp(start + slope * np.log(n)):.1%}, measured {1 - error:.1%}")
assert 1 - np.exp(start + slope * np.log(10000)) > 1 - errors[-1]  # the prediction is too high
# The power law does not include the limit of 400 steps, which flattens the curve. So the package forecasts only up to twice
# the largest size, and only from at least four sizes.

# %% [markdown]
# **Open questions** (without a solution)
#
# 1. A paper reports the best of five seeds for its own network and the mean of five seeds for the other one. By how much
#    does this favour the first, if the standard deviation over seeds is one point? Estimate it, then simulate it.
# 2. You have time for twelve runs. Would you spend them on seeds, sizes or budgets, if the question is "which network
#    for my 3,000 images"? And if it is "do more images help"?
#
# **Next:** [where does it look?](08_where_does_it_look.ipynb) We know how reliable a comparison is. What do the networks
# look at, and how can you check whether a map is correct?
