"""The settings of the sources and of the augmentation, by themselves: reading a config takes no PyTorch."""

import math
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vit_vs_cnn.bounds import AT_LEAST_0, SHARE, Bounds, check_numbers
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import Plain, check_class

SCHEMES = ("https", "http", "file", "ftp")
Resize = Literal["crop", "squash", "pad"]
Split = Literal["train", "test"]
Task = Literal["shape", "texture", "same_different"]
#: Closer, and the two shapes of same_different lie on each other.
LEAST_DISTANCE = 0.6
Policy = Literal["none", "randaugment", "trivialaugment"]
#: Strengths of an operation, from 0 (leaves the image) to 30 (the full range).
NUM_BINS = 31
#: Of drawn images: how many there may be, as they are held in memory; and rules for their numbers.
MOST_IMAGES, ALLOWED = 2_000_000, "{name} is {value}; allowed: {bounds}"
PIXELS = Bounds(at_least=8, at_most=1024)


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
        cutout: side in pixels of a square set to the mean colour in every image; may hang over the border; 0 = none.
        mixup: alpha of mixup's Beta(alpha, alpha); 0 = none.
        cutmix: alpha of CutMix's Beta(alpha, alpha); 0 = none. With mixup and cutmix, each image takes one of them.
        mix_probability: probability that an image is mixed at all.
        resized_crop: [least, most] share of the image's area that is cut out at random and brought back to its size, as
            torchvision's RandomResizedCrop does; [0.08, 1] is usual, null = none. It takes the place of crop_padding.
        resized_crop_ratio: [least, most] ratio of width to height of that part.
        colour_jitter: strengths of [brightness, contrast, saturation, hue], as of torchvision's ColorJitter: factors
            from 1 - strength to 1 + strength, and a turn of the hue by up to 0.5; in a random order.
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
    cutout: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_probability: float = 1.0
    resized_crop: tuple[float, float] | None = None
    resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    colour_jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    transform: Plain | None = None

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise InputError(f"augmentation.policy = {self.policy!r}: must be one of {', '.join(get_args(Policy))}")
        told = "augmentation.{name} = {value!r}: must be {bounds}"
        most = {"crop_padding": 4096, "num_ops": 64, "cutout": 4096}
        whole = {name: Bounds(at_least=0, at_most=end, is_whole=True) for name, end in most.items()}
        check_numbers(vars(self), told, **whole)
        bounds = {"magnitude": Bounds(at_least=0, at_most=NUM_BINS - 1), "erasing": SHARE, "mix_probability": SHARE}
        bounds |= {"mixup": AT_LEAST_0, "cutmix": AT_LEAST_0}
        check_numbers(vars(self), told, **bounds)
        for name in bounds:  # 1 and 1.0 are one config, and have one hash
            object.__setattr__(self, name, float(getattr(self, name)))
        self._check_range("resized_crop", highest=1.0)
        self._check_range("resized_crop_ratio")
        self._check_jitter()
        check_class(self.transform, "augmentation.transform")

    def _check_range(self, name: str, *, highest: float = math.inf) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if len(value) != 2 or not all(_is_number(one) for one in value) or not 0 < value[0] <= value[1] <= highest:
            upper = "" if highest == math.inf else f" and at most {highest:g}"
            raise InputError(f"augmentation.{name} = {value!r}: must be [least, most], above 0{upper}")
        object.__setattr__(self, name, tuple(map(float, value)))

    def _check_jitter(self) -> None:
        value = self.colour_jitter
        fits = len(value) == 4 and all(_is_number(one) and 0 <= one < math.inf for one in value) and value[3] <= 0.5
        if not fits:
            raise InputError(
                f"augmentation.colour_jitter = {value!r}: must be [brightness, contrast, saturation, hue], each at "
                "least 0, hue at most 0.5"
            )
        object.__setattr__(self, "colour_jitter", tuple(map(float, value)))

    @property
    def mixes(self) -> bool:
        """Whether targets are soft labels."""
        return (self.mixup > 0 or self.cutmix > 0) and self.mix_probability > 0

    @property
    def rounds(self) -> int:
        """Operations of the policy on each image."""
        return {"none": 0, "randaugment": self.num_ops, "trivialaugment": 1}[self.policy]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class ObjectsOptions:
    """What the embedded images are, and how many.

    Arguments:
        train_images: images that may be trained on.
        test_images: images that only evaluation sees, of streams that no training image uses.
        image_size: pixels along the side of the square images, 8 to 1024.
        shape_agreement: probability that the shape drawn is that of the label; otherwise it is another, uniformly.
            0.1 makes shape uninformative.
        texture_agreement: probability that the object's texture is that of the label; otherwise it is another,
            uniformly. 0.1 makes texture uninformative; 0 with a shape agreement of 1 is a conflict of the two cues.
        test_texture_agreement: the same for the test images alone; null for the one above. 1 in training and 0 here
            makes the cues conflict: it finds out who has learned shapes.
        difficulty: from 0 to 1: more clutter and noise, weaker contrast, smaller, displaced and turned objects, and a
            growing share (0.11 at 0.5, 0.22 at 1) of objects camouflaged in the background's colours, few of which
            can be told.
        seed: the family of images; every image is a pure function of seed, split and its number.
        task: what the label is. shape: that of the object. texture: that of its surface, which is seen locally; the
            shape tells nothing. same_different: whether the shapes in two opposite corners are the same, which no part
            of the image tells by itself. The agreements belong to the task shape.
        distance: of the two shapes of same_different, from 0.6, where they all but touch, to 1, where each is in the
            middle of its quarter: half as many rows, and as many columns, as the image has lie between their centres.

    Raises:
        InputError: a value is outside its range, or an agreement or a distance is set for a task that has none.
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
            ALLOWED,
            train_images=Bounds(at_least=1, at_most=MOST_IMAGES),
            test_images=Bounds(at_least=1, at_most=MOST_IMAGES),
            image_size=PIXELS,
            **dict.fromkeys(("shape_agreement", "texture_agreement", "test_texture_agreement", "difficulty"), SHARE),
            distance=Bounds(at_least=LEAST_DISTANCE, at_most=1),
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
        """Of shape and of texture with the label, in a split of the task shape or texture."""
        if self.task == "texture":
            return 0.1, 1.0
        is_apart = split == "test" and self.test_texture_agreement is not None
        texture = self.test_texture_agreement if is_apart else self.texture_agreement
        assert texture is not None
        return self.shape_agreement, texture


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


def sides(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """Rows and columns; one number stands for both."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


