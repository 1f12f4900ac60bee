# %% [markdown]
# # 8. Where does it look?
#
# **At its end you know** how a map of attention is made (rollout, gradient rollout, relevance), how Grad-CAM is made for a CNN, and
# three checks that a map must pass before you believe it. Some will fail.
#
# **You need** notebook 5 (the ViT, its weights between tokens).
#
# **Of the package:** `train`, `load`, `attention_rollout`, `inspect`, and `vit_vs_cnn.inspection` (`saliency_maps`, `SaliencyMethod`,
# `deletion_curves`, `with_shuffled_weights`, `rank_correlation`, `mask_agreement`).

# %%
import matplotlib.pyplot as plt
import torch

import vit_vs_cnn as vc
from vit_vs_cnn.inspection import SaliencyMethod, saliency_maps
from vit_vs_cnn.inspection.deletion import area_under_curve, deletion_curves
from vit_vs_cnn.inspection.map_scores import mask_agreement
from vit_vs_cnn.inspection.randomized_weights import randomization_stages, rank_correlation, with_shuffled_weights

# %% [markdown]
# ## Two layers by hand
#
# One layer's weights say from which tokens token $i$ reads *in that layer*. But by then, the tokens have read from others already, and
# each also kept itself, by the residual connection. **Rollout** (Abnar and Zuidema 2020) takes half a token for what it keeps and half
# for what it reads, $M_l = \frac12 (I + A_l)$, and multiplies through the layers:
#
# $$R = M_2 M_1 = \tfrac14\,(I + A_1 + A_2 + A_2 A_1).$$
#
# Four paths: stay twice; read in the first layer; read in the second; read in both.

# %%
torch.manual_seed(0)
A1, A2 = torch.randn(2, 5, 5).mul(2).softmax(-1)  # rows are queries: each sums to 1
eye = torch.eye(5)
R = (eye + A1 + A2 + A2 @ A1) / 4
print(
    "the package's:", torch.allclose(vc.attention_rollout([A1.view(1, 1, 5, 5), A2.view(1, 1, 5, 5)])[0], R, atol=1e-6)
)
print("rows still sum to one:", [round(value, 4) for value in R.sum(-1).tolist()])

# %%
figure, axes = plt.subplots(1, 5, figsize=(10, 2.3), layout="constrained")
axes[0].set_ylabel("query")
for axis, (title, matrix) in zip(
    axes, {"$I$": eye, "$A_1$": A1, "$A_2$": A2, "$A_2 A_1$": A2 @ A1, "$R$": R}.items(), strict=True
):
    axis.imshow(matrix, cmap="cividis", vmin=0, vmax=1)
    axis.set(title=title, xticks=range(5), yticks=range(5), xlabel="key")

# %% [markdown]
# The order counts: $A_2 A_1$ reads in layer 1 first. Where several heads look, rollout takes their mean.
#
# ## Networks to look into
#
# A small ViT and a small ResNet, trained on drawn images. **First their accuracy**: a map explains what a network says, and where that is
# wrong or guessed, the map is of a guess.

# %% tags=["parameters"]
STEPS = 200
TRAIN_IMAGES, TEST_IMAGES = 1500, 300
CHECKED = 64  # test images that maps are checked on

# %%
settings = {
    "name": "looks",
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "contenders.vit.model.embed_dim": 64,
    "data.synthetic": {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32},
    "trainer": {"accelerator": "cpu", "logger": False},
}
found = vc.train("quickstart", settings, quiet=True)
vit, resnet = vc.load(found.folder, "vit"), vc.load(found.folder, "resnet")
accuracies = found.frame().set_index("contender")["accuracy"]
print(f"test accuracy after {STEPS} steps: ViT {accuracies['vit']:.0%}, ResNet {accuracies['resnet']:.0%}")

# %%
test = vit.pool().test(vit.cell.seed)
images, pixels = test.images[:CHECKED], vit.normalise(test.images[:CHECKED])
with torch.no_grad():
    says = {"vit": vit.network(pixels).argmax(1), "resnet": resnet.network(pixels).argmax(1)}

# %% [markdown]
# ## A map is a row, laid out as an image
#
# $R$ of this ViT is 64 x 64: queries x keys. That is no picture of an image. Row $i$ is what patch $i$ holds of each patch; as an 8 x 8
# grid it is a picture. This ViT's head reads the *mean* of the tokens, so what it looks at is the mean of all rows,
# $\frac1N 1^\top R$. (With a class token it would be that token's row.)

