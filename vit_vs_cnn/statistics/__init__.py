"""Statistics of accuracies: intervals, significance tests, variances, and conclusions of comparisons.

The functions take arrays and numbers only. They do not depend on files or networks.
"""
