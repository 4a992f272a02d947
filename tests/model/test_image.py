"""The packed image: it reads back as it was written, and no damaged one is believed."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckpointError, DiskFull, FormatError, ToolTimeout, TritforgeError
from pipelines.golden import formats, ternary
from pipelines.golden.formats import TransferEntry
from pipelines.model import convert, image, random
from pipelines.model.checkpoint import Checkpoint, matrix_tensor
from pipelines.model.convert import Settings
from pipelines.model.image import EMBEDDING, PARAMS, WEIGHTS, Image

SMALL = random.architecture(hidden=96, ffn=64, layers=2, heads=1, vocab=320, max_positions=64)
SMALL_TRANSFER = 2048  # bytes: small enough to cut groups into pieces


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    random.write(folder, SMALL, seed=7, deadline=Deadline.after(60))
    return folder


@pytest.fixture(scope="module")
def packed(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    pack(checkpoint, folder)
    return folder


def pack(checkpoint: Path, folder: Path, **settings: int) -> None:
    wanted = {"context": 32, "head_planes": 2, "max_transfer_bytes": SMALL_TRANSFER, **settings}
    convert.convert(checkpoint, folder, settings=Settings(model="small", **wanted), deadline=Deadline.after(120))


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "copy"))


def test_what_was_packed_comes_back(checkpoint: Path, packed: Path) -> None:
    opened = Checkpoint.open(checkpoint)
    golden = Image.open(packed).golden()
    for number, layer in enumerate(golden.layers):
        for name, codes in layer.codes.items():
            expected, scale = ternary.ternarise(opened.read(matrix_tensor(number, name)))
            assert np.array_equal(codes, expected)
            assert layer.scales[name] == scale
        norm = opened.read(f"model.layers.{number}.mlp.ffn_layernorm.weight")
        assert np.array_equal(layer.ffn_norm, norm)
    embedding = opened.read("model.embed_tokens.weight")
    assert np.array_equal(golden.embedding, embedding.astype(np.float16))
    first, scale = ternary.ternarise(embedding)
    second, residual_scale = ternary.ternarise(embedding - first.astype(np.float32) * scale)
    assert np.array_equal(golden.head_codes, np.concatenate([first, second]))
    assert golden.head_scales.tolist() == [scale, residual_scale]


def test_scales_come_back_as_calibrated(packed: Path) -> None:
    opened = Image.open(packed)
    for number, described in enumerate(opened.description["calibration"]["layers"]):
        inverse = np.float32(1) / np.float32(described["k_scale"])
        assert np.array_equal(np.float32(1) / opened.k_scale(number), inverse)
        assert opened.table("v_scale", number).astype(float).tolist() == described["v_scale"]


def test_transfers_keep_the_limit_and_cut_at_rows(packed: Path) -> None:
    entries = Image.open(packed).entries
    assert max(entry.size_bytes for entry in entries) <= SMALL_TRANSFER
    assert any(entry.piece > 0 for entry in entries)
    for entry in entries:
        assert entry.offset % formats.TRANSFER_ALIGN_BYTES == 0
        assert bool(entry.flags) == (entry.piece == 0)
    for port in range(formats.PORTS):
        head = [e for e in entries if e.layer == SMALL.layers and e.port == port]
        assert sum(e.rows for e in head) == SMALL.vocab  # half of two planes


def test_same_bytes_every_time(checkpoint: Path, packed: Path, tmp_path: Path) -> None:
    pack(checkpoint, tmp_path)
    for name in (*image.PACKED_FILES, image.DESCRIPTION):
        assert (tmp_path / name).read_bytes() == (packed / name).read_bytes()


@pytest.mark.parametrize("code", range(formats.TRIT_CODES, 256))
def test_each_illegal_code_is_an_error(code: int, copy: Path) -> None:
    """Also when every checksum was made to fit: the code itself is refused."""
    opened = Image.open(copy)
    entry = opened.entries[3]
    at = entry.offset + entry.size_bytes - 8  # first byte of the last word of the last row
    data = bytearray((copy / WEIGHTS).read_bytes())
    data[at] = code
    (copy / WEIGHTS).write_bytes(data)
    reseal(copy, opened, 3)
    with pytest.raises(FormatError, match=f"transfer at offset {entry.offset}: illegal trit code {code}"):
        Image.open(copy).check()


def reseal(folder: Path, opened: Image, changed: int) -> None:
    """Makes all checksums fit a changed weights.tfs."""
    weights = (folder / WEIGHTS).read_bytes()
    entry: TransferEntry = opened.entries[changed]
    body = weights[entry.offset : entry.offset + entry.size_bytes]
    params = bytearray((folder / PARAMS).read_bytes())
    at = formats.PARAMS_HEADER_BYTES + changed * formats.TRANSFER_ENTRY_BYTES
    params[at : at + formats.TRANSFER_ENTRY_BYTES] = dataclasses.replace(entry, crc32=zlib.crc32(body)).encode()
    params[120:124] = bytes(4)
    struct.pack_into("<I", params, 120, zlib.crc32(params))
    (folder / PARAMS).write_bytes(params)
    description = json.loads((folder / image.DESCRIPTION).read_text())
    for name in (WEIGHTS, PARAMS):
        description["files"][name]["sha256"] = image.files.sha256_file(folder / name)
    description["seal"] = image.seal(description)
    (folder / image.DESCRIPTION).write_text(json.dumps(description))


@pytest.mark.parametrize("name", [*image.PACKED_FILES, image.DESCRIPTION])
def test_no_changed_byte_is_believed(name: str, copy: Path) -> None:
    """A flipped bit, a cut and an insertion, anywhere: a FormatError, never a crash and never a result."""
    path = copy / name
    sound = path.read_bytes()
    random_ = np.random.default_rng([1, len(sound)])
    for trial in range(60):
        at = int(random_.integers(len(sound)))
        data = bytearray(sound)
        if trial % 6 == 4:
            del data[at:]
        elif trial % 6 == 5:
            data[at:at] = random_.bytes(int(random_.integers(1, 9)))
        else:
            data[at] ^= 1 << int(random_.integers(8))
        path.write_bytes(data)
        try:
            Image.open(copy).check()
        except FormatError:
            continue
        # The one change that means nothing: white space in a JSON file.
        assert name == image.DESCRIPTION
        assert json.loads(data) == json.loads(sound)


@pytest.mark.parametrize("name", [*image.PACKED_FILES, image.DESCRIPTION])
def test_missing_files_are_named(name: str, copy: Path) -> None:
    (copy / name).unlink()
    with pytest.raises(FormatError, match=name):
        Image.open(copy).check()


def test_random_files_never_crash_the_reader(copy: Path) -> None:
    random_ = np.random.default_rng(4)
    for _ in range(40):
        for name in (PARAMS, image.DESCRIPTION):
            kept = (copy / name).read_bytes()
            (copy / name).write_bytes(random_.bytes(int(random_.integers(0, 400))))
            with pytest.raises(TritforgeError):
                Image.open(copy)
            (copy / name).write_bytes(kept)


def seal_again(folder: Path, description: dict[str, Any]) -> None:
    """Makes every checksum fit what the files hold now."""
    params = bytearray((folder / PARAMS).read_bytes())
    if len(params) >= formats.PARAMS_HEADER_BYTES:
        params[120:124] = bytes(4)
        struct.pack_into("<I", params, 120, zlib.crc32(params))
        (folder / PARAMS).write_bytes(params)
    files = description.get("files")
    if isinstance(files, dict):
        for name in image.PACKED_FILES:
            if isinstance(files.get(name), dict):
                files[name]["sha256"] = image.files.sha256_file(folder / name)
    (folder / image.DESCRIPTION).write_text(json.dumps({**description, "seal": image.seal(description)}))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, below in inside for leaf in leaves(below, (*path, key)))]


STRANGE_NUMBERS = (0, 1, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1)
STRANGE_VALUES = (None, -1, 0, 2**70, 1.5, 1e300, "x", "", [], {}, True)


@pytest.mark.parametrize("part", ["header and transfers", "description"])
def test_damage_behind_fitting_checksums_never_crashes_the_reader(part: str, copy: Path, full_campaigns: bool) -> None:
    """Fields of any value: a FormatError, or an image that reads to its end (another norm weight is another model)."""
    random_ = np.random.default_rng([5, len(part)])
    kept = {name: (copy / name).read_bytes() for name in (*image.PACKED_FILES, image.DESCRIPTION)}
    places = leaves(json.loads(kept[image.DESCRIPTION]))
    fields = (formats.PARAMS_HEADER_BYTES + formats.TRANSFER_ENTRY_BYTES * len(Image.open(copy).entries)) // 4
    refused = 0
    for _ in range(1500 if full_campaigns else 40):
        for name, data in kept.items():
            (copy / name).write_bytes(data)
        description = json.loads(kept[image.DESCRIPTION])
        if part == "description":
            path = places[int(random_.integers(1, len(places)))]
            inner = functools.reduce(lambda value, key: value[key], path[:-1], description)
            inner[path[-1]] = STRANGE_VALUES[int(random_.integers(len(STRANGE_VALUES)))]
        else:
            params = bytearray(kept[PARAMS])
            for at in random_.integers(fields, size=int(random_.integers(1, 4))).tolist():
                struct.pack_into("<I", params, 4 * at, int(random_.choice(STRANGE_NUMBERS)))
            (copy / PARAMS).write_bytes(params)
        seal_again(copy, description)
        try:
            opened = Image.open(copy)
            opened.check()
            opened.golden()
        except FormatError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("limit", [1, 5000, 20000])
def test_a_full_disk_leaves_nothing(
    limit: int, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = image._Hashed.write

    def full(self: image._Hashed, data: bytes) -> None:
        if self.size + len(data) > limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    monkeypatch.setattr(image._Hashed, "write", full)
    with pytest.raises(DiskFull):
        pack(checkpoint, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_deadline_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolTimeout):
        convert.convert(checkpoint, tmp_path, settings=Settings(model="small", context=32), deadline=Deadline.after(0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 65}, "context 65 is beyond"),
        ({"head_planes": 5}, "head planes are 5"),
        ({"context": 0}, "context is 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, int], message: str, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        pack(checkpoint, tmp_path, **settings)
    assert not list(tmp_path.iterdir())


def test_circuits_want_heads_of_96(tmp_path: Path) -> None:
    other = random.architecture(hidden=128, ffn=64, layers=1, heads=2, vocab=320, max_positions=64)
    random.write(tmp_path / "model", other, seed=1, deadline=Deadline.after(60))
    (tmp_path / "out").mkdir()
    with pytest.raises(CheckpointError, match="heads x 96"):
        pack(tmp_path / "model", tmp_path / "out")


def test_full_size_by_the_format_alone() -> None:
    """The packed size of the 0.7 B model, which is the reference's 141.3 MiB, without packing it."""
    shape = convert.ModelShape(hidden=1536, ffn=4096, layers=24, heads=16, head_dim=96, vocab=32002, context=512)
    at = 0
    for _, group in image.group_order(shape):
        length = shape.group_row_length(group)
        for piece in image.pieces(shape.group_rows(group), length, convert.MAX_TRANSFER_BYTES):
            x_words = formats.words_for_x(length) if piece.loads_x else 0
            at = -(-at // 64) * 64 + 8 * (1 + x_words + piece.rows * formats.words_for_row(length))
    assert at == 148_141_696
    assert abs(at / 2**20 - 141.3) < 0.1


def test_random_checkpoints_come_from_their_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        random.write(tmp_path / name, SMALL, seed=seed, deadline=Deadline.after(60))
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_embedding_is_named_when_it_is_damaged(copy: Path) -> None:
    data = bytearray((copy / EMBEDDING).read_bytes())
    data[10] ^= 1
    (copy / EMBEDDING).write_bytes(data)
    with pytest.raises(FormatError, match=EMBEDDING):
        Image.open(copy).golden()
