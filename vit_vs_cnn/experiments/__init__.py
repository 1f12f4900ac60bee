"""Running an experiment: one cell, the grid of them, who works on it, and how it is planned and tuned."""
