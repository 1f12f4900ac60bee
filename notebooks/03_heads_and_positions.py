# %% [markdown]
# # 3. Heads and positions
#
# **At the end you know** how several attention heads run in parallel and how many parameters they need. You know that
# attention alone ignores the order of tokens, and four ways to encode positions (sinusoidal, learned, relative,
# rotary). You can compare self-attention with cross-attention, and attention with convolution and recurrence.
#
# **You need** [notebook 2](02_scores.ipynb): queries, keys, values, masks.
#
# **From the package:** `MultiHeadAttention`, `causal_mask`, `sinusoidal_encoding`, `LearnedPosition`, `RelativeBias`
# and `RotaryPosition`, all in `vit_vs_cnn.attention`.

# %%
import matplotlib.pyplot as plt
import torch

from vit_vs_cnn.attention import (
    LearnedPosition,
    MultiHeadAttention,
    RelativeBias,
    RotaryPosition,
    causal_mask,
    sinusoidal_encoding,
)
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import COLOURS

# %% [markdown]
# ## Why one head is not enough
#
# A head returns *one* mean for each query. If a token needs the value on its left *and* the value on its right, a
# single head can only mix them, half and half. Two heads return both:

# %%
values = torch.tensor([[10.0], [20.0], [40.0]])  # left, own, right
one_head = torch.tensor([0.5, 0.0, 0.5]) @ values
two_heads = torch.cat([torch.tensor([1.0, 0.0, 0.0]) @ values, torch.tensor([0.0, 0.0, 1.0]) @ values])
print("one head", one_head.tolist(), " two heads", two_heads.tolist())

# %% [markdown]
# ## Multi-head attention by hand
#
# Project the tokens to queries, keys and values. Split each into $H$ heads, compute attention in every head,
# concatenate the outputs, and project once more:
#
# $$\operatorname{MHA}(X) = [\,\text{head}_1; \ldots; \text{head}_H\,]\, W_O, \qquad
# \text{head}_h = \operatorname{Attention}(X W_Q^h,\; X W_K^h,\; X W_V^h)$$

# %%
generator = torch.Generator().manual_seed(0)
tokens = torch.randn(2, 5, 12, generator=generator)  # batch, tokens, embed_dim
num_heads, head_dim = 3, 4
W_Q, W_K, W_V, W_O = (torch.randn(4, 12, 12, generator=generator) / 12**0.5).unbind()


def split(x):
    """(batch, tokens, heads * head_dim) -> (batch, heads, tokens, head_dim)"""
    return x.unflatten(2, (num_heads, head_dim)).transpose(1, 2)


q, k, v = split(tokens @ W_Q), split(tokens @ W_K), split(tokens @ W_V)
scores = q @ k.transpose(-2, -1) / head_dim**0.5
heads = scores.softmax(dim=-1) @ v
merged = heads.transpose(1, 2).flatten(2)  # concatenated heads
by_hand = merged @ W_O
for name, tensor in {"q": q, "scores": scores, "heads": heads, "merged": merged, "output": by_hand}.items():
    print(f"{name:7}", tuple(tensor.shape))

# %% [markdown]
# The order matters: split the channels first, *then* swap the axes. A `reshape` straight to `(batch, heads, tokens,
# head_dim)` gives the right shape but wrong numbers: it mixes tokens.
#
# ## With the package, and with torch
#
# `nn.Linear` stores its weights as `(out, in)`, hence the transposes. With the same weights, all three compute the
# same function.

# %%
attention = MultiHeadAttention(12, num_heads)
theirs = torch.nn.MultiheadAttention(12, num_heads, batch_first=True)
with torch.no_grad():
    attention.query_projection.weight.copy_(W_Q.T)
    attention.key_projection.weight.copy_(W_K.T)
    attention.value_projection.weight.copy_(W_V.T)
    attention.output_projection.weight.copy_(W_O.T)
    theirs.in_proj_weight.copy_(torch.cat([W_Q.T, W_K.T, W_V.T]))
    theirs.out_proj.weight.copy_(W_O.T)

output, weights = attention(tokens, return_weights=True)
expected, _ = theirs(tokens, tokens, tokens)
print("by hand equals package:", (by_hand - output).abs().max().item() < 1e-5)
print("package equals torch:", (output - expected).abs().max().item() < 1e-5)
assert torch.allclose(by_hand, output, atol=1e-5)
assert torch.allclose(output, expected, atol=1e-5)

# %% [markdown]
# **Parameters.** Four $D \times D$ matrices and four biases: $4 D^2 + 4 D$. The number of heads does not matter,
# since the heads split the width.


# %%
def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


