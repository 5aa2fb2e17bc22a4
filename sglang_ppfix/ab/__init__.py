"""Off and on in turn on one running server: paired ratios and what they allow."""

from .compare import Comparison, Window
from .run import ABPlan, run_ab

__all__ = ["ABPlan", "Comparison", "Window", "run_ab"]
