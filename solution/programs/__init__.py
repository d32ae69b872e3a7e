"""Read program files: find a file's form, and the modules in it."""
