# %% [markdown]
# # 8. Where does it look?
#
# **What you will learn**
#
# - How attention maps of a ViT are computed: rollout, gradient rollout, relevance.
# - How Grad-CAM is computed for a CNN.
# - Three checks that a map must pass before you trust it. Some maps fail.
#
# **You need** notebook 5: the ViT and its attention weights.
#
# **From the package:** `train`, `load`, `attention_rollout`, `inspect`, and from `vit_vs_cnn.inspection`
# `saliency_maps`, `SaliencyMethod`, `DeletionTest`, `with_shuffled_weights`, `rank_correlation` and
# `mask_agreement`.

# %%
import matplotlib.pyplot as plt
import torch

import vit_vs_cnn as vc
from vit_vs_cnn.inspection import SaliencyMethod, saliency_maps
from vit_vs_cnn.inspection.deletion import DeletionTest, area_under_curve
from vit_vs_cnn.inspection.map_scores import mask_agreement
from vit_vs_cnn.inspection.randomized_weights import randomization_stages, rank_correlation, with_shuffled_weights
from vit_vs_cnn.reporting.style import COLOUR_MAP, NEUTRAL_COLOUR, SERIES_COLOURS, assign_styles

# %% [markdown]
# ## Two layers by hand
#
# The attention weights of one layer show from which tokens token $i$ reads *in that layer*. But these tokens are
# already mixtures: they have read from others in earlier layers, and the residual connection has kept a part of each
# token. **Rollout** (Abnar and Zuidema 2020) models a layer as half residual connection and half attention, $M_l =
# \frac12 (I + A_l)$, and multiplies the layers:
#
# $$R = M_2 M_1 = \tfrac14\,(I + A_1 + A_2 + A_2 A_1).$$
#
# The sum has four paths: skip both layers; read in the first layer only; read in the second only; read in both.

# %%
torch.manual_seed(0)
A1, A2 = torch.randn(2, 5, 5).mul(2).softmax(-1)  # rows are queries: each sums to 1
eye = torch.eye(5)
R = (eye + A1 + A2 + A2 @ A1) / 4
package = vc.attention_rollout([A1.view(1, 1, 5, 5), A2.view(1, 1, 5, 5)])[0]
assert torch.allclose(package, R, atol=1e-6)
print("rows still sum to one:", [round(value, 4) for value in R.sum(-1).tolist()])

# %%
figure, axes = plt.subplots(1, 5, figsize=(10, 2.3), layout="constrained")
axes[0].set_ylabel("query")
for axis, (title, matrix) in zip(
    axes, {"$I$": eye, "$A_1$": A1, "$A_2$": A2, "$A_2 A_1$": A2 @ A1, "$R$": R}.items(), strict=True
):
    axis.imshow(matrix, cmap=COLOUR_MAP, vmin=0, vmax=1)
    axis.set(title=title, xticks=range(5), yticks=range(5), xlabel="key")

# %% [markdown]
# $A_2 A_1$ mixes the two layers: a query reads what the tokens that it attends to have read before. $R$ also has the
# paths that skip layers, so each token keeps at least a quarter of itself.
#
# The order of the product matters: in $A_2 A_1$, layer 1 comes first. Rollout averages the heads of a layer.
#
# ## Two networks to explain
#
# We train a small ViT and a small ResNet on synthetic images. **Check their accuracy first.** A map explains a
# prediction. If the prediction is a guess, the map explains a guess. This takes about 50 seconds.

# %% tags=["parameters"]
STEPS = 200
TRAIN_IMAGES, TEST_IMAGES = 1500, 300
CHECKED = 64  # test images on which the maps are checked

# %% tags=["numbers-vary"]
settings = {
    "name": "looks",
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "models.vit.options.embed_dim": 64,
    "data.synthetic": {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES, "image_size": 32},
    "trainer": {"accelerator": "cpu", "logger": False},
}
print("training a ViT and a ResNet", flush=True)
experiment = vc.train("quickstart", settings, quiet=True)
vit, resnet = vc.load(experiment.folder, "vit"), vc.load(experiment.folder, "resnet")
accuracies = experiment.frame().set_index("model")["accuracy"]
print(f"test accuracy after {STEPS} steps: ViT {accuracies['vit']:.0%}, ResNet {accuracies['resnet']:.0%}")

# %%
test = vit.pool().test(vit.run.seed)
images, pixels = test.images[:CHECKED], vit.normalize(test.images[:CHECKED])
with torch.no_grad():
    predictions = {"vit": vit.network(pixels).argmax(1), "resnet": resnet.network(pixels).argmax(1)}

