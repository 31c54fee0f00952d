"""Per-record gradients of a model, as fast as the model allows."""
