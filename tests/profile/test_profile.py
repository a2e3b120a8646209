#!/usr/bin/env python3
"""cenote profile with a program: under a stand-in for ncu, and beside the test NVML.

usage: tests/profile/test_profile.py CENOTE DRIVER_FOLDER
"""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "profile"
NCU = HERE / "fake_ncu.sh"
CENOTE, DRIVER = sys.argv[1], sys.argv[2]
SPEAKS = 'echo out; echo err >&2; exit 7'


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.temp = Path(self.folder.name) / "temp"
        self.temp.mkdir()

    def environment(self, **more):
        e = {k: v for k, v in os.environ.items() if not k.startswith(("CENOTE", "FAKE_NCU"))}
        e.update(
            LD_LIBRARY_PATH=DRIVER,
            TMPDIR=str(self.temp),
            CENOTE_PROBE=str(Path(self.folder.name) / "no-probe"),
            CENOTE_NCU=str(NCU),
            FAKE_NCU_CSV=str(DATA / "strided.csv"),
        )
        e.update(more)
        return {k: v for k, v in e.items() if v is not None}

    def profile(self, *words, **environment):
        done = subprocess.run(
            [CENOTE, "profile", *words],
            env=self.environment(**environment),
            cwd=self.folder.name,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(list(self.temp.iterdir()), [], "the folder of a run stays")
        return done

    def says(self, done, status, *parts):
        self.assertEqual(done.returncode, status, done)
        for part in parts:
            self.assertIn(part, done.stderr)
        return done


class UnderNcu(Profile):
    def test_the_programs_streams_and_status_are_its_own(self):
        done = self.profile("--", "sh", "-c", SPEAKS)
        self.says(done, 7, "MEMORY-BOUND AT DRAM", "uncoalesced loads use 4.0")
        self.assertEqual(done.stdout, "out\n")
        self.assertTrue(done.stderr.startswith("err\n"))

    def test_success_is_success(self):
        self.says(self.profile("--", "true"), 0, "1 kernel, 2 launches")

    def test_a_signal_of_the_program(self):
        self.says(self.profile("--", "sh", "-c", "kill -SEGV $$"), 128 + signal.SIGSEGV, "1 kernel")

    def test_the_status_is_not_ncus(self):
        self.says(self.profile("--", "sh", "-c", "exit 3", FAKE_NCU_MODE="failing"), 3, "1 kernel")
        self.says(self.profile("--", "true", FAKE_NCU_MODE="failing"), 0, "1 kernel")

    def test_json_follows_the_programs_output(self):
        done = self.profile("--json", "--", "echo", "out")
        self.assertEqual(done.returncode, 0, done)
        first, second = done.stdout.splitlines()
        self.assertEqual(first, "out")
        kernel = json.loads(second)["kernels"][0]
        self.assertEqual(kernel["bound"], "memory-bound at DRAM")
        self.assertTrue(kernel["l2_hit_low"])
        self.assertEqual(kernel["load_bytes_per_sector"], 4)
        self.assertIsNone(kernel["bank_ratio"])
        self.assertEqual(kernel["missing"], {"bank_ratio": "the kernel uses no shared memory"})

    def test_the_report_in_a_file(self):
        done = self.profile("-o", "report", "--", "echo", "out")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "out\n", ""))
        self.assertIn("MEMORY-BOUND", (Path(self.folder.name) / "report").read_text())

    def test_a_file_that_cannot_be_made_is_told_first(self):
        done = self.profile("-o", "no/report", "--", "touch", "ran")
        self.says(done, 1, "no/report: No such file or directory")
        self.assertFalse((Path(self.folder.name) / "ran").exists())

    def arguments(self, *words, **environment):
        args = Path(self.folder.name) / "args"
        self.says(self.profile(*words, FAKE_NCU_ARGS=str(args), **environment), 0)
        return args.read_text().splitlines()

    def test_what_ncu_is_asked(self):
        args = self.arguments("--launch-limit", "5", "--kernel", "pro.*t", "--", "true", "a b")
        options = dict(zip(args[1:15:2], args[2:15:2]))
        self.assertEqual(args[0], "--csv")
        self.assertEqual(options["--page"], "raw")
        self.assertEqual(options["--print-units"], "base")
        self.assertEqual(options["--target-processes"], "all")
        self.assertIn("dram__throughput.avg.pct_of_peak_sustained_elapsed", options["--metrics"].split(","))
        self.assertEqual(args[13:19], ["--launch-count", "5", "--kernel-name-base", "demangled", "--kernel-name", "regex:pro.*t"])
        self.assertEqual(args[-2:], ["true", "a b"])

    def test_only_counters_that_it_has(self):
        offers = Path(self.folder.name) / "offers"
        offers.write_text("Device X\ngpu__time_duration  # ns\ndram__bytes_op_read # bytes\n")
        args = self.arguments("--", "true", FAKE_NCU_OFFERS=str(offers))
        metrics = args[args.index("--metrics") + 1].split(",")
        self.assertEqual([m for m in metrics if "." in m], ["gpu__time_duration.sum", "dram__bytes_op_read.sum"])
        self.assertIn("launch__registers_per_thread", metrics)

    def test_print_command(self):
        done = self.profile("--print-command", "--", "./a program", "it's")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith(f"{NCU} --csv --page raw"))
        self.assertTrue(done.stdout.endswith("'./a program' 'it'\\''s'\n"))

    def test_the_newest_in_path(self):
        # CENOTE_NCU unset: the one in PATH; what else the machine has must be newer to stand before it.
        folder = Path(self.folder.name) / "bin"
        folder.mkdir()
        (folder / "ncu").symlink_to(NCU)
        done = self.profile("--print-command", "--", "true", CENOTE_NCU=None, FAKE_NCU_VERSION="9999.1",
                            PATH=f"{folder}:{os.environ['PATH']}")
        self.assertTrue(done.stdout.startswith(f"{folder}/ncu "), done)

    def test_no_ncu_where_it_was_named(self):
        self.says(self.profile("--ncu", "/no/ncu", "--", "true"), 1, "--ncu: /no/ncu: no such program")
        self.says(self.profile("--", "true", CENOTE_NCU="/no/ncu"), 1, "CENOTE_NCU: /no/ncu: no such program")

    def test_no_program(self):
        self.says(self.profile("--", "no-such-program"), 127, "no-such-program: command not found")
        plain = Path(self.folder.name) / "plain"
        plain.touch()
        plain.chmod(stat.S_IRUSR)
        self.says(self.profile("--", "./plain"), 126, "./plain: not executable")

    def test_measured_ceilings(self):
        probe = HERE.parent / "data" / "probe" / "gpu.json"
        done = self.profile("--json", "--machine", str(probe), "--", "true")
        measured = json.loads(done.stdout)["kernels"][0]["measured"]
        self.assertAlmostEqual(measured["dram"], 2 * (2147483648 + 67108864) / 1390144e-9 / 3.9e12)
        self.says(self.profile("--machine", "/no/probe", "--", "true"), 1, "/no/probe: cannot be opened")