for heads in (1, 3, 12):
    print(heads, "heads:", parameters(MultiHeadAttention(12, heads)), "parameters")
    assert parameters(MultiHeadAttention(12, heads)) == 4 * 12**2 + 4 * 12 == parameters(theirs)

# %% [markdown]
# The attention weights are returned on request, one map for each head. Rows are queries, columns are keys.

# %%
attention_heatmaps(weights[:1], column_labels=["head 0", "head 1", "head 2"])

# %% [markdown]
# ## Attention ignores order
#
# Permute the tokens: each token gets the same output as before, at its new position. Attention is *equivariant to
# permutations*. To it, "dog bites man" and "man bites dog" are the same bag of words.

# %%
order = torch.tensor([3, 0, 4, 1, 2])
assert torch.allclose(attention(tokens[:, order]), attention(tokens)[:, order], atol=1e-6)
print("The outputs are the same, in the new order.")

# %% [markdown]
# So each token needs information about its position. The simplest way is to *add* a vector that encodes it. Then the
# order matters.

# %%
positions = sinusoidal_encoding(5, 12)
difference = attention(tokens[:, order] + positions) - attention(tokens + positions)[:, order]
print(f"With positions, the outputs differ by up to {difference.abs().max().item():.2f}")
assert difference.abs().max() > 0.01

# %% [markdown]
# ## Sinusoidal positions
#
# Each pair of channels is like a clock hand. The first turns fast, the last turns slowly:
#
# $$PE[p, 2i] = \sin(p\,\omega_i), \quad PE[p, 2i+1] = \cos(p\,\omega_i), \qquad \omega_i = 10000^{-2i/D}$$

