"""The schema of a config, and how one is read: typed, checked, and nothing made of what a file says."""
