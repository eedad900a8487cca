"""How far the mean over seeds may be off: Student's t."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


LEVEL = 0.95


def within_t(t: float, freedom: int) -> float:
    """Probability that |Student's t| with `freedom` degrees of freedom is at most t.

    The finite trigonometric series for whole degrees, theta = atan(t / sqrt(freedom)):
    odd 2/pi (theta + sin cos (1 + 2/3 cos^2 + ...)); even sin (1 + 1/2 cos^2 + ...).
    """
    theta = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(theta)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inner = math.sin(theta) * total
    return 2 / math.pi * (theta + inner) if odd else inner


def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t that |Student's t| stays within with probability `level`."""
    low, high = 0.0, 1.0
    while within_t(high, freedom) < level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if within_t(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def over_seeds(
    reports: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, float]]:
    """The mean of every figure over runs, and the half width of its 95 % interval.

    Half width = t(n - 1) s / sqrt(n). What is not a number is taken from the first run.
    """
    count = len(reports)
    scale = t_quantile(count - 1) / math.sqrt(count)
    mean: dict[str, Any] = {}
    half_width: dict[str, float] = {}
    for name, value in reports[0].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            mean[name] = value
            continue
        values = np.array([report[name] for report in reports], float)
        mean[name] = float(values.mean())
        half_width[name] = scale * float(values.std(ddof=1))
    return mean, half_width
