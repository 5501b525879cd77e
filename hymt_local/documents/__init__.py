"""Document formats by span patching: untouched bytes come back as they are. One file per format."""
