"""Data sets from the Hugging Face hub: resumable, checksummed, with the hub's own progress bars."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iam_lab.data.catalogue import DataSpec, data_root, spec_of
from iam_lab.data.errors import DataError
from iam_lab.data.files import SHARD, find_parquet, missing
from iam_lab.errors import first_line
from iam_lab.lazy import require


def fetch(
    name: str | DataSpec,
    splits: Sequence[str] = ("train", "test"),
    *,
    root: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
) -> list[Path]:
    """Download what is missing of a data set, and return all its files.

    A file appears under its name only when it is whole and its SHA-256 is the hub's; what an interrupted
    download has already brought is kept, and the next call goes on from there. Splits that are already
    there are not asked for again, so that this works offline too.

    Args:
        name: of the catalogue, or a specification with a repository.
        splits: which ones.
        root: folder of the data sets; by default ``IAM_DATA``.
        endpoint: address of the hub, for a mirror.

    >>> fetch("digits")
    []
    """
    spec = spec_of(name) if isinstance(name, str) else name
    if spec.name == "digits":
        return []  # comes with scikit-learn
    absent = [split for split in splits if not _present(spec, split, root)]
    if absent:
        if spec.repository is None:
            raise DataError(missing(spec, absent[0], root))
        hub = require("huggingface_hub", extra="lab", purpose=f"Downloading {spec.name}")
        try:
            _download(hub, spec, absent, data_root(root) / spec.name, endpoint)
        except hub.errors.GatedRepoError as error:
            page = f"https://huggingface.co/datasets/{spec.repository}"
            raise DataError(
                f"{spec.name} has terms of use: accept them on {page}, then log in with `hf auth login`."
            ) from error
        except (hub.errors.HfHubHTTPError, *_connection_errors()) as error:
            raise DataError(
                f"The hub did not deliver {spec.repository} ({first_line(error)}). "
                f"What has arrived is kept. {missing(spec, absent[0], root)}"
            ) from error
    return [path for split in splits for path in find_parquet(spec, split, root)]


def _present(spec: DataSpec, split: str, root: str | os.PathLike[str] | None) -> bool:
    try:
        return bool(find_parquet(spec, split, root))
    except DataError:  # some shards are missing: they are what we are here for
        return False


def _download(hub: Any, spec: DataSpec, splits: Sequence[str], home: Path, endpoint: str | None) -> None:
    info = hub.HfApi(endpoint=endpoint).dataset_info(spec.repository, files_metadata=True)
    files = {file.rfilename: file for file in info.siblings}
    for split in splits:
        names = sorted(name for name in files if _belongs(spec, split, name))
        if not names:
            raise DataError(
                f"The repository {spec.repository} has no {spec.folder}/{spec.files_of(split)[0]}-*.parquet; "
                f"it has {', '.join(sorted(files)[:8])} ... Its layout may have changed."
            )
        for name in names:
            if (home / name).is_file() and (home / name).stat().st_size == files[name].size:
                continue
            path = hub.hf_hub_download(
                spec.repository,
                name,
                repo_type="dataset",
                revision=info.sha,
                local_dir=home,
                endpoint=endpoint,
                force_download=(home / name).is_file(),  # there, but of another size
            )
            _verify(Path(path), files[name].lfs.sha256 if files[name].lfs else None)


def _belongs(spec: DataSpec, split: str, name: str) -> bool:
    folder, _, file = name.rpartition("/")
    shard = SHARD.fullmatch(file)
    return folder == spec.folder and shard is not None and shard["stem"] in spec.files_of(split)


def _verify(path: Path, expected: str | None) -> None:
    if expected is None:  # a small file that git keeps itself; the download compared its size
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        path.unlink()
        raise DataError(
            f"{path} arrived damaged: its SHA-256 is {found[:16]}..., the hub's {expected[:16]}.... "
            "It is deleted; download it again."
        )


def _connection_errors() -> tuple[type[BaseException], ...]:
    """What the hub's client raises without a network: of its HTTP library (by version), or plain ones."""
    found: list[type[BaseException]] = [ConnectionError, TimeoutError]
    for library in ("httpx2", "httpx", "requests"):
        try:
            module = __import__(library)
        except ImportError:
            continue
        found.append(getattr(module, "HTTPError", None) or module.RequestException)
    return tuple(found)
