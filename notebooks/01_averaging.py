# %% [markdown]
# # 1. From averaging to attention
#
# **At the end you know** how to predict by a weighted mean of what was seen (Nadaraya and Watson, 1964), what a kernel and its
# bandwidth do, how the bandwidth is found without fooling oneself, and why all of this *is* attention: with an exponential kernel
# it is, to twelve digits, the scaled dot-product attention of every Transformer.
#
# **You need** tensors and broadcasting in PyTorch, and gradient descent. No attention yet.
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
# We saw 50 pairs $(k_i, v_i)$: at the place $k_i$ the value $v_i$ was measured, with noise. What is the value at a new place $q$?
#
# From here on the new place is the **query**, the places seen are the **keys**, and what was measured there are the **values**.

# %%
generator = torch.Generator().manual_seed(0)


def truth(x):
    return 2 * x.sin() + x**0.8


keys = (5 * torch.rand(50, generator=generator)).sort().values
values = truth(keys) + 0.5 * torch.randn(50, generator=generator)
queries = torch.linspace(0, 5, 100)

# %%
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(keys, values, "o", color="grey", markersize=4, label="seen: (key, value)")
axis.plot(queries, truth(queries), "--", color="black", label="truth, which we do not know")
axis.axhline(values.mean(), color=COLOURS[0], label="mean of all values")
axis.set(xlabel="x", ylabel="y", ylim=(-1.5, 5.8))
axis.legend(fontsize=8, loc="lower left")
plt.tight_layout()

# %% [markdown]
# The mean of all values is an answer, and a poor one: it does not look at the query. A value that was measured *near* the query
# should count for more.
#
# ## By hand, in numbers
#
# Four pairs, one query. How near a key is, a **kernel** says; the Gaussian one is $K(u) = e^{-u^2/2}$ with $u = (q - k)/h$. The
# heights are divided by their sum, so that they become weights: positive, and one in total.

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
# The keys 2 and 3 are equally near and share most of the weight; key 5 hardly counts. This is the whole idea:
#
# $$f(q) = \sum_i w_i(q)\, v_i, \qquad w_i(q) = \frac{K\big((q - k_i)/h\big)}{\sum_j K\big((q - k_j)/h\big)}$$
#
# For many queries at once the weights are a matrix: **one row for each query, one column for each key**, each row with sum one.
# The prediction is then a product of matrices.

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
# `KernelRegression` does the same. Keys and queries may have any number of dimensions there, so ours get a last axis of size one.

# %%
regression = KernelRegression("gaussian", bandwidth=0.5).fit(keys[:, None], values)
print("largest difference:", (regression.predict(queries[:, None]) - by_hand).abs().max().item())
assert torch.allclose(regression.predict(queries[:, None]), by_hand, atol=1e-5)

# %% [markdown]
# ## Other kernels
#
# The Gaussian reaches everywhere. The other three end at a distance of one bandwidth: a key beyond it counts nothing.

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
# Above: what each kernel predicts. Below: its weights as a heat map. Rows are queries and columns are keys, both sorted, so a
# bright band runs along the diagonal: each query listens to the keys around it. (Dark is zero, yellow 0.12 and more.)

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
# The curves are much alike; the box's is rugged, because a key that leaves its reach does so all at once. The choice of the kernel
# matters less than that of its width.
#
# ## How wide? The bandwidth
#
# Too narrow, and the curve runs after the noise. Too wide, and it is the mean of all again.

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
# Can the error on the pairs that we have choose $h$? No: as $h$ falls, each key puts all of its weight on itself, and predicts its own
# noise without any error. The cure is to **leave one out**: predict $v_i$ from all pairs but the $i$-th. In the matrix of weights
# this is a masked diagonal, the first mask of this course.


# %%
def weights_of(h, mask=None):
    scores = -(((keys[:, None] - keys[None, :]) / h) ** 2) / 2
    return masked_softmax(scores, mask)


