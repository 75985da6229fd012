"""Switches kiln's caches on in a Python program that knows nothing of kiln.

Python runs this file at its start when its folder is on PYTHONPATH, which `kiln wrap` and
kiln.caches.inductor.apply() see to. KILN_CACHES says what to switch on: "on" for all, or a list of "triton" and
"inductor". Nothing of kiln is imported before the program imports torch's compiler or Triton's cache.
Another sitecustomize of the path runs, too. A fault here is a line on stderr, and the program goes on without kiln.
"""

import importlib.machinery
import importlib.util
import os
import re
import sys

# Folders whose sitecustomize has run: there may be two copies of this file on the path.
_RAN = sys.__dict__.setdefault("_kiln_start_folders", set())
_RAN.add(os.path.dirname(os.path.realpath(__file__)))
_TORCH = "torch._inductor.remote_cache"


def _say(error: object) -> None:
    print(f"kiln: the caches of this process stay as they are: {error}", file=sys.stderr)


class _AfterTorch:
    """Finds torch's module of remote caches as the import system does, and tells kiln once it has run."""

    def find_spec(self, name, path=None, target=None):
        if name != _TORCH:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_tell(module):
                run(module)
                if self not in sys.meta_path:
                    return
                sys.meta_path.remove(self)
                try:
                    from kiln.caches import inductor

                    if hasattr(inductor, "apply"):
                        inductor.apply(triton=False)
                    else:  # the program imports kiln.caches.inductor, which is importing torch's module now
                        inductor.apply_once_imported = True
                except Exception as error:
                    _say(error)

            spec.loader.exec_module = run_and_tell
        return spec


def _leave_the_parents_directory() -> None:
    """Gives Triton its own directory back: kiln.caches named a private one of the parent, which goes with the parent."""
    before = os.environ.pop("TRITON_CACHE_DIR_BEFORE_KILN", None)
    if re.fullmatch("kiln-private-triton-[a-z0-9_]{8}", os.path.basename(os.environ.get("TRITON_CACHE_DIR", ""))):
        del os.environ["TRITON_CACHE_DIR"]
        if before is not None:
            os.environ["TRITON_CACHE_DIR"] = before


def _switch_on() -> None:
    wanted = {word.strip() for word in os.environ.get("KILN_CACHES", "").split(",")} - {"", "off"}
    if not wanted:
        return
    if wanted - {"on", "triton", "inductor"}:
        raise ValueError(f"KILN_CACHES = {os.environ['KILN_CACHES']!r}: expected on, off, triton, inductor")
    if importlib.util.find_spec("kiln") is None:
        raise ImportError(f"{sys.executable} has no package kiln; `pip install kiln` adds it")
    if wanted & {"on", "triton"}:
        os.environ.setdefault("TRITON_CACHE_MANAGER", "kiln.caches.triton:CacheManager")
    if wanted & {"on", "inductor"}:
        sys.meta_path.insert(0, _AfterTorch())


def _run_the_next_one() -> None:
    """Runs the sitecustomize that this file stands before."""
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") not in _RAN]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if len(_RAN) == 1:
    try:
        _leave_the_parents_directory()
        _switch_on()
    except Exception as error:
        _say(error)
_run_the_next_one()
