# %% [markdown]
# # 5. The Vision Transformer
#
# **At the end you know** how an image becomes a sequence of tokens, how a whole ViT is built from the attention of
# notebooks 3 and 4, what it costs, how to compare it with a ResNet, and how little a single seed shows.
#
# **You need** multi-head attention and positions (notebook 3) and the Transformer block (notebook 4).
#
# **From the package:** `MultiHeadAttention`, `VisionTransformer`, `create_model`, `models`, `train`, `load`, and the
# synthetic images of `vit_vs_cnn.data.synthetic.source`. Nothing is downloaded.

# %%
import csv

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

import vit_vs_cnn as vc
from vit_vs_cnn.attention import scaled_dot_product_attention
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.models.cost import count_macs, count_parameters
from vit_vs_cnn.reporting.style import assign_styles

# %% [markdown]
# ## What is the token of an image?
#
# Attention reads a sequence of vectors. An image of 32 x 32 has 1,024 pixels. With one token for each pixel,
# attention would compute a million scores in each head. So the image is cut into patches of $P \times P$ pixels, and
# each patch is one token of $3 P^2$ numbers. With $P = 4$ there are 64 tokens of 48 numbers.

# %%
synthetic = render_objects(8, split="test", start=1).images
images = synthetic.images.float() / 255  # (8, 3, 32, 32)
grid = images.unfold(2, 4, 4).unfold(3, 4, 4)  # (image, channel, row, column, pixel row, pixel column)
patches = grid.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # (image, patch, numbers)
print(tuple(grid.shape), "->", tuple(patches.shape))

# %%
figure = plt.figure(figsize=(7, 3.3), layout="constrained")
left, right = figure.subfigures(1, 2)
right.suptitle("64 tokens")
axis = left.subplots()
axis.imshow(images[0].permute(1, 2, 0))
axis.set_title(f"one image: {synthetic.class_names[synthetic.labels[0]]}")
axis.axis("off")
for axis, patch in zip(right.subplots(8, 8).flat, patches[0], strict=True):
    axis.imshow(patch.view(3, 4, 4).permute(1, 2, 0), vmin=0, vmax=1)
    axis.axis("off")

# %% [markdown]
# A linear map $E$ turns each patch into a vector of width $D$: $z_i = E x_i + b$. The same map is applied to every
# patch, $P$ pixels apart. That is a **convolution with kernel size $P$ and stride $P$**. The first layer of a ViT is
# a convolution.

# %%
torch.manual_seed(0)
embed = nn.Linear(48, 64)
tokens = embed(patches)
by_convolution = F.conv2d(images, embed.weight.view(64, 3, 4, 4), embed.bias, stride=4)
print("largest difference:", f"{(tokens - by_convolution.flatten(2).mT).abs().max():.0e}")

# %% [markdown]
# ## Positions
#
# Attention does not know the order of its tokens (notebook 3). For images the effect is drastic: without positions, a
# ViT sees a **bag of patches**. Here is the same image with its patches shuffled. A ViT without positions gives the
# same logits for both, up to rounding. With positions, the logits differ: before training by a tenth as much as those
# of two different images.

# %%
shuffled = patches[0][torch.randperm(64)].view(8, 8, 3, 4, 4).permute(2, 0, 3, 1, 4).reshape(1, 3, 32, 32)
for position in ("none", "sincos"):
    torch.manual_seed(0)
    vit = vc.VisionTransformer(embed_dim=64, depth=4, num_heads=4, position=position).eval()
    with torch.no_grad():
        logits = vit(images)
        difference = (logits[:1] - vit(shuffled)).abs().max()
        between_images = (logits[:1] - logits[1:]).abs().amax(dim=1).mean()
    print(f"position {position}: the logits differ by {difference:.1g}, between images by {between_images:.1g}")

figure, axes = plt.subplots(1, 2, figsize=(4, 2.2))
for axis, image, title in zip(axes, (images[0], shuffled[0]), ("image", "the same bag of patches"), strict=True):
    axis.imshow(image.permute(1, 2, 0))
    axis.set_title(title, fontsize=9)
    axis.axis("off")

# %% [markdown]
# ## From 64 vectors to one
#
# The classifier needs one vector. There are two common ways:
#
# - a **class token**: an additional learned token, which collects information from the patches through the layers;
# - the **mean** of the patch tokens after the last layer.
#
# The mean is also attention: its query has the same score for every key. The package's ViT takes the mean by default;
# `pool="class"` selects the class token.

