#!/usr/bin/env python3
"""Runs the instructions of a Dockerfile in directories, where there is no container daemon.

    dockerfile.py DOCKERFILE RESULT --base SYSTEM [--context NAME=FOLDER]... [--arg NAME=VALUE]... [--environment NAME=VALUE]...

Each stage is a copy of SYSTEM, an unpacked Linux. RUN is a shell in a chroot of the stage, in a mount namespace of its own.
The last stage is left in the directory RESULT. RESULT.json says what the stage's ENV, USER and CMD are.

The context without a name is the Dockerfile's folder. `--environment` is for RUN alone, like a build's secret settings.
An instruction or an option that is not known here is an error. Needs root.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

Variables = dict[str, str]


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions as names and arguments. Comments are left out, and continued lines are joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        found.append((name.upper(), rest.strip()))
    return found


def expanded(text: str, variables: Variables) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise SystemExit(f"the Dockerfile uses {name}, which has no value there")
        return variables[name]

    return re.sub(r"\$\{(\w+)\}|\$(\w+)", value, text)


def assignments(text: str) -> Variables:
    return dict(word.split("=", 1) for word in shlex.split(text))


class Stage:
    def __init__(self, base: pathlib.Path, root: pathlib.Path) -> None:
        self.root = root
        self.arguments: Variables = {}
        self.environment: Variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user = "0:0"
        self.command: list[str] = []
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", base, root], check=True)

    def run(self, command: str, more: Variables) -> None:
        print(f"RUN {command}", flush=True)
        environment = {"HOME": "/root", **self.environment, **self.arguments, **more}
        words = [f"{name}={value}" for name, value in environment.items()]
        mount = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec="$1" "$0" /usr/bin/env -i "${@:2}"'
        subprocess.run(
            ["unshare", "--mount", "bash", "-c", mount, self.root, self.user, *words, "/bin/sh", "-c", command], check=True
        )

    def copy(self, source_root: pathlib.Path, words: list[str]) -> None:
        *sources, target = words
        to = self.root / target.lstrip("/")
        for source in sources:
            matches = glob.glob(str(source_root / source.lstrip("/")))
            if not matches:
                raise SystemExit(f"COPY {source}: there is no such file in {source_root}")
            for match in matches:
                if os.path.isdir(match):  # COPY takes the content of a folder
                    to.mkdir(parents=True, exist_ok=True)
                    subprocess.run(["cp", "-a", "--no-preserve=ownership", f"{match}/.", to], check=True)
                    continue
                file = to / os.path.basename(match) if target.endswith("/") else to
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(match, file)


class Build:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.result = pathlib.Path(options.result).resolve()
        self.contexts = {name: pathlib.Path(folder) for name, folder in (c.split("=", 1) for c in options.context)}
        self.given = assignments(" ".join(options.arg))
        self.more = assignments(" ".join(options.environment))
        self.global_arguments: Variables = {}
        self.stages: dict[str, Stage] = {}
        self.stage: Stage | None = None

    def perform(self, name: str, rest: str) -> None:
        if name == "ARG":
            argument, _, default = rest.partition("=")
            known = self.global_arguments if self.stage is None else self.stage.arguments
            known[argument] = self.given.get(argument, default)
            return
        if name == "FROM":
            expanded(rest, self.global_arguments)  # the base of every stage is the given system
            label = rest.split(" AS ")[1] if " AS " in rest else f"stage-{len(self.stages)}"
            print(f"FROM {rest}", flush=True)
            self.stage = self.stages[label] = Stage(self.options.base, self.result.with_name(f"{self.result.name}.{label}"))
            return
        stage = self.stage
        assert stage is not None, f"{name} before FROM"
        if name == "RUN":
            if rest.startswith("--"):
                raise SystemExit(f"not known: RUN {rest}")
            stage.run(rest, self.more)
            return
        rest = expanded(rest, {**stage.environment, **stage.arguments})
        if name == "COPY":
            print(f"COPY {rest}", flush=True)
            words = shlex.split(rest)
            root = pathlib.Path(self.options.dockerfile).parent
            if words[0].startswith("--from="):
                origin = words.pop(0).removeprefix("--from=")
                root = self.stages[origin].root if origin in self.stages else self.contexts[origin]
            if words[0].startswith("--"):
                raise SystemExit(f"not known: COPY {rest}")
            stage.copy(root, words)
        elif name == "ENV":
            stage.environment.update(assignments(rest))
        elif name == "USER":
            stage.user = rest
        elif name == "CMD":
            stage.command = json.loads(rest)
        else:
            raise SystemExit(f"not known: {name} {rest}")


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("dockerfile")
    parser.add_argument("result")
    parser.add_argument("--base", required=True)
    for option in ("--context", "--arg", "--environment"):
        parser.add_argument(option, action="append", default=[])
    build = Build(parser.parse_args())
    for name, rest in instructions(pathlib.Path(build.options.dockerfile).read_text()):
        build.perform(name, rest)
    stage = build.stage
    if stage is None:
        raise SystemExit("the Dockerfile has no stage")
    shutil.rmtree(build.result, ignore_errors=True)
    stage.root.rename(build.result)
    settings = {"environment": stage.environment, "user": stage.user, "command": stage.command}
    pathlib.Path(f"{build.result}.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