# %% [markdown]
# The images are synthetic, so the pixels of each object are known (`test.masks`). We show maps on images whose object
# can be seen: it covers more than 12 % of the image, and its mean colour differs from that of the rest.

# %%
masks = test.masks[:CHECKED].bool()
area = masks.double().mean(dim=(1, 2))
colours = [
    (images * region[:, None]).sum(dim=(2, 3)) / region.sum(dim=(1, 2))[:, None] / 255 for region in (masks, ~masks)
]
contrast = (colours[0] - colours[1]).norm(dim=1)
visible = [n for n in contrast.argsort(descending=True).tolist() if area[n] > 0.12][:16]
print(f"{len(visible)} images; contrast of colours at least {contrast[visible].min():.2f}, mean {contrast.mean():.2f}")

# %% [markdown]
# ## A map is a row of $R$, reshaped to an image
#
# For this ViT, $R$ has 64 x 64 entries: queries x keys. This matrix is not an image. Row $i$ shows how much patch $i$
# contains of each patch. Reshaped to the 8 x 8 grid of patches, a row becomes an image. The classifier head of this
# ViT reads the *mean* of the tokens, so its map is the mean of all rows, $\frac1N 1^\top R$. (With a class token, its
# map would be the row of that token.)

# %% tags=["numbers-vary"]
with torch.no_grad():
    _, weights = vit.network(pixels, return_attention=True)
R = vc.attention_rollout(weights)  # (images, queries, keys)
index = visible[0]
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
axes[0].imshow(images[index].permute(1, 2, 0))
axes[0].set_title(f"{test.class_names[test.labels[index]]}", fontsize=9)
axes[1].imshow(R[index], cmap=COLOUR_MAP, vmax=R[index].quantile(0.99))
axes[1].set(xticks=[0, 63], yticks=[0, 63])
axes[1].set_title("R: queries (down) x keys", fontsize=9)
axes[2].imshow(R[index, 4 * 8 + 4].view(8, 8), cmap=COLOUR_MAP, vmax=R[index].quantile(0.99))
axes[2].set_title("the row of patch (5, 5)", fontsize=9)
axes[3].imshow(R[index].mean(0).view(8, 8), cmap=COLOUR_MAP)
axes[3].set_title("mean of all rows", fontsize=9)
for axis in (axes[0], axes[2], axes[3]):
    axis.axis("off")

# %% [markdown]
# The matrix has bright columns: most queries read from the same few patches. So the row of one patch and the mean of all
# rows look alike, except at the patch itself.
#
# ## Evidence for a class
#
# Rollout does not depend on the class. It shows where the content of a token comes from, not whether it mattered for
# the prediction. The gradient shows that. Let $y_c$ be the logit of class $c$. Where a weight was used *and* raised
# the logit, $\partial y_c / \partial A \cdot A$ is large and positive:
#
# - **Gradient rollout:** rollout with $\mathrm{mean}_h\big[(\partial y_c / \partial A \cdot A)^+\big]$ instead of $A$,
#   with normalised rows.
# - **Relevance** (Chefer et al. 2021): $R_l = R_{l-1} + \mathrm{mean}_h\big[(\partial y_c/\partial A_l \cdot A_l)^+\big] R_{l-1}$, from
#   $R_0 = I$.

# %%
classes = predictions["vit"]
logits, weights = vit.network(pixels, return_attention=True)
gradients = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), weights)

R = torch.eye(64).expand(CHECKED, -1, -1)
for A, gradient in zip(weights, gradients, strict=True):
    R = R + (gradient * A).clamp(min=0).mean(dim=1) @ R
by_hand = (R - torch.eye(64)).mean(dim=1).view(-1, 8, 8).detach()
package = saliency_maps(vit.network, pixels, "relevance", classes=classes)
assert torch.allclose(by_hand, package, rtol=1e-3, atol=1e-6)
print("equal to saliency_maps")

# %% [markdown]
# ## Grad-CAM for the CNN
#
# **Grad-CAM** (Selvaraju et al. 2017) is a weighted sum of the last feature maps. The weight of a map is the mean
# gradient of the class logit. Only the positive part is kept: $\mathrm{relu}\big(\sum_k \mathrm{mean}(\partial y_c /
# \partial F_k)\, F_k\big)$.


# %%
def grad_cam(network, pixels, classes):
    features = network.forward_features(pixels).detach().requires_grad_()
    logits = network.forward_head(features)
    (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), features)
    return (gradient.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1).clamp(min=0).detach()


