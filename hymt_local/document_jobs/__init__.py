"""Translating files: preview, journal, resume, report. Uses a service for the texts and `documents` for the bytes."""
