"""Data-size regimes: who is ahead with how many images, and what more data would change."""

from vit_vs_cnn.experiments.regimes.analysis import Analysis, Pair, analyse
from vit_vs_cnn.experiments.regimes.answer import answer, display_name, headline
from vit_vs_cnn.experiments.regimes.comparison import SizedComparison
from vit_vs_cnn.experiments.regimes.crossing import Crossing
from vit_vs_cnn.experiments.regimes.curves import CurvePoint, LearningCurve
from vit_vs_cnn.experiments.regimes.findings import Findings, findings_of
from vit_vs_cnn.experiments.regimes.frontier import FrontierPoint
from vit_vs_cnn.experiments.regimes.measurements import load_correct, results_of_table
from vit_vs_cnn.experiments.regimes.multiplier import Multiplier
from vit_vs_cnn.experiments.regimes.power_laws import PowerLaw

__all__ = [
    "Analysis",
    "Crossing",
    "CurvePoint",
    "Findings",
    "FrontierPoint",
    "LearningCurve",
    "Multiplier",
    "Pair",
    "PowerLaw",
    "SizedComparison",
    "analyse",
    "answer",
    "display_name",
    "findings_of",
    "headline",
    "load_correct",
    "results_of_table",
]
