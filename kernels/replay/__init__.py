"""Replay kernels: one scheduler pass, one event, one scenario; arrays in, arrays out."""

from ._timing import FixedSteps as FixedSteps
from ._timing import PolynomialSteps as PolynomialSteps
from ._timing import Steps as Steps
from ._timing import duration_ns as duration_ns
