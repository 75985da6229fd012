#!/usr/bin/env python3
"""The comparison of GPU baselines: the rows that it names, the rows that it does not name, and the files that it refuses."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
import baseline


def row(case, us, stream=1.0, module="rms_norm", **ours):
    return {"module": module, "case": case, "us": us, "stream_us": stream, "ours": ours}


def figures(*rows, card="NVIDIA H200", modules=("rms_norm",), copy_us=64.0, selection="all", errors=()):
    return {
        "schema": baseline.FIGURES_SCHEMA,
        "card": card,
        "selection": selection,
        "modules": list(modules),
        "errors": list(errors),
        "rows": list(rows),
        "driver": "580",
        "torch": "2",
        "kiln": "0.1.0",
        "revision": "abc",
        "date": "2026-01-01",
        "copy_us": copy_us,
        "peers": False,
    }


def recorded(*rows, **more):
    return baseline.record(None, [figures(*rows, **more)])[0]


def states(before, now, **more):
    return {change.name: change.state for change in baseline.compare(before, [now], **more)}


class Compare(unittest.TestCase):
    def test_names_a_row_that_is_four_per_cent_slower_and_not_one_that_is_two(self):
        before = recorded(row("rms_norm a", 2.0), row("rms_norm b", 2.0))
        found = states(before, figures(row("rms_norm a", 2.08), row("rms_norm b", 2.04)))
        self.assertEqual(found, {"rms_norm a": baseline.SLOWER, "rms_norm b": baseline.SAME})
        self.assertTrue(baseline.fails(baseline.compare(before, [figures(row("rms_norm a", 2.08), row("rms_norm b", 2.04))])))

    def test_a_slower_machine_is_no_slower_kernel(self):
        before = recorded(row("rms_norm a", 2.0, stream=1.0))
        self.assertEqual(states(before, figures(row("rms_norm a", 2.4, stream=1.2)))["rms_norm a"], baseline.SAME)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.0, stream=0.8)))["rms_norm a"], baseline.SLOWER)

    def test_the_median_of_the_repeats_decides(self):
        before = recorded(row("rms_norm a", 2.0))
        slow, well = figures(row("rms_norm a", 2.2)), figures(row("rms_norm a", 2.0))
        self.assertEqual(baseline.compare(before, [slow, well, well, slow])[0].state, baseline.SAME)
        self.assertEqual(baseline.compare(before, [slow, slow, well, slow])[0].state, baseline.SLOWER)

    def test_measures_again_only_what_is_slower(self):
        before, asked = recorded(row("rms_norm a", 2.0), row("rms_norm b", 2.0)), []

        def measure(rows, turn):
            asked.append((turn, [r["case"] for r in rows]))
            return figures(row("rms_norm a", 2.0), selection="cases")

        run = figures(row("rms_norm a", 2.2), row("rms_norm b", 2.0))
        changes = baseline.confirm(lambda runs: baseline.compare(before, runs), [run], measure, 3)
        self.assertEqual(asked, [(turn, ["rms_norm a"]) for turn in (1, 2, 3)])
        self.assertFalse(baseline.fails(changes))

    def test_names_missing_new_and_failed_rows(self):
        before = recorded(row("rms_norm a", 2.0), row("rms_norm b", 2.0))
        failed = {"module": "rms_norm", "case": "rms_norm b", "error": "RuntimeError: no"}
        self.assertEqual(
            states(before, figures(failed, row("rms_norm c", 1.0))),
            {"rms_norm a": baseline.MISSING, "rms_norm b": baseline.FAILED, "rms_norm c": baseline.NEW},
        )

    def test_a_row_without_a_floor_is_compared_by_the_copy(self):
        before = recorded(row("rms_norm a", 2.0, stream=None), copy_us=64.0)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.2, stream=None), copy_us=70.4))["rms_norm a"], baseline.SAME)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.2, stream=None), copy_us=64.0))["rms_norm a"], baseline.SLOWER)
        self.assertEqual(
            states(before, figures(row("rms_norm a", 2.0, stream=None), copy_us=None))["rms_norm a"], baseline.UNCOMPARED
        )

    def test_refuses_another_card_unless_it_is_asked_to(self):
        before, other = recorded(row("rms_norm a", 2.0)), figures(row("rms_norm a", 2.0), card="NVIDIA H100")
        with self.assertRaisesRegex(baseline.Refused, "H200.*H100.*--any-card"):
            baseline.compare(before, [other])
        self.assertEqual(states(before, other, any_card=True)["rms_norm a"], baseline.SAME)


class Record(unittest.TestCase):
    def test_comes_back_from_its_file_as_it_was(self):
        made = recorded(row("rms_norm a", 2.0, **{"kiln TOKENS=2": 3.0}), row("rms_norm b", 4.0, stream=None))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "h200.json"
            file.write_text(baseline.text_of(made))
            self.assertEqual(baseline.read_baseline(file), made)
        self.assertEqual([r["name"] for r in made["rows"]], ["rms_norm a", "rms_norm a [TOKENS=2]", "rms_norm b"])

    def test_takes_the_run_with_the_median_ratio(self):
        runs = [figures(row("rms_norm a", us)) for us in (2.0, 9.0, 3.0)]
        self.assertEqual(baseline.record(None, runs)[0]["rows"][0]["time"], 3.0)

    def test_some_modules_replace_only_their_rows(self):
        before = recorded(row("rms_norm a", 2.0), row("rope a", 2.0, module="rope"), modules=("rms_norm", "rope"))
        after = baseline.record(
            before, [figures(row("rope a", 5.0, module="rope"), modules=("rope",), selection="modules")], ["rope"]
        )[0]
        self.assertEqual({r["name"]: r["time"] for r in after["rows"]}, {"rms_norm a": 2.0, "rope a": 5.0})

    def test_refuses_malformed_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "x.json"
            for text in (
                "{",
                "{}",
                '{"schema": "kiln-gpu-baseline/1", "card": 3}',
                baseline.text_of(recorded(row("rms_norm a", 2.0))).replace('"time": 2.0', '"time": 3.0'),
            ):
                file.write_text(text)
                with self.assertRaises(baseline.Refused, msg=text):
                    baseline.read_baseline(file)

    def test_the_committed_baselines_can_be_read(self):
        files = sorted((pathlib.Path(__file__).resolve().parent / "baseline").glob("*.json"))
        self.assertGreaterEqual(len(files), 2)
        for file in files:
            self.assertGreater(len(baseline.read_baseline(file)["rows"]), 300, file)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, document):
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path


class Command(Files):
    """gpu.py with figures from files, which needs no GPU."""

    def gpu(self, *words):
        done = subprocess.run([sys.executable, here / "gpu.py", *map(str, words)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_records_and_compares(self):
        base, same = (
            self.folder / "baseline/h200.json",
            self.write("same.json", figures(row("rms_norm a", 2.0), row("rms_norm b", 5.0))),
        )
        status, text = self.gpu("--record", base, "--figures", same, "--revision", "fed")
        self.assertEqual(status, 0, text)
        self.assertEqual(baseline.read_baseline(base)["runs"][0]["revision"], "fed")
        status, text = self.gpu("--compare", base, "--figures", same)
        self.assertEqual(status, 0, text)
        slower = self.write("slower.json", figures(row("rms_norm a", 2.0), row("rms_norm b", 5.2)))
        status, text = self.gpu("--compare", base, "--figures", slower)
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"SLOWER +rms_norm b .* \+4\.0%")
        status, text = self.gpu("--compare", base, "--figures", slower, "--figures", same, "--figures", same)
        self.assertEqual(status, 0, text)
        self.assertIn("+4.0%  +0.0% (+0.0%, +0.0%)", text)

    def test_a_missing_row_has_status_1(self):
        base = self.write("h200.json", baseline.text_of(recorded(row("rms_norm a", 2.0), row("rms_norm b", 5.0))))
        status, text = self.gpu("--compare", base, "--figures", self.write("less.json", figures(row("rms_norm a", 2.0))))
        self.assertEqual(status, 1, text)
        self.assertRegex(text, "MISSING +rms_norm b")

    def test_a_bench_that_ended_early_is_no_whole_baseline(self):
        status, text = self.gpu(
            "--record",
            self.folder / "h200.json",
            "--figures",
            self.write("part.json", figures(row("rms_norm a", 2.0), selection="modules")),
        )
        self.assertEqual(status, 1, text)
        self.assertIn("not of all modules", text)

    def test_another_card_has_status_2_and_leaves_the_file(self):
        base, other = (
            self.write("h200.json", baseline.text_of(recorded(row("rms_norm a", 2.0)))),
            self.write("h100.json", figures(row("rms_norm a", 2.0), card="NVIDIA H100")),
        )
        status, text = self.gpu("--compare", base, "--figures", other)
        self.assertEqual(status, 2, text)
        self.assertIn("--any-card", text)
        self.assertEqual(self.gpu("--compare", base, "--figures", other, "--any-card")[0], 0)
        self.assertEqual(self.gpu("--record", base, "--figures", other)[0], 2)
        self.assertEqual(baseline.read_baseline(base)["card"], "NVIDIA H200")


class Bench(Files):
    """run.py, and gpu.py, which starts it. Launches of a made-up module return the times that they take. torch is a stub. Of the harness only the clock is replaced."""

    SITECUSTOMIZE = """
        import os, sys
        sys.path.insert(0, os.environ["MADE_UP_TEMPLATES"])
        import harness
        harness.make_sets = lambda make: [()]
        harness.time_all = lambda sets, launches: {label: launch() for label, launch in launches.items()}
        harness.stream_us = lambda read, write: (read + write) / 100
        harness.version = lambda: "0.1.0"
        harness.torch.compile = lambda function, dynamic: lambda: 2.0
    """
    MODULE = """
        import os, pathlib
        import harness

        def refuse():
            raise RuntimeError("no room")

        def next_time():
            # Each process takes the next word of the file.
            path = pathlib.Path(os.environ["MADE_UP_TIMES"])
            first, *others = path.read_text().split()
            path.write_text(" ".join(others))
            return float(first)

        def bench():
            yield harness.Row("made_up a", 100, 100, None, {"kiln": lambda: 4.0, "kiln FOR=any": lambda: 5.0, "eager": lambda: 3.0, "compile": harness.compiled(None)})
            yield harness.Row("made_up b", 100, 100, None, {"kiln": refuse})
            yield harness.Row("made_up c", 0, 0, None, {"kiln": lambda: 6.0})
            if "MADE_UP_TIMES" in os.environ:
                yield harness.Row("made_up d", 100, 100, None, {"kiln": next_time})
    """
    TORCH = """
        class Stub:
            def __getattr__(self, name): return Stub()
            def __call__(self, *words, **more): return Stub()
        class cuda:
            is_available = staticmethod(lambda: True)
            get_device_name = staticmethod(lambda: "NVIDIA H200")
            empty_cache = staticmethod(lambda: None)
        __version__ = "2.11"
        Tensor = Stub
        def __getattr__(name): return Stub()
    """

    def start(self, script, *words, **more):
        for name, text in (("made_up.py", self.MODULE), ("torch.py", self.TORCH), ("sitecustomize.py", self.SITECUSTOMIZE)):
            self.write(name, textwrap.dedent(text))
        environment = dict(
            os.environ,
            PYTHONPATH=str(self.folder),
            PYTHONDONTWRITEBYTECODE="1",
            MADE_UP_TEMPLATES=str(here.parent / "templates"),
            **more,
        )
        environment.pop("BENCH_NO_COMPILE", None)
        done = subprocess.run(
            [sys.executable, script, "--only", "made_up", *map(str, words)], capture_output=True, text=True, env=environment
        )
        return done.returncode, done.stdout + done.stderr

    def run_py(self, *words):
        file = self.folder / "bench.json"
        status, text = self.start(here.parent / "templates/run.py", "--bench", "--json", file, *words)
        return status, text, baseline.read_figures(file) if file.exists() else None

    def compare_live(self, times, *words, card="NVIDIA H200"):
        """gpu.py --compare. The baseline has the row "made_up d" with 4 us. In the run and its repeats the row takes `times`. Returns the unused times last."""
        for name in ("kiln-worker", "libkiln.so.0"):
            self.write(name, "")
        rows = [
            row("made_up a", 4.0, 2.0, "made_up", **{"kiln FOR=any": 5.0}),
            {"module": "made_up", "case": "made_up b", "error": "no room"},
            row("made_up c", 6.0, None, "made_up"),
            row("made_up d", 4.0, 2.0, "made_up"),
        ]
        base = baseline.text_of(recorded(*rows, modules=("made_up",), copy_us=(1 << 28) / 100, card=card))
        file = self.write("times", times)
        status, text = self.start(
            here / "gpu.py",
            "--build",
            self.folder,
            "--out",
            self.folder / "out",
            "--compare",
            self.write("h200.json", base),
            *words,
            MADE_UP_TIMES=str(file),
        )
        return status, text, file.read_text()

    def test_figures_without_peers(self):
        status, text, found = self.run_py("--no-peers")
        self.assertEqual(status, 1, text)  # because of the case that raises
        self.assertIn("no room", text)
        self.assertEqual(
            (found["card"], found["peers"], found["selection"], found["modules"]), ("NVIDIA H200", False, "modules", ["made_up"])
        )
        self.assertEqual(
            (found["rows"][0]["us"], found["rows"][0]["stream_us"], found["rows"][0]["ours"], found["rows"][0]["peers"]),
            (4.0, 2.0, {"kiln FOR=any": 5.0}, {}),
        )
        rows = baseline.rows_of(found)
        self.assertEqual(sorted(rows), ["made_up a", "made_up a [FOR=any]", "made_up b", "made_up c"])
        self.assertIn("no room", rows["made_up b"]["error"])
        self.assertIsNone(rows["made_up c"]["floor"])

    def test_peers_are_timed_without_the_option(self):
        _, text, found = self.run_py("--case", "made_up a")
        self.assertEqual(found["rows"][0]["peers"].keys(), {"eager", "compile"}, text)

    def test_some_cases_alone(self):
        status, text, found = self.run_py("--no-peers", "--case", "made_up a", "--case", "made_up c")
        self.assertEqual(status, 0, text)
        self.assertEqual(([r["case"] for r in found["rows"]], found["selection"]), (["made_up a", "made_up c"], "cases"))

    def test_a_slower_row_is_measured_again_alone(self):
        status, text, left = self.compare_live("4.4 4.0 4.04 4.4")
        self.assertEqual((status, left), (0, ""), text)
        self.assertIn("+10.0%  +1.0% (+0.0%, +1.0%, +10.0%)", text)
        self.assertEqual([r["case"] for r in baseline.read_figures(self.folder / "out/again-3.json")["rows"]], ["made_up d"])

    def test_a_row_that_stays_slower_has_status_1(self):
        status, text, left = self.compare_live("4.4 4.3 4.3 1.0", "--repeats", 2)
        self.assertEqual((status, left), (1, "1.0"), text)
        self.assertIn("+10.0%  +7.5% (+7.5%, +7.5%)", text)

    def test_a_steady_row_is_measured_once(self):
        status, text, left = self.compare_live("4.08 1.0")
        self.assertEqual((status, left), (0, "1.0"), text)

    def test_another_card_is_refused_before_anything_is_measured(self):
        status, text, left = self.compare_live("4.0", card="NVIDIA H100")
        self.assertEqual((status, left), (2, "4.0"), text)
        self.assertIn("this device is NVIDIA H200, expected NVIDIA H100", text)
        self.assertIn("--any-card", text)
        self.assertEqual(self.compare_live("4.0", "--any-card", card="NVIDIA H100")[0], 0)


if __name__ == "__main__":
    unittest.main()
