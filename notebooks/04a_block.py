# %% [markdown]
# # 4a. The encoder block
#
# **What you will learn**
#
# - Which parts a Transformer block has: attention, an MLP, residual connections and layer norms.
# - What residual connections and norms do, and how pre-norm differs from post-norm.
# - Why training begins with a warm-up.
#
# **You need** [notebook 3a](03a_heads.ipynb): multi-head attention.
#
# **From the package:** `MultiHeadAttention` and `sinusoidal_encoding` of `vit_vs_cnn.attention`; `EncoderBlock` and
# `Mlp` of `vit_vs_cnn.models.encoder`.

# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import MultiHeadAttention, sinusoidal_encoding
from vit_vs_cnn.models.encoder import EncoderBlock, Mlp
from vit_vs_cnn.reporting.style import SERIES_COLOURS

torch.set_num_threads(1)  # the fastest for layers as small as these

# %% tags=["parameters"]
STEPS = 150  # of each training

# %% [markdown]
# ## The block, written out
#
# ![Order of norm, attention, MLP and additions in encoder blocks with pre-norm and with post-norm](../docs/static/drawings/encoder_blocks.svg)
#
# Attention moves information *between* tokens; the **MLP** works on *each* token alone, so it is also called
# position-wise feed-forward network. Both are **branches**: their output, in training often after dropout, is added to
# their input (the residual connection). The input of a branch is first normalised, token by token, to mean 0 and
# variance 1. A learned weight and bias for each channel follow (layer norm).
#
# In CNNs, batch norm is usual: it normalises each channel over a batch. In training, the output for a token would then
# depend on the other sequences and on their padding. With layer norm it depends on this token alone.
#
# Between the two linear maps of the MLP is a GELU (a ReLU in the first Transformer). GELU is a smooth variant of ReLU,
# $x\, \Phi(x)$ with the distribution function $\Phi$ of the standard normal:
#
# $$Z' = Z + \operatorname{MHA}(\operatorname{LN}(Z)), \qquad Z'' = Z' + \operatorname{MLP}(\operatorname{LN}(Z')), \qquad
# \operatorname{MLP}(z) = W_2 \operatorname{GELU}(W_1 z + b_1) + b_2$$


# %%
def layer_norm(x, norm):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


torch.manual_seed(0)
block = EncoderBlock(MultiHeadAttention(24, num_heads=3), mlp_ratio=4.0)
tokens = torch.randn(2, 7, 24)

z = tokens + block.attention(layer_norm(tokens, block.attention_norm))
z = z + block.mlp.contract(F.gelu(block.mlp.expand(layer_norm(z, block.mlp_norm))))
print("largest difference:", (z - block(tokens)).abs().max().item())
assert torch.allclose(z, block(tokens), atol=1e-5)

# %% [markdown]
# ## Why residual connections, and where the norm goes
#
# The first Transformer put the norm *after* the sum, $\operatorname{LN}(Z + F(Z))$ (**post-norm**). Most later ones put
# it before the branch, as above (**pre-norm**). The drawing has both. We stack 12 blocks of each kind. For comparison
# we add two weaker kinds: norms without residual connections, and neither of the two. We measure two things before the
# first training step. The first is the gradient of each block. The second is how much the tokens of a sequence still
# differ at the output: the norm of their deviations from their mean, divided by the norm of the tokens.


# %%
class Block(nn.Module):
    def __init__(self, kind, dim=64):
        super().__init__()
        self.kind, self.attention, self.mlp = kind, MultiHeadAttention(dim, 4), Mlp(dim, 4 * dim)
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])

    def forward(self, z):
        for branch, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            if self.kind == "pre-norm":
                z = z + branch(norm(z))
            elif self.kind == "post-norm":
                z = norm(z + branch(z))
            else:
                z = branch(norm(z)) if self.kind == "norm only" else branch(z)
        return z


