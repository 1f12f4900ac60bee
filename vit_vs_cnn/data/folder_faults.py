"""What is wrong with a folder of images: all of it in one list, and a line that says how much of which kind."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vit_vs_cnn.files import written_whole

#: Kinds of fault that concern a whole class; leaving files out does not mend these.
OF_CLASSES = frozenset({"class with too few images", "class that is not in train/", "split without images"})
_SHOWN = 3


class Fault(NamedTuple):
    """Something that cannot be used: what kind of thing, where under the root, and why."""

    kind: str
    name: str
    reason: str

    @property
    def is_fatal(self) -> bool:
        """Whether it remains when files are left out."""
        return self.kind in OF_CLASSES


def count_by_kind(faults: Sequence[Fault]) -> dict[str, int]:
    """How many faults there are of each kind, the most frequent first."""
    return dict(Counter(fault.kind for fault in faults).most_common())


def in_words(counts: dict[str, int]) -> str:
    """``damaged: 20, empty file: 3``."""
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.items())


def describe(faults: Sequence[Fault]) -> str:
    """The number of each kind, and the first few; those of whole classes first."""
    ordered = sorted(faults, key=lambda fault: not fault.is_fatal)
    shown = "; ".join(f"{fault.name}: {fault.reason}" for fault in ordered[:_SHOWN])
    more = f"; and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
    return f"{in_words(count_by_kind(faults))} ({shown}{more})"


def write_faults(faults: Sequence[Fault], path: Path) -> None:
    """Every fault as a line of a CSV file, with kind, file and reason."""
    with (
        written_whole(path, contested=True) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Fault._fields)
        writer.writerows(faults)
