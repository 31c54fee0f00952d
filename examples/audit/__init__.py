"""INO-SGD and IDP-SGD under the same attack."""
