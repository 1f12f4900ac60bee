"""``report``: the table of an experiment's finished cells."""

from vit_vs_cnn.commands.arguments import Arguments, existing


def run(words: list[str]) -> None:
    """Print the table and write it down."""
    parser = Arguments("report", "Print the table of the finished cells; write it as CSV and Markdown.")
    parser.add_argument("experiment", type=existing, metavar="EXPERIMENT_DIR", help="runs/<experiment>")
    if (given := parser.parse(words)) is None:
        return
    from rich.console import Console

    from vit_vs_cnn.experiments.runner import read_results
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table, write_tables

    results, console = read_results(given.experiment), Console()
    print_table(results, title=given.experiment.name, console=console)
    for line in comparison_lines(given.experiment, results):
        console.print(line, soft_wrap=True)
    for path in write_tables(results, given.experiment / "report"):
        console.print(f"wrote {path}", soft_wrap=True)
