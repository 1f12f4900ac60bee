"""Trained networks written as something else: as attention, and in the formats that other programs read."""
