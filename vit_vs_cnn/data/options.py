"""Settings of image sources and of augmentation, without PyTorch, so that a config is read quickly."""

import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from vit_vs_cnn.bounds import AT_LEAST_0, SHARE, Bounds, check_numbers
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import Plain, check_class

SCHEMES = ("https", "http", "file", "ftp")
Resize = Literal["crop", "squash", "pad"]
Split = Literal["train", "test"]
Task = Literal["shape", "texture", "same_different"]
#: Below this distance the two shapes of same_different overlap.
MIN_PAIR_DISTANCE = 0.6
Policy = Literal["none", "randaugment", "trivialaugment"]
#: Strengths of an operation, from 0 (leaves the image) to 30 (the full range).
NUM_BINS = 31
#: Synthetic images are held in memory.
MAX_SYNTHETIC_IMAGES = 2_000_000
BOUNDS_MESSAGE = "{name} is {value}; allowed: {bounds}"
IMAGE_SIZE_BOUNDS = Bounds(at_least=8, at_most=1024)


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images.

    Args:
        crop_padding: black pixels added on every side before a random crop of the old size; 0 = no crop.
        flip: mirror left and right with probability 1/2.
        policy: random operations on geometry and colour: none, randaugment or trivialaugment (the wide space).
        num_ops: operations on each image (randaugment; trivialaugment has one).
        magnitude: strength of the operations, 0 to 30 (randaugment; trivialaugment draws it).
        erasing: probability that a random rectangle (2% to 33% of the area) is set to the mean colour.
        mixup: alpha of mixup's Beta(alpha, alpha); 0 = none.
        cutmix: alpha of CutMix's Beta(alpha, alpha); 0 = none. With mixup and cutmix, each image takes one of them.
        mix_probability: probability that an image is mixed at all.
        resized_crop: [least, most] share of the image's area that is cut out at random and brought back to its size, as
            torchvision's RandomResizedCrop does; [0.08, 1] is usual, null = none. It takes the place of crop_padding.
        transform: {class_path, init_args} of a transform of your own: bytes (channels, rows, cols) to such bytes, with
            random numbers from its argument generator if it has one, or from the global ones. It comes behind all that
            changes bytes; it is named in a result by its class_path and init_args, not by its code.
    """

    crop_padding: int = 4
    flip: bool = True
    policy: Policy = "none"
    num_ops: int = 2
    magnitude: float = 9.0
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_probability: float = 1.0
    resized_crop: tuple[float, float] | None = None
    transform: Plain | None = None

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise InputError(f"augmentation.policy = {self.policy!r}: must be one of {', '.join(get_args(Policy))}")
        template = "augmentation.{name} = {value!r}: must be {bounds}"
        whole = {"crop_padding": Bounds(at_least=0, at_most=4096, is_whole=True)}
        check_numbers(vars(self), template, **whole, num_ops=Bounds(at_least=0, at_most=64, is_whole=True))
        bounds = {"magnitude": Bounds(at_least=0, at_most=NUM_BINS - 1), "erasing": SHARE, "mix_probability": SHARE}
        bounds |= {"mixup": AT_LEAST_0, "cutmix": AT_LEAST_0}
        check_numbers(vars(self), template, **bounds)
        for name in bounds:  # 1 and 1.0 are one config, and have one hash
            object.__setattr__(self, name, float(getattr(self, name)))
        if (area := self.resized_crop) is not None:
            if [type(end) in (int, float) for end in area] != [True, True] or not 0 < area[0] <= area[1] <= 1:
                raise InputError(f"augmentation.resized_crop = {area!r}: must be [least, most], above 0 and at most 1")
            object.__setattr__(self, "resized_crop", tuple(map(float, area)))
        check_class(self.transform, "augmentation.transform")

    @property
    def mixes(self) -> bool:
        """Whether targets are soft labels."""
        return (self.mixup > 0 or self.cutmix > 0) and self.mix_probability > 0

    @property
    def num_policy_ops(self) -> int:
        """Operations of the policy on each image."""
        return {"none": 0, "randaugment": self.num_ops, "trivialaugment": 1}[self.policy]


@dataclass(frozen=True)
class SyntheticOptions:
    """Number and kind of the synthetic images.

    Args:
        train_images: number of images for training.
        test_images: number of images for evaluation, from random streams that no training image uses.
        image_size: pixels along the side of the square images, 8 to 1024.
        shape_agreement: probability that the shape is that of the label; otherwise it is another, uniformly. 0.1 makes
            shape uninformative.
        texture_agreement: probability that the object's texture is that of the label; otherwise it is another,
            uniformly. 0.1 makes texture uninformative; 0 with a shape agreement of 1 is a conflict of the two cues.
        test_texture_agreement: the same for the test images alone; null for the one above. 1 in training and 0 here
            makes the cues conflict, and so shows which networks have learned shapes.
        difficulty: from 0 to 1: more clutter and noise, weaker contrast, smaller, displaced and turned objects, and a
            growing share (0.11 at 0.5, 0.22 at 1) of objects camouflaged in the background's colours, few of which
            can be recognised.
        seed: the family of images; every image is a pure function of seed, split and its number.
        task: the label. shape: that of the object. texture: that of its surface, which is local; the shape is
            uninformative. same_different: whether the shapes in two opposite corners are the same, which no part of
            the image shows alone. The agreements belong to the task shape.
        distance: of the two shapes of same_different, from 0.6, where they nearly touch, to 1, where each is in the
            middle of its quarter: half as many rows, and as many columns, as the image has are between their centres.

    Raises:
        InputError: a value outside its range, or an agreement or a distance for a task without one.
    """

    train_images: int = 4000
    test_images: int = 2000
    image_size: int = 32
    shape_agreement: float = 1.0
    texture_agreement: float = 0.1
    difficulty: float = 0.5
    seed: int = 0
    task: Task = "shape"
    test_texture_agreement: float | None = None
    distance: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(
            vars(self),
            BOUNDS_MESSAGE,
            train_images=Bounds(at_least=1, at_most=MAX_SYNTHETIC_IMAGES),
            test_images=Bounds(at_least=1, at_most=MAX_SYNTHETIC_IMAGES),
            image_size=IMAGE_SIZE_BOUNDS,
            **dict.fromkeys(("shape_agreement", "texture_agreement", "test_texture_agreement", "difficulty"), SHARE),
            distance=Bounds(at_least=MIN_PAIR_DISTANCE, at_most=1),
        )
        if self.task not in get_args(Task):
            raise InputError(f"task is {self.task!r}; allowed: {', '.join(get_args(Task))}")
        if self.task != "shape" and not self._has_default_agreements:
            raise InputError(f"task {self.task} has no agreements; they belong to the task shape")
        if self.task != "same_different" and self.distance != 1:
            raise InputError(f"task {self.task} has no distance; it belongs to the task same_different")

    @property
    def _has_default_agreements(self) -> bool:
        return (self.shape_agreement, self.texture_agreement, self.test_texture_agreement) == (1.0, 0.1, None)

    def agreements(self, split: Split) -> tuple[float, float]:
        """Agreement of shape and of texture with the label, in a split of the task shape or texture."""
        if self.task == "texture":
            return 0.1, 1.0
        other = self.test_texture_agreement if split == "test" else None
        return self.shape_agreement, self.texture_agreement if other is None else other


@dataclass(frozen=True)
class CifarOptions:
    """How CIFAR is obtained.

    Args:
        download: fetch the archive where the data is missing.
        mirror: where to fetch it from instead of the authors' site: the URL of the archive, or of the folder it is in
            (https, http, ftp or file).
        verify_checksum: refuse an archive or a batch file that differs from the published one.
    """

    download: bool = True
    mirror: str | None = None
    verify_checksum: bool = True

    def __post_init__(self) -> None:
        if self.mirror is not None:
            check_url(self.mirror)


def rows_and_cols_of(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """Rows and columns; one number stands for both."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


