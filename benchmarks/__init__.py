"""Measurements of this package beside the usual ways of doing the same; each prints its table in one run."""
