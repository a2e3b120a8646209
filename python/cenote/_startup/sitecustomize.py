"""What `cenote run --torch` has Python import at start: PyTorch gets cenote's pool once it is imported.

The folder of this file is first on PYTHONPATH, and CENOTE_TORCH=1 is set; both pass on to children,
so programs that a program starts, and workers that multiprocessing spawns, are served too. Nothing is
imported on behalf of a program that does not use PyTorch. A sitecustomize further on the path, which
this one hides, is run as if it had been found. Options for cenote.torch.enable() come from
CENOTE_TORCH_LIMIT, CENOTE_TORCH_STACKS and CENOTE_TORCH_TRACE.
"""

import importlib.machinery
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Dict, Optional, Sequence

_HERE = os.path.dirname(os.path.abspath(__file__))
_OPTIONS = ("limit", "stacks", "trace")


def _package() -> None:
    """Makes `import cenote` find this file's package where it is on no path of this program's."""
    if importlib.util.find_spec("cenote") is None:
        folder = os.path.dirname(_HERE)
        spec = importlib.util.spec_from_file_location(
            "cenote", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["cenote"] = module
        spec.loader.exec_module(module)


def _options() -> Dict[str, Any]:
    """The keyword arguments of enable() that the environment gives."""
    given: Dict[str, Any] = {}
    for name in _OPTIONS:
        value = os.environ.get("CENOTE_TORCH_" + name.upper())
        if value:
            given[name] = value
    if "limit" in given:
        if not given["limit"].isdecimal():
            raise ValueError(f"CENOTE_TORCH_LIMIT={given['limit']}: expected a number of bytes")
        given["limit"] = int(given["limit"])
    return given


def _enable() -> None:
    """Puts the pool behind PyTorch, or says in one line why not: the program goes on either way."""
    try:
        _package()
        importlib.import_module("cenote.torch").enable(**_options())
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        _say(why)


def _say(why: str) -> None:
    print(f"cenote: PyTorch keeps its own allocator: {why}", file=sys.stderr)


class _Watch:
    """Finds nothing itself. When `torch` is looked for, it lets the others find it, and has the loader
    that they give call _enable() when the module has run."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(
        self,
        name: str,
        path: Optional[Sequence[str]] = None,
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _enable()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            _say("it is loaded in an unknown way")


def _run_hidden() -> None:
    """Runs the sitecustomize that Python would have found without this one."""
    path = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("CENOTE_TORCH") == "1":
    sys.meta_path.insert(0, _Watch())
_run_hidden()
