"""The jobs of a release, as far as they need no circuits."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, normalizers

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
