"""Bringing model files here: found near by or fetched, verified by hash, in a folder under their own name.

The only part of the program that opens sockets to other machines, and only when one of these functions is called.
"""

from hymt_local.download.checkpoint import SourceNote, fetch_checkpoint, read_note
from hymt_local.download.fetch import fetch_file, fetch_model
from hymt_local.download.progress import DownloadEvent, DownloadProgress, DownloadWaiting, ProgressCallback
from hymt_local.download.remote_file import RemoteFile
from hymt_local.download.session import Patience
from hymt_local.errors import DownloadError

__all__ = [
    "DownloadError",
    "DownloadEvent",
    "DownloadProgress",
    "DownloadWaiting",
    "Patience",
    "ProgressCallback",
    "RemoteFile",
    "SourceNote",
    "fetch_checkpoint",
    "fetch_file",
    "fetch_model",
    "read_note",
]