maps = {
    name: saliency_maps(vit.network, pixels, name, classes=predictions["vit"])
    for name in ("rollout", "gradient_rollout", "relevance")
}
maps["grad_cam"] = grad_cam(resnet.network, pixels, predictions["resnet"])

# %% tags=["words-vary"]
correct = {name: predicted == test.labels[:CHECKED] for name, predicted in predictions.items()}
both_right = [n for n in visible if correct["vit"][n] and correct["resnet"][n]]
vit_wrong = [n for n in contrast.argsort(descending=True).tolist() if not correct["vit"][n]]
shown = [*both_right, *visible][:3] + [*vit_wrong, *visible][:1]  # three that both get right, one that the ViT does not
styles = assign_styles(["vit", "resnet"])
figure, axes = plt.subplots(4, 1 + len(maps), figsize=(7, 6.4), layout="constrained")
figure.suptitle(f"ViT {accuracies['vit']:.0%}, ResNet {accuracies['resnet']:.0%} of the test images", fontsize=10)
for position, (number, row) in enumerate(zip(shown, axes, strict=True)):
    label, by_vit, by_resnet = (
        test.class_names[labels[number]] for labels in (test.labels, predictions["vit"], predictions["resnet"])
    )
    row[0].imshow(images[number].permute(1, 2, 0))
    row[0].set_title(f"{label}\nViT: {by_vit}\nResNet: {by_resnet}", fontsize=7)
    for axis, (name, method_maps) in zip(row[1:], maps.items(), strict=True):
        axis.imshow(images[number].permute(1, 2, 0), extent=(0, 1, 0, 1))
        axis.imshow(method_maps[number], cmap=COLOUR_MAP, alpha=0.6, extent=(0, 1, 0, 1))
        colour = styles["resnet" if name == "grad_cam" else "vit"].colour
        axis.set_title(name if position == 0 else "", fontsize=9, color=colour)
for axis in axes.flat:
    axis.axis("off")

# %% [markdown]
# Blue titles are maps of the ViT, the vermilion one is that of the ResNet. In the first three rows both networks are
# right, and the gradient maps are mostly on or near the object. **In the last row the ViT is wrong**, and its maps
# may be on the object all the same. So a map on the object does not make an answer right, and a map that looks plausible
# can still be wrong. We check.
#
# ## Check 1: does the map change when learned weights are destroyed?
#
# Shuffle the weights of the classifier head only. (Adebayo et al. 2018 re-initialise them.) The network now predicts
# other classes, so a map that explains the *class* must change. We print Spearman's correlation of the maps before
# and after, averaged over images. A value of 1 means that nothing changed:

# %% tags=["numbers-vary"]
vit_methods = ("rollout", "gradient_rollout", "relevance")
stages = randomization_stages(vit.network, 3)
for stage, parameters in stages.items():
    shuffled = with_shuffled_weights(vit.network, parameters)
    with torch.no_grad():
        same_prediction = (shuffled(pixels).argmax(1) == predictions["vit"]).double().mean()
    correlations = {
        name: rank_correlation(maps[name], saliency_maps(shuffled, pixels, name, classes=predictions["vit"]))
        .nanmean()
        .item()
        for name in vit_methods
    }
    print(
        f"{stage:28} same prediction for {same_prediction:4.0%};",
        ", ".join(f"{name} {value:.2f}" for name, value in correlations.items()),
    )

# %% [markdown]
# **Rollout fails.** The predictions change, but the map stays exactly the same, because rollout uses neither the head
# nor the class. It may show what the tokens are made of, but it does not explain *why this class* was predicted. The
# two gradient methods do change. The correlation that remains cannot come from the class either. One example:

# %% tags=["words-vary"]
shuffled = with_shuffled_weights(vit.network, stages["head"])
with torch.no_grad():
    shuffled_predictions = shuffled(pixels).argmax(1)
changed = [n for n in visible if shuffled_predictions[n] != predictions["vit"][n]]
number = [*changed, *visible][0]
after = {
    name: saliency_maps(shuffled, pixels, name, classes=predictions["vit"])[number] for name in ("rollout", "relevance")
}
figure, axes = plt.subplots(1, 5, figsize=(9, 2.3), layout="constrained")
axes[0].imshow(images[number].permute(1, 2, 0))
axes[0].set_title("the image", fontsize=9)
for column, name in enumerate(after):
    axes[1 + 2 * column].imshow(maps[name][number], cmap=COLOUR_MAP)
    axes[1 + 2 * column].set_title(f"{name}:\n{test.class_names[predictions['vit'][number]]}", fontsize=9)
    axes[2 + 2 * column].imshow(after[name], cmap=COLOUR_MAP)
    axes[2 + 2 * column].set_title(
        f"head shuffled,\nit says {test.class_names[shuffled_predictions[number]]}", fontsize=9
    )
