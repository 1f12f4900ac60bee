"""Networks: construction, pretrained weights, loading, predictions and preparation of a run."""
