"""Images with labels: where they come from, which of them a run is given, and how they are changed while it trains."""
