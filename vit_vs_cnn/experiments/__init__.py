"""Execution of an experiment: plan of its grid of runs, search for recipes, and the runs."""
