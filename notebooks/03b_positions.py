# %% [markdown]
# # 3b. Positions
#
# **What you will learn**
#
# - Why attention alone ignores the order of tokens.
# - Four ways to encode positions: sinusoidal, learned, relative and rotary.
# - How attention differs from convolution and recurrence.
#
# **You need** [notebook 3a](03a_heads.ipynb): multi-head attention.
#
# **From the package:** `MultiHeadAttention`, `causal_mask`, `sinusoidal_encoding`, `LearnedPosition`, `RelativeBias`
# and `RotaryPosition`, all in `vit_vs_cnn.attention`.

# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import (
    LearnedPosition,
    MultiHeadAttention,
    RelativeBias,
    RotaryPosition,
    causal_mask,
    sinusoidal_encoding,
)
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import COLOUR_MAP, COLOURS

torch.set_num_threads(1)  # the fastest for layers as small as these

# %% tags=["parameters"]
STEPS = 250  # of training, for each encoding

# %% [markdown]
# ## Attention ignores order
#
# Permute the tokens: each token gets the same output as before, at its new position. Attention is *equivariant to
# permutations*. To it, "dog bites man" and "man bites dog" are the same bag of words.

# %%
generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)
attention = MultiHeadAttention(12, num_heads=3)
tokens = torch.randn(2, 5, 12, generator=generator)  # batch, tokens, embed_dim
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
# Each pair of channels is like a clock hand. The first turns fast, the last turns slowly. (The digits of a binary
# number are similar: the last one changes at each step, the others less often.)
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
image = left.imshow(encoding, cmap=COLOUR_MAP, aspect="auto")
left.set(title="encoding", xlabel="channel", ylabel="position")
figure.colorbar(image, ax=left)
image = middle.imshow(similarity, cmap=COLOUR_MAP)
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
# On the left, the first channels change from row to row and the last ones hardly change. Nearby positions are similar,
# and the similarity depends on the *distance* alone: the three curves coincide, since
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
# - **sinusoidal**: added to the tokens before the projection;
# - **learned**: one free vector for each position, added in the same way;
# - **relative**: a learned number for each difference (key minus query), added to the scores;
# - **rotary**: queries and keys are rotated by an angle that grows with the position; nothing is added.
#
# We train one head with each of them, and one without positions. Of 16 random digits, each token must name the digit
# two places to its left. (The first two tokens have none and do not count.)


# %%
n, d = 16, 16


class OneHead(nn.Module):
    def __init__(self, encoding):
        super().__init__()
        self.encoding, self.embed = encoding, nn.Embedding(10, d)
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.head = nn.Linear(d, 10)
        self.learned = LearnedPosition((1, n), d)
        self.relative = RelativeBias((1, n), num_heads=1)
        self.rotary = RotaryPosition((1, n), d)

    def scores_and_values(self, digits):
        tokens = self.embed(digits)
        if self.encoding == "sinusoidal":
            tokens = tokens + sinusoidal_encoding(n, d)
        if self.encoding == "learned":
            tokens = self.learned(tokens)
        q, k = self.query(tokens)[:, None], self.key(tokens)[:, None]
        if self.encoding == "rotary":
            q, k = self.rotary(q, k)
        scores = q @ k.mT / d**0.5
        if self.encoding == "relative":
            scores = scores + self.relative.token_bias()
        return scores[:, 0], self.value(tokens)

    def forward(self, digits):
        scores, values = self.scores_and_values(digits)
        return self.head(scores.softmax(dim=2) @ values)


