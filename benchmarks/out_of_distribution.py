"""Detection of images unlike the training images, by the score of ``predict`` and by other scores.

    python -m benchmarks.out_of_distribution RUN ... [--cifar data] [--count 500]

Prints for each run the AUROC of its test images against noise, blank images, CIFAR-10, CIFAR-100 and synthetic images:
the probability that an unlike image has the larger score; 0.5 is guessing. "score" is the score of ``predict``, the
larger one of its two parts "features" and "contrast". The others are the Mahalanobis distance of the features before
the last linear map (Lee et al. 2018), the negative energy (Liu et al. 2020) and the negative largest logit (Hendrycks
et al. 2022). "flagged" is the share of images with a score above 1.
"""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import command_line
from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.images import UNKNOWN, LabelledImages
from vit_vs_cnn.data.options import CifarOptions
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.models.features import find_classifier
from vit_vs_cnn.networks.evaluation import Predictions, predict
from vit_vs_cnn.networks.held_out import MAX_STORED_FEATURES, OutOfDistributionScore, auroc, unlike_images
from vit_vs_cnn.networks.trained_network import TrainedNetwork


def load_unlike_images(cifar: Path, count: int, shape: tuple[int, int, int]) -> dict[str, Tensor]:
    """Images of each kind as bytes, with CIFAR if its folder exists."""
    images_by_kind = unlike_images(shape)
    for name in ("cifar10", "cifar100") if cifar.exists() else ():
        source = CifarSource(name, cifar, CifarOptions(download=False, verify_checksum=False))
        images = source.test().images[:count].float()
        images_by_kind[name] = (
            F.interpolate(images, size=shape[1:], mode="bilinear", antialias=True).clamp(0, 255).byte()
        )
    images_by_kind["objects"] = render_objects(count, image_size=shape[1], seed=1234).images.images
    return images_by_kind


def mahalanobis(features: Tensor, training: Tensor, labels: Tensor) -> np.ndarray:
    """Distance to the nearest class mean, with the covariance within classes, shrunk by 1e-3 of its mean variance."""
    training, features = training.double(), features.double()
    classes, index = labels.unique(return_inverse=True)
    means = torch.stack([training[labels == class_name].mean(0) for class_name in classes])
    within = training - means[index]
    covariance = within.T @ within / len(within)
    covariance += 1e-3 * covariance.trace() / len(covariance) * torch.eye(len(covariance), dtype=torch.float64)
    offsets = features[:, None] - means
    return ((offsets @ covariance.inverse()) * offsets).sum(-1).amin(1).numpy()


def judge(trained: TrainedNetwork, cifar: Path, count: int) -> None:
    """Print a line for each kind of image."""
    classifier = find_classifier(trained.network, len(trained.class_names))
    assert classifier is not None, "the network has no features"

    def predicted(images: Tensor) -> Predictions:
        data = LabelledImages(images, torch.full((len(images),), UNKNOWN), trained.class_names)
        return predict(trained.network, data, trained.normalize, classifier=classifier)

    pool, run = trained.pool(), trained.run
    subset, test = pool.draw(run.train_size, run.seed), pool.test(run.seed)
    indices = torch.linspace(0, len(subset.training) - 1, min(MAX_STORED_FEATURES, len(subset.training))).long()
    training, labels = subset.training.images[indices], subset.training.labels[indices]
    features, validation_features = predicted(training).features, predicted(subset.validation.images).features
    assert features is not None and validation_features is not None
    score = OutOfDistributionScore.fit((training, features), (subset.validation.images, validation_features))
    assert score is not None

    def scores(images: Tensor) -> dict[str, np.ndarray]:
        predictions = predicted(images)
        assert predictions.features is not None and score is not None
        parts = score.distances(images, predictions.features).numpy()
        return {
            "score": score.scores(images, predictions.features),
            "features": parts[:, 0],
            "contrast": parts[:, 1],
            "Mahalanobis": mahalanobis(predictions.features, features, labels),
            "energy": -predictions.logits.logsumexp(1).double().numpy(),
            "max logit": -predictions.logits.amax(1).double().numpy(),
        }

    usual = scores(test.images[:count])
    accuracy = predicted(test.images[:count]).logits.argmax(1).eq(test.labels[:count]).double().mean()
    offered = "offered" if trained.held_out.out_of_distribution is not None else "not offered"
    print(f"\n{run.name}: accuracy {accuracy:.1%}, {len(validation_features)} validation images, {offered}")
    print(f"{'':10}" + "".join(f"{name:>12}" for name in [*usual, "flagged"]))
    print(f"{'its own':10}" + " " * 12 * len(usual) + f"{np.mean(usual['score'] > 1):>12.1%}")
    for kind, images in load_unlike_images(cifar, count, trained.image_shape).items():
        if kind == run.experiment.data.source:
            continue
        unlike = scores(images)
        row = "".join(f"{auroc(usual[name], unlike[name]):>12.3f}" for name in usual)
        print(f"{kind:10}{row}{np.mean(unlike['score'] > 1):>12.1%}")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--cifar", type=Path, default=Path("data"), help="folder of CIFAR (default: data)")
    parser.add_argument("--count", type=int, default=500, help="images of each kind (default: 500)")
    arguments = parser.parse_args()
    for run in arguments.runs:
        judge(TrainedNetwork.open(run), arguments.cifar, arguments.count)


if __name__ == "__main__":
    main()
