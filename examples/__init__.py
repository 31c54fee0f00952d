"""Examples that run; a package, because Opacus installs another one of this name."""