# %%
with torch.no_grad():
    _, weights = vit.network(pixels, return_attention=True)
R = vc.attention_rollout(weights)  # (images, queries, keys)
one = 3
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
axes[0].imshow(images[one].permute(1, 2, 0))
axes[0].set_title(f"{test.class_names[test.labels[one]]}", fontsize=9)
axes[1].imshow(R[one], cmap="cividis", vmax=R[one].quantile(0.99))
axes[1].set(xticks=[0, 63], yticks=[0, 63])
axes[1].set_title("R: queries (down) x keys", fontsize=9)
axes[2].imshow(R[one, 4 * 8 + 4].view(8, 8), cmap="cividis", vmax=R[one].quantile(0.99))
axes[2].set_title("the row of patch (4, 4)", fontsize=9)
axes[3].imshow(R[one].mean(0).view(8, 8), cmap="cividis")
axes[3].set_title("mean of all rows", fontsize=9)
for axis in (axes[0], axes[2], axes[3]):
    axis.axis("off")

# %% [markdown]
# ## What speaks for a class
#
# Rollout knows no class: it asks where a token came from, and not whether that mattered. The gradient tells. With $y_c$ the logit of
# class $c$, a weight that was used *and* helped has a large positive $\partial y_c / \partial A \cdot A$:
#
# - **Gradient rollout:** rollout with $\mathrm{mean}_h\big(\partial y_c / \partial A \cdot A\big)^+$ in the place of $A$, its rows
#   normalised.
# - **Relevance** (Chefer et al. 2021): $R_l = R_{l-1} + \mathrm{mean}_h\big(\partial y_c/\partial A_l \cdot A_l\big)^+ R_{l-1}$, from
#   $R_0 = I$.

# %%
classes = says["vit"]
logits, weights = vit.network(pixels, return_attention=True)
gradients = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), weights)

R = torch.eye(64).expand(CHECKED, -1, -1)
for A, gradient in zip(weights, gradients, strict=True):
    R = R + (gradient * A).clamp(min=0).mean(dim=1) @ R
by_hand = (R - torch.eye(64)).mean(dim=1).view(-1, 8, 8).detach()
package = saliency_maps(vit.network, pixels, "relevance", classes=classes)
print("relevance as the package's:", torch.allclose(by_hand, package, rtol=1e-3, atol=1e-6))

# %% [markdown]
# ## And for the CNN
#
# **Grad-CAM** (Selvaraju et al. 2017): the last feature maps, weighed by the mean gradient of the class, and of that the positive part:
# $\mathrm{relu}\big(\sum_k \mathrm{mean}(\partial y_c / \partial F_k)\, F_k\big)$.


# %%
def grad_cam(network, pixels, classes):
    features = network.forward_features(pixels).detach().requires_grad_()
    logits = network.forward_head(features)
    (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), features)
    return (gradient.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1).clamp(min=0).detach()


maps = {
    name: saliency_maps(vit.network, pixels, name, classes=says["vit"])
    for name in ("rollout", "gradient_rollout", "relevance")
}
maps["grad_cam"] = grad_cam(resnet.network, pixels, says["resnet"])

# %%
figure, axes = plt.subplots(4, 1 + len(maps), figsize=(7, 6.4), layout="constrained")
figure.suptitle(f"ViT {accuracies['vit']:.0%}, ResNet {accuracies['resnet']:.0%} of the test images", fontsize=10)
for number, row in enumerate(axes):
    label, by_vit, by_resnet = (test.class_names[of[number]] for of in (test.labels, says["vit"], says["resnet"]))
    row[0].imshow(images[number].permute(1, 2, 0))
    row[0].set_title(f"{label}\nViT: {by_vit}\nResNet: {by_resnet}", fontsize=7)
    for axis, (name, of) in zip(row[1:], maps.items(), strict=True):
        axis.imshow(images[number].permute(1, 2, 0), extent=(0, 1, 0, 1))
        axis.imshow(of[number], cmap="cividis", alpha=0.6, extent=(0, 1, 0, 1))
        axis.set_title(name if number == 0 else "", fontsize=9)
for axis in axes.flat:
    axis.axis("off")

# %% [markdown]
# Where a network is wrong, look at its map first: is it on the object at all? So far it is a pretty picture. Is it true?
#
# ## Check 1: does it move when what was learned is destroyed?
#
# Shuffle the weights of the classifier head alone. (Adebayo et al. 2018 re-initialise them.) The network now says other classes. A map that explains the
# *class* must change. Spearman's correlation of the map before and after, mean over images; 1 means that nothing moved:

