"""``report``: what an experiment's finished cells say."""

from vit_vs_cnn.commands.arguments import Arguments, existing


def run(words: list[str]) -> None:
    """Print the table and the answer; write the report."""
    parser = Arguments("report", "Print the table of the finished cells; write tables, figures and a page about them.")
    parser.add_argument("experiment", type=existing, metavar="EXPERIMENT_DIR", help="runs/<experiment>")
    if (given := parser.parse(words)) is None:
        return
    from rich.console import Console

    from vit_vs_cnn.experiments.regimes import findings_of
    from vit_vs_cnn.reporting.regime_report import write_report
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table

    found, console = findings_of(given.experiment), Console()
    print_table(found.results, found.analysis, title=given.experiment.resolve().name, console=console)
    for line in comparison_lines(found.analysis):
        console.print(line, soft_wrap=True)
    for path in write_report(given.experiment, findings=found):
        console.print(f"wrote {path}", soft_wrap=True)
