# %% [markdown]
# # 6. Attention is convolution
#
# **What you will learn**
#
# - How nine attention heads compute a 3 x 3 convolution exactly, and what attention needs for this.
# - How to convert a whole trained CNN into an attention network with the same logits.
# - What window attention is, and what attention can compute that a convolution cannot.
# - How to measure how similar the attention of a trained network is to a convolution.
#
# **You need** multi-head attention (notebook 3a), relative positions (3b), and the ViT (notebook 5).
#
# **From the package:** `vit_vs_cnn.attention.convolution` (`conv2d_to_attention`, `network_to_attention`,
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
from vit_vs_cnn.reporting.style import NEUTRAL_COLOUR, SERIES_COLOURS

generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## The theorem
#
# A 3 x 3 convolution adds nine terms, one for each offset $D_h$ of its kernel. In these formulas $q$, $k$ and $D_h$
# are pairs of a row and a column: not query and key vectors, and not a width. $X[q]$ is the token at position $q$.
#
# $$\mathrm{conv}(X)[q] = \sum_{h=1}^{9} X[q + D_h]\, W_h + b.$$
#
# In multi-head attention (notebook 3a), cut $W_O$ into blocks of rows $W_O^h$, one for each head. The concatenated heads
# times $W_O$ are then a sum, with one term for each head:
#
# $$\mathrm{MHA}(X)[q] = \sum_{h=1}^{9} \Big(\sum_k A_h[q, k]\, X[k]\Big)\, W_V^h W_O^h + b.$$
#
# The two are equal if $W_V^h W_O^h = W_h$ and head $h$ attends to **exactly one position**: $A_h[q, k] = 1$ for
# $k = q + D_h$ and 0 otherwise.
#
# ![Each of nine heads reads one position of the 3 x 3 neighbourhood of a query, multiplies it by its matrix, and the
# nine results are added](../docs/static/drawings/heads_as_kernel.svg)
#
# Each head has the role of one place of the kernel.
#
# A score that is quadratic in the distance gives such weights (Cordonnier, Loukas and Jaggi 2020):
#
# $$A_h[q, \cdot] = \mathrm{softmax}_k\big(-\alpha\, |k - q - D_h|^2\big).$$
#
# The score is largest at $k = q + D_h$. The weights of the next neighbours are smaller by the factor $e^{-\alpha}$.
# By hand:

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
        axis.imshow(head_weights(alpha)[head, 3 * 8 + 4].view(10, 10), cmap="viridis", vmin=0)
        axis.plot(5, 4, ".", color="red", markersize=4)
        axis.set(xticks=[], yticks=[], title=f"head {head + 1}" if row == 0 else "")
    axes[row, 0].set_ylabel(f"alpha {alpha}")

# %% [markdown]
# The maps show one query (the red dot) and what each of its nine heads reads. At $\alpha = 46$ (bottom row) every head
# reads one position, and together the nine heads cover the kernel.
#
# Now the values: $W_V^h W_O^h$ is the kernel's matrix at
# offset $D_h$.

# %%
kernel, bias = torch.randn(5, 3, 3, 3, generator=generator).double(), torch.randn(5, generator=generator).double()
image = torch.randn(1, 3, rows, cols, generator=generator).double()
tokens = F.pad(image, (1, 1, 1, 1)).flatten(2)[0].mT  # (100 tokens, 3 channels), the padding is tokens of zeros
matrices = kernel.flatten(2).permute(2, 1, 0)  # (9 offsets, 3 in, 5 out)


def attention(alpha):
    heads = head_weights(alpha) @ tokens  # (9, 64, 3): the output of each head
    return ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)


exact = F.conv2d(image, kernel, bias, padding=1)
assert torch.allclose(attention(46.0), exact)
print("largest difference from F.conv2d:", f"{(attention(46.0) - exact).abs().max():.0e}")

# %% [markdown]
# ## How sharp is sharp enough?
#
# At finite $\alpha$ the heads leak to their neighbours by $s = e^{-\alpha}$. The *Laplacian* of an image is, at each pixel,
# the sum of its four neighbours minus four times the pixel. The error is $s$ times the convolution of the Laplacian,
# plus terms in $s^2$. So it falls by a factor of $e$ for each unit of $\alpha$, until only rounding errors are left.

