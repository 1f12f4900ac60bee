"""Analysis of an experiment: which model is better at which training-set size, and what more data would change."""
