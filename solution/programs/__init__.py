"""Programs as people have them: which form a file has, and the module that it holds."""