# %% tags=["numbers-vary"]
models = {}
for name in ("none", "sinusoidal", "learned", "relative", "rotary"):
    torch.manual_seed(0)
    models[name] = model = OneHead(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        digits = torch.randint(10, (64, n))
        loss = F.cross_entropy(model(digits)[:, 2:].flatten(0, 1), digits[:, :-2].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digits = torch.randint(10, (500, n))
    accuracy = (model(digits)[:, 2:].argmax(dim=2) == digits[:, :-2]).float().mean().item()
    print(f"{name:10} {accuracy:.0%} of the digits are right")

# %% [markdown]
# Without positions the head can only name a digit that is frequent in the sequence. With each of the encodings it
# finds the right place.
#
# How do the *scores* depend on the positions? We give all 16 tokens the same digit, so that they differ in position
# only. We print how scores change, over all rows, and plot the attention weights of the trained models.

# %% tags=["numbers-vary"]
del models["none"]
with torch.no_grad():
    shown = {name: model.scores_and_values(torch.full((1, n), 3))[0][0] for name, model in models.items()}
changes = {name: spread_along_diagonals(scores) / scores.std().item() for name, scores in shown.items()}
for name, change in changes.items():
    print(f"{name:11} changes by up to {change:.1e} standard deviations when both positions shift by one")
assert max(changes["relative"], changes["rotary"]) < 1e-4 < min(changes["sinusoidal"], changes["learned"])

# %% tags=["numbers-vary"]
attention_heatmaps([[scores.softmax(dim=1) for scores in shown.values()]], column_labels=list(shown), limits=(0.0, 1.0))

# %% [markdown]
# All four models attend two places to the left of the diagonal, from the third row on. (The first two rows were not
# trained. The printed maxima include them, but in the figure the trained rows of sinusoidal and learned differ, too.)
# Relative and rotary scores have constant diagonals: positions count only through their **difference**. In the other
# two, scores depend on both **absolute** positions, and the rule had to be learned for each row anew. Sinusoidal vectors
# *allow* scores that depend on the difference only, as the similarity above shows, but nothing forces $W_Q$ and $W_K$ to
# use this.
#
# If scores depend on differences only, then a shift of the sequence shifts the output: such a layer has **translation
# equivariance**, as a convolution has. (This is exact only for endless sequences. Else a shift changes the tokens
# at the ends, and with them each softmax.) An assumption like this, which is built into a layer, is an **inductive
# bias**.
#
# Besides the content of the tokens, a score depends on positions as the third column lists:
#
# | | where it is added | positions in a score | parameters, for $n$ positions | more positions than in training |
# | --- | --- | --- | --- | --- |
# | sinusoidal | added to tokens | both positions | none | encodings can be computed |
# | learned | added to tokens | both positions | $nD$ | no vectors: they must be interpolated |
# | relative | added to scores | the difference | $H(2n - 1)$ | no trained numbers for larger differences |
# | rotary | rotates queries and keys | the difference | none | angles can be computed |
#
# That an encoding can be computed does not mean that the model works there. This notebook does not test it.
#
# In images a position is a row and a column. The layers of the package take a grid `(rows, columns)`; here it has one
# row.
#
# ## Rotary: why rotation gives differences
#
# Treat two channels as one complex number and rotate it: $q \mapsto q\, e^{i m \omega}$ at position $m$, $k \mapsto
# k\, e^{i n \omega}$ at position $n$ (here not the number of positions). The dot product is the real part of $q \bar k\,
# e^{i(m - n)\omega}$. The positions are in it only as $m - n$.

# %%
q, k = torch.tensor(1.0 + 2.0j), torch.tensor(0.5 - 1.0j)


def rotate(x, position, frequency=0.3):
    return x * torch.exp(torch.tensor(1j * position * frequency))


for m, n in ((2, 5), (12, 15), (102, 105), (2, 6)):
    print(f"positions {m:3} and {n:3}: {(rotate(q, m) * rotate(k, n).conj()).real.item():.4f}")

# %% [markdown]
# The first three pairs have the same difference and the same product. The last one has another difference.
#
# ## Comparison with convolution and recurrence
#
# ![Paths between the first and the last token in a convolution, a recurrent network and self-attention](../docs/static/drawings/paths.svg)
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
#
# The convolution has two inductive biases: *locality*, and translation equivariance, since every position uses the same
# weights. Self-attention has no locality. Without positions it is equivariant to shifts, as to every permutation, but it
# then ignores order altogether. With absolute positions it has neither, and must learn from data what the convolution
# assumes.

# %%
zero = {name: (map == 0).float().mean().item() for name, map in maps.items()}
print({name: f"{share:.0%} of the pairs without influence" for name, share in zero.items()})
assert zero["self-attention"] == 0
assert (maps["recurrence"].triu(1) == 0).all()
assert maps["recurrence"][15, 0] < 0.1 * maps["recurrence"][15, 15]

# %% [markdown]
# | layer, $n$ tokens of width $D$ | operations | sequential steps | longest path between two tokens |
# | --- | --- | --- | --- |
# | convolution, kernel of size $K$ | $O(K\, n\, D^2)$ | $O(1)$ | $O(n / K)$ layers |
# | recurrence | $O(n\, D^2)$ | $O(n)$ | $O(n)$ |
# | self-attention | $O(n^2 D)$ (and $n\,D^2$ for the projections) | $O(1)$ | $O(1)$ |
#
# (After Vaswani et al., 2017, table 1. For the convolution their table has the path $O(\log_K n)$ of dilated kernels.
# Their section 4 has $O(n/K)$ for the usual ones.) Short paths cost $n^2$ operations; notebook 4c shows two ways to
# reduce this.
#
# ## In short
#
# - Attention without positions is equivariant to permutations: it reads a bag of words.
# - Sinusoidal and learned vectors are added to tokens: scores depend on both absolute positions.
# - With a relative bias or rotations only the difference of positions counts: translation equivariance.
# - A convolution needs $O(n/K)$ layers between distant tokens, recurrence $O(n)$ steps, self-attention one layer of $O(n^2)$.
# - Locality and translation equivariance are inductive biases of the convolution. Attention with absolute positions has
#   to learn them.
#
# ## Exercises
#
# **1. A shift is a rotation.** Find the matrix $R$ that maps $PE[p]$ to $PE[p + 7]$ for all $p$ at once.

# %% tags=["solution", "hide-cell"]
blocks = [
    torch.tensor([[c, s], [-s, c]]) for c, s in zip((7 * frequencies).cos(), (7 * frequencies).sin(), strict=True)
]
rotation = torch.block_diag(*blocks)
assert torch.allclose(encoding[:-7] @ rotation.T, encoding[7:], atol=1e-4)
# sin(a + b) = sin a cos b + cos a sin b, and cos(a + b) = cos a cos b - sin a sin b: one 2 x 2 rotation per frequency.

# %% [markdown]
# **2. A causal mask contains position information.** Is attention with a causal mask equivariant to permutations?

# %% tags=["solution", "hide-cell"]
attention = MultiHeadAttention(12, 3)
masked = attention(tokens[:, order], mask=causal_mask(5))
assert not torch.allclose(masked, attention(tokens, mask=causal_mask(5))[:, order], atol=1e-3)
# No: with the mask, each token depends on how many tokens came before it. So a decoder has some information about order
# without position encodings, and an encoder has none. Whether this is enough depends on the task.

# %% [markdown]
# **3. Rotary by hand.** Rotate random queries and keys by complex numbers, and compare with `RotaryPosition((1, 16),
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
# **Open questions** (without a solution)
#
# - **Images.** A photograph of a cat stays one of a cat if the cat moves to the right. Which of the four
#   encodings fits this? When does the *absolute* position in an image matter?
# - **Twice the length.** You train on 16 tokens and test on 32. What does each of the four models compute at the
#   new positions? Which one do you expect to fail first?
#
# **Next:** [the encoder block](04a_block.ipynb) adds residual connections, norms and an MLP to attention.
