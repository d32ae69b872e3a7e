"""The package's experiments: each file defines one, as the frozen value EXPERIMENT."""
