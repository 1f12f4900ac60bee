# %% [markdown]
# # 4. The Transformer
#
# **At the end you know** which parts a Transformer has around attention and why: residual connections, layer norms,
# the MLP, warm-up. You have trained an encoder and a decoder on a small task and checked that the causal mask hides
# the future. You know what an encoder without positions is good for, and two ways to attend to long sequences at less
# than $n^2$ cost.
#
# **You need** [notebook 3](03_heads_and_positions.ipynb): multi-head attention and positions.
#
# **From the package:** `MultiHeadAttention`, `linear_attention`, `elu_features`, `RandomFeatures`, `local_attention` of
# `vit_vs_cnn.attention`; `Transformer` of `vit_vs_cnn.models`; `EncoderBlock` and `Mlp` of `vit_vs_cnn.models.encoder`.

# %%
import time

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.attention import (
    MultiHeadAttention,
    RandomFeatures,
    causal_mask,
    elu_features,
    linear_attention,
    local_attention,
    scaled_dot_product_attention,
)
from vit_vs_cnn.models import Transformer
from vit_vs_cnn.models.encoder import EncoderBlock, Mlp
from vit_vs_cnn.reporting.figures.heatmaps import attention_heatmaps
from vit_vs_cnn.reporting.style import COLOURS

# %% [markdown]
# All training sizes are set in this cell. With these numbers the notebook takes about a minute on two cores.

# %% tags=["parameters"]
STEPS = 300  # of the model that reverses sequences
WARM_UP_STEPS = 200  # of each model with and without warm-up
SET_STEPS = 200  # of each model that finds the odd one out
LENGTHS = (256, 512, 1024, 2048, 4096)  # sequence lengths that are timed

# %% [markdown]
# ## The block, written out
#
# Attention moves information *between* tokens; the **MLP** works on *each* token alone. Both are **branches**: their
# output is added to their input (the residual connection). The input of a branch is first normalised, token by token,
# to mean 0 and variance 1 (layer norm):
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
# The first Transformer put the norm *after* the sum, $\operatorname{LN}(Z + F(Z))$ (**post-norm**). Most later ones
# put it before the branch, as above (**pre-norm**). We stack 12 blocks of each kind. For comparison we add two weaker
# kinds: norms without residual connections, and neither of the two. We measure two things before the first training
# step. The first is the gradient of each block. The second is how much the tokens of a sequence still differ at the
# output: the norm of their deviations from their mean, divided by the norm of the tokens.


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
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for kind, colour in zip(KINDS, COLOURS, strict=False):
    left.semilogy(range(1, 13), sizes[kind], "o-", color=colour, label=kind)
for kind, colour in zip(KINDS[:2], COLOURS, strict=False):
    last = [initial_statistics(kind, depth)[0][-1] for depth in (2, 4, 8, 16)]
    print(f"{kind:9} gradient in the last block: {last[0]:.2f} at depth 2, {last[-1]:.2f} at depth 16")
    right.plot((2, 4, 8, 16), last, "o-", color=colour, label=kind)
left.set(title="12 blocks: gradient of each", xlabel="block", ylabel="norm")
right.set(title="gradient of the last block", xlabel="blocks in the stack", ylim=(0, None), xticks=(2, 4, 8, 16))
left.legend(fontsize=8)
plt.tight_layout()
assert sizes["neither"][0] < 1e-3 * sizes["pre-norm"][0]
assert 1000 * differences["norm only"] < differences["post-norm"] < differences["pre-norm"]

# %% [markdown]
# Each part has a purpose. With **neither**, hardly any gradient reaches the first blocks: every layer shrinks the
# gradient, and these factors multiply. **Norms** fix the size of the gradients, but not the loss of information in
# the forward pass. Each attention layer averages, and after twelve of them all tokens are equal to about six digits.
# The **residual connection** preserves the differences between tokens, and lets the gradient bypass every branch.
#
# The right figure shows the difference between pre-norm and post-norm. With pre-norm, the gradient of the last block
# shrinks as the stack gets deeper; with post-norm it does not. Xiong et al. (2020) argue that these large initial
# gradients make post-norm hard to train, and that warm-up solves this.
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
axis.plot(steps, rates, color=COLOURS[0])
axis.set(xlabel="step", ylabel="learning rate")
plt.tight_layout()

