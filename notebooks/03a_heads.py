# %% [markdown]
# # 3a. Heads
#
# **What you will learn**
#
# - Why one attention head is not enough, and how several heads run in parallel.
# - How many parameters they need.
# - What cross-attention is.
#
# **You need** [notebook 2](02_scores.ipynb): queries, keys, values, masks.
#
# **From the package:** `MultiHeadAttention` of `vit_vs_cnn.attention`.

# %%
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import MultiHeadAttention
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps

torch.set_num_threads(1)  # the fastest for layers as small as these

# %% tags=["parameters"]
STEPS = 200  # of training, for each number of heads

# %% [markdown]
# ## Why one head is not enough
#
# A head returns *one* mean for each query. If a token needs the value on its left *and* the value on its right, a
# single head can only mix them, for example half and half. Two heads return both:

# %%
values = torch.tensor([[10.0], [20.0], [40.0]])  # left, own, right
one_head = torch.tensor([0.5, 0.0, 0.5]) @ values
two_heads = torch.cat([torch.tensor([1.0, 0.0, 0.0]) @ values, torch.tensor([0.0, 0.0, 1.0]) @ values])
print("one head", one_head.tolist(), " two heads", two_heads.tolist())

# %% [markdown]
# ## Multi-head attention by hand
#
# ![Multi-head attention: three projections, four heads, concatenation, output projection](../docs/static/drawings/multi_head.svg)
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
# `nn.Linear` stores its weights as `(out, in)`, hence the transposes. With the same weights, all three compute the same
# function. (The two layers also have biases, which are zero before training.) The matrices of the package's layer start
# as *Xavier* weights (Glorot and Bengio, 2010): uniform, with the variance $2 / (D_{in} + D_{out})$. For square matrices
# this is $1/D$, as above: values about keep their size.

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
# **Parameters.** In self-attention on tokens of width $D$ there are four $D \times D$ matrices and four biases: $4 D^2 + 4
# D$. The number of heads $H$ does not matter, since the heads split the width: each of them has the width $D / H$.


# %%
def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


for heads in (1, 3, 12):
    print(heads, "heads:", parameters(MultiHeadAttention(12, heads)), "parameters")
    assert parameters(MultiHeadAttention(12, heads)) == 4 * 12**2 + 4 * 12 == parameters(theirs)

# %% [markdown]
# ## What heads learn
#
# We train the example from above. Eight digits are arranged in a circle, and each token must name the digit on its
# left *and* the digit on its right. The network is one attention layer. Each token is made of its digit and its
# position, both as one-hot vectors. (Notebook 3b explains why it needs the position.) In the code, `self.head` is no
# attention head: it is the last linear layer, the *classifier head*, here and in later notebooks.


# %%
class Neighbours(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.embed = nn.Linear(10 + 8, 32)
        self.attention = MultiHeadAttention(32, num_heads)
        self.head = nn.Linear(32, 2 * 10)

    def forward(self, digits):
        positions = torch.eye(8).expand(len(digits), 8, 8)
        tokens = torch.cat([F.one_hot(digits, 10).float(), positions], dim=2)
        output, weights = self.attention(self.embed(tokens), return_weights=True)
        return self.head(output).unflatten(2, (2, 10)), weights


def circles(count):
    digits = torch.randint(10, (count, 8))
    return digits, torch.stack([digits.roll(1, dims=1), digits.roll(-1, dims=1)], dim=2)


# %% tags=["numbers-vary"]
maps = {}
for heads in (1, 2):
    torch.manual_seed(0)
    model = Neighbours(heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        digits, neighbours = circles(64)
        logits, _ = model(digits)
        loss = F.cross_entropy(logits.flatten(0, 2), neighbours.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    digits, neighbours = circles(500)
    with torch.no_grad():
        logits, weights = model(digits)
    left, right = (logits.argmax(dim=3) == neighbours).float().mean(dim=(0, 1)).tolist()
    print(f"heads: {heads}; correct: {left:.0%} of the left digits, {right:.0%} of the right digits")
    maps |= {f"head {i + 1} of {heads}": weights[:, i].mean(dim=0) for i in range(heads)}

# %% tags=["numbers-vary"]
attention_heatmaps([list(maps.values())], column_labels=list(maps), limits=(0.0, 1.0))

# %% [markdown]
# Rows are queries, columns are keys; the maps are means over 500 sequences. The single head splits its weight between
# both neighbours, with a little more for one of them. This digit has the larger share of the mean. If a larger share
# gives a digit a larger logit, the linear classifier names it. No linear map names the second largest share: if a larger
# share lowers the logit, absent digits win. So the other digit is mostly wrong. (It is right at least where both digits
# are equal, in a tenth of the cases.) Of two heads, one attends to the left neighbour and one to the right. Which does
# which depends on the initial weights.
#
# ## Self-attention and cross-attention
#
# In **self-attention** queries, keys and values come from one sequence. In **cross-attention** the queries come from
# one sequence, and the keys and values from another: each token of the first reads the second. The two may differ in
# length and width. The output has the length of the queries. Below, $W_K$ and $W_V$ are $20 \times 12$ matrices, so the
# number of parameters is not $4 D^2 + 4 D$.

# %%
text = torch.randn(1, 4, 12, generator=generator)  # gives the queries
picture = torch.randn(1, 9, 20, generator=generator)  # gives the keys and values
cross = MultiHeadAttention(12, num_heads=2, key_dim=20)
output, weights = cross(text, picture, return_weights=True)
print("output", tuple(output.shape), "weights", tuple(weights.shape))

# %% [markdown]
# The weights of each head are a matrix of 4 queries by 9 keys. Notebook 4b shows cross-attention that was trained.
#
# ## In short
#
# - A head returns one mean per query. Several heads return several means, side by side.
# - Split the channels, attend in each head, concatenate, project: $4 D^2 + 4 D$ parameters, as with one head.
# - Trained heads specialise: here one reads the left neighbour, the other the right one.
# - In cross-attention, queries come from one sequence, keys and values from another.
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
print("with reshape, the first token of the second head is token", (5 * 4) // 12, "of the sequence")

# %% [markdown]
# **2. Permutations in cross-attention.** Permute the tokens of `picture`, then the tokens of `text`. How does the
# output change in each case?

# %% tags=["solution", "hide-cell"]
shuffled = torch.randperm(9, generator=generator)
assert torch.allclose(cross(text, picture[:, shuffled]), cross(text, picture), atol=1e-6), "a set is read: no change"
reversed_order = torch.tensor([3, 2, 1, 0])
assert torch.allclose(cross(text[:, reversed_order], picture), cross(text, picture)[:, reversed_order], atol=1e-6)

# %% [markdown]
# **Open questions** (without a solution)
#
# - **Rank.** The scores of one head are $X W_Q W_K^\top X^\top$. What is the largest rank of $W_Q W_K^\top$
#   with one head of width $D$, and with $H$ heads of width $D / H$? What can a single wide head do that none of the
#   narrow ones can?
# - **Shared keys.** Some large language models give every head its own queries, but let all heads share one set
#   of keys and values. What does this save when tokens are written one by one? What could be lost?
#
# **Next:** [positions](03b_positions.ipynb): how attention learns the order of tokens.
