# %% [markdown]
# # 6. Attention is convolution
#
# **At its end you know** how nine heads of attention compute a 3 x 3 convolution exactly, how a whole trained CNN becomes a
# network of attention with the same logits, what lies between the two (windows), and how to measure how convolution-like the
# attention of a trained network is.
#
# **You need** multi-head attention and relative positions (notebook 3), the ViT (notebook 5).
#
# **Of the package:** `vit_vs_cnn.attention.convolution` (`conv2d_to_attention`, `network_to_attention`,
# `ConvolutionalAttention`, `unexplained_energy`), `local_attention`, `train`, `to_attention`, `locality`.

# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

import vit_vs_cnn as vc
from vit_vs_cnn.attention import local_attention, scaled_dot_product_attention
from vit_vs_cnn.attention.convolution import (
    ConvolutionalAttention,
    conv2d_to_attention,
    network_to_attention,
    unexplained_energy,
)
from vit_vs_cnn.reporting.style import looks

generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## The theorem
#
# A 3 x 3 convolution adds nine terms, one for each offset $D_h$ of its kernel:
#
# $$\mathrm{conv}(X)[q] = \sum_{h=1}^{9} X[q + D_h]\, W_h + b.$$
#
# Multi-head attention adds one term for each head: $\mathrm{MHA}(X)[q] = \sum_h \big(\sum_k A_h[q, k]\, X[k]\big) W_V^h W_O^h + b$.
# The two are the same as soon as head $h$ looks at **exactly one place**, $q + D_h$. A position that is quadratic in the distance
# does that (Cordonnier, Loukas and Jaggi 2020):
#
# $$A_h[q, \cdot] = \mathrm{softmax}_k\big(-\alpha\, |k - q - D_h|^2\big).$$
#
# The score is largest at $k = q + D_h$; its next neighbours are $e^{-\alpha}$ times less. By hand:

# %%
rows = cols = 8
grid = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).double()  # (64 queries, 2)
padded = torch.cartesian_prod(torch.arange(-1, rows + 1), torch.arange(-1, cols + 1)).double()  # (100 keys, 2)
offsets = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2)).double()  # (9 heads, 2)


def head_weights(alpha):
    distance = padded - grid[:, None] - offsets[:, None, None]  # (heads, queries, keys, 2)
    return (-alpha * distance.square().sum(-1)).softmax(-1)


figure, axes = plt.subplots(3, 9, figsize=(9, 3.4), layout="constrained")
for row, alpha in enumerate((0.2, 1.0, 46.0)):
    for head, axis in enumerate(axes[row]):
        axis.imshow(head_weights(alpha)[head, 3 * 8 + 4].view(10, 10), cmap="cividis", vmin=0)
        axis.plot(5, 4, ".", color="red", markersize=4)
        axis.set(xticks=[], yticks=[], title=f"head {head}" if row == 0 else "")
    axes[row, 0].set_ylabel(f"alpha {alpha}")

# %% [markdown]
# One query (the red dot) and what each of its nine heads reads. At $\alpha = 46$ every head sees one place: the nine are the
# kernel. Now the values: $W_V^h W_O^h$ is the kernel's matrix at that offset.

# %%
kernel, bias = torch.randn(5, 3, 3, 3, generator=generator).double(), torch.randn(5, generator=generator).double()
image = torch.randn(1, 3, rows, cols, generator=generator).double()
tokens = F.pad(image, (1, 1, 1, 1)).flatten(2)[0].mT  # (100 tokens, 3 channels), the padding is tokens of zeros
matrices = kernel.flatten(2).permute(2, 1, 0)  # (9 offsets, 3 in, 5 out)


def attention(alpha):
    heads = head_weights(alpha) @ tokens  # (9, 64, 3): what each head gathers
    return ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)


exact = F.conv2d(image, kernel, bias, padding=1)
print("largest difference from F.conv2d:", f"{(attention(46.0) - exact).abs().max():.0e}")

# %% [markdown]
# ## How sharp is sharp enough?
#
# At finite $\alpha$ the heads leak to their neighbours by $s = e^{-\alpha}$, and the error is $s$ times the convolution of the
# image's Laplacian, and terms in $s^2$. So it falls by $e$ for each unit of $\alpha$, until rounding is all there is.

