"""Settings of image sources and of augmentation, without PyTorch, so that a config is read quickly."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from vit_vs_cnn.bounds import AT_LEAST_0, SHARE, Bounded, Bounds, as_rows_and_cols, check_numbers
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.strict_yaml import check_class

Resize = Literal["crop", "squash", "pad"]
Duplicates = Literal["keep", "drop"]
Split = Literal["train", "test"]
Task = Literal["shape", "same_different"]
#: Below this distance the two shapes of same_different overlap.
MIN_PAIR_DISTANCE = 0.6
Policy = Literal["none", "randaugment", "trivialaugment"]
#: Strengths of an operation, from 0 (leaves the image) to 30 (the full range).
NUM_BINS = 31
#: Synthetic images are held in memory.
MAX_SYNTHETIC_IMAGES = 2_000_000


@dataclass(frozen=True)
class Augmentation(Bounded):
    """Random changes of training images.

    Args:
        crop_padding: black pixels added on every side before a random crop of the old size; 0 = no crop.
        flip: mirror left and right with probability 1/2.
        policy: random operations on geometry and colour: none, randaugment or trivialaugment (the wide space).
        num_ops: operations on each image (randaugment; trivialaugment has one).
        magnitude: strength of the operations, 0 to 30 (randaugment; random for trivialaugment).
        erasing: probability that a random rectangle (2 to 33 % of the area) is set to the mean color.
        mixup: alpha of mixup's Beta(alpha, alpha); 0 = none.
        cutmix: alpha of CutMix's Beta(alpha, alpha); 0 = none. With mixup and cutmix, each image takes one of them.
        resized_crop: [minimum, maximum] area of a random crop that is resized to the size of the image, as by
            torchvision's RandomResizedCrop; usually [0.08, 1]. It replaces crop_padding. null: none.
        transform: {class_path, init_args} of a custom transform from uint8 images (channels, rows, cols) to uint8
            images, applied after the other changes of bytes. Its random numbers come from the global generators. Runs
            are named by class_path and init_args, not by its code.

    Example:
        >>> Augmentation(policy="randaugment", mixup=0.2).crop_padding
        4
    """

    crop_padding: Annotated[int, Bounds(at_least=0, at_most=4096, is_whole=True)] = 4
    flip: bool = True
    policy: Policy = "none"
    num_ops: Annotated[int, Bounds(at_least=0, at_most=64, is_whole=True)] = 2
    magnitude: Annotated[float, Bounds(at_least=0, at_most=NUM_BINS - 1)] = 9.0
    erasing: Annotated[float, SHARE] = 0.0
    mixup: Annotated[float, AT_LEAST_0] = 0.0
    cutmix: Annotated[float, AT_LEAST_0] = 0.0
    resized_crop: tuple[float, float] | None = None
    transform: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise InputError(f"augmentation.policy = {self.policy!r}: must be one of {', '.join(get_args(Policy))}")
        super().__post_init__()
        for name in ("magnitude", "erasing", "mixup", "cutmix"):  # 1 and 1.0 are one config, and have one hash
            object.__setattr__(self, name, float(getattr(self, name)))
        if (area := self.resized_crop) is not None:
            if [type(end) in (int, float) for end in area] != [True, True] or not 0 < area[0] <= area[1] <= 1:
                raise InputError(f"augmentation.resized_crop = {area!r}: must be [least, most], above 0 and at most 1")
            object.__setattr__(self, "resized_crop", tuple(map(float, area)))
        check_class(self.transform, "augmentation.transform")

    @property
    def num_policy_ops(self) -> int:
        return {"none": 0, "randaugment": self.num_ops, "trivialaugment": 1}[self.policy]


@dataclass(frozen=True)
class SyntheticOptions(Bounded):
    """Number and kind of the synthetic images.

    Args:
        train_images: number of images for training.
        test_images: number of images for evaluation, from random streams that no training image uses.
        image_size: pixels along the side of the square images, 8 to 1024.
        shape_agreement: probability that the object has the shape of its label; otherwise it has another shape. 0.1
            makes the shape uninformative.
        texture_agreement: probability that the object has the texture of its label; otherwise it has another texture.
            0.1 makes the texture uninformative. 0 with a shape agreement of 1 makes the two cues conflict.
        test_texture_agreement: texture agreement of the test images. null: as in training. 1 in training and 0 here
            shows which networks have learned shapes.
        difficulty: 0 to 1: more clutter and noise, weaker contrast, smaller, displaced and rotated objects, and more
            camouflaged objects in the colors of the background (11 % at 0.5, 22 % at 1).
        seed: seed of the images; each image is a function of seed, split and its number.
        task: meaning of the label. shape: shape of the object. same_different: equal or different shapes in two
            opposite corners, which no part of the image shows alone; it has no agreements.
        distance: distance of the two shapes of same_different: 0.6 (nearly touching) to 1 (centers of their quarters).

    Raises:
        InputError: a value outside its range, or an agreement or a distance for a task without one.
    """

    train_images: Annotated[int, Bounds(at_least=1, at_most=MAX_SYNTHETIC_IMAGES)] = 4000
    test_images: Annotated[int, Bounds(at_least=1, at_most=MAX_SYNTHETIC_IMAGES)] = 2000
    image_size: Annotated[int, Bounds(at_least=8, at_most=1024)] = 32
    shape_agreement: Annotated[float, SHARE] = 1.0
    texture_agreement: Annotated[float, SHARE] = 0.1
    difficulty: Annotated[float, SHARE] = 0.5
    seed: int = 0
    task: Task = "shape"
    test_texture_agreement: Annotated[float | None, SHARE] = None
    distance: Annotated[float, Bounds(at_least=MIN_PAIR_DISTANCE, at_most=1)] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        agreements = (self.shape_agreement, self.texture_agreement, self.test_texture_agreement)
        if self.task != "shape" and agreements != (1.0, 0.1, None):
            raise InputError(f"task {self.task} has no shape_agreement and texture_agreement; they need task shape")
        if self.task != "same_different" and self.distance != 1:
            raise InputError(f"task {self.task} has no distance; it needs task same_different")

    def agreements(self, split: Split) -> tuple[float, float]:
        """Agreement of shape and of texture with the label, in a split of the task shape."""
        if split == "test" and self.test_texture_agreement is not None:
            return self.shape_agreement, self.test_texture_agreement
        return self.shape_agreement, self.texture_agreement


@dataclass(frozen=True)
class CifarOptions:
    """Options of CIFAR.

    Args:
        download: download the archive if the files are missing.
        mirror: URL of the archive, or of its folder, in place of the authors' site (https, http, ftp or file).
        verify_checksum: reject an archive or a batch file that differs from the published one.
    """

    download: bool = True
    mirror: str | None = None
    verify_checksum: bool = True


@dataclass(frozen=True)
class Decoding:
    """How image files become bytes of one size.

    Args:
        resize: as in ``ImageOptions``.
        interpolation: "bilinear", "bicubic" or "nearest".
        gray_bits: bits of the values in gray files of 16 bits (``find_gray_bits``): 2^bits - 1 becomes white.
    """

    resize: Resize = "crop"
    interpolation: str = "bicubic"
    gray_bits: int = 16


@dataclass(frozen=True)
class InputResolution:
    """Size and interpolation at which a network gets the images of files.

    Args:
        image_size: (rows, cols) in pixels.
    """

    image_size: tuple[int, int]
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bicubic"

    def __post_init__(self) -> None:
        rows, cols = self.image_size
        bounds = Bounds(at_least=1, at_most=2048, is_whole=True)
        check_numbers({"rows": rows, "cols": cols}, rows=bounds, cols=bounds)


@dataclass(frozen=True)
class ImageOptions(Bounded):
    """Options of all images that are not made or published for this purpose.

    Args:
        image_size: size of all images in pixels, or [rows, cols]. null: the common size of arrays or a dataset.
        resize: crop (keeps proportions, cuts the edges), squash (keeps the whole image, changes proportions) or pad
            (keeps both, adds black bars).
        test_fraction: fraction of the images in a test fold, if there is no test set. 0.2 gives five folds, stratified
            by class; the runs of seed s are tested on fold s mod 5.
        split_seed: seed of the division into folds.
        cache: folder of decoded images and lists of unusable files. Default: vit_vs_cnn in $XDG_CACHE_HOME or ~/.cache.
    """

    image_size: int | tuple[int, int] | None = 64
    resize: Resize = "crop"
    test_fraction: Annotated[float, Bounds(above=0, below=1)] = 0.2
    split_seed: int = 0
    cache: Path | None = None

    def __post_init__(self) -> None:
        if self.image_size is not None:
            as_rows_and_cols("image_size", self.image_size)
        super().__post_init__()


@dataclass(frozen=True)
class FileOptions(ImageOptions):
    """Options of image files.

    Args:
        skip_unreadable: leave out files that cannot be used, with a warning and a list, instead of stopping.
        duplicates: keep, or drop copies (images with equal pixels). drop keeps the first image of equal ones, in the
            order training, validation, test; of copies in different classes it keeps none.
        max_images: largest number of images, a sample stratified by class and split. A larger sample contains a smaller
            one. Default: all, or a sample if minutes are set and reading all takes more than half of that time.
    """

    image_size: int | tuple[int, int] = 64
    skip_unreadable: bool = False
    duplicates: Duplicates = "keep"
    max_images: Annotated[int | None, Bounds(at_least=1, is_whole=True)] = None


@dataclass(frozen=True)
class FolderOptions(FileOptions):
    """Options of a folder of images.

    Args:
        group: regular expression that finds the group of a file in its name: '^(patient[0-9]+)_'. A group is never
            divided between training, validation and test.
    """

    group: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group is not None:
            try:
                re.compile(self.group)
            except re.error as error:
                raise InputError(f"group: {self.group!r} is not a regular expression: {error}") from error


@dataclass(frozen=True)
class TableOptions(FileOptions):
    """Options of a table of images: a CSV file with one row an image, whose path is data.root.

    Args:
        image: column of the paths, which start in the folder of the table.
        label: column of the classes.
        split: column with train, validation or test; null for test folds.
        group: column of the groups (a patient, a camera). A group is never divided between training, validation and
            test.
    """

    image: str = "image"
    label: str = "label"
    split: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class ArraysOptions(ImageOptions):
    """Options of images that a custom class or Python code (``data=``) gives.

    Args:
        fingerprint: hash by which images that were given in Python are found in the cache. train writes it.
        description: the object that was given. train writes it.
    """

    image_size: int | tuple[int, int] | None = None
    fingerprint: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fingerprint is not None and not re.fullmatch("[0-9a-f]{16}(-[0-9a-f]{16})?", self.fingerprint):
            raise InputError(f"fingerprint: {self.fingerprint!r} is not a fingerprint; train writes it")
