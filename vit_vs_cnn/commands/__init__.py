"""The command line around the functions of the API: their signatures read as options, their results printed."""
