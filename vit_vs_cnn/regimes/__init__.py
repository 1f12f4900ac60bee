"""Data-size regimes: who is ahead with how many images, and what more data would change."""

from vit_vs_cnn.regimes.analysis import Analysis, analyse
from vit_vs_cnn.regimes.answer import (
    answer,
    display_name,
    failures_line,
    headline,
    multiplier_line,
    pretraining_sentences,
)
from vit_vs_cnn.regimes.crossing import Crossing
from vit_vs_cnn.regimes.findings import Findings, findings_of
from vit_vs_cnn.regimes.measurements import load_answers

__all__ = [
    "Analysis",
    "Crossing",
    "Findings",
    "analyse",
    "answer",
    "display_name",
    "failures_line",
    "findings_of",
    "headline",
    "load_answers",
    "multiplier_line",
    "pretraining_sentences",
]
