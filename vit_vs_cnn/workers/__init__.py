"""Execution of runs: by this process, by several, or by a Ray cluster."""
