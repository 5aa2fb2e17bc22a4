"""``python -m sglang_ppfix`` is the command ``sglang-ppfix``."""

import sys

from .cli import main

sys.exit(main())