# %%
vit_methods = ("rollout", "gradient_rollout", "relevance")
stages = randomization_stages(vit.network, 3)
for stage, parameters in stages.items():
    other = with_shuffled_weights(vit.network, parameters)
    with torch.no_grad():
        kept = (other(pixels).argmax(1) == says["vit"]).double().mean()
    left = {
        name: rank_correlation(maps[name], saliency_maps(other, pixels, name, classes=says["vit"])).nanmean().item()
        for name in vit_methods
    }
    print(f"{stage:28} says the same on {kept:4.0%};", ", ".join(f"{name} {value:.2f}" for name, value in left.items()))

# %% [markdown]
# **Rollout fails.** The network says other things, and the map is the same to the last digit: nothing of the head or the class enters it.
# It may show what tokens are made of; as an explanation of *why this class* it is empty. The two with gradients move; but what is left of
# their order is not of the class, either. Here is one image:

# %%
other = with_shuffled_weights(vit.network, stages["head"])
with torch.no_grad():
    now = other(pixels).argmax(1)
number = int((now != says["vit"]).int().argmax())
same_class = says["vit"]
after = {name: saliency_maps(other, pixels, name, classes=same_class)[number] for name in ("rollout", "relevance")}
figure, axes = plt.subplots(1, 5, figsize=(9, 2.3), layout="constrained")
axes[0].imshow(images[number].permute(1, 2, 0))
axes[0].set_title("the image", fontsize=9)
for place, name in enumerate(after):
    axes[1 + 2 * place].imshow(maps[name][number], cmap="cividis")
    axes[1 + 2 * place].set_title(f"{name}:\n{test.class_names[says['vit'][number]]}", fontsize=9)
    axes[2 + 2 * place].imshow(after[name], cmap="cividis")
    axes[2 + 2 * place].set_title(f"head shuffled,\nit says {test.class_names[now[number]]}", fontsize=9)
for axis in axes:
    axis.axis("off")

# %% [markdown]
# ## Check 2: does the network need what the map shows?
#
# **Deletion:** take patches away, the most important first, and follow the probability of the class. It should fall faster than when
# patches go in a random order. **Insertion** is the other way: put them into an empty image. By hand for one map, the missing patches
# being the mean colour:


# %%
def deletion(network, image, importance, label, counts):
    order = importance.flatten().argsort(descending=True)
    mean, curve = image.mean(dim=(1, 2), keepdim=True), []
    for count in counts:
        gone = torch.zeros(64).index_fill(0, order[:count], 1.0).view(8, 8)
        mask = gone.repeat_interleave(4, 0).repeat_interleave(4, 1)
        with torch.no_grad():
            probabilities = network((image * (1 - mask) + mean * mask)[None]).softmax(1)
        curve.append(probabilities[0, label].item())
    return curve


print([round(p, 2) for p in deletion(vit.network, pixels[0], maps["relevance"][0], says["vit"][0], range(0, 65, 16))])

# %% [markdown]
# Over all images, beside two rivals that a map has to beat: a **random** map, and the **centre**, a bell over the middle, which knows
# nothing of the network.

# %%
contest = {name: maps[name] for name in vit_methods}
contest |= {name: saliency_maps(vit.network, pixels, name) for name in ("random", "centre")}
share = torch.linspace(0, 1, 17)
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
areas = {}
for axis, insert in zip(axes, (False, True), strict=True):
    for name, of in contest.items():
        curves = deletion_curves(vit.network, pixels, of, says["vit"], insert=insert)
        areas.setdefault(name, []).append(area_under_curve(curves, 64).mean().item())
        axis.plot(share, curves.mean(0), "--" if name in ("random", "centre") else "-", label=name)
    axis.set(
        xlabel="share of the patches", title="insertion: higher is better" if insert else "deletion: lower is better"
    )
axes[0].set_ylabel("probability of the class")
axes[1].legend(frameon=False, fontsize=8)
for name, (deleted, inserted) in areas.items():
    print(f"{name:17} area under deletion {deleted:.3f}, insertion {inserted:.3f}")

# %% [markdown]
# Read the two rivals first. Drawn objects stand near the middle, so the centre alone does well; a map that does not beat it has told you
# nothing about *this* network.
#
# `vc.inspect` does this for files, test images and several networks, and writes a page:

# %%
cell = next(found.folder.glob("cells/vit-*"))
inspected = vc.inspect(cell, count=8, methods=vit_methods, quiet=True)
inspected.frame().round(3)

