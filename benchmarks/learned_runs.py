"""Numbers of runs that learned a task, compared by Fisher's exact test.

    python -m benchmarks.learned_runs FIRST SECOND [FIRST2 SECOND2 ...]

Each argument is RECORD:MODEL, and each two arguments are compared. RECORD is a folder with results.csv of one
training-set size and one budget. A run learned the task if its accuracy is at least 95 %. The p-values are adjusted for
the comparisons of the command by Holm's method.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import command_line, markdown_table, run_command
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.record import TABLE, read_result_table
from vit_vs_cnn.statistics.significance import fisher_exact, holm

MIN_ACCURACY = 0.95


def count_learned(argument: str) -> tuple[int, int]:
    """Number of runs that learned the task, and number of runs.

    Raises:
        InputError: the record is missing, or has no such model.
    """
    record, _, model = argument.rpartition(":")
    accuracies = [r.accuracy for r in read_result_table(Path(record) / TABLE) if r.model == model]
    if not accuracies:
        raise InputError(f"{argument}: expected RECORD:MODEL, with a model of the record")
    return sum(accuracy >= MIN_ACCURACY for accuracy in accuracies), len(accuracies)


def table_of(models: Sequence[str]) -> str:
    """Markdown table with a row for each two models.

    Raises:
        InputError: an odd number of models, or one of them is missing.
    """
    if len(models) % 2:
        raise InputError("give an even number of models")
    names = [f"{Path(record).name} {model}" for record, _, model in (text.rpartition(":") for text in models)]
    counts = [count_learned(model) for model in models]
    texts = [f"{name}: {learned} of {runs}" for name, (learned, runs) in zip(names, counts, strict=True)]
    p_values = [fisher_exact(*first, *second) for first, second in zip(counts[::2], counts[1::2], strict=True)]
    pairs = zip(texts[::2], texts[1::2], p_values, holm(p_values), strict=True)
    rows = [[first, second, f"{p:.2g}", f"{adjusted:.2g}"] for first, second, p, adjusted in pairs]
    return markdown_table(["first", "second", "p", "adjusted p"], rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("models", metavar="RECORD:MODEL", nargs="+")
    run_command(parser, table_of)
