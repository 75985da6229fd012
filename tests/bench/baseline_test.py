#!/usr/bin/env python3
"""The comparison of GPU baselines: what is named, what is not, and what is refused."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import baseline


def row(case, us, stream=1.0, module="rms_norm", **ours):
    return {"module": module, "case": case, "us": us, "stream_us": stream, "ours": ours}


def figures(*rows, card="NVIDIA H200", modules=("rms_norm",), copy_us=64.0, selection="all", errors=()):
    return {"schema": baseline.FIGURES_SCHEMA, "card": card, "selection": selection, "modules": list(modules), "errors": list(errors), "rows": list(rows),
            "driver": "580", "torch": "2", "kiln": "0.1.0", "revision": "abc", "date": "2026-01-01", "copy_us": copy_us, "peers": False}


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
        self.assertEqual(states(before, figures(failed, row("rms_norm c", 1.0))),
                         {"rms_norm a": baseline.MISSING, "rms_norm b": baseline.FAILED, "rms_norm c": baseline.NEW})

    def test_a_row_without_a_floor_is_compared_by_the_copy(self):
        before = recorded(row("rms_norm a", 2.0, stream=None), copy_us=64.0)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.2, stream=None), copy_us=70.4))["rms_norm a"], baseline.SAME)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.2, stream=None), copy_us=64.0))["rms_norm a"], baseline.SLOWER)
        self.assertEqual(states(before, figures(row("rms_norm a", 2.0, stream=None), copy_us=None))["rms_norm a"], baseline.UNCOMPARED)

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
        after = baseline.record(before, [figures(row("rope a", 5.0, module="rope"), modules=("rope",), selection="modules")], ["rope"])[0]
        self.assertEqual({r["name"]: r["time"] for r in after["rows"]}, {"rms_norm a": 2.0, "rope a": 5.0})

    def test_refuses_malformed_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "x.json"
            for text in ("{", "{}", '{"schema": "kiln-gpu-baseline/1", "card": 3}',
                         baseline.text_of(recorded(row("rms_norm a", 2.0))).replace('"time": 2.0', '"time": 3.0')):
                file.write_text(text)
                with self.assertRaises(baseline.Refused, msg=text):
                    baseline.read_baseline(file)

    def test_the_committed_baselines_can_be_read(self):
        files = sorted((pathlib.Path(__file__).resolve().parent / "baseline").glob("*.json"))
        self.assertGreaterEqual(len(files), 2)
        for file in files:
            self.assertGreater(len(baseline.read_baseline(file)["rows"]), 300, file)


if __name__ == "__main__":
    unittest.main()
