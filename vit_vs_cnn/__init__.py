"""Vision Transformer or CNN: a controlled experiment on your images, with the data that you have."""

__version__ = "0.1.0"
