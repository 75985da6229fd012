"""A baseline of the GPU bench, and its comparison with a later run. gpu.py uses these functions; they need no GPU and start no process.

The bench (tests/templates/run.py --bench --json FILE) writes *figures*: one row for each case. A row has the median time of a launch. Its *floor* is the time
of a stream of the same bytes in the same run. A *baseline* keeps the time, the floor and their ratio of each row. Rows are compared by these ratios.
A machine whose memory is a little slower today then does not look like a slower kernel.
A row without a floor is compared by its time over `copy_us`, a copy of 128 MiB that every run measures.

A baseline file (schema kiln-gpu-baseline/1) is JSON with one run and one row a line:
- card      the device's name. Ratios of another card say nothing, because not every kernel scales with the memory
- runs      one item for each run: its modules, driver, torch, kiln's version and git revision, date, copy_us, and if peers took turns with kiln
- rows      sorted by name. Each is {name, module, time, floor, ratio, unit}; floor and ratio are null where the case has none.
            A case that failed is {name, module, error}
"""

import json
import math
import statistics

FIGURES_SCHEMA = "kiln-bench-figures/1"
BASELINE_SCHEMA = "kiln-gpu-baseline/1"
LIMIT = 1.03  # a row is slower when its ratio has grown by more than this factor
UNIT = "us"

# States of a row in compare(). The first four make the comparison fail.
SLOWER, MISSING, FAILED, UNCOMPARED = "SLOWER", "MISSING", "FAILED", "UNCOMPARED"
NEW, STILL_FAILS, FASTER, SAME = "new", "still fails", "faster", "same"
BAD = (SLOWER, MISSING, FAILED, UNCOMPARED)


class Refused(Exception):
    """The files do not allow the operation. The message says which file, why, and what to do."""


# ---- figures ------------------------------------------------------------------------------------------------------------------------------


def row_name(module, case, label="kiln"):
    """The name of a row: its case. The module stands first where the case does not begin with it. Another
    launch of ours ("kiln FOR=any") is added in brackets."""
    case = " ".join(case.split())
    name = case if case.startswith(module + " ") else f"{module}: {case}"
    return name if label == "kiln" else f"{name} [{label.removeprefix('kiln').strip(' ,()')}]"


def measured_row(name, module, time, floor):
    """Rounds times to a nanosecond before it takes the ratio, so that the file agrees with itself."""
    time, floor = round(time, 3), round(floor, 3) if floor else None
    return {
        "name": name,
        "module": module,
        "time": time,
        "floor": floor,
        "ratio": round(time / floor, 4) if floor else None,
        "unit": UNIT,
    }


def rows_of(figures):
    """All rows of one run by name. Each also has `case` (to measure it again) and `copy` (the run's copy_us). Refuses two rows with the same name."""
    out = {}

    def add(row, figure):
        if row["name"] in out:
            raise Refused(f"the bench has two rows named {row['name']!r}: give the case of one of them another text")
        out[row["name"]] = {**row, "case": figure["case"], "copy": figures.get("copy_us")}

    for figure in figures["rows"]:
        name, module = row_name(figure["module"], figure["case"]), figure["module"]
        if figure.get("error"):
            add({"name": name, "module": module, "error": figure["error"]}, figure)
            continue
        for label, us in {"kiln": figure["us"], **figure["ours"]}.items():
            add(measured_row(row_name(module, figure["case"], label), module, us, figure["stream_us"]), figure)
    return out


def is_time(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def read_json(path, schema):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}") from error
    found = document.get("schema") if isinstance(document, dict) else None
    if found != schema:
        raise Refused(f"{path} has schema {found!r}, expected {schema!r}")
    return document


