"""The HTTP dialects of other translators, one file each."""
