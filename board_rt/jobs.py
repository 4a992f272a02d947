"""What a release does on a board: smoke, generate, verify. Each is a process; options come in, JSON lines go out.

The first line of stdin is the options. stdin then stays open for as long as somebody wants the result: at its end the
process ends at once, also when the circuits hang and no line of Python would run again.
"""

import json
import os
import sys
import threading

from board_rt.faults import Fault


def send(value):
    """One JSON line to whoever started the job."""
    os.write(1, (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8"))


def run(name):
    """Runs a job in the current folder, which is a release. Returns an exit status."""
    job = JOBS.get(name)
    if job is None:
        send({"fault": Fault("UsageError", "there is no job '{}'".format(name)).as_json()})
        return 2
    stdin = sys.stdin.buffer
    options = json.loads(stdin.readline().decode("utf-8"))

    def watch():
        while os.read(stdin.fileno(), 4096):
            pass
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()
    try:
        send({"result": job(options)})
        return 0
    except Fault as fault:
        send({"fault": fault.as_json()})
        return 1


def smoke(options):
    """Content id, clock, one token, and every word that the circuits returned for it against this CPU's own product."""
    from board_rt.machine import Machine

    folder = os.getcwd()
    with Machine(folder) as machine:
        found = machine.check_circuits()
        token = machine.runtime.shape.bos
        seen = collected(machine.runtime, token)
        complaint = machine.runtime.complaint() if machine.backend == "rtl" else ""
        backend, open_s = machine.backend, machine.runtime.open_s
    if complaint:
        raise Fault("BoardUnfit", "the circuits' DMAs complain: {}".format(complaint))
    with Machine(folder, backend="host") as machine:
        expected = collected(machine.runtime, token)
    words = 0
    for (point, layer), data in expected.items():
        if point.endswith("_acc"):
            words += len(data) // 4
        if seen.get((point, layer)) != data:
            raise Fault(
                "MismatchError",
                "the smoke run's first token differs at '{}', layer {}".format(point, layer),
                "'./inv simulate' says whether it is the circuits",
            )
    return dict(found, backend=backend, circuit_words=words, open_s=round(open_s, 3))


def collected(runtime, token):
    """{(trace point, layer): bytes} of one token."""
    seen = {}

    def report(point, layer, kind, data):
        seen[(point, layer)] = data

    runtime.trace(report)
    runtime.forward(token)
    runtime.trace(None)
    return seen


def generate(options):
    """Text from a prompt, piece by piece as it is computed: events ``{"text": …}``.

    ``prefill_s`` is the whole prompt's time, to the first token. ``decode_s`` is the time of the passes that the tokens
    were drawn from, one each: the prompt's last one is among both.
    """
    import time

    from tokenizers import Tokenizer

    from board_rt.machine import Machine
    from board_rt.runtime import Sampler

    tokenizer = Tokenizer.from_file("tokenizer.json")
    sampler = Sampler(
        temperature=options.get("temperature", 0.0),
        top_k=options.get("top_k", 0),
        top_p=options.get("top_p", 1.0),
        repetition_penalty=options.get("repetition_penalty", 1.0),
        seed=options.get("seed", 0),
    )
    with Machine(os.getcwd()) as machine:
        machine.check_circuits()
        runtime = machine.runtime
        said = [runtime.shape.bos, *tokenizer.encode(options["prompt"], add_special_tokens=False).ids]
        if len(said) > runtime.shape.context:
            raise Fault(
                "UsageError",
                "the prompt has {} tokens, the context is {}".format(len(said), runtime.shape.context),
                "give a shorter prompt",
            )
        prompt_tokens = len(said)
        began = time.monotonic()
        for token in said[:-1]:
            runtime.forward(token)
        started = time.monotonic()
        logits = runtime.forward(said[-1])
        prefill_s = time.monotonic() - began
        stream = TextStream(tokenizer, said)
        while len(said) - prompt_tokens < options["tokens"]:
            token = runtime.sample(logits, sampler, said)
            said.append(token)
            if token == runtime.shape.eos:
                break
            piece = stream.add(token)
            if piece:
                send({"text": piece})
            if runtime.position >= runtime.shape.context:
                break
            if len(said) - prompt_tokens < options["tokens"]:
                logits = runtime.forward(token)
        rest = stream.end()
        if rest:
            send({"text": rest})
        decode_s = time.monotonic() - started
        profile = runtime.profile()
    return {
        "ids": said[prompt_tokens:],
        "prompt_tokens": prompt_tokens,
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "backend": machine.backend,
        "profile": profile,
    }


class TextStream:
    """Token ids behind a prompt to text, where a character may take several tokens.

    All ids are decoded at once: a tokenizer like Llama's drops the space in front of what it takes for a text's start.
    """

    def __init__(self, tokenizer, prompt):
        self.tokenizer = tokenizer
        self.ids = list(prompt)
        self.shown = tokenizer.decode(self.ids)

    def add(self, token):
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if text.endswith("\ufffd"):  # the middle of a character: wait for the rest
            return ""
        piece, self.shown = text[len(self.shown) :], text
        return piece

    def end(self):
        return self.tokenizer.decode(self.ids)[len(self.shown) :]


def verify(options):
    """The battery: each prompt's tokens, then greedy ones, with a hash of the logits at every step.

    Options: ``sequences`` [{ids, steps}], where behind ``ids`` tokens are taken greedily; ``backend`` (None: the
    release's circuits). For steps listed in ``trace`` ([sequence, step] pairs, or "all") one hash over all trace points
    is sent, for those in ``data`` the points' bytes, for those in ``full`` the logits.
    Events: {sequence, step, token, logits (SHA-256), next} and {sequence, step, point, layer, type, data}.
    """
    import base64
    import hashlib
    import zlib

    from board_rt.machine import Machine
    from board_rt.runtime import Sampler

    def wanted(key, sequence, step):
        chosen = options.get(key) or []
        return chosen == "all" or [sequence, step] in chosen

    def packed(data):
        return base64.b64encode(zlib.compress(data, 1)).decode("ascii")

    with Machine(os.getcwd(), backend=options.get("backend")) as machine:
        circuits = machine.check_circuits()
        runtime = machine.runtime
        steps = 0
        for number, sequence in enumerate(options["sequences"]):
            if number:
                runtime.reset()
            ids = sequence["ids"]
            token = ids[0]
            for step in range(sequence["steps"]):
                data, hashed = wanted("data", number, step), wanted("trace", number, step)
                seen = {}
                if data or hashed:

                    def report(point, layer, kind, raw, seen=seen):
                        seen[(layer, point)] = (kind, raw)

                    runtime.trace(report)
                logits = runtime.forward(token)
                if data or hashed:
                    runtime.trace(None)
                raw = bytes(logits)
                following = runtime.sample(logits, Sampler(), ())
                for (layer, point), (kind, value) in seen.items() if data else ():
                    send({"sequence": number, "step": step, "point": point, "layer": layer, "type": kind,
                          "data": packed(value)})  # fmt: skip
                event = {
                    "sequence": number,
                    "step": step,
                    "token": token,
                    "logits": hashlib.sha256(raw).hexdigest(),
                    "next": following,
                }
                if hashed:
                    digest = hashlib.sha256()
                    for key in sorted(seen):
                        digest.update(seen[key][1])
                    event["trace"] = digest.hexdigest()
                if wanted("full", number, step):
                    event["full"] = packed(raw)
                send(event)
                steps += 1
                token = ids[step + 1] if step + 1 < len(ids) else following
        profile = runtime.profile()
        complaint = runtime.complaint() if machine.backend in ("rtl", "model") else ""
    return {
        "backend": machine.backend,
        "machine": os.uname().machine,
        "circuits": circuits,
        "steps": steps,
        "vocab": machine.runtime.shape.vocab,
        "profile": profile,
        "complaint": complaint,
    }


def probe(options):
    """Content id and clock of the circuits, for doctor. No token is computed."""
    from board_rt.machine import Machine

    with Machine(os.getcwd()) as machine:
        return machine.check_circuits()


JOBS = {"probe": probe, "smoke": smoke, "generate": generate, "verify": verify}
