"""A checkpoint in the Hugging Face layout: checked as a whole when opened, its tensors read one at a time.

A folder with ``config.json``, ``model.safetensors`` (or shards and ``model.safetensors.index.json``) and
``tokenizer.json``. Two families are known: BitNet b1.58 as in ``1bitLLM/bitnet_b1_58-large``, and plain LLaMA, which
can be evaluated for the contrast but not packed. Every fault is a CheckpointError that names the file or tensor.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.base import files
from pipelines.base.errors import CheckpointError, ToolMissing, TransferError, UsageError
from pipelines.model import safetensors_file
from pipelines.model.safetensors_file import FLOAT_DTYPES, TensorInfo

F32 = npt.NDArray[np.float32]
Family = Literal["bitnet", "llama"]

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
# Matrix name here -> tensor name inside a layer.
MATRIX_TENSORS = {
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
NORM_TENSORS = {
    "input": "input_layernorm.weight",
    "post": "post_attention_layernorm.weight",
    "inner_attn": "self_attn.inner_attn_ln.weight",
    "ffn": "mlp.ffn_layernorm.weight",
}
BITNET_ONLY = ("inner_attn", "ffn")
# Constants that older exports carry and nothing here needs.
_IGNORED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
# Marks of the later BitNet (2B-4T): sub-norms instead of layernorms, packed weights with a scale of their own.
_BITNET_2B = re.compile(r"attn_sub_norm|ffn_sub_norm|weight_scale")
# Vocabularies are often padded to a multiple of this, so the tokenizer may have fewer tokens than the embedding rows.
_VOCAB_PADDING = 128
_CHUNK_ELEMENTS = 1 << 22
MAX_EXACT = 1 << 31


@dataclass(frozen=True)
class Architecture:
    """What ``config.json`` says, checked."""

    family: Family
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    rms_eps: float
    rope_theta: float
    tied: bool
    bos: int
    eos: int

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """(rows, columns) of a matrix of a layer."""
        inner, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q": (inner, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "o": (self.hidden, inner),
            "gate": (self.ffn, self.hidden),
            "up": (self.ffn, self.hidden),
            "down": (self.hidden, self.ffn),
        }[name]

    def norms(self) -> tuple[str, ...]:
        """Names of a layer's norms."""
        return tuple(n for n in NORM_TENSORS if self.family == "bitnet" or n not in BITNET_ONLY)

    def norm_size(self, name: str) -> int:
        return self.ffn if name == "ffn" else self.hidden

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every tensor that a checkpoint of this architecture must have, in file order."""
        yield EMBEDDING, (self.vocab, self.hidden)
        for layer in range(self.layers):
            for name in MATRIX_TENSORS:
                yield matrix_tensor(layer, name), self.matrix_shape(name)
            for name in self.norms():
                yield norm_tensor(layer, name), (self.norm_size(name),)
        yield FINAL_NORM, (self.hidden,)
        if not self.tied:
            yield HEAD, (self.vocab, self.hidden)


def matrix_tensor(layer: int, name: str) -> str:
    """``matrix_tensor(0, "q")`` is ``model.layers.0.self_attn.q_proj.weight``."""
    return f"model.layers.{layer}.{MATRIX_TENSORS[name]}"


def norm_tensor(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{NORM_TENSORS[name]}"


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint: architecture, and where each tensor lies. Nothing but headers has been read."""

    folder: Path
    architecture: Architecture
    tensors: Mapping[str, TensorInfo]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Reads and checks configuration and headers; CheckpointError names what is wrong and where."""
        if not folder.is_dir():
            raise CheckpointError(f"{folder}: no such folder", hint="it must hold config.json and model.safetensors")
        config = _read_json(folder / CONFIG)
        tensors = {name: t for name, t in _read_tensors(folder).items() if not _IGNORED.fullmatch(name)}
        architecture = parse_architecture(config, tensors.keys(), folder / CONFIG)
        _check_tensors(folder, architecture, tensors)
        return cls(folder, architecture, tensors)

    def tokenizer(self) -> Path:
        """Path of ``tokenizer.json``, after checking that it is one and fits the vocabulary."""
        path = self.folder / TOKENIZER
        check_tokenizer(path, self.architecture)
        return path

    @property
    def head_name(self) -> str:
        return EMBEDDING if self.architecture.tied else HEAD

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())

    def rows(self, name: str, start: int, stop: int) -> F32:
        """Rows of a tensor as float32; CheckpointError names the tensor if one is NaN or infinite."""
        values = safetensors_file.read_rows(self.tensors[name], start, stop)
        if not np.isfinite(values).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise CheckpointError(
                f"{self.tensors[name].file}: tensor '{name}' has {values[at]} at {[at[0] + start, *at[1:]]}"
            )
        return values

    def read(self, name: str) -> F32:
        """A whole tensor as float32, checked like ``rows``."""
        return self.rows(name, 0, self.tensors[name].shape[0])

    def check_values(self) -> None:
        """Reads every tensor once and raises for the first NaN or infinity."""
        for name, tensor in self.tensors.items():
            step = max(1, _CHUNK_ELEMENTS // max(1, int(np.prod(tensor.shape[1:]))))
            for start in range(0, tensor.shape[0], step):
                self.rows(name, start, min(start + step, tensor.shape[0]))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing") from error
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return value


def _read_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Tensors of the single file, or of the shards that the index names."""
    if (folder / INDEX).exists():
        return _read_shards(folder)
    if (folder / SINGLE).exists():
        return safetensors_file.read_header(folder / SINGLE)
    pickles = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
    hint = f"{pickles[0]} is a pickle, which can run code when read; convert it to safetensors" if pickles else ""
    raise CheckpointError(f"{folder / SINGLE}: missing", hint=hint)


