"""Downloads from a small hub on this machine: resumed, checked, and explained when they fail."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from iam_lab.data import DataError, DataSpec, check, fetch, load, location

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SPEC = DataSpec(
    "tiny",
    3,
    3,
    8,
    (0.5,) * 3,
    (0.2,) * 3,
    {"train": 300, "test": 6},
    repository="lab/tiny",
    folder="plain_text",
)


class Hub(ThreadingHTTPServer):
    """What the hub's client asks for: the list of files, their heads, and (parts of) their content."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files  # name to content
        self.sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        self.cut_once: set[str] = set()  # files whose first download breaks off half-way
        self.requests: list[tuple[str, str, str | None]] = []
        self.gated = False
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """Connections that break off are part of the test."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, content=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self):
        hub, path = self.server, self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if hub.gated:
            self.reply(403, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted.")
        elif path.startswith("/api/datasets/lab/tiny"):
            siblings = [
                {
                    "rfilename": name,
                    "size": len(content),
                    "lfs": {"sha256": hub.sha256[name], "size": len(content), "pointerSize": 130},
                }
                for name, content in hub.files.items()
            ]
            body = {"id": "lab/tiny", "_id": "1", "sha": COMMIT, "siblings": siblings, "private": False,
                    "downloads": 0, "likes": 0, "tags": []}  # fmt: skip
            self.reply(200, json.dumps(body).encode(), Content_Type="application/json")
        else:
            self.send_file(path.partition(f"/resolve/{COMMIT}/")[2])

    do_HEAD = do_GET  # noqa: N815

    def send_file(self, name):
        hub = self.server
        if name not in hub.files:
            self.reply(404, X_Error_Code="EntryNotFound")
            return
        content = hub.files[name]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        part, about = content[start:], {"X_Repo_Commit": COMMIT, "ETag": f'"{hub.sha256[name]}"'}
        if start:
            about["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        about |= {"Accept_Ranges": "bytes", "Content_Length": str(len(part))}
        if self.command == "GET" and name in hub.cut_once:
            hub.cut_once.discard(name)
            self.reply(206 if start else 200, part[: len(part) // 2], **about)
            self.close_connection = True
            return
        self.reply(206 if start else 200, part, **about)


@pytest.fixture
def hub(files, tmp_path):
    source = tmp_path / "source"
    contents = {"README.md": b"# tiny"}
    for split, shards in (("train", 2), ("test", 1)):
        for shard in range(shards):
            name = f"plain_text/{split}-{shard:05d}-of-{shards:05d}.parquet"
            count = 150 if split == "train" else 6
            pixels = files.pixels(count, seed=shard)
            files.parquet(source / name, pixels, [i % 3 for i in range(count)], rows=50)
            contents[name] = (source / name).read_bytes()
    contents["other/train-00000-of-00001.parquet"] = b"another variant"
    server = Hub(contents)
    yield server
    server.shutdown()
    server.server_close()


def test_a_download_is_loaded_like_any_file(hub, tmp_path):
    root = tmp_path / "data"
    paths = fetch(SPEC, root=root, endpoint=hub.url)
    assert [path.name for path in paths] == [
        "train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test-00000-of-00001.parquet"
    ]  # fmt: skip
    assert len(load(SPEC, "train", root=root)) == 300
    assert len(load(SPEC, "test", root=root)) == 6
    assert location(SPEC, "test", root) == paths[2:]
    assert not (root / "tiny/README.md").exists()
    asked = len(hub.requests)
    assert fetch(SPEC, root=root, endpoint=hub.url) == paths
    assert len(hub.requests) == asked  # what is there is not asked for again


def test_only_what_is_missing_is_downloaded(hub, tmp_path):
    root = tmp_path / "data"
    fetch(SPEC, ["test"], root=root, endpoint=hub.url)
    first = root / "tiny/plain_text/train-00000-of-00002.parquet"
    first.write_bytes(hub.files["plain_text/train-00000-of-00002.parquet"])
    hub.requests.clear()
    fetch(SPEC, root=root, endpoint=hub.url)
    downloaded = {
        path.rpartition("/")[2] for command, path, _ in hub.requests if command == "GET" and "resolve" in path
    }
    assert downloaded == {"train-00001-of-00002.parquet"}


def test_a_broken_download_goes_on_where_it_stopped(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)  # what is written at once
    name, root = "plain_text/train-00001-of-00002.parquet", tmp_path / "data"
    hub.cut_once.add(name)
    for _ in range(2):  # the hub's client may try again by itself, or leave it to the next call
        with suppress(DataError):
            fetch(SPEC, root=root, endpoint=hub.url)
    assert not hub.cut_once
    parts = [part for command, path, part in hub.requests if command == "GET" and path.endswith(name)]
    assert len(parts) == 2
    assert parts[0] is None
    assert int(parts[1].removeprefix("bytes=").removesuffix("-")) > len(hub.files[name]) // 3
    assert torch.bincount(load(SPEC, "train", root=root).labels).tolist() == [100, 100, 100]


def test_an_unreachable_hub_keeps_what_has_arrived(hub, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ConnectionResetError("Connection reset by peer")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)
    with pytest.raises(DataError, match=r"\(Connection reset by peer\). What has arrived is kept"):
        fetch(SPEC, root=tmp_path / "data", endpoint=hub.url)


def test_damage_on_the_way_is_noticed(hub, tmp_path):
    name = "plain_text/test-00000-of-00001.parquet"
    content = bytearray(hub.files[name])
    content[50] ^= 1
    hub.files[name] = bytes(content)
    with pytest.raises(DataError, match=r"test-00000-of-00001.parquet arrived damaged: its SHA-256"):
        fetch(SPEC, ["test"], root=tmp_path / "data", endpoint=hub.url)
    assert location(SPEC, "test", tmp_path / "data") == []


def test_offline_says_where_to_put_which_files(tmp_path):
    with pytest.raises(DataError) as caught:
        fetch("cifar10", root=tmp_path, endpoint="http://127.0.0.1:9")
    for part in ("did not deliver uoft-cs/cifar10", f"{tmp_path}/cifar10/train.parquet", "build_datasets.py"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gated_data_set_says_how_to_get_in(hub, tmp_path):
    hub.gated = True
    with pytest.raises(
        DataError, match=r"accept them on https://huggingface.co/datasets/lab/tiny.*hf auth login"
    ):
        fetch(SPEC, root=tmp_path / "data", endpoint=hub.url)


def test_a_repository_of_another_layout(hub, tmp_path):
    hub.files = {"README.md": b"moved"}
    with pytest.raises(DataError, match=r"has no plain_text/train-\*.parquet; it has README.md"):
        fetch(SPEC, root=tmp_path / "data", endpoint=hub.url)


def test_nothing_to_download():
    with pytest.raises(DataError, match="nowhere/train is not in the data folder"):
        fetch(DataSpec("nowhere", 2, 1, 8, (0.5,), (0.5,), {"train": 1}), ["train"], root="/nonexistent")


def test_checking_reports_what_is_wrong(hub, files, tmp_path):
    root = tmp_path / "data"
    fetch(SPEC, root=root, endpoint=hub.url)
    good = check(SPEC, "train", root)
    assert (good.images, good.published, good.per_class, good.problems) == (300, 300, (100, 100), ())
    pixels = load(SPEC, "train", root=root).images.double() / 255
    assert good.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert good.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-6)
    files.parquet(root / "tiny/train.parquet", files.pixels(4), [0, 2, 2, 0])
    bad = check(SPEC, "train", root)
    assert bad.problems == ("4 images, 300 published", "no image of 1 classes, among them 1")
    files.parquet(root / "tiny/train.parquet", [*files.pixels(3), b"rubbish"], [0, 1, 2, 0])
    assert "row 3" in check(SPEC, "train", root).problems[0]
    assert "not in" in check(SPEC, "test", tmp_path / "nothing").problems[0]
