"""A small Hugging Face hub: just what ``snapshot_download`` asks of it, on a free port of this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "somebody/a-model"
REVISION = "0123456789abcdef" * 2 + "01234567"


@dataclass
class Hub:
    """Serves the files of ``folder``. ``corrupt`` names one whose bytes are damaged on their way."""

    folder: Path
    url: str = ""
    corrupt: str = ""
    asked: list[str] = field(default_factory=list)

    def content(self, name: str) -> tuple[bytes, str]:
        """Bytes, and the hash that the hub gives as ETag."""
        data = (self.folder / name).read_bytes()
        if name.endswith(".safetensors"):
            return data, hashlib.sha256(data).hexdigest()
        return data, hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def serve(folder: Path) -> Iterator[Hub]:
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            hub.asked.append(f"{self.command} {path}")
            begin = f"/{REPOSITORY}/resolve/{REVISION}/"
            if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
                listing = [
                    {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": hub.content(p.name)[1]}
                    for p in sorted(folder.iterdir())
                ]
                self.answer(200, json.dumps(listing).encode(), {"Content-Type": "application/json"})
            elif path.startswith(f"/api/models/{REPOSITORY}/revision/"):
                siblings = [{"rfilename": p.name} for p in sorted(folder.iterdir())]
                found = {"id": REPOSITORY, "sha": REVISION, "private": False, "tags": [], "siblings": siblings}
                self.answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})
            elif path.startswith(begin) and (folder / path.removeprefix(begin)).is_file():
                name = path.removeprefix(begin)
                data, etag = hub.content(name)
                if name == hub.corrupt:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                self.answer(200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": REVISION})
            else:
                self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
