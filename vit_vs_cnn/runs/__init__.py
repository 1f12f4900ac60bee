"""Runs: their folders, results, failures and status, their images, and the networks that they trained."""
