# %% [markdown]
# # 1. From averaging to attention
#
# **What you will learn**
#
# - How to predict by a weighted mean of observed values (Nadaraya and Watson, 1964).
# - How to choose the kernel's bandwidth without overfitting.
# - Why scaled dot-product attention, that of most Transformers, is such a mean with one particular kernel.
#
# **You need** tensors and broadcasting in PyTorch, gradient descent, and [notebook 0](00_why_attention.ipynb).
#
# **From the package:** `KernelRegression`, `log_kernel`, `masked_softmax`, `ScoredAttention`, `KernelScore` and
# `scaled_dot_product_attention`, all in `vit_vs_cnn.attention`.

# %%
import matplotlib.pyplot as plt
import torch

from vit_vs_cnn.attention import (
    KernelRegression,
    KernelScore,
    ScoredAttention,
    log_kernel,
    masked_softmax,
    scaled_dot_product_attention,
)
from vit_vs_cnn.reporting.style import COLOUR_MAP, COLOURS

# %% [markdown]
# ## The question
#
# We have 50 observed pairs $(k_i, v_i)$: at position $k_i$ the value $v_i$ was measured, with noise. What is the
# value at a new position $q$?
#
# From here on the new position is the **query**, the observed positions are the **keys**, and the values measured
# there are the **values**.

# %%
generator = torch.Generator().manual_seed(0)


def truth(x):
    return 2 * x.sin() + x**0.8


keys = (5 * torch.rand(50, generator=generator)).sort().values
values = truth(keys) + 0.5 * torch.randn(50, generator=generator)
queries = torch.linspace(0, 5, 100)

# %%
figure, axis = plt.subplots(figsize=(7, 3))
axis.plot(keys, values, "o", color="grey", markersize=4, label="observed: (key, value)")
axis.plot(queries, truth(queries), "--", color="black", label="truth, unknown to us")
axis.axhline(values.mean(), color=COLOURS[0], label="mean of all values")
axis.set(xlabel="x", ylabel="y", ylim=(-1.5, 5.8))
axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1))
plt.tight_layout()

# %% [markdown]
# The mean of all values is a poor answer: it ignores the query. A value that was measured *near* the query should
# count more.
#
# ## By hand, in numbers
#
# Take four pairs and one query. A **kernel** measures how near a key is to the query. The Gaussian kernel is $K(u) =
# e^{-u^2/2}$ with $u = (q - k)/h$. We divide its values by their sum to get weights: positive numbers that sum to
# one.

# %%
few_keys, few_values = torch.tensor([1.0, 2.0, 3.0, 5.0]), torch.tensor([10.0, 20.0, 30.0, 50.0])
q, h = 2.5, 1.0

u = (q - few_keys) / h
heights = (-(u**2) / 2).exp()
weights = heights / heights.sum()
print("u          ", u.numpy())
print("heights    ", heights.numpy().round(3))
print("weights    ", weights.numpy().round(3))
print("prediction ", round((weights @ few_values).item(), 2))

# %% [markdown]
# The keys 2 and 3 are equally near and share most of the weight. Key 5 hardly counts. This is the whole idea:
#
# $$f(q) = \sum_i w_i(q)\, v_i, \qquad w_i(q) = \frac{K\big((q - k_i)/h\big)}{\sum_j K\big((q - k_j)/h\big)}$$
#
# For many queries at once the weights are a matrix: **one row for each query, one column for each key**, each row with
# sum one. The prediction is then a product of matrices. (To predict classes, take one-hot vectors as values. The
# prediction is then a share for each class.)

# %%
h = 0.5
heights = (-(((queries[:, None] - keys[None, :]) / h) ** 2) / 2).exp()
weights = heights / heights.sum(dim=1, keepdim=True)
by_hand = weights @ values

print("weights", tuple(weights.shape), "predictions", tuple(by_hand.shape))
assert torch.allclose(weights.sum(dim=1), torch.ones(100))

# %% [markdown]
# ## With the package
#
# `KernelRegression` does the same. It accepts keys and queries with any number of dimensions, so ours get a last axis
# of size one.

# %%
regression = KernelRegression("gaussian", bandwidth=0.5).fit(keys[:, None], values)
print("largest difference:", (regression.predict(queries[:, None]) - by_hand).abs().max().item())
assert torch.allclose(regression.predict(queries[:, None]), by_hand, atol=1e-5)

# %% [markdown]
# ## Other kernels
#
# The Gaussian is positive everywhere. The other three kernels are zero beyond a distance of one bandwidth: such keys
# get no weight.

# %%
KERNELS = ("gaussian", "box", "triangle", "epanechnikov")
distances = torch.linspace(-2.5, 2.5, 501)

