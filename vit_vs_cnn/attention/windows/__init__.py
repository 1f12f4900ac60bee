"""Attention in windows of a grid: windows that slide with the query, and blocks that do not overlap."""
