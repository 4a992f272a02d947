"""Checks of one engine at its pins against the golden model; the tests run them, and the mutation campaign too.

A check takes a ``Bench`` and raises MismatchError. Each names in its docstring what would escape the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import MismatchError
from pipelines.golden import formats
from pipelines.golden.float32 import I8
from pipelines.golden.formats import TRIT_CODES, AttentionHeader, MatvecHeader
from pipelines.hardware.bench import FULL_SPEED, Bench, Drive, Outcome
from pipelines.hardware.streams import Group, Head, attention_transfer, matvec_transfer

U64 = npt.NDArray[np.uint64]
Check = Callable[[Bench], None]

GAPS = (
    Drive(valid=200, ready=256, seed=1),
    Drive(valid=256, ready=120, seed=2),
    Drive(valid=90, ready=90, seed=3),
    Drive(valid=128, ready=128, burst=17, seed=4),
    Drive(valid=256, ready=12, seed=5),
    Drive(valid=20, ready=250, seed=6),
)
"""Gaps on either side and on both, single cycles and bursts, a starved input and an almost dead output."""


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise MismatchError(f"{what} is {found}, expected {wanted}")


def expect(outcome: Outcome, answers: Sequence[U64], what: str) -> None:
    """All result words of all transfers, TLAST on the last of each and nowhere else, and honest event outputs."""
    wanted = np.concatenate(answers) if answers else np.zeros(0, dtype=np.uint64)
    last = np.zeros(wanted.size, dtype=np.bool_)
    if answers:
        last[np.cumsum([answer.size for answer in answers]) - 1] = True
    _same(f"{what}: errors", outcome.errors, ())
    _same(f"{what}: result words", outcome.words.size, wanted.size)
    wrong = np.flatnonzero(outcome.words != wanted)
    if wrong.size:
        at = int(wrong[0])
        raise MismatchError(
            f"{what}: {wrong.size} of {wanted.size} result words differ, the first at {at}: "
            f"{int(outcome.words[at]):#018x}, expected {int(wanted[at]):#018x}"
        )
    _same(f"{what}: TLAST at", np.flatnonzero(outcome.last).tolist(), np.flatnonzero(last).tolist())
    _same(f"{what}: transfers counted", outcome.counts["transfers"], len(answers))
    _honest(outcome, what)


def _honest(outcome: Outcome, what: str) -> None:
    _same(f"{what}: output beats that changed while waiting", outcome.counts["violations"], 0)
    _same(f"{what}: output beats too many", outcome.counts["overrun"], 0)
    _same(f"{what}: words in, as counted", outcome.counts["event_in"], outcome.counts["words_in"])
    _same(f"{what}: words out, as counted", outcome.counts["event_out"], outcome.counts["words_out"])


def expect_error(outcome: Outcome, stream: U64, answer: U64, error: str, word: int, what: str) -> None:
    """The named error at the word, all input swallowed, only words of the right answer sent, and no end of a packet."""
    _same(f"{what}: errors", outcome.errors, (error,))
    _same(f"{what}: error word", outcome.error_word, word)
    _same(f"{what}: words swallowed", outcome.counts["words_in"], stream.size)
    if outcome.last.any():
        raise MismatchError(f"{what}: a packet was completed")
    if outcome.words.size >= max(1, answer.size) or (outcome.words != answer[: outcome.words.size]).any():
        raise MismatchError(f"{what}: {outcome.words.size} words came out that are not a part of the right answer")
    _honest(outcome, what)


@dataclass(frozen=True)
class AttentionBuild:
    """Parameters of the engine that a bench holds."""

    head_dim: int = formats.HEAD_DIM
    positions: int = formats.MAX_CONTEXT_BOARD

    @property
    def bits(self) -> int:
        return formats.probability_bits(self.positions)


# ---------------------------------------------------------------- matrix engine


def random_group(random: np.random.Generator, rows: int, length: int, load: bool = True) -> Group:
    codes = random.integers(-1, 2, (rows, length)).astype(np.int8)
    return Group(codes, random.integers(-128, 128, length).astype(np.int8) if load else None)


def random_groups(random: np.random.Generator, count: int, rows: int = 12, length: int = 300) -> list[Group]:
    """Groups of random shapes up to these; about a third keeps x, and is then at most as long as it."""
    groups: list[Group] = []
    held = 0
    for _ in range(count):
        load = not groups or random.random() < 0.66
        n = int(random.integers(1, length + 1)) if load else int(random.integers(1, held + 1))
        held = n if load else held
        groups.append(random_group(random, int(random.integers(1, rows + 1)), n, load))
    return groups


def matvec_codes(bench: Bench) -> None:
    """Every one of the 243 codes in every byte of a word, with an x that tells all 40 places apart."""
    random = np.random.default_rng(243)
    codes = np.array([[(code + 31 * byte) % TRIT_CODES for byte in range(8)] for code in range(TRIT_CODES)])
    trits = np.array([[code // 3**i % 3 - 1 for i in range(5)] for code in range(TRIT_CODES)], dtype=np.int8)
    rows: I8 = trits[codes].reshape(TRIT_CODES, 40)
    for _ in range(4):
        stream, answer = matvec_transfer([Group(rows, random.integers(-128, 128, 40).astype(np.int8))])
        expect(bench.run([stream]), [answer], "all codes")


def matvec_lanes(bench: Bench) -> None:
    """One non-zero trit at a time, both signs, in every place of two words: a lane that is lost or doubled."""
    for value in (-128, -1, 1, 127):
        x = np.full(80, value, dtype=np.int8)
        rows = np.concatenate([np.eye(80, dtype=np.int8), -np.eye(80, dtype=np.int8)])
        stream, answer = matvec_transfer([Group(rows, x)])
        expect(bench.run([stream]), [answer], f"single trits, x = {value}")


def matvec_extremes(bench: Bench) -> None:
    """The largest sums there are, of both signs, at the longest row, and results that need every bit between."""
    for x_value, trit in ((-128, 1), (-128, -1), (127, 1), (127, -1), (0, -1)):
        x = np.full(4096, x_value, dtype=np.int8)
        stream, answer = matvec_transfer([Group(np.full((3, 4096), trit, dtype=np.int8), x)])
        expect(bench.run([stream]), [answer], f"x = {x_value}, trits = {trit}")
    random = np.random.default_rng(4096)
    x = random.integers(-128, 128, 4096).astype(np.int8)
    aligned = np.where(x >= 0, 1, -1).astype(np.int8)
    rows = np.stack([aligned, -aligned, np.zeros(4096, dtype=np.int8)])
    stream, answer = matvec_transfer([Group(rows, x)])
    expect(bench.run([stream]), [answer], "trits with the sign of x")


BOUNDARY_LENGTHS = (1, 7, 8, 9, 39, 40, 41, 79, 80, 81, 320, 2049, 4095, 4096)


def matvec_shapes(bench: Bench, lengths: Sequence[int] = BOUNDARY_LENGTHS) -> None:
    """Row lengths around every boundary: word of x, word of a row, bank, the longest."""
    random = np.random.default_rng(len(lengths))
    groups = [random_group(random, 1 + n % 3, n) for n in lengths]
    transfers = [matvec_transfer(groups[i : i + 64]) for i in range(0, len(groups), 64)]
    expect(bench.run([s for s, _ in transfers]), [a for _, a in transfers], "row lengths")


def matvec_rows(bench: Bench) -> None:
    """More rows than 16 bits count, with every bit of the count both set and clear on the way down."""
    random = np.random.default_rng(17)
    for rows in (0x15555, 0x2AAAA):
        stream, answer = matvec_transfer([random_group(random, rows, 5)])
        expect(bench.run([stream]), [answer], f"{rows} rows")


def matvec_gaps(bench: Bench) -> None:
    """Several transfers of many groups, with x loaded and kept across them, under every kind of gap."""
    random = np.random.default_rng(7)
    for drive in (FULL_SPEED, *GAPS):
        streams, answers, x = [], [], None
        for _ in range(4):
            groups = random_groups(random, 6)
            stream, answer = matvec_transfer(groups, x)
            x = next(group.x for group in reversed(groups) if group.x is not None)
            streams.append(stream)
            answers.append(answer)
        outcome = bench.run(streams, drive)
        expect(outcome, answers, f"{drive}")
        if drive is FULL_SPEED:
            stalls = {name: outcome.counts[name] for name in ("stall_in", "stall_out", "stall_turn")}
            _same("stalls at full speed", stalls, {"stall_in": 0, "stall_out": 0, "stall_turn": 0})


def matvec_pressure(bench: Bench) -> None:
    """A result every cycle into an output that hardly moves: credits, the FIFO, and the count of the stalls."""
    random = np.random.default_rng(8)
    for rows in (63, 64, 65, 66, 67, 200, 201):
        stream, answer = matvec_transfer([random_group(random, rows, 40)])
        for drive in (Drive(ready=3, seed=rows), Drive(ready=100, burst=90, seed=rows)):
            outcome = bench.run([stream, stream], drive)
            expect(outcome, [answer, answer], f"{rows} rows, {drive}")
            if rows >= 200 and not outcome.counts["stall_out"]:
                raise MismatchError("an output that hardly moves was not counted as a stall")
            _same("stalls without an input gap", outcome.counts["stall_in"] + outcome.counts["stall_turn"], 0)


def matvec_stall_in(bench: Bench) -> None:
    """Idle cycles count inside a transfer only, and only while nothing else is in the way."""
    random = np.random.default_rng(9)
    stream, answer = matvec_transfer(random_groups(random, 3))
    outcome = bench.run([stream], Drive(valid=128, seed=9))
    expect(outcome, [answer], "gaps in the input")
    # Up to TLAST a cycle either takes a word or is idle; the output never stops this run.
    idle = outcome.counts["stall_in"]
    if not stream.size // 2 < idle < 2 * stream.size:
        raise MismatchError(f"{idle} idle cycles were counted for {stream.size} words at one in two")
    _same("other stalls", outcome.counts["stall_out"] + outcome.counts["stall_turn"], 0)


def matvec_throughput(bench: Bench) -> None:
    """A layer's four groups back to back: at least 0.999 words a cycle, headers and x included."""
    random = np.random.default_rng(10)
    hidden, ffn = 1536, 4096
    shapes = ((3 * hidden // 8, hidden), (hidden // 8, hidden), (2 * ffn // 8, hidden), (hidden // 8, ffn))
    stream, answer = matvec_transfer([random_group(random, rows, n) for rows, n in shapes])
    outcome = bench.run([stream])
    expect(outcome, [answer], "a layer")
    # Until the last result is out: the pipeline's length is in it.
    rate = stream.size / outcome.counts["cycles"]
    if rate < 0.999:
        raise MismatchError(f"{rate:.4f} words a cycle")


def _matvec_faults() -> list[tuple[str, U64, U64, str, int]]:
    """(name, stream, the good stream's answer, error, word)."""
    random = np.random.default_rng(11)
    good = [random_group(random, 5, 100), random_group(random, 3, 90, load=False)]
    stream, answer = matvec_transfer(good)
    second = 1 + 13 + 5 * 3  # header of the second group
    faults = []

    def fault(name: str, word: int, value: int, error: str) -> None:
        wrong = stream.copy()
        wrong[word] = value
        faults.append((name, wrong, answer, error, word))

    header = int(stream[second])
    for bit in range(64):
        error = (
            "bad_magic" if bit < 8 else "bad_version" if bit < 12 else "bad_check"
        )  # a single flipped bit always shows in the check byte, if not before
        fault(f"header bit {bit}", second, header ^ 1 << bit, error)

    def checked(word: int) -> int:
        return formats._with_check(word & (1 << 56) - 1)

    fault("several x", second, checked(header | 1 << 13), "bad_field")
    fault("eight x", second, checked(header | 4 << 13), "bad_field")
    fault("no rows", second, checked(header & ~(0xFFFFFF << 32)), "bad_field")
    fault("no trits", second, checked(header & ~(0xFFFF << 16)), "bad_field")
    fault("4097 trits", second, checked(header & ~(0xFFFF << 16) | 4097 << 16), "bad_field")
    fault("65535 trits", second, checked(header | 0xFFFF << 16), "bad_field")
    fault("x too short", second, checked(header & ~(0xFFFF << 16) | 101 << 16), "x_missing")
    fault("all wrong", second, 0, "bad_magic")
    fault("version and check", second, header ^ 1 << 9 ^ 1 << 60, "bad_version")
    fault("check and field", second, header ^ 1 << 14, "bad_check")
    for code in range(TRIT_CODES, 256):
        for byte in (0, code % 8):
            word = 14 + (code + byte) % 15
            value = int(stream[word]) & ~(0xFF << 8 * byte) | code << 8 * byte
            fault(f"code {code} in byte {byte}", word, value, "illegal_code")
    first = stream.copy()
    first[0] = MatvecHeader(5, 100, load_x=False).encode()
    faults.append(("no x at all", first, answer, "x_missing", 0))
    return faults


def matvec_errors(bench: Bench) -> None:
    """Each error by its name and word, nothing after it, and a clean start after reset."""
    for name, stream, answer, error, word in _matvec_faults():
        for drive in (FULL_SPEED, GAPS[2]):
            expect_error(bench.run([stream], drive), stream, answer, error, word, name)
    random = np.random.default_rng(12)
    groups = [random_group(random, 4, 100), random_group(random, 4, 90, load=False)]
    stream, answer = matvec_transfer(groups)
    for word in range(stream.size - 1):  # TLAST too early: in a header, in x, in a row, at a row's end, between groups
        last = np.zeros(stream.size, dtype=np.bool_)
        last[[word, -1]] = True
        outcome = bench.run([stream], last=last)
        if word == 1 + 13 + 4 * 3 - 1:  # the end of a group is a legal end; the next one starts with a header
            half, rest = matvec_transfer(groups[:1])[1], matvec_transfer(groups[1:], groups[0].x)[1]
            expect(outcome, [half, rest], "TLAST between groups")
        else:
            expect_error_tlast(outcome, stream, answer, word)
    # An error keeps what it was, whatever comes after it; reset takes it away, and x with it.
    wrong = stream.copy()
    wrong[0] ^= np.uint64(1)
    expect_error(bench.run([wrong, stream]), np.concatenate([wrong, stream]), answer, "bad_magic", 0, "twice")
    expect(bench.run([stream]), [answer], "after reset")
    kept = matvec_transfer(groups[1:], groups[0].x)[0]
    expect_error(bench.run([kept]), kept, answer, "x_missing", 0, "x after reset")


def expect_error_tlast(outcome: Outcome, stream: U64, answer: U64, word: int) -> None:
    """``early_tlast`` at the word; results before it may have gone."""
    what = f"TLAST at word {word}"
    _same(f"{what}: errors", outcome.errors, ("early_tlast",))
    _same(f"{what}: error word", outcome.error_word, word)
    _same(f"{what}: words swallowed", outcome.counts["words_in"], stream.size)
    if outcome.last.any() or (outcome.words != answer[: outcome.words.size]).any():
        raise MismatchError(f"{what}: something came out that must not")
    _honest(outcome, what)


def _started(bench: Bench, header: int, words: int, what: str) -> None:
    """A right header and some words behind it: no error, no answer yet."""
    stream = np.full(1 + words, 0x7979_7979_7979_7979, dtype=np.uint64)
    stream[0] = header
    outcome = bench.run([stream], last=np.zeros(stream.size, dtype=np.bool_))
    _same(f"{what}: errors", outcome.errors, ())
    _same(f"{what}: words taken", outcome.counts["words_in"], stream.size)


def _refused(bench: Bench, header: int, flipped: int, what: str) -> None:
    """The header with these bits flipped: an error, whichever comes first."""
    outcome = bench.run([np.array([header ^ flipped], dtype=np.uint64)], last=np.zeros(1, dtype=np.bool_))
    if len(outcome.errors) != 1 or outcome.error_word != 0:
        raise MismatchError(f"{what}: errors {outcome.errors} at word {outcome.error_word}")


def matvec_headers(bench: Bench) -> None:
    """Headers of all sizes are taken, and refused with any bit flipped: the check byte over every bit of the header."""
    random = np.random.default_rng(16)
    for _ in range(150):
        header = MatvecHeader(
            int(random.integers(1, formats.MAX_ROWS + 1)), int(random.integers(1, 4097)), load_x=True
        ).encode()
        _started(bench, header, 3, f"header {header:#018x}")
        _refused(bench, header, 1 << int(random.integers(64)), f"header {header:#018x}")


def attention_headers(bench: Bench, build: AttentionBuild) -> None:
    """Headers of all T and m are taken, and refused with any bit flipped."""
    random = np.random.default_rng(28)
    for _ in range(150):
        header = AttentionHeader(
            int(random.integers(1, build.positions + 1)), int(random.integers(0, formats.M_MAX + 1)), build.head_dim
        ).encode()
        _started(bench, header, 3, f"header {header:#018x}")
        _refused(bench, header, 1 << int(random.integers(64)), f"header {header:#018x}")


def matvec_error_sends_earlier_rows(bench: Bench) -> None:
    """Rows finished before the error go out in whole beats; the row with the error and all after it do not."""
    random = np.random.default_rng(13)
    stream, answer = matvec_transfer([random_group(random, 40, 80)])
    for row in (0, 1, 2, 3, 20, 39):
        wrong = stream.copy()
        word = 11 + 2 * row + 1
        wrong[word] = np.uint64(255)
        outcome = bench.run([wrong])
        expect_error(outcome, wrong, answer, "illegal_code", word, f"row {row}")
        _same(f"row {row}: beats before the error", outcome.words.size, row // 2)


def matvec_transfers_independent(bench: Bench) -> None:
    """A transfer before the wrong one is answered in full; the word's index counts from its own transfer."""
    random = np.random.default_rng(14)
    stream, answer = matvec_transfer([random_group(random, 5, 60)])
    wrong = stream.copy()
    wrong[9] = np.uint64(0xFF)
    outcome = bench.run([stream, stream, wrong])
    _same("errors", outcome.errors, ("illegal_code",))
    _same("error word", outcome.error_word, 9)
    if outcome.words.size < 2 * answer.size or (outcome.words[: 2 * answer.size] != np.tile(answer, 2)).any():
        raise MismatchError("transfers before a wrong one were not answered")
    _same("packets completed", int(outcome.last.sum()), 2)


def matvec_abort(bench: Bench) -> None:
    """Broken off anywhere, reset, and run again: nothing of the first run is left."""
    random = np.random.default_rng(15)
    stream, answer = matvec_transfer([random_group(random, 9, 100), random_group(random, 7, 41)])
    for cut in range(1, stream.size, 3):
        bench.run([stream], Drive(ready=64, seed=cut), stop_after=cut)
        expect(bench.run([stream]), [answer], f"after a run of {cut} words")


# ---------------------------------------------------------------- attention engine


def random_head(random: np.random.Generator, build: AttentionBuild, positions: int, m: int | None = None) -> Head:
    """Scores spread so that both large and vanishing probabilities occur."""
    d = build.head_dim
    return Head(
        random.integers(-128, 128, d).astype(np.int8),
        random.integers(-128, 128, (positions, d)).astype(np.int8),
        random.integers(-128, 128, (positions, d)).astype(np.int8),
        int(random.choice([0, 1, 700, 9_000, 30_000, 79_505, 131_071])) if m is None else m,
    )


def attention_lengths(bench: Bench, build: AttentionBuild) -> None:
    """All small T, in one transfer and one by one: the turn from K to V, and results longer than the head."""
    random = np.random.default_rng(20)
    heads = [random_head(random, build, t) for t in (*range(1, 20), 1, 1, 2, 33, 1)]
    stream, answer = attention_transfer(heads, build.bits)
    expect(bench.run([stream]), [answer], "heads of all small T in one transfer")
    # Odd and even, each bit of the count of rows set and clear: a borrow that goes astray on the way down.
    counts = (66, 100, 127, 170, 256, 257, 341, 384, 448, 682, 1023, 1025, 1365, 1536, 2047)
    for t in (t for t in counts if t <= build.positions):
        stream, answer = attention_transfer([random_head(random, build, t)], build.bits)
        expect(bench.run([stream]), [answer], f"T = {t}")
    single = [attention_transfer([head], build.bits) for head in heads]
    expect(bench.run([s for s, _ in single]), [a for _, a in single], "one head a transfer")


def attention_longest(bench: Bench, build: AttentionBuild) -> None:
    """The largest T, whose sums are the largest: all probabilities at their top, all V at -128 and at 127."""
    random = np.random.default_rng(21)
    t, d = build.positions, build.head_dim
    zero = np.zeros(d, dtype=np.int8)
    keys = random.integers(-128, 128, (t, d)).astype(np.int8)
    heads = [
        Head(zero, keys, np.full((t, d), -128, dtype=np.int8), 131_071),
        Head(zero, keys, np.full((t, d), 127, dtype=np.int8), 131_071),
        random_head(random, build, t, 20_000),
        random_head(random, build, t - 1, 300),
    ]
    stream, answer = attention_transfer(heads, build.bits)
    outcome = bench.run([stream])
    expect(outcome, [answer], "largest T")
    rate = stream.size / outcome.counts["cycles"]
    if build.head_dim == formats.HEAD_DIM and rate < 0.97:
        raise MismatchError(f"{rate:.4f} of the port's width at T = {t}")


def attention_extremes(bench: Bench, build: AttentionBuild) -> None:
    """The largest scores of both signs, with the largest m: every width of the score's path."""
    d = build.head_dim
    low, high = np.full(d, -128, dtype=np.int8), np.full(d, 127, dtype=np.int8)
    random = np.random.default_rng(22)
    heads = []
    for q in (low, high):
        for m in (131_071, 65_536, 1, 0):
            keys = np.stack([low, high, low, np.zeros(d, dtype=np.int8), high])
            heads.append(Head(q, keys, random.integers(-128, 128, (5, d)).astype(np.int8), m))
    # One lane at a time: a product that is lost or counted twice.
    for lane in range(d):
        q = np.zeros(d, dtype=np.int8)
        q[lane] = -128
        keys = np.zeros((4, d), dtype=np.int8)
        keys[1, lane], keys[2, lane], keys[3] = -128, -127, 127
        values = np.zeros((4, d), dtype=np.int8)
        values[:, lane] = (1, -128, 127, -1)
        heads.append(Head(q, keys, values, 131_071))
    stream, answer = attention_transfer(heads, build.bits)
    expect(bench.run([stream]), [answer], "extreme scores")


def attention_table(bench: Bench, build: AttentionBuild) -> None:
    """Every entry of the exponential table and the first distances beyond it, at falling and rising scores."""
    d = build.head_dim
    most = min(build.positions, 300)
    # q.k = 128 * step with m = 131071 makes z fall by one a step, as near as the floor allows.
    q = np.full(d, 64, dtype=np.int8)
    sums = -2 * np.arange(most)
    keys = np.zeros((most, d), dtype=np.int8)
    for lane in range(d):
        keys[:, lane] = (sums + lane) // d if d > 1 else sums
    values = np.random.default_rng(23).integers(-128, 128, (most, d)).astype(np.int8)
    heads = [Head(q, keys, values, 131_071), Head(q, keys[::-1].copy(), values, 131_071)]
    z = (keys.astype(np.int64) @ q.astype(np.int64)) * 131_071 >> formats.SCORE_SHIFT
    distances = set((z.max() - z).tolist())
    if build.positions >= 300 and not set(range(260)) <= distances:
        raise MismatchError("the check does not reach every entry of the table")
    stream, answer = attention_transfer(heads, build.bits)
    expect(bench.run([stream]), [answer], "the whole table")


def attention_gaps(bench: Bench, build: AttentionBuild) -> None:
    """Heads of many lengths under every kind of gap, over several transfers."""
    random = np.random.default_rng(24)
    for drive in (FULL_SPEED, *GAPS):
        transfers = [
            attention_transfer([random_head(random, build, int(random.integers(1, 12))) for _ in range(3)], build.bits)
            for _ in range(4)
        ]
        expect(bench.run([s for s, _ in transfers], drive), [a for _, a in transfers], f"{drive}")


def attention_stalls(bench: Bench, build: AttentionBuild) -> None:
    """What is counted as which stall: none at large T, the output's at T = 1, the input's in gaps."""
    random = np.random.default_rng(25)
    if build.head_dim == formats.HEAD_DIM:
        stream, answer = attention_transfer([random_head(random, build, 8) for _ in range(4)], build.bits)
        outcome = bench.run([stream])
        expect(outcome, [answer], "T = 8")
        _same("stalls at T = 8", [outcome.counts[n] for n in ("stall_in", "stall_out", "stall_turn")], [0, 0, 0])
        stream, answer = attention_transfer([random_head(random, build, 1) for _ in range(4)], build.bits)
        outcome = bench.run([stream])
        expect(outcome, [answer], "T = 1")
        # 49 result beats a head and 16 cycles from the last V word to the first of them, against 37 words in.
        _same("stalls at T = 1", [outcome.counts[n] for n in ("stall_in", "stall_out", "stall_turn")], [0, 114, 0])
    else:
        stream, answer = attention_transfer([random_head(random, build, 1) for _ in range(4)], build.bits)
        outcome = bench.run([stream])
        expect(outcome, [answer], "T = 1")
        if not outcome.counts["stall_turn"] or not outcome.counts["stall_out"]:
            raise MismatchError("short rows must wait for scores and for results")
        stream, answer = attention_transfer([random_head(random, build, 20)], build.bits)
        outcome = bench.run([stream])
        expect(outcome, [answer], "one head")
        # There is no other head to wait for, and its own turn from K to V costs nothing.
        _same("stalls of one head", [outcome.counts[n] for n in ("stall_in", "stall_out", "stall_turn")], [0, 0, 0])
    stream, answer = attention_transfer([random_head(random, build, 20)], build.bits)
    outcome = bench.run([stream], Drive(valid=128, seed=25))
    expect(outcome, [answer], "gaps in the input")
    idle = outcome.counts["stall_in"]
    if not stream.size // 2 < idle < 2 * stream.size:
        raise MismatchError(f"{idle} idle cycles were counted for {stream.size} words at one in two")


def attention_errors(bench: Bench, build: AttentionBuild) -> None:
    """Each error by its name and word; heads before it are answered, its own is not; a clean start after reset."""
    random = np.random.default_rng(26)
    heads = [random_head(random, build, 3), random_head(random, build, 2)]
    stream, answer = attention_transfer(heads, build.bits)
    before = attention_transfer(heads[:1], build.bits)[1]
    second = heads[0].words().size
    header = int(stream[second])
    wrong: list[tuple[str, int, str]] = []
    for bit in range(64):
        name = "bad_magic" if bit < 8 else "bad_version" if bit < 12 else "bad_check"
        wrong.append((f"header bit {bit}", header ^ 1 << bit, name))

    def checked(word: int) -> int:
        return formats._with_check(word & (1 << 56) - 1)

    for bit in (12, 13, 14, 15, 49):
        wrong.append((f"reserved bit {bit}", checked(header ^ 1 << bit), "bad_field"))
    for bit in range(50, 56):
        wrong.append((f"head_dim bit {bit}", checked(header ^ 1 << bit), "bad_field"))
    for t in (0, build.positions + 1, 0xFFFF, 0x8000 | 2, 0x1000):
        wrong.append((f"T = {t}", checked(header & ~(0xFFFF << 16) | t << 16), "bad_field"))
    wrong.append(("all wrong", 0, "bad_magic"))
    wrong.append(("version and check", header ^ 1 << 9 ^ 1 << 60, "bad_version"))
    wrong.append(("check and field", header ^ 1 << 13, "bad_check"))
    for name, value, error in wrong:
        bad = stream.copy()
        bad[second] = value
        outcome = bench.run([bad])
        expect_error(outcome, bad, answer, error, second, name)
        _same(f"{name}: words of the head before", outcome.words.size, before.size)
    for word in range(stream.size - 1):
        last = np.zeros(stream.size, dtype=np.bool_)
        last[[word, -1]] = True
        outcome = bench.run([stream], last=last)
        if word == second - 1:
            expect(outcome, [before, attention_transfer(heads[1:], build.bits)[1]], "TLAST between heads")
        else:
            expect_error_tlast(outcome, stream, answer, word)
            done = before.size if word >= second else 0
            _same(f"TLAST at word {word}: words of heads before", outcome.words.size, done)
    bad = stream.copy()
    bad[0] ^= np.uint64(1)
    expect_error(bench.run([bad, stream]), np.concatenate([bad, stream]), answer, "bad_magic", 0, "twice")
    # The index of the word counts from the start of its own transfer.
    bad = stream.copy()
    bad[second] ^= np.uint64(1)
    outcome = bench.run([stream, stream, bad])
    _same("errors in the third transfer", (outcome.errors, outcome.error_word), (("bad_magic",), second))
    expect(bench.run([stream]), [answer], "after reset")


def attention_index(bench: Bench, build: AttentionBuild) -> None:
    """An error far into a transfer, behind more words than 21 bits count."""
    if build.head_dim != formats.HEAD_DIM:
        head = random_head(np.random.default_rng(29), build, build.positions)
        words = head.words()
        count = (1 << 21) // words.size + 1
        bad = words.copy()
        bad[0] ^= np.uint64(1)
        outcome = bench.run([np.concatenate([np.tile(words, count), bad])])
        _same("error far in", (outcome.errors, outcome.error_word), (("bad_magic",), count * words.size))
        _same("words of the heads before", outcome.words.size, count * (build.head_dim // 2 + 1))


def attention_abort(bench: Bench, build: AttentionBuild) -> None:
    """Broken off anywhere, reset, and run again: nothing of the first run is left."""
    random = np.random.default_rng(27)
    stream, answer = attention_transfer([random_head(random, build, 3), random_head(random, build, 2)], build.bits)
    for cut in range(1, stream.size, 3):
        bench.run([stream], Drive(ready=64, seed=cut), stop_after=cut)
        expect(bench.run([stream]), [answer], f"after a run of {cut} words")


MATVEC_CHECKS: dict[str, Check] = {
    "codes": matvec_codes,
    "lanes": matvec_lanes,
    "extremes": matvec_extremes,
    "shapes": matvec_shapes,
    "rows": matvec_rows,
    "gaps": matvec_gaps,
    "pressure": matvec_pressure,
    "stall_in": matvec_stall_in,
    "throughput": matvec_throughput,
    "headers": matvec_headers,
    "errors": matvec_errors,
    "earlier_rows": matvec_error_sends_earlier_rows,
    "independent": matvec_transfers_independent,
    "abort": matvec_abort,
}

ATTENTION_CHECKS: dict[str, Callable[[Bench, AttentionBuild], None]] = {
    "lengths": attention_lengths,
    "longest": attention_longest,
    "extremes": attention_extremes,
    "table": attention_table,
    "gaps": attention_gaps,
    "stalls": attention_stalls,
    "headers": attention_headers,
    "errors": attention_errors,
    "abort": attention_abort,
    "index": attention_index,
}


def checks_of(engine: str, build: AttentionBuild | None = None) -> dict[str, Check]:
    """All checks of an engine ("matvec" or "attention"), each taking the bench alone."""
    if engine == "matvec":
        return dict(MATVEC_CHECKS)
    chosen = build or AttentionBuild()

    def bound(check: Callable[[Bench, AttentionBuild], None]) -> Check:
        return lambda bench: check(bench, chosen)

    return {name: bound(check) for name, check in ATTENTION_CHECKS.items()}
