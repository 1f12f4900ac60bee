# %% [markdown]
# # 0. Why attention?
#
# **What you will learn**
#
# - Why a vector of fixed size is a bottleneck, and how fast a recurrent network forgets.
# - What queries, keys and values are.
# - How attention differs from a dictionary.
#
# **You need** tensors in PyTorch and gradients. No attention yet.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

from vit_vs_cnn.reporting.style import NEUTRAL_COLOUR, SERIES_COLOURS

# %% [markdown]
# ## The bottleneck
#
# Before attention, a recurrent *encoder* read a sentence word by word, and its last state was a vector $c$. A *decoder*
# wrote the translation from $c$ alone.
#
# ![Encoder and decoder, above with one vector between them, below with attention](../docs/static/drawings/bottleneck.svg)
#
# The vector has the same size for five words and for five hundred: it is a **bottleneck**. With attention (Bahdanau et
# al., 2015) the decoder reads *all* encoder states, and each of its steps weights them anew.
#
# ## How much of the first word is left?
#
# A GRU is a recurrent network: at each step it computes a new state from its old state and the next input. *Gates*
# decide how much of the old state it keeps. (An LSTM has gates, too.) Let $c$ be its last state after $T$ random
# inputs.
#
# We compare it with an attention layer. It gets a vector that asks for something, the *query*, and returns a weighted mean
# over all inputs. (The next sections explain how.) The influence of input $t$ is the norm of $\partial c / \partial x_t$, a
# mean over 100 random sequences. Neither network is trained.


# %%
def influence(network, inputs):
    """Norm of the derivative of the network's output with respect to each input, mean over the sequences."""
    c = network(inputs)  # (sequences, width of c)
    squares = [torch.autograd.grad(channel.sum(), inputs, retain_graph=True)[0].square().sum(dim=2) for channel in c.T]
    return sum(squares).sqrt().mean(dim=1)


torch.set_num_threads(1)  # the fastest for layers as small as these
torch.manual_seed(0)
gru = nn.GRU(16, 32).double()
attention = nn.MultiheadAttention(16, num_heads=1).double()
query = torch.randn(16, dtype=torch.float64)
networks = {
    "GRU, last state": lambda inputs: gru(inputs)[0][-1],
    "attention": lambda inputs: attention(query.expand(1, inputs.shape[1], 16), inputs, inputs)[0][0],
}

figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
for axis, (name, network) in zip(axes, networks.items(), strict=True):
    for T, colour in zip((200, 50, 10), SERIES_COLOURS, strict=False):
        norms = influence(network, torch.randn(T, 100, 16, dtype=torch.float64, requires_grad=True))
        axis.semilogy(range(T - 1, -1, -1), norms.numpy(), color=colour, label=f"T = {T}")
        print(f"{name:15}  T = {T:3}: first input {norms[0]:.0e}, last {norms[-1]:.0e}")
        assert norms[0] < 1e-2 * norms[-1] if name != "attention" else 0.5 < norms[0] / norms[-1] < 2
    axis.set(title=name, xlabel="distance of the input from the end, in steps")
axes[0].set_ylabel("influence on c")
axes[1].legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# In the GRU, the influence falls exponentially with the distance: early inputs are forgotten. The attention layer does
# not know where an input is, so the distance has no effect. (The small differences left are chance. With more inputs
# each has less influence, since the weights sum to one.)
#
# The figure shows forgetting. Training lets a GRU remember for longer, but its state still has 32 numbers: that is the
# bottleneck. One output of attention has a fixed size, too, but the decoder asks with a new query at each step.
#
# ## Cues: what draws attention
#
# Two **cues** direct our eyes. The *nonvolitional* cue is a property of the thing: a red cup stands out among papers.
# The *volitional* cue is what we want: we look for something to read, and see the book.
#
# In attention, what a thing can be found by is its **key**, and what we want is the **query**. What we take from it is
# its **value**. In the translation above, the query is the previous state of the decoder, and the states of the encoder are
# both keys and values. Here each key has two numbers, "stands out" and "can be read".
#
# A **score** measures how much a key counts. The nonvolitional cue gives a score from the key alone, the volitional cue
# one from the query and the key. The *softmax*, $e^{s_i} / \sum_j e^{s_j}$, turns scores into weights: positive numbers
# that sum to one.

