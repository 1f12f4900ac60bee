"""RandAugment and TrivialAugmentWide compared with torchvision."""

import pytest
import torch
from torchvision.transforms import v2

from vit_vs_cnn.data.augmentation.policy import NUM_BINS, OPERATIONS, apply_operations, make_policy_table

REFERENCES = {"randaugment": v2.RandAugment(), "trivialaugment": v2.TrivialAugmentWide()}
BINS = [0, 1, 4, 9, 15, 18, 20, 23, 27, 30]


def torchvision_result(policy, image, operation, position, sign):
    """torchvision's transform with a given operation, bin and sign."""
    transform = REFERENCES[policy]
    steps, signed = transform._AUGMENTATION_SPACE[operation]
    magnitudes = steps(NUM_BINS, *image.shape[-2:])
    magnitude = 0.0 if magnitudes is None else float(magnitudes[position]) * (sign if signed else 1)
    options = {"interpolation": transform.interpolation, "fill": transform._fill}
    return transform._apply_image_or_video_transform(image, operation, magnitude, **options)


def our_results(table, image, operation):
    """All bins and signs in one batch."""
    entries = torch.arange(2 * len(BINS)) + 2 * len(BINS) * OPERATIONS.index(operation)
    counts = [len(entries) if name == operation else 0 for name in OPERATIONS]
    images = image.repeat(len(entries), 1, 1, 1)
    apply_operations(images, entries, counts, table)
    return images.unflatten(0, (len(BINS), 2))


@pytest.fixture(scope="module")
def tables():
    bins = [*map(float, BINS)]
    return {policy: make_policy_table(policy, bins, (29, 23)) for policy in REFERENCES}


def test_operations_are_torchvisions_and_fractional_magnitudes_are_interpolated():
    for transform in REFERENCES.values():
        assert set(OPERATIONS) == set(transform._AUGMENTATION_SPACE)
    lower, middle, upper = (make_policy_table("randaugment", [bins], (31, 37)).levels for bins in (9.0, 9.5, 10.0))
    brightness = 2 * OPERATIONS.index("Brightness")
    torch.testing.assert_close(middle[brightness], (lower[brightness] + upper[brightness]) / 2)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("policy", REFERENCES)
def test_bins_and_signs_equal_torchvision(policy, operation, channels, tables):
    image = torch.randint(0, 256, (channels, 29, 23), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
    entries = [(operation, position, sign) for position in BINS for sign in (1, -1)]
    expected = torch.stack([torchvision_result(policy, image, *entry) for entry in entries]).unflatten(0, (-1, 2))
    difference = (our_results(tables[policy], image, operation).int() - expected.int()).abs()
    if operation in ("ShearX", "ShearY", "Rotate"):  # neighbouring pixels at rounding ties
        assert (difference > 0).float().mean() < 0.02
    elif operation in ("Brightness", "Color", "Contrast", "Sharpness"):
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < 0.01
    else:
        assert difference.max() == 0
