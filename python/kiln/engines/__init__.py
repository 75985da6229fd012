"""Adapters: an engine's layers run on kiln's operators, by a setting and without a fork of the engine.

Each module of this package is one engine. Importing a module imports that engine, and nothing before.
KILN_ENGINES_OFF turns single operators off (_explain).
"""