class Failures(Profile):
    def test_an_unknown_counter(self):
        done = self.profile("--", "touch", "ran", FAKE_NCU_MODE="unknown")
        self.says(done, 1, "ncu ended with exit status 1, and the program was not begun",
                  "; what ncu recorded: no kernel was profiled; ncu: Failed to find metric regex:^dram__throughput")
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_ncu_is_killed(self):
        self.says(self.profile("--", "true", FAKE_NCU_MODE="killed"), 1,
                  "ncu ended with exit status 137, and the program was not begun; what ncu recorded: ")

    def test_ncu_is_killed_with_the_program(self):
        self.says(self.profile("--", "sleep", "3", FAKE_NCU_MODE="killed-later"), 125,
                  "ncu ended with exit status 137, and the program's own is not known")

    def test_nothing_recorded(self):
        self.says(self.profile("--", "true", FAKE_NCU_MODE="empty"), 125, "what ncu recorded: the file is empty")
        self.says(self.profile("--", "true", FAKE_NCU_MODE="none"), 125, "no kernel was profiled")
        self.says(self.profile("--", "sh", "-c", "exit 4", FAKE_NCU_MODE="none"), 4, "no kernel was profiled")

    def test_cut_off_by_a_full_disk(self):
        self.says(self.profile("--", "true", FAKE_NCU_MODE="cut"), 125, "the file is cut off, as by a full disk")

    def test_no_folder_for_the_recording(self):
        done = self.profile("--", "touch", "ran", TMPDIR="/no/folder")
        self.says(done, 1, "cenote profile: /no/folder: No such file or directory")
        self.assertFalse((Path(self.folder.name) / "ran").exists())
        self.says(self.profile("--", "true", TMPDIR="/tmp/a%b"), 1, "TMPDIR: '/tmp/a%b'")

    def test_no_room_for_the_recording(self):
        done = subprocess.run(
            ["bash", "-c", 'trap "" XFSZ; ulimit -f 4; exec "$@"', "sh", CENOTE, "profile", "--", "touch", "ran"],
            env=self.environment(), cwd=self.folder.name, capture_output=True, text=True, timeout=60, check=False)
        self.says(done, 1, "File too large")
        self.assertFalse((Path(self.folder.name) / "ran").exists())


