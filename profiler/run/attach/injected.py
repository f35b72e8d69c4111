"""What an attached program runs: the text of this module is its script, with a call of `begin`.

It runs on the program's main thread between two of its instructions, where imports of ours could
meet half-done ones of the program. So there it only starts a thread. It cannot import anything of
gpuprof before it has made sure which one that is.
"""

import sys
from _thread import start_new_thread
from typing import Any


def begin(place: str, package: str, dependencies: list[str], version: str) -> None:
    """Let the gpuprof in the folder `package` answer at the socket `place`, from another thread.

    `dependencies` are folders in which its packages are, where the program has none of its own.
    """
    start_new_thread(_answer, (place, package, dependencies, version))


def _answer(place: str, package: str, dependencies: list[str], version: str) -> None:
    import socket

    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(place)
    except OSError:
        # Whoever asked waits no longer.
        connection.close()
        return
    try:
        serve = _loaded(package, dependencies, version)
    except BaseException as error:
        _say(connection, f"gpuprof cannot be imported there: {type(error).__name__}: {error}")
        connection.close()
        return
    serve(connection)


def _loaded(package: str, dependencies: list[str], version: str) -> Any:
    from importlib import import_module, util

    module: Any = sys.modules.get("gpuprof")
    if module is None:
        # By its place: the program's environment may have another one.
        spec = util.spec_from_file_location(
            "gpuprof", f"{package}/__init__.py", submodule_search_locations=[package]
        )
        if spec is None or spec.loader is None:
            raise ImportError(package)
        module = sys.modules["gpuprof"] = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found = getattr(module, "__version__", "")
    if found != version:
        raise ImportError(f"the program uses gpuprof {found}, and {version} wants to attach")
    added = [folder for folder in dependencies if folder not in sys.path]
    sys.path.extend(added)
    try:
        return import_module("gpuprof.profiler.run.attach.inside").serve
    finally:
        for folder in added:
            sys.path.remove(folder)


def _say(connection: Any, text: str) -> None:
    """As `storing_messages.send`."""
    import pickle
    import struct

    content = pickle.dumps(text)
    try:
        connection.sendall(struct.pack("<q", len(content)) + content)
    except OSError:
        pass
