"""Embedded hardware specifications, model geometry and measured tables, with origin."""