# %% [markdown]
# ## A task: reverse a sequence
#
# The source is eight digits. The target is the same digits in reverse order, and a stop symbol. The decoder writes
# one symbol at a time, from a start symbol and the symbols that it has already written. In training all positions are
# computed at once: the decoder reads the *correct* digits so far (*teacher forcing*), and a causal mask hides the
# later ones.

# %%
START, STOP = 10, 11


def batch(size, generator, length=8):
    source = torch.randint(10, (size, length), generator=generator)
    target = F.pad(source.flip(1), (0, 1), value=STOP)
    decoder_input = F.pad(target[:, :-1], (1, 0), value=START)
    return source, decoder_input, target


source, decoder_input, target = batch(1, torch.Generator().manual_seed(1))
print("source ", source[0].tolist())
print("decoder reads  ", decoder_input[0].tolist())
print("decoder writes ", target[0].tolist())


# %%
def train(model, steps, rate, warm_up, size=64):
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warm_up))
    losses = []
    for _ in range(steps):
        source, decoder_input, target = batch(size, generator)
        loss = F.cross_entropy(model(source, decoder_input).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# First we test warm-up: a post-norm Transformer with three encoder and three decoder blocks, with and without it.
# Everything else is equal.

# %% tags=["numbers-vary"]
figure, axis = plt.subplots(figsize=(5, 2.8))
for warm_up, colour in ((1, COLOURS[1]), (100, COLOURS[0])):
    torch.manual_seed(0)
    model = Transformer(10, 12, embed_dim=64, num_heads=4, encoder_depth=3, decoder_depth=3, mlp_ratio=2.0, norm="post")
    losses = train(model, WARM_UP_STEPS, rate=4e-3, warm_up=warm_up, size=32)
    name = f"warm-up of {warm_up} steps" if warm_up > 1 else "no warm-up"
    axis.plot(losses, color=colour, label=name)
    print(f"{name}: loss {sum(losses[-10:]) / len(losses[-10:]):.2f} at the end")
axis.set(xlabel="step", ylabel="loss", title="post-norm, learning rate 0.004")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# One seed and one learning rate do not prove a rule. But training recipes for Transformers have used warm-up since
# the first one.
#
# Now the model for the rest of this notebook: pre-norm, one encoder block and one decoder block.

# %% tags=["numbers-vary"]
torch.manual_seed(0)
model = Transformer(10, 12, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1, mlp_ratio=2.0)
losses = train(model, STEPS, rate=4e-3, warm_up=30)

source, decoder_input, target = batch(500, torch.Generator().manual_seed(2))
answers = model.decode_greedily(source, start_token=START, stop_token=STOP, max_tokens=9)
right = (F.pad(answers, (0, 9 - answers.shape[1]), value=STOP) == target).all(dim=1)
print("parameters:", sum(parameter.numel() for parameter in model.parameters()))
print(f"{right.float().mean():.1%} of 500 new sequences are reversed without error")
print(source[0].tolist(), "->", answers[0].tolist())

# %% [markdown]
# ## The three attention maps of the model
#
# The encoder attends to the source, the decoder to what it has written, and the decoder to the encoder
# (*cross-attention*). The maps are means over the 500 sequences. Rows are queries. In the last row of maps, queries
# are positions of the target and keys are positions of the source.

# %% tags=["numbers-vary"]
with torch.no_grad():
    _, weights = model(source, decoder_input, return_weights=True)
attention_heatmaps(
    [list(layers[0].mean(dim=0)) for layers in weights],
    row_labels=["encoder", "decoder", "decoder to encoder"],
    column_labels=[f"head {head}" for head in range(4)],
    cell_size=1.6,
)

# %% [markdown]
# To write position $t$ of the target, the decoder must read position $7 - t$ of the source. In the last row of maps
# this is the diagonal from the upper right to the lower left. We print the share of the cross-attention on this
# diagonal for each head. Uniform attention would give one eighth:

# %% tags=["numbers-vary"]
mirrored = weights.cross[0][:, :, :8].flip(-1).diagonal(dim1=-2, dim2=-1).mean(dim=(0, 2))
print([f"{share:.0%}" for share in mirrored.tolist()])

# %% [markdown]
# ## The causal mask hides the future
#
# Does the causal mask work? Change one symbol that the decoder reads, and see which outputs change. Row: position of
# the output. Column: position of the changed symbol.

# %% tags=["numbers-vary"]
moved = torch.zeros(9, 9)
with torch.no_grad():
    before = model(source[:20], decoder_input[:20])
    for place in range(9):
        changed = decoder_input[:20].clone()
        changed[:, place] = (changed[:, place] + 1) % 10
        moved[:, place] = (model(source[:20], changed) - before).abs().amax(dim=(0, 2))

print("largest change above the diagonal:", moved.triu(1).max().item())
assert moved.triu(1).max() < 1e-4 < moved.diagonal().min()
attention_heatmaps([[moved]], axis_labels=("output", "symbol changed"), bar_label="change of logits", cell_size=2.4)

# %% [markdown]
# ## Without positions: the odd one out of a set
#
# Some data have no order, and for them permutation equivariance is exactly right. Each set here has ten vectors: nine
# lie around one centre, one around another. Both centres are new in every set, so no vector looks odd alone; one has
# to compare. We train one block, and an MLP that sees each vector alone.


# %%
def sets(count, generator):
    centres = torch.randn(2, count, 1, 8, generator=generator)
    odd = torch.randint(10, (count,), generator=generator)
    is_odd = (torch.arange(10) == odd[:, None])[..., None]
    return torch.where(is_odd, centres[1], centres[0]) + 0.3 * torch.randn(count, 10, 8, generator=generator), odd


# %% tags=["numbers-vary"]
torch.manual_seed(0)
finders = {
    "with attention": nn.Sequential(nn.Linear(8, 32), Block("pre-norm", 32), nn.Linear(32, 1)),
    "each alone": nn.Sequential(nn.Linear(8, 32), Mlp(32, 128), nn.Linear(32, 1)),
}
for name, finder in finders.items():
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(finder.parameters(), lr=3e-3)
    for _ in range(SET_STEPS):
        vectors, odd = sets(64, generator)
        optimizer.zero_grad()
        F.cross_entropy(finder(vectors)[..., 0], odd).backward()
        optimizer.step()
    vectors, odd = sets(1000, generator)
    accuracy = (finder(vectors)[..., 0].argmax(dim=1) == odd).float().mean().item()
    print(f"{name:15} finds {accuracy:.0%} of the odd vectors; guessing finds 10%")

# %%
order = torch.randperm(10, generator=generator)
finder = finders["with attention"]
assert torch.allclose(finder(vectors[:, order]), finder(vectors)[:, order], atol=1e-4)

# %% [markdown]
# Attention compares. The MLP scores each vector without seeing the others, and the odd vector's score is as often
# below another's as above it. So on average it cannot find more than half. The last cell shows the equivariance:
# permuting a set permutes the scores in the same way, so the answer does not depend on the order.
#
# ## Long sequences, 1: linear attention
#
# Softmax attention needs all $n^2$ scores. If the kernel is a product of features, $K(q, k) = \phi(q) \cdot \phi(k)$,
# the brackets can be moved:
#
# $$\big(\phi(Q)\, \phi(K)^\top\big) V = \phi(Q)\, \big(\phi(K)^\top V\big)$$
#
# The left side contains an $n \times n$ matrix, the right side a $d \times d$ matrix. With $\phi(x) =
# \operatorname{elu}(x) + 1$ (Katharopoulos et al., 2020):

# %%
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
# The time that this saves, on this machine:


# %% tags=["numbers-vary"]
def milliseconds(function, *inputs):
    times = []
    for _ in range(5):
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
    {"softmax": COLOURS[1], "linear": COLOURS[0]}.items(), zip(*rows, strict=True), strict=True
):
    axis.loglog(LENGTHS, times, "o-", color=colour, label=name)
