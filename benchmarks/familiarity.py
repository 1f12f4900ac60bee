"""How well two measures tell images unlike all that a network was trained on, and the network's own confidence.

    python -m benchmarks.familiarity CELL ... [--cifar data] [--count 1000]

For each cell the network's test images against CIFAR-10, CIFAR-100, drawn objects (those that it was not trained on)
and uniform noise. The number is the AUROC: the chance that an image of the other kind scores as more unfamiliar than a
test image; 0.5 is guessing. Methods: the distance to the k-th nearest of 1,000 training images' features (Sun et al.
2022), the relative Mahalanobis distance (Ren et al. 2021; covariances shrunk by 1e-3 of their mean variance), and one
minus the largest probability (Hendrycks and Gimpel 2017). "flagged" is the share beyond predict's threshold.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vit_vs_cnn.data.cifar import CifarSource
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.options import CifarOptions
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.models.features import classifier_of
from vit_vs_cnn.runs.evaluation import Predictions, predict
from vit_vs_cnn.runs.familiarity import Familiarity
from vit_vs_cnn.runs.held_out import MOST_KEPT
from vit_vs_cnn.runs.trained import TrainedNetwork, open_network

NEIGHBOURS = (1, 5, 20, 50)


def others(cifar: Path, count: int, size: int) -> dict[str, Tensor]:
    """Images of each kind, as bytes at ``(size, size)``."""
    found = {}
    for name in ("cifar10", "cifar100"):
        source = CifarSource(name, cifar, CifarOptions(download=False, verify_checksum=False))
        found[name] = F.interpolate(source.test().images[:count].float(), size=size).byte()
    found["objects"] = render_objects(count, image_size=size, seed=1234).images.images
    generator = torch.Generator().manual_seed(0)
    found["noise"] = torch.randint(0, 256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    return found


def neighbour_distance(features: Tensor, bank: Tensor, k: int) -> np.ndarray:
    """The distance of unit features to the k-th nearest of the bank."""
    distances = torch.cdist(F.normalize(features, dim=1), F.normalize(bank, dim=1))
    return distances.topk(k, largest=False).values[:, -1].numpy()


def relative_mahalanobis(features: Tensor, bank: Tensor, labels: Tensor) -> np.ndarray:
    """``min_c (f - m_c)' S^-1 (f - m_c) - (f - m)' S_0^-1 (f - m)``, of the bank's means and covariances."""
    bank, features = bank.double(), features.double()
    means = {int(one): bank[labels == one].mean(0) for one in labels.unique()}
    within = torch.stack([row - means[int(one)] for row, one in zip(bank, labels, strict=True)])
    overall = bank - bank.mean(0)
    inverse, inverse_0 = (_shrunk(part.T @ part / len(part)).inverse() for part in (within, overall))
    to_class = torch.stack([_form(features - mean, inverse) for mean in means.values()]).amin(0)
    return (to_class - _form(features - bank.mean(0), inverse_0)).numpy()


def _shrunk(covariance: Tensor) -> Tensor:
    return covariance + 1e-3 * covariance.trace() / len(covariance) * torch.eye(len(covariance), dtype=torch.float64)


def _form(rows: Tensor, inverse: Tensor) -> Tensor:
    return ((rows @ inverse) * rows).sum(1)


def judge(trained: TrainedNetwork, kinds: dict[str, Tensor], count: int) -> None:
    """Print a line for each kind of image."""
    from sklearn.metrics import roc_auc_score

    classifier = classifier_of(trained.network, len(trained.class_names))
    assert classifier is not None, "its cell has no features"

    def said(images: Tensor) -> Predictions:
        names = [str(number) for number in range(len(images))]
        data = LabelledImages(images, torch.zeros(len(images)).long(), trained.class_names, names)
        return predict(trained.network, data, trained.normalise, classifier=classifier)

    pool, cell = trained.pool(), trained.cell
    drawn = pool.draw(cell.train_size, cell.seed)
    kept = torch.linspace(0, len(drawn.training) - 1, min(MOST_KEPT, len(drawn.training))).long()
    bank, labels = said(drawn.training.images[kept]).features, drawn.training.labels[kept]
    tested = pool.test(cell.seed)
    held, test = said(drawn.validation.images).features, said(tested.images[:count])
    assert bank is not None and held is not None and test.features is not None
    familiarity = Familiarity.of(bank, held)
    assert familiarity is not None
    accuracy = (test.logits.argmax(1) == tested.labels[:count]).double().mean()
    print(f"\n{cell.experiment.data.source} {cell.name}: accuracy {accuracy:.1%}, {len(held)} validation images")
    names = [*(f"knn {k}" for k in NEIGHBOURS), "Mahalanobis", "confidence", "flagged"]
    print(f"{'':10}" + "".join(f"{name:>12}" for name in names))
    flagged = np.mean(familiarity.distances(test.features) > 1)
    print(f"{'its own':10}" + " " * 12 * (len(names) - 1) + f"{flagged:>12.1%}")
    for kind, images in kinds.items():
        if kind == cell.experiment.data.source:
            continue
        other = said(images)
        assert other.features is not None
        both, truth = torch.cat([test.features, other.features]), np.repeat([0, 1], [len(test.labels), len(images)])
        scores = [neighbour_distance(both, bank, k) for k in NEIGHBOURS]
        scores += [relative_mahalanobis(both, bank, labels)]
        scores += [-torch.cat([test.logits, other.logits]).softmax(1).amax(1).numpy()]
        flagged = np.mean(familiarity.distances(other.features) > 1)
        print(f"{kind:10}" + "".join(f"{roc_auc_score(truth, one):>12.3f}" for one in scores) + f"{flagged:>12.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", type=Path, nargs="+")
    parser.add_argument("--cifar", type=Path, default=Path("data"), help="where CIFAR lies (default: data)")
    parser.add_argument("--count", type=int, default=1000, help="images of each kind (default: 1000)")
    given = parser.parse_args()
    for cell in given.cells:
        trained = open_network(cell)
        judge(trained, others(given.cifar, given.count, trained.image_shape[1]), given.count)


if __name__ == "__main__":
    main()
