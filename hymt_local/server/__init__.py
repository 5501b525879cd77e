"""The resident process: HTTP on loopback for the terminal UI, the shell, a web page and existing clients."""
