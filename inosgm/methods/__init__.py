"""Methods: one module for each method or family, and the registry that describes them (`registry.METHODS`)."""
