"""Schema of a config, and its reading: typed and checked. No class that a file names is created."""
