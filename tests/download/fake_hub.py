"""A hub on 127.0.0.1 whose files lie on another host name (localhost), with the faults that a test asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from hymt_local.download import RemoteFile

COMMIT = "c0ffee" + "0" * 34


@dataclass(frozen=True)
class Request:
    """What the hub was asked."""

    path: str
    host: str
    range: str | None
    authorization: str | None


@dataclass(frozen=True)
class Reply:
    """An answer in place of the right one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class FakeHub(ThreadingHTTPServer):
    """The server; a test changes its fields while it runs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[tuple[str, str], bytes] = {}
        self.requests: list[Request] = []
        self.replies: deque[Reply] = deque()
        """Taken one by one in place of the answers to questions about a repository or a file's place."""
        self.cuts: deque[int] = deque()
        """Bytes after which the next transfers break."""
        self.cut_always: int | None = None
        self.knows_ranges = True
        self.blob_replies: deque[Reply] = deque()
        self.stall_after: int | None = None
        """A transfer stops after so many bytes until `released`."""
        self.stalled = threading.Event()
        self.released = threading.Event()
        self.siblings: dict[str, list[dict[str, Any]]] = {}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, repo: str, name: str, content: bytes, *, lfs: bool = True) -> RemoteFile:
        """Publish a file; returns the entry that describes it."""
        self.publish(repo, name, content, lfs=lfs)
        sha256 = None if not lfs else hashlib.sha256(content).hexdigest()
        return RemoteFile(repo, name, len(content), COMMIT, sha256, None if lfs else _git_sha1(content))

    def publish(self, repo: str, name: str, content: bytes, *, lfs: bool = True) -> None:
        """Publish a file under any name."""
        self.files[repo, name] = content
        sha256, git_sha1 = hashlib.sha256(content).hexdigest(), _git_sha1(content)
        sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_sha1}
        if lfs:
            sibling["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 134}
        self.siblings.setdefault(repo, []).append(sibling)

    def asked(self, prefix: str) -> list[Request]:
        """Return the requests whose path begins so."""
        return [request for request in self.requests if request.path.startswith(prefix)]

    @property
    def transfers(self) -> list[Request]:
        return self.asked("/blob/")

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing when a client leaves in the middle."""


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        path = urlsplit(self.path)
        parts = [unquote(part) for part in path.path.strip("/").split("/")]
        headers = self.headers
        host = headers.get("Host", "").split(":")[0]
        self.server.requests.append(Request(self.path, host, headers.get("Range"), headers.get("Authorization")))
        if parts[0] == "blob":
            self._send_blob(self.server.files[parts[1] + "/" + parts[2], parts[3]])
        elif self.server.replies:
            self._reply(self.server.replies.popleft())
        elif parts[:2] == ["api", "models"]:
            self._reply(self._describe("/".join(parts[2:4])))
        elif parts[:3] == ["api", "v1", "models"]:
            self._reply(self._describe_as_modelscope("/".join(parts[3:5])))
        elif parts[0] == "models":
            self._send_blob(self.server.files["/".join(parts[1:3]), parts[-1]])
        else:
            self._redirect("/".join(parts[:2]), parts[-1])

    def _describe(self, repo: str) -> Reply:
        if repo not in self.server.siblings:
            return Reply(404, {"X-Error-Code": "RepoNotFound"})
        description = {"id": repo, "sha": COMMIT, "gated": False, "siblings": self.server.siblings[repo]}
        return Reply(200, {"Content-Type": "application/json"}, json.dumps(description).encode())

    def _describe_as_modelscope(self, repo: str) -> Reply:
        files = [
            {"Path": name, "Size": len(content), "Type": "blob", "Sha256": hashlib.sha256(content).hexdigest()}
            for (owner, name), content in self.server.files.items()
            if owner == repo
        ]
        return Reply(200 if files else 404, {}, json.dumps({"Code": 200, "Data": {"Files": files}}).encode())

    def _redirect(self, repo: str, name: str) -> None:
        if (repo, name) not in self.server.files:
            self._reply(Reply(404, {"X-Error-Code": "EntryNotFound"}))
            return
        self._reply(Reply(302, {"Location": f"http://localhost:{self.server.server_port}/blob/{repo}/{name}"}))

    def _reply(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _send_blob(self, content: bytes) -> None:
        if self.server.blob_replies:
            self._reply(self.server.blob_replies.popleft())
            return
        wanted = self.headers.get("Range") if self.server.knows_ranges else None
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        cut = self.server.cuts.popleft() if self.server.cuts else self.server.cut_always
        end = len(content) if cut is None else min(len(content), start + cut)
        if self.server.stall_after is not None and not self.server.released.is_set():
            stop = min(end, start + self.server.stall_after)
            self.wfile.write(content[start:stop])
            self.wfile.flush()
            self.server.stalled.set()
            self.server.released.wait(20)
            start = stop
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""
