"""Conversion of trained networks: convolutions to attention, and export to the formats of other programs."""
