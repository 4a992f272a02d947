"""The jobs of a release, as far as they need no circuits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers

from board_rt import jobs
from board_rt.jobs import TextStream


def llama_like() -> Tokenizer:
    """Words with their space in front, bytes for what it does not know: as the full-size model's tokenizer."""
    words = ["<unk>", "<s>", "▁Once", "▁upon", "▁a", "▁time", ",", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def test_pieces_behind_a_prompt_are_the_whole_text() -> None:
    """With the space between the prompt and the first word, and a character of three tokens in one piece."""
    tokenizer = llama_like()
    number = tokenizer.token_to_id
    prompt, following = [number("▁Once")], [number("▁upon"), *(number(f"<0x{byte:02X}>") for byte in "€".encode())]
    stream = TextStream(tokenizer, prompt)
    pieces = [stream.add(token) for token in following]
    assert pieces == [" upon", "", "", "€"] and stream.end() == ""
    assert tokenizer.decode(prompt) + "".join(pieces) == tokenizer.decode(prompt + following)


def test_half_a_character_at_the_end_is_shown() -> None:
    tokenizer = llama_like()
    stream = TextStream(tokenizer, [tokenizer.token_to_id("▁Once")])
    assert stream.add(tokenizer.token_to_id("<0xE2>")) == ""
    assert stream.end() == "\ufffd"


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_token_takes_the_pass_that_it_is_drawn_from(
    tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token would else be drawn from the prompt's last pass in no time, at thousands of tokens a second."""
    tokenizer = llama_like()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Runtime:
        shape = SimpleNamespace(bos=1, eos=0, context=32)
        position = 0

        def forward(self, _: int) -> str:
            now[0] += 0.5
            return "logits"

        def sample(self, *_: object) -> int:
            return int(tokenizer.token_to_id("▁upon"))

        def profile(self) -> dict[str, int]:
            return {}

    @contextlib.contextmanager
    def machine(_: str) -> Iterator[Any]:
        yield SimpleNamespace(runtime=Runtime(), check_circuits=lambda: {}, backend="host")

    sent: list[dict[str, str]] = []
    monkeypatch.setattr("board_rt.machine.Machine", machine)
    monkeypatch.setattr(jobs, "send", sent.append)
    done = jobs.generate({"prompt": "Once", "tokens": tokens})
    assert len(done["ids"]) == tokens and done["decode_s"] == 0.5 * tokens
    assert done["prefill_s"] == 0.5 * done["prompt_tokens"]
    assert "".join(piece["text"] for piece in sent) == " upon" * tokens
