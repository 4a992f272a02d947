"""Trains ``tiny`` (and its fp32 twin) on one or two CPU cores.

Recipe: Muon on the matrices, AdamW on embedding and norms; 60 steps of warm-up, a plateau, linear decay to
zero. Every quantity that is random comes from one seed; the order of windows is a function of (seed, epoch),
so a run that was interrupted goes on from its last state exactly as if it had not been.
"""

# torch is not installed where the product is checked, so its decorators have no types there.
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional

from pipelines.base import files
from pipelines.model.bigram import BigramTable
from pipelines.model.tiny import vocabulary
from pipelines.model.tiny.corpus import Corpus
from pipelines.model.tiny.network import Network, Shape
from pipelines.model.tiny.recipe import Settings


def windows(stream: NDArray[np.int32], begin: int, window: int, seed: int, epoch: int) -> NDArray[np.int32]:
    """The windows of one epoch, int32 [n, window + 1], each ``<s>`` and ``window`` tokens of the stream.

    The stream is cut at a new random offset each epoch and the windows come in random order.
    """
    order = np.random.default_rng([seed, epoch])
    offset = int(order.integers(window))
    count = (len(stream) - offset) // window
    body = stream[offset : offset + count * window].reshape(count, window)
    return np.concatenate([np.full((count, 1), begin, np.int32), body], axis=1)[order.permutation(count)]


def encode(tokenizer: Tokenizer, texts: list[str]) -> NDArray[np.int32]:
    return np.concatenate([np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32) for text in texts])