others = ~torch.eye(50, dtype=torch.bool)
bandwidths = torch.logspace(-1.5, 0.5, 41)
seen = torch.stack([(weights_of(h) @ values - values).square().mean() for h in bandwidths])
left_out = torch.stack([(weights_of(h, others) @ values - values).square().mean() for h in bandwidths])
best = bandwidths[left_out.argmin()].item()
print(f"least error on pairs seen: h = {bandwidths[seen.argmin()].item():.3f}, the smallest that was tried")
print(f"least error on pairs left out: h = {best:.2f}")
assert seen.argmin() == 0 < left_out.argmin() < 40

# %% [markdown]
# `masked_softmax(scores, mask)` is $e^{s_i} / \sum_j e^{s_j}$ over the places where the mask is True. The score is the logarithm of the
# kernel: from here on we write scores and let the softmax turn them into weights.

# %%
figure, axis = plt.subplots(figsize=(5, 3))
axis.semilogx(bandwidths, seen, color=COLOURS[0], label="pairs seen")
axis.semilogx(bandwidths, left_out, color=COLOURS[1], label="left out, one at a time")
axis.plot(best, left_out.min(), "o", color=COLOURS[1])
axis.set(xlabel="bandwidth h", ylabel="mean squared error")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# ## Learning the bandwidth
#
# A grid of bandwidths is fine for one number. For more of them there is the gradient: the error is a smooth function of $h$, so
# $h$ is a parameter like any other. We step on $\log h$, which keeps $h$ positive.

# %%
log_h = torch.zeros((), requires_grad=True)
optimizer = torch.optim.Adam([log_h], lr=0.1)
for _ in range(100):
    loss = (weights_of(log_h.exp(), others) @ values - values).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

learned = KernelRegression("gaussian", 1.0, learn_bandwidth=True).fit(keys[:, None], values)
print(f"grid {best:.2f}, by hand {log_h.exp().item():.2f}, the package {learned.bandwidth.item():.2f}")
assert abs(learned.bandwidth.item() - log_h.exp().item()) < 0.01

# %% [markdown]
# ## Learning what "near" means
#
# So far the keys were given. Now let a place have two coordinates, of which only the sum matters; nobody tells us that. A plain
# kernel looks at both. Instead we send queries and keys through one learned vector, $x \mapsto w \cdot x$, and measure how near they
# are *there*. The loss is again the error of leaving one out.

# %%
places = torch.randn(100, 2, generator=generator)
heard = (2 * places.sum(dim=1)).sin() + 0.1 * torch.randn(100, generator=generator)
others = ~torch.eye(100, dtype=torch.bool)


def error_left_out(w):
    projected = places @ w
    scores = -(torch.cdist(projected, projected, compute_mode="donot_use_mm_for_euclid_dist") ** 2) / 2
    return (masked_softmax(scores, others) @ heard - heard).square().mean()