# %%
def initial_statistics(kind, depth):
    torch.manual_seed(0)
    last_norm = nn.LayerNorm(64) if kind == "pre-norm" else nn.Identity()  # normalises the final sum
    network = nn.Sequential(*[Block(kind) for _ in range(depth)], last_norm, nn.Linear(64, 10))
    tokens, labels = torch.randn(8, 16, 64), torch.randint(10, (8, 16))
    features = network[:-1](tokens)
    F.cross_entropy(network[-1](features).flatten(0, 1), labels.flatten()).backward()
    difference = (features - features.mean(dim=1, keepdim=True)).norm() / features.norm()
    return [block.mlp.contract.weight.grad.norm().item() for block in network[:depth]], difference.item()


KINDS = ("pre-norm", "post-norm", "norm only", "neither")
sizes, differences = {}, {}
for kind in KINDS:
    sizes[kind], differences[kind] = initial_statistics(kind, 12)
    print(
        f"{kind:10} gradient: first {sizes[kind][0]:.0e}, last {sizes[kind][-1]:.0e}; difference {differences[kind]:.0e}"
    )

# %%
figure, axis = plt.subplots(figsize=(5, 3))
for kind, colour in zip(("pre-norm", "neither"), SERIES_COLOURS, strict=False):
    axis.semilogy(range(1, 13), sizes[kind], "o-", color=colour, label=kind)
axis.set(xlabel="block", ylabel="norm of the gradient", xticks=range(1, 13))
axis.legend(fontsize=8)
plt.tight_layout()
assert sizes["neither"][0] < 1e-3 * sizes["pre-norm"][0]
assert 1000 * differences["norm only"] < differences["post-norm"] < differences["pre-norm"]

# %% [markdown]
# With **neither**, hardly any gradient reaches the first blocks: every layer shrinks it, and these factors multiply.
# With pre-norm the first and the last block differ by a factor of less than three.
#
# The printed lines have all four kinds. **Norms** fix the size of the gradients, but not the loss of information in the
# forward pass. Each attention layer averages, and after twelve of them all tokens are equal to about six digits. The
# **residual connection** adds the tokens as they were, with their differences. In post-norm, each norm then shrinks the
# sum and with it these differences, so fewer are left than in pre-norm. The connection also gives the gradient a path
# around every branch. (Here norms alone keep its size, so no need for this path is shown.)
#
# How does the gradient of the *last* block depend on the depth?

# %%
print("blocks   ", *(f"{depth:5}" for depth in (2, 4, 8, 16)))
last = {kind: [initial_statistics(kind, depth)[0][-1] for depth in (2, 4, 8, 16)] for kind in ("pre-norm", "post-norm")}
for kind, row in last.items():
    print(f"{kind:9}", *(f"{value:5.2f}" for value in row))
assert last["pre-norm"][-1] < last["pre-norm"][0] / 2
assert last["post-norm"][-1] > last["post-norm"][0] / 2

# %% [markdown]
# With pre-norm, the gradient of the last block shrinks as the stack gets deeper. With post-norm it does not, and is about
# three times as large in 16 blocks. Xiong et al. (2020) argue that gradients near the output which do not shrink with
# depth make post-norm hard to train, and that warm-up solves this.
#
# ## Warm-up
#
# Adam divides each gradient by an estimate of its size. So its first step moves *every* parameter by the full
# learning rate, even where the gradient is tiny and the estimate rests on a single step:

# %%
parameter = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.Adam([parameter], lr=0.01)
parameter.grad = torch.tensor([1000.0, 1.0, -0.001])
optimizer.step()
print(parameter.detach().numpy().round(4))
assert torch.allclose(parameter.detach().abs(), torch.tensor(0.01), rtol=1e-3)

# %% [markdown]
# **Warm-up** raises the learning rate from nearly zero over the first steps, while Adam's estimates become reliable.
# Often half a cosine follows:

# %%
peak, warm, total = 4e-3, 100, 1000
steps = torch.arange(total)
rates = peak * torch.where(
    steps < warm, (steps + 1) / warm, 0.5 * (1 + torch.cos(torch.pi * (steps - warm) / (total - warm)))
)
figure, axis = plt.subplots(figsize=(4.5, 2.2))
axis.plot(steps, rates, color=SERIES_COLOURS[0])
axis.set(xlabel="step", ylabel="learning rate")
plt.tight_layout()

