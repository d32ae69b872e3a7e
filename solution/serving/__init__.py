"""Pack a trained ensemble from a run, load it anywhere, and rank configurations with it."""
