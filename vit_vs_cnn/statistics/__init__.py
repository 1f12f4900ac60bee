"""Statistics of accuracies: intervals, significance tests, variances, and conclusions of comparisons.

The functions take numbers alone. They read no file and know no network.
"""
