"""Broken checkpoints: each its own error, naming the tensor or file, before anything is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from pipelines.base.deadline import Deadline
from pipelines.base.errors import CheckpointError
from pipelines.model import checkpoint, convert, random, safetensors_file
from pipelines.model.checkpoint import Checkpoint

TINY = Path(__file__).parents[2] / "models" / "tiny"
SMALL = random.architecture(hidden=96, ffn=64, layers=2, heads=1, vocab=320, max_positions=64)
Q0 = "model.layers.0.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small sound checkpoint, without a tokenizer."""
    random.write(tmp_path / "model", SMALL, seed=7, deadline=Deadline.after(60))
    return tmp_path / "model"


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / "model.safetensors")


def rewrite(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Changes tensors and writes the file again with the safetensors library."""
    found = tensors(folder)
    change(found)
    safetensors.numpy.save_file(found, folder / "model.safetensors")


def reconfigure(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def raw_header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the JSON header and leaves the tensors' bytes as they are."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def shards(folder: Path, weight_map: Callable[[dict[str, str]], Any] | None = None) -> None:
    """Splits the checkpoint in two shards with an index."""
    found = tensors(folder)
    names = sorted(found)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, members in parts.items():
        safetensors.numpy.save_file({name: found[name] for name in members}, folder / part)
    (folder / "model.safetensors").unlink()
    index = {name: part for part, members in parts.items() for name in members}
    if weight_map is not None:
        weight_map(index)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def put(name: str, value: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, lambda t: t.__setitem__(name, value))


def poke(name: str, at: tuple[int, ...], value: float) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, lambda t: t[name].__setitem__(at, value))


def truncate(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])


def entry(name: str, key: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: raw_header(folder, lambda h: h[name].__setitem__(key, value))


# name -> (what breaks it, what the message must name)
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json: missing"),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{"), r"config\.json: not JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), r"config\.json: not a JSON object"),
    "hidden size missing": (lambda f: reconfigure(f, hidden_size=None), "hidden_size is None"),
    "heads are zero": (lambda f: reconfigure(f, num_attention_heads=0), "num_attention_heads is 0"),
    "hidden is a text": (lambda f: reconfigure(f, hidden_size="96"), "hidden_size is '96'"),
    "heads do not divide hidden": (lambda f: reconfigure(f, num_attention_heads=5), "do not fit hidden_size 96"),
    "negative eps": (lambda f: reconfigure(f, rms_norm_eps=-1e-5), "rms_norm_eps is -1e-05"),
    "eos outside": (lambda f: reconfigure(f, eos_token_id=999), "eos 999 is outside"),
    "another activation": (lambda f: reconfigure(f, hidden_act="gelu"), "hidden_act is 'gelu'"),
    "scaled rope": (lambda f: reconfigure(f, rope_scaling={"factor": 2}), "rope_scaling"),
    "another family": (
        lambda f: reconfigure(f, architectures=["GPT2LMHeadModel"], model_type="gpt2"),
        "GPT2LMHeadModel' is not supported",
    ),
    "BitNet 2B-4T by its activation": (lambda f: reconfigure(f, hidden_act="relu2"), "2B-4T"),
    "BitNet 2B-4T by its tensors": (
        put("model.layers.0.self_attn.attn_sub_norm.weight", np.ones(96, np.float32)),
        "2B-4T.*attn_sub_norm",
    ),
    "grouped KV": (lambda f: reconfigure(f, hidden_size=192, num_attention_heads=2, num_key_value_heads=1), "grouping"),
    "no tensors": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: missing"),
    "missing tensor": (lambda f: rewrite(f, lambda t: t.pop(Q0)), f"tensor '{Q0}' is missing"),
    "missing norm": (
        lambda f: rewrite(f, lambda t: t.pop("model.layers.1.mlp.ffn_layernorm.weight")),
        "layers.1.mlp.ffn_layernorm.weight' is missing",
    ),
    "wrong shape": (put(Q0, np.zeros((96, 95), np.float32)), rf"'{Q0}' is \[96, 95\]"),
    "transposed": (
        put("model.layers.0.mlp.down_proj.weight", np.zeros((64, 96), np.float32)),
        r"down_proj.weight' is \[64, 96\]",
    ),
    "layer too many": (lambda f: reconfigure(f, num_hidden_layers=1), "layers.1.*has no place"),
    "surplus tensor": (
        put("model.layers.0.self_attn.q_proj.bias", np.zeros(96, np.float32)),
        "q_proj.bias' has no place",
    ),
    "integers": (put(Q0, np.zeros((96, 96), np.int8)), f"'{Q0}' is I8"),
    "doubles": (put(Q0, np.zeros((96, 96), np.float64)), f"'{Q0}' is F64"),
    "NaN": (poke(Q0, (3, 5), np.nan), f"'{Q0}'.*NaN|'{Q0}' has nan"),
    "infinity": (poke(Q0, (95, 95), np.inf), f"'{Q0}'.*infinity|'{Q0}' has inf"),
    "NaN in a norm": (poke("model.norm.weight", (4,), np.nan), "model.norm.weight"),
    "embedding beyond float16": (poke(EMBEDDING, (7, 7), 1e6), f"'{EMBEDDING}'.*float16"),
    "truncated in the tensors": (lambda f: truncate(f, 5000), r"model\.safetensors"),
    "truncated in the header": (lambda f: truncate(f, 100), r"model\.safetensors: its header"),
    "empty file": (lambda f: truncate(f, 0), r"model\.safetensors: 0 bytes"),
    "surplus bytes": (
        lambda f: (f / "model.safetensors").open("ab").write(b"\0" * 64),
        r"model\.safetensors: 64 bytes behind the last tensor",
    ),
    "a pickle": (
        lambda f: (f / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(100)),
        r"model\.safetensors: its header",
    ),
    "header is not JSON": (
        lambda f: (f / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"{{{{"),
        "header is not JSON",
    ),
    "offsets overlap": (entry(Q0, "data_offsets", [0, 96 * 96 * 4]), "begins at byte"),
    "offsets too short": (entry(Q0, "data_offsets", [0, 8]), f"'{Q0}'.*takes 36864 bytes"),
    "negative shape": (entry(Q0, "shape", [-96, -96]), f"'{Q0}': shape"),
    "unknown dtype": (entry(Q0, "dtype", "F128"), f"'{Q0}': unknown dtype"),
    "shard missing": (lambda f: (shards(f), (f / "b.safetensors").unlink()), r"b\.safetensors: missing"),
    "index names a wrong shard": (
        lambda f: shards(
            f, lambda index: index.__setitem__(Q0, "b.safetensors" if index[Q0][0] == "a" else "a.safetensors")
        ),
        f"'{Q0}' is not in it",
    ),
    "shard outside the folder": (
        lambda f: shards(f, lambda index: index.__setitem__(Q0, "../a.safetensors")),
        "is not a plain file name",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_checkpoints_are_named_and_leave_nothing(name: str, folder: Path, tmp_path: Path) -> None:
    breaks, message = BROKEN[name]
    breaks(folder)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(CheckpointError, match=message):
        convert.convert(folder, out, settings=convert.Settings(model="small", context=32), deadline=Deadline.after(60))
    assert not list(out.iterdir())


def test_the_sound_one_converts(folder: Path, tmp_path: Path) -> None:
    convert.convert(
        folder, tmp_path / "out", settings=convert.Settings(model="small", context=32), deadline=Deadline.after(60)
    )
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "weights.tfs",
        "params.tfp",
        "embedding.f16",
        "image.json",
    }


def test_shards_and_single_file_are_the_same_model(folder: Path) -> None:
    single = Checkpoint.open(folder)
    expected = {name: single.read(name) for name in single.tensors}
    shards(folder)
    sharded = Checkpoint.open(folder)
    assert sharded.architecture == single.architecture
    assert all(np.array_equal(sharded.read(name), value) for name, value in expected.items())


def test_reader_equals_the_safetensors_library(folder: Path) -> None:
    opened = Checkpoint.open(folder)
    for name, value in tensors(folder).items():
        assert np.array_equal(opened.read(name), value)
        assert np.array_equal(opened.rows(name, 3, 9), value[3:9])


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_read_exactly(dtype: str, tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0, 0.0078125, 3.0]], dtype=np.float32)
    raw = values.astype("<f2").tobytes() if dtype == "F16" else (values.view("<u4") >> 16).astype("<u2").tobytes()
    header = json.dumps({"w": {"dtype": dtype, "shape": [1, 4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    info = safetensors_file.read_header(tmp_path / "m.safetensors")["w"]
    assert np.array_equal(safetensors_file.read_rows(info, 0, 1), values)


def test_pickles_are_never_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as raised:
        Checkpoint.open(folder)
    assert "pickle" in raised.value.hint


def test_llama_loads_for_evaluation_and_is_not_packed(tmp_path: Path) -> None:
    twin = TINY / "twin"
    opened = Checkpoint.open(twin)
    assert opened.architecture.family == "llama"
    with pytest.raises(CheckpointError, match="not trained ternary"):
        convert.shape_of(opened, convert.Settings(model="twin", context=64))


def test_grouped_llama_shapes(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 2048,
        "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    found = checkpoint.parse_architecture(config, [], tmp_path)
    assert (found.head_dim, found.matrix_shape("k"), found.family) == (64, (192, 576), "llama")


def copy_tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copyfile(TINY / name, folder / name)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "tokenizer.json: missing"),
        (lambda path: path.write_text("{}"), "tokenizer.json: not a tokenizer"),
        (lambda path: path.write_text(small_tokenizer(300)), "its tokens end at 299, but the model has 2048"),
        (lambda path: path.write_text(small_tokenizer(4000)), "its tokens end at 3999, but the model has 2048"),
    ],
)
def test_tokenizers_of_other_models(change: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    folder = copy_tiny(tmp_path)
    change(folder / "tokenizer.json")
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(folder).tokenizer()


def small_tokenizer(size: int) -> str:
    from tokenizers import Tokenizer, models

    return str(Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0")).to_str())
