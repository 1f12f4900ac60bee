"""Training: the LightningModule, optimizer and schedule, callbacks and checkpoints."""
