"""hymt-local: Tencent's Hunyuan translation models on your own machine, offline."""

__version__ = "0.1.0"
