#!/usr/bin/env python3
"""`cenote run`, with programs that use the test driver. Exits with 77 where there is none.

usage: test_run.py CENOTE DRIVER PROGRAM    (DRIVER: the folder of a libcuda.so.1)
CENOTE_TEST_LIBDW=0 in the environment says that the build has no names for C stacks.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CENOTE, DRIVER, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:4])
MIB = 1 << 20
CLEAN = re.compile("^CENOTE_")
C_NAMES = os.environ.get("CENOTE_TEST_LIBDW") != "0"


def environment(**extra):
    env = {name: value for name, value in os.environ.items() if not CLEAN.match(name)}
    env["LD_LIBRARY_PATH"] = DRIVER
    env.update(extra)
    return env


def run(*words, **extra):
    return subprocess.run(
        [CENOTE, "run", *map(str, words)], capture_output=True, text=True, timeout=120, env=environment(**extra)
    )


def line_of(path):
    lines = Path(path).read_text().splitlines()
    return next(i for i, text in enumerate(lines, 1) if "THE LINE" in text)


def check(condition, why, done):
    if not condition:
        raise AssertionError(f"{why}\nstatus {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}")


def status(done, expected):
    check(done.returncode == expected, f"the status is not {expected}", done)


def says(done, text):
    check(text in done.stderr, f"it does not say: {text}", done)


def says_line(done, function, path):
    """That the function, at the marked line of its source, is named."""
    if C_NAMES or Path(path).suffix == ".py":
        says(done, f"{function} ({Path(path).name}:{line_of(path)})")


def silent(done):
    check(done.stderr == "", "it says something", done)


def test_ways():
    """A program's calls are seen, whichever way it found them."""
    for how in ("linked", "dlsym", "proc"):
        done = run("--leaks", "--", PROGRAM, how, "leak", 4)
        status(done, 0)
        says(done, "NEVER FREED: 4.00 MiB in 4 allocations")
        says_line(done, "work", HERE / "program.c")


def test_nothing_watched():
    """A gate is told when there was nothing to judge."""
    done = run("--error-exitcode", 9, "--", sys.executable, "-c", "print('hello')")
    status(done, 0)
    check(done.stdout == "hello\n", "the program's output is not its own", done)
    says(done, "no process that could be watched used CUDA")


def test_silence():
    done = run("--", PROGRAM, "proc", "leak", 2)
    status(done, 0)
    silent(done)


def test_status():
    status(run("--leaks", "--", PROGRAM, "dlsym", "exit", 5), 5)
    status(run("--error-exitcode", 9, "--", PROGRAM, "dlsym", "leak", 1), 9)
    status(run("--error-exitcode", 9, "--", PROGRAM, "dlsym", "threads", 1, 3), 0)
    status(run("--error-exitcode", 9, "--", PROGRAM, "dlsym", "exit", 5), 5)


def test_killed():
    """A report is made of what a killed process left."""
    done = run("--leaks", "--", PROGRAM, "proc", "killed", 3)
    status(done, 128 + signal.SIGKILL)
    says(done, "NEVER FREED: 3.00 MiB in 3 allocations")
    says(done, "did not come to its end")