def read_figures(path):
    figures = read_json(path, FIGURES_SCHEMA)
    try:
        assert isinstance(figures["card"], str) and figures["selection"] in ("all", "modules", "cases")
        assert all(isinstance(module, str) for module in figures["modules"])
        assert all(isinstance(error["module"], str) and isinstance(error["error"], str) for error in figures["errors"])
        for row in figures["rows"]:
            assert isinstance(row["module"], str) and isinstance(row["case"], str), row
            times = (
                [] if row.get("error") else [row["us"], *row["ours"].values()] + ([row["stream_us"]] if row["stream_us"] else [])
            )
            assert all(map(is_time, times)), row
    except (AssertionError, AttributeError, KeyError, TypeError) as error:
        raise Refused(
            f"{path} is malformed ({type(error).__name__}: {error}): write it again with tests/templates/run.py --bench --json"
        ) from error
    return figures


# ---- baselines ----------------------------------------------------------------------------------------------------------------------------


def check_row(row):
    assert isinstance(row["name"], str) and isinstance(row["module"], str), row
    if "error" in row:
        return
    assert row["unit"] == UNIT and is_time(row["time"]), row
    assert (row["floor"] is None) == (row["ratio"] is None), row
    if row["floor"] is not None:
        assert is_time(row["floor"]) and is_time(row["ratio"]), row
        assert abs(row["ratio"] * row["floor"] / row["time"] - 1) < 0.005, f"ratio is not time / floor: {row}"


def read_baseline(path):
    baseline = read_json(path, BASELINE_SCHEMA)
    try:
        assert isinstance(baseline["card"], str)
        run_modules = [module for run in baseline["runs"] for module in run["modules"]]
        for row in baseline["rows"]:
            check_row(row)
            assert row["module"] in run_modules, f"no run of module {row['module']}"
        names = [row["name"] for row in baseline["rows"]]
        assert len(names) == len(set(names)), "two rows of one name"
    except (AssertionError, AttributeError, KeyError, TypeError) as error:
        raise Refused(f"{path} is malformed ({type(error).__name__}: {error}): record it again") from error
    return baseline


def text_of(baseline):
    """The file's text. One run and one row a line, so that a diff shows the rows that changed."""

    def lines(items):
        return "[\n" + ",\n".join("  " + json.dumps(item) for item in items) + "\n ]" if items else "[]"

    parts = {key: lines(value) if key in ("runs", "rows") else json.dumps(value) for key, value in baseline.items()}
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {part}" for key, part in parts.items()) + "\n}\n"


def same_card(path, card, runs):
    for figures in runs:
        if figures["card"] != card:
            raise Refused(
                f"{path} is of {card}, this run is on {figures['card']}: the floors of two cards scale differently. Name the file of this card"
            )


