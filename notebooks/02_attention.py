# %% [markdown]
# # Attention, from kernel regression to windows
#
# The same functions serve the lesson and the models. `python notebooks/figures.py FOLDER` draws all the figures.

# %%
import matplotlib.pyplot as plt
import torch

from vit_vs_cnn.attention import (
    KernelRegression,
    KernelScore,
    MultiHeadAttention,
    QuadraticBias,
    ScoredAttention,
    causal_mask,
    linear_attention,
    local_attention,
    scaled_dot_product_attention,
    score_statistics,
)
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.reporting.heatmaps import attention_heatmaps

# %% [markdown]
# ## Regression with a kernel is attention
#
# Nadaraya and Watson predict at a query by a mean of the values, weighted by how near their keys are:
#
# $$f(q) = \sum_i \frac{K((q - k_i)/h)}{\sum_j K((q - k_j)/h)} v_i$$
#
# The weights are attention weights. The bandwidth is learned by leaving one out: the diagonal of the weights is masked.

# %%
generator = torch.Generator().manual_seed(0)
keys = (5 * torch.rand(50, 1, generator=generator)).sort(0).values
values = 2 * keys.sin() + keys**0.8 + 0.5 * torch.randn(50, 1, generator=generator)
queries = torch.linspace(0, 5, 200)[:, None]

figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axis, learns in zip(axes, (False, True), strict=True):
    regression = KernelRegression("gaussian", 1.0, learn_bandwidth=learns).fit(keys, values)
    axis.plot(keys, values, "o", color="grey", markersize=3)
    axis.plot(queries, regression.predict(queries).detach(), color="#D55E00")
    axis.set_title(f"bandwidth {regression.bandwidth.item():.2f}, {'learned' if learns else 'given'}")

# %% [markdown]
# ## With an exponential kernel it is scaled dot-product attention
#
# One code path: a head whose score is the logarithm of the kernel exp(q . k / sqrt(d)) gives what the fused function
# gives.

# %%
q, k, v = torch.randn(3, 2, 4, 11, 16, generator=generator).double().unbind()
by_kernel = ScoredAttention(KernelScore("exponential"))(q, k, v)
print((by_kernel - scaled_dot_product_attention(q, k, v)).abs().max().item())

# %% [markdown]
# ## Why the scores are divided by sqrt(d)
#
# Without it their variance is d; the softmax then picks one key and its gradient vanishes.

# %%
for d in (4, 64, 1024):
    print(d, score_statistics(d))

# %% [markdown]
# ## Masks, and weights on request
#
# `mask` is True where a query may attend. A row that may attend nowhere gives zeros, not NaN.

# %%
tokens = torch.randn(1, 9, 24, generator=generator)
attention = MultiHeadAttention(24, 3)
output, weights = attention(tokens, mask=causal_mask(9), return_weights=True)
attention_heatmaps(weights.detach(), column_labels=["head 0", "head 1", "head 2"], title="causal self-attention")

# %% [markdown]
# ## Windows, and positions that act on the scores
#
# A window sees its neighbourhood only; its cost grows with the tokens, not with their square. A quadratic bias in nine heads
# starts as the nine places of a 3 x 3 convolution: the way from attention to convolution.

# %%
grid = (8, 8)
q = torch.randn(1, 1, 64, 16, generator=generator)
_, weights = local_attention(q, q, q, grid_size=grid, window_size=3, return_weights=True)
bias = QuadraticBias(grid, 9).bias().detach().softmax(-1)
place = 3 * 8 + 4
attention_heatmaps(
    [[weights[0, 0, place].view(grid), bias[0, place].view(grid), bias[5, place].view(grid)]],
    column_labels=["window 3 x 3", "quadratic, head 0", "quadratic, head 5"],
    title="what the patch at (3, 4) sees",
)

# %% [markdown]
# Every one of these is an option of the ViT, and so of a config:

# %%
for options in ({"position": "rotary"}, {"window_size": 3}, {"score": "gaussian"}, {"score": "linear"}):
    model = VisionTransformer(embed_dim=64, depth=4, num_heads=4, **options)
    print(options, tuple(model(torch.randn(2, 3, 32, 32)).shape))

# %% [markdown]
# ## Linear attention
#
# With features in place of the softmax the sum over the keys is done once, for all queries.

# %%
q, k, v = torch.randn(3, 1, 2, 4096, 32, generator=generator).unbind()
linear_attention(q, k, v, causal=True).shape