def test_signal():
    """What cenote is told to end, ends; its folder goes."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [CENOTE, "run", "--", PROGRAM, "dlsym", "sleep"],
            stdout=subprocess.PIPE,
            env=environment(CENOTE_LEDGER_DIR=folder),
        )
        assert process.stdout.readline() == b"ready\n"
        assert len(os.listdir(folder)) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM, process.returncode
        assert not os.listdir(folder), os.listdir(folder)
        process.stdout.close()


def test_python():
    done = run("--leaks", "--", sys.executable, HERE / "keeps.py")
    status(done, 0)
    says(done, "NEVER FREED: 5.00 MiB in 5 allocations")
    if sys.version_info >= (3, 11):
        says_line(done, "loss", HERE / "keeps.py")


def test_program_of_lines():
    """A program in the command line is named on one line, as much of it as there is room for."""
    program = "\n\n" + (HERE / "keeps.py").read_text().replace("main()\n", "main()  # " + "x" * 99)
    done = run("--leaks", "--", sys.executable, "-c", program)
    named = re.search(r'leaks of python\S* -c """Keeps a block [^?]*\.\.\. \(pid', done.stderr)
    check(named, "it is named otherwise", done)


def test_oom():
    done = run("--", PROGRAM, "proc", "oom", 1 << 24)
    status(done, 0)
    check(done.stdout == "failed with 2\n", "the program's output is not its own", done)
    says(done, "cenote: out of memory: program proc oom")
    says(done, "16.0 TiB on device 0")
    says(done, "OUT OF CAPACITY")


def test_moment():
    """Who held what is told of the moment of the failure, once, however short the program is."""
    for words in ((), ("--ledger",)):
        done = run(*words, "--", PROGRAM, "proc", "spike", 1 << 24)
        says(done, "when the request failed\n")
        says(done, "100 MiB  program ")
        check(done.stderr.count("held by") == 1, "it is not told once", done)
    done = run("--pool", "--ledger", "--", PROGRAM, "proc", "threads", 1, 5)
    says(done, "at its peak\n")
    check(" 0 B  in all" not in done.stderr, "it is of a moment when nothing was held", done)


def test_not_measured():
    """A context that nobody could measure is no context of 0 bytes."""
    done = run("--ledger", "--", PROGRAM, "proc", "leak", 1)
    says(done, "         ?  context          context, 1, not measured\n")


def test_limit():
    done = run("--limit", "300MiB", "--", PROGRAM, "proc", "oom", 400)
    check(done.stdout == "failed with 2\n", "it got more than the limit", done)
    says(done, "cenote: over the limit: program proc oom")
    status(run("--limit", "300MiB", "--", PROGRAM, "proc", "threads", 4, 20), 0)
    done = run("--limit", "300MiB", "--", PROGRAM, "proc", "info")
    found = re.match(r"free (\d+) total (\d+) device (\d+)\n$", done.stdout)
    check(found, "it does not say what is free", done)
    free, total, device = map(int, found.groups())
    check(total == device == 300 * MIB and free <= 299 * MIB, "the limit does not show", done)


def test_limit_context():
    """What the process holds without having asked for it is told where it is what fills the limit."""
    with tempfile.TemporaryDirectory() as folder:
        extra = {"CENOTE_TEST_DRIVER_STATE": folder, "CENOTE_TEST_DRIVER_CONTEXT_MIB": "300"}
        for words in ((), ("--pool",)):
            done = run(*words, "--limit", "400MiB", "--", PROGRAM, "proc", "oom", 200, **extra)
            says(done, "OUT OF CAPACITY")
            says(done, "300.00 MiB live + 200.00 = 500.00 needed, 400.00 allowed")
            says(done, "300.00 60%  context\n")


def test_pool():
    for words in (("threads", 1, 200), ("threads", 4, 50), ("capture",), ("range",)):
        done = run("--pool", "--error-exitcode", 9, "--", PROGRAM, "proc", *words)
        status(done, 0)
    check(done.stdout == f"base {3 * MIB}\nbase {3 * MIB}\n", "blocks have other ranges", done)
    done = run("--pool", "--ledger", "--leaks", "--", PROGRAM, "linked", "async", 20)
    status(done, 0)
    says(done, "NEVER FREED: 3.00 MiB in 1 allocation\n")
    done = run("--pool", "--limit", "300MiB", "--", PROGRAM, "proc", "oom", 400)
    check(done.stdout == "failed with 2\n", "the pool got more than the limit", done)
    driver = run("--", PROGRAM, "proc", "ipc").stdout.split("later")[1]
    done = run("--pool", "--", PROGRAM, "proc", "ipc")
    check(done.stdout == "handle 801\nlater" + driver, "handles are not as documented", done)
    says(done, "is a block of the pool, which cannot be shared")


def test_async():
    done = run("--ledger", "--leaks", "--", PROGRAM, "proc", "async", 6)
    status(done, 0)
    says(done, "NEVER FREED: 3.00 MiB in 1 allocation")


def test_ledger():
    """A context is measured, and what NVML says is explained."""
    with tempfile.TemporaryDirectory() as folder:
        extra = {"CENOTE_TEST_DRIVER_STATE": folder, "CENOTE_TEST_DRIVER_CONTEXT_MIB": "300"}
        done = run("--ledger", "--", PROGRAM, "proc", "leak", 8, 200000, **extra)
        status(done, 0)
        for pattern in (r"300 MiB  context +context, 1\n", r"as NVML says\n", r"  unexplained\n"):
            check(re.search(pattern, done.stderr), f"no {pattern} in what it says", done)


def test_ledger_of_the_killed():
    """What NVML said stands when it lists the process no more, which is not gone yet."""
    with tempfile.TemporaryDirectory() as folder:
        done = run("--ledger", "--", PROGRAM, "proc", "unlisted", 8, CENOTE_TEST_DRIVER_STATE=folder)
        status(done, 128 + signal.SIGKILL)
        says(done, "as NVML says\n")
        says(done, "  unexplained\n")


def test_pages():
    says(run("--leaks", "--", PROGRAM, "proc", "pages", 1), "NEVER FREED: 6.00 MiB in 1 allocation\n")
    says(run("--leaks", "--", PROGRAM, "proc", "pages", 0), "NEVER FREED: 10.00 MiB in 2 allocations")


def test_own_pool():
    """What a program's own pool of cenote's holds is not passed over, though its blocks are not seen."""
    library = Path(CENOTE).parent / "libcenote.so"
    if not library.exists():
        print(f"skip test_own_pool: there is no {library}")
        return
    begin = "import cenote; pool = cenote.Pool('cuda:0'); block = pool.alloc(5 << 20); "
    extra = {"CENOTE_LIBRARY": str(library), "PYTHONPATH": str(HERE.parents[1] / "python")}
    done = run("--leaks", "--", sys.executable, "-c", begin + "import os; os._exit(0)", **extra)
    says(done, "Not judged: 6.00 MiB in 1 page of pools that the program made itself.")
    says(done, "NOTHING ELSE LEFT")
    done = run("--leaks", "--", sys.executable, "-c", begin + "pool.free(block); pool.close()", **extra)
    says(done, "NOTHING LEFT")


def test_fork():
    """A child has a ledger of its own."""
    done = run("--leaks", "--", PROGRAM, "proc", "fork")
    status(done, 0)
    says(done, "NEVER FREED: 5.00 MiB")
    says(done, "NEVER FREED: 7.00 MiB")


def test_closefds():
    done = run("--leaks", "--", PROGRAM, "proc", "closefds", 4)
    status(done, 0)
    says(done, "NEVER FREED: 4.00 MiB")


def test_watch():
    done = run("--watch", "--", PROGRAM, "proc", "leak", 60, 100000)
    status(done, 0)
    grows = [line for line in done.stderr.splitlines() if " grows by " in line]
    check(len(grows) == 1, "growth is not told once", done)
    says_line(done, "at work", HERE / "program.c")


def test_trace():
    with tempfile.TemporaryDirectory() as folder:
        done = run("--trace", Path(folder) / "t.cenotrace", "--", PROGRAM, "proc", "leak", 4)
        status(done, 0)
        told = subprocess.run([CENOTE, "explain", Path(folder) / "t.cenotrace"], capture_output=True, text=True)
        status(told, 0)
        check("t.cenotrace: 1 device, 16 events" in told.stdout, "the trace tells something else", told)


def test_trace_failure():
    """What was refused is in the trace, as it is in the report on the spot."""
    for words in ((), ("--limit", "300MiB"), ("--pool",)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "t.cenotrace"
            done = run(*words, "--trace", file, "--", PROGRAM, "proc", "oom", 1 << 24)
            check(done.stdout == "failed with 2\n", "nothing was refused", done)
            told = subprocess.run([CENOTE, "explain", file, "--json"], capture_output=True, text=True)
            status(told, 0)
            check('"capacity"' in told.stdout, "the trace does not tell of the failure", told)


def test_json():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.json"
        status(run("--json", file, "--", PROGRAM, "proc", "leak", 4), 0)
        told = json.loads(file.read_text())
        (process,) = told["processes"]
        assert told["version"] == 1 and told["exit_status"] == 0 and process["closed"], told
        assert process["leaks"]["leaked_bytes"] == 4 * MIB, told


def test_exit_functions():
    """What a program frees when it exits was freed, by whoever gave it."""
    for words in ((), ("--pool",)):
        status(run("--error-exitcode", 9, *words, "--", PROGRAM, "dlsym", "atexit"), 0)


def test_dlerror():
    """A program that asks dlerror after dlsym hears of its own questions only."""
    done = run("--", PROGRAM, "linked", "dlerror")
    check(done.stdout == "found, no error\n", "the interposer's errors show", done)


def test_exec():
    """A process that becomes another program is watched on."""
    done = run("--", PROGRAM, "proc", "exec")
    status(done, 0)
    says(done, "cenote: out of memory: program proc oom")


def test_standard_streams():
    """No file of cenote's has the number of a stream that the program prints to."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "t.cenotrace"
        done = run("--leaks", "--trace", trace, "--", PROGRAM, "dlsym", "nostreams")
        status(done, 0)
        says(done, "NEVER FREED: 1.00 MiB")
        assert b"printed" not in trace.read_bytes()
        status(subprocess.run([CENOTE, "explain", trace], capture_output=True, text=True), 0)


def test_own_files():
    """Files that a program opens by numbers that were cenote's stay the program's."""
    with tempfile.TemporaryDirectory() as folder:
        done = run("--leaks", "--trace", Path(folder) / "t.cenotrace", "--", PROGRAM, "dlsym", "ownfiles", folder)
        status(done, 0)
        says(done, "in 20,000 allocations")
        lines = [line for line in done.stderr.splitlines() if "writing failed" in line]
        check(len(lines) == 1, "it does not say once that the trace ends", done)
        for file in Path(folder).glob("own*"):
            assert file.read_bytes() == b"own", f"{file} has {file.stat().st_size} bytes"


def test_reset():
    """A pool ends with the context that it is in, without a word, and begins anew."""
    done = run("--pool", "--", PROGRAM, "proc", "reset")
    status(done, 0)
    silent(done)
    check(done.stdout == run("--", PROGRAM, "proc", "reset").stdout, "it is not as with the driver", done)


def test_relative_folder():
    """The program may change its folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [CENOTE, "run", "--leaks", "--", PROGRAM, "dlsym", "chdir", "2"]
        env = environment(CENOTE_LEDGER_DIR="ledgers")
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, cwd=folder)
        status(done, 0)
        says(done, "NEVER FREED: 2.00 MiB")
        assert not os.listdir(Path(folder) / "ledgers")


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_children_ignored():
    """An exit status is kept also where whoever starts cenote ignores its children."""
    words = [CENOTE, "run", "--", PROGRAM, "dlsym", "exit", "5"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), preexec_fn=ignore_children)
    status(done, 5)


