#!/usr/bin/env python3
"""What `cenote run --torch` sets up in a Python program: the hook of _startup/sitecustomize.py, in
programs of their own with a `torch` (and at times a `cenote`) written for the test."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import support

STARTUP = support.PACKAGE / "cenote" / "_startup"

# A package `cenote` that tells what it is asked for, and whether torch was whole by then.
WITNESS = """
import os, sys
def enable(**options):
    print("enable", sorted(options.items()), sys.modules["torch"].whole, flush=True)
"""


class Startup(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.write("torch/__init__.py", "import torch.part\nwhole = True\n")
        self.write("torch/part.py", "print('torch runs', flush=True)\n")

    def tearDown(self):
        self.temporary.cleanup()

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def witness(self):
        self.write("cenote/__init__.py", "")
        self.write("cenote/torch.py", WITNESS)

    def run_python(self, program, path=(), **environment):
        """stdout and stderr, as lines, of a program; every folder of `path` is on PYTHONPATH."""
        places = [str(STARTUP), str(self.folder), *map(str, path)]
        environment.setdefault("CENOTE_TORCH", "1")
        done = subprocess.run(
            [sys.executable, str(self.write("program.py", program))],
            env=support.clean_environment(PYTHONPATH=os.pathsep.join(places), **environment),
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines(), done.stderr.splitlines()

    def test_torch_is_enabled_once_it_is_whole(self):
        self.witness()
        out, err = self.run_python("print('start'); import torch; import torch.part; print('end')")
        self.assertEqual(out, ["start", "torch runs", "enable [] True", "end"])
        self.assertEqual(err, [])

    def test_options_come_from_the_environment(self):
        self.witness()
        out, _ = self.run_python(
            "import torch",
            CENOTE_TORCH_LIMIT="1073741824",
            CENOTE_TORCH_STACKS="all",
            CENOTE_TORCH_TRACE="a trace",
        )
        expected = "[('limit', 1073741824), ('stacks', 'all'), ('trace', 'a trace')]"
        self.assertEqual(out[-1], f"enable {expected} True")

    def test_a_wrong_option_is_one_line_and_the_program_goes_on(self):
        self.witness()
        out, err = self.run_python("import torch; print('end')", CENOTE_TORCH_LIMIT="20GiB")
        self.assertEqual(out, ["torch runs", "end"])
        self.assertEqual(len(err), 1)
        self.assertRegex(err[0], "^cenote: .*CENOTE_TORCH_LIMIT=20GiB: expected a number of bytes")

    def test_a_failure_is_one_line_and_the_program_goes_on(self):
        self.witness()
        self.write("cenote/torch.py", "def enable():\n    raise RuntimeError('too late\\nby far')\n")
        out, err = self.run_python("import torch; print(torch.whole)")
        self.assertEqual(out, ["torch runs", "True"])
        self.assertEqual(err, ["cenote: PyTorch keeps its own allocator: too late"])

    def test_the_real_package_is_found_beside_the_hook(self):
        out, err = self.run_python("import torch, cenote; print(cenote.__file__)")
        self.assertEqual(out[-1], str(support.PACKAGE / "cenote" / "__init__.py"))
        self.assertEqual(len(err), 1)  # the test's torch has no CUDA: the real package says so
        self.assertRegex(err[0], "^cenote: PyTorch keeps its own allocator: ")

    def test_nothing_happens_without_being_asked_or_without_torch(self):
        self.witness()
        out, _ = self.run_python("import torch", CENOTE_TORCH="0")
        self.assertEqual(out, ["torch runs"])
        out, _ = self.run_python(
            "import sys; print([m for m in ('torch', 'cenote') if m in sys.modules])"
        )
        self.assertEqual(out, ["[]"])

    def test_a_torch_that_cannot_be_imported_fails_as_ever(self):
        self.witness()
        self.write("torch/part.py", "import sys\nif not hasattr(sys, 'again'): 1 / 0\n")
        out, err = self.run_python(
            """
            import sys
            try:
                import torch
            except ZeroDivisionError:
                print("failed")
            sys.again = True
            import torch
            """
        )
        self.assertEqual((out, err), (["failed", "enable [] True"], []))
        (self.folder / "torch" / "__init__.py").unlink()
        (self.folder / "torch" / "part.py").unlink()
        (self.folder / "torch").rmdir()
        program = "try:\n    import torch\nexcept ImportError as error:\n    print(error.name)"
        self.assertEqual(self.run_python(program), (["torch"], []))

    def test_the_program_sees_the_loader_of_torch(self):
        self.witness()
        out, _ = self.run_python(
            """
            import importlib.util, pkgutil
            print(importlib.util.find_spec("torch").name)
            print(pkgutil.get_data("torch", "part.py") is not None)
            import torch
            print(type(torch.__loader__).__name__, torch.__spec__.submodule_search_locations is not None)
            """
        )
        expected = ["torch", "torch runs", "enable [] True", "True", "SourceFileLoader True"]
        self.assertEqual(out, expected)

    def test_the_sitecustomize_that_is_hidden_runs(self):
        other = self.folder / "other"
        self.write("other/sitecustomize.py", "print('hidden', __name__, __file__)\nmine = 7\n")
        self.witness()
        out, err = self.run_python(
            "import sitecustomize; print(sitecustomize.mine); import torch", path=[other]
        )
        hidden = f"hidden sitecustomize {other / 'sitecustomize.py'}"
        self.assertEqual(out, [hidden, "7", "torch runs", "enable [] True"])
        self.assertEqual(err, [])

    def test_usercustomize_runs_too(self):
        self.witness()
        self.write("usercustomize.py", "print('user')")
        out, _ = self.run_python("import site; print(site.ENABLE_USER_SITE)")
        if out[-1] != "True":
            self.skipTest("this Python imports no usercustomize")
        self.assertEqual(out, ["user", "True"])

    def test_children_are_served_too(self):
        self.witness()
        out, err = self.run_python(
            """
            import multiprocessing

            def work(name):
                import torch
                return name

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(work, ["child"]), flush=True)
            """
        )
        self.assertEqual(out, ["torch runs", "enable [] True", "['child']"])
        self.assertEqual(err, [])

    def test_the_environment_stays(self):
        out, _ = self.run_python("import os; print(os.environ['PYTHONPATH'])")
        self.assertEqual(out, [os.pathsep.join([str(STARTUP), str(self.folder)])])


if __name__ == "__main__":
    support.main()
