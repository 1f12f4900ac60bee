"""Synthetic images, computed from a seed in whole numbers: shapes on clutter, and pairs of shapes."""
