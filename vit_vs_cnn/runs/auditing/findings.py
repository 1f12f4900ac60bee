"""What an audit of images finds wrong, and what to do about it, the worst first."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from vit_vs_cnn.data.listing import count_by_kind, format_counts
from vit_vs_cnn.runs.auditing.audit import SURELY, Audit
from vit_vs_cnn.statistics.intervals import wilson_interval
from vit_vs_cnn.statistics.pair_comparison import MIN_TEST_IMAGES_FOR_CONCLUSION
from vit_vs_cnn.told import counted

#: How bad it is: nothing is trained; accuracies are not what they seem; less can be learned or shown; worth knowing.
Weight = Literal["stops training", "misleads", "weakens", "worth knowing"]
WEIGHTS: tuple[Weight, ...] = ("stops training", "misleads", "weakens", "worth knowing")

#: Images of a class below which there is little to learn and less to test.
FEW_OF_CLASS = 15
#: Half the width of an interval that makes a test set too small to tell most networks apart.
WIDE = 0.1
#: How many times the smallest class the largest one is, from where it is told.
LOPSIDED = 4.0
#: Share of the images from where it is told that they are enlarged or cut; share of an image that is cut away.
MANY, CUT = 0.05, 0.4
#: By how much more than always naming one class the form of the files may tell the class, in so many images.
TOLD_BY_FORM, ENOUGH = 0.15, 50
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """Something to know before training.

    Arguments:
        kind: in a word or two.
        told: what was found, with its numbers.
        advice: what to do about it.
    """

    weight: Weight
    kind: str
    told: str
    advice: str

    @property
    def line(self) -> str:
        return f"{self.kind} ({self.weight}): {self.told}. {self.advice}."


def findings_of(audit: Audit) -> list[Finding]:
    """Everything that was found, the worst first."""
    found = [one for look in _LOOKS for one in look(audit)]
    return sorted(found, key=lambda finding: WEIGHTS.index(finding.weight))


def _unusable(audit: Audit) -> Iterator[Finding]:
    fatal = [fault for fault in audit.faults if fault.is_fatal]
    files = [fault for fault in audit.faults if not fault.is_fatal]
    if fatal:
        told = "; ".join(f"{fault.name}: {' '.join(fault.reason.split())}" for fault in fatal[:_NAMED])
        more = f"; and {len(fatal) - _NAMED} more" * (len(fatal) > _NAMED)
        yield Finding("stops training", "Unusable classes", told + more, "Add images, or remove the class")
    if files:
        told = f"{len(files):,} ({format_counts(count_by_kind(files))}), such as {_some([one.name for one in files])}"
        advice = f"Mend or remove these, or leave them out with --data.{audit.source}.skip_unreadable true"
        if audit.skips:
            yield Finding(
                "weakens", "Unusable files", told, f"They are left out, as data.{audit.source}.skip_unreadable says"
            )
        else:
            yield Finding("stops training", "Unusable files", told, advice)


def _leaks(audit: Audit) -> Iterator[Finding]:
    if count := audit.straddling:
        told = (
            f"{count:,} of the {audit.tested_images:,} test images look like an image to train or validate "
            "on: right answers on these say nothing of new images"
        )
        told += _perhaps(audit.doubtful)
        advice = (
            "Keep one of each, or put all pictures of one thing on one side with train/ and test/, or data.folder.group"
        )
        if audit.source != "folder":
            advice = "report gives the accuracy without them"
        yield Finding("misleads", "Test images seen in training", told, advice)


def _similar_names(audit: Audit) -> Iterator[Finding]:
    """Classes whose names differ in case, spaces or Unicode form alone."""
    similar: dict[str, list[str]] = defaultdict(list)
    for name in audit.by_class:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        similar[" ".join(folded.split())].append(name)
    groups = [names for names in similar.values() if len(names) > 1]
    if groups:
        # Two Unicode forms of one name look the same on a screen: escaped, they differ.
        spelled = [" and ".join(map(ascii, names)) for names in groups]
        told = f"{_some(spelled)} differ only in case, spaces or Unicode form, but count as separate classes"
        yield Finding("misleads", "Class names that look the same", told, "If they are one class, merge them")


def _conflicts(audit: Audit) -> Iterator[Finding]:
    pairs = audit.of_kind("two classes")
    if pairs:
        one = pairs[0]
        such = f"{one.first} ({one.classes[0]}) and {one.second} ({one.classes[1]})"
        told = f"{counted(len(pairs), 'pair')} that look like the same picture under two classes, such as {such}"
        told += _perhaps(sum(not pair.is_sure for pair in pairs))
        yield Finding("misleads", "One picture, two classes", told, "Look at each pair and keep the right class")


def _told_by_form(audit: Audit) -> Iterator[Finding]:
    """How far format and colour mode alone tell the class, each group of files taken for its most frequent class."""
    class_of = audit.class_of
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for file in audit.files:
        groups[file.format, file.mode][class_of[file.name]] += 1
    if len(audit.files) < ENOUGH or len(groups) < 2:
        return
    right = sum(group.most_common(1)[0][1] for group in groups.values()) / len(audit.files)
    name, count = Counter(class_of.values()).most_common(1)[0]
    if right - count / len(class_of) > TOLD_BY_FORM:
        told = (
            f"format and colour mode alone tell the class of {right:.0%} of the images (always naming {name}: "
            f"{count / len(class_of):.0%}), so a network may learn the camera or the compression"
        )
        yield Finding("misleads", "Classes told by their files", told, "Save all classes in one format and mode")


def _blank(audit: Audit) -> Iterator[Finding]:
    if audit.blank:
        cropped = bool(audit.files) and audit.resize == "crop"
        told = f"{counted(len(audit.blank), 'image')} of one colour all over{' once cropped' * cropped}, such as "
        advice = "Remove them: nothing in them tells the class"
        if cropped:
            advice += f"; where the crop cuts it off, --data.{audit.source}.resize pad keeps it"
        yield Finding("misleads", "Blank images", told + _some(audit.blank), advice)


def _tiny(audit: Audit) -> Iterator[Finding]:
    tiny = {name: count for name, count in audit.by_class.items() if count < FEW_OF_CLASS}
    if tiny:
        named = _some([f"{name} ({count})" for name, count in sorted(tiny.items(), key=lambda one: one[1])])
        told = f"{len(tiny)} of {len(audit.by_class)} classes with fewer than {FEW_OF_CLASS} images: {named}"
        yield Finding("weakens", "Tiny classes", told, "Add images of these, join them with others, or leave them out")


def _few_tests(audit: Audit) -> Iterator[Finding]:
    if not (count := audit.test_images):
        return
    interval = wilson_interval(count // 2, count)
    half = (interval.high - interval.low) / 2
    if half > WIDE:
        told = f"with {count:,} test images an accuracy is known to ±{100 * half:.0f} points at 50 %"
        if count < MIN_TEST_IMAGES_FOR_CONCLUSION:
            told += (
                ", and no difference between networks can be shown, however large it is: that takes "
                f"{MIN_TEST_IMAGES_FOR_CONCLUSION} or more"
            )
        yield Finding("weakens", "Few test images", told, f"Add images{_or_more_of_them(audit)}")


def _or_more_of_them(audit: Audit) -> str:
    """Advice for who has test images set apart; of splits of one's own training takes no share."""
    block = audit.source if audit.source in ("folder", "table") else "own"
    return f", or raise --data.{block}.test_fraction" * (audit.folds > 0)


