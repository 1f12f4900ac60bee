# %% [markdown]
# # 4c. Long sequences
#
# **What you will learn**
#
# - How linear attention avoids the $n^2$ scores, and that it has another kernel.
# - How well random features approximate softmax attention.
# - How local attention computes a band of scores, and what it gives up.
#
# **You need** [notebook 2](02_scores.ipynb): scores, softmax, masks.
#
# **From the package:** `linear_attention`, `elu_features`, `RandomFeatures`, `local_attention`, all in
# `vit_vs_cnn.attention`.

# %%
import time

import matplotlib.pyplot as plt
import torch

from vit_vs_cnn.attention import (
    RandomFeatures,
    causal_mask,
    elu_features,
    linear_attention,
    local_attention,
    scaled_dot_product_attention,
)
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import SERIES_COLOURS

torch.set_num_threads(1)  # so that times do not depend on the number of processor cores

# %% tags=["parameters"]
LENGTHS = (256, 512, 1024, 2048, 4096)  # sequence lengths that are timed

# %% [markdown]
# ## Linear attention
#
# Softmax attention needs all $n^2$ scores. If the kernel is a product of features, $K(q, k) = \phi(q) \cdot \phi(k)$,
# the brackets can be moved:
#
# $$\big(\phi(Q)\, \phi(K)^\top\big) V = \phi(Q)\, \big(\phi(K)^\top V\big)$$
#
# The left side contains an $n \times n$ matrix, the right side a $d \times d$ matrix. With $\phi(x) =
# \operatorname{elu}(x) + 1$ (Katharopoulos et al., 2020):

# %%
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, 50, 8, dtype=torch.float64).unbind()
phi_q, phi_k = elu_features(q), elu_features(k)

kernel = phi_q @ phi_k.mT  # 50 x 50
quadratic = kernel @ v / kernel.sum(dim=-1, keepdim=True)
linear = phi_q @ (phi_k.mT @ v) / (phi_q @ phi_k.sum(dim=-2)[..., None])  # 8 x 8
print("same output:", torch.allclose(quadratic, linear), torch.allclose(linear, linear_attention(q, k, v)))
assert torch.allclose(quadratic, linear)
assert torch.allclose(linear, linear_attention(q, k, v))
softmax = scaled_dot_product_attention(q, k, v)
print(f"difference from softmax attention: {((linear - softmax).norm() / softmax.norm()).item():.0%}")

# %% [markdown]
# The output differs from that of softmax attention: it is another kernel. The time that this saves, on this machine:


# %% tags=["numbers-vary"]
def milliseconds(function, *inputs):
    times = []
    for _ in range(9):
        start = time.perf_counter()
        function(*inputs)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


rows = []
for n in LENGTHS:
    q, k, v = torch.randn(3, 1, 4, n, 32).unbind()
    rows.append((milliseconds(scaled_dot_product_attention, q, k, v), milliseconds(linear_attention, q, k, v)))
    print(f"{n:5} tokens: softmax {rows[-1][0]:7.2f} ms, linear {rows[-1][1]:6.2f} ms")

figure, axis = plt.subplots(figsize=(4.5, 2.8))
for (name, colour), times in zip(
    {"softmax": SERIES_COLOURS[0], "linear": SERIES_COLOURS[1]}.items(), zip(*rows, strict=True), strict=True
):
    axis.loglog(LENGTHS, times, "o-", color=colour, label=name)
axis.minorticks_off()
axis.set_xticks(LENGTHS, LENGTHS)
axis.set(xlabel="tokens", ylabel="milliseconds")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# Twice the tokens cost four times the operations with softmax attention, and twice with linear attention. Both axes are
# logarithmic: a steeper line means a higher power of the length. Measured factors deviate in both directions. The cause
# was not measured.
#
# ## Random features
#
# The price is a different kernel, less peaked than the exponential one. *Random features* (Choromanski et al., 2021)
# approximate the exponential kernel itself. Divide queries and keys by $d^{1/4}$. A feature is $\phi_\omega(x) =
# e^{\omega \cdot x - |x|^2/2}$, where $\omega$ is a random vector with normal entries. The mean of $\phi_\omega(q)\,
# \phi_\omega(k)$ over all $\omega$ is exactly $e^{q \cdot k}$, and $m$ features estimate this mean from $m$ samples.
#
# We print the error of the output, relative to its norm, for heads of width 16. The standard deviation of the scores
# measures how peaked the exact attention is.

# %%
COUNTS = (16, 64, 256)


def relative_error(count, std):
    queries, keys, values = torch.randn(3, 5, 1, 256, 16)  # five samples
    queries, keys = queries * std**0.5, keys * std**0.5
    exact = scaled_dot_product_attention(queries, keys, values)
    output = linear_attention(queries, keys, values, feature_map=RandomFeatures(16, count))
    return ((output - exact).norm() / exact.norm()).item()


torch.manual_seed(1)
errors = {std: [relative_error(count, std) for count in COUNTS] for std in (0.25, 0.5, 1.0)}
print("features      ", *(f"{count:6}" for count in COUNTS))
for std, row in errors.items():
    print(f"scores' std {std:4}", *(f"{error:6.0%}" for error in row))
