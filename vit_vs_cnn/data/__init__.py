"""Labelled images: sources, caches, subsets and folds, augmentation, and batches."""
