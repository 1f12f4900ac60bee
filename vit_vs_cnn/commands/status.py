"""``status``: how far an experiment is."""

import dataclasses
import json

from vit_vs_cnn.commands.arguments import Arguments, existing


def run(words: list[str]) -> None:
    """Print the cells and the time left."""
    parser = Arguments("status", "What is done, running, failed and waiting, and the time left. Runs nothing.")
    parser.add_argument("experiment", type=existing, metavar="EXPERIMENT_DIR", help="runs/<experiment>")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    if (given := parser.parse(words)) is None:
        return
    from vit_vs_cnn.runs.status import read_status

    status = read_status(given.experiment)
    if given.json:
        print(json.dumps(dataclasses.asdict(status), indent=1))
        return
    from rich.console import Console

    from vit_vs_cnn.runs.status_view import status_line, status_table

    console = Console()
    console.print(status_table(status))
    console.print(f"{status.name}: {status_line(status)}", soft_wrap=True)
