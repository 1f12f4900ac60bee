"""Images of an experiment: their subsets, their audit, and near-duplicates across splits."""
