"""Running cells: one from start to result, and who takes them: this process, several of them, or a cluster."""
