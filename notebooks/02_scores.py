# %% [markdown]
# # 2. Scores and softmax
#
# **What you will learn**
#
# - How to compute attention with pencil and paper.
# - Two ways to score a key.
# - Why scores are divided by $\sqrt d$.
# - What a mask does.
#
# **You need** [notebook 1](01_averaging.ipynb): attention is a weighted mean.
#
# **From the package:** `scaled_dot_product_attention`, `masked_softmax`, `AdditiveScore`, `ScoredAttention`
# and the masks `valid_length_mask`, `causal_mask`, `combine_masks`, all in `vit_vs_cnn.attention`.

# %%
import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from vit_vs_cnn.attention import (
    AdditiveScore,
    MultiHeadAttention,
    ScoredAttention,
    attention_from_scores,
    causal_mask,
    combine_masks,
    masked_softmax,
    scaled_dot_product_attention,
    valid_length_mask,
)
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import COLOURS, SERIES_COLOURS

# %% [markdown]
# ## A soft dictionary
#
# A **token** is one element of a sequence, such as a word or a patch of an image, given as a vector. The tokens are the
# rows of a matrix $X$. Attention lets each token read the others.
#
# A Python dictionary returns the value whose key equals the query, and fails if there is none. Attention compares the
# query with *all* keys and gives each key a **score**. The softmax turns the scores into weights, and the output is
# the weighted mean of all values. Every query gets an answer, and its derivative exists. Two limits follow below: a query
# that may attend to no key, and derivatives that vanish.
#
# In a Transformer, queries, keys and values are computed from the tokens by three learned matrices:
#
# $$Q = X W_Q, \quad K = X W_K, \quad V = X W_V, \qquad \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt d}\right) V$$
#
# ![Scaled dot-product attention: scores, scaling, mask, softmax, average of the values](../docs/static/drawings/dot_product.svg)
#
# The query of a token describes what it looks for, its key what it can be found by, and its value what it passes on.
#
# ## Three tokens by hand
#
# We use three tokens of width two, and matrices small enough for pencil and paper.

# %%
X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
W_Q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
W_K = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
W_V = torch.tensor([[10.0, 0.0], [0.0, 10.0]])

Q, K, V = X @ W_Q, X @ W_K, X @ W_V
for name, matrix in {"queries": Q, "keys": K, "values": V}.items():
    print(name, matrix.tolist())

# %% [markdown]
# **Step 1: scores.** Row $i$, column $j$: how well key $j$ matches query $i$. Then divide by $\sqrt 2$, since $d =
# 2$.

# %%
scores = Q @ K.T
print(scores.numpy())
scaled = scores / 2**0.5
print(scaled.numpy().round(3))

# %% [markdown]
# **Step 2: softmax along each row.** Exponentials are positive. Divided by their sum, they are weights.

# %%
exponentials = scaled.exp()
print(exponentials.numpy().round(3), "  rows sum to", exponentials.sum(dim=1).numpy().round(3))
weights = exponentials / exponentials.sum(dim=1, keepdim=True)
print(weights.numpy().round(3), "  rows sum to", weights.sum(dim=1).numpy().round(3))

# %% [markdown]
# **Step 3: the weighted mean of the values.** For the first token, written out, and then for all three.

# %%
first = sum(weights[0, j] * V[j] for j in range(3))
print(first.numpy().round(2))
output = weights @ V
print(output.numpy().round(2))
assert torch.allclose(output[0], first)

# %% [markdown]
# The first query is $(1, 0)$. The first and the third key begin with 1, the second with 0. So the first and the third
# token get equal weights, larger than that of the second.
#
# ## With the package
#
# The function takes inputs of shape `(batch, heads, tokens, head_dim)`. *Heads* are several attentions side by side
# (notebook 3a), and `head_dim` is $d$, the width of a query or key in one head. Here batch and heads have size one. `@`
# multiplies the last two axes as matrices, for every index of the leading axes: a *batch matrix multiplication*.

# %%
q, k, v = (matrix[None, None] for matrix in (Q, K, V))
by_package, package_weights = scaled_dot_product_attention(q, k, v, return_weights=True)
print(tuple(by_package.shape), tuple(package_weights.shape))
assert torch.allclose(by_package[0, 0], output)
assert torch.allclose(package_weights[0, 0], weights)

