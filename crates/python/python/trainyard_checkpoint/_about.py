"""What a step was saved with: versions and the commit of the script, compared when it is restored."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import _leaf


def about() -> dict[str, Any]:
    versions = {"python": "{}.{}.{}".format(*sys.version_info)}
    for name, module in (("torch", _leaf.torch()), ("numpy", _leaf.numpy()), ("jax", sys.modules.get("jax"))):
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "unknown"))
    found: dict[str, Any] = {"versions": versions}
    commit = git_commit(os.path.dirname(os.path.abspath(sys.argv[0] if sys.argv and sys.argv[0] else ".")))
    if commit is not None:
        found["commit"] = commit
    return found


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two of them."""
    found = []
    then, current = saved.get("versions", {}), now["versions"]
    for name in sorted(set(then) & set(current)):
        if then[name] != current[name]:
            found.append(f"{name} {then[name]} saved it, and this is {current[name]}")
    if saved.get("commit") and now.get("commit") and saved["commit"] != now["commit"]:
        found.append(f"commit {saved['commit'][:12]} of the script saved it, and this is {now['commit'][:12]}")
    return found


def git_commit(folder: str) -> str | None:
    """The commit that is checked out where a script lies, read from the files of git."""
    for _ in range(32):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return _head(git)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return None


def _head(git: str) -> str | None:
    try:
        with open(os.path.join(git, "HEAD"), encoding="utf-8") as file:
            text = file.read(1000).strip()
        if text.startswith("ref: "):
            with open(os.path.join(git, text.removeprefix("ref: ")), encoding="utf-8") as file:
                text = file.read(1000).strip()
    except (OSError, ValueError):
        return None
    return text if len(text) in (40, 64) and all(letter in "0123456789abcdef" for letter in text) else None