@dataclass(frozen=True)
class FolderOptions:
    """How a folder of images is read.

    Args:
        image_size: rows and columns that every image is brought to, in pixels; [rows, cols] where these differ.
        resize: crop keeps proportions and the middle, squash keeps the whole but not the proportions, pad keeps both
            and adds black bars.
        test_fraction: size of a test fold where the folder has no test/. 0.2 makes five folds, stratified by class;
            the run of seed s is tested on fold s mod 5.
        split_seed: which images are in which fold.
        skip_unreadable: leave out files that cannot be used, with a warning and a list, instead of stopping.
        cache: folder for decoded images and for lists of what cannot be used (default: vit_vs_cnn in $XDG_CACHE_HOME or
            ~/.cache).
        group: regular expression that finds in a file's name what it is of: '^(patient[0-9]+)_'. Files of one group
            never stand on two sides of training, validation and test.
    """

    image_size: int | tuple[int, int] = 64
    resize: Resize = "crop"
    test_fraction: float = 0.2
    split_seed: int = 0
    skip_unreadable: bool = False
    cache: Path | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        _check_pictures(self)
        if self.group is not None:
            try:
                re.compile(self.group)
            except re.error as error:
                raise InputError(f"group: {self.group!r} is no regular expression: {error}") from error


@dataclass(frozen=True)
class TableOptions:
    """How a table of images is read: a CSV or Parquet file with one row for each, whose path is data.root.

    Args:
        image: column of the images' paths, from the table's folder on.
        label: column of their classes.
        split: column that says train, validation or test; null for test folds, as of a folder.
        group: column of what each image is of (a patient, a camera): a group never stands on two sides of training,
            validation and test.
        image_size: rows and columns that every image is brought to, in pixels; [rows, cols] where these differ.
        resize: crop, squash or pad, as of a folder.
        test_fraction: size of a test fold where there is no column of splits, as of a folder.
        split_seed: which images are in which fold.
        skip_unreadable: leave out files that cannot be used, with a warning and a list, instead of stopping.
        cache: folder for decoded images and for lists of what cannot be used (default: vit_vs_cnn in $XDG_CACHE_HOME or
            ~/.cache).
    """

    image: str = "image"
    label: str = "label"
    split: str | None = None
    group: str | None = None
    image_size: int | tuple[int, int] = 64
    resize: Resize = "crop"
    test_fraction: float = 0.2
    split_seed: int = 0
    skip_unreadable: bool = False
    cache: Path | None = None

    def __post_init__(self) -> None:
        _check_pictures(self)


@dataclass(frozen=True)
class OwnOptions:
    """How images are taken that a class of one's own gives, or Python code (``data=``).

    Args:
        image_size: rows and columns that every image is brought to, in pixels; [rows, cols] where these differ; null
            for the size that all of them have.
        resize: crop, squash or pad, as of a folder.
        test_fraction: size of a test fold where no test images are given, as of a folder.
        split_seed: which images are in which fold.
        cache: folder in which they are kept as bytes (default: vit_vs_cnn in $XDG_CACHE_HOME or ~/.cache).
        fingerprint: of images that were given in Python, by which they are found there again.
        description: what was given.
    """

    image_size: int | tuple[int, int] | None = None
    resize: Resize = "crop"
    test_fraction: float = 0.2
    split_seed: int = 0
    cache: Path | None = None
    fingerprint: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        _check_pictures(self)
        if self.fingerprint is not None and not re.fullmatch("[0-9a-f]{16}(-[0-9a-f]{16})?", self.fingerprint):
            raise InputError(f"fingerprint: {self.fingerprint!r} is none; train writes it")


def _check_pictures(options: FolderOptions | TableOptions | OwnOptions) -> None:
    size = options.image_size
    if size is not None and min(sides(size)) < 1:
        raise InputError(f"image_size: {size} pixels; it must be at least 1")
    if options.resize not in ("crop", "squash", "pad"):
        raise InputError(f"resize: {options.resize!r} is not known; it must be one of crop, squash, pad")
    check_numbers(vars(options), "{name}: {value}; it must be {bounds}", test_fraction=Bounds(above=0, below=1))


def check_url(url: str) -> None:
    """See that a URL is one that can be fetched, as far as it tells by itself."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme == "file" or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        is_whole, parts = False, None
    if parts is None or parts.scheme not in SCHEMES or not is_whole:
        raise InputError(
            f"{url}: no URL that can be fetched; it must be one of {', '.join(SCHEMES)}, ://, host and path"
        )