# %%
generator = torch.Generator().manual_seed(0)
many_q, many_k = torch.randn(
    2, 7, 4, 5, 16, generator=generator
).unbind()  # 7 sequences, 4 heads, 5 tokens, 16 channels
products = many_q @ many_k.transpose(-2, -1)
assert torch.allclose(products[3, 2], many_q[3, 2] @ many_k[3, 2].T, atol=1e-5)
print(tuple(products.shape), "scores: for each sequence and head, queries by keys")

# %%
figure = attention_heatmaps([[weights]], cell_size=2.6)
for i in range(3):
    for j in range(3):
        colour = "black" if weights[i, j] > 0.4 else "white"
        figure.axes[0].text(j, i, f"{weights[i, j]:.3f}", ha="center", va="center", color=colour)
figure

# %% [markdown]
# Rows are queries, columns are keys, here and in every heat map of this course. Each row sums to one: it has the weights
# of one token's mean.
#
# ## Another score: additive
#
# Before dot products, the score was a small network with one hidden layer (Bahdanau et al., 2015):
#
# $$s(q, k) = w^\top \tanh(W_q\, q + W_k\, k)$$
#
# Here $q$ and $k$ are columns, so the matrices are on their left. The score has parameters: $W_q$, $W_k$ and $w$. They are
# not the $W_Q$ and $W_K$ that compute queries and keys from tokens. Queries and keys may have different widths.
# Broadcasting pairs every query with every key: `(queries, 1, hidden) + (1, keys, hidden)`.

# %%
queries, keys = torch.randn(4, 3, generator=generator), torch.randn(6, 5, generator=generator)
score = AdditiveScore(query_dim=3, key_dim=5, hidden_dim=8)

hidden = queries[:, None, :] @ score.query_projection.weight.T + keys[None, :, :] @ score.key_projection.weight.T
by_hand = (hidden.tanh() @ score.score_projection.weight.T)[..., 0]
print("hidden", tuple(hidden.shape), "scores", tuple(by_hand.shape))
assert torch.allclose(by_hand, score(queries, keys), atol=1e-6)

# %% [markdown]
# The steps after the score are always the same: softmax, then weighted mean. `ScoredAttention` accepts any score.

# %%
values = torch.randn(6, 2, generator=generator)
assert torch.allclose(ScoredAttention(score)(queries, keys, values), by_hand.softmax(dim=-1) @ values, atol=1e-6)
print(tuple(ScoredAttention(score)(queries, keys, values).shape))

# %% [markdown]
# The additive score stores a hidden vector for each *pair* of query and key. The dot product is a single matrix
# multiplication, faster and smaller, so Transformers use it (Vaswani et al., 2017, section 3.2.1). It has no
# parameters, and needs queries and keys of equal width. $W_Q$ and $W_K$ provide this: both map tokens, of any width, to
# the width $d$. (Luong et al., 2015, score two vectors by $x^\top M y$. This is the same with $M = W_Q W_K^\top$.) But
# the dot product needs a correction, which the same section explains:
#
# ## Why $1/\sqrt d$
#
# Take queries and keys whose entries are independent, with mean 0 and variance 1. Then $q \cdot k$ is a sum of $d$
# products, each with mean 0 and variance 1: its variance is $d$, its standard deviation $\sqrt d$.

# %%
for d in (4, 64, 1024):
    q, k = torch.randn(2, 2000, d, generator=generator).unbind()
    dots = (q * k).sum(dim=1)
    print(f"d = {d:4}: variance {dots.var().item():7.1f}, divided by sqrt(d) {(dots / d**0.5).var().item():.2f}")

# %% [markdown]
# Why does it matter? With large scores the softmax gives nearly all weight to one key.

# %%
q, keys = torch.randn(1024, generator=generator), torch.randn(16, 1024, generator=generator)
dots = keys @ q
figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharey=True)
for axis, scores, name in zip(axes, (dots, dots / 32), ("softmax(q . k)", "softmax(q . k / sqrt(d))"), strict=True):
    axis.bar(range(16), scores.softmax(dim=0).numpy(), color=COLOURS[0])
    axis.set(title=f"{name}, d = 1024", xlabel="key", xticks=(0, 5, 10, 15))
