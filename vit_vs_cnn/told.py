"""Where it is told what happens: standard error, in text as it is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console_for_news(*, quiet: bool = False) -> "Console":
    """For progress and news; square brackets and colons of a message or a path are no markup and no emoji."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False)
