# %% [markdown]
# # 9. Your images
#
# **What you will learn**
#
# - How to audit a folder of images before you train.
# - How to compare networks that are trained from scratch on few images.
# - How to start from pretrained weights, which makes both networks accurate here.
# - How to use the network that you chose: predictions for new images, a map, an exported file.
#
# **You need** notebooks 5 (one comparison), 7 (sizes and seeds) and 8 (maps).
#
# **From the package:** `audit`, `train`, `load`, `predict` and `export`. Each takes a folder and returns its results
# as an object.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import vit_vs_cnn as vc
from vit_vs_cnn.data.synthetic.source import render_objects

# %% [markdown]
# ## A folder
#
# One subfolder for each class, with files of any name. Ours has four classes of synthetic shapes, saved as files, so
# nothing is downloaded. (To use your own images, replace `photos` by your folder and skip the next cells.)

# %% tags=["parameters"]
IMAGES = 70  # images of each class
STEPS, SIZES, SEEDS = 60, [60, "all"], [0, 1, 2]
PRETRAIN_IMAGES, PRETRAIN_STEPS = 3000, 200
DIFFICULTY = 0.4  # of the synthetic images: amount of clutter and noise

# %%
CLASSES = ("disc", "cross", "heart", "star")
synthetic = render_objects(10 * IMAGES, seed=8, image_size=64, difficulty=DIFFICULTY).images
photos = Path("photos")
for name in CLASSES:
    (photos / name).mkdir(parents=True)
for number, (image, label) in enumerate(zip(synthetic.images, synthetic.labels, strict=True)):
    name = synthetic.class_names[label]
    if name in CLASSES:
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(photos / name / f"{number:04d}.png")
print({folder.name: len(list(folder.iterdir())) for folder in sorted(photos.iterdir())})

# %% [markdown]
# Real folders are never this clean. So we add two errors: an empty file, and a JPEG copy of an image in the folder of
# another class.

# %%
(photos / "disc" / "broken.png").write_bytes(b"")
first = sorted((photos / "heart").glob("*.png"))[0]
Image.open(first).save(photos / "star" / "copy.jpg", quality=90)

# %% [markdown]
# ## Audit before you train
#
# An accuracy is only as good as the folder. If the same image is in training and test data, the accuracy is too high.
# If it is in two classes, one label is wrong. If one class has another file format, the network can recognise the
# format instead of the object. The audit lists the most serious finding first, with advice:

# %%
audited = vc.audit(data="photos", output="audit", quiet=True)
print(audited)

# %%
pair = next(pair for pair in audited.pairs if len(set(pair.classes)) > 1)
print(f"similarity {pair.similarity:.2f}:")
figure, axes = plt.subplots(1, 2, figsize=(4, 2.2))
for axis, path in zip(axes, (pair.first, pair.second), strict=True):
    axis.imshow(Image.open(photos / path))
    axis.set_title(path, fontsize=9)
    axis.axis("off")

# %% [markdown]
# Left is the original, right the JPEG copy in the folder of another class. You cannot see the difference in format, but
# you see at once which label is wrong.
#
# The audit did not change `photos`. We fix both errors and repeat the audit:

# %%
(photos / "disc" / "broken.png").unlink()
(photos / "star" / "copy.jpg").unlink()
audited = vc.audit(data="photos", output="audit", quiet=True)
print(audited)
assert not audited.pairs

# %% [markdown]
# ## From scratch: which of the two?
#
# The config `decide` is made for this question. This command takes one hour:
#
# ```
# python train.py --config configs/decide.yaml --data.root photos --minutes 60
# ```
#
# It times a few steps and chooses sizes, seeds and steps that fit into the given time. Here we set them ourselves and
# keep them small: two sizes, three seeds, few steps. We also remove the two pretrained networks, which would be
# downloaded. Each seed uses a different fifth of each class as test images. The ViT gets a width of 72, so that both
# networks need equally many multiply-accumulates at 32 x 32 pixels. The cell takes about 40 seconds.