# %%
query = torch.zeros(8, 1, 1, 64)  # (image, head, query, width): all scores are 0
gathered = scaled_dot_product_attention(query, tokens[:, None], tokens[:, None])
print("mean = attention of a zero query:", torch.allclose(gathered[:, 0, 0], tokens.mean(1), atol=1e-6))

# %% [markdown]
# ## A ViT in 25 lines
#
# $Z_0 = XE + E_{pos}$, then $L$ blocks $Z' = Z + \mathrm{MHA}(\mathrm{LN}(Z))$, $Z'' = Z' + \mathrm{MLP}(\mathrm{LN}(Z'))$, and
# a linear head on the normed mean (Dosovitskiy et al. 2021, equations 1 to 4).


# %%
class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = vc.MultiHeadAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens):
        tokens = tokens + self.attention(self.norms[0](tokens))
        return tokens + self.mlp(self.norms[1](tokens))


# %%
class TinyViT(nn.Module):
    def __init__(self, patch=4, width=64, depth=4, heads=4, classes=10):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.position = nn.Parameter(0.5 * torch.randn((32 // patch) ** 2, width))
        self.blocks = nn.Sequential(*[Block(width, heads, 2 * width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        tokens = self.embed(images).flatten(2).mT + self.position
        return self.head(self.norm(self.blocks(tokens).mean(dim=1)))


# %% [markdown]
# This is `vit_nano` of the package, with as many parameters and as many multiply-accumulates (MACs).

# %%
ours, theirs = TinyViT(), vc.create_model("vit_nano", num_classes=10, image_size=32)
for model in (ours, theirs):
    print(
        tuple(model(images).shape),
        f"{count_parameters(model):,} parameters",
        f"{count_macs(model, (3, 32, 32)):,} MACs",
    )

# %% [markdown]
# The cost can be counted by hand. With $N$ tokens of width $D$, a block needs $4ND^2$ multiplications for queries,
# keys, values and output. Scores and weighted sums need $2N^2D$, and an MLP of width $2D$ needs $4ND^2$. Tools that
# count only layers miss the $2N^2D$.

# %%
N, D, depth = 64, 64, 4
by_part = {"projections": 4 * N * D * D, "attention": 2 * N * N * D, "MLP": 4 * N * D * D}
total = N * 48 * D + depth * sum(by_part.values()) + 10 * D  # patches, blocks, head
print(f"{total:,} MACs; {by_part['attention'] * depth / total:.0%} of them are matrix products of attention")

# %% [markdown]
# ## Comparison with a ResNet
#
# `vc.train` trains both under one protocol: the same images, batches, steps and seed. The config contains the common
# settings once, and the differences under the name of each model. Here we use the config `quickstart` with fewer
# steps; `python train.py` runs it in full. A finished run is saved: if you execute the cell again, nothing is
# trained.

# %% tags=["parameters"]
STEPS = 150
TRAIN_IMAGES, TEST_IMAGES = 1000, 500

# %% tags=["numbers-vary"]
protocol = {
    "name": "duel",
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "models.vit.options.embed_dim": 64,
    "data.synthetic": {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32},
    "trainer": {"accelerator": "cpu", "logger": False},
}
experiment = vc.train("quickstart", protocol, quiet=True)
experiment.frame()


# %% [markdown]
# ## Reading the curves
#
# Every run writes a `metrics.csv` with the columns step, metric and value. Ask three questions. Does the training
# loss still fall at the end of the learning-rate schedule? Then more steps help. Does the validation accuracy stop
# rising while the training loss falls? Then more data help. And which network learns *earlier*, and which one reaches
# a *higher* accuracy?


# %% tags=["numbers-vary"]
def curve(run, metric):
    with open(experiment.folder / run / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == metric]
    return [int(row["step"]) for row in rows], [float(row["value"]) for row in rows]


figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
styles = assign_styles(["resnet", "vit"])  # the colours of every report
for row in experiment.frame(all=True).itertuples():
    colour = styles[row.model].colour
    for axis, metric in zip(axes, ("train/loss", "val/accuracy"), strict=True):
        marker = "." if metric == "val/accuracy" else ""
        axis.plot(*curve(row.run, metric), marker=marker, color=colour, label=row.model)
        axis.set(xlabel="step", title=metric)
        axis.legend()

# %% [markdown]
# ## One seed
#
# The answer also states what this experiment cannot show:

# %% tags=["words-vary"]
print(experiment.answer)

# %% [markdown]
# The interval describes how the result varies with other test images, for these two networks. Another seed changes
# both accuracies, often by more than the interval. So one seed allows no conclusion. Three seeds on the same subsets
# do (`"protocol.seeds": [0, 1, 2]`), and notebook 7 shows how often even three mislead.
#
# The answer holds for *this budget*. A ViT of this size learns slowly at first. In the quickstart, with 250 steps of
# 128 images, the ResNet is significantly better.
#
# ## Attention maps of the trained ViT
#
# The forward pass returns attention weights on request, as `(batch, heads, tokens, tokens)` for each layer. Rows are
# queries: row $i$ shows what patch $i$ reads. The full 64 x 64 matrix is hard to read. **One row, reshaped to the
# grid of patches, is an image.** Here is the row of one patch of a test image, averaged over the heads. After so
# little training it is only an example.

# %% tags=["words-vary"]
vit = vc.load(experiment.folder, "vit")
with torch.no_grad():
    _, weights = vit.network(vit.normalize(synthetic.images[:1]), return_attention=True)

figure, axes = plt.subplots(1, 1 + len(weights), figsize=(9, 2.2), layout="constrained")
axes[0].imshow(images[0].permute(1, 2, 0))
axes[0].plot(17.5, 17.5, "s", markersize=11, markerfacecolor="none", color="red")
axes[0].set_title("the query: row 4, column 4", fontsize=9)
for layer, axis in enumerate(axes[1:]):
    axis.imshow(weights[layer][0, :, 4 * 8 + 4].mean(0).view(8, 8), cmap="cividis")
    axis.set_title(f"it reads, layer {layer + 1}", fontsize=9)
for axis in axes:
    axis.axis("off")

# %% [markdown]
# ## Exercises
#
# **1. Smaller patches.** How many tokens and MACs does `vit_nano` have with patches of 2, 4 and 8 pixels? Which part
# grows fastest?

# %% tags=["solution", "hide-cell"]
for patch in (8, 4, 2):
    model = vc.create_model("vit_nano", num_classes=10, image_size=32, patch_size=patch)
    n = (32 // patch) ** 2
    macs = count_macs(model, (3, 32, 32))
    print(
        f"patch {patch}: {n} tokens, {macs / 1e6:.1f}M MACs, {4 * 2 * n * n * 64 / macs:.0%} of it products of attention"
    )

# %% [markdown]
# **2. A class token.** Add one to `TinyViT`. How many parameters does it add? Compare with
# `vc.create_model("vit_nano", pool="class")`, which also gives the class token a position.


# %% tags=["solution", "hide-cell"]
class WithClassToken(TinyViT):
    def __init__(self):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(64))

    def forward(self, images):
        tokens = self.embed(images).flatten(2).mT + self.position
        first = self.class_token.expand(len(images), 1, -1)
        return self.head(self.norm(self.blocks(torch.cat([first, tokens], dim=1))[:, 0]))


theirs = vc.create_model("vit_nano", num_classes=10, image_size=32, pool="class")
print(tuple(WithClassToken()(images).shape), count_parameters(WithClassToken()) - count_parameters(TinyViT()))
print(count_parameters(theirs) - count_parameters(TinyViT()), "in the package")

# %% [markdown]
# **3. Permuted images.** Shuffle the patches of *all* images by one fixed permutation. Show that a ViT with learned
# positions loses nothing: some setting of its weights gives the same logits as before. Why is this not true for a
# ResNet?

# %% tags=["solution", "hide-cell"]
order = torch.randperm(64)
scrambled = patches[:, order].view(8, 8, 8, 3, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape(8, 3, 32, 32)
model = TinyViT().eval()
with torch.no_grad():
    before = model(images)
    model.position.copy_(model.position[order].clone())  # move each position vector along with its patch
    print("the logits differ by", f"{(before - model(scrambled)).abs().max():.0e}")
# A convolution reads neighbouring pixels. The permutation separates neighbours, and no kernel can undo that.

# %% [markdown]
# **4. Overlapping patches.** A ViT with a convolutional stem (`stem="conv"`) has the same number of tokens. Compare
# parameters, MACs and the receptive field of one token.

# %% tags=["solution", "hide-cell"]
for stem in ("patch", "conv"):
    model = vc.create_model("vit_nano", num_classes=10, image_size=32, stem=stem).eval()
    pixels = images[:1].clone().requires_grad_()
    model.patch_embedding(pixels)[0, 8 * 4 + 4].sum().backward()
    receptive_field = (pixels.grad.abs().sum(1)[0] > 0).sum().item()
    print(
        stem,
        f"{count_parameters(model):,} parameters, {count_macs(model, (3, 32, 32)):,} MACs; a token sees {receptive_field} pixels",
    )

# %% [markdown]
# ## Next
#
# The first layer was a convolution in disguise. [Notebook 6](06_attention_is_convolution.ipynb) shows that attention
# itself can compute a convolution, and measures how close trained networks come to one.
