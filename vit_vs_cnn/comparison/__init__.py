"""Comparison of trained networks on the same test images: accuracy, calibration, corruptions, similarity, cost."""
