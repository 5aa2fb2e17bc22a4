"""Entry point ``ppfix_lab`` of the group ``sglang.srt.plugins``.

SGLang imports this module in every process: it needs the standard library only, and
does nothing unless the lab started the server.
"""

import os

LAB_CONFIG = "SGLANG_PPFIX_LAB"
"""Environment variable: path of the device file the lab wrote for this server."""


def activate() -> None:
    """Turn this process's CPU into an emulated device, if the lab asks for it."""
    path = os.environ.get(LAB_CONFIG, "").strip()
    if not path:
        return
    from .hooks import install

    install(path)