# %%
things = ("paper", "report", "red cup", "notes", "book")
keys = torch.tensor([[0.0, 0.5], [0.0, 1.0], [3.0, 0.0], [0.0, 1.0], [0.5, 3.0]])
weights = {
    "no cue: the plain mean": torch.full((5,), 1 / 5),
    "nonvolitional: key alone": keys[:, 0].softmax(dim=0),
    "volitional: query and key": (keys @ torch.tensor([0.0, 1.0])).softmax(dim=0),
}

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), sharey=True)
for axis, (name, row), favourite in zip(axes, weights.items(), (None, 2, 4), strict=True):
    colours = [SERIES_COLOURS[0] if i == favourite else NEUTRAL_COLOUR for i in range(5)]
    axis.bar(range(5), row.numpy(), color=colours)
    axis.set_xticks(range(5), things, rotation=40)
    axis.set_title(name, fontsize=10)
axes[0].set_ylabel("weight")
plt.tight_layout()
assert weights["nonvolitional: key alone"].argmax() == things.index("red cup")
assert weights["volitional: query and key"].argmax() == things.index("book")

# %% [markdown]
# Without a query the weights are always the same: equal, or largest for what stands out. With the query "can be read"
# the book gets most of the weight.
#
# ## A soft dictionary
#
# In a Python dictionary, the query must equal a key:

# %%
wavelengths = {"red": 700.0, "orange": 600.0, "yellow": 580.0}  # in nanometres
print(wavelengths["red"])
print(wavelengths.get("vermilion"))

# %% [markdown]
# Attention returns an answer for *every* query: the mean of all values, weighted by how well their keys match.
# Vermilion is mostly red, so let the weights be 0.7, 0.2 and 0.1:

# %%
weights = torch.tensor([0.7, 0.2, 0.1])
values = torch.tensor(list(wavelengths.values()))
answer = 0.7 * 700 + 0.2 * 600 + 0.1 * 580
print(f"{answer:.0f} nm")
assert torch.isclose(weights @ values, torch.tensor(answer))

# %% [markdown]
# Where do the weights come from? That is the subject of notebooks 1 and 2.
#
# ## Tokens
#
# The things that attention reads are called **tokens**: the words of a sentence, digits, or the patches of an image.
# Each token is a vector. A sequence is a matrix $X$ with one row for each token: tokens x width.

# %%
digits = torch.tensor([3, 1, 4, 1])
X = nn.Embedding(10, 6)(digits)  # a learned vector for each of ten digits
print(tuple(X.shape), "tokens x width")

# %% [markdown]
# ## Map of the course
#
# | notebooks | question |
# | --- | --- |
# | [1](01_averaging.ipynb), [2](02_scores.ipynb) | how are weights computed? |
# | [3a](03a_heads.ipynb), [3b](03b_positions.ipynb) | why several heads, and how does attention know the order of tokens? |
# | [4a](04a_block.ipynb), [4b](04b_encoder_decoder.ipynb), [4c](04c_long_sequences.ipynb) | what else is in a Transformer, how is it trained, and how does it read long sequences? |
# | [5](05_vision_transformer.ipynb), [6](06_attention_is_convolution.ipynb) | how does it read images, and what has it in common with a convolution? |
# | [7](07_how_much_data.ipynb), [8](08_where_does_it_look.ipynb), [9](09_your_images.ipynb) | which network is better, where does it look, and which suits your images? |
#
# ## In short
#
# - A vector of fixed size between encoder and decoder is a bottleneck, and a recurrent network forgets early inputs.
# - Attention reads all inputs at once: each output is a weighted mean of values.
# - A query (what is wanted) is compared with keys (what can be found). Without a query the weights cannot adapt.
# - A token is a row of a matrix: a word, a digit, a patch of an image.
#
# ## Exercises
#
# **1. The plain mean.** Show that attention with equal scores is average pooling: the mean of all values.

# %% tags=["solution", "hide-cell"]
scores = torch.full((7, 5), 2.0)  # 7 queries, 5 keys
values = torch.randn(5, 16)
assert torch.allclose(scores.softmax(dim=1) @ values, values.mean(dim=0).expand(7, 16), atol=1e-6)

# %% [markdown]
# **Open questions** (without a solution)
#
# - **No bottleneck.** Name a task on sequences for which a vector of fixed size is enough, however long the
#   sequence is. What distinguishes it from translation?
# - **Your cues.** You drive a car. Name one nonvolitional and one volitional cue. What are the query, the keys
#   and the values in each case?
#
# **Next:** [from averaging to attention](01_averaging.ipynb).
