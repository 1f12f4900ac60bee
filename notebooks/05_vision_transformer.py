# %% [markdown]
# # 5. The Vision Transformer
#
# **What you will learn**
#
# - How an image becomes a sequence of tokens, and how a whole ViT is built from the attention of notebooks 3a to 4a.
# - How to train it in a loop of 15 lines, and what it costs.
# - Which inductive biases a CNN has and a ViT does not have.
# - How overfitting looks, which hyperparameters matter, and how little a single seed shows.
#
# **You need** multi-head attention (notebook 3a), positions (3b) and the Transformer block (4a).
#
# **From the package:** `MultiHeadAttention`, `VisionTransformer`, `create_model`, `train`, and the synthetic images of
# `vit_vs_cnn.data.synthetic.source`. Nothing is downloaded.

# %%
import math

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
# The right side shows the same pixels in 64 pieces. The ViT gets them as a list: that two pieces are neighbours is not
# part of it.
#
# A linear map $E$ turns each patch into a vector of width $D$: $z_i = E x_i + b$. It has $48 D + D$ parameters, so 3,136
# for $D = 64$. The same map is applied to every patch, $P$ pixels apart. That is a **convolution with kernel size $P$
# and stride $P$**. The first layer of a ViT is a convolution.

# %%
torch.manual_seed(0)
embed = nn.Linear(48, 64)
tokens = embed(patches)
by_convolution = F.conv2d(images, embed.weight.view(64, 3, 4, 4), embed.bias, stride=4)
print("largest difference:", f"{(tokens - by_convolution.flatten(2).mT).abs().max():.0e}")

# %% [markdown]
# This is the whole ViT, next to a ResNet of similar cost. A *ResNet* is a CNN with residual connections (notebook 4a).
# *ResNet-8* has eight layers with weights.
#
# ![Left: a ViT cuts the image into patches, adds positions, applies four blocks of attention and takes the mean of the
# tokens. Right: a ResNet applies 3 x 3 convolutions in three stages, which halve the image and double the
# channels](../docs/static/drawings/vit_and_resnet.svg)
#
# The ViT keeps 64 tokens in all blocks, and the ResNet halves rows and columns twice.

# %% [markdown]
# ## Positions
#
# Attention does not know the order of its tokens (notebook 3b). For images the effect is drastic: without positions, a
# ViT sees a **bag of patches**. Here is the same image with its patches shuffled. A ViT without positions gives the
# same logits for both, up to rounding. With positions (`sincos`: sinusoidal, of row and column), the logits differ:
# before training by a tenth as much as those of two different images.

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
# The object is gone on the right, and all its patches are still there. A network without positions cannot tell the two
# images apart.
#
# ## From 64 vectors to one
#
# The classifier needs one vector. There are two common ways:
#
# - a **class token**: an additional learned token, which collects information from the patches through the layers;
# - the **mean** of the patch tokens after the last layer.
#
# The mean is also attention: its query has the same score for every key. The package's ViT takes the mean by default;
# `pool="class"` selects the class token. This notebook does not compare their accuracy.

# %%
query = torch.zeros(8, 1, 1, 64)  # (image, head, query, width): all scores are 0
gathered = scaled_dot_product_attention(query, tokens[:, None], tokens[:, None])
print("mean = attention of a zero query:", torch.allclose(gathered[:, 0, 0], tokens.mean(1), atol=1e-6))

# %% [markdown]
# ## A ViT in 25 lines
#
# $Z_0 = XE + E_{pos}$, then $L$ blocks $Z' = Z + \mathrm{MHA}(\mathrm{LN}(Z))$, $Z'' = Z' + \mathrm{MLP}(\mathrm{LN}(Z'))$, and
# a linear classifier head on the normed mean (Dosovitskiy et al. 2021, equations 1 to 4, where a class token takes the
# place of the mean). The positions start with a standard deviation of 0.5: large enough beside patch tokens of about 1,
# and not larger than the content.


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
# This is `vit_nano` of the package. To prove it, we load the weights of `TinyViT` into `vit_nano` under its names. The
# logits are equal up to rounding.

