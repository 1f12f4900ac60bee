"""timm's Vision Transformer and ours: weights carried over both ways."""