def median_row(rows):
    """The row with the median ratio (or time where there is no floor). Its time, floor and ratio are all of the same run."""
    return sorted(rows, key=lambda row: row["ratio"] or row["time"])[(len(rows) - 1) // 2]


def record(earlier, runs, only=None, revision=None, path="the baseline"):
    """Returns (the new baseline, remarks to print, True if anything failed). `runs` are figures of the same cases; each row is the median of them.

    A run of all modules replaces `earlier` (None when there was none). A run of some modules replaces the rows of these modules. A module whose bench
    ended with an error keeps its earlier rows. A failed case is recorded as failed, so that it is no surprise when it fails again in a later run.
    """
    first = runs[0]
    if any(figures["selection"] == "cases" for figures in runs):
        raise Refused(
            "these figures hold some cases of their modules only, and would drop the others from the baseline: run without --match and --case"
        )
    same_card(path, (earlier or first)["card"], runs)
    remarks = [
        f"FAILED  {error['module']}: its rows are not recorded: {error['error']}" for figures in runs for error in figures["errors"]
    ]
    broken = {error["module"] for figures in runs for error in figures["errors"]}
    unfinished = {module for module in only or [] if any(module not in figures["modules"] for figures in runs)} - broken
    remarks += [f"FAILED  {module}: was not measured" for module in sorted(unfinished)]
    modules = [
        module
        for module in first["modules"]
        if module not in broken and (not only or module in only) and all(module in figures["modules"] for figures in runs)
    ]
    tables, rows = [rows_of(figures) for figures in runs], {}
    for name in sorted(set().union(*tables)):
        found = [table[name] for table in tables if name in table]
        if found[0]["module"] not in modules:
            continue
        errors = [row["error"] for row in found if "error" in row]
        row = {"name": name, "module": found[0]["module"], "error": errors[0]} if errors else median_row(found)
        rows[name] = {key: value for key, value in row.items() if key not in ("case", "copy")}
        if errors:
            remarks.append(f"FAILED  {name}: {errors[0]}")
        elif row["floor"] is None:
            remarks.append(f"no floor  {name}: recorded with its time, compared by the run's copy")
    failed = bool(broken or unfinished or any("error" in row for row in rows.values()))
    with_rows = [module for module in modules if any(row["module"] == module for row in rows.values())]
    run = {
        "modules": with_rows,
        **{key: first.get(key) for key in ("driver", "torch", "kiln")},
        "revision": revision or first.get("revision"),
        **{key: first.get(key) for key in ("date", "copy_us", "peers")},
    }
    remarks += [f"unknown  {key} of this run" for key in ("driver", "torch", "kiln", "revision", "copy_us") if run[key] is None]
    whole = first["selection"] == "all" and not only
    kept = [r for r in (earlier or {"rows": []})["rows"] if r["module"] not in modules and (not whole or r["module"] in broken)]
    runs_kept = []
    for old in (earlier or {"runs": []})["runs"]:
        left = [module for module in old["modules"] if any(row["module"] == module for row in kept)]
        runs_kept += [{**old, "modules": left}] if left else []
    all_rows = sorted(kept + list(rows.values()), key=lambda row: row["name"])
    return (
        {"schema": BASELINE_SCHEMA, "card": first["card"], "runs": runs_kept + ([run] if with_rows else []), "rows": all_rows},
        remarks,
        failed,
    )


# ---- comparison ---------------------------------------------------------------------------------------------------------------------------


class Change:
    """One row of a comparison. `relative`: its first ratio over the baseline's. `again`: the
    same from each repeat. `verdict`: the value that decides."""

    def __init__(self, name, state, before=None, now=None, relative=None, again=(), note=""):
        self.name, self.state, self.before, self.now, self.relative, self.again, self.note = (
            name,
            state,
            before,
            now,
            relative,
            list(again),
            note,
        )

    @property
    def verdict(self):
        return statistics.median(self.again) if self.again else self.relative


def relative(before, now):
    """How much slower the row is: its ratio to the floor now, over the ratio before. Where either row has no floor, it uses the copies of both runs.
    None without copies."""
    if before["ratio"] and now["ratio"]:
        return now["ratio"] / before["ratio"]
    if before.get("copy") and now.get("copy"):
        return (now["time"] / now["copy"]) / (before["time"] / before["copy"])
    return None


def compare_row(name, before, measured, limit):
    """`measured` holds this row from each run that has it. The first is the run; the others are its repeats."""
    errors = [row["error"] for row in measured if "error" in row]
    if errors and before is not None and "error" in before:
        return Change(name, STILL_FAILS, before, note=errors[0])
    if errors:
        return Change(name, FAILED, before, note=errors[0])
    if before is None or "error" in before:
        return Change(name, NEW, None, measured[0], note="failed when the baseline was recorded" if before else "")
    found = [relative(before, row) for row in measured]
    if None in found:
        return Change(name, UNCOMPARED, before, measured[0], note="neither a floor nor a copy in both runs")
    note = "" if before["ratio"] and measured[0]["ratio"] else "no floor: by the run's copy"
    change = Change(name, SAME, before, measured[0], found[0], found[1:] if found[0] > limit else [], note)
    if change.verdict > limit:
        change.state = SLOWER
    elif change.verdict < 1 / limit:
        change.state = FASTER
    return change


def compare(baseline, runs, only=None, any_card=False, limit=LIMIT, path="the baseline"):
    """Returns a Change for each row of the baseline and of `runs`, in order of name. `only` limits it to these modules.

    The first of `runs` with a row is the run. Where the row is slower by more than `limit`, the median of its repeats decides instead.
    """
    if not any_card:
        try:
            same_card(path, baseline["card"], runs)
        except Refused as error:
            raise Refused(f"{error}, or pass --any-card to compare the ratios nevertheless") from error
    copies = {module: run.get("copy_us") for run in baseline["runs"] for module in run["modules"]}
    before = {row["name"]: {**row, "copy": copies.get(row["module"])} for row in baseline["rows"]}
    measured = {}
    for table in map(rows_of, runs):
        for name, row in table.items():
            measured.setdefault(name, []).append(row)
    why = {error["module"]: error["error"] for figures in runs for error in figures["errors"]}
    finished = {module for figures in runs for module in figures["modules"]}
    changes = []
    for name in sorted(before.keys() | measured.keys()):
        module = (before.get(name) or measured[name][0])["module"]
        if only and module not in only:
            continue
        if name in measured:
            changes.append(compare_row(name, before.get(name), measured[name], limit))
        elif "error" in before[name]:
            changes.append(Change(name, STILL_FAILS, before[name], note="was not measured"))
        else:
            changes.append(
                Change(
                    name,
                    MISSING,
                    before[name],
                    note=why.get(module, "the bench has no such row" if module in finished else f"{module} was not measured"),
                )
            )
    # A module whose bench fails before its first row has no row that could show the failure.
    for module in sorted(why):
        if (not only or module in only) and not any(
            change.state == MISSING and change.before["module"] == module for change in changes
        ):
            changes.append(Change(f"{module}: its bench", FAILED, note=why[module]))
    if not changes:
        raise Refused(
            f"{path} and this run have no row of {', '.join(only) if only else 'any module'}: name modules of tests/templates that have a bench"
        )
    return changes


def confirm(compare_with, runs, measure, repeats):
    """compare_with(runs), after slower rows were measured `repeats` more times. measure(rows, turn) returns figures of these rows."""
    changes = compare_with(runs)
    suspects = [change.now for change in changes if change.state == SLOWER]
    if not suspects or not repeats:
        return changes
    return compare_with(runs + [measure(suspects, turn) for turn in range(1, repeats + 1)])


def fails(changes):
    return any(change.state in BAD for change in changes)


def percent(factor):
    return f"{100 * (factor - 1):+.1f}%"


def line_of(change):
    def figures(row):
        if not row or "error" in row:
            return f"{'':>9} {'':>7}"
        return f"{row['time']:9.2f} {row['ratio'] or math.nan:7.3f}"

    first = percent(change.relative) if change.relative else ""
    again = f"{percent(change.verdict)} ({', '.join(map(percent, change.again))})" if change.again else ""
    return f"{change.state:11} {change.name:66} {figures(change.before)} {figures(change.now)} {first:>7}  {again}{'  ' if again and change.note else ''}{change.note}".rstrip()


def table(changes, limit=LIMIT):
    """The summary: every row that changed by more than the limit, that a repeat decided or that has a note, and the count of each state."""
    order = [*BAD, NEW, STILL_FAILS, FASTER, SAME]
    shown = sorted(
        (c for c in changes if c.state != SAME or c.again or c.note),
        key=lambda c: (order.index(c.state), -(c.verdict or 0), c.name),
    )
    lines = (
        [f"{'':11} {'row':66} {'was us':>9} {'/floor':>7} {'now us':>9} {'/floor':>7} {'change':>7}  repeats: median (each)"]
        if shown
        else []
    )
    lines += map(line_of, shown)
    counts = ", ".join(
        f"{sum(c.state == state for c in changes)} {state}" for state in order if any(c.state == state for c in changes)
    )
    verdicts = [c.verdict for c in changes if c.verdict]
    mean = f"; geometric mean of all changes {percent(statistics.geometric_mean(verdicts))}" if verdicts else ""
    return lines + [f"{len(changes)} rows, limit {percent(limit)}: {counts}{mean}"]


def differences(baseline, runs, only=None):
    """Other differences between the two runs, which may change times although kiln did not change."""
    out = []
    for run in baseline["runs"]:
        if only and not set(only) & set(run["modules"]):
            continue
        for key in ("driver", "torch", "peers"):
            if run.get(key) != runs[0].get(key):
                out.append(
                    f"note: {key} is {runs[0].get(key)}, and was {run.get(key)} when {', '.join(run['modules'])} were recorded"
                )
    return out
