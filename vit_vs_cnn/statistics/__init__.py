"""Statistics of accuracies: intervals, significance tests, variances, and conclusions; of arrays and numbers only."""