# %% [markdown]
# ## Check 3: is it on the object?
#
# We drew the objects, so we know where they are. **Pointing:** is the largest value on the object? Chance is the object's share of the
# image.

# %%
masks = test.masks[:CHECKED].bool()
ties = torch.randn(CHECKED, 32, 32, generator=torch.Generator().manual_seed(0))
for name, of in {**contest, "grad_cam (ResNet)": maps["grad_cam"]}.items():
    agreement = mask_agreement(of, masks, ties)
    print(f"{name:18} points at the object in {agreement.pointing.mean():.0%}, mass on it {agreement.mass.mean():.0%}")
print(f"{'chance':18} {agreement.area.mean():.0%}")

# %% [markdown]
# A warning about this check: a map off the object is not *false*. If the network looks at the background, the true map is there.
#
# ## Exercises
#
# **1. The wrong order.** Multiply the layers the other way round, $M_1 M_2$. Are the rows still distributions? Is the map the same?

# %% tags=["solution", "hide-cell"]
right, wrong = (eye + A2) @ (eye + A1) / 4, (eye + A1) @ (eye + A2) / 4
print(
    "rows sum to one:",
    torch.allclose(wrong.sum(-1), torch.ones(5)),
    "; differ by",
    f"{(right - wrong).abs().max():.2f}",
)
# A sum of one finds no such mistake.

# %% [markdown]
# **2. A famous bug.** Code in circulation takes the *maximum* over heads and then divides by `matrix.sum(-1)` without `keepdim=True`. What
# is divided? How large do row sums get?

# %% tags=["solution", "hide-cell"]
strongest = weights[0][0].detach().amax(dim=0)  # of one image: (queries, keys), rows sum to more than 1
buggy = strongest / strongest.sum(-1)  # broadcast over rows: column j is divided by the sum of row j
print(f"row sums from {buggy.sum(-1).min():.2f} to {buggy.sum(-1).max():.2f}")
print("mended:", torch.allclose((strongest / strongest.sum(-1, keepdim=True)).sum(-1), torch.ones(64)))

# %% [markdown]
# **3. Uniform attention.** What is the rollout of $L$ layers that attend uniformly, $A = U$ with $U_{ij} = 1/N$? Check your formula.

# %% tags=["solution", "hide-cell"]
N, L = 16, 4
U = torch.full((N, N), 1 / N)
rolled = vc.attention_rollout([U.view(1, 1, N, N)] * L)[0]
print(torch.allclose(rolled, 0.5**L * torch.eye(N) + (1 - 0.5**L) * U, atol=1e-6))  # as U U = U

# %% [markdown]
# **4. Two classes, two maps.** Draw relevance of one image for the class that the ViT says and for its second choice. How alike are the
# two, over all images?

# %% tags=["solution", "hide-cell"]
second = logits.detach().topk(2).indices[:, 1]
other_map = saliency_maps(vit.network, pixels, "relevance", classes=second)
print(f"correlation {rank_correlation(maps['relevance'], other_map).mean():.2f}")
figure, axes = plt.subplots(1, 2, figsize=(4, 2.2))
for axis, of, index in zip(axes, (maps["relevance"], other_map), (says["vit"], second), strict=True):
    axis.imshow(of[1], cmap="cividis")
    axis.set_title(test.class_names[index[1]], fontsize=9)
    axis.axis("off")

# %% [markdown]
# **5. A method of your own.** A `SaliencyMethod` has a name and a function from a request (`request.network`, `.images`, `.classes`) to maps.
# Make one of the *contrast* of the image alone, and let it take part in the deletion contest. What does its rank tell you?


# %% tags=["solution", "hide-cell"]
def contrast(request):
    patches = request.images.unfold(2, 4, 4).unfold(3, 4, 4)  # (batch, channels, 8, 8, 4, 4)
    return patches.std(dim=(-2, -1)).mean(dim=1)


own = SaliencyMethod("contrast", "spread of the pixels in a patch", "any", class_specific=False, compute=contrast)
curves = deletion_curves(vit.network, pixels, saliency_maps(vit.network, pixels, own), says["vit"])
print(f"contrast: area under deletion {area_under_curve(curves, 64).mean():.3f}, random {areas['random'][0]:.3f}")
# What it gains over random needs no network: edges are where objects are.

# %% [markdown]
# ## Next
#
# [Notebook 9](09_your_images.ipynb): all of this on a folder of images of your own.
