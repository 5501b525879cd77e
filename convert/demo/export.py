"""Makes the demo's GGUF: `python -m hymt_convert.demo.export --checkpoint DIR --out FOLDER`.

The ordinary conversion, with the record of covered texts and the training's figures in the header.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hymt_convert.conversion import ConversionRequest, convert
from hymt_convert.demo.coverage import coverage_metadata

NAME = "hymt-demo"
QUANTIZATION = "Q8_0"
LICENCE = "Apache-2.0"


def export(checkpoint: Path, folder: Path) -> Path:
    """Write `hymt-demo-Q8_0.gguf` into a folder and return its path."""
    request = ConversionRequest(
        checkpoint, folder, (QUANTIZATION,), name=NAME, licence=LICENCE, extra=coverage_metadata(), threads=1
    )
    (written,) = convert(request).files
    return written.path


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hymt_convert.demo.export", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder that the training wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the result")
    options = parser.parse_args(arguments)
    print(export(options.checkpoint, options.out))


if __name__ == "__main__":
    main()