# %%
NAMES = {"embed.": "patch_embedding.projection.", "position": "position.encoding", "blocks.": "encoder.blocks."}
NAMES |= {"norms.0": "attention_norm", "norms.1": "mlp_norm", "mlp.0": "mlp.expand", "mlp.2": "mlp.contract"}


def as_vit_nano(tiny):
    weights = {}
    for name, weight in tiny.state_dict().items():
        renamed = name
        for ours, theirs in NAMES.items():
            renamed = renamed.replace(ours, theirs)
        weights[renamed] = weight.flatten(1) if weight.ndim == 4 else weight  # patches are embedded by a linear map
    vit = vc.create_model("vit_nano", num_classes=10, image_size=32)
    vit.load_state_dict(weights)
    return vit.eval()


tiny = TinyViT()
with torch.no_grad():
    difference = (tiny(images) - as_vit_nano(tiny)(images)).abs().max().item()
assert difference < 1e-4
print("the logits are equal:", difference < 1e-4)
print(f"{count_parameters(tiny):,} parameters, {count_macs(tiny, (3, 32, 32)):,} multiply-accumulates (MACs)")

# %% [markdown]
# The cost can be counted by hand. With $N$ tokens of width $D$, a block needs $4ND^2$ multiplications for queries,
# keys, values and output. Scores and weighted sums need $2N^2D$, and an MLP of width $2D$ needs $4ND^2$. Tools that
# count only layers miss the $2N^2D$.

# %%
N, D, depth = 64, 64, 4
by_part = {"projections": 4 * N * D * D, "attention": 2 * N * N * D, "MLP": 4 * N * D * D}
total = N * 48 * D + depth * sum(by_part.values()) + 10 * D  # patches, blocks, head
assert total == count_macs(tiny, (3, 32, 32))
print(f"{total:,} MACs; {by_part['attention'] * depth / total:.0%} of them are matrix products of attention")

# %% [markdown]
# ## Training
#
# The training set has 1,000 synthetic images of ten shapes. Each channel is normalised by its mean and standard
# deviation. Another 500 images are the validation set. (The function that renders images has two independent series of
# them, called "train" and "test". Here the second one validates.)

# %% tags=["parameters"]
STEPS = 150
TRAIN_IMAGES, TEST_IMAGES = 1000, 500


# %%
def load_images(split, count):
    rendered = render_objects(count, split=split).images
    return rendered.images.float() / 255, rendered.labels


train_images, train_labels = load_images("train", TRAIN_IMAGES)
val_images, val_labels = load_images("test", TEST_IMAGES)
mean, std = (statistic(dim=(0, 2, 3), keepdim=True) for statistic in (train_images.mean, train_images.std))
train_images, val_images = (train_images - mean) / std, (val_images - mean) / std
print(tuple(train_images.shape), tuple(val_images.shape))

# %% [markdown]
# The loop samples a batch, computes the loss and its gradient, and updates the weights by AdamW. The learning rate
# rises linearly for a tenth of the steps (*warm-up*, notebook 4a) and then falls to zero along a cosine.


# %%
def accuracy(network, images, labels):
    network.eval()
    with torch.no_grad():
        right = (network(images).argmax(dim=1) == labels).float().mean().item()
    network.train()
    return right


