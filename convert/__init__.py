"""Checkpoint -> GGUF -> quantize -> verify. The folder is `convert/`; it is imported as `hymt_convert`."""
