"""Would the plugin work here? Answered from files and metadata, in under two seconds.

Nothing of SGLang or torch is imported, no GPU and no server is needed.
"""

from .examine import examine
from .report import SCHEMA_VERSION, Check, Report, State

__all__ = ["SCHEMA_VERSION", "Check", "Report", "State", "examine"]
