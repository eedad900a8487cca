"""Shared test settings. Must not import the package (jaxtyping hooks its import)."""
