"""``report``: what an experiment's finished cells say."""

from pathlib import Path

from vit_vs_cnn.commands.arguments import Arguments, existing


def run(words: list[str]) -> None:
    """Print the table and what may be said of it; write the report."""
    parser = Arguments("report", "Print the table of the finished cells; write tables, figures and a page about them.")
    parser.add_argument(
        "experiment",
        type=existing,
        metavar="EXPERIMENT_DIR",
        help="runs/<experiment>; or a recorded results.csv, which is printed and nothing is written",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="where the report goes; default: its report/")
    if (given := parser.parse(words)) is None:
        return
    if given.experiment.is_file():
        _print_recorded(given.experiment)
        return
    from vit_vs_cnn import api
    from vit_vs_cnn.commands.train import print_findings

    found = api.report(given.experiment, given.output)
    print_findings(found)
    for path in found.written:
        print(f"wrote {path}")


def _print_recorded(path: Path) -> None:
    """The same table and lines from accuracies alone."""
    from rich.console import Console

    from vit_vs_cnn.regimes import analyse
    from vit_vs_cnn.regimes.findings import recorded_results
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table

    results, console = recorded_results(path), Console()
    analysis = analyse(results)
    print_table(results, analysis, title=path.resolve().parent.name, console=console)
    for line in comparison_lines(analysis):
        console.print(line, soft_wrap=True)
    console.print(
        "note: from accuracies alone: which images were right is not in this table, so the test images' part of an "
        "interval is that of two test sets, and too wide",
        soft_wrap=True,
    )