@dataclass(frozen=True)
class ImageOptions:
    """Options of all images that are not made or published for this purpose.

    Args:
        image_size: rows and columns that every image is brought to, in pixels; [rows, cols] where these differ; null
            for the size that all images have, which arrays and datasets may have.
        resize: crop keeps proportions and the middle, squash keeps the whole but not the proportions, pad keeps both
            and adds black bars.
        test_fraction: size of a test fold where there are no test images. 0.2 makes five folds, stratified by class;
            the run of seed s is tested on fold s mod 5.
        split_seed: which images are in which fold.
        cache: folder for decoded images and for lists of what cannot be used (default: vit_vs_cnn in $XDG_CACHE_HOME or
            ~/.cache).
    """

    image_size: int | tuple[int, int] | None = 64
    resize: Resize = "crop"
    test_fraction: float = 0.2
    split_seed: int = 0
    cache: Path | None = None

    def __post_init__(self) -> None:
        size = self.image_size
        if size is not None and min(rows_and_cols_of(size)) < 1:
            raise InputError(f"image_size: {size} pixels; it must be at least 1")
        if self.resize not in get_args(Resize):
            raise InputError(f"resize: {self.resize!r} is not known; it must be one of crop, squash, pad")
        check_numbers(vars(self), "{name}: {value}; it must be {bounds}", test_fraction=Bounds(above=0, below=1))


@dataclass(frozen=True)
class FileOptions(ImageOptions):
    """Options of image files.

    Args:
        skip_unreadable: leave out files that cannot be used, with a warning and a list, instead of stopping.
    """

    skip_unreadable: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size is None:
            raise InputError("image_size: null; files need rows and columns")


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
                raise InputError(f"group: {self.group!r} is no regular expression: {error}") from error


@dataclass(frozen=True)
class TableOptions(FileOptions):
    """Options of a table of images: a CSV or Parquet file with one row an image, whose path is data.root.

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
            raise InputError(f"fingerprint: {self.fingerprint!r} is none; train writes it")


def check_url(url: str) -> None:
    """Raise InputError if a URL cannot be fetched because of its form."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in SCHEMES and (parts.scheme == "file" or (parts.hostname and parts.port != 0)):
            return
    except ValueError:
        pass
    raise InputError(f"{url}: no URL that can be fetched; it must be one of {', '.join(SCHEMES)}, ://, host and path")
