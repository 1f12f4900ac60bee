"""Attention in windows of a grid: sliding windows centred on each query, and blocks that do not overlap."""
