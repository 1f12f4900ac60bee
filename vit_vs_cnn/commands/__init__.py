"""The commands: each parses its words, calls the function of the API that does the work, and prints."""
