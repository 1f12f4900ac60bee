# %% [markdown]
# # 9. Your images
#
# **At its end you know** how to go from a folder of images to a recommendation: look at the folder first, compare from scratch, begin
# with trained weights, and use the network that you chose.
#
# **You need** notebooks 5 (one duel), 7 (sizes and seeds) and 8 (maps).
#
# **Of the package:** `audit`, `train`, `load`, `predict`, `export`, all of which take folders and return what they found.

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
# One sub-folder for each class, files of any name: that is all. We draw ours: four shapes, saved as files, so that nothing is
# downloaded. (Replace `photos` by your own folder, and the notebook works as well; leave the next cells out then.)

# %% tags=["parameters"]
IMAGES = 70  # of each class
STEPS, SIZES, SEEDS = 60, [60, "all"], [0, 1, 2]
OTHERS, PRETRAIN_STEPS = 2000, 120

# %%
CLASSES = ("disc", "cross", "heart", "star")
drawn = render_objects(10 * IMAGES, seed=5, image_size=64, difficulty=0.6).images
photos = Path("photos")
for name in CLASSES:
    (photos / name).mkdir(parents=True)
for number, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
    name = drawn.class_names[label]
    if name in CLASSES:
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(photos / name / f"{number:04d}.png")
print({folder.name: len(list(folder.iterdir())) for folder in sorted(photos.iterdir())})

# %% [markdown]
# Real folders are never that clean. So we spoil it: an empty file, and a picture that lies under another class, too, saved as JPEG.

# %%
(photos / "disc" / "broken.png").write_bytes(b"")
first = sorted((photos / "heart").glob("*.png"))[0]
Image.open(first).save(photos / "star" / "copy.jpg", quality=90)

# %% [markdown]
# ## Look before you train
#
# Accuracy is worth as much as the folder. The same picture in training and test is a gift; one under two classes is a contradiction; a
# class that differs by its file format is a trap. The audit tells the worst first, and what to do:

# %%
audited = vc.audit(data="photos", output="audit", quiet=True)
print(audited)

# %%
pair = next(pair for pair in audited.pairs if len(set(pair.classes)) > 1)
print(f"{pair.similarity:.2f} alike:")
figure, axes = plt.subplots(1, 2, figsize=(4, 2.2))
for axis, path in zip(axes, (pair.first, pair.second), strict=True):
    axis.imshow(Image.open(photos / path))
    axis.set_title(path, fontsize=9)
    axis.axis("off")

# %% [markdown]
# Nothing was written into `photos`. We mend it, and look again:

# %%
(photos / "disc" / "broken.png").unlink()
(photos / "star" / "copy.jpg").unlink()
print(vc.audit(data="photos", output="audit", quiet=True))

# %% [markdown]
# ## From scratch: which of the two?
#
# The config `decide` is made for this question. On the command line it takes an hour:
#
# ```
# python train.py --config configs/decide.yaml --data.root photos --minutes 60
# ```
#
# It times a few steps and chooses sizes, seeds and steps that fit. Here we name them ourselves, tiny: two sizes, three seeds, few steps, and
# without the two pretrained networks that it would download. Each seed is tested on another fifth of each class.

