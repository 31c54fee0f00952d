"""Helpers without a subject of their own: validation, trees, files, YAML, labels."""
