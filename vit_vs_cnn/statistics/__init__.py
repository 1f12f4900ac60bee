"""What measurements say and how surely: intervals, tests, resamples, and what may be called a verdict.

Mathematics alone: it reads no file, knows no network, and imports no other room.
"""