assert all(row[0] > row[-1] for row in errors.values())
assert errors[0.25][-1] < errors[1.0][-1]

# %% [markdown]
# The flatter the attention, the better the approximation. From 16 to 256 features the error falls by a factor of 3.4 in
# the first row, 1.8 in the second and 1.1 in the last. With 16 features, as many as a head has channels, it is at least
# 44 %. Even the smallest error, 13 %, is an eighth of the output. Queries and keys with unit normal entries have scores
# with a standard deviation of 1, as scaled in notebook 2. There the error stays larger than the output, and 256 features are no better than 64.
#
# Here 256 features save nothing, since there are only 256 tokens: a feature matrix is as large as that of the scores.
# Features save work only if there are far more tokens than features.
#
# ## Local attention
#
# The other way is to attend to neighbours only: **local attention**, also called truncated self-attention. A band of
# width $w$ costs at most $n w$ scores instead of $n^2$. For a sequence of 24 equal tokens, these are the attention weights:

# %%
n = 24
same = torch.zeros(1, 1, n, 4)
_, full = scaled_dot_product_attention(same, same, same, return_weights=True)
_, causal = scaled_dot_product_attention(same, same, same, mask=causal_mask(n), return_weights=True)
_, local = local_attention(same, same, same, grid_size=(n, 1), window_size=(5, 1), return_weights=True)
past = causal_mask(n) & ~causal_mask(n).tril(-5)
_, last = scaled_dot_product_attention(same, same, same, mask=past, return_weights=True)

shown = {"all": full, "causal": causal, "window of 5": local, "the last 5": last}
for name, weights in shown.items():
    print(f"{name:22} {(weights > 0).sum().item():4} scores")
attention_heatmaps([[weights[0, 0] for weights in shown.values()]], column_labels=list(shown), limits=(0.0, 0.5))

# %% [markdown]
# Each matrix has one row for each query. The second and the fourth are causal: nothing above the diagonal. The third and
# the fourth are local: a band of five keys, so the number of scores grows with $n$ and not with $n^2$. It is a little
# below $24 \cdot 5 = 120$, because the ends of the sequence cut the band.
#
# The price: in one layer a token reads nothing outside its window. Distant tokens need several layers (exercise 2).
#
# A window is a mask in the shape of a band. The package skips the scores that the mask would remove. A convolution
# has fixed weights; local attention computes its weights from the tokens. Notebook 6 makes this comparison exact.

# %%
q, k, v = torch.randn(3, 1, 2, n, 8).unbind()
band = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= 2
by_mask = scaled_dot_product_attention(q, k, v, mask=band)
by_window = local_attention(q, k, v, grid_size=(n, 1), window_size=(5, 1))
print(torch.allclose(by_mask, by_window, atol=1e-6))
assert torch.allclose(by_mask, by_window, atol=1e-6)

# %% [markdown]
# ## In short
#
# - If the kernel is a product of features, moving the brackets replaces $n^2$ scores by a $d \times d$ matrix.
# - Random features approximate the softmax: here with an error from 13 % (standard deviation of the scores 0.25) to more
#   than 100 % (1).
# - Local (truncated) attention computes a band of scores; stacked layers enlarge the receptive field.
# - Locality is an inductive bias, which convolutions have as well.
#
# ## Exercises
#
# **1. Attention as a recurrence.** Causal linear attention needs one $d \times d$ state. Each token adds $\phi(k_i)\,
# v_i^\top$ to it. Write it as a loop, and compare with `linear_attention(..., causal=True)`.

# %% tags=["solution", "hide-cell"]
q, k, v = torch.randn(3, 1, 1, 20, 8, dtype=torch.float64).unbind()
phi_q, phi_k = elu_features(q)[0, 0], elu_features(k)[0, 0]
state, total, outputs = torch.zeros(8, 8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64), []
for i in range(20):
    state, total = state + phi_k[i, :, None] * v[0, 0, i], total + phi_k[i]
    outputs.append(phi_q[i] @ state / (phi_q[i] @ total))
assert torch.allclose(torch.stack(outputs), linear_attention(q, k, v, causal=True)[0, 0])

# %% [markdown]
# **2. Receptive field of stacked windows.** Stack $L$ layers with windows of 5. How many layers are needed until the
# first of 24 tokens depends on the last one?

# %% tags=["solution", "hide-cell"]
reach, layers = local[0, 0] > 0, 1
while not reach[0, -1]:
    reach, layers = (reach.float() @ local[0, 0]) > 0, layers + 1
print(layers, "layers: two tokens further with each")
assert layers == -(-(n - 1) // 2)

# %% [markdown]
# **Open questions** (without a solution)
#
# - **What is lost.** Name a task that local attention in one layer cannot solve, and one for which linear
#   attention is a poor choice. Which property of the softmax does each need?
# - **An inductive bias.** Local attention assumes that near tokens matter most. For which data is this right?
#   For which is it wrong?
#
# **Next:** [the Vision Transformer](05_vision_transformer.ipynb): an image as a sequence of patches.
