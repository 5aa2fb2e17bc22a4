"""Real SGLang pipelines without GPUs: servers, loads, device, figures."""