figure, axes = plt.subplots(1, 4, figsize=(9, 2), sharey=True)
for axis, kernel, colour in zip(axes, KERNELS, COLOURS, strict=False):
    heights = log_kernel(distances[:, None], torch.zeros(1, 1), kernel=kernel, bandwidth=1.0).exp()[:, 0]
    axis.fill_between(distances, heights, alpha=0.25, color=colour)
    axis.plot(distances, heights, color=colour)
    axis.set(title=kernel, xlabel="u = (q - k) / h")
axes[0].set_ylabel("K(u)")
plt.tight_layout()

# %% [markdown]
# The box counts all keys within the bandwidth equally. The other two fall to zero towards its edge, and the Gaussian
# never reaches zero.
#
# Next, above: the prediction of each kernel. Below: its weights as a heat map. Rows are queries and columns are keys,
# both sorted. So a bright band runs along the diagonal: each query gives weight to the keys around it. (Dark is zero,
# yellow is 0.12 or more.)

# %%
figure, axes = plt.subplots(2, 4, figsize=(9, 4.6), sharey="row")
for (above, below), kernel in zip(axes.T, KERNELS, strict=True):
    regression = KernelRegression(kernel, 0.5 if kernel == "gaussian" else 1.0).fit(keys[:, None], values)
    above.plot(keys, values, "o", color="grey", markersize=2)
    above.plot(queries, truth(queries), "--", color="black", linewidth=1)
    above.plot(queries, regression.predict(queries[:, None]), color=COLOURS[1])
    above.set(title=f"{kernel}, h = {regression.bandwidth.item():.1f}", xlabel="x")
    below.imshow(regression.attention_weights(queries[:, None]).detach(), cmap=COLOUR_MAP, aspect="auto", vmax=0.12)
    below.set_xlabel("key")
axes[0, 0].set_ylabel("y")
axes[1, 0].set_ylabel("query")
plt.tight_layout()

# %% [markdown]
# The curves are similar. That of the box kernel is rugged, because a key that leaves the window loses its weight all
# at once. The choice of the kernel matters less than the choice of its width.
#
# ## How wide? The bandwidth
#
# If the kernel is too narrow, the curve follows the noise. If it is too wide, the curve is the mean of all values
# again.

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for axis, h in zip(axes, (0.03, 0.3, 3.0), strict=True):
    axis.plot(keys, values, "o", color="grey", markersize=3)
    axis.plot(queries, truth(queries), "--", color="black", linewidth=1)
    regression = KernelRegression("gaussian", h).fit(keys[:, None], values)
    axis.plot(queries, regression.predict(queries[:, None]), color=COLOURS[1])
    axis.set(title=f"h = {h}", xlabel="x")
axes[0].set_ylabel("y")
plt.tight_layout()

# %% [markdown]
# The narrow kernel runs through nearly every point: it *overfits*. The wide one ignores the query and underfits.
#
# Can we choose $h$ by the error on the observed pairs? No: as $h$ falls, each key puts all of its weight on itself
# and reproduces its own noise with zero error. The solution is **leave-one-out**: predict $v_i$ from all pairs except
# the $i$-th. In the weight matrix this masks the diagonal. It is the first mask of this course.


# %%
def weights_of(h, mask=None):
    scores = -(((keys[:, None] - keys[None, :]) / h) ** 2) / 2
    return masked_softmax(scores, mask)


off_diagonal = ~torch.eye(50, dtype=torch.bool)
bandwidths = torch.logspace(-1.5, 0.5, 41)
observed_errors = torch.stack([(weights_of(h) @ values - values).square().mean() for h in bandwidths])
leave_one_out_errors = torch.stack(
    [(weights_of(h, off_diagonal) @ values - values).square().mean() for h in bandwidths]
)
best = bandwidths[leave_one_out_errors.argmin()].item()
print(f"smallest training error: h = {bandwidths[observed_errors.argmin()].item():.3f}, the smallest bandwidth tried")
print(f"smallest leave-one-out error: h = {best:.2f}")
assert observed_errors.argmin() == 0 < leave_one_out_errors.argmin() < 40

# %% [markdown]
# `masked_softmax(scores, mask)` is $e^{s_i} / \sum_j e^{s_j}$, where the sum runs over the positions where the mask
# is True. The score is the logarithm of the kernel. From here on we compute scores, and the softmax turns them into
# weights.

