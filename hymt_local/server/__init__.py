"""The resident process: HTTP, on loopback by default, for terminal UI, shell, web page and existing clients."""