def test_same_number():
    """A run that was killed may have had our number, and one in another container may have it now."""
    for locked, names in ((False, 0), (True, 1)):
        with tempfile.TemporaryDirectory() as folder:
            # The shell's number is the one that cenote gets.
            begin = 'd=$CENOTE_LEDGER_DIR/run-$$; mkdir "$d"; : >"$d/traced"; echo x >"$d/9-run.ledger"; '
            lock = 'exec 9<"$d"; flock 9; ' if locked else ""  # which stays with another open file
            words = ["sh", "-c", begin + lock + 'exec "$@"', "sh", CENOTE, "run", "--leaks"]
            words += ["--trace", f"{folder}/t", "--", PROGRAM, "dlsym", "leak", "1"]
            env = environment(CENOTE_LEDGER_DIR=folder)
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
            status(done, 0)
            check("9-run.ledger" not in done.stderr, "it takes another run's ledgers for its own", done)
            assert os.path.exists(f"{folder}/t")
            assert len([name for name in os.listdir(folder) if name.startswith("run-")]) == names


def close_streams():
    for fd in range(3):
        os.close(fd)


def test_own_streams():
    """Where cenote itself has no streams, what it says goes into no file, and the program has none either."""
    with tempfile.TemporaryDirectory() as folder:
        words = [CENOTE, "run", "--leaks", "--json", f"{folder}/x", "--", PROGRAM, "dlsym", "fork"]
        done = subprocess.run(words, env=environment(), preexec_fn=close_streams)
        assert done.returncode == 0, done.returncode
        assert len(json.loads(Path(f"{folder}/x").read_text())["processes"]) == 2
        see = f"readlink /proc/$$/fd/0 /proc/$$/fd/2 >{folder}/streams; true"
        subprocess.run([CENOTE, "run", "sh", "-c", see], env=environment(), preexec_fn=close_streams)
        assert Path(f"{folder}/streams").read_text() == "", "the program has streams that it had not"


def test_refused():
    """Programs that nothing can be preloaded into."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "small"
        program.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(100))
        program.chmod(0o755)
        done = run("--", program)
        status(done, 126)
        says(done, "is no 64-bit program")
        assert len(done.stderr.splitlines()) == 1, done.stderr
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "setuid"
            shutil.copy("/bin/true", program)
            os.chown(program, 12345, -1)
            program.chmod(0o4755)
            done = run("--", program)
            status(done, 126)
            says(done, "is setuid, setgid or has capabilities")


def main():
    if not (Path(DRIVER) / "libcuda.so.1").exists():
        print(f"there is no test driver in {DRIVER}")
        return 77
    only = sys.argv[4:]
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_") or (only and name not in only):
            continue
        began = time.monotonic()
        try:
            test()
            print(f"ok   {name} {time.monotonic() - began:.1f} s", flush=True)
        except Exception as error:  # pylint: disable=broad-except  # each is told, and the next one tried
            failed += 1
            print(f"FAIL {name}: {error}", flush=True)
    return 1 if failed else 0


sys.exit(main())
