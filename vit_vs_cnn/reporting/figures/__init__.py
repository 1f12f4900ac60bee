"""Figures of experiments, comparisons, inspections and attention."""