def loss(network: Network, ids: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats a token."""
    hidden, head = network.hidden(ids[:, :-1]), network.embedding
    if network.ternary:  # as with the ternary products: a bfloat16 product is accurate enough to learn from
        logits = (hidden.to(torch.bfloat16) @ head.to(torch.bfloat16).T).float()
    else:
        logits = functional.linear(hidden, head)
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


class Run:
    """One training run in a folder: ``state.pt`` to go on from, ``model/`` the usable checkpoint, ``curve.json``."""

    def __init__(self, settings: Settings, corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
        self.settings, self.tokenizer, self.folder = settings, tokenizer, folder
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self.network = Network(
            Shape(),
            ternary=settings.ternary,
            dropout=settings.dropout,
            generator=torch.Generator().manual_seed(settings.seed),
        )
        matrices = [p for p in self.network.layers.parameters() if p.dim() == 2]
        vectors = [self.network.embedding] + [p for p in self.network.parameters() if p.dim() == 1]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (
                torch.optim.Muon(matrices, lr=0.0, weight_decay=settings.matrix_decay, momentum=0.95),
                settings.matrix_rate,
            ),
            (
                torch.optim.AdamW(vectors, lr=0.0, weight_decay=settings.vector_decay, betas=(0.9, 0.95)),
                settings.vector_rate,
            ),
        ]
        self.stream = encode(tokenizer, corpus.training)
        # The run is watched on the calibration chapter: the evaluation text is looked at once, at the end.
        self.watched = encode(tokenizer, [corpus.calibration])
        self.begin: int = tokenizer.encode("").ids[0]  # <s>
        self.step = 0
        self.curve: list[dict[str, float]] = []
        self.state = folder / "state.pt"
        folder.mkdir(parents=True, exist_ok=True)
        if self.state.exists():
            self._restore()

    def _restore(self) -> None:
        saved = torch.load(self.state, weights_only=True)
        self.settings.check_resumed(saved["settings"], saved["step"], self.folder)
        self.network.load_state_dict(saved["network"])
        for (optimizer, _), state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        torch.set_rng_state(saved["random"])
        self.step, self.curve = saved["step"], saved["curve"]

    def _batch(self, step: int) -> torch.Tensor:
        per_epoch = (len(self.stream) - self.settings.window) // self.settings.window // self.settings.batch
        epoch, position = divmod(step, per_epoch)
        if getattr(self, "_epoch", None) != epoch:
            self._epoch = epoch
            self._windows = windows(self.stream, self.begin, self.settings.window, self.settings.seed, epoch)
        chosen = self._windows[position * self.settings.batch : (position + 1) * self.settings.batch]
        return torch.from_numpy(chosen.astype(np.int64))

    @torch.no_grad()
    def perplexity(self, stream: NDArray[np.int32], window: int) -> float:
        """exp of the mean loss over windows that do not overlap, each begun with ``<s>``; the rest is left out."""
        count = len(stream) // window
        ids = np.concatenate(
            [np.full((count, 1), self.begin, np.int64), stream[: count * window].reshape(count, window)], axis=1
        )
        self.network.eval()
        total = sum(float(loss(self.network, torch.from_numpy(part))) * len(part) for part in np.array_split(ids, 4))
        self.network.train()
        return math.exp(total / count)

    def save(self, *, resumable: bool = True) -> None:
        """Writes the checkpoint, the curve and (unless the run is over) the state to go on from."""
        model = self.folder / "model"
        model.mkdir(exist_ok=True)
        half = {name: tensor.to(torch.float16).contiguous() for name, tensor in self.network.checkpoint().items()}
        save_file(half, model / "model.safetensors", metadata={"format": "pt"})
        (model / "config.json").write_text(json.dumps(configuration(self.settings), indent=1) + "\n")
        self.tokenizer.save(str(model / "tokenizer.json"))
        record = {"settings": asdict(self.settings), "curve": self.curve}
        (self.folder / "curve.json").write_text(json.dumps(record, indent=1) + "\n")
        if resumable:
            fresh = self.state.with_suffix(".new")
            torch.save(
                {
                    "settings": asdict(self.settings),
                    "network": self.network.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
                    "random": torch.get_rng_state(),
                    "step": self.step,
                    "curve": self.curve,
                },
                fresh,
            )
            fresh.replace(self.state)

    def train(self, progress: Callable[[dict[str, float]], None]) -> None:
        settings = self.settings
        compiled: Any = torch.compile(loss)
        saved_at = began_at = time.monotonic()
        began_step, running = self.step, 0.0
        while self.step < settings.steps:
            for optimizer, peak in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = peak * settings.rate(self.step)
            value = compiled(self.network, self._batch(self.step))
            value.backward()
            for optimizer, _ in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            running += float(value.detach())
            self.step += 1
            if self.step % settings.validate_every == 0 or self.step == settings.steps:
                elapsed = time.monotonic() - began_at
                tokens = settings.batch * settings.window
                point = {
                    "step": self.step,
                    "tokens": self.step * tokens,
                    "training": math.exp(running / (self.step % settings.validate_every or settings.validate_every)),
                    "watched": self.perplexity(self.watched, settings.window),
                    "tokens_per_s": round((self.step - began_step) * tokens / elapsed, 1),
                }
                running = 0.0
                self.curve.append(point)
                progress(point)
            if time.monotonic() - saved_at > settings.save_every_s:
                self.save()
                saved_at = time.monotonic()
        self.save()


def configuration(settings: Settings) -> dict[str, object]:
    """``config.json`` in the Hugging Face layout."""
    shape = asdict(Shape())
    return {
        "architectures": ["BitnetForCausalLM" if settings.ternary else "LlamaForCausalLM"],
        "model_type": "bitnet" if settings.ternary else "llama",
        **shape,
        "num_key_value_heads": shape["num_attention_heads"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float16",
        **({"weight_bits": 1, "input_bits": 8} if settings.ternary else {}),
    }


def make(
    settings: Settings, corpus: Corpus, folder: Path, progress: Callable[[dict[str, float]], None]
) -> dict[str, float]:
    """The whole of ``models/tiny`` in ``folder``: tokenizer, ternary model, twin, texts and bigram table.

    Returns ``tokens``, ``perplexity`` (evaluation text) and ``watched`` (calibration text) of the ternary model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "tokenizer.json"
    if not saved.exists():  # an interrupted run goes on with the tokens that it began with
        files.write_text(saved, vocabulary.train(corpus.training).to_str(pretty=True))
    tokenizer = Tokenizer.from_file(str(saved))
    run = Run(settings, corpus, tokenizer, folder / "run")
    run.train(progress)
    evaluation = encode(tokenizer, [corpus.evaluation])
    found = {
        "tokens": settings.steps * settings.batch * settings.window,
        "perplexity": run.perplexity(evaluation, settings.window),
        "watched": run.perplexity(run.watched, settings.window),
    }
    twin = Run(replace(settings, ternary=False), corpus, tokenizer, folder / "twin-run")
    twin.train(progress)
    for source, target in ((run.folder, folder), (twin.folder, folder / "twin")):
        for path in (source / "model" / "model.safetensors", source / "model" / "config.json", source / "curve.json"):
            files.write_bytes(target / path.name, path.read_bytes())
    files.write_text(folder / "evaluation.txt", corpus.evaluation)
    files.write_text(folder / "calibration.txt", corpus.calibration)
    table = BigramTable.of([encode(tokenizer, [text]) for text in corpus.training], Shape().vocab_size, run.begin)
    table.save(folder / "bigrams.npz")
    return found