# %%
length, D = 100, 64
frequencies = 10_000 ** (-torch.arange(0, D, 2) / D)
angles = torch.arange(length)[:, None] * frequencies
by_hand = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
encoding = sinusoidal_encoding(length, D)
assert torch.allclose(by_hand, encoding, atol=1e-4)
similarity = encoding @ encoding.T / (D / 2)  # every row has length sqrt(D / 2): these are cosines

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3))
image = left.imshow(encoding, cmap="cividis", aspect="auto")
left.set(title="encoding", xlabel="channel", ylabel="position")
figure.colorbar(image, ax=left)
image = middle.imshow(similarity, cmap="viridis")
middle.set(title="cosine of two positions", xlabel="position", ylabel="position")
figure.colorbar(image, ax=middle)
for start, colour in zip((0, 30, 60), COLOURS, strict=False):
    right.plot(
        similarity[start, start : start + 40], color=colour, linestyle=("-", "--", ":")[start // 30], label=start
    )
right.set(title="cosine by distance", xlabel="distance")
right.legend(title="from position", fontsize=8)
plt.tight_layout()

# %% [markdown]
# Nearby positions are similar, and the similarity depends on the *distance* alone: the three curves coincide, since
# $\cos a \cos b + \sin a \sin b = \cos(a - b)$. In the matrix every diagonal is constant.


# %%
def spread_along_diagonals(matrix):
    """Largest change of a score when query and key both move by one; 0 if it depends only on their difference."""
    return (matrix[1:, 1:] - matrix[:-1, :-1]).abs().max().item()


print(f"{spread_along_diagonals(similarity):.1e}")
assert spread_along_diagonals(similarity) < 1e-5

# %% [markdown]
# ## Four encodings compared
#
# How does a *score* depend on positions? We give all 16 tokens the same content, so that they differ in position
# only, and plot the matrix of scores.
#
# - **sinusoidal**: added to the tokens before the projection;
# - **learned**: one free vector for each position, added in the same way;
# - **relative**: a learned number for each difference (key minus query), added to the scores;
# - **rotary**: queries and keys are rotated by an angle that grows with the position; nothing is added.

# %%
n, d = 16, 16
torch.manual_seed(0)
same = torch.randn(d).expand(1, 1, n, d)  # batch, heads, tokens, head_dim: equal tokens
W_Q, W_K = torch.randn(d, d) / d**0.5, torch.randn(d, d) / d**0.5


def scores_of(tokens_q, tokens_k, rotate=None):
    q, k = tokens_q @ W_Q, tokens_k @ W_K
    q, k = (q, k) if rotate is None else rotate(q, k)
    return (q @ k.transpose(-2, -1) / d**0.5)[0, 0].detach()


# %%
learned, relative = LearnedPosition((1, n), d), RelativeBias((1, n), num_heads=1)
torch.nn.init.normal_(learned.encoding)  # as large as after training, to make it visible
torch.nn.init.normal_(relative.table)
shown = {
    "sinusoidal": scores_of(same + sinusoidal_encoding(n, d), same + sinusoidal_encoding(n, d)),
    "learned": scores_of(learned(same[0])[None], learned(same[0])[None]),
    "relative": scores_of(same, same) + relative.token_bias()[0].detach(),
    "rotary": scores_of(same, same, RotaryPosition((1, n), d)),
}
for name, scores in shown.items():
    print(f"{name:11} changes by up to {spread_along_diagonals(scores):.2g} when both positions shift by one")

# %%
standardised = [(scores - scores.mean()) / scores.std() for scores in shown.values()]
attention_heatmaps([standardised], column_labels=list(shown), bar_label="standardised score", limits=(-2.5, 2.5))

# %% [markdown]
# Relative and rotary scores have constant diagonals: they depend only on the **difference** of positions. The other
# two depend on both **absolute** positions. For the sinusoidal encoding this depends on $W_Q$ and $W_K$. Its vectors
# *allow* scores that depend on the difference only, as the similarity above shows, but random matrices do not give
# such scores.

# %%
absolute, by_difference = (
    [spread_along_diagonals(shown[name]) for name in names]
    for names in (("sinusoidal", "learned"), ("relative", "rotary"))
)
assert min(absolute) > 0.1
assert max(by_difference) < 1e-4

# %% [markdown]
# | | where it is added | what a score depends on | parameters, for $n$ positions | more positions than in training |
# | --- | --- | --- | --- | --- |
# | sinusoidal | added to tokens | both positions | none | computed |
# | learned | added to tokens | both positions | $nD$ | must be interpolated |
# | relative | added to scores | the difference | $H(2n - 1)$ | untrained offsets |
# | rotary | rotates queries and keys | the difference | none | computed |
#
# In images a position is a row and a column. The layers of the package take a grid `(rows, columns)`; here it has one
# row.
#
# ## Rotary: why rotation gives differences
#
# Treat two channels as one complex number and rotate it: $q \mapsto q\, e^{i m \omega}$ at position $m$, $k \mapsto
# k\, e^{i n \omega}$ at position $n$. The dot product is the real part of $q \bar k\, e^{i(m - n)\omega}$. It depends
# on $m - n$ only.

# %%
q, k = torch.tensor(1.0 + 2.0j), torch.tensor(0.5 - 1.0j)


def rotate(x, position, frequency=0.3):
    return x * torch.exp(torch.tensor(1j * position * frequency))


for m, n in ((2, 5), (12, 15), (102, 105), (2, 6)):
    print(f"positions {m:3} and {n:3}: {(rotate(q, m) * rotate(k, n).conj()).real.item():.4f}")

# %% [markdown]
# ## Self-attention and cross-attention
#
# In **self-attention** queries, keys and values come from one sequence. In **cross-attention** the queries come from
# one sequence, and the keys and values from another: each token of the first reads the second. The two may differ in
# length and width. The output has the length of the queries.

# %%
text = torch.randn(1, 4, 12, generator=generator)  # gives the queries
picture = torch.randn(1, 9, 20, generator=generator)  # gives the keys and values
cross = MultiHeadAttention(12, num_heads=2, key_dim=20)
output, weights = cross(text, picture, return_weights=True)
print("output", tuple(output.shape), "weights", tuple(weights.shape))
attention_heatmaps(weights, column_labels=["head 0", "head 1"], axis_labels=("text", "picture"))

# %% [markdown]
# ## Comparison with convolution and recurrence
#
# How strongly does an output depend on an input at a distance, and through how many steps? We measure it with the
# gradient: $|\partial y_i / \partial x_j|$ for one layer of each kind.

# %%
torch.manual_seed(1)
n, D = 16, 8
convolution = torch.nn.Conv1d(D, D, 3, padding=1)
recurrence = torch.nn.RNN(D, D, batch_first=True)
attention = MultiHeadAttention(D, 2)
layers = {
    "convolution": lambda x: convolution(x.mT).mT,
    "recurrence": lambda x: recurrence(x)[0],
    "self-attention": attention,
}


# %%
def influence(layer):
    x = torch.randn(1, n, D)
    derivative = torch.autograd.functional.jacobian(layer, x)  # (1, n, D, 1, n, D)
    sizes = derivative[0, :, :, 0].pow(2).sum(dim=(1, 3)).sqrt()
    return sizes / sizes.max()


maps = {name: influence(layer) for name, layer in layers.items()}
attention_heatmaps(
    [list(maps.values())], column_labels=list(maps), axis_labels=("output", "input"), bar_label="influence"
)

# %% [markdown]
# The convolution depends on its neighbours only. The recurrence depends on all earlier inputs, step by step and more
# and more weakly. Self-attention depends on all inputs at once. (Its diagonal is larger because a token also produces
# the query, which determines the weights.)

# %%
zero = {name: (map == 0).float().mean().item() for name, map in maps.items()}
print({name: f"{share:.0%} of the pairs without influence" for name, share in zero.items()})
assert zero["self-attention"] == 0
assert (maps["recurrence"].triu(1) == 0).all()
assert maps["recurrence"][15, 0] < 0.1 * maps["recurrence"][15, 15]

# %% [markdown]
# | layer, $n$ tokens of width $d$ | operations | sequential steps | longest path between two tokens |
# | --- | --- | --- | --- |
# | convolution, kernel $k$ | $O(k\, n\, d^2)$ | $O(1)$ | $O(n / k)$ layers |
# | recurrence | $O(n\, d^2)$ | $O(n)$ | $O(n)$ |
# | self-attention | $O(n^2 d)$ (and $n\,d^2$ for the projections) | $O(1)$ | $O(1)$ |
#
# (Vaswani et al., 2017, table 1.) Short paths cost $n^2$ operations; notebook 4 shows two ways to reduce this.
#
# ## Exercises
#
# **1. The wrong reshape.** Replace `split` by `x.reshape(batch, heads, tokens, head_dim)`. The shape is the same. Is
# the result?

# %% tags=["solution", "hide-cell"]
projected = torch.randn(2, 5, 12, generator=generator)
wrong = projected.reshape(2, 3, 5, 4)
right = split(projected)
assert wrong.shape == right.shape
assert not torch.allclose(wrong, right)
print("with reshape, the first token of head 1 is token", (5 * 4) // 12, "of the sequence")

# %% [markdown]
# **2. A shift is a rotation.** Find the matrix $R$ that maps $PE[p]$ to $PE[p + 7]$ for all $p$ at once.

# %% tags=["solution", "hide-cell"]
blocks = [
    torch.tensor([[c, s], [-s, c]]) for c, s in zip((7 * frequencies).cos(), (7 * frequencies).sin(), strict=True)
]
rotation = torch.block_diag(*blocks)
assert torch.allclose(encoding[:-7] @ rotation.T, encoding[7:], atol=1e-4)
# sin(a + b) = sin a cos b + cos a sin b, and cos(a + b) = cos a cos b - sin a sin b: one 2 x 2 rotation per frequency.

# %% [markdown]
# **3. A causal mask contains position information.** Is attention with a causal mask equivariant to permutations?

# %% tags=["solution", "hide-cell"]
attention = MultiHeadAttention(12, 3)
masked = attention(tokens[:, order], mask=causal_mask(5))
assert not torch.allclose(masked, attention(tokens, mask=causal_mask(5))[:, order], atol=1e-3)
# No: with the mask, each token depends on how many tokens came before it. So decoders can work without position encodings,
# and encoders cannot.

# %% [markdown]
# **4. Permutations in cross-attention.** Permute the tokens of `picture`, then the tokens of `text`. How does the
# output change in each case?

# %% tags=["solution", "hide-cell"]
shuffled = torch.randperm(9, generator=generator)
assert torch.allclose(cross(text, picture[:, shuffled]), cross(text, picture), atol=1e-6), "a set is read: no change"
reversed_order = torch.tensor([3, 2, 1, 0])
assert torch.allclose(cross(text[:, reversed_order], picture), cross(text, picture)[:, reversed_order], atol=1e-6)

# %% [markdown]
# **5. Rotary by hand.** Rotate random queries and keys by complex numbers, and compare with `RotaryPosition((1, 16),
# 8)`. (There, half of the channels rotate with the row, which is always 0 here, and half with the column. The
# frequencies are $100^{-2i/4}$.)

# %% tags=["solution", "hide-cell"]
q, k = torch.randn(2, 1, 1, 16, 8, generator=generator).unbind()
expected, _ = RotaryPosition((1, 16), 8)(q, k)
by_column = torch.view_as_complex(q[0, 0, :, 4:].unflatten(1, (2, 2)).contiguous())
angles = torch.arange(16)[:, None] * 100 ** (-torch.arange(0, 4, 2) / 4)
rotated = torch.view_as_real(by_column * torch.polar(torch.ones_like(angles), angles)).flatten(1)
assert torch.allclose(torch.cat([q[0, 0, :, :4], rotated], dim=1), expected[0, 0], atol=1e-5)

# %% [markdown]
# **Next:** [the Transformer](04_transformer.ipynb) adds residual connections, norms and an MLP, and is trained.
