"""Entry point ``ppfix`` of the group ``sglang.srt.plugins``.

SGLang imports this module in every process, used or not: it needs the standard
library only, and does nothing while the flag is off.
"""

import os
import sys

from . import __version__

FLAG = "SGLANG_PPFIX"


def activate() -> None:
    """Install the plugin if ``SGLANG_PPFIX`` asks for it.

    Raises:
        SystemExit: it cannot be installed, whatever the reason, and the flag is not
            ``auto``. SGLang's ``load_plugins()`` swallows every other exception, and
            the server would run without what the user asked for.
    """
    flag = os.environ.get(FLAG, "").strip()
    if flag in ("", "0"):
        return
    try:
        # Here a missing dependency shows itself.
        from .activation import activate

        activate()
    except Exception as error:  # noqa: BLE001
        said = " ".join(f"{type(error).__name__}: {error}".split())
        refuse(flag, f"{said}; run: sglang-ppfix doctor")


def refuse(flag: str, reason: str) -> None:
    """Say in one line why the plugin does not act; end the server unless ``auto``.

    Args:
        flag: the value of ``SGLANG_PPFIX``.
        reason: one line.

    Raises:
        SystemExit: always, except with ``auto``.
    """
    line = f"sglang-ppfix {__version__}: {reason}"
    if flag.lower() == "auto":
        print(f"{line}; SGLang runs unchanged", file=sys.stderr, flush=True)
        return
    raise SystemExit(
        f"{line}; the server ends because {FLAG}={flag} "
        "(auto would run SGLang unchanged)"
    ) from None
