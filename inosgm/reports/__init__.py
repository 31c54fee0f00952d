"""Figures. The only room that needs matplotlib."""
