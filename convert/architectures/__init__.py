"""One file per Hugging Face architecture, registered by class name."""
