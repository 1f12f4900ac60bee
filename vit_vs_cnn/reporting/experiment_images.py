"""Example test images, accuracy by class and confusion matrices of the models in the answer."""

from collections.abc import Sequence

from vit_vs_cnn.comparison.accuracy import ClassAccuracy, choose_examples, class_accuracies, confusion
from vit_vs_cnn.comparison.entries import RunPredictions, group_entries, select_one_fold
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.budgets import longest_results
from vit_vs_cnn.regimes.model_summaries import display_name
from vit_vs_cnn.reporting.figures.comparison import classes_figure, confusion_figure, examples_figure
from vit_vs_cnn.reporting.findings import Findings
from vit_vs_cnn.reporting.page import Page
from vit_vs_cnn.reporting.style import format_percent
from vit_vs_cnn.reporting.table import Table
from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.runs.experiment_data import open_experiment_data
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import RunResult, ScoredOn
from vit_vs_cnn.statistics.intervals import format_p_value

#: Largest number of classes for which a confusion matrix is drawn.
MAX_CLASSES = 40
NOT_AVAILABLE = (
    "Classes and example images are not shown, because the test images or the predictions were not available when this "
    "page was written. Run report again on a machine that has them."
)


#: Predictions of the models in the answer, and the test images of each test set.
TestImages = tuple[list[RunPredictions], dict[str | None, LabelledImages]]


def read_test_images(findings: Findings) -> TestImages | tuple[()] | None:
    """Predictions and test images of the models in the answer, at the largest training-set size.

    Returns:
        nothing if accuracies are on validation images; None if predictions or images are missing or have changed.
    """
    results = _answer_results(findings)
    if any(result.scores.scored_on is not ScoredOn.TEST for result in results):
        return ()
    cells, tests = list[RunPredictions](), dict[str | None, LabelledImages]()
    try:
        pool = open_experiment_data(findings.folder, results[0].data)
        for r in results:
            predictions = Predictions.from_arrays(load_run_predictions(findings.folder, r.run))
            cells.append(RunPredictions(display_name(r.contender), r.seed, r.data.subset, r.test_set, predictions))
            test = tests.setdefault(r.test_set, pool.test(r.seed))
            if predictions.labels.tolist() != test.labels.tolist():
                return None
            if [*map(str, predictions.sample_ids)] != [*map(str, test.sample_ids)]:
                return None
    except (InputError, OSError):
        return None
    return cells, tests


def add_images(page: Page, findings: Findings, images: TestImages) -> None:
    """Add example images, accuracy by class and confusion of the models in the answer."""
    cells, tests = images
    groups, shown = group_entries(cells), select_one_fold(cells)
    test = tests[shown[0].test_set]
    classes = class_accuracies(groups, test.class_names)
    size = f"{_answer_results(findings)[0].train_size:,} training images"
    first_members = [members[0] for members in group_entries(shown).values()]
    if examples := choose_examples(first_members):
        caption = f"Randomly chosen test images that only one model, or none, classifies correctly; {size}, first seed."
        alt = "test images with their class and the prediction of each model"
        page.picture(examples_figure(examples, first_members, test), caption, alt, "pictures", ("png", "svg"))
    caption = f"Accuracy by class with {size}, mean over seeds. The class with the largest difference is on top."
    page.picture(classes_figure(classes, page.styles), caption, "accuracy of each model by class", "classes")
    if len(test.class_names) <= MAX_CLASSES:
        counts = {name: confusion(members, len(test.class_names)) for name, members in groups.items()}
        caption = f"Confusion matrices with {size}, in percent of the true class, over all seeds."
        figure = confusion_figure(counts, test.class_names)
        page.picture(figure, caption, "confusion matrix of each model", "confusion")
    page.table(_table(classes, size))


def _answer_results(findings: Findings) -> list[RunResult]:
    """Results of the models in the answer, at the largest training-set size that all of them have."""
    advice = findings.analysis.recommendation
    size = findings.analysis.sizes[-1]
    return [
        r
        for r in longest_results(findings.results)
        if r.contender in (advice.best, advice.rival) and r.train_size == size
    ]


def _table(classes: Sequence[ClassAccuracy], size: str) -> Table:
    names = list(classes[0].accuracy)
    rows = [
        [c.name, c.images, *(format_percent(c.accuracy[name]) for name in names), format_p_value(c.p_corrected)]
        for c in classes
    ]
    title = f"Accuracy by class with {size}, mean over seeds. p is adjusted for the number of classes (Holm)"
    return Table(title, ["class", "images", *(f"{name}, %" for name in names), "p"], rows, "classes")