# %%
w = torch.tensor([[2.0], [1.0]], requires_grad=True)
optimizer = torch.optim.Adam([w], lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    loss = error_left_out(w)
    loss.backward()
    optimizer.step()
plain = min(error_left_out(scale * torch.eye(2)).item() for scale in (1, 2, 4, 8, 16))
print(f"error: {plain:.3f} with both coordinates (the best of five widths), {loss.item():.3f} with learned ones")
print("learned w, up to its length:", (w / w.norm()).detach()[:, 0].numpy().round(2))

# %% [markdown]
# Both parts of $w$ came out nearly the same: it has learned to look at the sum. **Learned queries and learned keys: that is what attention adds
# to kernel regression.** (And learned values: notebook 2.)
#
# ## The exponential kernel is the scaled dot product
#
# Open the square in the Gaussian kernel:
#
# $$e^{-|q - k|^2 / 2h^2} = e^{q \cdot k / h^2}\; e^{-|q|^2/2h^2}\; e^{-|k|^2/2h^2}$$
#
# The factor of $|q|^2$ is the same for all keys of a query: it cancels when the weights are divided by their sum. Leave out
# that of $|k|^2$ too, and what is left is the **exponential kernel** $e^{q \cdot k/h^2}$. With $h^2 = \sqrt d$, where $d$ is the number of
# dimensions, its weights are
#
# $$w_i(q) = \operatorname{softmax}_i\!\left(\frac{q \cdot k_i}{\sqrt d}\right)$$
#
# and this is scaled dot-product attention, written by hand in three lines, by the kernel, and by the package's (and torch's) function:

# %%
q, k, v = torch.randn(3, 1, 1, 11, 16, dtype=torch.float64, generator=generator).unbind()

kernel = (q @ k.transpose(-2, -1) / 16**0.5).exp()
by_hand = kernel / kernel.sum(dim=-1, keepdim=True) @ v
by_kernel, _ = ScoredAttention(KernelScore("exponential"))(q, k, v)
by_package = scaled_dot_product_attention(q, k, v)
by_torch = torch.nn.functional.scaled_dot_product_attention(q, k, v)
for name, other in {"kernel": by_kernel, "package": by_package, "torch": by_torch}.items():
    difference = (by_hand - other).abs().max().item()
    print(f"{name:8} {difference:.1e}")
    assert difference < 1e-12

# %% [markdown]
# Where all keys have the same length, the Gaussian kernel gives the same, too: then the factor that we left out cancels as well.

# %%
same_length = k / k.norm(dim=-1, keepdim=True)
gaussian, _ = ScoredAttention(KernelScore("gaussian"))(q, same_length, v)
exponential, _ = ScoredAttention(KernelScore("exponential"))(q, same_length, v)
assert torch.allclose(gaussian, exponential, atol=1e-12)
print((gaussian - exponential).abs().max().item() < 1e-12)

# %% [markdown]
# ## Exercises
#
# **1. The two ends.** What does the Gaussian regression predict as $h \to 0$, and as $h \to \infty$? Check both.

# %% tags=["solution", "hide-cell"]
narrow = KernelRegression("gaussian", 1e-4).fit(keys[:, None], values).predict(queries[:, None])
wide = KernelRegression("gaussian", 1e4).fit(keys[:, None], values).predict(queries[:, None])
nearest = values[(queries[:, None] - keys).abs().argmin(dim=1)]
assert torch.allclose(narrow, nearest), "the value of the nearest key"
assert torch.allclose(wide, values.mean()), "the mean of all"

# %% [markdown]
# **2. Leave one out, the long way.** Fit 50 regressions, each without one pair, and predict the pair that is missing. Is it what the
# masked diagonal gives (`regression.leave_one_out()`)?

# %% tags=["solution", "hide-cell"]
regression = KernelRegression("gaussian", 0.4).fit(keys[:, None], values)
predictions = []
for i in range(50):
    rest = torch.arange(50) != i
    without = KernelRegression("gaussian", 0.4).fit(keys[rest, None], values[rest])
    predictions.append(without.predict(keys[i : i + 1, None]))
assert torch.allclose(torch.cat(predictions), regression.leave_one_out(), atol=1e-5)

# %% [markdown]
# **3. Nobody near.** What do the box and the Gaussian kernel predict at $q = 9$, far from all keys? Look at the sum of the weights.

# %% tags=["solution", "hide-cell"]
far = torch.tensor([[9.0]])
for kernel in ("box", "gaussian"):
    regression = KernelRegression(kernel, 0.2).fit(keys[:, None], values)
    total = regression.attention_weights(far).sum().item()
    print(f"{kernel:9} weights sum to {total:.2f}, prediction {regression.predict(far).item():.2f}")
print(f"value of the last key: {values[-1].item():.2f}")
# The box reaches nobody: all weights are zero, and so is the prediction (not NaN, which 0/0 would be). The Gaussian reaches
# everywhere: far away it predicts the value of the nearest key. Neither of them knows that it does not know.

# %% [markdown]
# **4. A width for each dimension.** `KernelRegression` takes a bandwidth per dimension. Let the value depend on the first coordinate only,
# and learn both bandwidths. Which one grows, and what does that mean?

# %% tags=["solution", "hide-cell"]
heard = (3 * places[:, 0]).sin() + 0.1 * torch.randn(100, generator=generator)
regression = KernelRegression("gaussian", (0.5, 0.5), learn_bandwidth=True).fit(places, heard)
first, second = regression.bandwidth.tolist()
print(f"learned bandwidths: {first:.2f} and {second:.2f}")
assert second > 3 * first, "distances along the second coordinate count for next to nothing"

# %% [markdown]
# **Next:** [scores and the softmax](02_scores.ipynb), where queries, keys and values are made from tokens, and the $\sqrt d$ gets its reason.