axes[0].set_ylabel("weight")
plt.tight_layout()

# %% [markdown]
# Without the division, one key has nearly all of the weight. With it, all 16 keys take part.
#
# In the first case queries and keys get hardly any gradient, so they would hardly change in training. The reason is the
# derivative of the softmax $p$ with respect to the scores:
#
# $$J = \operatorname{diag}(p) - p\, p^\top$$
#
# This matrix is the *Jacobian*. If one weight is 1 and the others are 0, then $J = 0$, and queries and keys get no
# gradient. First we check the formula:

# %%
scores = torch.tensor([1.0, 2.0, 3.0])
p = scores.softmax(dim=0)
by_formula = p.diag() - p[:, None] * p[None, :]
by_autograd = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=0), scores)
print(by_formula.numpy().round(3))
assert torch.allclose(by_formula, by_autograd, atol=1e-6)

# %% [markdown]
# Second, we measure its norm, for 64 keys and an increasing number of channels:


# %%
def jacobian_norms(scores):
    """Norm of the Jacobian for each row of scores."""
    p = scores.softmax(dim=-1)
    return (p.diag_embed() - p[..., :, None] * p[..., None, :]).norm(dim=(-2, -1))


torch.manual_seed(0)
dims = [2**power for power in range(1, 11)]
raw = [(torch.randn(200, 1, d) * torch.randn(200, 64, d)).sum(dim=-1) for d in dims]
scaled = [values / d**0.5 for values, d in zip(raw, dims, strict=True)]
norms = {
    name: [jacobian_norms(part).mean().item() for part in values]
    for name, values in {"raw": raw, "scaled": scaled}.items()
}
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.loglog(dims, [part.var().item() for part in raw], "o-", color=COLOURS[1], label="q . k")
left.loglog(dims, [part.var().item() for part in scaled], "s-", color=COLOURS[0], label="q . k / sqrt(d)")
left.set(title="variance of the scores", xlabel="d")
right.semilogx(dims, norms["raw"], "o-", color=COLOURS[1], label="q . k")
right.semilogx(dims, norms["scaled"], "s-", color=COLOURS[0], label="q . k / sqrt(d)")
right.set(title="norm of the softmax's Jacobian", xlabel="d", ylim=(0, None))
left.legend(fontsize=8)
plt.tight_layout()
assert norms["raw"][-1] < norms["scaled"][-1] / 2

# %% [markdown]
# With the division by $\sqrt d$, both stay constant. Without it the derivative first grows, as scores begin to
# distinguish keys. Then it falls, as for more and more queries one key gets nearly all weight. The figure shows the
# mean over queries. With 1024 channels, the *median* query has a far smaller derivative:

# %%
q = torch.randn(200, 1, 1024, dtype=torch.float64, generator=generator)
keys = torch.randn(200, 64, 1024, dtype=torch.float64, generator=generator)
for name, scale in {"q . k": 1.0, "q . k / sqrt(d)": 1 / 32}.items():
    median = jacobian_norms((q * keys).sum(dim=-1) * scale).median().item()
    print(f"{name:16} median norm of the Jacobian {median:.1e}")

# %% [markdown]
# ## Masks
#
# Sequences of a batch differ in length. The short ones are padded, and no query should attend to padding. A **mask**
# is True where a query may attend to a key. The softmax then uses only these positions.

# %%
mask = torch.tensor([True, True, False])
scores = torch.tensor([1.0, 2.0, 3.0])
by_hand = scores.exp() * mask / (scores.exp() * mask).sum()
print(by_hand.numpy().round(3))
assert torch.allclose(masked_softmax(scores, mask), by_hand)

# %% [markdown]
# Three common masks: valid lengths (one for each sequence, or for each query), the causal mask (no attention to later
# tokens), and both combined.

# %%
lengths = valid_length_mask(torch.tensor([7]), 10)
each_query = valid_length_mask(torch.tensor([[3, 5, 10, 0, 7, 9, 1, 10, 6, 2]]), 10)
causal = causal_mask(10)
both = combine_masks(lengths, causal)
print("for (batch, heads, queries, keys):", tuple(lengths.shape), tuple(each_query.shape), tuple(causal.shape))