# %% tags=["numbers-vary"]
tiny = {
    "data.root": "photos",
    "data.folder.image_size": 32,
    "minutes": None,
    "protocol.train_sizes": SIZES,
    "protocol.seeds": SEEDS,
    "protocol.budget": {"steps": STEPS},
    "protocol.batch_size": 32,
    "executor": "local",
    "models.vit.options.embed_dim": 72,
    "trainer": {"accelerator": "cpu", "logger": False},
}
no_downloads = {"models.vit_pretrained": None, "models.cnn_pretrained": None, "protocol.pairs": None}
print("training two networks with two sizes and three seeds", flush=True)
experiment = vc.train("decide", {**tiny, **no_downloads}, quiet=True)
experiment.frame().groupby(["model", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %% tags=["words-vary"]
print(experiment.answer)

# %% [markdown]
# Chance is 25 %. The ViT is not far above it at either size: it starts from random weights, and 60 steps with at most 224
# images are few. The ResNet, with the inductive biases of a CNN (notebook 5), is significantly better with 224 images.
# With 60 there is not enough evidence. The conclusion holds for *these* networks, *this* number of steps and *these*
# images. `experiment.page` is the path of the report. Open it in a browser.
#
# ## Start from pretrained weights
#
# With few images, start from a network that was trained on others. We train both networks on the six *other* shapes
# (passed as arrays with `data=`). Then we freeze them and train only a new head for our four classes: `finetune:
# head`, a linear probe.

# %% tags=["numbers-vary"]
source = render_objects(PRETRAIN_IMAGES, seed=6, difficulty=DIFFICULTY).images
is_pretraining = np.array([source.class_names[label] not in CLASSES for label in source.labels])
names = np.array(source.class_names)[source.labels.numpy()]
pretraining = {
    "name": "before",
    "protocol.budget": {"steps": PRETRAIN_STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "models.vit.options.embed_dim": 72,  # as above: a probe must have the same architecture as its weights
    "trainer": {"accelerator": "cpu", "logger": False},
}
print(f"training two networks on {is_pretraining.sum():,} images of six shapes", flush=True)
pretrained = vc.train(
    "quickstart", pretraining, data=(source.images.numpy()[is_pretraining], names[is_pretraining]), quiet=True
)
print(pretrained.frame().set_index("model")["accuracy"].round(3).to_dict(), "on the six other shapes")

# %% tags=["numbers-vary"]
probes = {
    f"models.{name}_probe": {**model, "weights": {"run": str(pretrained.folder), "model": name}, "finetune": "head"}
    for name, model in {
        "vit": {"name": "vit_nano", "options": {"embed_dim": 72, "position": "sincos"}},
        "resnet": {"name": "resnet8", "options": {"zero_init_residual": False}},
    }.items()
}
print("training the head of two networks with two sizes and three seeds", flush=True)
extended = vc.train("decide", {**tiny, **no_downloads, **probes}, quiet=True)
extended.frame().groupby(["model", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %% [markdown]
# The runs that were already trained are reused; only the two probes are new. A probe trains only the head, on
# features that are computed once, so it costs very little. Both probes are above 75 % with all images. The frozen layers
# learned their features from other shapes, but a linear map of these features recognises most of the new ones. Probes
# help more if the pretraining images are similar to yours. The figure shows all four:

# %% tags=["numbers-vary"]
extended.plot()

# %% [markdown]
# At both sizes each probe is above the same network from scratch, and the ViT gains most. With 60 instead of 224 images
# the probes lose less than the ResNet from scratch does: a linear map has few parameters.
#
# ## Predict new images
#
# New images: two of each class, and one of noise, which belongs to no class. `predict` returns a class for each image
# and its calibrated probability. The calibration comes from the validation images, so it is imprecise if those are
# few. We use the ResNet with pretrained weights. The true class is known here from the name of the file.

# %%
new = Path("new")
new.mkdir()
unseen = render_objects(200, seed=7, image_size=64, difficulty=DIFFICULTY).images
unseen_names = [unseen.class_names[label] for label in unseen.labels]
for name in CLASSES:
    for n in [n for n, other in enumerate(unseen_names) if other == name][:2]:
        Image.fromarray(unseen.images[n].permute(1, 2, 0).numpy()).save(new / f"{name}_{n}.png")
Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(new / "noise.png")

# %% tags=["words-vary"]
answers = vc.predict(extended.folder, "new", model="resnet_probe", quiet=True)
table = answers.frame().rename(columns={"image": "path"})
table["true"] = [Path(path).stem.split("_")[0] for path in table["path"]]
table["check"] = np.where(table["probability"] < 0.9, "look at it", "")
table[["path", "true", "predicted", "probability", "check"]].round(2)

# %% [markdown]
# Nearly all predictions are right, with high probabilities. The noise gets a class as well, because the network must
# distribute 100 % over four classes for every image. Its probability is low, so it is flagged: a person should look at
# every image below 90 %. The limit finds the wrong prediction, too. A low probability is a hint, not a test: a network can
# be sure about an image that belongs to no class.
#
# ## Where does it look?
#
# Check the accuracy first: the map of a network that guesses explains a guess. The linear probe of the ViT is right on
# most images. We take a new image that it classifies correctly.

# %% tags=["words-vary"]
vit = vc.load(extended.folder, "vit_probe")
by_vit = vit.predict("new").frame()
right = [row for row in by_vit.itertuples() if Path(row.image).stem.startswith(row.predicted)]
best = max(right, key=lambda row: row.probability, default=by_vit.iloc[0])
picture = new / Path(best.image).name
print(f"{picture.name}: predicted {best.predicted}, {best.probability:.0%}")
vit.explain(picture, method="relevance")

# %% [markdown]
# Left is the image, right the patches that raised the logit of the predicted class. Compare them: is the map on the
# object? In the figure it follows the edge of the disc. Notebook 8 has the checks that a map must pass before you trust
# it.
#
# ## Export the network
#
# A checkpoint is for this package. Other programs read safetensors, ONNX or timm's format. Each exported file is loaded
# again, and its logits are compared with the network's. `config.json` in the same folder contains the classes, image
# size and normalisation.

# %%
network = vc.load(extended.folder, "resnet_probe")  # the run with the largest size and the first seed
for file in vc.export(network.path, format=["safetensors"], output="export", quiet=True):
    print(file.path, f"({file.path.stat().st_size / 1000:.0f} kB), largest difference of a logit {file.difference:.0e}")

same = vc.load("export/model.safetensors").predict("new").frame()["predicted"]
assert list(same) == list(network.predict("new").frame()["predicted"])
print("the exported file predicts the same classes")

# %% [markdown]
# ## In short
#
# - Audit first: copies, wrong labels and unreadable files make every accuracy wrong.
# - With a few hundred images and a short training, a ViT from scratch is not far above chance.
# - A linear probe on pretrained weights costs little and is accurate, if the pretraining images are similar.
# - A probability below a limit flags images for a person, but a high one proves nothing.
# - Explain predictions only of a network that is right, and check the map.
#
# ## Exercises
#
# **1. A leak.** Copy ten images of `heart` under new names into the same folder, and repeat the audit. Which finding
# comes first, and why is it more serious than it looks?

# %% tags=["solution", "hide-cell"]
for number, path in enumerate(sorted((photos / "heart").glob("*.png"))[:10]):
    Image.open(path).save(photos / "heart" / f"again_{number}.png")
findings = vc.audit(data="photos", output="audit", quiet=True).findings
for finding in findings:
    print("-", finding.description)
assert "similar" in findings[0].description
for path in (photos / "heart").glob("again_*.png"):
    path.unlink()
# Some copies would be in the training data and some in the test data. The accuracy would then measure memorisation.

# %% [markdown]
# **2. Probe or fine-tune?** Train the ViT from the same weights with `finetune: full`, and compare it with the probe
# at the largest size. What must be equal for a fair comparison, and what differs here?

# %% tags=["solution", "hide-cell", "numbers-vary"]
tuned = {key: value for key, value in probes["models.vit_probe"].items() if key != "finetune"}
alone = {"name": "tuned", "models.vit": None, "models.resnet": None, "protocol.train_sizes": ["all"]}
print("training a pretrained ViT with three seeds", flush=True)
full = vc.train("decide", {**tiny, **no_downloads, **alone, "models.vit_tuned": tuned}, quiet=True).frame()
probe = extended.frame().query("model == 'vit_probe'")
largest = probe[probe["train_size"] == probe["train_size"].max()]
print(f"accuracy: linear probe {largest['accuracy'].mean():.3f}, fully fine-tuned {full['accuracy'].mean():.3f}")
assert sorted(full["seed"]) == sorted(largest["seed"])  # the same subsets and test images
# Subsets, seeds and test images are equal. The compute differs: the probe trains only the head, on precomputed features.

# %% [markdown]
# **3. How confident is it about noise?** Blend the explained image with noise, from 0 to 100 %. What happens to the
# predicted class and to its probability?

# %% tags=["solution", "hide-cell", "words-vary"]
clean, noise = (np.asarray(Image.open(path), dtype=float) for path in (picture, new / "noise.png"))
blended = [((1 - share) * clean + share * noise).astype(np.uint8) for share in np.linspace(0, 1, 5)]
table = network.predict(np.stack(blended)).frame()[["predicted", "probability"]]
table["share of noise"] = np.linspace(0, 1, 5)
print(table.round(2))
assert table["probability"].between(0.25, 1).all()  # the most probable of four classes has at least 25 %

# %% [markdown]
# **4. Which mistakes?** Plot test images that this ResNet classifies wrongly.

# %% tags=["solution", "hide-cell", "words-vary"]
test = network.pool().test(network.run.seed)
predicted = network.predict(test.images.permute(0, 2, 3, 1).numpy()).classes
truth = [test.class_names[label] for label in test.labels]
wrong = [n for n in range(len(test)) if predicted[n] != truth[n]]
recorded = extended.frame().query("model == 'resnet_probe' and seed == @network.run.seed")
assert np.isclose(1 - len(wrong) / len(test), recorded.loc[recorded["train_size"].idxmax(), "accuracy"])
figure, axes = plt.subplots(1, 6, figsize=(9, 1.9))
for axis in axes:
    axis.axis("off")
for axis, n in zip(axes, wrong, strict=False):
    axis.imshow(test.images[n].permute(1, 2, 0))
    axis.set_title(f"{truth[n]}, not {predicted[n]}", fontsize=8)
# A title has the true class first. In several of these images the texture or the clutter hides the outline of the shape.

# %% [markdown]
# **Open questions** (without a solution)
#
# 1. Your pretraining images are photographs, and your own are X-ray images. Would you expect a probe to work? Which
#    experiment with 200 labelled images would show it?
# 2. Each wrong prediction of your application costs ten times as much as a look by a person. Which limit of the
#    probability would you choose, and which data do you need to choose it?
#
# ## The end of the course
#
# You have built attention from a weighted mean, a ViT from attention, and a convolution from attention heads. You
# know how to compare networks on your images and how to check the result. Continue with the [table of the
# notebooks](README.md) or the guides in `docs/`.
