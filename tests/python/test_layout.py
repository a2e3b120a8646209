#!/usr/bin/env python3
"""The package's idea of the C interface, against the headers and a C compiler."""

import ctypes
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import support
import cenote
from cenote import BlockState, _calibrate, _codec, _lib, _product, _share_core, _share_layout

# The ctypes that stand for a C type that is no pointer.
SCALARS = {
    "size_t": ctypes.c_size_t,
    "cen_stream": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "cen_addr": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
    "uint8_t": ctypes.c_uint8,
    "unsigned": ctypes.c_uint,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "cen_channels": ctypes.c_int,
    "cen_threshold": ctypes.c_int,
    "cen_status": ctypes.c_int,
    "cen_verdict": ctypes.c_int,
    "void": None,
}


def structures():
    for module in (_lib, _product, _codec, _calibrate):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ctypes.Structure):
                yield value, value.__doc__.split()[0].rstrip(".")


def compiled(lines):
    """What a C program that prints `lines` (printf arguments) prints, as a list of lines."""
    source = "#include <stddef.h>\n#include <stdio.h>\n#include <cenote/cenote.h>\nint main(void) {\n"
    source += "".join(f"    printf({line});\n" for line in lines) + "    return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "layout.c"
        file.write_text(source)
        program = str(file.with_suffix(""))
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, f"-I{support.ROOT / 'include'}", str(file), "-o", program], check=True
        )
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")


def declarations():
    """name: (result, [argument types]) of every function that a public header declares."""
    found = {}
    for header in (support.ROOT / "include" / "cenote").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for result, name, arguments in re.findall(
            r"CEN_API ([^;(]*?)(cen_\w+)\(((?:[^()]|\([^()]*\))*)\);", text
        ):
            # A function as an argument is a pointer; its own arguments are not told apart.
            arguments = re.sub(r"\(\*\w+\)\([^()]*\)", "*fn", " ".join(arguments.split()))
            found[name] = (result.strip(), [] if arguments == "void" else arguments.split(","))
    return found


def is_pointer(kind):
    return kind in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(kind, "contents")


class Layout(unittest.TestCase):
    def test_structures_lie_in_memory_as_in_c(self):
        expected, lines = [], []
        for kind, name in structures():
            expected.append(f"{name} {ctypes.sizeof(kind)}")
            lines.append(f'"{name} %zu\\n", sizeof({name})')
            for field, *_ in kind._fields_:
                place = getattr(kind, field)
                expected.append(f"{name}.{field} {place.offset} {place.size}")
                lines.append(
                    f'"{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                    f"sizeof((({name} *)0)->{field})"
                )
        self.assertGreater(len(expected), 50)
        self.assertEqual([line for line in compiled(lines) if line], expected)

    def test_constants_are_those_of_the_headers(self):
        names = {
            "CEN_OK": _lib.OK,
            "CEN_ERR_HOST_MEMORY": _lib.ERR_HOST_MEMORY,
            "CEN_ERR_DEVICE_MEMORY": _lib.ERR_DEVICE_MEMORY,
            "CEN_ERR_UNSUPPORTED": _lib.ERR_UNSUPPORTED,
            "CEN_ERR_FORMAT": _lib.ERR_FORMAT,
            "CEN_ERR_NOT_FOUND": _lib.ERR_NOT_FOUND,
            "CEN_ERR_NO_BROKER": _lib.ERR_NO_BROKER,
            "CEN_SHARE_WRITE": _share_core.WRITE,
            "CEN_SHARE_META_MAX": _share_layout.META_MAX,
            "CEN_SHARE_TOKEN_SIZE": ctypes.sizeof(_lib.ShareExportInfo) - _lib.ShareExportInfo.token.offset,
            **{f"CEN_SHARE_{kind.name}": int(kind) for kind in cenote.NoticeKind},
            **{f"CEN_SHARE_{who.upper()}": number for who, number in _share_core.WHO.items()},
            "CEN_TRACE_NATIVE_STACKS": 1,
            **{f"CEN_POOL_{state.name}": int(state) for state in BlockState},
            **{f"CEN_{name.upper()}": number for name, number in _product.DTYPES.items()},
            **{f"CEN_CODEC_{name.upper()}": number for name, number in _codec.GRANULARITIES.items()},
            **{f"CEN_CODEC_{name.upper()}": number for name, number in _codec.OVERFLOWS.items()},
            **{f"CEN_CHANNELS_{name.upper()}": number for name, number in _calibrate.CHANNELS.items()},
            **{f"CEN_THRESHOLD_{name.upper()}": number for name, number in _calibrate.THRESHOLDS.items()},
            **{f"CEN_ACTIVATION_{name.upper()}": number for name, number in _product.ACTIVATIONS.items()},
        }
        lines = [f'"{name} %d\\n", {name}' for name in names]
        self.assertEqual([x for x in compiled(lines) if x], [f"{n} {v}" for n, v in names.items()])

    def test_every_function_is_declared_with_these_arguments(self):
        declared = declarations()
        self.assertGreater(len(declared), 100)
        modules = (_lib, _product, _codec, _calibrate)
        prototypes = {name: proto for module in modules for name, proto in module.PROTOTYPES.items()}
        for name, (result, arguments) in prototypes.items():
            with self.subTest(name):
                self.assertIn(name, declared)
                returns, takes = declared[name]
                self.assertEqual(len(arguments), len(takes))
                for ours, theirs in [(result, returns + " result"), *zip(arguments, takes)]:
                    if "*" in theirs or theirs.endswith("]"):
                        self.assertTrue(is_pointer(ours), theirs)
                    else:
                        self.assertIs(ours, SCALARS[theirs.split()[-2]], theirs)

    def test_the_version_is_that_of_the_source(self):
        header = (support.ROOT / "src" / "base" / "version.h").read_text()
        version = re.search(r'CENI_VERSION "([0-9.]+)"', header)[1]
        self.assertEqual(_lib.INTERFACE, ".".join(version.split(".")[:2]))
        import cenote

        self.assertEqual(cenote.__version__, version)

    def test_a_library_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(ImportError, "/nowhere/libcenote.so.*CENOTE_LIBRARY"):
            _lib._open(["/nowhere/libcenote.so"])


if __name__ == "__main__":
    support.main()
