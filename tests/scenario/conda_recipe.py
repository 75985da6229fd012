#!/usr/bin/env python3
"""Renders packaging/conda/recipe.yaml for both architectures with rattler-build, whose parser refuses what it does not know.

It also checks that the recipe's version is that of kiln.h, and that the files that it names exist. It builds no package.
"""

import pathlib
import re

from rattler_build import RattlerBuildError, RenderConfig, Stage0Recipe, VariantConfig
from rattler_build.tool_config import PlatformConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = ROOT / "packaging/conda/recipe.yaml"
TOOLS = {"c_compiler": ["gcc"], "cxx_compiler": ["gxx"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}


def rendered(recipe: Stage0Recipe, platform: str) -> dict:
    variants = VariantConfig({**TOOLS, "target_platform": [platform]})
    (only,) = recipe.render(variants, RenderConfig(platform=PlatformConfig(target_platform=platform)))
    return only.recipe.to_dict()


def header_version() -> str:
    text = (ROOT / "include/kiln/kiln.h").read_text()
    return ".".join(re.search(rf"KILN_VERSION_{part}\s+(\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def check(platform: str) -> None:
    recipe = rendered(Stage0Recipe.from_file(RECIPE), platform)
    assert recipe["package"] == {"name": "kiln", "version": header_version()}, recipe["package"]
    assert f"gxx_{platform}" in recipe["requirements"]["build"], recipe["requirements"]
    assert (RECIPE.parent / recipe["build"]["script"]["file"]).is_file(), recipe["build"]
    for file in recipe["about"]["license_file"]:
        assert (ROOT / file).is_file(), file
    print(f"{platform}: {recipe['package']['name']} {recipe['package']['version']}, build {recipe['build']['string']}")


def check_that_mistakes_are_found() -> None:
    text = RECIPE.read_text()
    for right, wrong in (("number: 0", "numbr: 0"), ("${{ version }}", "${{ versoin }}"), ("cuda-nvrtc >=", "cuda-nvrtc >>")):
        assert right in text, right
        try:
            rendered(Stage0Recipe.from_yaml(text.replace(right, wrong)), "linux-64")
        except RattlerBuildError as error:
            print(f"'{wrong}' is refused: {type(error).__name__}")
        else:
            raise AssertionError(f"'{wrong}' was accepted")


if __name__ == "__main__":
    for name in ("linux-64", "linux-aarch64"):
        check(name)
    check_that_mistakes_are_found()
