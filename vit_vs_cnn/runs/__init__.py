"""The folder of a run: cells, grid, results, failures and status; its images; and the networks that it trained."""