# %%
alphas = torch.linspace(0.5, 40, 60)
errors = [(attention(float(alpha)) - exact).abs().max() for alpha in alphas]
figure, axis = plt.subplots(figsize=(5, 2.8))
axis.semilogy(alphas, errors, color=SERIES_COLOURS[0], label="largest error")
slope = float(errors[10]) * torch.exp(alphas[10] - alphas)
axis.semilogy(alphas, slope, "--", color=NEUTRAL_COLOUR, label="slope $e^{-\\alpha}$")
axis.set(xlabel="alpha", ylim=(1e-17, 1e2))
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# On the logarithmic axis the error is a straight line: each unit of $\alpha$ divides it by $e$. At about 36 it reaches
# the rounding errors of float64 and stops falling.
#
# ## The same as dot products
#
# Is this still attention, with queries and keys? Yes. The distance needs three numbers from each key. Up to a term
# that all keys share, $-\alpha |k - q - D_h|^2 = \alpha\, \big(2(q+D_h)\cdot k - |k|^2\big)$. This is the dot product of
# the query vector $(2\alpha(q + D_h),\, -\alpha)$ and the key vector $(k,\, |k|^2)$.

# %%
keys = torch.cat([padded, padded.square().sum(-1, keepdim=True)], dim=-1)
targets = grid + offsets[:, None]
queries = torch.cat([2 * 46.0 * targets, torch.full((9, 64, 1), -46.0).double()], dim=-1)
scale = keys.shape[-1] ** 0.5  # cancels the division in scaled attention
heads = scaled_dot_product_attention(scale * queries[None], keys.expand(1, 9, -1, -1), tokens.expand(1, 9, -1, -1))
output = ((heads[0] @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)
assert torch.allclose(output, exact)
print("as dot products:", f"{(output - exact).abs().max():.0e}")

# %% [markdown]
# ## What attention needs
#
# So attention can express a convolution if four conditions hold:
#
# 1. **Enough heads:** one for each offset, so $K^2$ heads for a kernel of $K \times K$.
# 2. **Positions in the scores:** the scores must be able to select $q + D_h$. Three numbers in queries and keys are
#    enough, or relative positions (notebook 3b). Without positions attention cannot do it.
# 3. **Wide heads:** a head must be as wide as the **rank** of its matrix $W_h$.
# 4. **Padding:** tokens of zeros outside the image, if the convolution pads with zeros.
#
# The usual ViTs have 3 to 16 heads, each narrower than a token, so they cannot express every 3 x 3 convolution in one
# layer. This is the share of a random kernel with 32 channels that is lost, by head width:

# %%
wide = torch.randn(32, 32, 3, 3, generator=generator)
print({width: round(unexplained_energy(wide, width).item(), 2) for width in (1, 4, 8, 16, 32)})

# %% [markdown]
# With fewer heads than offsets a trained CNN loses accuracy as well. A recorded ResNet-8 with 88.4 % on CIFAR-10 keeps
# 86.9 % with six heads for each convolution, 81.2 % with four, and 22.4 % with two (`results/locality_cpu` in the
# repository).
#
# The **other direction** is false: a convolution cannot express attention. Its weights are the same for all images,
# and those of attention depend on the content. Below, a task shows the difference.
#
# ## A whole network
#
# `conv2d_to_attention` converts one layer, with any stride, padding or dilation. `network_to_attention` converts all
# convolutions of a network and keeps the other layers. A difference of 0 below means equal to the last bit. (By hand it was
# 5e-15, since the same terms were added in another order.) We train a small ResNet on synthetic images and convert it:

# %% tags=["parameters"]
STEPS = 60
TRAIN_IMAGES, TEST_IMAGES = 1000, 300
FIT_STEPS = 400  # steps for the task of the brightest neighbour

# %%
layer = nn.Conv2d(3, 5, 3, stride=2, padding=1)
small = torch.randn(2, 3, 9, 9, generator=generator)
with torch.no_grad():
    for form in ("window", "quadratic"):
        print(form, f"{(conv2d_to_attention(layer, form=form)(small) - layer(small)).abs().max():.0e}")

# %% tags=["numbers-vary"]
settings = {
    "name": "local",
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "models.vit": None,  # the quickstart compares with a ViT, which is not needed here
    "data.synthetic": {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32},
    "trainer": {"accelerator": "cpu", "logger": False},
}
print("training a ResNet", flush=True)
experiment = vc.train("quickstart", settings, quiet=True)
accuracies = experiment.frame().set_index("model")["accuracy"]
print(f"ResNet after {STEPS} steps: accuracy {accuracies['resnet']:.1%} on {TEST_IMAGES} test images")

# %%
run = next(experiment.folder.glob("resnet-*"))
print("converting it and comparing the logits of all test images", flush=True)
compiled = vc.to_attention(run, quiet=True)
print(
    f"largest difference of a logit: {compiled.exact_difference:.0e} in float64, {compiled.difference:.0e} in float32"
)
print(f"same class on {compiled.agreement:.1%} of {compiled.images} test images")
print("parameters", compiled.parameters, "MACs", compiled.macs)

# %% [markdown]
# The function is the same, but no convolution is left. The MACs grow, because each 3 x 3 convolution becomes nine weighted
# means. They are computed in full, although one weight is 1 and the others are 0.
#
# So a CNN is *one setting* of the weights of an attention network, if this network meets the four conditions. A usual
# ViT does not. And that a setting exists does not mean that training finds it: the last section has recorded networks.
#
# ## Between the two: window attention
#
# Global attention compares every token with every other. In window attention a query sees only its neighbourhood: the
# same nine positions as the kernel, but weighted by content (Ramachandran et al. 2019). Swin has windows that do not
# overlap, and shifts them in every second layer (Liu et al. 2021).

# %%
q, k, v = torch.randn(3, 1, 1, 64, 16, generator=generator).unbind()
_, local = local_attention(q, k, v, grid_size=(8, 8), window_size=3, return_weights=True)
_, everywhere = scaled_dot_product_attention(q, k, v, return_weights=True)

place = 3 * 8 + 4
figure, axes = plt.subplots(1, 3, figsize=(6.5, 2.4), layout="constrained")
pictures = {"global: by content": everywhere[0, 0, place], "window: content, near": local[0, 0, place]}
pictures["convolution: one head"] = head_weights(46.0)[5, place].view(10, 10)[1:-1, 1:-1]
for axis, (title, weights) in zip(axes, pictures.items(), strict=True):
    axis.imshow(weights.view(8, 8), cmap="viridis", vmin=0)
    axis.plot(4, 3, ".", color="red")
    axis.set_title(title, fontsize=9)
    axis.axis("off")

# %% [markdown]
# The red dot is the query. Left and middle: the weights depend on the content, on all positions or on nine. Right: a
# head that has the role of one place of a kernel reads one position, for each image the same.
#
# | | receptive field | weights | scores for $N$ tokens |
# |---|---|---|---|
# | convolution | $K \times K$ | learned, the same for all images | none |
# | window attention | $K \times K$ | by content | $N K^2$ |
# | global attention | everything | by content | $N^2$ |
#
# ## Convolutional initialization, trained as attention
#
# There is also a layer that *starts* as a convolution and can depart from it. The idea is that of ConViT (d'Ascoli et
# al. 2021), where a learned gate in each head weighs position against content. Our layer is called **released** here:
# the positions of its heads and the influence of the content become trainable parameters, and the content starts with
# the factor zero. (In the layer that is not released, both are constants, and it remains a convolution.) What can this
# layer learn that a convolution cannot? Our task: **the brightest of the nine neighbours**. No linear map can do that.


# %%
def batch(count=16):
    images = torch.rand(count, 1, 8, 8, generator=generator)
    return images, F.max_pool2d(F.pad(images, (1, 1, 1, 1)), 3, stride=1)


def fit(layer, steps):
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.03, weight_decay=0.0)
    for _ in range(steps):
        images, targets = batch()
        loss = F.mse_loss(layer(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, targets = batch(256)
    return 1 - F.mse_loss(layer(images), targets).item() / targets.var().item()


# %% tags=["numbers-vary"]
torch.manual_seed(0)
convolution = nn.Conv2d(1, 1, 3, padding=1)
released = ConvolutionalAttention(1, 1, 3, padding=1, released=True)
released.set_kernel(convolution.weight.detach())
with torch.no_grad():
    released.output_bias.copy_(convolution.bias)
    images, _ = batch()
    print("difference before training:", f"{(released(images) - convolution(images)).abs().max():.0e}")
for name, layer in (("convolution", convolution), ("released attention", released)):
    print(f"{name}: explains {fit(layer, FIT_STEPS):.0%} of the variance of new images")

# %% [markdown]
# The released layer starts as the convolution and ends with a function that fits the task better than the trained
# convolution does. We look at its output only. Whether its heads still read one position each is not measured, neither
# here nor in `results/locality_cpu`.
#
# ## How convolution-like is a trained network?
#
# We use two measures, both on networks that were trained on images.
#
# **Mean attention distance.** How far away a query reads: $\sum_k A[q, k]\, |q - k|$ in patches, averaged over
# queries. On an 8 x 8 grid, uniform attention has a distance of about 4.1. A head that computes a 3 x 3 convolution
# has at most $\sqrt 2$, about a third of it.

# %%
distances = torch.cdist(grid, grid)  # (queries, keys)
print(f"uniform attention: {distances.mean():.2f} patches")
print(f"window of 3: {(local[0, 0] * distances).sum(-1).mean():.2f}")
print(f"global: {(everywhere[0, 0] * distances).sum(-1).mean():.2f}")

# %% [markdown]
# **The share explained by a 3 x 3 convolution.** Take the inputs and outputs of a layer on training images. Fit the
# best 3 x 3 convolution from inputs to outputs, and compute its $R^2$ on other images. A value of 1 means that the
# layer *is* a convolution on these images. `vc.locality` computes both measures (and more), before and after training.
#
# We use recorded values here: three ViTs, 400 steps on 5,000 CIFAR-10 images, means of three seeds
# (`results/locality_cpu`). In *window of 3* a patch attends to its 3 x 3 neighbours. In *impulse* (Zheng et al. 2024)
# attention is global, but its initial queries and keys are computed so that each head prefers one neighbour. This is an
# approximation: the heads are narrow, and only positions are taken into account, while tokens contain content as well.

# %%
RECORDED = {  # by network and measure: the values of layers 1 to 4, before and after training
    "global": {
        "distance": ([1.01, 1.00, 1.00, 1.00], [0.94, 0.93, 0.98, 0.98]),
        "share": ([0.62, 0.92, 0.95, 0.96], [0.54, 0.54, 0.59, 0.68]),
    },
    "window of 3": {
        "distance": ([0.25, 0.25, 0.25, 0.25], [0.25, 0.26, 0.27, 0.27]),
        "share": ([0.92, 0.96, 0.96, 0.97], [0.64, 0.69, 0.70, 0.76]),
    },
    "impulse": {
        "distance": ([0.48, 0.67, 0.72, 0.75], [0.55, 0.81, 0.79, 0.84]),
        "share": ([0.78, 0.72, 0.64, 0.61], [0.69, 0.51, 0.50, 0.45]),
    },
}
measures = {"distance": "mean distance over that of uniform", "share": "share that a 3 x 3 convolution explains"}
figure, axes = plt.subplots(1, 2, figsize=(8.5, 2.9), layout="constrained", sharey=True)
for axis, (measure, title) in zip(axes, measures.items(), strict=True):
    for (name, values), colour in zip(RECORDED.items(), SERIES_COLOURS, strict=False):
        before, after = values[measure]
        axis.plot(range(1, 5), after, "o-", color=colour, label=name)
        axis.plot(range(1, 5), before, ":", color=colour)
    axis.set(xlabel="layer", title=title, xticks=range(1, 5), ylim=(0, 1.05))
_ = axes[1].legend(frameon=False, fontsize=8)
# %% [markdown]
# Dotted: before training. Solid: after. Left: global attention reads almost as far as uniform attention, before and
# after training. Window attention cannot read far, by construction. The impulse heads are no heads of a 3 x 3 convolution,
# not even before training: their distance is 0.48 to 0.75 of that of uniform attention, and a third is the limit.
# Right: training *lowers* the share of all three.
#
# A high share alone does not prove locality. Before training, global attention is nearly uniform: every query reads
# the mean of the image. A few tokens may be enough to estimate it, but this was not tested: layer 1 is as uniform, and
# its share is only 0.62. For global attention the two measures disagree: in training its distance becomes slightly
# *more* local (1.01 to 0.94 in layer 1).
#
# **Does a window help?** The experiment was also run with 1,000 images. Then windows of 3 x 3 patches were 5.7 points more
# accurate than global attention (95 % interval 3.8 to 7.7). With 5,000 there was not enough evidence. With both numbers
# of images the ResNet was 6.4 to 13.4 points better than each of seven ViTs. All this holds for small networks and 400
# steps, not for longer training.
#
# ## In short
#
# - Multi-head attention equals a $K \times K$ convolution if each of $K^2$ heads attends to one offset.
# - It needs positions in the scores, heads as wide as the rank of the kernel's matrices, and padding tokens.
# - A trained CNN can be converted with the same logits; a convolution cannot express attention in general.
# - Window attention is between the two: the receptive field of a kernel, and weights by content.
# - In the recorded ViTs, training lowered the share that a 3 x 3 convolution explains: what can be computed need not be
#   learned.
#
# ## Exercises
#
# **1. Without padding.** Leave out the zero tokens, so that the keys are only those of the image. Which padding of a
# convolution does the result correspond to? (`F.pad(..., mode=...)` supports "replicate", "circular" and "reflect".)

# %% tags=["solution", "hide-cell"]
distance = (grid - grid[:, None] - offsets[:, None, None]).square().sum(-1)
heads = (-46.0 * distance).softmax(-1) @ image.flatten(2)[0].mT
unpadded = ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows, cols)
for mode in ("replicate", "circular", "reflect"):
    padded_convolution = F.conv2d(F.pad(image, (1, 1, 1, 1), mode=mode), kernel, bias)
    print(mode, "is equal" if torch.allclose(unpadded, padded_convolution) else "differs")
    assert torch.allclose(unpadded, padded_convolution) == (mode == "replicate")
# Replicate: if the target is outside the image, the head attends to the nearest token inside.

# %% [markdown]
# **2. One head is a blur.** Show that one head with $D_h = 0$ and $\alpha = 0.5$ computes a convolution, except near
# the border. Its kernel is the normalised discrete Gaussian $e^{-\alpha d^2}$.

# %% tags=["solution", "hide-cell"]
large = torch.rand(1, 1, 15, 15, generator=generator).double()
places = torch.cartesian_prod(torch.arange(15), torch.arange(15)).double()
blurred = (-0.5 * torch.cdist(places, places).square()).softmax(-1) @ large.flatten()
gauss = torch.exp(-0.5 * torch.arange(-6, 7).double().square())
gauss = torch.outer(gauss, gauss) / gauss.sum() ** 2
inside = F.conv2d(large, gauss[None, None])[0, 0]
assert torch.allclose(blurred.view(15, 15)[6:-6, 6:-6], inside, atol=1e-6)

# %% [markdown]
# **3. Stride.** A convolution of stride 2 is attention with fewer queries. Which ones? Check by hand.

# %% tags=["solution", "hide-cell"]
chosen = ((grid % 2) == 0).all(-1)  # every second row and column
heads = head_weights(46.0)[:, chosen] @ tokens
output = ((heads @ matrices).sum(0) + bias).mT.view(1, 5, rows // 2, cols // 2)
assert torch.allclose(output, F.conv2d(image, kernel, bias, stride=2, padding=1))

# %% [markdown]
# **4. How small can $\alpha$ be?** Convert the trained ResNet with `network_to_attention(..., form="quadratic",
# sharpness=alpha)`. For which share of test images does the predicted class stay the same, at $\alpha$ = 8, 4, 2, 1?

# %% tags=["solution", "hide-cell", "numbers-vary"]
resnet = vc.load(run)
pixels = resnet.normalize(resnet.pool().test(resnet.run.seed).images[:100])
with torch.no_grad():
    before = resnet.network(pixels).argmax(1)
    for alpha in (8.0, 4.0, 2.0, 1.0):
        blunt = network_to_attention(resnet.network, image_size=pixels.shape[2:], form="quadratic", sharpness=alpha)
        print(f"alpha {alpha:g}: {(blunt(pixels).argmax(1) == before).double().mean():.0%}")
    sharp = network_to_attention(resnet.network, image_size=pixels.shape[2:], form="quadratic", sharpness=46.0)
    assert (sharp(pixels).argmax(1) == before).double().mean() > 0.98  # at 46, as at the start of the notebook

# %% [markdown]
# **Open questions** (without a solution)
#
# 1. A ViT with positions added to the tokens (notebook 3b) has no relative positions in its scores. Can it still express
#    the offset heads of this notebook? Which queries and keys would it need?
# 2. The converted CNN and the ViT are both attention networks. They differ in their architecture, and in the weights that
#    they start from. Design an experiment that shows which of the two decides the accuracy with few images.

# %% [markdown]
# **Next:** [how much data?](07_how_much_data.ipynb) An attention network can compute what a CNN computes. But a ViT and a CNN
# do not *learn the same from few images*. How does the amount of data matter, and how can you find out?
