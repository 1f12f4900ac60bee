"""Figures: how they begin, look and are saved, and one module for each thing that they are of."""
