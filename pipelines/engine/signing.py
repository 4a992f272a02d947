"""Signs a release and checks a signature, with ssh keys: ``ssh-keygen -Y``, namespace ``tritforge-release``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.command import run_tool
from pipelines.base.deadline import Deadline
from pipelines.base.errors import ConfigError, SignatureError, ToolFailed
from pipelines.base.files import write_text
from pipelines.base.lock import held
from pipelines.config.settings import Settings

NAMESPACE = "tritforge-release"
SIGN_S = 60.0  # an agent may ask its owner
NO_KEY = "a key that is not made yet"


@dataclass(frozen=True)
class Signer:
    """Who signs: the name in the list of allowed signers, the key, and whether it was made by this checkout."""

    identity: str
    key: Path  # a private key, or the public half of one that an agent holds
    own: bool
    allowed_signers: Path


def signer(
    settings: Settings, state: Path, environment: Mapping[str, str] | None = None, *, make: bool = True
) -> Signer:
    """The signer of the configuration; without one, a key of this checkout, made now if it does not exist.

    Without ``make`` nothing is written: a plan names the key that would be made, whose public half reads ``NO_KEY``.
    """
    signing = settings.main.model.signing
    environment = os.environ if environment is None else environment
    named = signing.key_file
    if signing.key_env is not None:
        named = environment.get(signing.key_env)
        if not named:
            raise settings.main.fault(
                ("signing", "key_env"),
                f"the variable {signing.key_env} is not set; it must hold the path of an ssh key",
            )
    if named is not None:
        key = settings.path(named)
        if not key.exists():
            named_at = "key_file" if signing.key_env is None else "key_env"
            raise settings.main.fault(("signing", named_at), f"the signing key {key} does not exist")
        allowed = (
            settings.path(signing.allowed_signers)
            if signing.allowed_signers
            else _allowed(state, key, signing.identity)
        )
        if not allowed.exists():
            raise settings.main.fault(("signing", "allowed_signers"), f"{allowed} does not exist")
        return Signer(signing.identity, key, False, allowed)
    if not make:
        return Signer(signing.identity, _own_path(state), True, _allowed_path(state))
    key = own_key(state)
    return Signer(signing.identity, key, True, _allowed(state, key, signing.identity))


def own_key(state: Path) -> Path:
    """The key that this checkout made for itself, for emulated boards."""
    key = _own_path(state)
    folder = key.parent
    if key.exists() and key.with_suffix(".pub").exists():
        return key
    with held(folder / "key.lock", "make the signing key", deadline=Deadline.after(SIGN_S)):
        if not (key.exists() and key.with_suffix(".pub").exists()):
            fresh = folder / "key.new"
            for path in (fresh, folder / "key.new.pub"):
                path.unlink(missing_ok=True)
            run_tool(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tritforge checkout key", "-f", fresh],
                deadline=Deadline.after(SIGN_S),
            )
            # The public half first: a key is there only when both are.
            (folder / "key.new.pub").replace(key.with_suffix(".pub"))
            fresh.replace(key)
    return key


def public_key(key: Path) -> str:
    """``ssh-ed25519 AAAA…`` of a private or public key file; ``NO_KEY`` when there is neither."""
    public = key if key.suffix == ".pub" else Path(f"{key}.pub")
    if not key.exists() and not public.exists():
        return NO_KEY
    try:
        return " ".join(public.read_text(encoding="ascii").split()[:2])
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"the public half of the signing key, {public}, cannot be read") from None


def sign(who: Signer, file: Path, log: Path) -> Path:
    """Writes ``<file>.sig``; the same key and file give the same bytes (ed25519 has no randomness)."""
    signature = Path(f"{file}.sig")
    signature.unlink(missing_ok=True)
    try:
        run_tool(
            ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", who.key, file],
            deadline=Deadline.after(SIGN_S),
            log=log,
        )
    except ToolFailed as error:
        raise SignatureError(
            f"the release could not be signed with {who.key}: {error.message.splitlines()[0]}",
            hint="a key with a passphrase must be in the ssh agent (name its .pub file as key_file)",
            log=log,
        ) from error
    return signature


def check(file: Path, signature: Path, identity: str, allowed_signers: Path) -> None:
    """Raises SignatureError unless ``signature`` is of ``file`` and by ``identity`` as the list has it."""
    if not signature.exists():
        raise SignatureError(f"{file.name} has no signature", hint="build the release again: ./inv release")
    result = run_tool(
        ["ssh-keygen", "-q", "-Y", "verify", "-n", NAMESPACE, "-I", identity, "-f", allowed_signers, "-s", signature],
        stdin=file.read_text(encoding="utf-8"),
        deadline=Deadline.after(SIGN_S),
        check=False,
    )
    if result.status != 0:
        reason = (result.stderr + result.stdout).strip().splitlines()
        raise SignatureError(
            f"the signature of {file.name} is not by '{identity}': {reason[0] if reason else 'ssh-keygen said no'}",
            hint="build the release again, or add its signer to the allowed signers",
        )


def _allowed(state: Path, key: Path, identity: str) -> Path:
    """The list of allowed signers with just this key, for boards that accept whoever owns the checkout."""
    path = _allowed_path(state)
    line = f'{identity} namespaces="{NAMESPACE}" {public_key(key)}\n'
    if not path.exists() or path.read_text(encoding="ascii") != line:
        write_text(path, line)
    return path


def _own_path(state: Path) -> Path:
    return state / "signing" / "key"


def _allowed_path(state: Path) -> Path:
    return state / "signing" / "allowed_signers"
