"""What the tests of sharing have in common: a broker, and processes that print what they see."""

import subprocess
import sys
import textwrap
import unittest

import support

import cenote


class Sharing(unittest.TestCase):
    """A broker for the class, and a connection to it for each test."""

    @classmethod
    def setUpClass(cls):
        cls.broker = support.Broker()

    @classmethod
    def tearDownClass(cls):
        cls.broker.close()

    def setUp(self):
        self.share = cenote.Share(label="test")
        self.children = []

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
            child.stdin.close()
        self.share.close()

    def child(self, program, *arguments):
        """A process that runs `program` with `cenote` imported; next(child) is a line that it printed."""
        head = f"import sys; sys.path.insert(0, {str(support.PACKAGE)!r}); import cenote\n"
        child = subprocess.Popen(
            [sys.executable, "-u", "-c", head + textwrap.dedent(program), *arguments],
            env=support.clean_environment(CENOTE_BROKER=self.broker.socket, PYTHONPATH=""),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def line(self, child):
        return child.stdout.readline().strip()

    def said(self, program, *arguments):
        """All that a program prints, which must end well."""
        child = self.child(program, *arguments)
        out, _ = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 0, out)
        return out.strip()

    def leases(self):
        return len(self.share.list().leases)
