"""Entry point ``ppfix_lab`` of the group ``sglang.srt.plugins``.

SGLang imports this module in every process: it needs the standard library only, and
does nothing unless the lab started the server.
"""

import os

LAB_CONFIG = "SGLANG_PPFIX_LAB"
"""Environment variable: path of the device file the lab wrote for this server, or
``one-gpu`` or ``gpus`` for stages on real GPUs (``one_gpu.py``)."""


def activate() -> None:
    """Turn this process's CPU into an emulated device, or lay stages on GPUs."""
    path = os.environ.get(LAB_CONFIG, "").strip()
    if not path:
        return
    if path in ("one-gpu", "gpus"):
        from . import one_gpu

        one_gpu.install(path)
        return
    from .hooks import install

    install(path)
