"""How a lab server is called: arguments, environment, model folder."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from packaging.version import Version

from sglang_ppfix.compat.release import installed_release

from . import token_rule
from .config import LabConfig
from .plugin import LAB_CONFIG

HOST = "127.0.0.1"
ENTRY_A_GLOBAL_RANK = Version("0.5.19")


def command(config: LabConfig, port: int, model_folder: Path) -> list[str]:
    """Arguments of the server's process."""
    command = [sys.executable, "-m", "sglang.launch_server"]
    options: dict[str, Any] = {
        "--model-path": model_folder,
        "--load-format": "dummy",
        "--device": "cpu",
        "--attention-backend": "torch_native",
        "--pp-size": config.pp_size,
        "--max-running-requests": config.max_running_requests,
        "--max-total-tokens": config.kv_tokens,
        "--mem-fraction-static": 0.2,
        "--host": HOST,
        "--port": port,
    }
    if config.async_depth:
        options["--pp-async-batch-depth"] = config.async_depth
    if config.cap is not None:
        options["--pp-max-micro-batch-size"] = config.cap
    if config.chunked_prefill_size is not None:
        options["--chunked-prefill-size"] = config.chunked_prefill_size
    for name, value in options.items():
        command += [name, str(value)]
    return [*command, "--skip-tokenizer-init", *config.extra_args]


def environment(config: LabConfig, device_file: Path) -> dict[str, str]:
    """This process's environment, the lab's settings, and the user's on top."""
    return {
        **os.environ,
        LAB_CONFIG: str(device_file),
        "SGLANG_EXTERNAL_MODEL_PACKAGE": "sglang_ppfix.lab.models",
        "SGLANG_CPU_OMP_THREADS_BIND": cores_of_ranks(
            config.pp_size, installed_release()
        ),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        **config.env,
    }


def cores_of_ranks(pp_size: int, release: Version | None) -> str:
    """Cores of each rank; before ``ENTRY_A_GLOBAL_RANK`` SGLang wants one entry a rank
    of tensor parallelism, of which the lab has one (``init_threads_binding``)."""
    cores = sorted(os.sched_getaffinity(0))
    if release is not None and release < ENTRY_A_GLOBAL_RANK:
        return ",".join(map(str, cores))
    return "|".join(str(cores[rank % len(cores)]) for rank in range(pp_size))


def write_model(config: LabConfig, folder: Path) -> None:
    """Write the model's ``config.json`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_model_config(config)))


def _model_config(config: LabConfig) -> dict[str, Any]:
    """A small Llama-shaped configuration: SGLang sizes its KV pool from it."""
    return {
        "architectures": ["ToyPipelineForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": config.pp_size,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": token_rule.VOCAB_SIZE,
        "max_position_embeddings": max(4096, config.kv_tokens),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        "bos_token_id": token_rule.BOS,
        "eos_token_id": token_rule.EOS,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