# %%
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
without = {"contenders.vit_pretrained": None, "contenders.cnn_pretrained": None, "protocol.pairs": None}
found = vc.train("decide", {**tiny, **without}, quiet=True)
found.frame().groupby(["contender", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %%
print(found.answer)

# %% [markdown]
# It is about *these* networks, *this* number of steps and *these* images. If it concludes "not enough evidence", it names the number of
# seeds or test images that would be enough. `found.page` is the report to open in a browser.
#
# ## Begin with trained weights
#
# Few images of your own? Begin with a network that has seen others. We train both networks on the six *other* shapes (given as
# arrays, by `data=`), and then take them as they are, with a new head for our four classes: `finetune: head`, a linear probe.

# %%
other = render_objects(OTHERS, seed=6).images
chosen = np.array([other.class_names[label] not in CLASSES for label in other.labels])
names = np.array(other.class_names)[other.labels.numpy()]
pretraining = {
    "name": "before",
    "protocol.budget": {"steps": PRETRAIN_STEPS},
    "protocol.batch_size": 64,
    "protocol.train_sizes": ["all"],
    "protocol.seeds": [0],
    "contenders.vit.model.embed_dim": 48,  # as in decide, whose network is to begin with these weights
    "trainer": {"accelerator": "cpu", "logger": False},
}
before = vc.train("quickstart", pretraining, data=(other.images.numpy()[chosen], names[chosen]), quiet=True)
print(before.frame().set_index("contender")["accuracy"].round(3).to_dict(), "on the six other shapes")

# %%
probes = {
    f"contenders.{name}_probe": {
        "model": model,
        "weights": {"cell": str(before.folder), "contender": name},
        "finetune": "head",
    }
    for name, model in {
        "vit": {"name": "vit_nano", "embed_dim": 48, "position": "sincos"},
        "resnet": {"name": "resnet8", "zero_init_residual": False},
    }.items()
}
again = vc.train("decide", {**tiny, **without, **probes}, quiet=True)
again.frame().groupby(["contender", "train_size"])["accuracy"].agg(["mean", "min", "max"]).round(3)

# %% [markdown]
# What was trained already was kept; the two probes were added. A probe trains nothing but the head, on features that are computed once, so
# it costs next to nothing. Whether it wins depends on how near the old images are to yours. The figure has all four:

# %%
again.plot()

# %% [markdown]
# ## Use it
#
# New pictures, with no label: two hearts, a star, and one that belongs nowhere (noise). `predict` names a class for each, with a probability
# that is calibrated, and whether the picture is unlike all that it has seen; both rest on validation images, and are rough where these are
# few. We take the ResNet with pretrained weights.

# %%
new = Path("new")
new.mkdir()
unseen = render_objects(200, seed=7, image_size=64).images
wanted = [n for n, label in enumerate(unseen.labels) if unseen.class_names[label] in ("heart", "star")][:3]
for n in wanted:
    name = unseen.class_names[unseen.labels[n]]
    Image.fromarray(unseen.images[n].permute(1, 2, 0).numpy()).save(new / f"{name}_{n}.png")
Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(new / "noise.png")

answers = vc.predict(again.folder, "new", contender="resnet_probe", quiet=True)
answers.frame()[["image", "predicted", "probability", "is_out_of_distribution"]].round(3)

# %% [markdown]
# Did it flag the noise? A probability is no answer to that: the network has to share out 100 % among four classes, whatever it sees. And
# `is_out_of_distribution` may miss unlike images, the more so with few validation images; look at what comes in, too.
#
# And where does the ViT look? Its accuracy is above, and a map of a network that guesses is a map of a guess; notebook 8 has the checks.

# %%
vit = vc.load(again.folder, "vit_probe")
picture = sorted(new.glob("*.png"))[0]
vit.explain(picture, method="relevance")

# %% [markdown]
# ## Take it elsewhere
#
# A checkpoint is for this package. For other programs there are safetensors, ONNX, `torch.export` and timm's layout; each file is opened again
# and has to give the network's logits. `config.json` beside it says classes, size and normalisation.

# %%
network = vc.load(again.folder, "resnet_probe")  # of the largest size, and of that the first seed
for file in vc.export(network.path, format=["safetensors"], output="export"):
    print(file.path, f"({file.path.stat().st_size / 1000:.0f} kB), largest difference of a logit {file.difference:.0e}")

same = vc.load("export/model.safetensors").predict("new").frame()["predicted"]
print(list(same) == list(network.predict("new").frame()["predicted"]))

# %% [markdown]
# ## Exercises
#
# **1. A leak.** Copy ten images of `heart` under other names into the same folder, and audit. Which finding comes first, and why is it worse
# than it looks?

# %% tags=["solution", "hide-cell"]
for number, path in enumerate(sorted((photos / "heart").glob("*.png"))[:10]):
    Image.open(path).save(photos / "heart" / f"again_{number}.png")
for finding in vc.audit(data="photos", output="audit", quiet=True).findings:
    print("-", finding.description)
for path in (photos / "heart").glob("again_*.png"):
    path.unlink()
# Some copies would train and others test: the accuracy would be that of remembering.

# %% [markdown]
# **2. Probe or fine-tune?** Train the ViT from the same weights with `finetune: full`, and set it beside the probe at the largest size. What must
# be equal for a fair comparison, and what is not?

# %% tags=["solution", "hide-cell"]
tuned = {key: value for key, value in probes["contenders.vit_probe"].items() if key != "finetune"}
alone = {"name": "tuned", "contenders.vit": None, "contenders.resnet": None, "protocol.train_sizes": ["all"]}
whole = vc.train("decide", {**tiny, **without, **alone, "contenders.vit_tuned": tuned}, quiet=True).frame()
probe = again.frame().query("contender == 'vit_probe'")
largest = probe[probe["train_size"] == probe["train_size"].max()]
print(f"head alone {largest['accuracy'].mean():.3f}, all of it {whole['accuracy'].mean():.3f}")
# Subsets, seeds and test images are equal. The compute is not: the probe has no steps.

# %% [markdown]
# **3. What is out of distribution?** Blend a new heart with noise, 0 to 100 %. From where on is it flagged, and from where on
# does it name another class?

# %% tags=["solution", "hide-cell"]
clean, noise = (np.asarray(Image.open(path), dtype=float) for path in (picture, new / "noise.png"))
blended = [((1 - share) * clean + share * noise).astype(np.uint8) for share in np.linspace(0, 1, 5)]
print(network.predict(np.stack(blended)).frame()[["predicted", "ood_score", "is_out_of_distribution"]])

# %% [markdown]
# **4. Which mistakes?** Find, of the test images, those that this ResNet gets wrong, and look at them.

# %% tags=["solution", "hide-cell"]
test = network.pool().test(network.cell.seed)
said = network.predict(test.images.permute(0, 2, 3, 1).numpy()).classes
truth = [test.class_names[label] for label in test.labels]
wrong = [n for n in range(len(test)) if said[n] != truth[n]][:6]
figure, axes = plt.subplots(1, 6, figsize=(9, 1.9))
for axis in axes:
    axis.axis("off")
for axis, n in zip(axes, wrong, strict=False):
    axis.imshow(test.images[n].permute(1, 2, 0))
    axis.set_title(f"{truth[n]}, not {said[n]}", fontsize=8)

# %% [markdown]
# ## The end of the course
#
# You have built attention from a weighted mean, a ViT from attention, a convolution from heads; you know how to ask which is better on your
# images, and how to doubt the answer. Back to the [table of the notebooks](README.md), and to the guides in `docs/`.