class Sampled(Profile):
    def test_where_ncu_may_not_count(self):
        done = self.profile("--", "sleep", "1", FAKE_NCU_MODE="refused")
        self.says(done, 0, "shares of whole devices, not of kernels", "ncu may not count (ERR_NVGPUCTRPERM)",
                  "device 0, cenote test device 0:", "DRAM bandwidth           mean  25%, most  25%  |:",
                  "fp64 pipes               the device does not tell")

    def test_the_programs_status_then(self):
        self.says(self.profile("--", "sh", "-c", "sleep 1; exit 5", FAKE_NCU_MODE="refused"), 5, "device 0")

    def test_told_only_at_the_end(self):
        self.says(self.profile("--", "true", FAKE_NCU_MODE="refused-late"), 125,
                  "ncu may not count (ERR_NVGPUCTRPERM), and no device gave a sample in the run's time")

    def test_neither(self):
        done = self.profile("--", "true", FAKE_NCU_MODE="refused", TD_GPM="0")
        self.says(done, 125, "ncu may not count (ERR_NVGPUCTRPERM), and devices cannot be sampled:",
                  "the device has no GPM counters")
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_told_at_once_with_sample(self):
        done = self.profile("--sample", "--json", "--", "sleep", "1")
        self.assertEqual(done.returncode, 0, done)
        report = json.loads(done.stdout)
        self.assertEqual((report["source"], report["why"]), ("gpm", "--sample was given"))
        device = report["devices"][0]
        self.assertEqual(len(report["devices"]), 1) # the others do not count
        self.assertEqual((device["mean"]["sm"], device["most"]["occupancy"]), (0.75, 0.5))
        self.assertIsNone(device["mean"]["fp32"])
        self.assertGreater(len(device["moments"]), 0)

    def test_no_driver_before_the_program(self):
        done = self.profile("--sample", "--", "touch", "ran", TD_GPM="0")
        self.says(done, 1, "--sample was given, and devices cannot be sampled")
        self.assertFalse((Path(self.folder.name) / "ran").exists())

    def test_no_sample(self):
        self.says(self.profile("--sample", "--", "true", TD_GPM="once"), 125, "no device gave a sample")

    def test_a_signal_goes_to_the_program(self):
        child = subprocess.Popen([CENOTE, "profile", "--sample", "--", "sh", "-c", "echo up; exec sleep 60"],
                                 env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "up\n")
        time.sleep(0.5)
        child.terminate()
        child.communicate(timeout=30)
        self.assertEqual(child.returncode, 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
