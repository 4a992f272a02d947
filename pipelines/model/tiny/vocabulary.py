"""The tokenizer of ``tiny``: byte-level BPE of 2048 tokens, trained on the training chapters.

Any text round-trips exactly, because every byte has a token. The pieces that BPE may merge within are
laid out so that no token joins a letter to a quote: a word with the space before it, a run of
punctuation, a run of line breaks. Numbers of the special tokens are those of the reference model.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SIZE = 2048
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"  # tokens 0, 1, 2

# A word may carry an apostrophe and what follows it ("'s", "'ll") as a piece of its own; a quote, a dash and
# other signs are pieces without letters; line breaks stay together.
PIECES = r"'(?:s|t|d|m|ll|re|ve)\b| ?\p{L}+| ?\p{N}| ?[\"']| ?[^\s\p{L}\p{N}\"']+|\n+|\s"


def train(chapters: Iterable[str]) -> Tokenizer:
    """A tokenizer of ``SIZE`` tokens; ``<s>`` is put in front of every text that is encoded."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        chapters,
        trainers.BpeTrainer(
            vocab_size=SIZE,
            special_tokens=[UNKNOWN, BEGIN, END],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return tokenizer