axis.minorticks_off()
axis.set_xticks(LENGTHS, LENGTHS)
axis.set(xlabel="tokens", ylabel="milliseconds")
axis.legend(fontsize=8)
plt.tight_layout()

# %% [markdown]
# Twice the tokens cost four times the operations with softmax attention, and twice with linear attention.
#
# The price is a different kernel, less peaked than the exponential one. *Random features* (Choromanski et al., 2021)
# approximate the exponential kernel itself, and more features approximate it better. We print the error of the
# output, relative to its norm, for heads of width 16. The standard deviation of the scores measures how peaked the
# exact attention is.

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
# Flat attention is approximated best, and more features help: with 256 features the error is about an eighth of the
# output. Queries and keys with unit normal entries have scores with a standard deviation of 1. There, even with 256
# features for 16 channels, the error is as large as the output.
#
# ## Long sequences, 2: local attention
#
# The other way is to attend to neighbours only. A band of width $w$ costs $n w$ scores instead of $n^2$. For a
# sequence of 24 equal tokens, these are the attention weights:

# %%
n = 24
same = torch.zeros(1, 1, n, 4)
_, full = scaled_dot_product_attention(same, same, same, return_weights=True)
_, causal = scaled_dot_product_attention(same, same, same, mask=causal_mask(n), return_weights=True)
_, local = local_attention(same, same, same, grid_size=(n, 1), window_size=(5, 1), return_weights=True)
past = causal_mask(n) & ~causal_mask(n).tril(-5)
_, truncated = scaled_dot_product_attention(same, same, same, mask=past, return_weights=True)

