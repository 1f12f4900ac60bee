"""Running an experiment: the grid of its cells, and how that is planned and its recipes are tuned."""
