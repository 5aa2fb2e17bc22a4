"""Entry point ``ppfix`` of the group ``sglang.srt.plugins``.

SGLang imports this module in every process, used or not: it needs the standard
library only, and does nothing while the flag is off.
"""

import os

FLAG = "SGLANG_PPFIX"


def activate() -> None:
    """Install the plugin if ``SGLANG_PPFIX`` asks for it."""
    if os.environ.get(FLAG, "").strip() in ("", "0"):
        return
    from .activation import activate

    activate()