for axis in axes:
    axis.axis("off")

# %% [markdown]
# The two maps of rollout are the same picture, under two different classes. The two maps of relevance differ.
#
# ## Check 2: does the prediction depend on what the map highlights?
#
# **Deletion:** remove patches, the most important first, and follow the probability of the predicted class. It should
# fall faster than when patches are removed in random order. **Insertion** is the reverse: add patches to an empty
# image. By hand for one map, where removed patches get the mean colour:


# %% tags=["numbers-vary"]
def deletion(network, image, importance, label, counts):
    order = importance.flatten().argsort(descending=True)
    mean, curve = image.mean(dim=(1, 2), keepdim=True), []
    for count in counts:
        removed = torch.zeros(64).index_fill(0, order[:count], 1.0).view(8, 8)
        mask = removed.repeat_interleave(4, 0).repeat_interleave(4, 1)
        with torch.no_grad():
            probabilities = network((image * (1 - mask) + mean * mask)[None]).softmax(1)
        curve.append(probabilities[0, label].item())
    return curve


print(
    [
        round(p, 2)
        for p in deletion(vit.network, pixels[0], maps["relevance"][0], predictions["vit"][0], range(0, 65, 16))
    ]
)

# %% [markdown]
# Now for all images, with two baselines that a map has to beat: a **random** map, and the **centre**, a bell curve
# over the middle of the image. Neither uses the network.

# %% tags=["numbers-vary"]
compared_maps = {name: maps[name] for name in vit_methods}
compared_maps |= {name: saliency_maps(vit.network, pixels, name) for name in ("random", "centre")}
lines = {name: {"color": colour} for name, colour in zip(vit_methods, SERIES_COLOURS, strict=False)}
lines |= {name: {"color": NEUTRAL_COLOUR, "linestyle": line} for name, line in (("random", ":"), ("centre", "--"))}
share = torch.linspace(0, 1, 17)
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
areas, deletion_test = {}, DeletionTest(vit.network, pixels, predictions["vit"])
for axis, insert in zip(axes, (False, True), strict=True):
    for name, method_maps in compared_maps.items():
        curves = deletion_test.curves(method_maps, insert=insert)
        areas.setdefault(name, []).append(area_under_curve(curves, 64).mean().item())
        axis.plot(share, curves.mean(0), label=name, **lines[name])
    axis.set(
        xlabel="share of the patches", title="insertion: higher is better" if insert else "deletion: lower is better"
    )
axes[0].set_ylabel("probability of the class")
axes[1].legend(frameon=False, fontsize=8)
for name, (deleted, inserted) in areas.items():
    print(f"{name:17} area under deletion {deleted:.3f}, insertion {inserted:.3f}")

# %% [markdown]
# Left: the lower a curve, the better the map finds what the prediction needs. Right: the higher, the better. Grey curves
# are the baselines. Look at them first. The synthetic objects are near the middle of the image, so the centre alone does
# well. A map that does not beat it has shown nothing about *this* network.
#
# `vc.inspect` computes all this for image files or test images, for one or several networks, and writes a report:

# %% tags=["numbers-vary"]
run = next(experiment.folder.glob("vit-*"))
inspected = vc.inspect(run, count=8, methods=vit_methods, quiet=True)
inspected.frame().round(3)

# %% [markdown]
# ## Check 3: is the map on the object?
#
# The images are synthetic, so the position of each object is known. **Pointing game:** is the largest value of the
# map on the object? Chance level is the object's share of the image.

# %% tags=["numbers-vary"]
ties = torch.randn(CHECKED, 32, 32, generator=torch.Generator().manual_seed(0))
for name, method_maps in {**compared_maps, "grad_cam (ResNet)": maps["grad_cam"]}.items():
    agreement = mask_agreement(method_maps, masks, ties)
    print(f"{name:18} points at the object in {agreement.pointing.mean():.0%}, mass on it {agreement.mass.mean():.0%}")
print(f"{'chance':18} {agreement.area.mean():.0%}")

# %% [markdown]
# With 64 images a share near 70 % is uncertain by 11 points. So differences of a few points between two maps are no
# evidence here.
#
# This check has another limit: a map that is off the object need not be *wrong*. If the network uses the background, a
# correct map shows the background.
#
# ## In short
#
# - Rollout multiplies $\frac12 (I + A)$ over layers; relevance and gradient rollout weight attention by the gradient.
# - Grad-CAM is a weighted sum of feature maps of a CNN.
# - Check a map: it changes if learned weights are shuffled, and deletion beats random and centre.
# - Rollout fails the first check: it explains no class.
# - A map explains one prediction of one network, right or wrong. It is not evidence that the network is good.
#
# ## Exercises
#
# **1. The wrong order.** Multiply the layers in the opposite order, $M_1 M_2$. Does every row still sum to one? Is
# the map the same?

