"""Serves the local model from a process of its own until its standard input closes.

Run by `local.LocalEngine` as a script: one argument, a JSON object of engine options and the path
of the weights; prints one JSON line with the address. It imports nothing of redrive. Its parent
holds the other end of standard input, so it dies with its parent.

Source: docs of `xllamacpp`; DESIGN.md §9.
"""

import json
import sys

import xllamacpp

MODEL_ALIAS = "smollm2-135m-instruct-q4_1"


def serve(options: dict[str, int | bool | str]) -> None:
    """Start the server, say where it listens, and wait for the end of standard input."""
    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    # Without an alias each answer would carry the path of the file.
    params.model_alias = {MODEL_ALIAS}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = options["n_ctx"]
    params.n_parallel = options["n_parallel"]
    params.n_batch = options["n_batch"]
    params.n_ubatch = options["n_ubatch"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["n_threads"]
    params.kv_unified = options["kv_unified"]
    params.cache_prompt = options["cache_prompt"]
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    if "seed" in options:
        params.sampling.seed = options["seed"]
    server = xllamacpp.Server(params)
    started = {
        "address": server.listening_address,
        "system_info": xllamacpp.get_system_info(),
        "flash_attn_type": int(params.flash_attn_type),
        "cache_type_k": int(params.cache_type_k),
        "cache_type_v": int(params.cache_type_v),
    }
    sys.stdout.write(json.dumps(started) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
