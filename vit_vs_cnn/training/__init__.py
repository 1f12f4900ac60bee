"""One training: the LightningModule, its optimizer and schedule, and what accompanies it."""
