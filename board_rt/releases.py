"""Releases on the board: assembled from objects, checked, made current in one step, and the way back.

``releases/<id>`` holds the manifest, its signature and a hard link to the object of every part, under the part's name.
A release appears there only whole. ``current`` is a symbolic link; ``history.json`` lists what it pointed to, and
``activated.json`` identifies the link that was made last, so that one made by hand is noticed.
"""

import os

from board_rt.faults import Fault, from_os_error
from board_rt.files import (
    hash_file,
    is_hex,
    is_temporary,
    link_stamp,
    make_link,
    read_json,
    read_note,
    remove_tree,
    sync_folder,
    write_json,
)
from board_rt.objects import Objects, checked_digest
from board_rt.values import loads

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
SIGNATURE_NAMESPACE = "tritforge-release"
HISTORY_LENGTH = 50


def is_id(name):
    return is_hex(name, 8, 64)


def checked_id(release):
    if not is_id(release):
        raise Fault("TransferError", "not a release id: {!r}".format(release))
    return release


def checked_name(name):
    """A part's name as a relative path that stays inside its release."""
    pieces = name.split("/") if isinstance(name, str) else []
    if not pieces or "\0" in name or any(piece in ("", ".", "..") for piece in pieces) or name in (MANIFEST, SIGNATURE):
        raise Fault("TransferError", "not a name for a part of a release: {!r}".format(name))
    return name


def parts_of(manifest):
    """{part name: sha256} of a manifest: the subjects of the in-toto statement."""
    try:
        return {
            checked_name(subject["name"]): checked_digest(subject["digest"]["sha256"])
            for subject in manifest["subject"]
        }
    except (KeyError, TypeError) as error:
        raise Fault("TransferError", "the manifest on the board is damaged: {}".format(error)) from None