shown = {"valid length 7": lengths, "a length per query": each_query, "causal": causal, "causal and length 7": both}
colours = ("#dddddd", SERIES_COLOURS[0])
figure, axes = plt.subplots(1, 4, figsize=(9, 2.9), sharey=True)
for axis, (name, mask) in zip(axes, shown.items(), strict=True):
    axis.imshow(mask.expand(1, 1, 10, 10)[0, 0].numpy(), cmap=ListedColormap(colours), vmin=0, vmax=1)
    axis.set(xlabel="keys", xticks=(0, 3, 6, 9), yticks=(0, 3, 6, 9))
    axis.set_title(name, fontsize=10)
axes[0].set_ylabel("queries")
labels = ("masked", "may attend")
patches = [Patch(color=colour, label=label) for colour, label in zip(colours, labels, strict=True)]
figure.legend(handles=patches, loc="lower center", ncols=2, fontsize=9)
figure.subplots_adjust(bottom=0.28, left=0.07, right=0.99, top=0.9)

# %% [markdown]
# A valid length hides columns: the padding. The causal mask hides everything above the diagonal: the future. A position
# is used only where both allow it.
#
# **Coming from torch.** `torch.nn.MultiheadAttention` has the *opposite* convention: there, True in `attn_mask`
# **forbids** a position. (`torch.nn.functional.scaled_dot_product_attention` agrees with this course.) Negate the mask:

# %%
theirs = torch.nn.MultiheadAttention(8, num_heads=1, batch_first=True)
ours = MultiHeadAttention.from_torch(theirs)
tokens = torch.randn(2, 10, 8, generator=generator)
output, _ = theirs(tokens, tokens, tokens, attn_mask=~causal)
print("equal:", torch.allclose(ours(tokens, mask=causal), output, atol=1e-5))
assert torch.allclose(ours(tokens, mask=causal), output, atol=1e-5)

# %% [markdown]
# ## A query with no key to attend to
#
# In the second mask, the query in row 3 of the figure (the fourth, since rows count from 0) has length 0. What should its
# softmax be? A common trick replaces masked scores by $-10^6$. Then all its scores are equal, and it attends uniformly
# *to the padding*. With minus infinity the softmax is 0/0, and the NaN spreads through the whole network. In this package
# such a row gets zero weights, a zero output and zero gradients.

# %%
scores, nothing = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([False, False, False])
print("-1e6      ", scores.masked_fill(~nothing, -1e6).softmax(dim=0).numpy().round(3))
print("-infinity ", scores.masked_fill(~nothing, -torch.inf).softmax(dim=0).numpy())
print("package   ", masked_softmax(scores, nothing).numpy())

# %% [markdown]
# ## Dropout on attention weights
#
# In training, some weights may be dropped; the others are then scaled up by $1/(1-p)$. The expected output does not
# change, but a single row no longer sums to one.

# %%
torch.manual_seed(0)
even = torch.zeros(1, 1, 4, 8)
ones = torch.ones(1, 1, 8, 1)
dropped = scaled_dot_product_attention(even, torch.zeros(1, 1, 8, 8), ones, dropout=0.5)
print("row sums under dropout 0.5:", dropped.flatten().numpy().round(2))
rows = torch.zeros(20_000, 8)
mean = attention_from_scores(rows, torch.ones(8, 1), dropout=0.5)[0].mean().item()
print(f"mean of 20,000 of them: {mean:.2f}")
assert abs(mean - 1) < 0.02

# %% [markdown]
# ## Is the gradient right?
#
# `gradcheck` compares autograd's derivative with finite differences, in double precision. We use a mask with an empty
# row, since implementations often fail there.

# %%
q, k, v = torch.randn(3, 1, 2, 4, 3, dtype=torch.float64, generator=generator).unbind()
inputs = tuple(tensor.requires_grad_() for tensor in (q, k, v))
mask = causal_mask(4).clone()
mask[2] = False
print(torch.autograd.gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v, mask=mask), inputs))
scaled_dot_product_attention(q, k, v, mask=mask).sum().backward()
assert (q.grad[:, :, 2] == 0).all(), "a query that looks at nothing learns nothing"