# %%
figure, axis = plt.subplots(figsize=(5, 3))
axis.semilogx(bandwidths, observed_errors, color=COLOURS[0], label="observed pairs")
axis.semilogx(bandwidths, leave_one_out_errors, color=COLOURS[1], label="leave-one-out")
axis.plot(best, leave_one_out_errors.min(), "o", color=COLOURS[1])
axis.set(xlabel="bandwidth h", ylabel="mean squared error")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# The error on the observed pairs falls towards zero as the bandwidth shrinks, so it cannot choose one. The leave-one-out
# error has a minimum (the dot): narrower kernels follow the noise, wider ones miss the shape of the curve.
#
# ## Learning the bandwidth
#
# A grid search is fine for one bandwidth. For several we use the gradient: the error is a smooth function of $h$, so
# $h$ is a parameter like any other. We optimise $\log h$, which keeps $h$ positive.

# %%
log_h = torch.zeros((), requires_grad=True)
optimizer = torch.optim.Adam([log_h], lr=0.1)
for _ in range(100):
    loss = (weights_of(log_h.exp(), off_diagonal) @ values - values).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

learned = KernelRegression("gaussian", 1.0, learn_bandwidth=True).fit(keys[:, None], values)
print(
    f"grid search {best:.2f}, gradient descent {log_h.exp().item():.2f}, KernelRegression {learned.bandwidth.item():.2f}"
)
assert abs(learned.bandwidth.item() - log_h.exp().item()) < 0.01

# %% [markdown]
# ## Learning what "near" means
#
# So far the keys were fixed. Now let a position have two coordinates, where only their sum matters, and the model
# does not know this. A plain kernel measures the distance in both coordinates. Instead we project queries and keys by
# one learned vector, $x \mapsto w \cdot x$, and measure the distance after the projection. The loss is again the
# leave-one-out error.
#
# For comparison, both coordinates get the same weight: 1, 2, 4, 8 or 16. Multiplying positions by a weight is the same
# as dividing the bandwidth by it.

# %%
positions = torch.randn(100, 2, generator=generator)
position_values = (2 * positions.sum(dim=1)).sin() + 0.1 * torch.randn(100, generator=generator)
off_diagonal = ~torch.eye(100, dtype=torch.bool)


def leave_one_out_error(w):
    projected = positions @ w
    scores = -(torch.cdist(projected, projected, compute_mode="donot_use_mm_for_euclid_dist") ** 2) / 2
    return (masked_softmax(scores, off_diagonal) @ position_values - position_values).square().mean()


