"""Even, staggered filling of SGLang's pipeline-parallel micro-batch ring.

Importing this package has no effect on SGLang: the plugin acts only through its
entry point and only when ``SGLANG_PPFIX`` is set. Standard library only.
"""

__version__ = "0.1.0"
