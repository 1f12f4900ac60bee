# %% [markdown]
# # 9. Your images
#
# **At the end you know** how to go from a folder of images to a recommendation: audit the folder, compare networks
# trained from scratch, start from pretrained weights, and use the network that you chose.
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
PRETRAIN_IMAGES, PRETRAIN_STEPS = 2000, 120

# %%
CLASSES = ("disc", "cross", "heart", "star")
synthetic = render_objects(10 * IMAGES, seed=5, image_size=64, difficulty=0.6).images
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
# The audit did not change `photos`. We fix both errors and repeat the audit:

# %%
(photos / "disc" / "broken.png").unlink()
(photos / "star" / "copy.jpg").unlink()
print(vc.audit(data="photos", output="audit", quiet=True))

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
# downloaded. Each seed uses a different fifth of each class as test images.

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
    "trainer": {"accelerator": "cpu", "logger": False},
}
no_downloads = {"models.vit_pretrained": None, "models.cnn_pretrained": None, "protocol.pairs": None}
experiment = vc.train("decide", {**tiny, **no_downloads}, quiet=True)
experiment.frame().groupby(["model", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %% tags=["words-vary"]
print(experiment.answer)

# %% [markdown]
# The conclusion holds for *these* networks, *this* number of steps and *these* images. If it is "not enough
# evidence", it states how many seeds or test images would be enough. `experiment.page` is the path of the report;
# open it in a browser.
#
# ## Start from pretrained weights
#
# With few images, start from a network that was trained on others. We train both networks on the six *other* shapes
# (passed as arrays with `data=`). Then we freeze them and train only a new head for our four classes: `finetune:
# head`, a linear probe.

# %% tags=["numbers-vary"]
source = render_objects(PRETRAIN_IMAGES, seed=6).images
is_pretraining = np.array([source.class_names[label] not in CLASSES for label in source.labels])
names = np.array(source.class_names)[source.labels.numpy()]
pretraining = {
    "name": "before",
    "protocol.budget": {"steps": PRETRAIN_STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "models.vit.options.embed_dim": 48,  # as in the config decide, which starts from these weights
    "trainer": {"accelerator": "cpu", "logger": False},
}
pretrained = vc.train(
    "quickstart", pretraining, data=(source.images.numpy()[is_pretraining], names[is_pretraining]), quiet=True
)
print(pretrained.frame().set_index("model")["accuracy"].round(3).to_dict(), "on the six other shapes")

# %% tags=["numbers-vary"]
probes = {
    f"models.{name}_probe": {**model, "weights": {"run": str(pretrained.folder), "model": name}, "finetune": "head"}
    for name, model in {
        "vit": {"name": "vit_nano", "options": {"embed_dim": 48, "position": "sincos"}},
        "resnet": {"name": "resnet8", "options": {"zero_init_residual": False}},
    }.items()
}
extended = vc.train("decide", {**tiny, **no_downloads, **probes}, quiet=True)
extended.frame().groupby(["model", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %% [markdown]
# The runs that were already trained are reused; only the two probes are new. A probe trains only the head, on
# features that are computed once, so it costs very little. It helps more if the pretraining images are similar to
# yours. The figure shows all four:

# %% tags=["numbers-vary"]
extended.plot()

# %% [markdown]
# ## Predict new images
#
# New images without labels: two hearts, a star, and one of noise, which belongs to no class. `predict` returns a
# class for each image and its calibrated probability. The calibration comes from the validation images, so it is
# imprecise if those are few. We use the ResNet with pretrained weights.

# %% tags=["words-vary"]
new = Path("new")
new.mkdir()
unseen = render_objects(200, seed=7, image_size=64).images
wanted = [n for n, label in enumerate(unseen.labels) if unseen.class_names[label] in ("heart", "star")][:3]
for n in wanted:
    name = unseen.class_names[unseen.labels[n]]
    Image.fromarray(unseen.images[n].permute(1, 2, 0).numpy()).save(new / f"{name}_{n}.png")
Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(new / "noise.png")

answers = vc.predict(extended.folder, "new", model="resnet_probe", quiet=True)
answers.frame()[["image", "predicted", "probability"]].round(3)

# %% [markdown]
# The noise gets a class as well: the network must distribute 100 % over four classes for every image. Look at your new
# images before you use their predictions.
#
# Where does the ViT look? Check its accuracy above first: the map of a network that guesses explains a guess.
# Notebook 8 has the checks.

# %% tags=["words-vary"]
vit = vc.load(extended.folder, "vit_probe")
picture = sorted(new.glob("*.png"))[0]
vit.explain(picture, method="relevance")

# %% [markdown]
# ## Export the network
#
# A checkpoint is for this package. Other programs read safetensors, ONNX or timm's format. Each
# exported file is loaded again, and its logits are compared with the network's. `config.json` in the same folder
# contains the classes, image size and normalisation.

# %%
network = vc.load(extended.folder, "resnet_probe")  # the run with the largest size and the first seed
for file in vc.export(network.path, format=["safetensors"], output="export", quiet=True):
    print(file.path, f"({file.path.stat().st_size / 1000:.0f} kB), largest difference of a logit {file.difference:.0e}")

same = vc.load("export/model.safetensors").predict("new").frame()["predicted"]
print(list(same) == list(network.predict("new").frame()["predicted"]))

# %% [markdown]
# ## Exercises
#
# **1. A leak.** Copy ten images of `heart` under new names into the same folder, and repeat the audit. Which finding
# comes first, and why is it more serious than it looks?

# %% tags=["solution", "hide-cell"]
for number, path in enumerate(sorted((photos / "heart").glob("*.png"))[:10]):
    Image.open(path).save(photos / "heart" / f"again_{number}.png")
for finding in vc.audit(data="photos", output="audit", quiet=True).findings:
    print("-", finding.description)
for path in (photos / "heart").glob("again_*.png"):
    path.unlink()
# Some copies would be in the training data and some in the test data. The accuracy would then measure memorisation.

# %% [markdown]
# **2. Probe or fine-tune?** Train the ViT from the same weights with `finetune: full`, and compare it with the probe
# at the largest size. What must be equal for a fair comparison, and what differs here?

# %% tags=["solution", "hide-cell", "numbers-vary"]
tuned = {key: value for key, value in probes["models.vit_probe"].items() if key != "finetune"}
alone = {"name": "tuned", "models.vit": None, "models.resnet": None, "protocol.train_sizes": ["all"]}
full = vc.train("decide", {**tiny, **no_downloads, **alone, "models.vit_tuned": tuned}, quiet=True).frame()
probe = extended.frame().query("model == 'vit_probe'")
largest = probe[probe["train_size"] == probe["train_size"].max()]
print(f"accuracy: linear probe {largest['accuracy'].mean():.3f}, fully fine-tuned {full['accuracy'].mean():.3f}")
# Subsets, seeds and test images are equal. The compute differs: the probe trains only the head, on precomputed features.

# %% [markdown]
# **3. How confident is it about noise?** Blend a new heart with noise, from 0 to 100 %. What happens to the predicted
# class and to its probability?

# %% tags=["solution", "hide-cell", "words-vary"]
clean, noise = (np.asarray(Image.open(path), dtype=float) for path in (picture, new / "noise.png"))
blended = [((1 - share) * clean + share * noise).astype(np.uint8) for share in np.linspace(0, 1, 5)]
print(network.predict(np.stack(blended)).frame()[["predicted", "probability"]])

# %% [markdown]
# **4. Which mistakes?** Plot test images that this ResNet classifies wrongly.

# %% tags=["solution", "hide-cell", "words-vary"]
test = network.pool().test(network.run.seed)
predicted = network.predict(test.images.permute(0, 2, 3, 1).numpy()).classes
truth = [test.class_names[label] for label in test.labels]
wrong = [n for n in range(len(test)) if predicted[n] != truth[n]][:6]
figure, axes = plt.subplots(1, 6, figsize=(9, 1.9))
for axis in axes:
    axis.axis("off")
for axis, n in zip(axes, wrong, strict=False):
    axis.imshow(test.images[n].permute(1, 2, 0))
    axis.set_title(f"{truth[n]}, not {predicted[n]}", fontsize=8)

# %% [markdown]
# ## The end of the course
#
# You have built attention from a weighted mean, a ViT from attention, and a convolution from attention heads. You
# know how to compare networks on your images and how to check the result. Continue with the [table of the
# notebooks](README.md) or the guides in `docs/`.
