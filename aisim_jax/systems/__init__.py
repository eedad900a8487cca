"""Hardware specifications, measured tables, data roots and importers."""