shown = {"all": full, "causal": causal, "window of 5": local, "the last 5 (truncated)": truncated}
for name, weights in shown.items():
    print(f"{name:22} {(weights > 0).sum().item():4} scores")
attention_heatmaps([[weights[0, 0] for weights in shown.values()]], column_labels=list(shown), limits=(0.0, 0.5))

# %% [markdown]
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
# **2. Without positions.** Set `positions` of a new model to zero and train it. Can it reverse?

# %% tags=["solution", "hide-cell", "numbers-vary"]
torch.manual_seed(0)
blind = Transformer(10, 12, embed_dim=64, num_heads=4, encoder_depth=1, decoder_depth=1, mlp_ratio=2.0)
blind.positions.zero_()
blind_losses = train(blind, STEPS, rate=4e-3, warm_up=30)
print(f"loss with positions {losses[-1]:.2f}, without {blind_losses[-1]:.2f}")
# Without positions the source is a bag of digits. The model can tell which digits remain to be written, but not their order.

# %% [markdown]
# **3. Longer sequences.** The model was trained on sequences of 8 digits. How many sequences of 9 digits does it
# reverse?

# %% tags=["solution", "hide-cell", "numbers-vary"]
long, _, longer_target = batch(500, torch.Generator().manual_seed(3), length=9)
written_long = model.decode_greedily(long, start_token=START, stop_token=STOP, max_tokens=10)
written_long = F.pad(written_long, (0, 10 - written_long.shape[1]), value=STOP)
print(f"{(written_long == longer_target).all(dim=1).float().mean():.1%} of the longer sequences")
# It has learned "position t reads position 7 - t", not reversal in general. To fix this, train on several lengths, with valid_length_mask.

# %% [markdown]
# **4. Attention as a recurrence.** Causal linear attention needs one $d \times d$ state. Each token adds $\phi(k_i)\,
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
# **5. Receptive field of stacked windows.** Stack $L$ layers with windows of 5. How many layers are needed until the
# first of 24 tokens depends on the last one?

# %% tags=["solution", "hide-cell"]
reach, layers = local[0, 0] > 0, 1
while not reach[0, -1]:
    reach, layers = (reach.float() @ local[0, 0]) > 0, layers + 1
print(layers, "layers: two tokens further with each")
assert layers == -(-(n - 1) // 2)

# %% [markdown]
# **Next:** [the Vision Transformer](05_vision_transformer.ipynb): an image as a sequence of patches.
