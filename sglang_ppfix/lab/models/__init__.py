"""Models that the lab's servers load through ``SGLANG_EXTERNAL_MODEL_PACKAGE``."""
