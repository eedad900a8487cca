"""Sections of a prediction's report that are shown when asked for, in their order."""

from __future__ import annotations


SECTIONS = ("summary", "memory", "time", "source")
