"""A trained ensemble as a thing: packed from a run, read anywhere, asked for a ranking."""