def _read_shards(folder: Path) -> dict[str, TensorInfo]:
    index = folder / INDEX
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise CheckpointError(f"{index}: 'weight_map' must map tensor names to file names")
    found: dict[str, TensorInfo] = {}
    for shard in sorted(set(weight_map.values())):
        if Path(shard).name != shard:
            raise CheckpointError(f"{index}: shard {shard!r} is not a plain file name")
        if not (folder / shard).exists():
            raise CheckpointError(f"{folder / shard}: missing, although {INDEX} names it")
        for name, tensor in safetensors_file.read_header(folder / shard).items():
            if name in found:
                raise CheckpointError(f"{folder / shard}: tensor '{name}' is in {found[name].file.name} as well")
            found[name] = tensor
    for name, shard in weight_map.items():
        if name not in found or found[name].file.name != shard:
            raise CheckpointError(f"{folder / shard}: tensor '{name}' is not in it, although {INDEX} says so")
    return found


def parse_architecture(config: Mapping[str, Any], names: Any, where: Path) -> Architecture:
    """``config.json`` (and the tensors' names, where it leaves the family open) as an Architecture."""
    names = set(names)
    later = sorted(name for name in names if _BITNET_2B.search(name))
    if config.get("hidden_act") == "relu2" or later:
        mark = "hidden_act is relu2" if not later else f"it has tensor '{later[0]}'"
        raise CheckpointError(
            f"{where}: this is a BitNet of the 2B-4T kind ({mark}), which is not supported yet",
            hint="supported: BitNet b1.58 as in 1bitLLM/bitnet_b1_58-large (SiLU, inner_attn_ln, ffn_layernorm)",
        )
    family = _family(config, names, where)
    if config.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{where}: hidden_act is {config['hidden_act']!r}, only silu is supported")
    for key in ("rope_scaling", "quantization_config", "attention_bias", "mlp_bias"):
        if config.get(key):
            raise CheckpointError(f"{where}: {key} is {config[key]!r}, which is not supported")
    natural = _Naturals(config, where)
    heads = natural("num_attention_heads")
    hidden = natural("hidden_size")
    kv_heads = natural("num_key_value_heads", heads)
    head_dim = natural("head_dim", hidden // heads)
    if heads % kv_heads or hidden != heads * head_dim or head_dim % 2:
        raise CheckpointError(
            f"{where}: {heads} heads, {kv_heads} KV heads of {head_dim} do not fit hidden_size {hidden}"
        )
    if family == "bitnet" and kv_heads != heads:
        raise CheckpointError(f"{where}: {kv_heads} KV heads for {heads} heads: grouping is not supported for BitNet")
    rope = config.get("rope_parameters")
    theta = config.get("rope_theta", rope.get("rope_theta", 10000.0) if isinstance(rope, dict) else 10000.0)
    vocab = natural("vocab_size")
    bos, eos = natural("bos_token_id", 1, least=0), natural("eos_token_id", 2, least=0)
    if max(bos, eos) >= vocab:
        raise CheckpointError(f"{where}: bos {bos} or eos {eos} is outside the vocabulary of {vocab}")
    return Architecture(
        family=family,
        hidden=hidden,
        ffn=natural("intermediate_size"),
        layers=natural("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        max_positions=natural("max_position_embeddings"),
        rms_eps=_positive(config.get("rms_norm_eps", 1e-5), "rms_norm_eps", where),
        rope_theta=_positive(theta, "rope_theta", where),
        tied=_tied(config, names, family, where),
        bos=bos,
        eos=eos,
    )


def _family(config: Mapping[str, Any], names: set[str], where: Path) -> Family:
    listed = config.get("architectures") or [config.get("model_type") or ""]
    stated = str(listed[0] if isinstance(listed, list) and listed else listed).lower()
    has_norms = any(name.endswith(NORM_TENSORS["inner_attn"]) for name in names)
    if "bitnet" in stated or (has_norms and ("llama" in stated or not stated)):
        return "bitnet"
    if "llama" in stated or not stated:
        return "llama"
    raise CheckpointError(
        f"{where}: architecture {listed[0] if isinstance(listed, list) else listed!r} is not supported",
        hint="supported: BitNet b1.58 (as 1bitLLM/bitnet_b1_58-large) and, for evaluation only, LLaMA",
    )


def _tied(config: Mapping[str, Any], names: set[str], family: Family, where: Path) -> bool:
    tied = config.get("tie_word_embeddings", family == "bitnet")
    if not isinstance(tied, bool):
        raise CheckpointError(f"{where}: tie_word_embeddings is {tied!r}, must be true or false")
    return tied


class _Naturals:
    """Natural numbers out of a configuration, bounded so that no later product overflows."""

    def __init__(self, config: Mapping[str, Any], where: Path) -> None:
        self.config, self.where = config, where

    def __call__(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.config.get(key)
        if value is None:
            value = default
        if isinstance(value, list) and value:  # several end tokens: the first one ends a text here
            value = value[0]
        if type(value) is not int or not least <= value < MAX_EXACT:
            raise CheckpointError(f"{self.where}: {key} is {value!r}, must be a whole number of at least {least}")
        return value


def _positive(value: Any, key: str, where: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        raise CheckpointError(f"{where}: {key} is {value!r}, must be a positive number")
    return float(value)


def _check_tensors(folder: Path, architecture: Architecture, tensors: Mapping[str, TensorInfo]) -> None:
    wanted = dict(architecture.tensors())
    for name, shape in wanted.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"{folder}: tensor '{name}' is missing")
        if tensor.dtype not in FLOAT_DTYPES:
            raise CheckpointError(
                f"{tensor.file}: tensor '{name}' is {tensor.dtype}, must be one of {', '.join(FLOAT_DTYPES)}"
            )
        if tensor.shape != shape:
            raise CheckpointError(
                f"{tensor.file}: tensor '{name}' is {list(tensor.shape)}, {CONFIG} makes it {list(shape)}"
            )
    surplus = sorted(set(tensors) - set(wanted) - ({HEAD} if architecture.tied else set()))
    if surplus:
        raise CheckpointError(
            f"{tensors[surplus[0]].file}: tensor '{surplus[0]}' has no place in this architecture"
            f" ({len(surplus)} such tensors)"
        )


def check_tokenizer(path: Path, architecture: Architecture) -> None:
    """``tokenizer.json`` must parse, and its tokens must be those that the embedding has rows for."""
    from tokenizers import Tokenizer

    if not path.is_file():
        raise CheckpointError(f"{path}: missing")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{path}: not a tokenizer: {error}") from error
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if not largest < architecture.vocab <= largest + _VOCAB_PADDING:
        raise CheckpointError(
            f"{path}: its tokens end at {largest}, but the model has {architecture.vocab} embedding rows",
            hint="is it the tokenizer of another model?",
        )
    for role, token in (("bos", architecture.bos), ("eos", architecture.eos)):
        if tokenizer.id_to_token(token) is None:
            raise CheckpointError(f"{path}: {role} token {token} of {CONFIG} is not in it")


_REVISION = re.compile(r"[0-9a-f]{40}")
HUB_FILES = (CONFIG, TOKENIZER, INDEX, "*.safetensors")
"""What is fetched: nothing that can run code."""


def fetch(
    repository: str, revision: str, cache: Path, *, say: Callable[[str], None] = lambda _: None, timeout_s: float = 60.0
) -> Path:
    """Downloads a checkpoint from the Hugging Face hub into ``cache``, once, and returns its folder.

    ``revision`` is a full commit hash: a branch could be another model tomorrow. A download that broke off goes on
    where it stood. UsageError for another revision, ToolMissing without ``huggingface_hub``, TransferError when the
    hub fails or a file is not what the hub says it is.
    """
    if not _REVISION.fullmatch(revision):
        raise UsageError(f"revision {revision!r} of {repository} is not a full commit hash of 40 hex digits")
    # Written when all is here and checked: later calls need neither network nor library.
    mark = cache / f"{repository.replace('/', '--')}-{revision}.path"
    if mark.is_file() and (kept := cache / mark.read_text(encoding="utf-8")).is_dir():
        return kept
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # its stubs do not list it
    except ImportError as error:
        raise ToolMissing(
            f"{repository}: huggingface_hub, which fetches it, is not installed",
            hint="pip install huggingface_hub, or fetch the files by hand and give their folder as 'path'",
        ) from error
    say(f"fetching {repository} at {revision[:12]} from the Hugging Face hub")
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        found = huggingface_hub.snapshot_download(
            repository,
            revision=revision,
            cache_dir=str(cache),
            allow_patterns=list(HUB_FILES),
            etag_timeout=timeout_s,
        )
        folder = Path(found).resolve()
        _check_blobs(folder)
    except TransferError:
        raise
    except Exception as error:  # the library's errors span several trees (its own, of its HTTP client, OSError)
        raise TransferError(
            f"{repository} at {revision}: {error}", hint="what has arrived is kept; run the same command again"
        ) from error
    files.write_text(mark, folder.relative_to(cache.resolve()).as_posix())
    return folder


def _check_blobs(folder: Path) -> None:
    """The cache names a file's content by the hub's hash of it: SHA-256 of a large file, git's SHA-1 of a small one."""
    for path in sorted(p for p in folder.iterdir() if p.is_symlink()):
        content = path.resolve()
        if re.fullmatch("[0-9a-f]{64}", content.name):
            digest = files.sha256_file(content)
        elif not _REVISION.fullmatch(content.name):
            continue  # a server of another kind, which says nothing of the content
        else:
            data = content.read_bytes()
            digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if digest != content.name:
            content.unlink()
            path.unlink()
            raise TransferError(
                f"{path.name}: its hash is {digest}, the hub says {content.name}", hint="run the same command again"
            )