class Releases:
    def __init__(self, root):
        self.root = root
        self.folder = os.path.join(root, "releases")
        self.staging = os.path.join(root, "staging")
        self.link = os.path.join(root, "current")
        self.activated_path = os.path.join(root, "activated.json")
        self.history_path = os.path.join(root, "history.json")
        self.objects = Objects(root)

    def prepare(self):
        """The folders; and nothing of an assembly that was cut off."""
        try:
            for folder in (self.folder, self.staging, self.objects.folder):
                os.makedirs(folder, exist_ok=True)
            for name in os.listdir(self.staging):
                if not name.endswith(".part"):
                    remove_tree(os.path.join(self.staging, name))
            for name in os.listdir(self.root):  # what a cut left beside the file that it should become
                path = os.path.join(self.root, name)
                own = name.endswith(".{}.tmp".format(os.getpid()))
                if is_temporary(name) and not own and (os.path.islink(path) or os.path.isfile(path)):
                    os.unlink(path)
        except OSError as error:
            raise from_os_error(error, "making its folders") from error

    def path(self, release):
        return os.path.join(self.folder, checked_id(release))

    def current(self):
        """The id of the current release, or None. A link to something that is not there counts as none."""
        try:
            release = os.path.basename(os.readlink(self.link))
        except OSError:
            return None
        return release if is_id(release) and os.path.isdir(self.path(release)) else None

    def installed(self):
        """Ids of all whole releases."""
        try:
            return sorted(name for name in os.listdir(self.folder) if is_id(name))
        except OSError:
            return []

    def manifest(self, release):
        manifest = read_json(os.path.join(self.path(release), MANIFEST))
        if not isinstance(manifest, dict):
            raise Fault("TransferError", "release {} has no readable manifest on the board".format(release[:12]))
        return manifest

    def assemble(self, release, manifest_text, signature_text):
        """Makes ``staging/<id>`` from objects that are all there. Nothing outside staging changes."""
        target = os.path.join(self.staging, checked_id(release))
        remove_tree(target)
        try:
            os.makedirs(target)
            for name, digest in parts_of(loads(manifest_text)).items():
                path = os.path.join(target, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.link(self.objects.path(digest), path)
            for name, text in ((MANIFEST, manifest_text), (SIGNATURE, signature_text)):
                with open(os.path.join(target, name), "w", encoding="utf-8", newline="") as stream:
                    stream.write(text)
            self.objects.settle()
        except OSError as error:
            remove_tree(target)
            raise from_os_error(error, "assembling the release") from error
        return target

    def install(self, release):
        """Moves an assembled release to its place; one that is already there stays."""
        target = self.path(release)
        staged = os.path.join(self.staging, release)
        if os.path.isdir(target):
            # The same content id: only the signature may have been made again.
            for name in (MANIFEST, SIGNATURE):
                os.replace(os.path.join(staged, name), os.path.join(target, name))
            self.relink(release)
            remove_tree(staged)
        else:
            os.rename(staged, target)
        sync_folder(self.folder)
        for other in self.installed():
            try:
                self.relink(other)
            except (OSError, Fault):
                pass  # its own check says so, if anybody goes back to it
        return target

    def relink(self, release):
        """Links a release's parts to their objects again: one that was damaged has been sent anew since."""
        for name, digest in parts_of(self.manifest(release)).items():
            path, whole = os.path.join(self.path(release), name), self.objects.path(digest)
            if os.path.exists(whole) and not (os.path.exists(path) and os.path.samefile(path, whole)):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                begun = os.path.join(self.staging, "link")
                if os.path.lexists(begun):
                    os.unlink(begun)
                os.link(whole, begun)
                os.replace(begun, path)

    def verify_signature(self, folder, identity, signers):
        """Holds the manifest in ``folder`` against the board's own list of signers. Raises SignatureError."""
        import subprocess

        if not os.path.exists(signers) or os.path.getsize(signers) == 0:
            raise Fault(
                "SignatureError",
                "the board knows no signers: {} is missing or empty".format(signers),
                "put the release key's public half there (docs/sd-card.md)",
            )
        with open(os.path.join(folder, MANIFEST), "rb") as manifest:
            try:
                check = subprocess.run(
                    ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", identity, "-n", SIGNATURE_NAMESPACE,
                     "-s", os.path.join(folder, SIGNATURE)],
                    stdin=manifest, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False,
                )  # fmt: skip
            except FileNotFoundError:
                raise Fault("BoardUnfit", "the board has no ssh-keygen", "install openssh-client on it") from None
            except subprocess.TimeoutExpired:
                raise Fault("BoardUnfit", "ssh-keygen on the board did not end within 60 s") from None
        if check.returncode != 0:
            said = check.stdout.decode("utf-8", "replace").strip().splitlines()
            raise Fault(
                "SignatureError",
                "the release's signature is not valid on the board: {}".format(said[-1] if said else "no message"),
                "is the release signed by a key that the board's {} lists?".format(signers),
            )

    def check(self, folder, again):
        """Holds every part in ``folder`` against the manifest there, and that against the folder's name, its SHA-256.

        Returns (files, bytes); raises TransferError.
        """
        release = os.path.basename(folder)
        manifest = read_json(os.path.join(folder, MANIFEST))
        if not isinstance(manifest, dict) or hash_file(os.path.join(folder, MANIFEST)) != release:
            raise Fault(
                "TransferError",
                "the manifest of release {} on the board is not the one of that name".format(release[:12]),
                "deploy again: it is sent again",
            )
        total = 0
        parts = parts_of(manifest)
        for name, digest in parts.items():
            path = os.path.join(folder, name)
            good = os.path.exists(path) and os.path.exists(self.objects.path(digest))
            if good and os.path.samefile(path, self.objects.path(digest)):
                good = self.objects.intact(digest, again=again)
            else:
                good = False
            if not good:
                self.objects.remember()
                raise Fault(
                    "TransferError",
                    "'{}' on the board is not what the manifest says (sha256 {}…)".format(name, digest[:12]),
                    "deploy again: what is damaged is sent again",
                )
            total += os.path.getsize(path)
        self.objects.remember()
        return len(parts), total

    def activate(self, release):
        """Makes an installed release current. One rename: before it the old one is current, after it the new one."""
        if not os.path.isdir(self.path(release)):
            raise Fault("TransferError", "release {} is not on the board".format(release[:12]))
        previous = self.current()
        if previous != release:
            history = [entry for entry in self.history() if entry != release]
            if previous and (not history or history[-1] != previous):
                history.append(previous)
            write_json(self.history_path, history[-HISTORY_LENGTH:])
        if previous != release or self.by_hand():
            self.point(release)
        return previous

    def point(self, release):
        """Makes ``current`` point to a release, in one rename, noted before it happens."""
        made, stamp = make_link(self.link, os.path.join("releases", release))
        try:
            write_json(self.activated_path, {"link": stamp, "before": link_stamp(self.link)})
            os.replace(made, self.link)
        except OSError:
            os.unlink(made)
            raise
        sync_folder(self.root)

    def by_hand(self):
        """Whether ``current`` is a link that no activation made."""
        stamp, noted = link_stamp(self.link), read_note(self.activated_path)
        # "before" is current when an activation was cut between its note and its rename.
        return stamp is not None and stamp not in (noted.get("link"), noted.get("before"))

    def history(self):
        """Releases that were current before, oldest first, as far as they are still installed."""
        history = read_json(self.history_path)
        return [entry for entry in (history if isinstance(history, list) else []) if entry in self.installed()]

    def before(self):
        """The release that ``rollback`` goes to. Raises BoardUnfit when there is none."""
        history = [entry for entry in self.history() if entry != self.current()]
        if not history:
            raise Fault("BoardUnfit", "there is no earlier release on the board to go back to")
        return history[-1]

    def go_back(self):
        """Makes the release before current, and takes it out of the history. Returns (new, old)."""
        target, old = self.before(), self.current()
        self.point(target)
        try:
            write_json(self.history_path, [entry for entry in self.history() if entry != target])
        except OSError:  # it is done, and a current release in the history counts for nothing
            pass
        return target, old

    def prune(self, keep, wanted=None):
        """Keeps the current release and the ``keep - 1`` that were current last; removes all else.

        ``wanted``: digests of a release to come, whose objects and uploads stay; those of others go.
        """
        current = self.current()
        kept = {entry for entry in ([*self.history(), current][-keep:]) if entry}
        if current:
            kept.add(current)
        gone = [release for release in self.installed() if release not in kept]
        for release in gone:
            # Out of releases/ in one step first, so that a cut leaves no half release there.
            trash = os.path.join(self.staging, "old-" + release)
            os.rename(self.path(release), trash)
            remove_tree(trash)
        if gone:  # and the byte code of what is gone; the next job makes its own again
            remove_tree(os.path.join(self.root, "pycache"))
        return gone, self.objects.collect(wanted)