# %%
w = torch.tensor([[2.0], [1.0]], requires_grad=True)
optimizer = torch.optim.Adam([w], lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    loss = leave_one_out_error(w)
    loss.backward()
    optimizer.step()
plain = min(leave_one_out_error(scale * torch.eye(2)).item() for scale in (1, 2, 4, 8, 16))
print(f"error: {plain:.3f} with equal weights (best of five bandwidths), {loss.item():.3f} with learned weights")
print("direction of the learned w:", (w / w.norm()).detach()[:, 0].numpy().round(2))

# %% [markdown]
# Both components of $w$ are nearly the same: the model has learned to use the sum. **A learned projection decides what
# counts as near.** Here queries and keys share it. Attention learns one projection for the queries, another for the
# keys and a third for the values (notebook 2).
#
# ## The exponential kernel is the scaled dot product
#
# Expand the square in the Gaussian kernel:
#
# $$e^{-|q - k|^2 / 2h^2} = e^{q \cdot k / h^2}\; e^{-|q|^2/2h^2}\; e^{-|k|^2/2h^2}$$
#
# The factor with $|q|^2$ is the same for all keys of a query, so it cancels when the weights are normalised. The factor
# with $|k|^2$ does not cancel. To drop it is a choice, which gives another kernel: any positive function of query and
# key gives weights. The **exponential kernel** $e^{q \cdot k/h^2}$ remains. With $h^2 = \sqrt d$, where $d$ is the
# number of dimensions, its weights are
#
# $$w_i(q) = \operatorname{softmax}_i\!\left(\frac{q \cdot k_i}{\sqrt d}\right)$$
#
# This is scaled dot-product attention. (Notebook 4c has attention with other kernels.) We compute it by hand, with the
# kernel, with the package's function and with torch's. `KernelScore` has $h^2 = \sqrt d$ by default:

# %%
q, k, v = torch.randn(3, 1, 1, 11, 16, dtype=torch.float64, generator=generator).unbind()

kernel = (q @ k.transpose(-2, -1) / 16**0.5).exp()
by_hand = kernel / kernel.sum(dim=-1, keepdim=True) @ v
by_kernel = ScoredAttention(KernelScore("exponential"))(q, k, v)
by_package = scaled_dot_product_attention(q, k, v)
by_torch = torch.nn.functional.scaled_dot_product_attention(q, k, v)
for name, output in {"kernel": by_kernel, "package": by_package, "torch": by_torch}.items():
    difference = (by_hand - output).abs().max().item()
    print(f"{name:8} {difference:.1e}")
    assert difference < 1e-12

# %% [markdown]
# If all keys have the same length, the factor with $|k|^2$ cancels, too. Then the Gaussian kernel gives the same
# weights. (A layer norm of the keys, without its learned weight and bias, makes their lengths nearly equal: notebook
# 4a.)

# %%
same_length = k / k.norm(dim=-1, keepdim=True)
gaussian = ScoredAttention(KernelScore("gaussian"))(q, same_length, v)
exponential = ScoredAttention(KernelScore("exponential"))(q, same_length, v)
assert torch.allclose(gaussian, exponential, atol=1e-12)
print((gaussian - exponential).abs().max().item() < 1e-12)

# %% [markdown]
# ## In short
#
# - Kernel regression is a weighted mean: the query is compared with keys, and the values are averaged.
# - A narrow kernel overfits, a wide one underfits. Leave-one-out masks the diagonal and chooses the bandwidth.
# - With learned projections, the model learns what "near" means.
# - Scores are logarithms of kernels, and the softmax normalises them.
# - The exponential kernel gives scaled dot-product attention.
#
# ## Exercises
#
# **1. The limits of the bandwidth.** What does the Gaussian regression predict as $h \to 0$, and as $h \to \infty$?
# Check both.

# %% tags=["solution", "hide-cell"]
narrow = KernelRegression("gaussian", 1e-4).fit(keys[:, None], values).predict(queries[:, None])
wide = KernelRegression("gaussian", 1e4).fit(keys[:, None], values).predict(queries[:, None])
nearest = values[(queries[:, None] - keys).abs().argmin(dim=1)]
assert torch.allclose(narrow, nearest), "the value of the nearest key"
assert torch.allclose(wide, values.mean()), "the mean of all"

# %% [markdown]
# **2. Leave-one-out with a loop.** Fit 50 regressions, each without one pair, and predict the missing pair. Is the
# result the same as with the masked diagonal (`regression.leave_one_out()`)?

# %% tags=["solution", "hide-cell"]
regression = KernelRegression("gaussian", 0.4).fit(keys[:, None], values)
predictions = []
for i in range(50):
    rest = torch.arange(50) != i
    regression_without_i = KernelRegression("gaussian", 0.4).fit(keys[rest, None], values[rest])
    predictions.append(regression_without_i.predict(keys[i : i + 1, None]))
assert torch.allclose(torch.cat(predictions), regression.leave_one_out(), atol=1e-5)

# %% [markdown]
# **3. No key is near.** What do the box and the Gaussian kernel predict at $q = 9$, far from all keys? Print the sum
# of the weights.

# %% tags=["solution", "hide-cell"]
far = torch.tensor([[9.0]])
for kernel in ("box", "gaussian"):
    regression = KernelRegression(kernel, 0.2).fit(keys[:, None], values)
    total = regression.attention_weights(far).sum().item()
    print(f"{kernel:9} weights sum to {total:.2f}, prediction {regression.predict(far).item():.2f}")
    assert abs(total - (kernel == "gaussian")) < 1e-6
print(f"value of the last key: {values[-1].item():.2f}")
# Every key is outside the box. All its weights are zero, and so is its prediction (0/0 would be NaN). The Gaussian is positive
# everywhere. Far away it predicts the value of the nearest key. Neither kernel reports that its prediction is unreliable.

# %% [markdown]
# **4. One bandwidth for each dimension.** `KernelRegression` accepts a bandwidth per dimension. Let the value depend
# on the first coordinate only, and learn both bandwidths. Which one grows, and what does that mean?

# %% tags=["solution", "hide-cell"]
position_values = (3 * positions[:, 0]).sin() + 0.1 * torch.randn(100, generator=generator)
regression = KernelRegression("gaussian", (0.5, 0.5), learn_bandwidth=True).fit(positions, position_values)
first, second = regression.bandwidth.tolist()
print(f"learned bandwidths: {first:.2f} and {second:.2f}")
assert second > 3 * first, "distances along the second coordinate count for next to nothing"

# %% [markdown]
# **Open questions** (without a solution)
#
# - **Far away.** Exercise 3 shows predictions far from all keys. How could the model report that they are
#   unreliable? Which quantity of the weights or the kernel would you use?
# - **One bandwidth for all?** Let the keys be dense in one region and sparse in another. How would you choose
#   the bandwidth for each query? Which step of attention could do this?
#
# **Next:** [scores and softmax](02_scores.ipynb), where queries, keys and values are computed from tokens, and where
# the $\sqrt d$ is explained.
