#!/usr/bin/env python3
"""Arrays shared between processes, on the host backend, over a broker that the test starts. The other
processes are programs of their own, which print what they see."""

import array
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import support
from sharing import Sharing
from support import MIB, until

import cenote
from cenote import _share_core, _share_layout

HAS_NUMPY = importlib.util.find_spec("numpy") is not None


class Plain(Sharing):
    """Without NumPy."""

    def test_a_buffer_is_read_by_another_process(self):
        self.share.share(array.array("f", [1, 2, 3.5]), "floats")
        program = """
            view = cenote.open("floats")
            print(view.name, view.version, list(view.array), view.writable, view.bytes)
        """
        if not HAS_NUMPY:
            self.assertEqual(self.said(program), "floats 1 [1.0, 2.0, 3.5] False 12")
        program = "sys.modules['numpy'] = None\n" + textwrap.dedent(program)
        self.assertEqual(self.said(program), "floats 1 [1.0, 2.0, 3.5] False 12")

    def test_who_has_not_called_finds_no_broker_and_is_told_what_to_start(self):
        with self.assertRaisesRegex(cenote.Error, "/nowhere/sock.*`cenote serve`") as caught:
            cenote.Share("/nowhere/sock")
        self.assertEqual(caught.exception.name, "CEN_ERR_NO_BROKER")

    def test_names_that_are_not_there(self):
        with self.assertRaises(cenote.Error) as caught:
            self.share.open("nobody")
        self.assertEqual(caught.exception.name, "CEN_ERR_NOT_FOUND")
        with self.assertRaises(cenote.Error) as caught:
            self.share.withdraw("nobody")
        self.assertEqual(caught.exception.name, "CEN_ERR_NOT_FOUND")

    def test_arguments_that_python_can_tell(self):
        for wrong in (
            lambda: self.share.share({}, "x"),
            lambda: self.share.share(object(), "x"),
            lambda: self.share.share({"a": b"1", "b": 5}, "x"),
            lambda: self.share.share(b"1", "x", access="neighbours"),
            lambda: self.share.share(b"1", "x", access="user:no such user"),
            lambda: self.share.share(b"1", "x", access="all:5"),
            lambda: self.share.share(b"1", "x", device=5),
            lambda: self.share.open("x", wait=-1),
            lambda: self.share.open(7),
        ):
            self.assertRaises(ValueError, wrong)
        self.assertEqual(self.share.list().exports, [])

    def test_waiting_for_a_name(self):
        reader = self.child("print('ready'); print(bytes(cenote.open('late', wait=60).array))")
        self.assertEqual(self.line(reader), "ready")
        self.share.share(b"here", "late")
        self.assertEqual(self.line(reader), "b'here'")

    def test_waiting_for_a_broker(self):
        self.broker.kill()
        os.unlink(self.broker.socket)
        try:
            self.assertRaises(ValueError, cenote.connect, wait=-1)
            with self.assertLogs("cenote", "WARNING") as logs, self.assertRaises(cenote.Error) as caught:
                cenote.open("late", wait=0.05)
            self.assertEqual(caught.exception.name, "CEN_ERR_NO_BROKER")
            self.assertIn("no broker listens", logs.output[0])
            reader = self.child("""
                import logging
                logging.basicConfig(stream=sys.stdout, format="%(message)s")
                print(bytes(cenote.open("late", wait=60).array))
            """)
            self.assertRegex(self.line(reader), "no broker listens.*; trying again for")
        finally:
            self.broker.start()
        self.assertTrue(until(lambda: self.retried(lambda: self.share.share(b"here", "late"))))
        self.assertEqual(self.line(reader), "b'here'")

    def retried(self, function):
        try:
            return function()
        except cenote.Error as error:
            self.assertEqual(error.name, "CEN_ERR_NO_BROKER")

    def test_a_parcel_is_opened_once(self):
        export = self.share.share(b"parcel", once=True)
        read = "print(bytes(cenote.open(sys.argv[1]).array))"
        self.assertEqual(self.said(read, export.token), "b'parcel'")
        with self.assertRaises(cenote.Error) as caught:
            self.share.open(export.token)
        self.assertEqual(caught.exception.name, "CEN_ERR_NOT_FOUND")
        self.assertTrue(until(lambda: export.closed))  # the notice that nobody has it any more

    def sets(self):
        return len(self.share.list().sets)

    def test_a_closed_parcel_goes_once_it_was_read(self):
        read = "print(bytes(cenote.open(sys.argv[1]).array))"
        with self.share.share(b"parcel", once=True) as export:
            token = export.token
        self.assertEqual(self.sets(), 1)
        self.assertEqual(self.said(read, token), "b'parcel'")
        self.assertTrue(until(lambda: self.sets() == 0))

    def test_what_is_kept_goes_once_it_is_withdrawn_or_superseded(self):
        reader = cenote.Share()
        self.share.share(b"1", "kept", keep=True).close()
        view = reader.open("kept")
        reader.withdraw("kept")
        self.assertEqual(self.sets(), 1)
        view.close()
        self.assertTrue(until(lambda: self.sets() == 0))
        older = self.share.share(b"2", "kept", keep=True)
        newer = self.share.share(b"3", "kept", keep=True)
        older.close()
        self.assertTrue(until(lambda: self.sets() == 1))
        newer.withdraw()
        self.assertTrue(until(lambda: self.sets() == 0))
        reader.close()

    def test_a_closed_connection_leaves_parcels_to_the_broker(self):
        sender = self.child("""
            sender = cenote.Share(label="sender")
            print(sender.share(b"parcel", once=True).token)
            sender.close()
            print("closed")
            sys.stdin.read()
        """)
        token = self.line(sender)
        self.assertEqual(self.line(sender), "closed")
        clients = self.share.list().clients
        self.assertEqual([client.connected for client in clients if client.label == b"sender"], [False])
        self.assertEqual(bytes(self.share.open(token).array), b"parcel")

    def test_a_parcel_outlives_its_sender(self):
        token = self.said("print(cenote.share(b'left behind', once=True).token)")
        self.assertEqual(bytes(self.share.open(token).array), b"left behind")

    def test_a_kept_export_outlives_its_publisher_until_it_is_withdrawn(self):
        self.said("cenote.share(b'kept', 'kept', keep=True); cenote.share(b'not', 'not')")
        self.assertEqual(bytes(self.share.open("kept").array), b"kept")
        self.assertTrue(until(lambda: "not" not in [e.name.decode() for e in self.share.list().exports]))
        self.share.withdraw("kept")
        self.assertTrue(until(lambda: not self.share.list().exports))

    def test_closing_ends_what_is_not_kept(self):
        with cenote.Share() as publisher:
            with publisher.share(b"kept", "kept", keep=True), publisher.share(b"not", "not"):
                pass
            with self.assertRaises(cenote.Error):
                self.share.open("not")
            self.assertEqual(bytes(self.share.open("kept").array), b"kept")
            token = publisher.share(b"parcel", once=True).token
        self.assertEqual(bytes(self.share.open("kept").array), b"kept")
        self.assertEqual(bytes(self.share.open(token).array), b"parcel")
        self.share.withdraw("kept")

    def test_the_publisher_is_killed_and_readers_keep_everything(self):
        publisher = self.child("cenote.share(b'alive', 'mortal'); print('up'); sys.stdin.read()")
        self.assertEqual(self.line(publisher), "up")
        heard = []
        with cenote.Share(on_notice=heard.append) as mine:
            view = mine.open("mortal")
            held = view.array
            publisher.kill()
            publisher.wait()
            kinds = lambda: [n.kind for n in heard]
            self.assertTrue(until(lambda: cenote.NoticeKind.PUBLISHER_GONE in kinds()))
            self.assertEqual(bytes(held), b"alive")
            (orphan,) = self.share.list().sets
            self.assertEqual(
                (orphan.publisher, orphan.publisher_pid, orphan.importers), (0, publisher.pid, 1)
            )
            said = support.holders()
            self.assertIn(f"an orphan, its publisher (pid {publisher.pid}) ended or gave it up", said)
            self.assertRegex(said, rf"mortal@1 [^\n]*\n *open by pid {os.getpid()} test_share.py")
            del held
            view.close()
        self.assertTrue(until(lambda: not self.share.list().sets))
        self.assertNotIn("mortal", support.holders())

    def test_a_killed_reader_lets_go(self):
        self.share.share(b"x", "x")
        reader = self.child("view = cenote.open('x'); print('up'); sys.stdin.read()")
        self.assertEqual(self.line(reader), "up")
        self.assertEqual(self.leases(), 1)
        reader.kill()
        reader.wait()
        self.assertTrue(until(lambda: self.leases() == 0))

    def test_arrays_keep_the_view(self):
        self.share.share(b"held", "x")
        view = self.share.open("x")
        held = view.array
        view.close()
        view.close()
        self.assertRaises(ValueError, lambda: view.array)
        self.assertEqual((bytes(held), self.leases()), (b"held", 1))
        del held
        self.assertTrue(until(lambda: self.leases() == 0))

    def test_arrays_keep_a_closed_connection(self):
        publisher = cenote.Share()
        kept = publisher.share(b"mine", "x").array
        publisher.close()
        self.assertRaises(ValueError, lambda: publisher.list())
        self.assertEqual(bytes(kept), b"mine")
        with self.assertRaises(cenote.Error):
            self.share.open("x")  # withdrawn

    def test_a_closed_export_keeps_nothing(self):
        export = self.share.share({"a": b"x"}, "x")
        export.close()
        self.assertEqual(export.arrays, {})
        self.assertTrue(until(lambda: not self.share.list().sets))

    def test_a_further_version_withdraws_the_older(self):
        heard = threading.Event()
        self.share.watch("model", lambda notice: notice.version == 2 and heard.set())
        self.share.share(b"one", "model")
        old = self.share.open("model")
        old_array = old.array
        second = self.share.share(b"two", "model")
        self.assertEqual(second.version, 2)
        self.assertTrue(heard.wait(30))
        self.assertEqual(bytes(self.share.open("model").array), b"two")
        self.assertEqual(bytes(old_array), b"one")
        with cenote.Share() as other, self.assertRaises(cenote.Error):
            other.open("model@1")  # who has it open may again
        self.share.share(b"three", "model", keep_older=True)
        self.assertEqual(bytes(self.share.open("model@2").array), b"two")
        self.share.withdraw("model@2")
        with cenote.Share() as other, self.assertRaises(cenote.Error):
            other.open("model@2")
        self.assertEqual(bytes(self.share.open("model@3").array), b"three")

    def test_a_name_means_all_its_versions_where_it_is_taken_back(self):
        state = lambda: {
            int(e.version): (bool(e.withdrawn), bool(e.revoked)) for e in self.share.list().exports
        }
        command_line = lambda *words: subprocess.run([support.command(), "revoke", *words], check=True)
        ways = (
            (self.share.withdraw, self.share.revoke),
            (lambda what: command_line("--withdraw", what), command_line),
        )
        for withdraw, revoke in ways:
            for _ in range(4):
                self.share.share(b"model", "model", keep_older=True)
            withdraw("model@1")
            self.assertTrue(until(lambda: set(state()) == {2, 3, 4}))
            with cenote.Share() as reader:
                views = [reader.open(f"model@{i}") for i in (2, 3, 4)]
                withdraw("model@2")
                revoke("model@3")
                self.assertEqual(state(), {2: (True, False), 3: (True, True), 4: (False, False)})
                revoke("model")  # with the one that is withdrawn and open
                self.assertEqual(set(state().values()), {(True, True)})
                for view in views:
                    view.close()
            self.assertTrue(until(lambda: not state()))
        for call in (self.share.withdraw, self.share.revoke):
            with self.assertRaises(cenote.Error) as caught:
                call("model")
            self.assertEqual(caught.exception.name, "CEN_ERR_NOT_FOUND")

    def test_items_of_any_name_and_meta(self):
        names = ["a", "", "\u00e4\u20ac", "x" * 300, "\udcff", "b"]
        export = self.share.share({name: bytes([i] * (i + 1)) for i, name in enumerate(names)}, "names")
        view = self.share.open("names")
        items = view.items_raw()
        self.assertEqual([item.name for item in items], names)
        self.assertEqual(list(view), names)
        for i, item in enumerate(items):
            self.assertEqual(item, view.item(item.name))
            self.assertEqual(item.size, i + 1)
            self.assertEqual(item.meta, b'{"dtype":"|u1","shape":[%d]}' % (i + 1))
            self.assertEqual(bytes(view[item.name]), bytes([i] * (i + 1)))
        with self.assertRaisesRegex(ValueError, "NUL"):
            self.share.share({"a\0b": b"x"}, "nul")
        self.assertEqual(bytes(export.arrays["b"]), bytes([5] * 6))
        export.close()
        self.assertEqual(export.arrays, {})

    def test_items_without_a_meta(self):
        connection = self.share._connection
        memory = _share_core.Set(connection, connection.device("host:0"), MIB)
        place = memory.alloc(MIB)
        bare = _share_core.Item("none", place, 5, b"")
        for items in (
            [bare, _share_core.Item("some", place + 8, 3, b"x" * 9)],
            [bare],
            [bare._replace(name=str(i)) for i in range(3)],
        ):
            info = _share_core.export(connection, _share_core.by_column(items))
            seen = self.share.open(info.token.decode()).items_raw()
            said = lambda them: [(i.name, i.size, i.meta) for i in them]
            self.assertEqual(said(seen), said(items))

    def test_revoked_views_say_so(self):
        export = self.share.share(b"x", "x")
        heard = []
        with cenote.Share(on_notice=heard.append) as reader:
            view = reader.open("x")
            self.assertFalse(view.revoked)
            export.revoke()
            self.assertTrue(until(lambda: [n for n in heard if n.kind == cenote.NoticeKind.REVOKED]))
            self.assertEqual(heard[-1].export_id, export.id)
            self.assertTrue(view.revoked)
            view.close()

    def test_a_nul_cuts_no_text(self):
        self.share.share(b"x", "ok")
        calls = {
            "share": lambda: self.share.share(b"y", "ok\0evil"),
            "open": lambda: self.share.open("ok\0zzz"),
            "watch": lambda: self.share.watch("ok\0zzz", print),
            "socket": lambda: cenote.Share("/nowhere\0"),
            "label": lambda: cenote.Share(label="a\0b"),
            "device": lambda: cenote.Device("host:0\0"),
            "backend": lambda: cenote.device_count("host\0"),
            "trace": lambda: cenote.trace.start("trace\0"),
            "mark": lambda: cenote.trace.mark("a\0b"),
        }
        for what, call in calls.items():
            with self.subTest(what), self.assertRaisesRegex(cenote.Error, "NUL") as caught:
                call()
            self.assertEqual(caught.exception.name, "CEN_ERR_INVALID")
        self.assertEqual([e.version for e in self.share.list().exports], [1])

    def test_writing_needs_a_grant(self):
        self.share.share(b"read only", "closed")
        with self.assertRaises(cenote.Error) as caught:
            self.share.open("closed", write=True)
        self.assertEqual(caught.exception.name, "CEN_ERR_PERMISSION")
        mine = self.share.share(bytearray(b"....."), "open", access="me+write")
        wrote = "cenote.open('open', write=True).array[0] = 65; print('wrote')"
        self.assertEqual(self.said(wrote), "wrote")
        self.assertEqual(bytes(mine.array), b"A....")

    def test_writing_past_the_flag_is_refused_by_the_system(self):
        self.share.share(b"read only", "closed")
        poke = self.child(
            """
            import ctypes
            item = cenote.open("closed").item("")
            print("up")
            ctypes.memset(item.address, 65, 1)
            print("wrote")
            """
        )
        out, _ = poke.communicate(timeout=60)
        self.assertEqual((out.split(), poke.returncode), (["up"], -signal.SIGSEGV))

    def test_without_a_broker_over_a_socket(self):
        ours, theirs = socket.socketpair()
        with cenote.Share(broker=False) as sender, cenote.Share(broker=False) as receiver:
            export = sender.share({"a": b"direct", "b": b"too"})
            thread = threading.Thread(target=lambda: export.send(ours))
            thread.start()
            view = receiver.receive(theirs)
            thread.join()
            self.assertEqual({k: bytes(v) for k, v in view.items()}, {"a": b"direct", "b": b"too"})
            view.close()
        ours.close()
        theirs.close()

    def test_the_default_connection_is_another_in_a_forked_child(self):
        out = self.said(
            """
            import os
            kept = cenote.share(b"parent", "inherited")
            mine = cenote.connect()
            assert cenote.connect() is mine
            child = os.fork()
            if not child:
                assert not mine.open_here
                assert cenote.connect() is not mine
                kept.close()
                del kept, mine
                print(bytes(cenote.open("inherited").array), flush=True)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            print(status, len(cenote.connect().list().exports))
            """
        )
        self.assertEqual(out.splitlines(), ["b'parent'", "0 1"])

    def test_the_brokers_restart_is_outlived(self):
        heard = []
        with cenote.Share(on_notice=heard.append) as mine:
            mine.share(b"before", "x")
            view = mine.open("x")
            self.broker.kill()
            self.broker.start()
            back = lambda: [n for n in heard if n.kind == cenote.NoticeKind.BROKER_BACK]
            self.assertTrue(until(back))
            self.assertEqual(bytes(view.array), b"before")
            self.assertEqual(self.said("print(bytes(cenote.open('x').array))"), "b'before'")

    def test_meta_of_strangers(self):
        read = lambda meta, size: _share_layout.parse("x", meta, size)
        self.assertEqual(read(b"", 5), _share_layout.Layout("|u1", (5,)))
        self.assertEqual(read(b'{"dtype":"<f4","shape":[2,0],"other":1}', 1).count, 0)
        self.assertEqual(read(b'{"dtype":"<f4","shape":[]}', 4).extent, 4)
        self.assertEqual(read(b'{"dtype":"<i2","shape":[3,2],"strides":[2,6]}', 12).extent, 12)
        for meta in (
            b"\xff",
            b"[" * 1000,
            b"5",
            b'{"shape":[1]}',
            b'{"dtype":7,"shape":[1]}',
            b'{"dtype":"|O8","shape":[1]}',
            b'{"dtype":"O","shape":[1]}',
            b'{"dtype":"<f4,<f4","shape":[1]}',
            b'{"dtype":"<f0","shape":[1]}',
            b'{"dtype":"<f4[ns]","shape":[1]}',
            b'{"dtype":"<f4"}',
            b'{"dtype":"<f4","shape":4}',
            b'{"dtype":"<f4","shape":[5]}',
            b'{"dtype":"<f4","shape":[-1]}',
            b'{"dtype":"<f4","shape":[1.0]}',
            b'{"dtype":"<f4","shape":[true]}',
            b'{"dtype":"<f4","shape":[4294967296,4294967296,4294967296]}',
            b'{"dtype":"<f4","shape":[%s]}' % b",".join([b"1"] * 65),
            b'{"dtype":"<f4","shape":[2],"strides":[4,4]}',
            b'{"dtype":"<f4","shape":[2],"strides":[-4]}',
            b'{"dtype":"<f4","shape":[2],"strides":[16]}',
            b'{"dtype":"<f4","shape":[4,2],"strides":[4,4]}',
        ):
            with self.subTest(meta), self.assertRaises(cenote.Error) as caught:
                read(meta, 16)
            self.assertEqual(caught.exception.name, "CEN_ERR_FORMAT")

    def test_the_examples(self):
        folder = support.ROOT / "examples"
        environment = support.clean_environment(
            CENOTE_BROKER=self.broker.socket, PYTHONPATH=str(support.PACKAGE)
        )

        def start(name, *arguments):
            child = subprocess.Popen(
                [sys.executable, "-u", str(folder / name), *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.children.append(child)
            return child

        publisher = start("share_publish.py", "demo")
        self.assertIn("demo", self.line(publisher))
        reader = start("share_read.py", "demo")
        first = self.line(reader)
        self.assertIn("demo", first)
        publisher.kill()
        publisher.wait()
        self.assertIn("ended", self.line(reader))
        self.assertIn(f"open by pid {reader.pid} share_read.py", support.holders())
        out, _ = reader.communicate("\n", timeout=60)
        self.assertIn(first.rpartition(" ")[2], out)
        self.assertEqual(reader.returncode, 0)


if __name__ == "__main__":
    support.main()
