"""INOSGM that is SGD: gradients as contributions, losses as scores, any optimizer after the noise."""
