"""How much an attention layer is like a convolution, measured."""