# %%
alphas = torch.linspace(0.5, 40, 60)
errors = [(attention(float(alpha)) - exact).abs().max() for alpha in alphas]
figure, axis = plt.subplots(figsize=(5, 2.8))
axis.semilogy(alphas, errors, label="largest error")
axis.semilogy(alphas, float(errors[10]) * torch.exp(alphas[10] - alphas), "--", label="slope $e^{-\\alpha}$")
axis.set(xlabel="alpha", ylim=(1e-17, 1e2))
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# ## Queries and keys can say it
#
# Is this still attention, with queries and keys? Yes. The distance needs three numbers of each key: up to a term that all keys
# share, $-\alpha |k - q - D|^2 = \alpha\, \big(2(q+D)\cdot k - |k|^2\big)$, the product of a query $(2\alpha(q + D),\, -\alpha)$ and a
# key $(k,\, |k|^2)$.

# %%
keys = torch.cat([padded, padded.square().sum(-1, keepdim=True)], dim=-1)
targets = grid + offsets[:, None]
queries = torch.cat([2 * 46.0 * targets, torch.full((9, 64, 1), -46.0).double()], dim=-1)
scale = keys.shape[-1] ** 0.5  # which scaled attention divides by
heads = scaled_dot_product_attention(scale * queries[None], keys.expand(1, 9, -1, -1), tokens.expand(1, 9, -1, -1))
output = ((heads[0] @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)
print("as dot products:", f"{(output - exact).abs().max():.0e}")

# %% [markdown]
# There is one condition: a head must be as wide as the **rank** of its matrix $W_h$. A usual ViT has narrow heads, so it can
# express convolutions of low rank for each offset alone. What is lost of a random kernel of 32 channels:

# %%
wide = torch.randn(32, 32, 3, 3, generator=generator)
print({width: round(unexplained_energy(wide, width).item(), 2) for width in (1, 4, 8, 16, 32)})

# %% [markdown]
# ## A whole network
#
# `conv2d_to_attention` writes one layer, of any stride, padding or dilation; `network_to_attention` writes a network,
# whose other layers stay. Train a small ResNet (on drawn images), and compile it:

# %% tags=["parameters"]
STEPS = 60
TRAIN_IMAGES, TEST_IMAGES = 1000, 300
MEASURED = 300  # training images that the locality measures are fitted on
FIT_STEPS = 400  # of the task by hand

# %%
layer = nn.Conv2d(3, 5, 3, stride=2, padding=1)
small = torch.randn(2, 3, 9, 9, generator=generator)
with torch.no_grad():
    for form in ("window", "quadratic"):
        print(form, f"{(conv2d_to_attention(layer, form=form)(small) - layer(small)).abs().max():.0e}")

# %%
settings = {
    "name": "local",
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "contenders.vit.model.embed_dim": 64,
    "data.synthetic": {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32},
    "contenders.vit_window": {"model": {"name": "vit_nano", "position": "sincos", "window_size": 3}},
    "contenders.vit_impulse": {"model": {"name": "vit_nano", "position": "sincos", "initialisation": "impulse"}},
    "trainer": {"accelerator": "cpu", "logger": False},
}
found = vc.train("quickstart", settings, quiet=True)
accuracies = found.frame().set_index("contender")["accuracy"]
print(f"the ResNet, {STEPS} steps: {accuracies['resnet']:.1%} of {TEST_IMAGES} test images")

# %%
cell = next(found.folder.glob("cells/resnet-*"))
compiled = vc.to_attention(cell, quiet=True)
print(
    f"largest difference of a logit: {compiled.exact_difference:.0e} in float64, {compiled.difference:.0e} in float32"
)
print(f"same class on {compiled.agreement:.1%} of {compiled.images} test images")
print("parameters", compiled.parameters, "MACs", compiled.macs)

# %% [markdown]
# The same function, with every convolution gone. What it is worth: a CNN is *one setting* of the weights of an attention network.
# "Attention or convolution" is a question of what is easy to reach from where training starts, and not of what can be computed.
#
# ## Windows: the step between
#
# Global attention compares all with all. A window leaves each query its neighbourhood: the same nine places as the kernel, but
# weighted by content.

# %%
q, k, v = torch.randn(3, 1, 1, 64, 16, generator=generator).unbind()
_, local = local_attention(q, k, v, grid_size=(8, 8), window_size=3, return_weights=True)
_, everywhere = scaled_dot_product_attention(q, k, v, return_weights=True)

place = 3 * 8 + 4
figure, axes = plt.subplots(1, 3, figsize=(6.5, 2.4), layout="constrained")
pictures = {"global: by content": everywhere[0, 0, place], "window: content, near": local[0, 0, place]}
pictures["convolution: one head"] = head_weights(46.0)[5, place].view(10, 10)[1:-1, 1:-1]
for axis, (title, weights) in zip(axes, pictures.items(), strict=True):
    axis.imshow(weights.view(8, 8), cmap="cividis", vmin=0)
    axis.plot(4, 3, ".", color="red")
    axis.set_title(title, fontsize=9)
    axis.axis("off")

# %% [markdown]
# | | sees | weights | scores for $N$ tokens |
# |---|---|---|---|
# | convolution | $K \times K$ | learned, the same for all images | none |
# | window attention | $K \times K$ | by content | $N K^2$ |
# | global attention | everything | by content | $N^2$ |
#
# ## Released: content may grow
#
# In between is a layer that *starts* as a convolution and may leave it: the position of each head is learned, and the content has
# its say, from zero on. What can it learn that a convolution cannot? A task by hand: **the brightest of the nine neighbours**. No
# linear map does that.


# %%
def batch(count=16):
    images = torch.rand(count, 1, 8, 8, generator=generator)
    return images, F.max_pool2d(F.pad(images, (1, 1, 1, 1)), 3, stride=1)


def fit(layer, steps):
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.03, weight_decay=0.0)
    for _ in range(steps):
        images, wanted = batch()
        loss = F.mse_loss(layer(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, wanted = batch(256)
    return 1 - F.mse_loss(layer(images), wanted).item() / wanted.var().item()


# %%
torch.manual_seed(0)
convolution = nn.Conv2d(1, 1, 3, padding=1)
released = ConvolutionalAttention(1, 1, 3, padding=1, released=True)
released.set_kernel(convolution.weight.detach())
with torch.no_grad():
    released.output_bias.copy_(convolution.bias)
    images, _ = batch()
    print("before training they differ by", f"{(released(images) - convolution(images)).abs().max():.0e}")
for name, layer in (("convolution", convolution), ("released attention", released)):
    print(f"{name}: explains {fit(layer, FIT_STEPS):.0%} of the variance of new images")

# %% [markdown]
# ## How convolution-like is a trained network?
#
# Two measures, both on attention that was trained on images.
#
# **Mean attention distance.** How far a query reads, $\sum_k A[q, k]\, |q - k|$, mean over queries, in patches. On an 8 x 8 grid
# uniform attention has about 4.1, so that is "everywhere"; a head of the theorem reads at most $\sqrt 2$.

# %%
apart = torch.cdist(grid, grid)  # (queries, keys)
print(f"uniform attention: {apart.mean():.2f} patches")
print(
    f"window of 3: {(local[0, 0] * apart).sum(-1).mean():.2f}, global: {(everywhere[0, 0] * apart).sum(-1).mean():.2f}"
)

# %% [markdown]
# **The share that a 3 x 3 convolution explains.** Take what a layer reads and what it gives, on training images; fit the best
# 3 x 3 convolution from one to the other; say its $R^2$ on other images. 1 means: this layer *is* a convolution there.
# `vc.locality` measures both (and more), before and after training:

# %%
measured = vc.locality(found.folder, count=MEASURED, held_out=100, quiet=True)
layers = measured.frame()
print(", ".join(layers.columns))

# %%
measures = {"distance_ratio": "mean distance over uniform's", "r2_3": "share that a 3 x 3 convolution explains"}
styles = looks(layers["contender"])
figure, axes = plt.subplots(1, 2, figsize=(8.5, 2.9), layout="constrained")
for axis, (measure, title) in zip(axes, measures.items(), strict=True):
    for contender, of in layers.groupby("contender"):
        colour = styles[contender].colour
        axis.plot(of["layer"], of[f"{measure}_after"], "o-", color=colour, label=contender)
        axis.plot(of["layer"], of[f"{measure}_before"], ":", color=colour)
    axis.set(xlabel="layer", title=title, xticks=range(4))
    axis.legend(frameon=False, fontsize=8)

# %% [markdown]
# Dotted: before training; solid: after. The window cannot read far, whatever it learns. The *impulse* start (Zheng et al. 2024)
# sets queries and keys so that each head of a global layer looks at one neighbour.
#
# A high share alone is no proof of locality. Before training, global attention is nearly uniform: it gives every query the mean of the
# image, and that is easily told from a few of its tokens. Read the two measures together.
#
# Here these are three networks of one seed and a
# few steps, an exercise in reading the measures. What they say after real training on CIFAR-10, with three seeds, is recorded in
# `results/locality_cpu` of the repository.
#
# ## Exercises
#
# **1. Without padding.** Leave the tokens of zeros out, so that the keys are the image's own. To which padding of a convolution does
# this tend? (`F.pad(..., mode=...)` knows "replicate", "circular" and "reflect".)

# %% tags=["solution", "hide-cell"]
distance = (grid - grid[:, None] - offsets[:, None, None]).square().sum(-1)
heads = (-46.0 * distance).softmax(-1) @ image.flatten(2)[0].mT
without = ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)
for mode in ("replicate", "circular", "reflect"):
    other = F.conv2d(F.pad(image, (1, 1, 1, 1), mode=mode), kernel, bias)
    print(mode, f"{(without - other).abs().max():.0e}")
# Replicate: outside of the image the nearest token is nearest to the target.

# %% [markdown]
# **2. One head is a blur.** Show that one head with $D = 0$ at $\alpha = 0.5$ computes, away from the border, a convolution with the
# discrete Gaussian $e^{-\alpha d^2}$, normed.

# %% tags=["solution", "hide-cell"]
large = torch.rand(1, 1, 15, 15, generator=generator).double()
places = torch.cartesian_prod(torch.arange(15), torch.arange(15)).double()
blurred = (-0.5 * torch.cdist(places, places).square()).softmax(-1) @ large.flatten()
gauss = torch.exp(-0.5 * torch.arange(-6, 7).double().square())
gauss = torch.outer(gauss, gauss) / gauss.sum() ** 2
inside = F.conv2d(large, gauss[None, None])[0, 0]
print(f"{(blurred.view(15, 15)[6:-6, 6:-6] - inside).abs().max():.0e}")

# %% [markdown]
# **3. Stride.** A convolution of stride 2 is attention of fewer queries. Which? Check by hand.

# %% tags=["solution", "hide-cell"]
chosen = ((grid % 2) == 0).all(-1)  # every second row and column
heads = head_weights(46.0)[:, chosen] @ tokens
output = ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows // 2, cols // 2)
print(f"{(output - F.conv2d(image, kernel, bias, stride=2, padding=1)).abs().max():.0e}")

# %% [markdown]
# **4. How blunt may it be?** Compile the trained ResNet with `network_to_attention(..., form="quadratic", sharpness=alpha)` and find
# the share of test images that keep their class at $\alpha$ = 8, 4, 2, 1.

# %% tags=["solution", "hide-cell"]
resnet = vc.load(cell)
pixels = resnet.normalise(resnet.pool().test(resnet.cell.seed).images[:100])
with torch.no_grad():
    before = resnet.network(pixels).argmax(1)
    for alpha in (8.0, 4.0, 2.0, 1.0):
        blunt = network_to_attention(resnet.network, image_size=pixels.shape[2:], form="quadratic", sharpness=alpha)
        print(f"alpha {alpha:g}: {(blunt(pixels).argmax(1) == before).double().mean():.0%}")

# %% [markdown]
# ## Next
#
# What can be computed is the same; what is *learned from few images* is not. [Notebook 7](07_how_much_data.ipynb) asks how much
# data decides, and how one knows.