# %% [markdown]
# The learning rate rises for 100 steps to its peak and falls to zero until the end. The length of warm-up is a
# hyperparameter, as is the peak. There are other remedies: RAdam takes smaller steps as long as the estimates are
# unreliable (Liu et al., 2020), and *gradient clipping* limits the norm of the gradient.
#
# ## With and without warm-up
#
# The task: eight digits go in, the same digits come out in reverse order. Six blocks are trained in three ways.
# Everything else is equal: the peak of the learning rate is 0.004, and it stays there.


# %%
class Reverser(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 64), nn.Linear(64, 10)
        self.blocks = nn.Sequential(*[Block(kind) for _ in range(6)])

    def forward(self, digits):
        return self.head(self.blocks(self.embed(digits) + sinusoidal_encoding(8, 64)))


def train(kind, warm_up):
    torch.manual_seed(0)
    model = Reverser(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warm_up))
    losses = []
    for _ in range(STEPS):
        digits = torch.randint(10, (32, 8))
        loss = F.cross_entropy(model(digits).flatten(0, 1), digits.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


# %% tags=["numbers-vary"]
WAYS = {
    "post-norm, no warm-up": ("post-norm", 1),
    "post-norm, 50 steps of warm-up": ("post-norm", 50),
    "pre-norm, 50 steps of warm-up": ("pre-norm", 50),
}
figure, axis = plt.subplots(figsize=(6, 3))
for (name, way), colour in zip(WAYS.items(), SERIES_COLOURS, strict=False):
    losses = train(*way)
    axis.plot(losses, color=colour, label=name)
    print(f"{name:30} loss {sum(losses[-10:]) / len(losses[-10:]):.2f} at the end; guessing has 2.30")
shares = F.one_hot(torch.randint(10, (10_000, 8)), 10).float().mean(dim=1)  # of each digit among the eight
print(f"mean entropy of the shares of the digits: {torch.special.entr(shares).sum(dim=1).mean():.2f}")
axis.set(xlabel="step", ylabel="loss")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# Without warm-up, the loss of post-norm falls most slowly. With it, the loss soon reaches a plateau near 1.6. This fits a
# model that knows the eight digits but not their order. At best it predicts the share of each digit, and its loss is
# their entropy, 1.65 on average (the last line; 0.01 is within the noise of ten batches). Only pre-norm gets further, so
# here warm-up did *not* solve the problem of post-norm. 150 steps with one seed and one learning rate cannot test
# the claim of Xiong et al. Pre-norm without warm-up was not trained. But Transformers have been trained with warm-up
# since the first one.
#
# ## In short
#
# - Attention mixes tokens, the MLP works on each alone. Both are added to their input.
# - Residual connections keep tokens different and let gradients through. Norms fix the size of what a branch reads.
# - Pre-norm normalises the input of a branch, post-norm the sum.
# - Adam's first step is as large as the learning rate. Warm-up keeps the first steps small.
#
# ## Exercises
#
# **1. Parameters.** How many parameters does an encoder block of width $D$ have if its MLP is $4D$ wide? Check with
# `EncoderBlock`.

# %% tags=["solution", "hide-cell"]
D = 24
num_parameters = sum(parameter.numel() for parameter in block.parameters())
attention, mlp, norms = 4 * D**2 + 4 * D, 8 * D**2 + 5 * D, 4 * D
assert num_parameters == attention + mlp + norms == 12 * D**2 + 13 * D
print(f"12 D^2 + 13 D = {num_parameters}; two thirds of it is the MLP")

# %% [markdown]
# **2. The norm in numbers.** Multiply the input of a layer norm by 10 and add 3. Does its output change? Check.

# %% tags=["solution", "hide-cell"]
norm, x = nn.LayerNorm(24), torch.randn(5, 24)
assert torch.allclose(norm(10 * x + 3), norm(x), atol=1e-4)
# No: mean and scale are removed. So the size of a branch's input does not depend on the size of the sum before it.

# %% [markdown]
# **Open questions** (without a solution)
#
# - **Which branch?** You may keep the residual connection of only one branch, attention or MLP. Which one, and
#   why? Which of the two measured quantities would you look at?
# - **The last norm.** A stack of pre-norm blocks ends with one more norm. What does the head receive without it,
#   when the stack is deep?
#
# **Next:** [encoder and decoder](04b_encoder_decoder.ipynb), trained on a task from sequence to sequence.