# %% [markdown]
# ## In short
#
# - Attention is $\operatorname{softmax}(Q K^\top / \sqrt d)\, V$: scores, weights, weighted mean of values.
# - Dividing by $\sqrt d$ keeps the variance of scores at one, and the gradient alive.
# - The softmax has the Jacobian $\operatorname{diag}(p) - p\,p^\top$, which vanishes if one weight is one.
# - A mask is True where a query may attend (in torch's module: where it may not).
# - A query with no key gets zero weights, a zero output and zero gradients.
#
# ## Exercises
#
# **1. Add a constant.** Show that the softmax does not change when the same number is added to all scores. Why is
# this useful when scores are as large as 1000?

# %% tags=["solution", "hide-cell"]
scores = torch.tensor([1000.0, 1001.0, 1002.0])
print("as written:        ", (scores.exp() / scores.exp().sum()).numpy())
safe = (scores - scores.max()).exp()
print("maximum subtracted:", (safe / safe.sum()).numpy().round(3))
assert torch.allclose(safe / safe.sum(), torch.tensor([0.0, 1.0, 2.0]).softmax(dim=0))
# exp(1000) overflows. After subtracting the largest score all exponents are at most 0, and the weights are the same.

# %% [markdown]
# **2. From soft to hard.** Multiply the scores of the three tokens by 1, 10 and 100. What does attention become?

# %% tags=["solution", "hide-cell"]
for factor in (1, 10, 100):
    rows = ((Q @ K.T) * factor).softmax(dim=-1)
    print(f"{factor:3}: first token", rows[0].numpy().round(3), "second token", rows[1].numpy().round(3))
assert torch.allclose(rows[:2], torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]))
# It becomes a dictionary: all weight is on the best key (second token), or shared equally by the best keys (first token).

# %% [markdown]
# **3. Padding does not matter.** Put other numbers into the padding of the keys and values. Does any output change?

# %% tags=["solution", "hide-cell"]
q, k, v = torch.randn(3, 2, 1, 6, 4, generator=generator).unbind()
mask = valid_length_mask(torch.tensor([4, 2]), 6)
before = scaled_dot_product_attention(q, k, v, mask=mask)
padding = ~mask.transpose(-2, -1)  # (batch, 1, keys, 1)
after = scaled_dot_product_attention(q, k.masked_fill(padding, 7.0), v.masked_fill(padding, -9.0), mask=mask)
assert torch.allclose(before, after)

# %% [markdown]
# **4. The gradient of the scores.** Let the loss be $L = g \cdot (p^\top V)$ for one query with weights $p$. Show
# that $\partial L / \partial s_j = p_j\,(g \cdot v_j - L)$: the gradient is positive where $g \cdot v_j$ is above the
# weighted mean $L$.

# %% tags=["solution", "hide-cell"]
s = torch.randn(5, generator=generator, requires_grad=True)
v, g = torch.randn(5, 3, generator=generator), torch.randn(3, generator=generator)
p = s.softmax(dim=0)
loss = g @ (p @ v)
loss.backward()
assert torch.allclose(s.grad, (p * (v @ g - loss)).detach(), atol=1e-6)
# By the Jacobian: J (V g) = p * (V g) - p (p . V g), and p . V g is the loss.

# %% [markdown]
# **5. Memory.** How many numbers must each score hold in memory at once, for 1,000 queries, 1,000 keys and a width of
# 64 (hidden width 64)?

# %% tags=["solution", "hide-cell"]
additive, dot_product = 1000 * 1000 * 64, 1000 * 1000
print(f"additive {additive:,}, dot product {dot_product:,}: {additive // dot_product} times as many")
assert hidden.numel() == 4 * 6 * 8  # above: 8 hidden numbers for each of 4 x 6 pairs

# %% [markdown]
# **Open questions** (without a solution)
#
# - **A score without $d$.** Design a score that has the same spread for every width, so that no division by
#   $\sqrt d$ is needed. What does it cost, and what can it no longer express?
# - **An empty row.** Zero weights are one answer for a query with no key to attend to. Name another one. What
#   should the network that reads this output do in each case?
#
# **Next:** [heads](03a_heads.ipynb): several attention heads in parallel.
