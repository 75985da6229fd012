"""Adapters: an engine's layers run on kiln's operators, by a setting and without a fork of the engine.

Each module of this package is one engine, and importing it imports that engine. The modules vllm and sglang are
entry points, which an engine loads for everybody: they import nothing before register() finds their variable set.
KILN_ENGINES_OFF turns single operators off (_explain).
"""