def train(network, learning_rate, steps, seed=0):
    generator, curve, warm_up = torch.Generator().manual_seed(seed), [], max(1, steps // 10)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=0.05)
    for step in range(1, steps + 1):
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.param_groups[0]["lr"] = learning_rate * min(step / warm_up, cosine)
        batch = torch.randint(len(train_images), (64,), generator=generator)
        loss = F.cross_entropy(network(train_images[batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0 or step == steps:
            on_train = accuracy(network, train_images[:500], train_labels[:500])
            curve.append((step, on_train, accuracy(network, val_images, val_labels)))
            print(f"step {step:3}: loss {loss:.2f}, training {on_train:.0%}, validation {curve[-1][2]:.0%}", flush=True)
    return curve


# %% tags=["numbers-vary"]
torch.manual_seed(0)
vit = TinyViT()
vit_curve = train(vit, learning_rate=2e-3, steps=STEPS)

# %% [markdown]
# ## A CNN in 15 lines
#
# Six convolutions of 3 x 3, without residual connections. The third and the fifth have stride 2, so the features form a
# grid of 8 x 8, as the tokens of the ViT do. A mean and a linear head follow. Loop and batches are the same.


# %%
class TinyCNN(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        channels, layers = 3, []
        for factor, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            layers.append(nn.Conv2d(channels, factor * width, 3, stride=stride, padding=1, bias=False))
            layers += [nn.BatchNorm2d(factor * width), nn.ReLU()]
            channels = factor * width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images):
        return self.head(self.features(images).mean(dim=(2, 3)))


# %% tags=["numbers-vary"]
torch.manual_seed(0)
cnn = TinyCNN()
print(f"{count_parameters(cnn):,} parameters, {count_macs(cnn, (3, 32, 32)):,} MACs")
cnn_curve = train(cnn, learning_rate=3e-3, steps=STEPS)

# %% tags=["numbers-vary"]
styles = assign_styles(["resnet", "vit"])  # the colours of every report: the CNN has that of the ResNet
figure, axis = plt.subplots(figsize=(5.5, 2.8), layout="constrained")
for name, model, curve in (("CNN", "resnet", cnn_curve), ("ViT", "vit", vit_curve)):
    steps, on_train, on_val = zip(*curve, strict=True)
    axis.plot(steps, on_train, ":", color=styles[model].colour, label=f"{name}, training")
    axis.plot(steps, on_val, "o-", color=styles[model].colour, label=f"{name}, validation")
axis.set(xlabel="step", ylabel="accuracy", ylim=(0, 1))
_ = axis.legend(frameon=False, fontsize=8)

# %% [markdown]
# Compare the two solid lines: in this run the CNN is more accurate on new images, with half of the parameters. Then
# compare the solid and the dotted line of each network. The distance between them is overfitting, and here it is larger
# for the ViT. Each network was trained with one seed. Below, a second seed shows how much such numbers vary.
#
# ## Inductive bias
#
# An **inductive bias** is an assumption about the data that is built into a network, so that it need not be learned
# from images. A CNN has three of them. Notebook 3b named the first two, and the ViT has the third as well.
#
# **1. Locality.** A layer reads only neighbours. We count the pixels that one position depends on: after one layer, and
# for the ViT after the patches are embedded and after one block.


# %%
def receptive_field(output, pixels):
    (gradient,) = torch.autograd.grad(output, pixels)
    return (gradient.abs().sum(dim=1) > 0).sum().item()


pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
tokens = vit.embed(pixels).flatten(2).mT + vit.position
pixel_counts = {
    "CNN, first layer": receptive_field(cnn.features[0](pixels)[0, :, 16, 16].sum(), pixels),
    "ViT, patches": receptive_field(vit.embed(pixels)[0, :, 4, 4].sum(), pixels),
    "ViT, first block": receptive_field(vit.blocks[0](tokens)[0, 36].square().sum(), pixels),
}
print(pixel_counts)
assert list(pixel_counts.values()) == [9, 16, 1024]

# %% [markdown]
# **2. Translation equivariance.** If the image is shifted, the feature maps of a convolution shift too. We shift an
# image by 4 pixels, which is one position of both grids, and compare the feature maps, shifted back. Positions at the
# border of the image are left out. Zero means that the features are equal.


# %%
def feature_change(features, image):
    """Relative change of a grid of features, if the image is shifted by 4 pixels. The border is left out."""
    with torch.no_grad():
        before, after = features(image)[..., 3:5], features(image.roll(4, dims=3))[..., 4:6]
    return ((after - before).norm() / before.norm()).item()


def vit_features(images, position):
    tokens = vit.embed(images).flatten(2).mT + position
    return vit.blocks(tokens).mT.unflatten(2, (8, 8))


# %% tags=["numbers-vary"]
cnn.eval()
cnn_change = feature_change(cnn.features, val_images[:1])
vit_change = feature_change(lambda images: vit_features(images, vit.position), val_images[:1])
print(f"CNN: {cnn_change:.2f}, ViT: {vit_change:.2f}")
without_positions = feature_change(lambda images: vit_features(images, 0), val_images[:1])
print(f"ViT without its positions: {without_positions:.2f}")
assert cnn_change < 1e-3 < vit_change and without_positions < 1e-3

# %% [markdown]
# If the CNN recognises a shape at one place, it recognises it 4 pixels further, too. The ViT has to learn this from
# images, and here its features have not become equivariant. Without positions it is equivariant, but then it sees a bag
# of patches. We tested only a shift by the stride of both grids. After other shifts, strided layers read other pixels,
# and equal features are not guaranteed.
#
# **3. Weight sharing.** All positions use the same weights, so their number does not depend on the size of the image. If
# *nothing* depends on the position, equivariance follows. The ViT shares its patch embedding, projections and MLP
# between all tokens. Only its positions are not shared, so it is not equivariant.

# %%
shared = cnn.features[0].weight.numel()
unshared = (3 * 32 * 32) * (16 * 32 * 32)  # a linear map from all pixels to all features
print(f"first layer of the CNN: {shared:,} weights; a linear map without locality and sharing: {unshared:,}")
print(f"ViT: {vit.position.numel() / count_parameters(vit):.0%} of the parameters are positions")

# %% [markdown]
# So a CNN assumes that neighbouring pixels belong together and that place does not matter. For images this is mostly
# right, and with few images it helps. If the assumption is wrong, it hardly helps, and with many images it hurts. A
# recorded experiment shows this (`results/permuted_blocks_cpu` in the repository: CIFAR-10, five seeds). All images were
# cut into blocks of 4 x 4 pixels, put in another order, the same for all. With 2,000 images ResNet-8 was 16.4 points
# better than the ViT before, and 1.6 after. With 50,000 it was 9.0 points better before, and 9.1 worse after. (These
# images were cropped and flipped. Without this, and with 1,000 images, the new order cost ResNet-8 5.8 points instead of
# 15.1: `results/augmentation_permuted_cpu`.)
#
# With far more images, the disadvantage of the ViT disappears. Trained on ImageNet (over a million images), the first
# ViTs were a few points less accurate than ResNets of their size. Pretrained on JFT-300M (hundreds of millions), they
# were more accurate (Dosovitskiy et al. 2021). Two other ways need only ImageNet: strong augmentation and distillation
# (DeiT, Touvron et al. 2021), or locality that is built in again (Swin, Liu et al. 2021; notebook 6).
#
# ## Overfitting and hyperparameters
#
# A network **overfits** if it is much better on its training images than on new ones. Usual remedies are more images
# and **augmentation**: each batch shows the images shifted, mirrored or with other colours. The figure has recorded
# validation accuracies of ResNet-8 and `vit_nano`: 5,000 CIFAR-10 images, 1,600 steps, means of two seeds
# (`results/augmentation_cpu`). Training accuracies were not recorded, so the gap is not shown. *Light*: shifts
# and flips. *Strong*: also RandAugment (random changes of colour and geometry) and random erasing of a rectangle.

# %%
RECORDED_STEPS = [320, 640, 960, 1280, 1600]
RECORDED = {
    ("resnet", "none"): [0.452, 0.498, 0.544, 0.606, 0.629],
    ("resnet", "light"): [0.596, 0.647, 0.706, 0.752, 0.755],
    ("resnet", "strong"): [0.469, 0.569, 0.683, 0.739, 0.764],
    ("vit", "none"): [0.486, 0.498, 0.523, 0.517, 0.543],
    ("vit", "light"): [0.462, 0.509, 0.580, 0.624, 0.629],
    ("vit", "strong"): [0.423, 0.493, 0.575, 0.647, 0.655],
}
figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
axes[0].set_ylabel("validation accuracy")
for (model, augmentation), accuracies in RECORDED.items():
    axis = axes[0] if model == "resnet" else axes[1]
    line = {"none": ":", "light": "--", "strong": "-"}[augmentation]
    axis.plot(RECORDED_STEPS, accuracies, line, color=styles[model].colour, label=augmentation)
    axis.set(xlabel="step", title={"resnet": "ResNet-8", "vit": "ViT nano"}[model])
    axis.legend(frameon=False, fontsize=8)
# %% [markdown]
# Without augmentation (dotted) the ViT improves little after 320 steps. With strong augmentation (solid) it begins more
# slowly and ends 11.2 points higher, and the ResNet 13.5 points. Two seeds allow no conclusion, neither about these
# gains nor about which network is better.
#
# The other **hyperparameters** of a ViT and what they cost:

# %%
variants = {"as above": {}, "patch of 2": {"patch": 2}, "patch of 8": {"patch": 8}}
variants |= {"width 32": {"width": 32}, "width 128": {"width": 128}}
variants |= {"depth 2": {"depth": 2}, "depth 8": {"depth": 8}, "2 heads": {"heads": 2}, "8 heads": {"heads": 8}}
print("               tokens  parameters    MACs")
for name, options in variants.items():
    model = TinyViT(**options)
    macs = count_macs(model, (3, 32, 32)) / 1e6
    print(f"{name:12} {len(model.position):8} {count_parameters(model):11,} {macs:6.1f}M")

# %% [markdown]
# | hyperparameter | cost | with few images |
# | --- | --- | --- |
# | patch size | half the size: four times the tokens, more than four times the MACs; a smaller embedding, more positions | small patches keep details; large ones hide them |
# | width | twice the width: almost four times the parameters | more width fits training images sooner, and overfits sooner; too little underfits |
# | depth | proportional | as width; warm-up is usual (notebook 4a) |
# | heads | none: each head becomes narrower | 2 to 8 are common at this width; a very narrow head limits its attention maps |
# | learning rate | none | too low: the loss falls slowly; too high: it does not fall. Try it first |
# | augmentation | almost none | higher validation accuracy, after a slower start of the ViT (figure above) |
# | weight decay, dropout | almost none | meant to reduce overfitting |
#
# Tokens, parameters and MACs are counted above, and the figure shows augmentation. Nothing else in this table is
# measured in this notebook: take it as advice. (In a search on CIFAR-10, patches of 4 were better than patches of 2 and
# 8: UvA Deep Learning Tutorials, 15.)
#
# ## One seed
#
# How reliable is one accuracy? We train the same ViT on the same images again. The only change is the seed, which
# determines the initial weights and the order of the batches.

# %% tags=["numbers-vary"]
torch.manual_seed(1)
again = train(TinyViT(), learning_rate=2e-3, steps=STEPS, seed=1)
print(f"validation accuracy with seed 0: {vit_curve[-1][2]:.1%}, with seed 1: {again[-1][2]:.1%}")

# %% [markdown]
# The two accuracies differ, although network and images are the same. Another processor or number of threads rounds
# sums differently, and after many steps this can have the effect of another seed. So a difference of a few points
# between two networks with one seed is no evidence.
#
# ## The same with the package
#
# `vc.train` trains several networks under one protocol: the same images, batches, steps and seeds. It saves each run and
# states what the experiment cannot show. The config `quickstart` has other networks than the ones above: a ResNet-8 and
# a ViT of about the same cost. This ViT is called "ViT nano", too, but its width is 72 instead of 64. The recipe of
# training differs as well, so the accuracies are not those from above. This takes about 40 seconds.

# %% tags=["words-vary"]
images_32 = {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32}
protocol = {"protocol.budget": {"steps": STEPS}, "protocol.seeds": [0], "data.synthetic": images_32}
on_cpu = {"protocol.batch_size": 64, "trainer": {"accelerator": "cpu", "logger": False}}
print("training a ViT and a ResNet", flush=True)
experiment = vc.train("quickstart", {"name": "duel", **protocol, **on_cpu}, quiet=True)
print(experiment.answer)

# %% [markdown]
# CI is short for confidence interval. It describes how the result varies with other test images, for these two networks.
# It does not contain the variation between seeds. Three seeds on the same subsets do (`"protocol.seeds": [0, 1, 2]`),
# and notebook 7 shows how often even three mislead.
#
# ## Attention maps of the trained ViT
#
# The forward pass of `vit_nano` returns attention weights on request, as `(batch, heads, tokens, tokens)` for each
# layer. Rows are queries: row $i$ shows what patch $i$ reads. The full 64 x 64 matrix is hard to read. **One row,
# reshaped to the grid of patches, is an image.** Here is the row of one patch, averaged over the heads.

# %% tags=["numbers-vary"]
with torch.no_grad():
    _, weights = as_vit_nano(vit)((images[:1] - mean) / std, return_attention=True)

figure, axes = plt.subplots(1, 1 + len(weights), figsize=(9, 2.2), layout="constrained")
axes[0].imshow(images[0].permute(1, 2, 0))
axes[0].plot(17.5, 17.5, "s", markersize=11, markerfacecolor="none", color="red")
axes[0].set_title("the query: row 5, column 5", fontsize=9)
for layer, axis in enumerate(axes[1:]):
    axis.imshow(weights[layer][0, :, 4 * 8 + 4].mean(0).view(8, 8), cmap="viridis")
    axis.set_title(f"it reads, layer {layer + 1}", fontsize=9)
for axis in axes:
    axis.axis("off")

# %% [markdown]
# Bright patches are read most. They are not the neighbours of the query, as they would be in a convolution, and in the
# last layers most of them are on the object. Notebook 8 shows how to check what such a map means.
#
# ## In short
#
# - An image becomes a sequence of patches; the patch embedding is a convolution with a stride as large as its kernel.
# - A ViT is patch embedding + positions + Transformer blocks + mean + linear head: 25 lines.
# - A CNN has locality, translation equivariance and weight sharing. A ViT shares weights only, and would have to learn
#   the rest.
# - With few images these biases help, if they are right. Remedies for overfitting are more images and augmentation.
# - One seed is no evidence: another seed can change the accuracy by several points.
#
# ## Exercises
#
# **1. Smaller patches.** How many tokens and MACs does `vit_nano` have with patches of 2, 4 and 8 pixels? Which part
# grows fastest?

# %% tags=["solution", "hide-cell"]
for patch in (8, 4, 2):
    model = vc.create_model("vit_nano", num_classes=10, image_size=32, patch_size=patch)
    n = (32 // patch) ** 2
    macs = count_macs(model, (3, 32, 32))
    products = 4 * 2 * n * n * 64
    assert macs == n * 3 * patch**2 * 64 + 4 * 8 * n * 64**2 + products + 640
    print(f"patch {patch}: {n} tokens, {macs / 1e6:.1f}M MACs, {products / macs:.0%} of it products of attention")

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
assert WithClassToken()(images).shape == (8, 10)
assert count_parameters(WithClassToken()) - count_parameters(TinyViT()) == 64
assert count_parameters(theirs) - count_parameters(TinyViT()) == 128  # the token and its position

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
    assert torch.allclose(before, model(scrambled), atol=1e-4)
# A convolution reads neighbouring pixels. The permutation separates neighbours, and no kernel can undo that.

# %% [markdown]
# **4. Overlapping patches.** A ViT with a convolutional stem (`stem="conv"`) has the same number of tokens. Compare
# parameters, MACs and the receptive field of one token.

# %% tags=["solution", "hide-cell"]
for stem in ("patch", "conv"):
    model = vc.create_model("vit_nano", num_classes=10, image_size=32, stem=stem).eval()
    pixels = images[:1].clone().requires_grad_()
    model.patch_embedding(pixels)[0, 8 * 4 + 4].sum().backward()
    pixel_count = (pixels.grad.abs().sum(1)[0] > 0).sum().item()
    assert (pixel_count == 16) == (stem == "patch")
    print(f"{stem}: {count_parameters(model):,} parameters, {count_macs(model, (3, 32, 32)):,} MACs")
    print(f"    the receptive field of a token has {pixel_count} pixels")

# %% [markdown]
# **Open questions** (without a solution)
#
# 1. Which of the three inductive biases does a ViT get back if each patch attends only to its 3 x 3 neighbours? Argue
#    first, then read notebook 6.
# 2. Name a kind of images for which translation equivariance is a wrong assumption. Which network would you try, and
#    how would you measure whether you are right?

# %% [markdown]
# **Next:** [attention is convolution](06_attention_is_convolution.ipynb). The first layer was a convolution in disguise.
# Attention itself can compute a convolution, too. How close do trained networks come to one?
