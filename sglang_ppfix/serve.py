"""``python -m sglang_ppfix.serve``: refuses, and says what to do instead.

A launcher could hook SGLang before 0.5.11, which has no plugin framework. It does not:
up to 0.5.9 ``ScheduleBatch.retract_decode`` raises, and ends the server, when the only
request of a slot runs out of KV, and even slots are small ones. 0.5.10 alone is not
worth a second way to start.
"""

import sys

from sglang_ppfix.compat.release import (
    FIRST_WITH_PLUGINS,
    installed_release,
    supported_range,
)


def refusal() -> str:
    """One line for the SGLang that is installed."""
    try:
        release = installed_release()
    except ValueError as error:
        return str(error)
    if release is None:
        return f"SGLang is not installed: pip install 'sglang{supported_range()}'"
    if release < FIRST_WITH_PLUGINS:
        return (
            f"sglang {release} loads no plugins, and this does not hook it either; "
            f"supported: {supported_range()}"
        )
    return (
        f"sglang {release} loads the plugin itself: "
        "SGLANG_PPFIX=1 python -m sglang.launch_server ..."
    )


if __name__ == "__main__":
    sys.exit(f"sglang-ppfix serve: {refusal()}")
