"""Similarity of attention layers to convolutions."""