# %% tags=["solution", "hide-cell"]
right, wrong = (eye + A2) @ (eye + A1) / 4, (eye + A1) @ (eye + A2) / 4
assert torch.allclose(wrong.sum(-1), torch.ones(5)) and not torch.allclose(right, wrong)
print(f"the maps differ by up to {(right - wrong).abs().max():.2f}")
# Both products have rows that sum to one, so that check does not detect the mistake.

# %% [markdown]
# **2. A common bug.** A published implementation of rollout can take the *maximum* over heads. It divides by
# `matrix.sum(-1)` without `keepdim=True`. By what is each entry divided? How large do the row sums become?

# %% tags=["solution", "hide-cell", "numbers-vary"]
strongest = weights[0][0].detach().amax(dim=0)  # one image: (queries, keys); each row sums to more than 1
buggy = strongest / strongest.sum(-1)  # broadcast along rows: column j is divided by the sum of row j
print(f"row sums from {buggy.sum(-1).min():.2f} to {buggy.sum(-1).max():.2f}")
assert torch.allclose((strongest / strongest.sum(-1, keepdim=True)).sum(-1), torch.ones(64))  # after the fix

# %% [markdown]
# **3. Uniform attention.** What is the rollout of $L$ layers that attend uniformly, $A = U$ with $U_{ij} = 1/N$? Check your formula.

# %% tags=["solution", "hide-cell"]
N, L = 16, 4
U = torch.full((N, N), 1 / N)
rolled = vc.attention_rollout([U.view(1, 1, N, N)] * L)[0]
assert torch.allclose(rolled, 0.5**L * torch.eye(N) + (1 - 0.5**L) * U, atol=1e-6)  # because U U = U

# %% [markdown]
# **4. Two classes, two maps.** Plot the relevance map of one image for the class that the ViT predicts and for its
# second choice. How similar are the two maps, over all images?

# %% tags=["solution", "hide-cell", "words-vary"]
second = logits.detach().topk(2).indices[:, 1]
second_maps = saliency_maps(vit.network, pixels, "relevance", classes=second)
assert not torch.equal(second_maps, maps["relevance"]), "relevance depends on the class"
print(f"correlation {rank_correlation(maps['relevance'], second_maps).mean():.2f}")
figure, axes = plt.subplots(1, 2, figsize=(4, 2.2))
for axis, class_maps, classes in zip(axes, (maps["relevance"], second_maps), (predictions["vit"], second), strict=True):
    axis.imshow(class_maps[index], cmap=COLOUR_MAP)
    axis.set_title(test.class_names[classes[index]], fontsize=9)
    axis.axis("off")
# Both maps are bright in the middle of the image, but not at the same patches. A correlation far above 0 means that much of
# a map does not depend on the class.

# %% [markdown]
# **5. A custom method.** A `SaliencyMethod` has a name and a function that maps a request (`request.network`,
# `.images`, `.classes`) to saliency maps. Write one that uses only the *contrast* of the image, and add it to the
# deletion test. What does its score show?


# %% tags=["solution", "hide-cell", "numbers-vary"]
def contrast(request):
    patches = request.images.unfold(2, 4, 4).unfold(3, 4, 4)  # (batch, channels, 8, 8, 4, 4)
    return patches.std(dim=(-2, -1)).mean(dim=1)


contrast_method = SaliencyMethod(
    "contrast", "spread of the pixels in a patch", "any", class_specific=False, compute=contrast
)
contrast_maps = saliency_maps(vit.network, pixels, contrast_method)
assert torch.equal(contrast_maps, saliency_maps(resnet.network, pixels, contrast_method)), "the same for each network"
curves = deletion_test.curves(contrast_maps)
print(f"contrast: area under deletion {area_under_curve(curves, 64).mean():.3f}, random {areas['random'][0]:.3f}")
# Contrast is high at the edges of objects. So it can beat a random map without using the network at all.

# %% [markdown]
# **Open questions** (without a solution)
#
# 1. A map passes all three checks on 64 images. What else could be wrong with it as an explanation for a doctor?
# 2. Deletion replaces patches by the mean colour. Such images never occur in training. Design a deletion test that
#    does not leave the distribution of the images.
#
# **Next:** [your images](09_your_images.ipynb): all this for a folder of your own images.