def _lopsided(audit: Audit) -> Iterator[Finding]:
    counts = {name: count for name, count in audit.by_class.items() if count}
    if len(counts) < 2:
        return
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    name, accuracy = audit.majority
    if counts[most] >= LOPSIDED * counts[least]:
        told = (
            f"{most} has {counts[most]:,} images and {least} {counts[least]:,}; always naming {name} is right on "
            f"{accuracy:.1%} of the test images"
        )
        advice = "Add images of the small classes, and hold every accuracy against that number"
        yield Finding("weakens", "Lopsided classes", told, advice)


def _repeats(audit: Audit) -> Iterator[Finding]:
    pairs = audit.of_kind("repeated")
    if pairs:
        copies = len({pair.second for pair in pairs})
        look = f"{counted(copies, 'image')} that look{'s' * (copies == 1)} like"
        told = f"{look} another one of the same class and split, which teaches little"
        unsure = copies - len({pair.second for pair in pairs if pair.is_sure})
        kind = "Repeated pictures" if unsure < copies else "Pictures that look alike"
        yield Finding("weakens", kind, told + _perhaps(unsure), "Keep one of those that are the same")


def _sizes(audit: Audit) -> Iterator[Finding]:
    if not audit.files:
        return
    size, count, settings = min(audit.image_size), len(audit.files), f"--data.{audit.source}"
    sides = [max(f.width, f.height) if audit.resize == "pad" else f.shorter for f in audit.files]
    small, cut = sum(side < size for side in sides), sum(1 - 1 / file.aspect > CUT for file in audit.files)
    if small > MANY * count:
        told = f"{small:,} of {count:,} images are smaller than the {size} pixels of training, and are enlarged"
        advice = f"Lower {settings}.image_size, or take larger images"
        yield Finding("weakens", "Enlarged images", told, advice)
    if audit.resize == "crop" and cut > MANY * count:
        told = f"{cut:,} of {count:,} images are so long that the middle square leaves out more than {CUT:.0%} of them"
        advice = f"Keep the whole of them with {settings}.resize pad or squash"
        yield Finding("weakens", "Cut images", told, advice)


def _passed_over(audit: Audit) -> Iterator[Finding]:
    if audit.others:
        endings = Counter(PurePosixPath(name).suffix.lower() or "no ending" for name in audit.others)
        told = f"{counted(len(audit.others), 'file')} passed over ({format_counts(dict(endings.most_common(5)))})"
        advice = "Convert those that are images to JPEG or PNG, and put each into the folder of a class"
        yield Finding("worth knowing", "Other files", told, advice)


def _perhaps(count: int) -> str:
    """How many of those before are so little alike that they may be other pictures."""
    return f" ({count:,} of these below a similarity of {SURELY}, so perhaps another picture: look)" * (count > 0)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED:,} more" * (len(names) > _NAMED)


_LOOKS = (
    *(
        _unusable,
        _similar_names,
        _leaks,
        _conflicts,
        _told_by_form,
        _blank,
        _tiny,
        _few_tests,
        _lopsided,
        _repeats,
        _sizes,
    ),
    _passed_over,
)
