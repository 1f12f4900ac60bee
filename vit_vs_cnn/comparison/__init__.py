"""Trained networks beside each other on the same test images: accuracy, confidence, robustness, likeness, cost."""
