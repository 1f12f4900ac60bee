"""What was found, for a reader: tables, figures and pages. Nothing here decides what is so."""
