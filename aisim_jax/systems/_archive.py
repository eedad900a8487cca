"""One archive per system x backend x version: a zip of NumPy members, losslessly packed.

Latencies are float64 as measured. Many tables repeat few distinct timer readings, so
each is stored either as the eight byte planes of its values or as a sorted dictionary
(differences of the bit patterns) plus codes, whichever deflates better. `meta.json`
says what the archive is and where its figures come from; its digest covers the content
of all other members, so that it does not depend on the zip library.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._atomic import write_file
from .._errors import InvalidInputError
from ._blocks import Block


FORMAT = "aisim-tables"
FORMAT_VERSION = 1
EPOCH = (1980, 1, 1, 0, 0, 0)
META = "meta.json"
REMEDY = "import the data again with `aisim profiles import`"


def write_archive(
    path: Path, meta: Mapping[str, Any], tables: Mapping[str, Sequence[Block]]
) -> dict[str, Any]:
    """Write atomically and deterministically; return the completed metadata."""
    members: dict[str, bytes] = {}
    for name in sorted(tables):
        members |= {
            f"{name}/{part}": data for part, data in _pack_table(tables[name]).items()
        }
    complete = {"format": FORMAT, "format_version": FORMAT_VERSION, **meta}
    complete["digest"] = content_digest(members)
    members[META] = json.dumps(complete, indent=1).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    write_file(path, stream.getvalue())
    return complete


def read_meta(path: Path) -> dict[str, Any]:
    """Metadata of an archive; InvalidInputError when it is not one of ours."""
    foreign = f"{path} is not an aisim table archive; {REMEDY}"
    try:
        meta = json.loads(_read_members(path, [META])[0])
    except (KeyError, json.JSONDecodeError) as error:
        raise InvalidInputError(foreign) from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InvalidInputError(foreign)
    if meta.get("format_version") != FORMAT_VERSION:
        raise InvalidInputError(
            f"{path} has table format {meta.get('format_version')}, this version reads "
            f"{FORMAT_VERSION}; {REMEDY}"
        )
    return meta


def read_table(path: Path, name: str) -> list[Block]:
    """Blocks of table `name`, decoded to dense arrays."""
    parts = ("index.json", "measured.npy", "origin.npy", "values.npy", "codes.npy")
    members = [f"{name}/{part}" for part in parts]
    try:
        return _unpack_table(_read_members(path, members))
    except InvalidInputError:
        raise
    except (KeyError, ValueError, IndexError) as error:
        raise InvalidInputError(f"{path}: table {name} is damaged; {REMEDY}") from error


def verify_archive(path: Path) -> dict[str, Any]:
    """Check every byte of an archive against its digest; return its metadata."""
    meta = read_meta(path)
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name != META]
    members = dict(zip(names, _read_members(path, names), strict=True))
    if content_digest(members) != meta["digest"]:
        raise InvalidInputError(f"{path} does not match its digest; {REMEDY}")
    return meta


def content_digest(members: Mapping[str, bytes]) -> str:
    """sha256 over names and contents, in name order."""
    digest = hashlib.sha256()
    for name in sorted(members):
        data = members[name]
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def _read_members(path: Path, names: Sequence[str]) -> list[bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in names]
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InvalidInputError(f"{path} is damaged ({error}); {REMEDY}") from error


def _pack_table(blocks: Sequence[Block]) -> dict[str, bytes]:
    pool: dict[bytes, int] = {}
    axes: list[Any] = []
    index = []
    for block in blocks:
        places = []
        for axis in block.axes:
            place = pool.setdefault(repr(axis.tolist()).encode(), len(axes))
            if place == len(axes):
                axes.append(axis.tolist())
            places.append(place)
        index.append([*block.key, places])
    dense = np.concatenate([block.latency_ms.ravel() for block in blocks])
    origin = np.concatenate([block.origin.ravel() for block in blocks])
    measured = ~np.isnan(dense)
    values, codes = _pack_values(dense[measured])
    header = json.dumps({"axes": axes, "blocks": index}, separators=(",", ":"))
    return {
        "index.json": header.encode(),
        "measured.npy": _npy(np.packbits(measured)),
        "origin.npy": _npy(origin[measured]),
        "values.npy": _npy(values),
        "codes.npy": _npy(codes),
    }


def _unpack_table(data: Sequence[bytes]) -> list[Block]:
    header = json.loads(data[0])
    bits, origins, values, codes = (
        np.lib.format.read_array(io.BytesIO(part)) for part in data[1:]
    )
    axes = [np.array(axis, dtype=np.int64) for axis in header["axes"]]
    shapes = [
        tuple(len(axes[place]) for place in entry[-1]) for entry in header["blocks"]
    ]
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    measured = np.unpackbits(bits, count=int(bounds[-1])).astype(bool)
    latency_ms = np.full(len(measured), np.nan)
    latency_ms[measured] = _unpack_values(values, codes)
    origin = np.zeros(len(measured), dtype=np.uint8)
    origin[measured] = origins
    latency_ms.flags.writeable = origin.flags.writeable = False
    return [
        Block(
            tuple(entry[:-1]),
            tuple(axes[place] for place in entry[-1]),
            latency_ms[start:stop].reshape(shape),
            origin[start:stop].reshape(shape),
        )
        for entry, shape, start, stop in zip(
            header["blocks"], shapes, bounds[:-1], bounds[1:], strict=True
        )
    ]


def _pack_values(latency_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(planes of values, no codes), or (planes of a dictionary's steps, codes)."""
    plain = _planes(latency_ms)
    distinct, codes = np.unique(latency_ms, return_inverse=True)
    steps = np.diff(distinct.view(np.uint64), prepend=np.uint64(0))
    packed = _planes(steps), _planes(codes.astype(np.uint32))
    if sum(map(_deflated, packed)) < _deflated(plain):
        return packed
    return plain, np.zeros((4, 0), dtype=np.uint8)


def _unpack_values(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    if codes.shape[1] == 0:
        return _from_planes(values, np.float64)
    bits = np.cumsum(_from_planes(values, np.uint64), dtype=np.uint64)
    return bits.view(np.float64)[_from_planes(codes, np.uint32)]


def _planes(array: np.ndarray) -> np.ndarray:
    """Byte planes [item size, n], little endian."""
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    bytes_of = little.view(np.uint8).reshape(len(array), array.dtype.itemsize)
    return np.ascontiguousarray(bytes_of.T)


def _from_planes(planes: np.ndarray, dtype: type) -> np.ndarray:
    little = np.dtype(dtype).newbyteorder("<")
    return np.ascontiguousarray(planes.T).view(little).ravel().astype(dtype, copy=False)


def _deflated(array: np.ndarray) -> int:
    return len(zlib.compress(array.tobytes(), 9))


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()
