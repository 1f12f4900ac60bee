# %% [markdown]
# # The duel
#
# A Vision Transformer and a ResNet, trained side by side under one protocol. This is what `python train.py` does; here it
# is taken apart, with fewer steps so that it runs in under a minute on two cores.

# %%
import matplotlib.pyplot as plt
import torch
from rich.console import Console

import vit_vs_cnn as vc
from vit_vs_cnn.config.experiment import experiment_from_dict, find_config, override, read_config
from vit_vs_cnn.data.objects import ObjectsOptions, ObjectsSource
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.regimes import findings_of
from vit_vs_cnn.reporting.tables import comparison_lines, print_table

# %% [markdown]
# ## The images
#
# They are drawn from a seed: ten shapes of random place, size and colour on textured clutter. The same numbers give the
# same images on every machine.

# %%
test = ObjectsSource(ObjectsOptions(train_images=10, test_images=16)).test()

figure, axes = plt.subplots(2, 8, figsize=(10, 2.9))
for axis, image, label in zip(axes.flat, test.images, test.labels, strict=True):
    axis.imshow(image.permute(1, 2, 0))
    axis.set_title(test.class_names[label], fontsize=8)
    axis.axis("off")

# %% [markdown]
# ## The config is the protocol
#
# What the contenders share stands once; what differs stands under the contender's name.

# %%
print(find_config().read_text())

# %% [markdown]
# ## Both contenders
#
# The budget is cut to 60 steps of 64 images here; run `python train.py` for the whole of it. A finished cell is kept: run
# this twice, and the second time nothing trains.

# %% tags=["parameters"]
STEPS = 60
TRAIN_IMAGES, TEST_IMAGES = 1000, 500

# %%
values = read_config(find_config())
override(values, "name", "notebook")
override(values, "protocol.budget", {"steps": STEPS})
override(values, "protocol.batch_size", 64)
override(values, "data.objects", {"train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES})
override(values, "protocol.train_sizes", ["all"])
override(values, "trainer", {"accelerator": "cpu", "logger": False})
experiment = experiment_from_dict(values)

results = run_experiment(experiment, console=Console(quiet=True))
analysis = findings_of(experiment.folder).analysis
console = Console(width=90, force_jupyter=False, force_terminal=False)
print_table(results, analysis, title=f"{STEPS} steps", console=console)
for line in comparison_lines(analysis):
    console.print(line)

# %% [markdown]
# ## What the ViT attends to
#
# Attention weights come from the forward pass on request, `(batch, heads, tokens, tokens)` for each layer; no hooks. Here
# is how much attention each patch receives, on average over heads and queries, in every layer.

# %%
vit = vc.load(experiment.folder, "vit")
with torch.no_grad():
    logits, weights = vit.network(vit.normalise(test.images[:4]), return_attention=True)

figure, axes = plt.subplots(4, 1 + len(weights), figsize=(8, 6.6))
for row, image in zip(range(4), test.images[:4], strict=True):
    axes[row, 0].imshow(image.permute(1, 2, 0))
    says = vit.class_names[int(logits[row].argmax())]
    axes[row, 0].set_title(f"{vit.class_names[int(test.labels[row])]}, read as {says}", fontsize=8)
    for layer, layer_weights in enumerate(weights):
        received = layer_weights[row].mean(dim=(0, 1)).unflatten(0, vit.network.grid_size)
        axes[row, layer + 1].imshow(received, cmap="cividis")
        axes[row, layer + 1].set_title(f"layer {layer + 1}", fontsize=8)
for axis in axes.flat:
    axis.axis("off")
