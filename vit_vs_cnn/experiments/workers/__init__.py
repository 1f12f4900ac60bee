"""Who trains the cells of a grid: this process, several of them, or a cluster."""
