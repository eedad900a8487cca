"""Geometry and precision facts of well-known checkpoints."""
